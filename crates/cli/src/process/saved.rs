//! What a process knows of itself for the array's configuration.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use super::ServingProcess;
use crate::args::create::ServingArgs;
use crate::config::Config;
use crate::failure::Failure;
use crate::member_search::lasting_name;

/// What was said at the start, and what was set since.
pub(super) struct Saved {
    lanes: u16,
    stripe_size: u64,
    stripe_hash_locks: u32,
    foreground: bool,
    settings: Mutex<BTreeMap<String, String>>,
}

impl Saved {
    pub(super) fn new(serving: &ServingArgs) -> Self {
        Self {
            lanes: serving.lanes,
            stripe_size: serving.stripe_size.bytes,
            stripe_hash_locks: serving.stripe_hash_locks,
            foreground: serving.foreground,
            settings: Mutex::default(),
        }
    }

    pub(super) fn lanes(&self) -> u16 {
        self.lanes
    }

    pub(super) fn foreground(&self) -> bool {
        self.foreground
    }

    /// A key was set.
    pub(super) fn note(&self, key: &str, value: &str) {
        let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
        settings.insert(key.to_owned(), value.to_owned());
    }
}

impl ServingProcess {
    /// The array as it is now, for the next time that it is assembled.
    pub(super) fn configuration(&self) -> Result<Config, Failure> {
        let report = self.report()?;
        let members = report.array.members.iter().filter(|member| !member.is("faulty"));
        let settings = self.saved.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let readonly = self.array.members().are_read_only();
        Ok(Config {
            uuid: Some(report.array.uuid.clone()),
            members: members.map(|member| self.lasting_name(&member.member)).collect(),
            serve: report.fronts.into_iter().map(|front| front.address).collect(),
            readonly,
            // Told to: it may be told otherwise, which its members then have to take.
            refuse_writes: !readonly && report.array.array_state == "readonly",
            lanes: Some(self.saved.lanes),
            stripe_size: Some(self.saved.stripe_size),
            stripe_hash_locks: Some(self.saved.stripe_hash_locks),
            settings: settings.clone(),
        })
    }

    /// The name of a member that lasts: those of block devices may lead to others after a boot.
    fn lasting_name(&self, member: &str) -> String {
        let place = self.array.members().places().of(member);
        let lasting = place.and_then(|place| lasting_name(place.path(), Path::new(BY_ID)));
        lasting.unwrap_or_else(|| member.to_owned())
    }
}

/// What udev calls devices by what they are.
const BY_ID: &str = "/dev/disk/by-id";

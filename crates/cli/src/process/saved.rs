//! What a process knows of itself for the array's configuration.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::ServingProcess;
use crate::args::create::ServingArgs;
use crate::config::{Config, KnownMembers};
use crate::failure::Failure;
use crate::member_search::lasting_name;
use crate::report::{MemberReport, Report};

/// What was said at the start, and what was set since.
pub(super) struct Saved {
    lanes: u16,
    stripe_size: u64,
    stripe_hash_locks: u32,
    foreground: bool,
    settings: Mutex<BTreeMap<String, String>>,
    /// Members that were named at the start or in the configuration: some may not be there.
    known: Mutex<KnownMembers>,
}

impl Saved {
    pub(super) fn new(serving: &ServingArgs) -> Self {
        Self {
            lanes: serving.lanes,
            stripe_size: serving.stripe_size.bytes,
            stripe_hash_locks: serving.stripe_hash_locks,
            foreground: serving.foreground,
            settings: Mutex::default(),
            known: Mutex::new(serving.known.clone()),
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

    fn known(&self) -> MutexGuard<'_, KnownMembers> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ServingProcess {
    /// The array as it is now, for the next time that it is assembled.
    pub(super) fn configuration(&self) -> Result<Config, Failure> {
        let report = self.report()?;
        let (present, missing) = self.present_and_missing(&report);
        let members = present.keys().cloned().collect();
        let names = missing.keys().cloned().collect();
        let uuids = missing.into_iter().filter_map(|(name, uuid)| Some((name, uuid?)));
        let settings = self.saved.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let readonly = self.array.members().are_read_only();
        Ok(Config {
            uuid: Some(report.array.uuid.clone()),
            members,
            missing: names,
            serve: report.fronts.into_iter().map(|front| front.address).collect(),
            readonly,
            // Told to: it may be told otherwise, which its members then have to take.
            refuse_writes: !readonly && report.array.array_state == "readonly",
            lanes: Some(self.saved.lanes),
            stripe_size: Some(self.saved.stripe_size),
            stripe_hash_locks: Some(self.saved.stripe_hash_locks),
            settings: settings.clone(),
            device_uuids: present.into_iter().chain(uuids).collect(),
        })
    }

    /// Members by their lasting names: those that work, with their UUIDs, and those that failed or are not there.
    fn present_and_missing(
        &self,
        report: &Report,
    ) -> (BTreeMap<String, String>, BTreeMap<String, Option<String>>) {
        let named =
            |member: &MemberReport| (self.lasting_name(&member.member), member.device_uuid.clone());
        let (faulty, present): (Vec<_>, Vec<_>) =
            report.array.members.iter().partition(|member| member.is("faulty"));
        let present: BTreeMap<_, _> = present.into_iter().map(named).collect();
        let mut missing = self.saved.known().missing(&report.array.uuid, &present);
        let faulty = faulty.into_iter().map(named).filter(|(name, _)| !present.contains_key(name));
        missing.extend(faulty.map(|(name, uuid)| (name, Some(uuid))));
        (present, missing)
    }

    /// Members of the array that it did not start with are missing.
    pub(super) fn note_left_out(&self, names: &[String]) {
        let lasting: Vec<_> = names.iter().map(|name| self.lasting_name(name)).collect();
        lasting.into_iter().for_each(|name| self.saved.known().note(name));
    }

    /// Has the configuration forget a member that was removed, and has this UUID; false if it knew none.
    pub(super) fn forget(&self, name: &str, uuid: Option<&str>) -> bool {
        let lasting = self.lasting_name(name);
        self.saved.known().forget(&[name, &lasting], uuid)
    }

    /// A line about members that the array has to do without; none if it is whole. `told` were named before.
    pub(super) fn missing_line(&self, told: &[String]) -> Option<String> {
        let report = self.report().ok().filter(|report| report.array.degraded > 0)?;
        let (_, missing) = self.present_and_missing(&report);
        let names: Vec<_> = missing.into_keys().filter(|name| !told.contains(name)).collect();
        (!names.is_empty()).then(|| {
            let (name, names) = (&self.name, names.join(" "));
            format!("{name}: not there: {names}; when back, `mdspace re-add {name} {names}`")
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

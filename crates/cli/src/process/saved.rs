//! What a process knows of itself for the array's configuration.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mdspace_engine::status::{ArrayStatus, MemberState, MemberStatus};
use mdspace_format::Uuid;

use super::ServingProcess;
use crate::args::create::ServingArgs;
use crate::config::{self, Config, KnownMembers, UuidWord};
use crate::failure::Failure;
use crate::member_search::lasting_name;
use crate::run_dir::{Taken, Work};

/// How long others that save the array may take.
const SAVE_WAITS: Duration = Duration::from_secs(5);

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
        let status = self.array.status()?;
        let (present, missing) = self.present_and_missing(&status);
        let members = present.keys().cloned().collect();
        let names = missing.keys().cloned().collect();
        let uuids = missing.into_iter().filter_map(|(name, uuid)| Some((name, uuid?)));
        let device_uuids = present.into_iter().chain(uuids);
        let settings = self.saved.settings.lock().unwrap_or_else(PoisonError::into_inner);
        let readonly = self.array.members().are_read_only();
        Ok(Config {
            uuid: Some(UuidWord(status.uuid)),
            members,
            missing: names,
            serve: self.fronts.addresses(),
            readonly,
            // Told to: it may be told otherwise, which its members then have to take.
            refuse_writes: !readonly && status.state.word() == "readonly",
            lanes: Some(self.saved.lanes),
            stripe_size: Some(self.saved.stripe_size),
            stripe_hash_locks: Some(self.saved.stripe_hash_locks),
            settings: settings.clone(),
            device_uuids: device_uuids.map(|(name, uuid)| (name, UuidWord(uuid))).collect(),
        })
    }

    /// Members by their lasting names: those that work, with their UUIDs, and those that failed or are not there.
    fn present_and_missing(
        &self,
        status: &ArrayStatus,
    ) -> (BTreeMap<String, Uuid>, BTreeMap<String, Option<Uuid>>) {
        self.identify_known(status);
        let named = |member: &MemberStatus| (self.lasting_name(&member.name), member.device_uuid);
        let there = status.members.iter().map(named).collect();
        let is_out =
            |member: &&MemberStatus| member.state == MemberState::Faulty && !member.is_lost;
        let (faulty, present): (Vec<_>, Vec<_>) = status.members.iter().partition(is_out);
        let present: BTreeMap<_, _> = present.into_iter().map(named).collect();
        let mut missing = self.saved.known().missing(status.uuid, &there);
        let faulty = faulty.into_iter().map(named).filter(|(name, _)| !present.contains_key(name));
        missing.extend(faulty.map(|(name, uuid)| (name, Some(uuid))));
        (present, missing)
    }

    /// Writes a member that came without an order into the saved configuration of the array, where there is one, and leaves
    /// the rest of that as it is: at the next boot nobody would name it.
    pub(super) fn save_member(&self, name: &str) -> Result<(), Failure> {
        let Some(path) = config::kept_path(&self.name)? else { return Ok(()) };
        let what = || format!("{name} is not in {}", path.display());
        let cure = || format!("write it with `mdspace save {}`", self.name);
        let turn = self.spares.run_dir().take_turn(&self.name, Work::Save, SAVE_WAITS);
        let turn = turn.map_err(|error| Failure::new(what(), error, cure()))?;
        let _turn = turn.map_err(|Taken(other)| {
            Failure::new(what(), format!("{other} saves it at the same time"), cure())
        })?;
        let (old, status) = (Config::read(&path)?, self.array.status()?);
        let member = status.members.iter().find(|member| member.name == name);
        match member.filter(|_| old.array().is_none_or(|array| array == status.uuid)) {
            Some(member) => {
                old.and_member(self.lasting_name(name), member.device_uuid).write(&path)
            }
            None => Ok(()),
        }
    }

    /// Finds out what known members are of which only a name is known: it may lead to one that is open under another.
    pub(super) fn identify_known(&self, status: &ArrayStatus) {
        let members = self.array.members();
        // Looking up a name may take a while: the list is not locked meanwhile.
        let unidentified = self.saved.known().unidentified();
        for name in unidentified {
            let Some(found) = members.find(&name) else { continue };
            let is_it = |member: &&MemberStatus| members.find(&member.name) == Some(found);
            if let Some(member) = status.members.iter().find(is_it) {
                self.saved.known().identify(&name, member.device_uuid);
            }
        }
    }

    /// Members of the array that it did not start with are missing.
    pub(super) fn note_left_out(&self, names: &[String]) {
        let lasting: Vec<_> = names.iter().map(|name| self.lasting_name(name)).collect();
        lasting.into_iter().for_each(|name| self.saved.known().note(name));
    }

    /// Has the configuration forget a member that was removed, and has this UUID; false if it knew none.
    pub(super) fn forget(&self, name: &str, uuid: Option<Uuid>) -> bool {
        let lasting = self.lasting_name(name);
        self.saved.known().forget(&[name, &lasting], uuid)
    }

    /// A line about members that the array has to do without, spares among them; none if all are there. `told` were
    /// named before.
    pub(super) fn missing_line(&self, told: &[String]) -> Option<String> {
        let status = self.array.status().ok()?;
        // Where every slot has its member they were in none.
        let verb = if status.degraded() > 0 { "re-add" } else { "add" };
        let (_, missing) = self.present_and_missing(&status);
        let names: Vec<_> = missing.into_keys().filter(|name| !told.contains(name)).collect();
        (!names.is_empty()).then(|| {
            let (name, names) = (&self.name, names.join(" "));
            format!("{name}: not there: {names}; when back, `mdspace {verb} {name} {names}`")
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

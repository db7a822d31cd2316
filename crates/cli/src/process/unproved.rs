//! Members behind a network that owe the answer to a write. What they were sent may appear at any time,
//! so they are not opened again, by this process or a later one, before that is proved to be over.

use std::sync::PoisonError;

use mdspace_engine::array::Action;
use mdspace_engine::backend::MemberId;
use mdspace_engine::status::MemberState;
use mdspace_io::{RunningArray, UnprovedWrites, is_remote};

use super::array::ServedArray;
use super::members::OpenMembers;
use crate::failure::Failure;

impl OpenMembers {
    fn unproved(&self) -> &UnprovedWrites {
        self.table().unproved().expect("said where when the table was made")
    }

    /// Refuses a member that may still be written to by nobody knows whom.
    pub(super) fn refuse_unproved(&self, name: &str, what: &str) -> Result<(), Failure> {
        if !is_remote(name) || self.unproved().of(name).is_empty() {
            return Ok(());
        }
        Err(Failure::new(
            what,
            format!("{name}: a write that was sent to it and not answered may still appear"),
            format!(
                "end its server's old connections, then say so: \
                 `mdspace message NAME fail_path {name} --fenced`; an array starts without it: --run"
            ),
        ))
    }

    fn keep(&self, name: &str, sectors: u64) {
        let whole = 0..sectors;
        let ranges = if sectors > 0 { std::slice::from_ref(&whole) } else { &[] };
        if let Err(error) = self.unproved().keep(name, ranges) {
            tracing::error!("{name}: what may still appear is not kept: {error}");
        }
    }
}

impl ServedArray {
    /// Keeps which members that failed owe answers, and forgets those that have given them.
    pub(super) fn keep_unproved(&self) {
        let remote = self.members().remote();
        if remote.is_empty() {
            return;
        }
        let Ok(status) = self.status() else { return };
        for (name, id) in remote {
            let member = status.members.iter().find(|member| member.name == name);
            if member.is_none_or(|member| member.state == MemberState::Faulty) {
                self.keep_unproved_of(&name, id);
            }
        }
    }

    fn keep_unproved_of(&self, name: &str, id: MemberId) {
        let owes = self.with_running(|running: &RunningArray| running.owes_answers(id));
        let mut owing = self.members().owing.lock().unwrap_or_else(PoisonError::into_inner);
        match (owes, owing.contains(&id)) {
            (Some(true), false) => {
                tracing::warn!("{name} owes answers: what it was sent may still appear");
                let sectors = self.members().table().info(id).map_or(1, |info| info.sectors);
                self.members().keep(name, sectors);
                owing.push(id);
            }
            // Its connection was open all the while: all that was sent over it is answered.
            (Some(false), true) => {
                self.members().keep(name, 0);
                owing.retain(|other| *other != id);
            }
            _ => {}
        }
    }

    /// The operator's word that nothing sent to a member can be done any more. Its connection is not
    /// used again. False: nothing was unproved.
    pub(super) fn fenced(&self, name: &str) -> bool {
        self.keep_unproved();
        if !is_remote(name) || self.members().unproved().of(name).is_empty() {
            return false;
        }
        if let Some(id) = self.members().find(name)
            && self.order(Action::Remove { member: id }).is_ok()
        {
            self.members().close(id);
        }
        self.members().keep(name, 0);
        true
    }
}

//! Members behind a network that may still do what they were sent. They are not opened again, by this process
//! or a later one, before that is proved to be over.

use mdspace_engine::array::{Action, CommandError};
use mdspace_engine::backend::MemberId;
use mdspace_io::{OpenMode, RunningArray, UnprovedWrites, is_remote};

use super::array::{OrderError, ServedArray};
use super::descriptors;
use super::members::OpenMembers;
use crate::failure::Failure;

impl OpenMembers {
    fn unproved(&self) -> &UnprovedWrites {
        self.table().unproved().expect("said where when the table was made")
    }

    /// Refuses a member that is to be written to and to which a process that is gone, or an earlier member of
    /// this one, may still write, unless the operator says that it cannot.
    pub(super) fn refuse_unproved(
        &self,
        name: &str,
        mode: OpenMode,
        what: &str,
    ) -> Result<(), Failure> {
        if mode.read_only {
            return Ok(());
        }
        if let Some(paths) = descriptors::paths_of(name).filter(|_| self.is_fenced()) {
            // Else they recall by themselves what may still appear.
            return paths.iter().try_for_each(|path| self.refuse_unproved(path, mode, what));
        }
        if !is_remote(name) {
            return Ok(());
        }
        let unproved = self.unproved().of(name).map_err(|error| {
            let cure = "mend that first: what it has tells which writes may still appear";
            Failure::new(what, error, cure)
        })?;
        match unproved.is_empty() {
            true => Ok(()),
            false if self.is_fenced() => {
                self.unproved().forget(name);
                Ok(())
            }
            false => Err(may_still_appear(name, what)),
        }
    }
}

fn may_still_appear(name: &str, what: &str) -> Failure {
    Failure::new(
        what,
        format!("{name}: a write that was sent to it and not answered may still appear"),
        format!(
            "end its server's old connections, then say so: \
             `mdspace message NAME fail_path {name} --fenced`, or assemble with --fenced; an array \
             starts without it: --run"
        ),
    )
}

impl ServedArray {
    fn owes_answers(&self, id: MemberId) -> bool {
        self.with_running(|running: &RunningArray| running.owes_answers(id)).unwrap_or_default()
    }

    /// Refuses a member that is open still and owes answers.
    pub(super) fn refuse_owing(&self, name: &str, what: &str) -> Result<(), Failure> {
        let open = self.members().find(name).filter(|_| is_remote(name));
        let owes = open.is_some_and(|id| self.owes_answers(id));
        if owes { Err(may_still_appear(name, what)) } else { Ok(()) }
    }

    /// The operator's word that nothing sent to a member can be done any more. Its connection is not
    /// used again: of a member that is in use the word is refused. False: nothing was unproved.
    pub(super) fn fenced(&self, name: &str, what: &str) -> Result<bool, Failure> {
        if !is_remote(name) {
            return Ok(false);
        }
        let open = self.members().find(name);
        let owes = open.is_some_and(|id| self.owes_answers(id));
        if !owes && self.members().unproved().of(name).is_ok_and(|ranges| ranges.is_empty()) {
            return Ok(false);
        }
        if let Some(id) = open {
            match self.order(Action::Remove { member: id }) {
                Ok(_) | Err(OrderError::Refused(CommandError::NotAMember)) => {}
                Err(error) => return Err(error.failure(what)),
            }
            self.members().close(id);
        }
        self.members().unproved().forget(name);
        Ok(true)
    }
}

//! Paths of this host on which a write hangs. It may still land: while it does, the kernel keeps the path for this
//! process, and the device is opened over no other one.

use mdspace_engine::backend::MemberId;
use mdspace_io::is_remote;

use super::members::OpenMembers;
use crate::failure::Failure;

/// What to do where the array is not to run meanwhile.
const CURE: &str = "have the path answer, or detach what hangs there; or stop the array, and leave the path out of the \
     file once nothing that was sent over it can land any more";

impl OpenMembers {
    /// Refuses what would open the members again, where that would fail.
    pub(super) fn refuse_hung_paths(&self, what: &str) -> Result<(), Failure> {
        match self.all().into_iter().find_map(|id| self.hung_path(id)) {
            Some(path) => Err(Failure::new(what, hangs(&path), CURE)),
            None => Ok(()),
        }
    }

    /// A line for the user where a member that is removed could not be added again.
    pub(super) fn hung_path_note(&self, id: MemberId, name: &str) -> Option<String> {
        let path = self.hung_path(id)?;
        Some(format!("{name}: {}; it can be added again once that has ended", hangs(&path)))
    }

    fn hung_path(&self, id: MemberId) -> Option<String> {
        let unproved = self.table().paths(id)?.status().unproved;
        unproved.into_iter().map(|(_, path)| path).find(|path| !is_remote(path))
    }
}

fn hangs(path: &str) -> String {
    format!("a write that was sent over {path} hangs there, and may still land")
}

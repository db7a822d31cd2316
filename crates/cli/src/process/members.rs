//! The members that a serving process has open, under the names that the user gave them.

use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_io::{MemberTable, OpenMode};

use crate::failure::Failure;
use crate::member_probe::{self, refused};

/// Time between two looks whether a member is closed.
const CLOSE_LOOK_EVERY: Duration = Duration::from_millis(1);

/// Open members. They close when taken out, or with the process.
pub(super) struct OpenMembers {
    table: Arc<MemberTable>,
    open: Mutex<Vec<(String, MemberId)>>,
}

impl OpenMembers {
    pub(super) fn new() -> Self {
        Self { table: MemberTable::new(), open: Mutex::default() }
    }

    pub(super) fn table(&self) -> &Arc<MemberTable> {
        &self.table
    }

    /// Opens a member for this array alone.
    pub(super) fn open(
        &self,
        name: &str,
        mode: OpenMode,
        what: &str,
    ) -> Result<(MemberId, MemberInfo), Failure> {
        let (id, info) =
            member_probe::open(&self.table, name, mode).map_err(|error| refused(error, what))?;
        self.list().push((name.to_owned(), id));
        Ok((id, info))
    }

    /// Closes a member.
    pub(super) fn close(&self, id: MemberId) {
        self.list().retain(|(_, open)| *open != id);
        self.table.close(id);
    }

    /// Closes every member, and waits until the kernel has let go of them, but no longer than
    /// `patience`: whoever assembles them next finds them free.
    pub(super) fn close_all(&self, patience: Duration) {
        let open = std::mem::take(&mut *self.list());
        open.iter().for_each(|(_, id)| self.table.close(*id));
        let until = Instant::now() + patience;
        for (name, id) in open {
            while !self.table.is_closed(id) {
                if Instant::now() >= until {
                    tracing::warn!("{name} has requests under way still");
                    return;
                }
                thread::sleep(CLOSE_LOOK_EVERY);
            }
        }
    }

    /// The member that the user means: by its name, else by what the name leads to.
    pub(super) fn find(&self, word: &str) -> Option<MemberId> {
        let open = self.list();
        let by_name = open.iter().find(|(name, _)| name == word);
        let same_place = |name: &str| match (fs::canonicalize(name), fs::canonicalize(word)) {
            (Ok(one), Ok(other)) => one == other,
            _ => false,
        };
        by_name.or_else(|| open.iter().find(|(name, _)| same_place(name))).map(|(_, id)| *id)
    }

    fn list(&self) -> MutexGuard<'_, Vec<(String, MemberId)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

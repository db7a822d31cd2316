//! Other arrays with members on the same devices. Heads that go to and fro between two rebuilds finish
//! neither: as with md, one of them syncs at a time.

use std::fmt;

/// Who knows them: whoever serves arrays side by side.
pub trait Neighbours: fmt::Debug + Send + Sync {
    /// Whether nobody else syncs on a device of these members, by name. If so, the others find this array
    /// there until [`end`](Self::end), also while it asks again. If not, they find it nowhere. Does not wait.
    fn begin(&self, members: &[&str]) -> bool;

    /// The others may.
    fn end(&self);
}

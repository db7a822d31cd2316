//! Writes of parts of blocks beside those of whole ones.
//!
//! A part of a block is written with what was read around it. Meanwhile no other write of the block may be under way:
//! its bytes would turn old again, after its answer. Writes of whole blocks take turns with such a write for as long
//! as there is one; else each of them costs a count of its own lane.

use std::future::pending;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::wait::{SharedWait, Turn, Turns};

/// The writes of all mounts of one volume. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PartialWrites(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    turns: Turns,
    /// A part of a block is written, or waits for writes of whole ones that are under way.
    is_partial: AtomicBool,
    /// Such a write, while it waits for them.
    waiting: SharedWait,
    /// Of each lane of each mount.
    counts: Mutex<Vec<Weak<Count>>>,
}

/// Writes of whole blocks that are under way. Only its own lane changes it: it shares no line of a cache.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

/// The writes of whole blocks of one lane of a mount.
#[derive(Clone, Debug)]
pub(super) struct WholeWrites(Rc<Lane>);

#[derive(Debug)]
struct Lane {
    shared: Arc<Shared>,
    count: Arc<Count>,
}

/// A write of whole blocks that is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct WholeWrite(Rc<Lane>);

/// The turn of a write of parts of blocks, until it is dropped.
pub(super) struct PartialWrite<'a> {
    shared: &'a Shared,
    _turn: Turn<'a>,
}

impl PartialWrites {
    /// For one more lane of a mount.
    pub(super) fn beside(&self) -> WholeWrites {
        let count = Arc::new(Count::default());
        let mut counts = self.0.counts();
        counts.retain(|count| count.strong_count() > 0);
        counts.push(Arc::downgrade(&count));
        WholeWrites(Rc::new(Lane { shared: self.0.clone(), count }))
    }

    /// Waits until no other write is under way, of whatever mount.
    pub(super) async fn begin(&self) -> PartialWrite<'_> {
        let shared = &*self.0;
        let partial = PartialWrite { shared, _turn: shared.turns.turn().await };
        // Before the look: a write that it does not see sees this.
        shared.is_partial.store(true, Ordering::SeqCst);
        shared.waiting.unless(|| shared.is_quiet(), pending::<()>()).await;
        partial
    }
}

impl Shared {
    fn is_quiet(&self) -> bool {
        let counts = self.counts();
        let mut open = counts.iter().filter_map(Weak::upgrade);
        open.all(|count| count.0.load(Ordering::SeqCst) == 0)
    }

    /// A panic elsewhere leaves the list as usable as it was.
    fn counts(&self) -> MutexGuard<'_, Vec<Weak<Count>>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WholeWrites {
    /// Begins a write. None: it is to take its [turn](Self::turn), for a part of a block is written.
    pub(super) fn begin(&self) -> Option<WholeWrite> {
        self.0.count.0.fetch_add(1, Ordering::SeqCst);
        let write = WholeWrite(self.0.clone());
        (!self.0.shared.is_partial.load(Ordering::SeqCst)).then_some(write)
    }

    /// Waits until no part of a block is written. None is until this is dropped.
    pub(super) async fn turn(&self) -> Turn<'_> {
        self.0.shared.turns.turn().await
    }
}

impl Drop for WholeWrite {
    fn drop(&mut self) {
        self.0.count.0.fetch_sub(1, Ordering::SeqCst);
        if self.0.shared.is_partial.load(Ordering::SeqCst) {
            self.0.shared.waiting.wake();
        }
    }
}

impl Drop for PartialWrite<'_> {
    fn drop(&mut self) {
        // Before its turn ends.
        self.shared.is_partial.store(false, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests;

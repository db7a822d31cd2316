//! Who may touch which columns of which row.
//!
//! A claim covers a row and a range of columns: sectors inside the chunk, across all members of the
//! row, because two writes to different members at one offset share P and Q. Claims are held across
//! I/O; the shard's lock is held for a scan of a short list and no longer. Waiters are served in the
//! order of their arrival, so that neither sync nor users starve.
//!
//! A write that waits may *offer* what it writes, as a plain value. Whichever write is granted first then
//! takes those along that wait for it alone: the lanes of these keep their memory and wait for the end.

#[cfg(test)]
mod tests;
mod write;

use std::collections::VecDeque;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

use super::rules::{Rule, keep};
use write::WriteSide;
pub use write::{AcquireWrite, Offer, Taken, WriteClaim};

/// Columns of a row: sectors inside the chunk.
pub type Columns = Range<u32>;

/// Whether others may hold the same columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reads that must not see a row change: degraded reads and check.
    Shared,
    /// Everything that writes.
    Exclusive,
}

/// The table of claims of one array, shared by all its lanes.
pub struct Claims {
    shards: Box<[Shard]>,
}

/// One shard on cache lines of its own (two: the prefetcher fetches pairs).
#[repr(align(128))]
struct Shard(Mutex<Table>);

#[derive(Default)]
struct Table {
    held: Vec<Held>,
    waiting: VecDeque<(Held, Arc<Waiter>)>,
    last_id: u64,
}

#[derive(Clone)]
struct Held {
    id: u64,
    row: u64,
    columns: Columns,
    mode: Mode,
}

#[derive(Default)]
struct Waiter {
    granted: AtomicBool,
    waker: Mutex<Option<Waker>>,
    write: Mutex<WriteSide>,
}

impl Waiter {
    fn wake(&self) {
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }
}

impl Held {
    fn conflicts(&self, other: &Self) -> bool {
        self.row == other.row
            && self.columns.start < other.columns.end
            && other.columns.start < self.columns.end
            && (self.mode == Mode::Exclusive || other.mode == Mode::Exclusive)
            && (self.mode == other.mode || keep(Rule::SharedWaitsForExclusive))
    }
}

impl Claims {
    /// A table with `shards` shards, a power of two.
    pub fn new(shards: usize) -> Self {
        assert!(shards.is_power_of_two(), "claim shards are a power of two");
        Self { shards: (0..shards).map(|_| Shard(Mutex::default())).collect() }
    }

    /// Waits for `columns` of `row`. The claim ends when the guard drops.
    pub fn acquire(&self, row: u64, columns: Columns, mode: Mode) -> Acquire<'_> {
        assert!(columns.start < columns.end, "a claim covers something");
        Acquire { claims: self, wanted: Held { id: 0, row, columns, mode }, waiter: None }
    }

    fn shard(&self, row: u64) -> &Mutex<Table> {
        &self.shards[row as usize & (self.shards.len() - 1)].0
    }

    /// Takes the claim at once, or queues for it.
    fn request(&self, wanted: &mut Held) -> Option<Arc<Waiter>> {
        let mut table = self.shard(wanted.row).lock();
        table.last_id += 1;
        wanted.id = table.last_id;
        let blocked = table.held.iter().any(|held| held.conflicts(wanted))
            || table.waiting.iter().any(|(ahead, _)| ahead.conflicts(wanted));
        if !blocked {
            table.held.push(wanted.clone());
            return None;
        }
        let waiter = Arc::new(Waiter::default());
        table.waiting.push_back((wanted.clone(), waiter.clone()));
        Some(waiter)
    }

    fn release(&self, row: u64, id: u64) {
        let mut table = self.shard(row).lock();
        if let Some(at) = table.held.iter().position(|held| held.id == id) {
            table.held.swap_remove(at);
        } else {
            table.waiting.retain(|(held, _)| held.id != id);
        }
        if table.waiting.is_empty() {
            return;
        }
        let woken = table.grant();
        drop(table);
        woken.into_iter().for_each(|(_, waiter)| waiter.wake());
    }
}

impl Table {
    /// Grants what no holder and no earlier waiter stands against, or has it taken along by a write
    /// that is granted now.
    fn grant(&mut self) -> Vec<(u64, Arc<Waiter>)> {
        let mut granted: Vec<(u64, Arc<Waiter>)> = Vec::new();
        let mut still: VecDeque<(Held, Arc<Waiter>)> = VecDeque::new();
        for (wanted, waiter) in std::mem::take(&mut self.waiting) {
            if still.iter().any(|(ahead, _)| ahead.conflicts(&wanted)) {
                still.push_back((wanted, waiter));
                continue;
            }
            let mut against = self.held.iter_mut().filter(|held| held.conflicts(&wanted));
            let (first, second) = (against.next(), against.next());
            match (first, second) {
                (None, _) => {
                    waiter.granted.store(true, Ordering::Release);
                    granted.push((wanted.id, waiter));
                    self.held.push(wanted);
                }
                (Some(owner), None) if takes_along(&granted, owner.id, &waiter) => {
                    if !keep(Rule::TakenAlongIsClaimed) {
                        continue;
                    }
                    owner.columns.start = owner.columns.start.min(wanted.columns.start);
                    owner.columns.end = owner.columns.end.max(wanted.columns.end);
                }
                _ => still.push_back((wanted, waiter)),
            }
        }
        self.waiting = still;
        granted
    }
}

/// Whether the owner was granted just now, and takes the waiting write along.
fn takes_along(granted: &[(u64, Arc<Waiter>)], owner: u64, waiter: &Arc<Waiter>) -> bool {
    let owner = granted.iter().find(|(id, _)| *id == owner);
    owner.is_some_and(|(_, owner)| write::take_along(owner, waiter))
}

/// Waits for a claim. Dropped early, it leaves no trace.
pub struct Acquire<'a> {
    claims: &'a Claims,
    wanted: Held,
    waiter: Option<Arc<Waiter>>,
}

impl<'a> Acquire<'a> {
    /// The claim, if nothing stands against it now. Else it is waited for from now on.
    pub fn now_or_later(mut self) -> Result<Claim<'a>, Self> {
        self.at_once().ok_or(self)
    }

    fn at_once(&mut self) -> Option<Claim<'a>> {
        if self.wanted.id == 0 {
            self.waiter = self.claims.request(&mut self.wanted);
        }
        self.waiter.is_none().then(|| self.claim())
    }

    fn claim(&mut self) -> Claim<'a> {
        let claim = Claim { claims: self.claims, row: self.wanted.row, id: self.wanted.id };
        self.leave_to_others();
        claim
    }

    /// From here on a guard releases, or somebody else has: not this future.
    fn leave_to_others(&mut self) {
        self.wanted.id = u64::MAX;
    }
}

impl<'a> Future for Acquire<'a> {
    type Output = Claim<'a>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Claim<'a>> {
        if let Some(claim) = self.at_once() {
            return Poll::Ready(claim);
        }
        let waiter = self.waiter.as_ref().expect("it waits");
        *waiter.waker.lock() = Some(context.waker().clone());
        if waiter.granted.load(Ordering::Acquire) {
            return Poll::Ready(self.claim());
        }
        Poll::Pending
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        if self.wanted.id != 0 && self.wanted.id != u64::MAX {
            self.claims.release(self.wanted.row, self.wanted.id);
        }
    }
}

/// A claim that is held.
#[must_use = "a claim is released when it drops"]
pub struct Claim<'a> {
    claims: &'a Claims,
    row: u64,
    id: u64,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.claims.release(self.row, self.id);
    }
}

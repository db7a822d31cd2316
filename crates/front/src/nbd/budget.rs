//! Memory for what clients hold, shared by all clients of a process.
//!
//! Each client has a little of its own, which costs no shared word. Who needs more borrows from here, in
//! the order of asking, and gives back when it uses nothing, or when others wait. The first who waits calls all
//! who have borrowed: one whose requests hang would else keep what it does not use. A client that does not
//! take its answers is cut off in time, so that everyone's turn comes.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use crate::wait::SharedWait;

#[cfg(test)]
mod tests;

/// Bytes that all clients of a process may hold together, beyond the share that is each client's own.
#[derive(Clone, Debug)]
pub struct Budget(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Whether someone waits, for those who hold more than they need.
    wanted: AtomicBool,
}

#[derive(Debug)]
struct State {
    free_bytes: usize,
    asked: u64,
    waiting: VecDeque<Waiting>,
    /// Those who have borrowed.
    holders: Vec<Arc<Call>>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    waker: Waker,
}

/// One client's part in the budget; what it has borrowed is given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Borrower {
    budget: Budget,
    bytes: Cell<usize>,
    call: Arc<Call>,
}

/// Comes to a client when others begin to wait for what it has borrowed.
#[derive(Debug, Default)]
pub(crate) struct Call {
    is_here: AtomicBool,
    waiting: SharedWait,
}

/// A place in the queue; it is left when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    borrower: &'a Borrower,
    number: Option<u64>,
}

impl Default for Budget {
    /// 256 MiB.
    fn default() -> Budget {
        Budget::new(256 << 20)
    }
}

impl Budget {
    /// A budget of so many bytes. One request may need 32 MiB: less is never granted to it.
    pub fn new(bytes: usize) -> Budget {
        let (waiting, holders) = (VecDeque::new(), Vec::new());
        let state = State { free_bytes: bytes, asked: 0, waiting, holders };
        Budget(Arc::new(Shared { state: Mutex::new(state), wanted: AtomicBool::new(false) }))
    }

    /// Bytes that nobody has borrowed.
    pub fn free_bytes(&self) -> usize {
        self.lock().free_bytes
    }

    pub(crate) fn borrower(&self) -> Borrower {
        Borrower { budget: self.clone(), bytes: Cell::new(0), call: Arc::default() }
    }

    /// Has everyone who waits look again: their server may be closing.
    pub(crate) fn wake_all(&self) {
        self.lock().waiting.iter().for_each(|waiting| waiting.waker.wake_by_ref());
    }

    /// The counts hold whatever panicked between.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_who_waits(&self, state: &State) {
        self.0.wanted.store(!state.waiting.is_empty(), Ordering::Relaxed);
    }
}

impl State {
    fn wake_first(&self) {
        if let Some(first) = self.waiting.front() {
            first.waker.wake_by_ref();
        }
    }
}

impl Borrower {
    pub(crate) fn turn(&self) -> Turn<'_> {
        Turn { borrower: self, number: None }
    }

    /// Whether someone waits for what others have borrowed.
    pub(crate) fn is_wanted(&self) -> bool {
        self.budget.0.wanted.load(Ordering::Relaxed)
    }

    /// What comes when someone begins to wait. Who gets it gives back what it does not use.
    pub(crate) fn call(&self) -> Arc<Call> {
        self.call.clone()
    }

    pub(crate) fn give_back(&self, bytes: usize) {
        let left = self.bytes.get() - bytes;
        self.bytes.set(left);
        let mut state = self.budget.lock();
        state.free_bytes += bytes;
        if left == 0 {
            state.holders.retain(|holder| !Arc::ptr_eq(holder, &self.call));
        }
        state.wake_first();
    }
}

impl Drop for Borrower {
    fn drop(&mut self) {
        if self.bytes.get() > 0 {
            self.give_back(self.bytes.get());
        }
    }
}

impl Call {
    fn comes(&self) {
        self.is_here.store(true, Ordering::Release);
        self.waiting.wake();
    }

    /// Whether it has come since the last look.
    fn has_come(&self) -> bool {
        self.is_here.swap(false, Ordering::AcqRel)
    }

    /// Waits for `other`, or until it comes.
    pub(crate) async fn or(&self, other: impl Future<Output = ()>) {
        self.waiting.unless(|| self.has_come(), other).await;
    }
}

impl Turn<'_> {
    /// Borrows `bytes` when all who asked before have got theirs and so many are free.
    pub(crate) fn poll_borrow(&mut self, bytes: usize, waker: &Waker) -> Poll<()> {
        let Borrower { budget, bytes: borrowed, call } = self.borrower;
        let mut state = budget.lock();
        let is_next = match (state.waiting.front(), self.number) {
            (None, _) => true,
            (Some(first), number) => Some(first.number) == number,
        };
        if is_next && state.free_bytes >= bytes {
            state.free_bytes -= bytes;
            if borrowed.get() == 0 {
                state.holders.push(call.clone());
            }
            borrowed.set(borrowed.get() + bytes);
            drop(state);
            self.leave();
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert(state.asked);
        match state.waiting.iter_mut().find(|waiting| waiting.number == number) {
            Some(known) => known.waker.clone_from(waker),
            None => {
                state.asked += 1;
                state.waiting.push_back(Waiting { number, waker: waker.clone() });
                budget.note_who_waits(&state);
                // As long as others wait, each client gives back with each answer what it does not use.
                if state.waiting.len() == 1 {
                    state.holders.iter().for_each(|holder| holder.comes());
                }
            }
        }
        Poll::Pending
    }

    fn leave(&mut self) {
        let Some(number) = self.number.take() else { return };
        let budget = &self.borrower.budget;
        let mut state = budget.lock();
        state.waiting.retain(|waiting| waiting.number != number);
        budget.note_who_waits(&state);
        state.wake_first();
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

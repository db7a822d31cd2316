//! Memory for what clients hold, shared by all clients of a process.
//!
//! Each client has a little of its own, which costs no shared word. Who needs more borrows from here, in
//! the order of asking, and gives back when it holds nothing, or when others wait. A client that does not
//! take its answers is cut off in time, so that everyone's turn comes.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

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
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    waker: Waker,
}

/// A place in the queue; it is left when this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    budget: Budget,
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
        let state = State { free_bytes: bytes, asked: 0, waiting: VecDeque::new() };
        Budget(Arc::new(Shared { state: Mutex::new(state), wanted: AtomicBool::new(false) }))
    }

    /// Bytes that nobody has borrowed.
    pub fn free_bytes(&self) -> usize {
        self.lock().free_bytes
    }

    pub(super) fn turn(&self) -> Turn {
        Turn { budget: self.clone(), number: None }
    }

    /// Whether someone waits for what others hold.
    pub(super) fn is_wanted(&self) -> bool {
        self.0.wanted.load(Ordering::Relaxed)
    }

    pub(super) fn give_back(&self, bytes: usize) {
        let mut state = self.lock();
        state.free_bytes += bytes;
        state.wake_first();
    }

    /// Has everyone who waits look again: their server may be closing.
    pub(super) fn wake_all(&self) {
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

impl Turn {
    /// Borrows `bytes` when all who asked before have got theirs and so many are free.
    pub(super) fn poll_borrow(&mut self, bytes: usize, waker: &Waker) -> Poll<()> {
        let mut state = self.budget.lock();
        let is_next = match (state.waiting.front(), self.number) {
            (None, _) => true,
            (Some(first), number) => Some(first.number) == number,
        };
        if is_next && state.free_bytes >= bytes {
            state.free_bytes -= bytes;
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
            }
        }
        self.budget.note_who_waits(&state);
        Poll::Pending
    }

    fn leave(&mut self) {
        let Some(number) = self.number.take() else { return };
        let mut state = self.budget.lock();
        state.waiting.retain(|waiting| waiting.number != number);
        self.budget.note_who_waits(&state);
        state.wake_first();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.leave();
    }
}

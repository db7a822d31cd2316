//! Tasks that wait for another task, on the same lane or elsewhere.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// A task that waits for another one of its lane.
#[derive(Debug, Default)]
pub(crate) struct Wait(RefCell<Option<Waker>>);

impl Wait {
    /// Says who waits.
    pub(crate) fn set(&self, waker: &Waker) {
        let mut waiting = self.0.borrow_mut();
        match &mut *waiting {
            Some(old) => old.clone_from(waker),
            None => *waiting = Some(waker.clone()),
        }
    }

    /// Wakes it, if there is one.
    pub(crate) fn wake(&self) {
        let waiting = self.0.borrow_mut().take();
        if let Some(waker) = waiting {
            waker.wake();
        }
    }
}

/// A task that any thread may wake.
#[derive(Debug, Default)]
pub(crate) struct SharedWait(Mutex<Option<Waker>>);

impl SharedWait {
    /// Waits for `work`, but gives it up once `is_over`. What makes it so [wakes](Self::wake) this.
    pub(crate) async fn unless<T>(
        &self,
        is_over: impl Fn() -> bool,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|context| {
            // Before the look: an end that comes in between wakes it.
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
            if is_over() {
                return Poll::Ready(None);
            }
            work.as_mut().poll(context).map(Some)
        })
        .await
    }

    /// Wakes it, if there is one.
    pub(crate) fn wake(&self) {
        let waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        waiting.into_iter().for_each(Waker::wake);
    }
}

/// Turns of tasks on any lanes: one at a time, in the order in which they asked.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<Takers>);

#[derive(Debug, Default)]
struct Takers {
    is_taken: bool,
    /// The last number that was given to one who waits.
    last: u64,
    waiting: VecDeque<(u64, Waker)>,
    /// Whose turn it is, until the task notices.
    called: Option<u64>,
}

/// The turn of one task, until it is dropped.
pub(crate) struct Turn<'a>(&'a Turns);

/// One who waits, until it is dropped.
struct Place<'a> {
    turns: &'a Turns,
    number: Option<u64>,
}

impl Turns {
    /// Waits for its turn.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        let mut place = Place { turns: self, number: None };
        poll_fn(|context| place.poll(context.waker())).await
    }

    fn lock(&self) -> MutexGuard<'_, Takers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> Place<'a> {
    fn poll(&mut self, waker: &Waker) -> Poll<Turn<'a>> {
        let mut takers = self.turns.lock();
        match self.number {
            None if takers.is_taken => {
                takers.last += 1;
                self.number = Some(takers.last);
                let entry = (takers.last, waker.clone());
                takers.waiting.push_back(entry);
                return Poll::Pending;
            }
            None => takers.is_taken = true,
            Some(number) if takers.called != Some(number) => {
                let own = takers.waiting.iter_mut().find(|(other, _)| *other == number);
                own.into_iter().for_each(|(_, old)| old.clone_from(waker));
                return Poll::Pending;
            }
            Some(_) => takers.called = None,
        }
        self.number = None;
        Poll::Ready(Turn(self.turns))
    }
}

impl Takers {
    /// The turn is the next one's. Gives whom to wake.
    fn pass_on(&mut self) -> Option<Waker> {
        let next = self.waiting.pop_front();
        self.is_taken = next.is_some();
        self.called = next.as_ref().map(|(number, _)| *number);
        next.map(|(_, waker)| waker)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let mut takers = self.turns.lock();
        takers.waiting.retain(|(other, _)| *other != number);
        let next = if takers.called == Some(number) { takers.pass_on() } else { None };
        drop(takers);
        next.into_iter().for_each(Waker::wake);
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let next = self.0.lock().pass_on();
        next.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;

//! Tasks that wait for another task, on the same lane or elsewhere.

use std::cell::RefCell;
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

/// Turns of tasks on any lanes: one at a time.
#[derive(Debug, Default)]
pub(crate) struct Turns(Mutex<Takers>);

#[derive(Debug, Default)]
struct Takers {
    is_taken: bool,
    waiting: Vec<Waker>,
}

/// The turn of one task, until it is dropped.
pub(crate) struct Turn<'a>(&'a Turns);

impl Turns {
    /// Waits for its turn.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        poll_fn(|context| {
            let mut takers = self.lock();
            if takers.is_taken {
                takers.waiting.push(context.waker().clone());
                return Poll::Pending;
            }
            takers.is_taken = true;
            Poll::Ready(Turn(self))
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, Takers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let waiting = {
            let mut takers = self.0.lock();
            takers.is_taken = false;
            std::mem::take(&mut takers.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}

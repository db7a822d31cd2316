//! Waiting for a condition that another lane will make true.

use std::future::{Future, poll_fn};
use std::task::{Context, Poll, Waker};

use crate::sync::Mutex;

/// Wakes everyone who waits for some shared condition. The condition itself lives elsewhere.
#[derive(Default)]
pub(crate) struct Signal(Mutex<Vec<Waker>>);

impl Signal {
    /// Says that the condition may have become true.
    pub(crate) fn notify(&self) {
        let waiting = std::mem::take(&mut *self.0.lock());
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until `ready` gives a value.
    pub(crate) fn until<'a, T>(
        &'a self,
        mut ready: impl FnMut() -> Option<T> + 'a,
    ) -> impl Future<Output = T> + 'a {
        poll_fn(move |context| self.poll(context, &mut ready))
    }

    /// One look whether `ready` gives a value; else `context` is woken when it may.
    pub(crate) fn poll<T>(
        &self,
        context: &Context<'_>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Poll<T> {
        if let Some(value) = ready() {
            return Poll::Ready(value);
        }
        let mut waiting = self.0.lock();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        drop(waiting);
        // Asked again after the waker is in place, or a notify in between would be lost.
        ready().map_or(Poll::Pending, Poll::Ready)
    }
}

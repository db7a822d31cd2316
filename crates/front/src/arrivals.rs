//! What other threads have for a lane.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// A queue to one lane: any thread adds to it, and one task of the lane takes.
pub(crate) struct Arrivals<T>(Mutex<Waiting<T>>);

struct Waiting<T> {
    items: VecDeque<T>,
    lane: Option<Waker>,
    is_closed: bool,
}

impl<T> Default for Arrivals<T> {
    fn default() -> Self {
        Self(Mutex::new(Waiting { items: VecDeque::new(), lane: None, is_closed: false }))
    }
}

impl<T> Arrivals<T> {
    /// Adds an item. It is dropped where the queue is closed.
    pub(crate) fn push(&self, item: T) {
        let mut waiting = self.lock();
        if waiting.is_closed {
            // Before the item: what its end locks may be locked by one who waits for this.
            drop(waiting);
            return;
        }
        waiting.items.push_back(item);
        wake(waiting);
    }

    /// The next item; `None` when the queue is closed and all were taken.
    pub(crate) async fn next(&self) -> Option<T> {
        poll_fn(|context| {
            let mut waiting = self.lock();
            match waiting.items.pop_front() {
                Some(item) => Poll::Ready(Some(item)),
                None if waiting.is_closed => Poll::Ready(None),
                None => {
                    waiting.lane = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Takes no more. What waits is still given.
    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        waiting.is_closed = true;
        wake(waiting);
    }

    /// Takes no more, and drops what waits.
    pub(crate) fn turn_away(&self) {
        self.close();
        let items = std::mem::take(&mut self.lock().items);
        drop(items);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the lane, with nothing locked.
fn wake<T>(mut waiting: MutexGuard<'_, Waiting<T>>) {
    let lane = waiting.lane.take();
    drop(waiting);
    lane.into_iter().for_each(Waker::wake);
}

impl<T> fmt::Debug for Arrivals<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} waiting", self.lock().items.len())
    }
}

//! Connections on their way to the lane that serves them.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// The connections that come to one lane, each with its entry in the server's list.
#[derive(Debug)]
pub(super) struct Arrivals<P>(Mutex<Waiting<P>>);

#[derive(Debug)]
struct Waiting<P> {
    sockets: VecDeque<(OwnedFd, P)>,
    lane: Option<Waker>,
}

impl<P> Default for Arrivals<P> {
    fn default() -> Self {
        Self(Mutex::new(Waiting { sockets: VecDeque::new(), lane: None }))
    }
}

impl<P> Arrivals<P> {
    pub(super) fn push(&self, socket: OwnedFd, presence: P) {
        self.lock().sockets.push_back((socket, presence));
        self.wake();
    }

    /// Drops all who have not begun.
    pub(super) fn turn_away(&self) {
        let sockets = std::mem::take(&mut self.lock().sockets);
        drop(sockets);
    }

    pub(super) fn wake(&self) {
        let lane = self.lock().lane.take();
        if let Some(waker) = lane {
            waker.wake();
        }
    }

    /// The next one; `None` once the server is closing.
    pub(super) async fn next(&self, is_closing: impl Fn() -> bool) -> Option<(OwnedFd, P)> {
        poll_fn(|context| {
            let mut waiting = self.lock();
            if is_closing() {
                drop(waiting);
                self.turn_away();
                return Poll::Ready(None);
            }
            match waiting.sockets.pop_front() {
                Some(arrival) => Poll::Ready(Some(arrival)),
                None => {
                    waiting.lane = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<P>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

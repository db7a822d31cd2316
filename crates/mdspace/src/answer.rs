//! An answer that comes from a lane.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use mdspace_io::is_lane_thread;

use crate::Error;

/// What comes of something that was begun on a lane. It goes on whether or not it is waited for, and also when this is
/// dropped.
#[must_use = "the answer says whether it was done"]
pub struct Answer<T>(Arc<Shared<T>>);

/// Where the answer is given. Dropped without one, it says that the array is stopped.
pub(crate) struct Reply<T>(Arc<Shared<T>>);

struct Shared<T>(Mutex<State<T>>);

enum State<T> {
    Waiting(Option<Waker>),
    Given(Result<T, Error>),
    Taken,
}

/// An answer, and where to give it.
pub(crate) fn answer<T>() -> (Reply<T>, Answer<T>) {
    let shared = Arc::new(Shared(Mutex::new(State::Waiting(None))));
    (Reply(shared.clone()), Answer(shared))
}

impl<T> Reply<T> {
    pub(crate) fn give(self, answer: Result<T, Error>) {
        self.0.give(answer);
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        self.0.give(Err(Error::Stopped));
    }
}

impl<T> Shared<T> {
    /// The first one counts.
    fn give(&self, answer: Result<T, Error>) {
        let mut state = self.state();
        let State::Waiting(waker) = &mut *state else { return };
        let waker = waker.take();
        *state = State::Given(answer);
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Answer<T> {
    /// Blocks until the answer is there. A lane's thread is refused: it would wait for itself.
    pub fn wait(self) -> Result<T, Error> {
        refuse_lanes()?;
        block_on(self)
    }
}

impl<T> Future for Answer<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Given(answer) => Poll::Ready(answer),
            State::Waiting(_) => {
                *state = State::Waiting(Some(context.waker().clone()));
                Poll::Pending
            }
            State::Taken => panic!("an answer is polled no more once it was given"),
        }
    }
}

/// Refuses to block a lane's thread.
pub(crate) fn refuse_lanes() -> Result<(), Error> {
    if is_lane_thread() { Err(Error::OnLane) } else { Ok(()) }
}

/// Runs a future on this thread, which sleeps while it waits.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<T> std::fmt::Debug for Answer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answer")
    }
}

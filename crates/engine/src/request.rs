//! What users ask of an array, and what they are told.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use crate::memory::{Sink, Source};

/// One request. Addresses are 512-byte sectors of the array.
pub enum Request {
    /// Fills the whole of `into` from `sector` on.
    Read {
        /// First sector.
        sector: u64,
        /// Where the bytes go; its length is the length of the read.
        into: Rc<dyn Sink>,
    },
    /// Writes the whole of `from` from `sector` on.
    Write {
        /// First sector.
        sector: u64,
        /// Where the bytes come from; its length is the length of the write.
        from: Rc<dyn Source>,
        /// Whether the bytes must be durable before the answer.
        fua: bool,
    },
    /// Makes durable every write that was answered before, on whatever lane.
    Flush,
    /// Gives up a range. Where the level cannot, it is accepted and ignored.
    Discard {
        /// First sector.
        sector: u64,
        /// Length in sectors.
        sectors: u64,
    },
    /// Makes a range read as zeroes, and gives up what it took where all members can.
    Punch {
        /// First sector.
        sector: u64,
        /// Length in sectors.
        sectors: u64,
    },
    /// Makes a range read as zeroes.
    WriteZeroes {
        /// First sector.
        sector: u64,
        /// Length in sectors.
        sectors: u64,
        /// Whether the zeroes must be durable before the answer.
        fua: bool,
    },
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// Beyond the end of the array.
    #[error("the range ends beyond the array")]
    OutOfRange,
    /// Not a multiple of the array's logical block.
    #[error("offset and length must be multiples of the logical block")]
    Unaligned,
    /// The array takes no writes now.
    #[error("the array is read-only")]
    ReadOnly,
    /// A member's file system or pool is full; nothing was failed for it.
    #[error("no space is left behind a member")]
    NoSpace,
    /// Too many members are gone, or their sectors unreadable, for this range.
    #[error("the range cannot be reached with the members that are left")]
    Lost,
    /// The array was stopped.
    #[error("the array is stopped")]
    Stopped,
}

/// The end of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The tag that the request was submitted with.
    pub tag: u64,
    /// Whether all of it was done.
    pub result: Result<(), RequestError>,
}

/// Where one client's completions arrive. It lives on one lane.
#[derive(Default)]
pub struct Queue {
    ended: RefCell<VecDeque<Completion>>,
    in_flight: Cell<usize>,
    waiting: RefCell<Option<Waker>>,
    heard_by: Option<Hears>,
}

/// Who hears of each end at once.
type Hears = Box<dyn Fn(Result<(), RequestError>)>;

impl Queue {
    /// An empty queue.
    pub fn new() -> Rc<Self> {
        Rc::default()
    }

    /// Keeps nothing: `hears` is told of an end in the very moment in which it comes.
    pub(crate) fn heard_by(hears: impl Fn(Result<(), RequestError>) + 'static) -> Rc<Self> {
        Rc::new(Self { heard_by: Some(Box::new(hears)), ..Self::default() })
    }

    /// Requests submitted and not yet taken by [`pop`](Self::pop).
    pub fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// Takes one completion, in the order of their arrival.
    pub fn pop(&self) -> Option<Completion> {
        let ended = self.ended.borrow_mut().pop_front()?;
        self.in_flight.set(self.in_flight.get() - 1);
        Some(ended)
    }

    /// Waits for the next completion.
    pub async fn next(&self) -> Completion {
        poll_fn(|context| match self.pop() {
            Some(completion) => Poll::Ready(completion),
            None => {
                *self.waiting.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        })
        .await
    }

    /// Counts a request that was submitted. For whoever runs requests, as [`end`](Self::end) is.
    pub fn begin(&self) {
        self.in_flight.set(self.in_flight.get() + 1);
    }

    /// Adds the end of a request that was counted.
    #[inline]
    pub fn end(&self, tag: u64, result: Result<(), RequestError>) {
        if let Some(hears) = &self.heard_by {
            return hears(result);
        }
        self.ended.borrow_mut().push_back(Completion { tag, result });
        if self.waiting.borrow().is_some() {
            self.wake();
        }
    }

    fn wake(&self) {
        if let Some(waiter) = self.waiting.borrow_mut().take() {
            waiter.wake();
        }
    }
}

//! Writes that wait for a claim, and may be taken along by the one that is granted it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use smallvec::{SmallVec, smallvec};

use crate::array::handover::{GivenPiece, Results};
use crate::request::RequestError;

use super::{Acquire, Claim, Waiter};

/// What a waiting write writes, as a plain value.
pub struct Offer {
    /// In the order of arrival.
    pub pieces: SmallVec<[GivenPiece; 1]>,
    /// How much that is.
    pub bytes: usize,
    /// Bytes of all that are written together, if it is this one that is granted.
    pub most_bytes: usize,
}

/// A write that was taken along: it is written after those before it, and then told its end.
pub struct Taken {
    pieces: SmallVec<[GivenPiece; 1]>,
    end: End,
}

/// Who waits for the end of a write that was taken along. Given up without an end, it failed.
struct End {
    count: usize,
    waiter: Option<Arc<Waiter>>,
}

/// A waiter's other side, if it is a write.
#[derive(Default)]
pub(super) struct WriteSide {
    offer: Option<Offer>,
    /// What it takes along, once it has been granted.
    taken: Vec<Taken>,
    /// What came of it where another took it along.
    results: Option<Results>,
}

/// Has `owner` take `other` along, where both offer what they write and there is room.
pub(super) fn take_along(owner: &Waiter, other: &Arc<Waiter>) -> bool {
    let mut owner = owner.write.lock();
    let WriteSide { offer: Some(own), taken, .. } = &mut *owner else { return false };
    let room = own.most_bytes.saturating_sub(own.bytes);
    let offer = other.write.lock().offer.take_if(|offer| offer.bytes <= room);
    let Some(Offer { pieces, bytes, .. }) = offer else { return false };
    own.bytes += bytes;
    let end = End { count: pieces.len(), waiter: Some(other.clone()) };
    taken.push(Taken { pieces, end });
    true
}

impl<'a> Acquire<'a> {
    /// Waits on as a write that may be taken along.
    pub fn offering(self, offer: Offer) -> AcquireWrite<'a> {
        if let Some(waiter) = &self.waiter {
            waiter.write.lock().offer = Some(offer);
        }
        AcquireWrite(self)
    }
}

/// Waits for a claim, or for the end of a write that another took along.
pub struct AcquireWrite<'a>(Acquire<'a>);

/// How the wait of a write ended.
pub enum WriteClaim<'a> {
    /// It is its turn, with those that it takes along, in the order of their arrival.
    Granted(Claim<'a>, Vec<Taken>),
    /// Another took it along, and this is what came of its pieces.
    Ended(Results),
}

impl<'a> Future for AcquireWrite<'a> {
    type Output = WriteClaim<'a>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<WriteClaim<'a>> {
        if let Poll::Ready(claim) = Pin::new(&mut self.0).poll(context) {
            let taken = self.0.waiter.take().map(|waiter| {
                let mut write = waiter.write.lock();
                // Nobody needs it any more; its memory is its lane's.
                write.offer = None;
                std::mem::take(&mut write.taken)
            });
            return Poll::Ready(WriteClaim::Granted(claim, taken.unwrap_or_default()));
        }
        let waiter = self.0.waiter.as_ref().expect("it waits");
        let results = waiter.write.lock().results.take();
        match results {
            Some(results) => {
                self.0.leave_to_others();
                Poll::Ready(WriteClaim::Ended(results))
            }
            None => Poll::Pending,
        }
    }
}

impl Taken {
    /// What it writes. To be called once, and to be let go before its end is told.
    pub fn pieces(&mut self) -> SmallVec<[GivenPiece; 1]> {
        std::mem::take(&mut self.pieces)
    }

    /// How many pieces it has.
    pub fn count(&self) -> usize {
        self.end.count
    }

    /// Tells the lane that waits for it what came of its pieces.
    pub fn end(mut self, results: Results) {
        self.end.tell(results);
    }
}

impl End {
    fn tell(&mut self, results: Results) {
        if let Some(waiter) = self.waiter.take() {
            waiter.write.lock().results = Some(results);
            waiter.wake();
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.tell(smallvec![Err(RequestError::Stopped); self.count]);
    }
}

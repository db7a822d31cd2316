//! Memory that a front end lends to the engine.

use std::any::Any;
use std::cell::{Cell, OnceCell};
use std::mem::ManuallyDrop;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::Arc;

use mdspace_engine::memory::{Buffer, SharedBytes, Sink, Source};

use crate::driver::Stock;

/// Aligned memory of one request, from the lane's stock: a read fills it, or a write takes from it.
///
/// The kernel moves member data straight to and from it. It goes back to the stock when the last
/// `Rc` is gone, which no kernel outlives: whoever is under way holds one. Its bytes are shown as a
/// slice only after they are complete: from the first [`Source::stable`] on nothing may fill it.
///
/// A transfer that misses its deadline keeps the memory that it was given, for as long as it takes: the
/// answer is put together in other memory, and a read that is repeated begins there. So often as that happens.
pub struct Payload {
    first: ManuallyDrop<Held>,
    /// Transfers under way that fill it, late ones apart.
    filling: Cell<u32>,
    /// The memory that counts is a late transfer's: what comes next goes elsewhere.
    is_left: Cell<bool>,
    frozen: Cell<bool>,
    stock: Rc<Stock>,
}

/// Which memory of a payload a transfer was lent: how many had been left by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lent(u32);

/// Memory of a payload.
struct Held {
    memory: Arc<Memory>,
    /// What counts instead since a transfer into it was overtaken.
    instead: OnceCell<Box<Held>>,
}

/// The bytes of a payload, which other lanes may see once they are frozen.
struct Memory {
    buffer: Buffer,
    at: NonNull<u8>,
}

// SAFETY: only the payload writes through `at`, on its own lane, and never after it is frozen; other
// lanes get to see it frozen.
unsafe impl Send for Memory {}
// SAFETY: as for `Send`.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(buffer: Buffer) -> Arc<Self> {
        let mut memory = Arc::new(Self { buffer, at: NonNull::dangling() });
        // The pointer is taken where the buffer stays: moving a box may end pointers into it.
        let rests = Arc::get_mut(&mut memory).expect("a new reference is the only one");
        rests.at = NonNull::new(rests.buffer.as_mut_ptr()).expect("a slice is never at null");
        memory
    }
}

/// Only for frozen memory: [`Payload::shared`] gives away no other.
impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer lives as long as `self`, its bytes are initialised, and nothing writes
        // to them any more (frozen).
        unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.buffer.len()) }
    }
}

impl Payload {
    pub(crate) fn new(stock: Rc<Stock>, len: usize) -> Rc<Self> {
        let first = ManuallyDrop::new(Held::new(stock.allocate(len)));
        let (filling, is_left, frozen) = (Cell::new(0), Cell::new(false), Cell::new(false));
        Rc::new(Self { first, filling, is_left, frozen, stock })
    }

    /// Bytes that it holds.
    pub fn len(&self) -> usize {
        self.first.memory.buffer.len()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A copy of its bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.take(0, &mut bytes);
        bytes
    }

    /// All memory that was lent, the one that counts last.
    fn held(&self) -> impl Iterator<Item = &Held> {
        std::iter::successors(Some(&*self.first), |held| held.instead.get().map(|next| &**next))
    }

    fn last(&self) -> &Held {
        self.held().last().expect("the first is always held")
    }

    /// The memory that counts.
    fn counts(&self) -> &Arc<Memory> {
        &self.last().memory
    }

    /// Where `range` begins in the memory that counts.
    pub(crate) fn at(&self, range: &Range<usize>) -> *mut u8 {
        self.at_lent(self.lent(), range)
    }

    /// Where `range` begins in the memory that a transfer was lent.
    pub(crate) fn at_lent(&self, lent: Lent, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.len(), "a range of the payload");
        let held = self.held().nth(lent.0 as usize).expect("it was lent");
        // SAFETY: `start` is within the buffer, as just asserted.
        unsafe { held.memory.at.as_ptr().add(range.start) }
    }

    pub(crate) fn registration(&self) -> Option<u32> {
        self.counts().buffer.registration()
    }

    /// The memory that counts.
    pub(crate) fn lent(&self) -> Lent {
        Lent(self.held().skip(1).count() as u32)
    }

    /// Says that a transfer starts to fill it, and what memory it is to use; `filled` or `overtaken` must follow. One that
    /// repeats what late transfers did not bring may ask for the same bytes: it gets memory that they do not write to.
    pub(crate) fn lend(&self) -> Lent {
        if self.is_left.get() && self.filling.get() == 0 {
            self.leave();
        }
        self.filling();
        self.lent()
    }

    /// Says that a transfer starts to fill the memory that counts; `filled` must follow.
    pub(crate) fn filling(&self) {
        assert!(!self.frozen.get(), "a payload is not filled once its bytes have been shown");
        self.filling.set(self.filling.get() + 1);
    }

    pub(crate) fn filled(&self) {
        self.filling.set(self.filling.get() - 1);
    }

    /// Takes what a transfer under way brings that moved it elsewhere: as if it had filled the memory that it was lent.
    pub(crate) fn put_lent(&self, lent: Lent, range: &Range<usize>, bytes: &[u8]) {
        assert!(self.filling.get() > 0, "the transfer is under way");
        assert_eq!(bytes.len(), range.len());
        // SAFETY: the range lies within the memory, as `at_lent` asserts. Nobody holds a slice of its bytes: they are
        // shown when no transfer is under way. No other transfer was given this range.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at_lent(lent, range), bytes.len());
        }
    }

    /// Says that a transfer has missed its deadline: it may write to its memory at any time from now
    /// on, and nobody is to see that.
    pub(crate) fn overtaken(&self, lent: Lent) {
        self.filled();
        self.is_left.set(self.is_left.get() || lent == self.lent());
    }

    /// Goes on in other memory, with a copy of what there is.
    fn leave(&self) {
        assert!(self.filling.get() == 0, "who puts bytes together waits for all transfers first");
        let last = self.last();
        let next = Box::new(Held::new(self.stock.allocate(self.len())));
        // SAFETY: both are as long as the payload, and apart. What the late transfer writes meanwhile
        // is in the part that it was asked for, which whoever leaves puts over before anyone looks.
        unsafe {
            let to = next.memory.at.as_ptr();
            std::ptr::copy_nonoverlapping(last.memory.at.as_ptr(), to, self.len());
        }
        assert!(last.instead.set(next).is_ok(), "nothing counts instead of the last one");
        self.is_left.set(false);
    }
}

impl Held {
    fn new(buffer: Buffer) -> Self {
        Self { memory: Memory::new(buffer), instead: OnceCell::new() }
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        // SAFETY: taken once, here; the payload is not used after its drop.
        let first = unsafe { ManuallyDrop::take(&mut self.first) };
        let mut held = Some(Box::new(first));
        while let Some(Held { memory, mut instead }) = held.take().map(|held| *held) {
            // Else a worker's late write holds it still, and the memory goes with that.
            if let Some(memory) = Arc::into_inner(memory) {
                self.stock.recycle(memory.buffer);
            }
            held = instead.take();
        }
    }
}

impl Sink for Payload {
    fn len(&self) -> usize {
        self.len()
    }

    fn fill(&self, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8])) {
        assert!(!self.frozen.get(), "a payload is not filled once its bytes have been shown");
        if self.is_left.get() {
            self.leave();
        }
        // Whoever looks at the bytes meanwhile finds them incomplete.
        self.filling();
        // SAFETY: the range lies within the buffer, whose bytes are initialised. Nobody holds a slice
        // of them (not frozen) or gets one before `filled`, no transfer under way was given these
        // bytes, and the payload never leaves its thread.
        fill(unsafe { std::slice::from_raw_parts_mut(self.at(&range), range.len()) });
        self.filled();
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Source for Payload {
    fn len(&self) -> usize {
        self.len()
    }

    fn stable(&self) -> Option<&[u8]> {
        if self.filling.get() > 0 {
            return None;
        }
        self.frozen.set(true);
        Some(self.counts())
    }

    fn shared(&self) -> Option<SharedBytes> {
        self.stable()?;
        let memory: Arc<Memory> = Arc::clone(self.counts());
        Some(memory)
    }

    fn take(&self, offset: usize, out: &mut [u8]) {
        assert!(self.filling.get() == 0, "bytes are taken after they have been filled in");
        let from = self.at(&(offset..offset + out.len()));
        // SAFETY: `from` has that many bytes, and no transfer writes them.
        unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl std::fmt::Debug for Payload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Payload({} bytes)", self.len())
    }
}

//! Memory that a front end lends to the engine.

use std::any::Any;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::ptr::NonNull;
use std::rc::Rc;

use mdspace_engine::memory::{Buffer, Sink, Source};

use crate::driver::Stock;

/// Aligned memory of one request, from the lane's stock: a read fills it, or a write takes from it.
///
/// The kernel moves member data straight to and from it. It goes back to the stock when the last
/// `Rc` is gone, which no kernel outlives: whoever is under way holds one. Its bytes are shown as a
/// slice only after they are complete: from the first [`Source::stable`] on nothing may fill it.
pub struct Payload {
    buffer: ManuallyDrop<Buffer>,
    at: NonNull<u8>,
    /// Transfers under way that fill it.
    filling: Cell<u32>,
    frozen: Cell<bool>,
    stock: Rc<Stock>,
}

impl Payload {
    pub(crate) fn new(stock: Rc<Stock>, len: usize) -> Rc<Self> {
        let buffer = ManuallyDrop::new(stock.allocate(len));
        let at = NonNull::dangling();
        let (filling, frozen) = (Cell::new(0), Cell::new(false));
        let mut payload = Rc::new(Self { buffer, at, filling, frozen, stock });
        // The pointer is taken where the buffer stays: moving a box may end pointers into it.
        let rests = Rc::get_mut(&mut payload).expect("a new reference is the only one");
        rests.at = NonNull::new(rests.buffer.as_mut_ptr()).expect("a slice is never at null");
        payload
    }

    /// Bytes that it holds.
    pub fn len(&self) -> usize {
        self.buffer.len()
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

    /// Where `range` begins in memory.
    pub(crate) fn at(&self, range: &Range<usize>) -> *mut u8 {
        assert!(range.start <= range.end && range.end <= self.len(), "a range of the payload");
        // SAFETY: `start` is within the buffer, as just asserted.
        unsafe { self.at.as_ptr().add(range.start) }
    }

    pub(crate) fn registration(&self) -> Option<u32> {
        self.buffer.registration
    }

    /// Says that a transfer starts to fill it; `filled` must follow.
    pub(crate) fn filling(&self) {
        assert!(!self.frozen.get(), "a payload is not filled once its bytes have been shown");
        self.filling.set(self.filling.get() + 1);
    }

    pub(crate) fn filled(&self) {
        self.filling.set(self.filling.get() - 1);
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        // SAFETY: taken once, here; the payload is not used after its drop.
        let buffer = unsafe { ManuallyDrop::take(&mut self.buffer) };
        self.stock.recycle(buffer);
    }
}

impl Sink for Payload {
    fn len(&self) -> usize {
        self.len()
    }

    fn put(&self, offset: usize, bytes: &[u8]) {
        assert!(!self.frozen.get(), "a payload is not filled once its bytes have been shown");
        let to = self.at(&(offset..offset + bytes.len()));
        // SAFETY: `to` has room for the bytes, nobody holds a slice of them (not frozen), and the
        // payload never leaves its thread.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
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
        // SAFETY: the buffer lives as long as `self`, its bytes are initialised, and from now on
        // nothing writes to them (frozen).
        Some(unsafe { std::slice::from_raw_parts(self.at.as_ptr(), self.len()) })
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

//! The memory that I/O moves: buffers of the engine's own, and memory that a front end lends.
//!
//! A [`Buffer`] is owned: it moves into a member I/O and comes back with its completion, so nobody
//! can touch it while a kernel may. What a front end lends stays the front end's: the engine sees it
//! as a [`Sink`] (a read fills it) or a [`Source`] (a write takes from it) behind an `Rc`, and the
//! memory may be reused when the last `Rc` is gone, not before. A backend that knows the concrete
//! type (by `Any`) may move bytes straight to or from it; for a stranger's type it bounces.

use std::any::Any;
use std::cell::RefCell;
use std::ops::{Deref, DerefMut, Range};
use std::rc::Rc;
use std::sync::{Arc, OnceLock};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Alignment of every [`Buffer`], in bytes: enough for direct I/O on any member.
pub const BUFFER_ALIGN_BYTES: usize = 4096;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; BUFFER_ALIGN_BYTES]);

/// Memory of the engine's own: aligned, owned by whoever holds it, leased by moving it. It moves through
/// every layer with each I/O, so it is no more than a pointer.
pub struct Buffer(Box<Memory>);

struct Memory {
    pages: Box<[Page]>,
    len: usize,
    registration: Option<u32>,
}

impl Buffer {
    /// A zeroed buffer of `len` bytes.
    pub fn zeroed(len: usize) -> Self {
        let pages = vec![Page([0; BUFFER_ALIGN_BYTES]); len.div_ceil(BUFFER_ALIGN_BYTES)];
        Self(Box::new(Memory { pages: pages.into_boxed_slice(), len, registration: None }))
    }

    /// Bytes that the buffer could hold.
    pub fn capacity(&self) -> usize {
        self.0.pages.len() * BUFFER_ALIGN_BYTES
    }

    /// Makes the buffer `len` bytes long; the bytes are whatever they were.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity(), "a buffer never grows beyond its pages");
        self.0.len = len;
    }

    /// Where a backend registered this memory with its rings; the backend's business alone.
    #[inline]
    pub fn registration(&self) -> Option<u32> {
        self.0.registration
    }

    /// Notes where a backend registered this memory.
    pub fn set_registration(&mut self, registration: Option<u32>) {
        self.0.registration = registration;
    }
}

impl Deref for Buffer {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0.pages.as_bytes()[..self.0.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let memory = &mut *self.0;
        &mut memory.pages.as_mut_bytes()[..memory.len]
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.0.len)
    }
}

/// Bytes that lanes share: nobody changes them any more.
pub type SharedBytes = Arc<dyn Deref<Target = [u8]> + Send + Sync>;

/// Memory of a front end that a read fills.
pub trait Sink: Any {
    /// Bytes that it takes.
    fn len(&self) -> usize;
    /// Whether it takes nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Lets `fill` write all bytes of `range`. What stood there is no zeroes, and means nothing.
    fn fill(&self, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8]));
    /// Copies `bytes` to `offset`.
    fn put(&self, offset: usize, bytes: &[u8]) {
        self.fill(offset..offset + bytes.len(), &mut |to| to.copy_from_slice(bytes));
    }
    /// The concrete type, for a backend that knows it.
    fn as_any(&self) -> &dyn Any;
}

/// Memory of a front end that a write takes from.
pub trait Source: Any {
    /// Bytes that it holds.
    fn len(&self) -> usize;
    /// Whether it holds nothing.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The bytes themselves, when nobody can change them while the write runs. `None` for unstable
    /// memory (a guest's): a redundant level copies it once, else its copies could differ.
    fn stable(&self) -> Option<&[u8]>;
    /// The same bytes for other lanes, where that needs no copy. They are stable from then on.
    fn shared(&self) -> Option<SharedBytes> {
        None
    }
    /// Copies the bytes at `offset` into `out`.
    fn take(&self, offset: usize, out: &mut [u8]);
    /// The concrete type, for a backend that knows it.
    fn as_any(&self) -> &dyn Any;
}

impl Sink for RefCell<Vec<u8>> {
    fn len(&self) -> usize {
        self.borrow().len()
    }
    fn fill(&self, range: Range<usize>, fill: &mut dyn FnMut(&mut [u8])) {
        fill(&mut self.borrow_mut()[range]);
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Source for Vec<u8> {
    fn len(&self) -> usize {
        self.as_slice().len()
    }
    fn stable(&self) -> Option<&[u8]> {
        Some(self)
    }
    fn take(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self[offset..offset + out.len()]);
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Source for Buffer {
    fn len(&self) -> usize {
        self.0.len
    }
    fn stable(&self) -> Option<&[u8]> {
        Some(self)
    }
    fn take(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self[offset..offset + out.len()]);
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Source for SharedBytes {
    fn len(&self) -> usize {
        self.deref().len()
    }
    fn stable(&self) -> Option<&[u8]> {
        Some(self)
    }
    fn shared(&self) -> Option<SharedBytes> {
        Some(self.clone())
    }
    fn take(&self, offset: usize, out: &mut [u8]) {
        out.copy_from_slice(&self[offset..offset + out.len()]);
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Zeroes to write, of at most [`Zeroes::BYTES_MAX`]. All requests take them from the same memory: however many are under
/// way, they need no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Zeroes(usize);

impl Zeroes {
    /// The most that one request writes.
    pub(crate) const BYTES_MAX: usize = 1 << 20;

    /// So many bytes.
    pub(crate) fn new(bytes: usize) -> Self {
        assert!(bytes <= Self::BYTES_MAX, "more zeroes than there are in one piece");
        Self(bytes)
    }
}

impl Deref for Zeroes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        static ALL: OnceLock<Buffer> = OnceLock::new();
        &ALL.get_or_init(|| Buffer::zeroed(Self::BYTES_MAX))[..self.0]
    }
}

impl Source for Zeroes {
    fn len(&self) -> usize {
        self.0
    }
    fn stable(&self) -> Option<&[u8]> {
        Some(self)
    }
    fn shared(&self) -> Option<SharedBytes> {
        Some(Arc::new(*self))
    }
    fn take(&self, _: usize, out: &mut [u8]) {
        out.fill(0);
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A stock of buffers in powers of two, so that the data path never asks the allocator twice.
///
/// Bounded: it keeps at most `keep_bytes` and lets the rest go.
pub struct BufferPool {
    classes: RefCell<Vec<Vec<Buffer>>>,
    kept_bytes: std::cell::Cell<usize>,
    keep_bytes: usize,
}

impl BufferPool {
    /// An empty pool that will keep up to `keep_bytes` for reuse.
    pub fn new(keep_bytes: usize) -> Rc<Self> {
        Rc::new(Self {
            classes: RefCell::new((0..usize::BITS).map(|_| Vec::new()).collect()),
            kept_bytes: std::cell::Cell::new(0),
            keep_bytes,
        })
    }

    /// A buffer of `len` bytes with unspecified content.
    pub fn allocate(&self, len: usize) -> Buffer {
        let capacity = len.max(BUFFER_ALIGN_BYTES).next_power_of_two();
        let reused = self.classes.borrow_mut()[capacity.trailing_zeros() as usize].pop();
        let mut buffer = match reused {
            Some(buffer) => {
                self.kept_bytes.set(self.kept_bytes.get() - capacity);
                buffer
            }
            None => Buffer::zeroed(capacity),
        };
        buffer.set_len(len);
        buffer
    }

    /// Takes a buffer back.
    pub fn recycle(&self, buffer: Buffer) {
        let capacity = buffer.capacity();
        if !capacity.is_power_of_two() || self.kept_bytes.get() + capacity > self.keep_bytes {
            return;
        }
        self.kept_bytes.set(self.kept_bytes.get() + capacity);
        self.classes.borrow_mut()[capacity.trailing_zeros() as usize].push(buffer);
    }
}

//! The lane's stock of buffers, registered with its ring as far as that goes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicU16, Ordering};

use mdspace_engine::memory::{BUFFER_ALIGN_BYTES, Buffer};

use crate::queue::{MEMORY_PLACES, Queue};

/// Free memory that a lane keeps at most, in bytes.
const KEEP_BYTES: usize = 64 << 20;
/// Memory that a lane registers at most, in bytes: it stays pinned.
const REGISTER_BYTES: usize = 64 << 20;
/// Larger buffers gain little by registration.
const REGISTER_BUFFER_BYTES: usize = 1 << 20;
/// Where fewer buffers are left of a size that is asked for, a lane that finds time makes more.
const LOW: usize = 8;
/// Until there are so many: the next step of the same request does not find few again.
const AHEAD: usize = 2 * LOW;
/// Larger buffers are made when they are needed, in bytes.
const AHEAD_BUFFER_BYTES: usize = 64 << 10;

/// Free buffers in powers of two, reused so that no I/O asks the allocator.
///
/// A buffer that is dropped elsewhere instead of coming back keeps its place among the registered
/// ones: `REGISTER_BYTES` bounds what that may cost.
pub(crate) struct Stock {
    queue: Rc<RefCell<Queue>>,
    classes: RefCell<Vec<Vec<Buffer>>>,
    kept_bytes: Cell<usize>,
    /// A size of which few are left, in bytes; 0: none.
    low: Cell<usize>,
    registry: RefCell<Registry>,
}

struct Registry {
    /// Tells the buffers of this ring from those of all others.
    ring: u16,
    free_places: Vec<u16>,
    bytes: usize,
    /// The system has refused once; it would refuse a thousand times.
    refused: bool,
}

impl Stock {
    pub(crate) fn new(queue: Rc<RefCell<Queue>>) -> Rc<Self> {
        static RINGS: AtomicU16 = AtomicU16::new(0);
        let registry = Registry {
            ring: RINGS.fetch_add(1, Ordering::Relaxed),
            free_places: (0..MEMORY_PLACES).rev().collect(),
            bytes: 0,
            refused: false,
        };
        Rc::new(Self {
            queue,
            classes: RefCell::new((0..usize::BITS).map(|_| Vec::new()).collect()),
            kept_bytes: Cell::new(0),
            low: Cell::new(0),
            registry: RefCell::new(registry),
        })
    }

    /// A buffer of `len` bytes with unspecified content.
    pub(crate) fn allocate(&self, len: usize) -> Buffer {
        let capacity = len.max(BUFFER_ALIGN_BYTES).next_power_of_two();
        let class = &mut self.classes.borrow_mut()[capacity.trailing_zeros() as usize];
        let kept = class.pop();
        if class.len() < LOW && capacity <= AHEAD_BUFFER_BYTES {
            self.low.set(capacity);
        }
        let mut buffer = match kept {
            Some(buffer) => {
                self.kept_bytes.set(self.kept_bytes.get() - capacity);
                buffer
            }
            None => self.make(capacity),
        };
        buffer.set_len(len);
        buffer
    }

    /// Makes one more buffer of a size that ran low: for a lane that has nothing else to do. Whether there
    /// was one to make.
    ///
    /// The system may take as long for it as a drive for a write, and in the middle of a request that would
    /// stand in its time.
    pub(crate) fn make_ahead(&self) -> bool {
        let capacity = self.low.get();
        let has_room = self.kept_bytes.get() + capacity <= KEEP_BYTES;
        let is_low = capacity > 0 && has_room && self.kept(capacity) < AHEAD;
        if is_low {
            self.recycle(self.make(capacity));
        } else {
            self.low.set(0);
        }
        is_low
    }

    fn kept(&self, capacity: usize) -> usize {
        self.classes.borrow()[capacity.trailing_zeros() as usize].len()
    }

    fn make(&self, capacity: usize) -> Buffer {
        let mut buffer = Buffer::zeroed(capacity);
        self.registry.borrow_mut().register(&mut buffer, &self.queue);
        buffer
    }

    /// Takes a buffer back.
    pub(crate) fn recycle(&self, mut buffer: Buffer) {
        let capacity = buffer.capacity();
        if capacity.is_power_of_two() && self.kept_bytes.get() + capacity <= KEEP_BYTES {
            self.kept_bytes.set(self.kept_bytes.get() + capacity);
            self.classes.borrow_mut()[capacity.trailing_zeros() as usize].push(buffer);
        } else {
            self.registry.borrow_mut().unregister(&mut buffer, &self.queue);
        }
    }

    #[cfg(test)]
    pub(crate) fn kept_bytes(&self) -> usize {
        self.kept_bytes.get()
    }

    /// The place of a buffer's memory in this lane's ring.
    pub(crate) fn place(&self, registration: Option<u32>) -> Option<u16> {
        let registration = registration?;
        ((registration >> 16) as u16 == self.registry.borrow().ring).then_some(registration as u16)
    }
}

impl Registry {
    fn register(&mut self, buffer: &mut Buffer, queue: &RefCell<Queue>) {
        let bytes = buffer.capacity();
        let too_much = bytes > REGISTER_BUFFER_BYTES || self.bytes + bytes > REGISTER_BYTES;
        if too_much || self.refused {
            return;
        }
        let Some(place) = self.free_places.pop() else { return };
        buffer.set_len(bytes);
        match queue.borrow_mut().register_memory(place, buffer) {
            Ok(()) => {
                self.bytes += bytes;
                buffer.set_registration(Some(u32::from(self.ring) << 16 | u32::from(place)));
            }
            Err(error) => {
                self.refused = true;
                if error.raw_os_error() == Some(libc::ENOMEM) {
                    warn_of_locked_memory(self.bytes);
                }
            }
        }
    }

    fn unregister(&mut self, buffer: &mut Buffer, queue: &RefCell<Queue>) {
        let Some(registration) = buffer.registration() else { return };
        buffer.set_registration(None);
        if (registration >> 16) as u16 != self.ring {
            return;
        }
        queue.borrow_mut().unregister_memory(registration as u16);
        self.bytes -= buffer.capacity();
        self.free_places.push(registration as u16);
    }
}

fn warn_of_locked_memory(registered_bytes: usize) {
    tracing::warn!(
        registered_bytes,
        "the limit on locked memory stops the registration of buffers: reads and writes cost more \
         CPU; cure: raise RLIMIT_MEMLOCK (LimitMEMLOCK=infinity in the systemd unit)"
    );
}

#[cfg(test)]
mod tests;

//! The memory of one transfer, leased until the transfer ends.

use std::ops::Range;
use std::rc::Rc;

use mdspace_engine::backend::{ReadInto, WriteFrom};
use mdspace_engine::memory::{Buffer, Sink, Source};

use crate::payload::{Lent, Payload};

use super::Stock;

/// Most places that one call writes from.
const VECTORS_MAX: usize = 1024;

pub(super) struct Lease {
    memory: Memory,
    /// Stands in for memory that the member or the kernel cannot use.
    bounce: Option<Buffer>,
    /// Which memory of a payload it fills.
    lent: Lent,
    /// It missed its deadline: nobody is to see what it brings.
    is_overtaken: bool,
}

enum Memory {
    Into(ReadInto),
    From(WriteFrom),
    /// Bytes to write that lie in several places, and what is left of them for the next call.
    Gather {
        parts: Vec<(Rc<dyn Source>, Range<usize>)>,
        vectors: Vec<libc::iovec>,
    },
    /// Zeroes to write: `len` bytes, a buffer of zeroes at a time.
    Zeroes {
        zeroes: Rc<Buffer>,
        len: usize,
    },
}

/// Where a piece of a transfer lies in memory.
pub(super) struct Place {
    pub(super) at: *mut u8,
    pub(super) len: usize,
    pub(super) registration: Option<u32>,
}

impl Lease {
    /// Memory that a read fills, at a multiple of `align` bytes.
    pub(super) fn reading(into: ReadInto, align: usize, stock: &Stock) -> Self {
        let lent = match &into {
            ReadInto::Sink(sink, _) => payload_of_sink(&**sink).map(Payload::lend),
            ReadInto::Buffer(..) => None,
        };
        let mut lease = Self::of(Memory::Into(into));
        lease.lent = lent.unwrap_or_default();
        if !lease.direct().is_some_and(|place| is_aligned(&place, align)) {
            lease.bounce = Some(stock.allocate(lease.len()));
        }
        lease
    }

    /// Memory that a write takes from, at a multiple of `align` bytes; where `align` is more than a
    /// byte, each part of it is whole blocks of `block` bytes.
    pub(super) fn writing(from: WriteFrom, align: usize, block: usize, stock: &Stock) -> Self {
        let from = match from {
            WriteFrom::Gather(parts) if can_gather(&parts, align, block) => {
                let memory = Memory::Gather { parts, vectors: Vec::new() };
                return Self::of(memory);
            }
            from => from,
        };
        let mut lease = Self::of(Memory::From(from));
        if !lease.direct().is_some_and(|place| is_aligned(&place, align)) {
            let mut bounce = stock.allocate(lease.len());
            lease.take(&mut bounce);
            lease.bounce = Some(bounce);
        }
        lease
    }

    pub(super) fn zeroes(zeroes: Rc<Buffer>, len: usize) -> Self {
        Self::of(Memory::Zeroes { zeroes, len })
    }

    #[inline]
    fn of(memory: Memory) -> Self {
        Self { memory, bounce: None, lent: Lent::default(), is_overtaken: false }
    }

    /// Its deadline has answered its request: what it brings from now on is for nobody.
    pub(super) fn overtake(&mut self) {
        self.is_overtaken = true;
        if let Memory::Into(ReadInto::Sink(sink, _)) = &self.memory
            && let Some(payload) = payload_of_sink(&**sink)
        {
            payload.overtaken(self.lent);
        }
    }

    /// Bytes of the whole transfer.
    pub(super) fn len(&self) -> usize {
        match &self.memory {
            Memory::Into(into) => into.len(),
            Memory::From(from) => from.len(),
            Memory::Gather { parts, .. } => parts.iter().map(|(_, range)| range.len()).sum(),
            Memory::Zeroes { len, .. } => *len,
        }
    }

    /// The memory from byte `done` on, as far as it lies in one piece.
    pub(super) fn place(&mut self, done: usize) -> Place {
        let left = self.len() - done;
        if let Memory::Zeroes { zeroes, .. } = &self.memory {
            let len = left.min(zeroes.len());
            return Place {
                at: zeroes.as_ptr().cast_mut(),
                len,
                registration: zeroes.registration(),
            };
        }
        if let Memory::Gather { parts, .. } = &self.memory {
            let (at, len) = rest_of(parts, done).next().expect("a transfer is not over");
            return Place { at: at.cast_mut(), len, registration: None };
        }
        let whole = match &mut self.bounce {
            Some(bounce) => Place {
                at: bounce.as_mut_ptr(),
                len: bounce.len(),
                registration: bounce.registration(),
            },
            None => self.direct().expect("memory without a pointer bounces"),
        };
        // SAFETY: `done` is at most the length of the piece.
        Place { at: unsafe { whole.at.add(done) }, len: left, ..whole }
    }

    /// The memory from byte `done` on, of a transfer from several places: as much as one call takes.
    pub(super) fn vectors(&mut self, done: usize) -> Option<&[libc::iovec]> {
        let Memory::Gather { parts, vectors } = &mut self.memory else { return None };
        let rest = rest_of(parts, done).take(VECTORS_MAX);
        vectors.clear();
        vectors.extend(
            rest.map(|(at, len)| libc::iovec { iov_base: at.cast_mut().cast(), iov_len: len }),
        );
        Some(vectors)
    }

    /// The transfer's own memory, if it can be pointed to.
    fn direct(&mut self) -> Option<Place> {
        let lent = self.lent;
        let place = |at, range: &Range<usize>, registration| {
            Some(Place { at, len: range.len(), registration })
        };
        match &mut self.memory {
            Memory::Into(ReadInto::Buffer(buffer, range)) => {
                place(buffer[range.clone()].as_mut_ptr(), range, buffer.registration())
            }
            Memory::Into(ReadInto::Sink(sink, range)) => {
                let payload = payload_of_sink(&**sink)?;
                let counts = lent == payload.lent();
                let registration = payload.registration().filter(|_| counts);
                place(payload.at_lent(lent, range), range, registration)
            }
            Memory::From(WriteFrom::Buffer(buffer, range)) => {
                place(buffer[range.clone()].as_ptr().cast_mut(), range, buffer.registration())
            }
            Memory::From(WriteFrom::Shared(buffer, range)) => {
                place(buffer[range.clone()].as_ptr().cast_mut(), range, buffer.registration())
            }
            Memory::From(WriteFrom::Source(source, range)) => {
                let registration = registration_of_source(&**source);
                // A shared slice of what an `Rc` keeps: nobody can change or free it meanwhile.
                place(source.stable()?[range.clone()].as_ptr().cast_mut(), range, registration)
            }
            Memory::From(WriteFrom::Gather(_)) | Memory::Gather { .. } | Memory::Zeroes { .. } => {
                None
            }
        }
    }

    fn take(&self, out: &mut [u8]) {
        let Memory::From(from) = &self.memory else { unreachable!("only writes take") };
        from.take(out);
    }

    /// Ends the lease, all bytes having been moved if `whole`. Gives the engine's buffer back.
    pub(super) fn end(mut self, whole: bool, stock: &Stock) -> Option<Buffer> {
        if let Some(bounce) = self.bounce.take() {
            if whole && !self.is_overtaken {
                self.put(&bounce);
            }
            stock.recycle(bounce);
        }
        match self.memory {
            Memory::Into(ReadInto::Buffer(buffer, _)) => Some(buffer),
            Memory::Into(ReadInto::Sink(sink, _)) => {
                if let Some(payload) = payload_of_sink(&*sink)
                    && !self.is_overtaken
                {
                    payload.filled();
                }
                None
            }
            Memory::From(WriteFrom::Buffer(buffer, _)) => Some(buffer),
            Memory::From(_) | Memory::Gather { .. } | Memory::Zeroes { .. } => None,
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        match &mut self.memory {
            Memory::Into(ReadInto::Buffer(buffer, range)) => {
                buffer[range.clone()].copy_from_slice(bytes);
            }
            Memory::Into(ReadInto::Sink(sink, range)) => match payload_of_sink(&**sink) {
                Some(payload) => payload.put_lent(self.lent, range, bytes),
                None => sink.put(range.start, bytes),
            },
            Memory::From(_) | Memory::Gather { .. } | Memory::Zeroes { .. } => {}
        }
    }
}

/// Whether the kernel can take all parts as they lie.
fn can_gather(parts: &[(Rc<dyn Source>, Range<usize>)], align: usize, block: usize) -> bool {
    parts.iter().all(|(source, range)| {
        let Some(bytes) = source.stable() else { return false };
        let start = bytes[range.clone()].as_ptr();
        align == 1 || start.addr().is_multiple_of(align) && range.len().is_multiple_of(block)
    })
}

/// Where the bytes from `done` on lie, piece by piece.
fn rest_of(
    parts: &[(Rc<dyn Source>, Range<usize>)],
    done: usize,
) -> impl Iterator<Item = (*const u8, usize)> {
    let mut before = done;
    parts.iter().filter_map(move |(source, range)| {
        let skipped = before.min(range.len());
        before -= skipped;
        let bytes = source.stable().expect("seen to be stable");
        let rest = &bytes[range.start + skipped..range.end];
        (!rest.is_empty()).then_some((rest.as_ptr(), rest.len()))
    })
}

fn is_aligned(place: &Place, align: usize) -> bool {
    place.at.addr().is_multiple_of(align)
}

pub(super) fn payload_of_sink(sink: &dyn Sink) -> Option<&Payload> {
    sink.as_any().downcast_ref()
}

fn registration_of_source(source: &dyn Source) -> Option<u32> {
    let any = source.as_any();
    any.downcast_ref::<Payload>()
        .map(Payload::registration)
        .or_else(|| any.downcast_ref::<Buffer>().map(|buffer| buffer.registration()))
        .flatten()
}

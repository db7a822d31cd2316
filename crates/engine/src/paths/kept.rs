//! What is kept of a request while a path has it, so that another path can be asked the same.

use std::ops::Range;
use std::rc::Rc;

use crate::backend::{Backend, IoOp, ReadInto, WriteFrom};
use crate::lane::Lane;
use crate::memory::{Buffer, Sink, Source};

/// A request without the memory that comes back with its end.
pub(super) enum Kept {
    ReadBuffer {
        sector: u64,
        range: Range<usize>,
    },
    ReadSink {
        sector: u64,
        sink: Rc<dyn Sink>,
        range: Range<usize>,
    },
    /// `owned`: it came as a buffer of its own, and goes back as one.
    WriteShared {
        sector: u64,
        buffer: Rc<Buffer>,
        range: Range<usize>,
        fua: bool,
        owned: bool,
    },
    WriteSource {
        sector: u64,
        source: Rc<dyn Source>,
        range: Range<usize>,
        fua: bool,
    },
    WriteGather {
        sector: u64,
        parts: Vec<(Rc<dyn Source>, Range<usize>)>,
        fua: bool,
    },
    /// `covers`: writes that the device had answered when it came, if its paths have no caches of their own.
    Flush {
        covers: u64,
    },
    Discard {
        sector: u64,
        sectors: u64,
    },
    WriteZeroes {
        sector: u64,
        sectors: u64,
        fua: bool,
    },
}

impl Kept {
    pub(super) const FLUSH: Self = Self::Flush { covers: 0 };

    /// Keeps what is needed of `op` to ask again. A path may hold a write's memory for longer than the request lasts:
    /// it shares it. One behind a network (`remote`) may do so for any time.
    #[inline]
    pub(super) fn of(op: &mut IoOp, remote: bool, lane: &Lane) -> Self {
        if remote {
            make_stable(op, lane);
        }
        match op {
            IoOp::Read { sector, into: ReadInto::Buffer(_, range) } => {
                Self::ReadBuffer { sector: *sector, range: range.clone() }
            }
            IoOp::Read { sector, into: ReadInto::Sink(sink, range) } => {
                Self::ReadSink { sector: *sector, sink: sink.clone(), range: range.clone() }
            }
            IoOp::Write { sector, from, fua } => Self::of_write(*sector, from, *fua),
            IoOp::Flush => Self::FLUSH,
            IoOp::Discard { sector, sectors } => {
                Self::Discard { sector: *sector, sectors: *sectors }
            }
            IoOp::WriteZeroes { sector, sectors, fua } => {
                Self::WriteZeroes { sector: *sector, sectors: *sectors, fua: *fua }
            }
        }
    }

    fn of_write(sector: u64, from: &mut WriteFrom, fua: bool) -> Self {
        match from {
            WriteFrom::Buffer(..) => {
                let WriteFrom::Buffer(buffer, range) = take(from) else { unreachable!("seen") };
                let buffer = Rc::new(buffer);
                *from = WriteFrom::Shared(buffer.clone(), range.clone());
                Self::WriteShared { sector, buffer, range, fua, owned: true }
            }
            WriteFrom::Shared(buffer, range) => {
                let (buffer, range) = (buffer.clone(), range.clone());
                Self::WriteShared { sector, buffer, range, fua, owned: false }
            }
            WriteFrom::Source(source, range) => {
                Self::WriteSource { sector, source: source.clone(), range: range.clone(), fua }
            }
            WriteFrom::Gather(parts) => Self::WriteGather { sector, parts: parts.clone(), fua },
        }
    }

    /// The same request once more. `buffer` is what came back of a read with a buffer of its own; without it there is no
    /// asking again.
    pub(super) fn again(&self, buffer: Option<Buffer>) -> Option<IoOp> {
        Some(match self {
            Self::ReadBuffer { sector, range } => {
                IoOp::Read { sector: *sector, into: ReadInto::Buffer(buffer?, range.clone()) }
            }
            Self::ReadSink { sector, sink, range } => {
                IoOp::Read { sector: *sector, into: ReadInto::Sink(sink.clone(), range.clone()) }
            }
            Self::WriteShared { sector, buffer, range, fua, .. } => {
                let from = WriteFrom::Shared(buffer.clone(), range.clone());
                IoOp::Write { sector: *sector, from, fua: *fua }
            }
            Self::WriteSource { sector, source, range, fua } => {
                let from = WriteFrom::Source(source.clone(), range.clone());
                IoOp::Write { sector: *sector, from, fua: *fua }
            }
            Self::WriteGather { sector, parts, fua } => {
                let from = WriteFrom::Gather(parts.clone());
                IoOp::Write { sector: *sector, from, fua: *fua }
            }
            Self::Flush { .. } => IoOp::Flush,
            Self::Discard { sector, sectors } => {
                IoOp::Discard { sector: *sector, sectors: *sectors }
            }
            Self::WriteZeroes { sector, sectors, fua } => {
                IoOp::WriteZeroes { sector: *sector, sectors: *sectors, fua: *fua }
            }
        })
    }

    /// Whether the request has memory of a front end that a path must have let go of before another
    /// one may fill it.
    pub(super) fn fills_lent_memory(&self) -> bool {
        matches!(self, Self::ReadSink { .. })
    }

    /// The sectors that it changes.
    pub(super) fn written(&self) -> Option<Range<u64>> {
        let bytes = |sector: u64, bytes: usize| Some(sector..sector + bytes as u64 / 512);
        match self {
            Self::ReadBuffer { .. } | Self::ReadSink { .. } | Self::Flush { .. } => None,
            Self::WriteShared { sector, range, .. } | Self::WriteSource { sector, range, .. } => {
                bytes(*sector, range.len())
            }
            Self::WriteGather { sector, parts, .. } => {
                bytes(*sector, parts.iter().map(|(_, range)| range.len()).sum())
            }
            Self::Discard { sector, sectors } | Self::WriteZeroes { sector, sectors, .. } => {
                Some(*sector..*sector + *sectors)
            }
        }
    }

    /// What it writes.
    pub(super) fn bytes(&self) -> Option<Vec<u8>> {
        let IoOp::Write { from, .. } = self.again(None)? else { return None };
        Some(from.to_vec())
    }

    /// Whether it makes durable what was written before it.
    pub(super) fn makes_durable(&self) -> bool {
        match self {
            Self::ReadBuffer { .. } | Self::ReadSink { .. } | Self::Discard { .. } => false,
            Self::Flush { .. } => true,
            Self::WriteShared { fua, .. }
            | Self::WriteSource { fua, .. }
            | Self::WriteGather { fua, .. }
            | Self::WriteZeroes { fua, .. } => *fua,
        }
    }

    /// The buffer that goes back to whoever asked, if the request came with one. One that a silent
    /// path still holds is replaced by a copy.
    pub(super) fn into_buffer(self, came: Option<Buffer>, backend: &dyn Backend) -> Option<Buffer> {
        match self {
            Self::WriteShared { buffer, owned: true, .. } => {
                Some(Rc::try_unwrap(buffer).unwrap_or_else(|held| {
                    let mut copy = backend.allocate(held.len());
                    copy.copy_from_slice(&held);
                    copy
                }))
            }
            _ => came,
        }
    }
}

/// Copies what a write's user may change meanwhile: what is sent again over another path must be the same,
/// for the first one may still be done after it.
fn make_stable(op: &mut IoOp, lane: &Lane) {
    if let IoOp::Write { from, .. } = op
        && let WriteFrom::Source(source, range) = from
        && source.stable().is_none()
    {
        let mut copy = lane.backend().allocate(range.len());
        source.take(range.start, &mut copy);
        lane.count_copy(copy.len());
        *from = WriteFrom::Shared(Rc::new(copy), 0..range.len());
    }
}

/// Leaves a write of nothing behind.
fn take(from: &mut WriteFrom) -> WriteFrom {
    std::mem::replace(from, WriteFrom::Gather(Vec::new()))
}

/// Whether an operation makes durable what was written before it; what is [kept](Kept::makes_durable) of it says the same.
#[inline]
pub(super) fn makes_durable(op: &IoOp) -> bool {
    match op {
        IoOp::Read { .. } | IoOp::Discard { .. } => false,
        IoOp::Flush => true,
        IoOp::Write { fua, .. } | IoOp::WriteZeroes { fua, .. } => *fua,
    }
}

/// The sectors that an operation changes.
#[inline]
pub(super) fn written_by(op: &IoOp) -> Option<Range<u64>> {
    match op {
        IoOp::Read { .. } | IoOp::Flush => None,
        IoOp::Write { sector, from, .. } => Some(*sector..*sector + from.len() as u64 / 512),
        IoOp::Discard { sector, sectors } | IoOp::WriteZeroes { sector, sectors, .. } => {
            Some(*sector..*sector + *sectors)
        }
    }
}

#[cfg(test)]
mod tests;

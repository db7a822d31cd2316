//! The contract between the engine and whatever moves its bytes.
//!
//! Two backends fulfil it: `io` on real members and `sim` on virtual ones; one conformance suite
//! runs against both. A lane owns one backend and hands it member I/Os; the backend answers at once
//! ([`Submitted::Done`]) or later by [`Lane::complete`](crate::lane::Lane::complete). Rules:
//!
//! - A buffer inside a [`MemberIo`] is leased: the backend returns it in [`IoDone::buffer`] when no
//!   kernel can touch it any more. An I/O past its deadline is answered with [`IoErrorKind::Deadline`]
//!   and no buffer: the lease goes on, and the backend drops the buffer when it comes home. Where
//!   nothing can touch the memory any more, the buffer comes with the answer. Either way the I/O stays
//!   [in flight](Backend::in_flight) until the device has done it or never will. What a late read
//!   brings is seen by nobody: not in a [`Sink`] either, whose owner may have been answered with other
//!   bytes.
//! - The result is for the whole range: a short transfer is continued by the backend.
//! - A successful write is durable only after a later successful flush of that member, or when it
//!   carried `fua`. A flush covers every write that completed before the flush was submitted.
//!   I/Os in flight together have no order.
//! - Zeroes can always be written: where a member has no operation for it, the backend writes them.
//!   A member is announced as [`MemberInfo::discard_zeroes`] only if a discard never fails for lack
//!   of support.
//! - After a failed flush the member's unflushed writes count as lost. So the error of a flush, or a durable write, that
//!   was answered at its deadline is told too, by
//!   [`Lane::flush_failed_late`](crate::lane::Lane::flush_failed_late): no later flush tells of that loss.
//! - Completions of one ticket arrive exactly once.

use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use crate::array::rules::{Rule, keep};
use crate::memory::{Buffer, Sink, Source};
use crate::time::Time;

/// A member device as the backend knows it. The generation tells two users of one index apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MemberId {
    /// Index in the backend's table of open members.
    pub index: u16,
    /// Counts the devices that have had this index.
    pub generation: u16,
}

/// Names one I/O in flight on one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// Slot in the lane's table.
    pub slot: u32,
    /// Tells two users of one slot apart.
    pub generation: u32,
}

/// What a member can do, asked once when it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberInfo {
    /// How the user named it.
    pub name: String,
    /// Its size in 512-byte sectors.
    pub sectors: u64,
    /// Smallest unit that it reads and writes, in bytes: 512 or 4096.
    pub logical_block_bytes: u32,
    /// Whether seeks cost time.
    pub rotational: bool,
    /// Whether a discarded range reads as zeroes afterwards.
    pub discard_zeroes: bool,
    /// Whether it takes room only for what was written to it: zeroes are discarded there. Such a one has
    /// [`discard_zeroes`](Self::discard_zeroes).
    pub is_sparse: bool,
}

/// One I/O to one member. Addresses are 512-byte sectors of the device, from its start.
#[derive(Debug)]
pub struct MemberIo {
    /// The device.
    pub member: MemberId,
    /// What to do.
    pub op: IoOp,
    /// How long to wait for its end.
    pub patience: Patience,
}

/// How long an I/O is waited for. A span and not a time: only a backend that does not answer at once
/// has to look at its clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Zero is for ever.
    micros: u32,
}

impl Patience {
    /// No deadline.
    pub const FOREVER: Self = Self { micros: 0 };

    /// The longest that ends, a little more than an hour.
    pub const LONGEST: Duration = Duration::from_micros(u32::MAX as u64);

    /// A span of whole microseconds, at least one and at most [`LONGEST`](Self::LONGEST).
    pub fn of(span: Duration) -> Self {
        Self { micros: u32::try_from(span.as_micros()).unwrap_or(u32::MAX).max(1) }
    }

    /// So many microseconds; zero is for ever.
    #[inline]
    pub const fn from_micros(micros: u32) -> Self {
        Self { micros }
    }

    /// Doubled so many times, but no longer than `most`, unless that is shorter from the start.
    pub(crate) fn doubled(self, times: u32, most: Self) -> Self {
        if self == Self::FOREVER {
            return self;
        }
        let micros = self.micros.saturating_mul(1 << times.min(31));
        let most = if most == Self::FOREVER { u32::MAX } else { most.micros };
        Self { micros: micros.min(most).max(self.micros) }
    }

    /// Half of it.
    pub(crate) fn half(self) -> Self {
        match self.micros {
            0 => Self::FOREVER,
            micros => Self { micros: (micros / 2).max(1) },
        }
    }

    /// The longer of it and a span.
    pub(crate) fn at_least(self, span: Duration) -> Self {
        match self {
            Self::FOREVER => self,
            _ => Self { micros: self.micros.max(Self::of(span).micros) },
        }
    }

    /// The shorter of it and a span.
    pub(crate) fn at_most(self, span: Duration) -> Self {
        let most = Self::of(span);
        if self == Self::FOREVER || self.micros > most.micros { most } else { self }
    }

    /// When it is over for an I/O that starts `now`; `None` when it never is.
    #[inline]
    pub fn deadline(self, now: Time) -> Option<Time> {
        self.deadline_by(|| now)
    }

    /// The same by a clock, which is read only if there is a deadline.
    #[inline]
    pub(crate) fn deadline_by(self, clock: impl FnOnce() -> Time) -> Option<Time> {
        self.span().map(|span| clock() + span)
    }

    /// How long it is; `None` without an end.
    #[inline]
    pub(crate) fn span(self) -> Option<Duration> {
        (self != Self::FOREVER).then(|| Duration::from_micros(self.micros.into()))
    }
}

/// What a member I/O does.
#[derive(Debug)]
pub enum IoOp {
    /// Reads from `sector` on, as many bytes as the range in `into` has.
    Read {
        /// First sector.
        sector: u64,
        /// Where the bytes go.
        into: ReadInto,
    },
    /// Writes from `sector` on.
    Write {
        /// First sector.
        sector: u64,
        /// Where the bytes come from.
        from: WriteFrom,
        /// Whether the write must be durable when it completes.
        fua: bool,
    },
    /// Makes durable every write that completed before.
    Flush,
    /// Gives up the range; it reads as zeroes afterwards (only where [`MemberInfo::discard_zeroes`]).
    Discard {
        /// First sector.
        sector: u64,
        /// Length in sectors.
        sectors: u64,
    },
    /// Makes the range read as zeroes.
    WriteZeroes {
        /// First sector.
        sector: u64,
        /// Length in sectors.
        sectors: u64,
        /// Whether the zeroes must be durable when it completes.
        fua: bool,
    },
}

impl IoOp {
    /// Bytes that move between memory and the member.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Read { into, .. } => into.len(),
            Self::Write { from, .. } => from.len(),
            Self::Flush | Self::Discard { .. } | Self::WriteZeroes { .. } => 0,
        }
    }

    /// The owned buffer, if it carries one: what goes into [`IoDone::buffer`].
    pub fn into_buffer(self) -> Option<Buffer> {
        match self {
            Self::Read { into: ReadInto::Buffer(buffer, _), .. } => Some(buffer),
            Self::Write { from: WriteFrom::Buffer(buffer, _), .. } => Some(buffer),
            _ => None,
        }
    }
}

/// Where a read's bytes go.
pub enum ReadInto {
    /// Into a part of an owned buffer, which comes back in [`IoDone::buffer`].
    Buffer(Buffer, Range<usize>),
    /// Into a part of a front end's memory.
    Sink(Rc<dyn Sink>, Range<usize>),
}

/// Where a write's bytes come from.
pub enum WriteFrom {
    /// From a part of an owned buffer, which comes back in [`IoDone::buffer`].
    Buffer(Buffer, Range<usize>),
    /// From a part of a buffer that several writes share.
    Shared(Rc<Buffer>, Range<usize>),
    /// From a part of a front end's memory.
    Source(Rc<dyn Source>, Range<usize>),
    /// From parts of several memories, one after the other; all are stable.
    Gather(Vec<(Rc<dyn Source>, Range<usize>)>),
}

impl ReadInto {
    /// Bytes to read.
    pub fn len(&self) -> usize {
        match self {
            Self::Buffer(_, range) | Self::Sink(_, range) => range.len(),
        }
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl WriteFrom {
    /// Bytes to write.
    pub fn len(&self) -> usize {
        match self {
            Self::Buffer(_, range) | Self::Shared(_, range) | Self::Source(_, range) => range.len(),
            Self::Gather(parts) => parts.iter().map(|(_, range)| range.len()).sum(),
        }
    }

    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the bytes are known to be zeroes. Those of a front end are not looked at.
    pub(crate) fn is_zeroes(&self) -> bool {
        match self {
            Self::Buffer(buffer, range) => is_zeroes(&buffer[range.clone()]),
            Self::Shared(buffer, range) => is_zeroes(&buffer[range.clone()]),
            Self::Source(..) | Self::Gather(_) => false,
        }
    }

    /// The same bytes for another member: those of an owned buffer in a new one.
    pub(crate) fn again(&self, allocate: &dyn Fn(usize) -> Buffer) -> Self {
        match self {
            Self::Buffer(buffer, range) => {
                let mut copy = allocate(range.len());
                copy.copy_from_slice(&buffer[range.clone()]);
                Self::Buffer(copy, 0..range.len())
            }
            Self::Shared(buffer, range) => Self::Shared(buffer.clone(), range.clone()),
            Self::Source(source, range) => Self::Source(source.clone(), range.clone()),
            Self::Gather(parts) => Self::Gather(parts.clone()),
        }
    }

    /// A copy of the bytes to write.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        self.take(&mut bytes);
        bytes
    }

    /// Copies the bytes to write into `out`, which is as long as they are.
    pub fn take(&self, out: &mut [u8]) {
        match self {
            Self::Buffer(buffer, range) => out.copy_from_slice(&buffer[range.clone()]),
            Self::Shared(buffer, range) => out.copy_from_slice(&buffer[range.clone()]),
            Self::Source(source, range) => {
                assert_eq!(out.len(), range.len(), "all of the bytes are taken");
                source.take(range.start, out);
            }
            Self::Gather(parts) => {
                let mut rest = out;
                for (source, range) in parts {
                    let (part, behind) = rest.split_at_mut(range.len());
                    source.take(range.start, part);
                    rest = behind;
                }
                assert!(rest.is_empty(), "all of the bytes are taken");
            }
        }
    }
}

/// Whether all bytes are zero. Looked at in parts, each without a branch.
fn is_zeroes(bytes: &[u8]) -> bool {
    const PART_BYTES: usize = 256;
    bytes.chunks(PART_BYTES).all(|part| part.iter().fold(0, |all, byte| all | byte) == 0)
}

impl std::fmt::Debug for ReadInto {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

impl std::fmt::Debug for WriteFrom {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.len())
    }
}

/// How a member I/O ended.
#[derive(Debug)]
pub struct IoDone {
    /// Whether the whole range was done.
    pub result: Result<(), IoError>,
    /// The owned buffer, if the I/O carried one and its lease is over.
    pub buffer: Option<Buffer>,
}

/// Why a member I/O failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} (errno {errno})")]
pub struct IoError {
    /// What kind of trouble.
    pub kind: IoErrorKind,
    /// The system's number for it, 0 where there is none.
    pub errno: i32,
}

impl IoError {
    /// Errno of an I/O that was never sent to its device: it cannot be done late. Others may use the number too, so
    /// ask [`was_not_sent`](Self::was_not_sent).
    pub const NOT_SENT: i32 = 107;
    /// Errno of an I/O whose connection was lost before its answer: the device may still do it.
    pub const UNANSWERED: i32 = 104;

    /// Whether it never reached its device. A device or server that uses the number for an error of its own says
    /// another kind: only of what had no answer does a backend say these.
    pub fn was_not_sent(&self) -> bool {
        self.errno == Self::NOT_SENT
            && matches!(self.kind, IoErrorKind::Gone | IoErrorKind::Deadline)
    }

    /// Whether the device may still do what it was asked, although nobody waits for its answer.
    pub fn may_still_be_done(&self) -> bool {
        match self.kind {
            IoErrorKind::Deadline => !self.was_not_sent(),
            IoErrorKind::Gone => self.errno == Self::UNANSWERED,
            _ => false,
        }
    }
}

/// Kinds of trouble that the engine tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoErrorKind {
    /// These sectors cannot be read or written; others may.
    #[error("medium error")]
    Medium,
    /// The device is gone.
    #[error("device gone")]
    Gone,
    /// No space behind a sparse file or thin device.
    #[error("no space left behind the member")]
    NoSpace,
    /// No answer in time.
    #[error("no answer before the deadline")]
    Deadline,
    /// What was written before may be lost: the flush of a write with FUA failed, or a flush. A backend
    /// that cannot tell which part of a write with FUA failed says this too. The next flush may go well,
    /// and proves nothing: the member is failed.
    #[error("flush failed")]
    Flush,
    /// Another host holds a reservation of the device. Nothing is wrong with the device, and this host
    /// may not write to it: the array stops, fails no member and writes no metadata.
    #[error("reserved by another host")]
    Reserved,
    /// The device does not know this operation.
    #[error("operation not supported")]
    Unsupported,
    /// Cancelled before it was done.
    #[error("cancelled")]
    Cancelled,
    /// Anything else.
    #[error("I/O error")]
    Other,
}

/// What a failed I/O is the trouble of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// These sectors alone.
    Sectors,
    /// The space behind the member: a write may go well later.
    Space,
    /// The time that was given to it.
    Time,
    /// The whole member.
    Member,
    /// The whole array.
    Array,
}

impl IoErrorKind {
    /// Every kind is named, so that a new one cannot be taken for another by accident.
    pub(crate) fn scope(self) -> Scope {
        match self {
            Self::Medium => Scope::Sectors,
            Self::Flush if !keep(Rule::FlushesInWritesAreFlushes) => Scope::Sectors,
            Self::NoSpace => Scope::Space,
            Self::Deadline => Scope::Time,
            Self::Gone | Self::Flush | Self::Unsupported | Self::Cancelled | Self::Other => {
                Scope::Member
            }
            Self::Reserved => Scope::Array,
        }
    }
}

/// Whether a submitted I/O is done already.
#[derive(Debug)]
pub enum Submitted {
    /// It is; there will be no completion.
    Done(IoDone),
    /// It is under way; [`Lane::complete`](crate::lane::Lane::complete) will tell.
    Pending,
}

/// One lane's way to the members. Every method is called on the lane's own thread.
pub trait Backend {
    /// Does an I/O on the spot, where the member needs no waiting. The buffer stays in `io`. `None`,
    /// with nothing done: it must be submitted.
    fn at_once(&self, io: &mut MemberIo) -> Option<Result<(), IoError>> {
        let _ = io;
        None
    }

    /// Says that so many bytes of these members, from these sectors on, will probably be read or written
    /// next. A backend may have the CPU fetch what lies in memory; of other members it means nothing. What
    /// was said before is over.
    fn prefetch(&self, blocks: &[(MemberId, u64)], bytes: usize) {
        let _ = (blocks, bytes);
    }

    /// Starts an I/O.
    fn submit(&self, ticket: Ticket, io: MemberIo) -> Submitted;

    /// Asks for an early end. The completion still comes, with whatever result.
    fn cancel(&self, ticket: Ticket);

    /// I/Os of this lane that the device still holds, those past their deadline included.
    fn in_flight(&self, member: MemberId) -> usize;

    /// Writes of this lane, sent over a connection that was lost before it brought their answers: the
    /// device may still do them, and nobody will hear. They count from the member's opening on.
    fn unanswered(&self, _: MemberId) -> usize {
        0
    }

    /// The clock.
    fn now(&self) -> Time;

    /// For how long, in all, this lane has noticed that it stood still: its process was stopped, or its machine
    /// paused. No member was late in that time.
    fn stood_still(&self) -> Duration {
        Duration::ZERO
    }

    /// Seconds since 1970, for the times that superblocks carry.
    fn unix_time_s(&self) -> u64;

    /// A random number: real in `io`, from the seed in `sim`. For identifiers, never for decisions.
    fn random(&self) -> u64;

    /// A buffer of `bytes` bytes with unspecified content.
    fn allocate(&self, bytes: usize) -> Buffer;

    /// Takes a buffer back for reuse.
    fn recycle(&self, buffer: Buffer);
}

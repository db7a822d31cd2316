//! The life of one I/O of a member behind a network: requests one after the other, and their answers.

use std::ops::Range;
use std::rc::Rc;

use mdspace_engine::backend::{IoDone, IoError, IoErrorKind, IoOp, Ticket};
use mdspace_engine::memory::Buffer;
use mdspace_engine::time::Time;

use crate::errno::{flush_error, io_error};
use crate::member::{Export, Moment, Owed};
use crate::nbd_wire::{Put, REQUEST_HEADER_BYTES, REQUEST_MAGIC, command, command_flag};
use crate::queue::Token;

use super::device::Device;
use super::lease::Lease;
use super::{Driver, Stock};

/// The longest range of one request that carries no bytes.
const RANGE_BYTES: u64 = 1 << 30;

/// An I/O under way.
pub(super) struct RemoteOp {
    pub(super) device: Rc<Device>,
    /// Taken once the engine has its answer.
    pub(super) ticket: Option<Ticket>,
    pub(super) deadline: Time,
    /// Someone has asked for an early end.
    pub(super) cancelled: bool,
    pub(super) stage: Stage,
    /// When the request under way was sent.
    sent: Moment,
    /// An answer that came before all of its request had gone: its memory is still read.
    pub(super) early_answer: Option<u32>,
    work: Work,
    durable: Durable,
    /// Bytes of the request under way.
    piece: u64,
    /// Requests made so far.
    requests: u16,
}

/// How far the request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Not a byte of it has gone.
    Queued,
    /// The kernel reads it.
    Sending,
    /// All of it has gone.
    Sent,
}

enum Work {
    Read {
        lease: Option<Lease>,
        offset: u64,
        done: usize,
    },
    /// `bytes` is all of it, also when the memory has been given back.
    Write {
        lease: Option<Lease>,
        offset: u64,
        bytes: u64,
        done: usize,
    },
    Zero {
        offset: u64,
        left: u64,
    },
    Flush,
}

/// What stands between the end of the work and its durability.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durable {
    /// Nothing: not asked for.
    Free,
    /// Nothing: each request carries it.
    Carried,
    /// A flush that will follow.
    Owed,
    /// A flush that is under way.
    Flushing,
}

/// How an I/O goes on after an answer.
pub(super) enum Next {
    /// With another request.
    Again,
    End(Result<(), IoError>),
}

/// Bits of a cookie that count the requests of one I/O. The others are its token.
const COOKIE_COUNT_SHIFT: u32 = 20;
const COOKIE_COUNT_MASK: u64 = 0xfff << COOKIE_COUNT_SHIFT;

/// The token of the I/O that a server's cookie names.
pub(super) fn token_of(cookie: u64) -> Token {
    Token(cookie & !COOKIE_COUNT_MASK)
}

impl RemoteOp {
    pub(super) fn new(
        driver: &Driver,
        device: Rc<Device>,
        export: Export,
        ticket: Ticket,
        deadline: Time,
        op: IoOp,
    ) -> Self {
        device.in_flight.set(device.in_flight.get() + 1);
        let forced = match op {
            IoOp::Write { fua, .. } | IoOp::WriteZeroes { fua, .. } => fua && driver.flushes,
            _ => false,
        };
        let durable = match (forced, export.forces(), export.flushes()) {
            (true, true, _) => Durable::Carried,
            (true, false, true) => Durable::Owed,
            _ => Durable::Free,
        };
        Self {
            work: Work::new(driver, export, op),
            device,
            ticket: Some(ticket),
            deadline,
            cancelled: false,
            stage: Stage::Queued,
            sent: Moment::default(),
            early_answer: None,
            durable,
            piece: 0,
            requests: 0,
        }
    }

    /// Whether it changes what the member holds.
    pub(super) fn writes(&self) -> bool {
        matches!(self.work, Work::Write { .. } | Work::Zero { .. })
    }

    /// What its member will owe if it is not answered.
    pub(super) fn owed(&self) -> Option<Owed> {
        let sectors = self.written().filter(|_| self.stage != Stage::Queued)?;
        Some(Owed { sectors, sent: self.sent })
    }

    /// The sectors that it changes.
    fn written(&self) -> Option<Range<u64>> {
        let sectors = |start: u64, end: u64| Some(start / 512..end.div_ceil(512));
        match &self.work {
            Work::Write { offset, bytes, .. } => sectors(*offset, *offset + *bytes),
            Work::Zero { offset, left } => sectors(*offset, *offset + *left),
            Work::Read { .. } | Work::Flush => None,
        }
    }

    /// What the server is to say with the answer to the request under way: the token, and which request of
    /// its it is. A second answer to one piece is not taken for the next one's, or for the flush's.
    fn cookie(&self, token: Token) -> u64 {
        let count = u64::from(self.requests) << COOKIE_COUNT_SHIFT & COOKIE_COUNT_MASK;
        assert_eq!(token.0 & COOKIE_COUNT_MASK, 0, "fewer I/Os than a cookie has room for");
        token.0 | count
    }

    /// Whether it waits for an answer with this cookie.
    pub(super) fn awaits(&self, token: Token, cookie: u64) -> bool {
        self.stage != Stage::Queued && self.early_answer.is_none() && self.cookie(token) == cookie
    }

    /// The header of the next request, which is under way from `now` on.
    pub(super) fn header(
        &mut self,
        token: Token,
        export: Export,
        now: Moment,
    ) -> [u8; REQUEST_HEADER_BYTES] {
        self.stage = Stage::Sending;
        self.sent = now;
        let payload_max = u64::from(export.payload_bytes);
        let (kind, offset, piece) = match &self.work {
            _ if self.durable == Durable::Flushing => (command::FLUSH, 0, 0),
            Work::Read { offset, done, lease } => {
                (command::READ, offset + *done as u64, left(lease, *done).min(payload_max))
            }
            Work::Write { offset, done, lease, .. } => {
                (command::WRITE, offset + *done as u64, left(lease, *done).min(payload_max))
            }
            Work::Zero { offset, left } => {
                (command::WRITE_ZEROES, *offset, (*left).min(RANGE_BYTES))
            }
            Work::Flush => (command::FLUSH, 0, 0),
        };
        self.piece = piece;
        let forced = self.durable == Durable::Carried;
        let mut header = Vec::with_capacity(REQUEST_HEADER_BYTES);
        header.put_u32(REQUEST_MAGIC);
        header.put_u16(if forced { command_flag::FUA } else { 0 });
        header.put_u16(kind);
        self.requests = self.requests.wrapping_add(1);
        header.put_u64(self.cookie(token));
        header.put_u64(offset);
        header.put_u32(u32::try_from(piece).expect("a request of at most 1 GiB"));
        header.try_into().expect("28 bytes were put")
    }

    /// Where the bytes lie that go with the request under way.
    pub(super) fn payload(&mut self, out: &mut Vec<libc::iovec>) {
        let Work::Write { lease: Some(lease), done, .. } = &mut self.work else { return };
        if self.durable == Durable::Flushing {
            return;
        }
        let (mut at, end) = (*done, *done + self.piece as usize);
        while at < end {
            let place = lease.place(at);
            let len = place.len.min(end - at);
            out.push(libc::iovec { iov_base: place.at.cast(), iov_len: len });
            at += len;
        }
    }

    /// Bytes that go with the request under way, or follow a good answer to it.
    pub(super) fn payload_bytes(&self) -> usize {
        match self.work {
            Work::Read { .. } | Work::Write { .. } => self.piece as usize,
            Work::Zero { .. } | Work::Flush => 0,
        }
    }

    /// Bytes that follow a good answer to the request under way.
    pub(super) fn answer_bytes(&self) -> usize {
        match self.work {
            Work::Read { .. } => self.piece as usize,
            _ => 0,
        }
    }

    /// Takes bytes of the answer, the first of them being byte `at` of its data.
    pub(super) fn fill(&mut self, at: usize, bytes: &[u8]) {
        let Work::Read { lease: Some(lease), done, .. } = &mut self.work else { return };
        let place = lease.place(*done + at);
        assert!(bytes.len() <= place.len, "an answer is no longer than what was asked");
        // SAFETY: the place has room for the bytes, nobody else uses it while the lease lasts, and
        // the bytes lie in the lane's own memory.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), place.at, bytes.len()) };
    }

    /// Takes the answer to the request under way: 0, or the server's number of an error.
    pub(super) fn absorb(&mut self, errno: u32, driver: &Driver) -> Next {
        self.stage = Stage::Sent;
        if errno != 0 {
            return self.absorb_errno(i32::try_from(errno).unwrap_or(libc::EINVAL), driver);
        }
        let piece = self.piece;
        let more = match &mut self.work {
            _ if self.durable == Durable::Flushing => return Next::End(Ok(())),
            Work::Read { lease, done, .. } | Work::Write { lease, done, .. } => {
                *done += piece as usize;
                left(lease, *done) > 0
            }
            Work::Zero { offset, left } => {
                *offset += piece;
                *left -= piece;
                *left > 0
            }
            Work::Flush => false,
        };
        // Nobody waits for the rest of one that was given up.
        if self.ticket.is_none() {
            return Next::End(Ok(()));
        }
        if !more && self.durable == Durable::Owed {
            self.durable = Durable::Flushing;
        } else if !more {
            return Next::End(Ok(()));
        }
        self.stage = Stage::Queued;
        Next::Again
    }

    fn absorb_errno(&mut self, errno: i32, driver: &Driver) -> Next {
        match self.work {
            _ if self.request_flushes() => Next::End(Err(flush_error(errno))),
            // Zeroes can always be written.
            Work::Zero { offset, left } if errno == libc::EOPNOTSUPP && self.ticket.is_some() => {
                self.work = Work::of_written_zeroes(driver, offset, left);
                self.stage = Stage::Queued;
                Next::Again
            }
            _ => Next::End(Err(io_error(errno))),
        }
    }

    /// Whether the request under way makes durable what was written before.
    pub(super) fn request_flushes(&self) -> bool {
        matches!(self.work, Work::Flush)
            || matches!(self.durable, Durable::Carried | Durable::Flushing)
    }

    /// Gives the memory back although the answer is still to come; none if the kernel reads it.
    pub(super) fn give_up_memory(&mut self, stock: &Stock) -> Option<Buffer> {
        match &mut self.work {
            Work::Read { lease, .. } => lease.take()?.end(false, stock),
            Work::Write { lease, .. } if self.stage != Stage::Sending => {
                lease.take()?.end(false, stock)
            }
            _ => None,
        }
    }

    /// Why it was not answered.
    pub(super) fn unanswered(&self, kind: IoErrorKind) -> IoError {
        let errno = match (self.stage, kind) {
            (Stage::Queued, _) => IoError::NOT_SENT,
            (_, IoErrorKind::Deadline) => libc::ETIMEDOUT,
            _ => IoError::UNANSWERED,
        };
        IoError { kind, errno }
    }

    /// Ends it.
    pub(super) fn end(self, result: Result<(), IoError>, stock: &Stock) -> IoDone {
        self.device.in_flight.set(self.device.in_flight.get() - 1);
        let buffer = match self.work {
            Work::Read { lease, .. } | Work::Write { lease, .. } => {
                lease.and_then(|lease| lease.end(result.is_ok(), stock))
            }
            Work::Zero { .. } | Work::Flush => None,
        };
        IoDone { result, buffer }
    }
}

impl Work {
    fn new(driver: &Driver, export: Export, op: IoOp) -> Self {
        let stock = &driver.stock;
        match op {
            IoOp::Read { sector, into } => {
                let lease = Some(Lease::reading(into, 1, stock));
                Self::Read { lease, offset: sector * 512, done: 0 }
            }
            IoOp::Write { sector, from, .. } => {
                let bytes = from.len() as u64;
                let lease = Some(Lease::writing(from, 1, 1, stock));
                Self::Write { lease, offset: sector * 512, bytes, done: 0 }
            }
            IoOp::Flush => Self::Flush,
            // NBD's TRIM promises nothing; zeroes that may leave a hole do.
            IoOp::Discard { sector, sectors } | IoOp::WriteZeroes { sector, sectors, .. } => {
                let (offset, bytes) = (sector * 512, sectors * 512);
                if export.writes_zeroes() {
                    return Self::Zero { offset, left: bytes };
                }
                Self::of_written_zeroes(driver, offset, bytes)
            }
        }
    }

    fn of_written_zeroes(driver: &Driver, offset: u64, bytes: u64) -> Self {
        let len = usize::try_from(bytes).expect("a range of this machine's size");
        let lease = Some(Lease::zeroes(driver.zeroes(), len));
        Self::Write { lease, offset, bytes, done: 0 }
    }
}

/// Bytes of a transfer that are still to be asked for.
fn left(lease: &Option<Lease>, done: usize) -> u64 {
    lease.as_ref().map_or(0, |lease| (lease.len() - done) as u64)
}

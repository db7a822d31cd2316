//! The life of one member I/O: from the engine's wish to the calls that fulfil it.

use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::backend::{Backend, IoDone, IoError, IoOp, Ticket};
use mdspace_engine::time::Time;

use crate::errno::{flush_error, io_error};
use crate::member::{self, Answer, Arrival, Kept, Kind, Member};
use crate::queue::{Call, run_file};

use super::device::Device;
use super::lease::Lease;
use super::{Driver, Stock};

/// The most that one call moves, in bytes; the kernel's own limit is just below 2 GiB.
const CALL_BYTES: usize = 1 << 30;

/// Between two looks whether a call that waits for its turn has begun.
const LOOK_WHETHER_BEGUN_EVERY: Duration = Duration::from_millis(100);
/// How long a call may take that began so late.
const PATIENCE_OF_LATE_START: Duration = Duration::from_secs(10);

/// A member I/O under way.
pub(super) struct MemberOp {
    pub(super) device: Rc<Device>,
    /// Taken once the engine has its answer.
    pub(super) ticket: Option<Ticket>,
    pub(super) deadline: Time,
    /// Someone has asked for an early end.
    pub(super) cancelled: bool,
    /// Its member pretends to fail.
    fails: bool,
    /// Its deadline had come before its call had begun.
    began_late: bool,
    work: Work,
    durable: Durable,
}

enum Work {
    Read(Transfer),
    Write(Transfer),
    Discard(Extent),
    Zero(Extent),
    Flush,
}

struct Transfer {
    lease: Lease,
    offset: u64,
    done: usize,
}

/// A range of the member, in bytes.
#[derive(Clone, Copy)]
struct Extent {
    offset: u64,
    len: u64,
}

/// What stands between the end of the work and its durability. A durable write is two calls: one call would
/// not say whether the write failed, which is the sectors' fault, or what makes durable, which is not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Durable {
    /// Nothing: not asked for.
    Free,
    /// A flush that will follow.
    Owed,
    /// A flush that is under way.
    Flushing,
}

/// How a member I/O goes on.
pub(super) enum Step {
    Call(Call),
    End(Result<(), IoError>),
}

impl MemberOp {
    /// An I/O of `device` that is not done at once.
    #[inline]
    pub(super) fn new(
        driver: &Driver,
        device: Rc<Device>,
        ticket: Ticket,
        deadline: Time,
        op: IoOp,
    ) -> Self {
        device.in_flight.set(device.in_flight.get() + 1);
        let (work, durable) = Work::new(driver, &device.member, op);
        device.changing.set(device.changing.get() + usize::from(work.changes()));
        Self {
            device,
            ticket: Some(ticket),
            deadline,
            cancelled: false,
            fails: false,
            began_late: false,
            work,
            durable,
        }
    }

    /// Makes all calls on the spot.
    pub(super) fn run_inline(mut self, driver: &Driver) -> IoDone {
        let mut step = self.go_on(driver);
        loop {
            match step {
                Step::Call(call) => step = self.absorb(run_file(call), driver),
                Step::End(result) => return self.end(result, &driver.stock),
            }
        }
    }

    /// Why the call to come must not be made: the member was cut, and it would be as long again as it was, with a hole
    /// of zeroes where there were data. Other writes beyond the new end leave it shorter, which is noticed.
    pub(super) fn refusal(&self) -> Option<IoError> {
        if self.work.changes() && !self.device.may_write() {
            // It was closed, and whoever opens it next goes by that.
            return Some(io_error(libc::ENODEV));
        }
        let Work::Write(transfer) = &self.work else { return None };
        let member = &self.device.member;
        let ends = transfer.offset + transfer.lease.len() as u64;
        let is_last = ends == member.info.sectors * 512 && self.durable != Durable::Flushing;
        (is_last && member.has_shrunk()).then(|| io_error(libc::ENXIO))
    }

    fn go_on(&mut self, driver: &Driver) -> Step {
        match self.refusal() {
            Some(error) => Step::End(Err(error)),
            None => Step::Call(self.next(driver)),
        }
    }

    /// Asks a member that only pretends when and how it will end.
    pub(super) fn pretend(&mut self, driver: &Driver) -> Option<Time> {
        let member::Device::Null(null) = &self.device.member.device else { return None };
        let (kind, offset, bytes) = match &self.work {
            Work::Read(transfer) => (Kind::Read, transfer.offset, transfer.lease.len() as u64),
            Work::Write(transfer) => (Kind::Write, transfer.offset, transfer.lease.len() as u64),
            Work::Zero(extent) => (Kind::Write, extent.offset, extent.len),
            Work::Discard(_) | Work::Flush => (Kind::Other, 0, 0),
        };
        let arrival = Arrival { at: driver.now(), kind, sector: offset / 512, bytes };
        let Answer { at, fails } = null.answer(arrival);
        self.fails = fails;
        Some(at)
    }

    /// Whether its member only pretends.
    pub(super) fn is_pretended(&self) -> bool {
        matches!(self.device.member.device, member::Device::Null(_))
    }

    /// The result of one whose time has come.
    pub(super) fn pretended_result(&self) -> i32 {
        match (self.cancelled, self.fails) {
            (true, _) => -libc::ECANCELED,
            (false, true) => -libc::EIO,
            (false, false) => 0,
        }
    }

    /// The call to make next.
    pub(super) fn next(&mut self, driver: &Driver) -> Call {
        let file = self.device.file;
        if self.durable == Durable::Flushing {
            return Call::Sync { file };
        }
        match &mut self.work {
            Work::Read(transfer) => {
                let (to, len, offset, registered) = transfer.rest(&driver.stock);
                Call::Read { file, to, len, offset, registered }
            }
            Work::Write(transfer) => {
                let offset = transfer.offset + transfer.done as u64;
                if let Some(vectors) = transfer.lease.vectors(transfer.done) {
                    let (from, count) = (vectors.as_ptr(), vectors.len() as u32);
                    return Call::WriteVectors { file, from, count, offset };
                }
                let (from, len, offset, registered) = transfer.rest(&driver.stock);
                Call::Write { file, from, len, offset, registered }
            }
            Work::Discard(Extent { offset, len }) => {
                let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
                Call::Allocate { file, mode, offset: *offset, len: *len }
            }
            Work::Zero(Extent { offset, len }) => {
                let mode = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
                Call::Allocate { file, mode, offset: *offset, len: *len }
            }
            Work::Flush => Call::Sync { file },
        }
    }

    /// Takes the end of the latest call: its value, or a negative errno.
    pub(super) fn absorb(&mut self, result: i32, driver: &Driver) -> Step {
        let Ok(moved) = usize::try_from(result) else {
            return self.absorb_errno(-result, driver);
        };
        if let member::Device::Null(null) = &self.device.member.device {
            self.work.pretend(null.kept());
            return Step::End(Ok(()));
        }
        let block = self.device.member.info.logical_block_bytes as usize;
        match &mut self.work {
            _ if self.durable == Durable::Flushing => return Step::End(Ok(())),
            Work::Read(transfer) | Work::Write(transfer) => {
                let before = transfer.done;
                if !transfer.moved(moved, block) {
                    return self.call_again(driver);
                }
                if transfer.done == before {
                    // The member has shrunk since it was opened, or moves no whole block. No medium
                    // error: a rewrite would make a file longer again, over a hole that reads as
                    // zeroes where there were data.
                    return Step::End(Err(io_error(libc::ENXIO)));
                }
            }
            Work::Discard(_) | Work::Zero(_) | Work::Flush => {}
        }
        if self.durable == Durable::Owed {
            self.durable = Durable::Flushing;
            return self.call_again(driver);
        }
        Step::End(Ok(()))
    }

    fn absorb_errno(&mut self, errno: i32, driver: &Driver) -> Step {
        let is_awaited = self.is_awaited();
        match (errno, &self.work) {
            // Before the numbers that mean something else of other calls.
            _ if self.call_flushes() => return Step::End(Err(flush_error(errno))),
            (libc::EINTR | libc::EAGAIN, _) if is_awaited => {}
            // The host that has no memory is no fault of the member's.
            (libc::ENOMEM | libc::ENOBUFS, _) if is_awaited && !self.device.is_inline() => {}
            (libc::EOPNOTSUPP, &Work::Zero(extent) | &Work::Discard(extent)) if is_awaited => {
                let Extent { offset, len } = extent;
                let len = usize::try_from(len).expect("a range of this machine's size");
                let lease = Lease::zeroes(driver.zeroes(), len);
                self.work = Work::Write(Transfer { lease, offset, done: 0 });
            }
            (libc::ENOSPC, _) if self.device.member.has_shrunk() => {
                return Step::End(Err(io_error(libc::ENXIO)));
            }
            _ => return Step::End(Err(io_error(errno))),
        }
        self.call_again(driver)
    }

    /// Goes on with another call. One that was answered at its deadline does not: a newer write may be done, and nobody
    /// would hear what a flush says.
    fn call_again(&mut self, driver: &Driver) -> Step {
        match self.is_awaited() {
            true => self.go_on(driver),
            false => Step::End(Err(io_error(libc::ECANCELED))),
        }
    }

    /// Whether somebody still waits for its end.
    fn is_awaited(&self) -> bool {
        self.ticket.is_some() && !self.cancelled
    }

    /// Whether the latest call makes durable what was written before. What it says may be the error of an earlier
    /// write, whatever its number, and is said once: a file system's write-back may have been interrupted too.
    pub(super) fn call_flushes(&self) -> bool {
        matches!(self.work, Work::Flush) || self.durable == Durable::Flushing
    }

    /// The new deadline of one whose deadline has come and whose call has not `begun`, or only lately. None:
    /// it is late.
    pub(super) fn waits_until(&mut self, now: Time, begun: impl Fn() -> bool) -> Option<Time> {
        if self.is_pretended() || self.device.overdue.get() > 0 {
            return None;
        }
        match (begun(), self.began_late) {
            (false, _) => {
                self.began_late = true;
                Some(now + LOOK_WHETHER_BEGUN_EVERY)
            }
            (true, true) => {
                self.began_late = false;
                Some(now + PATIENCE_OF_LATE_START)
            }
            (true, false) => None,
        }
    }

    /// Answers it before its end, if that was not done: gives the ticket of whoever waits.
    pub(super) fn overtake(&mut self) -> Option<Ticket> {
        let ticket = self.ticket.take()?;
        self.device.overdue.set(self.device.overdue.get() + 1);
        if let Work::Read(transfer) | Work::Write(transfer) = &mut self.work {
            transfer.lease.overtake();
        }
        Some(ticket)
    }

    /// Ends it.
    pub(super) fn end(self, result: Result<(), IoError>, stock: &Stock) -> IoDone {
        let device = &self.device;
        device.in_flight.set(device.in_flight.get() - 1);
        device.changing.set(device.changing.get() - usize::from(self.work.changes()));
        self.work.end(result, stock)
    }
}

impl Work {
    /// Whether it changes what a member says that has no page cache.
    fn changes(&self) -> bool {
        matches!(self, Self::Write(_) | Self::Discard(_) | Self::Zero(_))
    }

    /// The work of an operation, and how it becomes durable.
    #[inline]
    fn new(driver: &Driver, member: &Member, op: IoOp) -> (Self, Durable) {
        let stock = &driver.stock;
        let align = match &member.device {
            member::Device::File { memory_align, .. } => *memory_align,
            _ => 1,
        };
        let durable = match op {
            IoOp::Write { fua: true, .. } | IoOp::WriteZeroes { fua: true, .. }
                if driver.flushes =>
            {
                Durable::Owed
            }
            _ => Durable::Free,
        };
        let bytes = |sectors: u64| sectors * 512;
        let transfer = |sector, lease| Transfer { lease, offset: bytes(sector), done: 0 };
        let work = match op {
            IoOp::Read { sector, into } => {
                Self::Read(transfer(sector, Lease::reading(into, align, stock)))
            }
            IoOp::Write { sector, from, .. } => {
                let block = member.info.logical_block_bytes as usize;
                Self::Write(transfer(sector, Lease::writing(from, align, block, stock)))
            }
            IoOp::Flush => Self::Flush,
            IoOp::Discard { sector, sectors } => {
                Self::Discard(Extent { offset: bytes(sector), len: bytes(sectors) })
            }
            IoOp::WriteZeroes { sector, sectors, .. } => {
                Self::Zero(Extent { offset: bytes(sector), len: bytes(sectors) })
            }
        };
        (work, durable)
    }

    /// Gives up the memory of work that has ended.
    fn end(self, result: Result<(), IoError>, stock: &Stock) -> IoDone {
        let buffer = match self {
            Self::Read(Transfer { lease, .. }) | Self::Write(Transfer { lease, .. }) => {
                lease.end(result.is_ok(), stock)
            }
            Self::Discard(_) | Self::Zero(_) | Self::Flush => None,
        };
        IoDone { result, buffer }
    }

    /// Does the work of a member that keeps little.
    fn pretend(&mut self, kept: &Kept) {
        match self {
            Self::Read(transfer) => {
                let place = transfer.lease.place(0);
                // SAFETY: the lease's memory is `len` bytes that nobody else uses now.
                unsafe { kept.read(transfer.offset, place.at, place.len) }
            }
            Self::Write(transfer) => {
                let len = transfer.lease.len();
                while transfer.done < len {
                    let place = transfer.lease.place(transfer.done);
                    let offset = transfer.offset + transfer.done as u64;
                    // SAFETY: as for reads.
                    unsafe { kept.write(offset, place.at, place.len) }
                    transfer.done += place.len;
                }
            }
            Self::Discard(extent) | Self::Zero(extent) => {
                kept.zero(extent.offset, extent.len as usize);
            }
            Self::Flush => {}
        }
    }
}

impl Transfer {
    /// What is left, for one call.
    fn rest(&mut self, stock: &Stock) -> (*mut u8, u32, u64, Option<u16>) {
        let place = self.lease.place(self.done);
        let len = place.len.min(CALL_BYTES) as u32;
        (place.at, len, self.offset + self.done as u64, stock.place(place.registration))
    }

    /// Takes note of bytes that were moved. True when there is no more to do, or no way on.
    fn moved(&mut self, bytes: usize, block: usize) -> bool {
        let (before, len) = (self.done, self.lease.len());
        self.done += bytes;
        assert!(self.done <= len, "the kernel moves no more than it was asked to");
        if self.done < len {
            // Direct I/O goes on at a whole block.
            self.done -= self.done % block;
        }
        self.done == len || self.done == before
    }
}

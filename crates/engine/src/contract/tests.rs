//! The suite against a small model that keeps the contract, and against the same model with one
//! fault at a time: every promise must be seen broken by the backend that breaks it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::*;
use crate::backend::{
    Backend, IoDone, IoError, IoErrorKind, IoOp, MemberIo, ReadInto, Submitted, Ticket, WriteFrom,
};
use crate::lane::{LaneId, Notify, Turn};
use crate::memory::Buffer;
use crate::time::Time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    WritesOneSectorOff,
    DropsSharedWrites,
    GathersTheFirstTwice,
    MovesTheWholeBuffer,
    LosesIosBeyondAThousand,
    EndsTwice,
    ZeroesWholeBlocks,
    IgnoresDiscards,
    BelievesAnyAddress,
    BelievesAnyGeneration,
    ReturnsLateBuffers,
    LetsGoOfLateMemory,
    ShowsLateReads,
    IsAlwaysLate,
    CancelsWhateverIsInTheSlot,
    NeverComesHome,
    CallsAllTroubleOther,
    LiesAboutFlushes,
    ForcesNothing,
}

/// Which fault must be seen by which case.
const SEEN: &[(Fault, &str)] = &[
    (Fault::WritesOneSectorOff, "what_was_written_is_read"),
    (Fault::DropsSharedWrites, "memory_of_every_kind_is_moved"),
    (Fault::GathersTheFirstTwice, "parts_of_several_memories_are_one_write"),
    (Fault::MovesTheWholeBuffer, "a_part_of_a_buffer_is_moved_and_no_more"),
    (Fault::LosesIosBeyondAThousand, "many_ios_all_end_once"),
    (Fault::EndsTwice, "an_owner_hears_of_its_io_once"),
    (Fault::ZeroesWholeBlocks, "zeroes_are_written_and_touch_nothing_else"),
    (Fault::IgnoresDiscards, "a_discarded_range_reads_as_zeroes"),
    (Fault::BelievesAnyAddress, "an_io_past_the_end_fails_and_gives_its_buffer_back"),
    (Fault::BelievesAnyGeneration, "an_unknown_member_is_gone"),
    (Fault::ReturnsLateBuffers, "a_late_io_is_answered_and_its_buffer_stays_leased"),
    (Fault::LetsGoOfLateMemory, "lent_memory_is_held_until_a_late_io_is_home"),
    (Fault::ShowsLateReads, "what_a_late_read_brings_is_seen_by_nobody"),
    (Fault::IsAlwaysLate, "an_io_in_time_is_not_late"),
    (Fault::CancelsWhateverIsInTheSlot, "a_cancelled_io_ends_once_with_its_buffer"),
    (Fault::NeverComesHome, "an_abandoned_io_comes_home"),
    (Fault::CallsAllTroubleOther, "unreadable_sectors_are_a_medium_error"),
    (Fault::CallsAllTroubleOther, "a_gone_member_says_so"),
    (Fault::CallsAllTroubleOther, "a_full_member_says_so"),
    (Fault::LiesAboutFlushes, "a_failed_flush_says_so"),
    (Fault::LiesAboutFlushes, "a_flushed_write_survives_a_power_cut"),
    (Fault::ForcesNothing, "a_forced_write_survives_a_power_cut"),
    (Fault::ForcesNothing, "forced_zeroes_survive_a_power_cut"),
];

#[test]
fn a_backend_that_keeps_the_contract_passes() {
    assert_eq!(check_all(|| model(Fault::None)), [""; 0]);
}

#[test]
fn every_case_sees_a_backend_that_breaks_its_promise() {
    for case in cases() {
        assert!(SEEN.iter().any(|(_, name)| *name == case.name), "{} has no control", case.name);
    }
    for &(fault, name) in SEEN {
        let case = cases().iter().find(|case| case.name == name).unwrap();
        let seen = catch_unwind(AssertUnwindSafe(|| case.check(&model(fault))));
        assert!(seen.is_err(), "{name} does not see a backend that {fault:?}");
    }
}

struct Model {
    fault: Fault,
    now: Cell<Time>,
    disks: RefCell<Vec<Disk>>,
    flights: RefCell<BTreeMap<(Time, u64), Flight>>,
    started: Cell<u64>,
    lane: RefCell<Weak<Lane>>,
}

struct Disk {
    open: bool,
    latency: Duration,
    bytes: Vec<u8>,
    durable: Vec<u8>,
    trouble: Option<Trouble>,
}

struct Flight {
    ticket: Option<Ticket>,
    io: Option<MemberIo>,
    deadline: Option<Time>,
    member: MemberId,
}

struct ModelSubject {
    model: Rc<Model>,
    lane: Rc<Lane>,
}

struct NoDriver;

impl Notify for NoDriver {
    fn notify(&self) {}
}

fn model(fault: Fault) -> Rc<dyn Subject> {
    let model = Rc::new(Model {
        fault,
        now: Cell::default(),
        disks: RefCell::default(),
        flights: RefCell::default(),
        started: Cell::default(),
        lane: RefCell::default(),
    });
    let lane = Lane::new(LaneId(0), model.clone(), Arc::new(NoDriver));
    *model.lane.borrow_mut() = Rc::downgrade(&lane);
    Rc::new(ModelSubject { model, lane })
}

impl Subject for ModelSubject {
    fn lane(&self) -> &Rc<Lane> {
        &self.lane
    }

    fn open(&self, wanted: Wanted) -> MemberId {
        let mut disks = self.model.disks.borrow_mut();
        let bytes = vec![0; wanted.sectors as usize * 512];
        let (durable, latency) = (bytes.clone(), wanted.latency);
        disks.push(Disk { open: true, latency, bytes, durable, trouble: None });
        MemberId { index: disks.len() as u16 - 1, generation: 1 }
    }

    fn close(&self, member: MemberId) {
        self.model.disks.borrow_mut()[usize::from(member.index)].open = false;
    }

    fn inject(&self, member: MemberId, trouble: Trouble) -> bool {
        let disk = &mut self.model.disks.borrow_mut()[usize::from(member.index)];
        match trouble {
            Trouble::PowerCut => disk.bytes = disk.durable.clone(),
            trouble => disk.trouble = Some(trouble),
        }
        true
    }

    fn drive(&self, done: &dyn Fn() -> bool) {
        loop {
            let turn = self.lane.turn();
            if done() {
                return;
            }
            if let Turn::Idle(timer) = turn {
                self.model.pass_time(timer);
            }
        }
    }
}

impl Model {
    fn pass_time(&self, timer: Option<Time>) {
        let flights = self.flights.borrow();
        let ends = flights.keys().next().map(|key| key.0);
        let deadlines = flights.values().filter(|flight| flight.ticket.is_some());
        let deadline = deadlines.filter_map(|flight| flight.deadline).min();
        drop(flights);
        let next = [ends, deadline, timer].into_iter().flatten().min();
        self.now.set(next.expect("something will happen").max(self.now.get()));
        if self.fault == Fault::IsAlwaysLate {
            self.expire();
        }
        self.end_flights();
        self.expire();
    }

    fn end_flights(&self) {
        let lane = self.lane.borrow().upgrade().unwrap();
        loop {
            let mut flights = self.flights.borrow_mut();
            let Some(entry) = flights.first_entry().filter(|entry| entry.key().0 <= self.now.get())
            else {
                return;
            };
            if self.fault == Fault::NeverComesHome && entry.get().io.is_some() {
                let flight = entry.remove();
                flights.insert((Time::from_nanos(u64::MAX), self.started.get()), flight);
                continue;
            }
            let flight = entry.remove();
            drop(flights);
            let hidden = flight.ticket.is_none() && self.fault != Fault::ShowsLateReads;
            let done = flight.io.map(|io| self.perform(io, hidden));
            let (Some(ticket), Some(done)) = (flight.ticket, done) else { continue };
            lane.complete(ticket, done);
            if self.fault == Fault::EndsTwice {
                lane.complete(ticket, IoDone { result: Ok(()), buffer: None });
            }
        }
    }

    fn expire(&self) {
        let (lane, now) = (self.lane.borrow().upgrade().unwrap(), self.now.get());
        let is_late = |flight: &Flight| {
            flight
                .deadline
                .is_some_and(|deadline| deadline <= now || self.fault == Fault::IsAlwaysLate)
        };
        let mut late = Vec::new();
        for flight in self.flights.borrow_mut().values_mut().filter(|flight| is_late(flight)) {
            late.extend(flight.ticket.take());
            if self.fault == Fault::LetsGoOfLateMemory {
                flight.io = None;
            }
        }
        for ticket in late {
            let returns = self.fault == Fault::ReturnsLateBuffers;
            let buffer = returns.then(|| Buffer::zeroed(512));
            let result = Err(IoError { kind: IoErrorKind::Deadline, errno: 0 });
            lane.complete(ticket, IoDone { result, buffer });
        }
    }

    fn perform(&self, io: MemberIo, hidden: bool) -> IoDone {
        let mut disks = self.disks.borrow_mut();
        let known = |id: MemberId| id.generation == 1 || self.fault == Fault::BelievesAnyGeneration;
        let disk = disks.get_mut(usize::from(io.member.index));
        let Some(disk) = disk.filter(|disk| disk.open && known(io.member)) else {
            return failed(io.op, IoErrorKind::Gone);
        };
        let (sector, bytes, is_read) = extent(&io.op);
        let end = sector.checked_mul(512).and_then(|start| start.checked_add(bytes));
        if end.is_none_or(|end| end > disk.bytes.len() as u64) {
            if self.fault == Fault::BelievesAnyAddress {
                let IoDone { buffer, .. } = failed(io.op, IoErrorKind::Other);
                return IoDone { result: Ok(()), buffer };
            }
            return failed(io.op, IoErrorKind::Medium);
        }
        let trouble = match &disk.trouble {
            Some(Trouble::Gone) => Some(IoErrorKind::Gone),
            Some(Trouble::NoSpace) if !is_read => Some(IoErrorKind::NoSpace),
            Some(Trouble::FlushFails) if matches!(io.op, IoOp::Flush) => {
                (self.fault != Fault::LiesAboutFlushes).then_some(IoErrorKind::Other)
            }
            Some(Trouble::Unreadable(bad)) if is_read && end > Some(bad.start * 512) => {
                Some(IoErrorKind::Medium)
            }
            _ => None,
        };
        match trouble {
            Some(_) if self.fault == Fault::CallsAllTroubleOther => {
                failed(io.op, IoErrorKind::Other)
            }
            Some(kind) => failed(io.op, kind),
            None if hidden && is_read => failed(io.op, IoErrorKind::Deadline),
            None => disk.apply(io.op, self.fault),
        }
    }
}

impl Disk {
    fn apply(&mut self, op: IoOp, fault: Fault) -> IoDone {
        let (sector, len, _) = extent(&op);
        let mut range = sector as usize * 512..sector as usize * 512 + len as usize;
        let mut done = IoDone { result: Ok(()), buffer: None };
        let mut forced = false;
        match op {
            IoOp::Read { into: ReadInto::Buffer(mut buffer, part), .. } => {
                let part = shifted(part, fault);
                buffer[part].copy_from_slice(&self.bytes[range.clone()]);
                done.buffer = Some(buffer);
            }
            IoOp::Read { into: ReadInto::Sink(sink, part), .. } => {
                sink.put(part.start, &self.bytes[range.clone()]);
            }
            IoOp::Write { from, fua, .. } => {
                forced = fua;
                if fault == Fault::WritesOneSectorOff && range.end < self.bytes.len() {
                    range = range.start + 512..range.end + 512;
                }
                let to = &mut self.bytes[range.clone()];
                match from {
                    WriteFrom::Buffer(buffer, part) => {
                        to.copy_from_slice(&buffer[shifted(part, fault)]);
                        done.buffer = Some(buffer);
                    }
                    WriteFrom::Shared(..) if fault == Fault::DropsSharedWrites => {}
                    WriteFrom::Gather(mut parts) if fault == Fault::GathersTheFirstTwice => {
                        let first = parts[0].clone();
                        let len = parts[1].1.len();
                        parts[1] = (first.0, first.1.start..first.1.start + len);
                        WriteFrom::Gather(parts).take(to);
                    }
                    from => from.take(to),
                }
            }
            IoOp::Flush if fault == Fault::LiesAboutFlushes => {}
            IoOp::Flush => self.durable.clone_from(&self.bytes),
            IoOp::Discard { .. } if fault == Fault::IgnoresDiscards => {}
            IoOp::Discard { .. } => self.bytes[range.clone()].fill(0),
            IoOp::WriteZeroes { fua, .. } => {
                forced = fua;
                let whole = range.start / 4096 * 4096..range.end.next_multiple_of(4096);
                let blocks = fault == Fault::ZeroesWholeBlocks;
                self.bytes[if blocks { whole } else { range.clone() }].fill(0);
            }
        }
        if forced && fault != Fault::ForcesNothing {
            self.durable[range.clone()].copy_from_slice(&self.bytes[range]);
        }
        done
    }
}

fn shifted(part: Range<usize>, fault: Fault) -> Range<usize> {
    if fault == Fault::MovesTheWholeBuffer { 0..part.len() } else { part }
}

/// First sector, bytes, and whether it reads.
fn extent(op: &IoOp) -> (u64, u64, bool) {
    match op {
        IoOp::Read { sector, into } => (*sector, into.len() as u64, true),
        IoOp::Write { sector, from, .. } => (*sector, from.len() as u64, false),
        IoOp::Flush => (0, 0, false),
        IoOp::Discard { sector, sectors } | IoOp::WriteZeroes { sector, sectors, .. } => {
            (*sector, sectors * 512, false)
        }
    }
}

fn failed(op: IoOp, kind: IoErrorKind) -> IoDone {
    let buffer = match op {
        IoOp::Read { into: ReadInto::Buffer(buffer, _), .. } => Some(buffer),
        IoOp::Write { from: WriteFrom::Buffer(buffer, _), .. } => Some(buffer),
        _ => None,
    };
    IoDone { result: Err(IoError { kind, errno: 0 }), buffer }
}

impl Backend for Model {
    fn submit(&self, ticket: Ticket, io: MemberIo) -> Submitted {
        let disks = self.disks.borrow();
        let disk = disks.get(usize::from(io.member.index));
        let latency = disk.map_or(Duration::ZERO, |disk| disk.latency);
        drop(disks);
        let lost =
            self.fault == Fault::LosesIosBeyondAThousand && self.flights.borrow().len() >= 1000;
        if lost {
            return Submitted::Pending;
        }
        self.started.set(self.started.get() + 1);
        let deadline = io.patience.deadline(self.now.get());
        let flight = Flight { ticket: Some(ticket), member: io.member, deadline, io: Some(io) };
        let end = (self.now.get() + latency, self.started.get());
        self.flights.borrow_mut().insert(end, flight);
        Submitted::Pending
    }

    fn cancel(&self, ticket: Ticket) {
        let any = self.fault == Fault::CancelsWhateverIsInTheSlot;
        let mut flights = self.flights.borrow_mut();
        let meant = flights.iter_mut().find(|(_, flight)| match flight.ticket {
            Some(other) => other == ticket || any && other.slot == ticket.slot,
            None => false,
        });
        let Some((&key, flight)) = meant else { return };
        if any {
            flight.io.as_mut().expect("in flight").member.index = u16::MAX;
        }
        let flight = flights.remove(&key).expect("just found");
        flights.insert((self.now.get(), key.1), flight);
    }

    fn in_flight(&self, member: MemberId) -> usize {
        self.flights.borrow().values().filter(|flight| flight.member == member).count()
    }

    fn now(&self) -> Time {
        self.now.get()
    }

    fn unix_time_s(&self) -> u64 {
        0
    }

    fn random(&self) -> u64 {
        4
    }

    fn allocate(&self, bytes: usize) -> Buffer {
        Buffer::zeroed(bytes)
    }

    fn recycle(&self, _: Buffer) {}
}

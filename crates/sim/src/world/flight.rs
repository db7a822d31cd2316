//! Member I/O in flight: from its submission over its effect on the disk to its completion.
//!
//! Effect and completion are two events: what a disk has done, others see before its owner hears of
//! it. A deadline is a third: it answers the lane and leaves the I/O with the disk.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use mdspace_engine::backend::{
    IoDone, IoError, IoErrorKind, IoOp, MemberId, MemberIo, ReadInto, Submitted, Ticket, WriteFrom,
};
use mdspace_engine::lane::LaneId;
use mdspace_engine::memory::Buffer;
use mdspace_engine::time::Time;

use crate::disk::{CacheId, Disk, DiskIndex, Effect, Hang, Held, Horizon, WriteId};
use crate::random::Random;
use crate::stamp::SECTOR_BYTES;

use super::World;
use super::events::Event;
use super::wires::{Way, WireIndex};

/// Names one I/O of the world, in order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FlightId(u64);

#[derive(Default)]
pub(super) struct Flights {
    flying: BTreeMap<FlightId, Flight>,
    submitted: u64,
}

struct Flight {
    lane: LaneId,
    ticket: Ticket,
    member: MemberId,
    disk: DiskIndex,
    op: IoOp,
    /// What a flush must make durable.
    horizon: Horizon,
    /// What came of it, once the disk has done it.
    effect: Option<Result<(), IoError>>,
    /// Its deadline has answered it.
    overtaken: bool,
    /// It waits for its hung disk to go on.
    parked: bool,
    /// The server that it goes through, if it does.
    wire: Option<WireIndex>,
    /// It lies in a socket's buffer until then, though its connection is lost.
    lies_until: Option<Time>,
}

impl Flights {
    pub(super) fn take_parked(&mut self, disk: DiskIndex) -> Vec<FlightId> {
        let here = self.flying.iter_mut().filter(|(_, flight)| flight.disk == disk);
        here.filter_map(|(&id, f)| std::mem::take(&mut f.parked).then_some(id)).collect()
    }
}

/// A write that a disk was asked for and has not done yet.
#[derive(Debug)]
pub struct Unlanded {
    /// The disk.
    pub disk: DiskIndex,
    /// Names it among the writes of the world.
    pub write: WriteId,
    /// Where it goes.
    pub sector: u64,
    /// What it writes.
    pub bytes: Vec<u8>,
}

const ENODEV: i32 = 19;
const ECANCELED: i32 = 125;
const ETIMEDOUT: i32 = 110;

impl World {
    pub(crate) fn submit(&self, lane: LaneId, ticket: Ticket, io: MemberIo) -> Submitted {
        let Some(disk) = self.disk_of(io.member) else {
            return Submitted::Done(done(Err(gone()), take_buffer(io.op)));
        };
        let wire = match self.way_of(io.member) {
            Way::Direct => None,
            Way::Wire { lost: true, .. } => {
                let error = IoError { kind: IoErrorKind::Gone, errno: IoError::NOT_SENT };
                return Submitted::Done(done(Err(error), take_buffer(io.op)));
            }
            Way::Wire { wire, .. } => Some(wire),
            Way::Paths(paths) => return self.path_lane(lane, io.member, &paths).submit(ticket, io),
        };
        let (spec, horizon) = self.disk(disk, |d| (d.spec.clone(), d.store.horizon()));
        check(&io.op, spec.sectors, spec.block_sectors());
        self.note(format_args!("L{} > {disk} {}", lane.0, Words(&io.op)));
        let flight = Flight {
            lane,
            ticket,
            member: io.member,
            disk,
            op: io.op,
            horizon,
            effect: None,
            overtaken: false,
            parked: false,
            wire,
            lies_until: None,
        };
        let instant = spec.instant_one_in > 0
            && wire.is_none()
            && self.hang_of(&flight).is_none()
            && self.chance.borrow_mut().one_in(spec.instant_one_in);
        if instant {
            return Submitted::Done(self.do_at_once(flight));
        }
        self.take_off(flight, io.patience.deadline(self.now.get()));
        Submitted::Pending
    }

    fn do_at_once(&self, mut flight: Flight) -> IoDone {
        let id = self.next_flight();
        self.affect(id, &mut flight);
        self.conclude(id, flight)
    }

    fn take_off(&self, flight: Flight, deadline: Option<Time>) {
        let id = self.next_flight();
        let (effect_at, finish_at) = self.draw_times(flight.disk, &flight.op);
        self.schedule(effect_at, Event::Effect(id));
        self.schedule(finish_at, Event::Finish(id));
        if let Some(deadline) = deadline {
            self.schedule(deadline, Event::Deadline(id));
        }
        self.flights.borrow_mut().flying.insert(id, flight);
    }

    fn next_flight(&self) -> FlightId {
        let mut flights = self.flights.borrow_mut();
        flights.submitted += 1;
        FlightId(flights.submitted)
    }

    /// When the disk does it, and when it says so.
    fn draw_times(&self, disk: DiskIndex, op: &IoOp) -> (Time, Time) {
        let mut chance = self.chance.borrow_mut();
        let sector = if matches!(op, IoOp::Flush) { u64::MAX } else { range_of(op).start };
        let takes = self.disk(disk, |disk| {
            disk.spec.draw_time(sector, &mut chance) * disk.faults.slowness.unwrap_or(1)
        });
        let nanos = u64::try_from(takes.as_nanos()).expect("a latency of less than centuries");
        let effect = Duration::from_nanos(chance.below(nanos + 1));
        (self.now.get() + effect, self.now.get() + takes)
    }

    pub(super) fn effect(&self, id: FlightId) {
        let mut flights = self.flights.borrow_mut();
        let Some(flight) = flights.flying.get_mut(&id) else { return };
        // A hung disk does not answer, but it may have done what it was asked. A stopped server has not.
        let hangs = self.hang_of(flight).is_some();
        if flight.effect.is_none()
            && !self.lies(flight)
            && (!hangs || self.chance.borrow_mut().coin())
        {
            self.affect(id, flight);
        }
        let lost = flight.wire.filter(|_| self.is_kept_secret(flight));
        drop(flights);
        lost.into_iter().for_each(|wire| self.cut(wire));
    }

    /// Whether the path of a flush that failed is lost before it says so.
    fn is_kept_secret(&self, flight: &Flight) -> bool {
        let failed = flight.effect.is_some_and(|effect| effect.is_err());
        let flushes = matches!(flight.op, IoOp::Flush) || fua(&flight.op);
        failed && flushes && !flight.overtaken && self.wires.borrow_mut().keep_secret(flight.disk)
    }

    /// Sectors that are being written over a path, of which nobody was told yet: the path, and whether others write
    /// there as well.
    fn written_over_wires(&self, disk: DiskIndex) -> Vec<(WireIndex, bool)> {
        let flights = self.flights.borrow();
        let here =
            |flight: &&Flight| flight.disk == disk && writes(&flight.op) && !flight.overtaken;
        let all: Vec<(WireIndex, Range<u64>)> = flights
            .flying
            .values()
            .filter(here)
            .filter_map(|flight| Some((flight.wire?, range_of(&flight.op))))
            .collect();
        let meets = |(wire, range): &(WireIndex, Range<u64>)| {
            all.iter()
                .any(|(other, at)| other != wire && at.start < range.end && range.start < at.end)
        };
        all.iter().map(|write| (write.0, meets(write))).collect()
    }

    /// Sectors that connections to a server that were closed may still write: what a host keeps on record.
    pub(super) fn left_over(&self, wire: WireIndex) -> Vec<Range<u64>> {
        let flights = self.flights.borrow();
        let is_left = |flight: &&Flight| {
            flight.wire == Some(wire) && writes(&flight.op) && self.disk_of(flight.member).is_none()
        };
        flights.flying.values().filter(is_left).map(|flight| range_of(&flight.op)).collect()
    }

    /// Whether sectors of a disk are being written over several paths.
    pub(crate) fn is_overwritten(&self, disk: DiskIndex) -> bool {
        self.written_over_wires(disk).iter().any(|(_, meets)| *meets)
    }

    /// A path by which something is being written to a disk; rather one where other paths write as well.
    pub(super) fn busy_wire(&self, disk: DiskIndex) -> Option<WireIndex> {
        let all = self.written_over_wires(disk);
        let among: Vec<WireIndex> = match all.iter().any(|(_, meets)| *meets) {
            true => all.iter().filter(|(_, meets)| *meets).map(|(wire, _)| *wire).collect(),
            false => all.iter().map(|(wire, _)| *wire).collect(),
        };
        (!among.is_empty()).then(|| *self.chance.borrow_mut().pick(&among))
    }

    /// Lets the disk do it.
    fn affect(&self, id: FlightId, flight: &mut Flight) {
        let mut disks = self.disks.borrow_mut();
        let disk = &mut disks[usize::from(flight.disk.0)];
        let mut chance = self.chance.borrow_mut();
        let (id, hidden) = (WriteId(id.0), flight.overtaken);
        let cache = flight.wire.and_then(|wire| self.wires.borrow().cache_of(wire));
        let result =
            perform(disk, id, &mut flight.op, (flight.horizon, cache), hidden, &mut chance);
        if let (Some(cache), true) = (cache, result.is_ok() && writes(&flight.op)) {
            disk.store.put_in_cache(cache, id);
        }
        drop((disks, chance));
        if !matches!(flight.op, IoOp::Read { .. }) {
            self.note(format_args!("   * {} {}", flight.disk, Words(&flight.op)));
        }
        self.tell_watched(flight.disk, &flight.op);
        flight.effect = Some(result);
    }

    /// Says what the watched sector holds, if the disk has just worked on it.
    fn tell_watched(&self, disk: DiskIndex, op: &IoOp) {
        let Some((watched, sector)) = self.watched.get() else { return };
        if watched != disk || !range_of(op).contains(&sector) {
            return;
        }
        let mut bytes = [0; SECTOR_BYTES];
        self.disk(disk, |disk| disk.store.read(sector, &mut bytes));
        let mark = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
        let found = crate::stamp::identify(crate::stamp::home_of(&bytes), &bytes);
        self.note(format_args!("     {disk} sector {sector} holds {found} ({mark:#018x})"));
    }

    pub(super) fn finish(&self, id: FlightId) {
        let flight = {
            let mut flights = self.flights.borrow_mut();
            let Some(flight) = flights.flying.get_mut(&id) else { return };
            if self.park(id, flight) {
                return;
            }
            if flight.effect.is_none() {
                self.affect(id, flight);
            }
            flights.flying.remove(&id).expect("just seen")
        };
        let (lane, ticket, overtaken) = (flight.lane, flight.ticket, flight.overtaken);
        let (member, is_durable_write) = (flight.member, fua(&flight.op));
        let is_flush = matches!(flight.op, IoOp::Flush);
        let done = self.conclude(id, flight);
        match done.result {
            _ if !overtaken => self.deliver(lane, ticket, done),
            Err(error) if is_flush || is_durable_write && error.kind == IoErrorKind::Flush => {
                self.deliver_late(lane, member, error);
            }
            _ => {}
        }
    }

    /// Acknowledges a flight that has had its effect, and gives its buffer back.
    fn conclude(&self, id: FlightId, flight: Flight) -> IoDone {
        let mut result = flight.effect.expect("an I/O ends after its effect");
        {
            let disk = &mut self.disks.borrow_mut()[usize::from(flight.disk.0)];
            if disk.faults.gone {
                result = Err(gone());
            }
            if result.is_ok() && writes(&flight.op) {
                disk.acknowledge(WriteId(id.0), fua(&flight.op));
            }
        }
        let (lane, disk, words) = (flight.lane.0, flight.disk, Words(&flight.op));
        match &result {
            Ok(()) => self.note(format_args!("L{lane} < {disk} {words}")),
            Err(error) => self.note(format_args!("L{lane} ! {disk} {words}: {error}")),
        }
        done(result, take_buffer(flight.op))
    }

    pub(super) fn pass_deadline(&self, id: FlightId) {
        let (lane, ticket) = {
            let mut flights = self.flights.borrow_mut();
            let Some(flight) = flights.flying.get_mut(&id).filter(|f| !f.overtaken) else { return };
            flight.overtaken = true;
            let words = Words(&flight.op);
            self.note(format_args!("L{} T {} {words}", flight.lane.0, flight.disk));
            (flight.lane, flight.ticket)
        };
        let error = IoError { kind: IoErrorKind::Deadline, errno: ETIMEDOUT };
        let buffer = self.take_memory(id);
        self.deliver(lane, ticket, done(Err(error), buffer));
    }

    /// The memory of an overdue flight that goes through a server: what arrives late is not put there.
    fn take_memory(&self, id: FlightId) -> Option<Buffer> {
        let mut flights = self.flights.borrow_mut();
        let flight = flights.flying.get_mut(&id).filter(|flight| flight.wire.is_some())?;
        let IoOp::Read { into, .. } = &mut flight.op else { return None };
        let bytes = into.len();
        let scratch = ReadInto::Buffer(Buffer::zeroed(bytes), 0..bytes);
        match std::mem::replace(into, scratch) {
            ReadInto::Buffer(buffer, _) => Some(buffer),
            ReadInto::Sink(..) => None,
        }
    }

    /// Loses every connection over a wire. What was sent may still be done, later.
    pub(super) fn lose_flights(&self, wire: WireIndex, chance: &mut Random) {
        let mut flights = self.flights.borrow_mut();
        let mut lost = Vec::new();
        for (&id, flight) in flights.flying.iter_mut() {
            if flight.wire != Some(wire) || flight.lies_until.is_some() {
                continue;
            }
            let until = self.now.get() + Duration::from_micros(chance.below(3_000_000));
            flight.lies_until = Some(until);
            if writes(&flight.op) {
                self.wires.borrow_mut().count_unanswered(flight.lane, flight.member);
            }
            lost.push((
                id,
                flight.lane,
                flight.ticket,
                std::mem::replace(&mut flight.overtaken, true),
            ));
        }
        drop(flights);
        for (id, lane, ticket, told) in lost {
            let buffer = self.take_memory(id);
            if !told {
                let error = IoError { kind: IoErrorKind::Gone, errno: IoError::UNANSWERED };
                self.deliver(lane, ticket, done(Err(error), buffer));
            }
        }
    }

    /// Sees to it that nothing lies in a socket's buffer: each is done now or never.
    pub(super) fn land_late(&self, wire: WireIndex, chance: &mut Random) {
        let late: Vec<FlightId> = {
            let flights = self.flights.borrow();
            let of_it = flights.flying.iter().filter(|(_, f)| f.wire == Some(wire) && f.overtaken);
            of_it.map(|(&id, _)| id).collect()
        };
        for id in late {
            let Some(mut flight) = self.flights.borrow_mut().flying.remove(&id) else { continue };
            if flight.effect.is_none() && chance.coin() {
                self.affect(id, &mut flight);
            }
            self.end_untold(id, &flight);
        }
    }

    /// Nobody is told, but the disk has ended it: a later flush covers it.
    fn end_untold(&self, id: FlightId, flight: &Flight) {
        if flight.effect == Some(Ok(())) && writes(&flight.op) {
            let disk = &mut self.disks.borrow_mut()[usize::from(flight.disk.0)];
            disk.acknowledge(WriteId(id.0), false);
        }
    }

    /// Whether it lies in the buffer of a socket that nobody reads now.
    fn lies(&self, flight: &Flight) -> bool {
        flight.lies_until.is_some_and(|until| until > self.now.get())
            || flight.wire.is_some_and(|wire| self.wires.borrow().is_frozen(wire))
    }

    /// Ends an I/O early, or not: a disk may be past stopping.
    pub(crate) fn cancel(&self, lane: LaneId, ticket: Ticket) {
        if self.chance.borrow_mut().coin() {
            return;
        }
        let mut flights = self.flights.borrow_mut();
        let mut flying = flights.flying.iter_mut();
        let found = flying.find(|(_, flight)| flight.lane == lane && flight.ticket == ticket);
        let Some((&id, flight)) = found else { return };
        if flight.effect.is_none() {
            flight.effect = Some(Err(cancelled()));
            drop(flights);
            self.schedule(self.now(), Event::Finish(id));
        }
    }

    /// I/Os of `lane` that the disk behind `member` still holds.
    pub(crate) fn in_flight(&self, lane: LaneId, member: MemberId) -> usize {
        let flights = self.flights.borrow();
        let flying = flights.flying.values();
        let here = |f: &&Flight| f.lane == lane && f.member == member && f.lies_until.is_none();
        flying.filter(here).count()
    }

    /// I/Os that disks hold, those past their deadline included.
    pub fn flight_count(&self) -> usize {
        self.flights.borrow().flying.len()
    }

    /// Whether writes may still be done that nobody waits for any more.
    pub(crate) fn has_late_writes(&self) -> bool {
        let flights = self.flights.borrow();
        flights.flying.values().any(|flight| flight.overtaken && writes(&flight.op))
    }

    /// Writes that may land when the process ends, or never, in the order of their submission.
    pub fn unlanded(&self) -> Vec<Unlanded> {
        let flights = self.flights.borrow();
        let waiting = flights.flying.iter().filter(|(_, flight)| flight.effect.is_none());
        let writes = waiting.filter_map(|(&id, flight)| {
            let bytes = match &flight.op {
                IoOp::Write { from, .. } => from.to_vec(),
                IoOp::WriteZeroes { sectors, .. } | IoOp::Discard { sectors, .. } => {
                    vec![0; *sectors as usize * SECTOR_BYTES]
                }
                IoOp::Read { .. } | IoOp::Flush => return None,
            };
            let sector = range_of(&flight.op).start;
            Some(Unlanded { disk: flight.disk, write: WriteId(id.0), sector, bytes })
        });
        writes.collect()
    }

    /// I/Os that one disk holds.
    pub(crate) fn flights_on(&self, disk: DiskIndex) -> usize {
        self.flights.borrow().flying.values().filter(|flight| flight.disk == disk).count()
    }

    /// How its disk hangs now, if it does, or holds what it is asked for there.
    fn hang_of(&self, flight: &Flight) -> Option<Hang> {
        self.disk(flight.disk, |disk| {
            let faults = &disk.faults;
            let is_over = |until: Time| until <= self.now();
            let hang =
                faults.hang.filter(|hang| !matches!(hang, Hang::Until(until) if is_over(*until)));
            let is_held = |held: &&Held| {
                let at = range_of(&flight.op);
                at.start < held.sectors.end && held.sectors.start < at.end
            };
            let held = faults.held.as_ref().filter(|held| !is_over(held.until)).filter(is_held);
            hang.or(held.map(|held| Hang::Until(held.until))).filter(|_| !faults.gone)
        })
    }

    /// Keeps a flight from its end while its disk hangs. True when it does.
    fn park(&self, id: FlightId, flight: &mut Flight) -> bool {
        if flight.effect.is_some_and(|effect| effect == Err(cancelled())) {
            return false;
        }
        if let Some(until) = flight.lies_until.filter(|until| *until > self.now.get()) {
            self.schedule(until, Event::Finish(id));
            return true;
        }
        if flight.wire.is_some_and(|wire| self.wires.borrow().is_frozen(wire)) {
            flight.parked = true;
            return true;
        }
        match self.hang_of(flight) {
            None => return false,
            Some(Hang::ForEver) => flight.parked = true,
            Some(Hang::Until(when)) => {
                let after = Duration::from_nanos(self.chance.borrow_mut().below(100_000));
                self.schedule(when + after, Event::Finish(id));
            }
        }
        true
    }

    /// Ends every flight without an owner to tell: the disk has done it or not.
    pub(super) fn land_flights(&self) {
        let mut flying: Vec<_> =
            std::mem::take(&mut self.flights.borrow_mut().flying).into_iter().collect();
        self.chance.borrow_mut().shuffle(&mut flying);
        for (id, mut flight) in flying {
            if flight.effect.is_none() && self.chance.borrow_mut().coin() {
                self.affect(id, &mut flight);
            }
            self.end_untold(id, &flight);
        }
    }
}

/// Lets the disk do it. What a read brings that was overtaken is `hidden` from its owner.
fn perform(
    disk: &mut Disk,
    id: WriteId,
    op: &mut IoOp,
    (horizon, cache): (Horizon, Option<CacheId>),
    hidden: bool,
    chance: &mut Random,
) -> Result<(), IoError> {
    let flush = || cache.map_or(Effect::Flush(horizon), |cache| Effect::FlushOf(cache, horizon));
    match op {
        IoOp::Read { sector, into: ReadInto::Buffer(buffer, bytes) } => {
            let out = &mut buffer[bytes.clone()];
            disk.perform(id, Effect::Read(range(*sector, out.len()), out), chance)
        }
        IoOp::Read { sector, into: ReadInto::Sink(sink, bytes) } => {
            let mut out = vec![0; bytes.len()];
            let result =
                disk.perform(id, Effect::Read(range(*sector, out.len()), &mut out), chance);
            if !hidden {
                sink.put(bytes.start, &out);
            }
            result
        }
        IoOp::Write { sector, from, fua } => {
            // Taken when the disk takes them and not before.
            let data = from.to_vec();
            disk.perform(id, Effect::Write(range(*sector, data.len()), &data), chance)?;
            if !(*fua && disk.spec.fua_flushes) {
                return Ok(());
            }
            let flushed = disk.perform(id, flush(), chance);
            flushed.map_err(|error| match error.kind {
                IoErrorKind::Other => IoError { kind: IoErrorKind::Flush, ..error },
                _ => error,
            })
        }
        IoOp::Flush => disk.perform(id, flush(), chance),
        IoOp::Discard { sector, sectors } => {
            disk.perform(id, Effect::Discard(*sector..*sector + *sectors), chance)
        }
        IoOp::WriteZeroes { sector, sectors, .. } => {
            let zeroes = vec![0; *sectors as usize * SECTOR_BYTES];
            let effect = Effect::Write(*sector..*sector + *sectors, &zeroes);
            disk.perform(id, effect, chance)
        }
    }
}

fn take_buffer(op: IoOp) -> Option<Buffer> {
    match op {
        IoOp::Read { into: ReadInto::Buffer(buffer, _), .. }
        | IoOp::Write { from: WriteFrom::Buffer(buffer, _), .. } => Some(buffer),
        _ => None,
    }
}

fn done(result: Result<(), IoError>, buffer: Option<Buffer>) -> IoDone {
    IoDone { result, buffer }
}

fn gone() -> IoError {
    IoError { kind: IoErrorKind::Gone, errno: ENODEV }
}

fn cancelled() -> IoError {
    IoError { kind: IoErrorKind::Cancelled, errno: ECANCELED }
}

fn writes(op: &IoOp) -> bool {
    matches!(op, IoOp::Write { .. } | IoOp::Discard { .. } | IoOp::WriteZeroes { .. })
}

fn fua(op: &IoOp) -> bool {
    matches!(op, IoOp::Write { fua: true, .. } | IoOp::WriteZeroes { fua: true, .. })
}

fn range(sector: u64, bytes: usize) -> Range<u64> {
    sector..sector + (bytes / SECTOR_BYTES) as u64
}

/// An I/O that the engine must never submit is a bug of the engine's.
fn check(op: &IoOp, disk_sectors: u64, block_sectors: u64) {
    if matches!(op, IoOp::Flush) {
        return;
    }
    let Range { start, end } = range_of(op);
    assert!(start < end, "an empty I/O: {}", Words(op));
    assert!(end <= disk_sectors, "an I/O beyond the end of a disk: {}", Words(op));
    let aligned = start.is_multiple_of(block_sectors) && end.is_multiple_of(block_sectors);
    assert!(aligned, "an I/O that cuts a logical block: {}", Words(op));
}

/// The sectors that an I/O names; none for a flush.
fn range_of(op: &IoOp) -> Range<u64> {
    let (sector, sectors) = match op {
        IoOp::Flush => (0, 0),
        IoOp::Read { sector, into } => (*sector, whole_sectors(into.len())),
        IoOp::Write { sector, from, .. } => (*sector, whole_sectors(from.len())),
        IoOp::Discard { sector, sectors } | IoOp::WriteZeroes { sector, sectors, .. } => {
            (*sector, *sectors)
        }
    };
    sector..sector.checked_add(sectors).expect("an I/O ends within the address space")
}

fn whole_sectors(bytes: usize) -> u64 {
    assert!(bytes.is_multiple_of(SECTOR_BYTES), "an I/O of {bytes} bytes cuts a sector");
    (bytes / SECTOR_BYTES) as u64
}

/// An operation as the trace writes it.
struct Words<'a>(&'a IoOp);

impl std::fmt::Display for Words<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sectors = |bytes: usize| bytes / SECTOR_BYTES;
        match self.0 {
            IoOp::Read { sector, into } => write!(f, "r {sector}+{}", sectors(into.len())),
            IoOp::Write { sector, from, fua } => {
                let letter = if *fua { 'W' } else { 'w' };
                write!(f, "{letter} {sector}+{}", sectors(from.len()))
            }
            IoOp::Flush => write!(f, "f"),
            IoOp::Discard { sector, sectors } => write!(f, "d {sector}+{sectors}"),
            IoOp::WriteZeroes { sector, sectors, fua } => {
                let letter = if *fua { 'Z' } else { 'z' };
                write!(f, "{letter} {sector}+{sectors}")
            }
        }
    }
}

//! A lane's way to the disks: at once, or late and in any order.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::backend::{
    Backend, IoDone, IoError, IoErrorKind, IoOp, MemberId, MemberIo, ReadInto, Submitted, Ticket,
    WriteFrom,
};
use mdspace_engine::lane::Lane;
use mdspace_engine::memory::{Buffer, BufferPool};
use mdspace_engine::time::Time;

use super::disks::UnderWay;
use super::{Disks, Random, SECTOR};

/// When I/Os end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    AtOnce,
    Shuffled,
    /// In order, each disk one after another at so many nanoseconds a byte.
    Slow(u64),
}

/// What all lanes go by, in nanoseconds.
#[derive(Clone, Default)]
pub(super) struct Clock {
    pub(super) now: Rc<Cell<u64>>,
    /// For so long all of it stood still, as a process that is stopped.
    pub(super) stood_still: Rc<Cell<u64>>,
}

pub(crate) struct RamBackend {
    lane: u16,
    disks: Rc<Disks>,
    clock: Clock,
    answers: Answers,
    random: RefCell<Random>,
    held: RefCell<Vec<Held>>,
    pool: Rc<BufferPool>,
}

/// An I/O under way.
struct Held {
    ticket: Ticket,
    io: MemberIo,
    /// Without the time in which all stood still.
    deadline: Option<Time>,
    /// Not before this time.
    due: Time,
    /// Nobody waits for it any more: its deadline has answered it.
    is_late: bool,
}

impl RamBackend {
    pub(super) fn new(
        lane: u16,
        disks: Rc<Disks>,
        clock: Clock,
        answers: Answers,
        random: Random,
    ) -> Rc<Self> {
        let (random, held) = (RefCell::new(random), RefCell::default());
        Rc::new(Self { lane, disks, clock, answers, random, held, pool: BufferPool::new(1 << 20) })
    }

    /// Ends some of the I/Os under way, in any order. False when there was none that may end.
    pub(super) fn answer(&self, lane: &Lane) -> bool {
        let late = self.pass_deadlines(lane);
        let all = std::mem::take(&mut *self.held.borrow_mut());
        let now = self.now();
        let (hung, mut ready): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|held| held.due > now || self.hangs(&held.io));
        self.held.borrow_mut().extend(hung);
        if ready.is_empty() {
            return late;
        }
        let count = match self.answers {
            Answers::Slow(_) => ready.len() as u64,
            _ => self.random.borrow_mut().below(ready.len() as u64 + 1),
        };
        for _ in 0..count {
            let at = self.random.borrow_mut().below(ready.len() as u64) as usize;
            let held = ready.swap_remove(at);
            let (member, flushes) = (held.io.member, self.flushes(&held.io));
            let done = self.run(held.io, held.is_late);
            match (held.is_late, done.result) {
                (false, _) => lane.complete(held.ticket, done),
                (true, Err(error)) if flushes => lane.flush_failed_late(member, error),
                (true, _) => {}
            }
        }
        self.held.borrow_mut().extend(ready);
        true
    }

    /// Whether what it says is said of earlier writes too.
    fn flushes(&self, io: &MemberIo) -> bool {
        let disk = self.disks.disk(usize::from(io.member.index));
        matches!(io.op, IoOp::Flush)
            || disk.fua_flushes && matches!(io.op, IoOp::Write { fua: true, .. })
    }

    fn hangs(&self, io: &MemberIo) -> bool {
        let disk = self.disks.disk(usize::from(io.member.index));
        let sector = match io.op {
            IoOp::Read { sector, .. }
            | IoOp::Write { sector, .. }
            | IoOp::Discard { sector, .. }
            | IoOp::WriteZeroes { sector, .. } => sector,
            IoOp::Flush if disk.flush_hangs_on == Some(self.lane) => return true,
            IoOp::Flush => 0,
        };
        let lies_in = |range: &Option<Range<u64>>| {
            range.as_ref().is_some_and(|range| range.contains(&sector))
        };
        let writes_hang = disk.writes_hang_on == Some(self.lane) || lies_in(&disk.writes_hang_in);
        lies_in(&disk.hangs_in) || !matches!(io.op, IoOp::Read { .. }) && writes_hang
    }

    /// Answers what hangs or takes beyond its deadline; the disk still has it, and may do it later.
    fn pass_deadlines(&self, lane: &Lane) -> bool {
        let (now, lived) = (self.now(), self.now() - self.stood_still());
        let mut late = Vec::new();
        for held in self.held.borrow_mut().iter_mut() {
            let past = held.deadline.is_some_and(|when| when <= lived);
            if past && !held.is_late && (held.due > now || self.hangs(&held.io)) {
                held.is_late = true;
                late.push(held.ticket);
            }
        }
        for &ticket in &late {
            let error = IoError { kind: IoErrorKind::Deadline, errno: 0 };
            lane.complete(ticket, IoDone { result: Err(error), buffer: None });
        }
        !late.is_empty()
    }

    /// When the next I/O ends, or one that hangs is to be given up.
    pub(super) fn next_deadline(&self) -> Option<Time> {
        let held = self.held.borrow();
        let given_up = held.iter().filter(|held| !held.is_late).filter_map(|held| held.deadline);
        let given_up = given_up.map(|lived| lived + self.stood_still());
        let now = self.now();
        given_up.chain(held.iter().map(|held| held.due).filter(|due| *due > now)).min()
    }

    /// When the disk is through with all that it has, this I/O included.
    fn due(&self, io: &MemberIo) -> Time {
        let mut disk = self.disks.disk(usize::from(io.member.index));
        if matches!(io.op, IoOp::Read { .. }) && !disk.reads_take.is_zero() {
            return self.now() + disk.reads_take;
        }
        let took = match self.answers {
            Answers::Slow(nanos) => Duration::from_nanos(io.op.bytes() as u64 * nanos),
            Answers::AtOnce | Answers::Shuffled if disk.takes.is_zero() => return self.now(),
            Answers::AtOnce | Answers::Shuffled => disk.takes,
        };
        disk.busy_until = disk.busy_until.max(self.now()) + took;
        disk.busy_until
    }

    /// Drops what is under way, as a crash does.
    pub(super) fn forget(&self) {
        self.held.borrow_mut().clear();
    }

    /// Lets the disk do it. What a late read brings goes nowhere.
    fn run(&self, io: MemberIo, is_late: bool) -> IoDone {
        let mut disk = self.disks.disk(usize::from(io.member.index));
        under_way(&io.op).inspect(|io| disk.ends(io));
        let (result, buffer) = match io.op {
            IoOp::Read { sector, into: ReadInto::Buffer(mut buffer, range) } => {
                (disk.read(sector, &mut buffer[range]), Some(buffer))
            }
            IoOp::Read { sector, into: ReadInto::Sink(sink, range) } => {
                let mut bytes = vec![0; range.len()];
                let result = disk.read(sector, &mut bytes);
                if result.is_ok() && !is_late {
                    sink.put(range.start, &bytes);
                }
                (result, None)
            }
            IoOp::Write { sector, from, fua } => {
                let (bytes, buffer) = taken(from);
                (disk.write(sector, &bytes, fua), buffer)
            }
            IoOp::Flush => (disk.flush(), None),
            IoOp::Discard { .. } if disk.keeps_discarded => (Ok(()), None),
            IoOp::Discard { sector, sectors } => {
                disk.discarded += sectors;
                (disk.write(sector, &vec![0; sectors as usize * SECTOR], false), None)
            }
            IoOp::WriteZeroes { sector, sectors, .. } => {
                (disk.write(sector, &vec![0; sectors as usize * SECTOR], false), None)
            }
        };
        IoDone { result: result as Result<(), IoError>, buffer }
    }
}

/// What an I/O is while it is under way; nothing for a flush.
fn under_way(op: &IoOp) -> Option<UnderWay> {
    let (sector, sectors, writes) = match op {
        IoOp::Read { sector, .. } => (*sector, (op.bytes() / SECTOR) as u64, false),
        IoOp::Write { sector, .. } => (*sector, (op.bytes() / SECTOR) as u64, true),
        IoOp::Discard { sector, sectors } | IoOp::WriteZeroes { sector, sectors, .. } => {
            (*sector, *sectors, true)
        }
        IoOp::Flush => return None,
    };
    Some(UnderWay { sectors: sector..sector + sectors, writes })
}

fn taken(from: WriteFrom) -> (Vec<u8>, Option<Buffer>) {
    let mut bytes = vec![0; from.len()];
    from.take(&mut bytes);
    match from {
        WriteFrom::Buffer(buffer, _) => (bytes, Some(buffer)),
        _ => (bytes, None),
    }
}

impl Backend for RamBackend {
    fn prefetch(&self, blocks: &[(MemberId, u64)], bytes: usize) {
        for (member, sector) in blocks {
            let mut disk = self.disks.disk(usize::from(member.index));
            disk.prefetched.push(*sector..sector + (bytes / SECTOR) as u64);
        }
    }

    fn submit(&self, ticket: Ticket, io: MemberIo) -> Submitted {
        match self.answers {
            Answers::AtOnce if !self.hangs(&io) => Submitted::Done(self.run(io, false)),
            Answers::AtOnce | Answers::Shuffled | Answers::Slow(_) => {
                let mut disk = self.disks.disk(usize::from(io.member.index));
                under_way(&io.op).into_iter().for_each(|io| disk.begins(io));
                drop(disk);
                let lived = self.now() - self.stood_still();
                let (deadline, due) = (io.patience.deadline(lived), self.due(&io));
                self.held.borrow_mut().push(Held { ticket, io, deadline, due, is_late: false });
                Submitted::Pending
            }
        }
    }

    fn cancel(&self, _: Ticket) {}

    fn in_flight(&self, member: MemberId) -> usize {
        self.held.borrow().iter().filter(|held| held.io.member == member).count()
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.clock.now.get())
    }

    fn stood_still(&self) -> Duration {
        Duration::from_nanos(self.clock.stood_still.get())
    }

    fn unix_time_s(&self) -> u64 {
        1_000_000
    }

    fn random(&self) -> u64 {
        self.random.borrow_mut().next()
    }

    fn allocate(&self, bytes: usize) -> Buffer {
        let mut buffer = self.pool.allocate(bytes);
        // Whoever takes a byte for zero, or for what it was, is to be found out.
        buffer.fill(0xee);
        buffer
    }

    fn recycle(&self, buffer: Buffer) {
        self.pool.recycle(buffer);
    }
}

//! The promises, one by one.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use crate::backend::{
    IoDone, IoError, IoErrorKind, IoOp, MemberId, MemberIo, Patience, ReadInto, WriteFrom,
};
use crate::lane::OpOwner;
use crate::memory::{Buffer, Source};

use super::{Case, Subject, Trouble, Verdict, Wanted};

const SECTORS: u64 = 2048;
const SECTOR: usize = 512;
/// Long enough that a busy machine comes to look before it is over.
const SLOW: Duration = Duration::from_millis(300);
const SOON: Duration = Duration::from_millis(20);

macro_rules! all {
    ($($case:ident),* $(,)?) => {
        pub(super) const ALL: &[Case] = &[$(Case {
            name: stringify!($case),
            run: |subject| Box::pin(async move { $case(&Bench(subject)).await }),
        }),*];
    };
}

all![
    what_was_written_is_read,
    memory_of_every_kind_is_moved,
    a_part_of_a_buffer_is_moved_and_no_more,
    parts_of_several_memories_are_one_write,
    many_ios_all_end_once,
    an_owner_hears_of_its_io_once,
    zeroes_are_written_and_touch_nothing_else,
    a_discarded_range_reads_as_zeroes,
    an_io_past_the_end_fails_and_gives_its_buffer_back,
    an_unknown_member_is_gone,
    a_late_io_is_answered_and_its_buffer_stays_leased,
    lent_memory_is_held_until_a_late_io_is_home,
    what_a_late_read_brings_is_seen_by_nobody,
    an_io_in_time_is_not_late,
    a_cancelled_io_ends_once_with_its_buffer,
    an_abandoned_io_comes_home,
    unreadable_sectors_are_a_medium_error,
    a_gone_member_says_so,
    a_full_member_says_so,
    a_failed_flush_says_so,
    a_flushed_write_survives_a_power_cut,
    a_forced_write_survives_a_power_cut,
    forced_zeroes_survive_a_power_cut,
];

struct Bench(Rc<dyn Subject>);

impl Bench {
    fn member(&self) -> MemberId {
        self.0.open(Wanted { sectors: SECTORS, latency: Duration::ZERO })
    }

    fn slow_member(&self) -> MemberId {
        self.0.open(Wanted { sectors: SECTORS, latency: SLOW })
    }

    fn buffer(&self, bytes: usize) -> Buffer {
        let buffer = self.0.lane().backend().allocate(bytes);
        assert_eq!(buffer.len(), bytes, "a buffer has the length asked for");
        buffer
    }

    async fn io(&self, member: MemberId, op: IoOp) -> IoDone {
        self.0.lane().io(MemberIo { member, op, patience: Patience::FOREVER }).await
    }

    async fn done(&self, member: MemberId, op: IoOp) {
        self.io(member, op).await.result.expect("nothing is wrong with the member");
    }

    async fn read(&self, member: MemberId, sector: u64, bytes: usize) -> IoDone {
        let into = ReadInto::Buffer(self.buffer(bytes), 0..bytes);
        self.io(member, IoOp::Read { sector, into }).await
    }

    async fn read_ok(&self, member: MemberId, sector: u64, bytes: usize) -> Buffer {
        let done = self.read(member, sector, bytes).await;
        done.result.expect("the member can be read");
        done.buffer.expect("a finished read gives its buffer back")
    }

    async fn write(&self, member: MemberId, sector: u64, bytes: &[u8], fua: bool) -> IoDone {
        let mut buffer = self.buffer(bytes.len());
        buffer.copy_from_slice(bytes);
        let from = WriteFrom::Buffer(buffer, 0..bytes.len());
        self.io(member, IoOp::Write { sector, from, fua }).await
    }

    async fn write_ok(&self, member: MemberId, sector: u64, bytes: &[u8]) {
        let done = self.write(member, sector, bytes, false).await;
        done.result.expect("the member can be written");
        let buffer = done.buffer.expect("a finished write gives its buffer back");
        assert!(*buffer == *bytes, "a write leaves its buffer as it was");
    }

    fn in_flight(&self, member: MemberId) -> usize {
        self.0.lane().backend().in_flight(member)
    }

    /// Waits until nothing is in flight.
    async fn all_home(&self, member: MemberId) {
        let lane = self.0.lane();
        let until = lane.backend().now() + SLOW * 100;
        while self.in_flight(member) > 0 {
            assert!(lane.backend().now() < until, "every I/O comes home");
            lane.sleep_until(lane.backend().now() + SOON).await;
        }
    }
}

/// Bytes that differ from sector to sector and from `salt` to `salt`.
fn pattern(salt: u8, sectors: usize) -> Vec<u8> {
    let byte = |at: usize| (at as u8) ^ (at / SECTOR) as u8 ^ salt.wrapping_mul(37) | 1;
    (0..sectors * SECTOR).map(byte).collect()
}

async fn what_was_written_is_read(bench: &Bench) -> Verdict {
    let (one, other) = (bench.member(), bench.member());
    assert!(bench.read_ok(one, 0, 8 * SECTOR).await.iter().all(|&byte| byte == 0));
    for (at, sectors) in [(0, 1), (1, 8), (9, 1000), (SECTORS - 1, 1)] {
        bench.write_ok(one, at, &pattern(1, sectors)).await;
        bench.write_ok(other, at, &pattern(2, sectors)).await;
        assert!(*bench.read_ok(one, at, sectors * SECTOR).await == *pattern(1, sectors));
        assert!(*bench.read_ok(other, at, sectors * SECTOR).await == *pattern(2, sectors));
    }
    Verdict::Kept
}

async fn memory_of_every_kind_is_moved(bench: &Bench) -> Verdict {
    let member = bench.member();
    let bytes = pattern(3, 16);
    let mut shared = bench.buffer(bytes.len());
    shared.copy_from_slice(&bytes);
    let sources = [
        WriteFrom::Shared(Rc::new(shared), 0..4 * SECTOR),
        WriteFrom::Source(Rc::new(bytes.clone()), 4 * SECTOR..16 * SECTOR),
    ];
    let mut sector = 0;
    for from in sources {
        let sectors = (from.len() / SECTOR) as u64;
        bench.done(member, IoOp::Write { sector, from, fua: false }).await;
        sector += sectors;
    }
    let sink = Rc::new(RefCell::new(vec![0xee; 18 * SECTOR]));
    let into = ReadInto::Sink(sink.clone(), SECTOR..17 * SECTOR);
    bench.done(member, IoOp::Read { sector: 0, into }).await;
    let sink = sink.borrow();
    assert!(sink[SECTOR..17 * SECTOR] == *bytes);
    assert!(sink[..SECTOR].iter().chain(&sink[17 * SECTOR..]).all(|&byte| byte == 0xee));
    Verdict::Kept
}

async fn a_part_of_a_buffer_is_moved_and_no_more(bench: &Bench) -> Verdict {
    let member = bench.member();
    let mut buffer = bench.buffer(8 * SECTOR);
    buffer.copy_from_slice(&pattern(4, 8));
    let from = WriteFrom::Buffer(buffer, SECTOR..3 * SECTOR);
    let done = bench.io(member, IoOp::Write { sector: 5, from, fua: false }).await;
    let mut buffer = done.buffer.expect("a finished write gives its buffer back");
    let whole = bench.read_ok(member, 4, 4 * SECTOR).await;
    assert!(whole[SECTOR..3 * SECTOR] == pattern(4, 8)[SECTOR..3 * SECTOR]);
    assert!(whole[..SECTOR].iter().chain(&whole[3 * SECTOR..]).all(|&byte| byte == 0));
    buffer.fill(0xee);
    let into = ReadInto::Buffer(buffer, 2 * SECTOR..4 * SECTOR);
    let done = bench.io(member, IoOp::Read { sector: 5, into }).await;
    let buffer = done.buffer.expect("a finished read gives its buffer back");
    assert!(buffer[2 * SECTOR..4 * SECTOR] == pattern(4, 8)[SECTOR..3 * SECTOR]);
    let rest = buffer[..2 * SECTOR].iter().chain(&buffer[4 * SECTOR..]);
    assert!(buffer.len() == 8 * SECTOR && rest.into_iter().all(|&byte| byte == 0xee));
    Verdict::Kept
}

async fn parts_of_several_memories_are_one_write(bench: &Bench) -> Verdict {
    let member = bench.member();
    // Few parts and more than one system call takes, of vectors and of buffers, aligned and not.
    for count in [2, 3, 1500] {
        let mut expected = Vec::new();
        let parts = (0..count).map(|at| {
            let (bytes, first) = (pattern(at as u8, 4), at % 3 * SECTOR);
            let part = first..first + SECTOR;
            expected.extend_from_slice(&bytes[part.clone()]);
            let mut buffer = bench.buffer(bytes.len());
            buffer.copy_from_slice(&bytes);
            let source: Rc<dyn Source> = if at % 2 == 0 { Rc::new(bytes) } else { Rc::new(buffer) };
            (source, part)
        });
        let from = WriteFrom::Gather(parts.collect());
        assert_eq!(from.len(), count * SECTOR);
        bench.done(member, IoOp::Write { sector: 3, from, fua: count == 3 }).await;
        assert!(*bench.read_ok(member, 3, expected.len()).await == *expected);
        assert!(
            bench.read_ok(member, 3 + count as u64, SECTOR).await.iter().all(|&byte| byte == 0)
        );
    }
    Verdict::Kept
}

async fn many_ios_all_end_once(bench: &Bench) -> Verdict {
    let member = bench.member();
    // More than any queue holds.
    let count = SECTORS;
    let write = |sector: u64| {
        let from = WriteFrom::Source(Rc::new(pattern(sector as u8, 1)), 0..SECTOR);
        let op = IoOp::Write { sector, from, fua: false };
        bench.0.lane().io(MemberIo { member, op, patience: Patience::FOREVER })
    };
    let writes: Vec<_> = (0..count).map(write).collect();
    for write in writes {
        write.await.result.expect("the member can be written");
    }
    let whole = bench.read_ok(member, 0, count as usize * SECTOR).await;
    let sectors = whole.chunks(SECTOR).enumerate();
    assert!(sectors.into_iter().all(|(at, sector)| *sector == *pattern(at as u8, 1)));
    assert_eq!(bench.in_flight(member), 0);
    Verdict::Kept
}

#[derive(Default)]
struct Owner {
    ends: RefCell<Vec<(u64, bool)>>,
}

impl OpOwner for Owner {
    fn done(self: Rc<Self>, tag: u64, done: IoDone) {
        self.ends.borrow_mut().push((tag, done.result.is_ok() && done.buffer.is_some()));
    }
}

async fn an_owner_hears_of_its_io_once(bench: &Bench) -> Verdict {
    let members = [bench.member(), bench.slow_member()];
    let owner = Rc::new(Owner::default());
    let as_owner: Rc<dyn OpOwner> = owner.clone();
    for (tag, member) in members.into_iter().enumerate() {
        let into = ReadInto::Buffer(bench.buffer(SECTOR), 0..SECTOR);
        let io =
            MemberIo { member, op: IoOp::Read { sector: 0, into }, patience: Patience::FOREVER };
        if let Some(done) = bench.0.lane().io_direct(io, &as_owner, tag as u64) {
            as_owner.clone().done(tag as u64, done);
        }
    }
    for member in members {
        bench.all_home(member).await;
    }
    owner.ends.borrow_mut().sort();
    assert_eq!(*owner.ends.borrow(), [(0, true), (1, true)]);
    Verdict::Kept
}

async fn zeroes_are_written_and_touch_nothing_else(bench: &Bench) -> Verdict {
    let member = bench.member();
    let mut expected = pattern(5, SECTORS as usize);
    bench.write_ok(member, 0, &expected).await;
    for (sector, sectors) in [(1, 1), (7, 10), (100, 1000)] {
        bench.done(member, IoOp::WriteZeroes { sector, sectors, fua: false }).await;
        expected[sector as usize * SECTOR..(sector + sectors) as usize * SECTOR].fill(0);
    }
    assert!(*bench.read_ok(member, 0, expected.len()).await == *expected);
    Verdict::Kept
}

async fn a_discarded_range_reads_as_zeroes(bench: &Bench) -> Verdict {
    let member = bench.member();
    let mut expected = pattern(6, SECTORS as usize);
    bench.write_ok(member, 0, &expected).await;
    for (sector, sectors) in [(3, 1), (64, 512)] {
        bench.done(member, IoOp::Discard { sector, sectors }).await;
        expected[sector as usize * SECTOR..(sector + sectors) as usize * SECTOR].fill(0);
    }
    assert!(*bench.read_ok(member, 0, expected.len()).await == *expected);
    Verdict::Kept
}

async fn an_io_past_the_end_fails_and_gives_its_buffer_back(bench: &Bench) -> Verdict {
    if !bench.0.answers_past_the_end() {
        return Verdict::NotTried;
    }
    let member = bench.member();
    for sector in [SECTORS - 1, SECTORS, u64::MAX / 512, u64::MAX] {
        let done = bench.read(member, sector, 2 * SECTOR).await;
        assert!(done.result.is_err() && done.buffer.is_some(), "read at {sector}: {done:?}");
        let done = bench.write(member, sector, &pattern(7, 2), false).await;
        assert!(done.result.is_err() && done.buffer.is_some(), "write at {sector}: {done:?}");
        let zeroes = IoOp::WriteZeroes { sector, sectors: 2, fua: false };
        assert!(bench.io(member, zeroes).await.result.is_err(), "zeroes at {sector}");
    }
    // The part within the member is not touched either.
    assert!(bench.read_ok(member, SECTORS - 1, SECTOR).await.iter().all(|&byte| byte == 0));
    Verdict::Kept
}

fn kind(done: &IoDone) -> Option<IoErrorKind> {
    done.result.err().map(|IoError { kind, .. }| kind)
}

async fn an_unknown_member_is_gone(bench: &Bench) -> Verdict {
    let member = bench.member();
    let never = MemberId { index: u16::MAX, ..member };
    let earlier = MemberId { generation: member.generation.wrapping_sub(1), ..member };
    for stranger in [never, earlier] {
        let done = bench.read(stranger, 0, SECTOR).await;
        assert_eq!(kind(&done), Some(IoErrorKind::Gone));
        assert!(done.buffer.is_some() && bench.in_flight(stranger) == 0);
    }
    bench.write_ok(member, 0, &pattern(8, 1)).await;
    bench.0.close(member);
    // The lane may need a turn to hear of it.
    let lane = bench.0.lane();
    lane.sleep_until(lane.backend().now() + SOON).await;
    assert_eq!(kind(&bench.read(member, 0, SECTOR).await), Some(IoErrorKind::Gone));
    Verdict::Kept
}

async fn a_late_io_is_answered_and_its_buffer_stays_leased(bench: &Bench) -> Verdict {
    let member = bench.slow_member();
    let lane = bench.0.lane();
    let submitted = lane.backend().now();
    let into = ReadInto::Buffer(bench.buffer(SECTOR), 0..SECTOR);
    let op = IoOp::Read { sector: 0, into };
    let done = lane.io(MemberIo { member, op, patience: Patience::of(SOON) }).await;
    let answered = lane.backend().now();
    assert!(answered >= submitted + SOON, "not before its deadline");
    assert_eq!(kind(&done), Some(IoErrorKind::Deadline));
    let kept = done.buffer.is_none();
    assert_eq!(kept, bench.0.keeps_late_memory(), "the device may still fill the buffer");
    // A machine that was busy for longer than the latency proves nothing here.
    if answered < submitted + SLOW {
        assert_eq!(bench.in_flight(member), 1);
    }
    bench.all_home(member).await;
    assert!(lane.backend().now() >= submitted + SLOW, "the device keeps it as long as it takes");
    Verdict::Kept
}

async fn lent_memory_is_held_until_a_late_io_is_home(bench: &Bench) -> Verdict {
    let member = bench.slow_member();
    let lane = bench.0.lane();
    let submitted = lane.backend().now();
    let sink = Rc::new(RefCell::new(vec![0; SECTOR]));
    let op = IoOp::Read { sector: 0, into: ReadInto::Sink(sink.clone(), 0..SECTOR) };
    let done = lane.io(MemberIo { member, op, patience: Patience::of(SOON) }).await;
    assert_eq!(kind(&done), Some(IoErrorKind::Deadline));
    if lane.backend().now() < submitted + SLOW {
        let kept = Rc::strong_count(&sink) > 1;
        assert_eq!(kept, bench.0.keeps_late_memory(), "the device may still fill the memory");
    }
    bench.all_home(member).await;
    assert_eq!(Rc::strong_count(&sink), 1);
    Verdict::Kept
}

async fn what_a_late_read_brings_is_seen_by_nobody(bench: &Bench) -> Verdict {
    let member = bench.slow_member();
    bench.write_ok(member, 0, &pattern(3, 1)).await;
    let lane = bench.0.lane();
    let sink = Rc::new(RefCell::new(vec![0xa5; SECTOR]));
    let op = IoOp::Read { sector: 0, into: ReadInto::Sink(sink.clone(), 0..SECTOR) };
    let done = lane.io(MemberIo { member, op, patience: Patience::of(SOON) }).await;
    assert_eq!(kind(&done), Some(IoErrorKind::Deadline));
    bench.all_home(member).await;
    assert!(sink.borrow().iter().all(|&byte| byte == 0xa5), "its owner was answered without it");
    Verdict::Kept
}

async fn an_io_in_time_is_not_late(bench: &Bench) -> Verdict {
    let member = bench.slow_member();
    let lane = bench.0.lane();
    let submitted = lane.backend().now();
    let into = ReadInto::Buffer(bench.buffer(SECTOR), 0..SECTOR);
    let op = IoOp::Read { sector: 0, into };
    let done = lane.io(MemberIo { member, op, patience: Patience::of(SLOW * 100) }).await;
    assert!(done.result.is_ok() && done.buffer.is_some(), "{done:?}");
    assert!(lane.backend().now() >= submitted + SLOW, "a slow member is slow");
    assert_eq!(bench.in_flight(member), 0);
    Verdict::Kept
}

async fn a_cancelled_io_ends_once_with_its_buffer(bench: &Bench) -> Verdict {
    let member = bench.slow_member();
    let lane = bench.0.lane();
    let into = ReadInto::Buffer(bench.buffer(SECTOR), 0..SECTOR);
    let io = lane.io(MemberIo {
        member,
        op: IoOp::Read { sector: 0, into },
        patience: Patience::FOREVER,
    });
    let ticket = io.ticket().expect("a slow member does not answer at once");
    lane.backend().cancel(ticket);
    lane.backend().cancel(ticket);
    let done = io.await;
    assert!(matches!(kind(&done), None | Some(IoErrorKind::Cancelled)), "{done:?}");
    assert!(done.buffer.is_some(), "an ended I/O gives its buffer back");
    // A ticket that has ended means nobody: not the next one either.
    let into = ReadInto::Buffer(bench.buffer(SECTOR), 0..SECTOR);
    let next = lane.io(MemberIo {
        member,
        op: IoOp::Read { sector: 0, into },
        patience: Patience::FOREVER,
    });
    lane.backend().cancel(ticket);
    assert!(next.await.result.is_ok());
    bench.all_home(member).await;
    Verdict::Kept
}

async fn an_abandoned_io_comes_home(bench: &Bench) -> Verdict {
    let member = bench.slow_member();
    let lane = bench.0.lane();
    let sink = Rc::new(RefCell::new(vec![0; SECTOR]));
    let op = IoOp::Read { sector: 0, into: ReadInto::Sink(sink.clone(), 0..SECTOR) };
    drop(lane.io(MemberIo { member, op, patience: Patience::FOREVER }));
    assert_eq!((bench.in_flight(member), Rc::strong_count(&sink)), (1, 2));
    bench.all_home(member).await;
    assert_eq!(Rc::strong_count(&sink), 1);
    Verdict::Kept
}

async fn unreadable_sectors_are_a_medium_error(bench: &Bench) -> Verdict {
    let member = bench.member();
    bench.write_ok(member, 0, &pattern(9, SECTORS as usize)).await;
    if !bench.0.inject(member, Trouble::Unreadable(SECTORS - 64..SECTORS)) {
        return Verdict::NotTried;
    }
    for (sector, sectors) in [(SECTORS - 64, 8), (SECTORS - 65, 2), (0, SECTORS as usize)] {
        let done = bench.read(member, sector, sectors * SECTOR).await;
        assert_eq!(kind(&done), Some(IoErrorKind::Medium), "{sectors} sectors at {sector}");
        assert!(done.buffer.is_some());
    }
    let rest = (SECTORS - 64) as usize;
    assert!(*bench.read_ok(member, 0, rest * SECTOR).await == *pattern(9, rest));
    Verdict::Kept
}

async fn a_gone_member_says_so(bench: &Bench) -> Verdict {
    let member = bench.member();
    if !bench.0.inject(member, Trouble::Gone) {
        return Verdict::NotTried;
    }
    let read = bench.read(member, 0, SECTOR).await;
    let write = bench.write(member, 0, &pattern(10, 1), false).await;
    let flush = bench.io(member, IoOp::Flush).await;
    for done in [&read, &write, &flush] {
        assert_eq!(kind(done), Some(IoErrorKind::Gone));
    }
    assert!(read.buffer.is_some() && write.buffer.is_some());
    Verdict::Kept
}

async fn a_full_member_says_so(bench: &Bench) -> Verdict {
    let member = bench.member();
    if !bench.0.inject(member, Trouble::NoSpace) {
        return Verdict::NotTried;
    }
    let done = bench.write(member, 0, &pattern(11, 1), false).await;
    assert_eq!(kind(&done), Some(IoErrorKind::NoSpace));
    assert!(done.buffer.is_some());
    Verdict::Kept
}

async fn a_failed_flush_says_so(bench: &Bench) -> Verdict {
    let member = bench.member();
    bench.done(member, IoOp::Flush).await;
    if !bench.0.inject(member, Trouble::FlushFails) {
        return Verdict::NotTried;
    }
    assert!(bench.io(member, IoOp::Flush).await.result.is_err());
    Verdict::Kept
}

async fn a_flushed_write_survives_a_power_cut(bench: &Bench) -> Verdict {
    let member = bench.member();
    for (salt, sector) in [(12, 0), (13, 40), (14, 20)] {
        bench.write_ok(member, sector, &pattern(salt, 8)).await;
    }
    bench.done(member, IoOp::Flush).await;
    bench.write_ok(member, 80, &pattern(15, 8)).await;
    if !bench.0.inject(member, Trouble::PowerCut) {
        return Verdict::NotTried;
    }
    for (salt, sector) in [(12, 0), (13, 40), (14, 20)] {
        assert!(*bench.read_ok(member, sector, 8 * SECTOR).await == *pattern(salt, 8));
    }
    // The control: a cut that loses nothing would prove nothing above.
    assert!(*bench.read_ok(member, 80, 8 * SECTOR).await != *pattern(15, 8));
    Verdict::Kept
}

async fn a_forced_write_survives_a_power_cut(bench: &Bench) -> Verdict {
    let member = bench.member();
    bench.write(member, 8, &pattern(16, 8), true).await.result.expect("the member can be written");
    if !bench.0.inject(member, Trouble::PowerCut) {
        return Verdict::NotTried;
    }
    assert!(*bench.read_ok(member, 8, 8 * SECTOR).await == *pattern(16, 8));
    Verdict::Kept
}

async fn forced_zeroes_survive_a_power_cut(bench: &Bench) -> Verdict {
    let member = bench.member();
    bench.write_ok(member, 0, &pattern(17, 16)).await;
    bench.done(member, IoOp::Flush).await;
    bench.done(member, IoOp::WriteZeroes { sector: 4, sectors: 4, fua: true }).await;
    if !bench.0.inject(member, Trouble::PowerCut) {
        return Verdict::NotTried;
    }
    let mut expected = pattern(17, 16);
    expected[4 * SECTOR..8 * SECTOR].fill(0);
    assert!(*bench.read_ok(member, 0, 16 * SECTOR).await == *expected);
    Verdict::Kept
}

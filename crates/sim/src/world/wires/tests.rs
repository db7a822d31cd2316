//! How long requests take when a path goes away, on the simulated clock.

use std::cell::RefCell;

use mdspace_engine::backend::{
    IoError, IoErrorKind, IoOp, MemberIo, Patience, ReadInto, WriteFrom,
};
use mdspace_engine::lane::Lane;
use mdspace_engine::memory::Buffer;
use mdspace_engine::time::Time;
use mdspace_format::MetadataVersion;
use mdspace_format::superblock::Superblock;

use super::*;
use crate::disk::{DiskSpec, Healing};
use crate::lent::ShiftingSource;
use crate::process::create;
use crate::random::Random;
use crate::settings::{Settings, Trouble};
use crate::stamp::Version;
use crate::trace::Trace;

const MILLI: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
/// What the disk itself may take, and the path that is asked next.
const SLACK: Duration = Duration::from_millis(50);

/// How long a request took, and how it ended.
type Ended = (Duration, Result<(), IoError>);
type Begun = Rc<RefCell<Option<Ended>>>;

/// A disk behind two servers, and a user.
struct TwoPaths {
    world: Rc<World>,
    lane: Rc<Lane>,
    member: MemberId,
    wires: Vec<WireIndex>,
    next_sector: u64,
}

impl TwoPaths {
    fn new(seed: u64) -> Self {
        Self::with(seed, policy())
    }

    /// Servers that may have caches of their own.
    fn with_caches(seed: u64) -> Self {
        Self::with(seed, Policy { cache: Cache::OfEachPath, ..policy() })
    }

    fn with(seed: u64, policy: Policy) -> Self {
        let world = World::new(Random::new(seed), Trace::default());
        let disk = world.add_disk(DiskSpec::plain(1 << 16));
        let mut paths = Self::to(world, disk, policy);
        paths.tell_from_others();
        assert!(paths.requests(true, 4).iter().all(|(_, result)| result.is_ok()));
        paths
    }

    fn to(world: Rc<World>, disk: DiskIndex, policy: Policy) -> Self {
        world.add_wires(disk, 2);
        let wires = world.wires_of(disk);
        let (member, _) = world.open_with(disk, &wires, policy);
        let lane = world.start_lanes(1).remove(0);
        Self { world, lane, member, wires, next_sector: 0 }
    }

    /// Writes the first block, and waits until both paths are used: of a blank device one is.
    fn tell_from_others(&self) {
        let mut buffer = Buffer::zeroed(4096);
        buffer.fill(7);
        let from = WriteFrom::Buffer(buffer, 0..4096);
        let op = IoOp::Write { sector: 0, from, fua: true };
        let io = MemberIo { member: self.member, op, patience: Patience::FOREVER };
        assert_eq!(self.end(&self.start(io)).1, Ok(()));
        self.wait(SECOND);
    }

    /// So many requests, one after the other, each to sectors of its own.
    fn requests(&mut self, writes: bool, count: u64) -> Vec<Ended> {
        (0..count).map(|_| self.request(writes)).collect()
    }

    fn request(&mut self, writes: bool) -> Ended {
        let begun = self.begin(writes);
        self.end(&begun)
    }

    fn begin(&mut self, writes: bool) -> Begun {
        self.next_sector += 8;
        let (sector, buffer) = (self.next_sector, Buffer::zeroed(4096));
        let op = match writes {
            true => IoOp::Write { sector, from: WriteFrom::Buffer(buffer, 0..4096), fua: false },
            false => IoOp::Read { sector, into: ReadInto::Buffer(buffer, 0..4096) },
        };
        self.start(MemberIo { member: self.member, op, patience: Patience::FOREVER })
    }

    fn start(&self, io: MemberIo) -> Begun {
        let (began, ended) = (self.world.now(), Rc::new(RefCell::new(None)));
        let (lane, slot) = (self.lane.clone(), ended.clone());
        self.lane.spawn(async move {
            let done = lane.io(io).await;
            *slot.borrow_mut() = Some((lane.backend().now().since(began), done.result));
        });
        self.world.poke(self.lane.id());
        ended
    }

    fn end(&self, begun: &Begun) -> Ended {
        assert!(self.world.run_until(|| begun.borrow().is_some()), "the request is stuck");
        begun.take().expect("it has ended")
    }

    fn flush(&self) -> Result<(), IoErrorKind> {
        let op = IoOp::Flush;
        let io = MemberIo { member: self.member, op, patience: Patience::FOREVER };
        self.end(&self.start(io)).1.map_err(|error| error.kind)
    }

    fn durable_write(&self) -> Begun {
        let from = WriteFrom::Buffer(Buffer::zeroed(4096), 0..4096);
        let op = IoOp::Write { sector: 8, from, fua: true };
        self.start(MemberIo { member: self.member, op, patience: Patience::FOREVER })
    }

    /// Writes the superblock of a disk, at sector 8, with one event more.
    fn update_superblock(&self, disk: DiskIndex) -> Begun {
        let mut bytes = vec![0; 4096];
        self.world.disk(disk, |disk| disk.store.read(8, &mut bytes));
        let place = MetadataVersion::V1_2.place(1 << 16).expect("it has room");
        let mut superblock = Superblock::parse(&bytes, place, 1 << 16).expect("a member");
        superblock.events += 1;
        let encoded = superblock.encode_sectors();
        let mut buffer = Buffer::zeroed(encoded.len());
        buffer.copy_from_slice(&encoded);
        let from = WriteFrom::Buffer(buffer, 0..encoded.len());
        let op = IoOp::Write { sector: 8, from, fua: true };
        self.start(MemberIo { member: self.member, op, patience: Patience::FOREVER })
    }

    fn freeze(&self, path: usize, frozen: bool) {
        match frozen {
            true => {
                let wire = usize::from(self.wires[path].0);
                self.world.wires.borrow_mut().wires[wire].frozen = true;
            }
            false => self.world.thaw(self.wires[path]),
        }
    }

    fn wait(&self, span: Duration) {
        let until = self.world.now() + span;
        self.world.set_alarm(until, 0);
        self.world.run_until(|| self.world.now() >= until);
    }
}

fn longest(ended: &[Ended]) -> Duration {
    assert!(ended.iter().all(|(_, result)| result.is_ok()), "no error reaches the user: {ended:?}");
    ended.iter().map(|(took, _)| *took).max().expect("there were requests")
}

#[test]
fn the_pause_after_a_path_was_cut_is_under_a_second() {
    for (seed, writes) in (0..20).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut paths = TwoPaths::new(seed);
        let begun: Vec<Begun> = (0..8).map(|_| paths.begin(writes)).collect();
        paths.world.step();
        paths.world.cut(paths.wires[seed as usize % 2]);
        let under_way: Vec<Ended> = begun.iter().map(|begun| paths.end(begun)).collect();
        let pause = longest(&under_way).max(longest(&paths.requests(writes, 50)));
        assert!(pause < SECOND, "seed {seed}, writes {writes}: {pause:?}");
    }
}

#[test]
fn with_a_stopped_server_reads_take_their_deadline_and_writes_theirs_and_no_more() {
    for seed in 0..20 {
        for (writes, deadline) in [(false, policy().read_deadline), (true, policy().write_deadline)]
        {
            let mut paths = TwoPaths::new(seed);
            paths.freeze(0, true);
            let ended = paths.requests(writes, 50);
            let pause = longest(&ended);
            assert!(pause < deadline + SLACK, "seed {seed}, writes {writes}: {pause:?}");
            // The control: the stopped server was asked, once.
            assert!(pause >= deadline, "seed {seed}, writes {writes}: {pause:?}");
            assert_eq!(ended.iter().filter(|(took, _)| *took >= deadline).count(), 1);
        }
    }
}

/// As after its removal from the array. The server that stands still may do what it was sent when it goes on.
#[test]
fn a_device_that_is_opened_again_is_not_written_where_a_closed_connection_may_still_write() {
    let mut held = 0;
    for seed in 0..20 {
        let mut paths = TwoPaths::new(seed);
        paths.freeze(0, true);
        paths.requests(true, 2);
        let disk = paths.world.disk_of(paths.member).expect("it is open");
        paths.world.close(paths.member);
        let left = paths.world.left_over(paths.wires[0]);
        (paths.member, _) = paths.world.open_with(disk, &paths.wires, policy());
        for range in left {
            let from = WriteFrom::Buffer(Buffer::zeroed(4096), 0..4096);
            let op = IoOp::Write { sector: range.start, from, fua: false };
            let io = MemberIo { member: paths.member, op, patience: Patience::FOREVER };
            assert_eq!(paths.end(&paths.start(io)).1, Ok(()));
            assert_eq!(paths.world.left_over(paths.wires[0]), [], "seed {seed}");
            held += 1;
        }
    }
    assert!(held > 10, "only {held} of 20 runs left a write");
}

#[test]
fn without_a_path_requests_wait_as_long_as_they_are_told_then_fail_and_service_goes_on() {
    let bound = policy().polling_interval * policy().no_path_retry.expect("it is bounded");
    for (seed, writes) in (0..5).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut paths = TwoPaths::new(seed);
        for path in 0..2 {
            paths.freeze(path, true);
            paths.world.cut(paths.wires[path]);
        }
        let (took, result) = paths.request(writes);
        assert_eq!(result.map_err(|error| error.kind), Err(IoErrorKind::Gone), "seed {seed}");
        assert!(took > bound / 2 && took < bound + SECOND, "seed {seed}: {took:?}");
        let (took, result) = paths.request(writes);
        assert!(result.is_err() && took < MILLI, "seed {seed}: it has waited long enough");
        paths.freeze(1, false);
        paths.wait(3 * SECOND);
        assert!(longest(&paths.requests(writes, 10)) < SECOND, "seed {seed}");
        assert!(paths.world.now() > Time::ZERO);
    }
}

/// A second flush would succeed over the other path, and what the first one lost would count as durable.
#[test]
fn a_flush_that_a_path_answers_with_an_error_is_not_tried_again() {
    let mut paths = TwoPaths::new(3);
    assert_eq!(paths.flush(), Ok(()));
    paths.world.change_disk(DiskIndex(0), |disk| disk.faults.flush_errors += 1);
    assert!(paths.flush().is_err());
    assert_eq!(paths.flush(), Ok(()));
    assert!(longest(&paths.requests(true, 4)) < SLACK, "both paths are as good as before");
}

/// A world with the members of a mirror, of metadata 1.2.
fn with_an_array(seed: u64) -> (Rc<World>, Vec<DiskIndex>) {
    let mut settings = Settings::draw(1, Some(1), Trouble::Bearable);
    (settings.metadata_minor, settings.data_offset, settings.spares) = (2, 64, 0);
    let world = World::new(Random::new(seed), Trace::default());
    let disks: Vec<DiskIndex> =
        (0..settings.slots).map(|_| world.add_disk(DiskSpec::plain(1 << 16))).collect();
    create(&world, &settings, &disks);
    (world, disks)
}

/// At the end lies the superblock of metadata 1.0, which a member of another version does not have.
#[test]
fn a_member_whose_end_cannot_be_read_is_told_by_its_superblock() {
    let (world, disks) = with_an_array(9);
    let end = (1 << 16) - 24..1 << 16;
    world.change_disk(disks[0], |disk| disk.faults.spoil(end, Healing::Never));
    let mut paths = TwoPaths::to(world, disks[0], policy());
    paths.wait(SECOND);
    paths.world.cut(paths.wires[0]);
    assert!(longest(&paths.requests(false, 4)) < SLACK, "the other path takes them");
    paths.wait(5 * SECOND);
    paths.world.cut(paths.wires[1]);
    assert!(longest(&paths.requests(false, 4)) < SLACK, "the first path has come back");
}

/// Between two checks its user makes it another member, and both its paths are lost.
#[test]
fn a_device_that_got_a_superblock_before_its_paths_were_lost_is_the_same_device() {
    for (seed, was_blank) in (0..10).flat_map(|seed| [(seed, false), (seed, true)]) {
        let (world, disks) = with_an_array(seed);
        let blank = world.add_disk(DiskSpec::plain(1 << 16));
        let mut superblock = Buffer::zeroed(4096);
        world.disk(disks[1], |disk| disk.store.read(8, &mut superblock));
        let disk = if was_blank { blank } else { disks[0] };
        let mut paths = TwoPaths::to(world, disk, policy());
        paths.wait(SECOND);
        let from = WriteFrom::Buffer(superblock, 0..4096);
        let op = IoOp::Write { sector: 8, from, fua: true };
        let io = MemberIo { member: paths.member, op, patience: Patience::FOREVER };
        assert_eq!(paths.end(&paths.start(io)).1, Ok(()), "seed {seed}");
        let stopped = seed as usize % 2;
        paths.freeze(stopped, true);
        (0..2).for_each(|path| paths.world.cut(paths.wires[path]));
        let pause = longest(&paths.requests(false, 4));
        assert!(pause < 3 * SECOND, "seed {seed}, blank {was_blank}: {pause:?}");
    }
}

/// Between two checks its superblock is updated, and both its servers lead to a copy from before.
#[test]
fn a_device_is_not_older_than_the_superblock_that_it_has_made_durable() {
    for seed in 0..10 {
        let (world, disks) = with_an_array(seed);
        let mut paths = TwoPaths::to(world, disks[0], policy());
        paths.wait(SECOND);
        let copy = paths.world.add_copy(disks[0]);
        assert_eq!(paths.end(&paths.update_superblock(disks[0])).1, Ok(()), "seed {seed}");
        let until = paths.world.now() + MISLED;
        for wire in paths.wires.clone() {
            paths.world.wires.borrow_mut().misled.insert(wire, (copy, until));
            paths.world.cut(wire);
        }
        assert!(paths.request(false).1.is_ok(), "seed {seed}");
        assert!(paths.world.now() >= until, "seed {seed}: the copy was read");
    }
}

/// The server that does not answer may have met an error, and told it nobody: over the other path the next
/// flush finds nothing to do.
#[test]
fn a_flush_or_durable_write_that_was_sent_and_not_answered_has_failed() {
    for (durable_write, cuts) in [(false, false), (false, true), (true, false), (true, true)] {
        let paths = TwoPaths::new(7);
        // Until both have joined.
        paths.wait(SECOND);
        paths.freeze(0, true);
        let start = || match durable_write {
            true => paths.durable_write(),
            false => {
                let op = IoOp::Flush;
                paths.start(MemberIo { member: paths.member, op, patience: Patience::FOREVER })
            }
        };
        // One of the two meets the stopped server.
        let begun = [start(), start()];
        let one_has_ended = || begun.iter().any(|begun| begun.borrow().is_some());
        assert!(paths.world.run_until(one_has_ended), "the other path answers");
        if cuts {
            paths.world.cut(paths.wires[0]);
        }
        let failed = begun.iter().filter_map(|begun| paths.end(begun).1.err());
        let kinds: Vec<IoErrorKind> = failed.map(|error| error.kind).collect();
        assert_eq!(kinds, [IoErrorKind::Flush], "durable write {durable_write}, cut {cuts}");
        assert_eq!(paths.flush(), Ok(()), "it is told once");
    }
}

#[test]
fn a_flush_goes_over_every_path_that_has_answered_writes_since_its_last() {
    let mut paths = TwoPaths::with_caches(11);
    paths.wait(SECOND);
    assert_eq!(paths.flush(), Ok(()));
    // Both paths owe a flush, and one of them cannot bring it.
    assert!(longest(&paths.requests(true, 4)) < SLACK);
    paths.freeze(0, true);
    assert_eq!(paths.flush(), Err(IoErrorKind::Flush));
    assert_eq!(paths.flush(), Err(IoErrorKind::Flush), "it still owes one");
    paths.freeze(0, false);
    paths.wait(3 * SECOND);
    assert_eq!(paths.flush(), Ok(()));
    // It owes nothing, and is not asked.
    paths.freeze(0, true);
    paths.world.cut(paths.wires[0]);
    paths.wait(SECOND);
    assert!(longest(&paths.requests(true, 4)) < SLACK);
    assert_eq!(paths.flush(), Ok(()));
}

#[test]
fn a_connection_that_is_lost_with_its_cache_makes_the_next_flush_fail_once() {
    for waits in [false, true] {
        let mut paths = TwoPaths::with_caches(5);
        paths.wait(SECOND);
        assert!(longest(&paths.requests(true, 4)) < SLACK);
        paths.world.cut(paths.wires[0]);
        // Over the new connection a flush would go well.
        paths.wait(if waits { 5 * SECOND } else { MILLI });
        assert_eq!(paths.flush(), Err(IoErrorKind::Flush), "waits {waits}");
        paths.wait(5 * SECOND);
        assert_eq!(paths.flush(), Ok(()), "waits {waits}: it is told once");
    }
}

/// The process ends, and its servers keep what they have not been asked to flush.
#[test]
fn the_first_flush_of_a_process_covers_what_an_earlier_one_wrote_over_any_path() {
    for seed in 0..10 {
        let mut paths = TwoPaths::with_caches(seed);
        paths.world.wires.borrow_mut().servers.own_caches = true;
        assert_eq!(paths.flush(), Ok(()));
        assert!(longest(&paths.requests(true, 4)) < SLACK);
        paths.world.close(paths.member);
        let disk = DiskIndex(0);
        let caches = Policy { cache: Cache::OfEachPath, ..policy() };
        (paths.member, _) = paths.world.open_with(disk, &paths.wires, caches);
        if seed % 2 == 1 {
            paths.wait(SECOND);
        }
        assert_eq!(paths.flush(), Ok(()), "seed {seed}");
        let at_risk = paths.world.disk(disk, |disk| disk.store.volatile_sectors());
        assert_eq!(at_risk, 0, "seed {seed}: sectors that the flush has not covered");
    }
}

/// The operator has said that the cache is the device's.
#[test]
fn a_connection_that_is_lost_without_a_cache_fails_no_flush() {
    let mut paths = TwoPaths::new(5);
    assert!(longest(&paths.requests(true, 4)) < SLACK);
    paths.world.cut(paths.wires[0]);
    paths.wait(5 * SECOND);
    assert_eq!(paths.flush(), Ok(()));
}

/// A user may change the memory of a write under way, as a guest does. Two paths have the write then, and
/// the one that does it last must not take back what has been read since.
#[test]
fn a_write_that_is_done_twice_writes_the_same_though_its_memory_changes() {
    for seed in 0..10 {
        let paths = TwoPaths::new(seed);
        paths.freeze(0, true);
        let (sector, versions) = (64, vec![Version(1), Version(2)]);
        // One of them meets the stopped server.
        for sector in [sector, sector + 32] {
            let memory = ShiftingSource::new(sector, 32, versions.clone(), Random::new(seed));
            let from = WriteFrom::Source(Rc::new(memory), 0..32 * 512);
            let op = IoOp::Write { sector, from, fua: false };
            let io = MemberIo { member: paths.member, op, patience: Patience::FOREVER };
            assert_eq!(paths.end(&paths.start(io)).1, Ok(()), "seed {seed}");
        }
        let on_disk = || {
            let mut bytes = vec![0; 64 * 512];
            paths.world.disk(DiskIndex(0), |disk| disk.store.read(sector, &mut bytes));
            bytes
        };
        let once = on_disk();
        paths.freeze(0, false);
        paths.wait(SECOND);
        assert!(on_disk() == once, "seed {seed}: the late write has changed something");
    }
}

/// Two writes to the same sectors are under way, each over a path of its own, and one path is cut. Which of
/// them is last on the disk is anybody's guess, but not any more once both are answered: what the lost
/// connection has brought its server may still be done then.
#[test]
fn once_overlapping_writes_are_answered_neither_comes_back() {
    for seed in 0..200 {
        let paths = TwoPaths::new(seed);
        let (sector, bytes) = (64, 8 * 512);
        let write = |byte: u8| {
            let mut buffer = Buffer::zeroed(bytes);
            buffer.fill(byte);
            let op = IoOp::Write { sector, from: WriteFrom::Buffer(buffer, 0..bytes), fua: false };
            paths.start(MemberIo { member: paths.member, op, patience: Patience::FOREVER })
        };
        let begun = [write(1), write(2)];
        for _ in 0..=seed / 2 % 5 {
            paths.world.step();
        }
        paths.world.cut(paths.wires[seed as usize % 2]);
        begun.iter().for_each(|begun| assert_eq!(paths.end(begun).1, Ok(()), "seed {seed}"));
        let on_disk = || {
            let mut now = vec![0; bytes];
            paths.world.disk(DiskIndex(0), |disk| disk.store.read(sector, &mut now));
            now
        };
        let answered = on_disk();
        paths.wait(10 * SECOND);
        assert!(
            on_disk() == answered,
            "seed {seed}: a late write has taken back what was answered"
        );
    }
}

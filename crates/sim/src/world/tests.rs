//! The world keeps the backend's contract, and a seed determines it.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::backend::{
    IoDone, IoErrorKind, IoOp, MemberId, MemberIo, Patience, ReadInto, WriteFrom,
};
use mdspace_engine::lane::Lane;
use mdspace_engine::memory::Buffer;
use mdspace_engine::time::Time;

use super::*;
use crate::disk::Held;

fn world(seed: u64) -> Rc<World> {
    World::new(Random::new(seed), Trace::default())
}

/// A world with one lane and one open disk.
fn one_disk(seed: u64) -> (Rc<World>, Rc<Lane>, MemberId) {
    let world = world(seed);
    let disk = world.add_disk(DiskSpec::plain(1024));
    let (member, _) = world.open(disk);
    let lane = world.start_lanes(1).remove(0);
    (world, lane, member)
}

fn read_io(member: MemberId, sector: u64, sectors: usize) -> MemberIo {
    let bytes = sectors * 512;
    let into = ReadInto::Buffer(Buffer::zeroed(bytes), 0..bytes);
    MemberIo { member, op: IoOp::Read { sector, into }, patience: Patience::FOREVER }
}

fn write_io(member: MemberId, sector: u64, byte: u8, fua: bool) -> MemberIo {
    let mut buffer = Buffer::zeroed(512);
    buffer.fill(byte);
    let from = WriteFrom::Buffer(buffer, 0..512);
    MemberIo { member, op: IoOp::Write { sector, from, fua }, patience: Patience::FOREVER }
}

/// Runs one task to its end and gives its result.
fn run<T: 'static>(
    world: &Rc<World>,
    lane: &Rc<Lane>,
    task: impl Future<Output = T> + 'static,
) -> T {
    let result = Rc::new(RefCell::new(None));
    let slot = result.clone();
    lane.spawn(async move { *slot.borrow_mut() = Some(task.await) });
    world.poke(lane.id());
    assert!(world.run_until(|| result.borrow().is_some()), "the task is stuck");
    result.take().expect("the task ended")
}

fn io(world: &Rc<World>, lane: &Rc<Lane>, io: MemberIo) -> IoDone {
    let task_lane = lane.clone();
    run(world, lane, async move { task_lane.io(io).await })
}

#[test]
fn what_was_written_is_read_and_the_buffer_comes_home() {
    let (world, lane, member) = one_disk(1);
    assert!(io(&world, &lane, write_io(member, 5, 7, false)).result.is_ok());
    let done = io(&world, &lane, read_io(member, 5, 1));
    assert!(done.result.is_ok());
    assert!(done.buffer.unwrap().iter().all(|&byte| byte == 7));
    assert!(world.now() > Time::ZERO, "disks take time");
}

/// Many lanes and disks at work, with deadlines and a hung disk: the hash of the story.
fn storm(seed: u64) -> u64 {
    let world = world(seed);
    let members: Vec<MemberId> =
        (0..4).map(|_| world.open(world.add_disk(DiskSpec::plain(1024))).0).collect();
    for lane in world.start_lanes(3) {
        for task in 0..8 {
            let (member, task_lane) = (members[task % 4], lane.clone());
            lane.spawn(async move {
                for turn in 0..10 {
                    let mut io = write_io(member, turn, task as u8, turn % 3 == 0);
                    io.patience = Patience::of(Duration::from_millis(1));
                    let _ = task_lane.io(io).await;
                }
            });
        }
        world.poke(lane.id());
    }
    world.set_alarm(Time::from_nanos(300_000), 1);
    world.run_until(|| world.now() >= Time::from_nanos(300_000));
    world.change_disk(DiskIndex(2), |disk| disk.faults.hang = Some(Hang::ForEver));
    assert!(world.run_until(|| world.task_count() == 0));
    world.trace_hash()
}

#[test]
fn equal_seeds_give_equal_stories_and_others_do_not() {
    assert_eq!(storm(11), storm(11));
    assert_ne!(storm(11), storm(12));
}

#[test]
fn an_io_past_its_deadline_is_answered_without_its_buffer_and_stays_in_flight() {
    let (world, lane, member) = one_disk(2);
    world.change_disk(DiskIndex(0), |disk| disk.faults.hang = Some(Hang::ForEver));
    let patience = Patience::of(Duration::from_millis(5));
    let done = io(&world, &lane, MemberIo { patience, ..read_io(member, 0, 1) });
    assert_eq!(done.result.unwrap_err().kind, IoErrorKind::Deadline);
    assert!(done.buffer.is_none());
    assert!(world.now() >= Time::from_nanos(5_000_000));
    assert_eq!(lane.backend().in_flight(member), 1);
    world.change_disk(DiskIndex(0), |disk| disk.faults.hang = None);
    assert!(world.run_until(|| lane.backend().in_flight(member) == 0));
}

#[test]
fn a_late_write_still_lands() {
    let mut landed = [false; 2];
    for seed in 0..32 {
        let (world, lane, member) = one_disk(seed);
        let release = Time::from_nanos(50_000_000);
        world.change_disk(DiskIndex(0), |disk| disk.faults.hang = Some(Hang::Until(release)));
        let patience = Patience::of(Duration::from_millis(1));
        io(&world, &lane, MemberIo { patience, ..write_io(member, 0, 9, false) });
        let early = world.disk(DiskIndex(0), |disk| sector(disk, 0));
        landed[usize::from(early == 9)] = true;
        world.run_until(|| world.flight_count() == 0);
        assert_eq!(world.disk(DiskIndex(0), |disk| sector(disk, 0)), 9);
    }
    assert_eq!(landed, [true, true], "a hung disk has done it already, or does it later");
}

fn sector(disk: &Disk, sector: u64) -> u8 {
    let mut out = [0; 512];
    disk.store.read(sector, &mut out);
    out[0]
}

#[test]
fn a_closed_member_is_gone_also_when_another_takes_its_place() {
    let (world, lane, member) = one_disk(3);
    world.close(member);
    let (reopened, _) = world.open(DiskIndex(0));
    assert_eq!(member.index, reopened.index);
    let done = io(&world, &lane, read_io(member, 0, 1));
    assert_eq!(done.result.unwrap_err().kind, IoErrorKind::Gone);
    assert!(done.buffer.is_some(), "its lease is over");
    assert!(io(&world, &lane, read_io(reopened, 0, 1)).result.is_ok());
}

#[test]
fn what_a_disk_holds_back_waits_and_all_else_does_not() {
    let (world, lane, member) = one_disk(6);
    let until = world.now() + Duration::from_secs(1);
    let held = Held { sectors: 0..8, until };
    world.change_disk(DiskIndex(0), |disk| disk.faults.held = Some(held));
    let is_late = |sector| {
        let begin = world.now();
        assert!(io(&world, &lane, read_io(member, sector, 1)).result.is_ok());
        world.now().since(begin) > Duration::from_millis(500)
    };
    assert_eq!([is_late(8), is_late(7), is_late(0)], [false, true, false]);
}

#[test]
fn a_disk_that_vanishes_fails_what_it_holds() {
    let (world, lane, member) = one_disk(4);
    world.change_disk(DiskIndex(0), |disk| disk.faults.hang = Some(Hang::ForEver));
    let ended = Rc::new(Cell::new(false));
    let (task_lane, task_ended) = (lane.clone(), ended.clone());
    lane.spawn(async move {
        let done = task_lane.io(read_io(member, 0, 1)).await;
        assert_eq!(done.result.unwrap_err().kind, IoErrorKind::Gone);
        task_ended.set(true);
    });
    world.poke(lane.id());
    assert!(!world.run_until(|| ended.get()), "a hung disk answers nothing");
    world.change_disk(DiskIndex(0), |disk| disk.faults.gone = true);
    assert!(world.run_until(|| ended.get()));
}

#[test]
fn a_power_cut_keeps_what_was_acknowledged_with_fua() {
    let mut lost = false;
    for seed in 0..32 {
        let (world, lane, member) = one_disk(seed);
        io(&world, &lane, write_io(member, 0, 1, true));
        io(&world, &lane, write_io(member, 1, 1, false));
        world.cut_power();
        assert_eq!(world.disk(DiskIndex(0), |disk| sector(disk, 0)), 1);
        lost |= world.disk(DiskIndex(0), |disk| sector(disk, 1)) == 0;
    }
    assert!(lost, "a volatile cache forgets now and then");
}

#[test]
fn a_kill_keeps_every_acknowledged_write() {
    for seed in 0..32 {
        let (world, lane, member) = one_disk(seed);
        io(&world, &lane, write_io(member, 0, 1, false));
        world.kill();
        assert_eq!(world.flight_count(), 0);
        assert_eq!(world.disk(DiskIndex(0), |disk| sector(disk, 0)), 1);
    }
}

#[test]
#[should_panic(expected = "beyond the end")]
fn an_io_beyond_the_end_of_a_disk_is_a_broken_engine() {
    let (world, lane, member) = one_disk(5);
    io(&world, &lane, read_io(member, 1024, 1));
}

#[test]
fn a_lane_that_dozes_gets_no_turn_whatever_comes() {
    let (world, lane, member) = one_disk(7);
    let until = Time::from_nanos(20_000_000);
    world.let_doze(0, until);
    assert!(io(&world, &lane, read_io(member, 0, 1)).result.is_ok());
    assert!(world.now() >= until, "the read ended at {:?}", world.now());
}

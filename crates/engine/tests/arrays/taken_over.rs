//! Members that were filled, at the moment when they begin to count: what was read before is read then.

use std::ops::Range;
use std::rc::Rc;

use mdspace_engine::array::Action;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{ArrayState, MemberState, SyncAction, SyncEnd};

use crate::shapes::{self, Shape};
use crate::world::{Pending, SECTOR, Setup, World};

/// Orders that the first disk beyond the shape's replaces disk 0. It takes no other slot, and nothing is
/// copied before [`go_on`].
fn begin(world: &mut World) -> usize {
    world.command(Action::Freeze).unwrap();
    let spare = usize::from(world.shape().disks);
    world.add(spare).unwrap();
    let (member, with) = (world.disks.id(0), Some(world.disks.id(spare)));
    world.command(Action::Replace { member, with }).unwrap();
    spare
}

/// Goes on with what was begun up to a sector of the members.
fn go_on_to(world: &mut World, sector: u64) {
    world.set("sync_max", &sector.to_string());
    world.command(Action::Idle).unwrap();
    world.wait_status("the next pause", |status| status.sync.completed_sectors >= sector);
}

fn finish(world: &mut World, new: usize) {
    world.set("sync_max", "max");
    for _ in 0..4000 {
        if world.member_state(new) == Some(MemberState::InSync) {
            return;
        }
        world.rounds(3);
    }
    panic!("no end of a replacement ({world}): {:?}", world.status());
}

/// What nobody could read when it was to be copied is listed as bad on the replacement. A user has written it
/// since, to both: the list must not outlive that.
#[test]
fn what_is_written_while_a_replacement_lists_it_is_there_when_that_takes_over() {
    let two = Shape { disks: 2, member_sectors: 32_768, ..shapes::RAID1 };
    for (seed, shape) in (1..).zip([two, Shape { member_sectors: 16_384, ..shapes::RAID5 }]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let last = usize::from(shape.disks) - 1;
        world.fail(last);
        let start = world.disks.data().start;
        world.disks.disk(0).unreadable.insert(start + 3);
        let new = begin(&mut world);
        go_on_to(&mut world, shape.member_sectors / 2);
        // The replacement's superblock says that it holds the sector by now.
        let superblock = world.disks.superblock(new).unwrap();
        assert!(superblock.recovery_offset_sectors.is_some_and(|done| done > 3), "{world}");
        let bytes = world.random.bytes(SECTOR);
        world.write(3, bytes.clone()).unwrap();
        assert_eq!(world.read(3, 1), Ok(bytes.clone()), "{world}");
        finish(&mut world, new);
        assert_eq!(world.read(3, 1), Ok(bytes), "{world}");
    }
}

/// There is no room in its list for what would be left of an entry: it is given up, and not the member that
/// holds the sector alone.
#[test]
fn a_replacement_that_cannot_take_a_sector_off_its_list_does_not_take_over() {
    let shape = Shape { disks: 2, member_sectors: 32_768, ..shapes::RAID1 };
    let mut world = World::synced(Setup::shuffled(shape, 5));
    world.fail(1);
    let new = begin(&mut world);
    go_on_to(&mut world, shape.member_sectors / 2);
    world.stop();
    crate::told::fill_log(&mut world, new);
    world.assemble_all().unwrap();
    world.command(Action::Freeze).unwrap();
    let bytes = world.random.bytes(SECTOR);
    world.write(41, bytes.clone()).unwrap();
    assert_eq!(world.member_state(new), Some(MemberState::Faulty), "{world}");
    assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
    assert_eq!(world.read(41, 1), Ok(bytes), "{world}");
}

/// A write that is under way on a replacement when that takes over, for its member has failed, finds no space there
/// afterwards. It is a member like others by then: the write fails, and nothing else.
#[test]
fn what_goes_wrong_on_a_replacement_is_judged_by_what_it_is_then() {
    for (seed, kind) in (10..).zip([IoErrorKind::NoSpace, IoErrorKind::Medium]) {
        let (mut world, new, write) = with_a_write_under_way(0, seed);
        world.fail(0);
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
        assert!(!write.has_ended(), "{world}");
        let at = chunk_of_row(&world, 0);
        refuse_what_hangs(&world, new, kind, at);
        let error = match kind {
            IoErrorKind::NoSpace => RequestError::NoSpace,
            _ => RequestError::Lost,
        };
        assert_eq!(world.end(&write), Err(error), "{world}");
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
        assert_ne!(world.status().state, ArrayState::Broken, "{world}");
        let row = u64::from(world.shape().chunk_sectors) * 3;
        let rest = world.read(row, world.sectors() - row).unwrap();
        world.compare(row, &rest);
    }
}

/// What a replacement has not answered yet it may refuse: the member in its slot has taken it. In the first row the
/// disk that is missing had parity, in the second one a block that only the others give.
#[test]
fn no_replacement_takes_over_that_a_write_is_under_way_to() {
    let kinds = [IoErrorKind::NoSpace, IoErrorKind::Medium];
    for (seed, (row, kind)) in
        (70..).zip([(0, kinds[0]), (1, kinds[0]), (0, kinds[1]), (1, kinds[1])])
    {
        let (mut world, new, write) = with_a_write_under_way(row, seed);
        world.sleep_ms(5000);
        assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
        // Others go on meanwhile.
        let far = world.sectors() - 8;
        world.write_random(far, 8);
        let at = chunk_of_row(&world, row);
        refuse_what_hangs(&world, new, kind, at);
        assert_eq!(world.end(&write), Ok(()), "{world}");
        assert_eq!(world.member_state(new), Some(MemberState::Faulty), "{world}");
        assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
        world.verify();
    }
}

/// When it has taken that too it takes over.
#[test]
fn a_replacement_takes_over_when_writes_to_it_have_ended() {
    for (seed, row) in (80..).zip([0, 1]) {
        let (mut world, new, write) = with_a_write_under_way(row, seed);
        world.sleep_ms(5000);
        world.disks.disk(new).hangs_in = None;
        assert_eq!(world.end(&write), Ok(()), "{world}");
        finish(&mut world, new);
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        world.verify();
    }
}

/// Disk 3 is out, and disk 0 is replaced: the new disk has all, but for a write to a block of disk 0 in a row, which
/// it does not answer. That write is remembered.
fn with_a_write_under_way(row: u64, seed: u64) -> (World, usize, Pending) {
    let shape = Shape { member_sectors: 16_384, ..shapes::RAID5 };
    let mut world = World::synced(Setup::shuffled(shape, seed));
    for key in ["read_deadline", "write_deadline"] {
        world.set(key, "0");
    }
    world.fail(3);
    let new = begin(&mut world);
    go_on_to(&mut world, shape.member_sectors / 2);
    world.disks.disk(new).hangs_in = Some(chunk_of_row(&world, row));
    // Of the second row disk 0 has the second block.
    let sector = u64::from(shape.chunk_sectors) * 4 * row;
    let bytes = world.random.bytes(8 * SECTOR);
    world.remember(sector, &bytes);
    let write = world.start(0, Request::Write { sector, from: Rc::new(bytes), fua: false });
    world.rounds(60);
    assert!(!write.has_ended(), "{world}");
    world.set("sync_max", "max");
    world.wait_status("all else", |status| status.sync.action == SyncAction::Idle);
    (world, new, write)
}

/// The first sectors of a row on each disk.
fn chunk_of_row(world: &World, row: u64) -> Range<u64> {
    let start = world.disks.data().start + row * u64::from(world.shape().chunk_sectors);
    start..start + 8
}

fn refuse_what_hangs(world: &World, disk: usize, kind: IoErrorKind, at: Range<u64>) {
    let mut disk = world.disks.disk(disk);
    disk.write_error = Some(kind);
    disk.errors_in = Some(at);
    disk.hangs_in = None;
}

/// A write was refused by a replacement that has all else, and not judged yet: the controller waits for a flush.
/// The old member has taken it, and is not given up for one that lacks it.
#[test]
fn no_replacement_takes_over_that_has_refused_a_write() {
    for (seed, kind) in (15..).zip([IoErrorKind::NoSpace, IoErrorKind::Medium]) {
        let shape = Shape { member_sectors: 16_384, ..shapes::RAID5 };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.fail(3);
        let new = begin(&mut world);
        go_on_to(&mut world, shape.member_sectors / 2);
        world.write_random(0, 8);
        let data = world.disks.data();
        world.disks.reset_counts();
        world.set("sync_max", "max");
        world.until("the last window", |world| {
            world.disks.disk(new).sectors_written(data.clone()) >= shape.member_sectors / 2
        });
        world.disks.disk(new).flush_hangs_on = Some(0);
        world.turns(20);
        world.disks.disk(new).write_error = Some(kind);
        world.disks.disk(new).errors_in = Some(data.start..data.start + 8);
        let bytes = world.random.bytes(8 * SECTOR);
        world.remember(0, &bytes);
        let write = Request::Write { sector: 0, from: Rc::new(bytes), fua: false };
        let write = world.start(1, write);
        world.turns(60);
        assert!(!write.has_ended(), "{world}");
        world.disks.disk(new).flush_hangs_on = None;
        assert_eq!(world.end(&write), Ok(()), "{world}");
        assert_eq!(world.member_state(new), Some(MemberState::Faulty), "{world}");
        assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
        world.verify();
    }
}

/// The old member is write-mostly and the new one is not: where copies differ another one is read after
/// the hand-over. So that waits, also where the difference arose when the copying was under way.
#[test]
fn no_replacement_takes_over_where_another_copy_would_be_read() {
    let two = Shape { disks: 2, write_mostly: 1, member_sectors: 4096, ..shapes::RAID1 };
    let ten = Shape { write_mostly: 1, member_sectors: 4096, ..shapes::RAID10 };
    for (seed, shape) in (20..).zip([two, ten]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let new = begin(&mut world);
        go_on_to(&mut world, 1024);
        let at = world.sectors() - 64;
        world.disks.disk(0).write_error = Some(IoErrorKind::NoSpace);
        world.disks.disk(0).errors_in = Some(world.disks.data());
        let bytes = world.random.bytes(8 * SECTOR);
        // Sectors with a copy on disk 0.
        let (mut sector, mut ended) = (at, Ok(()));
        while sector < at + 64 && ended.is_ok() {
            ended = world.write(sector, bytes.clone());
            world.remember(sector, &bytes);
            sector += 8;
        }
        assert_eq!(ended, Err(RequestError::NoSpace), "{world}");
        world.verify();
        world.set("sync_max", "max");
        world.rounds(3000);
        world.verify();
        world.disks.disk(0).plug();
        finish(&mut world, new);
        world.verify();
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// A resync makes right what a crash left in doubt. That a replacement has no room is no reason to leave it.
#[test]
fn a_replacement_without_space_keeps_no_resync_from_its_end() {
    let shape = Shape { member_sectors: 4096, ..shapes::RAID5 };
    let mut world = World::synced(Setup::shuffled(shape, 30));
    let new = begin(&mut world);
    world.write_random(0, world.sectors());
    world.crash();
    let data = world.disks.data();
    // In every row something is wrong: parity of some of them lies on disk 0.
    for chunk in 0..shape.member_sectors / 16 {
        let at = (data.start + chunk * 16) as usize * SECTOR;
        let disk = (chunk % 4) as usize;
        world.disks.disk(disk).bytes[at] ^= 1;
    }
    world.assemble_all().unwrap();
    world.disks.disk(new).write_error = Some(IoErrorKind::NoSpace);
    world.disks.disk(new).errors_in = Some(data);
    world.wait_status("the end of a resync", |status| {
        status.sync.last_end.is_some() && status.sync.action == SyncAction::Idle
    });
    assert_eq!(world.status().doubted.sectors, 0, "{world}: {:?}", world.status());
    assert_eq!(world.status().degraded(), 0, "{world}");
}

/// Repair mends what a member has wrong. Its replacement has copied that, and has no room for what is right: it
/// must not bring the lie back.
#[test]
fn what_a_repair_could_not_write_to_a_replacement_is_not_read_there() {
    let shape = Shape { member_sectors: 4096, ..shapes::RAID6 };
    let mut world = World::synced(Setup::shuffled(shape, 40));
    let data = world.disks.data();
    // Disk 0 has data in the second row.
    world.disks.disk(0).bytes[(data.start + 16) as usize * SECTOR + 5] ^= 1;
    let new = begin(&mut world);
    go_on_to(&mut world, 2048);
    world.disks.disk(new).write_error = Some(IoErrorKind::NoSpace);
    world.disks.disk(new).errors_in = Some(data);
    world.set("sync_max", "max");
    world.wait_status("no space", |status| status.sync.last_end == Some(SyncEnd::NoSpace));
    world.repair();
    world.disks.disk(new).plug();
    world.verify();
    world.sleep_ms(60_000);
    world.wait_idle();
    world.verify();
    assert_eq!(world.check(), 0, "{world}");
}

/// A write found no space on one of three copies: in doubt, it is read from another one. That one cannot be
/// read any more, and from then on the old bytes are. So they are when the new member, which was filled
/// with the new ones, is read first.
#[test]
fn a_new_member_does_not_bring_back_what_is_not_read_any_more() {
    let shape = Shape { member_sectors: 65_536, ..shapes::RAID1 };
    let mut world = World::synced(Setup::shuffled(shape, 50));
    world.write_many(2);
    world.command(Action::Freeze).unwrap();
    world.fail(0);
    world.add(3).unwrap();
    let start = world.disks.data().start;
    world.disks.disk(2).write_error = Some(IoErrorKind::NoSpace);
    world.disks.disk(2).errors_in = Some(start + 8..start + 16);
    let bytes = world.random.bytes(8 * SECTOR);
    assert_eq!(world.write(8, bytes.clone()), Err(RequestError::NoSpace), "{world}");
    assert_eq!(world.read(8, 8), Ok(bytes), "{world}");
    world.command(Action::Idle).unwrap();
    world.wait_status("a rebuild", |status| status.sync.action == SyncAction::Recover);
    world.set("sync_max", "32768");
    world.wait_status("half of a rebuild", |status| status.sync.completed_sectors >= 32_768);
    assert_eq!(world.member_state(3), Some(MemberState::Recovering), "{world}");
    world.disks.disk(1).unreadable.extend(start + 8..start + 16);
    let old = world.read(8, 8).unwrap();
    world.set("sync_max", "max");
    world.wait_status("a new member", |status| status.degraded() == 0);
    assert!(world.read(8, 8).unwrap() == old, "{world}");
}

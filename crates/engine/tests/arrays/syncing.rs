//! Check, repair, resync and recovery: what they find, what they mend, and what they leave alone.

use mdspace_engine::array::{Action, CommandError, Undecided};
use mdspace_engine::assembly::Options;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::{Geometry, Level};
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{ArrayState, ArrayStatus, MemberState, SyncAction, SyncEnd};
use mdspace_format::superblock::RESYNC_NONE;
use std::rc::Rc;
use std::time::Duration;

use crate::shapes::{self, Shape};
use crate::world::{SECTOR, Setup, World};

/// Where a member's bytes hold parity, or a copy that is not the first.
fn redundant_byte(world: &World) -> (usize, usize) {
    let superblock = world.disks.superblock(0).unwrap();
    let shape = world.shape();
    let (slot, sector) = match Geometry::new(&world.map()).unwrap() {
        Geometry::Parity(map) => (map.row(1).p().0, map.row(1).member_sector() + 3),
        Geometry::Raid10(map) => {
            let (slot, sector) = map.copies_of(1).nth(1).unwrap();
            (slot.0, sector + 3)
        }
        _ => (1, 21),
    };
    let sector = superblock.data_offset_sectors + sector;
    let holder = |disk: &usize| {
        let own = world.disks.superblock(*disk).and_then(|superblock| superblock.own_role().slot());
        own == Some(slot)
    };
    let disk = (0..usize::from(shape.disks)).find(holder).unwrap();
    (disk, sector as usize * SECTOR + 77)
}

#[test]
fn a_flipped_byte_of_redundancy_is_counted_and_repaired() {
    for (seed, shape) in (1..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(10);
        assert_eq!(world.check(), 0, "{world}");
        let (disk, byte) = redundant_byte(&world);
        world.disks.disk(disk).bytes[byte] ^= 0x10;
        let counted = world.check();
        assert!(counted > 0, "{world}");
        if shape.level.has_parity() {
            assert_eq!(counted, 8, "one unit of 4 KiB ({world})");
        }
        assert_eq!(world.check(), counted, "a check changes nothing ({world})");
        assert_eq!(world.repair_by(Undecided::ByData), counted, "{world}");
        assert_eq!(world.check(), 0, "{world}");
        world.verify();
    }
}

/// md's way: data are taken for right, and parity follows.
#[test]
fn a_flipped_byte_of_data_is_counted_and_becomes_the_truth_where_the_user_says_so() {
    for (seed, shape) in (100..).zip([shapes::RAID5, Shape::new(Level::Raid4, 0, 3, 8)]) {
        let mut world = World::synced(Setup::new(shape, seed));
        let data = world.disks.data();
        // Where these layouts begin: RAID6 has Q on the first member.
        let disk = usize::from(shape.level == Level::Raid6);
        world.disks.disk(disk).bytes[data.start as usize * SECTOR + 5] ^= 1;
        world.model[5] ^= 1;
        assert_eq!(world.check(), 8, "{world}");
        assert_eq!(world.repair(), 8, "{world}");
        let status = world.status();
        assert_eq!((status.mismatches.places, status.mismatches.undecidable), (1, 1), "{world}");
        assert_eq!(world.check(), 8, "it changed nothing ({world})");
        assert_eq!(world.repair_by(Undecided::ByData), 8, "{world}");
        assert_eq!(world.check(), 0, "{world}");
        world.fail(0);
        world.verify();
    }
}

/// Every member in turn, on every level that can tell, in places all over: named, mended, and nothing
/// else is touched.
#[test]
fn the_member_that_lies_is_named_and_mended() {
    let mirrors = [shapes::RAID1, Shape::new(Level::Raid10, 0x103, 4, 16)];
    let raid6 = shapes::redundant().into_iter().filter(|shape| shape.level == Level::Raid6);
    for (seed, shape) in (110..).zip(raid6.chain(mirrors)) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(5);
        for disk in 0..usize::from(shape.disks) {
            let data = world.disks.data();
            let at = 16 * SECTOR as u64 + 7 + world.random.below(100 * SECTOR as u64);
            let sector = at / SECTOR as u64;
            world.disks.disk(disk).bytes[data.start as usize * SECTOR + at as usize] ^= 0x40;
            assert!(world.check() > 0, "{world}");
            let found = world.status().mismatches;
            assert_eq!((found.places, found.undecidable), (1, 0), "{world}, disk {disk}");
            let place = &found.first[0];
            assert_eq!(place.liar, Some(disk as u32), "{world}");
            assert!(place.slots.contains(&(disk as u32)), "{world}");
            assert!(place.member_sectors.contains(&sector), "{place:?}, {sector} ({world})");
            assert!(world.repair() > 0, "{world}");
            assert_eq!(world.check(), 0, "{world}");
            world.verify();
        }
    }
}

#[test]
fn two_liars_are_not_told_and_nothing_is_changed() {
    let mirror = Shape { disks: 4, ..shapes::RAID1 };
    for (seed, shape) in (130..).zip([shapes::RAID6, mirror, shapes::RAID10, shapes::RAID5]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(5);
        let data = world.disks.data().start as usize * SECTOR;
        for disk in [0, 1] {
            world.disks.disk(disk).bytes[data + 20 * SECTOR + 3] ^= 0x11 << disk;
        }
        let before: Vec<Vec<u8>> = (0..usize::from(shape.disks))
            .map(|disk| world.disks.disk(disk).bytes[data..].to_vec())
            .collect();
        assert!(world.repair() > 0, "{world}");
        let found = world.status().mismatches;
        assert_eq!((found.places, found.undecidable), (1, 1), "{world}");
        for (disk, before) in before.iter().enumerate() {
            assert!(world.disks.disk(disk).bytes[data..] == before[..], "disk {disk} ({world})");
        }
        world.repair_by(Undecided::ByData);
        assert_eq!(world.check(), 0, "{world}");
    }
}

#[test]
fn the_user_decides_which_of_two_mirrors_is_right() {
    for trusted in [0, 1] {
        let mut world = World::synced(Setup::shuffled(Shape { disks: 2, ..shapes::RAID1 }, 140));
        world.write_many(5);
        let data = world.disks.data().start as usize * SECTOR;
        world.disks.disk(1 - trusted).bytes[data + 20 * SECTOR + 3] ^= 1;
        assert!(world.repair() > 0);
        assert!(world.check() > 0, "it cannot tell");
        let member = world.disks.id(trusted);
        world.repair_by(Undecided::ByMember(member));
        assert_eq!(world.check(), 0);
        world.verify();
    }
    let mut world = World::synced(Setup::new(shapes::RAID6, 141));
    let order = Action::Repair(Undecided::ByMember(world.disks.id(0)));
    assert_eq!(world.command(order).unwrap_err(), CommandError::NoCopies);
}

/// Members 0 and 1 of this RAID10 have the same chunks, members 2 and 3 others: of those the user said
/// nothing.
#[test]
fn a_trusted_member_decides_only_where_it_has_a_copy() {
    let mut world = World::synced(Setup::new(shapes::RAID10, 145));
    world.write_many(5);
    let data = world.disks.data().start as usize * SECTOR;
    for liar in [1, 3] {
        world.disks.disk(liar).bytes[data + 4 * SECTOR + 3] ^= 1;
    }
    let other: Vec<Vec<u8>> =
        [2, 3].map(|disk| world.disks.disk(disk).bytes[data..].to_vec()).into();
    let member = world.disks.id(0);
    world.repair_by(Undecided::ByMember(member));
    let bytes = |disk: usize| world.disks.disk(disk).bytes[data..].to_vec();
    assert!(bytes(0) == bytes(1), "the trusted copy is believed");
    assert!([bytes(2), bytes(3)] == other[..], "nobody said what is right there");
    world.check();
    assert_eq!(world.status().mismatches.undecidable, 1);
}

/// A row that lacks a member, or that resync has not reached, proves nothing.
#[test]
fn nobody_is_named_on_a_row_that_is_not_whole() {
    let mut world = World::synced(Setup::new(shapes::RAID6, 150));
    world.fail(4);
    let data = world.disks.data().start as usize * SECTOR;
    world.disks.disk(1).bytes[data + 5] ^= 1;
    assert!(world.repair() > 0, "{world}");
    let found = world.status().mismatches;
    assert_eq!((found.places, found.undecidable), (1, 1), "{world}");
    assert!(world.check() > 0, "{world}");
}

#[test]
fn a_check_under_load_sees_no_false_mismatch() {
    for (seed, shape) in (200..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.command(Action::Check).unwrap();
        world.write_many(30);
        world.wait_status("the end of the check", |status| {
            status.sync.action == SyncAction::Idle && status.sync.last_action == SyncAction::Check
        });
        assert_eq!(world.status().mismatch_sectors, 0, "{world}");
        world.verify();
    }
}

#[test]
fn a_rebuild_under_load_loses_nothing() {
    for (seed, shape) in (300..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let new = usize::from(shape.disks);
        world.fail(1);
        world.add(new).unwrap();
        for _ in 0..10 {
            world.write_many(3);
            let (sector, sectors) = world.random_range();
            let found = world.read(sector, sectors).unwrap();
            world.compare(sector, &found);
        }
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}");
        world.fail(0);
        world.verify();
    }
}

#[test]
fn a_rebuild_goes_on_where_it_was_after_a_stop() {
    let (mut resumed, mut recorded) = (0, 0);
    for (seed, shape) in (400..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let new = usize::from(shape.disks);
        world.set("sync_max", "128");
        world.fail(1);
        world.add(new).unwrap();
        world.wait_status("a rebuild half done", |status| {
            status.sync.completed_sectors >= 128 || status.degraded() == 0
        });
        world.rounds(100);
        let before_stop = world.disks.superblock(new).unwrap().recovery_offset_sectors;
        recorded += usize::from(before_stop.is_some_and(|offset| offset > 0));
        world.stop();
        let offset = world.disks.superblock(new).unwrap().recovery_offset_sectors;
        world.disks.reset_counts();
        world.assemble_all().unwrap();
        world.wait_idle();
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
        let data = world.disks.data();
        let kept = data.start..data.start + offset.unwrap_or(0);
        assert_eq!(world.disks.disk(new).sectors_written(kept.clone()), 0, "{world}, {kept:?}");
        resumed += usize::from(!kept.is_empty());
        world.verify();
        assert_eq!(world.check(), 0, "{world}");
        world.fail(0);
        world.verify();
    }
    assert!(resumed > 10, "only {resumed} rebuilds were caught half done");
    assert!(recorded > 10, "only {recorded} rebuilds were put on record on their way");
}

#[test]
fn a_quiet_array_is_marked_clean_and_a_crash_then_costs_nothing() {
    for (seed, shape) in (500..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(5);
        assert_eq!(world.status().state, ArrayState::Active, "{world}");
        let dirty = world.disks.superblock(0).unwrap().resync_offset_sectors;
        assert_eq!(dirty, 0, "{world}");
        world.wait_clean();
        world.crash();
        let clean = world.disks.superblock(0).unwrap().resync_offset_sectors;
        assert_eq!(clean, RESYNC_NONE, "{world}");
        world.assemble_all().unwrap();
        world.rounds(200);
        assert_eq!(world.status().sync.last_action, SyncAction::Idle, "{world}");
        world.verify();
    }
}

#[test]
fn an_interrupted_first_resync_goes_on_after_a_stop() {
    for (seed, shape) in (600..).zip([shapes::RAID6, shapes::RAID1, shapes::RAID10]) {
        for bitmap in [true, false] {
            let mut world = World::created(Setup::shuffled(Shape { bitmap, ..shape }, seed));
            world.rounds(40);
            world.restart();
            world.wait_idle();
            world.learn();
            assert_eq!(world.check(), 0, "{world}");
            world.write_many(5);
            world.restart();
            assert_eq!(world.check(), 0, "{world}");
            for disk in 0..shape.can_lose() {
                world.fail(disk);
            }
            world.verify();
        }
    }
}

/// A sector that could not be read once may be readable later: parity must fit what it holds then.
#[test]
fn a_first_resync_writes_again_what_it_could_not_read() {
    let two_parities = shapes::redundant().into_iter().filter(|shape| shape.level == Level::Raid6);
    for (seed, shape) in (650..).zip(two_parities) {
        let mut world = World::created(Setup::shuffled(shape, seed));
        world.command(Action::Freeze).unwrap();
        let start = world.disks.data().start;
        for disk in 0..usize::from(shape.disks) {
            let first = start + 32 * disk as u64;
            world.disks.disk(disk).unreadable.extend(first..first + 8);
        }
        world.command(Action::Idle).unwrap();
        world.wait_idle();
        for disk in 0..usize::from(shape.disks) {
            world.disks.disk(disk).unreadable.clear();
        }
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// Mirrors that differ where nothing was ever written must still give every reader the same bytes.
#[test]
fn unsynced_mirrors_read_the_same_every_time() {
    for (seed, shape) in
        (700..).zip([shapes::RAID1, shapes::RAID10, Shape::new(Level::Raid10, 0x103, 4, 16)])
    {
        let mut world = World::created(Setup::shuffled(shape, seed));
        world.command(Action::Freeze).unwrap();
        world.learn();
        for _ in 0..3 {
            world.verify();
        }
        world.write_many(5);
        world.verify();
        world.command(Action::Idle).unwrap();
        world.verify();
        world.wait_idle();
        world.verify();
        world.restart();
        world.verify();
    }
}

#[test]
fn a_frozen_array_starts_nothing_by_itself() {
    let mut world = World::synced(Setup::new(shapes::RAID5, 800));
    world.command(Action::Freeze).unwrap();
    world.fail(0);
    world.add(4).unwrap();
    world.rounds(100);
    assert_eq!(world.status().sync.action, SyncAction::Frozen);
    assert_eq!(world.member_state(4), Some(MemberState::Spare));
    world.command(Action::Idle).unwrap();
    world.wait_status("a whole array", |status| status.degraded() == 0);
    world.verify();
}

#[test]
fn a_degraded_array_is_checked_as_far_as_it_can_be() {
    for (seed, shape) in (900..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.fail(0);
        world.write_many(5);
        assert_eq!(world.check(), 0, "{world}");
        assert_eq!(world.repair(), 0, "{world}");
        world.verify();
    }
}

#[test]
fn a_stop_waits_for_writes_and_refuses_later_ones() {
    for (seed, shape) in (1000..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let bytes = world.random.bytes(8 * SECTOR);
        let from = Rc::new(bytes.clone());
        let early = world.start(1, Request::Write { sector: 8, from, fua: false });
        world.rounds(2);
        world.command(Action::Stop).unwrap();
        let ended = world.end(&early);
        let late = world.write(0, vec![0; 8 * SECTOR]);
        assert!(late.is_err(), "{world}");
        world.forget_array();
        world.assemble_all().unwrap();
        if ended.is_ok() {
            world.remember(8, &bytes);
        }
        world.verify();
        world.rounds(50);
        assert_eq!(world.status().sync.last_action, SyncAction::Idle, "{world}");
        assert_eq!(world.check(), 0, "{world}");
    }
}

#[test]
fn an_array_stopped_twice_in_a_row_and_read_only_is_as_it_was() {
    let mut world = World::synced(Setup::new(shapes::RAID6, 1100));
    world.write_many(5);
    world.stop();
    let before: Vec<_> = (0..5).map(|disk| world.disks.disk(disk).bytes.clone()).collect();
    let options = Options { read_only: true, ..Options::default() };
    world.assemble(&[0, 1, 2, 3, 4], &options).unwrap();
    world.verify();
    world.stop();
    for (disk, bytes) in before.iter().enumerate() {
        assert!(world.disks.disk(disk).bytes == *bytes, "disk {disk} changed");
    }
}

/// However many members are missing, what is left is read once and each new member is written once.
#[test]
fn several_failed_members_are_rebuilt_in_one_pass() {
    let mirror = Shape { disks: 4, ..shapes::RAID1 };
    // Near copies, two and three; slots that hold the same, and slots that do not.
    let near2 = Shape::new(Level::Raid10, 0x102, 4, 16);
    let near3 = Shape::new(Level::Raid10, 0x103, 6, 16);
    let cases: [(Shape, &[usize], u64); 6] = [
        (shapes::RAID6, &[1, 3], 1),
        (Shape { bitmap: false, ..shapes::RAID6 }, &[0, 4], 1),
        (mirror, &[0, 2, 3], 1),
        (mirror, &[1, 2], 1),
        (near2, &[0, 2], 1),
        (near3, &[0, 1, 5], 1),
    ];
    for (seed, (shape, lost, passes)) in (1200..).zip(cases) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(10);
        world.command(Action::Freeze).unwrap();
        for &disk in lost {
            world.fail(disk);
            world.remove(disk);
        }
        let spares = usize::from(shape.disks)..usize::from(shape.disks) + lost.len();
        spares.clone().for_each(|spare| drop(world.add(spare).unwrap()));
        world.disks.reset_counts();
        world.command(Action::Idle).unwrap();
        world.wait_status("a whole array", |status| status.degraded() == 0);
        let data = world.disks.data();
        let sectors = data.end - data.start;
        let left = (0..usize::from(shape.disks)).filter(|disk| !lost.contains(disk));
        for disk in left {
            let read = world.disks.disk(disk).sectors_read_in(data.clone());
            assert!(read <= passes * sectors, "disk {disk}: {read} of {sectors} ({world})");
        }
        for disk in spares {
            let written = world.disks.disk(disk).sectors_written(data.clone());
            assert_eq!(written, sectors, "disk {disk} ({world})");
            assert_eq!(world.disks.disk(disk).sectors_read_in(data.clone()), 0, "{world}");
        }
        assert_eq!(world.check(), 0, "{world}");
        world.verify();
    }
}

/// The one that is rebuilt already is left alone as far as it has come.
#[test]
fn a_spare_that_comes_late_joins_the_rebuild() {
    let mut joined = 0;
    let shape = Shape { member_sectors: 8192, ..shapes::RAID6.without_bitmap() };
    for seed in 1300..1310 {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(5);
        world.fail(0);
        world.fail(1);
        world.add(5).unwrap();
        world.wait_status("a rebuild half done", |status| {
            status.sync.completed_sectors > 4096 || status.degraded() == 1
        });
        let data = world.disks.data();
        joined += usize::from(world.status().sync.action == SyncAction::Recover);
        world.add(6).unwrap();
        world.wait_status("a whole array", |status| status.degraded() == 0);
        world.verify();
        let written = world.disks.disk(5).sectors_written(data.clone());
        let all = data.end - data.start;
        assert!(written >= all && written <= all + all / 4, "{written} of {all} ({world})");
        assert_eq!(world.check(), 0, "{world}");
    }
    assert!(joined > 3, "only {joined} rebuilds were under way when the second spare came");
}

fn value(world: &World, key: &str) -> String {
    let values = world.array().setting_values();
    values.into_iter().find(|(name, _)| *name == key).expect("a key of the array").1
}

/// As md's: `sync_max` is a place to pause, `sync_min` one to begin, and a check that is ended goes on
/// where it was.
#[test]
fn a_check_walks_from_sync_min_and_pauses_at_sync_max() {
    for (seed, shape) in (1400..).zip([shapes::RAID6, shapes::RAID10, shapes::RAID1]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let data = world.disks.data();
        let pause = |world: &mut World, at: u64| {
            world.wait_status("a pause", |status| status.sync.completed_sectors == at);
            world.sleep_ms(1000);
            let sync = world.status().sync;
            assert_eq!((sync.action, sync.completed_sectors), (SyncAction::Check, at), "{world}");
        };
        world.set("sync_max", "128");
        world.disks.reset_counts();
        world.command(Action::Check).unwrap();
        pause(&mut world, 128);
        let beyond = data.start + 128..data.end;
        let read = world.disks.disk(1).sectors_read_in(beyond.clone());
        assert!(
            shape.level == Level::Raid10 || read == 0,
            "{read} sectors behind the pause ({world})"
        );
        world.set("sync_max", "192");
        pause(&mut world, 192);
        world.command(Action::Idle).unwrap();
        world.wait_status("the end", |status| status.sync.action == SyncAction::Idle);
        assert_eq!(value(&world, "sync_min"), "192", "{world}");
        assert!(world.array().set("sync_max", "128").is_err(), "before sync_min ({world})");
        world.set("sync_max", "max");
        world.disks.reset_counts();
        assert_eq!(world.check(), 0, "{world}");
        let before = data.start..data.start + 96;
        assert_eq!(world.disks.disk(1).sectors_read_in(before), 0, "{world}");
        assert!(world.disks.disk(1).sectors_read() > 0, "{world}");
        let keys = ["sync_min", "sync_max"].map(|key| value(&world, key));
        assert_eq!(keys, ["0", "max"], "it ran to its end ({world})");
    }
}

/// A resync of a RAID6 that lacks a member, under way, and a spare that came meanwhile. Nobody asks for anything more.
fn resyncs_while_a_spare_waits(sync_max: &str) -> (World, usize) {
    let shape = Shape { member_sectors: 8192, ..shapes::RAID6 };
    let mut world = World::created(Setup::shuffled(shape, 1410));
    let new = usize::from(shape.disks);
    world.command(Action::Freeze).unwrap();
    world.fail(1);
    world.set("sync_max", sync_max);
    world.set("sync_speed_min", "1");
    world.set("sync_speed_max", "256");
    world.command(Action::Idle).unwrap();
    world.add(new).unwrap();
    let status = world.status();
    assert_eq!(status.sync.action, SyncAction::Resync, "{world}");
    assert_eq!(world.member_state(new), Some(MemberState::Spare), "{world}");
    (world, new)
}

/// What its superblock says: asking the array would wake it.
fn has_a_slot(world: &World, disk: usize) -> bool {
    world.disks.superblock(disk).is_some_and(|superblock| superblock.own_role().slot().is_some())
}

#[test]
fn a_spare_gets_its_slot_when_a_resync_comes_to_sync_max() {
    // Not where it reports how far it is anyway.
    let (mut world, new) = resyncs_while_a_spare_waits("160");
    assert!(!has_a_slot(&world, new), "{world}");
    world.sleep_ms(3000);
    assert!(has_a_slot(&world, new), "{world}");
}

#[test]
fn a_spare_gets_its_slot_when_sync_max_is_set_to_where_a_resync_is() {
    let (mut world, new) = resyncs_while_a_spare_waits("max");
    world.wait_status("a part", |status| status.sync.completed_sectors >= 256);
    world.set("sync_max", "128");
    world.sleep_ms(200);
    assert!(has_a_slot(&world, new), "{world}");
}

#[test]
fn a_rebuild_is_no_faster_than_sync_speed_max() {
    for (seed, shape) in (1420..).zip([shapes::RAID6, shapes::RAID10, shapes::RAID1]) {
        let shape = Shape { member_sectors: 1024, ..shape };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("sync_speed_min", "1");
        world.set("sync_speed_max", "256");
        world.fail(1);
        let began = world.now_ms();
        world.add(usize::from(shape.disks)).unwrap();
        world.wait_status("a whole array", |status| status.degraded() == 0);
        let (took, wanted) = (world.now_ms() - began, 1024 / 2 * 1000 / 256);
        // The first window, of a quarter of the member at most, begins at once.
        assert!((wanted * 3 / 4 - 100..=wanted + 200).contains(&took), "{took} ms ({world})");
        world.verify();
    }
}

/// Whoever waits for the largest speed, or at `sync_max`, ends at once when told to.
#[test]
fn a_stop_is_quick_at_any_pace() {
    for (key, slow) in [("sync_speed_max", "1"), ("sync_max", "16")] {
        let mut world = World::synced(Setup::shuffled(shapes::RAID5, 1440));
        world.set("sync_speed_min", "1");
        world.set(key, slow);
        world.command(Action::Check).unwrap();
        world.sleep_ms(500);
        assert_eq!(world.status().sync.action, SyncAction::Check);
        let began = world.now_ms();
        world.stop();
        assert!(world.now_ms() - began < 10, "{} ms", world.now_ms() - began);
        world.assemble_all().unwrap();
        world.set("sync_max", "max");
        assert_eq!(world.check(), 0);
    }
}

/// A window with a block that cannot be read is done block by block: on a slow disk that takes as long as
/// all of its blocks.
#[test]
fn a_stop_waits_for_a_block_and_not_for_a_window_that_is_done_block_by_block() {
    for shape in [shapes::RAID1, shapes::RAID5] {
        let mut world = World::synced(Setup::shuffled(shape, 1450));
        let new = usize::from(shape.disks);
        world.fail(0);
        world.remove(0);
        let bad = world.disks.data().start + 2;
        {
            let mut other = world.disks.disk(1);
            (other.unreadable, other.unreadable_for_good) = ([bad].into(), true);
            other.reads_take = Duration::from_millis(300);
        }
        world.add(new).unwrap();
        world.wait_status("a rebuild", |status| status.sync.action == SyncAction::Recover);
        world.sleep_ms(2_000);
        let began = world.now_ms();
        world.stop();
        let took = world.now_ms() - began;
        assert!(took < 2_000, "{took} ms ({world})");
        world.disks.disk(1).reads_take = Duration::ZERO;
        world.assemble_all().unwrap();
        world.wait_idle();
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
    }
}

/// A write of a row fails for lack of space on one disk, which has some right after that.
pub(crate) fn leave_doubt(world: &mut World, disk: usize, row: u64) {
    let (sector, sectors) = (row * 48, 48);
    let data = world.disks.data();
    world.disks.disk(disk).write_error = Some(IoErrorKind::NoSpace);
    world.disks.disk(disk).errors_in = Some(data);
    let bytes = world.random.bytes(sectors as usize * SECTOR);
    let failed = world.write(sector, bytes);
    world.disks.disk(disk).write_error = None;
    assert_eq!(failed, Err(RequestError::NoSpace), "{world}");
    let found = world.read(sector, sectors).unwrap();
    world.remember(sector, &found);
}

/// A check waits at `sync_max` for ever. Doubt that a write leaves meanwhile does not; the check goes on where it was,
/// and knows what it found before.
#[test]
fn a_check_gives_way_to_doubt_and_goes_on_where_it_was() {
    for (seed, shape) in (1500..).zip([shapes::RAID5, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let data = world.disks.data();
        world.write_many(5);
        let (disk, byte) = redundant_byte(&world);
        world.disks.disk(disk).bytes[byte] ^= 0x10;
        world.set("sync_max", "128");
        world.command(Action::Check).unwrap();
        let waits = |status: &ArrayStatus| {
            let sync = &status.sync;
            (sync.action, sync.completed_sectors) == (SyncAction::Check, 128)
        };
        world.wait_status("a pause", waits);
        leave_doubt(&mut world, 1, 3);
        assert!(world.status().doubted.sectors > 0, "{world}");
        world.wait_status("a check without doubt", |status| {
            assert!(status.sync.action.runs(), "{status:?}");
            waits(status) && status.doubted.sectors == 0
        });
        world.sleep_ms(1000);
        assert!(waits(&world.status()), "the bound is still there ({world})");
        world.disks.reset_counts();
        world.set("sync_max", "max");
        world.wait_status("the end", |status| status.sync.action == SyncAction::Idle);
        let sync = world.status().sync;
        assert_eq!(sync.last_action, SyncAction::Check, "{world}");
        assert_eq!(world.status().mismatch_sectors, 8, "{world}");
        let before = data.start..data.start + 128;
        assert_eq!(world.disks.disk(2).sectors_read_in(before), 0, "{world}");
        assert!(world.disks.disk(2).sectors_read() > 0, "{world}");
        world.repair_by(Undecided::ByData);
        assert_eq!(world.check(), 0, "{world}");
        world.verify();
    }
}

/// Windows end in any order: one behind the place where the check goes on may be done, and is not counted again.
#[test]
fn a_check_that_gives_way_counts_each_window_once() {
    for (seed, shape) in (1540..).zip([shapes::RAID5, shapes::RAID6, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let data = world.disks.data();
        world.write_many(5);
        let (disk, byte) = redundant_byte(&world);
        world.disks.disk(disk).bytes[byte] ^= 0x10;
        let counted = world.check();
        assert!(counted > 0, "{world}");
        world.set("sync_io_depth", "8");
        // It waits for this one, and goes on elsewhere meanwhile.
        world.disks.disk(0).hangs_in = Some(data.start..data.start + 8);
        world.command(Action::Check).unwrap();
        world.wait_status("a mismatch", |status| status.mismatches.places == 1);
        assert_eq!(world.status().sync.completed_sectors, 0, "{world}");
        leave_doubt(&mut world, 1, 4);
        world.wait_status("a check that has ended", |status| {
            status.sync.last_action == SyncAction::Check && status.sync.action != SyncAction::Check
        });
        world.disks.disk(0).hangs_in = None;
        world.wait_idle();
        let status = world.status();
        assert_eq!(status.sync.last_action, SyncAction::Check, "{world}");
        assert_eq!(status.doubted.sectors, 0, "{world}");
        assert_eq!((status.mismatch_sectors, status.mismatches.places), (counted, 1), "{world}");
    }
}

/// Half of a window may be mended when the repair is told to end: nothing is wrong there when it goes on.
#[test]
fn a_repair_that_gives_way_counts_what_it_mended_in_half_of_a_window() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID6, 1550));
    let data = world.disks.data();
    world.write_many(5);
    world.disks.disk(1).bytes[(data.start as usize + 1) * SECTOR + 7] ^= 0x10;
    // The window is done in halves, and the first one has the lie.
    world.disks.disk(3).unreadable.insert(data.start + 15);
    world.set("sync_io_depth", "1");
    world.disks.reset_counts();
    world.command(Action::Repair(Undecided::Leave)).unwrap();
    let lie = data.start + 1..data.start + 2;
    world.until("a mended lie", |world| world.disks.disk(1).sectors_written(lie.clone()) > 0);
    world.disks.disk(2).hangs_in = Some(data.start + 12..data.start + 13);
    leave_doubt(&mut world, 1, 4);
    world.wait_status("a repair that has ended", |status| {
        status.sync.last_action == SyncAction::Repair && status.sync.action != SyncAction::Repair
    });
    world.disks.disk(2).hangs_in = None;
    world.wait_idle();
    let status = world.status();
    assert_eq!(status.sync.last_action, SyncAction::Repair, "{world}");
    assert_eq!((status.mismatch_sectors, status.mismatches.places), (8, 1), "{world}");
    assert_eq!(status.members[3].corrected_errors, 1, "{world}");
    assert_eq!(world.check(), 0, "{world}");
    world.verify();
}

/// The same of a rebuild, where another member may be lost.
#[test]
fn a_rebuild_gives_way_to_doubt_and_goes_on_where_it_was() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID6, 1510));
    let data = world.disks.data();
    world.set("sync_max", "128");
    world.fail(0);
    world.add(5).unwrap();
    world.wait_status("a pause", |status| status.sync.completed_sectors == 128);
    leave_doubt(&mut world, 1, 1);
    world.wait_status("no doubt", |status| status.doubted.sectors == 0);
    world.fail(2);
    world.verify();
    world.disks.reset_counts();
    world.set("sync_max", "max");
    world.wait_status("a rebuild", |status| status.degraded() == 1);
    let before = data.start + 32..data.start + 128;
    assert_eq!(world.disks.disk(5).sectors_written(before), 0, "{world}");
    world.fail(1);
    world.verify();
}

/// A resync that finds no space does not end a check over and over.
#[test]
fn doubt_without_space_ends_a_check_once() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID5, 1520));
    let data = world.disks.data();
    world.set("sync_max", "128");
    world.command(Action::Check).unwrap();
    world.wait_status("a pause", |status| status.sync.completed_sectors == 128);
    leave_doubt(&mut world, 1, 0);
    for disk in 0..4 {
        world.disks.disk(disk).write_error = Some(IoErrorKind::NoSpace);
        let range = data.start..data.start + 16;
        world.disks.disk(disk).errors_in = Some(range);
    }
    world.wait_status("a check again", |status| {
        status.sync.last_action == SyncAction::Resync && status.sync.action == SyncAction::Check
    });
    world.disks.reset_counts();
    world.sleep_ms(300_000);
    assert_eq!(world.status().sync.action, SyncAction::Check, "{world}");
    assert_eq!(world.disks.disk(2).sectors_read(), 0, "{world}");
    // Where there is some it is tried when the check is over.
    (0..4).for_each(|disk| world.disks.disk(disk).write_error = None);
    world.set("sync_max", "max");
    world.wait_status("no doubt", |status| status.doubted.sectors == 0);
}

/// A write that fails over and over keeps no rebuild from its end.
#[test]
fn doubt_that_comes_again_and_again_starves_no_rebuild() {
    let shape = Shape { member_sectors: 16_384, ..shapes::RAID6 };
    let mut world = World::synced(Setup::shuffled(shape, 1530));
    world.set("sync_max", "2048");
    world.fail(0);
    world.add(5).unwrap();
    world.wait_status("a pause", |status| status.sync.completed_sectors == 2048);
    world.set("sync_speed_min", "1");
    world.set("sync_speed_max", "20");
    world.set("sync_max", "max");
    let (began, mut resyncs) = (world.now_ms(), 0);
    while world.status().degraded() > 0 {
        assert!(world.now_ms() - began < 900_000, "{world}");
        resyncs += u32::from(world.status().doubted.sectors == 0);
        leave_doubt(&mut world, 1, 1);
        world.sleep_ms(1000);
    }
    // Once the resync itself may have found no space: then no more before the end.
    assert!((2..20).contains(&resyncs), "{resyncs} in {} ms ({world})", world.now_ms() - began);
    world.verify();
}

/// Whether a task waits at `sync_max`.
fn waits_at(status: &ArrayStatus, action: SyncAction, sector: u64) -> bool {
    (status.sync.action, status.sync.completed_sectors) == (action, sector)
}

/// Doubt lies below `sync_max` and behind it. A rebuild or a check that gives way waits for the first alone, and one
/// that is to begin too.
#[test]
fn what_gives_way_does_not_wait_for_doubt_behind_sync_max() {
    let shape = Shape { member_sectors: 1024, ..shapes::RAID6 };
    let cases = [SyncAction::Recover, SyncAction::Check];
    for (seed, (action, gives_way)) in
        (1560..).zip(cases.into_iter().flat_map(|action| [(action, true), (action, false)]))
    {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.command(Action::Freeze).unwrap();
        leave_doubt(&mut world, 1, 40);
        if !gives_way {
            leave_doubt(&mut world, 1, 2);
        }
        world.set("sync_max", "128");
        match action {
            SyncAction::Check => drop(world.command(Action::Check).unwrap()),
            _ => {
                world.fail(0);
                world.add(5).unwrap();
                world.command(Action::Idle).unwrap();
            }
        }
        world.wait_status("a pause", |status| waits_at(status, action, 128));
        if gives_way {
            leave_doubt(&mut world, 1, 2);
        }
        world.wait_status("a pause without doubt", |status| {
            waits_at(status, action, 128) && status.doubted.sectors == 16
        });
        world.sleep_ms(60_000);
        world.set("sync_max", "256");
        world.wait_status("a pause further on", |status| waits_at(status, action, 256));
        assert_eq!(world.status().doubted.sectors, 16, "{world}");
        ends_whole(&mut world);
    }
}

/// Lets all go on to its end. Then nothing is in doubt, missing or wrong.
fn ends_whole(world: &mut World) {
    world.set("sync_max", "max");
    world.wait_idle();
    let status = world.status();
    assert_eq!((status.doubted.sectors, status.degraded()), (0, 0), "{world}");
    assert_eq!(world.check(), 0, "{world}");
    world.verify();
}

/// A resync that waits at `sync_max` keeps no spare waiting.
#[test]
fn a_resync_that_waits_at_sync_max_ends_where_a_spare_comes() {
    let shape = Shape { member_sectors: 1024, ..shapes::RAID6 };
    let mut world = World::synced(Setup::shuffled(shape, 1570));
    world.command(Action::Freeze).unwrap();
    leave_doubt(&mut world, 1, 40);
    world.fail(0);
    world.set("sync_max", "128");
    world.command(Action::Idle).unwrap();
    world.wait_status("a resync", |status| status.sync.action == SyncAction::Resync);
    world.sleep_ms(1000);
    world.add(5).unwrap();
    world.wait_status("a rebuild", |status| waits_at(status, SyncAction::Recover, 128));
    ends_whole(&mut world);
}

/// A resync found no room for two rows. A write made one of them whole, and a later one leaves it in doubt again: that
/// is another doubt.
#[test]
fn doubt_that_had_no_room_and_ended_is_as_urgent_as_any_when_it_comes_again() {
    for is_soon in [false, true] {
        let mut world = World::synced(Setup::shuffled(shapes::RAID5, 1580));
        let data = world.disks.data();
        world.command(Action::Freeze).unwrap();
        leave_doubt(&mut world, 1, 0);
        leave_doubt(&mut world, 1, 2);
        for disk in 0..4 {
            world.disks.disk(disk).write_error = Some(IoErrorKind::NoSpace);
            world.disks.disk(disk).errors_in = Some(data.start..data.start + 48);
        }
        world.set("sync_max", "128");
        world.command(Action::Check).unwrap();
        world.wait_status("a pause", |status| waits_at(status, SyncAction::Check, 128));
        assert_eq!(world.status().sync.last_end, Some(SyncEnd::NoSpace), "{world}");
        world.sleep_ms(if is_soon { 10_000 } else { 100_000 });
        (0..4).for_each(|disk| world.disks.disk(disk).plug());
        assert_eq!(world.status().doubted.sectors, 32, "{world}");
        world.write_random(0, 48);
        assert_eq!(world.status().doubted.sectors, 16, "{world}");
        leave_doubt(&mut world, 1, 0);
        world.wait_status("the first row without doubt", |status| {
            waits_at(status, SyncAction::Check, 128) && status.doubted.sectors < 32
        });
        assert_eq!(world.status().sync.last_action, SyncAction::Resync, "{world}");
        world.sleep_ms(100_000);
        world.set("sync_max", "max");
        world.wait_status("no doubt", |status| status.doubted.sectors == 0);
        world.wait_idle();
        world.verify();
    }
}

/// Whoever gave a check a time to spend hears that it is to go on while the resync runs to which it gave way.
#[test]
fn a_check_that_gave_way_is_told_of_while_it_waits() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID6, 1590));
    world.set("read_deadline", "0");
    world.set("sync_max", "128");
    world.command(Action::Check).unwrap();
    world.wait_status("a pause", |status| waits_at(status, SyncAction::Check, 128));
    assert_eq!(world.status().sync.waiting, None, "{world}");
    // Parity of the row, which the resync alone reads.
    world.disks.disk(1).reads_take = Duration::from_secs(2);
    leave_doubt(&mut world, 1, 3);
    world.wait_status("a resync", |status| status.sync.action == SyncAction::Resync);
    assert_eq!(world.status().sync.waiting, Some(SyncAction::Check), "{world}");
    world.wait_status("the check", |status| waits_at(status, SyncAction::Check, 128));
    assert_eq!(world.status().sync.waiting, None, "{world}");
    world.command(Action::Idle).unwrap();
    world.wait_idle();
    assert_eq!(world.status().sync.waiting, None, "{world}");
}

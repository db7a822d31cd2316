//! Members that come with a past: when the bitmap is no way back, and what a new member changes.

use mdspace_engine::array::{Action, CommandError, Reply};
use mdspace_engine::assembly::Options;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::Request;
use mdspace_engine::status::{ArrayStatus, MemberState};
use mdspace_format::DirtyMap;
use mdspace_format::superblock::RESYNC_NONE;

use crate::listed::with_a_list;
use crate::shapes::{self, MEMBER_SECTORS, Shape};
use crate::world::{SECTOR, Setup, World};

/// It was assembled alone and written to: the others' bits do not know of that.
#[test]
fn a_member_that_ran_without_the_others_gets_everything() {
    for (seed, apart) in (1..).zip([1, 12]) {
        let mut world = World::synced(Setup::shuffled(shapes::RAID1, seed));
        world.write_many(3);
        world.fail(2);
        world.write_many(1);
        world.stop();
        world.assemble(&[2], &Options { run: true, ..Options::default() }).unwrap();
        for sector in 0..apart {
            world.write(sector * 8, vec![3; 4096]).unwrap();
        }
        world.stop();
        world.assemble(&[0, 1], &Options { run: true, ..Options::default() }).unwrap();
        let added = world.add(2).unwrap();
        assert!(matches!(added, Reply::Added { by_bitmap: false }), "{world}");
        world.wait_idle();
        world.fail(0);
        world.fail(1);
        world.verify();
    }
}

/// What its list names is old, and no bit says so.
#[test]
fn a_member_that_lists_bad_blocks_gets_everything() {
    for (seed, shape) in (130..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID10]) {
        let mut world = with_a_list(shape, seed);
        world.wait_status("a clear bitmap", no_bits);
        world.fail(0);
        world.remove(0);
        let refused = world.add_as(0, true).unwrap_err();
        assert!(refused.to_string().contains("lists bad blocks"), "{refused} ({world})");
        let added = world.add(0).unwrap();
        assert!(matches!(added, Reply::Added { by_bitmap: false }), "{world}");
        world.wait_idle();
        let lists = world.status().members.iter().any(|member| member.bad_ranges > 0);
        assert!(!lists, "{world}");
        (1..=shape.can_lose()).for_each(|disk| world.fail(disk));
        world.verify();
    }
}

/// No bit says what it had not got when it left.
#[test]
fn a_member_that_left_half_filled_gets_everything() {
    for (seed, shape) in (140..).zip([shapes::RAID1, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.wait_status("a clear bitmap", no_bits);
        let new = usize::from(shape.disks);
        world.fail(0);
        world.remove(0);
        world.set("sync_max", "64");
        world.add(new).unwrap();
        world.rounds(300);
        assert_eq!(world.member_state(new), Some(MemberState::Recovering), "{world}");
        world.fail(new);
        world.remove(new);
        world.set("sync_max", "max");
        let refused = world.add_as(new, true).unwrap_err();
        assert!(refused.to_string().contains("not a whole member"), "{refused} ({world})");
        let added = world.add(new).unwrap();
        assert!(matches!(added, Reply::Added { by_bitmap: false }), "{world}");
        world.wait_idle();
        (1..=shape.can_lose()).for_each(|disk| world.fail(disk));
        world.verify();
    }
}

fn no_bits(status: &ArrayStatus) -> bool {
    status.bitmap.is_none_or(|bitmap| bitmap.dirty_bits == 0)
}

/// A pass that came while the array took no writes left them.
#[test]
fn bits_are_cleared_when_an_array_takes_writes_again() {
    for (seed, shape) in (145..).zip([shapes::RAID10, shapes::RAID1, shapes::RAID5]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(5);
        world.command(Action::ReadOnly).unwrap();
        world.sleep_ms(60_000);
        assert!(!no_bits(&world.status()), "{world}");
        world.command(Action::ReadWrite).unwrap();
        world.wait_status("a clear bitmap", no_bits);
    }
}

/// Bits may stand for more than there is: another program made the bitmap.
#[test]
fn a_member_comes_back_by_a_bitmap_that_is_longer_than_the_array() {
    for (seed, shape) in (150..).zip([shapes::RAID10, shapes::RAID1, shapes::RAID5]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.wait_status("a clear bitmap", no_bits);
        world.stop();
        for disk in 0..usize::from(shape.disks) {
            let (mut header, _) = world.disks.bitmap(disk).unwrap();
            header.sync_size_sectors *= 4;
            let mut map = DirtyMap::new(header.chunks());
            map.set(header.chunks() - 1);
            world.disks.put_bitmap(disk, &(header, map));
        }
        world.assemble_all().unwrap();
        world.fail(0);
        world.remove(0);
        world.write_many(5);
        let added = world.add_as(0, true).unwrap();
        assert!(matches!(added, Reply::Added { by_bitmap: true }), "{world}");
        world.wait_status("a whole array", |status| status.degraded() == 0);
        world.wait_idle();
        world.verify();
        (1..=shape.can_lose()).for_each(|disk| world.fail(disk));
        world.verify();
    }
}

#[test]
fn a_member_at_work_is_not_added_again() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID1, 3));
    let refused = world.add(1).unwrap_err();
    assert!(matches!(refused, CommandError::DoesNotFit(_)), "{refused}");
    world.verify();
    assert_eq!(world.check(), 0);
}

/// A member is out, and has missed a write that the bitmap knows of.
pub(crate) fn without_a_write(shape: Shape, seed: u64) -> World {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.wait_status("a clear bitmap", |status| {
        status.bitmap.is_none_or(|bitmap| bitmap.dirty_bits == 0)
    });
    world.fail(1);
    world.remove(1);
    world.write_random(0, 8);
    world
}

/// A way back that a crash interrupts is still the way back of the bitmap.
#[test]
fn a_return_by_the_bitmap_is_gone_on_with_after_a_crash() {
    for (seed, shape) in (10..).zip([shapes::RAID1, shapes::RAID6]) {
        let mut world = without_a_write(shape, seed);
        world.wait_clean();
        world.command(Action::Freeze).unwrap();
        let added = world.add(1).unwrap();
        assert!(matches!(added, Reply::Added { by_bitmap: true }), "{world}");
        world.crash();
        world.disks.reset_counts();
        world.assemble_all().unwrap();
        world.wait_idle();
        assert_eq!(world.member_state(1), Some(MemberState::InSync), "{world}");
        let data = world.disks.data();
        let written = world.disks.disk(1).sectors_written(data);
        assert!(written < MEMBER_SECTORS / 2, "{written} sectors ({world})");
        world.fail(0);
        world.verify();
        // The mark goes with the recovery: a later one is not to trust it.
        let superblock = world.disks.superblock(1).unwrap();
        let features: Vec<_> = superblock.features.names().collect();
        assert!(!features.contains(&"RECOVERY_BITMAP"), "{features:?}");
    }
}

/// The bits of chunks from here on do not lie in the sector of the bitmap's header.
const FIRST_CHUNK_BEHIND_THE_HEADER: u64 = 2048;

/// A member leaves, a spare takes its place, and bits are cleared. Power fails in the middle of that: each
/// sector of a write may land or not. Then the spare goes, and the member that left is back.
#[test]
fn a_power_cut_while_bits_are_cleared_leaves_no_way_back_to_who_missed_what_they_marked() {
    let sector = FIRST_CHUNK_BEHIND_THE_HEADER * 8 + 800;
    for (seed, level, disks) in [(40, Level::Raid1, 2), (41, Level::Raid5, 3)] {
        let chunk_sectors = if level == Level::Raid1 { 0 } else { 16 };
        let layout = if level == Level::Raid1 { 0 } else { 2 };
        let shape =
            Shape { member_sectors: 20_000, ..Shape::new(level, layout, disks, chunk_sectors) };
        let data_disks = if level == Level::Raid1 { 1 } else { u64::from(disks) - 1 };
        let mut world = World::synced(Setup::new(shape, seed));
        world.wait_status("a clear bitmap", no_bits);
        let (left, spare) = (1, usize::from(disks));
        world.fail(left);
        world.remove(left);
        world.write_random(sector * data_disks, 8);
        world.add(spare).unwrap();
        let staying: Vec<usize> = (0..=spare).filter(|disk| *disk != left).collect();
        world.until("a whole and clean array", |world| {
            let superblock = world.disks.superblock(spare).unwrap();
            let is_whole = superblock.own_role().slot().is_some()
                && superblock.recovery_offset_sectors.is_none();
            is_whole && superblock.resync_offset_sectors == RESYNC_NONE
        });
        assert!(world.status().bitmap.unwrap().dirty_bits > 0, "{world}");
        for &disk in &staying {
            let place = world.disks.superblock(disk).unwrap().bitmap_sector().unwrap();
            world.disks.disk(disk).cut_at = Some((place, !1));
        }
        world.until("a cut", |world| staying.iter().all(|&disk| world.disks.disk(disk).is_off));
        world.power_cut(0..world.disks.count());
        world.assemble_with_force().unwrap();
        world.command(Action::Freeze).unwrap();
        world.fail(spare);
        world.remove(spare);
        let _ = world.add_as(left, true);
        world.command(Action::Idle).unwrap();
        if world.status().degraded() > 0 && world.member_state(left).is_none() {
            world.add(left).unwrap();
        }
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}");
        world.fail(0);
        world.verify();
    }
}

#[test]
fn discards_end_where_a_new_member_keeps_what_it_is_told_to_discard() {
    for (seed, shape) in (20..).zip([shapes::RAID5, shapes::RAID1, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let new = usize::from(shape.disks);
        world.disks.disk(new).keeps_discarded = true;
        world.fail(0);
        world.remove(0);
        world.add(new).unwrap();
        world.wait_idle();
        world.write_many(10);
        let all = world.sectors();
        world.serve(1, Request::Discard { sector: 0, sectors: all }).unwrap();
        assert_eq!(world.check(), 0, "{world}");
        world.fail(1);
        let before = world.read(0, all).unwrap();
        assert!(before.iter().any(|byte| *byte != 0), "nothing was discarded ({world})");
    }
}

/// A file with holes gets no longer than the data that it has to hold.
#[test]
fn what_is_zeroes_is_discarded_where_a_sparse_member_is_filled() {
    for (seed, shape) in (40..).zip([shapes::RAID5, shapes::RAID6, shapes::RAID1, shapes::RAID10]) {
        for is_sparse in [false, true] {
            let shape = Shape { member_sectors: 4096, ..shape };
            let mut world = World::synced(Setup::shuffled(shape, seed));
            let zeroes = Request::WriteZeroes { sector: 0, sectors: world.sectors(), fua: false };
            world.serve(0, zeroes).unwrap();
            world.model.fill(0);
            world.write_random(0, 8);
            world.write_random(world.sectors() - 8, 8);
            let new = usize::from(shape.disks);
            world.disks.disk(new).is_sparse = is_sparse;
            world.fail(0);
            world.remove(0);
            world.add(new).unwrap();
            world.wait_idle();
            let discarded = world.disks.disk(new).discarded;
            assert_eq!(discarded > 0, is_sparse, "{discarded} sectors ({world})");
            assert_eq!(world.check(), 0, "{world}");
            world.fail(1);
            world.verify();
        }
    }
}

/// Two members are out, one after the other; another disk takes one of their places, and while it is
/// filled one of the two comes back with what is old by now.
#[test]
fn a_stale_member_that_returns_during_the_rebuild_of_another_is_never_read_old() {
    for (seed, shape) in (100..).zip([shapes::RAID1, shapes::RAID6]) {
        for rounds in (0..300).step_by(25) {
            let shape = Shape { member_sectors: 2048, ..shape };
            let mut world = World::synced(Setup::shuffled(shape, 1000 * seed + rounds));
            for disk in [0, 1] {
                world.write_many(2);
                world.fail(disk);
                world.remove(disk);
            }
            world.write_many(2);
            world.add(usize::from(shape.disks)).unwrap();
            world.rounds(rounds as usize);
            world.write_many(1);
            world.add(1).unwrap();
            world.verify();
            world.write_many(2);
            world.wait_idle();
            assert_eq!(world.status().degraded(), 0, "{world}");
            assert_eq!(world.check(), 0, "{world}");
            let others = (2..usize::from(shape.disks)).take(shape.can_lose());
            others.for_each(|disk| world.fail(disk));
            world.verify();
        }
    }
}

/// mdadm makes a bitmap of events 0 in which every bit is set. What was missed before it was made stands in
/// no bitmap once those bits are cleared.
#[test]
fn who_left_before_the_bitmap_was_made_gets_everything() {
    let mut world = World::synced(Setup::new(Shape::new(Level::Raid1, 0, 2, 0), 60));
    let no_bits = |status: &ArrayStatus| status.bitmap.is_some_and(|map| map.dirty_bits == 0);
    world.wait_status("a clear bitmap", no_bits);
    world.fail(1);
    world.remove(1);
    world.write_random(0, 8);
    world.add(2).unwrap();
    world.wait_idle();
    world.stop();
    world.crash();
    for disk in [0, 2] {
        let (mut header, mut map) = world.disks.bitmap(disk).expect("a bitmap");
        (header.events, header.events_cleared) = (0, 0);
        map.set_all();
        world.disks.put_bitmap(disk, &(header, map));
    }
    world.assemble(&[0, 2], &Options::default()).unwrap();
    world.wait_status("a clear bitmap", no_bits);
    world.fail(2);
    world.remove(2);
    let refused = world.add_as(1, true);
    assert!(matches!(refused, Err(CommandError::NotBack(_))), "{refused:?} ({world})");
    world.add(1).unwrap();
    world.wait_idle();
    world.fail(0);
    world.verify();
}

/// A bitmap that is older than the array counts as all bits set. Power fails while all of them are written, in
/// any sector of the header's page: what lies there is out of date still, or says where the array was in use.
#[test]
fn a_bitmap_that_was_out_of_date_counts_only_when_all_of_it_is_written() {
    let shape = Shape { member_sectors: 20_000, ..Shape::new(Level::Raid5, 2, 3, 16) };
    for lands in [0, 1, 2, !1, !2, !0] {
        let mut world = World::synced(Setup::new(shape, 70));
        world.write_random(0, 8);
        world.crash();
        let place = world.disks.superblock(0).unwrap().bitmap_sector().unwrap();
        let spoilt = (64 + FIRST_CHUNK_BEHIND_THE_HEADER * 8 + 100) as usize * SECTOR;
        world.disks.disk(1).bytes[spoilt] ^= 0x5a;
        for disk in 0..3 {
            let (mut header, mut map) = world.disks.bitmap(disk).expect("a bitmap");
            (header.events, header.events_cleared) = (0, 0);
            map.clear_all();
            world.disks.put_bitmap(disk, &(header, map));
            world.disks.disk(disk).cut_at = Some((place, lands));
        }
        world.assemble_all().unwrap();
        world.command(Action::Freeze).unwrap();
        world.write(0, vec![7; 8 * SECTOR]).unwrap();
        world.power_cut(0..3);
        world.assemble_all().unwrap();
        world.wait_idle();
        assert_eq!(world.check(), 0, "{lands:#x} ({world})");
    }
}

/// Its header is an event ahead of the superblocks, and it cannot be read for one run. No bit says what is written in
/// that run.
#[test]
fn a_bitmap_that_could_not_be_read_for_a_run_is_not_believed_after_it() {
    let shape = Shape { disks: 2, member_sectors: 20_000, ..shapes::RAID1 };
    let mut world = World::synced(Setup::new(shape, 71));
    world.wait_status("a clear bitmap", no_bits);
    world.fail(1);
    world.write_random(0, 8);
    world.wait_clean();
    world.crash();
    let (mut header, map) = world.disks.bitmap(0).expect("a bitmap");
    header.events += 1;
    world.disks.put_bitmap(0, &(header, map));
    let place = world.disks.superblock(0).unwrap().bitmap_sector().unwrap();
    world.disks.disk(0).unreadable.insert(place);
    let alone = Options { run: true, ..Options::default() };
    world.assemble(&[0], &alone).unwrap();
    let last = world.sectors() - 8;
    world.write_random(last, 8);
    world.crash();
    world.disks.disk(0).unreadable.clear();
    world.assemble(&[0], &alone).unwrap();
    world.add(1).unwrap();
    world.wait_idle();
    world.fail(0);
    world.verify();
}

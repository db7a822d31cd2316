//! Sync tasks over rough ground: unreadable sectors, members that change under them, odd sizes.

use mdspace_engine::array::{Action, Reply};
use mdspace_engine::status::{MemberState, SyncAction, SyncEnd};

use crate::shapes::{self, Shape};
use crate::world::{Setup, World};

/// A crash left parity wrong in every row, and one sector of data cannot be read.
#[test]
fn a_resync_does_all_that_can_be_done() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID5.without_bitmap(), 1));
    world.write_many(3);
    world.crash();
    let data = world.disks.data();
    for sector in data.clone().step_by(16) {
        world.disks.disk(1).bytes[sector as usize * 512] ^= 1;
    }
    world.disks.disk(0).unreadable.insert(data.start + 16);
    world.assemble_all().unwrap();
    world.wait_idle();
    world.disks.disk(0).unreadable.clear();
    let wrong = world.check();
    assert!(wrong <= 16, "{wrong} sectors were left out of sync for one");
    assert!(wrong > 0, "the row with the unreadable sector cannot have been made right");
}

#[test]
fn a_check_that_could_not_read_all_says_so() {
    for (seed, shape) in (100..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID10]) {
        let mut world = World::synced(Setup::new(shape, seed));
        let data = world.disks.data();
        for disk in 0..usize::from(shape.disks) {
            world.disks.disk(disk).unreadable.extend(data.start + 16..data.start + 18);
        }
        world.check();
        let sync = world.status().sync;
        assert_eq!(sync.last_end, Some(SyncEnd::Incomplete), "{world}");
        assert_eq!(sync.skipped.ranges, sync.skipped.first.len() as u64, "{world}");
        assert!(sync.skipped.sectors >= 2, "{world}");
        for disk in 0..usize::from(shape.disks) {
            world.disks.disk(disk).unreadable.clear();
        }
        assert_eq!(world.check(), 0, "{world}");
        let sync = world.status().sync;
        assert_eq!((sync.last_end, sync.skipped.ranges), (Some(SyncEnd::Complete), 0), "{world}");
    }
}

#[test]
fn a_check_that_was_cut_short_does_not_look_complete() {
    let mut world = World::synced(Setup::new(Shape { member_sectors: 8192, ..shapes::RAID6 }, 110));
    world.command(Action::Check).unwrap();
    world.wait_status("a check", |status| status.sync.action == SyncAction::Check);
    world.fail(1);
    world.wait_status("its end", |status| status.sync.last_action == SyncAction::Check);
    assert_eq!(world.status().sync.last_end, Some(SyncEnd::Interrupted), "{world}");
}

#[test]
fn a_resync_rewrites_the_copies_that_cannot_be_read() {
    for (seed, shape) in (10..).zip([shapes::RAID1, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape.without_bitmap(), seed));
        world.write_many(3);
        world.crash();
        let data = world.disks.data();
        for sector in data.clone() {
            // Old bytes that come back by themselves would differ from the other copies.
            world.disks.disk(1).bytes[sector as usize * 512] ^= 1;
        }
        world.disks.disk(1).unreadable.extend(data);
        world.assemble_all().unwrap();
        world.wait_idle();
        world.disks.disk(1).unreadable.clear();
        assert_eq!(world.check(), 0, "{world}");
        world.verify();
    }
}

/// Recovery of one member of a slot ends while another one comes back into it.
#[test]
fn the_progress_of_one_member_is_not_that_of_the_next() {
    let shape = Shape { member_sectors: 8192, disks: 2, ..shapes::RAID1 };
    for seed in 0..12 {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.wait_clean();
        world.fail(1);
        world.remove(1);
        let all = world.sectors();
        world.write_random(0, all / 2);
        world.add(2).unwrap();
        world.rounds(10 + 3 * seed as usize);
        let member = world.disks.id(2);
        world.command(Action::Fail { member, force: false }).unwrap();
        let added = world.add(1).unwrap();
        assert!(matches!(added, Reply::Added { by_bitmap: true }), "{world}");
        world.wait_status("two in sync", |status| status.degraded() == 0);
        assert_eq!(world.member_state(1), Some(MemberState::InSync), "{world}");
        world.fail(0);
        world.verify();
    }
}

/// Members with blocks of 4 KiB, and an array that ends inside one.
#[test]
fn an_array_that_ends_inside_a_block_is_synced_in_whole_blocks() {
    let shape = Shape { block_bytes: 4096, size_sectors: Some(250), ..shapes::RAID1 };
    let mut world = World::created(Setup::shuffled(shape, 20));
    world.wait_idle();
    assert_eq!(world.check(), 0, "{world}");
    world.fail(0);
    world.remove(0);
    world.add(3).unwrap();
    world.wait_idle();
    assert_eq!(world.status().degraded(), 0, "{world}");
    world.write(0, vec![1; 248 * 512]).unwrap();
    world.restart();
    assert_eq!(world.check(), 0, "{world}");
}

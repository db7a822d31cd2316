//! Members that come and go: spares, replacements, and the way back by the bitmap.

use mdspace_engine::array::{Action, CommandError, Reply};
use mdspace_engine::assembly::{LeftOut, Options, Reason, Refusal};
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::Request;
use mdspace_engine::status::{MemberState, SyncAction};
use mdspace_format::MetadataVersion;
use mdspace_format::superblock::MAGIC;

use crate::shapes::{self, MEMBER_SECTORS, Shape};
use crate::world::{Setup, World};

/// What the way back costs: disk 1 leaves, a little is written, disk 1 returns. Gives the sectors of
/// data that were written to it after its return.
fn leave_and_return(shape: Shape, seed: u64) -> u64 {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.write_many(10);
    world.wait_clean();
    let_bits_be_cleared(&mut world);
    world.fail(1);
    world.remove(1);
    let all = world.sectors();
    for sector in [0, all / 2 / 8 * 8, all - 8] {
        world.write_random(sector, 8);
    }
    world.disks.reset_counts();
    let added = world.add(1).unwrap();
    assert_eq!(matches!(added, Reply::Added { by_bitmap: true }), shape.bitmap, "{world}");
    world.wait_idle();
    assert_eq!(world.member_state(1), Some(MemberState::InSync), "{world}");
    let data = world.disks.data();
    let written = world.disks.disk(1).sectors_written(data);
    world.fail(0);
    world.verify();
    written
}

/// Time passes until nothing is set in the bitmap.
fn let_bits_be_cleared(world: &mut World) {
    world.wait_status("a clear bitmap", |status| {
        status.bitmap.is_none_or(|bitmap| bitmap.dirty_bits == 0)
    });
}

#[test]
fn a_member_that_returns_gets_only_what_changed() {
    for (seed, shape) in (1..).zip(shapes::redundant()) {
        if !shape.bitmap || shape.disks == 2 {
            continue;
        }
        let written = leave_and_return(shape, seed);
        // Three places of a RAID10 may lie on other members.
        assert!(written > 0 || shape.level == Level::Raid10, "{shape}");
        // Three places, each one chunk of the bitmap.
        assert!(written <= 3 * 8, "{written} sectors for a few ({shape})");
    }
}

#[test]
fn without_a_bitmap_it_gets_everything() {
    let shapes = [shapes::RAID5.without_bitmap(), shapes::RAID1.without_bitmap()];
    for (seed, shape) in (50..).zip(shapes) {
        let written = leave_and_return(shape, seed);
        assert!(written >= MEMBER_SECTORS, "{written} ({shape})");
    }
}

#[test]
fn a_member_that_failed_comes_back_without_being_removed_first() {
    for (seed, shape) in (60..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.disks.disk(1).unplug();
        world.write_many(6);
        world.disks.disk(1).plug();
        let added = world.add(1).unwrap();
        assert!(matches!(added, Reply::Added { by_bitmap: true }), "{world}");
        world.write_many(6);
        world.wait_idle();
        assert_eq!(world.status().members.len(), usize::from(shape.disks), "{world}");
        assert_eq!(world.check(), 0, "{world}");
        world.fail(0);
        world.verify();
        world.restart();
        world.verify();
    }
}

#[test]
fn a_way_back_that_does_not_exist_is_refused_with_its_reason() {
    let mut world = World::synced(Setup::new(shapes::RAID5, 70));
    let refused = world.add_as(4, true).unwrap_err();
    assert!(matches!(refused, CommandError::NotBack(_)), "{refused}");
    world.fail(1);
    world.remove(1);
    world.add(4).unwrap();
    world.wait_idle();
    let refused = world.add_as(1, true).unwrap_err();
    assert!(refused.to_string().contains("another member"), "{refused}");
    world.verify();
}

/// The bitmap was cleared while the member was away, so what it missed is no longer known.
#[test]
fn who_missed_a_clearing_of_the_bitmap_gets_everything() {
    let mut world = World::synced(Setup::new(shapes::RAID5, 71));
    world.write_many(5);
    let_bits_be_cleared(&mut world);
    let old = world.disks.disk(1).bytes.clone();
    world.fail(1);
    world.remove(1);
    world.write_many(5);
    world.add(4).unwrap();
    world.wait_idle();
    world.write_many(3);
    let_bits_be_cleared(&mut world);
    world.fail(4);
    world.remove(4);
    world.disks.disk(1).bytes = old;
    let added = world.add(1).unwrap();
    assert!(matches!(added, Reply::Added { by_bitmap: false }), "{added:?}");
    world.wait_idle();
    world.fail(0);
    world.verify();
}

#[test]
fn a_spare_takes_over_by_itself() {
    for (seed, shape) in (80..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let spare = usize::from(shape.disks);
        world.add(spare).unwrap();
        assert_eq!(world.member_state(spare), Some(MemberState::Spare), "{world}");
        world.write_many(5);
        world.disks.disk(0).unplug();
        world.write_many(10);
        world.wait_status("a whole array", |status| status.degraded() == 0);
        assert_eq!(world.member_state(spare), Some(MemberState::InSync), "{world}");
        world.verify();
        assert_eq!(world.check(), 0, "{world}");
    }
}

#[test]
fn a_spare_that_fails_its_rebuild_gives_way_to_the_next() {
    for (seed, shape) in (120..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let spare = usize::from(shape.disks);
        world.add(spare).unwrap();
        world.add(spare + 1).unwrap();
        let data = world.disks.data();
        for disk in [spare, spare + 1] {
            let errors_in = Some(data.start + 40..data.end);
            let mut disk = world.disks.disk(disk);
            disk.errors_in = errors_in;
            disk.write_error = Some(IoErrorKind::Medium);
        }
        // Whichever is taken first fails; the other is good.
        world.fail(0);
        world.wait_status("a failed spare", |status| {
            status.members.iter().filter(|member| member.state == MemberState::Faulty).count() > 1
        });
        world.disks.disk(spare).plug();
        world.disks.disk(spare + 1).plug();
        world.wait_status("a whole array or no spare", |status| {
            let spares = status.members.iter().any(|member| member.state == MemberState::Spare);
            status.degraded() == 0 || !spares && status.sync.action == SyncAction::Idle
        });
        world.verify();
    }
}

#[test]
fn what_the_array_uses_is_not_removed() {
    let mut world = World::synced(Setup::new(shapes::RAID5, 130));
    let remove = |world: &mut World, disk| {
        let member = world.disks.id(disk);
        world.command(Action::Remove { member }).map(drop)
    };
    assert_eq!(remove(&mut world, 0), Err(CommandError::Active));
    assert_eq!(remove(&mut world, 5), Err(CommandError::NotAMember));
    world.add(4).unwrap();
    assert_eq!(remove(&mut world, 4), Ok(()));
    world.verify();
}

#[test]
fn a_device_too_small_is_not_taken() {
    let mut world = World::synced(Setup::new(shapes::RAID5, 131));
    let half = world.disks.disk(4).bytes.len() / 2 / 4096 * 4096;
    world.disks.disk(4).bytes.truncate(half);
    let refused = world.add(4).unwrap_err();
    assert!(matches!(refused, CommandError::DoesNotFit(_)), "{refused}");
}

/// The old member lies in a drawer, and is plugged in again after a replacement took its number.
#[test]
fn a_replaced_member_that_turns_up_again_is_left_out() {
    for (seed, shape) in (140..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.fail(0);
        world.remove(0);
        world.write_many(3);
        world.add(usize::from(shape.disks)).unwrap();
        world.wait_idle();
        world.write_many(3);
        world.stop();
        let left_out = world.assemble_all().unwrap();
        assert_eq!(left_out.len(), 1, "{world}: {left_out:?}");
        assert_eq!(left_out[0].member, "disk0", "{world}");
        world.verify();
    }
}

#[test]
fn a_member_that_missed_writes_is_left_out() {
    for (seed, shape) in (180..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.stop();
        let most: Vec<usize> = (1..usize::from(shape.disks)).collect();
        world.assemble(&most, &Options { run: true, ..Options::default() }).unwrap();
        world.write_many(5);
        world.stop();
        let left_out = world.assemble_all().unwrap();
        let [LeftOut { member, reason: Reason::Stale { .. } }] = &*left_out else {
            panic!("{world}: {left_out:?}");
        };
        assert_eq!(member, "disk0");
        world.verify();
        world.add(0).unwrap();
        world.wait_idle();
        world.verify();
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// Each half of a mirror ran without the other: neither is right, and only the user can choose.
#[test]
fn two_halves_that_ran_alone_are_not_put_together() {
    for (seed, shape) in (220..).zip([Shape::new(Level::Raid1, 0, 2, 0), shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.stop();
        let halves = match shape.level {
            Level::Raid1 => [vec![0], vec![1]],
            _ => [vec![0, 2], vec![1, 3]],
        };
        let run = Options { run: true, ..Options::default() };
        for half in &halves {
            world.assemble(half, &run).unwrap();
            world.write_many(2);
            world.learn();
            world.stop();
        }
        let refused = world.assemble_all().unwrap_err();
        assert!(matches!(refused, Refusal::SplitBrain { .. }), "{world}: {refused}");
        let prefer = Some(format!("disk{}", halves[1][0]));
        world
            .assemble(&[0, 1, 2, 3][..usize::from(shape.disks)], &Options { prefer, ..run })
            .unwrap();
        world.verify();
    }
}

/// A member is added while another is being rebuilt.
#[test]
fn two_rebuilds_do_not_disturb_each_other() {
    for (seed, layout) in (240..).zip([2, 8, 18]) {
        let shape = Shape::new(Level::Raid6, layout, 5, 16);
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.fail(1);
        world.fail(3);
        world.add(5).unwrap();
        world.rounds(30);
        world.write_many(3);
        world.add(6).unwrap();
        world.write_many(3);
        world.wait_idle();
        assert_eq!(world.status().degraded(), 0, "{world}");
        assert_eq!(world.check(), 0, "{world}");
        world.fail(0);
        world.fail(2);
        world.verify();
    }
}

/// A failed member is not written to any more, whatever comes.
#[test]
fn a_failed_member_is_left_alone() {
    for (seed, shape) in (260..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.fail(1);
        world.disks.reset_counts();
        world.write_many(10);
        world.serve(0, Request::Flush).unwrap();
        world.verify();
        world.stop();
        assert!(world.disks.disk(1).writes.is_empty(), "{world}");
        assert_eq!(world.disks.disk(1).sectors_read(), 0, "{world}");
    }
}

/// Where md looks for superblocks of other versions than 1.2: 1.1, 1.0 and 0.90.
fn other_places(world: &World, disk: usize) -> [usize; 3] {
    let sectors = world.disks.disk(disk).sectors();
    let v1_0 = MetadataVersion::V1_0.superblock_sector(sectors).unwrap();
    [0, v1_0, MetadataVersion::sector_of_0_90(sectors).unwrap()].map(|sector| sector as usize * 512)
}

#[test]
fn a_new_member_keeps_no_superblock_of_an_earlier_array() {
    let mut world = World::synced(Setup::new(shapes::RAID5, 90));
    let places = other_places(&world, 4);
    for (at, magic) in places.into_iter().zip([MAGIC, MAGIC, MAGIC.swap_bytes()]) {
        world.disks.disk(4).bytes[at..at + 4].copy_from_slice(&magic.to_le_bytes());
    }
    world.disks.reset_counts();
    world.add(4).unwrap();
    for at in places {
        assert_eq!(world.disks.disk(4).bytes[at..at + 4096], [0; 4096], "at byte {at}");
    }
    world.fail(1);
    world.wait_idle();
    world.verify();
}

#[test]
fn what_looks_like_a_superblock_in_the_data_of_a_member_that_returns_stays() {
    let mut world = World::synced(Setup::new(shapes::RAID1, 91));
    world.fail(1);
    world.remove(1);
    let [_, at, _] = other_places(&world, 1);
    world.disks.disk(1).bytes[at..at + 4].copy_from_slice(&MAGIC.to_le_bytes());
    let before = world.disks.disk(1).bytes[at..at + 4096].to_vec();
    let added = world.add(1).unwrap();
    assert!(matches!(added, Reply::Added { by_bitmap: true }), "{added:?}");
    assert!(world.disks.disk(1).bytes[at..at + 4096] == before);
}

#[test]
fn a_member_whose_superblock_cannot_be_read_counts_as_missing_and_is_named() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID5, 300));
    world.stop();
    let place = world.disks.superblock(1).unwrap().place.sector;
    world.disks.disk(1).unreadable.insert(place);
    let left_out = world.assemble_all().unwrap();
    let [LeftOut { member, reason: Reason::Unreadable(why) }] = &*left_out else {
        panic!("{world}: {left_out:?}");
    };
    assert_eq!(
        (member.as_str(), why.as_str()),
        ("disk1", "cannot be read: medium error (errno 5)")
    );
    assert_eq!(world.status().degraded(), 1, "{world}");
    world.verify();
}

//! Sectors that cannot be read, beside sectors that lie: what is wrong with one block is mended in that
//! block, and no lie gets a witness.

use mdspace_engine::array::{Action, Undecided};
use mdspace_engine::geometry::{Geometry, Slot};
use mdspace_engine::status::{ArrayStatus, MemberState, SyncAction};

use crate::shapes::{self, Shape};
use crate::world::{SECTOR, Setup, World};

fn byte_of(world: &World, sector: u64) -> usize {
    (world.disks.data().start + sector) as usize * SECTOR
}

/// Has a member hold something else in a sector, counted from its data, and read it without an error.
fn lie(world: &World, disk: usize, sector: u64) {
    let at = byte_of(world, sector);
    world.disks.disk(disk).bytes[at..at + SECTOR].iter_mut().for_each(|byte| *byte ^= 0x5a);
}

fn spoil(world: &World, disk: usize, sector: u64) {
    let start = world.disks.data().start;
    world.disks.disk(disk).unreadable.insert(start + sector);
}

/// The bytes of a disk's data.
fn data_of(world: &World, disk: usize) -> Vec<u8> {
    let data = world.disks.data();
    world.disks.disk(disk).bytes[data.start as usize * SECTOR..data.end as usize * SECTOR].to_vec()
}

/// Sectors of a disk's data that are not as before.
fn changed(world: &World, disk: usize, before: &[u8]) -> Vec<u64> {
    let now = data_of(world, disk);
    let differs = |at: &usize| now[at * SECTOR..][..SECTOR] != before[at * SECTOR..][..SECTOR];
    (0..before.len() / SECTOR).filter(differs).map(|at| at as u64).collect()
}

/// A lie in sector 3 and an unreadable sector 7, of two members.
fn lie_and_unreadable(shape: Shape, seed: u64, liar: usize, unreadable: usize) -> World {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.write_many(5);
    world.wait_clean();
    lie(&world, liar, 3);
    spoil(&world, unreadable, 7);
    world
}

#[test]
fn a_repair_of_an_unreadable_sector_carries_no_lie_of_another_one() {
    for (seed, shape) in (1..).zip([shapes::RAID1, shapes::RAID6]) {
        for (liar, unreadable) in [(0, 1), (1, 0), (2, 0), (1, 2)] {
            let mut world = lie_and_unreadable(shape, seed, liar, unreadable);
            assert!(world.repair() > 0, "{world}");
            assert_eq!(world.check(), 0, "{liar} lied ({world})");
            world.verify();
            (0..shape.can_lose()).for_each(|disk| world.fail(disk));
            world.verify();
        }
    }
}

#[test]
fn a_repair_on_one_parity_changes_nothing_beside_the_unreadable_sector() {
    for (liar, unreadable) in [(0, 1), (1, 0), (3, 2), (1, 3)] {
        let mut world = lie_and_unreadable(shapes::RAID5, 30, liar, unreadable);
        let before: Vec<_> = (0..4).map(|disk| data_of(&world, disk)).collect();
        world.repair();
        for (disk, before) in before.iter().enumerate() {
            assert_eq!(changed(&world, disk, before), [], "disk {disk} ({world})");
        }
        assert!(world.disks.disk(unreadable).unreadable.is_empty(), "{world}");
    }
}

/// The sector of the array that a member's data sector holds, where it holds data.
fn array_sector(world: &World, disk: usize, sector: u64) -> Option<u64> {
    let geometry = Geometry::new(&world.map()).unwrap();
    geometry.inverse(Slot(disk as u16), sector)
}

#[test]
fn a_wide_read_of_an_unreadable_sector_gives_and_writes_no_lie_of_another_one() {
    for (seed, shape) in (40..).zip([shapes::RAID5, shapes::RAID6, shapes::RAID1]) {
        let mut read = 0;
        for (liar, unreadable) in [(0, 1), (1, 0), (3, 2), (1, 3), (2, 1)] {
            let lasts = usize::from(shape.disks);
            if liar >= lasts || unreadable >= lasts {
                continue;
            }
            let mut world = lie_and_unreadable(shape, seed, liar, unreadable);
            let Some(start) = array_sector(&world, unreadable, 0) else { continue };
            if !shape.has_parity() {
                // Of mirrors the liar would be as good a choice as another.
                world.command(Action::Fail { member: world.disks.id(liar), force: true }).unwrap();
            }
            let before = data_of(&world, unreadable);
            for _ in 0..4 {
                let found = world.read(start, 16).unwrap();
                world.compare(start, &found);
            }
            assert_eq!(changed(&world, unreadable, &before), [], "{world}");
            read += 1;
        }
        assert!(read >= 2, "{read} ({shape})");
    }
}

/// The replacement of a member with an unreadable sector gets all others from that member.
#[test]
fn a_replacement_is_computed_only_where_its_member_cannot_be_read() {
    for (seed, shape) in (60..).zip([shapes::RAID5, shapes::RAID6]) {
        let mut world = lie_and_unreadable(shape, seed, 1, 0);
        let spare = usize::from(shape.disks);
        let before = data_of(&world, 0);
        world.add(spare).unwrap();
        let (member, with) = (world.disks.id(0), world.disks.id(spare));
        world.command(Action::Replace { member, with: Some(with) }).unwrap();
        world.wait_status("the end of a replacement", |status| {
            status.members.iter().all(|member| !member.replacement)
                && status.sync.action == SyncAction::Idle
        });
        assert_eq!(world.member_state(spare), Some(MemberState::InSync), "{world}");
        assert_eq!(changed(&world, spare, &before), [], "{world}");
    }
}

/// The unreadable sector lies where another member lies: it stays as it is, and is readable later.
fn lie_meets_unreadable(shape: Shape, seed: u64, liar: usize, unreadable: usize) -> World {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.write_many(5);
    world.wait_clean();
    lie(&world, liar, 3);
    spoil(&world, unreadable, 3);
    world
}

/// The drive can read the sector again, and there is one lie against all others.
fn is_mended_once_all_can_be_read(world: &mut World, unreadable: usize) {
    let left = std::mem::take(&mut world.disks.disk(unreadable).unreadable);
    assert_eq!(left.len(), 1, "it was written ({world})");
    world.repair();
    assert_eq!(world.check(), 0, "{world}");
    world.verify();
    let shape = *world.shape();
    (0..shape.can_lose()).for_each(|disk| world.fail(disk));
    world.verify();
}

#[test]
fn a_repair_leaves_an_unreadable_sector_that_only_a_suspect_could_tell() {
    for (seed, shape) in (80..).zip([shapes::RAID1, shapes::RAID6]) {
        for (liar, unreadable) in [(0, 1), (1, 0), (0, 2), (2, 1)] {
            let mut world = lie_meets_unreadable(shape, seed, liar, unreadable);
            assert!(world.repair() > 0, "{world}");
            let found = world.status().mismatches;
            assert_eq!((found.places, found.undecidable), (1, 1), "{world}");
            is_mended_once_all_can_be_read(&mut world, unreadable);
        }
    }
}

#[test]
fn a_read_writes_no_unreadable_sector_that_only_a_suspect_could_tell() {
    for (seed, shape) in (90..).zip([shapes::RAID1, shapes::RAID6]) {
        let mut read = 0;
        for (liar, unreadable) in [(0, 1), (1, 0), (0, 2), (2, 1), (3, 1), (1, 4)] {
            if liar.max(unreadable) >= usize::from(shape.disks) {
                continue;
            }
            let mut world = lie_meets_unreadable(shape, seed, liar, unreadable);
            let Some(sector) = array_sector(&world, unreadable, 3) else { continue };
            for at in 0..20 {
                // Mirrors take turns by the address and by the load.
                world.read(sector.saturating_sub(at), 1 + at).unwrap();
            }
            is_mended_once_all_can_be_read(&mut world, unreadable);
            read += 1;
        }
        assert!(read >= 2, "{read} ({shape})");
    }
}

/// With the user's word for one member there is nothing to be undecided about.
#[test]
fn the_users_word_decides_for_an_unreadable_copy_too() {
    let mut world = lie_meets_unreadable(shapes::RAID1, 99, 1, 2);
    let member = world.disks.id(0);
    world.repair_by(Undecided::ByMember(member));
    assert!(world.disks.disk(2).unreadable.is_empty(), "{world}");
    assert_eq!(world.check(), 0, "{world}");
    world.verify();
}

/// A lie that was copied to the replacement already is mended there with the member's.
#[test]
fn what_is_written_again_on_a_member_is_written_on_its_replacement() {
    for (seed, shape) in (100..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10])
    {
        let member_sectors = if shape.has_parity() { 16_384 } else { 65_536 };
        let shape = Shape { member_sectors, ..shape };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let spare = usize::from(shape.disks);
        world.add(spare).unwrap();
        let (member, with) = (world.disks.id(0), world.disks.id(spare));
        world.set("sync_max", &(member_sectors / 2).to_string());
        world.command(Action::Replace { member, with: Some(with) }).unwrap();
        world.wait_status("half of a replacement", |status| {
            let new = status.members.iter().find(|member| member.replacement);
            new.is_some_and(|new| new.recovery_offset_sectors > 64)
        });
        // The first that is data on this member.
        let place = (3..64).find(|at| array_sector(&world, 0, *at).is_some()).unwrap();
        lie(&world, spare, place);
        lie(&world, 0, place);
        spoil(&world, 0, place);
        if !shape.has_parity() {
            world.set("read_policy", "first");
        }
        let sector = array_sector(&world, 0, place).unwrap();
        world.read(sector, 1).unwrap();
        assert!(world.disks.disk(0).unreadable.is_empty(), "{world}");
        world.set("sync_max", "max");
        world.wait_status("the end of a replacement", |status| {
            status.members.iter().all(|member| !member.replacement)
        });
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// Who is out while a repair writes gets what it wrote when it comes back by bitmap.
#[test]
fn what_a_repair_writes_is_marked_in_the_bitmap() {
    for (seed, shape) in (120..).zip([shapes::RAID1, shapes::RAID6]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(3);
        let no_bits = |status: &ArrayStatus| status.bitmap.as_ref().unwrap().dirty_bits == 0;
        while !no_bits(&world.status()) {
            world.sleep_ms(1000);
        }
        // The user's word counts where all data are there.
        let out = match Geometry::new(&world.map()).unwrap() {
            Geometry::Parity(map) => usize::from(map.row(1).p().0),
            _ => 0,
        };
        world.fail(out);
        world.remove(out);
        // What the others hold is another value from now on, by the user's word.
        lie(&world, 1, 19);
        assert!(world.repair_by(Undecided::ByData) > 0, "{world}");
        assert_eq!(world.check(), 0, "{world}");
        world.add_as(out, true).unwrap();
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// Two copies that a crash left different: each block is read from the same copy, however wide the read,
/// and a resync follows it.
#[test]
fn in_doubt_each_block_comes_from_its_first_readable_copy() {
    for (seed, shape) in (140..).zip([
        Shape { disks: 2, ..shapes::RAID1 },
        shapes::RAID1,
        shapes::RAID10,
        Shape { write_behind: 16, write_mostly: 0b100, ..shapes::RAID1 },
    ]) {
        for listed in [false, true] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.write_random(0, 16);
            world.crash();
            if listed {
                crate::listed::list_and_spoil(&mut world, 0, true);
            } else {
                spoil(&world, 0, 3);
            }
            // A write that reached the first copy alone.
            let at = byte_of(&world, 9);
            world.disks.disk(0).bytes[at..at + SECTOR].fill(0x77);
            world.model[9 * SECTOR..10 * SECTOR].fill(0x77);
            world.assemble_all().unwrap();
            world.set("sync_max", "0");
            for (sector, sectors) in [(9, 1), (0, 16), (2, 8), (9, 1), (0, 12)] {
                let found = world.read(sector, sectors).unwrap();
                world.compare(sector, &found);
            }
            world.set("sync_max", "max");
            world.wait_idle();
            world.verify();
            world.fail(0);
            world.verify();
        }
    }
}

/// Its errors elsewhere are no reason: the other copy may have other bytes.
#[test]
fn a_copy_that_is_believed_in_doubt_is_not_given_up_by_choice() {
    for failfast in [0b01, 0] {
        let shape = Shape { disks: 2, failfast, ..shapes::RAID1 };
        let mut world = World::synced(Setup::shuffled(shape, 150));
        while world.status().bitmap.unwrap().dirty_bits > 0 {
            world.sleep_ms(1000);
        }
        world.write_random(8, 8);
        world.crash();
        let at = byte_of(&world, 9);
        world.disks.disk(0).bytes[at..at + SECTOR].fill(0x77);
        world.model[9 * SECTOR..10 * SECTOR].fill(0x77);
        spoil(&world, 0, 40);
        world.assemble_all().unwrap();
        world.set("sync_max", "0");
        world.set("max_read_errors", "0");
        world.set("read_policy", "first");
        for sector in [9, 40, 9] {
            let found = world.read(sector, 1).unwrap();
            world.compare(sector, &found);
            world.rounds(200);
        }
        assert_eq!(world.member_state(0), Some(MemberState::InSync), "{failfast:b} ({world})");
        world.set("sync_max", "max");
        world.wait_idle();
        world.verify();
        // With nothing in doubt it is given up.
        spoil(&world, 0, 48);
        world.read(48, 1).unwrap();
        world.rounds(200);
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{failfast:b} ({world})");
        world.verify();
    }
}

/// The resync of a window in which the believed copy lacks one sector.
#[test]
fn a_resync_follows_the_first_readable_copy_of_each_block() {
    for (seed, shape) in (160..).zip([Shape { disks: 2, ..shapes::RAID1 }, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_random(0, 16);
        world.crash();
        spoil(&world, 0, 3);
        let at = byte_of(&world, 9);
        world.disks.disk(0).bytes[at..at + SECTOR].fill(0x77);
        world.model[9 * SECTOR..10 * SECTOR].fill(0x77);
        world.assemble_all().unwrap();
        world.wait_idle();
        world.verify();
        world.fail(0);
        world.verify();
    }
}

/// Data that are computed by a parity that lies would have the other parity lie too.
#[test]
fn a_repair_that_believes_data_changes_nothing_where_a_member_with_data_is_out() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID6, 150));
    world.write_random(0, world.sectors());
    world.wait_clean();
    let Geometry::Parity(map) = Geometry::new(&world.map()).unwrap() else { panic!("{world}") };
    let row = map.row(0);
    let [liar, out] = [row.p(), row.data(0)].map(|slot| usize::from(slot.0));
    lie(&world, liar, 3);
    world.fail(out);
    world.repair_by(Undecided::ByData);
    world.fail(liar);
    world.verify();
}

//! Superblocks as md, users of the array or nobody in particular left them.

use mdspace_engine::array::Action;
use mdspace_engine::assembly::{LeftOut, Options, Reason, Refusal};
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::Request;
use mdspace_engine::status::MemberState;
use mdspace_format::{MetadataVersion, Superblock, SuperblockPlace, Timestamp, Uuid};

use crate::shapes::{self, Shape};
use crate::world::{SECTOR, Setup, World};

/// Changes a disk's superblock as if md had written it: md's times have no microseconds.
fn written_by_md(world: &World, disk: usize, change: impl Fn(&mut Superblock)) {
    let mut superblock = world.disks.superblock(disk).expect("a member");
    superblock.utime = Timestamp::from_seconds(superblock.utime.seconds());
    change(&mut superblock);
    let at = superblock.place.sector as usize * SECTOR;
    world.disks.disk(disk).bytes[at..at + 4096].copy_from_slice(&superblock.encode());
}

/// Parity below the offset is stale when power fails in the middle of a rebuild. With force the rest is
/// computed from parity as it is; what the rebuild has filled is still resynced.
#[test]
fn force_in_the_middle_of_a_rebuild_leaves_no_stale_parity_behind() {
    for (seed, shape) in (1..).zip([shapes::RAID5, shapes::RAID5.without_bitmap()]) {
        let mut world = World::synced(Setup::new(shape, seed));
        world.command(Action::Freeze).unwrap();
        world.fail(1);
        world.set("sync_max", "128");
        world.add(usize::from(shape.disks)).unwrap();
        world.command(Action::Idle).unwrap();
        world.wait_status("half a rebuild", |status| {
            status.sync.action.runs() && status.sync.completed_sectors >= 128
        });
        world.command(Action::Stop).unwrap();
        world.crash();
        world.assemble_all().unwrap();
        world.command(Action::Freeze).unwrap();
        let spare = world.disks.superblock(usize::from(shape.disks)).expect("it is a member");
        assert!(spare.recovery_offset_sectors.is_some_and(|done| done >= 64), "{spare:?}");
        world.write_random(0, 8);
        // A block of data that reached its member, and parity that did not.
        let data = world.disks.data();
        let written = (0..usize::from(shape.disks))
            .find(|disk| world.disks.disk(*disk).sectors_written(data.start..data.start + 16) > 0);
        let at = data.start as usize * SECTOR;
        world.disks.disk(written.expect("one is written")).bytes[at] ^= 0xff;
        world.crash();
        world.assemble_with_force().unwrap();
        world.wait_idle();
        assert_eq!(world.member_state(usize::from(shape.disks)), Some(MemberState::InSync));
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// md writes how far any resync came when it is stopped. After a crash what lies behind may be
/// half-written, and says nothing of a member that fails then.
#[test]
fn a_resync_that_md_stopped_after_a_crash_is_not_taken_for_a_first_one() {
    let mut world = World::synced(Setup::new(shapes::RAID5, 10));
    world.write_random(0, world.sectors());
    world.crash();
    for disk in 0..4 {
        written_by_md(&world, disk, |superblock| superblock.resync_offset_sectors = 16);
    }
    world.assemble_all().unwrap();
    world.command(Action::Freeze).unwrap();
    let row = 3 * 16;
    assert!(world.status().doubted.sectors > 0, "{world}");
    let member = world.disks.id(1);
    world.command(Action::Fail { member, force: true }).unwrap();
    assert!(world.read(row, world.sectors() - row).is_err(), "parity in doubt answers ({world})");
    let synced = world.read(0, row).unwrap();
    world.compare(0, &synced);
}

/// Offset copies: 16 chunks of a member are no multiple of three. md rounds down and writes that into the
/// members that it has; one that was away still has the old size.
#[test]
fn members_that_md_has_rounded_and_one_that_it_has_not_are_one_array() {
    let shape = Shape::new(Level::Raid10, 1 << 16 | 3 << 8 | 1, 6, 16);
    let mut world = World::synced(Setup::new(shape, 20));
    let rounded = world.disks.superblock(0).unwrap().size_sectors;
    assert_eq!(rounded, 15 * 16, "create rounds as md does");
    world.command(Action::Stop).unwrap();
    world.crash();
    // As mdadm and mdspace have written it until now.
    for disk in [1, 3] {
        written_by_md(&world, disk, |superblock| superblock.size_sectors = 16 * 16);
    }
    world.assemble_all().unwrap();
    world.verify();
    world.fail(1);
    world.write_many(3);
    assert_eq!(world.disks.superblock(3).unwrap().size_sectors, rounded, "the first update");
    world.remove(1);
    world.disks.reopen(1);
    let (member, info) = (world.disks.id(1), world.disks.info(1));
    world.command(Action::Add { member, info, only_back: true }).unwrap();
    world.wait_idle();
    world.verify();
}

/// What a user of the array writes to its last sectors may look like a superblock of version 1.0.
#[test]
fn a_superblock_that_a_user_wrote_into_the_data_is_data() {
    let mut world = World::synced(Setup::new(shapes::RAID1, 30));
    world.command(Action::Stop).unwrap();
    world.crash();
    for disk in 0..usize::from(shapes::RAID1.disks) {
        let mut forged = world.disks.superblock(disk).unwrap();
        let sectors = world.disks.disk(disk).sectors();
        let place: SuperblockPlace = MetadataVersion::V1_0.place(sectors).unwrap();
        forged.place = place;
        forged.data_offset_sectors = 0;
        forged.data_size_sectors = place.sector - 64;
        forged.size_sectors = 64;
        forged.bitmap_offset_sectors = -32;
        forged.bad_block_log = None;
        forged.ctime = Timestamp::from_seconds(forged.ctime.seconds() + 1000);
        forged.events += 100;
        assert_eq!(forged.validate(sectors), Ok(()));
        let at = place.sector as usize * SECTOR;
        world.disks.disk(disk).bytes[at..at + 4096].copy_from_slice(&forged.encode());
    }
    assert_eq!(world.assemble_all().unwrap(), []);
    assert_eq!(world.status().metadata, MetadataVersion::V1_2);
}

/// An array of version 1.0 has its first sectors where members of 1.2 have their superblocks: a user may write one there,
/// or copy an old member onto the array.
#[test]
fn a_superblock_that_a_user_wrote_where_others_have_theirs_hides_no_member() {
    let shape = Shape { version: MetadataVersion::V1_0, ..shapes::RAID1 };
    let mut world = World::synced(Setup::new(shape, 31));
    let sectors = world.disks.disk(0).sectors();
    let real = world.disks.superblock(0).unwrap();
    let mut forged = real.clone();
    forged.set_uuid = Uuid([9; 16]);
    forged.place = MetadataVersion::V1_2.place(sectors).unwrap();
    forged.data_offset_sectors = 64;
    forged.data_size_sectors = sectors - 64;
    forged.size_sectors = 64;
    forged.bitmap_offset_sectors = 16;
    forged.bad_block_log = None;
    forged.events += 100;
    assert_eq!(forged.validate(sectors), Ok(()));
    let bytes = forged.encode();
    world.remember(8, &bytes);
    world.write(8, bytes).unwrap();
    world.stop();
    world.crash();
    let all: Vec<usize> = (0..usize::from(shape.disks)).collect();
    let refused = world.assemble(&all, &Options::default()).unwrap_err();
    let says = refused.to_string();
    let places =
        [forged.place.sector, real.place.sector].map(|sector| format!("at sector {sector}"));
    let names = [real.set_uuid, forged.set_uuid].map(|uuid| uuid.to_string());
    assert!(places.iter().chain(&names).all(|word| says.contains(word)), "{says}");
    let wanted = Options { uuid: Some(real.set_uuid), ..Options::default() };
    assert_eq!(world.assemble(&all, &wanted).unwrap(), []);
    assert_eq!(world.status().metadata, MetadataVersion::V1_0);
    world.verify();
    world.fail(1);
    world.write_many(3);
    world.remove(1);
    world.add_as(1, true).unwrap();
    world.wait_idle();
    world.verify();
}

/// Its bytes are no superblock any more, or there is none. The others start when told to.
#[test]
fn a_member_whose_superblock_is_damaged_is_left_out_and_named() {
    for (seed, shape) in (40..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID6, shapes::RAID10]) {
        let mut world = World::synced(Setup::new(shape, seed));
        world.write_random(0, 64);
        world.stop();
        world.crash();
        let at = world.disks.superblock(1).unwrap().place.sector as usize * SECTOR;
        // A role: no field that could be impossible.
        world.disks.disk(1).bytes[at + 256] ^= 1;
        let all: Vec<usize> = (0..usize::from(shape.disks)).collect();
        let refused = world.assemble(&all, &Options::default());
        assert!(matches!(refused, Err(Refusal::Missing { missing: 1 })), "{refused:?} ({world})");
        let left_out = world.assemble_all().unwrap();
        let [LeftOut { member, reason: Reason::Unreadable(why) }] = &*left_out else {
            panic!("{left_out:?} ({world})");
        };
        assert_eq!(member, "disk1");
        assert!(why.contains("checksum"), "{why}");
        world.write_many(3);
        world.verify();
        world.add(1).unwrap();
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}");
        world.fail(0);
        world.verify();
    }
}

/// A member that was just filled is in sync by the update in which another fails, and power fails before its own
/// superblock says so.
#[test]
fn an_update_that_gives_a_member_up_for_one_just_filled_leaves_an_array() {
    let cases = (0..8).flat_map(|updates| (1..8).map(move |cut_after| (updates, cut_after)));
    let shapes = [shapes::RAID5, Shape { disks: 2, ..shapes::RAID1 }];
    let cases = cases.flat_map(|case| shapes.map(|shape| (shape, case)));
    for (seed, (shape, (updates, cut_after))) in (1..).zip(cases) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let new = usize::from(shape.disks);
        world.write_many(4);
        world.fail(1);
        world.serve(0, Request::Flush).unwrap();
        world.add(new).unwrap();
        let events = world.disks.superblock(new).expect("a member").events;
        {
            let superblock = world.disks.superblock(0).expect("a member");
            let mut disk = world.disks.disk(0);
            (disk.write_error, disk.grace) = (Some(IoErrorKind::Gone), updates);
            disk.errors_in = superblock.bitmap_room();
        }
        // The new one's comes first, and the others are written when it has landed.
        for disk in 0..=new {
            let lands = if disk == new && seed % 3 == 0 { 0xff } else { 0 };
            world.disks.disk(disk).cut_in_update = Some((events + cut_after, lands));
        }
        world.sleep_ms(2000);
        world.power_cut(0..world.disks.count());
        world.disks.disk(0).write_error = None;
        world
            .assemble_with_force()
            .unwrap_or_else(|why| panic!("{why} ({world}, {updates}, {cut_after})"));
        world.verify();
    }
}

/// Power fails in an update while a rebuild is nearly done, and again in the one that ends the rebuild: members that
/// had missed the first have it by then.
#[test]
fn members_that_missed_an_update_catch_up_before_the_end_of_a_rebuild() {
    let shapes = [shapes::RAID5, shapes::RAID6, shapes::RAID10];
    for (seed, shape) in (1..).zip(shapes) {
        let shape = Shape { chunk_sectors: 8, ..shape };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let new = usize::from(shape.disks);
        let all = 0..=new + 1;
        world.write_many(4);
        world.command(Action::Freeze).unwrap();
        world.fail(1);
        world.serve(0, Request::Flush).unwrap();
        world.set("sync_max", "248");
        world.add(new).unwrap();
        world.command(Action::Idle).unwrap();
        world.wait_status("nearly all of a rebuild", |status| {
            status.sync.action.runs() && status.sync.completed_sectors >= 248
        });
        world.wait_clean();
        for crash in 0..2 {
            let events = world.disks.superblock(0).expect("a member").events;
            for disk in all.clone() {
                let lands = if disk == 0 || disk == new { 0xff } else { 0 };
                world.disks.disk(disk).cut_in_update = Some((events + 1, lands));
            }
            if crash == 0 {
                world.add(new + 1).unwrap();
            }
            world.sleep_ms(2000);
            world.power_cut(all.clone());
            world.assemble_all().unwrap_or_else(|why| panic!("{why} ({world}, crash {crash})"));
        }
        world.verify();
    }
}

/// A member fails when its replacement has all its data, which then holds the slot; by the update that says so
/// another member fails, and power before the new one's superblock says that it is in sync.
#[test]
fn an_update_that_gives_a_member_up_for_one_that_replaced_another_leaves_an_array() {
    let cases = (0..3).flat_map(|flushes| (0..6).map(move |updates| (flushes, updates)));
    let cases = cases.flat_map(|case| (1..8).map(move |cut_after| (case, cut_after)));
    let shapes = [shapes::RAID5, Shape { disks: 2, ..shapes::RAID1 }];
    let cases = cases.flat_map(|case| shapes.map(|shape| (shape, case)));
    for (seed, (shape, ((flushes, updates), cut_after))) in (1..).zip(cases) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let new = usize::from(shape.disks);
        world.write_many(4);
        world.serve(0, Request::Flush).unwrap();
        world.set("sync_max", "240");
        world.add(new).unwrap();
        let (member, with) = (world.disks.id(0), Some(world.disks.id(new)));
        world.command(Action::Replace { member, with }).unwrap();
        world.wait_status("nearly all of a copy", |status| {
            status.sync.action.runs() && status.sync.completed_sectors >= 240
        });
        world.wait_clean();
        let superblock = world.disks.superblock(1).expect("a member");
        {
            let mut disk = world.disks.disk(0);
            (disk.flush_error, disk.grace) = (Some(IoErrorKind::Gone), flushes);
        }
        {
            let mut disk = world.disks.disk(1);
            (disk.write_error, disk.grace) = (Some(IoErrorKind::Gone), updates);
            disk.errors_in = superblock.bitmap_room();
        }
        // The new one's comes first, and the others are written when it has landed.
        for disk in 0..=new {
            let lands = if disk == new && seed % 3 == 0 { 0xff } else { 0 };
            world.disks.disk(disk).cut_in_update = Some((superblock.events + cut_after, lands));
        }
        world.set("sync_max", "max");
        world.sleep_ms(2000);
        world.power_cut(0..world.disks.count());
        world.disks.disk(0).flush_error = None;
        world.disks.disk(1).write_error = None;
        world.assemble_with_force().unwrap_or_else(|why| {
            panic!("{why} ({world}, {flushes}, {updates}, {cut_after})");
        });
        world.verify();
    }
}

/// Stops an array whose first member is half replaced, by the disk that it gives.
fn stop_half_replaced(world: &mut World) -> usize {
    let new = usize::from(world.shape().disks);
    world.set("sync_max", "128");
    world.add(new).unwrap();
    let (member, with) = (world.disks.id(0), Some(world.disks.id(new)));
    world.command(Action::Replace { member, with }).unwrap();
    world.wait_status("half of a copy", |status| status.sync.completed_sectors >= 128);
    world.stop();
    new
}

/// The replacement of a stopped array's first member has all, and its superblock says so.
fn complete_the_copy(world: &World, new: usize) {
    let range = world.disks.data();
    let range = range.start as usize * SECTOR..range.end as usize * SECTOR;
    let copy = world.disks.disk(0).bytes[range.clone()].to_vec();
    world.disks.disk(new).bytes[range].copy_from_slice(&copy);
    world.disks.change_superblock(new, |superblock| {
        superblock.recovery_offset_sectors = Some(superblock.size_sectors);
    });
}

/// A replacement missed an update. Started with it in the slot, it catches up, and power fails before the update that
/// says who has the slot: the member that it was to replace still counts, and is not taken for another holder.
#[test]
fn a_replacement_that_catches_up_is_still_one() {
    let shapes = [shapes::RAID5, Shape { disks: 2, ..shapes::RAID1 }];
    let cases = shapes.into_iter().flat_map(|shape| [true, false].map(|has_all| (shape, has_all)));
    for (seed, (shape, has_all)) in (1..).zip(cases) {
        let mut world = World::synced(Setup::new(shape, seed));
        let new = stop_half_replaced(&mut world);
        world.crash();
        if has_all {
            complete_the_copy(&world, new);
        }
        let events = world.disks.superblock(0).expect("a member").events;
        world.disks.change_superblock(new, |superblock| superblock.events -= 1);
        let there: Vec<usize> = (usize::from(!has_all)..=new).collect();
        world.assemble(&there, &Options { run: true, ..Options::default() }).unwrap();
        for disk in 0..=new {
            world.disks.disk(disk).cut_in_update = Some((events + 1, 0));
        }
        world.write(0, vec![1; SECTOR]).unwrap();
        world.power_cut(0..world.disks.count());
        world.assemble_all().unwrap_or_else(|why| panic!("{why} ({world}, {has_all})"));
        world.verify();
    }
}

/// Assembly has taken a full copy for the member. Power fails in the first update after that: before the copy's own
/// superblock says that it is in sync, or before any other one is written. The member that it was copied from may be
/// there again then.
#[test]
fn a_copy_that_was_taken_for_the_member_still_is_after_the_next_power_cut() {
    let shapes = [shapes::RAID5, Shape { disks: 2, ..shapes::RAID1 }];
    let cases = shapes.into_iter().flat_map(|shape| [(shape, 0), (shape, 0xff)]);
    for (seed, (shape, lands_on_copy)) in (1..).zip(cases) {
        let mut world = World::synced(Setup::new(shape, seed));
        world.write_random(0, world.sectors());
        let new = stop_half_replaced(&mut world);
        complete_the_copy(&world, new);
        let events = world.disks.superblock(new).expect("a member").events;
        world.assemble_all().unwrap();
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
        for disk in 0..=new {
            let lands = if disk == new { lands_on_copy } else { 0 };
            world.disks.disk(disk).cut_in_update = Some((events + 1, lands));
        }
        world.write_random(0, 8);
        world.power_cut(0..world.disks.count());
        world.assemble_all().unwrap_or_else(|why| panic!("{why} ({world})"));
        assert_eq!(world.member_state(new), Some(MemberState::InSync), "{world}");
    }
}

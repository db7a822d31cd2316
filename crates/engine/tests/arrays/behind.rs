//! Write-behind: writes that are answered before write-mostly members have them, and what may not be
//! seen of that.

use std::cell::RefCell;
use std::rc::Rc;

use mdspace_engine::array::Action;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::MemberState;

use crate::shapes::{self, DATA_OFFSET, Shape};
use crate::world::{Pending, SECTOR, Setup, World};

/// Two mirrors, the second write-mostly, and so many writes that may be left behind.
const fn shape(write_behind: u32) -> Shape {
    Shape { write_behind, write_mostly: 0b10, ..shapes::RAID1 }
}

/// Sectors of the array that the second member hangs at.
const HUNG: std::ops::Range<u64> = 64..96;

fn two_mirrors(seed: u64, write_behind: u32) -> World {
    let shape = Shape { disks: 2, ..shape(write_behind) };
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.wait_clean();
    wait_for_ever(&world);
    world.disks.disk(1).hangs_in = Some(DATA_OFFSET + HUNG.start..DATA_OFFSET + HUNG.end);
    world
}

/// A member that hangs is not failed for it.
fn wait_for_ever(world: &World) {
    for key in ["read_deadline", "write_deadline"] {
        world.set(key, "0");
    }
}

fn start_write(world: &World, lane: usize, sector: u64, byte: u8) -> Pending {
    let from = Rc::new(vec![byte; 8 * SECTOR]);
    world.start(lane, Request::Write { sector, from, fua: false })
}

/// What eight sectors of a member are full of, if of one byte.
fn on_disk(world: &World, disk: usize, sector: u64) -> Option<u8> {
    let start = (DATA_OFFSET + sector) as usize * SECTOR;
    let disk = world.disks.disk(disk);
    let bytes = &disk.bytes[start..start + 8 * SECTOR];
    bytes.iter().all(|byte| *byte == bytes[0]).then_some(bytes[0])
}

fn under_way(world: &mut World) -> u32 {
    world.status().write_behind.expect("write-behind is on").under_way
}

fn let_go(world: &mut World) {
    world.disks.disk(1).hangs_in = None;
}

/// A member takes no write of eight sectors.
fn refuse(world: &World, disk: usize, sector: u64) {
    let mut disk = world.disks.disk(disk);
    disk.write_error = Some(IoErrorKind::Medium);
    disk.errors_in = Some(DATA_OFFSET + sector..DATA_OFFSET + sector + 8);
}

#[test]
fn a_write_is_answered_before_write_mostly_members_have_it_and_they_get_it() {
    for seed in 1..20 {
        let mut world = two_mirrors(seed, 8);
        let from = Rc::new(vec![7; 8 * SECTOR]);
        let write = Request::Write { sector: 64, from: from.clone(), fua: true };
        world.serve(2, write).unwrap();
        assert_eq!((on_disk(&world, 0, 64), under_way(&mut world)), (Some(7), 1), "{world}");
        assert_ne!(on_disk(&world, 1, 64), Some(7), "{world}");
        assert_eq!(Rc::strong_count(&from), 1, "what is behind comes from a copy ({world})");
        world.remember(64, &from);
        world.verify();
        let_go(&mut world);
        world.until("the write behind", |world| on_disk(world, 1, 64) == Some(7));
        world.wait_clean();
        assert_eq!((world.check(), under_way(&mut world)), (0, 0), "{world}");
    }
}

/// Three mirrors, the last one write-mostly and hung. The second one is out, and the first one's superblock, which is
/// to say so, hangs.
fn records_that_one_is_out(seed: u64) -> World {
    let three = Shape { disks: 3, write_mostly: 0b100, ..shape(8) };
    let mut world = World::synced(Setup::shuffled(three, seed));
    wait_for_ever(&world);
    // The array is dirty, and has the bits of the next write.
    let before = start_write(&world, 1, 64, 5);
    world.end(&before).unwrap();
    world.until("the write behind", |world| on_disk(world, 2, 64) == Some(5));
    world.turns(100);
    let place = world.disks.superblock(0).unwrap().place.sector;
    world.disks.disk(0).writes_hang_in = Some(place..place + 8);
    world.disks.disk(2).hangs_in = Some(DATA_OFFSET + HUNG.start..DATA_OFFSET + HUNG.end);
    world.order(Action::Fail { member: world.disks.id(1), force: false });
    world.turns(500);
    world
}

/// A member is out, and the record of that is on its way. Until then a crash would believe the block that it has.
#[test]
fn nothing_is_answered_early_before_the_record_says_whom_it_passed_over() {
    for seed in 1..20 {
        let mut world = records_that_one_is_out(seed);
        let write = start_write(&world, 1, 64, 7);
        world.turns(2000);
        assert_eq!([0, 1].map(|disk| on_disk(&world, disk, 64)), [Some(7), Some(5)], "{world}");
        assert!(!write.has_ended(), "{world}");
        world.disks.disk(0).writes_hang_in = None;
        world.end(&write).unwrap();
        assert_eq!(under_way(&mut world), 1, "{world}");
        world.disks.disk(2).hangs_in = None;
    }
}

/// The record that the answer waits for is also about the one member that has the write: it fails in that update.
#[test]
fn nothing_is_answered_early_where_the_record_takes_out_who_has_it() {
    for seed in 1..20 {
        let mut world = records_that_one_is_out(seed);
        let bytes = vec![7; 8 * SECTOR];
        world.remember(64, &bytes);
        let write = Request::Write { sector: 64, from: Rc::new(bytes), fua: true };
        let write = world.start(1, write);
        world.turns(2000);
        assert_eq!(on_disk(&world, 0, 64), Some(7), "{world}");
        world.disks.disk(0).unplug();
        world.disks.disk(0).writes_hang_in = None;
        world.turns(3000);
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        assert!(!write.has_ended(), "{world}");
        world.disks.disk(2).hangs_in = None;
        world.end(&write).unwrap();
        world.power_cut(0..3);
        world.disks.disk(0).plug();
        world.assemble_all().unwrap();
        world.verify();
    }
}

/// Two mirrors with all of a first write. The second one answers neither the controller nor the next write there.
fn asked_while_it_writes(seed: u64) -> World {
    let mut world = two_mirrors(seed, 8);
    let_go(&mut world);
    let before = start_write(&world, 1, 64, 5);
    world.end(&before).unwrap();
    world.until("the write behind", |world| on_disk(world, 1, 64) == Some(5));
    world.turns(100);
    let place = world.disks.superblock(1).unwrap().place.sector;
    let mut disk = world.disks.disk(1);
    disk.hangs_in = Some(place..place + 8);
    disk.writes_hang_in = Some(DATA_OFFSET + HUNG.start..DATA_OFFSET + HUNG.end);
    drop(disk);
    world
}

/// Power fails when the first mirror is out, and the second one alone comes back.
fn comes_back_without_the_first(mut world: World, bytes: &[u8]) {
    world.remember(64, bytes);
    world.power_cut(0..2);
    world.disks.disk(0).plug();
    world.disks.disk(1).writes_hang_in = None;
    world.assemble_all().unwrap();
    world.verify();
}

/// The flush of the only member that is not behind has told of a loss. It is there until the other one has answered.
#[test]
fn nothing_is_answered_early_by_a_member_whose_flush_has_told() {
    for seed in 1..20 {
        let mut world = asked_while_it_writes(seed);
        world.disks.disk(0).next_flush_fails = Some(IoErrorKind::Other);
        world.start(2, Request::Flush);
        world.turns(500);
        let bytes = vec![7; 8 * SECTOR];
        let from = Rc::new(bytes.clone());
        let write = world.start(1, Request::Write { sector: 64, from, fua: true });
        world.turns(1000);
        assert!(on_disk(&world, 0, 64) == Some(7) && !write.has_ended(), "{world}");
        let_go(&mut world);
        world.turns(1000);
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        assert!(!write.has_ended(), "{world}");
        world.disks.disk(1).writes_hang_in = None;
        world.end(&write).unwrap();
        comes_back_without_the_first(world, &bytes);
    }
}

/// Its own flush of that member went well. Another one has told of a loss before the flush of the other member ended.
#[test]
fn a_flush_waits_for_what_is_behind_where_the_member_that_has_it_goes() {
    for seed in 1..20 {
        let mut world = asked_while_it_writes(seed);
        let bytes = vec![7; 8 * SECTOR];
        let write = start_write(&world, 1, 64, 7);
        world.end(&write).unwrap();
        world.disks.disk(1).flush_hangs_on = Some(1);
        let flush = world.start(1, Request::Flush);
        world.turns(200);
        world.disks.disk(0).next_flush_fails = Some(IoErrorKind::Other);
        world.start(2, Request::Flush);
        world.turns(200);
        world.disks.disk(1).flush_hangs_on = Some(0);
        let_go(&mut world);
        world.turns(1000);
        assert!(!flush.has_ended(), "{world}");
        world.disks.disk(1).flush_hangs_on = None;
        world.turns(1000);
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        assert!(!flush.has_ended(), "{world}");
        world.disks.disk(1).writes_hang_in = None;
        world.end(&flush).unwrap();
        comes_back_without_the_first(world, &bytes);
    }
}

/// The negative controls: without a bitmap, or with nothing allowed, a write waits for all.
#[test]
fn without_a_bitmap_or_a_limit_nothing_is_left_behind() {
    for (seed, shape) in [(1, shape(0)), (2, shape(8).without_bitmap())] {
        let shape = Shape { disks: 2, write_behind: 0, ..shape };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        wait_for_ever(&world);
        world.disks.disk(1).hangs_in = Some(DATA_OFFSET + HUNG.start..DATA_OFFSET + HUNG.end);
        let write = start_write(&world, 0, 64, 7);
        world.rounds(2000);
        assert!(!write.has_ended(), "{world}");
        assert_eq!(world.status().write_behind, None);
        let_go(&mut world);
        world.end(&write).unwrap();
    }
}

/// A durable write that is behind may be a write and a flush, and have met the error that another flush then does not
/// tell of. No bit is cleared past it.
#[test]
fn no_bit_is_cleared_beside_a_durable_write_that_is_behind() {
    for seed in 1..10 {
        let mut world = two_mirrors(seed, 8);
        world.write_random(128, 64);
        let from = Rc::new(vec![7; 8 * SECTOR]);
        world.serve(2, Request::Write { sector: 64, from, fua: true }).unwrap();
        assert_eq!(under_way(&mut world), 1, "{world}");
        world.disks.disk(1).flush_in_vain();
        for _ in 0..20 {
            world.sleep_ms(1000);
            // That of the write behind stays.
            if world.status().bitmap.unwrap().dirty_bits <= 1 {
                break;
            }
        }
        world.power_cut(0..2);
        let_go(&mut world);
        world.assemble_all().unwrap();
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// The controller's flushes wait for what is behind. What a write-mostly member has done is no reason to give it up
/// because another member hangs.
#[test]
fn a_durable_write_that_hangs_on_one_member_holds_up_no_flush_of_a_write_mostly_one() {
    for seed in 1..10 {
        let three = Shape { disks: 3, write_mostly: 0b100, ..shape(8) };
        let mut world = World::synced(Setup::shuffled(three, seed));
        world.write_random(128, 64);
        wait_for_ever(&world);
        world.disks.disk(0).hangs_in = Some(DATA_OFFSET + HUNG.start..DATA_OFFSET + HUNG.end);
        let from = Rc::new(vec![7; 8 * SECTOR]);
        world.start(2, Request::Write { sector: 64, from, fua: true });
        world.rounds(100);
        for _ in 0..70 {
            world.sleep_ms(1000);
        }
        let states = [1, 2].map(|disk| world.member_state(disk));
        assert_eq!(states, [Some(MemberState::InSync); 2], "{world}");
    }
}

#[test]
fn no_more_is_left_behind_than_the_limit() {
    for seed in 1..10 {
        let mut world = two_mirrors(seed, 2);
        for sector in [64, 72] {
            let write = start_write(&world, 0, sector, 7);
            world.end(&write).unwrap();
        }
        let third = start_write(&world, 1, 80, 7);
        world.rounds(2000);
        assert!(!third.has_ended(), "{world}");
        assert_eq!(under_way(&mut world), 2, "{world}");
        let_go(&mut world);
        world.end(&third).unwrap();
        world.wait_clean();
        assert_eq!(world.check(), 0, "{world}");
    }
}

#[test]
fn an_overlapping_write_waits_and_is_the_last_everywhere() {
    for seed in 1..20 {
        let mut world = two_mirrors(seed, 8);
        let one = start_write(&world, 0, 64, 7);
        world.end(&one).unwrap();
        let other = start_write(&world, 1, 68, 9);
        world.rounds(500);
        assert!(!other.has_ended(), "{world}");
        let_go(&mut world);
        world.end(&other).unwrap();
        world.wait_clean();
        assert_eq!([0, 1].map(|disk| on_disk(&world, disk, 68)), [Some(9), Some(9)], "{world}");
        assert_eq!(world.check(), 0, "{world}");
    }
}

#[test]
fn a_read_of_a_write_mostly_member_waits_for_what_is_behind_in_its_range() {
    for seed in 1..20 {
        let mut world = two_mirrors(seed, 8);
        let write = start_write(&world, 0, 64, 7);
        world.end(&write).unwrap();
        world.remember(64, &[7; 8 * SECTOR]);
        // Now only the other one is left, which has not got it yet.
        world.fail(0);
        let elsewhere = world.read(0, 32).unwrap();
        world.compare(0, &elsewhere);
        let into = Rc::new(RefCell::new(vec![0; 8 * SECTOR]));
        let read = world.submit(1, Request::Read { sector: 64, into: into.clone() });
        world.rounds(500);
        assert!(!read.has_ended(), "{world}");
        let_go(&mut world);
        world.end(&read).unwrap();
        assert_eq!(*into.borrow(), [7; 8 * SECTOR], "{world}");
    }
}

/// It was refused, and the controller has not said yet what comes of that. Until then no list keeps lanes from the
/// block that the member had before.
#[test]
fn a_read_waits_until_a_write_behind_that_was_refused_is_judged() {
    for seed in 1..20 {
        let mut world = two_mirrors(seed, 8);
        let_go(&mut world);
        refuse(&world, 0, 72);
        let write = start_write(&world, 0, 72, 5);
        world.end(&write).unwrap();
        world.wait_status("a list, and no bits", |status| {
            let bits = status.bitmap.as_ref().map(|bitmap| bitmap.dirty_bits);
            status.members[0].bad_ranges == 1 && bits == Some(0)
        });
        world.disks.disk(0).write_error = None;
        world.disks.disk(1).hangs_in = Some(DATA_OFFSET + HUNG.start..DATA_OFFSET + HUNG.end);
        let write = start_write(&world, 0, 64, 7);
        world.end(&write).unwrap();
        // The controller waits for the first member, to set a bit.
        world.disks.disk(0).hangs_in = Some(0..DATA_OFFSET);
        let elsewhere = start_write(&world, 0, 128, 9);
        world.turns(500);
        refuse(&world, 1, 64);
        let_go(&mut world);
        world.turns(1000);
        // Only the second has all of this.
        let into = Rc::new(RefCell::new(vec![0; 16 * SECTOR]));
        let read = world.submit(1, Request::Read { sector: 64, into: into.clone() });
        world.turns(1000);
        assert!(!read.has_ended(), "{world}");
        world.disks.disk(0).hangs_in = None;
        world.end(&read).unwrap();
        let has = |sectors: std::ops::Range<usize>, byte: u8| {
            let bytes = &into.borrow()[sectors.start * SECTOR..sectors.end * SECTOR];
            bytes.iter().all(|other| *other == byte)
        };
        assert!(has(0..8, 7) && has(8..16, 5), "{world}");
        world.end(&elsewhere).unwrap();
    }
}

#[test]
fn the_intent_stays_until_the_last_write_behind_has_landed() {
    for seed in 1..20 {
        let mut world = two_mirrors(seed, 8);
        let write = start_write(&world, 0, 64, 7);
        world.end(&write).unwrap();
        world.remember(64, &[7; 8 * SECTOR]);
        world.rounds(3000);
        assert!(world.status().bitmap.unwrap().dirty_bits > 0, "{world}");
        world.crash();
        let_go(&mut world);
        assert_ne!(on_disk(&world, 1, 64), Some(7), "the crash took it ({world})");
        world.assemble_all().unwrap();
        world.verify();
        world.wait_idle();
        assert_eq!(on_disk(&world, 1, 64), Some(7), "resync copied it ({world})");
        assert_eq!(world.check(), 0, "{world}");
    }
}

#[test]
fn a_stop_waits_for_what_is_behind() {
    let mut world = two_mirrors(3, 8);
    let write = start_write(&world, 0, 64, 7);
    world.end(&write).unwrap();
    world.order(Action::Stop);
    world.rounds(2000);
    assert_ne!(on_disk(&world, 1, 64), Some(7));
    let_go(&mut world);
    world.until("the write behind", |world| on_disk(world, 1, 64) == Some(7));
    world.rounds(2000);
    world.forget_array();
    world.assemble_all().unwrap();
    assert_eq!(world.check(), 0, "{world}");
}

#[test]
fn a_write_behind_that_fails_fails_its_member() {
    for seed in 1..10 {
        let mut world = two_mirrors(seed, 8);
        let write = start_write(&world, 0, 64, 7);
        world.end(&write).unwrap();
        world.disks.disk(1).write_error = Some(IoErrorKind::Medium);
        let_go(&mut world);
        world.wait_status("the failure", |status| status.degraded() == 1);
        assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
        world.remember(64, &[7; 8 * SECTOR]);
        world.verify();
    }
}

#[test]
fn without_space_behind_the_copies_are_made_equal_later() {
    for seed in 1..10 {
        let mut world = two_mirrors(seed, 8);
        let write = start_write(&world, 0, 64, 7);
        world.end(&write).unwrap();
        world.remember(64, &[7; 8 * SECTOR]);
        {
            let mut disk = world.disks.disk(1);
            disk.write_error = Some(IoErrorKind::NoSpace);
            disk.error_once = true;
            disk.errors_in = Some(DATA_OFFSET + 64..DATA_OFFSET + 72);
        }
        let_go(&mut world);
        world.wait_status("the resync", |status| {
            status.write_behind.is_some_and(|behind| behind.under_way == 0)
        });
        world.wait_idle();
        world.verify();
        world.until("the copy", |world| on_disk(world, 1, 64) == Some(7));
        assert_eq!(world.status().degraded(), 0, "{world}");
    }
}

#[test]
fn random_writes_lose_nothing_when_some_are_left_behind() {
    for seed in 1..30 {
        let shape = Shape { disks: 3, write_mostly: 0b110, ..shape(3) };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        for _ in 0..4 {
            world.write_many(12);
            world.verify();
        }
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}");
        world.write_many(8);
        world.crash();
        world.assemble_all().unwrap();
        world.verify();
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}");
        world.fail(0);
        world.verify();
    }
}

/// The write-mostly member lacks what was behind: after a crash the other one decides, sector by
/// sector, though it cannot be read everywhere.
#[test]
fn a_resync_takes_all_that_can_be_read_from_the_copy_that_is_believed() {
    for seed in 1..20 {
        let mut world = two_mirrors(seed, 8);
        let write = start_write(&world, 0, 64, 7);
        world.end(&write).unwrap();
        world.crash();
        let_go(&mut world);
        world.disks.disk(0).unreadable.insert(DATA_OFFSET + 71);
        world.assemble_all().unwrap();
        world.wait_idle();
        for disk in 0..2 {
            let start = (DATA_OFFSET + 64) as usize * SECTOR;
            let disk = world.disks.disk(disk);
            assert!(disk.bytes[start..start + 7 * SECTOR].iter().all(|byte| *byte == 7), "{world}");
        }
        assert!(world.disks.disk(0).unreadable.is_empty(), "the other one's word for it ({world})");
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// Nobody has what was answered but a write-mostly member: it must be durable there too.
#[test]
fn a_durable_write_that_only_write_mostly_members_took_survives_a_power_cut() {
    for seed in 1..20 {
        let mut world = two_mirrors(seed, 8);
        let_go(&mut world);
        {
            let mut disk = world.disks.disk(0);
            disk.write_error = Some(IoErrorKind::Gone);
            disk.errors_in = Some(DATA_OFFSET + 64..DATA_OFFSET + 72);
        }
        let bytes = vec![7; 8 * SECTOR];
        world.remember(64, &bytes);
        let write = Request::Write { sector: 64, from: Rc::new(bytes), fua: true };
        world.serve(0, write).unwrap();
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        world.power_cut([1]);
        world.assemble_all().unwrap();
        world.verify();
    }
}

/// No flush waits for what is behind, and so it is flushed there once it has landed.
#[test]
fn what_was_flushed_while_it_was_behind_survives_on_write_mostly_members_once_it_landed() {
    for seed in 1..20 {
        let mut world = two_mirrors(seed, 8);
        let write = start_write(&world, 0, 64, 7);
        world.end(&write).unwrap();
        world.remember(64, &[7; 8 * SECTOR]);
        world.serve(2, Request::Flush).unwrap();
        assert_eq!(under_way(&mut world), 1, "{world}");
        let_go(&mut world);
        world.wait_status("the write behind", |status| {
            status.write_behind.is_some_and(|behind| behind.under_way == 0)
        });
        world.fail(0);
        world.power_cut([1]);
        world.assemble_all().unwrap();
        world.verify();
    }
}

/// No other member has what is behind: the flush waits until it has landed. Else a power cut loses what was flushed.
fn a_flush_waits_without_the_member_that_is_ahead(lose_it: impl Fn(&mut World)) {
    for seed in 1..20 {
        let mut world = two_mirrors(seed, 8);
        let write = start_write(&world, 0, 64, 7);
        world.end(&write).unwrap();
        world.remember(64, &[7; 8 * SECTOR]);
        lose_it(&mut world);
        let flush = world.start(2, Request::Flush);
        world.turns(3000);
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        assert!(!flush.has_ended(), "{world}");
        let_go(&mut world);
        world.end(&flush).unwrap();
        world.power_cut([0, 1]);
        world.assemble_all().unwrap();
        world.verify();
    }
}

#[test]
fn a_flush_that_fails_the_only_member_with_what_is_behind_waits_until_it_has_landed() {
    a_flush_waits_without_the_member_that_is_ahead(|world| {
        world.disks.disk(0).next_flush_fails = Some(IoErrorKind::Flush);
    });
}

#[test]
fn a_flush_where_only_write_mostly_members_are_left_waits_for_what_is_behind() {
    a_flush_waits_without_the_member_that_is_ahead(|world| world.fail(0));
}

/// A write that was answered is behind on the only member that is left, and a flush waits for it.
fn flush_without_the_member_that_is_ahead(seed: u64) -> (World, Pending) {
    let mut world = two_mirrors(seed, 8);
    let write = start_write(&world, 0, 64, 7);
    world.end(&write).unwrap();
    world.fail(0);
    let flush = world.start(2, Request::Flush);
    world.turns(3000);
    assert!(!flush.has_ended(), "{world}");
    (world, flush)
}

/// The member that was ahead is out, and the other one does not take what is behind: nobody has what was answered, and
/// the next flush says so. It is told once, as a device does.
#[test]
fn a_flush_tells_that_what_was_answered_is_on_no_member() {
    for seed in 1..20 {
        let (mut world, flush) = flush_without_the_member_that_is_ahead(seed);
        refuse(&world, 1, 64);
        let_go(&mut world);
        assert_eq!(world.end(&flush), Err(RequestError::Lost), "{world}");
        assert_eq!(world.read(64, 8), Err(RequestError::Lost), "{world}");
        world.disks.disk(1).plug();
        world.serve(1, Request::Flush).unwrap();
        world.write_random(64, 8);
        world.serve(1, Request::Flush).unwrap();
    }
}

/// What a write-mostly member does not take is on the other one: no flush fails for that.
#[test]
fn a_flush_goes_well_where_what_a_member_did_not_take_behind_is_on_another() {
    for seed in 1..10 {
        let mut world = two_mirrors(seed, 8);
        refuse(&world, 1, 64);
        let write = start_write(&world, 0, 64, 7);
        world.end(&write).unwrap();
        let_go(&mut world);
        while under_way(&mut world) > 0 {
            world.turns(10);
        }
        world.serve(2, Request::Flush).unwrap();
        world.remember(64, &[7; 8 * SECTOR]);
        world.verify();
    }
}

/// What never lands is waited for until the array is stopped by force.
#[test]
fn a_stop_by_force_ends_a_flush_that_waits_for_what_is_behind() {
    let (mut world, flush) = flush_without_the_member_that_is_ahead(5);
    world.order(Action::StopByForce);
    assert_eq!(world.end(&flush), Err(RequestError::Stopped), "{world}");
}

/// The device tells of it once, to the flush behind the write.
#[test]
fn a_write_mostly_member_whose_flush_behind_a_write_fails_is_failed() {
    for seed in 1..20 {
        let mut world = two_mirrors(seed, 8);
        let write = start_write(&world, 0, 64, 7);
        world.end(&write).unwrap();
        world.remember(64, &[7; 8 * SECTOR]);
        world.serve(2, Request::Flush).unwrap();
        world.disks.disk(1).next_flush_fails = Some(IoErrorKind::Flush);
        let_go(&mut world);
        world.wait_status("the failure", |status| status.degraded() == 1);
        assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
        world.verify();
    }
}

/// A flush that is answered while pieces of it are written covers them once they have landed.
#[test]
fn what_is_written_in_pieces_behind_the_answer_survives_on_write_mostly_members() {
    for seed in 1..20 {
        let mut world = two_mirrors(seed, 8);
        {
            let mut disk = world.disks.disk(1);
            // The whole is refused, and the second half waits.
            disk.fail_once(IoErrorKind::Medium);
            disk.errors_in = Some(DATA_OFFSET + 64..DATA_OFFSET + 72);
            disk.hangs_in = Some(DATA_OFFSET + 68..DATA_OFFSET + 69);
        }
        let write = start_write(&world, 0, 64, 7);
        world.end(&write).unwrap();
        world.remember(64, &[7; 8 * SECTOR]);
        world.turns(500);
        assert_eq!(world.disks.disk(1).write_error, None, "it was refused ({world})");
        world.serve(2, Request::Flush).unwrap();
        assert_eq!(under_way(&mut world), 1, "{world}");
        let_go(&mut world);
        world.wait_status("the write behind", |status| {
            status.write_behind.is_some_and(|behind| behind.under_way == 0)
        });
        assert_eq!(world.status().members[1].bad_ranges, 0, "{world}");
        world.fail(0);
        world.power_cut([1]);
        world.assemble_all().unwrap();
        world.verify();
    }
}

/// A member that was just filled is in sync in memory first. Should power fail before its superblock says so, it
/// is filled again, from the member that lacks what is behind.
#[test]
fn no_write_is_behind_where_no_superblock_says_yet_that_its_reader_is_filled() {
    for seed in 1..20 {
        let shape = Shape { disks: 2, ..shape(8) };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        wait_for_ever(&world);
        world.fail(0);
        world.write_random(64, 8);
        world.add(2).unwrap();
        let slot_is_given = |world: &World| {
            let superblock = world.disks.superblock(2);
            superblock.is_some_and(|superblock| superblock.recovery_offset_sectors.is_some())
        };
        world.until("a slot", slot_is_given);
        let place = world.disks.superblock(2).expect("a member").superblock_range();
        world.disks.disk(2).hangs_in = Some(place);
        world.turns(5000);
        let data = world.disks.data();
        assert!(world.disks.disk(2).sectors_written(data.clone()) >= data.end - data.start);
        // It has all, and its superblock is on its way.
        world.disks.disk(1).hangs_in = Some(DATA_OFFSET + HUNG.start..DATA_OFFSET + HUNG.end);
        let bytes = vec![7; 8 * SECTOR];
        let from = Rc::new(bytes.clone());
        let write = world.start(0, Request::Write { sector: 64, from, fua: true });
        world.turns(5000);
        if write.has_ended() {
            world.remember(64, &bytes);
        }
        world.power_cut(0..3);
        (1..3).for_each(|disk| world.disks.disk(disk).hangs_in = None);
        world.assemble_all().unwrap();
        if !write.has_ended() {
            world.learn();
        }
        world.verify();
    }
}

/// A lane that has not heard yet that a member is to go leaves no write behind on the others: the order has
/// asked whether any is.
#[test]
fn no_write_is_left_behind_between_the_question_about_a_member_and_its_end() {
    let shape = Shape { disks: 2, ..shape(8) };
    let mut world = World::synced(Setup { lanes: 2, ..Setup::new(shape, 90) });
    wait_for_ever(&world);
    world.write_random(0, 8);
    world.disks.disk(1).hangs_in = Some(DATA_OFFSET + HUNG.start..DATA_OFFSET + HUNG.end);
    // It waits for its bits, and goes on when it has them: before its lane hears of anything else.
    let write = start_write(&world, 1, 64, 7);
    world.turns(1);
    let member = world.disks.id(0);
    world.order(Action::Fail { member, force: false });
    world.turns(6);
    assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
    let answered = write.has_ended();
    world.power_cut(0..2);
    let_go(&mut world);
    world.assemble_all().unwrap();
    let found = world.read(64, 8).unwrap();
    assert!(!answered || found == [7; 8 * SECTOR], "an answered write is lost ({world})");
}

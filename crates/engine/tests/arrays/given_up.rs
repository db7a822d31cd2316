//! Members that work and are given up, by order or for their errors: none goes that holds a block which no
//! other member gives.

use std::ops::Range;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use mdspace_engine::array::{Action, CommandError};
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::{ArrayState, MemberState, SyncAction, SyncEnd};
use mdspace_format::Role;

use crate::shapes::{self, Shape};
use crate::world::{Pending, SECTOR, Setup, World};

const LISTED: Range<u64> = 20..24;

/// Where a member refuses to be filled.
const REFUSED_FROM_END: u64 = 208;

/// A disk that refused a write of some data sectors, and lists them.
fn lists(world: &mut World, disk: usize) {
    let start = world.disks.data().start;
    world.disks.disk(disk).write_error = Some(IoErrorKind::Medium);
    world.disks.disk(disk).errors_in = Some(start + LISTED.start..start + LISTED.end);
    world.write_random(0, world.sectors());
    assert_ne!(world.status().members[disk].bad_ranges, 0, "{world}");
}

/// From now on a disk has no list for what it refuses. Nothing is synced by itself.
fn take_list(world: &mut World, disk: usize) {
    world.stop();
    let mut superblock = world.disks.superblock(disk).unwrap();
    superblock.bad_block_log = None;
    let at = superblock.place.sector as usize * SECTOR;
    world.disks.disk(disk).bytes[at..at + 4096].copy_from_slice(&superblock.encode());
    world.assemble_all().unwrap();
    world.command(Action::Freeze).unwrap();
}

pub(crate) fn fail(world: &mut World, disk: usize, force: bool) -> Result<(), CommandError> {
    let member = world.disks.id(disk);
    world.command(Action::Fail { member, force }).map(drop)
}

#[test]
fn a_member_that_alone_gives_a_block_is_failed_only_by_force() {
    for (seed, shape) in (1..).zip(shapes::of_one_loss()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        lists(&mut world, 1);
        let refused = fail(&mut world, 0, false);
        let holds = matches!(refused, Err(CommandError::HoldsAlone { sectors: 1..=8 }));
        assert!(holds, "{refused:?} ({world})");
        world.verify();
        // What the other lacks is no reason to keep it.
        fail(&mut world, 1, false).unwrap();
        world.verify();
        assert_eq!(fail(&mut world, 0, false), Err(CommandError::Needed));
    }
    let mut world = World::synced(Setup::new(shapes::RAID6, 7));
    lists(&mut world, 1);
    fail(&mut world, 0, false).unwrap();
    let refused = fail(&mut world, 2, false);
    assert!(matches!(refused, Err(CommandError::HoldsAlone { .. })), "{refused:?}");
    fail(&mut world, 2, true).unwrap();
    assert_eq!(world.member_state(2), Some(MemberState::Faulty));
}

/// What it is counted on for nobody has asked for long: only one device has died.
#[test]
fn no_member_is_failed_by_order_where_another_one_turns_out_to_be_gone() {
    for (seed, shape) in (30..).zip(shapes::of_one_loss()) {
        for shape in [shape, shape.without_bitmap()] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.wait_clean();
            world.disks.disk(1).unplug();
            assert_eq!(fail(&mut world, 0, false), Err(CommandError::Needed), "{world}");
            assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
            assert_eq!(world.status().degraded(), 1, "{world}");
            world.verify();
        }
    }
}

/// One adapter has two of them. One is gone, and the other one does not answer the question.
#[test]
fn members_that_are_lost_together_while_another_is_to_be_failed_are_not_on_record_as_out() {
    for (seed, shape) in (34..).zip([shapes::RAID5.without_bitmap(), shapes::RAID5]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_random(0, world.sectors());
        world.disks.disk(1).unplug();
        world.disks.disk(2).hangs_in = Some(0..u64::MAX);
        world.order(Action::Fail { member: world.disks.id(0), force: false });
        world.wait_status("its end", |status| status.state == ArrayState::Broken);
        for disk in [0, 3] {
            let roles = world.disks.superblock(disk).unwrap().roles;
            assert!(!roles.contains(&Role::Faulty), "{roles:?} ({world})");
        }
    }
}

/// It need not answer for that.
#[test]
fn a_member_that_hangs_is_failed_by_order() {
    for (seed, shape) in (270..).zip(shapes::of_one_loss()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_random(0, world.sectors());
        world.disks.disk(1).hangs_in = Some(0..u64::MAX);
        fail(&mut world, 1, false).unwrap_or_else(|error| panic!("{error} ({world})"));
        assert_eq!(world.member_state(1), Some(MemberState::Faulty), "{world}");
        world.verify();
    }
}

/// Another host has the members: nothing is failed by an order, and nothing is out when they are free again.
#[test]
fn an_order_to_fail_a_member_of_a_reserved_array_is_answered() {
    for (seed, shape) in (250..).zip(shapes::of_one_loss()) {
        for force in [false, true] {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.wait_clean();
            world.disks.disk(1).read_error = Some(IoErrorKind::Reserved);
            let answer = fail(&mut world, 0, force);
            assert!(matches!(answer, Err(CommandError::Broken { .. })), "{answer:?} ({world})");
            world.disks.disk(1).read_error = None;
            world.crash();
            world.assemble_all().unwrap();
            assert_eq!(world.status().degraded(), 0, "{world}");
            world.verify();
        }
    }
}

/// It may answer again: then the other one can be spared.
#[test]
fn an_order_to_fail_a_member_names_who_is_late_and_needed_then() {
    for (seed, shape) in (280..).zip(shapes::of_one_loss()) {
        let mut world = World::synced(Setup::shuffled(shape.without_bitmap(), seed));
        world.wait_clean();
        world.disks.disk(1).hangs_in = Some(0..u64::MAX);
        let late = world.disks.info(1).name;
        let refused = fail(&mut world, 0, false);
        assert_eq!(refused, Err(CommandError::NeedsLate { late }), "{world}");
        assert_eq!(world.status().degraded(), 0, "{world}");
        world.disks.disk(1).hangs_in = None;
        fail(&mut world, 0, false).unwrap_or_else(|error| panic!("{error} ({world})"));
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        world.verify();
    }
}

/// Lateness alone fails nobody: a member that counts on it stays.
#[test]
fn no_member_is_failed_that_is_only_late_when_another_one_is_to_be_given_up() {
    for seed in 260..265 {
        let shape = Shape { failfast: 0b1, disks: 2, ..shapes::RAID1 }.without_bitmap();
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("read_policy", "first");
        lists(&mut world, 1);
        world.wait_clean();
        world.disks.disk(1).hangs_in = Some(0..u64::MAX);
        let start = world.disks.data().start;
        world.disks.disk(0).unreadable.insert(start + 100);
        let into = Rc::new(std::cell::RefCell::new(vec![0; 8 * SECTOR]));
        let read = world.start(0, Request::Read { sector: 96, into: into.clone() });
        world.sleep_ms(11_000);
        assert_eq!(world.status().degraded(), 0, "{world}");
        let failed = fail(&mut world, 0, false);
        assert!(failed.is_err(), "{failed:?} ({world})");
        assert_eq!(world.status().degraded(), 0, "{world}");
        world.disks.disk(1).hangs_in = None;
        world.end(&read).unwrap();
        world.compare(96, &into.take());
    }
}

/// One unreadable sector of a mirror whose other half is gone: that sector is lost, and nothing else.
#[test]
fn failing_fast_breaks_no_array_whose_other_member_turns_out_to_be_gone() {
    for seed in 40..50 {
        let shape = Shape { failfast: 0b1, ..shapes::RAID1 };
        let mut world = World::synced(Setup::shuffled(Shape { disks: 2, ..shape }, seed));
        world.set("read_policy", "first");
        world.disks.disk(1).unplug();
        let data = world.disks.data().start;
        world.disks.disk(0).unreadable.insert(data + 3);
        assert!(world.read(0, 8).is_err(), "{world}");
        world.turns(2000);
        assert_eq!(world.status().degraded(), 1, "{world}");
        assert!(world.read(8, 8).is_ok(), "{world}");
    }
}

/// RAID5: after a crash a missing block cannot be computed before resync has been there.
#[test]
fn a_member_of_an_array_in_doubt_is_failed_only_by_force() {
    let mut world = World::synced(Setup::new(shapes::RAID5, 20));
    world.write_many(5);
    world.crash();
    world.assemble_all().unwrap();
    world.command(Action::Freeze).unwrap();
    let doubted = world.status().doubted.sectors;
    assert_ne!(doubted, 0, "{world}");
    let refused = fail(&mut world, 0, false);
    // Of each row in doubt the block of the failed member, unless that is parity.
    let holds = matches!(refused, Err(CommandError::HoldsAlone { sectors }) if sectors <= doubted);
    assert!(holds, "{refused:?} ({world})");
    world.command(Action::Idle).unwrap();
    world.wait_idle();
    fail(&mut world, 0, false).unwrap();
    world.verify();
}

/// A member has refused a write and is asked for pieces of it: nothing tells yet what it lacks. Without another
/// member that cannot be computed, nor what that one holds beside it.
#[test]
fn no_member_is_failed_by_order_while_another_is_asked_for_pieces() {
    for (seed, shape) in (220..).zip([shapes::RAID5, Shape::new(Level::Raid1, 0, 2, 0)]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_random(0, 8);
        world.set("write_deadline", "0");
        let start = world.disks.data().start;
        let holder = disk_of(&mut world, 0);
        let other = if holder == 0 { 1 } else { 0 };
        let refuse = |world: &World| {
            let mut disk = world.disks.disk(holder);
            disk.write_error = Some(IoErrorKind::Medium);
            disk.errors_in = Some(start..start + 8);
        };
        world.disks.disk(holder).error_once = true;
        refuse(&world);
        let bytes = world.random.bytes(8 * SECTOR);
        let from = Rc::new(bytes.clone());
        let write = world.start(0, Request::Write { sector: 0, from, fua: false });
        world.until("a refusal", |world| world.disks.disk(holder).write_error.is_none());
        refuse(&world);
        world.disks.disk(holder).hangs_in = Some(start..start + 8);
        // Its lane hears of that.
        world.turns(20);
        let failed = fail(&mut world, other, false);
        world.disks.disk(holder).hangs_in = None;
        if world.end(&write).is_ok() {
            world.remember(0, &bytes);
        }
        let beside = world.read(8, world.sectors() - 8);
        assert!(beside.is_ok(), "{beside:?} beside, {failed:?} ({world})");
        assert!(matches!(failed, Err(CommandError::HoldsAlone { .. })), "{failed:?} ({world})");
        world.verify();
    }
}

/// The write fails, and its row is in doubt whoever goes: what a third member gives there nothing else does then.
#[test]
fn no_member_is_failed_by_order_where_a_row_will_be_in_doubt_anyway() {
    for seed in 230..240 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID5, seed));
        world.write_random(0, world.sectors());
        world.set("write_deadline", "0");
        let chunk = u64::from(shapes::RAID5.chunk_sectors);
        let data = [0, 1, 2].map(|column| world.disk_of(column * chunk));
        let parity = (0..4).find(|disk| !data.contains(disk)).expect("the fourth one");
        let refusing = [data[0], parity];
        let start = world.disks.data().start;
        let refuse = |world: &World| {
            for disk in refusing {
                let mut disk = world.disks.disk(disk);
                disk.write_error = Some(IoErrorKind::Medium);
                disk.errors_in = Some(start..start + 8);
            }
        };
        for disk in refusing {
            world.disks.disk(disk).error_once = true;
        }
        refuse(&world);
        let from = Rc::new(world.random.bytes(8 * SECTOR));
        let write = world.start(0, Request::Write { sector: 0, from, fua: false });
        world.until("two refusals", |world| {
            refusing.iter().all(|disk| world.disks.disk(*disk).write_error.is_none())
        });
        refuse(&world);
        for disk in refusing {
            world.disks.disk(disk).hangs_in = Some(start..start + 8);
        }
        world.turns(20);
        let failed = fail(&mut world, data[1], false);
        for disk in refusing {
            world.disks.disk(disk).hangs_in = None;
        }
        assert!(world.end(&write).is_err(), "{world}");
        let beside = world.read(8, world.sectors() - 8);
        assert!(beside.is_ok(), "{beside:?} beside, {failed:?} ({world})");
        assert!(matches!(failed, Err(CommandError::HoldsAlone { .. })), "{failed:?} ({world})");
    }
}

/// RAID5 in which a write to the first block is under way on its disk alone, and durable data lie beside it. The write
/// is remembered. Gives the disk, and that of the next block.
fn with_a_write_under_way(
    shape: Shape,
    seed: u64,
    without_list: bool,
) -> (World, [usize; 2], Pending) {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    let chunk = u64::from(shape.chunk_sectors);
    let data = [0, 1, 2].map(|column| world.disk_of(column * chunk));
    if without_list {
        take_list(&mut world, data[1]);
    }
    world.write_random(0, world.sectors());
    world.serve(0, Request::Flush).unwrap();
    for key in ["read_deadline", "write_deadline"] {
        world.set(key, "0");
    }
    let mut disks = 0..usize::from(shape.disks);
    let parity = disks.find(|disk| !data.contains(disk)).expect("one more");
    let start = world.disks.data().start;
    world.disks.reset_counts();
    world.disks.disk(data[0]).writes_hang_in = Some(start..start + 8);
    let bytes = world.random.bytes(8 * SECTOR);
    world.remember(0, &bytes);
    let from = Rc::new(bytes);
    let write = world.start(1, Request::Write { sector: 0, from, fua: false });
    world.until("parity", |world| world.disks.disk(parity).sectors_written(start..start + 8) == 8);
    world.turns(20);
    assert!(!write.has_ended(), "{world}");
    (world, [data[0], data[1]], write)
}

/// A disk refuses the write that it had.
fn refuse_what_hangs(world: &World, disk: usize) {
    let start = world.disks.data().start;
    let mut disk = world.disks.disk(disk);
    disk.write_error = Some(IoErrorKind::Medium);
    disk.errors_in = Some(start..start + 8);
    disk.writes_hang_in = None;
}

/// The disk that has the write may refuse it: then a third one's block can be computed no more, for the row is torn.
#[test]
fn no_member_is_failed_by_order_beside_a_write_that_another_one_has_not_answered() {
    for seed in 290..296 {
        let (mut world, [holder, beside], write) =
            with_a_write_under_way(shapes::RAID5, seed, false);
        let failed = fail(&mut world, beside, false);
        refuse_what_hangs(&world, holder);
        assert_eq!(world.end(&write), Ok(()), "{failed:?} ({world})");
        world.verify();
        assert!(failed == Err(CommandError::IsWritten), "{failed:?} ({world})");
        assert_eq!(world.status().degraded(), 0, "{world}");
    }
}

/// The order is carried out when the write has ended.
#[test]
fn a_member_is_failed_by_order_when_the_writes_that_others_have_are_over() {
    for seed in 300..306 {
        let (mut world, [holder, beside], write) =
            with_a_write_under_way(shapes::RAID5, seed, false);
        let member = world.disks.id(beside);
        world.order(Action::Fail { member, force: false });
        world.turns(200);
        assert_eq!(world.status().degraded(), 0, "{world}");
        // No write begins meanwhile.
        let far = world.sectors() - 8;
        let bytes = world.random.bytes(8 * SECTOR);
        world.remember(far, &bytes);
        let from = Rc::new(bytes);
        let later = world.start(2, Request::Write { sector: far, from, fua: false });
        world.turns(50);
        world.disks.disk(holder).writes_hang_in = None;
        assert_eq!(world.end(&write), Ok(()), "{world}");
        assert_eq!(world.end(&later), Ok(()), "{world}");
        world.rounds(50);
        assert_eq!(world.member_state(beside), Some(MemberState::Faulty), "{world}");
        world.verify();
    }
}

/// What it refuses goes with it: nobody waits for that.
#[test]
fn a_member_that_does_not_answer_a_write_is_failed_by_order() {
    for seed in 310..316 {
        let (mut world, [holder, _], write) = with_a_write_under_way(shapes::RAID5, seed, false);
        fail(&mut world, holder, false).unwrap_or_else(|error| panic!("{error} ({world})"));
        refuse_what_hangs(&world, holder);
        assert_eq!(world.end(&write), Ok(()), "{world}");
        world.verify();
    }
}

/// It is out, and may never answer.
#[test]
fn a_write_that_hangs_on_a_member_that_is_out_keeps_no_other_one_from_being_failed() {
    for seed in 316..320 {
        let (mut world, [holder, beside], write) =
            with_a_write_under_way(shapes::RAID6, seed, false);
        fail(&mut world, holder, false).unwrap_or_else(|error| panic!("{error} ({world})"));
        fail(&mut world, beside, false).unwrap_or_else(|error| panic!("{error} ({world})"));
        refuse_what_hangs(&world, holder);
        assert_eq!(world.end(&write), Ok(()), "{world}");
        world.verify();
    }
}

/// It has one bad sector in another row.
#[test]
fn no_failfast_member_is_given_up_beside_a_write_that_another_one_has_not_answered() {
    for seed in 320..326 {
        let shape = Shape { failfast: 0b10, ..shapes::RAID5 };
        let (mut world, [holder, beside], write) = with_a_write_under_way(shape, seed, false);
        assert_eq!(beside, 1, "{world}");
        let row = u64::from(shape.chunk_sectors) * 2;
        let start = world.disks.data().start + row;
        world.disks.disk(beside).unreadable.extend(start..start + 8);
        let all = world.read(32, world.sectors() - 32).unwrap();
        world.compare(32, &all);
        refuse_what_hangs(&world, holder);
        assert_eq!(world.end(&write), Ok(()), "{world}");
        world.verify();
        assert_ne!(world.status().state, ArrayState::Broken, "{world}");
    }
}

/// It refuses a write in another row, and no list names that. The write is answered when the other one has ended.
#[test]
fn no_member_without_a_list_is_given_up_beside_a_write_that_another_one_has_not_answered() {
    for refuses in [false, true] {
        for seed in 330..336 {
            let (mut world, [holder, beside], write) =
                with_a_write_under_way(shapes::RAID5, seed, true);
            let row = u64::from(shapes::RAID5.chunk_sectors) * 2;
            let start = world.disks.data().start + row;
            world.disks.disk(beside).write_error = Some(IoErrorKind::Medium);
            world.disks.disk(beside).errors_in = Some(start..start + 8);
            let bytes = world.random.bytes(48 * SECTOR);
            let from = Rc::new(bytes.clone());
            let later = world.start(2, Request::Write { sector: 96, from, fua: false });
            world.turns(300);
            match refuses {
                true => refuse_what_hangs(&world, holder),
                false => world.disks.disk(holder).writes_hang_in = None,
            }
            assert_eq!(world.end(&write), Ok(()), "{world}");
            let ended = world.end(&later);
            if !refuses {
                assert_eq!(ended, Ok(()), "{world}");
                assert_eq!(world.member_state(beside), Some(MemberState::Faulty), "{world}");
            }
            match ended {
                Ok(()) => world.remember(96, &bytes),
                Err(_) => {
                    let there = world.read(0, 96).unwrap();
                    world.compare(0, &there);
                    let there = world.read(144, world.sectors() - 144).unwrap();
                    world.compare(144, &there);
                    continue;
                }
            }
            world.verify();
        }
    }
}

/// An order waits for the answer of others, and a write is refused meanwhile: nobody is late, and a block would be lost.
#[test]
fn an_order_that_a_refused_write_overtakes_says_what_would_be_lost() {
    for seed in 340..346 {
        let mut world = World::synced(Setup::shuffled(shapes::of_one_loss()[0], seed));
        world.write_random(0, world.sectors());
        for key in ["read_deadline", "write_deadline"] {
            world.set(key, "0");
        }
        world.disks.disk(1).hangs_in = Some(0..world.disks.data().start);
        let member = world.disks.id(0);
        let answer = Arc::new(Mutex::new(None));
        let told = answer.clone();
        let action = Action::Fail { member, force: false };
        world.order_with(action, move |result| *told.lock().unwrap() = Some(result.map(drop)));
        world.turns(50);
        let start = world.disks.data().start;
        world.disks.disk(1).write_error = Some(IoErrorKind::Medium);
        world.disks.disk(1).errors_in = Some(start..start + 8);
        let bytes = world.random.bytes(8 * SECTOR);
        world.remember(0, &bytes);
        let from = Rc::new(bytes);
        let write = world.start(1, Request::Write { sector: 0, from, fua: false });
        world.turns(100);
        world.disks.disk(1).hangs_in = None;
        assert_eq!(world.end(&write), Ok(()), "{world}");
        world.until("an answer", |_| answer.lock().unwrap().is_some());
        let answer = answer.lock().unwrap().take();
        let holds = matches!(answer, Some(Err(CommandError::HoldsAlone { .. })));
        assert!(holds, "{answer:?} ({world})");
        world.verify();
    }
}

/// What was copied to a replacement no other member gives any more: it is failed only by force.
#[test]
fn a_replacement_that_alone_has_a_block_is_failed_only_by_force() {
    for (seed, shape) in (350..).zip(shapes::of_one_loss()) {
        let shape = Shape { member_sectors: 4096, ..shape };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        lists(&mut world, 0);
        let new = usize::from(shape.disks);
        world.set("sync_max", "2048");
        world.add(new).unwrap();
        world.wait_status("its front", |status| status.sync.completed_sectors >= 2048);
        world.sleep_ms(1000);
        world.fail(1);
        world.remove(1);
        let lost = world.status().lost.sectors;
        assert_ne!(lost, 0, "{world}");
        let failed = fail(&mut world, new, false);
        let holds = matches!(failed, Err(CommandError::HoldsAlone { sectors }) if sectors == lost);
        assert!(holds, "{failed:?}, {lost} lost ({world})");
        world.set("sync_max", "max");
        world.wait_status("a hand-over", |status| {
            status.members.iter().any(|member| member.state == MemberState::Faulty)
        });
        world.verify();
    }
}

/// The disk that holds a sector of the array.
fn disk_of(world: &mut World, sector: u64) -> usize {
    let wanted = world.read(sector, 1).unwrap();
    let start = world.disks.data().start;
    let holds = |disk: &usize| {
        let disk = world.disks.disk(*disk);
        (start..start + 16).any(|at| disk.bytes[at as usize * SECTOR..][..SECTOR] == wanted[..])
    };
    (0..world.disks.count()).find(holds).unwrap()
}

/// RAID6: two parities say the same of a missing block where its row is of one time. A row of which one member had
/// no room for a part is not.
#[test]
fn a_member_of_a_row_that_a_write_left_torn_is_failed_only_by_force() {
    for lost in 1..5 {
        let mut world = World::synced(Setup::new(shapes::RAID6, 200 + lost as u64));
        world.command(Action::Freeze).unwrap();
        world.disks.disk(0).write_error = Some(IoErrorKind::NoSpace);
        world.disks.disk(0).errors_in = Some(world.disks.data());
        for row in 0..5 {
            let bytes = world.random.bytes(8 * SECTOR);
            let _ = world.write(48 * row, bytes);
        }
        world.disks.disk(0).write_error = None;
        world.learn();
        let failed = fail(&mut world, lost, false);
        world.verify();
        assert!(matches!(failed, Err(CommandError::HoldsAlone { .. })), "{failed:?} ({world})");
        world.command(Action::Idle).unwrap();
        world.wait_idle();
        fail(&mut world, lost, false).unwrap();
        world.verify();
    }
}

/// After a crash a mirror is read from one copy, so that what was read once stays. An order changes which
/// one it is only by force.
#[test]
fn the_copy_that_a_mirror_in_doubt_is_read_from_is_failed_only_by_force() {
    for (seed, shape) in (80..).zip([Shape::new(Level::Raid1, 0, 3, 0), shapes::RAID10]) {
        let mut world = World::synced(Setup::new(shape, seed));
        world.write_many(5);
        world.crash();
        world.assemble_all().unwrap();
        world.command(Action::Freeze).unwrap();
        let refused = fail(&mut world, 0, false);
        let sectors = 1..=world.sectors();
        let is_read = matches!(&refused, Err(CommandError::IsRead { sectors: read }) if sectors.contains(read));
        assert!(is_read, "{refused:?} ({world})");
        // The second copy is not read.
        fail(&mut world, 1, false).unwrap();
        world.verify();
        world.command(Action::Idle).unwrap();
        world.wait_idle();
        world.verify();
    }
    let mut world = World::synced(Setup::new(Shape::new(Level::Raid1, 0, 2, 0), 85));
    world.write_many(5);
    world.crash();
    world.assemble_all().unwrap();
    world.command(Action::Freeze).unwrap();
    assert!(matches!(fail(&mut world, 0, false), Err(CommandError::IsRead { .. })));
    fail(&mut world, 0, true).unwrap();
    assert_eq!(world.member_state(0), Some(MemberState::Faulty));
    world.verify();
}

/// Mended errors are no reason to lose what another member lists as bad.
#[test]
fn read_errors_do_not_give_up_a_member_that_alone_gives_a_block() {
    for (listed, state) in [(true, MemberState::InSync), (false, MemberState::Faulty)] {
        for (seed, shape) in (40..).zip(shapes::of_one_loss()) {
            let mut world = World::synced(Setup::new(shape, seed));
            world.write_random(0, world.sectors());
            world.set("max_read_errors", "3");
            if shape.level == Level::Raid1 {
                world.set("read_policy", "first");
            }
            if listed {
                lists(&mut world, 1);
            }
            let start = world.disks.data().start;
            for _ in 0..8 {
                world.disks.disk(0).unreadable.extend(start + 40..start + 64);
                world.verify();
            }
            world.rounds(50);
            let errors = world.status().members[0].corrected_errors;
            assert!(errors > 3, "{errors} ({world})");
            assert_eq!(world.member_state(0), Some(state), "{listed} ({world})");
            world.verify();
        }
    }
}

/// It would fail at its first refused write, if the other did not lack a block.
#[test]
fn failing_fast_does_not_give_up_a_member_that_alone_gives_a_block() {
    for (listed, state) in [(true, MemberState::InSync), (false, MemberState::Faulty)] {
        let shape = Shape { failfast: 0b1, ..Shape::new(Level::Raid1, 0, 2, 0) };
        let mut world = World::synced(Setup::new(shape, 60));
        if listed {
            lists(&mut world, 1);
        }
        let start = world.disks.data().start;
        world.disks.disk(0).write_error = Some(IoErrorKind::Medium);
        world.disks.disk(0).errors_in = Some(start + 40..start + 42);
        world.write_random(40, 2);
        assert_eq!(world.member_state(0), Some(state), "{listed} ({world})");
        world.verify();
    }
}

/// Nothing can name what it refuses. To fail it would lose what another member lacks: the write is an error.
#[test]
fn a_refused_write_that_no_list_names_gives_up_no_member_that_alone_gives_a_block() {
    for (lists_some, state) in [(true, MemberState::InSync), (false, MemberState::Faulty)] {
        for (seed, shape) in (90..).zip(shapes::of_one_loss()) {
            let mut world = World::synced(Setup::shuffled(shape, seed));
            take_list(&mut world, 0);
            if lists_some {
                lists(&mut world, 1);
            }
            let start = world.disks.data().start;
            world.disks.disk(0).write_error = Some(IoErrorKind::Medium);
            world.disks.disk(0).errors_in = Some(start + 40..start + 42);
            let mut failed = Vec::new();
            for sector in 0..world.sectors() {
                let new = world.random.bytes(SECTOR);
                match world.write(sector, new.clone()) {
                    Ok(()) => world.remember(sector, &new),
                    Err(error) => {
                        assert_eq!(error, RequestError::Lost, "{world}");
                        failed.push(sector);
                    }
                }
            }
            assert_eq!(world.member_state(0), Some(state), "{lists_some} ({world})");
            assert_eq!(failed.is_empty(), !lists_some, "{failed:?} ({world})");
            assert!(failed.len() <= 8, "{failed:?} ({world})");
            for sector in (0..world.sectors()).filter(|sector| !failed.contains(sector)) {
                let found = world.read(sector, 1).unwrap_or_else(|e| panic!("{e} ({world})"));
                world.compare(sector, &found);
            }
        }
    }
}

/// What no list names is not resynced: the second copy and parity stay in doubt until they take it.
#[test]
fn what_a_member_refuses_that_is_needed_and_has_no_list_is_not_resynced() {
    for (seed, shape) in (110..).zip(shapes::of_one_loss()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        take_list(&mut world, 1);
        lists(&mut world, 0);
        let start = world.disks.data().start;
        world.disks.disk(1).write_error = Some(IoErrorKind::Medium);
        world.disks.disk(1).errors_in = Some(start + 40..start + 42);
        for sector in 0..world.sectors() {
            let new = world.random.bytes(SECTOR);
            if world.write(sector, new.clone()) == Ok(()) {
                world.remember(sector, &new);
            }
        }
        world.command(Action::Idle).unwrap();
        world.sleep_ms(60_000);
        let sync = world.status().sync;
        let last = (sync.last_action, sync.last_end);
        assert_eq!(last, (SyncAction::Resync, Some(SyncEnd::Incomplete)), "{world}");
        assert_eq!(world.member_state(1), Some(MemberState::InSync), "{world}");
        for disk in [0, 1] {
            world.disks.disk(disk).plug();
        }
        world.write_random(LISTED.start, LISTED.end - LISTED.start);
        world.stop();
        world.assemble_all().unwrap();
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}");
    }
}

/// A member that is half filled alone gives what another one lists. Where it refuses to be filled, and has no
/// list, it is not in sync.
#[test]
fn a_member_without_a_list_that_refuses_what_fills_it_is_not_in_sync() {
    for (seed, shape) in (130..).zip(long_shapes()) {
        let mut world = half_filled(shape, seed);
        world.set("sync_max", "max");
        world.command(Action::Idle).unwrap();
        world.sleep_ms(100_000);
        assert_ne!(world.member_state(1), Some(MemberState::InSync), "{world}");
        world.disks.disk(1).plug();
        world.command(Action::Freeze).unwrap();
        world.command(Action::Idle).unwrap();
        world.wait_idle();
        assert_eq!(world.member_state(1), Some(MemberState::InSync), "{world}");
        assert_eq!(world.check(), 0, "{world}");
        world.verify();
    }
}

/// A user's write meets the same, or finds no space there: it ends, and the member stays.
#[test]
fn a_write_gives_up_no_half_filled_member_that_alone_gives_a_block() {
    for kind in [IoErrorKind::Medium, IoErrorKind::NoSpace] {
        for (seed, shape) in (150..).zip(long_shapes()) {
            let mut world = half_filled(shape, seed);
            world.disks.disk(1).write_error = Some(kind);
            write_row(&mut world, shape);
            assert_ne!(world.member_state(1), Some(MemberState::Faulty), "{kind:?} ({world})");
            world.disks.disk(1).plug();
            write_row(&mut world, shape);
            world.set("sync_max", "max");
            world.command(Action::Idle).unwrap();
            world.wait_idle();
            assert_eq!(world.member_state(1), Some(MemberState::InSync), "{kind:?} ({world})");
            assert_eq!(world.check(), 0, "{world}");
            world.verify();
        }
    }
}

/// Nobody gives a sector that is to be filled. Where no list can name it the member stays, and is not in sync.
#[test]
fn a_half_filled_member_that_cannot_list_what_it_lacks_stays() {
    let [two, _] = long_shapes();
    let mut world = half_filled(two, 170);
    world.disks.disk(1).plug();
    let lost = two.member_sectors - REFUSED_FROM_END;
    {
        let start = world.disks.data().start;
        let mut disk = world.disks.disk(0);
        disk.unreadable.insert(start + lost);
        disk.unreadable_for_good = true;
    }
    world.set("sync_max", "max");
    world.command(Action::Idle).unwrap();
    world.sleep_ms(100_000);
    let state = world.member_state(1);
    assert!(
        !matches!(state, Some(MemberState::Faulty | MemberState::InSync)),
        "{state:?} ({world})"
    );
    world.disks.disk(0).unreadable.clear();
    world.write_random(lost, 1);
    world.command(Action::Freeze).unwrap();
    world.command(Action::Idle).unwrap();
    world.wait_idle();
    assert_eq!(world.member_state(1), Some(MemberState::InSync), "{world}");
    assert_eq!(world.check(), 0, "{world}");
    world.verify();
}

/// What it has no space for is known behind the answer. It alone gives what the other one lists.
#[test]
fn a_write_behind_that_finds_no_space_and_no_list_gives_up_no_member_that_alone_gives_a_block() {
    let shape = Shape { write_behind: 8, write_mostly: 0b10, ..Shape::new(Level::Raid1, 0, 2, 0) };
    let mut world = World::synced(Setup::shuffled(shape, 180));
    take_list(&mut world, 1);
    lists(&mut world, 0);
    let start = world.disks.data().start;
    world.disks.disk(1).write_error = Some(IoErrorKind::NoSpace);
    world.disks.disk(1).errors_in = Some(start + 40..start + 42);
    let new = world.random.bytes(8 * SECTOR);
    assert_eq!(world.write(40, new.clone()), Ok(()), "it is answered early ({world})");
    world.remember(40, &new);
    world.rounds(100);
    assert_eq!(world.member_state(1), Some(MemberState::InSync), "{world}");
    world.disks.disk(1).plug();
    world.command(Action::Idle).unwrap();
    world.wait_idle();
    assert_eq!(world.check(), 0, "{world}");
    world.verify();
}

fn write_row(world: &mut World, shape: Shape) {
    let per_member = world.sectors() / shape.member_sectors;
    let row = shape.member_sectors - REFUSED_FROM_END;
    for sector in per_member * row..per_member * (row + 16) {
        let new = world.random.bytes(SECTOR);
        if world.write(sector, new.clone()) == Ok(()) {
            world.remember(sector, &new);
        }
    }
}

fn long_shapes() -> [Shape; 2] {
    let two = Shape { disks: 2, member_sectors: 32_768, bitmap: false, ..shapes::RAID1 };
    [two, Shape { member_sectors: 16_384, bitmap: false, ..shapes::RAID5 }]
}

/// Disk 1 has no list, is filled up to its middle, and refuses two sectors behind that. Of its first half it
/// alone gives what disk 0 lists.
fn half_filled(shape: Shape, seed: u64) -> World {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    let half = shape.member_sectors / 2;
    world.fail(1);
    world.remove(1);
    world.set("sync_max", &half.to_string());
    world.add(1).unwrap();
    world.wait_status("half of it", |status| status.sync.completed_sectors >= half);
    world.command(Action::Freeze).unwrap();
    take_list(&mut world, 1);
    let filled = world.disks.superblock(1).unwrap().recovery_offset_sectors;
    assert!(filled.is_some_and(|filled| filled > LISTED.end), "{filled:?} ({world})");
    let start = world.disks.data().start;
    world.disks.disk(0).write_error = Some(IoErrorKind::Medium);
    world.disks.disk(0).errors_in = Some(start + LISTED.start..start + LISTED.end);
    let first = world.random.bytes(192 * SECTOR);
    world.write(0, first.clone()).unwrap();
    world.remember(0, &first);
    assert_ne!(world.status().members[0].bad_ranges, 0, "{world}");
    let refused = world.disks.data().end - REFUSED_FROM_END;
    world.disks.disk(1).write_error = Some(IoErrorKind::Medium);
    world.disks.disk(1).errors_in = Some(refused..refused + 2);
    world
}

/// RAID5, of which this disk is filled up to its middle. All that is there is flushed.
fn filled_to_its_middle(
    seed: u64,
    shape: Shape,
    filled: impl Fn(&mut World) -> usize,
) -> (World, usize) {
    let mut world = World::synced(Setup::shuffled(shape, seed));
    let (filled, half) = (filled(&mut world), shape.member_sectors / 2);
    world.fail(filled);
    world.remove(filled);
    world.set("sync_max", &half.to_string());
    world.add(filled).unwrap();
    world.wait_status("half of it", |status| status.sync.completed_sectors >= half);
    world.command(Action::Freeze).unwrap();
    world.sleep_ms(1000);
    world.write_random(0, 96);
    world.serve(0, Request::Flush).unwrap();
    (world, filled)
}

/// It finds no space for one row, and another member refuses a write of another row, where it alone has a block beside
/// that by then.
#[test]
fn no_half_filled_member_is_given_up_beside_a_write_that_is_refused_while_others_are_waited_for() {
    let shape = Shape { member_sectors: 16_384, bitmap: false, ..shapes::RAID5 };
    let chunk = u64::from(shape.chunk_sectors);
    for (seed, turns) in (1040..1060).flat_map(|seed| (0..4).map(move |turns| (seed, turns))) {
        let (mut world, filled) = filled_to_its_middle(seed, shape, |world| world.disk_of(chunk));
        let holder = world.disk_of(0);
        for key in ["read_deadline", "write_deadline"] {
            world.set(key, "0");
        }
        let start = world.disks.data().start;
        world.disks.disk(holder).writes_hang_in = Some(start..start + 8);
        let from = Rc::new(world.random.bytes(8 * SECTOR));
        let write = world.start(1, Request::Write { sector: 0, from, fua: false });
        world.turns(40);
        assert!(!write.has_ended(), "{world}");
        let row = chunk * 4;
        world.disks.disk(filled).write_error = Some(IoErrorKind::NoSpace);
        world.disks.disk(filled).errors_in = Some(start + row..start + row + chunk);
        let per_member = world.sectors() / shape.member_sectors;
        let from = Rc::new(world.random.bytes((per_member * chunk) as usize * SECTOR));
        let sector = per_member * row;
        let other = world.start(2, Request::Write { sector, from, fua: false });
        world.turns(turns);
        refuse_what_hangs(&world, holder);
        let _ = (world.end(&write), world.end(&other));
        world.rounds(50);
        let beside = world.read(chunk, chunk);
        let beside = beside.unwrap_or_else(|error| panic!("{error} ({turns} turns, {world})"));
        world.compare(chunk, &beside);
    }
}

/// RAID6: a crash left a row of which data are new and both parities old. No other block of it can be had without its
/// member, and before a resync has been there nobody knows which rows are so.
#[test]
fn a_member_of_a_raid6_in_doubt_is_failed_only_by_force() {
    for lost in 0..2 {
        let mut world = World::synced(Setup::new(shapes::RAID6, 230));
        let holders = [disk_of(&mut world, 0), disk_of(&mut world, 16)];
        world.write_random(0, 8);
        let new = world.random.bytes(8 * SECTOR);
        let at = world.disks.data().start as usize * SECTOR;
        world.disks.disk(holders[0]).bytes[at..at + new.len()].copy_from_slice(&new);
        world.remember(0, &new);
        world.crash();
        world.assemble_all().unwrap();
        world.command(Action::Freeze).unwrap();
        let failed = fail(&mut world, holders[lost], false);
        world.verify();
        assert!(matches!(failed, Err(CommandError::HoldsAlone { .. })), "{failed:?} ({world})");
        world.command(Action::Idle).unwrap();
        world.wait_idle();
        fail(&mut world, holders[lost], false).unwrap();
        world.verify();
    }
}

/// What was copied and is not durable is taken back when the member goes: until then it is held there alone.
#[test]
fn a_member_whose_copy_would_be_taken_back_is_failed_only_by_force() {
    for seed in 240..244 {
        let shape = Shape { member_sectors: 2048, ..Shape::new(Level::Raid1, 0, 2, 0) };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("sync_max", "1024");
        world.add(2).unwrap();
        let (member, with) = (world.disks.id(0), Some(world.disks.id(2)));
        world.command(Action::Replace { member, with }).unwrap();
        world.wait_status("its front", |status| status.sync.completed_sectors >= 1024);
        world.set("sync_max", "1120");
        world.wait_status("more of it", |status| status.sync.completed_sectors >= 1120);
        let start = world.disks.data().start;
        world.disks.disk(1).write_error = Some(IoErrorKind::Medium);
        world.disks.disk(1).errors_in = Some(start + 1100..start + 1104);
        world.write_random(1096, 16);
        assert_ne!(world.status().members[1].bad_ranges, 0, "{world}");
        let refused = fail(&mut world, 0, false);
        assert!(matches!(refused, Err(CommandError::HoldsAlone { .. })), "{refused:?} ({world})");
        world.verify();
        // Once it is durable the member may go.
        world.set("sync_max", "max");
        world.wait_idle();
        world.verify();
        assert_eq!(world.member_state(2), Some(MemberState::InSync), "{world}");
    }
}

/// RAID6 in which a block found no room on its disk, which is full still, and the disk of the next block has failed:
/// reads give that around the full one. Gives the full disk too, and those that are left.
fn around_a_full_disk(seed: u64) -> (World, usize, Vec<usize>) {
    let shape = shapes::RAID6;
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.command(Action::Freeze).unwrap();
    world.write_random(0, world.sectors());
    let [full, failed] = [0, u64::from(shape.chunk_sectors)].map(|at| disk_of(&mut world, at));
    let data = world.disks.data();
    world.disks.disk(full).errors_in = Some(data);
    world.disks.disk(full).write_error = Some(IoErrorKind::NoSpace);
    assert_eq!(world.write(0, vec![9; 8 * SECTOR]), Err(RequestError::NoSpace), "{world}");
    let there = world.read(0, 8).unwrap();
    world.remember(0, &there);
    fail(&mut world, failed, true).unwrap();
    let left = (0..usize::from(shape.disks)).filter(|disk| ![full, failed].contains(disk));
    (world, full, left.collect())
}

/// RAID6 with one member missing and a row in doubt that reads give without the block which a full disk lacks: they
/// need both parities for that.
#[test]
fn a_member_is_failed_only_by_force_that_gives_a_block_around_one_that_had_no_room() {
    for nth in 0..3 {
        let (mut world, full, left) = around_a_full_disk(250 + nth as u64);
        world.disks.disk(full).write_error = None;
        world.verify();
        let refused = fail(&mut world, left[nth], false);
        world.verify();
        let holds = matches!(refused, Err(CommandError::HoldsAlone { .. }));
        assert!(refused.is_ok() || holds, "{refused:?} ({world})");
    }
}

/// The same where the list of the one that had no room names its block by now.
#[test]
fn a_member_is_failed_only_by_force_that_gives_a_block_around_a_listed_one() {
    for nth in 0..3 {
        let (mut world, full, left) = around_a_full_disk(280 + nth as u64);
        let start = world.disks.data().start;
        world.disks.disk(full).unreadable.extend(start..start + 8);
        world.read(0, 8).ok();
        let sectors = 0..world.sectors();
        let given = |world: &mut World, sector| world.read(sector, 1).ok();
        let before: Vec<_> = sectors.clone().map(|sector| given(&mut world, sector)).collect();
        if fail(&mut world, left[nth], false).is_ok() {
            for (sector, before) in sectors.zip(before) {
                let still = before.is_none() || given(&mut world, sector) == before;
                assert!(still, "sector {sector} is lost with disk {} ({world})", left[nth]);
            }
        }
    }
}

/// A sector of the list that cannot be written is no reason to give up blocks that no other member holds.
#[test]
fn a_member_whose_list_cannot_be_written_stays_where_it_alone_gives_a_block() {
    for seed in 260..264 {
        let shape = Shape::new(Level::Raid1, 0, 2, 0);
        let mut world = World::synced(Setup::shuffled(shape, seed));
        lists(&mut world, 1);
        world.disks.disk(1).write_error = None;
        let log = world.disks.superblock(0).unwrap().bad_block_log_range().unwrap();
        let refused = world.disks.data().start + 40;
        world.disks.disk(0).refuses_every = Some((log.start, refused - log.start));
        let failed = world.write(40, vec![9; SECTOR]);
        assert_eq!(failed, Err(RequestError::Lost), "{world}");
        let there = world.read(40, 1).unwrap();
        world.remember(40, &there);
        assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
        world.verify();
    }
}

/// What cannot be taken off a list stays on it, whatever the reason. The array goes on beside it.
#[test]
fn the_last_member_whose_list_cannot_be_written_goes_on() {
    let mut world = World::synced(Setup::new(Shape::new(Level::Raid1, 0, 2, 0), 270));
    fail(&mut world, 1, false).unwrap();
    world.write_random(0, world.sectors());
    let start = world.disks.data().start;
    world.disks.disk(0).unreadable.insert(start + 20);
    assert_eq!(world.read(20, 1), Err(RequestError::Lost), "{world}");
    assert_ne!(world.status().members[0].bad_ranges, 0, "{world}");
    let log = world.disks.superblock(0).unwrap().bad_block_log_range().unwrap();
    world.disks.disk(0).write_error = Some(IoErrorKind::Medium);
    world.disks.disk(0).errors_in = Some(log);
    world.disks.disk(0).unreadable.clear();
    let result = world.write(20, vec![9; SECTOR]);
    assert_eq!(result, Err(RequestError::Lost), "{world}");
    world.write_random(0, 20);
    assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
}

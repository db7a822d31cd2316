//! Members given up by choice, and lists that get longer, while the end of a write is not known yet: what
//! a choice rests on may be what that write has just changed.

use std::ops::Range;
use std::rc::Rc;

use mdspace_engine::array::{Action, CommandError};
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::{Request, RequestError};
use mdspace_engine::status::MemberState;

use crate::listed::listed;
use crate::shapes::{self, DATA_OFFSET, Shape};
use crate::told::{fill_log, hang_controller};
use crate::world::{Pending, SECTOR, Setup, World};

const MIRROR: Shape = Shape::new(Level::Raid1, 0, 2, 0);

/// A mirror whose first member's list has no room.
fn mirror_with_a_full_log(seed: u64) -> World {
    let shape = Shape { member_sectors: 4096, ..MIRROR };
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.stop();
    fill_log(&mut world, 0);
    world.assemble_all().unwrap();
    world
}

/// Lets a disk refuse writes to some sectors of its data.
fn refuse(world: &World, disk: usize, sectors: Range<u64>) {
    let start = world.disks.data().start;
    let mut disk = world.disks.disk(disk);
    disk.write_error = Some(IoErrorKind::Medium);
    disk.errors_in = Some(start + sectors.start..start + sectors.end);
}

/// A write of one sector.
struct Write {
    sector: u64,
    new: Vec<u8>,
    pending: Pending,
}

fn start_write(world: &mut World, sector: u64) -> Write {
    let new = world.random.bytes(SECTOR);
    let request = Request::Write { sector, from: Rc::new(new.clone()), fua: false };
    Write { sector, new, pending: world.start(0, request) }
}

/// The controller is busy, and hears of the ends of both writes at once. Then all that was acknowledged can
/// be read; where a write failed the old bytes are as good as the new.
fn judge_together(world: &mut World, sectors: [u64; 2]) {
    hang_controller(world);
    let writes = sectors.map(|sector| start_write(world, sector));
    world.turns(2000);
    world.disks.disk(0).hangs_in = None;
    for Write { sector, new, pending } in writes {
        let ended = world.end(&pending);
        let found = world.read(sector, 1);
        let found = found.unwrap_or_else(|error| panic!("sector {sector}: {error} ({world})"));
        assert!(ended.is_err() || found == new, "{ended:?} at {sector} ({world})");
        world.remember(sector, &found);
    }
    world.verify();
}

/// The only copy that took the write stays listed: the log has no room to split the entry.
#[test]
fn no_list_names_the_old_block_where_the_new_one_cannot_be_taken_off_another() {
    for seed in 1..8 {
        let mut world = mirror_with_a_full_log(seed);
        refuse(&world, 1, 41..42);
        let new = world.random.bytes(SECTOR);
        assert_eq!(world.write(41, new), Err(RequestError::Lost), "{world}");
        world.verify();
        world.crash();
        assert_eq!(listed(&world, 1), [], "{world}");
    }
}

/// A member that cannot list what it refused is given up, unless it alone gives a block: also one that
/// another member refused in the same moment.
#[test]
fn no_member_is_given_up_for_a_full_list_that_alone_took_another_write() {
    for seed in 10..18 {
        let mut world = mirror_with_a_full_log(seed);
        refuse(&world, 0, 3100..3101);
        refuse(&world, 1, 3000..3001);
        judge_together(&mut world, [3000, 3100]);
    }
}

/// The same of a block that can be computed from parity no more.
#[test]
fn no_failfast_member_is_given_up_beside_a_block_that_only_parity_took() {
    for seed in 20..28 {
        let shape = Shape { failfast: 0b1, ..shapes::RAID5 };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_random(0, world.sectors());
        // In the second row, and of the second block in the first one.
        refuse(&world, 0, 16..17);
        refuse(&world, 1, 0..1);
        judge_together(&mut world, [64, 16]);
    }
}

/// Two mirrors of which the second is far away.
fn with_a_write_behind(seed: u64) -> World {
    let shape = Shape { write_behind: 8, write_mostly: 0b10, failfast: 0b1, ..MIRROR };
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.wait_clean();
    for key in ["read_deadline", "write_deadline"] {
        world.set(key, "0");
    }
    world.disks.disk(1).hangs_in = Some(DATA_OFFSET + 64..DATA_OFFSET + 72);
    let new = world.random.bytes(8 * SECTOR);
    world.remember(64, &new);
    world.serve(0, Request::Write { sector: 64, from: Rc::new(new), fua: true }).unwrap();
    world
}

#[test]
fn no_failfast_member_is_given_up_that_alone_holds_what_is_behind() {
    for seed in 30..38 {
        let mut world = with_a_write_behind(seed);
        world.disks.disk(0).unreadable.insert(DATA_OFFSET + 8);
        let found = world.read(8, 1).unwrap();
        world.compare(8, &found);
        world.power_cut([1]);
        world.disks.disk(1).hangs_in = None;
        world.assemble_all().unwrap();
        world.verify();
    }
}

#[test]
fn no_member_is_failed_by_order_that_alone_holds_what_is_behind() {
    for seed in 40..48 {
        let mut world = with_a_write_behind(seed);
        let member = world.disks.id(0);
        let failed = world.command(Action::Fail { member, force: false });
        assert!(matches!(failed, Err(CommandError::IsAhead { writes: 1 })), "{failed:?} ({world})");
        assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
    }
}

/// A mirror whose first member has no list, refuses a sector and is ahead of the other one.
fn ahead_without_a_list(seed: u64) -> World {
    let shape = Shape { write_behind: 8, write_mostly: 0b10, member_sectors: 4096, ..MIRROR };
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.stop();
    world.disks.change_superblock(0, |superblock| superblock.bad_block_log = None);
    world.assemble_all().unwrap();
    world.wait_clean();
    world.disks.disk(1).hangs_in = Some(DATA_OFFSET + 3200..DATA_OFFSET + 3208);
    let new = world.random.bytes(8 * SECTOR);
    world.remember(3200, &new);
    world.serve(0, Request::Write { sector: 3200, from: Rc::new(new), fua: true }).unwrap();
    refuse(&world, 0, 3000..3001);
    world
}

/// It has no list for what it refused, and alone holds what is behind. What it does not take the other one has: the
/// level bears its loss once that one has all.
#[test]
fn a_member_without_a_list_is_given_up_when_what_it_is_ahead_with_has_landed() {
    for seed in 50..58 {
        let mut world = ahead_without_a_list(seed);
        world.set("write_deadline", "0");
        let write = start_write(&mut world, 3000);
        // No more is left behind meanwhile, or it would not come to an end.
        let other = start_write(&mut world, 3204);
        world.turns(2000);
        assert!(!write.pending.has_ended() && !other.pending.has_ended(), "{world}");
        assert_eq!(world.member_state(0), Some(MemberState::InSync), "{world}");
        world.disks.disk(1).hangs_in = None;
        for Write { sector, new, pending } in [write, other] {
            world.end(&pending).unwrap();
            world.remember(sector, &new);
        }
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        world.verify();
        world.crash();
        world.assemble_all().unwrap();
        world.verify();
    }
}

/// The other one is failed instead, for it takes nothing: now no member has what was refused.
#[test]
fn a_member_that_is_ahead_stays_when_what_is_behind_never_lands() {
    for seed in 60..68 {
        let mut world = ahead_without_a_list(seed);
        let write = start_write(&mut world, 3000);
        assert_eq!(world.end(&write.pending), Err(RequestError::Lost), "{world}");
        let states = [0, 1].map(|disk| world.member_state(disk));
        assert_eq!(states, [MemberState::InSync, MemberState::Faulty].map(Some), "{world}");
        world.verify();
    }
}

/// Whatever becomes of the write, a stop by force is not kept waiting.
#[test]
fn a_stop_by_force_ends_a_write_that_waits_for_what_is_behind() {
    let mut world = ahead_without_a_list(70);
    world.set("write_deadline", "0");
    let write = start_write(&mut world, 3000);
    world.turns(2000);
    assert!(!write.pending.has_ended(), "{world}");
    world.command(Action::StopByForce).unwrap();
    assert_eq!(world.end(&write.pending), Err(RequestError::Stopped), "{world}");
}

/// Three mirrors, of which the first alone is not write-mostly and the second has no list. A write that was answered
/// by the first alone is held up at the others, and the first fails.
fn answered_by_one_that_fails(seed: u64, error: IoErrorKind) -> (World, Vec<u8>) {
    let shape = Shape { disks: 3, write_behind: 8, write_mostly: 0b110, ..MIRROR };
    let mut world = World::synced(Setup::shuffled(shape, seed));
    world.stop();
    world.disks.change_superblock(1, |superblock| superblock.bad_block_log = None);
    world.assemble_all().unwrap();
    world.write_random(0, world.sectors());
    world.set("write_deadline", "0");
    let place = DATA_OFFSET + 64..DATA_OFFSET + 72;
    (1..3).for_each(|disk| world.disks.disk(disk).hangs_in = Some(place.clone()));
    let new = world.random.bytes(8 * SECTOR);
    world.serve(0, Request::Write { sector: 64, from: Rc::new(new.clone()), fua: false }).unwrap();
    {
        let mut disk = world.disks.disk(1);
        (disk.write_error, disk.errors_in) = (Some(error), Some(place));
    }
    world.disks.disk(0).unplug();
    world.write_random(128, 8);
    assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
    (world, new)
}

/// The third has what the second does not take, so the level bears the loss of that one. The write is not behind any
/// more when it is judged, and does not wait for itself.
#[test]
fn a_write_behind_is_no_reason_to_keep_a_member_that_does_not_take_it() {
    for error in [IoErrorKind::Medium, IoErrorKind::NoSpace] {
        for seed in 80..90 {
            let (mut world, new) = answered_by_one_that_fails(seed, error);
            (1..3).for_each(|disk| world.disks.disk(disk).hangs_in = None);
            world.wait_status("the write behind", |status| {
                status.write_behind.is_none_or(|behind| behind.under_way == 0)
            });
            world.remember(64, &new);
            let states = [0, 1, 2].map(|disk| world.member_state(disk));
            let found = world.read(64, 8).map(|found| found == new);
            assert_eq!(found, Ok(true), "{error:?} {states:?} {world}");
            world.write_random(60, 16);
            world.verify();
        }
    }
}

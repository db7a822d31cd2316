//! Power fails between the superblocks of one update: it has landed on some members and not on others, or in
//! part. Whatever each has, the next assembly believes nobody who lacks what was answered.

use std::ops::Range;

use mdspace_engine::array::Action;
use mdspace_engine::assembly::{Options, Refusal};
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::Request;
use mdspace_engine::status::MemberState;
use mdspace_format::Role;

use crate::shapes::{self, Shape};
use crate::world::{SECTOR, Setup, World};

/// Members and the spare.
const DISKS: usize = 4;

const ALL: u8 = 0xff;

/// What happens, in words, and how.
type Step = (&'static str, fn(&mut World));

/// What happens to an array of three, `disk3` being the spare. Each step makes some updates.
const STORY: [Step; 12] = [
    ("a write", |world| write(world, 0, 8)),
    ("rest", World::wait_clean),
    ("a failure", |world| world.fail(1)),
    ("a write without it", |world| write(world, 4, 16)),
    ("its removal", |world| world.remove(1)),
    ("a rebuild", |world| rebuild_onto(world, 3)),
    ("another write", |world| write(world, 16, 8)),
    ("a replacement", |world| replace(world, 0, 1)),
    ("a write after it", |world| write(world, 0, 8)),
    ("another failure", |world| world.fail(2)),
    ("a write that is missed", |world| write(world, 24, 8)),
    ("a return by the bitmap", |world| come_back(world, 2)),
];

fn write(world: &mut World, sector: u64, sectors: u64) {
    world.write_random(sector, sectors);
    world.serve(0, Request::Flush).unwrap();
}

fn rebuild_onto(world: &mut World, spare: usize) {
    world.add(spare).unwrap();
    world.wait_idle();
}

fn replace(world: &mut World, old: usize, new: usize) {
    world.add(new).unwrap();
    let (member, with) = (world.disks.id(old), Some(world.disks.id(new)));
    world.command(Action::Replace { member, with }).unwrap();
    world.wait_idle();
}

fn come_back(world: &mut World, disk: usize) {
    world.remove(disk);
    world.add_as(disk, true).unwrap();
    world.wait_idle();
}

/// The most events that any disk's superblock counts.
fn events(world: &World) -> u64 {
    let superblocks = (0..DISKS).filter_map(|disk| world.disks.superblock(disk));
    superblocks.map(|superblock| superblock.events).max().expect("a member")
}

/// The world before a step.
fn before(setup: Setup, prepare: fn(&mut World), step: usize) -> World {
    let mut world = World::synced(setup);
    prepare(&mut world);
    world.wait_clean();
    STORY[..step].iter().for_each(|(_, act)| act(&mut world));
    world
}

/// The updates of a step, by their events.
fn updates_of(setup: Setup, prepare: fn(&mut World), step: usize) -> Range<u64> {
    let mut world = before(setup, prepare, step);
    let first = events(&world) + 1;
    STORY[step].1(&mut world);
    first..events(&world) + 1
}

/// Carries out a step, in the middle of which power fails: of the update of so many events each disk gets
/// the sectors that `lands` says. Gives what the array holds if none of the step counts.
fn cut(world: &mut World, act: fn(&mut World), update: u64, lands: [u8; DISKS]) -> Vec<u8> {
    let before = world.model.clone();
    for (disk, lands) in lands.into_iter().enumerate() {
        world.disks.disk(disk).cut_in_update = Some((update, lands));
    }
    // Disks without power answer as ever, and keep nothing.
    act(world);
    world.power_cut(0..world.disks.count());
    before
}

/// Starts what is there; where parity is in doubt, by force.
fn start(world: &mut World, what: &str) {
    let all: Vec<usize> = (0..world.disks.count()).collect();
    let run = Options { run: true, ..Options::default() };
    match world.assemble(&all, &run) {
        Ok(_) => {}
        Err(Refusal::DirtyDegraded) => {
            world.assemble(&all, &Options { force: true, ..run }).map(drop).unwrap();
        }
        Err(other) => panic!("{what}: {other} ({world})"),
    }
}

/// Each sector is as it was before or after the step, and from then on as it was read first.
fn judge(world: &mut World, before: &[u8], what: &str) {
    let found = world.read(0, world.sectors()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let sectors = found.chunks(SECTOR).zip(before.chunks(SECTOR).zip(world.model.chunks(SECTOR)));
    for (sector, (found, (old, new))) in sectors.enumerate() {
        assert!(found == old || found == new, "{what}: sector {sector} is wrong ({world})");
    }
    world.model = found;
    world.wait_idle();
    world.verify();
    if world.status().degraded() > 0 {
        return;
    }
    assert_eq!(world.check(), 0, "{what} ({world})");
    let status = world.status();
    let in_sync = status.members.iter().filter(|member| member.state == MemberState::InSync);
    let disk = |name: &str| name.trim_start_matches("disk").parse::<usize>().unwrap();
    let in_sync: Vec<usize> = in_sync.map(|member| disk(&member.name)).collect();
    in_sync.iter().take(world.shape().can_lose()).for_each(|disk| world.fail(*disk));
    world.verify();
}

fn any_of(choices: &[u8]) -> impl Iterator<Item = [u8; DISKS]> {
    let count = choices.len();
    (0..count.pow(DISKS as u32)).map(move |mut index| {
        std::array::from_fn(|_| {
            let choice = choices[index % count];
            index /= count;
            choice
        })
    })
}

#[test]
fn a_cut_between_any_superblocks_of_an_update_loses_nothing() {
    let shapes = [shapes::RAID1, Shape::new(Level::Raid5, 2, 3, 16)];
    for (seed, shape) in (1..).zip(shapes) {
        let setup = Setup::new(shape, seed);
        for (step, (name, act)) in STORY.into_iter().enumerate() {
            for update in updates_of(setup, |_| (), step) {
                for lands in any_of(&[0, ALL]) {
                    let mut world = before(setup, |_| (), step);
                    let old = cut(&mut world, act, update, lands);
                    let what = format!("{name}, update {update}, {lands:?}");
                    start(&mut world, &what);
                    judge(&mut world, &old, &what);
                }
            }
        }
    }
}

/// After the first cut the array goes on, and power fails in the update that follows, or while those catch up
/// that the first one left behind.
#[test]
fn two_cuts_in_a_row_lose_nothing() {
    for (seed, shape) in (10..).zip([shapes::RAID1, Shape::new(Level::Raid5, 2, 3, 16)]) {
        let setup = Setup::new(shape, seed);
        for (step, (name, act)) in STORY.into_iter().enumerate().take(6) {
            for update in updates_of(setup, |_| (), step).take(2) {
                for lands in any_of(&[0, ALL]).filter(|lands| lands[3] == 0 || step == 5) {
                    let cut_first = || {
                        let mut world = before(setup, |_| (), step);
                        cut(&mut world, act, update, lands);
                        let what = format!("{name}, update {update}, {lands:?}");
                        start(&mut world, &what);
                        (world, what)
                    };
                    let next = events(&cut_first().0);
                    for (second, later) in (next..next + 2)
                        .flat_map(|second| any_of(&[0, ALL]).map(move |later| (second, later)))
                        .filter(|(_, later)| later[3] == 0)
                    {
                        let (mut world, what) = cut_first();
                        let what = format!("{what}, then {second}, {later:?}");
                        world.model = world.read(0, world.sectors()).unwrap();
                        let old = cut(&mut world, |world| write(world, 32, 8), second, later);
                        start(&mut world, &what);
                        judge(&mut world, &old, &what);
                    }
                }
            }
        }
    }
}

/// So many roles that a superblock takes two sectors.
fn with_large_superblocks(world: &mut World) {
    world.stop();
    world.crash();
    for disk in 0..3 {
        world.disks.change_superblock(disk, |superblock| {
            superblock.roles.resize(200, Role::Spare);
        });
    }
    world.assemble_all().unwrap();
}

/// A torn superblock is none: the others do without its member, as long as one has the update or none has.
#[test]
fn a_superblock_of_several_sectors_that_is_torn_leaves_its_member_out() {
    let setup = Setup::new(shapes::RAID1, 20);
    for (step, (name, act)) in STORY.into_iter().enumerate().take(5) {
        for update in updates_of(setup, with_large_superblocks, step) {
            let torn = |lands: &[u8; DISKS]| lands[..3].iter().all(|lands| matches!(lands, 1 | 2));
            for lands in any_of(&[0, 1, 2, ALL]).filter(|lands| lands[3] == 0 && !torn(lands)) {
                let mut world = before(setup, with_large_superblocks, step);
                let old = cut(&mut world, act, update, lands);
                let is_there = |disk: &usize| world.disks.superblock(*disk).is_some();
                let known = (0..3).filter(is_there).filter_map(|disk| world.disks.superblock(disk));
                // Where none of those is left that were at work nothing tells what they did.
                if known
                    .map(|superblock| superblock.events)
                    .max()
                    .is_none_or(|most| most + 1 < update)
                {
                    continue;
                }
                let what = format!("{name}, update {update}, {lands:?}");
                start(&mut world, &what);
                judge(&mut world, &old, &what);
            }
        }
    }
}

/// The new member fails in the very update that was to give it a slot, and power in the next one, which says
/// so. The others are not to be so far apart that some count as out of date; whether it has got that update in
/// the end or not.
#[test]
fn a_cut_after_a_replacement_has_failed_in_the_hand_over_loses_nothing() {
    for (seed, shape) in (30..).zip([shapes::RAID1, Shape::new(Level::Raid5, 2, 3, 16)]) {
        let all = || any_of(&[0, ALL]).filter(|lands| lands[3] == 0);
        for (lands, cut_after) in all().flat_map(|lands| [(lands, 0), (lands, 1)]) {
            for (is_late, is_degraded) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let what = format!("{lands:?} {cut_after} later, {is_late}, {is_degraded}");
                let mut world = World::synced(Setup::shuffled(shape, seed));
                if is_degraded {
                    world.fail(1);
                }
                write(&mut world, 0, 64);
                world.wait_clean();
                fail_in_the_hand_over(&mut world, is_late, |world, hand_over| {
                    for (disk, lands) in lands.into_iter().enumerate().take(3) {
                        world.disks.disk(disk).cut_in_update = Some((hand_over + cut_after, lands));
                    }
                });
                world.power_cut(0..4);
                world.disks.disk(3).plug();
                start(&mut world, &what);
                let before = world.model.clone();
                judge(&mut world, &before, &what);
            }
        }
    }
}

/// Has the spare fail in the update that was to give it the slot of the first disk, the number of which `then`
/// is told. It answers nothing, and has got the update all the same if it is late.
fn fail_in_the_hand_over(world: &mut World, is_late: bool, then: impl FnOnce(&World, u64)) {
    world.command(Action::Freeze).unwrap();
    world.add(3).unwrap();
    let (member, with) = (world.disks.id(0), Some(world.disks.id(3)));
    world.command(Action::Replace { member, with }).unwrap();
    world.order(Action::Idle);
    world.until("all of it", |world| {
        let found = world.disks.superblock(3).unwrap();
        found.recovery_offset_sectors.is_some_and(|done| done >= found.size_sectors)
    });
    let hand_over = events(world) + 1;
    let place = world.disks.superblock(3).unwrap().place.sector;
    let place = Some(place..place + 1);
    {
        let mut new = world.disks.disk(3);
        match is_late {
            true => new.hangs_in = place,
            false => (new.write_error, new.errors_in) = (Some(IoErrorKind::Gone), place),
        }
    }
    then(world, hand_over);
    let name = world.disks.info(3).name;
    world.wait_status("the failure", |status| {
        let new = status.members.iter().find(|member| member.name == name);
        new.is_some_and(|new| new.state == MemberState::Faulty)
    });
    world.disks.disk(3).hangs_in = None;
    world.turns(100);
    let found = world.disks.superblock(3).unwrap().events;
    assert_eq!(found, hand_over - u64::from(!is_late), "({world})");
}

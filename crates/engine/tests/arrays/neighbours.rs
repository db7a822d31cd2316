//! Other arrays that sync on the same devices: one at a time, unless the user wants both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use mdspace_engine::array::Action;
use mdspace_engine::assembly::Options;
use mdspace_engine::neighbours::Neighbours;
use mdspace_engine::status::{MemberState, SyncAction};

use crate::shapes::{self, Shape};
use crate::syncing::leave_doubt;
use crate::world::{Setup, World};

/// Another array on the same devices.
#[derive(Debug, Default)]
struct Other {
    syncs: AtomicBool,
    /// It waits, and syncs in the moment in which it may.
    waits: AtomicBool,
    begun: AtomicU32,
    ended: AtomicU32,
}

impl Other {
    /// How often this array was let begin, and how often it told of its end.
    fn counts(&self) -> [u32; 2] {
        [&self.begun, &self.ended].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Neighbours for Other {
    fn begin(&self, members: &[&str]) -> bool {
        assert!(members.contains(&"disk0"), "{members:?}");
        let goes = !self.syncs.load(Ordering::Relaxed);
        self.begun.fetch_add(u32::from(goes), Ordering::Relaxed);
        goes
    }

    fn end(&self) {
        self.ended.fetch_add(1, Ordering::Relaxed);
        self.syncs.fetch_or(self.waits.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// An array that was just made, beside another one.
fn created_beside(shape: Shape, seed: u64, other: Other) -> (World, Arc<Other>) {
    let other = Arc::new(other);
    let mut world = World::new(Setup::shuffled(shape, seed));
    world.create(|_| true);
    let neighbours: Option<Arc<dyn Neighbours>> = Some(other.clone());
    let options = Options { run: true, neighbours, ..Options::default() };
    let disks: Vec<usize> = (0..usize::from(shape.disks)).collect();
    world.assemble(&disks, &options).unwrap();
    (world, other)
}

/// An array that is to be resynced, beside another that syncs.
fn beside(seed: u64) -> (World, Arc<Other>) {
    created_beside(shapes::RAID6, seed, Other { syncs: true.into(), ..Other::default() })
}

/// An array whose check has come to `sync_max`, beside another that waits for the end of it.
fn checked_beside(shape: Shape, seed: u64) -> (World, Arc<Other>) {
    let (mut world, other) = created_beside(shape, seed, Other::default());
    world.wait_idle();
    world.learn();
    world.set("sync_max", "128");
    world.command(Action::Check).unwrap();
    world.wait_status("a pause", |status| status.sync.completed_sectors == 128);
    other.waits.store(true, Ordering::Relaxed);
    (world, other)
}

fn assert_waits(world: &mut World, action: SyncAction) {
    world.sleep_ms(5000);
    let sync = world.status().sync;
    assert_eq!((sync.action, sync.delayed, sync.completed_sectors), (action, true, 0), "{world}");
}

#[test]
fn a_sync_task_waits_until_the_other_array_has_ended_its_own() {
    let (mut world, other) = beside(1);
    world.learn();
    world.write_many(5);
    assert_waits(&mut world, SyncAction::Resync);
    other.syncs.store(false, Ordering::Relaxed);
    let before = world.now_ms();
    world.wait_idle();
    assert!(world.now_ms() - before < 2000, "{world}");
    assert_eq!(other.counts(), [1, 1], "{world}");
    assert_eq!(world.check(), 0, "{world}");
    assert_eq!(other.counts(), [2, 2], "{world}");
    world.verify();
}

/// The other's check may take hours: doubt, and what gave way to it, are not to wait for that.
#[test]
fn a_task_that_gives_way_to_doubt_lets_no_other_array_in() {
    for (seed, shape) in (10..).zip([shapes::RAID5, shapes::RAID6]) {
        let (mut world, other) = checked_beside(shape, seed);
        leave_doubt(&mut world, 1, 3);
        world.wait_status("a check without doubt", |status| {
            let sync = &status.sync;
            assert!(!sync.delayed, "{sync:?}");
            status.doubted.sectors == 0 && sync.completed_sectors == 128
        });
        // At first, the check, the resync to which it gave way, and the check again.
        assert_eq!(other.counts(), [4, 1], "{world}");
        world.set("sync_max", "max");
        world.wait_idle();
        assert_eq!(other.counts(), [4, 2], "{world}");
        assert!(other.syncs.load(Ordering::Relaxed), "it waits still ({world})");
    }
}

#[test]
fn where_nothing_goes_on_after_a_task_has_given_way_the_other_array_may_sync() {
    for moment in 0..60 {
        let (mut world, other) = checked_beside(shapes::RAID5, 20);
        leave_doubt(&mut world, 1, 3);
        world.rounds(moment);
        world.command(Action::Freeze).unwrap();
        world.wait_status("nothing", |status| status.sync.action == SyncAction::Frozen);
        assert!(other.syncs.load(Ordering::Relaxed), "it waits still ({world}, {moment})");
    }
}

#[test]
fn a_user_may_want_both_at_once() {
    let (mut world, _other) = beside(2);
    assert_waits(&mut world, SyncAction::Resync);
    world.set("sync_force_parallel", "1");
    world.wait_idle();
    assert_eq!(world.status().sync.last_action, SyncAction::Resync, "{world}");
    assert_eq!(world.check(), 0, "{world}");
}

#[test]
fn what_waits_can_be_frozen_and_stopped_and_members_may_fail_meanwhile() {
    let (mut world, _other) = beside(3);
    world.learn();
    // Before the first resync parity is right where something was written.
    world.write_random(0, world.sectors());
    assert_waits(&mut world, SyncAction::Resync);
    world.command(Action::Freeze).unwrap();
    assert!(!world.status().sync.delayed, "{world}");
    world.command(Action::Sync).unwrap();
    assert_waits(&mut world, SyncAction::Resync);
    world.fail(1);
    world.add(5).unwrap();
    world.sleep_ms(5000);
    let status = world.status();
    assert_eq!((status.sync.action, status.sync.delayed), (SyncAction::Recover, true), "{world}");
    assert_eq!(world.member_state(5), Some(MemberState::Recovering), "{world}");
    world.write_many(5);
    world.verify();
    world.stop();
    // The first resync is not through, and a member is missing: as with md, that takes a word.
    world.assemble_with_force().unwrap();
    world.wait_idle();
    world.verify();
    assert_eq!(world.check(), 0, "{world}");
}

/// md's words `resync` and `recover`: what was frozen goes on.
#[test]
fn what_is_needed_can_be_ordered_to_go_on() {
    let mut world = World::created(Setup::shuffled(shapes::RAID1, 4));
    world.command(Action::Freeze).unwrap();
    world.sleep_ms(5000);
    assert_eq!(world.status().sync.action, SyncAction::Frozen, "{world}");
    world.command(Action::Sync).unwrap();
    world.wait_idle();
    assert_eq!(world.status().sync.last_action, SyncAction::Resync, "{world}");
    assert_eq!(world.check(), 0, "{world}");
}

/// Who waits for news is told of what happened and of nothing else, and when the array ends.
#[test]
fn who_waits_for_news_hears_of_a_failure_and_of_the_end() {
    let mut world = World::synced(Setup::new(shapes::RAID6, 5));
    let told = Arc::new(AtomicU32::new(0));
    let wait = |world: &World| {
        let told = told.clone();
        world.order_with(Action::News, move |_| {
            told.fetch_add(1, Ordering::Relaxed);
        });
    };
    let count = || told.load(Ordering::Relaxed);
    wait(&world);
    world.sleep_ms(20_000);
    // Perhaps of the array's first seconds; from then on of nothing, as nothing happens.
    wait(&world);
    let before = count();
    (0..10).for_each(|_| drop(world.status()));
    world.sleep_ms(20_000);
    assert_eq!(count(), before, "nothing happened");
    world.fail(1);
    world.rounds(100);
    assert_eq!(count(), before + 1, "a member failed");
    wait(&world);
    world.rounds(100);
    wait(&world);
    world.stop();
    assert!(count() >= before + 2, "it has ended");
}

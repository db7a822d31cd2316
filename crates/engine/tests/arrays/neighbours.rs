//! Other arrays that sync on the same devices: one at a time, unless the user wants both.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use mdspace_engine::array::Action;
use mdspace_engine::assembly::Options;
use mdspace_engine::neighbours::Neighbours;
use mdspace_engine::status::{MemberState, SyncAction};

use crate::shapes;
use crate::world::{Setup, World};

/// Another array on the same devices.
#[derive(Debug, Default)]
struct Other {
    syncs: AtomicBool,
    begun: AtomicU32,
    ended: AtomicU32,
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
    }
}

/// An array that is to be resynced, beside another that syncs.
fn beside(seed: u64) -> (World, Arc<Other>) {
    let other = Arc::new(Other { syncs: AtomicBool::new(true), ..Other::default() });
    let mut world = World::new(Setup::shuffled(shapes::RAID6, seed));
    world.create(|_| true);
    let neighbours: Option<Arc<dyn Neighbours>> = Some(other.clone());
    let options = Options { run: true, neighbours, ..Options::default() };
    world.assemble(&[0, 1, 2, 3, 4], &options).unwrap();
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
    let counts = || [&other.begun, &other.ended].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(counts(), [1, 1], "{world}");
    assert_eq!(world.check(), 0, "{world}");
    assert_eq!(counts(), [2, 2], "{world}");
    world.verify();
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

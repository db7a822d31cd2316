//! Who is chosen, policy by policy, over members that are given a past.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::*;
use crate::array::view::samples;
use crate::balance::Gauges;
use crate::geometry::Level;
use crate::ranges::Ranges;

const ALL_POLICIES: [ReadPolicy; 4] =
    [ReadPolicy::First, ReadPolicy::Nearest, ReadPolicy::Md, ReadPolicy::Expected];

/// Members of a mirror, changed from plain ones by `change`.
fn view_of(level: Level, layout: u32, disks: u16, change: impl Fn(&mut MemberView)) -> ArrayView {
    samples::view_of(level, layout, disks, |_, mut member| {
        change(&mut member);
        Some(member)
    })
}

fn mirror(change: impl Fn(&mut MemberView)) -> ArrayView {
    view_of(Level::Raid1, 0, 3, change)
}

/// One lane over a view.
struct Lane {
    view: ArrayView,
    gauges: Gauges,
    policy: ReadPolicy,
}

impl Lane {
    fn new(view: ArrayView, policy: ReadPolicy) -> Self {
        let gauges = Gauges::new(1, view.slots.len());
        Self { view, gauges, policy }
    }

    fn chooser(&self) -> Chooser<'_, fn() -> Time> {
        let (view, gauges) = (&self.view, self.gauges.of_lane(0));
        let clock = || Time::from_nanos(1_000_000_000);
        Chooser { view, gauges, policy: self.policy, one_copy: true, clock }
    }

    fn slot(&self, sector: u64, sectors: u64) -> u16 {
        self.chooser().choose(sector, sectors).unwrap().0.slot.0
    }

    /// Begins a read in `slot` that is under way from now on.
    fn load(&self, slot: u16, sector: u64, sectors: u64) -> Started {
        let piece = Piece { slot: Slot(slot), member_sector: sector, sectors };
        let member = self.view.member(piece.slot).unwrap();
        let (gauges, place) = (self.gauges.of_lane(0), usize::from(slot));
        let work = work(&self.view.geometry, gauges.of(place), &piece, member);
        let now = || Time::from_nanos(999_900_000);
        let started = gauges.begin(place, device(member.id), work, sectors * 512, now);
        gauges.of(place).move_head(sector, sectors);
        started
    }

    fn put(&self, slot: u16, sector: u64, sectors: u64) {
        self.load(slot, sector, sectors);
    }

    /// A read in `slot` that has ended, and from which nothing is learnt.
    fn past(&self, slot: u16, sector: u64, sectors: u64) {
        let started = self.load(slot, sector, sectors);
        self.gauges.of_lane(0).end(usize::from(slot), started, false, || Time::ZERO);
    }

    /// Lets reads of 4 KiB in `slot` have taken so long.
    fn learn(&self, slot: u16, nanos: u64) {
        let (gauges, place) = (self.gauges.of_lane(0), usize::from(slot));
        let id = device(self.view.member(Slot(slot)).unwrap().id);
        for _ in 0..64 {
            let began = Time::from_nanos(999_000_000);
            let started = gauges.begin(place, id, Work::of(4096), 4096, || began);
            gauges.end(place, started, true, || Time::from_nanos(999_000_000 + nanos));
        }
    }
}

#[test]
fn where_mirrors_may_differ_every_policy_takes_the_copy_that_resync_believes() {
    for policy in ALL_POLICIES {
        let mut view = mirror(|member| member.write_mostly = member.id.index == 0);
        view.unsynced = Arc::new(Ranges::of(0..8192));
        let lane = Lane::new(view, policy);
        lane.load(1, 0, 512);
        for sector in (0..8192).step_by(512) {
            assert_eq!(believed(&lane.view, sector, 512)[0].slot, Slot(1), "write-mostly is last");
            assert_eq!(lane.slot(sector, 512), 1, "{policy:?}");
        }
    }
}

#[test]
fn write_mostly_members_are_read_only_when_no_other_can_be() {
    for (level, layout) in [(Level::Raid1, 0), (Level::Raid10, 0x103), (Level::Raid10, 0x301)] {
        for policy in ALL_POLICIES {
            let slow = |member: &mut MemberView| member.write_mostly = member.id.index != 2;
            let mut lane = Lane::new(view_of(level, layout, 3, slow), policy);
            (0..20).for_each(|at| lane.put(2, at * 8, 8));
            for sector in (0..lane.view.geometry.array_sectors()).step_by(512) {
                let has_it = copies(&lane.view.geometry, sector, 512);
                let has_it = has_it.iter().any(|piece| piece.slot == Slot(2));
                assert_eq!(lane.slot(sector, 512) == 2, has_it, "{level:?} {policy:?}");
            }
            lane.view.slots[2] = None;
            assert_ne!(lane.slot(0, 512), 2);
        }
    }
}

#[test]
fn equal_members_share_reads_and_the_first_policy_takes_one() {
    for (policy, shares) in [(ReadPolicy::Expected, 3), (ReadPolicy::Md, 3), (ReadPolicy::First, 1)]
    {
        let lane = Lane::new(mirror(|_| {}), policy);
        let mut seen = BTreeSet::new();
        for sector in [0u64, 4000, 2048, 800, 4096, 7000] {
            let slot = lane.slot(sector, 8);
            lane.load(slot, sector, 8);
            seen.insert(slot);
        }
        assert_eq!(seen.len(), shares, "{policy:?}");
    }
}

#[test]
fn md_takes_the_fewest_pending_among_those_without_heads() {
    let disk = |member: &mut MemberView| member.rotational = member.id.index == 0;
    let lane = Lane::new(mirror(disk), ReadPolicy::Md);
    lane.load(1, 100, 8);
    lane.load(1, 200, 8);
    lane.load(2, 300, 8);
    assert_eq!(lane.slot(4000, 8), 2, "0 is idle, but has heads");
    // The policy before knew no pending I/Os: the nearest head it is.
    let before = Lane { policy: ReadPolicy::Nearest, ..lane };
    assert_eq!(before.slot(4000, 8), 2);
    assert_eq!(before.slot(210, 8), 1);
    assert_eq!(before.slot(10, 8), 0);
}

#[test]
fn md_takes_the_nearest_head_where_all_have_heads_and_none_is_idle() {
    let lane = Lane::new(mirror(|member| member.rotational = true), ReadPolicy::Md);
    lane.load(0, 1000, 8);
    lane.load(2, 7000, 8);
    assert_eq!(lane.slot(6900, 8), 1, "one is idle");
    lane.load(1, 3000, 8);
    for (sector, slot) in [(0, 0), (2900, 1), (6900, 2)] {
        assert_eq!(lane.slot(sector, 8), slot);
    }
}

#[test]
fn a_stream_stays_on_its_member_and_without_heads_not_for_ever() {
    for (level, layout) in [(Level::Raid1, 0), (Level::Raid10, 0x103)] {
        for rotational in [false, true] {
            let view = view_of(level, layout, 3, |member| member.rotational = rotational);
            let lane = Lane::new(view, ReadPolicy::Md);
            lane.load(1, 0, 1024);
            assert_eq!(lane.slot(1024, 1), 1, "{level:?}: more is pending there");
            lane.load(1, 1024, 1024);
            let slot = lane.slot(2048, 1);
            assert_eq!(slot == 1, rotational, "{level:?}");
        }
    }
}

#[test]
fn a_disk_in_a_stream_is_expected_to_go_on_with_it_and_to_read_what_is_near() {
    let lane = Lane::new(mirror(|member| member.rotational = true), ReadPolicy::Expected);
    for slot in 0..3 {
        lane.learn(slot, 8_000_000);
    }
    lane.past(1, 6000, 8);
    lane.load(1, 6008, 8);
    assert_eq!(lane.slot(6016, 8), 1, "it goes on, though 0 and 2 are idle");
    for _ in 0..200 {
        lane.load(1, 6016, 8);
    }
    assert_ne!(lane.slot(6024, 8), 1, "with much to read first another one is sooner");
}

#[test]
fn busy_disks_keep_to_the_places_that_they_are_near() {
    let lane = Lane::new(mirror(|member| member.rotational = true), ReadPolicy::Expected);
    for slot in 0..3 {
        lane.learn(slot, 8_000_000);
        (0..8).for_each(|_| lane.put(slot, 2700 * u64::from(slot), 8));
    }
    lane.put(1, 2800, 8);
    for (sector, slot) in [(100, 0), (2600, 1), (5500, 2)] {
        assert_eq!(lane.slot(sector, 8), slot, "one more in the queue is worth the shorter seek");
    }
    (0..8).for_each(|_| lane.put(1, 2800, 8));
    assert_ne!(lane.slot(2600, 8), 1, "twice as many are not");
}

#[test]
fn the_expected_policy_gives_each_the_load_that_it_can_bear() {
    let lane = Lane::new(mirror(|_| {}), ReadPolicy::Expected);
    for (slot, nanos) in [(0, 100_000), (1, 1_000_000), (2, 300_000)] {
        lane.learn(slot, nanos);
    }
    let mut counts = [0; 3];
    for at in 0..43 {
        let slot = lane.slot(at * 64 % 8000, 8);
        lane.load(slot, at * 64 % 8000, 8);
        counts[usize::from(slot)] += 1;
    }
    assert!((27..=32).contains(&counts[0]) && counts[1] <= 4, "{counts:?} of about 30, 3, 10");
}

#[test]
fn large_reads_are_split_while_another_member_would_be_sooner() {
    let lane = Lane::new(mirror(|_| {}), ReadPolicy::Expected);
    assert_eq!(lane.chooser().worth_reading_there(0, 2048), 2048, "nothing is known of members");
    (0..3).for_each(|slot| lane.learn(slot, 100_000));
    assert_eq!(lane.chooser().worth_reading_there(0, 2048), 1024);
    assert_eq!(lane.chooser().worth_reading_there(0, 256), 256, "too short");
    // Under load nobody else is sooner.
    (0..3).for_each(|slot| (0..8).for_each(|at| lane.put(slot, at * 1024, 1024)));
    assert_eq!(lane.chooser().worth_reading_there(0, 2048), 2048);
    let md = Lane { policy: ReadPolicy::Md, ..lane };
    assert_eq!(md.chooser().worth_reading_there(0, 2048), 2048);
}

#[test]
fn unequal_members_and_disks_in_a_stream_are_not_split_between() {
    let lane = Lane::new(mirror(|_| {}), ReadPolicy::Expected);
    for (slot, nanos) in [(0, 100_000), (1, 1_000_000), (2, 1_000_000)] {
        lane.learn(slot, nanos);
    }
    assert_eq!(lane.chooser().worth_reading_there(0, 2048), 2048);
    let lane = Lane::new(mirror(|member| member.rotational = true), ReadPolicy::Expected);
    (0..3).for_each(|slot| lane.learn(slot, 100_000));
    lane.past(1, 4096, 8);
    assert_eq!(lane.chooser().worth_reading_there(4104, 2048), 2048);
}

#[test]
fn the_longest_run_before_a_bad_sector_comes_first() {
    let mut view = mirror(|_| {});
    for (slot, bad) in [(0, 100..101), (1, 40..48), (2, 16..17)] {
        let member = view.slots[slot].as_mut().unwrap();
        member.bad = Arc::new(Ranges::of(bad));
    }
    assert_eq!(longest_readable(&view, 0, 4096), 100);
    assert_eq!(longest_readable(&view, 20, 4096), 4096, "2 is well behind its bad sector");
    view.block_sectors = 8;
    assert_eq!(longest_readable(&view, 0, 4096), 96, "whole blocks only");
    let lane = Lane::new(view, ReadPolicy::Expected);
    assert!(lane.chooser().choose(0, 4096).is_none());
    assert_eq!(lane.slot(0, 96), 0, "only one can read as much");
}

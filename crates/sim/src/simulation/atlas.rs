//! The fault atlas: which disks are hurt, and whether another one may be.
//!
//! A disk counts as hurt from the moment that something is done to it until it is over and the
//! engine has had time to find out. A slot without a member in sync counts too, and after a crash
//! all redundancy is spent until resync is through.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mdspace_engine::status::{ArrayStatus, MemberState, MemberStatus};
use mdspace_engine::time::Time;

use crate::disk::{Disk, DiskIndex};
use crate::settings::Settings;
use crate::world::World;

/// How long after a fault is over the engine may still be busy with it.
const AFTERMATH: Duration = Duration::from_secs(2);

/// How long after a resync found no space the engine may wait before it tries again.
const SECOND_TRY: Duration = Duration::from_secs(60);

/// Where it hurts.
#[derive(Debug)]
pub(super) struct Atlas {
    redundancy: usize,
    slots: usize,
    /// Hurt disks, and since when nothing is wrong with them any more.
    hurt: BTreeMap<DiskIndex, Option<Time>>,
    /// Those of them that the operator took out, with nothing wrong about them.
    set_aside: BTreeSet<DiskIndex>,
    /// Disks that gave the engine a reason to fail them.
    blamed: BTreeSet<DiskIndex>,
    in_sync: Vec<DiskIndex>,
    /// Disks that take a slot over from a member in sync, or may be about to.
    heirs: Vec<DiskIndex>,
    /// A crash left redundancy in doubt, at this time.
    crashed: Option<Time>,
    /// So had an earlier one when it came.
    crashed_in_doubt: bool,
    /// The first resync is through, or nothing needed one.
    agrees: bool,
    /// The first resync is through, or the array was made without one.
    resynced: bool,
    /// When the engine was asked last no write was behind that had a reason to be, and all members in sync were well.
    none_behind: bool,
    /// A member in sync was there then that is not write-mostly.
    any_ahead: bool,
    full: BTreeSet<DiskIndex>,
    last_drained: Time,
}

impl Atlas {
    pub(super) fn new(settings: &Settings) -> Self {
        let in_sync = (0..settings.slots).map(DiskIndex).collect();
        Self {
            redundancy: settings.redundancy(),
            slots: settings.slots.into(),
            hurt: BTreeMap::new(),
            set_aside: BTreeSet::new(),
            blamed: BTreeSet::new(),
            in_sync,
            heirs: Vec::new(),
            crashed: None,
            crashed_in_doubt: false,
            agrees: !settings.noisy_disks,
            resynced: settings.assume_clean,
            none_behind: false,
            any_ahead: true,
            full: BTreeSet::new(),
            last_drained: Time::ZERO,
        }
    }

    /// Whether the array bears it that `disk` is hurt, too.
    pub(super) fn bears(&self, disk: DiskIndex) -> bool {
        let members = self.in_sync.iter().chain(&self.heirs);
        let hurt_in_sync = members.filter(|&&d| d == disk || self.hurt.contains_key(&d));
        let out_of_sync = self.slots - self.in_sync.len();
        let sure = self.crashed.is_none() && self.full.is_empty();
        sure && hurt_in_sync.count() + out_of_sync <= self.redundancy
    }

    /// Whether enough members are left when `disk` leaves an array that is down, with nothing lost that was
    /// answered.
    pub(super) fn bears_to_start_without(&self, disk: DiskIndex) -> bool {
        let hurt_in_sync =
            self.in_sync.iter().filter(|&d| *d == disk || self.hurt.contains_key(d)).count();
        let out_of_sync = self.slots - self.in_sync.len();
        self.full.is_empty() && hurt_in_sync + out_of_sync <= self.redundancy
    }

    /// Whether all members are in sync and none is hurt.
    pub(super) fn is_whole(&self) -> bool {
        self.hurt.is_empty() && self.in_sync.len() == self.slots
    }

    /// Whether all members are in sync, none is hurt, and redundancy agrees with data everywhere.
    pub(super) fn is_sound(&self) -> bool {
        self.is_whole() && self.crashed.is_none() && self.full.is_empty() && self.agrees
    }

    /// Whether the first resync is through, or the array was made without one.
    pub(super) fn is_resynced(&self) -> bool {
        self.resynced
    }

    /// Whether a member in sync may fail: something is wrong about it.
    pub(super) fn any_may_fail(&self) -> bool {
        let may_fail = |disk| self.hurt.contains_key(disk) && !self.set_aside.contains(disk);
        self.in_sync.iter().any(may_fail)
    }

    /// Whether one of these disks is a member in sync with nothing wrong about it.
    pub(super) fn any_is_well(&self, mut disks: impl Iterator<Item = DiskIndex>) -> bool {
        disks.any(|disk| self.in_sync.contains(&disk) && self.is_well(disk))
    }

    /// Whether no write was behind when the engine was asked last, and all members in sync were well.
    pub(super) fn none_behind(&self) -> bool {
        self.none_behind
    }

    /// Whether the engine has a reason to fail `disk`.
    pub(super) fn is_blamed(&self, disk: DiskIndex) -> bool {
        self.blamed.contains(&disk)
    }

    /// Something was done to `disk`.
    pub(super) fn hurt(&mut self, disk: DiskIndex) {
        self.hurt.insert(disk, None);
        self.set_aside.remove(&disk);
        self.blamed.insert(disk);
        self.none_behind = false;
    }

    /// The operator takes `disk` out, with nothing wrong about it. A crash leaves it out or in, and it works.
    pub(super) fn set_aside(&mut self, disk: DiskIndex) {
        let is_alone = !self.hurt.contains_key(&disk) || self.set_aside.contains(&disk);
        self.hurt(disk);
        self.set_aside.extend(is_alone.then_some(disk));
    }

    /// Whether `disk` was a member in sync when the engine was asked last.
    pub(super) fn is_in_sync(&self, disk: DiskIndex) -> bool {
        self.in_sync.contains(&disk)
    }

    /// Whether nothing is wrong with `disk`.
    pub(super) fn is_well(&self, disk: DiskIndex) -> bool {
        !self.hurt.contains_key(&disk) && !self.full.contains(&disk)
    }

    /// Whether nothing is wrong with the disk of this name.
    pub(super) fn is_well_named(&self, name: &str) -> bool {
        self.is_well(disk_named(name))
    }

    /// `old` is to be replaced by `new`: it is faulty then, with nothing wrong about it.
    pub(super) fn replace(&mut self, old: DiskIndex, new: DiskIndex) {
        self.blamed.insert(old);
        self.heirs.push(new);
    }

    /// `disk` goes back into the array, mended.
    pub(super) fn forgive(&mut self, disk: DiskIndex) {
        self.blamed.remove(&disk);
    }

    /// `disk` left the machine for good. Its slot counts until another member is in sync there.
    pub(super) fn unplugged(&mut self, disk: DiskIndex) {
        self.hurt.remove(&disk);
        self.full.remove(&disk);
        self.in_sync.retain(|&other| other != disk);
    }

    /// There is no space behind `disk`. That fails a member which is only being filled, and one that was
    /// left behind and has no room to say so.
    pub(super) fn fill(&mut self, disk: DiskIndex, left_behind: bool) {
        self.full.insert(disk);
        if left_behind || !self.in_sync.contains(&disk) {
            self.blamed.insert(disk);
        }
    }

    /// There is space again.
    pub(super) fn drained(&mut self, disk: DiskIndex, now: Time) {
        if self.full.remove(&disk) {
            self.last_drained = now;
            self.crashed = Some(now + SECOND_TRY);
        }
    }

    /// Whether a request that began then and ends now may have met a full disk.
    pub(super) fn any_was_full(&self, since: Time, now: Time) -> bool {
        let recently = now < self.last_drained + AFTERMATH || since < self.last_drained;
        !self.full.is_empty() || (self.last_drained > Time::ZERO && recently)
    }

    /// The array went down without being marked clean.
    pub(super) fn crash(&mut self, now: Time) {
        self.crashed_in_doubt = self.crashed.is_some();
        self.crashed = Some(now);
    }

    /// Whether redundancy was in doubt already when the array went down without being marked clean.
    pub(super) fn crashed_in_doubt(&self) -> bool {
        self.crashed_in_doubt
    }

    /// Takes what the engine said when it was asked at `asked`. While it `stops` no sync task runs, though there may be
    /// work for one.
    pub(super) fn learn(&mut self, world: &World, asked: Time, stops: bool, status: &ArrayStatus) {
        self.in_sync = with_state(status, MemberState::InSync);
        let wants = status.members.iter().any(|member| member.want_replacement);
        let is_heir = |member: &&MemberStatus| {
            member.replacement || wants && member.state == MemberState::Spare
        };
        let heirs = status.members.iter().filter(is_heir);
        self.heirs = heirs.map(|member| disk_named(&member.name)).collect();
        // What its log lists it lacks, though nothing may be wrong with the disk any more.
        let lists = |member: &&MemberStatus| member.slot.is_some() && member.bad_ranges > 0;
        let listing = status.members.iter().filter(lists).map(|member| disk_named(&member.name));
        let listing: BTreeSet<DiskIndex> = listing.collect();
        for &disk in &listing {
            self.hurt.entry(disk).or_insert(None);
            self.set_aside.remove(&disk);
        }
        // A lane tells of one member's error when all members of the write have answered.
        let is_silent = |disk: &DiskIndex| {
            let is_hung = |disk: &Disk| disk.faults.gone || disk.faults.hang.is_some();
            world.disk(*disk, is_hung) || world.is_misled(*disk)
        };
        let any_is_silent = self.hurt.keys().any(is_silent);
        self.hurt.retain(|disk, over_since| {
            let is_faulty =
                world.disk(*disk, |disk| disk.faults.any()) || world.is_to_be_fenced(*disk);
            if any_is_silent || is_faulty || listing.contains(disk) {
                *over_since = None;
                return true;
            }
            let over_since = *over_since.get_or_insert(world.now());
            asked < over_since + AFTERMATH
        });
        let is_behind = status.write_behind.is_some_and(|behind| behind.under_way > 0);
        let is_ahead =
            |member: &MemberStatus| member.state == MemberState::InSync && !member.write_mostly;
        let was_ahead = std::mem::replace(&mut self.any_ahead, status.members.iter().any(is_ahead));
        // Where every member in sync is write-mostly, no write may be answered early: none came to be behind since.
        let stays_so = self.none_behind && !was_ahead && !self.any_ahead;
        let all_are_well = self.in_sync.iter().all(|disk| self.is_well(*disk));
        self.none_behind = all_are_well && (stays_so || !is_behind);
        self.set_aside.retain(|disk| self.hurt.contains_key(disk));
        let resynced = !stops && !status.sync.action.runs();
        self.crashed = self.crashed.filter(|at| asked < *at + AFTERMATH || !resynced);
        let over = resynced && asked > Time::ZERO + AFTERMATH && self.is_whole();
        self.agrees |= over;
        self.resynced |= over;
    }
}

/// The disks whose members are in `state`.
pub(super) fn with_state(status: &ArrayStatus, state: MemberState) -> Vec<DiskIndex> {
    let members = status.members.iter().filter(|member| member.state == state);
    members.map(|member| disk_named(&member.name)).collect()
}

fn disk_named(name: &str) -> DiskIndex {
    let index = name.strip_prefix('d').and_then(|digits| digits.parse().ok());
    DiskIndex(index.expect("the world names disks d0, d1 and so on"))
}

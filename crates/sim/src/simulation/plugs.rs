//! What an operator does with disks while the array is down: unplugs one, brings one back, runs some of them
//! elsewhere. And what other programs did to the array before it came up here.

use std::collections::BTreeMap;
use std::rc::Rc;

use mdspace_engine::array::Action;
use mdspace_engine::request::Request;

use crate::disk::DiskIndex;
use crate::lent::LentSource;
use crate::oracle::{RawSuperblock, bitmap_of};
use crate::process::Process;
use crate::settings::Happening;
use crate::stamp::{SECTOR_BYTES, Version};

use super::restart::Before;
use super::{Shelved, Simulation};

/// What is to happen when the array is down next, and disks that are away.
#[derive(Debug, Default)]
pub(super) struct Plugs {
    /// A member leaves: this one, or any.
    pub(super) unplug: Option<Option<DiskIndex>>,
    /// One that left comes back.
    pub(super) plug_back: Option<Back>,
    /// The one that is back, until the array has started.
    back: Option<DiskIndex>,
    /// Some copies run elsewhere.
    pub(super) part_away: bool,
    /// The bitmaps become what they were at the last start.
    pub(super) forget_bitmaps: bool,
    /// Disks that ran elsewhere, until they are members again.
    away: Vec<DiskIndex>,
    /// What the members and their bitmaps were when the array started last.
    bitmaps: BTreeMap<DiskIndex, KeptBitmap>,
}

/// How a disk comes back that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Back {
    /// The one that came for it leaves.
    Instead,
    /// That one stays.
    Beside,
}

/// The bitmap of a member in sync.
#[derive(Debug)]
struct KeptBitmap {
    events: u64,
    slot: usize,
    sector: u64,
    bytes: Vec<u8>,
}

impl Plugs {
    /// Another disk has taken its place.
    pub(super) fn stays_away(&mut self, disk: DiskIndex) {
        self.away.retain(|&other| other != disk);
    }

    /// Disks that ran elsewhere. No assembly gets them.
    pub(super) fn away(&self) -> &[DiskIndex] {
        &self.away
    }
}

/// The first version that users elsewhere write: none here comes as far.
const ELSEWHERE: u64 = 1 << 40;

impl Simulation {
    /// Moves disks while the array is down. Gives those that left for good.
    pub(super) fn move_disks(&mut self, before: Before) -> Vec<DiskIndex> {
        if self.settings.redundancy() == 0 {
            return Vec::new();
        }
        if std::mem::take(&mut self.plugs.part_away) {
            self.run_elsewhere(before);
        }
        if let Some(back) = self.plugs.plug_back.take() {
            self.plug_back(back, before);
        }
        match self.plugs.unplug.take() {
            Some(wanted) => self.unplug(wanted, before).into_iter().collect(),
            None => Vec::new(),
        }
    }

    /// A member, or a spare, leaves the machine.
    fn unplug(&mut self, wanted: Option<DiskIndex>, before: Before) -> Option<DiskIndex> {
        let here: Vec<DiskIndex> =
            self.disks.iter().copied().filter(|&disk| self.superblock(disk).is_some()).collect();
        let is_spare =
            |disk: &&DiskIndex| self.superblock(**disk).is_some_and(|sb| sb.own_role().is_none());
        let spare = here.iter().find(is_spare).copied();
        let any = spare.unwrap_or(*self.random.pick(&here));
        let disk = wanted.filter(|disk| here.contains(disk)).unwrap_or(any);
        if !self.may_leave(disk, before) {
            return None;
        }
        self.world.note(format_args!("-- {disk} is unplugged"));
        self.leave(disk);
        Some(disk)
    }

    /// Whether the array is what it was without a disk, while it is down.
    fn may_leave(&self, disk: DiskIndex, before: Before) -> bool {
        let holds_slot = self.superblock(disk).is_some_and(|sb| sb.own_role().is_some());
        if !holds_slot {
            return true;
        }
        let others: Vec<DiskIndex> = self.disks.iter().copied().filter(|&d| d != disk).collect();
        // Of what only it has on record it may be the only one: the others are out.
        let is_newest = self.newest_events() > self.newest_events_of(&others);
        let is_ahead_alone = is_newest && !self.counts_on(disk, &others);
        let agree = |disk: &DiskIndex| {
            self.superblock(*disk).is_none_or(|superblock| superblock.agrees_to == u64::MAX)
        };
        let is_replaced = match before {
            // A stop does not end the doubt of a crash, or of a write that failed.
            Before::Stop => others.iter().all(agree),
            // What was read of one copy in doubt may be another one's without it. Of one that is being filled nothing
            // is read there.
            Before::Crash => {
                let was_read = self.atlas.crashed_in_doubt() && self.atlas.is_in_sync(disk);
                !self.is_dense() && !was_read
            }
        };
        !is_ahead_alone && is_replaced && self.atlas.bears_to_start_without(disk)
    }

    /// Whether a disk that alone got an update has all others in their slots: it has only begun, and nothing was written
    /// under it.
    pub(super) fn counts_on(&self, disk: DiskIndex, others: &[DiskIndex]) -> bool {
        let Some(own) = self.superblock(disk) else { return false };
        let mut others = others.iter().filter_map(|&other| self.superblock(other));
        others.all(|other| {
            other.events < own.events && own.role_of(other.dev_number) == other.own_role()
        })
    }

    fn leave(&mut self, disk: DiskIndex) {
        self.disks.retain(|&other| other != disk);
        self.atlas.unplugged(disk);
    }

    /// A new disk takes the place of one that left, now that the array is up.
    pub(super) fn add_new_for(&mut self, disk: DiskIndex) {
        let new = self.buy(disk);
        self.world.note(format_args!("-- {new} comes for {disk}"));
        self.disks.push(new);
        self.shelf.push(Shelved { disk, successor: new });
        self.add(new);
    }

    /// A disk that left is back, in the place of the one that came for it, or beside that.
    fn plug_back(&mut self, back: Back, before: Before) {
        let is_known = |old: &Shelved| {
            self.disks.contains(&old.successor) && self.superblock(old.disk).is_some()
        };
        let Some(at) = self.shelf.iter().rposition(is_known) else { return };
        let Shelved { disk, successor } = self.shelf[at];
        if back == Back::Instead && !self.may_leave(successor, before) {
            return;
        }
        self.shelf.remove(at);
        self.world.note(format_args!("-- {disk} is back as it was"));
        if back == Back::Instead {
            self.world.note(format_args!("-- {successor} is unplugged"));
            self.leave(successor);
            self.shelf.push(Shelved { disk: successor, successor: disk });
        }
        self.disks.push(disk);
        self.plugs.back = Some(disk);
    }

    /// The operator adds a disk that is back at once, if the array was started without it; or later.
    pub(super) fn add_what_is_back(&mut self) {
        let Some(disk) = self.plugs.back.take() else { return };
        if self.process().left_out(disk) && !self.random.one_in(4) {
            self.put_back(disk);
        }
    }

    pub(super) fn superblock(&self, disk: DiskIndex) -> Option<RawSuperblock> {
        self.world.disk(disk, RawSuperblock::find)
    }

    /// Some copies of a mirror run elsewhere, and are written to. What happens there is nothing to the array here.
    fn run_elsewhere(&mut self, before: Before) {
        let pairs = self.settings.level == 10
            && self.settings.layout == 0x102
            && self.settings.slots.is_multiple_of(2);
        let apart = self.settings.level == 1 || pairs;
        if before == Before::Crash || !apart || !self.atlas.is_sound() {
            return;
        }
        let going = self.half(pairs);
        if going.is_empty() || going.iter().any(|&disk| !self.may_leave(disk, before)) {
            return;
        }
        self.world.note(format_args!("-- {going:?} run elsewhere"));
        if self.write_elsewhere(&going) {
            going.iter().for_each(|&disk| self.leave(disk));
            self.plugs.away.extend(going);
        }
    }

    /// Some of the copies of every block; not all of any.
    fn half(&mut self, pairs: bool) -> Vec<DiskIndex> {
        let mut holders: Vec<(usize, DiskIndex)> = Vec::new();
        for &disk in &self.disks {
            holders.extend(self.superblock(disk).and_then(|sb| Some((sb.own_role()?, disk))));
        }
        holders.sort();
        let random = &mut self.random;
        if !pairs {
            random.shuffle(&mut holders);
            let count = random.within(1..holders.len().max(2) as u64) as usize;
            return holders.iter().take(count).map(|(_, disk)| *disk).collect();
        }
        holders.chunks(2).map(|pair| random.pick(pair).1).collect()
    }

    /// Whether the array ran there.
    fn write_elsewhere(&mut self, disks: &[DiskIndex]) -> bool {
        let elsewhere = self.world.copy(self.random.fork());
        let options = self.settings.options();
        let Ok(process) = Process::start(&elsewhere, disks, 1, 0, (&options, &[]), 0) else {
            return false;
        };
        let block = self.settings.block_sectors();
        let count = self.random.within(4..20);
        for tag in 0..count {
            let sector = self.random.below(self.model.len() / block) * block;
            let from = Rc::new(LentSource::new(sector, block, Version(ELSEWHERE + tag)));
            process.submit(0, tag, Request::Write { sector, from, fua: false });
        }
        let mut answered = 0;
        let done = elsewhere.run_until(|| {
            while process.pop().is_some() {
                answered += 1;
            }
            answered == count
        });
        let stop = process.command(Action::Stop);
        let mut stopped = false;
        elsewhere.run_until(|| {
            stopped |= stop.take().is_some();
            stopped
        });
        let stopped = done && stopped;
        drop(process);
        elsewhere.kill();
        for &disk in disks.iter().filter(|_| stopped) {
            let mut bytes =
                elsewhere.disk(disk, |disk| vec![0; disk.spec.sectors as usize * SECTOR_BYTES]);
            elsewhere.disk(disk, |disk| disk.store.read(0, &mut bytes));
            self.world.change_disk(disk, |disk| disk.store.overwrite(0, &bytes));
        }
        stopped
    }

    /// A disk that ran elsewhere is a member again.
    pub(super) fn came_home(&mut self, disk: DiskIndex) {
        if self.plugs.away.contains(&disk) {
            self.plugs.away.retain(|&other| other != disk);
            self.disks.push(disk);
        }
    }

    /// Keeps the bitmaps of an array that has just started, where they are to be forgotten.
    pub(super) fn keep_bitmaps(&mut self) {
        let forgets = Some(Happening::ForgetBitmaps);
        if self.settings.aims.iter().all(|aim| aim.happening != forgets) {
            return;
        }
        let kept = self.disks.iter().filter_map(|&disk| {
            let superblock = self.superblock(disk)?;
            let slot = in_sync_at(&superblock)?;
            let (sector, bytes) = self.world.disk(disk, |disk| bitmap_of(disk, &superblock))?;
            Some((disk, KeptBitmap { events: superblock.events, slot, sector, bytes }))
        });
        self.plugs.bitmaps = kept.collect();
    }

    /// A crash ends what a program did that left the bitmaps as they were. Its superblocks say that they are old. It
    /// had the members that the array started with.
    pub(super) fn restore_bitmaps(&mut self) {
        if !std::mem::take(&mut self.plugs.forget_bitmaps) || !self.atlas.is_whole() {
            return;
        }
        let kept = std::mem::take(&mut self.plugs.bitmaps);
        let is_as_it_was = |disk: &DiskIndex| match self.superblock(*disk) {
            Some(superblock) if superblock.own_role().is_some() => {
                kept.get(disk).is_some_and(|kept| in_sync_at(&superblock) == Some(kept.slot))
            }
            _ => true,
        };
        let newest = kept.values().map(|kept| kept.events).max().unwrap_or(0);
        if !self.disks.iter().all(is_as_it_was) || self.newest_events() <= newest {
            return;
        }
        self.world.note(format_args!("-- the bitmaps are what they were at the last start"));
        for (disk, KeptBitmap { sector, bytes, .. }) in kept {
            self.world.change_disk(disk, |disk| disk.store.overwrite(sector, &bytes));
        }
    }
}

/// The slot of a member in sync.
fn in_sync_at(superblock: &RawSuperblock) -> Option<usize> {
    superblock.own_role().filter(|_| superblock.recovered_to.is_none() && !superblock.replaces)
}

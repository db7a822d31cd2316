//! The array goes down, cleanly or not, and comes up again.

use crate::disk::DiskIndex;
use crate::oracle::{RawSuperblock, Remains, Wrong};
use crate::process::Process;

use super::{Failure, Simulation};

/// One stop in so many is followed by the loss of each member, on copies.
pub(super) const COPIES_ONE_IN: u64 = 4;

/// How the array went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// In order.
    Stop,
    /// With whatever was under way.
    Crash,
}

impl Simulation {
    /// Stops the array with requests under way or after the last, and starts it again.
    pub(super) fn restart(&mut self) -> Result<(), Failure> {
        self.shut_down()?;
        if self.random.one_in(COPIES_ONE_IN) {
            self.lose_each_on_a_copy()?;
        }
        self.come_up(Before::Stop)
    }

    /// Stops the array. What is on the disks then says so.
    pub(super) fn shut_down(&mut self) -> Result<(), Failure> {
        self.world.note(format_args!("-- stop"));
        if self.random.coin() {
            self.drain()?;
        }
        self.pending.may_stop = true;
        self.stop()?;
        self.drain()?;
        self.pending.may_stop = false;
        self.go_down();
        match self.hides_a_failed_flush() {
            true => {
                self.leave_half_done(true);
                self.world.cut_power();
                self.model.cut_power();
            }
            false => self.model.kill(),
        }
        self.judge_what_is_left()
    }

    /// Kills the process and starts another.
    pub(super) fn kill(&mut self) -> Result<(), Failure> {
        if self.hides_a_failed_flush() {
            return self.cut_power();
        }
        self.leave_half_done(false);
        self.world.kill();
        self.model.kill();
        self.crashed();
        self.judge_what_is_left()?;
        self.come_up(Before::Crash)?;
        self.begin_with_a_rest()
    }

    /// Whether a disk may lose what the next process reads there. A flush failed, and its error was told once, to
    /// a process that ends before it is on record: then the power goes with it.
    fn hides_a_failed_flush(&self) -> bool {
        let any_doomed = |disk: &DiskIndex| self.world.disk(*disk, |disk| disk.store.any_doomed());
        !self.bearable() && self.disks.iter().any(any_doomed)
    }

    /// Takes the power away, and starts again.
    pub(super) fn cut_power(&mut self) -> Result<(), Failure> {
        self.leave_half_done(true);
        self.world.cut_power();
        self.model.cut_power();
        self.crashed();
        self.judge_what_is_left()?;
        self.come_up(Before::Crash)?;
        self.begin_with_a_rest()
    }

    /// Whatever was left, each block is what the model allows, from every member that has it and in every way in
    /// which the others give it; and members agree where nothing says that writes were under way.
    pub(super) fn judge_what_is_left(&self) -> Result<(), Failure> {
        let Ok(remains) = Remains::find(&self.world, &self.disks) else { return Ok(()) };
        let remains = if self.bearable() { remains } else { remains.without_half_written() };
        let judged = remains.judge(&self.model);
        if judged.is_err() {
            self.note_superblocks(&self.disks);
        }
        judged.map_err(|wrong| match wrong {
            Wrong::Content { violation, at } => Failure::Left { violation, at },
            Wrong::Unmarked { first, sectors } => Failure::Unmarked { first, sectors },
        })
    }

    fn crashed(&mut self) {
        self.restore_bitmaps();
        self.end_process();
        self.pending.forget();
        self.forget_orders();
        if self.settings.redundancy() > 0 {
            self.atlas.crash(self.world.now());
        }
    }

    pub(super) fn go_down(&mut self) {
        self.end_process();
        self.world.kill();
        self.pending.forget();
        self.forget_orders();
    }

    /// Assembles the array from what is in the machine.
    pub(super) fn come_up(&mut self, before: Before) -> Result<(), Failure> {
        self.come_up_without(before, None)
    }

    /// Assembles the array from what is in the machine, but for one disk.
    pub(super) fn come_up_without(
        &mut self,
        before: Before,
        left_out: Option<DiskIndex>,
    ) -> Result<(), Failure> {
        let left = self.move_disks(before);
        let is_here = |disk: &DiskIndex| self.world.disk(*disk, |d| !d.faults.gone);
        let answers = |disk: &DiskIndex| Some(*disk) != left_out && is_here(disk);
        let mut disks: Vec<DiskIndex> = self.disks.iter().copied().filter(answers).collect();
        self.random.shuffle(&mut disks);
        let lanes = *self.random.pick(&[1, self.settings.lanes]);
        self.world.note(format_args!("-- assemble {disks:?} on {lanes} lanes"));
        let mut options = self.settings.options();
        // A first resync that was stopped before its first row looks like a crash. Its parity is right.
        let looks_crashed = before == Before::Stop && !self.atlas.is_resynced();
        options.force = self.bearable() && looks_crashed;
        let says_nothing =
            |disk: &DiskIndex| self.superblock(*disk).is_some_and(|found| found.agrees_to == 0);
        if looks_crashed && disks.iter().any(says_nothing) {
            // What force accepts is forgotten when a member fails.
            self.atlas.crash(self.world.now());
        }
        match Process::start(
            &self.world,
            &disks,
            lanes,
            self.settings.workers,
            (&options, &self.settings.tuning),
            self.newest_known(),
        ) {
            Ok(process) => {
                self.process = Some(process);
                (self.point_reached, self.due) = (0, None);
                self.keep_bitmaps();
                left.into_iter().for_each(|disk| self.add_new_for(disk));
                self.add_what_is_back();
            }
            // The operator never starts a part of the array while another went on.
            Err(error) if self.bearable() || error.is_split_brain() => {
                self.note_superblocks(&disks);
                return Err(error.into());
            }
            Err(error) => {
                self.world.note(format_args!("-- refused: {error}"));
                self.go_down();
                self.broken = true;
            }
        }
        Ok(())
    }

    /// Events of the freshest member in the machine, whether it answers or not. A spare does not count: an
    /// update that a kill kept from all but the spares was never finished, and nothing was written
    /// under it.
    pub(super) fn newest_events(&self) -> u64 {
        self.newest_events_of(&self.disks)
    }

    /// As [`Self::newest_events`], and of those that left the machine, but for an update that only began on one of them.
    fn newest_known(&self) -> u64 {
        let gone = self.shelf.iter().map(|shelved| shelved.disk);
        let gone: Vec<DiskIndex> =
            gone.filter(|&disk| !self.counts_on(disk, &self.disks)).collect();
        self.newest_events().max(self.newest_events_of(&gone))
    }

    /// Events of the freshest member among `disks`.
    pub(super) fn newest_events_of(&self, disks: &[DiskIndex]) -> u64 {
        let superblocks =
            disks.iter().filter_map(|&disk| self.world.disk(disk, RawSuperblock::find));
        let members =
            superblocks.filter(|superblock| superblock.role_of(superblock.dev_number).is_some());
        members.map(|superblock| superblock.events).max().unwrap_or(0)
    }

    /// Tells the trace what the disks say of themselves.
    fn note_superblocks(&self, disks: &[DiskIndex]) {
        for &disk in disks {
            match self.world.disk(disk, RawSuperblock::find) {
                Some(superblock) => self.world.note(format_args!("-- {disk}: {superblock}")),
                None => self.world.note(format_args!("-- {disk}: no superblock")),
            }
        }
    }
}

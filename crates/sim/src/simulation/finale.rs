//! The end of a run: everything is mended, read, checked, stopped, and judged on the raw disks.

use mdspace_engine::status::MemberStatus;

use crate::oracle::RawArray;
use crate::settings::Happening;

use super::operator::SYNC_MAX;
use super::restart::{Before, COPIES_ONE_IN};
use super::{Failure, Outcome, Simulation};

impl Simulation {
    pub(super) fn finish(&mut self) -> Result<Outcome, Failure> {
        self.world.note(format_args!("-- the end begins"));
        let judged = match self.bearable() {
            true => self.end_whole().map(|()| true)?,
            false => self.end_beyond().map(|()| false)?,
        };
        self.end_process();
        self.world.kill();
        Ok(Outcome {
            trace_hash: self.world.trace_hash(),
            lines: self.world.trace_lines(),
            answered: self.pending.answered,
            failed: self.pending.failed,
            judged,
            lies: self.lies,
            reached: self.reached,
        })
    }

    /// Within what the level bears, the array is whole again in the end, and right.
    fn end_whole(&mut self) -> Result<(), Failure> {
        self.drain()?;
        if self.settings.redundancy() > 0 {
            self.let_sync_go();
            self.process().sync_at_full_speed();
        }
        self.make_whole()?;
        if self.settings.happenings[Happening::Lie as usize] > 0 {
            self.lie()?;
        }
        self.read_everything()?;
        self.check_everything()?;
        // What a path that was mended had under way may have failed a member since.
        self.come_to_rest()?;
        self.shut_down()?;
        self.judge_platters()?;
        if self.random.one_in(COPIES_ONE_IN) {
            self.lose_each_on_a_copy()?;
        }
        Ok(())
    }

    /// Beyond it, what can still be read is right.
    fn end_beyond(&mut self) -> Result<(), Failure> {
        if self.process.is_some() {
            self.drain()?;
            self.read_everything()?;
            self.model.kill();
            self.go_down();
        }
        for disk in self.disks.clone() {
            self.mend(disk);
        }
        self.broken = false;
        self.come_up(Before::Crash)?;
        if self.process.is_some() {
            self.judges_errors = true;
            self.read_everything()?;
            self.drain()?;
            self.model.kill();
            self.go_down();
            self.judge_what_is_left()?;
        }
        Ok(())
    }

    /// Mends every disk, and waits until the array is whole again.
    pub(super) fn make_whole(&mut self) -> Result<(), Failure> {
        if self.settings.redundancy() == 0 {
            return Ok(());
        }
        for disk in self.disks.clone() {
            self.mend(disk);
        }
        self.come_to_rest()
    }

    /// Tends the array until all members are in sync and nothing is left to do.
    fn come_to_rest(&mut self) -> Result<(), Failure> {
        if self.settings.redundancy() == 0 {
            return Ok(());
        }
        let mut rounds = 0;
        let until = self.world.now() + SYNC_MAX;
        while !self.is_at_rest()? {
            rounds += 1;
            if self.world.now() > until {
                let status = self.operator.status.as_ref();
                let members = status.map(|status| (&status.sync, &status.members));
                self.world.note(format_args!("-- {members:?}\n{:?}", self.atlas));
                return Err(Failure::Stuck { what: "the way back to a whole array".to_owned() });
            }
            self.wait(std::time::Duration::from_secs(1))?;
            match rounds % 5 {
                0 if self.in_sync() < self.settings.slots.into() => self.tend(),
                0 if self.lists_bad_blocks() => self.repair(),
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether it is so from now on: no order is under way either that would change it.
    fn is_at_rest(&mut self) -> Result<bool, Failure> {
        let status = self.fresh_status()?;
        Ok(self.atlas.is_sound()
            && self.operator.is_done()
            && !self.lists_bad_blocks()
            && !status.sync.action.runs())
    }

    /// Whether the log of a member that takes part lists bad blocks: mended disks take what a repair
    /// writes there.
    pub(super) fn lists_bad_blocks(&self) -> bool {
        let status = self.operator.status.as_ref();
        let lists = |member: &MemberStatus| member.slot.is_some() && member.bad_ranges > 0;
        status.is_none_or(|status| status.members.iter().any(lists))
    }

    fn read_everything(&mut self) -> Result<(), Failure> {
        self.requests_left = 0;
        self.read_all();
        // What cannot be read is asked again in blocks.
        while !self.backlog.is_empty() {
            while !self.backlog.is_empty() {
                self.pump();
                self.step()?;
            }
            self.drain()?;
        }
        Ok(())
    }

    /// A check over the whole array finds nothing, if there is redundancy.
    fn check_everything(&mut self) -> Result<(), Failure> {
        if self.settings.redundancy() == 0 {
            return Ok(());
        }
        self.check_to_the_end()
    }

    pub(super) fn judge_platters(&mut self) -> Result<(), Failure> {
        let array = RawArray::open(&self.world, &self.disks)?;
        array.check_data(&mut self.model).map_err(Failure::Platter)?;
        match array.mismatches(self.model.len()) {
            0 => Ok(()),
            sectors => Err(Failure::Redundancy { sectors }),
        }
    }
}

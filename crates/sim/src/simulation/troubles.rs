//! What happens to the array besides requests, within the atlas or beyond it.

use std::ops::Range;
use std::time::Duration;

use mdspace_engine::array::Point;
use mdspace_engine::status::MemberState;
use mdspace_engine::time::Time;

use crate::disk::{Disk, DiskIndex, Hang, Healing, Held, Persistence};
use crate::settings::{Happening, SLOWER};
use crate::workload::Ask;

use super::atlas::with_state;
use super::operator::{ALARM_LET_GO, ALARM_STATUS, STATUS_EVERY};
use super::plugs::Back;
use super::restart::Before;
use super::{ALARM_WAKE, Failure, Simulation};

/// In half of such a quiet time bits may be cleared.
const LONG_REST_MS: u64 = 24_000;

/// Requests that users send before a disk resets.
const LAST_REQUESTS: usize = 30;
/// A slow sync task has done a few windows by then.
const WINDOWS_WITHIN: Duration = Duration::from_secs(1);

/// A flush that takes longer is not waited for.
const FLUSHED_WITHIN: Duration = Duration::from_secs(2);

/// When users are quiet for so long, the array is clean, and no bit is left to be cleared.
const ALL_IS_WRITTEN: Duration = Duration::from_secs(30);

/// Reads that wait for no member end in this time.
const READS_END_WITHIN: Duration = Duration::from_secs(20);

/// Alarms from here on mend the disk of that number.
const ALARM_MEND: u64 = 1000;

impl Simulation {
    /// Lets something happen when its time has come.
    pub(super) fn let_happen(&mut self) -> Result<(), Failure> {
        if let Some(happening) = self.aimed() {
            return self.let_aimed_happen(happening);
        }
        if self.pending.answered < self.next_happening {
            return Ok(());
        }
        if self.settings.paths > 0 && self.random.coin() {
            self.model.lose_a_member();
            self.trouble_paths();
        }
        let calm = self.settings.calm_requests;
        self.next_happening = self.pending.answered + self.random.within(calm / 2..calm * 2);
        // It takes the place of a request: where restarts come faster than everything is read back after
        // one, users would never come to an end.
        self.requests_left = self.requests_left.saturating_sub(1);
        let drawn = self.random.weighted(&self.settings.happenings);
        match drawn {
            Some(index) => self.happen(Happening::ALL[index]),
            None => Ok(()),
        }
    }

    /// What is to happen now because the engine has come to the point that the run aims at.
    fn aimed(&mut self) -> Option<Happening> {
        let process = self.process.as_ref()?;
        if let Some((at, happening)) = self.due {
            if self.world.now() < at {
                return None;
            }
            self.due = None;
            return Some(happening);
        }
        let aim = *self.settings.aims.get(self.aim)?;
        let reached = process.times_reached(aim.point);
        let is_new = aim.follows() || reached > self.point_reached;
        self.point_reached = reached;
        if !is_new || !self.random.one_in(aim.one_in.max(1)) {
            return None;
        }
        if !aim.follows() {
            self.world.note(format_args!("-- {}: {}", aim.point.name(), aim.point.sentence()));
        }
        self.aim = (self.aim + 1) % self.settings.aims.len();
        self.aimed_at = aim.disk.map(DiskIndex);
        let next = self.settings.aims[self.aim].point;
        self.point_reached = process.times_reached(next);
        if aim.late_by.is_zero() {
            return aim.happening;
        }
        let late_by = Duration::from_nanos(self.random.below(aim.late_by.as_nanos() as u64));
        self.let_happen_in(late_by, aim.happening?);
        None
    }

    fn let_happen_in(&mut self, time: Duration, happening: Happening) {
        let at = self.world.now() + time;
        self.world.set_alarm(at, ALARM_WAKE);
        self.due = Some((at, happening));
    }

    /// Lets it happen at once. It takes the place of a request, as all happenings do.
    fn let_aimed_happen(&mut self, happening: Happening) -> Result<(), Failure> {
        self.requests_left = self.requests_left.saturating_sub(1);
        let ended = match happening {
            Happening::Kill | Happening::PowerCut => self.crash(happening),
            Happening::Rest => self.rest_for_itself(LONG_REST_MS),
            // The operator does not know yet what has changed.
            Happening::Tend if !self.knows_members() => {
                self.let_happen_in(STATUS_EVERY * 2, Happening::Tend);
                Ok(())
            }
            Happening::AcceptDoubt if self.settings.has_parity() => self.accept_doubt_now(),
            other => self.happen(other),
        };
        self.aimed_at = None;
        ended
    }

    /// Kills the process or cuts the power, if the array bears it now.
    fn crash(&mut self, happening: Happening) -> Result<(), Failure> {
        match happening {
            _ if !self.may_crash() => Ok(()),
            Happening::Kill => self.kill(),
            _ => self.cut_power(),
        }
    }

    fn happen(&mut self, happening: Happening) -> Result<(), Failure> {
        if happening.may_take_a_member() {
            self.model.lose_a_member();
        }
        match happening {
            Happening::SpoilSectors => self.hurt(Self::spoil),
            Happening::RefuseWrites => self.hurt(Self::refuse_writes),
            Happening::FailFlush => self.hurt(Self::fail_flush),
            Happening::Vanish => self.hurt(Self::vanish),
            Happening::Hang => self.hurt(Self::hang),
            Happening::FailMember => self.fail_some(),
            Happening::Slow => self.slow(),
            Happening::Fill => self.fill(),
            Happening::Tend => self.tend(),
            Happening::AddSpare if self.has_room_for_spares() => self.add_spare(),
            Happening::Check if self.settings.redundancy() > 0 => self.check(),
            Happening::Repair if self.settings.redundancy() > 0 => self.repair(),
            Happening::Replace if self.settings.redundancy() > 0 => self.replace_member(),
            Happening::AddSpare | Happening::Check | Happening::Repair | Happening::Replace => {}
            Happening::ReadAll => self.read_all(),
            Happening::Restart => return self.restart(),
            Happening::StartWithout => return self.restart_without(),
            Happening::Kill | Happening::PowerCut if self.may_crash() => {
                self.rest_or_not()?;
                return self.crash(happening);
            }
            Happening::Kill | Happening::PowerCut => {}
            Happening::Rest => return self.rest_for_itself(0),
            Happening::Doze => self.doze(),
            Happening::Leave => self.requests_left = 0,
            Happening::SetClock => self.set_clock(),
            Happening::Lie => return self.lie(),
            Happening::Unplug => self.plugs.unplug = Some(self.aimed_at),
            Happening::PlugBack => self.plugs.plug_back = Some(Back::Instead),
            Happening::PlugBeside => self.plugs.plug_back = Some(Back::Beside),
            Happening::LosePath => self.lose_path(),
            Happening::LoseFlush if self.settings.paths > 0 && self.settings.redundancy() > 0 => {
                self.hurt(|simulation, disk| simulation.world.fail_a_flush_secretly(disk));
            }
            Happening::Mislead if self.settings.redundancy() > 0 => {
                self.hurt(|simulation, disk| simulation.world.mislead_a_wire(disk));
            }
            Happening::LoseFlush | Happening::Mislead => {}
            Happening::PartAway => self.plugs.part_away = true,
            Happening::ForgetBitmaps => self.plugs.forget_bitmaps = true,
            Happening::Pause => return self.wait_for_seconds(),
            Happening::ReadTwice => return self.read_twice(),
            Happening::Flicker => self.hurt(Self::flicker),
            Happening::Reset => return self.reset(),
            Happening::ResetAndFlush => return self.reset_and_flush(),
            Happening::ResetAndFail => return self.reset_and_fail(),
            Happening::KillBeforeReturn if self.may_crash() => return self.kill_before_return(),
            Happening::KillBeforeReturn => {}
            Happening::Steer if self.settings.redundancy() > 0 => self.steer(),
            Happening::HoldRecords => self.hold(false),
            Happening::HoldData => self.hold(true),
            Happening::AcceptDoubt if self.settings.has_parity() => self.accept_doubt(),
            Happening::Steer | Happening::AcceptDoubt => {}
            Happening::HangTwo if self.settings.redundancy() > 0 => return self.hang_two(),
            Happening::HangTwo => {}
            Happening::CutWhenFlushed => return self.cut_when_flushed(),
            Happening::OnlyRead => self.only_read = true,
            Happening::WriteAgain => self.only_read = false,
            Happening::ReadNow => {
                self.drain()?;
                return self.read_all_at_once();
            }
            Happening::RefuseAll => self.hurt(Self::refuse_all),
            Happening::Bound if self.settings.redundancy() > 0 => self.bound_to_the_first_chunk(),
            Happening::Bound => {}
            Happening::LetGo => self.let_sync_go(),
        }
        Ok(())
    }

    /// Users come late, now and then: until the first write a resync goes on in an array that counts as clean.
    pub(super) fn begin_with_a_rest(&mut self) -> Result<(), Failure> {
        let aims = &self.settings.aims;
        let story_goes_on = aims.get(self.aim).is_some_and(|aim| aim.follows());
        if self.process.is_none() || !self.random.one_in(4) || story_goes_on {
            return Ok(());
        }
        self.rest_for_itself(0)
    }

    /// A quiet time that no crash is to follow, but one that the run aims at. It is half as long as this at least.
    fn rest_for_itself(&mut self, at_least_ms: u64) -> Result<(), Failure> {
        match self.rest(at_least_ms)? {
            Some(crash) => self.let_aimed_happen(crash),
            None => Ok(()),
        }
    }

    /// Users are quiet before a crash, every other time.
    fn rest_or_not(&mut self) -> Result<(), Failure> {
        if self.random.coin() {
            self.rest(0)?;
        }
        Ok(())
    }

    /// Users are quiet for a while: the array is marked clean, and later bits are cleared. Says which crash is
    /// to end the rest early, where the run aims at one.
    fn rest(&mut self, at_least_ms: u64) -> Result<Option<Happening>, Failure> {
        let most_ms = (*self.random.pick(&[300, 6_000, 12_000, 20_000])).max(at_least_ms);
        let rest = Duration::from_millis(self.random.within(at_least_ms / 2..most_ms + 1));
        let until = self.world.now() + rest;
        self.world.set_alarm(until, ALARM_WAKE);
        while self.world.now() < until {
            self.step()?;
            match self.aimed() {
                Some(crash @ (Happening::Kill | Happening::PowerCut)) => return Ok(Some(crash)),
                None | Some(Happening::Rest) => {}
                Some(other) => self.let_aimed_happen(other)?,
            }
        }
        Ok(None)
    }

    /// Time enough for a lost path to come back, and for what it was sent to land.
    fn wait_for_seconds(&mut self) -> Result<(), Failure> {
        let ms = self.random.within(1_000..4_000);
        self.wait(Duration::from_millis(ms))
    }

    /// What users have seen with nothing under way must stay.
    fn read_twice(&mut self) -> Result<(), Failure> {
        self.drain()?;
        self.read_all_at_once()?;
        self.wait_for_seconds()?;
        self.read_all_at_once()
    }

    /// Does something bad to one disk, if the array bears it.
    fn hurt(&mut self, trouble: fn(&mut Self, DiskIndex)) {
        if let Some(disk) = self.some_bearable() {
            self.atlas.hurt(disk);
            trouble(self, disk);
        }
    }

    /// Has the operator fail one disk that does its work, if the array bears it.
    fn fail_some(&mut self) {
        if let Some(disk) = self.some_bearable() {
            self.fail_member(disk);
        }
    }

    /// A disk to which something bad may be done.
    fn some_bearable(&mut self) -> Option<DiskIndex> {
        let disk = self.some_disk();
        Some(disk).filter(|disk| !self.bearable() || self.atlas.bears(*disk))
    }

    /// The one that the run aims at, if it is in the machine.
    pub(super) fn aimed_disk(&self) -> Option<DiskIndex> {
        self.aimed_at.filter(|disk| self.disks.contains(disk))
    }

    /// The one that the run aims at. Else any; more likely one that came in the place of another, which then
    /// comes back, or a member in sync.
    fn some_disk(&mut self) -> DiskIndex {
        if let Some(disk) = self.aimed_disk() {
            return disk;
        }
        let successors = self.shelf.iter().map(|shelved| shelved.successor);
        let mut here: Vec<_> = successors.filter(|disk| self.disks.contains(disk)).collect();
        if here.is_empty() {
            let members = self.operator.status.iter();
            here = members.flat_map(|status| with_state(status, MemberState::InSync)).collect();
            here.retain(|disk| self.disks.contains(disk));
        }
        match here.is_empty() || self.random.coin() {
            true => *self.random.pick(&self.disks),
            false => *self.random.pick(&here),
        }
    }

    /// Stops the array and starts it without a disk that the operator forgot. It is put back before anything is
    /// written.
    fn restart_without(&mut self) -> Result<(), Failure> {
        if self.settings.redundancy() == 0 {
            return Ok(());
        }
        let Some(disk) = self.some_bearable() else { return Ok(()) };
        self.atlas.set_aside(disk);
        self.shut_down()?;
        self.come_up_without(Before::Stop, Some(disk))?;
        if self.process.is_none() {
            return Ok(());
        }
        self.wait(STATUS_EVERY * 2)?;
        self.tend();
        self.rest_for_itself(0)
    }

    /// A flush or a durable write that is under way over a path has failed, and its member with it. Without
    /// redundancy it fails alone.
    fn trouble_paths(&mut self) {
        if self.settings.redundancy() == 0 {
            let disk = *self.random.pick(&self.disks);
            self.world.trouble_a_wire(disk);
            return;
        }
        self.hurt(|simulation, disk| {
            simulation.world.trouble_a_wire(disk);
        });
    }

    /// As [`Self::trouble_paths`], over which something is being written.
    fn lose_path(&mut self) {
        if self.settings.redundancy() == 0 {
            // Rather where two writes of one place are under way.
            let mut disks = self.disks.clone();
            disks.sort_by_key(|&disk| !self.world.is_overwritten(disk));
            let busy = disks.into_iter().any(|disk| self.world.lose_a_busy_wire(disk));
            if !busy {
                self.trouble_paths();
            }
            return;
        }
        self.hurt(|simulation, disk| {
            simulation.world.lose_a_busy_wire(disk);
        });
    }

    fn spoil(&mut self, disk: DiskIndex) {
        let range = self.some_sectors(disk);
        let mut healing = *self.random.pick(&[Healing::Rewrite, Healing::Rewrite, Healing::Never]);
        if self.aimed_at.is_some() {
            healing = Healing::Rewrite;
        }
        self.world.note(format_args!("-- {disk} cannot read {range:?} ({healing:?} heals)"));
        self.world.change_disk(disk, |disk| disk.faults.spoil(range, healing));
    }

    /// What is asked of a member's data, or else of its records, takes long: who waits for that waits while all else goes
    /// on. That is slowness, and no fault: it passes no deadline but those of reads.
    fn hold(&mut self, is_of_data: bool) {
        if self.settings.redundancy() == 0 || self.settings.paths > 0 {
            return;
        }
        let disk = self.aimed_disk().unwrap_or_else(|| *self.random.pick(&self.disks));
        let mut most_ms = *self.random.pick(&[5, 50, 500, 1_000]);
        let mut least_ms = 0;
        if self.aimed_at.is_some() {
            // Until the controller has made its records.
            most_ms = most_ms.max(500);
            least_ms = most_ms / 2;
        }
        let us = self.random.within(least_ms * 1_000 + 500..most_ms * 1_000);
        self.hold_until(disk, is_of_data, self.world.now() + Duration::from_micros(us));
    }

    fn hold_until(&mut self, disk: DiskIndex, is_of_data: bool, until: Time) {
        let data = self.data();
        let sectors = match is_of_data {
            true => data,
            false if data.start > 0 => 0..data.start,
            false => data.end..u64::MAX,
        };
        let what = if is_of_data { "data" } else { "records" };
        self.world
            .note(format_args!("-- {disk} holds what it is asked of its {what} until {until:?}"));
        let held = Held { sectors, until };
        self.world.change_disk(disk, |disk| {
            disk.faults.held.get_or_insert(held);
        });
        self.world.set_alarm(until, ALARM_MEND + u64::from(disk.0));
    }

    fn flicker(&mut self, disk: DiskIndex) {
        // Most of a run lies behind it.
        let most_us = *self.random.pick(&[10_000, 50_000]);
        let mut us = self.random.within(1..most_us);
        if self.only_read {
            // Long enough for users to read everything, and short enough for them to pause until it is over.
            us = us.max(500_000);
        }
        let until = self.world.now() + Duration::from_micros(us);
        self.world.note(format_args!("-- {disk} cannot read until {until:?}"));
        let data = self.data();
        self.world.change_disk(disk, |disk| disk.faults.spoil(data, Healing::At(until)));
        self.world.set_alarm(until, ALARM_MEND + u64::from(disk.0));
    }

    /// Where members have data.
    fn data(&self) -> Range<u64> {
        self.settings.data_offset..self.settings.data_offset + self.settings.member_sectors
    }

    fn refuse_writes(&mut self, disk: DiskIndex) {
        let range = self.some_sectors(disk);
        // Some refuse long enough to be listed, and then take it.
        let times = *self.random.pick(&[1, 4, 10, 25]);
        let persistence = match self.aimed_at {
            Some(_) => Persistence::Times(times.max(4)),
            None => *self.random.pick(&[Persistence::Times(times), Persistence::Sticky]),
        };
        self.world.note(format_args!("-- {disk} refuses writes to {range:?} ({persistence:?})"));
        self.world.change_disk(disk, |disk| disk.faults.refuse_writes(range, persistence));
    }

    /// Blocks get on its list wherever users write next.
    fn refuse_all(&mut self, disk: DiskIndex) {
        let times = *self.random.pick(&[4, 10, 25]);
        self.world.note(format_args!("-- {disk} refuses the next {times} writes"));
        let data = self.data();
        self.world.change_disk(disk, |disk| {
            disk.faults.refuse_writes(data, Persistence::Times(times));
        });
    }

    fn fail_flush(&mut self, disk: DiskIndex) {
        self.world.note(format_args!("-- {disk} fails its next flush"));
        // Without redundancy what it loses is lost.
        if self.settings.redundancy() == 0 {
            self.model.lose_a_flush();
        }
        self.world.change_disk(disk, |disk| disk.faults.flush_errors += 1);
    }

    fn vanish(&mut self, disk: DiskIndex) {
        self.world.note(format_args!("-- {disk} vanishes"));
        self.world.change_disk(disk, |disk| disk.faults.gone = true);
        self.model.lose_a_member_now();
    }

    /// Users read for a while what is left, and the process is killed. A cable is put back while no process looks.
    fn kill_before_return(&mut self) -> Result<(), Failure> {
        self.read_all();
        while !self.backlog.is_empty() && self.pending.count() < self.workload.depth() {
            self.submit_next();
        }
        // Where disks are paced no update of superblocks is through by then.
        let us = self.random.within(100..2_000);
        self.wait(Duration::from_micros(us))?;
        self.world.note(format_args!("-- members that had vanished are back"));
        for disk in self.disks.clone() {
            self.world.change_disk(disk, |disk| disk.faults.gone = false);
        }
        self.kill()
    }

    /// A disk loses what it was not told to flush, serves sync tasks for a while, and drops off. Users would be given old
    /// blocks meanwhile, and parity for them: they come back when the array knows.
    fn reset(&mut self) -> Result<(), Failure> {
        let Some(disk) = self.lose_a_cache()? else { return Ok(()) };
        let most_us = *self.random.pick(&[20_000, 200_000]);
        let quiet = Duration::from_micros(self.random.within(0..most_us));
        self.wait(quiet)?;
        self.vanish(disk);
        self.flush_and_wait()
    }

    /// The same, but that the disk stays. Users come back as soon as a flush has told, and read and write. Meanwhile another
    /// member may take its time to say whether it is there.
    fn reset_and_flush(&mut self) -> Result<(), Failure> {
        let Some(disk) = self.lose_a_cache()? else { return Ok(()) };
        let failed = |this: &Self| this.times_reached(Point::FlushFailed);
        let before = failed(self);
        let is_late = self.random.one_in(4);
        if !is_late {
            self.hold_another(disk);
        }
        // A sync task may go by what it gives, and flush it.
        let least = u64::from(!self.being_filled().is_empty());
        let more = if is_late { 0 } else { least.max(self.random.within(0..3)) };
        let windows = self.times_reached(Point::WindowIsDone) + more;
        let until = self.world.now() + WINDOWS_WITHIN;
        while failed(self) == before
            && self.times_reached(Point::WindowIsDone) < windows
            && self.world.now() < until
        {
            self.wait(Duration::from_millis(1))?;
        }
        if !is_late && failed(self) == before {
            self.read_beyond_the_flush(disk);
        }
        let is_late = is_late && self.hang_beyond_its_deadline(disk);
        self.backlog.push_front(Ask::Flush);
        self.submit_next();
        let flush = self.pending.last_tag;
        while self.pending.has(flush) && failed(self) == before {
            self.step()?;
        }
        if is_late {
            self.hold_another(disk);
        }
        // It has told nothing when it was late.
        while is_late && self.pending.has(flush) && failed(self) == before + 1 {
            self.step()?;
        }
        for _ in 0..LAST_REQUESTS {
            self.submit_next();
        }
        self.read_all_at_once()
    }

    /// Where a member is being filled, reads may begin, and those of it and of this disk end when the flush has told.
    fn read_beyond_the_flush(&mut self, disk: DiskIndex) {
        let mut held = self.being_filled();
        if held.is_empty() {
            return;
        }
        held.push(disk);
        let span = Duration::from_millis(self.random.within(200..600));
        for disk in held {
            self.hold_until(disk, true, self.world.now() + span);
        }
        self.read_all();
        while !self.backlog.is_empty() {
            self.submit_next();
        }
    }

    /// A disk resets and stays. The operator fails another one, which may be the only one to have what was written last.
    fn reset_and_fail(&mut self) -> Result<(), Failure> {
        let Some(disk) = self.lose_a_cache()? else { return Ok(()) };
        let others: Vec<_> = self.members_in_sync().filter(|other| *other != disk).collect();
        if !others.is_empty() {
            let other = *self.random.pick(&others);
            self.fail_member(other);
            self.wait(STATUS_EVERY * 2)?;
        }
        self.flush_and_wait()?;
        self.read_all_at_once()
    }

    /// Holds the records of a member besides this one, or not.
    fn hold_another(&mut self, disk: DiskIndex) {
        let others: Vec<_> = self.members_in_sync().filter(|other| *other != disk).collect();
        if !others.is_empty() && !self.random.one_in(4) {
            let other = *self.random.pick(&others);
            let held = Duration::from_millis(self.random.within(500..2_000));
            self.hold_until(other, false, self.world.now() + held);
        }
    }

    /// Hangs a disk for a little longer than it may take for a flush. False where that has no end.
    fn hang_beyond_its_deadline(&mut self, disk: DiskIndex) -> bool {
        let Some(deadline) = self.settings.write_deadline() else { return false };
        let until = self.world.now() + deadline + Duration::from_millis(self.random.within(1..500));
        self.hang_until(disk, until);
        true
    }

    fn times_reached(&self, point: Point) -> u64 {
        self.process.as_ref().map_or(0, |process| process.times_reached(point))
    }

    fn members_in_sync(&self) -> impl Iterator<Item = DiskIndex> {
        let status = self.operator.status.iter();
        status.flat_map(|status| with_state(status, MemberState::InSync))
    }

    fn being_filled(&self) -> Vec<DiskIndex> {
        let status = self.operator.status.iter();
        status.flat_map(|status| with_state(status, MemberState::Recovering)).collect()
    }

    /// An array that has nothing to flush has lost nothing.
    fn flush_and_wait(&mut self) -> Result<(), Failure> {
        self.backlog.push_front(Ask::Flush);
        self.submit_next();
        self.drain()
    }

    /// A disk resets, with nothing under way. None where the array would not bear it.
    fn lose_a_cache(&mut self) -> Result<Option<DiskIndex>, Failure> {
        if self.settings.redundancy() == 0 || self.settings.paths > 0 {
            return Ok(None);
        }
        // What was written before may have been flushed by a sync task.
        for _ in 0..LAST_REQUESTS {
            self.submit_next();
        }
        self.drain()?;
        let disk = self.some_disk();
        if self.process.is_none() || !self.atlas.bears(disk) {
            return Ok(None);
        }
        self.atlas.hurt(disk);
        // Until its flush tells it gives old blocks, which a check counts.
        self.forgive_check();
        let at_risk = self.world.disk(disk, |disk| disk.store.volatile_sectors());
        self.world.note(format_args!("-- {disk} resets, {at_risk} sectors are at risk"));
        self.world.reset(disk);
        Ok(Some(disk))
    }

    fn hang(&mut self, disk: DiskIndex) {
        let until = self.world.now() + Duration::from_millis(self.random.within(1..40_000));
        self.hang_until(disk, until);
    }

    fn hang_until(&mut self, disk: DiskIndex, until: Time) {
        self.world.note(format_args!("-- {disk} hangs until {until:?}"));
        self.last_hang = self.world.now();
        self.world.change_disk(disk, |disk| disk.faults.hang = Some(Hang::Until(until)));
        self.world.set_alarm(until, ALARM_MEND + u64::from(disk.0));
    }

    /// What users flush last is durable at that moment, and not later.
    fn cut_when_flushed(&mut self) -> Result<(), Failure> {
        if !self.may_crash() {
            return Ok(());
        }
        self.backlog.push_front(Ask::Flush);
        self.submit_next();
        let flush = self.pending.last_tag;
        let until = self.world.now() + FLUSHED_WITHIN;
        self.world.set_alarm(until, ALARM_WAKE);
        while self.pending.has(flush) && self.world.now() < until {
            self.step()?;
        }
        self.crash(Happening::PowerCut)
    }

    /// Two members do not answer, and users read. One answers again, and the array can do without the other one: all
    /// reads end, though that one is silent still.
    fn hang_two(&mut self) -> Result<(), Failure> {
        self.drain()?;
        // Nothing is left to be written: the controller waits for no member.
        self.wait(ALL_IS_WRITTEN)?;
        let in_sync =
            self.operator.status.iter().flat_map(|status| with_state(status, MemberState::InSync));
        let mut disks: Vec<DiskIndex> = in_sync.collect();
        self.random.shuffle(&mut disks);
        let &[soon, late, ..] = &disks[..] else { return Ok(()) };
        // A member that is late now and then may be late again at any time.
        let most = |disk: &DiskIndex| {
            self.world
                .disk(*disk, |disk| disk.spec.latency.most() * disk.faults.slowness.unwrap_or(1))
        };
        let slowest = self.disks.iter().map(most).max();
        let is_late_at_times = self.settings.read_deadline() <= slowest;
        if self.settings.paths > 0 || is_late_at_times || !self.atlas.is_sound() {
            return Ok(());
        }
        self.atlas.hurt(soon);
        self.atlas.hurt(late);
        let until = self.world.now() + Duration::from_secs(3);
        self.world.note(format_args!("-- {late} does not answer, and {soon} until {until:?}"));
        self.world.change_disk(soon, |disk| disk.faults.hang = Some(Hang::Until(until)));
        self.world.set_alarm(until, ALARM_MEND + u64::from(soon.0));
        self.world.change_disk(late, |disk| disk.faults.hang = Some(Hang::ForEver));
        self.last_hang = until;
        self.read_all();
        while !self.backlog.is_empty() && self.pending.count() < self.workload.depth() {
            self.submit_next();
        }
        self.backlog.clear();
        let what = "a read that the array can answer without the member that hangs";
        self.step_within(READS_END_WITHIN, what, |this| this.pending.count() == 0)?;
        self.world.change_disk(late, |disk| disk.faults.hang = None);
        Ok(())
    }

    /// Slowness is no fault: nothing may come of it. Much of it would pass the deadlines of paths, and those of
    /// disks that are far away or whose records take long.
    fn slow(&mut self) {
        let disk = *self.random.pick(&self.disks);
        let takes_long = self.world.disk(disk, |disk| disk.spec.slow_start.1 > 1);
        let near = self.settings.paths == 0 && self.settings.write_behind == 0;
        let much = if near && !takes_long { 30 } else { SLOWER };
        let times = *self.random.pick(&[None, Some(SLOWER), Some(much)]);
        if self.settings.stalls() {
            return;
        }
        self.world.note(format_args!("-- {disk} gets slower: {times:?}"));
        self.world.change_disk(disk, |disk| disk.faults.slowness = times);
    }

    /// A full pool behind a disk: writes fail for a while, and no member in sync may be failed for it, but
    /// where writes are left behind. A row of which one member could not be written has lost its
    /// redundancy until it is made right.
    fn fill(&mut self) {
        if self.bearable() && !self.may_crash() {
            return;
        }
        let disk = self.aimed_disk().unwrap_or_else(|| *self.random.pick(&self.disks));
        // Where it was copied meanwhile, as by a snapshot, what is written again needs space again.
        let data = self.data();
        let is_copied = self.aimed_at.is_some() || self.random.coin();
        // Where it is short, users come back to what found no space. A story waits until something has.
        let mut most_ms = *self.random.pick(&[3, 20, 500, 5_000, 5_000]);
        if self.aimed_at.is_some() {
            most_ms = most_ms.max(20);
        }
        let mut ms = self.random.within(1..most_ms);
        if self.only_read {
            // Until they write again, or a resync was there.
            ms = ms.max(1_000);
        }
        let until = self.world.now() + Duration::from_millis(ms);
        self.world.note(format_args!("-- {disk} is full until {until:?}"));
        self.world.change_disk(disk, |disk| {
            disk.faults.full_until = disk.faults.full_until.max(Some(until));
            if is_copied {
                disk.store.free(&data);
            }
        });
        self.atlas.fill(disk, self.settings.write_behind > 0);
        // What found no space may differ, until a resync has been there.
        self.forgive_check();
        self.world.set_alarm(until, ALARM_MEND + u64::from(disk.0));
    }

    /// Whether a request that began then may have met a full disk.
    pub(super) fn any_disk_was_full_since(&self, since: Time) -> bool {
        self.atlas.any_was_full(since, self.world.now())
    }

    /// A lane gets no turn for a while, whatever waits for it.
    fn doze(&mut self) {
        let lanes = self.process().lanes();
        let aimed_at = self.aimed_at.map(|number| number.0).filter(|lane| *lane < lanes);
        let lane = aimed_at.unwrap_or_else(|| self.random.below(lanes.into()) as u16);
        let mut us = self.random.within(1..30_000);
        if aimed_at.is_some() {
            us = us.max(15_000);
        }
        let until = self.world.now() + Duration::from_micros(us);
        self.world.note(format_args!("-- L{lane} gets no turn until {until:?}"));
        self.world.let_doze(lane, until);
    }

    fn set_clock(&mut self) {
        let now = self.world.unix_time_s();
        let by = self.random.below(7200);
        self.world.note(format_args!("-- the wall clock moves by {by} - 3600 s"));
        self.world.set_wall_clock(now + by - 3600);
    }

    /// Sectors of a disk, more likely of its data than of its metadata.
    fn some_sectors(&mut self, disk: DiskIndex) -> Range<u64> {
        let (sectors, block) = self.world.disk(disk, |d| (d.spec.sectors, d.spec.block_sectors()));
        let first = if self.random.one_in(8) { 0 } else { self.settings.data_offset };
        let anywhere = self.random.within(first..sectors);
        // Most of them where users are now, or what they wrote is not durable: most of a disk is not used twice.
        let (used, written) =
            self.world.disk(disk, |disk| (disk.last_used(), disk.store.volatile_from(anywhere)));
        let start = match self.random.below(4) {
            0 => anywhere,
            1 => written.unwrap_or(anywhere),
            _ => (used + self.random.below(8)).clamp(first, sectors - 1),
        };
        let start = start / block * block;
        let longest = *self.random.pick(&[1, 8, 64]);
        let length = self.random.within(1..longest + 1).div_ceil(block) * block;
        start..(start + length).min(sectors)
    }

    /// Takes an alarm.
    pub(super) fn ring(&mut self, alarm: u64) {
        match alarm {
            ALARM_WAKE => {}
            ALARM_STATUS => self.look(),
            ALARM_LET_GO => self.let_sync_go(),
            _ => {
                let disk = DiskIndex((alarm - ALARM_MEND) as u16);
                self.world.note(format_args!("-- {disk} recovers"));
                let now = self.world.now();
                let is_full = self.world.change_disk(disk, |disk| {
                    disk.faults.pass(now);
                    disk.faults.full_until.is_some()
                });
                if !is_full {
                    self.atlas.drained(disk, now);
                }
            }
        }
    }

    /// Makes a disk as good as new, but for what it holds.
    pub(super) fn mend(&mut self, disk: DiskIndex) {
        self.world.note(format_args!("-- {disk} is mended"));
        self.world.change_disk(disk, Disk::mend);
        self.world.lead_right(disk);
        self.atlas.drained(disk, self.world.now());
    }

    /// Whether the array bears a crash. Parity does not while a member is out, for the write hole. Mirrors do, but
    /// where a hurt member may fail after it: old and new could change places. Nor do they where the member that is
    /// out may alone have got what others are behind with.
    fn may_crash(&self) -> bool {
        if !self.bearable() || self.atlas.is_whole() {
            return true;
        }
        let has_all = || self.atlas.none_behind() || self.atlas.any_is_well(self.settings.near());
        let has_parity = matches!(self.settings.level, 4..=6);
        !has_parity && !self.atlas.any_may_fail() && (self.settings.write_behind == 0 || has_all())
    }

    /// Whether what was written may be on too few members to lose one and the power: where parity
    /// has the write hole, and where writes are left behind.
    pub(super) fn is_dense(&self) -> bool {
        matches!(self.settings.level, 4..=6) || self.settings.write_behind > 0
    }

    fn has_room_for_spares(&self) -> bool {
        let most = usize::from(self.settings.slots) + 3;
        self.settings.redundancy() > 0 && self.disks.len() < most
    }

    /// Disks that are members in sync, as far as the operator knows.
    pub(super) fn in_sync(&self) -> usize {
        let status = self.operator.status.as_ref();
        status.map_or(0, |status| with_state(status, MemberState::InSync).len())
    }
}

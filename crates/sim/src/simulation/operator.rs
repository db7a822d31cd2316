//! The operator: asks for the status, fails, removes and adds members, asks for checks.

use std::time::Duration;

use mdspace_engine::array::{Action, CommandError, Reply, Undecided};
use mdspace_engine::backend::MemberId;
use mdspace_engine::status::{
    ArrayState, ArrayStatus, MemberState, MemberStatus, SyncAction, SyncEnd,
};
use mdspace_engine::time::Time;

use crate::disk::{Disk, DiskIndex};
use crate::oracle::RawArray;
use crate::process::Answer;
use crate::settings::Tending;

use super::atlas::with_state;
use super::{Failure, Shelved, Simulation};

/// What the operator waits for and knows.
#[derive(Default)]
pub(super) struct Operator {
    orders: Vec<Order>,
    pub(super) status: Option<ArrayStatus>,
    /// When the status was asked for, and when membership was changed last.
    status_asked: Time,
    changed: Time,
    /// Since when a check runs that must find nothing.
    checking: Option<Time>,
    /// Since when a spare has waited beside a slot without a member, and nothing ran.
    spare_idle: Option<Time>,
    /// The check that was ordered must find nothing.
    expects_none: bool,
    /// Until then sync tasks may be held back by its orders, or be about to go on.
    steers_until: Option<Time>,
}

impl Operator {
    /// Whether this was ordered and is still to be done.
    pub(super) fn waits_for(&self, what: What) -> bool {
        self.orders.iter().any(|order| order.what == what)
    }

    /// Whether the last status was asked for later than that.
    pub(super) fn has_status_since(&self, time: Time) -> bool {
        self.status.is_some() && self.status_asked > time
    }

    /// Whether sync tasks may be held back at this time.
    fn steers_at(&self, time: Time) -> bool {
        self.steers_until.is_some_and(|until| time < until)
    }

    /// Whether nothing that was ordered is still to be done.
    pub(super) fn is_done(&self) -> bool {
        self.orders.iter().all(|order| order.what == What::Status)
    }
}

/// A command under way.
struct Order {
    what: What,
    answer: Answer,
    asked: Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Status,
    Fail(DiskIndex),
    Remove(DiskIndex),
    Add(DiskIndex),
    Replace(DiskIndex),
    Check,
    Repair,
    Steer,
    AcceptDoubt,
    Stop,
}

/// The alarm for the next look at the status.
pub(super) const ALARM_STATUS: u64 = 1;

/// No spare waits so long for a slot.
const SPARE_WAITS: Duration = Duration::from_secs(5);

/// The alarm that ends what holds back sync tasks.
pub(super) const ALARM_LET_GO: u64 = 2;

/// So long a story has them held back.
const HELD_BACK: Duration = Duration::from_secs(30);

/// So long after that they go on at the latest.
const GOES_ON_WITHIN: Duration = Duration::from_secs(2);

pub(super) const STATUS_EVERY: Duration = Duration::from_millis(100);

/// No sync task takes so long: not on a slow disk either, sector by sector.
pub(super) const SYNC_MAX: Duration = Duration::from_secs(2000);

/// So often a check is begun that a member's failure ends.
const CHECKS_MAX: usize = 3;

impl Simulation {
    pub(super) fn set_status_alarm(&mut self) {
        self.world.set_alarm(self.world.now() + STATUS_EVERY, ALARM_STATUS);
    }

    /// Looks at the array now and then, as a monitor does.
    pub(super) fn look(&mut self) {
        if self.process.is_some() && !self.operator.waits_for(What::Status) {
            self.order(What::Status, Action::Status);
        }
        self.set_status_alarm();
    }

    pub(super) fn order(&mut self, what: What, action: Action) {
        if what != What::Status {
            self.world.note(format_args!("-- order {what:?}"));
        }
        let answer = self.process().command(action);
        self.operator.orders.push(Order { what, answer, asked: self.world.now() });
    }

    pub(super) fn take_answers(&mut self) -> Result<(), Failure> {
        let mut at = 0;
        while at < self.operator.orders.len() {
            match self.operator.orders[at].answer.take() {
                Some(result) => {
                    let order = self.operator.orders.remove(at);
                    self.take_answer(order, result)?;
                }
                None => at += 1,
            }
        }
        Ok(())
    }

    fn take_answer(
        &mut self,
        order: Order,
        result: Result<Reply, CommandError>,
    ) -> Result<(), Failure> {
        match (order.what, result) {
            (What::Status, Ok(Reply::Status(status))) => self.take_status(order.asked, *status),
            (What::Status, Err(CommandError::Stopped)) => Ok(()),
            (what, Ok(_)) => {
                self.world.note(format_args!("-- done {what:?}"));
                self.operator.changed = self.world.now();
                match what {
                    What::Remove(disk) => self.put_back(disk),
                    What::Add(disk) => self.came_home(disk),
                    What::AcceptDoubt => self.accepted_doubt(),
                    What::Check if self.operator.expects_none => {
                        self.operator.checking = Some(self.world.now());
                    }
                    _ => {}
                }
                Ok(())
            }
            (what, Err(error)) => {
                self.world.note(format_args!("-- refused {what:?}: {error}"));
                self.judge_refusal(what, error)
            }
        }
    }

    /// Some orders race with what the array does by itself; those may be refused.
    fn judge_refusal(&mut self, what: What, error: CommandError) -> Result<(), Failure> {
        let races = matches!(
            (what, &error),
            (What::Check | What::Repair, CommandError::Busy(_) | CommandError::Broken { .. })
                // The copy to repair by may have gone.
                | (What::Remove(_) | What::Repair, CommandError::NotAMember)
                | (What::Remove(_), CommandError::Active)
                | (
                    What::Fail(_),
                    CommandError::NotAMember
                        | CommandError::Needed
                        | CommandError::NeedsLate { .. }
                        | CommandError::IsWritten
                        | CommandError::HoldsAlone { .. }
                        | CommandError::IsAhead { .. }
                        | CommandError::IsRead { .. }
                )
                | (
                    What::Replace(_),
                    CommandError::NotAMember
                        | CommandError::NotReplaceable(_)
                        | CommandError::ReadOnly
                        | CommandError::Broken { .. }
                )
                | (What::Steer, CommandError::Busy(_))
                | (What::AcceptDoubt, CommandError::NothingInDoubt)
                | (_, CommandError::Stopped)
        );
        match what {
            What::Add(disk) => self.close(disk),
            _ if races || !self.bearable() => {}
            _ => return Err(Failure::Command { command: format!("{what:?}"), error }),
        }
        Ok(())
    }

    /// A member may be in sync already, though the operator has not heard of it.
    pub(super) fn disown_what_is_filled(&mut self) {
        for &disk in self.disks.iter().filter(|disk| !self.atlas.is_in_sync(**disk)) {
            self.world.change_disk(disk, Disk::disown_all);
        }
    }

    fn take_status(&mut self, asked: Time, status: ArrayStatus) -> Result<(), Failure> {
        for disk in with_state(&status, MemberState::InSync) {
            if !self.atlas.is_in_sync(disk) {
                // What it was sent while it was being filled counts as little as what it is filled with.
                self.world.change_disk(disk, Disk::disown_all);
            }
        }
        let is_held_back = self.pending.may_stop || self.operator.steers_at(asked);
        self.atlas.learn(&self.world, asked, is_held_back, &status);
        if status.state == ArrayState::Broken {
            self.world.note(format_args!("-- the array is broken"));
            self.broken = true;
        }
        if self.bearable() {
            self.judge_status(asked, &status)?;
        }
        self.operator.status = Some(status);
        self.operator.status_asked = asked;
        Ok(())
    }

    fn judge_status(&mut self, asked: Time, status: &ArrayStatus) -> Result<(), Failure> {
        let faulty = with_state(status, MemberState::Faulty);
        if let Some(&disk) = faulty.iter().find(|&&disk| !self.atlas.is_blamed(disk)) {
            return Err(Failure::Kicked { disk });
        }
        self.judge_spares(asked, status)?;
        let ended = !status.sync.action.runs();
        if ended && self.operator.checking.is_some_and(|since| asked > since) {
            self.operator.checking = None;
            // Where a member failed in it, another task has followed by now.
            if status.sync.last_action == SyncAction::Check && status.mismatch_sectors > 0 {
                self.note_wrong_sectors();
                return Err(Failure::Check { sectors: status.mismatch_sectors });
            }
        }
        Ok(())
    }

    /// A spare gets a slot that has no member as soon as nothing runs, if the array goes on.
    fn judge_spares(&mut self, asked: Time, status: &ArrayStatus) -> Result<(), Failure> {
        let holds = |member: &&MemberStatus| member.slot.is_some() && !member.replacement;
        let is_vacant =
            status.members.iter().filter(holds).count() < usize::from(self.settings.slots);
        let mut spares = with_state(status, MemberState::Spare).into_iter();
        let stops = self.operator.waits_for(What::Stop) || self.operator.steers_at(asked);
        let may_begin = is_vacant && !stops && !status.sync.action.runs();
        let is_idle = may_begin && spares.any(|disk| self.atlas.is_well(disk));
        let since = self.operator.spare_idle.filter(|_| is_idle);
        self.operator.spare_idle = since.or(is_idle.then_some(asked));
        match since {
            Some(since) if asked.since(since) > SPARE_WAITS => {
                self.world.note(format_args!("-- {:?}", status.sync));
                Err(Failure::Stuck { what: "a spare's wait beside an empty slot".to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Tells the trace what the oracle thinks of the disks as they are.
    fn note_wrong_sectors(&self) {
        let words = match RawArray::find(&self.world, &self.disks) {
            Ok((array, _)) => format!("{:?}", array.wrong_sectors(self.model.len())),
            Err(reason) => reason.to_string(),
        };
        self.world.note(format_args!("-- sectors whose redundancy is wrong: {words}"));
    }

    /// Fails a member that does its work.
    pub(super) fn fail_member(&mut self, disk: DiskIndex) {
        self.fail(disk, false);
    }

    /// With `force` a member goes that has what is behind on the others.
    pub(super) fn fail(&mut self, disk: DiskIndex, force: bool) {
        if let Some(member) = self.process().member(disk) {
            self.atlas.set_aside(disk);
            self.order(What::Fail(disk), Action::Fail { member, force });
        }
    }

    /// Has a member replaced that works, by a spare with nothing wrong about it.
    pub(super) fn replace_member(&mut self) {
        let Some(status) = &self.operator.status else { return };
        let spares = with_state(status, MemberState::Spare);
        let any = *self.random.pick(&self.disks);
        let old = self.aimed_disk().unwrap_or(any);
        let new = spares.into_iter().find(|&disk| self.atlas.is_well(disk));
        let in_sync = with_state(status, MemberState::InSync).contains(&old);
        let (Some(new), true) = (new, in_sync) else { return };
        let process = self.process();
        let (Some(member), Some(with)) = (process.member(old), process.member(new)) else { return };
        self.world.note(format_args!("-- {new} is to replace {old}"));
        self.atlas.replace(old, new);
        self.order(What::Replace(old), Action::Replace { member, with: Some(with) });
    }

    /// Whether the operator has looked at the array since membership was changed last.
    pub(super) fn knows_members(&self) -> bool {
        self.operator.status.is_some() && self.operator.status_asked > self.operator.changed
    }

    /// Removes what failed, and brings back what is missing.
    pub(super) fn tend(&mut self) {
        let Some(status) = self.operator.status.clone().filter(|_| self.knows_members()) else {
            return;
        };
        let orders = &self.operator;
        let busy = |disk| orders.waits_for(What::Remove(disk)) || orders.waits_for(What::Add(disk));
        let all = self.disks.iter().chain(self.plugs.away());
        let idle: Vec<DiskIndex> = all.copied().filter(|&disk| !busy(disk)).collect();
        for disk in idle {
            let listed = status.members.iter().find(|member| member.name == disk.to_string());
            match (listed.map(|member| member.state), self.process().member(disk)) {
                (Some(MemberState::Faulty), Some(member)) => {
                    self.order(What::Remove(disk), Action::Remove { member });
                }
                (None, _) => self.put_back(disk),
                _ => {}
            }
        }
    }

    /// Mends a removed disk, or plugs a new one in, and adds it.
    pub(super) fn put_back(&mut self, disk: DiskIndex) {
        self.close(disk);
        if self.world.flights_on(disk) > 0 && self.random.coin() {
            // A late write may land yet. Where a lock says so, the disk cannot be opened: another time.
            return;
        }
        let is_replaced = match self.settings.tending {
            Tending::Swaps => true,
            Tending::Returns => false,
            Tending::Renews => !self.shelf.iter().any(|shelved| shelved.successor == disk),
            Tending::Any | Tending::Never => self.random.coin(),
        };
        let is_replaced = is_replaced && !self.plugs.away().contains(&disk);
        let disk = if !self.fits(disk) || is_replaced { self.replace(disk) } else { disk };
        self.mend(disk);
        self.atlas.forgive(disk);
        if self.world.is_to_be_fenced(disk) {
            // That may end a flush, and its member fails.
            self.atlas.hurt(disk);
        }
        self.add(disk);
    }

    pub(super) fn close(&mut self, disk: DiskIndex) {
        if let Some(process) = &mut self.process {
            process.close(disk);
        }
    }

    /// Whether the array takes disks with such blocks.
    fn fits(&self, disk: DiskIndex) -> bool {
        let block_sectors = self.world.disk(disk, |disk| disk.spec.block_sectors());
        block_sectors <= self.process().block_sectors()
    }

    /// Another disk instead of `disk`, which leaves the machine: a new one, or the one that was there before
    /// and holds what it held then.
    fn replace(&mut self, disk: DiskIndex) -> DiskIndex {
        let is_before = |old: &Shelved| old.successor == disk && self.fits(old.disk);
        let new = match self.shelf.iter().position(is_before) {
            Some(at) if self.settings.tending == Tending::Swaps || !self.random.one_in(4) => {
                self.shelf.remove(at).disk
            }
            _ => self.buy(disk),
        };
        self.world.note(format_args!("-- {new} replaces {disk}"));
        self.disks.retain(|&d| d != disk);
        self.plugs.stays_away(disk);
        self.atlas.unplugged(disk);
        self.disks.push(new);
        self.shelf.push(Shelved { disk, successor: new });
        new
    }

    /// A new disk like `disk`.
    pub(super) fn buy(&mut self, disk: DiskIndex) -> DiskIndex {
        let mut spec = self.world.disk(disk, |disk| disk.spec.clone());
        // An array that was assembled without its disks of large blocks cannot take them any more.
        let block_bytes = self.process().block_sectors() as u32 * 512;
        spec.logical_block_bytes = spec.logical_block_bytes.min(block_bytes);
        self.world.add_disk(spec)
    }

    pub(super) fn add(&mut self, disk: DiskIndex) {
        let Some(process) = &mut self.process else { return };
        self.world.change_disk(disk, Disk::disown_all);
        let (member, info) = process.open(disk);
        self.order(What::Add(disk), Action::Add { member, info, only_back: false });
    }

    /// Plugs in a new disk and adds it.
    pub(super) fn add_spare(&mut self) {
        let like = self.disks[0];
        let spec = self.world.disk(like, |disk| disk.spec.clone());
        let new = self.world.add_disk(spec);
        self.disks.push(new);
        self.add(new);
    }

    pub(super) fn check(&mut self) {
        self.operator.expects_none = self.atlas.is_sound();
        // Of an earlier one that a resync followed at once nobody has seen the end.
        self.operator.checking = None;
        self.order(What::Check, Action::Check);
    }

    /// Checks, and waits until that has ended; again where a member that failed ended it, or where a resync began
    /// at the end of a rebuild and had to come first.
    pub(super) fn check_to_the_end(&mut self) -> Result<(), Failure> {
        for _ in 0..CHECKS_MAX {
            self.idle_status()?;
            self.check();
            self.step_until("the order to check", |this| !this.operator.waits_for(What::Check))?;
            self.step_until("the check", |this| this.operator.checking.is_none())?;
            let checked = |status: &ArrayStatus| status.sync.last_action == SyncAction::Check;
            if !self.operator.expects_none || self.operator.status.as_ref().is_some_and(checked) {
                break;
            }
        }
        Ok(())
    }

    /// The check that runs may find something.
    pub(super) fn forgive_check(&mut self) {
        (self.operator.expects_none, self.operator.checking) = (false, None);
    }

    /// Has all redundancy made right. What the evidence leaves open goes by the data, or by a copy that is as good as
    /// any.
    pub(super) fn repair(&mut self) {
        let in_sync =
            self.operator.status.iter().flat_map(|status| with_state(status, MemberState::InSync));
        let copies: Vec<MemberId> =
            in_sync.filter_map(|disk| self.process().member(disk)).collect();
        let undecided = match self.random.below(3) {
            0 => Undecided::Leave,
            1 if !self.settings.has_parity() && self.atlas.is_sound() && !copies.is_empty() => {
                Undecided::ByMember(*self.random.pick(&copies))
            }
            _ => Undecided::ByData,
        };
        self.order(What::Repair, Action::Repair(undecided));
    }

    /// Bounds, stops, frees or goes on with sync tasks, as an operator may at any time. What holds them back ends soon.
    pub(super) fn steer(&mut self) {
        // A story has them held back.
        if self.aimed_disk().is_some() {
            self.order(What::Steer, Action::Freeze);
            return self.goes_on_in(HELD_BACK);
        }
        let Some(status) = &self.operator.status else { return };
        let (all, chunk) =
            (status.sync.total_sectors, u64::from(self.settings.chunk_sectors.max(8)));
        let bound = self.random.below(all / chunk + 1) * chunk;
        match self.random.below(6) {
            0..3 => self.set_bound("sync_max", bound),
            3 => self.set_bound("sync_min", bound),
            4 => self.order(What::Steer, Action::Freeze),
            _ => return self.order(What::Steer, Action::Idle),
        }
        let most_ms = *self.random.pick(&[20, 200, 2_000, 10_000]);
        let time = Duration::from_millis(self.random.within(1..most_ms));
        self.goes_on_in(time);
    }

    /// Lets no sync task go further than its first chunk.
    pub(super) fn bound_to_the_first_chunk(&mut self) {
        self.set_bound("sync_max", u64::from(self.settings.chunk_sectors.max(8)));
        self.goes_on_in(HELD_BACK);
    }

    /// What holds back sync tasks ends then.
    fn goes_on_in(&mut self, time: Duration) {
        let until = self.world.now() + time;
        self.operator.steers_until = self.operator.steers_until.max(Some(until + GOES_ON_WITHIN));
        self.world.set_alarm(until, ALARM_LET_GO);
    }

    fn set_bound(&self, key: &str, sector: u64) {
        let is_set = self.process().set(key, &sector.to_string());
        self.world.note(format_args!("-- {key} {sector}, taken: {is_set}"));
    }

    /// Nothing holds back sync tasks any more.
    pub(super) fn let_sync_go(&mut self) {
        if self.process.is_none() || !self.operator.steers_at(self.world.now()) {
            return;
        }
        self.world.note(format_args!("-- sync tasks may go on"));
        self.process().set("sync_max", "max");
        self.process().set("sync_min", "0");
        self.order(What::Steer, Action::Idle);
        self.operator.steers_until = Some(self.world.now() + GOES_ON_WITHIN);
    }

    /// Has everything checked or repaired, whatever is found, and waits until that has ended. None
    /// where it did not run to its end.
    pub(super) fn scrub(&mut self, action: Action) -> Result<Option<ArrayStatus>, Failure> {
        let (what, word) = match action {
            Action::Check => (What::Check, SyncAction::Check),
            _ => (What::Repair, SyncAction::Repair),
        };
        self.forgive_check();
        self.process().check_from_the_start();
        self.order(what, action);
        self.step_until("the order to scrub", |this| !this.operator.waits_for(what))?;
        let status = self.idle_status()?;
        let ended = (status.sync.last_action, status.sync.last_end);
        Ok(Some(status).filter(|_| ended == (word, Some(SyncEnd::Complete))))
    }

    /// The status at a moment from now on at which no sync task runs.
    pub(super) fn idle_status(&mut self) -> Result<ArrayStatus, Failure> {
        self.let_sync_go();
        let idle = |status: &ArrayStatus| !status.sync.action.runs();
        self.status_where("the end of all sync", SYNC_MAX, idle)
    }

    /// Waits until no member lacks a write that was answered without it.
    pub(super) fn end_of_writes_behind(&mut self) -> Result<(), Failure> {
        let none = |status: &ArrayStatus| status.write_behind.is_none_or(|it| it.under_way == 0);
        self.status_where("the end of writes left behind", self.patience(), none).map(drop)
    }

    /// The status at a moment from now on.
    pub(super) fn fresh_status(&mut self) -> Result<ArrayStatus, Failure> {
        self.status_where("the status", self.patience(), |_| true)
    }

    /// The first status from now on that is so.
    fn status_where(
        &mut self,
        what: &str,
        patience: Duration,
        is_so: impl Fn(&ArrayStatus) -> bool,
    ) -> Result<ArrayStatus, Failure> {
        let since = self.operator.steers_until.max(Some(self.world.now()));
        self.step_within(patience, what, |this| {
            Some(this.operator.status_asked) > since
                && this.operator.status.as_ref().is_some_and(&is_so)
        })?;
        Ok(self.operator.status.clone().expect("just seen"))
    }

    /// Stops the array and waits until it is stopped.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        self.order(What::Stop, Action::Stop);
        self.step_until("the stop", |this| !this.operator.waits_for(What::Stop))
    }

    /// The process is gone, and with it whoever would answer.
    pub(super) fn forget_orders(&mut self) {
        self.operator = Operator::default();
    }
}

//! What the array does by itself: resync, recovery, and the checks that users ask for.

use std::collections::BTreeSet;
use std::mem::{Discriminant, discriminant};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mdspace_format::Role;

use crate::backend::MemberId;
use crate::geometry::{Geometry, Slot};
use crate::neighbours::Neighbours;
use crate::ranges::Ranges;
use crate::status::{Mismatches, Skipped, SyncAction, SyncEnd};
use crate::time::Time;

use super::super::command::Undecided;
use super::super::mirror::{copies, regions};
use super::super::points::Point;
use super::super::rules::Rule;
use super::super::sync::{FoundSoFar, SyncKind, SyncTask};
use super::delay::Delay;
use super::first_rows::FirstRows;
use super::giving_way::{GivingWay, PutOff};
use super::progress::Readable;
use super::why_idle::{Event, Reason, WhyIdle, Work};
use super::writes::Torn;
use super::{CommandError, Controller, Member, MemberState, Reply, WriteMode};

/// The sync task and what surrounds it.
pub(super) struct Syncing {
    pub(super) task: Option<Running>,
    /// What keeps what is needed from running.
    pub(super) why_idle: WhyIdle,
    /// The members and what they were to the array when something was last started.
    membership: Vec<KnownMember>,
    /// A check or repair that a user asked for.
    pub(super) requested: Option<SyncKind>,
    pub(super) giving_way: GivingWay,
    pub(super) first_rows: FirstRows,
    /// Whom to ask before anything starts.
    pub(super) neighbours: Option<Arc<dyn Neighbours>>,
    /// They were asked, and wait until they are told of the end.
    pub(super) keeps_neighbours_waiting: bool,
    /// What waits for them.
    pub(super) delay: Option<Delay>,
    /// Members that only need what the bitmap marks.
    pub(super) by_bitmap: BTreeSet<MemberId>,
    pub(super) last_action: SyncAction,
    pub(super) last_end: Option<SyncEnd>,
    /// What the last task left undone.
    last_skipped: Ranges,
    pub(super) mismatch_sectors: u64,
    /// Those of the last check or repair.
    last_mismatches: Mismatches,
}

/// A member, what it is, where, and whether it wants to be replaced; not how far it is filled.
type KnownMember = (MemberId, Discriminant<MemberState>, Role, bool);

pub(super) struct Running {
    pub(super) task: Rc<SyncTask>,
    members: Vec<MemberId>,
    total_sectors: u64,
    /// Progress at the last checkpoint on the members.
    recorded: u64,
    /// Unsynced all the same when it is done: what it leaves alone, and what failed writes put in doubt
    /// since it began, for it may have been there before them.
    pub(super) left: Ranges,
}

/// How long after it found no space behind a member a sync task is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(30);

/// Checkpoints in one pass over an array, as many as md makes.
const CHECKPOINTS: u64 = 16;

/// Most sectors of the array that are looked up on the members between two turns of the lane.
const LISTED_SECTORS: u64 = 1 << 20;

impl Syncing {
    pub(super) fn new(by_bitmap: Vec<MemberId>, neighbours: Option<Arc<dyn Neighbours>>) -> Self {
        Self {
            task: None,
            neighbours,
            keeps_neighbours_waiting: false,
            delay: None,
            why_idle: WhyIdle::default(),
            membership: Vec::new(),
            requested: None,
            giving_way: GivingWay::default(),
            first_rows: FirstRows::default(),
            by_bitmap: by_bitmap.into_iter().collect(),
            last_action: SyncAction::Idle,
            last_end: None,
            last_skipped: Ranges::default(),
            mismatch_sectors: 0,
            last_mismatches: Mismatches::default(),
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.task.is_some()
    }

    /// Whether members are being filled.
    pub(super) fn fills_members(&self) -> bool {
        self.task.as_ref().is_some_and(|run| run.task.kind().fills_members())
    }

    /// Whatever the task that is under way copies from now on is not taken for filled.
    pub(super) fn forget_members(&mut self) {
        if let Some(run) = &mut self.task {
            run.members.clear();
        }
    }

    /// What runs, for status: action, sectors done, sectors in all.
    pub(super) fn progress(&self) -> (SyncAction, u64, u64) {
        match (&self.task, self.delay) {
            (Some(run), _) => (action_of(run.task.kind()), run.task.done(), run.total_sectors),
            (None, Some(delay)) => (delay.action, 0, 0),
            (None, None) if self.why_idle.is_frozen() => (SyncAction::Frozen, 0, 0),
            // It has not ended: it is about to go on.
            (None, None) if let Some((kind, put_off)) = self.put_off() => {
                (action_of(kind), put_off.at, put_off.total_sectors)
            }
            (None, None) => (SyncAction::Idle, 0, 0),
        }
    }

    /// A check or repair that gave way to doubt and goes on afterwards.
    fn put_off(&self) -> Option<(&SyncKind, &PutOff)> {
        let goes_on = !self.why_idle.keeps_all();
        self.requested.as_ref().zip(self.giving_way.put_off.as_ref()).filter(|_| goes_on)
    }

    /// The check or repair that waits for something else, or is about to begin.
    pub(super) fn waiting(&self) -> Option<SyncAction> {
        let goes_on = !self.why_idle.keeps_all();
        self.requested.as_ref().filter(|_| goes_on).map(action_of)
    }

    /// Speed of what runs, in KiB/s of a member.
    pub(super) fn speed_kib_s(&self, now: Time) -> u64 {
        self.task.as_ref().map_or(0, |run| run.task.speed_kib_s(now))
    }

    /// What a check or repair has found: the one that runs, or the last.
    pub(super) fn mismatches(&self) -> Mismatches {
        let counts =
            |run: &&Running| matches!(run.task.kind(), SyncKind::Check | SyncKind::Repair(_));
        match (self.task.as_ref().filter(counts), self.put_off()) {
            (Some(run), _) => run.task.found().mismatches,
            (None, Some((_, put_off))) => put_off.found.mismatches.clone(),
            (None, None) => self.last_mismatches.clone(),
        }
    }

    /// What the task, or the last one where none runs, could not do.
    pub(super) fn skipped(&self) -> Skipped {
        match &self.task {
            Some(run) => Skipped::from(&run.task.skipped()),
            None => Skipped::from(&self.last_skipped),
        }
    }
}

fn action_of(kind: &SyncKind) -> SyncAction {
    match kind {
        SyncKind::Resync => SyncAction::Resync,
        SyncKind::Recover(_) | SyncKind::Replace(_) => SyncAction::Recover,
        SyncKind::Check => SyncAction::Check,
        SyncKind::Repair(_) => SyncAction::Repair,
    }
}

fn work_of(kind: &SyncKind) -> Work {
    match kind {
        SyncKind::Resync => Work::Resync,
        SyncKind::Recover(_) => Work::Recovery,
        SyncKind::Replace(_) => Work::Replacement,
        SyncKind::Check | SyncKind::Repair(_) => Work::Request,
    }
}

/// What is to run, and what that begins with.
enum Needed {
    /// Members that lack data, and how far each is.
    Recovery(Vec<(MemberId, Slot, Readable)>),
    /// As in recovery, those that copy another member.
    Replacement(Vec<(MemberId, Slot, Readable)>),
    Resync(Ranges),
    /// A check or repair that a user asked for.
    Requested(SyncKind),
}

impl Needed {
    fn action(&self) -> SyncAction {
        match self {
            Self::Recovery(_) | Self::Replacement(_) => SyncAction::Recover,
            Self::Resync(_) => SyncAction::Resync,
            Self::Requested(kind) => action_of(kind),
        }
    }
}

impl Controller {
    /// Starts what the array needs, if nothing runs: recovery onto members that lack data, resync
    /// where redundancy is not to be trusted, a check that was asked for.
    pub(super) async fn start_needed_sync(&mut self) {
        self.look_what_changed();
        self.give_way_to_doubt();
        self.end_resync_that_waits();
        if self.sync.is_running() {
            return;
        }
        match self.sync.why_idle.keeps_all() || !self.is_redundant() {
            true => self.sync.delay = None,
            false => self.start_what_may_run().await,
        }
        if !self.sync.is_running() {
            self.let_neighbours_sync();
        }
    }

    async fn start_what_may_run(&mut self) {
        if !self.sync.why_idle.keeps(Work::Recovery) {
            self.give_spares_a_slot().await;
            self.sync.membership = self.membership();
        }
        match self.needed_sync() {
            Some(needed) if self.may_sync(needed.action()) => self.start_sync(needed).await,
            Some(_) => {}
            None => self.sync.delay = None,
        }
    }

    /// The one place where a change of membership, the clock and the array's state end reasons why nothing
    /// runs, or give them: whatever changed, and whoever changed it.
    fn look_what_changed(&mut self) {
        let membership = self.membership();
        if membership != self.sync.membership {
            // What comes while a task runs is news to whatever follows: its end may give a reason.
            if !self.sync.is_running() {
                self.sync.membership = membership;
            }
            if self.array.rules.keep(Rule::ChangesEndReasons) {
                self.happened(Event::Change);
            }
        }
        self.happened(Event::Clock(self.lane.backend().now()));
        if !self.sync.why_idle.keeps(Work::Resync) {
            let tried = std::mem::take(&mut self.without_room);
            self.sync.giving_way.had_no_room(tried);
        }
        let why_idle = &mut self.sync.why_idle;
        why_idle.holds(Reason::ReadOnly, self.read_only);
        why_idle.holds(Reason::Broken, self.mode == WriteMode::Broken);
        why_idle.holds(Reason::Stopping, self.stop.is_some());
    }

    fn membership(&self) -> Vec<KnownMember> {
        let known = |member: &Member| {
            (member.id, discriminant(&member.state), member.role(), member.wants_replacement)
        };
        self.members.iter().map(known).collect()
    }

    /// Takes note of something that may let run again what did not.
    pub(super) fn happened(&mut self, event: Event) {
        self.sync.why_idle.happened(event);
        if matches!(event, Event::Change | Event::GoOn | Event::Freeze) {
            (self.unresolved, self.without_room) = Default::default();
            self.sync.giving_way.something_changed();
        }
    }

    /// What is to run now. What a crash left in doubt comes first: should another member fail before, its
    /// blocks there are lost. A member that is to go may go soon: replacing it comes before the rest of
    /// resync where it may. A resync that others wait for does nothing that would wait at `sync_max`.
    fn needed_sync(&self) -> Option<Needed> {
        let Some(others) = self.needed_besides_resync() else {
            return self.to_resync(u64::MAX).map(Needed::Resync);
        };
        let is_first =
            |todo: &Ranges| self.resolves_doubt(todo) || matches!(others, Needed::Requested(_));
        match self.to_resync(self.array.sync_span.max()).filter(is_first) {
            Some(todo) => Some(Needed::Resync(todo)),
            None => Some(others),
        }
    }

    fn needed_besides_resync(&self) -> Option<Needed> {
        let why_idle = &self.sync.why_idle;
        let recovering = self.with_space(self.recovering());
        if !recovering.is_empty() && !why_idle.keeps(Work::Recovery) {
            return Some(Needed::Recovery(recovering));
        }
        let replacing = self.with_space(self.may_replace());
        if !replacing.is_empty() && !why_idle.keeps(Work::Replacement) {
            return Some(Needed::Replacement(replacing));
        }
        self.sync.requested.clone().map(Needed::Requested)
    }

    /// Ends a resync that waits at `sync_max` where something else is needed.
    fn end_resync_that_waits(&mut self) {
        let waits = self.sync.task.as_ref().is_some_and(|run| {
            *run.task.kind() == SyncKind::Resync && run.task.done() >= self.array.sync_span.max()
        });
        let spares_wait = || {
            let is_spare = |member: &Member| member.state == MemberState::Spare;
            let wanted = self.vacant_slots().next().is_some() || !self.to_replace().is_empty();
            wanted && self.members.iter().any(is_spare) && !self.sync.why_idle.keeps(Work::Recovery)
        };
        if waits && (self.needed_besides_resync().is_some() || spares_wait()) {
            self.end_sync();
        }
    }

    async fn start_sync(&mut self, needed: Needed) {
        match needed {
            Needed::Recovery(recovering) => self.start_recovery(&recovering).await,
            Needed::Replacement(replacing) => self.start_replacement(&replacing),
            Needed::Resync(_) => self.start_resync().await,
            Needed::Requested(kind) => {
                self.sync.requested = None;
                self.sync.mismatch_sectors = 0;
                let (todo, found) = match self.sync.giving_way.put_off.take() {
                    Some(PutOff { left, found, .. }) => (left, found),
                    None => {
                        let all = self.array.sync_span.min()..self.sync_sectors();
                        (Ranges::of(all), FoundSoFar::default())
                    }
                };
                self.start_with(kind, Vec::new(), todo, found);
            }
        }
    }

    /// Sectors as resync counts them.
    pub(super) fn sync_sectors(&self) -> u64 {
        self.geometry.sync_sectors()
    }

    /// Sectors as recovery counts them: of a member.
    pub(super) fn member_sectors(&self) -> u64 {
        match &*self.geometry {
            Geometry::Raid10(map) => map.used_sectors(),
            _ => self.sync_sectors(),
        }
    }

    fn recovering(&self) -> Vec<(MemberId, Slot, Readable)> {
        let members = self.members.iter().filter_map(|member| match member.state {
            MemberState::Recovering(slot, done) => Some((member.id, slot, done)),
            _ => None,
        });
        members.collect()
    }

    /// Those of these members behind which there is space, if any: one without keeps no other one waiting.
    fn with_space(
        &self,
        filled: Vec<(MemberId, Slot, Readable)>,
    ) -> Vec<(MemberId, Slot, Readable)> {
        let has = |member: &Member| !self.lacks_space(member);
        let able = |(id, ..): &&(MemberId, Slot, Readable)| {
            self.members.iter().any(|member| member.id == *id && has(member))
        };
        let able: Vec<_> = filled.iter().filter(able).copied().collect();
        if able.is_empty() { filled } else { able }
    }

    /// Whether some of these members are still being filled and have space.
    fn some_have_space(&self, members: &[MemberId]) -> bool {
        let filled =
            |member: &&Member| members.contains(&member.id) && member.filled_to().is_some();
        self.members.iter().filter(filled).any(|member| !self.lacks_space(member))
    }

    /// That this work found no space just now.
    fn no_space(&self, work: Work) -> Reason {
        self.later(work, AGAIN_AFTER)
    }

    /// That this work is tried again after so long.
    pub(super) fn later(&self, work: Work, after: Duration) -> Reason {
        Reason::Later(work, self.lane.backend().now() + after)
    }

    /// Whether a task was to fill others than these too.
    fn left_out(&self, kind: &SyncKind, members: &[MemberId]) -> bool {
        let wanting = match kind {
            SyncKind::Recover(_) => self.recovering(),
            SyncKind::Replace(_) => self.may_replace(),
            SyncKind::Resync | SyncKind::Check | SyncKind::Repair(_) => Vec::new(),
        };
        wanting.iter().any(|(id, ..)| !members.contains(id))
    }

    /// Spares take the places of missing members. Every lane writes to them before recovery starts,
    /// or a write between the two would be missing there.
    async fn give_spares_a_slot(&mut self) {
        let vacant: Vec<Slot> = self.vacant_slots().collect();
        let spares = self.members.iter_mut().filter(|member| member.state == MemberState::Spare);
        let mut given = false;
        for (member, slot) in spares.zip(vacant) {
            member.state = MemberState::Recovering(slot, Readable::NOTHING);
            member.has_nothing();
            given = true;
        }
        let wanting = self.to_replace();
        let spares = self.members.iter_mut().filter(|member| member.state == MemberState::Spare);
        for (member, slot) in spares.zip(wanting) {
            member.state = MemberState::Replacing(slot, Readable::NOTHING);
            member.has_nothing();
            given = true;
        }
        if given {
            self.spares_got_slots().await;
        }
    }

    fn vacant_slots(&self) -> impl Iterator<Item = Slot> {
        (0..self.geometry.raid_disks()).map(Slot).filter(|slot| !self.is_held(*slot))
    }

    /// Makes every lane write to them before anything is copied, and the superblocks say so.
    pub(super) async fn spares_got_slots(&mut self) {
        let epoch = self.publish();
        if self.array.rules.keep(Rule::AdoptedBeforeCopy) {
            self.array.views.adopted(epoch).await;
        }
        self.array.views.settle();
        self.array.points.reach(Point::SlotIsGiven);
        if let Some(bitmap) = &mut self.bitmap {
            // Nobody promises that a spare has any of it.
            bitmap.copies_differ = true;
        }
        self.update_superblocks().await;
    }

    /// What an earlier process wrote is flushed first. A member that has lost some of it must not decide what others
    /// are to hold.
    pub(super) async fn flush_before_resync(&mut self) -> bool {
        self.mode != WriteMode::Clean || self.flush_members().await
    }

    async fn start_resync(&mut self) {
        let flushed = self.flush_before_resync().await;
        match self.needed_sync() {
            Some(Needed::Resync(todo)) if flushed => {
                self.start(SyncKind::Resync, Vec::new(), todo);
            }
            // A member has failed in that. What is needed now begins at the next look.
            _ => self.array.mailbox.sync_moved(),
        }
    }

    async fn start_recovery(&mut self, recovering: &[(MemberId, Slot, Readable)]) {
        let by_bitmap = recovering.iter().all(|(id, ..)| self.sync.by_bitmap.contains(id));
        let slots: Vec<Slot> = recovering.iter().map(|(_, slot, _)| *slot).collect();
        let all = match &self.bitmap {
            Some(bitmap) if by_bitmap => {
                // It may be longer than what there is.
                let mut marked = bitmap.dirty();
                marked.remove(&(self.sync_sectors()..u64::MAX));
                self.on_members(marked, &slots).await
            }
            _ => Ranges::of(0..self.member_sectors()),
        };
        let members: Vec<MemberId> = recovering.iter().map(|(id, ..)| *id).collect();
        let todo = self.not_filled(&members, all);
        self.start(SyncKind::Recover(slots), members, todo);
    }

    /// What some of these members lack of `all` behind the place to which they are filled, and their holes
    /// before it.
    pub(super) fn not_filled(&self, members: &[MemberId], all: Ranges) -> Ranges {
        let filled = || self.members.iter().filter(|member| members.contains(&member.id));
        let offsets = || filled().filter_map(Member::filled_to);
        let least = self.array.rules.keep(Rule::FillingBeginsWithTheLeast);
        let first = if least { offsets().min() } else { offsets().max() };
        let first = first.unwrap_or(Readable::NOTHING);
        let mut todo = all;
        todo.remove(&(0..first.sector()));
        filled().flat_map(|member| member.holes.iter()).for_each(|hole| todo.insert(hole));
        todo
    }

    /// What lies in some ranges, as resync and the bitmap count them, in sectors of the members in these slots. RAID10
    /// counts those of the array, which may be millions of chunks: the lane's other tasks get their turns meanwhile.
    pub(super) async fn on_members(&self, marked: Ranges, slots: &[Slot]) -> Ranges {
        if !matches!(*self.geometry, Geometry::Raid10(_)) {
            return marked;
        }
        let mut on_members = Ranges::default();
        for range in marked.iter() {
            let mut at = range.start;
            while at < range.end {
                let length = LISTED_SECTORS.min(range.end - at);
                for region in regions(&self.geometry, at, length) {
                    let copies = copies(&self.geometry, region.sector, region.sectors());
                    for copy in copies.iter().filter(|copy| slots.contains(&copy.slot)) {
                        on_members.insert(copy.member_sector..copy.member_sector + copy.sectors);
                    }
                }
                at += length;
                self.lane.pause().await;
            }
        }
        on_members
    }

    pub(super) fn start(&mut self, kind: SyncKind, members: Vec<MemberId>, todo: Ranges) {
        self.start_with(kind, members, todo, FoundSoFar::default());
    }

    /// Starts a task that has found something before.
    fn start_with(
        &mut self,
        kind: SyncKind,
        members: Vec<MemberId>,
        todo: Ranges,
        found: FoundSoFar,
    ) {
        let total_sectors = match kind {
            SyncKind::Recover(_) | SyncKind::Replace(_) => self.member_sectors(),
            _ => self.sync_sectors(),
        };
        let recorded = todo.iter().next().map_or(total_sectors, |first| first.start);
        let mut left = Ranges::default();
        if kind == SyncKind::Resync {
            left = self.unsynced.clone();
            todo.iter().for_each(|range| left.remove(&range));
        }
        self.array.users.watch(true);
        let resolves_doubt = kind == SyncKind::Resync && self.resolves_doubt(&todo);
        self.sync.giving_way.begins(resolves_doubt, self.lane.backend().now());
        let task = SyncTask::start(&self.port, kind, todo, total_sectors, found);
        self.sync.task = Some(Running { task, members, total_sectors, recorded, left });
    }

    /// From where on a member gets nothing by the sync task that is under way.
    pub(super) fn begun_to(&self, id: MemberId) -> u64 {
        let fills = |run: &&Running| run.members.contains(&id);
        self.sync.task.as_ref().filter(fills).map_or(0, |run| run.task.begun())
    }

    /// Asks the sync task to end. It may hold claims that writes wait for, and those writes may wait
    /// for the controller: so nobody waits for it here.
    pub(super) fn end_sync(&mut self) {
        if let Some(run) = &self.sync.task {
            run.task.cancel();
        }
    }

    /// Takes news of the sync task: how far it is, or how it ended.
    pub(super) async fn sync_moved(&mut self) {
        let Some(run) = &self.sync.task else { return };
        // What a window went round has failed, and is told first: the array may break over it.
        if self.array.mailbox.tells_of_failures() {
            self.array.mailbox.sync_moved();
            return;
        }
        let (done, ended) = (run.task.done(), run.task.ended());
        let step = (run.total_sectors / CHECKPOINTS).max(1);
        // Superblocks that say nothing of a first resync look as after a crash.
        let is_first = *run.task.kind() == SyncKind::Resync && !self.resynced.covers(1) && done > 0;
        // A recovery that is complete is recorded as such.
        let record = match ended {
            Some(ended) => ended != SyncEnd::Complete,
            None => done >= run.recorded + step || is_first,
        };
        let task = run.task.clone();
        self.advance(&task, done);
        self.array.points.reach(Point::WindowIsDone);
        if record {
            self.checkpoint(done).await;
        }
        if let Some(ended) = ended {
            self.sync_ended(&task, ended).await;
        }
    }

    /// Lets lanes read what the task has made good. An older view only trusts less.
    fn advance(&mut self, task: &SyncTask, done: u64) {
        match task.kind() {
            SyncKind::Resync => {
                let mut synced = Ranges::of(0..done);
                let left = self.sync.task.iter().flat_map(|run| run.left.iter());
                task.skipped().iter().chain(left).for_each(|left| synced.remove(&left));
                synced.iter().for_each(|range| self.is_synced(&range));
            }
            SyncKind::Recover(_) | SyncKind::Replace(_) => {
                self.note_copied();
                let skipped = task.skipped();
                // By member, not by slot: another may have come into it since.
                let run = self.sync.task.as_ref();
                for member in &mut self.members {
                    if let MemberState::Recovering(_, known) | MemberState::Replacing(_, known) =
                        &mut member.state
                        && run.is_some_and(|run| run.members.contains(&member.id))
                    {
                        // What it had before stays, whatever another member lacks. So do its own holes there.
                        let mut lacks = skipped.clone();
                        lacks.remove(&(0..known.sector()));
                        *known = Readable::up_to(done).max(*known);
                        if self.array.rules.keep(Rule::SkippedIsAHole) {
                            member.distrust(&lacks);
                        }
                    }
                }
            }
            SyncKind::Check | SyncKind::Repair(_) => return,
        }
        self.publish();
        self.array.views.settle();
    }

    /// Records progress on the members, after a flush: a recovery offset promises data.
    pub(super) async fn checkpoint(&mut self, done: u64) {
        if let Some(run) = &mut self.sync.task {
            run.recorded = done;
        }
        let is_filled = |member: &Member| member.filled_to().is_some();
        // What a resync of an array in use did is not stamped: see `resync_offset`.
        let stamps = self.resync_lags() || self.members.iter().any(is_filled);
        if stamps && self.flush_members().await {
            self.array.points.reach(Point::ProgressIsFlushed);
            if self.update_superblocks().await {
                self.array.points.reach(Point::ProgressIsRecorded);
            }
        }
    }

    /// Where redundancy is known to be right further than the superblocks say, and no task is about to say
    /// so: they are brought up to it.
    pub(super) async fn record_what_is_synced(&mut self) {
        if self.resync_lags() && !self.sync.is_running() && self.flush_members().await {
            self.update_superblocks().await;
        }
    }

    /// Whether superblocks would say more of resync after a flush.
    fn resync_lags(&self) -> bool {
        let is_durable = self.resynced.covers(self.resync_readable().sector());
        self.is_redundant() && self.mode == WriteMode::Clean && !is_durable
    }

    async fn sync_ended(&mut self, task: &SyncTask, ended: SyncEnd) {
        let Some(run) = self.sync.task.take() else { return };
        self.array.users.watch(false);
        if !self.first_rows_ended() {
            self.sync.last_action = action_of(task.kind());
            self.sync.last_end = Some(ended);
            self.sync.last_skipped = task.skipped();
            self.keep_span(task, ended);
        }
        self.gave_way(task, ended, run.total_sectors);
        if !self.sync.giving_way.has_given_way() {
            self.let_neighbours_sync();
        }
        match (task.kind(), ended) {
            (SyncKind::Recover(_), SyncEnd::Complete) => self.recovered(&run.members).await,
            (SyncKind::Replace(_), SyncEnd::Complete) => self.replaced(&run.members).await,
            (SyncKind::Resync, SyncEnd::Complete) => self.resynced().await,
            (SyncKind::Check | SyncKind::Repair(_), _) => {
                let found = task.found();
                self.sync.mismatch_sectors = found.mismatch_sectors;
                self.sync.last_mismatches = found.mismatches;
            }
            (_, SyncEnd::Interrupted) => {}
            (SyncKind::Resync, SyncEnd::Incomplete) => {
                // Some of it could not be done; the rest was. What an earlier one left was not among it.
                let tried = self.tried_in_vain(task, &run.left);
                tried.iter().for_each(|range| self.unresolved.insert(range));
                self.resynced().await;
            }
            (SyncKind::Resync, SyncEnd::NoSpace) => {
                let tried = self.tried_in_vain(task, &run.left);
                tried.iter().for_each(|range| self.without_room.insert(range));
                self.sync.why_idle.add(self.no_space(Work::Resync));
                self.resynced().await;
            }
            (kind, SyncEnd::Incomplete) => {
                // Those that had no space when it began are tried again.
                let reason = match self.left_out(kind, &run.members) {
                    true => self.no_space(work_of(kind)),
                    false => Reason::Failed(work_of(kind)),
                };
                self.sync.why_idle.add(reason);
            }
            // Those are filled now, without the others.
            (_, SyncEnd::NoSpace) if self.some_have_space(&run.members) => {}
            (kind, SyncEnd::NoSpace) => {
                self.sync.why_idle.add(self.no_space(work_of(kind)));
            }
        }
    }

    /// What a resync could not do, and what is as it was then: writes made some of it right, and left some in doubt
    /// that was not there before.
    fn tried_in_vain(&self, task: &SyncTask, left: &Ranges) -> Ranges {
        let mut tried = task.skipped().both(&self.unsynced);
        left.iter().for_each(|range| tried.remove(&range));
        tried
    }

    /// As md: what ran to its end needs no bounds any more, and a check or repair that was told to end
    /// goes on there the next time. Bounds stay where a resync was not all that they are for.
    fn keep_span(&self, task: &SyncTask, ended: SyncEnd) {
        let (span, interrupted) = (&self.array.sync_span, ended == SyncEnd::Interrupted);
        let is_needed = *task.kind() == SyncKind::Resync
            && (self.sync.giving_way.has_given_way()
                || self.needed_besides_resync().is_some()
                || self.unsynced.overlaps(&(span.max()..u64::MAX)));
        if !interrupted && !is_needed {
            span.forget_max();
        }
        if matches!(task.kind(), SyncKind::Check | SyncKind::Repair(_)) {
            span.go_on_at(if interrupted { self.whole_chunks(task.done()) } else { 0 });
        }
    }

    fn whole_chunks(&self, sector: u64) -> u64 {
        sector - sector % self.geometry.chunk_sectors().unwrap_or(1)
    }

    /// Recovered members hold all their data now, once those are flushed: a superblock that calls
    /// them in sync promises that. Who got a hole meanwhile is filled there first.
    async fn recovered(&mut self, members: &[MemberId]) {
        let flushed = self.array.rules.keep(Rule::FilledIsFlushed);
        if flushed && !self.flush_members().await {
            return;
        }
        self.array.points.reach(Point::MemberIsFilled);
        let end = self.member_sectors();
        let mut filled = Vec::new();
        for member in self.members.iter_mut().filter(|member| members.contains(&member.id)) {
            if let MemberState::Recovering(slot, _) = member.state
                && (!flushed || member.is_filled(end))
            {
                member.state = MemberState::InSync(slot);
                self.sync.by_bitmap.remove(&member.id);
                filled.push(member.id);
            }
        }
        // Lanes hear of it once the superblocks say so: until then a crash has them filled again.
        self.update_superblocks().await;
        self.publish();
        self.array.views.settle();
        self.set_clearing_alarm();
    }

    async fn resynced(&mut self) {
        self.happened(Event::Resynced);
        self.publish();
        self.array.views.settle();
        if self.flush_members().await && self.update_superblocks().await {
            self.array.points.reach(Point::ResyncIsRecorded);
        }
        self.set_clearing_alarm();
    }

    /// Adds ranges whose redundancy a failed write left in doubt. The write holds its claim until no
    /// lane trusts them.
    pub(super) async fn distrust(&mut self, torn: &Torn) {
        if !self.is_redundant() || !self.array.rules.keep(Rule::FailedWritesLeaveDoubt) {
            return;
        }
        // What was copied before says nothing of what is known from now on.
        self.note_copied();
        for range in torn.doubt.iter() {
            if let Some(run) = &mut self.sync.task {
                run.left.insert(range.clone());
            }
            self.doubted.insert(range.clone());
            self.unaccepted.insert(range.clone());
            self.accepted_for_all.remove(&range);
            self.outliers.forget(&range);
            self.unsynced.insert(range);
        }
        self.array.mailbox.is_in_doubt_again(&torn.doubt);
        for (range, slots) in torn.outliers.iter() {
            self.outliers.insert(range.clone(), slots.clone());
        }
        self.distrust_filled(torn).await;
        let epoch = self.publish();
        self.array.views.adopted(epoch).await;
        self.array.views.settle();
        self.array.points.reach(Point::RowsAreInDoubt);
    }

    /// A write may have come to a member and not to the one that is filled with a copy of it: what is there
    /// is copied again. A member that holds blocks of its own keeps those that it is read for: no other member could
    /// give them. So does a replacement whose block was not among those that were sent, and the copy of which a mirror
    /// is read.
    async fn distrust_filled(&mut self, torn: &Torn) {
        let copies = !matches!(*self.geometry, Geometry::Parity(_));
        let is_copy = |member: &Member| match member.state {
            MemberState::Replacing(slot, _) => Some((member.id, slot)),
            MemberState::Recovering(slot, _) => copies.then_some((member.id, slot)),
            _ => None,
        };
        if !self.array.rules.keep(Rule::DoubtMakesHoles) {
            return;
        }
        // Where each has a copy: beside that it holds other blocks.
        let mut holes = Vec::new();
        for (id, slot) in self.members.iter().filter_map(is_copy).collect::<Vec<_>>() {
            let ranges = match &torn.sent {
                Some(sent) if !copies => sent.get(&slot).cloned().unwrap_or_default(),
                _ => torn.doubt.clone(),
            };
            let lacks = self.but_what_it_gives_first(id, slot, ranges);
            holes.push((id, self.on_members(lacks, &[slot]).await));
        }
        if !copies && self.array.rules.keep(Rule::FailedRowsAreFilledAgain) {
            holes.extend(self.not_filled_in(&torn.doubt));
        }
        holes.retain(|(_, holes)| !holes.is_empty());
        if holes.is_empty() {
            return;
        }
        self.lack_again(&holes);
    }

    /// What of rows of parity has not come to members that are filled. Their doubt may end by what the others say alone,
    /// and what fills them now may have begun without these rows.
    fn not_filled_in(&self, doubt: &Ranges) -> Vec<(MemberId, Ranges)> {
        let filled = self.members.iter();
        let filled = filled.filter(|member| matches!(member.state, MemberState::Recovering(..)));
        filled.map(|member| (member.id, member.not_filled().both(doubt))).collect()
    }

    /// What these members have in these ranges is not what belongs there, or may not be. What was copied until now was
    /// copied before that: it fills no hole of these. What is being copied may have read before, and counts for nothing
    /// there.
    pub(super) fn lack_again(&mut self, holes: &[(MemberId, Ranges)]) {
        self.note_copied();
        if let Some(run) = &self.sync.task {
            holes.iter().for_each(|(_, holes)| run.task.distrust(holes));
        }
        for (id, holes) in holes {
            if let Some(index) = self.index_of(*id) {
                self.members[index].distrust(holes);
            }
        }
    }

    /// Takes note of what was copied until now: it is no hole any more, and what was computed fits the others.
    fn note_copied(&mut self) {
        let Some(run) = &self.sync.task else { return };
        let copied = run.task.take_copied();
        for member in self.members.iter_mut().filter(|member| run.members.contains(&member.id)) {
            if let MemberState::Recovering(slot, _) = member.state
                && !self.outliers.is_empty()
            {
                // What it had before was not computed anew.
                let filled = member.not_filled().both(&copied);
                filled.iter().for_each(|range| self.outliers.fits(slot, &range));
            }
            member.was_copied(&copied);
        }
    }

    pub(super) fn request_check(&mut self, kind: SyncKind) -> Result<Reply, CommandError> {
        if !self.is_redundant() {
            return Err(CommandError::NoRedundancy);
        }
        if let SyncKind::Repair(Undecided::ByMember(id)) = kind {
            let slot = self.index_of(id).and_then(|index| self.members[index].slot());
            slot.ok_or(CommandError::NotAMember)?;
            if matches!(*self.geometry, Geometry::Parity(_)) {
                return Err(CommandError::NoCopies);
            }
        }
        self.may_begin()?;
        self.happened(Event::Request);
        self.sync.giving_way.forget_what_was_put_off();
        self.sync.requested = Some(kind);
        Ok(Reply::Done)
    }

    /// Starts what is needed, also where it was frozen or ended with an error.
    pub(super) fn go_on(&mut self) -> Result<Reply, CommandError> {
        if !self.is_redundant() {
            return Err(CommandError::NoRedundancy);
        }
        self.may_begin()?;
        self.happened(Event::GoOn);
        Ok(Reply::Done)
    }

    /// Refuses an order to sync where it would not run: a check too writes what it cannot read.
    fn may_begin(&self) -> Result<(), CommandError> {
        if self.mode == WriteMode::Broken {
            return Err(self.broken());
        }
        if self.read_only {
            return Err(CommandError::NoSyncReadOnly);
        }
        match &self.sync.task {
            Some(run) => Err(CommandError::Busy(action_of(run.task.kind()).word())),
            None => Ok(()),
        }
    }

    pub(super) fn idle(&mut self, freeze: bool) -> Result<Reply, CommandError> {
        self.happened(if freeze { Event::Freeze } else { Event::GoOn });
        self.sync.requested = None;
        self.sync.giving_way.forget_what_was_put_off();
        self.end_sync();
        Ok(Reply::Done)
    }
}

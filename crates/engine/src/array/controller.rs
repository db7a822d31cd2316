//! The one owner of membership.
//!
//! Member and array state change here and nowhere else: mail comes in from lanes, users and the sync
//! task; views and superblock writes go out. It runs as a task of lane 0 and does one thing at a time.
//!
//! The order of every change is its durability: dirty superblocks before the first write, the
//! bitmap's bits before the data under them, a failure on the survivors' superblocks before the
//! write that found it is acknowledged.

mod admission;
mod bad_blocks;
mod bitmap;
mod delay;
mod doubt;
mod first_rows;
mod giving_way;
mod io_end;
mod late;
mod late_list;
mod leaving;
mod lost;
mod membership;
mod metadata;
mod progress;
mod replacement;
mod report;
mod rest;
mod space;
mod stop;
mod syncing;
mod why_idle;
mod writes;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mdspace_format::{BadBlockLog, Features, Role, Superblock};

use crate::backend::{MemberId, MemberInfo};
use crate::geometry::{Geometry, Slot};
use crate::lane::Lane;
use crate::ranges::Ranges;
use crate::status::MembersLeft;
use crate::time::Time;

use super::Array;
use super::array_lane::ArrayLane;
use super::command::{Action, Command, CommandError, Reply};
use super::ended::Asked;
use super::mailbox::Mail;
use super::news::NewsCount;
use super::outliers::Outliers;
use super::points::Point;
use super::rules::Rule;
use super::start::Start;
use super::sync::SyncKind;
use super::view::{ArrayView, MemberView, WriteMode};

pub(in crate::array) use admission::Admission;
use bad_blocks::ReadErrors;
use bitmap::Bitmap;
use late_list::LateList;
use membership::Departed;
use progress::{Durable, Readable};
use replacement::HandOver;
use rest::Rest;
use stop::{FORCE_AFTER, Stopping};
use syncing::Syncing;
use why_idle::Event;

/// How long after the last write the array is marked clean; md's `safe_mode_delay`.
const SAFE_MODE_DELAY: Duration = Duration::from_millis(200);

/// Between two looks at writes that are to end.
const RETRY_DELAY: Duration = Duration::from_millis(1);

/// How long no write starts while an order waits for those under way. One of these may wait for the right to
/// write somewhere else, which none gets meanwhile: so there is a pause after it.
const HELD_FOR: Duration = Duration::from_secs(2);

/// How long writes are kept from starting, where others are under way.
#[derive(Clone, Copy)]
enum Held {
    Briefly,
    ForAWhile,
}

/// Owner of an array's members, views and metadata.
pub(super) struct Controller {
    array: Arc<Array>,
    lane: Rc<Lane>,
    /// The controller's own lane of the array, for the sync task.
    port: Rc<ArrayLane>,
    geometry: Arc<Geometry>,
    members: Vec<Member>,
    /// Event count of the last update.
    events: u64,
    mode: WriteMode,
    /// Whether a member is reserved by another host.
    is_reserved: Cell<bool>,
    /// What the user wants; a broken array is not read-only.
    read_only: bool,
    /// Redundancy not to be trusted yet, in sectors as resync counts them.
    unsynced: Ranges,
    /// The part of it that a crash or a failed write left in doubt; see [`ArrayView::doubted`].
    doubted: Ranges,
    /// The part of that which the user has not accepted; see [`ArrayView::unaccepted`].
    unaccepted: Ranges,
    /// The part in which the user accepted parity for all that is lacked; see [`ArrayView::accepted_for_all`].
    accepted_for_all: Ranges,
    /// Where it is known which members lack something, and the others are of one time.
    outliers: Outliers,
    departed: Vec<Departed>,
    /// What the update of the superblocks that is under way hands over.
    hand_over: Option<HandOver>,
    /// How many pieces of news about blocks it has acted on.
    heard: NewsCount,
    /// The part of `unsynced` that resync has looked at and could not make right. It is not tried again
    /// before something changes.
    unresolved: Ranges,
    /// The part of it for which there was no space. It is tried again after a while, or when something changes.
    without_room: Ranges,
    /// Redundancy below this sector is right, after a power cut too; for superblocks.
    resynced: Durable,
    bitmap: Option<Bitmap>,
    /// The superblocks name a bitmap that could not be read: they are to become newer than it may be.
    outruns_bitmap: bool,
    /// A member is out, and no superblock says so, for nothing was written since.
    is_unrecorded: bool,
    intent_epoch: u64,
    sync: Syncing,
    /// Writes counted when the safe-mode clock was started, and when it rings.
    quiet: Option<(u64, Time)>,
    next_clearing: Option<Time>,
    /// Orders to refuse writes that wait for those under way to end.
    until_read_only: Vec<Command>,
    /// Since when no write starts, so that those under way come to an end.
    held_since: Option<Time>,
    /// No write of a parity row begins while members are given up by choice.
    rest: Option<Rest>,
    /// None is kept for writes under way before this.
    no_rest_before: Option<Time>,
    /// Writes that wait for their verdict. Nothing is on record yet of what members lack of them.
    asking: Vec<Arc<Asked>>,
    /// Those of them that a member keeps from an answer which can be given up when what is behind has landed.
    landing: Vec<Arc<Asked>>,
    /// Something that was behind has landed since.
    has_landed: bool,
    /// Devices on their way in that are written to now, beside the controller.
    preparing: usize,
    /// Whoever waits for something to happen, and whether anything may have since one was told.
    watcher: Option<Command>,
    news: bool,
    stop: Option<Stopping>,
}

/// A device of the array.
struct Member {
    id: MemberId,
    info: MemberInfo,
    superblock: Superblock,
    state: MemberState,
    /// While it is filled: data up to this member sector are there for good.
    durable: Durable,
    /// What its superblock is to say before any other update, where a crash kept the last one from it.
    behind: Option<Superblock>,
    /// Up to where its superblock, as it stands on the device, says that it holds its data.
    recorded_sectors: u64,
    bad: Arc<Ranges>,
    /// The bad-block log as it stands on the device.
    log: BadBlockLog,
    /// Whether its superblock, as it stands on the device, says that the log lists something.
    list_is_on_record: bool,
    /// The write of that log which has not ended yet, where it was not over in time.
    late_list: Option<LateList>,
    /// While it is filled: what of it is not what belongs there, wherever that lies. Whatever puts a
    /// range in doubt adds to it; only a window that was copied since takes away.
    holes: Arc<Ranges>,
    /// It let a read pass its deadline, and has not answered since.
    is_late: bool,
    /// When a write found no space behind it last.
    without_space: Option<Time>,
    read_errors: ReadErrors,
    /// A spare is to take its place while it still works; md's word for it is `want_replacement`.
    wants_replacement: bool,
}

/// What a device is to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MemberState {
    /// All data of its slot are there.
    InSync(Slot),
    /// Data up to this member sector are there to be read; not all of them may be flushed yet.
    Recovering(Slot, Readable),
    /// It is to take this slot over from a member that still works; that one's data are here up to this
    /// member sector. It is written and not read.
    Replacing(Slot, Readable),
    /// It waits for a slot.
    Spare,
    /// It failed.
    Faulty,
    /// It was lost together with more members than the level bears. Nothing on disk says so.
    Lost(Slot),
}

impl Member {
    /// The slot in which it is read or written.
    fn slot(&self) -> Option<Slot> {
        match self.state {
            MemberState::InSync(slot) | MemberState::Recovering(slot, _) => Some(slot),
            MemberState::Replacing(..)
            | MemberState::Spare
            | MemberState::Faulty
            | MemberState::Lost(_) => None,
        }
    }

    /// Whether it gets what users write.
    fn is_written(&self) -> bool {
        self.slot().is_some() || self.replaces()
    }

    /// Whether it is to take a slot over from the member in it.
    fn replaces(&self) -> bool {
        matches!(self.state, MemberState::Replacing(..))
    }

    /// Whether it has all of a slot, and its superblock is yet to say so.
    fn is_yet_to_be_in_sync(&self) -> bool {
        matches!(self.state, MemberState::InSync(_)) && self.recorded_sectors < u64::MAX
    }

    /// Whether its superblock is kept up to date.
    fn is_live(&self) -> bool {
        !matches!(self.state, MemberState::Faulty | MemberState::Lost(_))
    }

    fn role(&self) -> Role {
        match self.state {
            MemberState::Spare => Role::Spare,
            MemberState::Faulty => Role::Faulty,
            MemberState::InSync(slot)
            | MemberState::Recovering(slot, _)
            | MemberState::Replacing(slot, _)
            | MemberState::Lost(slot) => Role::Slot(slot.0),
        }
    }
}

impl Controller {
    pub(super) fn new(start: Start, array: Arc<Array>, port: Rc<ArrayLane>) -> Self {
        let (crashed, is_unrecorded) = (start.crashed, start.is_unrecorded());
        let members = start.members.into_iter().map(|member| Member {
            bad: Arc::new(member.listed()),
            id: member.id,
            info: member.info,
            state: first_state(&member.superblock),
            durable: Durable::found(member.superblock.recovery_offset_sectors.unwrap_or(0)),
            behind: member.behind,
            recorded_sectors: match member.is_on_record {
                true => promised_sectors(&member.superblock),
                false => 0,
            },
            list_is_on_record: member.superblock.features.contains(Features::BAD_BLOCKS),
            superblock: member.superblock,
            log: member.log,
            late_list: None,
            holes: Arc::default(),
            is_late: false,
            without_space: None,
            read_errors: ReadErrors::default(),
            wants_replacement: false,
        });
        let view = array.views.current();
        let mut controller = Self {
            members: members.collect(),
            lane: port.lane.clone(),
            geometry: view.geometry.clone(),
            events: start.events,
            mode: view.mode,
            is_reserved: Cell::new(false),
            read_only: start.read_only,
            doubted: Ranges::clone(&view.doubted),
            unaccepted: Ranges::clone(&view.unaccepted),
            accepted_for_all: Ranges::default(),
            outliers: Outliers::default(),
            unsynced: start.unsynced,
            unresolved: Ranges::default(),
            without_room: Ranges::default(),
            resynced: Durable::NOTHING,
            heard: NewsCount::default(),
            departed: Vec::new(),
            hand_over: None,
            outruns_bitmap: false,
            is_unrecorded,
            bitmap: start.bitmap.map(|found| Bitmap::new(found, start.copies_differ)),
            intent_epoch: 0,
            sync: Syncing::new(start.by_bitmap, start.neighbours),
            quiet: None,
            next_clearing: None,
            until_read_only: Vec::new(),
            held_since: None,
            rest: None,
            no_rest_before: None,
            asking: Vec::new(),
            landing: Vec::new(),
            has_landed: false,
            preparing: 0,
            watcher: None,
            news: false,
            stop: None,
            array,
            port,
        };
        // What assembly has made of a crash is on no member yet.
        if !crashed {
            controller.resynced = Durable::found(controller.resync_readable().sector());
        }
        let names_one = controller.model().superblock.features.contains(Features::BITMAP_OFFSET);
        controller.outruns_bitmap = names_one && controller.bitmap.is_none();
        controller
    }

    /// Serves until the array is stopped.
    pub(super) async fn run(mut self) {
        self.announce_bitmap();
        if self.is_unrecorded && !self.read_only {
            self.record_who_is_out().await;
            self.array.views.settle();
        }
        loop {
            if self.landing.is_empty() {
                self.array.behind.let_go();
            }
            self.maintain().await;
            if self.stop.is_some() && self.try_stop().await {
                return;
            }
            self.tell_watcher();
            let alarm = self.next_alarm();
            let array = self.array.clone();
            let lane = self.lane.clone();
            let mail = array.mailbox.collect(&lane, alarm).await;
            self.news |= !mail.only_asks();
            self.handle(mail).await;
        }
    }

    /// Doubts come first: without a member that failed, blocks are computed from what is trusted.
    /// Then failures: everything after them is decided without the members that are gone.
    async fn handle(&mut self, mut mail: Mail) {
        self.asking = std::mem::take(&mut mail.ended);
        self.doubt_made_whole(&mail.made_whole).await;
        mail.may_resync.iter().for_each(|range| self.unresolved.remove(&range));
        if !mail.resolved.is_empty() {
            self.doubt_resolved(&mail.resolved).await;
        }
        if !mail.failures.is_empty() {
            self.members_failed(&mail.failures).await;
        }
        if mail.tells_of_blocks() {
            self.hear_of_blocks(&mail).await;
        }
        // By what the members are now.
        self.judge_writes().await;
        if !mail.corrected.is_empty() {
            self.reads_corrected(&mail.corrected).await;
        }
        self.members_late(&mail.late);
        self.members_without_space(&mail.no_space);
        self.members_answered(&mail.answered);
        self.has_landed |= mail.landed;
        if mail.sync_moved {
            self.sync_moved().await;
        }
        if mail.want_open {
            self.open().await;
        }
        if mail.want_intent {
            self.set_wanted_bits().await;
        }
        for admission in mail.admissions {
            self.go_on_with(admission).await;
        }
        for command in mail.commands {
            self.command(command).await;
        }
    }

    fn tell_watcher(&mut self) {
        if self.news
            && let Some(watcher) = self.watcher.take()
        {
            self.news = false;
            (watcher.reply)(Ok(Reply::Done));
        }
    }

    async fn command(&mut self, command: Command) {
        // What a stop waits for may be a member that only this order lets it do without.
        let goes_on = matches!(
            command.action,
            Action::Status
                | Action::Fail { .. }
                | Action::Stop
                | Action::StopByForce
                | Action::Abandon
        );
        if self.stop.is_some() && !goes_on {
            return (command.reply)(Err(CommandError::Stopped));
        }
        let result = match command.action {
            Action::Status => Ok(Reply::Status(Box::new(self.status()))),
            Action::Fail { member, force } => match self.fail(member, force).await {
                Err(CommandError::IsWritten) if self.keeps_rest() => {
                    return self.order_later(command);
                }
                result => result,
            },
            Action::Remove { member } => self.remove(member).await,
            Action::Add { member, ref info, only_back } => {
                let info = info.clone();
                return self.begin_to_add(member, info, only_back, command).await;
            }
            Action::Replace { member, with } => self.replace(member, with).await,
            Action::ReadOnly if self.mode == WriteMode::Broken => Err(self.broken()),
            Action::ReadOnly => {
                self.read_only = true;
                // It would not run, and who waits for it would be told of an older one.
                self.sync.requested = None;
                self.until_read_only.push(command);
                return;
            }
            Action::ReadWrite => self.go_read_write().await,
            Action::Check => self.request_check(SyncKind::Check),
            Action::Repair(undecided) => self.request_check(SyncKind::Repair(undecided)),
            Action::Sync => self.go_on(),
            Action::AcceptDoubt => self.accept_doubt().await,
            Action::Idle => self.idle(false),
            Action::Freeze => self.idle(true),
            Action::News => {
                if let Some(before) = self.watcher.replace(command) {
                    (before.reply)(Ok(Reply::Done));
                }
                return;
            }
            Action::Stop => return self.begin_to_stop(command, None),
            Action::StopByForce => return self.begin_to_stop(command, Some(FORCE_AFTER)),
            Action::Abandon => return self.begin_to_stop(command, Some(Duration::ZERO)),
        };
        (command.reply)(result);
    }

    /// Does what the state asks for and nobody has to order.
    async fn maintain(&mut self) {
        // Boxed: an order may be among what it does.
        Box::pin(self.ask_for_rest_again()).await;
        self.judge_what_landed().await;
        if self.stop.is_none() && self.until_read_only.is_empty() {
            self.forget_first_rows();
        }
        self.finish_read_only().await;
        self.close_when_quiet().await;
        self.clear_idle_bits().await;
        self.accept_doubt_if_told().await;
        self.record_what_is_synced().await;
        self.start_needed_sync().await;
        let waits_for_doubt = self.sync.why_idle.waits_for(Event::Resynced);
        self.array.mailbox.wakes_when_whole(waits_for_doubt);
        self.end_rest();
    }

    fn next_alarm(&self) -> Option<Time> {
        let quiet = self.quiet.map(|(_, when)| when);
        let now = self.lane.backend().now();
        let stop = self.stop.as_ref().and_then(|stopping| stopping.next_alarm(now));
        let delay = self.sync.delay.map(|delay| delay.again);
        let gives_way = self.gives_way_at();
        let why_idle = self.sync.why_idle.next_alarm();
        let first_rows = self.first_rows_end().filter(|until| *until > now);
        let rest = self.next_rest();
        [quiet, self.next_clearing, why_idle, delay, gives_way, stop, first_rows, rest]
            .into_iter()
            .flatten()
            .min()
    }

    /// Marks the array dirty on the members, then lets writes go. After a crash from here on,
    /// assembly knows that parity may not agree with data.
    async fn open(&mut self) {
        // The sync task that is to end first may wait for the claim of the very write that asks.
        let closes = (self.read_only || self.stop.is_some()) && !self.sync.is_running();
        if self.mode != WriteMode::Clean || closes {
            return;
        }
        // Where a member fails in it, lanes get a view in the middle: they are not to write under that.
        self.mode = WriteMode::Closing;
        // Broken over it, writes must hear of that too.
        let dirty_first = self.array.rules.keep(Rule::ArrayIsDirtyFirst);
        if !dirty_first || self.update_superblocks().await {
            self.mode = WriteMode::Open;
            self.array.points.reach(Point::ArrayIsDirty);
        }
        self.publish();
        self.array.views.settle();
    }

    /// Marks the array clean when no write came for a while.
    async fn close_when_quiet(&mut self) {
        if self.mode != WriteMode::Open || !self.is_redundant() || !self.unsynced.is_empty() {
            self.quiet = None;
            return;
        }
        let (now, writes) = (self.lane.backend().now(), self.array.views.writes());
        match self.quiet {
            Some((known, when)) if known == writes && now >= when => {
                self.quiet = None;
                self.close(Held::Briefly).await;
            }
            Some((known, _)) if known == writes => {}
            _ => self.quiet = Some((writes, now + SAFE_MODE_DELAY)),
        }
    }

    /// Tries to mark the array clean: every lane adopts a view under which no write starts. If none
    /// was under way anywhere, nothing can be when the superblocks say clean.
    async fn close(&mut self, held: Held) -> bool {
        self.mode = WriteMode::Closing;
        let epoch = self.publish();
        let busy = self.array.views.adopted(epoch).await;
        let now = self.lane.backend().now();
        let since = self.held_since.take().unwrap_or(now);
        if busy && self.array.rules.keep(Rule::CleanWaitsForWrites) {
            match held {
                Held::ForAWhile if now.since(since) < HELD_FOR => self.held_since = Some(since),
                Held::ForAWhile | Held::Briefly => self.mode = WriteMode::Open,
            }
        } else if !self.array.rules.keep(Rule::CleanIsFlushed) || self.flush_members().await {
            self.mode = WriteMode::Clean;
            self.array.points.reach(Point::CleanIsFlushed);
            if self.update_superblocks().await {
                self.array.points.reach(Point::ArrayIsClean);
            }
        }
        self.publish();
        self.array.views.settle();
        !busy
    }

    /// Carries out orders to refuse writes, once those under way have ended. Nothing waits for them
    /// here: they may wait for this very task, to be told of a failure or of bits.
    async fn finish_read_only(&mut self) {
        if self.until_read_only.is_empty() || !self.come_to_rest().await {
            return;
        }
        let broken = self.mode == WriteMode::Broken;
        if !broken {
            self.mode = WriteMode::ReadOnly;
            self.publish();
            self.array.views.settle();
        }
        let done = if broken { Err(self.broken()) } else { Ok(Reply::Done) };
        for order in self.until_read_only.drain(..) {
            (order.reply)(done.clone());
        }
    }

    /// Ends the sync task and marks the array clean. False while a window or a write is under way;
    /// mail comes when it is time to try again. No write starts meanwhile, or under load it would come to nothing.
    async fn come_to_rest(&mut self) -> bool {
        if self.sync.is_running() {
            self.end_sync_but_first_rows();
            return false;
        }
        if self.begin_first_rows().await {
            return false;
        }
        let closes = matches!(self.mode, WriteMode::Open | WriteMode::Closing);
        if closes && !self.close(Held::ForAWhile).await {
            self.look_again_soon().await;
            return false;
        }
        true
    }

    /// Lets writes under way go on for a moment.
    async fn look_again_soon(&self) {
        self.lane.sleep_until(self.lane.backend().now() + RETRY_DELAY).await;
        self.array.mailbox.sync_moved();
    }

    /// Why a broken array does nothing.
    fn broken(&self) -> CommandError {
        let slots = u32::from(self.geometry.raid_disks());
        let left = slots - u32::try_from(self.degraded()).unwrap_or(slots);
        CommandError::Broken { left: MembersLeft { left, slots } }
    }

    /// Refuses what a broken array, or one that takes no writes, cannot do.
    fn takes_writes(&self) -> Result<(), CommandError> {
        match self.mode {
            WriteMode::Broken => Err(self.broken()),
            _ if self.read_only => Err(CommandError::ReadOnly),
            _ => Ok(()),
        }
    }

    /// Says on all members that are here who is not. False when the array broke over it.
    async fn record_who_is_out(&mut self) -> bool {
        !std::mem::take(&mut self.is_unrecorded) || self.update_superblocks().await
    }

    /// Writes to the members what was decided while nothing could be written: who is out, and which blocks are not read.
    /// After a crash what was given instead must not turn back. False when the array broke over it.
    async fn record_what_was_decided(&mut self) -> bool {
        if !self.record_who_is_out().await {
            return false;
        }
        self.record_what_is_listed().await;
        self.mode != WriteMode::Broken
    }

    async fn go_read_write(&mut self) -> Result<Reply, CommandError> {
        if self.mode == WriteMode::Broken {
            return Err(self.broken());
        }
        self.read_only = false;
        self.happened(Event::Change);
        for waiting in self.until_read_only.drain(..) {
            (waiting.reply)(Err(CommandError::Busy("a change to read-write")));
        }
        self.held_since = None;
        self.mode = match self.mode {
            WriteMode::ReadOnly if self.is_redundant() => WriteMode::Clean,
            WriteMode::ReadOnly | WriteMode::Closing => WriteMode::Open,
            mode => mode,
        };
        if !self.record_what_was_decided().await {
            return Err(self.broken());
        }
        // Also where the mode stays: a write that waits for a view asks again then.
        self.publish();
        self.array.views.settle();
        // A pass that came meanwhile left all bits.
        self.set_clearing_alarm();
        Ok(Reply::Done)
    }

    fn is_redundant(&self) -> bool {
        self.geometry.max_failures() > 0
    }

    /// Slots without a member that is in sync.
    fn degraded(&self) -> usize {
        let in_sync = |member: &&Member| matches!(member.state, MemberState::InSync(_));
        usize::from(self.geometry.raid_disks()) - self.members.iter().filter(in_sync).count()
    }

    fn index_of(&self, id: MemberId) -> Option<usize> {
        self.members.iter().position(|member| member.id == id)
    }

    /// Publishes what the array is now; gives the view's epoch.
    fn publish(&self) -> u64 {
        let old = self.array.views.current();
        let view = self.view_now(&old);
        let ids =
            |view: &ArrayView| view.present().map(|(slot, m)| (slot, m.id)).collect::<Vec<_>>();
        let other_members = ids(&old) != ids(&view);
        let but_for = |view: &mut ArrayView| self.array.take_back_filled(view);
        // Parity of a row that lacks a member, or gets one, is not to be found there. What comes in from then on looks
        // whether it counts.
        let forget = || {
            if other_members {
                self.array.cache.clear()
            }
        };
        let epoch = self.array.views.publish(view, but_for, forget);
        *self.array.failed.lock() = self.failed();
        self.array.mailbox.is_in_doubt_only_in(&self.doubted);
        epoch
    }

    /// Members that failed. One that gives its slot away may get it back, as long as that is not on record.
    fn failed(&self) -> Vec<MemberId> {
        let may_be_back =
            |id| self.hand_over.as_ref().is_some_and(|given| given.may_give_back_to(id));
        let failed = self.members.iter().filter(|member| !member.is_live());
        failed.map(|member| member.id).filter(|id| !may_be_back(*id)).collect()
    }

    /// What the array is now, whether or not it is published and recorded.
    fn view_now(&self, old: &ArrayView) -> ArrayView {
        let mut slots = vec![None; usize::from(self.geometry.raid_disks())];
        let mut replacements = Vec::new();
        for member in &self.members {
            if let Some(slot) = member.slot() {
                slots[usize::from(slot.0)] = Some(member_view(member));
            }
            if let MemberState::Replacing(slot, _) = member.state {
                replacements.push((slot, member_view(member)));
            }
        }
        ArrayView {
            slots,
            replacements,
            mode: self.mode,
            rests: self.rests(),
            unsynced: Arc::new(self.unsynced.clone()),
            doubted: Arc::new(self.doubted.clone()),
            unaccepted: Arc::new(self.unaccepted.clone()),
            accepted_for_all: Arc::new(self.accepted_for_all.clone()),
            outliers: Arc::new(self.outliers.clone()),
            unresolved: Arc::new(self.unresolved.clone()),
            heard: self.heard,
            intent_epoch: self.intent_epoch,
            discard: self.members.iter().all(|member| member.info.discard_zeroes),
            ..ArrayView::clone(old)
        }
    }
}

/// What a member is at the start, by its superblock.
fn first_state(superblock: &Superblock) -> MemberState {
    let Role::Slot(slot) = superblock.own_role() else { return MemberState::Spare };
    let slot = Slot(slot);
    let replaces = superblock.features.contains(Features::REPLACEMENT);
    match superblock.recovery_offset_sectors {
        done if replaces => MemberState::Replacing(slot, Readable::up_to(done.unwrap_or(0))),
        Some(done) => MemberState::Recovering(slot, Readable::up_to(done)),
        None => MemberState::InSync(slot),
    }
}

/// Up to where a superblock says that its member holds the data of its slot.
fn promised_sectors(superblock: &Superblock) -> u64 {
    let replaces = superblock.features.contains(Features::REPLACEMENT);
    superblock.recovery_offset_sectors.unwrap_or(if replaces { 0 } else { u64::MAX })
}

fn member_view(member: &Member) -> MemberView {
    let filled_sectors = member.filled_to().map_or(u64::MAX, Readable::sector);
    MemberView {
        id: member.id,
        data_offset: member.superblock.data_offset_sectors,
        readable_sectors: if member.is_late { 0 } else { filled_sectors },
        filled_sectors,
        durable_sectors: member.falls_back_to().map_or(u64::MAX, Readable::sector),
        recorded_sectors: member.recorded_sectors,
        bad: member.bad.clone(),
        bad_in_memory: Arc::new(member.bad_in_memory()),
        holes: member.holes.clone(),
        write_mostly: member.superblock.flags.write_mostly(),
        failfast: member.superblock.flags.fail_fast(),
        rotational: member.info.rotational,
        is_sparse: member.info.is_sparse,
    }
}

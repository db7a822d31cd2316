//! Writes to members that belong together, and the one way in which they end: of a round of a parity
//! row, of all copies of a range, of parts that have no other copy, and of a sync task.

use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use smallvec::SmallVec;

use crate::backend::{IoDone, IoError, IoOp, MemberId, MemberIo, Scope, WriteFrom};
use crate::geometry::Slot;
use crate::lane::Io;
use crate::memory::Buffer;
use crate::ranges::Ranges;
use crate::request::RequestError;

use super::array_lane::{ArrayLane, LaneView, SECTOR_BYTES};
use super::ended::{Asked, Ended, Failed, Judged, Lists, Target};
use super::flushes::{self, DurableWrite, Flush};
use super::mailbox::TriedAgain;
use super::mirror::Counted;
use super::plan::Place;
use super::points::Point;
use super::refused::Refused;
use super::rules::Rule;
use super::verdict::Outcome;
use super::view::MemberView;

/// What writes to replacements are called.
const REPLACEMENT: Place = Place::MAX;

/// Writes under way, made under one view. They are waited for to their end, by [`MemberWrites::finish`]
/// or [`MemberWrites::finish_alone`].
pub(super) struct MemberWrites<'a> {
    lane: &'a ArrayLane,
    view: LaneView,
    fua: bool,
    /// Whether its client may be told that it went well before these have ended.
    behind: bool,
    /// None where members answer at once.
    under_way: InFlight<'a>,
    /// Buffers of writes that have ended, by what their starter called them.
    returned: SmallVec<[(Place, Buffer); 4]>,
    /// None where all went well, as nearly always.
    trouble: Option<Box<Trouble>>,
    /// Whether what went well can be written, and not just given up.
    heals: bool,
    /// Whether they fill members: a sparse one keeps its holes.
    fills: bool,
    /// Where its client was told already that it went well: that it counts as behind, until the controller can
    /// see what came of it.
    answered: Option<Counted<'a>>,
    any: bool,
    /// Whether they are counted as writes of a parity row, and whether as one of which a part went wrong.
    of_row: bool,
    torn: bool,
}

/// What did not go well, and what did against expectation.
#[derive(Default)]
struct Trouble {
    failed: SmallVec<[(MemberId, IoError); 1]>,
    /// What members that answer otherwise did not take.
    refused: Vec<Refused>,
    /// The same of replacements.
    replacements: Vec<(MemberId, Ranges)>,
    no_space: Vec<(MemberId, Range<u64>)>,
    /// Writes that went well into what their members' logs list as bad.
    listed: Vec<(MemberId, Range<u64>)>,
}

impl Trouble {
    fn note(&mut self, member: MemberId, error: IoError) {
        if self.failed.iter().all(|(known, _)| *known != member) {
            self.failed.push((member, error));
        }
    }

    fn is_none(&self) -> bool {
        self.failed.is_empty()
            && self.refused.is_empty()
            && self.replacements.is_empty()
            && self.no_space.is_empty()
    }
}

/// Where a write goes.
#[derive(Clone, Copy)]
struct Device {
    member: MemberId,
    data_offset: u64,
    is_sparse: bool,
}

impl Device {
    fn of(member: &MemberView) -> Self {
        let MemberView { id, data_offset, is_sparse, .. } = *member;
        Self { member: id, data_offset, is_sparse }
    }
}

/// One of them.
struct Write<'a> {
    place: Place,
    member: MemberId,
    /// From the member's data offset.
    sectors: Range<u64>,
    bytes: Written,
    durable: Option<DurableWrite<'a>>,
}

/// Where the bytes of a write are, should it have to be made again.
enum Written {
    /// They come back with its end, all of a buffer.
    ComeBack,
    Lent(WriteFrom),
    Zeroes,
}

/// How writes ended that came to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landed {
    /// Everywhere.
    Whole,
    /// But for members that were failed.
    Without,
    /// But for sectors that their members' logs list as bad now, or listed before.
    Listed,
}

/// Writes that a kernel or a device may still carry out. They are not to be dropped: a newer write could
/// be answered, and then overwritten by one of these.
struct InFlight<'a> {
    lane: &'a ArrayLane,
    writes: Vec<(Write<'a>, Io<'a>)>,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        // A lane that ends stands for a process that does.
        if self.writes.is_empty() || self.lane.lane.has_ended() || std::thread::panicking() {
            return;
        }
        debug_assert!(self.writes.is_empty(), "writes to members are waited for");
        self.writes.drain(..).for_each(|(_, io)| self.lane.leave_behind(io));
    }
}

impl<'a> MemberWrites<'a> {
    /// None yet, under the lane's view of now.
    pub(super) fn new(lane: &'a ArrayLane, fua: bool) -> Self {
        let (returned, trouble, answered) = Default::default();
        let (behind, heals, any) = (false, true, false);
        let (of_row, torn, fills) = (false, false, false);
        let under_way = InFlight { lane, writes: Vec::new() };
        let view = lane.view();
        Self {
            lane,
            view,
            fua,
            behind,
            under_way,
            returned,
            trouble,
            heals,
            fills,
            answered,
            any,
            of_row,
            torn,
        }
    }

    /// The same for a parity row, where the lane's view [lets rows be written](ArrayLane::lets_rows_be_written).
    pub(super) fn of_row(lane: &'a ArrayLane, fua: bool) -> Self {
        Self { of_row: true, ..Self::new(lane, fua) }
    }

    /// The same for what fills members.
    pub(super) fn that_fill(lane: &'a ArrayLane) -> Self {
        Self { fills: true, ..Self::new(lane, false) }
    }

    /// The same for what may be behind.
    pub(super) fn behind(lane: &'a ArrayLane, fua: bool) -> Self {
        Self { behind: true, ..Self::new(lane, fua) }
    }

    /// Starts a write to the member in `slot`, at a sector of its data. Where there is none it is
    /// passed over.
    pub(super) fn start(&mut self, place: Place, slot: Slot, sector: u64, from: WriteFrom) {
        let both = self.lane.array.rules.keep(Rule::WritesReachReplacements);
        if let Some(replacement) = self.view.replacement(slot).filter(|_| both).map(Device::of) {
            let again = from.again(&|length| self.lane.lane.backend().allocate(length));
            self.write_on(REPLACEMENT, replacement, sector, again);
        }
        if let Some(member) = self.view.member(slot).map(Device::of) {
            self.write_on(place, member, sector, from);
        }
    }

    /// Starts a write to a member that the caller has found, and to its replacement.
    pub(super) fn start_on_member(&mut self, member: &MemberView, sector: u64, from: WriteFrom) {
        // It may have come since the first of these writes, and its replacement too.
        let view = self.lane.view();
        let slot = view.present().find(|(_, other)| other.id == member.id).map(|(slot, _)| slot);
        let both = self.lane.array.rules.keep(Rule::WindowsReachReplacements);
        let replacement = slot.and_then(|slot| view.replacement(slot));
        if let Some(replacement) = replacement.filter(|_| both) {
            let again = from.again(&|length| self.lane.lane.backend().allocate(length));
            self.write_on(0, Device::of(replacement), sector, again);
        }
        self.write_on(0, Device::of(member), sector, from);
    }

    /// Starts to zero sectors of the member in `slot`, and of its replacement.
    pub(super) fn start_zeroes(&mut self, slot: Slot, range: Range<u64>, discard: bool) {
        let view = self.view.clone();
        for member in view.writers(slot) {
            let (sector, sectors) = (member.data_offset + range.start, range.end - range.start);
            // A member that came meanwhile may keep what it is told to discard.
            let discards = discard && view.discard;
            self.heals &= !discards;
            let op = match discards {
                true => IoOp::Discard { sector, sectors },
                false => IoOp::WriteZeroes { sector, sectors, fua: false },
            };
            let bytes = Written::Zeroes;
            let (member, sectors) = (member.id, range.clone());
            let write = Write { place: 0, member, sectors, bytes, durable: None };
            self.start_on(write, op);
        }
    }

    #[inline]
    fn write_on(&mut self, place: Place, device: Device, sector: u64, from: WriteFrom) {
        let Device { member, data_offset, is_sparse } = device;
        let sectors = sector..sector + (from.len() / SECTOR_BYTES) as u64;
        let durable = self.fua.then(|| DurableWrite::begin(&self.lane.array, member, self.behind));
        let (bytes, op) = if self.fills && is_sparse && from.is_zeroes() {
            self.heals = false;
            if let WriteFrom::Buffer(buffer, _) = from {
                self.lane.recycle(Some(buffer));
            }
            let (sector, sectors) = (data_offset + sector, sectors.end - sectors.start);
            (Written::Zeroes, IoOp::Discard { sector, sectors })
        } else {
            let sector = data_offset + sector;
            (Written::ComeBack, IoOp::Write { sector, from, fua: self.fua })
        };
        let write = Write { place, member, sectors, bytes, durable };
        self.start_on(write, op);
    }

    #[inline]
    fn start_on(&mut self, mut write: Write<'a>, op: IoOp) {
        self.any = true;
        let patience = self.lane.array.settings.write_patience();
        let mut io = MemberIo { member: write.member, op, patience };
        match self.lane.lane.io_at_once(&mut io) {
            Some(result) => {
                if result.is_err() {
                    write.keep(&io.op);
                }
                let done = IoDone { result, buffer: io.op.into_buffer() };
                self.ended(write, done);
            }
            None => {
                write.keep(&io.op);
                if self.of_row {
                    self.lane.row_writes.begin(write.member);
                }
                self.under_way.writes.push((write, self.lane.lane.io_later(io)));
            }
        }
    }

    #[inline]
    fn ended_later(&mut self, write: Write<'a>, done: IoDone) {
        if self.of_row {
            self.lane.row_writes.end(write.member);
        }
        self.ended(write, done);
    }

    #[inline]
    fn ended(&mut self, mut write: Write<'a>, done: IoDone) {
        // Before the others have ended: a flush of another lane may be about to.
        if let Some(durable) = write.durable.take() {
            durable.end(done.result);
        }
        match done.result {
            Ok(()) => self.went_well(&write),
            Err(error) => self.went_wrong(&write, error, done.buffer.as_ref()),
        }
        match write.place {
            REPLACEMENT => self.lane.recycle(done.buffer),
            place => {
                if let Some(buffer) = done.buffer {
                    self.returned.push((place, buffer));
                }
            }
        }
    }

    #[inline]
    fn went_well(&mut self, write: &Write<'_>) {
        if self.view.whole {
            return;
        }
        let member = self.view.devices().find(|member| member.id == write.member);
        if member.is_some_and(|member| member.bad.overlaps(&write.sectors)) {
            self.trouble().listed.push((write.member, write.sectors.clone()));
        }
    }

    #[cold]
    fn went_wrong(&mut self, write: &Write<'_>, error: IoError, buffer: Option<&Buffer>) {
        let member = write.member;
        if self.of_row && !self.torn {
            self.torn = true;
            self.lane.row_writes.tears();
        }
        if error.kind.scope() == Scope::Space {
            self.lane.array.mailbox.member_without_space(member);
        }
        let replaces = self.view.replacements.iter().any(|(_, other)| other.id == member);
        match error.kind.scope() {
            // It goes for that, and is not asked for pieces; unless it has taken over by then.
            Scope::Sectors if replaces => {
                self.trouble().replacements.push((member, Ranges::of(write.sectors.clone())));
            }
            Scope::Sectors => {
                let bytes = self.bytes_of(write, buffer);
                let sector = write.sectors.start;
                let Self { fua, behind, .. } = *self;
                let refused = Refused { member, sector, bytes, fua, behind };
                self.trouble().refused.push(refused);
            }
            Scope::Space if !self.lane.array.rules.keep(Rule::NoSpaceIsNoFailure) => {
                self.trouble().note(member, error);
            }
            Scope::Space if !self.lane.array.rules.keep(Rule::NoSpaceIsNoSuccess) => {}
            Scope::Space => self.trouble().no_space.push((member, write.sectors.clone())),
            Scope::Time | Scope::Member | Scope::Array => {
                self.lane.array.goes_for(member, error);
                self.trouble().note(member, error);
            }
        }
    }

    fn trouble(&mut self) -> &mut Trouble {
        self.trouble.get_or_insert_default()
    }

    fn bytes_of(&self, write: &Write<'_>, buffer: Option<&Buffer>) -> Buffer {
        let sectors = (write.sectors.end - write.sectors.start) as usize;
        let mut bytes = self.lane.lane.backend().allocate(sectors * SECTOR_BYTES);
        match &write.bytes {
            Written::Lent(from) => from.take(&mut bytes),
            Written::ComeBack => bytes.copy_from_slice(buffer.expect("a write returns its buffer")),
            Written::Zeroes => bytes.fill(0),
        }
        bytes
    }

    /// Its client was told that it went well: what a member does not take now, for whatever reason, its
    /// list must name.
    pub(super) fn was_answered(&mut self, counted: Counted<'a>) {
        self.answered = Some(counted);
    }

    /// Waits for all of them, gives `keep` the buffers that come back, and says what they come to. `Ok`:
    /// every block that was written is held by a member that will be believed after a crash, and who
    /// does not hold it is on record as not to be believed, and known to every lane.
    ///
    /// To be called under the claim that the writes were made under.
    pub(super) async fn finish(
        mut self,
        target: impl FnOnce() -> Target,
        keep: impl FnMut(Place, Buffer),
    ) -> Result<Landed, Failed> {
        if !self.any {
            return Err(Failed::everywhere(RequestError::Lost));
        }
        self.wait(keep).await;
        self.lane.array.points.reach(Point::MembersAnswered);
        let is_plain = self.went_well_everywhere() && self.view.plain && self.view_stands();
        if is_plain && self.lane.is_told_of(&self.view).await {
            self.answered.into_iter().for_each(|counted| self.lane.landed(counted));
            return Ok(Landed::Whole);
        }
        // Boxed, for it is rare, and the task of a round is moved.
        Box::pin(self.settle(target())).await
    }

    /// As [`finish`](Self::finish), for blocks that have no other copy: any failure is an error.
    pub(super) async fn finish_alone(
        mut self,
        keep: impl FnMut(Place, Buffer),
    ) -> Result<(), RequestError> {
        self.wait(keep).await;
        self.lane.array.points.reach(Point::MembersAnswered);
        let Some(trouble) = &self.trouble else { return Ok(()) };
        for (member, error) in &trouble.failed {
            if error.kind.scope() == Scope::Array {
                self.lane.array.mailbox.member_failed(*member, *error);
            }
        }
        match trouble.failed.is_empty() && trouble.refused.is_empty() {
            false => Err(RequestError::Lost),
            true if !trouble.no_space.is_empty() => Err(RequestError::NoSpace),
            true => Ok(()),
        }
    }

    /// Whether, as far as these go, the write may be answered before others that belong to it have ended:
    /// these went well, the view that they were made under still stands, and nothing is to be recorded
    /// should the others go well.
    pub(super) async fn may_answer(&self, target: &Target) -> bool {
        if !self.went_well_everywhere() || !self.view_stands() {
            return false;
        }
        if !self.view.plain && self.lane.judge(&self.view, target).outcome != Outcome::Answer {
            return false;
        }
        let is_settled = !self.lane.array.rules.keep(Rule::EarlyAnswersAreSettled)
            || self.lane.array.views.settled_up_to(&self.view).await;
        // The update that was waited for may have taken out who has it.
        let looks = self.lane.array.rules.keep(Rule::RecordsMayTakeWhoHasIt);
        is_settled && (!looks || self.view_stands())
    }

    fn went_well_everywhere(&self) -> bool {
        self.trouble.as_ref().is_none_or(|trouble| trouble.is_none())
    }

    /// Nor is it about to be another one, in which a member that has the write is out.
    fn view_stands(&self) -> bool {
        let is_same = self.lane.with_view(|now| now.epoch == self.view.epoch);
        is_same && self.lane.counts_under(self.view.epoch)
    }

    /// Takes over what came of others that have all ended and belong to the same write.
    pub(super) fn join(&mut self, other: Self) {
        assert!(other.under_way.writes.is_empty(), "only what has ended is taken over");
        self.any |= other.any;
        let Some(mut trouble) = other.trouble else { return };
        let known = self.trouble();
        known.failed.append(&mut trouble.failed);
        known.refused.append(&mut trouble.refused);
        known.replacements.append(&mut trouble.replacements);
        known.no_space.append(&mut trouble.no_space);
        known.listed.append(&mut trouble.listed);
    }

    /// Waits for all of them, and gives `keep` the buffers that come back.
    pub(super) async fn wait(&mut self, mut keep: impl FnMut(Place, Buffer)) {
        if self.fua {
            // A flush of a member waits for what that was given, and not for another one that hangs.
            poll_fn(|context| self.end_those_that_have(context)).await;
        }
        while let Some((_, io)) = self.under_way.writes.last_mut() {
            let done = io.await;
            let (write, _) = self.under_way.writes.pop().expect("the one that has just ended");
            self.ended_later(write, done);
        }
        if std::mem::take(&mut self.torn) {
            self.lane.row_writes.torn_one_ends();
        }
        self.returned.drain(..).for_each(|(place, buffer)| keep(place, buffer));
    }

    /// Does something else, and ends those meanwhile that have: flushes wait for durable ones.
    pub(super) async fn meanwhile<T>(&mut self, other: impl Future<Output = T>) -> T {
        if !self.fua {
            return other.await;
        }
        let mut other = pin!(other);
        poll_fn(|context| {
            let _ = self.end_those_that_have(context);
            other.as_mut().poll(context)
        })
        .await
    }

    /// Ends those that have ended, in any order.
    fn end_those_that_have(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut at = 0;
        while let Some((_, io)) = self.under_way.writes.get_mut(at) {
            match Pin::new(io).poll(context) {
                Poll::Ready(done) => {
                    let (write, _) = self.under_way.writes.swap_remove(at);
                    self.ended_later(write, done);
                }
                Poll::Pending => at += 1,
            }
        }
        if self.under_way.writes.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Makes durable on members what they took. Who cannot has failed.
    pub(super) async fn make_durable(&mut self, members: &[MemberId]) {
        let (array, lane) = (&self.lane.array, &self.lane.lane);
        let patience = array.settings.write_patience();
        let flush = |member: &MemberId| Flush::new(array, lane, *member, patience);
        let mut failed: SmallVec<[(MemberId, IoError); 1]> = SmallVec::new();
        let flushes = members.iter().map(flush).collect();
        flushes::all_of(flushes, |member, error| {
            array.goes_for(member, error);
            failed.push((member, error));
        })
        .await;
        failed.into_iter().for_each(|(member, error)| self.trouble().note(member, error));
    }

    /// Tells what went wrong, and answers when it is settled.
    async fn settle(self, target: Target) -> Result<Landed, Failed> {
        let mut trouble = self.trouble.map(|trouble| *trouble).unwrap_or_default();
        // The pieces may turn out to need a member. It must not be given up before that is known.
        let tried_again = (!trouble.refused.is_empty()).then(|| {
            let all = trouble.refused.iter().map(|one| (one.member, Ranges::of(one.range())));
            self.lane.array.mailbox.tries_again(Ended {
                target: target.clone(),
                view: Arc::clone(&self.view),
                failed: trouble.failed.clone(),
                refused: all.chain(trouble.replacements.iter().cloned()).collect(),
                no_space: trouble.no_space.clone(),
                healed: Vec::new(),
                heals: false,
                answered: self.answered.is_some(),
            })
        });
        let mut refused = std::mem::take(&mut trouble.replacements);
        for mut one in std::mem::take(&mut trouble.refused) {
            // A flush that was answered meanwhile did not wait for it.
            one.fua |= self.answered.is_some();
            let member = one.member;
            match self.lane.write_in_pieces(one).await {
                Ok(bad) if bad.is_empty() => {}
                Ok(bad) => refused.push((member, bad)),
                Err((error, left)) => match error.kind.scope() {
                    Scope::Space => trouble.no_space.push((member, left)),
                    Scope::Sectors | Scope::Time | Scope::Member | Scope::Array => {
                        self.lane.array.goes_for(member, error);
                        trouble.note(member, error);
                    }
                },
            }
        }
        let landed = match trouble.failed.is_empty() {
            false => Landed::Without,
            true if refused.is_empty() && trouble.listed.is_empty() => Landed::Whole,
            true => Landed::Listed,
        };
        let ended = Ended {
            healed: match target {
                Target::Rewrites | Target::Agreement(_) | Target::Fills => trouble.listed,
                Target::Copies(_) | Target::Row { .. } => Vec::new(),
            },
            target,
            view: Arc::clone(&self.view),
            failed: trouble.failed,
            refused,
            no_space: trouble.no_space,
            heals: self.heals,
            answered: self.answered.is_some(),
        };
        self.lane.settle_write(ended, tried_again, self.answered).await.map(|()| landed)
    }
}

impl Write<'_> {
    /// Keeps the bytes of a write whose memory does not come back.
    #[inline]
    fn keep(&mut self, op: &IoOp) {
        if let IoOp::Write { from, .. } = op {
            self.bytes = match from {
                WriteFrom::Buffer(..) => Written::ComeBack,
                from => Written::Lent(from.again(&|_| unreachable!("no owned buffer"))),
            };
        }
    }
}

/// A buffer to write whole.
pub(super) fn whole_buffer(block: Buffer) -> WriteFrom {
    let whole = 0..block.len();
    WriteFrom::Buffer(block, whole)
}

impl ArrayLane {
    /// What a write that every member of a view takes comes to in that view.
    fn judge(&self, view: &LaneView, target: &Target) -> Judged {
        Ended::well(target.clone(), Arc::clone(view)).judge(view, Lists::ANYTHING)
    }

    /// Answers a write whose member writes have all ended. Where every member took it this lane's view
    /// may say that it is well. Anything else is the controller's word.
    async fn settle_write(
        &self,
        ended: Ended,
        tried_again: Option<TriedAgain<'_>>,
        counted: Option<Counted<'_>>,
    ) -> Result<(), Failed> {
        if ended.went_well() {
            let view = self.view();
            let judged = ended.judge(&view, Lists::ANYTHING);
            if judged.outcome == Outcome::Answer {
                self.array.mailbox.made_whole(&judged.made_whole);
                self.array.mailbox.may_resync(&judged.may_resync);
                if self.is_told_of(&view).await {
                    counted.into_iter().for_each(|counted| self.landed(counted));
                    return Ok(());
                }
                // The array broke: who was passed over is believed after a restart. It is in doubt.
            }
        }
        // The controller may wait for these very members, and a lane that has waited has the last word.
        for &(member, error) in &ended.failed {
            self.array.member_failed(member, error);
        }
        let asked = Arc::new(Asked::new(ended));
        // Counted on for those who would read what it did not replace, until the answer; and for flushes.
        let waits = self.array.rules.keep(Rule::BehindUntilAllLanesKnow);
        let (is_behind, being_judged) = (counted.is_some(), counted.as_ref().filter(|_| waits));
        let _being_judged = being_judged.map(Counted::being_judged);
        self.array.mailbox.ended(asked.clone(), counted);
        drop(tried_again);
        let answer = asked.answer().await;
        if is_behind && !asked.ended.is_held(&self.array.views.current()) {
            self.array.behind.one_is_lost();
        }
        answer
    }
}

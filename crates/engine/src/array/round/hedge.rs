//! Hedged reads: a round that has the members to itself reads more of its row than it needs, and goes by
//! what comes first.
//!
//! A read-modify-write waits for the slowest of its reads, and one read in a hundred takes twice as long as
//! most. Of a row of D data blocks any D make all others, so that with RAID6 two may be late, with RAID5 one,
//! and nobody notices. (Dean and Barroso, The Tail at Scale, 2013.)
//!
//! It costs reads, so only members that have nothing better to do are asked.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use smallvec::SmallVec;

use crate::backend::{IoDone, MemberId, ReadInto};

use super::super::array_lane::{ArrayLane, MemberRead};
use super::super::blocks::Blocks;
use super::super::plan::{Method, Place, Places, RmwLevel, RowState};
use super::super::reconstruct::{columns_bytes, slot_of};
use super::super::rules::Rule;
use super::super::unread::Unread;
use super::{RoundPlan, Work};

#[cfg(test)]
mod tests;

/// Where lone reads take less, more of them cost more than they spare.
const WORTHWHILE: Duration = Duration::from_micros(50);

/// Longer blocks take their time for their bytes, and more of them take longer.
const BYTES_MAX: usize = 64 << 10;

/// A member with more of this lane's I/Os than this is busy: the late one of the round before may be there.
const IDLE_IOS: usize = 1;

/// Of lone rounds with quick reads one in so many is timed.
const TIMED: u32 = 16;

/// Weight of a new measurement: one part in so many.
const WEIGHT: u64 = 4;

/// How long the reads of rounds take that are the only ones of their lane.
#[derive(Debug, Default)]
pub(in super::super) struct LoneReads {
    rounds: Cell<u32>,
    /// A moving average, in ns; 0 before the first.
    mean: Cell<u64>,
}

impl LoneReads {
    /// Counts a round. Whether it is to be timed.
    fn counts_and_times(&self) -> bool {
        let round = self.rounds.get();
        self.rounds.set(round.wrapping_add(1));
        round.is_multiple_of(TIMED)
    }

    fn note(&self, took: Duration) {
        let (mean, took) = (self.mean.get(), took.as_nanos() as u64);
        self.mean.set(if mean == 0 { took } else { mean - mean / WEIGHT + took / WEIGHT });
    }

    fn are_slow(&self) -> bool {
        self.mean.get() >= WORTHWHILE.as_nanos() as u64
    }
}

/// Reads of a row that have not ended.
type UnderWay<'a> = SmallVec<[(Place, MemberId, MemberRead<'a>); 8]>;

impl ArrayLane {
    /// Whether a round is the only one of this lane, and its reads are to be hedged or timed.
    #[inline]
    pub(super) fn reads_alone(&self, work: &Work<'_>) -> bool {
        let reads = &self.gather.lone_reads;
        self.gather.is_alone(work.row.index()) && (reads.counts_and_times() || reads.are_slow())
    }

    /// As [`read_spans`](Self::read_spans), for a round that is the only one of this lane: where it is worth
    /// it, what comes first may make for another plan. False when a read failed and what came does not suffice.
    pub(super) fn read_alone<'a>(
        &'a self,
        work: &'a Work<'_>,
        state: &'a mut RowState,
        plan: &'a mut RoundPlan,
        blocks: &'a mut Blocks,
        unread: &'a mut Unread,
    ) -> Pin<Box<dyn Future<Output = bool> + 'a>> {
        // Boxed, for it is rare, and the task of a round is moved.
        Box::pin(async move {
            let began = self.lane.backend().now();
            let mut waited = false;
            let mut read = pin!(self.read_best(work, state, plan, blocks, unread));
            let complete = poll_fn(|context| {
                let polled = read.as_mut().poll(context);
                waited |= polled.is_pending();
                polled
            });
            let complete = complete.await;
            // What members answer at once is not slow, however long this CPU takes to copy it.
            let took = waited.then(|| self.lane.backend().now().since(began));
            self.gather.lone_reads.note(took.unwrap_or_default());
            complete
        })
    }

    async fn read_best(
        &self,
        work: &Work<'_>,
        state: &mut RowState,
        plan: &mut RoundPlan,
        blocks: &mut Blocks,
        unread: &mut Unread,
    ) -> bool {
        match self.hedged_places(work, state, plan, blocks, unread) {
            Some(places) => self.read_hedged(work, state, plan, &places, blocks, unread).await,
            None => {
                let columns = &work.cover.columns;
                self.read_spans(&work.row, state, columns, &plan.reads, blocks, unread).await
            }
        }
    }

    /// The places to read instead of those that the plan asks for, twice as many at most. None where that is
    /// not worth it, or members that matter have other things to do.
    fn hedged_places(
        &self,
        work: &Work<'_>,
        state: &RowState,
        plan: &RoundPlan,
        cached: &Blocks,
        unread: &Unread,
    ) -> Option<Places> {
        let settings = &self.array.settings;
        // Who asks for one method gets it.
        let may_choose = settings.hedged_reads() && settings.rmw_level() == RmwLevel::Preferred;
        let is_small = columns_bytes(&work.cover.columns) <= BYTES_MAX;
        let is_sound = state.is_whole() && state.parity_trusted && unread.is_empty();
        let is_worth_it = plan.reads.len() > 1 && self.gather.lone_reads.are_slow();
        if !(may_choose && is_small && is_sound && is_worth_it) {
            return None;
        }
        let view = self.view();
        let is_idle = |place: &Place| {
            let member = view.member(slot_of(&work.row, state.data_count, *place));
            let ios = |id| self.lane.backend().in_flight(id);
            member.is_some_and(|member| !member.rotational && ios(member.id) <= IDLE_IOS)
        };
        let cached = cached.places();
        let idle: Places = state.readable.without(&cached).iter().filter(is_idle).collect();
        let suffices = plan_by(work, state, idle.with(&cached)).is_some();
        (suffices && idle.count() <= 2 * plan.reads.len()).then_some(idle)
    }

    /// Reads `places`, and goes on as soon as what came suffices for a plan: `plan` is that one then, and
    /// `state` as if nothing else could be read. Nobody waits for the rest.
    async fn read_hedged(
        &self,
        work: &Work<'_>,
        state: &mut RowState,
        plan: &mut RoundPlan,
        places: &Places,
        blocks: &mut Blocks,
        unread: &mut Unread,
    ) -> bool {
        let cached = blocks.places();
        let Some(mut under_way) = self.start_reads(work, state, places) else { return false };
        let found = poll_fn(|context| {
            under_way.retain(|(place, member, io)| {
                let Poll::Ready(done) = Pin::new(io).poll(context) else { return true };
                self.take_read(*place, *member, done, blocks, unread);
                false
            });
            match plan_by(work, state, blocks.places()) {
                Some(found) => Poll::Ready(Some(found)),
                None if under_way.is_empty() => Poll::Ready(None),
                None => Poll::Pending,
            }
        });
        let found = found.await;
        let suffices = found.is_some();
        if let Some(found) = found.filter(|_| self.array.rules.keep(Rule::HedgedRoundsGoByWhatCame))
        {
            (*state, *plan) = found;
            self.drop_unused(work, state, plan, &cached, blocks);
        }
        suffices
    }

    /// Drops what came and new parity is not made of. A drive that has reset gives what was there before an answered
    /// write, which parity has: of its own block the cache would say otherwise. What is `cached` fits parity.
    fn drop_unused(
        &self,
        work: &Work<'_>,
        state: &RowState,
        plan: &RoundPlan,
        cached: &Places,
        blocks: &mut Blocks,
    ) {
        // All other methods make parity of the whole row. What is made by several ways is not kept.
        if plan.steps.iter().any(|step| step.method != Method::ReadModify) {
            return;
        }
        let written = work.cover.parts.iter().map(|part| part.place);
        let parity = state.data_count..state.data_count + state.parity_count;
        let used: Places = written.chain(parity).collect();
        for place in blocks.places().without(&used.with(cached)).iter() {
            self.recycle(blocks.take(place));
        }
    }

    /// Starts a read of the round's columns for each of `places`. None where the view moved.
    fn start_reads(
        &self,
        work: &Work<'_>,
        state: &RowState,
        places: &Places,
    ) -> Option<UnderWay<'_>> {
        let (view, columns) = (self.view(), &work.cover.columns);
        let sector = work.row.member_sector() + u64::from(columns.start);
        let start = |place| {
            let member = view.member(slot_of(&work.row, state.data_count, place))?;
            let buffer = self.lane.backend().allocate(columns_bytes(columns));
            let whole = 0..buffer.len();
            let io = self.read_member(member, sector, ReadInto::Buffer(buffer, whole));
            Some((place, member.id, io))
        };
        places.iter().map(start).collect()
    }

    /// Keeps a block that came, or notes why none did.
    fn take_read(
        &self,
        place: Place,
        member: MemberId,
        done: IoDone,
        blocks: &mut Blocks,
        unread: &mut Unread,
    ) {
        match (done.result, done.buffer) {
            (Ok(()), Some(buffer)) => blocks.put(place, buffer),
            (Ok(()), None) => panic!("a finished read returns its buffer"),
            (Err(error), buffer) => {
                unread.insert(place, member, self.report_read(member, error));
                self.recycle(buffer);
            }
        }
    }
}

/// A plan that needs nothing but the blocks of `known`, and the row as if there were no others.
fn plan_by(work: &Work<'_>, state: &RowState, known: Places) -> Option<(RowState, RoundPlan)> {
    let state = RowState { readable: known, ..*state };
    let plan = RoundPlan::new(&work.cover, &state, &known, RmwLevel::Preferred)?;
    Some((state, plan))
}

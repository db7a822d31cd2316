//! Write-behind: RAID1 answers a write when the members that are not write-mostly have it. The
//! others get it from a copy, behind the answer.
//!
//! Until it has landed everywhere the write keeps its claim, so that overlapping writes, resync and
//! every read of a write-mostly member wait for it; and its intent, so that after a crash resync
//! copies to the write-mostly members what they may lack.
//!
//! No flush waits for it, as long as another member has all. Where one was asked for meanwhile, the write-mostly
//! members are flushed behind the write: else what was flushed would be durable nowhere once the other members are
//! lost. A flush that finds them lost already waits until the write has landed. Where it does not land anywhere, the flush
//! is an error: the answer to the write can tell that no more.

use std::cell::Cell;
use std::rc::Rc;

use crate::backend::{MemberId, WriteFrom};
use crate::geometry::{Geometry, Piece};
use crate::memory::{Buffer, Source};
use crate::request::RequestError;
use crate::signal::Signal;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::super::array_lane::{ArrayLane, byte_range, source_part};
use super::super::claims::Mode;
use super::super::ended::Target;
use super::super::member_writes::MemberWrites;
use super::super::points::Point;
use super::super::rules::Rule;
use super::super::view::ArrayView;
use super::{Copies, Region, copies};

/// No write is left behind now.
const HELD: u32 = 1 << 31;

/// The writes behind of one array.
pub(crate) struct Behind {
    /// At most so many; 0: none at all.
    limit: u32,
    /// How many, and [`HELD`].
    under_way: AtomicU32,
    /// Those that have ended, and did not go well. No lane knows yet what the controller makes of them.
    being_judged: AtomicU32,
    /// Flushes that users asked for, counted.
    flushes: AtomicU64,
    /// Writes that were answered and that no member has, counted; and members that went out with what others list.
    lost: AtomicU64,
    /// Of how many of them a flush has told.
    told: AtomicU64,
    /// None is under way any more, nor being judged.
    all_landed: Signal,
}

impl Behind {
    pub(crate) fn new(limit: u32) -> Self {
        let limit = limit.min(HELD - 1);
        Self {
            limit,
            under_way: AtomicU32::new(0),
            being_judged: AtomicU32::new(0),
            flushes: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            told: AtomicU64::new(0),
            all_landed: Signal::default(),
        }
    }

    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    pub(crate) fn under_way(&self) -> u32 {
        // Acquire pairs with the write's begin: who has heard of its answer must see it here.
        self.under_way.load(Ordering::Acquire) & !HELD
    }

    /// How many are under way. No more begin before [`let_go`](Self::let_go): a lane may not have heard yet of
    /// what is decided by this number.
    pub(crate) fn hold(&self) -> u32 {
        self.under_way.fetch_or(HELD, Ordering::AcqRel) & !HELD
    }

    pub(crate) fn let_go(&self) {
        if self.under_way.load(Ordering::Relaxed) & HELD != 0 {
            self.under_way.fetch_and(!HELD, Ordering::AcqRel);
        }
    }

    /// A user's flush begins; no member has been asked for one yet.
    pub(crate) fn flush_begins(&self) {
        if self.limit > 0 {
            self.flushes.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A write was answered, and no member has it any more: it has not landed, or the last one that had it is out.
    pub(in super::super) fn one_is_lost(&self) {
        self.lost.fetch_add(1, Ordering::AcqRel);
    }

    /// Of how many lost writes flushes have told by now.
    pub(in super::super) fn told(&self) -> u64 {
        self.told.load(Ordering::Acquire)
    }

    /// What the end of a flush tells of lost writes: an error where there are more than were `told` when it began. Every
    /// flush that was under way tells, and none that begins later.
    pub(in super::super) fn tell(&self, told: u64) -> Result<(), RequestError> {
        let lost = self.lost.load(Ordering::Acquire);
        if lost == told {
            return Ok(());
        }
        self.told.fetch_max(lost, Ordering::AcqRel);
        Err(RequestError::Lost)
    }

    /// A write that has landed and does not see a flush here is covered by it: the flush begins later.
    fn flushes_begun(&self) -> u64 {
        self.flushes.load(Ordering::SeqCst)
    }

    /// One more, if the limit allows it and none is held.
    fn begin(&self) -> Option<Counted<'_>> {
        let more = |count: u32| (count < self.limit).then(|| count + 1);
        let began = self.under_way.fetch_update(Ordering::AcqRel, Ordering::Acquire, more);
        began.is_ok().then(|| Counted(self))
    }

    /// One less. Says whether they are held.
    fn one_ends(&self) -> bool {
        let before = self.under_way.fetch_sub(1, Ordering::AcqRel);
        if before & !HELD == 1 {
            self.all_landed.notify();
        }
        before & HELD != 0
    }

    /// Whether a write-mostly member may lack one that was answered, and no list says so.
    #[inline]
    pub(in super::super) fn any_may_lack(&self) -> bool {
        // In this order: one that is to be judged is counted there before it ends here.
        self.under_way() > 0 || self.being_judged.load(Ordering::Acquire) > 0
    }

    /// Waits until none is.
    pub(in super::super) async fn all_have_landed(&self) {
        self.all_landed.until(|| (!self.any_may_lack()).then_some(())).await;
    }
}

/// One write behind, counted until it drops.
pub(crate) struct Counted<'a>(&'a Behind);

impl<'a> Counted<'a> {
    /// It has ended, and the controller is about to be asked what comes of that.
    pub(in super::super) fn being_judged(&self) -> BeingJudged<'a> {
        self.0.being_judged.fetch_add(1, Ordering::AcqRel);
        BeingJudged(self.0)
    }

    /// It has landed. Says whether none begins meanwhile: then the controller may wait for that.
    pub(in super::super) fn end(self) -> bool {
        let behind = self.0;
        std::mem::forget(self);
        behind.one_ends()
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.one_ends();
    }
}

/// One write behind whose verdict is not known to all lanes, until it drops.
pub(crate) struct BeingJudged<'a>(&'a Behind);

impl Drop for BeingJudged<'_> {
    fn drop(&mut self) {
        if self.0.being_judged.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.all_landed.notify();
        }
    }
}

/// An answer that comes before its task ends.
#[derive(Default)]
struct Answer {
    result: Cell<Option<Result<(), RequestError>>>,
    given: Signal,
}

impl Answer {
    fn give(&self, result: Result<(), RequestError>) {
        self.result.set(Some(result));
        self.given.notify();
    }
}

/// What to write, on one lane.
struct Write {
    region: Region,
    from: Rc<dyn Source>,
    fua: bool,
    answer: Rc<Answer>,
}

impl ArrayLane {
    /// Whether writes may be left behind: allowed, with a member to leave behind and one that is not.
    pub(super) fn writes_behind(&self, view: &ArrayView) -> bool {
        let has = |mostly| view.present().any(|(_, member)| member.write_mostly == mostly);
        self.array.behind.limit() > 0
            && matches!(*view.geometry, Geometry::Raid1(_))
            && view.intent_chunk_sectors.is_some()
            && has(true)
            && has(false)
    }

    /// Writes one region and returns when it is there but for the write-mostly members.
    pub(super) async fn write_region_behind(
        self: &Rc<Self>,
        region: Region,
        from: Rc<dyn Source>,
        fua: bool,
    ) -> Result<(), RequestError> {
        let answer = Rc::new(Answer::default());
        let write = Write { region, from, fua, answer: answer.clone() };
        let this = self.clone();
        self.lane.spawn(async move { this.write_behind(write).await });
        answer.given.until(|| answer.result.take()).await
    }

    async fn write_behind(&self, Write { region, from, fua, answer }: Write) {
        let claims = &self.array.claims;
        let _claim = claims.acquire(region.index, region.columns.clone(), Mode::Exclusive).await;
        let range = region.sector..region.sector + region.sectors();
        let permit = match self.permit(range.clone()).await {
            Ok(permit) => permit,
            Err(error) => return answer.give(Err(error)),
        };
        let view = self.view();
        let all = copies(&view.geometry, region.sector, region.sectors());
        // A replacement may have taken the slot over before the write has landed: what it is counts as well.
        let of_replacements = self.array.rules.keep(Rule::ReplacementsAreNotBehind);
        let all_are = |slot, mostly| {
            let mut writers = view.writers(slot).take(if of_replacements { 2 } else { 1 });
            writers.all(|member| member.write_mostly == mostly)
        };
        let (behind, ahead): (Copies, Copies) = all
            .iter()
            .copied()
            .partition(|piece| view.member(piece.slot).is_some() && all_are(piece.slot, true));
        // After a crash a member that is being filled, or was until just now, may have less than now.
        let has_reader = |piece: &Piece| {
            let reader = view.reader(piece.slot, piece.member_sector, piece.sectors);
            reader.is_some_and(|member| self.array.keeps_alone(member))
                && all_are(piece.slot, false)
        };
        let counted = match ahead.iter().any(has_reader) && !behind.is_empty() {
            true => self.array.behind.begin(),
            false => None,
        };
        let Some(counted) = counted else {
            return answer.give(self.write_copies(&all, &from, region.first, range, fua).await);
        };
        let _gauged = self.count_writes(&all);
        let bytes = Rc::new(self.copy_of(&from, &region));
        // Also what is behind: should the others fail nobody else has it.
        let (mut first, mut rest) = (MemberWrites::new(self, fua), MemberWrites::behind(self, fua));
        let flushes = self.array.behind.flushes_begun();
        for piece in &ahead {
            first.start(
                0,
                piece.slot,
                piece.member_sector,
                source_part(&from, region.first, piece.sectors),
            );
        }
        for piece in &behind {
            let from = WriteFrom::Shared(bytes.clone(), 0..bytes.len());
            rest.start(0, piece.slot, piece.member_sector, from);
        }
        drop(from);
        let target = Target::Copies(range);
        let ahead_of_it = async {
            first.wait(|_, buffer| self.recycle(Some(buffer))).await;
            // Whatever went wrong, nothing is left behind that is not there already.
            first.may_answer(&target).await
        };
        let early = rest.meanwhile(ahead_of_it).await;
        if early {
            answer.give(Ok(()));
            self.array.points.reach(Point::AnsweredBehind);
        }
        // The intent stays until all has landed: a crash may keep it from some of them.
        let _permit = self.array.rules.keep(Rule::IntentStaysForWritesBehind).then_some(permit);
        rest.wait(|_, buffer| self.recycle(Some(buffer))).await;
        if early && self.array.behind.flushes_begun() != flushes {
            let slots = behind.iter().map(|piece| piece.slot);
            let members: Vec<MemberId> =
                slots.flat_map(|slot| view.writers(slot)).map(|member| member.id).collect();
            rest.make_durable(&members).await;
        }
        match early {
            true => rest.was_answered(counted),
            // One that was not answered is no reason to keep a member.
            false => self.landed(counted),
        }
        rest.join(first);
        let ended = rest.finish(|| target, |_, buffer| self.recycle(Some(buffer)));
        let ended = ended.await.map(|_| ()).map_err(|failed| failed.error);
        if !early {
            answer.give(ended);
        }
    }

    /// A write that was behind has landed, and all is well with it or known to be otherwise.
    pub(in super::super) fn landed(&self, counted: Counted<'_>) {
        if counted.end() {
            self.array.mailbox.landed();
        }
    }

    fn copy_of(&self, from: &Rc<dyn Source>, region: &Region) -> Buffer {
        let first = byte_range(0, region.first).end;
        let mut copy = self.lane.backend().allocate(byte_range(0, region.sectors()).end);
        from.take(first, &mut copy);
        self.lane.count_copy(copy.len());
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_writes_are_behind_than_allowed() {
        let behind = Behind::new(2);
        let one = behind.begin().expect("the first");
        let other = behind.begin().expect("the second");
        assert!(behind.begin().is_none());
        drop(one);
        assert_eq!(behind.under_way(), 1);
        assert!(behind.begin().is_some());
        drop(other);
        assert_eq!(behind.under_way(), 0);
        assert!(Behind::new(0).begin().is_none());
    }

    #[test]
    fn a_write_that_is_being_judged_is_under_way_no_more_and_may_be_lacking() {
        let behind = Behind::new(1);
        let one = behind.begin().expect("the first");
        let judged = one.being_judged();
        one.end();
        assert_eq!((behind.under_way(), behind.any_may_lack()), (0, true));
        assert!(behind.begin().is_some());
        drop(judged);
        assert!(!behind.any_may_lack());
    }

    #[test]
    fn none_begins_while_they_are_held_and_those_under_way_count() {
        let behind = Behind::new(u32::MAX);
        let one = behind.begin().expect("the first");
        assert_eq!(behind.hold(), 1);
        assert!(behind.begin().is_none());
        assert!(one.end(), "it is waited for");
        assert_eq!((behind.under_way(), behind.hold()), (0, 0));
        behind.let_go();
        assert!(!behind.begin().expect("none is held").end());
        assert!(behind.begin().is_some());
    }
}

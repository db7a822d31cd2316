//! What an array looks like to a lane, and how a new look reaches every lane.
//!
//! An [`ArrayView`] never changes; the controller publishes a new one. Each lane adopts it at a turn
//! and says so. A view that takes a member out of reading is *settled* when the survivors'
//! superblocks are durable and every lane has adopted it: only then may a write that failed on that
//! member be acknowledged, else another lane could still read the old block from it.

#[cfg(test)]
pub(super) mod samples;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use crate::backend::MemberId;
use crate::geometry::{Geometry, Slot};
use crate::lane::LaneId;
use crate::ranges::Ranges;
use crate::request::RequestError;
use crate::signal::Signal;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::news::NewsCount;
use super::outliers::Outliers;
use super::rules::{Rule, keep};

/// An array at one moment, as far as requests need it.
#[derive(Clone, Debug)]
pub struct ArrayView {
    /// Counts the views of this array.
    pub epoch: u64,
    /// Where things lie.
    pub geometry: Arc<Geometry>,
    /// The member in each slot; `None` where it is missing or faulty.
    pub slots: Vec<Option<MemberView>>,
    /// Members that are to take a slot over from the member in it, which still does its work. They get
    /// every write of the slot and are never read.
    pub replacements: Vec<(Slot, MemberView)>,
    /// The first view without the member, or the range of one, that was taken out of reading last. A
    /// write that passes over them is acknowledged only when that view is settled.
    pub taken_out: u64,
    /// Whether writes may go.
    pub mode: WriteMode,
    /// No write of a parity row begins now, because it is to be seen whether any is under way that others have than these
    /// members, which may be given up. Each lane says so when it adopts this.
    pub rests: Option<Arc<[MemberId]>>,
    /// Where redundancy is not to be trusted: resync has not been there. Sectors as resync counts
    /// them: of the array for RAID10, of a member otherwise.
    pub unsynced: Arc<Ranges>,
    /// The part of it where a write may have ended half-way, in a crash or over a failure: there even
    /// parity that was right is not any more. Elsewhere the first resync is under way, parity is right
    /// wherever anything was written, and lost blocks may be computed from it.
    pub doubted: Arc<Ranges>,
    /// The part of that which the user has not accepted. Elsewhere the block that one member lacks is
    /// computed from parity as it is; two blocks are not, for the acceptance was of one.
    pub unaccepted: Arc<Ranges>,
    /// Where the acceptance was of every block that is lacked: of as many as there are parities. It is in doubt still,
    /// for one of them may be read again as it was.
    pub accepted_for_all: Arc<Ranges>,
    /// Where it is known whose blocks put rows in doubt.
    pub outliers: Arc<Outliers>,
    /// What of it a resync has left undone. It is tried again where a write was, for that may be what it lacked.
    pub unresolved: Arc<Ranges>,
    /// How many pieces of news about blocks it knows.
    pub heard: NewsCount,
    /// Smallest unit of requests, in sectors: the largest logical block of the members.
    pub block_sectors: u32,
    /// Unit of claims, pre-reads and parity, in sectors (`stripe_size`).
    pub unit_sectors: u32,
    /// Bitmap chunk in sectors as resync counts them; `None` without a bitmap.
    pub intent_chunk_sectors: Option<u64>,
    /// Counts the clearing passes of the bitmap; a lane that adopts another one reports its busy chunks.
    pub intent_epoch: u64,
    /// Whether every member reads zeroes after a discard.
    pub discard: bool,
    /// Whether all of every slot can be read, and all redundancy trusted. Set by [`Views`].
    pub whole: bool,
    /// Whether a write that every member took may be answered without a look at its blocks: members are
    /// in sync with nothing listed or missing, or on record as out. Set by [`Views`].
    pub plain: bool,
}

/// Whether writes may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Never.
    ReadOnly,
    /// Not before the superblocks say dirty.
    Clean,
    /// On the way to clean or from there: the superblocks may say dirty, and no new write starts.
    Closing,
    /// Yes.
    Open,
    /// Too many members are lost.
    Broken,
    /// Never again: the array has ended, and its members may be closed.
    Stopped,
}

/// A member that takes part.
#[derive(Clone, Debug)]
pub struct MemberView {
    /// The device.
    pub id: MemberId,
    /// First data sector of the device.
    pub data_offset: u64,
    /// Sectors from 0 on that are read: what is filled, or nothing while the member is late.
    pub readable_sectors: u64,
    /// Sectors from 0 on that hold data: all, or up to where recovery has come.
    pub filled_sectors: u64,
    /// Sectors from 0 on that it holds for good, whatever becomes of those that it was filled from.
    pub durable_sectors: u64,
    /// Sectors from 0 on that its superblock on the device says it holds: after a crash no others of it count.
    pub recorded_sectors: u64,
    /// Listed bad sectors, counted from `data_offset`.
    pub bad: Arc<Ranges>,
    /// The part of them that the list on the device does not name: after a crash it is believed again.
    pub bad_in_memory: Arc<Ranges>,
    /// What recovery had to leave out below `readable_sectors`. It is written, never read.
    pub holes: Arc<Ranges>,
    /// Read it only when nothing else can be read.
    pub write_mostly: bool,
    /// Fail it at the first error, where the array can do without it.
    pub failfast: bool,
    /// Seeks cost time.
    pub rotational: bool,
    /// Zeroes are discarded there, and take no room.
    pub is_sparse: bool,
}

impl MemberView {
    /// Whether `sectors` sectors from `sector` (counted from `data_offset`) may be read.
    #[inline]
    pub fn can_read(&self, sector: u64, sectors: u64) -> bool {
        sector + sectors <= self.readable_sectors && self.is_good(&(sector..sector + sectors))
    }

    /// Whether they hold data, and may be read if nothing else can, however long that takes.
    pub fn can_wait_for(&self, sector: u64, sectors: u64) -> bool {
        sector + sectors <= self.filled_sectors && self.is_good(&(sector..sector + sectors))
    }

    /// Whether it let a read pass its deadline and has not answered since.
    pub fn is_late(&self) -> bool {
        self.readable_sectors < self.filled_sectors
    }

    fn is_good(&self, range: &Range<u64>) -> bool {
        let is_listed = self.bad.overlaps(range) && keep(Rule::ListedIsNotRead);
        !is_listed && !self.holes.overlaps(range)
    }

    /// No more of it counts than what it holds for good.
    fn falls_back(&mut self) {
        self.filled_sectors = self.filled_sectors.min(self.durable_sectors);
        self.readable_sectors = self.readable_sectors.min(self.filled_sectors);
    }

    /// Whether its list on the device names all of these sectors: after a crash it is not believed there either.
    pub fn is_listed_for_good(&self, sectors: &Range<u64>) -> bool {
        self.bad.contains(sectors) && !self.bad_in_memory.overlaps(sectors)
    }

    /// Whether it holds all data of its slot, and its superblock says so.
    pub fn is_in_sync_for_good(&self) -> bool {
        self.filled_sectors == u64::MAX && self.recorded_sectors == u64::MAX
    }

    /// Whether it holds some of these sectors, and not all.
    pub fn has_some_of(&self, sectors: &Range<u64>) -> bool {
        let (mut at, end) = (sectors.start, sectors.end.min(self.filled_sectors));
        if self.can_wait_for(sectors.start, sectors.end - sectors.start) {
            return false;
        }
        while at < end {
            let lacks = |ranges: &Ranges| ranges.next_from(at).filter(|next| next.start == at);
            match lacks(&self.bad).or_else(|| lacks(&self.holes)) {
                Some(lacking) => at = lacking.end,
                None => return true,
            }
        }
        false
    }

    /// How many of `sectors` sectors from `sector` on may be read before the first that may not.
    pub fn readable_from(&self, sector: u64, sectors: u64) -> u64 {
        let bound = |ranges: &Ranges| ranges.next_from(sector).map_or(u64::MAX, |next| next.start);
        let end = (sector + sectors).min(self.readable_sectors);
        end.min(bound(&self.bad)).min(bound(&self.holes)).saturating_sub(sector)
    }
}

impl ArrayView {
    /// Refuses a range that is not whole blocks inside the array.
    #[inline]
    pub(super) fn check_range(&self, sector: u64, sectors: u64) -> Result<(), RequestError> {
        let end = sector.checked_add(sectors).ok_or(RequestError::OutOfRange)?;
        if end > self.geometry.array_sectors() {
            return Err(RequestError::OutOfRange);
        }
        let mask = u64::from(self.block_sectors) - 1;
        if (sector | sectors) & mask != 0 {
            return Err(RequestError::Unaligned);
        }
        Ok(())
    }

    /// The member in `slot`.
    #[inline]
    pub fn member(&self, slot: Slot) -> Option<&MemberView> {
        self.slots[usize::from(slot.0)].as_ref()
    }

    /// The member that is to replace the one in `slot`.
    #[inline]
    pub fn replacement(&self, slot: Slot) -> Option<&MemberView> {
        // None, on nearly every array.
        self.replacements.iter().find(|(replaced, _)| *replaced == slot).map(|(_, member)| member)
    }

    /// The members that get what is written to `slot`.
    pub fn writers(&self, slot: Slot) -> impl Iterator<Item = &MemberView> {
        self.member(slot).into_iter().chain(self.replacement(slot))
    }

    /// All members that are written to: those in slots, and those that replace them.
    pub fn devices(&self) -> impl Iterator<Item = &MemberView> {
        let replacements = self.replacements.iter().map(|(_, member)| member);
        self.present().map(|(_, member)| member).chain(replacements)
    }

    /// The member in `slot`, when these sectors of it may be read.
    #[inline]
    pub fn reader(&self, slot: Slot, sector: u64, sectors: u64) -> Option<&MemberView> {
        self.member(slot).filter(|member| member.can_read(sector, sectors))
    }

    /// The blocks of a range of whole ones of which a member lacks something: what it is not filled with, its holes, and
    /// what its list names.
    pub fn lacking(&self, member: &MemberView, range: &Range<u64>) -> Ranges {
        let block = u64::from(self.block_sectors);
        let mut lacking = Ranges::of(member.filled_sectors.max(range.start)..range.end);
        let here = Ranges::of(range.clone());
        let others = [&member.bad, &member.holes].map(|ranges| ranges.both(&here));
        others.iter().flat_map(Ranges::iter).for_each(|part| lacking.insert(part));
        let whole = |part: Range<u64>| part.start / block * block..part.end.next_multiple_of(block);
        lacking.iter().map(whole).collect()
    }

    /// No more of the members that are being filled counts than what they hold for good.
    pub(super) fn filled_fall_back(&mut self) {
        let replacements = self.replacements.iter_mut().map(|(_, member)| member);
        self.slots.iter_mut().flatten().chain(replacements).for_each(MemberView::falls_back);
    }

    /// Whether some member is late.
    pub fn any_late(&self) -> bool {
        self.present().any(|(_, member)| member.is_late())
    }

    /// Whether redundancy can be trusted in these sectors, as resync counts them.
    pub fn trusted(&self, range: &Range<u64>) -> bool {
        !self.unsynced.overlaps(range)
    }

    /// Whether parity in these sectors must not be used. What the user accepts is parity for the block that
    /// one member of the row lacks, or for all that members lacked then.
    pub fn in_doubt(&self, range: &Range<u64>, one_lacks: bool) -> bool {
        let is_accepted = |part: Range<u64>| self.accepted_for_all.contains(&part);
        let in_doubt = match one_lacks {
            true => self.unaccepted.overlaps(range),
            false => {
                self.doubted.overlaps(range) && !self.doubted.within(range).iter().all(is_accepted)
            }
        };
        in_doubt && keep(Rule::DoubtedParityIsNotUsed)
    }

    /// Says how whole it is. To be called when it is changed.
    pub(super) fn describe(&mut self) {
        self.whole = self.is_whole();
        self.plain = self.is_plain();
    }

    fn is_whole(&self) -> bool {
        let whole = |member: &MemberView| {
            member.readable_sectors == u64::MAX && member.bad.is_empty() && member.holes.is_empty()
        };
        self.unsynced.is_empty()
            && self.doubted.is_empty()
            && self.slots.iter().all(|member| member.as_ref().is_some_and(whole))
    }

    /// Here the [verdict](super::verdict) about such a write is always an answer. A slot is in sync or out,
    /// and parity was sent whole, so that it gives each block that no member holds.
    fn is_plain(&self) -> bool {
        let lists_nothing = |member: &MemberView| {
            member.bad.is_empty() && member.bad_in_memory.is_empty() && member.holes.is_empty()
        };
        self.doubted.is_empty()
            && self.unresolved.is_empty()
            && self.devices().all(lists_nothing)
            && self.present().all(|(_, member)| member.is_in_sync_for_good())
            && self.geometry.enough(&|slot| self.member(slot).is_some())
    }

    /// Whether it may go on without a member. Else no other one has better than that, or nothing is read any more.
    pub(super) fn bears_a_loss(&self) -> bool {
        let is_over = matches!(self.mode, WriteMode::Broken | WriteMode::Stopped);
        !is_over && self.geometry.max_failures() > 0
    }

    /// Whether `old` has a member that is out here.
    fn lacks_one_of(&self, old: &Self) -> bool {
        let is_here = |id| self.present().any(|(_, member)| member.id == id);
        old.present().any(|(_, member)| !is_here(member.id))
    }

    /// Whether something could be read under `old` that cannot be any more.
    fn reads_less_than(&self, old: &Self) -> bool {
        old.slots.iter().zip(&self.slots).any(|(old, new)| match (old, new) {
            (Some(old), Some(new)) => {
                old.id != new.id || old.filled_sectors > new.filled_sectors || old.bad != new.bad
            }
            (Some(_), None) => true,
            (None, _) => false,
        })
    }

    /// Whether any member lists sectors of `range`, as members count, as bad.
    pub fn lists_as_bad(&self, range: &Range<u64>) -> bool {
        self.present().any(|(_, member)| member.bad.overlaps(range))
    }

    /// Slots that hold a member.
    pub fn present(&self) -> impl Iterator<Item = (Slot, &MemberView)> {
        (0..).map(Slot).zip(&self.slots).filter_map(|(slot, member)| Some((slot, member.as_ref()?)))
    }
}

/// The current view of an array and what every lane has made of it.
pub struct Views {
    current: Mutex<Arc<ArrayView>>,
    epoch: AtomicU64,
    settled: AtomicU64,
    /// The first epoch that came too late to be settled before the array broke. What such a view took out
    /// of reading is on no member.
    broken_from: AtomicU64,
    /// The first view since something was taken back last. What was read under an older one is read again.
    counts_from: AtomicU64,
    closed: AtomicBool,
    seats: Box<[Seat]>,
    holders: Mutex<Holders>,
    /// Someone adopted, or a view settled.
    pub(crate) moved: Signal,
}

/// A question to all lanes: which of these devices have not answered everything. No count is shared by
/// I/Os; each lane looks at its own when it adopts the next view.
#[derive(Default)]
struct Holders {
    asked: Vec<MemberId>,
    holding: Vec<MemberId>,
}

/// What one lane says about its view. Written by that lane alone.
#[repr(align(128))]
struct Seat {
    adopted: AtomicU64,
    /// Whether writes were under way when the lane adopted its view.
    busy: AtomicBool,
    /// Whether writes of parity rows were, that the view asks about.
    row_writes: AtomicBool,
    /// Writes begun on this lane, ever.
    writes: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

/// The epoch of a lane that has not been attached: it holds no view at all.
const DETACHED: u64 = u64::MAX;

impl Views {
    /// The first view, for `lanes` lanes. `is_settled`: the superblocks say which members are out, or nothing may be written.
    pub fn new(mut view: ArrayView, lanes: usize, is_settled: bool) -> Self {
        view.describe();
        let seat = || Seat {
            adopted: AtomicU64::new(DETACHED),
            busy: AtomicBool::new(false),
            row_writes: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            waker: Mutex::default(),
        };
        Self {
            epoch: AtomicU64::new(view.epoch),
            settled: AtomicU64::new(if is_settled { view.epoch } else { 0 }),
            broken_from: AtomicU64::new(u64::MAX),
            counts_from: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            current: Mutex::new(Arc::new(view)),
            seats: (0..lanes).map(|_| seat()).collect(),
            holders: Mutex::default(),
            moved: Signal::default(),
        }
    }

    /// The newest view.
    pub fn current(&self) -> Arc<ArrayView> {
        self.current.lock().clone()
    }

    /// The newest view's epoch.
    #[inline]
    pub fn epoch(&self) -> u64 {
        // SeqCst pairs with `adopt`: a controller that misses a lane's adoption and a lane that
        // misses the newest view cannot both be.
        self.epoch.load(Ordering::SeqCst)
    }

    /// Makes `view` the newest one and wakes every lane. Its epoch is set here. `but_for` takes from it what must not
    /// be read in this moment. `forget` drops what is cached, before any lane has the view. Where a member is out, what was
    /// read under an older view counts no more by then.
    pub fn publish(
        &self,
        mut view: ArrayView,
        but_for: impl FnOnce(&mut ArrayView),
        forget: impl FnOnce(),
    ) -> u64 {
        let mut current = self.current.lock();
        but_for(&mut view);
        let epoch = current.epoch + 1;
        view.epoch = epoch;
        view.taken_out = if view.reads_less_than(&current) { epoch } else { current.taken_out };
        view.describe();
        // What the member that is out gave may be from before a write that the others have.
        let goes_on = view.bears_a_loss();
        if goes_on && view.lacks_one_of(&current) && keep(Rule::OldReadsAreReadAgain) {
            self.counts_from.store(epoch, Ordering::SeqCst);
        }
        forget();
        let is_broken = view.mode == WriteMode::Broken && keep(Rule::BrokenArraysSettleNothing);
        if is_broken && self.broken_from.load(Ordering::SeqCst) == u64::MAX {
            self.broken_from.store(self.settled.load(Ordering::SeqCst) + 1, Ordering::SeqCst);
        }
        *current = Arc::new(view);
        self.epoch.store(epoch, Ordering::SeqCst);
        drop(current);
        self.wake_lanes();
        epoch
    }

    /// A flush has told of a loss, or a member fails: makes a view in which `take_back` has its way. What was read under an
    /// older one counts no more, and `forget` forgets it before any lane has this one. No write passes over what is taken
    /// back, so that none waits for this to be settled.
    pub(crate) fn take_back(&self, take_back: impl FnOnce(&mut ArrayView), forget: impl FnOnce()) {
        let mut current = self.current.lock();
        if !current.bears_a_loss() {
            return;
        }
        let mut view = ArrayView::clone(&current);
        let before = view.epoch;
        view.epoch += 1;
        take_back(&mut view);
        view.describe();
        let epoch = view.epoch;
        if keep(Rule::OldReadsAreReadAgain) {
            self.counts_from.store(epoch, Ordering::SeqCst);
        }
        forget();
        *current = Arc::new(view);
        self.epoch.store(epoch, Ordering::SeqCst);
        if self.settled.load(Ordering::SeqCst) >= before {
            self.settled.store(epoch, Ordering::SeqCst);
        }
        drop(current);
        self.wake_lanes();
        self.moved.notify();
    }

    /// What was read under a view older than this counts no more.
    #[inline]
    pub(crate) fn counts_from(&self) -> u64 {
        self.counts_from.load(Ordering::SeqCst)
    }

    fn wake_lanes(&self) {
        for seat in &self.seats {
            if let Some(waker) = seat.waker.lock().take() {
                waker.wake();
            }
        }
    }

    /// Says that there will be no more views: lanes stop following.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.wake_lanes();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Says that `lane` will use the view of `epoch` from now on.
    pub fn adopt(&self, lane: LaneId, epoch: u64, busy: bool) {
        let seat = &self.seats[usize::from(lane.0)];
        seat.busy.store(busy, Ordering::Relaxed);
        seat.adopted.store(epoch, Ordering::SeqCst);
        self.moved.notify();
    }

    /// Lane, before it adopts: says whether it has writes of parity rows under way that the view asks about.
    pub(crate) fn tell_of_row_writes(&self, lane: LaneId, any: bool) {
        self.seats[usize::from(lane.0)].row_writes.store(any, Ordering::Relaxed);
    }

    /// Controller: whether any lane has, once every lane has adopted that view.
    pub(crate) fn any_row_writes(&self) -> bool {
        self.seats.iter().any(|seat| seat.row_writes.load(Ordering::Relaxed))
    }

    /// Controller: asks every lane which of these members have something of it under way. They answer with
    /// the adoption of the next view.
    pub(crate) fn ask_who_holds(&self, asked: Vec<MemberId>) {
        *self.holders.lock() = Holders { asked, holding: Vec::new() };
    }

    /// Controller: the answers, once every lane has adopted that view.
    pub(crate) fn who_holds(&self) -> Vec<MemberId> {
        std::mem::take(&mut *self.holders.lock()).holding
    }

    /// Lane, before it adopts: says which members that are asked about `hold` something of it.
    pub(crate) fn tell_who_holds(&self, hold: impl Fn(MemberId) -> bool) {
        let Holders { asked, holding } = &mut *self.holders.lock();
        for member in asked.iter().filter(|member| hold(**member)) {
            if !holding.contains(member) {
                holding.push(*member);
            }
        }
    }

    /// Says that `lane` uses no view any more.
    pub fn detach(&self, lane: LaneId) {
        self.tell_of_row_writes(lane, false);
        self.adopt(lane, DETACHED, false);
    }

    /// Wakes `waker` at the next publication.
    pub(crate) fn follow(&self, lane: LaneId, waker: &Waker) {
        *self.seats[usize::from(lane.0)].waker.lock() = Some(waker.clone());
    }

    /// Lets `lane` look whether it should still follow.
    pub(crate) fn wake(&self, lane: LaneId) {
        if let Some(waker) = self.seats[usize::from(lane.0)].waker.lock().take() {
            waker.wake();
        }
    }

    /// Waits until every lane has adopted `epoch`. Says whether writes were under way then.
    pub async fn adopted(&self, epoch: u64) -> bool {
        let all = || self.seats.iter().all(|seat| seat.adopted.load(Ordering::SeqCst) >= epoch);
        self.moved.until(|| all().then_some(())).await;
        self.seats.iter().any(|seat| seat.busy.load(Ordering::Relaxed))
    }

    /// Says that the newest view holds for good: durable where it must be, adopted by all; or that the
    /// array broke over it.
    pub fn settle(&self) {
        let current = self.current.lock();
        self.settled.store(current.epoch, Ordering::SeqCst);
        drop(current);
        self.moved.notify();
    }

    /// Waits until nobody reads what `view` takes out of reading, and the members' superblocks say why.
    /// False when the array broke before they did: after a restart what was taken out is believed again.
    #[must_use]
    pub async fn settled_up_to(&self, view: &ArrayView) -> bool {
        if !self.is_over(view) {
            self.moved.until(|| self.is_over(view).then_some(())).await;
        }
        self.is_recorded(view)
    }

    /// Whether that is so now.
    pub(crate) fn is_settled_up_to(&self, view: &ArrayView) -> bool {
        self.is_over(view) && self.is_recorded(view)
    }

    /// Whether this view holds for good.
    #[cfg(feature = "controls")]
    pub(crate) fn is_settled(&self, view: &ArrayView) -> bool {
        self.settled.load(Ordering::SeqCst) >= view.epoch
    }

    fn is_over(&self, view: &ArrayView) -> bool {
        self.settled.load(Ordering::SeqCst) >= view.taken_out
    }

    fn is_recorded(&self, view: &ArrayView) -> bool {
        view.taken_out < self.broken_from.load(Ordering::SeqCst)
    }

    /// Waits until a settled view does without `members`, or is broken over them; true when the array
    /// still takes writes.
    pub async fn settled_without(&self, members: &[MemberId]) -> bool {
        self.moved
            .until(|| {
                let view = self.current();
                let gone = view.devices().all(|member| !members.contains(&member.id));
                let broken = matches!(
                    view.mode,
                    WriteMode::Broken | WriteMode::ReadOnly | WriteMode::Stopped
                );
                let settled = self.settled.load(Ordering::SeqCst) >= view.epoch;
                ((gone || broken) && settled).then_some(!broken)
            })
            .await
    }

    /// Waits until the controller has acted on what it was told of blocks up to `count`, or the array is
    /// broken.
    pub(crate) async fn settled_hearing(&self, count: NewsCount) {
        self.moved
            .until(|| {
                let view = self.current();
                let settled = self.settled.load(Ordering::SeqCst) >= view.epoch;
                let over = matches!(view.mode, WriteMode::Broken | WriteMode::Stopped);
                (settled && (over || view.heard >= count)).then_some(())
            })
            .await;
    }

    /// Waits until the settled view has no doubt of `range`, or the array takes no news any more.
    pub(crate) async fn settled_resolved(&self, range: &Range<u64>) {
        self.moved
            .until(|| {
                let view = self.current();
                let settled = self.settled.load(Ordering::SeqCst) >= view.epoch;
                let over = matches!(view.mode, WriteMode::Broken | WriteMode::Stopped);
                (settled && (over || !view.doubted.overlaps(range))).then_some(())
            })
            .await;
    }

    /// Counts a write of `lane`.
    #[inline]
    pub(crate) fn count_write(&self, lane: LaneId) {
        let writes = &self.seats[usize::from(lane.0)].writes;
        // One writer: a plain add, visible to whoever sums.
        writes.store(writes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Writes begun, over all lanes.
    pub(crate) fn writes(&self) -> u64 {
        self.seats.iter().map(|seat| seat.writes.load(Ordering::Relaxed)).sum()
    }
}

//! Reads of mirrors that are tasks: of several parts, or of what no member has at once.

use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use smallvec::SmallVec;

use crate::backend::{IoDone, MemberId, ReadInto};
use crate::geometry::{Geometry, Piece, Slot};
use crate::lane::join_all;
use crate::memory::{Buffer, Sink};
use crate::ranges::Ranges;
use crate::request::RequestError;

use super::super::array_lane::{ArrayLane, Waited, byte_range, sink_part};
use super::super::claims::{Claim, Mode};
use super::super::mend::Mended;
use super::super::news::News;
use super::super::read::Part;
use super::super::sources::Sources;
use super::super::unread::{Cause, Looks};
use super::super::view::{ArrayView, MemberView};
use super::choice::longest_readable;
use super::{Copies, Region, believed, copies, region_sectors, regions};

/// Who failed to read it before, and why.
type Suspect = Option<(Slot, Cause)>;

/// Copies that could not be read, and whose they are.
type Unreadable = SmallVec<[(Piece, MemberId); 1]>;

/// Why a range was not read.
enum NotRead {
    /// No copy gives all of it. Those that could not be read.
    ByAny(Unreadable),
    /// A copy gives it, but what others have that come before it may be read again.
    ByPick,
    /// The member that gave it may have lost it.
    SourceFailed,
}

/// Why a copy is not the same as the one that was read, and may be read again.
pub(in super::super) enum NotSettled {
    /// It could be neither written again nor listed.
    Kept,
    /// The member that gave the block has failed: it may have lost it.
    SourceFailed,
}

/// How long a member that is late is waited for, and copies that another one need not give.
type Waits<'a> = (Duration, &'a Unreadable);

/// What came of one copy.
enum Tried {
    Read(Buffer),
    /// Its sectors cannot be read.
    Unreadable(MemberId),
    /// Its member lists some of them as bad, or has not got them yet.
    InPart,
    /// Its member is lost; the controller knows.
    Failed(MemberId),
    /// It is not there, or late.
    Nothing,
    /// It is late, and another one can be read by now.
    Again,
}

impl ArrayLane {
    /// Reads any range: each part from the member that is chosen for it, all at once; what none of
    /// them gives, under a claim.
    pub(in super::super) async fn read_mirrored(
        &self,
        sector: u64,
        sectors: u64,
        into: &Rc<dyn Sink>,
    ) -> Result<(), RequestError> {
        let (mut reads, mut hard) = (Vec::new(), Vec::new());
        let mut first = 0;
        while first < sectors {
            let view = self.view();
            let sectors = self.next_part(&view, sector + first, sectors - first);
            let part = Part { first, sectors, array_sector: sector + first };
            first += sectors;
            match self.choose(&view, part.array_sector, sectors) {
                None => hard.push((part, None)),
                Some((piece, member)) => {
                    let into = sink_part(into, part.first, sectors);
                    let (id, read) = (member.id, self.read_piece(&view, piece, member, into));
                    reads.push(async move { (part, piece.slot, id, read.await.result) });
                }
            }
        }
        for (part, slot, member, result) in join_all(reads).await {
            if let Err(error) = result {
                hard.push((part, self.failed_read(slot, member, error)));
            }
        }
        for (part, failed) in hard {
            self.read_claimed(&part, into, failed).await?;
        }
        Ok(())
    }

    /// How much from `sector` on to read from one member.
    fn next_part(&self, view: &ArrayView, sector: u64, sectors: u64) -> u64 {
        let size = region_sectors(&view.geometry);
        let trusted = view.trusted(&(sector..sector + sectors));
        let together = match &*view.geometry {
            // The one copy that is believed may differ from region to region.
            Geometry::Raid1(_) if trusted => sectors,
            _ => sectors.min(size - sector % size),
        };
        match (self.choose(view, sector, together).is_some(), trusted) {
            (true, true) => self.worth_reading_there(view, sector, together),
            (true, false) => together,
            (false, _) => match longest_readable(view, sector, together) {
                0 => together,
                readable => readable,
            },
        }
    }

    /// Starts a read of one copy now; its end is awaited.
    fn read_piece<'a>(
        &'a self,
        view: &ArrayView,
        piece: Piece,
        member: &MemberView,
        into: ReadInto,
    ) -> impl Future<Output = IoDone> + use<'a> {
        let started = self.begin_copy(view, &piece, member);
        let io = self.read_member(member, piece.member_sector, into);
        async move {
            let done = io.await;
            self.end_copy(piece.slot, started, done.result.is_ok());
            done
        }
    }

    /// Whether the member in `slot`, which failed to read a range, is to be failed for it: the user
    /// wants it so, and another one can serve.
    pub(in super::super) fn fails_fast(&self, slot: Slot, sector: u64, sectors: u64) -> bool {
        self.with_view(|view| {
            let can_read = |piece: &Piece| {
                view.reader(piece.slot, piece.member_sector, piece.sectors).is_some()
            };
            // Where copies may differ the one that was read before is needed.
            view.trusted(&(sector..sector + sectors))
                && view.member(slot).is_some_and(|member| member.failfast)
                && copies(&view.geometry, sector, sectors)
                    .iter()
                    .any(|piece| piece.slot != slot && can_read(piece))
        })
    }

    /// Reads a range under claims, copy after copy until one can be read; `suspect` failed before. A
    /// copy with unreadable sectors is mended from the one that was read, when the mode allows it.
    pub(in super::super) async fn read_copy(
        &self,
        sector: u64,
        sectors: u64,
        into: &Rc<dyn Sink>,
        out: usize,
        mode: Mode,
        suspect: Suspect,
    ) -> Result<(), RequestError> {
        // The view is kept over waits for the geometry alone, which never changes.
        let view = self.view();
        for region in regions(&view.geometry, sector, sectors) {
            let range = region.sector..region.sector + region.sectors();
            let columns = region.columns.clone();
            let (claim, mode) = self.claim_to_read(region.index, columns, mode, &range).await;
            let at = out + byte_range(0, region.first).end;
            self.read_region((&claim, mode), region, into, at, suspect).await?;
        }
        Ok(())
    }

    /// Reads a claimed range. Where every copy lacks something, but not the same, it is read in halves; so
    /// is what is to be mended, or where copies may differ, until the blocks that cannot be read stand alone.
    async fn read_region(
        &self,
        (claim, mode): (&Claim<'_>, Mode),
        region: Region,
        into: &Rc<dyn Sink>,
        out: usize,
        suspect: Suspect,
    ) -> Result<(), RequestError> {
        let block = self.with_view(|view| view.block_sectors);
        // What was answered before this claim is in this view or an older one.
        let newest = self.array.views.epoch();
        let (mut left, mut mended) = (vec![(region, out)], Mended::default());
        let mut result = Ok(());
        while let Some((region, out)) = left.pop() {
            let view = self.view();
            let read = self.read_whole((claim, mode), &region, (into, out), suspect, &mut mended);
            let Err(why) = read.await else { continue };
            if let Some((one, other)) = region.halves(block) {
                let behind = out + byte_range(0, one.sectors()).end;
                left.extend([(other, behind), (one, out)]);
                continue;
            }
            let (tries_again, unreadable) = match why {
                NotRead::ByPick => (false, Unreadable::new()),
                NotRead::SourceFailed => {
                    let is_distrusted =
                        self.array.flushes.any_distrusted() || !self.counts_under(view.epoch);
                    (is_distrusted || self.newer_view(&view).await, Unreadable::new())
                }
                // A write may have made the block readable, and been answered.
                NotRead::ByAny(unreadable) => {
                    let is_old = view.epoch < newest || !self.counts_under(view.epoch);
                    // Or another member takes a slot over.
                    (is_old || self.distrusted_go().await, unreadable)
                }
            };
            if tries_again {
                self.adopts(newest.max(self.array.views.counts_from())).await;
                left.push((region, out));
                continue;
            }
            let error = self.lost_or_stopped();
            if error == RequestError::Lost {
                self.report_lost_copies(claim, &unreadable).await;
            }
            result = Err(error);
            break;
        }
        self.count_mended(mended);
        result
    }

    /// Reads a claimed range from the first copy that gives all of it. Else it is to be read in halves, and
    /// this gives the copies that could not be read.
    async fn read_whole(
        &self,
        (claim, mode): (&Claim<'_>, Mode),
        region: &Region,
        (into, out): (&Rc<dyn Sink>, usize),
        suspect: Suspect,
        mended: &mut Mended,
    ) -> Result<(), NotRead> {
        let epoch = self.with_view(|view| view.epoch);
        let mut unreadable = Unreadable::new();
        let (mut kept, mut found) = (Copies::new(), None);
        let range = region.sector..region.sector + region.sectors();
        let mut trusted = self.with_view(|view| view.trusted(&range));
        let is_block = region.sectors() <= self.with_view(|view| view.block_sectors.into());
        let by_block = !is_block && (!trusted || mode == Mode::Exclusive);
        if !trusted && !self.pick_is_durable().await {
            return Err(NotRead::ByPick);
        }
        let (mut left, mut looks) = (self.to_try(region, suspect, trusted), Looks::default());
        while let Some((waits, piece)) = left.pop_front() {
            if unreadable.iter().any(|(known, _)| *known == piece) {
                continue;
            }
            let source = self.with_view(|view| view.member(piece.slot).map(|member| member.id));
            let waits = waits.then_some((looks.next(), &unreadable));
            match self.try_copy(region, piece, waits).await {
                Tried::Read(block) => {
                    found = Some((piece, block, source));
                    break;
                }
                Tried::Unreadable(member) => {
                    unreadable.push((piece, member));
                    kept.push(piece);
                }
                Tried::InPart if by_block => return Err(NotRead::ByAny(unreadable)),
                // Where the array broke over it no record says so: a restart believes it again.
                Tried::Failed(member) if !trusted && !self.is_out_for_good(member).await => {
                    return Err(NotRead::ByPick);
                }
                Tried::InPart | Tried::Nothing => kept.push(piece),
                Tried::Failed(_) => {}
                Tried::Again => {
                    looks.count();
                    trusted = true;
                    left = self.to_try(region, Some((piece.slot, Cause::Late)), trusted);
                }
            }
            if by_block && !unreadable.is_empty() {
                return Err(NotRead::ByAny(unreadable));
            }
        }
        let Some((piece, block, source)) = found else { return Err(NotRead::ByAny(unreadable)) };
        let sources: Sources = source.into_iter().map(|id| (id, piece.member_sectors())).collect();
        let (held, from) = ((claim, &range), (&*block, &sources));
        let is_read_from_now_on = match trusted {
            true => {
                let mends = mode == Mode::Exclusive && !unreadable.is_empty();
                if mends && self.others_agree(region, piece, &block).await {
                    for (piece, _) in &unreadable {
                        mended.add(self.mend_copy(held, piece, from).await.unwrap_or(None));
                    }
                }
                Ok(())
            }
            false => self.copy_becomes_pick(held, region, (piece, from), &kept, mended).await,
        };
        // One that went out meanwhile may have given what was there before a write that the others have.
        let is_given = self.still_counts(&sources, epoch);
        let is_read_from_now_on = match is_given {
            true => is_read_from_now_on,
            false => Err(NotSettled::SourceFailed),
        };
        if is_read_from_now_on.is_ok() {
            self.put(into, out, &block);
        }
        self.recycle(Some(block));
        is_read_from_now_on.map_err(|why| match why {
            NotSettled::Kept => NotRead::ByPick,
            NotSettled::SourceFailed => NotRead::SourceFailed,
        })
    }

    /// The copies of a region in the order in which to try them, and whether each is waited for. Members that are
    /// late come last, and have all the time that they need; but where copies may differ the one that is
    /// believed is waited for at once.
    fn to_try(&self, region: &Region, suspect: Suspect, trusted: bool) -> VecDeque<(bool, Piece)> {
        let turns = if trusted { &[false, true][..] } else { &[true] };
        let copies = self.by_preference(region, suspect);
        turns.iter().flat_map(|waits| copies.iter().map(|piece| (*waits, *piece))).collect()
    }

    /// Where copies may differ: sees to it that the one that was read is read from now on, or that all others have the
    /// same. `kept`: those that come before it, and did not give it.
    async fn copy_becomes_pick(
        &self,
        held: (&Claim<'_>, &Range<u64>),
        region: &Region,
        (piece, from): (Piece, (&[u8], &Sources)),
        kept: &Copies,
        mended: &mut Mended,
    ) -> Result<(), NotSettled> {
        let mut is_settled = true;
        let kept: Copies = kept.iter().copied().filter(|copy| self.may_give_again(copy)).collect();
        for copy in &kept {
            mended.add(self.settle_copy(held, copy, from).await?);
            is_settled = false;
        }
        // What was filled from a copy that is not read any more may come to be read first.
        for other in self.readable_copies(region).iter().filter(|_| !is_settled) {
            if *other == piece || kept.contains(other) {
                continue;
            }
            let is_filled = |member: &MemberView| member.filled_sectors < u64::MAX;
            let may_be_first =
                self.with_view(|view| view.member(other.slot).is_some_and(is_filled));
            match may_be_first {
                true => drop(self.settle_copy(held, other, from).await?),
                false => drop(self.mend_copy(held, other, from).await),
            }
        }
        // Others may have gone meanwhile that come before it.
        self.pick_is_durable().await.then_some(()).ok_or(NotSettled::Kept)
    }

    /// Writes a copy again that did not give its range, or has lists name it. Gives whose copy was mended, if any was.
    pub(in super::super) async fn settle_copy(
        &self,
        held: (&Claim<'_>, &Range<u64>),
        copy: &Piece,
        from: (&[u8], &Sources),
    ) -> Result<Option<MemberId>, NotSettled> {
        if !self.may_give_again(copy) {
            return Ok(None);
        }
        match self.mend_copy(held, copy, from).await {
            Err(NotSettled::Kept) if self.gives_up(held.0, copy.slot, &sectors_of(copy)).await => {
                Ok(None)
            }
            result => result,
        }
    }

    /// Whether a copy that was not read may be some day, as it is.
    fn may_give_again(&self, copy: &Piece) -> bool {
        let gives_again = |member: &MemberView| member.may_give_again(&sectors_of(copy));
        self.with_view(|view| view.writers(copy.slot).any(gives_again))
    }

    /// The copies of a range that can be read.
    fn readable_copies(&self, region: &Region) -> Copies {
        self.with_view(|view| {
            let all = copies(&view.geometry, region.sector, region.sectors());
            let is_there = |piece: &Piece| {
                view.reader(piece.slot, piece.member_sector, piece.sectors).is_some()
            };
            all.into_iter().filter(is_there).collect()
        })
    }

    /// Whether all other copies that can be read are the same as this one. Where they are not one of them
    /// lies, and a copy made of it would be its witness.
    async fn others_agree(&self, region: &Region, piece: Piece, block: &[u8]) -> bool {
        for other in self.by_preference(region, None) {
            if other == piece {
                continue;
            }
            if let Tried::Read(other) = self.try_copy(region, other, None).await {
                let same = *other == *block;
                self.recycle(Some(other));
                if !same {
                    return false;
                }
            }
        }
        true
    }

    /// Has a block listed on the members that could not read their copy of it, since there is no other.
    pub(in super::super) async fn report_lost_copies(
        &self,
        claim: &Claim<'_>,
        lost: &[(Piece, MemberId)],
    ) {
        let block = self.with_view(|view| u64::from(view.block_sectors));
        for (piece, member) in lost.iter().filter(|(piece, _)| piece.sectors == block) {
            let range = Ranges::of(piece.member_sector..piece.member_sector + block);
            self.tell(claim, News::Unreadable, *member, &range).await;
        }
    }

    /// Reads one copy if it can be read; with `waits` also one of a member that is late.
    async fn try_copy(&self, region: &Region, piece: Piece, waits: Option<Waits<'_>>) -> Tried {
        let view = self.view();
        let Some(member) = view.member(piece.slot) else { return Tried::Nothing };
        let there = match waits {
            None => member.can_read(piece.member_sector, piece.sectors),
            Some(_) => member.can_wait_for(piece.member_sector, piece.sectors),
        };
        if !there {
            let range = piece.member_sectors();
            return if member.has_some_of(&range) { Tried::InPart } else { Tried::Nothing };
        }
        let bytes = byte_range(0, piece.sectors);
        let buffer = self.lane.backend().allocate(bytes.len());
        let into = ReadInto::Buffer(buffer, bytes);
        let done = match waits {
            None => self.read_piece(&view, piece, member, into).await,
            Some((look_after, unreadable)) => {
                let suffice = |view: &ArrayView| other_suffices(view, region, piece, unreadable);
                let sector = piece.member_sector;
                match self.read_patiently(member, sector, into, look_after, suffice).await {
                    Waited::Done(done) => done,
                    Waited::Out => return Tried::Failed(member.id),
                    Waited::OthersSuffice => return Tried::Again,
                }
            }
        };
        let Err(error) = done.result else {
            return Tried::Read(done.buffer.expect("a finished read returns its buffer"));
        };
        self.recycle(done.buffer);
        match self.report_read(member.id, error) {
            Cause::Unreadable if self.fails_fast(piece.slot, region.sector, region.sectors()) => {
                self.array.mailbox.member_failed_fast(member.id, error);
                Tried::Nothing
            }
            Cause::Unreadable => Tried::Unreadable(member.id),
            Cause::Late => Tried::Nothing,
            Cause::Lost => Tried::Failed(member.id),
        }
    }

    /// The copies in the order in which to try them: where mirrors may differ always the same first
    /// one; elsewhere one with unreadable sectors comes first, to be tried again under the claim, or
    /// last, if it is to be failed for them, or has not answered.
    fn by_preference(&self, region: &Region, suspect: Suspect) -> Copies {
        let view = self.view();
        let mut copies = believed(&view, region.sector, region.sectors());
        if view.trusted(&(region.sector..region.sector + region.sectors())) {
            let fails_fast = |slot| view.member(slot).is_some_and(|member| member.failfast);
            copies.sort_by_key(|piece| match suspect {
                Some((slot, cause)) if slot == piece.slot => match cause {
                    Cause::Unreadable if !fails_fast(slot) => 0,
                    _ => 2,
                },
                _ => 1,
            });
        }
        copies
    }

    /// Writes a copy of `range` again that could not be read, where members are to be written at all, and the one that
    /// could has lost nothing.
    async fn mend_copy(
        &self,
        held: (&Claim<'_>, &Range<u64>),
        piece: &Piece,
        from: (&[u8], &Sources),
    ) -> Result<Option<MemberId>, NotSettled> {
        let (claim, range) = held;
        let permit = self.permit(range.clone()).await.map_err(|_| NotSettled::Kept)?;
        let lasting = self.make_last(from.1).await.ok_or(NotSettled::SourceFailed)?;
        let view = self.view();
        let Some(member) = view.member(piece.slot) else { return Ok(None) };
        let held = (claim, &permit, &lasting);
        let rewritten = self.rewrite(held, member, piece.member_sector, from.0).await;
        rewritten.map_err(|_| NotSettled::Kept)
    }
}

/// Whether any copy of a region will do, and another one than this can be read, and is not among those that could not be.
fn other_suffices(
    view: &ArrayView,
    region: &Region,
    piece: Piece,
    unreadable: &Unreadable,
) -> bool {
    let suffices = |other: &Piece| {
        *other != piece
            && unreadable.iter().all(|(known, _)| known != other)
            && view.reader(other.slot, other.member_sector, other.sectors).is_some()
    };
    view.trusted(&(region.sector..region.sector + region.sectors()))
        && copies(&view.geometry, region.sector, region.sectors()).iter().any(suffices)
}

/// The sectors of a copy, on its member.
fn sectors_of(copy: &Piece) -> Range<u64> {
    copy.member_sectors()
}

//! Blocks that could not be read are written again: they are computed, or come from another copy.

use std::ops::Range;

use smallvec::SmallVec;

use crate::backend::{MemberId, ReadInto};
use crate::memory::Buffer;
use crate::ranges::Ranges;
use crate::request::RequestError;

use super::array_lane::{ArrayLane, Permit, SECTOR_BYTES, byte_range};
use super::blocks::Blocks;
use super::claims::{Claim, Columns};
use super::ended::{Failed, Target};
use super::member_writes::{MemberWrites, whole_buffer};
use super::news::News;
use super::plan::{self, Place, Places};
use super::reconstruct::ClaimedRow;
use super::refused::halves_or_bad;
use super::sources::{Lasting, Sources};
use super::unread::{Cause, Unread};
use super::view::{MemberView, WriteMode};

/// The members of which one request or window mended something.
#[derive(Default)]
pub(super) struct Mended(SmallVec<[MemberId; 1]>);

impl Mended {
    pub(super) fn add(&mut self, member: Option<MemberId>) {
        let new = member.filter(|member| !self.0.contains(member));
        self.0.extend(new);
    }

    pub(super) fn add_all(&mut self, other: Self) {
        other.0.into_iter().for_each(|member| self.add(Some(member)));
    }
}

/// A member that stays did not take it, and no list says so: it keeps what it had, which may be read again
/// some day.
pub(super) struct NotRewritten(pub(super) RequestError);

impl ArrayLane {
    /// Reads some columns under the caller's exclusive claim on their units. A block that cannot be read
    /// is computed and written back where it belongs. The cache is not asked. It is read again where one of those that gave
    /// it went out meanwhile: that may have given what was there before a write that the others have.
    pub(super) async fn read_and_mend(
        &self,
        at: &ClaimedRow<'_>,
        columns: &Columns,
        place: Place,
        mut unread: Unread,
        mended: &mut Mended,
    ) -> Result<Buffer, RequestError> {
        let wanted = Places::of(place);
        loop {
            let epoch = self.with_view(|view| view.epoch);
            let mut read = self.read_for_rebuild(at, columns, &wanted, &mut unread).await?;
            let block = read.blocks.take(place).expect("just read or computed");
            self.recycle_all(read.blocks);
            let from = (place, &block, &read.sources);
            let is_read_from_now_on =
                self.block_becomes_pick(at, columns, from, &unread, mended).await;
            let is_given = self.still_counts(&read.sources, epoch);
            if is_given && is_read_from_now_on {
                return Ok(block);
            }
            self.recycle(Some(block));
            if is_given {
                return Err(self.lost_or_stopped());
            }
            // It may be written there by now.
            unread.ask_again();
        }
    }

    /// Sees to it that what was computed is what is read from now on, where its member did not give it and may do so
    /// again: it is written there, or listed. Parity that the user accepts is no reason to list what may be right. False
    /// where something else may be read there some day.
    pub(super) async fn block_becomes_pick(
        &self,
        at: &ClaimedRow<'_>,
        columns: &Columns,
        (place, block, sources): (Place, &Buffer, &Sources),
        unread: &Unread,
        mended: &mut Mended,
    ) -> bool {
        let sectors = at.sectors(columns);
        let view = self.view();
        let has_picks = view.has_picks(&sectors);
        let may_be_read = match has_picks {
            true => at.may_be_read_again(&view, columns, place, unread),
            false => unread.is_unreadable(place),
        };
        if !may_be_read {
            return true;
        }
        if self.mend(at, columns, (place, block, sources), false, mended).await || !has_picks {
            return true;
        }
        let is_read_only = view.mode == WriteMode::ReadOnly;
        if !is_read_only {
            let is_sure = view.in_doubt(&sectors, true);
            if !is_sure || self.make_last(sources).await.is_none() {
                return false;
            }
        }
        self.gives_up(at.claim, at.slot(place), &sectors).await
    }

    /// Writes a computed block over the unreadable one, where members are to be written at all. False where
    /// something else may be read there some day, which parity does not fit: it was not written.
    ///
    /// Before the first resync parity is right only where something was written since: it answers for a block that
    /// is lost, but what was there before the array must not be written over with it. A write beside it makes
    /// parity that `fits` it from now on. In doubt what is computed is right, and the doubt ends where both parities say
    /// the same. What the user accepts there is taken as it is. `sources`: what it was computed from.
    pub(super) async fn mend(
        &self,
        at: &ClaimedRow<'_>,
        columns: &Columns,
        (place, block, sources): (Place, &Buffer, &Sources),
        fits: bool,
        mended: &mut Mended,
    ) -> bool {
        let sectors = at.sectors(columns);
        let view = self.view();
        let in_doubt = view.in_doubt(&sectors, true);
        let is_trusted = at.state(&view, columns, &Unread::default()).parity_trusted;
        let others = at.outliers(&view, columns);
        let is_the_same = is_trusted || in_doubt && others.is_some_and(|all| !all.has(place));
        let is_accepted = !in_doubt && view.has_picks(&sectors);
        let is_taken = !is_trusted && !in_doubt && (fits || is_accepted);
        let mut sources = sources.clone();
        let parities = match is_taken {
            true => None,
            false => self.parities_say_the_same(at, columns, place, &mut sources).await,
        };
        let is_right = in_doubt || is_trusted || is_taken;
        if !is_right || parities == Some(false) {
            return is_the_same;
        }
        let Ok(permit) = self.permit(sectors.clone()).await else { return is_the_same };
        let Some(lasting) = self.make_last(&sources).await else { return is_the_same };
        let view = self.view();
        if let Some(member) = view.member(at.slot(place)) {
            let held = (at.claim, &permit, &lasting);
            match self.rewrite(held, member, sectors.start, block).await {
                Ok(member) => mended.add(member),
                Err(NotRewritten(_)) => return is_the_same,
            }
        }
        if in_doubt && parities.is_some() {
            self.end_doubt(at.row, columns).await;
        }
        true
    }

    /// Whether P and Q give the same for a block that cannot be read. If not, one of the others lies, and a
    /// block made of it would be its witness. `None`: not all of it can be read just now. Who gives
    /// what they are compared by is added to `sources`.
    async fn parities_say_the_same(
        &self,
        at: &ClaimedRow<'_>,
        columns: &Columns,
        place: Place,
        sources: &mut Sources,
    ) -> Option<bool> {
        let view = self.view();
        let mut unread = Unread::default();
        let member = view.member(at.slot(place));
        member.inspect(|member| unread.insert(place, member.id, Cause::Unreadable));
        let state = at.state(&view, columns, &unread);
        let reads = plan::compared_reads(&state, &Places::of(place))?;
        let span = |place| plan::Span { place, columns: columns.clone() };
        let spans: SmallVec<[_; 8]> = reads.iter().map(span).collect();
        let mut blocks = Blocks::default();
        let read = self.read_spans(at.row, &state, columns, &spans, &mut blocks, &mut unread).await;
        if read {
            sources.add(at.sources(&view, columns, &reads));
        }
        let same = read.then(|| self.both_ways_agree(at.row, &state, columns, &mut blocks));
        self.recycle_all(blocks);
        same
    }

    /// Rewrites unreadable sectors of a member and reads them back. What a drive does not take, or takes
    /// and still cannot read, goes to its bad-block log. Its replacement gets the same. The bitmap marks
    /// it: who is out meanwhile must not come back without it. Gives the member, if any of it is mended.
    pub(super) async fn rewrite(
        &self,
        (claim, _permit, _lasting): (&Claim<'_>, &Permit<'_>, &Lasting),
        member: &MemberView,
        sector: u64,
        block: &[u8],
    ) -> Result<Option<MemberId>, NotRewritten> {
        let mut copy = self.lane.backend().allocate(block.len());
        self.copy(&mut copy, block);
        // A power cut must not bring back what was there: users are answered from this.
        let mut writes = MemberWrites::new(self, true);
        writes.start_on_member(member, sector, whole_buffer(copy));
        let range = sector..sector + (block.len() / SECTOR_BYTES) as u64;
        let ended = writes.finish(|| Target::Rewrites, |_, buffer| self.recycle(Some(buffer)));
        match ended.await {
            Ok(_) => {}
            Err(Failed { error, .. }) => {
                // What its list names is not read from it, whatever it is.
                return match self.is_believed_in(member.id, &range) {
                    false => Ok(None),
                    true => Err(NotRewritten(error)),
                };
            }
        }
        let Some((mended, unmended)) = self.read_back(member.id, range).await else {
            return Ok(None);
        };
        if !unmended.is_empty() {
            self.tell(claim, News::Refused, member.id, &unmended).await;
        }
        match unmended.iter().any(|range| self.is_believed_in(member.id, &range)) {
            false => Ok((!mended.is_empty()).then_some(member.id)),
            true => Err(NotRewritten(RequestError::Lost)),
        }
    }

    /// Whether a member is there, and no list on it names these sectors.
    pub(super) fn is_believed_in(&self, id: MemberId, sectors: &Range<u64>) -> bool {
        // This lane may not have adopted yet what the last list says.
        let view = self.array.views.current();
        let member = view.devices().find(|member| member.id == id);
        member.is_some_and(|member| !member.is_listed_for_good(sectors))
    }

    /// Counts the read errors of one request or window that were mended: one a member, however many blocks.
    pub(super) fn count_mended(&self, mended: Mended) {
        mended.0.into_iter().for_each(|member| self.array.mailbox.corrected(member));
    }

    /// What of a range that was just written a member can read, and what it cannot. `None` where it
    /// answers no more.
    async fn read_back(&self, id: MemberId, range: Range<u64>) -> Option<(Ranges, Ranges)> {
        let view = self.view();
        let block = u64::from(view.block_sectors);
        let member = view.devices().find(|member| member.id == id)?;
        let mut mended = Ranges::of(range);
        // What it refused is listed by now.
        member.bad.iter().for_each(|bad| mended.remove(&bad));
        let (mut left, mut unmended): (Vec<_>, _) = (mended.iter().collect(), Ranges::default());
        while let Some(piece) = left.pop() {
            let bytes = byte_range(0, piece.end - piece.start);
            let into = ReadInto::Buffer(self.lane.backend().allocate(bytes.len()), bytes);
            let done = self.read_member(member, piece.start, into).await;
            self.recycle(done.buffer);
            match done.result.map_err(|error| self.report_read(id, error)) {
                Ok(()) => {}
                Err(Cause::Unreadable) => left.extend(halves_or_bad(&piece, block, &mut unmended)),
                Err(Cause::Late | Cause::Lost) => return None,
            }
        }
        unmended.iter().for_each(|bad| mended.remove(&bad));
        Some((mended, unmended))
    }
}

//! The path of a write on the parity levels: one round for the pieces of one row that go together.
//!
//! A round claims its columns, reads what its plan asks for, computes, and writes. Before its first
//! member write it may be planned again; after that it only goes forward: everything new is in
//! memory, what fails is done without, and nothing is read again. A second read-modify-write would
//! read new data as old and leave parity stale.

mod hedge;
mod prefetch;

use std::ops::Range;
use std::rc::Rc;

use smallvec::{SmallVec, smallvec};

use mdspace_parity::Change;

use crate::backend::WriteFrom;
use crate::geometry::{Geometry, ParityGeometry, Row};
use crate::lane::LaneId;
use crate::memory::{Buffer, Source};
use crate::request::RequestError;

use super::array_lane::{ArrayLane, SECTOR_BYTES};
use super::blocks::Blocks;
use super::cache::Stripe;
use super::claims::{Claim, Columns, Mode, WriteClaim};
use super::cover::{Cover, Cut, New, Part, Segment};
use super::ended::{Failed, Target};
use super::gather::{Piece, RowShape};
use super::handover::Results;
use super::member_writes::{Landed, MemberWrites, whole_buffer};
use super::mend::Mended;
use super::plan::{self, Method, Place, Places, RmwLevel, RowState, Span};
use super::points::Point;
use super::reconstruct::{
    ClaimedRow, ReadRow, by_exponent, columns_bytes, parity_index, row_state, slot_of, within,
};
use super::rules::{Rule, keep};
use super::sources::Sources;
use super::stripes::Taken;
use super::unread::Unread;
use super::view::ArrayView;

pub(super) use hedge::LoneReads;

/// Pieces of one row that are written together.
pub(super) struct Round {
    pub(super) row: u64,
    /// The claimed columns, in whole units.
    pub(super) columns: Columns,
    /// In the order of arrival.
    pub(super) pieces: SmallVec<[Piece; 1]>,
    /// On a worker: whose it is, and its slot there.
    pub(super) given: Option<(LaneId, u32)>,
}

/// Why a round came to nothing.
enum Stopped {
    /// Too much is lost to plan it; nothing was written.
    Unplanned,
    /// Members were written.
    Failed(Failed),
}

/// What is read and computed where.
struct RoundPlan {
    /// From the first column to the last.
    steps: SmallVec<[Step; 1]>,
    /// One read a place at most.
    reads: SmallVec<[Span; 4]>,
}

/// Columns whose parity is computed in one way.
struct Step {
    columns: Columns,
    method: Method,
    /// How many data blocks are written whole.
    whole_count: usize,
}

/// What a round works on.
pub(super) struct Work<'a> {
    pub(super) map: &'a ParityGeometry,
    pub(super) row: Row,
    pieces: &'a [Piece],
    pub(super) cover: Cover,
}

/// P and Q, as far as their members take writes.
type Parity = [Option<Buffer>; 2];

/// Everything that a round will write besides what its pieces hold, in memory.
struct NewBlocks {
    /// The units that mix old bytes with new, by the number of their part.
    mixed: Vec<(usize, Buffer)>,
    parity: Parity,
    /// What the row holds afterwards, besides parity, if it is worth keeping.
    kept: Option<Blocks>,
}

impl Round {
    /// Bytes of all pieces.
    pub(super) fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| columns_bytes(&piece.columns)).sum()
    }
}

impl ArrayLane {
    /// Claims, asks for permission, and writes. Says what came of every piece.
    pub(super) async fn run_round(&self, round: &Round) -> Results {
        let columns = round.columns.clone();
        let is_alone = self.array.rules.keep(Rule::RoundsAreClaimed);
        let mode = if is_alone { Mode::Exclusive } else { Mode::Shared };
        let claim = self.array.claims.acquire(round.row, columns, mode);
        match claim.now_or_later() {
            Ok(claim) => self.run_claimed(round, claim).await,
            Err(wait) => match wait.offering(self.offer(round)).await {
                WriteClaim::Granted(claim, taken) => self.run_with_taken(round, claim, taken).await,
                WriteClaim::Ended(results) => results,
            },
        }
    }

    /// Asks for permission and writes, under the round's claim.
    pub(super) async fn run_claimed(&self, round: &Round, claim: Claim<'_>) -> Results {
        let pieces = &round.pieces[..];
        let view = self.view();
        let Geometry::Parity(map) = &*view.geometry else { unreachable!("a parity array") };
        let row = map.row(round.row);
        let start = row.member_sector();
        let range = start + u64::from(round.columns.start)..start + u64::from(round.columns.end);
        let _permit = match self.permit(range).await {
            Ok(permit) => permit,
            Err(error) => return smallvec![Err(error); pieces.len()],
        };
        let unit = RowShape::new(map, view.unit_sectors).unit;
        match self.write_pieces(map, row, pieces, unit, Taken::new()).await {
            // Boxed, for it is rare, and the task of a round is moved.
            Err(Stopped::Unplanned) => {
                let claimed = ClaimedRow { map, row: &row, claim: &claim };
                Box::pin(self.write_apart(&claimed, pieces)).await
            }
            Err(stopped) => pieces.iter().map(|piece| stopped.result(&row, piece)).collect(),
            Ok(_) => smallvec![Ok(()); pieces.len()],
        }
    }

    /// Writes pieces one by one, and no more of their units than what is new: what cannot be written for
    /// one of them, or beside it, may be for another. What a piece needs of the row and cannot be read as
    /// a whole may be in parts.
    async fn write_apart(&self, at: &ClaimedRow<'_>, pieces: &[Piece]) -> Results {
        let (map, row) = (at.map, *at.row);
        let mut results = Results::new();
        let block = self.with_view(|view| view.block_sectors);
        for piece in pieces {
            let alone = std::slice::from_ref(piece);
            let mut result = self.write_pieces(map, row, alone, block, Taken::new()).await;
            while let Err(Stopped::Unplanned) = result {
                let epoch = self.view().epoch;
                let Some(stripe) = self.read_in_parts(at, &piece.columns).await else {
                    if !self.distrusted_go().await && self.counts_under(epoch) {
                        break;
                    }
                    result = self.write_pieces(map, row, alone, block, Taken::new()).await;
                    continue;
                };
                let epoch = self.view().epoch;
                let known = vec![(piece.columns.clone(), stripe)];
                result = self.write_pieces(map, row, alone, block, known).await;
                // What is known counts no more where the view moved before it was used.
                if self.with_view(|view| view.epoch == epoch) {
                    break;
                }
            }
            results.push(result.map_or_else(|stopped| stopped.result(&row, piece), |_| Ok(())));
        }
        results
    }

    /// Reads, computes and writes, under the round's claim and permit: whole units, as a rule. `known`
    /// stands for what the cache has. It was looked at in this moment, and counts, whoever gave it.
    async fn write_pieces(
        &self,
        map: &ParityGeometry,
        row: Row,
        pieces: &[Piece],
        unit: u32,
        known: Taken,
    ) -> Result<Landed, Stopped> {
        let new = pieces.iter().map(|piece| (piece.place, piece.columns.clone()));
        let work = Work { map, row, pieces, cover: Cover::new(new, unit) };
        let columns = &work.cover.columns;
        let mut unread = Unread::default();
        let is_whole = unit == RowShape::new(map, self.with_view(|view| view.unit_sectors)).unit;
        let mut stripes = known;
        let mut are_known = !stripes.is_empty();
        let worth_keeping = is_whole && !are_known && self.is_worth_keeping(&work, unit);
        if stripes.is_empty() && self.array.rules.keep(Rule::RoundsTakeTheirStripes) {
            stripes = self.take_stripes(map, row.index(), columns);
        }
        let taken_under = self.view().epoch;
        let (epoch, new_blocks) = loop {
            let view = self.lets_rows_be_written().await;
            if view.epoch != taken_under {
                // Members may have gone meanwhile that it came from.
                stripes.clear();
            }
            let mut state = work.state(&view, &unread);
            let mut blocks = Blocks::default();
            // Only once: a round that plans again has lost what it took.
            let taken = std::mem::take(&mut stripes);
            let cached = self.use_stripes(columns, taken, &mut state, &mut blocks);
            let rmw = self.array.settings.rmw_level();
            let mut plan = RoundPlan::new(&work.cover, &state, &cached, rmw);
            let Some(plan) = &mut plan else {
                match unread.wait_for_late() {
                    true => continue,
                    false => return Err(Stopped::Unplanned),
                }
            };
            let complete = if unread.waits() {
                let suffice = |view: &ArrayView, unread: &Unread| {
                    let known = Places::default();
                    RoundPlan::new(&work.cover, &work.state(view, unread), &known, rmw).is_some()
                };
                let waited = (&plan.reads[..], &mut blocks);
                let at = (&row, &state);
                // Boxed, for it is rare, and the task of a round is moved.
                Box::pin(self.wait_for_spans(at, columns, waited, &mut unread, suffice)).await
            } else if self.reads_alone(&work) {
                self.read_alone(&work, &mut state, plan, &mut blocks, &mut unread).await
            } else {
                self.read_spans(&row, &state, columns, &plan.reads, &mut blocks, &mut unread).await
            };
            if complete {
                self.array.points.reach(Point::RowIsRead);
            }
            // A view that moved meanwhile may have other members to write: plan again. Only then:
            // views may move faster than a slow member reads.
            let counts = if std::mem::take(&mut are_known) { cached } else { Places::default() };
            let given = blocks.places().without(&counts);
            let may_write = self.with_view(|view| view.rests.is_none());
            if complete && may_write && self.still_holds(&view, &work, &state, &unread, &given) {
                let keep = worth_keeping && state.parity_trusted && plan.leaves_blocks(&state);
                break (view.epoch, self.compute(&work, &state, plan, blocks, keep));
            }
        };
        self.write_row(&work, new_blocks, epoch).await.map_err(Stopped::Failed)
    }

    /// The old data of a row that cannot be read as a whole, block by block: one member lacks sectors here,
    /// and another one there. None where some are lost.
    async fn read_in_parts(&self, at: &ClaimedRow<'_>, columns: &Columns) -> Option<Stripe> {
        loop {
            let epoch = self.view().epoch;
            let mut sources = Sources::default();
            let stripe = self.read_parts(at, columns, &mut sources).await?;
            if self.still_counts(&sources, epoch) {
                return Some(stripe);
            }
            stripe.into_iter().for_each(|(_, block)| self.recycle(Some(block)));
        }
    }

    /// The same once, and what members gave of it.
    async fn read_parts(
        &self,
        at: &ClaimedRow<'_>,
        columns: &Columns,
        sources: &mut Sources,
    ) -> Option<Stripe> {
        let wanted = Places::first(usize::from(at.map.data_disks()));
        let new = |place| (place, self.lane.backend().allocate(columns_bytes(columns)));
        let mut stripe: Stripe = wanted.iter().map(new).collect();
        let block = self.with_view(|view| view.block_sectors);
        for start in columns.clone().step_by(block as usize) {
            let part = start..(start + block).min(columns.end);
            let mut unread = Unread::default();
            let read = self.read_for_rebuild(at, &part, &wanted, &mut unread).await;
            let Ok(read) = read else {
                stripe.into_iter().for_each(|(_, block)| self.recycle(Some(block)));
                return None;
            };
            if !self.mend_unread(at, &part, &read, &unread).await {
                self.recycle_all(read.blocks);
                stripe.into_iter().for_each(|(_, block)| self.recycle(Some(block)));
                return None;
            }
            for (place, whole) in &mut stripe {
                let known = read.blocks.get(*place).expect("just read or computed");
                self.copy(&mut whole[within(columns, &part)], known);
            }
            self.recycle_all(read.blocks);
            sources.add(read.sources);
        }
        Some(stripe)
    }

    /// Writes again what may be read again as it was, where it may differ from what was computed. False where that did
    /// not go well: new parity would not fit it.
    async fn mend_unread(
        &self,
        at: &ClaimedRow<'_>,
        columns: &Columns,
        read: &ReadRow,
        unread: &Unread,
    ) -> bool {
        let (mut mended, mut fits) = (Mended::default(), true);
        let view = self.view();
        if view.trusted(&at.sectors(columns)) {
            return fits;
        }
        let may_be_read = |place| at.may_be_read_again(&view, columns, place, unread);
        for (place, block) in read.blocks.iter().filter(|(place, _)| may_be_read(*place)) {
            let from = (place, block, &read.sources);
            fits &= self.mend(at, columns, from, true, &mut mended).await;
        }
        self.count_mended(mended);
        fits
    }

    /// Whether the same members take writes, with the same trust, as in the view that was planned for, and still give
    /// what was read of them.
    fn still_holds(
        &self,
        before: &ArrayView,
        work: &Work<'_>,
        planned: &RowState,
        unread: &Unread,
        given: &Places,
    ) -> bool {
        if !self.counts_under(before.epoch) {
            return false;
        }
        let is_same_view = self.with_view(|view| view.epoch == before.epoch);
        if is_same_view && !self.array.flushes.any_distrusted() {
            return true;
        }
        let Work { map, row, cover, .. } = work;
        let sectors = row.member_sectors(&cover.columns);
        let source = |place| {
            let member = before.member(slot_of(row, planned.data_count, place))?;
            Some((member.id, sectors.clone()))
        };
        let sources: Option<Sources> = given.iter().map(source).collect();
        let Some(sources) = sources.filter(|sources| self.are_believed(sources)) else {
            return false;
        };
        self.with_view(|view| {
            let now = row_state(view, map, row, &cover.columns, unread);
            now.writable == planned.writable
                && now.parity_trusted == planned.parity_trusted
                && sources.are_still_given(view)
        })
    }

    /// Brings every new byte of the round into memory.
    fn compute(
        &self,
        work: &Work<'_>,
        state: &RowState,
        plan: &RoundPlan,
        mut blocks: Blocks,
        keep: bool,
    ) -> NewBlocks {
        let columns = &work.cover.columns;
        for step in plan.steps.iter().filter(|step| step.method == Method::Recover) {
            let lost = Places::first(state.data_count).without(&state.readable);
            self.solve(&work.row, state, columns, &step.columns, &lost, &mut blocks);
        }
        let mixed = self.mix(work, &blocks);
        let mut parity = self.parity_buffers(state, columns, &mut blocks);
        if parity.iter().any(Option::is_some) {
            let mut steps = plan.steps.iter();
            let mut now = steps.next().expect("a round has columns");
            for Cut { columns: cut, parts } in &work.cover.cuts {
                if now.columns.end <= cut.start {
                    now = steps.next().expect("steps reach to the end");
                }
                let bytes =
                    |&part: &usize| (work.cover.parts[part].place, work.bytes(part, cut, &mixed));
                let new = parts.iter().map(bytes);
                update_parity(work, state, now.method, cut, new, &blocks, &mut parity);
            }
        }
        if keep {
            self.renew(work, &mixed, &mut blocks);
            return NewBlocks { mixed, parity, kept: Some(blocks) };
        }
        self.recycle_all(blocks);
        NewBlocks { mixed, parity, kept: None }
    }

    /// Brings the new bytes into the blocks that are kept.
    fn renew(&self, work: &Work<'_>, mixed: &[(usize, Buffer)], blocks: &mut Blocks) {
        let columns = &work.cover.columns;
        for (number, part) in work.cover.parts.iter().enumerate() {
            let known = blocks.take(part.place);
            let new = || self.lane.backend().allocate(columns_bytes(columns));
            let mut block = known.unwrap_or_else(new);
            let bytes = work.bytes(number, &part.columns, mixed);
            self.copy(&mut block[within(columns, &part.columns)], bytes);
            blocks.put(part.place, block);
        }
    }

    /// Puts together the units of which only some columns are new.
    fn mix(&self, work: &Work<'_>, blocks: &Blocks) -> Vec<(usize, Buffer)> {
        let mut mixed = Vec::new();
        for (number, part) in work.cover.parts.iter().enumerate() {
            if part.new != New::Mixed {
                continue;
            }
            let mut unit = self.lane.backend().allocate(columns_bytes(&part.columns));
            let old = blocks.get(part.place).expect("the old block of a part of a unit is known");
            self.copy(&mut unit, &old[within(&work.cover.columns, &part.columns)]);
            for piece in work.pieces.iter().filter(|piece| piece.place == part.place) {
                let start = piece.columns.start.max(part.columns.start);
                let end = piece.columns.end.min(part.columns.end);
                if start < end {
                    let new = piece.bytes(start..end);
                    self.copy(&mut unit[within(&part.columns, &(start..end))], new);
                }
            }
            mixed.push((number, unit));
        }
        mixed
    }

    /// Memory for the parity that members take: with the old one in it, where that was read.
    fn parity_buffers(&self, state: &RowState, columns: &Columns, blocks: &mut Blocks) -> Parity {
        let allocate = || self.lane.backend().allocate(columns_bytes(columns));
        let mut buffer = |place| {
            let written = state.writable.has(place);
            written.then(|| blocks.take(place).unwrap_or_else(allocate))
        };
        [buffer(state.data_count), buffer(state.data_count + 1)]
    }

    /// Writes the new bytes to every member that is there, and answers for what failed. What they are made of was read under
    /// the view of this `epoch`.
    async fn write_row(
        &self,
        work: &Work<'_>,
        new_blocks: NewBlocks,
        epoch: u64,
    ) -> Result<Landed, Failed> {
        let of_all = self.array.rules.keep(Rule::FuaIsOfAllPieces);
        let pieces = if of_all { work.pieces } else { &work.pieces[..1] };
        let fua = pieces.iter().any(|piece| piece.fua);
        let mut writes = MemberWrites::of_row(self, fua);
        let data_count = usize::from(work.map.data_disks());
        let sector = |columns: &Columns| work.row.member_sector() + u64::from(columns.start);
        let NewBlocks { mut mixed, parity, kept } = new_blocks;
        for run in work.cover.runs() {
            let first = &work.cover.parts[run.start];
            let from = work.source_of(run, &mut mixed);
            let slot = slot_of(&work.row, data_count, first.place);
            writes.start(first.place, slot, sector(&first.columns), from);
        }
        for (place, block) in (data_count..).zip(parity) {
            let Some(block) = block else { continue };
            let slot = slot_of(&work.row, data_count, place);
            writes.start(place, slot, sector(&work.cover.columns), whole_buffer(block));
        }
        let Some(mut kept) = kept else {
            return writes.finish(|| work.target(), |_, buffer| self.recycle(Some(buffer))).await;
        };
        let written = writes.finish(
            || work.target(),
            |place, buffer| match place < data_count {
                true => self.recycle(Some(buffer)),
                false => kept.put(place, buffer),
            },
        );
        // Nothing of a round is cached unless every member has it.
        let landed = written.await;
        let failed_too = !self.array.rules.keep(Rule::FailedRoundsKeepNothing);
        let keeps = landed == Ok(Landed::Whole) || landed.is_err() && failed_too;
        // Beside what was written it has what a member gave that may be out by now. All is forgotten that was here then.
        if keeps && self.counts_under(epoch) {
            self.keep_stripes(work, kept);
            if !self.counts_under(epoch) {
                self.forget_stripes(work);
            }
        }
        landed
    }
}

impl RoundPlan {
    /// Whether it knows more of the row than parity and what its clients wrote: a row that is written
    /// whole would be copied into the cache for nothing, since who writes whole rows reads none.
    fn leaves_blocks(&self, state: &RowState) -> bool {
        let [step] = &self.steps[..] else { return false };
        step.whole_count < state.data_count
    }

    /// Plans each segment by itself. `None`: too much is lost for one of them.
    fn new(cover: &Cover, state: &RowState, cached: &Places, rmw: RmwLevel) -> Option<Self> {
        let mut round = Self { steps: SmallVec::new(), reads: SmallVec::new() };
        for Segment { columns, touched } in cover.segments() {
            let plan = plan::write(state, &touched, cached, rmw)?;
            for place in plan.reads.iter() {
                // One read a member: a gap between two segments is read too.
                match round.reads.iter_mut().find(|span| span.place == place) {
                    Some(span) => span.columns.end = columns.end,
                    None => round.reads.push(Span { place, columns: columns.clone() }),
                }
            }
            let whole_count = touched.whole.count();
            round.steps.push(Step { columns, method: plan.method, whole_count });
        }
        Some(round)
    }
}

impl Work<'_> {
    /// What can be read and written of the row. What is lost there is computed around outliers, and not by parity that
    /// the user accepts. What may be read again as it was is written before new parity fits what is computed.
    fn state(&self, view: &ArrayView, unread: &Unread) -> RowState {
        let columns = &self.cover.columns;
        let sectors = self.row.member_sectors(columns);
        let mut state = row_state(view, self.map, &self.row, columns, unread);
        let heeds_memory = keep(Rule::HiddenIsWrittenFirst);
        let may_be_read = |place| {
            let slot = slot_of(&self.row, state.data_count, place);
            let is_unreadable = unread.is_unreadable(place);
            is_unreadable || heeds_memory && view.may_be_read_again(slot, &sectors, false)
        };
        state.parity_usable &= state.parity_trusted
            || !view.outliers.knows_of(&sectors, &view.doubted)
                && !(0..state.data_count + state.parity_count).any(may_be_read);
        state
    }

    /// What is written of the row, for the verdict.
    fn target(&self) -> Target {
        Target::Row {
            row: self.row.index(),
            columns: self.cover.columns.clone(),
            written: self
                .cover
                .parts
                .iter()
                .map(|part| (part.place, part.columns.clone()))
                .collect(),
        }
    }

    /// The new bytes of `cut` that come from a part.
    fn bytes<'b>(&'b self, part: usize, cut: &Columns, mixed: &'b [(usize, Buffer)]) -> &'b [u8] {
        let Part { columns, new, .. } = &self.cover.parts[part];
        match *new {
            New::Piece(number) => self.pieces[number].bytes(cut.clone()),
            New::Mixed => {
                let unit = mixed.iter().find(|(number, _)| *number == part);
                &unit.expect("every mixed unit is in memory").1[within(columns, cut)]
            }
        }
    }

    /// Where the bytes of a run of parts come from, for one member write.
    fn source_of(&self, run: Range<usize>, mixed: &mut Vec<(usize, Buffer)>) -> WriteFrom {
        let mut take = |number: usize| {
            let at = mixed.iter().position(|(part, _)| *part == number);
            mixed.swap_remove(at.expect("every mixed unit is written once")).1
        };
        let piece_part = |part: &Part, number: usize| {
            let piece = &self.pieces[number];
            (piece.source.clone(), piece.byte_range(&part.columns))
        };
        if run.len() == 1 {
            let part = &self.cover.parts[run.start];
            return match part.new {
                New::Mixed => whole_buffer(take(run.start)),
                New::Piece(number) => {
                    let (source, bytes) = piece_part(part, number);
                    WriteFrom::Source(source, bytes)
                }
            };
        }
        let parts = run.map(|index| {
            let part = &self.cover.parts[index];
            match part.new {
                New::Piece(number) => piece_part(part, number),
                New::Mixed => {
                    let unit = take(index);
                    let whole = 0..unit.len();
                    (Rc::new(unit) as Rc<dyn Source>, whole)
                }
            }
        });
        WriteFrom::Gather(parts.collect())
    }
}

impl Piece {
    fn byte_range(&self, columns: &Columns) -> Range<usize> {
        let start = self.first_byte + (columns.start - self.columns.start) as usize * SECTOR_BYTES;
        start..start + columns_bytes(columns)
    }

    pub(super) fn bytes(&self, columns: Columns) -> &[u8] {
        let source = self.source.stable().expect("redundant levels write from stable memory");
        &source[self.byte_range(&columns)]
    }
}

impl Stopped {
    /// What a piece comes to: another one of its round may be well.
    fn result(&self, row: &Row, piece: &Piece) -> Result<(), RequestError> {
        let start = row.member_sector();
        let Columns { start: first, end } = piece.columns;
        match self {
            Self::Unplanned => Err(RequestError::Lost),
            Self::Failed(Failed { error, columns }) => {
                match columns.overlaps(&(start + u64::from(first)..start + u64::from(end))) {
                    true => Err(*error),
                    false => Ok(()),
                }
            }
        }
    }
}

/// Brings the parity of one cut up to date: by the change of each block, or from all data.
fn update_parity<'a>(
    work: &Work<'_>,
    state: &RowState,
    method: Method,
    cut: &Columns,
    new: impl Iterator<Item = (Place, &'a [u8])>,
    blocks: &Blocks,
    parity: &mut Parity,
) {
    let at = within(&work.cover.columns, cut);
    let [p, q] = parity;
    let p = p.as_mut().map(|block| &mut block[at.clone()]);
    let q = q.as_mut().map(|block| &mut block[at.clone()]);
    let kernels = mdspace_parity::kernels();
    if method == Method::ReadModify {
        let mut changes: SmallVec<[Change<'_>; 4]> = SmallVec::new();
        for (place, new) in new {
            let old = blocks.get(place).expect("read-modify-write read the old block");
            let exponent = work.row.exponent(place as u16);
            changes.push(Change { exponent, old: &old[at.clone()], new });
        }
        return kernels.update(&changes, p, q);
    }
    let mut data = by_exponent(&work.row, state, blocks, &at);
    for (place, new) in new {
        data[parity_index(&work.row, place)] = new;
    }
    match (p, q) {
        (Some(p), Some(q)) => kernels.pq(&data, p, q),
        (Some(p), None) => kernels.xor(&data, p),
        (None, Some(q)) => kernels.q(&data, q),
        (None, None) => {}
    }
}

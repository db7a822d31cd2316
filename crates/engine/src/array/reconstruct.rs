//! Blocks of a parity row that are computed because they cannot be read.

use std::ops::Range;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::backend::{IoDone, IoError, IoErrorKind, MemberId, ReadInto};
use crate::geometry::{ParityGeometry, Row, Slot};
use crate::memory::{Buffer, Sink};
use crate::ranges::Ranges;
use crate::request::RequestError;

use super::array_lane::{ArrayLane, Waited, byte_range};
use super::blocks::Blocks;
use super::claims::{Claim, Columns};
use super::news::News;
use super::plan::{self, Place, Places, RowState};
use super::rules::{Rule, keep};
use super::sources::Sources;
use super::unread::Unread;
use super::view::{ArrayView, WriteMode};

/// A row in which some columns are claimed.
#[derive(Clone, Copy)]
pub(super) struct ClaimedRow<'a> {
    pub(super) map: &'a ParityGeometry,
    pub(super) row: &'a Row,
    pub(super) claim: &'a Claim<'a>,
}

/// What was read of a row.
pub(super) struct ReadRow {
    state: RowState,
    pub(super) blocks: Blocks,
    /// The members that gave it.
    pub(super) sources: Sources,
}

/// What is to be read for some blocks of a row.
pub(super) struct ReadPlan {
    pub(super) state: RowState,
    /// Those of the blocks that are not read.
    lost: Places,
    /// Nothing, where they cannot be had now.
    pub(super) reads: Option<(Places, Way)>,
    /// That is for want of parity that fits: it says nothing of whether the blocks can be read.
    pub(super) misleads: bool,
}

/// How blocks that are not read are computed.
pub(super) enum Way {
    /// By parity that is believed, if any are.
    ByParity,
    /// By what the others give without these, which are known to have put the row in doubt.
    Around(Places),
    /// By each of two parities, where they give the same.
    Compared,
}

impl ClaimedRow<'_> {
    /// The sectors of some columns, on every member.
    pub(super) fn sectors(&self, columns: &Columns) -> Range<u64> {
        self.row.member_sectors(columns)
    }

    pub(super) fn slot(&self, place: Place) -> Slot {
        slot_of(self.row, usize::from(self.map.data_disks()), place)
    }

    /// The outliers of a row in doubt, where they are known.
    pub(super) fn outliers(&self, view: &ArrayView, columns: &Columns) -> Option<Places> {
        let slots = view.outliers.of(&self.sectors(columns), &view.doubted)?;
        let places = 0..usize::from(self.map.data_disks()) + usize::from(self.map.parity_disks());
        Some(places.filter(|place| slots.contains(&self.slot(*place))).collect())
    }

    /// What is read of these places, and of which members.
    pub(super) fn sources(&self, view: &ArrayView, columns: &Columns, places: &Places) -> Sources {
        let readers = places.iter().map(|place| view.member(self.slot(place)));
        readers.flatten().map(|member| (member.id, self.sectors(columns))).collect()
    }

    /// Whether what a place has may be [read again](ArrayView::may_be_read_again) as it was, though it is not read now.
    pub(super) fn may_be_read_again(
        &self,
        view: &ArrayView,
        columns: &Columns,
        place: Place,
        unread: &Unread,
    ) -> bool {
        let sectors = self.sectors(columns);
        view.may_be_read_again(self.slot(place), &sectors, unread.is_unreadable(place))
    }

    pub(super) fn state(&self, view: &ArrayView, columns: &Columns, unread: &Unread) -> RowState {
        row_state(view, self.map, self.row, columns, unread)
    }
}

/// Where the place lies: its slot.
pub(super) fn slot_of(row: &Row, data_count: usize, place: Place) -> Slot {
    match place - place.min(data_count) {
        0 if place < data_count => row.data(place as u16),
        0 => row.p(),
        _ => row.q().expect("place D + 1 exists only with Q"),
    }
}

/// What can be read and written in these columns now. `unread` gave nothing in this very round.
pub(super) fn row_state(
    view: &ArrayView,
    map: &ParityGeometry,
    row: &Row,
    columns: &Columns,
    unread: &Unread,
) -> RowState {
    let data_count = usize::from(map.data_disks());
    let parity_count = usize::from(map.parity_disks());
    let start = row.member_sector() + u64::from(columns.start);
    let sectors = u64::from(columns.end - columns.start);
    if view.whole && unread.is_empty() {
        return RowState::whole(data_count, parity_count);
    }
    let (mut readable, mut writable) = (Places::default(), Places::default());
    let mut any_late = false;
    for place in 0..data_count + parity_count {
        let Some(member) = view.member(slot_of(row, data_count, place)) else { continue };
        writable.insert(place);
        let there = match unread.waits() {
            false => member.can_read(start, sectors),
            true => member.can_wait_for(start, sectors),
        };
        let has_missed = unread.has(place, member.id);
        if there && !has_missed {
            readable.insert(place);
        } else {
            any_late |= unread.is_late(place, member.id)
                || !has_missed && member.can_wait_for(start, sectors);
        }
    }
    let parity_trusted =
        view.trusted(&(start..start + sectors)) || !keep(Rule::UntrustedParityIsMadeAnew);
    let one_lacks = readable.count() + 1 >= data_count + parity_count && !any_late;
    let parity_usable = !view.in_doubt(&(start..start + sectors), one_lacks);
    RowState {
        data_count,
        parity_count,
        readable,
        writable,
        any_late,
        parity_trusted,
        parity_usable,
    }
}

impl ArrayLane {
    /// Gives one block to a front end, under the caller's claim on its units: from the stripe cache, from
    /// its member, or computed straight into the front end's memory.
    pub(super) async fn give_block(
        &self,
        at_row: &ClaimedRow<'_>,
        columns: &Columns,
        place: Place,
        mut unread: Unread,
        (into, out): (&Rc<dyn Sink>, usize),
    ) -> Result<(), RequestError> {
        let row = at_row.row;
        if let Some(block) = self.cached_block(at_row.map, row.index(), columns, place) {
            self.put(into, out, &block);
            self.recycle(Some(block));
            return Ok(());
        }
        let wanted = Places::of(place);
        let read = self.read_for(at_row, columns, &wanted, &mut unread).await?;
        let ReadRow { state, mut blocks, .. } = read;
        let lost = Places::first(state.data_count).without(&blocks.places());
        let at = 0..columns_bytes(columns);
        if blocks.get(place).is_none() && lost.count() == 1 {
            into.fill(out..out + at.len(), &mut |to| {
                solve_lost(row, &state, &blocks, &at, &mut [(place, to)]);
            });
        } else {
            self.compute_wanted(row, &state, columns, &wanted, &mut blocks);
            self.put(into, out, blocks.get(place).expect("just read or computed"));
        }
        self.recycle_all(blocks);
        Ok(())
    }

    /// Reads all of `wanted`, or what it takes to compute it, each block of the row once at most, and
    /// computes it.
    pub(super) async fn read_for_rebuild(
        &self,
        at: &ClaimedRow<'_>,
        columns: &Columns,
        wanted: &Places,
        unread: &mut Unread,
    ) -> Result<ReadRow, RequestError> {
        let mut read = self.read_for(at, columns, wanted, unread).await?;
        self.compute_wanted(at.row, &read.state, columns, wanted, &mut read.blocks);
        Ok(read)
    }

    /// Reads `wanted`, or where it cannot be read what it takes to compute it. Members that fail on the way
    /// are done without as long as the rest suffices. A block that its member cannot read is computed
    /// alone, and none waits for a late member that another one needs: `Lost` of wider columns means that they are to
    /// be asked for in halves.
    async fn read_for(
        &self,
        at: &ClaimedRow<'_>,
        columns: &Columns,
        wanted: &Places,
        unread: &mut Unread,
    ) -> Result<ReadRow, RequestError> {
        let row = at.row;
        let mut is_whole = false;
        loop {
            let view = self.view_that_counts().await;
            let is_block = columns.end - columns.start <= view.block_sectors;
            if !is_block && wanted.iter().any(|place| unread.is_unreadable(place)) {
                return Err(RequestError::Lost);
            }
            let plan = self.plan_reads(&view, (at, columns), wanted, unread, is_whole);
            let ReadPlan { state, lost, .. } = plan;
            let Some((reads, way)) = plan.reads else {
                let asked = (at, columns);
                if !is_block && self.parts_wait_for_nobody(&view, asked, wanted, unread, is_whole) {
                    return Err(RequestError::Lost);
                }
                if unread.wait_for_late() {
                    continue;
                }
                // A write may have made the row whole, and no view says so yet.
                if !is_whole && self.array.mailbox.was_made_whole(&at.sectors(columns)) {
                    is_whole = true;
                    continue;
                }
                // Or one does by now, or says that a block can be read, or that another member has taken a slot over.
                if self.newer_view(&view).await || self.distrusted_go().await {
                    unread.ask_again();
                    continue;
                }
                if view.mode != WriteMode::Stopped && !plan.misleads {
                    self.report_lost(at, columns, unread).await;
                }
                return Err(self.lost_or_stopped());
            };
            let span = |place| plan::Span { place, columns: columns.clone() };
            let spans: SmallVec<[_; 8]> = reads.iter().map(span).collect();
            let (mut blocks, sources) = (Blocks::default(), at.sources(&view, columns, &reads));
            let complete = match unread.waits() {
                true => {
                    let suffice = |view: &ArrayView, unread: &Unread| {
                        let plan = self.plan_reads(view, (at, columns), wanted, unread, is_whole);
                        plan.reads.is_some()
                    };
                    let waited = (&spans[..], &mut blocks);
                    let row = (row, &state);
                    // Boxed, for it is rare.
                    Box::pin(self.wait_for_spans(row, columns, waited, unread, suffice)).await
                }
                false => self.read_spans(row, &state, columns, &spans, &mut blocks, unread).await,
            };
            if !complete {
                continue;
            }
            let has_picks = !is_whole && view.has_picks(&at.sectors(columns));
            let are_out =
                !has_picks || lost.is_empty() || self.are_out_for_good(&lost, unread).await;
            if !self.still_counts(&sources, view.epoch) {
                self.recycle_all(blocks);
                continue;
            }
            if !are_out {
                self.recycle_all(blocks);
                return Err(RequestError::Lost);
            }
            match way {
                Way::ByParity => {}
                Way::Around(outliers) => {
                    self.solve_around(row, &state, columns, &outliers, wanted, &mut blocks);
                }
                Way::Compared if self.both_ways_agree(row, &state, columns, &mut blocks) => {
                    // What cannot be read just now may be read again, as it was: it is written first.
                    let may_be_read = |place| at.may_be_read_again(&view, columns, place, unread);
                    let waits = self.array.rules.keep(Rule::UnreadMayBeReadAgain)
                        && lost.iter().any(may_be_read);
                    if !state.parity_usable && !waits {
                        self.end_doubt(row, columns).await;
                    }
                }
                Way::Compared => {
                    self.recycle_all(blocks);
                    // Nothing was ever written here. In wider columns something may have been beside it.
                    if is_block && state.any_late && unread.wait_for_late() {
                        continue;
                    }
                    return Err(RequestError::Lost);
                }
            }
            return Ok(ReadRow { state, blocks, sources });
        }
    }

    /// Whether blocks of these columns may be had without the late members that all of them would wait for.
    fn parts_wait_for_nobody(
        &self,
        view: &ArrayView,
        (at, columns): (&ClaimedRow<'_>, &Columns),
        wanted: &Places,
        unread: &Unread,
        is_whole: bool,
    ) -> bool {
        if !unread.may_wait() {
            return false;
        }
        let unread = unread.of_whole_members();
        let mut starts = columns.clone().step_by(view.block_sectors as usize);
        starts.any(|start| {
            let block = start..(start + view.block_sectors).min(columns.end);
            self.plan_reads(view, (at, &block), wanted, &unread, is_whole).reads.is_some()
        })
    }

    /// What is to be read for `wanted`. `is_whole`: a write has made the row whole, and no view says so yet.
    pub(super) fn plan_reads(
        &self,
        view: &ArrayView,
        (at, columns): (&ClaimedRow<'_>, &Columns),
        wanted: &Places,
        unread: &Unread,
        is_whole: bool,
    ) -> ReadPlan {
        let mut state = at.state(view, columns, unread);
        state.parity_trusted |= is_whole;
        state.parity_usable |= is_whole;
        let lost = wanted.without(&state.readable);
        if lost.is_empty() {
            let reads = Some((*wanted, Way::ByParity));
            return ReadPlan { state, lost, reads, misleads: false };
        }
        let outliers = at.outliers(view, columns).filter(|_| !is_whole);
        // An outlier that cannot be read just now has something else than the others give for it.
        let stays = self.array.rules.keep(Rule::OutliersStayAsTheyAre);
        let is_hidden = |at, all: &Places| all.has(at) && unread.is_unreadable(at);
        let hides = |all: &Places| stays && wanted.iter().any(|at| is_hidden(at, all));
        if let Some(outliers) = outliers.filter(|all| !hides(all))
            && let Some(reads) = plan::reads_around(&state, wanted, &outliers)
        {
            let reads = Some((reads, Way::Around(outliers)));
            return ReadPlan { state, lost, reads, misleads: false };
        }
        let rebuild = plan::rebuild_reads(&state, &lost);
        // Parity that the user accepts says nothing of a block that may be read again, where it is known not to fit.
        let fits = |reads: Places| outliers.is_none_or(|all| !reads.iter().any(|at| all.has(at)));
        let may_be_read = |place| at.may_be_read_again(view, columns, place, unread);
        let misleads = wanted.iter().any(may_be_read) && !rebuild.is_none_or(fits);
        // In doubt two parities that agree may be newer than the block of a member that is only late: users
        // were answered from that one, and the row would still not agree with it.
        let compares = !misleads && (!state.any_late || state.parity_usable);
        let reads = match rebuild {
            Some(reads) => Some((reads, Way::ByParity)).filter(|_| !misleads),
            None => plan::compared_reads(&state, &lost)
                .filter(|_| compares)
                .map(|reads| (reads, Way::Compared)),
        };
        ReadPlan { state, lost, reads, misleads }
    }

    /// Waits until no member is believed after a crash that has failed or is out, and did not give these places. False
    /// when the array broke before that.
    async fn are_out_for_good(&self, lost: &Places, unread: &Unread) -> bool {
        for place in lost.iter() {
            for member in unread.failed(place) {
                if !self.is_out_for_good(member).await {
                    return false;
                }
            }
        }
        self.pick_is_durable().await
    }

    /// Has a block listed on the members that could not read it: the others cannot answer for it, so that
    /// it is lost. With late members that a sync task does not wait for that cannot be told.
    async fn report_lost(&self, at: &ClaimedRow<'_>, columns: &Columns, unread: &Unread) {
        let view = self.view();
        let is_block = columns.end - columns.start == view.block_sectors;
        if !is_block || unread.any_late() || unread.is_of_sync() && view.any_late() {
            return;
        }
        let block = Ranges::of(at.sectors(columns));
        for member in unread.unreadable() {
            self.tell(at.claim, News::Unreadable, member, &block).await;
        }
    }

    /// Computes what of `wanted` was not read from what was read for it.
    fn compute_wanted(
        &self,
        row: &Row,
        state: &RowState,
        columns: &Columns,
        wanted: &Places,
        blocks: &mut Blocks,
    ) {
        let lost = wanted.without(&blocks.places());
        if !lost.is_empty() {
            self.solve_all(row, state, columns, blocks);
            self.compute_parity(row, state, columns, &lost, blocks);
        }
    }

    /// Reads spans of a row into buffers as long as the claimed columns. False when a read failed;
    /// its place is in `unread` then, and the caller plans again.
    pub(super) async fn read_spans(
        &self,
        row: &Row,
        state: &RowState,
        columns: &Columns,
        spans: &[plan::Span],
        blocks: &mut Blocks,
        unread: &mut Unread,
    ) -> bool {
        let view = self.view();
        let length = columns_bytes(columns);
        let of_sync = unread.is_of_sync().then(|| self.begin_sync_read());
        let patience = match &of_sync {
            Some(read) => read.patience(),
            None => self.array.settings.read_patience(),
        };
        let mut complete = true;
        let mut ended = |place: Place, member: MemberId, done: IoDone, blocks: &mut Blocks| {
            if let Err(error) = done.result {
                complete = false;
                unread.insert(place, member, self.report_read(member, error));
            }
            match done.buffer {
                Some(buffer) => blocks.put(place, buffer),
                None => complete = false,
            }
        };
        let mut under_way: SmallVec<[_; 4]> = SmallVec::new();
        for span in spans {
            let Some(member) = view.member(slot_of(row, state.data_count, span.place)) else {
                // The view moved since the plan was made.
                return false;
            };
            let known = blocks.take(span.place);
            let buffer = known.unwrap_or_else(|| self.lane.backend().allocate(length));
            let into = ReadInto::Buffer(buffer, within(columns, &span.columns));
            let sector = row.member_sector() + u64::from(span.columns.start);
            match self.try_read_member(member, sector, into, patience) {
                Ok(done) => ended(span.place, member.id, done, blocks),
                Err(io) => under_way.push((span.place, member.id, io)),
            }
        }
        for (place, member, io) in &mut under_way {
            let done = match &of_sync {
                Some(read) => read.end_of(self, io).await,
                None => io.await,
            };
            ended(*place, *member, done, blocks);
        }
        complete
    }

    /// As [`read_spans`](Self::read_spans), with all the time that members need, until they are not needed any more:
    /// where `suffice` says of a view, and of what was not read, that it can be done without the one that is waited for.
    pub(super) async fn wait_for_spans(
        &self,
        (row, state): (&Row, &RowState),
        columns: &Columns,
        (spans, blocks): (&[plan::Span], &mut Blocks),
        unread: &mut Unread,
        suffice: impl Fn(&ArrayView, &Unread) -> bool,
    ) -> bool {
        let view = self.view();
        let mut complete = true;
        for span in spans {
            let place = span.place;
            let Some(member) = view.member(slot_of(row, state.data_count, place)) else {
                // The view moved since the plan was made.
                return false;
            };
            let known = blocks.take(place);
            let length = columns_bytes(columns);
            let buffer = known.unwrap_or_else(|| self.lane.backend().allocate(length));
            let into = ReadInto::Buffer(buffer, within(columns, &span.columns));
            let sector = row.member_sector() + u64::from(span.columns.start);
            let without = unread.without(place, member.id);
            let others = |view: &ArrayView| suffice(view, &without);
            let waited = self.read_patiently(member, sector, into, unread.next_look(), others);
            let done = match waited.await {
                Waited::Done(done) => done,
                Waited::Out => gone(),
                Waited::OthersSuffice => {
                    *unread = without;
                    return false;
                }
            };
            if let Err(error) = done.result {
                complete = false;
                unread.insert(place, member.id, self.report_read(member.id, error));
            }
            match done.buffer {
                Some(buffer) => blocks.put(place, buffer),
                None => complete = false,
            }
        }
        complete
    }

    /// Computes every data block that was not read.
    pub(super) fn solve_all(
        &self,
        row: &Row,
        state: &RowState,
        columns: &Columns,
        blocks: &mut Blocks,
    ) {
        let lost = Places::first(state.data_count).without(&blocks.places());
        self.solve(row, state, columns, columns, &lost, blocks);
    }

    /// Computes every data block that was not read, and the parity of `wanted`, without the row's outliers. What
    /// was read of these stays: users were answered from it.
    pub(super) fn solve_around(
        &self,
        row: &Row,
        state: &RowState,
        columns: &Columns,
        outliers: &Places,
        wanted: &Places,
        blocks: &mut Blocks,
    ) {
        let own: SmallVec<[(Place, Buffer); 2]> =
            outliers.iter().filter_map(|place| Some((place, blocks.take(place)?))).collect();
        self.compute_wanted(row, state, columns, wanted, blocks);
        self.solve_all(row, state, columns, blocks);
        for (place, block) in own {
            let (kept, other) = match blocks.take(place) {
                Some(computed) if !self.array.rules.keep(Rule::OutliersStayAsTheyAre) => {
                    (computed, Some(block))
                }
                computed => (block, computed),
            };
            self.recycle(other);
            blocks.put(place, kept);
        }
    }

    /// Computes the `part` of `lost` data blocks. The blocks in memory are as long as `columns`.
    pub(super) fn solve(
        &self,
        row: &Row,
        state: &RowState,
        columns: &Columns,
        part: &Columns,
        lost: &Places,
        blocks: &mut Blocks,
    ) {
        let at = within(columns, part);
        let mut solved: SmallVec<[(Place, Buffer); 2]> = SmallVec::new();
        for place in lost.iter() {
            let known = blocks.take(place);
            let new = || self.lane.backend().allocate(columns_bytes(columns));
            solved.push((place, known.unwrap_or_else(new)));
        }
        let parts = solved.iter_mut().map(|(place, block)| (*place, &mut block[at.clone()]));
        solve_lost(row, state, blocks, &at, &mut parts.collect::<SmallVec<[_; 2]>>());
        for (place, block) in solved {
            blocks.put(place, block);
        }
    }

    /// Computes the parities among `wanted` from all data.
    fn compute_parity(
        &self,
        row: &Row,
        state: &RowState,
        columns: &Columns,
        wanted: &Places,
        blocks: &mut Blocks,
    ) {
        let [p, q] = [state.data_count, state.data_count + 1];
        if wanted.without(&Places::first(p)).is_empty() {
            return;
        }
        let length = columns_bytes(columns);
        let (new_p, new_q) =
            self.parity_of(row, &by_exponent(row, state, blocks, &(0..length)), length);
        for (place, new) in [(p, Some(new_p)), (q, new_q)] {
            match new {
                Some(new) if wanted.has(place) => blocks.put(place, new),
                new => self.recycle(new),
            }
        }
    }

    /// P, and Q where the level has it, of data blocks that stand by their exponents.
    pub(super) fn parity_of(
        &self,
        row: &Row,
        data: &[&[u8]],
        length: usize,
    ) -> (Buffer, Option<Buffer>) {
        let mut p = self.lane.backend().allocate(length);
        if row.q().is_none() {
            mdspace_parity::kernels().xor(data, &mut p);
            return (p, None);
        }
        let mut q = self.lane.backend().allocate(length);
        mdspace_parity::kernels().pq(data, &mut p, &mut q);
        (p, Some(q))
    }
}

/// The end of a read whose member was taken out meanwhile.
fn gone() -> IoDone {
    IoDone { result: Err(IoError { kind: IoErrorKind::Gone, errno: 0 }), buffer: None }
}

/// The bytes `at` of data blocks in the order in which parity takes them; empty where the layout has
/// a gap or the block is unknown.
pub(super) fn by_exponent<'a>(
    row: &Row,
    state: &RowState,
    blocks: &'a Blocks,
    at: &Range<usize>,
) -> SmallVec<[&'a [u8]; 16]> {
    let mut data: SmallVec<[&[u8]; 16]> = SmallVec::new();
    data.resize(usize::from(row.exponents()), &[]);
    for (place, block) in blocks.iter().filter(|(place, _)| *place < state.data_count) {
        data[parity_index(row, place)] = &block[at.clone()];
    }
    data
}

/// Computes the bytes `at` of lost data blocks from those that are known, and as much parity.
fn solve_lost(
    row: &Row,
    state: &RowState,
    known: &Blocks,
    at: &Range<usize>,
    lost: &mut [(Place, &mut [u8])],
) {
    let mut data = by_exponent(row, state, known, at);
    let parity = |nth: usize| known.get(state.data_count + nth).map(|block| &block[at.clone()]);
    let exponent = |place: Place| usize::from(row.exponent(place as u16));
    let kernels = mdspace_parity::kernels();
    match (lost, parity(0), parity(1)) {
        ([], ..) => {}
        ([(_, one)], Some(p), _) => {
            data.push(p);
            kernels.xor(&data, one);
        }
        ([(place, one)], None, Some(q)) => {
            kernels.recover_from_q(&data, exponent(*place), q, one);
        }
        ([(first, one), (second, other)], Some(p), Some(q)) => {
            kernels.recover_two(&data, [*first, *second].map(exponent), p, q, [one, other]);
        }
        _ => panic!("a plan never reads less than it needs"),
    }
}

/// Where parity takes a data block: by its exponent of g, or without Q by its place.
pub(super) fn parity_index(row: &Row, place: Place) -> usize {
    match row.q() {
        Some(_) => usize::from(row.exponent(place as u16)),
        None => place,
    }
}

/// Length of a range of columns in bytes.
pub(super) fn columns_bytes(columns: &Columns) -> usize {
    byte_range(0, u64::from(columns.end - columns.start)).len()
}

/// Where `part` lies in a buffer that holds `whole`, in bytes.
pub(super) fn within(whole: &Columns, part: &Columns) -> Range<usize> {
    byte_range(u64::from(part.start - whole.start), u64::from(part.end - part.start))
}

#[cfg(test)]
mod tests;

//! Parity against data: one window of a check, a repair or a resync of a parity array.

use std::ops::Range;

use crate::geometry::{Row, Slot};
use crate::memory::Buffer;
use crate::status::Mismatch;

use super::super::array_lane::{ArrayLane, Permit, SECTOR_BYTES};
use super::super::blocks::Blocks;
use super::super::claims::Columns;
use super::super::command::Undecided;
use super::super::member_writes::whole_buffer;
use super::super::mend::{Mended, NotRewritten};
use super::super::plan::{Place, Places, RowState, Span};
use super::super::reconstruct::{ClaimedRow, ReadPlan, Way, by_exponent, columns_bytes};
use super::super::sources::{Lasting, Sources};
use super::super::unread::Unread;
use super::super::view::{ArrayView, MemberView};
use super::suspect::{Suspicion, TwoParities, Votes};
use super::window::{Found, SyncKind, WindowError};
use super::writes::{WindowWrites, make_last};

/// md counts in its stripes.
const PAGE_BYTES: usize = 4096;

/// Compares parity with data; but for a check, writes what is wrong.
pub(super) async fn compare(
    port: &ArrayLane,
    at: &ClaimedRow<'_>,
    columns: &Columns,
    kind: &SyncKind,
) -> Result<Found, WindowError> {
    let mut comparison = Comparison::read(port, at, columns, kind).await?;
    if !comparison.agrees() {
        comparison.leave_what_none_can_judge();
        comparison.ask_for_permit().await?;
        comparison.ask_the_sources().await?;
        if comparison.judges() {
            comparison.judge();
        }
        comparison.compare_parity().await;
        comparison.mend_data().await;
    }
    comparison.end().await
}

/// Some columns of a row, as members have them and as they should be.
struct Comparison<'a> {
    port: &'a ArrayLane,
    at: &'a ClaimedRow<'a>,
    row: &'a Row,
    columns: &'a Columns,
    kind: &'a SyncKind,
    state: RowState,
    /// What was read, and of which members.
    sources: Sources,
    unread: Unread,
    blocks: Blocks,
    /// P and Q as all data make them; as they shall be, once it is judged who lies.
    fresh: [Option<Buffer>; 2],
    /// Whether a sector that cannot be read meets a lie: computed from the liar it would be its witness.
    undecidable: bool,
    /// Whose unreadable sectors were written again.
    mended: Mended,
    /// Whether all were that some member gives again.
    undone: Result<(), NotRewritten>,
    /// Of what is written beside what the bitmap marks already.
    permit: Option<Permit<'a>>,
    /// Pages of the window in which something is wrong.
    wrong: Vec<bool>,
    places: Vec<Mismatch>,
    /// That what was read will last, where something is to be written by it, and those writes.
    lasting: Option<Lasting>,
    writes: Option<WindowWrites<'a>>,
}

impl<'a> Comparison<'a> {
    async fn read(
        port: &'a ArrayLane,
        at: &'a ClaimedRow<'a>,
        columns: &'a Columns,
        kind: &'a SyncKind,
    ) -> Result<Self, WindowError> {
        let row = at.row;
        let mut unread = Unread::of_sync();
        // It is judged by what was read, whoever is late or lost by now.
        let (blocks, state, sources) = read_whole(port, at, columns, &mut unread).await?;
        let length = columns_bytes(columns);
        let (p, q) = port.parity_of(row, &by_exponent(row, &state, &blocks, &(0..length)), length);
        Ok(Self {
            port,
            at,
            row,
            columns,
            kind,
            undecidable: false,
            mended: Mended::default(),
            undone: Ok(()),
            permit: None,
            state,
            sources,
            unread,
            blocks,
            fresh: [Some(p), q],
            wrong: vec![false; length.div_ceil(PAGE_BYTES)],
            places: Vec::new(),
            lasting: None,
            writes: None,
        })
    }

    /// Whether all of the row was read, and nothing is wrong.
    fn agrees(&self) -> bool {
        let same = |nth: usize| match &self.fresh[nth] {
            Some(fresh) => **self.known(nth) == **fresh,
            None => true,
        };
        self.state.is_whole() && same(0) && same(1)
    }

    /// What resync is there to make right proves nothing against anybody.
    fn judges(&self) -> bool {
        *self.kind != SyncKind::Resync && self.state.parity_trusted && self.state.is_whole()
    }

    fn mends(&self) -> bool {
        *self.kind != SyncKind::Check && !self.undecidable
    }

    /// A row that is not whole and yet contradicts itself says that one of its members lies, not which. It
    /// stays as it is, unreadable sectors among it, unless the user believes data, and has them all.
    fn leave_what_none_can_judge(&mut self) {
        let place_count = self.state.data_count + self.state.parity_count;
        let is_lacked = |place| !self.state.readable.has(place) || self.is_bad(place);
        let lacks = |places: Range<Place>| places.into_iter().any(is_lacked);
        let decided =
            *self.kind == SyncKind::Repair(Undecided::ByData) && !lacks(0..self.state.data_count);
        let judged = *self.kind != SyncKind::Resync && self.state.parity_trusted;
        self.undecidable = judged && !decided && lacks(0..place_count) && self.contradicts_itself();
    }

    /// Whether a parity that was read is not that of the data.
    fn contradicts_itself(&self) -> bool {
        (0..self.state.parity_count).any(|nth| {
            let known = self.blocks.get(self.state.data_count + nth);
            known.zip(self.fresh[nth].as_ref()).is_some_and(|(known, fresh)| **known != **fresh)
        })
    }

    /// Resync makes right what the bitmap marks already. Everything else that is written is to be marked:
    /// who is out meanwhile must not come back without it.
    async fn ask_for_permit(&mut self) -> Result<(), WindowError> {
        if self.mends() && (self.any_is_bad() || *self.kind != SyncKind::Resync) {
            let permit = self.port.permit(self.at.sectors(self.columns)).await;
            self.permit = Some(permit.map_err(|_| WindowError::Failed)?);
        }
        Ok(())
    }

    /// Nothing is written by blocks of a member that has lost newer ones.
    async fn ask_the_sources(&mut self) -> Result<(), WindowError> {
        let writes = self.mends() && (self.any_is_bad() || self.contradicts_itself());
        if !writes {
            return Ok(());
        }
        let lasting = make_last(self.port, self.kind, &self.sources).await?;
        self.writes = Some(WindowWrites::that_make_right(&lasting));
        self.lasting = Some(lasting);
        Ok(())
    }

    fn leaves(&self) -> bool {
        *self.kind == SyncKind::Repair(Undecided::Leave)
    }

    /// Parity of a whole row, as its member has it.
    fn known(&self, nth: usize) -> &Buffer {
        self.blocks.get(self.state.data_count + nth).expect("the row is whole")
    }

    /// The first sector of the window on every member.
    fn start(&self) -> u64 {
        self.at.sectors(self.columns).start
    }

    fn slot(&self, place: Place) -> Slot {
        self.at.slot(place)
    }

    /// Whether sectors of the place cannot be read, or are listed so.
    fn is_bad(&self, place: Place) -> bool {
        let range = self.at.sectors(self.columns);
        let listed = |member: &MemberView| member.bad.overlaps(&range);
        let lists = |view: &ArrayView| view.member(self.slot(place)).is_some_and(listed);
        self.unread.is_unreadable(place) || self.port.with_view(lists)
    }

    fn any_is_bad(&self) -> bool {
        let all = 0..self.state.data_count + self.state.parity_count;
        all.into_iter().any(|place| self.is_bad(place))
    }

    /// Tells where members of a whole row contradict each other, and who lies.
    fn judge(&mut self) {
        for suspicion in self.suspicions() {
            let pages =
                suspicion.bytes.start / PAGE_BYTES..suspicion.bytes.end.div_ceil(PAGE_BYTES);
            self.wrong[pages].fill(true);
            self.places.push(self.mismatch(&suspicion));
            match suspicion.liar {
                Some(place) if place >= self.state.data_count => {}
                None if !self.leaves() => {}
                liar => self.believe_parity(suspicion.bytes, liar),
            }
        }
    }

    /// Where parity and data contradict each other, and who is to blame, by place.
    fn suspicions(&self) -> Vec<Suspicion> {
        let unit = self.port.with_view(|view| view.block_sectors) as usize * SECTOR_BYTES;
        match &self.fresh {
            [Some(p), Some(q)] => {
                let exponents = (0..self.state.data_count).map(|at| self.row.exponent(at as u16));
                let (p, q) = ([&**self.known(0), &**p], [&**self.known(1), &**q]);
                TwoParities { p, q, exponents: exponents.collect() }.suspicions(unit)
            }
            [Some(p), None] => Votes(vec![&**self.known(0), &**p]).suspicions(unit),
            _ => Vec::new(),
        }
    }

    /// The parity that members have stands: it is the data that is mended, or nothing.
    fn believe_parity(&mut self, at: Range<usize>, liar: Option<Place>) {
        let fresh_p = self.fresh[0].as_ref().map(|p| p[at.clone()].to_vec());
        for nth in 0..self.state.parity_count {
            let known = self.blocks.get(self.state.data_count + nth).expect("the row is whole");
            if let Some(fresh) = &mut self.fresh[nth] {
                fresh[at.clone()].copy_from_slice(&known[at.clone()]);
            }
        }
        let (Some(liar), Some(fresh_p)) = (liar, fresh_p) else { return };
        let view = self.port.view();
        let Some(member) = view.member(self.slot(liar)).filter(|_| self.writes.is_some()) else {
            return;
        };
        let mut right = self.port.lane.backend().allocate(at.len());
        let old = &self.blocks.get(liar).expect("the row is whole")[at.clone()];
        mdspace_parity::kernels().xor(&[old, &fresh_p, &self.known(0)[at.clone()]], &mut right);
        let sector = self.start() + (at.start / SECTOR_BYTES) as u64;
        if let Some(writes) = &mut self.writes {
            writes.start(self.port, member, sector, whole_buffer(right));
        }
    }

    /// Compares each parity with what it shall be.
    async fn compare_parity(&mut self) {
        for nth in 0..2 {
            // Without Q there is no place for it either.
            let Some(fresh) = self.fresh[nth].take() else { continue };
            let place = self.state.data_count + nth;
            let known = self.blocks.take(place);
            match known {
                // What could not be read is written again; it is not known to be wrong.
                None if self.is_bad(place) => {
                    self.rewrite(place, &fresh).await;
                    self.port.recycle(Some(fresh));
                }
                known => self.compare_one(place, fresh, known),
            }
        }
        let undecided = !self.judges() && *self.kind != SyncKind::Resync;
        if undecided && self.wrong.contains(&true) {
            let whole = Suspicion { bytes: 0..columns_bytes(self.columns), liar: None };
            self.places.push(self.mismatch(&whole));
        }
    }

    fn compare_one(&mut self, place: Place, fresh: Buffer, known: Option<Buffer>) {
        let mut differs = false;
        let old = known.iter().flat_map(|known| known.chunks(PAGE_BYTES));
        let pages = fresh.chunks(PAGE_BYTES).zip(old).map(|(new, old)| new != old);
        for (page, page_differs) in pages.enumerate() {
            self.wrong[page] |= page_differs;
            differs |= page_differs;
        }
        self.port.recycle(known);
        // Without some of the row nobody can tell.
        let may_write = self.judges() || !self.leaves() || !self.state.parity_trusted;
        // A replacement may have taken the slot since the row was read.
        let view = self.port.view();
        let (member, start) = (view.member(self.slot(place)), self.start());
        match (member.filter(|_| differs && may_write), &mut self.writes) {
            (Some(member), Some(writes)) => {
                writes.start(self.port, member, start, whole_buffer(fresh));
            }
            _ => self.port.recycle(Some(fresh)),
        }
    }

    /// Writes data again that could not be read, as they were computed. In a first resync too: parity is
    /// made to fit them, and would be wrong about the others if the old bytes could be read again.
    async fn mend_data(&mut self) {
        for place in 0..self.state.data_count {
            let Some(block) = self.blocks.take(place) else { continue };
            if self.is_bad(place) {
                self.rewrite(place, &block).await;
            }
            self.port.recycle(Some(block));
        }
    }

    async fn rewrite(&mut self, place: Place, block: &[u8]) {
        let view = self.port.view();
        if let (Some(permit), Some(lasting)) = (&self.permit, &self.lasting)
            && let Some(member) = view.member(self.slot(place))
        {
            let held = (self.at.claim, permit, lasting);
            match self.port.rewrite(held, member, self.start(), block).await {
                Ok(member) => self.mended.add(member),
                Err(why) => self.undone = Err(why),
            }
        }
    }

    async fn end(self) -> Result<Found, WindowError> {
        self.port.recycle_all(self.blocks);
        self.fresh.into_iter().for_each(|left| self.port.recycle(left));
        if let Some(mut writes) = self.writes {
            // Parity in doubt fits all data then, and what could not be read is as it was computed.
            if !self.state.parity_trusted && self.undone.is_ok() {
                writes.makes_all_agree(self.at.sectors(self.columns));
            }
            writes.finish(self.port).await?;
        }
        self.undone?;
        let pages = self.wrong.iter().filter(|page| **page).count();
        Ok(Found {
            sectors: (pages * PAGE_BYTES / SECTOR_BYTES) as u64,
            places: self.places,
            mended: self.mended,
            ..Found::default()
        })
    }

    /// A suspicion as users read it.
    fn mismatch(&self, suspicion: &Suspicion) -> Mismatch {
        let sector = |byte: usize| self.start() + (byte / SECTOR_BYTES) as u64;
        let shown = suspicion.liar.filter(|&liar| liar < self.state.data_count).unwrap_or(0);
        let start = sector(suspicion.bytes.start);
        let places = 0..self.state.data_count + self.state.parity_count;
        Mismatch {
            array_sector: self.at.map.inverse(self.slot(shown), start).unwrap_or(0),
            member_sectors: start..sector(suspicion.bytes.end),
            row: Some(self.row.index()),
            slots: places.map(|at| self.slot(at).0.into()).collect(),
            liar: suspicion.liar.map(|liar| self.slot(liar).0.into()),
        }
    }
}

/// Reads every block of the row; what has no member any more is left out, and what cannot be read is
/// computed where parity can be trusted.
async fn read_whole(
    port: &ArrayLane,
    at: &ClaimedRow<'_>,
    columns: &Columns,
    unread: &mut Unread,
) -> Result<(Blocks, RowState, Sources), WindowError> {
    let (map, row, range) = (at.map, at.row, at.sectors(columns));
    loop {
        // Blocks that cannot be read stand alone before anything is computed: good sectors beside them are
        // compared as they are.
        let is_block = columns.end - columns.start <= port.with_view(|view| view.block_sectors);
        let in_part = |view: &ArrayView| {
            let mut slots = (0..map.raid_disks()).filter_map(|slot| view.member(Slot(slot)));
            slots.any(|member| member.has_some_of(&range))
        };
        if !is_block && (unread.any_unreadable() || port.with_view(in_part)) {
            return Err(WindowError::Unreadable);
        }
        // What is compared must be read: nobody answers for a late member here.
        if unread.any_late() || port.with_view(ArrayView::any_late) {
            return Err(WindowError::Late);
        }
        let view = port.view();
        let data = Places::first(usize::from(map.data_disks()));
        let plan = port.plan_reads(&view, (at, columns), &data, unread, false);
        let ReadPlan { state, .. } = plan;
        let Some((_, way)) = plan.reads else {
            let listed = |view: &ArrayView| view.lists_as_bad(&range);
            let may_be_had = plan.misleads || !state.parity_usable || unread.any_unreadable();
            return Err(match may_be_had || port.with_view(listed) {
                true => WindowError::Unreadable,
                false => WindowError::Failed,
            });
        };
        let sources = at.sources(&view, columns, &state.readable);
        let places = 0..state.data_count + state.parity_count;
        let readable = places.filter(|&place| state.readable.has(place));
        let spans: Vec<_> =
            readable.map(|place| Span { place, columns: columns.clone() }).collect();
        let mut blocks = Blocks::default();
        if !port.read_spans(row, &state, columns, &spans, &mut blocks, unread).await {
            continue;
        }
        match way {
            Way::ByParity => port.solve_all(row, &state, columns, &mut blocks),
            Way::Around(outliers) => {
                port.solve_around(row, &state, columns, &outliers, &data, &mut blocks);
            }
            Way::Compared if port.both_ways_agree(row, &state, columns, &mut blocks) => {}
            Way::Compared => {
                port.recycle_all(blocks);
                return Err(WindowError::Unreadable);
            }
        }
        return Ok((blocks, state, sources));
    }
}

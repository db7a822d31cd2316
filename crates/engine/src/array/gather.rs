//! From write requests to rounds: what one lane's clients write to a parity row is written together.
//!
//! A request is cut into *pieces*, one a chunk. All pieces that arrive in one turn of the lane are
//! gathered; those of one row whose columns touch or overlap become one round. A piece that overlaps a
//! round of this lane waits, with all others that do, and is adopted by the next one. No piece waits
//! for more to come. At most a round that begins a row and leaves it unfinished waits for the rows before
//! it that are under way: a stream that goes on will have finished the row by then.

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::future::{Future, poll_fn};
use std::hash::{BuildHasherDefault, Hasher};
use std::pin::pin;
use std::rc::Rc;

use smallvec::SmallVec;

use crate::geometry::{Geometry, ParityGeometry};
use crate::memory::Source;
use crate::request::{Queue, RequestError};

use super::array_lane::{ArrayLane, SECTOR_BYTES, whole_sectors};
use super::cache::Recent;
use super::claims::Columns;
use super::handover::Results;
use super::plan::Place;
use super::round::{LoneReads, Round};
use super::rules::{Rule, keep};

/// New bytes for some columns of one block.
pub(super) struct Piece {
    pub(super) row: u64,
    pub(super) place: Place,
    pub(super) columns: Columns,
    /// Held until the piece is on the members, also when its client is gone.
    pub(super) source: Rc<dyn Source>,
    /// Where its bytes begin in the source.
    pub(super) first_byte: usize,
    pub(super) fua: bool,
    /// None on a worker: the answer leaves from home.
    pub(super) ending: Option<Ending>,
}

/// Who is told of a piece's end.
pub(super) struct Ending {
    queue: Rc<Queue>,
    tag: u64,
    /// The request's other pieces, if it has some.
    request: Option<Rc<Request>>,
}

/// A request of several pieces.
struct Request {
    left: Cell<usize>,
    result: Cell<Result<(), RequestError>>,
}

impl Ending {
    pub(super) fn end(self, result: Result<(), RequestError>) {
        let Some(request) = self.request else { return self.queue.end(self.tag, result) };
        if result.is_err() || !keep(Rule::OneFailedPieceFailsItsRequest) {
            request.result.set(result);
        }
        request.left.set(request.left.get() - 1);
        if request.left.get() == 0 {
            self.queue.end(self.tag, request.result.get());
        }
    }
}

/// The writes of one lane to parity rows, from their arrival to the end of their rounds.
#[derive(Default)]
pub(super) struct Gather {
    /// Came in this turn.
    arrived: RefCell<Vec<Piece>>,
    rows: RefCell<Rows>,
    /// Rows in which a round is held back.
    held_back: Cell<usize>,
    /// Rounds started so far.
    started: Cell<u64>,
    /// Started rounds that no task runs yet.
    ready: RefCell<VecDeque<Round>>,
    /// Whether a task will look at them.
    attended: Cell<bool>,
    /// The stripes that this lane wrote to.
    pub(super) recent: RefCell<Recent>,
    /// How long reads take here when a round is alone.
    pub(super) lone_reads: LoneReads,
}

impl Gather {
    /// Whether the lane has one round under way, in this row.
    pub(super) fn is_alone(&self, row: u64) -> bool {
        let rows = self.rows.borrow();
        rows.len() == 1 && rows.get(&row).is_some_and(|writes| writes.under_way.len() == 1)
    }

    /// Takes note of a round of a row, which starts now.
    fn note_start(&self, shape: &RowShape, writes: &mut RowWrites, round: &Round) {
        let (columns, number) = (round.columns.clone(), self.started.get());
        self.started.set(number + 1);
        writes.under_way.push(UnderWay { columns, ends_row: shape.ends_row(round), number });
    }
}

/// Rows with rounds under way, by number. Nobody goes through them: their order means nothing.
type Rows = HashMap<u64, RowWrites, BuildHasherDefault<RowHasher>>;

/// Spreads row numbers by the golden ratio, in every run alike.
#[derive(Default)]
struct RowHasher(u64);

impl Hasher for RowHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("a row's number is one word")
    }

    fn write_u64(&mut self, row: u64) {
        let spread = row.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ spread >> 32;
    }
}

/// One row's writes on one lane.
#[derive(Default)]
struct RowWrites {
    under_way: SmallVec<[UnderWay; 1]>,
    /// In the order of arrival.
    waiting: Vec<Piece>,
    /// Those that could go wait for the rounds of their stream that were started before this one.
    held_back: Option<u64>,
}

#[derive(Clone, PartialEq, Eq)]
struct UnderWay {
    columns: Columns,
    /// It writes the last sector of the row.
    ends_row: bool,
    /// Counts the lane's rounds.
    number: u64,
}

/// What a row is, for gathering.
#[derive(Clone, Copy)]
pub(super) struct RowShape {
    /// A power of two.
    pub(super) unit: u32,
    pub(super) chunk_sectors: u32,
    pub(super) data_disks: usize,
}

/// How many rows before an unfinished one count as of its stream.
const STREAM_ROWS: u64 = 16;

/// Most bytes that a round takes in, where a row has less.
const ROUND_BYTES_MAX: usize = 1 << 20;

impl RowShape {
    /// The columns, grown to whole units.
    pub(super) fn units(&self, columns: &Columns) -> Columns {
        let within = self.unit - 1;
        columns.start & !within..(columns.end + within) & !within
    }

    /// Most bytes that one round takes in.
    pub(super) fn most_bytes(&self) -> usize {
        self.row_bytes().max(ROUND_BYTES_MAX)
    }

    fn row_bytes(&self) -> usize {
        self.chunk_sectors as usize * self.data_disks * SECTOR_BYTES
    }

    pub(super) fn round(&self, row: u64, pieces: SmallVec<[Piece; 1]>) -> Round {
        let units = |piece: &Piece| self.units(&piece.columns);
        let columns = pieces.iter().map(units).reduce(|one, other| hull(&one, &other));
        Round { row, columns: columns.expect("a round has pieces"), pieces, given: None }
    }

    fn begins_row(&self, pieces: &[Piece]) -> bool {
        pieces.iter().any(|piece| piece.place == 0 && piece.columns.start == 0)
    }

    fn ends_row(&self, round: &Round) -> bool {
        let last = |piece: &Piece| {
            piece.place + 1 == self.data_disks && piece.columns.end == self.chunk_sectors
        };
        round.pieces.iter().any(last)
    }

    fn is_full(&self, round: &Round) -> bool {
        round.bytes() >= self.row_bytes()
    }
}

impl RowWrites {
    fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.waiting.is_empty()
    }
}

impl ArrayLane {
    /// Starts a write to a parity array; its end will stand in `queue` with `tag`.
    pub(super) fn write_parity(
        self: &Rc<Self>,
        queue: &Rc<Queue>,
        tag: u64,
        sector: u64,
        from: Rc<dyn Source>,
        fua: bool,
    ) {
        match self.cut(queue, tag, sector, from, fua) {
            Ok(0) => queue.end(tag, Ok(())),
            Ok(_) => {}
            Err(error) => queue.end(tag, Err(error)),
        }
    }

    /// Cuts a write into pieces, one a chunk, and gathers them. Gives their number.
    fn cut(
        self: &Rc<Self>,
        queue: &Rc<Queue>,
        tag: u64,
        sector: u64,
        from: Rc<dyn Source>,
        fua: bool,
    ) -> Result<usize, RequestError> {
        self.with_view(|view| {
            let sectors = whole_sectors(from.len())?;
            view.check_range(sector, sectors)?;
            if sectors == 0 {
                return Ok(0);
            }
            let Geometry::Parity(map) = &*view.geometry else { unreachable!("a parity array") };
            let from = self.stabilise(from);
            let count = map.chunks(sector, sectors);
            let request = (count > 1)
                .then(|| Rc::new(Request { left: Cell::new(count), result: Cell::new(Ok(())) }));
            let mut first = 0;
            while first < sectors {
                let at = map.split(sector + first);
                let length =
                    u64::from(map.chunk_sectors() - at.offset_sectors).min(sectors - first);
                self.gather(Piece {
                    row: at.row,
                    place: usize::from(at.data_index),
                    columns: at.offset_sectors..at.offset_sectors + length as u32,
                    source: from.clone(),
                    first_byte: first as usize * SECTOR_BYTES,
                    fua,
                    ending: Some(Ending { queue: queue.clone(), tag, request: request.clone() }),
                });
                first += length;
            }
            Ok(count)
        })
    }

    fn gather(self: &Rc<Self>, piece: Piece) {
        let mut arrived = self.gather.arrived.borrow_mut();
        arrived.push(piece);
        if arrived.len() == 1 {
            let this = self.clone();
            // It runs behind every task that is ready now: their requests belong to the same turn.
            self.lane.spawn(async move { this.form_rounds() });
        }
    }

    /// Makes rounds of all that has arrived.
    fn form_rounds(self: &Rc<Self>) {
        let mut arrived = self.gather.arrived.take();
        let shape = self.row_shape();
        if arrived.len() > 1 {
            arrived.sort_by_key(|piece| piece.row);
        }
        let mut pieces = arrived.drain(..);
        while let Some(&Piece { row, .. }) = pieces.as_slice().first() {
            let is_same = |piece: &&Piece| piece.row == row;
            let count = pieces.as_slice().iter().take_while(is_same).count();
            let same_row: SmallVec<[Piece; 1]> = pieces.by_ref().take(count).collect();
            let mut rows = self.gather.rows.borrow_mut();
            let writes = rows.entry(row).or_default();
            if count == 1 && writes.is_idle() && !shape.begins_row(&same_row) {
                let round = shape.round(row, same_row);
                self.gather.note_start(&shape, writes, &round);
                drop(rows);
                self.run(round);
            } else {
                writes.waiting.extend(same_row);
                drop(rows);
                self.start_ready(&shape, row);
            }
        }
        drop(pieces);
        // Its memory serves the next turn, unless that has begun.
        let mut next = self.gather.arrived.borrow_mut();
        if next.is_empty() {
            *next = arrived;
        }
    }

    /// Starts what can go of a row's waiting pieces.
    fn start_ready(self: &Rc<Self>, shape: &RowShape, row: u64) {
        let mut rows = self.gather.rows.borrow_mut();
        let Some(writes) = rows.get_mut(&row) else { return };
        let held_back = writes.held_back.take();
        self.gather.held_back.set(self.gather.held_back.get() - usize::from(held_back.is_some()));
        let (mut rounds, blocked) =
            select(shape, row, std::mem::take(&mut writes.waiting), |piece| {
                let units = shape.units(&piece.columns);
                writes.under_way.iter().any(|one| overlap(&one.columns, &units))
            });
        writes.waiting = blocked;
        let unfinished = |round: &Round| shape.begins_row(&round.pieces) && !shape.is_full(round);
        let until = held_back.unwrap_or_else(|| self.gather.started.get());
        if rounds.iter().any(unfinished) && is_behind_its_stream(&rows, row, until) {
            let writes = rows.get_mut(&row).expect("seen above");
            for round in rounds.extract_if(.., |round| unfinished(round)) {
                writes.waiting.splice(0..0, round.pieces);
            }
            writes.held_back = Some(until);
            self.gather.held_back.set(self.gather.held_back.get() + 1);
        }
        let writes = rows.get_mut(&row).expect("seen above");
        rounds.iter().for_each(|round| self.gather.note_start(shape, writes, round));
        drop(rows);
        rounds.into_iter().for_each(|round| self.run(round));
    }

    fn run(self: &Rc<Self>, round: Round) {
        if self.has_workers() { self.share(round) } else { self.run_here(round) }
    }

    /// Runs a round on this lane.
    pub(super) fn run_here(self: &Rc<Self>, round: Round) {
        self.gather.ready.borrow_mut().push_back(round);
        self.attend();
    }

    /// Sees to it that a task runs the rounds that are ready.
    fn attend(self: &Rc<Self>) {
        if !self.gather.attended.replace(true) {
            let this = self.clone();
            self.lane.spawn(async move { this.run_rounds().await });
        }
    }

    /// Runs rounds until none is ready. One that must wait leaves the others to another task: where
    /// members answer at once, one task runs them all, and each is told of while another runs.
    async fn run_rounds(self: Rc<Self>) {
        let at_once = Cell::new(false);
        while let Some(round) = self.next_round() {
            if at_once.replace(true)
                && let Some(next) = self.gather.ready.borrow().front()
            {
                self.prefetch(next);
            }
            let results = {
                let mut run = pin!(self.run_round(&round));
                poll_fn(|context| {
                    let polled = run.as_mut().poll(context);
                    if polled.is_pending() {
                        at_once.set(false);
                        self.leave_ready();
                    }
                    polled
                })
                .await
            };
            self.end_round(round, results);
        }
    }

    fn next_round(&self) -> Option<Round> {
        let next = self.gather.ready.borrow_mut().pop_front();
        self.gather.attended.set(next.is_some());
        next
    }

    /// The running task waits: what is ready needs another one.
    fn leave_ready(self: &Rc<Self>) {
        self.gather.attended.set(false);
        if !self.gather.ready.borrow().is_empty() {
            self.attend();
        }
    }

    /// Answers for every piece of a round that has ended here or on a worker. A worker sends the answer
    /// home.
    pub(super) fn end_round(self: &Rc<Self>, round: Round, results: Results) {
        if let Some((home, slot)) = round.given {
            // Home may use the memory again as soon as it hears.
            drop(round);
            return self.handover.worker.end(home, (slot, results));
        }
        for (piece, result) in round.pieces.into_iter().zip(results) {
            piece.ending.expect("it was gathered here").end(result);
        }
        self.round_ended(round.row, &round.columns);
    }

    /// Lets those go that waited for the round, and an unfinished row of its stream.
    fn round_ended(self: &Rc<Self>, row: u64, columns: &Columns) {
        let mut rows = self.gather.rows.borrow_mut();
        let Entry::Occupied(mut known) = rows.entry(row) else {
            panic!("a round under way is known")
        };
        let writes = known.get_mut();
        let ended = writes.under_way.iter().position(|one| one.columns == *columns);
        writes.under_way.swap_remove(ended.expect("a round under way is known"));
        let waiting = !writes.waiting.is_empty();
        if writes.is_idle() {
            known.remove();
        }
        let held_back = (self.gather.held_back.get() > 0).then(|| held_back_behind(&rows, row));
        drop(rows);
        if waiting {
            self.start_ready(&self.row_shape(), row);
        }
        if let Some(held_back) = held_back.flatten() {
            let this = self.clone();
            self.lane.spawn(async move {
                // The clients that were just answered go first: theirs may finish the row.
                this.lane.pause().await;
                this.lane.pause().await;
                this.form_rounds();
                this.start_ready(&this.row_shape(), held_back);
            });
        }
    }

    pub(super) fn row_shape(&self) -> RowShape {
        self.with_view(|view| {
            let Geometry::Parity(map) = &*view.geometry else { unreachable!("a parity array") };
            RowShape::new(map, view.unit_sectors)
        })
    }
}

impl RowShape {
    pub(super) fn new(map: &ParityGeometry, unit_sectors: u32) -> Self {
        let chunk_sectors = map.chunk_sectors();
        let data_disks = usize::from(map.data_disks());
        Self { unit: unit_sectors.min(chunk_sectors), chunk_sectors, data_disks }
    }
}

/// Whether a round is under way that ends a row shortly before `row` and was started before `until`.
fn is_behind_its_stream(rows: &Rows, row: u64, until: u64) -> bool {
    let of_stream = |one: &UnderWay| one.ends_row && one.number < until;
    let mut before = (row.saturating_sub(STREAM_ROWS)..row).filter_map(|row| rows.get(&row));
    before.any(|writes| writes.under_way.iter().any(of_stream))
}

/// The row shortly behind `row` in which a round is held back.
fn held_back_behind(rows: &Rows, row: u64) -> Option<u64> {
    let is_held_back = |row: &u64| rows.get(row).is_some_and(|writes| writes.held_back.is_some());
    (row + 1..=row + STREAM_ROWS).find(is_held_back)
}

/// Parts the pieces of one row into rounds that can go now, and those that must wait: for a round
/// under way, for an earlier piece that waits, or because a round has its fill.
fn select(
    shape: &RowShape,
    row: u64,
    waiting: Vec<Piece>,
    is_under_way: impl Fn(&Piece) -> bool,
) -> (Vec<Round>, Vec<Piece>) {
    let (mut free, mut blocked): (Vec<Piece>, Vec<Piece>) = (Vec::new(), Vec::new());
    let (mut bytes, most) = (0, shape.most_bytes());
    for piece in waiting {
        let units = shape.units(&piece.columns);
        let behind = |other: &Piece| overlap(&shape.units(&other.columns), &units);
        if bytes >= most || is_under_way(&piece) || blocked.iter().any(behind) {
            blocked.push(piece);
        } else {
            bytes += (piece.columns.end - piece.columns.start) as usize * SECTOR_BYTES;
            free.push(piece);
        }
    }
    (join_touching(shape, row, free), blocked)
}

/// Joins pieces whose units touch or overlap, each group in the order of arrival.
fn join_touching(shape: &RowShape, row: u64, pieces: Vec<Piece>) -> Vec<Round> {
    let mut groups: Vec<Columns> = pieces.iter().map(|piece| shape.units(&piece.columns)).collect();
    groups.sort_unstable_by_key(|columns| (columns.start, columns.end));
    groups.dedup_by(|next, known| {
        let touches = next.start <= known.end;
        if touches {
            known.end = known.end.max(next.end);
        }
        touches
    });
    let mut members: Vec<SmallVec<[Piece; 1]>> = groups.iter().map(|_| SmallVec::new()).collect();
    for piece in pieces {
        let group = groups.partition_point(|columns| columns.end <= piece.columns.start);
        members[group].push(piece);
    }
    members.into_iter().map(|pieces| shape.round(row, pieces)).collect()
}

fn hull(one: &Columns, other: &Columns) -> Columns {
    one.start.min(other.start)..one.end.max(other.end)
}

fn overlap(one: &Columns, other: &Columns) -> bool {
    one.start < other.end && other.start < one.end
}

//! What a write round reads, how it computes parity, and what it writes: decided from values alone.
//!
//! Places of a row: data blocks are places 0 to D - 1, P is D, Q is D + 1. Everything here is pure.

#[cfg(test)]
mod tests;

use super::claims::Columns;

/// A position in a row: data 0 to D - 1, then P, then Q.
pub type Place = usize;

/// Most members that a parity row can have: Q has 255 different coefficients.
pub const PLACES_MAX: usize = 256;

/// A set of places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Places([u64; PLACES_MAX / 64]);

impl Places {
    /// The places 0 to `count` - 1.
    pub fn first(count: usize) -> Self {
        (0..count).collect()
    }

    /// Whether `place` is in the set.
    pub fn has(&self, place: Place) -> bool {
        self.0[place / 64] >> (place % 64) & 1 == 1
    }

    /// Adds `place`.
    pub fn insert(&mut self, place: Place) {
        self.0[place / 64] |= 1 << (place % 64);
    }

    /// Takes `place` out.
    pub fn remove(&mut self, place: Place) {
        self.0[place / 64] &= !(1 << (place % 64));
    }

    /// How many places are in the set.
    pub fn count(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }
}

impl FromIterator<Place> for Places {
    fn from_iter<I: IntoIterator<Item = Place>>(places: I) -> Self {
        let mut set = Self::default();
        places.into_iter().for_each(|place| set.insert(place));
        set
    }
}

/// What is known about the claimed columns of one row.
#[derive(Clone, Copy, Debug)]
pub struct RowState {
    /// Data blocks in a row.
    pub data_count: usize,
    /// Parity blocks: 1 or 2.
    pub parity_count: usize,
    /// Places whose bytes can be read in these columns.
    pub readable: Places,
    /// Places whose member takes writes.
    pub writable: Places,
    /// Whether parity agrees with data: false before resync, and after a crash.
    pub parity_trusted: bool,
    /// Whether lost blocks may be computed from parity: also before the first resync, where P, or Q
    /// without P, is right if anything was written. To be kept right it must be computed anew.
    pub parity_usable: bool,
}

impl RowState {
    fn p(&self) -> Place {
        self.data_count
    }

    fn parities(&self) -> std::ops::Range<Place> {
        self.data_count..self.data_count + self.parity_count
    }

    fn lost_data(&self) -> impl Iterator<Item = Place> + '_ {
        (0..self.data_count).filter(|&place| !self.readable.has(place))
    }

    /// Parity to read so that `lost` data blocks can be computed, P before Q.
    fn parity_for(&self, lost: usize) -> Option<Vec<Place>> {
        if lost > 0 && !self.parity_usable {
            return None;
        }
        let usable = self.parities().filter(|&place| self.readable.has(place)).take(lost);
        let usable: Vec<_> = usable.collect();
        (usable.len() == lost).then_some(usable)
    }
}

/// New bytes for one data block of the row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewData {
    /// Which data block.
    pub place: Place,
    /// The columns that the user writes.
    pub columns: Columns,
    /// The same, grown to whole units: what is read and written.
    pub units: Columns,
}

/// How a round gets its parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// From the old parity and the change of each written block.
    ReadModify,
    /// From all data blocks of the row.
    Reconstruct,
    /// From all data blocks, some of which are computed from the old parity first.
    Recover,
}

/// Which writes may be [`Method::ReadModify`] (md's `rmw_level`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RmwLevel {
    /// Only those that can be done in no other way.
    Never,
    /// Those that read less than in any other way.
    #[default]
    FewerReads,
    /// Also those that read as much.
    Preferred,
}

/// Columns of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which block.
    pub place: Place,
    /// Which of its columns.
    pub columns: Columns,
}

/// A write round, decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePlan {
    /// Where parity comes from.
    pub method: Method,
    /// What must be read first.
    pub reads: Vec<Span>,
}

/// Decides a write of `new` inside the claimed `columns`: the plan that reads the fewest sectors, or
/// as `rmw` has it. `None`: too much is lost.
pub fn write(
    row: &RowState,
    columns: &Columns,
    new: &[NewData],
    rmw: RmwLevel,
) -> Option<WritePlan> {
    let plans =
        [reconstruct(row, columns, new), read_modify(row, columns, new), recover(row, columns)];
    plans.into_iter().flatten().min_by_key(|plan| {
        let modifies = plan.method == Method::ReadModify;
        match rmw {
            RmwLevel::Never => (modifies, plan.sectors_read(), false),
            RmwLevel::FewerReads => (false, plan.sectors_read(), modifies),
            RmwLevel::Preferred => (false, plan.sectors_read(), !modifies),
        }
    })
}

impl WritePlan {
    fn sectors_read(&self) -> u64 {
        self.reads.iter().map(|span| u64::from(span.columns.end - span.columns.start)).sum()
    }
}

/// Reads the old blocks and the old parity. Needs each of them that counts.
fn read_modify(row: &RowState, columns: &Columns, new: &[NewData]) -> Option<WritePlan> {
    let kept: Vec<_> = row.parities().filter(|&place| row.writable.has(place)).collect();
    let usable = row.parity_trusted
        && new.iter().all(|new| row.readable.has(new.place))
        && kept.iter().all(|&place| row.readable.has(place));
    if !usable {
        return None;
    }
    let old = new.iter().map(|new| Span { place: new.place, columns: new.units.clone() });
    let parity = kept.iter().map(|&place| Span { place, columns: columns.clone() });
    Some(WritePlan { method: Method::ReadModify, reads: old.chain(parity).collect() })
}

/// Reads the data that the write leaves alone. Needs no parity, so it is the only method where
/// parity is not trusted.
fn reconstruct(row: &RowState, columns: &Columns, new: &[NewData]) -> Option<WritePlan> {
    let mut reads = Vec::new();
    for place in 0..row.data_count {
        let written = new.iter().find(|new| new.place == place);
        if let Some(columns) = left_over(columns, written) {
            if !row.readable.has(place) {
                return None;
            }
            reads.push(Span { place, columns });
        }
    }
    Some(WritePlan { method: Method::Reconstruct, reads })
}

/// The columns of a block that must be read because the write does not cover them.
fn left_over(columns: &Columns, written: Option<&NewData>) -> Option<Columns> {
    let Some(new) = written else { return Some(columns.clone()) };
    let covered = new.columns.clone();
    match (covered.start > columns.start, covered.end < columns.end) {
        (false, false) => None,
        // The unit that the write cuts through is read whole.
        (true, false) if covered.start == new.units.start => Some(columns.start..covered.start),
        (false, true) if covered.end == new.units.end => Some(covered.end..columns.end),
        _ => Some(columns.clone()),
    }
}

/// Reads every data block that is left, and as much parity as blocks are lost.
fn recover(row: &RowState, columns: &Columns) -> Option<WritePlan> {
    let reads = recover_reads(row)?;
    let spans = reads.into_iter().map(|place| Span { place, columns: columns.clone() });
    Some(WritePlan { method: Method::Recover, reads: spans.collect() })
}

/// The places to read so that every data block of the row is known.
pub fn recover_reads(row: &RowState) -> Option<Vec<Place>> {
    let parity = row.parity_for(row.lost_data().count())?;
    let data = (0..row.data_count).filter(|&place| row.readable.has(place));
    Some(data.chain(parity).collect())
}

/// The places to read so that `wanted` can be computed; `wanted` itself is not read.
pub fn rebuild_reads(row: &RowState, wanted: Place) -> Option<Vec<Place>> {
    if wanted >= row.p() {
        return recover_reads(row);
    }
    let mut without = *row;
    without.readable.remove(wanted);
    recover_reads(&without)
}

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
        let below = |word: usize| match count.saturating_sub(word * 64) {
            left @ 0..64 => (1 << left) - 1,
            _ => u64::MAX,
        };
        Self(std::array::from_fn(below))
    }

    /// Just this place.
    pub fn of(place: Place) -> Self {
        let mut set = Self::default();
        set.insert(place);
        set
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
        // Most rows are narrow, and not every machine counts bits at once.
        self.0.iter().filter(|word| **word != 0).map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no place is in the set.
    pub fn is_empty(&self) -> bool {
        self.0 == [0; PLACES_MAX / 64]
    }

    /// The places in this set or in `other`.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// The places in this set and not in `other`.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] & !other.0[word]))
    }

    /// The places, from the lowest on.
    pub fn iter(&self) -> impl Iterator<Item = Place> + use<> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let index = left.iter().position(|word| *word != 0)?;
            let bit = left[index].trailing_zeros() as usize;
            left[index] &= left[index] - 1;
            Some(index * 64 + bit)
        })
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
    /// Whether some that cannot be read are only late.
    pub any_late: bool,
    /// Whether parity agrees with data: false before resync, and after a crash.
    pub parity_trusted: bool,
    /// Whether lost blocks may be computed from parity: also before the first resync, where P, or Q
    /// without P, is right if anything was written. To be kept right it must be computed anew.
    pub parity_usable: bool,
}

impl RowState {
    /// Whether every place can be read.
    pub fn is_whole(&self) -> bool {
        self.readable.count() == self.data_count + self.parity_count
    }

    /// A row of an array that is whole.
    pub fn whole(data_count: usize, parity_count: usize) -> Self {
        let all = Places::first(data_count + parity_count);
        let (parity_trusted, parity_usable) = (true, true);
        Self {
            data_count,
            parity_count,
            readable: all,
            writable: all,
            any_late: false,
            parity_trusted,
            parity_usable,
        }
    }

    fn parities(&self) -> std::ops::Range<Place> {
        self.data_count..self.data_count + self.parity_count
    }

    fn data(&self) -> Places {
        Places::first(self.data_count)
    }

    /// Parity to read so that `lost` data blocks can be computed, P before Q.
    fn parity_for(&self, lost: usize) -> Option<Places> {
        if lost > 0 && !self.parity_usable {
            return None;
        }
        let usable = self.parities().filter(|&place| self.readable.has(place)).take(lost);
        let usable: Places = usable.collect();
        (usable.count() == lost).then_some(usable)
    }
}

/// Which data blocks get new bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// All of them.
    pub whole: Places,
    /// Some, so that the old ones must be known.
    pub partly: Places,
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
    /// It needs none: no member takes any.
    DataOnly,
}

/// Which writes may be [`Method::ReadModify`] (md's `rmw_level`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RmwLevel {
    /// Only those that can be done in no other way.
    Never,
    /// Those that read less than in any other way: what md starts with.
    FewerReads,
    /// Also those that read as much: they touch half as many members, each twice. Unlike md's, our
    /// default, for drives that need not wait for a turn between the two.
    #[default]
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

/// A write to some columns of a row, decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WritePlan {
    /// Where parity comes from.
    pub method: Method,
    /// What must be read first, and is not cached.
    pub reads: Places,
}

/// Decides a write in columns that have the same blocks `touched`: the plan that reads the fewest
/// blocks, or as `rmw` has it. What is `cached` counts as readable, and costs nothing. `None`: too
/// much is lost.
pub fn write(
    row: &RowState,
    touched: &Touched,
    cached: &Places,
    rmw: RmwLevel,
) -> Option<WritePlan> {
    let uncached = |plan: WritePlan| WritePlan { reads: plan.reads.without(cached), ..plan };
    if row.writable.without(&row.data()).is_empty() {
        return data_only(row, touched).map(uncached);
    }
    // Where nothing that it needs is lost, reconstruct reads a part of what recover would.
    let all_data = reconstruct(row, touched).or_else(|| recover(row));
    match (read_modify(row, touched).map(uncached), all_data.map(uncached)) {
        (Some(modify), Some(all_data)) => {
            let modifies = match rmw {
                RmwLevel::Never => false,
                RmwLevel::FewerReads => modify.reads.count() < all_data.reads.count(),
                RmwLevel::Preferred => modify.reads.count() <= all_data.reads.count(),
            };
            Some(if modifies { modify } else { all_data })
        }
        (modify, all_data) => modify.or(all_data),
    }
}

/// Reads what is to be mixed with new bytes, for no member takes parity. What else is lost of the row does not matter.
fn data_only(row: &RowState, touched: &Touched) -> Option<WritePlan> {
    let usable = touched.partly.without(&row.readable).is_empty();
    usable.then_some(WritePlan { method: Method::DataOnly, reads: touched.partly })
}

/// Reads the old blocks and the old parity. Needs each of them that counts.
fn read_modify(row: &RowState, touched: &Touched) -> Option<WritePlan> {
    let kept = row.writable.without(&row.data());
    let reads = touched.whole.with(&touched.partly).with(&kept);
    let usable = row.parity_trusted && reads.without(&row.readable).is_empty();
    usable.then_some(WritePlan { method: Method::ReadModify, reads })
}

/// Reads the data that the write leaves alone. Needs no parity, so it is the only method where
/// parity is not trusted.
fn reconstruct(row: &RowState, touched: &Touched) -> Option<WritePlan> {
    let reads = row.data().without(&touched.whole);
    let usable = reads.without(&row.readable).is_empty();
    usable.then_some(WritePlan { method: Method::Reconstruct, reads })
}

/// Reads every data block that is left, and as much parity as blocks are lost.
fn recover(row: &RowState) -> Option<WritePlan> {
    Some(WritePlan { method: Method::Recover, reads: recover_reads(row)? })
}

/// The places to read so that every data block of the row is known. Where parity is not trusted it may say
/// of a block what was never there. A late member reads its block again: what was answered by parity would
/// change, and new parity by that would be wrong.
pub fn recover_reads(row: &RowState) -> Option<Places> {
    let lost = row.data().without(&row.readable);
    if row.any_late && !row.parity_trusted && !lost.is_empty() {
        return None;
    }
    let parity = row.parity_for(lost.count())?;
    Some(row.data().without(&lost).with(&parity))
}

/// The places to read so that the one data block of `wanted` can be computed in two ways, by P and by Q.
/// Where both give the same the row is of one time, whatever a crash may have done to it: a write of
/// one block that ended half-way shifts the two results by different amounts. `None`: it takes two
/// parities that can be read, and all other data.
pub fn compared_reads(row: &RowState, wanted: &Places) -> Option<Places> {
    let lost = row.data().without(&row.readable).with(wanted);
    let reads = row.data().with(&row.parities().collect()).without(&lost);
    let two_ways = row.parity_count == 2
        && lost.count() == 1
        && lost.without(&row.data()).is_empty()
        && reads.without(&row.readable).is_empty();
    two_ways.then_some(reads)
}

/// The places to read so that all data of a row can be known, the lost ones computed without its
/// `outliers`: without them the row is of one time, whatever left it in doubt. What of `wanted` can be read is
/// read.
pub fn reads_around(row: &RowState, wanted: &Places, outliers: &Places) -> Option<Places> {
    let readable = row.readable.without(outliers);
    let reads = recover_reads(&RowState { readable, parity_usable: true, ..*row })?;
    Some(reads.with(&wanted.without(&wanted.without(&row.readable))))
}

/// The places to read so that all of `wanted` can be computed; none of them is read.
pub fn rebuild_reads(row: &RowState, wanted: &Places) -> Option<Places> {
    recover_reads(&RowState { readable: row.readable.without(wanted), ..*row })
}

//! The log as it stands on a member: which entry is in which place of the table.
//!
//! Power may fail in the middle of a write of the table, and any of its 512-byte pieces may be on the
//! member then. So an entry keeps its place until a write that is durable has it elsewhere: nothing that
//! was listed, and is to stay so, is missing from any mixture of old and new pieces.

use std::ops::Range;

use crate::SECTOR_BYTES;

use super::{
    BadBlockLogFull, BadBlocks, BadBlocksError, COUNT_BITS, END, ENTRY_BYTES, ENTRY_UNITS_MAX,
    SHIFT_MAX, parse_entry,
};

/// Ranges of units, by their places in the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BadBlockLog {
    entries: Vec<Range<u64>>,
    shift: u8,
}

impl BadBlockLog {
    /// A log without entries.
    pub fn new(shift: u8) -> Self {
        Self { entries: Vec::new(), shift: shift.min(SHIFT_MAX) }
    }

    /// Whether it lists nothing.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reads the log in `bytes`, with units of `1 << shift` sectors.
    pub fn parse(bytes: &[u8], shift: u8) -> Result<Self, BadBlocksError> {
        if shift > SHIFT_MAX {
            return Err(BadBlocksError::Shift { shift });
        }
        let mut log = Self::new(shift);
        for (index, entry) in bytes.as_chunks::<ENTRY_BYTES>().0.iter().enumerate() {
            let entry = u64::from_le_bytes(*entry);
            if entry == END {
                break;
            }
            let range = parse_entry(entry, shift);
            let range = range.map_err(|reason| BadBlocksError::Entry { index, entry, reason })?;
            log.entries.push(range.start >> shift..range.end >> shift);
        }
        Ok(log)
    }

    /// What it lists.
    pub fn blocks(&self) -> BadBlocks {
        let mut blocks = BadBlocks::new();
        for entry in &self.entries {
            blocks.add(entry.start << self.shift..entry.end << self.shift);
        }
        blocks
    }

    /// Its bytes for a place of `size_sectors`, which has room for it.
    ///
    /// # Panics
    ///
    /// If it has not.
    pub fn encode(&self, size_sectors: u16) -> Vec<u8> {
        let mut bytes = vec![0xff; usize::from(size_sectors) * SECTOR_BYTES as usize];
        assert!(self.entries.len() <= bytes.len() / ENTRY_BYTES, "a log has room for its entries");
        for (place, entry) in bytes.chunks_exact_mut(ENTRY_BYTES).zip(&self.entries) {
            let entry = entry.start << COUNT_BITS | (entry.end - entry.start);
            place.copy_from_slice(&entry.to_le_bytes());
        }
        bytes
    }

    /// The logs to write one after the other, each durable before the next, so that `blocks` are listed and
    /// nothing else. First entries only grow, and new ones take places that say nothing; then what is not
    /// listed any more goes. A place in the middle that is not needed repeats another entry: an end there
    /// would cut off what follows.
    pub fn steps_to(
        &self,
        blocks: &BadBlocks,
        size_sectors: u16,
    ) -> Result<Vec<Self>, BadBlockLogFull> {
        let room = usize::from(size_sectors) * SECTOR_BYTES as usize / ENTRY_BYTES;
        if blocks.entry_count(self.shift) > room as u64 {
            let needed = usize::try_from(blocks.entry_count(self.shift)).unwrap_or(usize::MAX);
            return Err(BadBlockLogFull { needed, room });
        }
        let wanted = self.wanted_by_place(blocks);
        if wanted.len() > room {
            return Err(BadBlockLogFull { needed: wanted.len(), room });
        }
        let mut grown = self.clone();
        for (place, wanted) in wanted.iter().enumerate() {
            match (grown.entries.get_mut(place), wanted) {
                (Some(entry), Wanted::Grown(range)) => *entry = hull(entry, range),
                (Some(entry), Wanted::New(range)) => *entry = range.clone(),
                (None, Wanted::New(range) | Wanted::Grown(range)) => {
                    grown.entries.push(range.clone());
                }
                (_, Wanted::Nothing) => {}
            }
        }
        let end = wanted.iter().rposition(|wanted| wanted.range().is_some());
        let filler = wanted.iter().find_map(Wanted::range);
        let needed = wanted.iter().take(end.map_or(0, |end| end + 1));
        let entries = needed.filter_map(|wanted| wanted.range().or(filler)).cloned().collect();
        let last = Self { entries, shift: self.shift };
        let mut steps = vec![grown, last];
        steps.dedup();
        if steps[0] == *self {
            steps.remove(0);
        }
        Ok(steps)
    }

    /// What each place is to hold in the end.
    fn wanted_by_place(&self, blocks: &BadBlocks) -> Vec<Wanted> {
        let says_something = self.says_something();
        let mut wanted = vec![Wanted::Nothing; self.entries.len()];
        let mut homeless = Vec::new();
        for range in whole_entries(blocks, self.shift) {
            let free = |place: &usize| says_something[*place] && wanted[*place].range().is_none();
            let common = |place: &usize| {
                let entry = &self.entries[*place];
                let fits = hull(entry, &range);
                let touch = entry.start <= range.end && range.start <= entry.end;
                (touch && fits.end - fits.start <= ENTRY_UNITS_MAX)
                    .then(|| range.end.min(entry.end) - range.start.max(entry.start))
            };
            let home = (0..wanted.len()).filter(free).filter(|place| common(place).is_some());
            match home.max_by_key(common) {
                Some(place) => wanted[place] = Wanted::Grown(range),
                None => homeless.push(range),
            }
        }
        let mut silent = (0..says_something.len()).filter(|place| !says_something[*place]);
        for range in homeless {
            match silent.next() {
                Some(place) => wanted[place] = Wanted::New(range),
                None => wanted.push(Wanted::New(range)),
            }
        }
        wanted
    }

    /// Which places list something that none before them lists.
    fn says_something(&self) -> Vec<bool> {
        let mut known = BadBlocks::new();
        let says = |entry: &Range<u64>| {
            let is_new = !known
                .ranges()
                .iter()
                .any(|range| range.start <= entry.start && entry.end <= range.end);
            known.add(entry.clone());
            is_new
        };
        self.entries.iter().map(says).collect()
    }
}

/// What a place of the table is to hold in the end.
#[derive(Clone, Debug)]
enum Wanted {
    /// It says nothing any more.
    Nothing,
    /// Part of what it holds now, or that and more.
    Grown(Range<u64>),
    /// It holds nothing that is needed now.
    New(Range<u64>),
}

impl Wanted {
    fn range(&self) -> Option<&Range<u64>> {
        match self {
            Self::Nothing => None,
            Self::Grown(range) | Self::New(range) => Some(range),
        }
    }
}

fn hull(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.min(other.start)..one.end.max(other.end)
}

/// The entries of a table that lists `blocks`: long ranges are cut at the same borders whatever is added
/// to them, so that entries stay what they are.
fn whole_entries(blocks: &BadBlocks, shift: u8) -> Vec<Range<u64>> {
    let mut units = BadBlocks::new();
    blocks.units(shift).for_each(|range| units.add(range));
    let cut = |range: &Range<u64>| {
        let is_short = range.end - range.start <= ENTRY_UNITS_MAX;
        let first_border = match is_short {
            true => range.end,
            false => (range.start / ENTRY_UNITS_MAX + 1) * ENTRY_UNITS_MAX,
        };
        let later = (first_border..range.end).step_by(ENTRY_UNITS_MAX as usize);
        let end = range.end;
        let rest = later.map(move |start| start..(start + ENTRY_UNITS_MAX).min(end));
        std::iter::once(range.start..first_border).chain(rest).collect::<Vec<_>>()
    };
    units.ranges().iter().flat_map(cut).collect()
}

#[cfg(test)]
mod tests;

//! What rounds take from the stripe cache and leave there.

use crate::geometry::ParityGeometry;
use crate::memory::Buffer;

use super::array_lane::ArrayLane;
use super::blocks::Blocks;
use super::cache::Stripe;
use super::claims::Columns;
use super::gather::RowShape;
use super::plan::{Place, Places, RowState};
use super::reconstruct::{columns_bytes, within};
use super::round::Work;

/// Most units that a round takes from the cache or leaves there. Wider rounds belong to streams, which
/// do not come back, and would copy much.
const UNITS_MAX: u32 = 16;

/// Stripes taken out of the cache, with the columns that each covers.
pub(super) type Taken = Vec<(Columns, Stripe)>;

/// Sectors of a unit, a power of two. A stripe's offset comes from it alone, never from the columns that
/// someone asks for: those may be less than a unit.
#[derive(Clone, Copy, Debug)]
struct Unit(u32);

impl Unit {
    /// The numbers of the units that columns lie in.
    fn numbers(self, columns: &Columns) -> Columns {
        let shift = self.0.trailing_zeros();
        columns.start >> shift..(columns.end + self.0 - 1) >> shift
    }

    /// What a unit covers.
    fn columns(self, number: u32) -> Columns {
        number * self.0..(number + 1) * self.0
    }

    fn lies_in(self, number: u32, columns: &Columns) -> bool {
        let own = self.columns(number);
        columns.start <= own.start && own.end <= columns.end
    }
}

impl ArrayLane {
    /// The units that columns lie in.
    pub(super) fn units_of(&self, map: &ParityGeometry, columns: &Columns) -> Columns {
        self.unit_of(map).numbers(columns)
    }

    fn unit_of(&self, map: &ParityGeometry) -> Unit {
        Unit(RowShape::new(map, self.with_view(|view| view.unit_sectors)).unit)
    }

    /// Whether what a round leaves is likely to be used: its stripe was written to before.
    pub(super) fn is_worth_keeping(&self, work: &Work<'_>, unit: u32) -> bool {
        let columns = &work.cover.columns;
        if (columns.end - columns.start) / unit > UNITS_MAX {
            return false;
        }
        let size = self.array.settings.stripe_cache_size();
        let mut recent = self.gather.recent.borrow_mut();
        recent.touch(work.row.index(), columns.start / unit, size)
    }

    /// Takes out what stands in the cache of claimed columns: what is written there makes it old. A unit
    /// that reaches beyond the columns is no use to their round, and is dropped.
    pub(super) fn take_stripes(&self, map: &ParityGeometry, row: u64, columns: &Columns) -> Taken {
        let mut taken = Taken::new();
        let unit = self.unit_of(map);
        for number in unit.numbers(columns) {
            let Some(stripe) = self.array.cache.take(row, number) else { continue };
            match unit.lies_in(number, columns) {
                true => taken.push((unit.columns(number), stripe)),
                false => stripe.into_iter().for_each(|(_, block)| self.recycle(Some(block))),
            }
        }
        taken
    }

    /// A data block from the cache, if all of it is there. The caller's claim covers its units.
    pub(super) fn cached_block(
        &self,
        map: &ParityGeometry,
        row: u64,
        columns: &Columns,
        place: Place,
    ) -> Option<Buffer> {
        let unit = self.unit_of(map);
        let units = unit.numbers(columns);
        if !units.clone().all(|number| self.array.cache.may_hold(row, number)) {
            return None;
        }
        let mut block = self.lane.backend().allocate(columns_bytes(columns));
        for number in units {
            let whole = unit.columns(number);
            let part = columns.start.max(whole.start)..columns.end.min(whole.end);
            let out = &mut block[within(columns, &part)];
            if !self.array.cache.read(row, number, place, within(&whole, &part), out) {
                self.recycle(Some(block));
                return None;
            }
        }
        self.lane.count_copy(block.len());
        Some(block)
    }

    /// Makes blocks of the stripes that were taken out, as far as they are whole and to be trusted.
    /// Gives their places, which count as readable from now on.
    pub(super) fn use_stripes(
        &self,
        columns: &Columns,
        taken: Taken,
        state: &mut RowState,
        blocks: &mut Blocks,
    ) -> Places {
        let mut cached = Places::default();
        if taken.is_empty() {
            return cached;
        }
        let length = |columns: &Columns| columns.end - columns.start;
        let covered: u32 = taken.iter().map(|(part, _)| length(part)).sum();
        let count = taken.len();
        let trusted =
            |place| place < state.data_count || state.parity_trusted && state.writable.has(place);
        let mut whole: Places = Places::first(state.data_count + state.parity_count);
        for (_, stripe) in &taken {
            let known: Places = stripe.iter().map(|(place, _)| *place).collect();
            whole = whole.without(&whole.without(&known));
        }
        for (part, stripe) in taken {
            for (place, block) in stripe {
                if covered < length(columns) || !whole.has(place) || !trusted(place) {
                    self.recycle(Some(block));
                } else if count == 1 {
                    cached.insert(place);
                    blocks.put(place, block);
                } else {
                    cached.insert(place);
                    let known = blocks.take(place);
                    let new = || self.lane.backend().allocate(columns_bytes(columns));
                    let mut joined = known.unwrap_or_else(new);
                    self.copy(&mut joined[within(columns, &part)], &block);
                    blocks.put(place, joined);
                    self.recycle(Some(block));
                }
            }
        }
        state.readable = state.readable.with(&cached);
        cached
    }

    /// Leaves in the cache what a round knows, now that all of it is on the members.
    pub(super) fn keep_stripes(&self, work: &Work<'_>, blocks: Blocks) {
        let (row, columns) = (work.row.index(), &work.cover.columns);
        let unit = self.unit_of(work.map);
        let units = unit.numbers(columns);
        if units.end - units.start == 1 {
            return self.keep_stripe(row, units.start, blocks.into_stripe());
        }
        for number in units {
            let at = within(columns, &unit.columns(number));
            let known = blocks.iter().map(|(place, whole)| {
                let mut block = self.lane.backend().allocate(at.len());
                self.copy(&mut block, &whole[at.clone()]);
                (place, block)
            });
            self.keep_stripe(row, number, known.collect());
        }
        self.recycle_all(blocks);
    }

    /// What a round has kept does not count any more.
    pub(super) fn forget_stripes(&self, work: &Work<'_>) {
        let units = self.unit_of(work.map).numbers(&work.cover.columns);
        self.array.cache.forget(work.row.index(), units);
    }

    fn keep_stripe(&self, row: u64, unit: u32, stripe: Stripe) {
        for evicted in self.array.cache.put(row, unit, stripe) {
            evicted.into_iter().for_each(|(_, block)| self.recycle(Some(block)));
        }
    }
}

#[cfg(test)]
mod tests;

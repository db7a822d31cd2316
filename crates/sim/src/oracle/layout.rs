//! Where md keeps what, worked out a second time and as naively as possible.
//!
//! It shares nothing with the engine's geometry; both are held against what the real md wrote.
//! Formulae: `raid5_compute_sector`, `__raid10_find_phys` and `map_sector` of Linux, as facts.

#[cfg(test)]
mod tests;

/// The shape of an array, in md's numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// md's level: -1, 0, 1, 4, 5, 6 or 10.
    pub level: i32,
    /// md's layout number for the level.
    pub layout: u32,
    /// Chunk size; 0 where the level has none.
    pub chunk_sectors: u64,
    /// Usable sectors of each slot.
    pub member_sectors: Vec<u64>,
}

/// One copy of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Slot of the member.
    pub slot: usize,
    /// Sector from the start of the member's data.
    pub sector: u64,
}

/// Who holds what in one row of a parity level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Slots of the data chunks, in the order of their array addresses.
    pub data: Vec<usize>,
    /// Slot of P.
    pub p: usize,
    /// Slot of Q.
    pub q: Option<usize>,
    /// The power of the generator that Q gives each slot; `None` for P and Q themselves.
    pub exponents: Vec<Option<u32>>,
}

impl Shape {
    /// Slots.
    pub fn slots(&self) -> usize {
        self.member_sectors.len()
    }

    /// Whether the level computes parity.
    pub fn has_parity(&self) -> bool {
        matches!(self.level, 4..=6)
    }

    /// Rows of a parity level.
    pub fn rows(&self) -> u64 {
        self.smallest_member() / self.chunk_sectors
    }

    /// Every place that holds `sector`.
    pub fn places(&self, sector: u64) -> Vec<Place> {
        match self.level {
            -1 => vec![self.linear(sector)],
            0 => vec![self.raid0(sector)],
            1 => (0..self.slots()).map(|slot| Place { slot, sector }).collect(),
            10 => self.raid10(sector),
            _ => vec![self.parity(sector)],
        }
    }

    fn smallest_member(&self) -> u64 {
        *self.member_sectors.iter().min().expect("an array has members")
    }

    fn rounded_down(&self, slot: usize) -> u64 {
        let sectors = self.member_sectors[slot];
        if self.chunk_sectors == 0 { sectors } else { sectors - sectors % self.chunk_sectors }
    }

    fn linear(&self, sector: u64) -> Place {
        let mut start = 0;
        for slot in 0..self.slots() {
            let end = start + self.rounded_down(slot);
            if sector < end {
                return Place { slot, sector: sector - start };
            }
            start = end;
        }
        panic!("sector {sector} lies in the array");
    }

    fn raid0(&self, sector: u64) -> Place {
        let chunk = self.chunk_sectors;
        let (mut zone_start, mut depth) = (0, 0);
        loop {
            let slots: Vec<usize> =
                (0..self.slots()).filter(|&slot| self.rounded_down(slot) > depth).collect();
            let bottom = slots.iter().map(|&slot| self.rounded_down(slot)).min();
            let bottom = bottom.expect("the sector lies in the array");
            let width = slots.len() as u64;
            let zone_end = zone_start + (bottom - depth) * width;
            if sector >= zone_end {
                (zone_start, depth) = (zone_end, bottom);
                continue;
            }
            let in_zone = sector - zone_start;
            let turn = if self.layout == 2 { in_zone / chunk } else { sector / chunk };
            let slot = slots[(turn % width) as usize];
            return Place {
                slot,
                sector: depth + in_zone / (chunk * width) * chunk + sector % chunk,
            };
        }
    }

    fn raid10(&self, sector: u64) -> Vec<Place> {
        let near = u64::from(self.layout & 0xff);
        let far = u64::from(self.layout >> 8 & 0xff);
        let offset = self.layout >> 16 & 1 == 1;
        let (chunk, disks) = (self.chunk_sectors, self.slots() as u64);
        let (number, within) = (sector / chunk * near, sector % chunk);
        let row = number / disks * if offset { far } else { 1 };
        let stride = if offset { chunk } else { self.smallest_member() / chunk / far * chunk };
        let mut places = Vec::new();
        for copy in 0..near {
            let wrapped = (number % disks + copy) / disks;
            let first = (number % disks + copy) % disks;
            let start = (row + wrapped) * chunk + within;
            let mut slot = first;
            for shift in 0..far {
                places.push(Place { slot: slot as usize, sector: start + shift * stride });
                slot = self.next_far_slot(slot);
            }
        }
        places
    }

    /// Where RAID10's next far copy goes: on within its set of members. Members that do not fill a
    /// set of their own belong to the last one.
    fn next_far_slot(&self, slot: u64) -> u64 {
        let near = u64::from(self.layout & 0xff);
        let far = u64::from(self.layout >> 8 & 0xff);
        let disks = self.slots() as u64;
        let set_size = match self.layout >> 17 {
            0 => disks,
            1 => disks / far,
            _ => near * far,
        };
        let (stepped, rest) = (slot + near, disks % set_size);
        let last_start = (disks / set_size - 1) * set_size;
        // md asks this of the slot after the step, so that where `rest` is not zero a member can
        // lose its place to another; the engine refuses such shapes.
        if rest != 0 && stepped > last_start {
            return last_start + (stepped - last_start) % (set_size + rest);
        }
        slot / set_size * set_size + stepped % set_size
    }

    fn parity(&self, sector: u64) -> Place {
        let width = self.row(0).data.len() as u64;
        let (number, within) = (sector / self.chunk_sectors, sector % self.chunk_sectors);
        let row = number / width;
        let slot = self.row(row).data[(number % width) as usize];
        Place { slot, sector: row * self.chunk_sectors + within }
    }

    /// Who holds what in `row` of a parity level.
    pub fn row(&self, row: u64) -> Row {
        match self.level {
            4 => Row::single(self.slots(), self.slots() - 1, false),
            5 => raid5_row(self.layout, self.slots(), row),
            6 => raid6_row(self.layout, self.slots(), row),
            level => panic!("level {level} has no parity"),
        }
    }
}

impl Row {
    /// A row with P alone; data follow it (symmetric) or fill the other slots in order.
    fn single(slots: usize, p: usize, symmetric: bool) -> Self {
        let data = match symmetric {
            true => (1..slots).map(|step| (p + step) % slots).collect(),
            false => (0..slots).filter(|&slot| slot != p).collect(),
        };
        Self { data, p, q: None, exponents: Vec::new() }
    }

    fn double(slots: usize, p: usize, q: usize, data: Vec<usize>, ddf: bool) -> Self {
        let mut exponents = vec![None; slots];
        let start = if ddf { 0 } else { (q + 1) % slots };
        let mut next = 0;
        for slot in (0..slots).map(|step| (start + step) % slots) {
            let is_data = slot != p && slot != q;
            if is_data {
                exponents[slot] = Some(next);
            }
            // DDF counts P and Q as well; their places hold zeroes in the sum.
            next += u32::from(is_data || ddf);
        }
        Self { data, p, q: Some(q), exponents }
    }
}

fn raid5_row(layout: u32, slots: usize, row: u64) -> Row {
    let turn = (row % slots as u64) as usize;
    let last = slots - 1;
    match layout {
        0 => Row::single(slots, last - turn, false),
        1 => Row::single(slots, turn, false),
        2 => Row::single(slots, last - turn, true),
        3 => Row::single(slots, turn, true),
        4 => Row::single(slots, 0, false),
        5 => Row::single(slots, last, false),
        _ => panic!("layout {layout} is none of RAID5's"),
    }
}

fn raid6_row(layout: u32, slots: usize, row: u64) -> Row {
    let last = slots - 1;
    let turn = |row: u64| (row % slots as u64) as usize;
    let others = |p: usize, q: usize| (0..slots).filter(|&s| s != p && s != q).collect();
    let after = |q: usize| (1..slots - 1).map(|step| (q + step) % slots).collect();
    let in_order = |p: usize, ddf| {
        let q = (p + 1) % slots;
        Row::double(slots, p, q, others(p, q), ddf)
    };
    let symmetric = |p: usize| {
        let q = (p + 1) % slots;
        Row::double(slots, p, q, after(q), false)
    };
    match layout {
        0 => in_order(last - turn(row), false),
        1 => in_order(turn(row), false),
        2 => symmetric(last - turn(row)),
        3 => symmetric(turn(row)),
        4 => in_order(0, false),
        5 => in_order(last - 1, false),
        8 => in_order(turn(row), true),
        9 => in_order(last - turn(row + 1), true),
        10 => {
            let p = last - turn(row);
            Row::double(slots, p, (p + last) % slots, after(p), true)
        }
        16..=19 => {
            let inner = raid5_row(layout - 16, last, row);
            Row::double(slots, inner.p, last, inner.data, false)
        }
        20 => Row::double(slots, 0, last, (1..last).collect(), false),
        _ => panic!("layout {layout} is none of RAID6's"),
    }
}

//! What is left of an array that is down: who holds which of its blocks, and what they say.
//!
//! It believes whom an assembly must believe: members whose superblock is the freshest or one update behind, in the
//! roles that the freshest knows. Each is believed for what it was filled with and does not list as bad.
//!
//! Then every sector is read from each member that has it, and computed in every way in which the others give
//! it. That is what would be read with each member lost in turn, and with every two that the level bears.

use std::ops::Range;

use crate::disk::{Disk, DiskIndex};
use crate::model::{Model, Violation};
use crate::stamp::{SECTOR_BYTES, home_of, identify};
use crate::world::World;

use super::field::{add, add_times, divide, solve};
use super::marks::{Marks, RawBitmap, listed_as_bad};
use super::{NotWhole, Place, RawArray, RawSuperblock, Row, Sector, Shape};

/// An array, as its disks tell it, whole or not.
#[derive(Debug)]
pub struct Remains<'a> {
    world: &'a World,
    shape: Shape,
    /// By slot: the member first, then one that is to replace it.
    holders: Vec<Vec<Holder>>,
    marks: Marks,
}

/// A member that holds blocks of a slot.
#[derive(Clone, Debug)]
struct Holder {
    disk: DiskIndex,
    /// Where its data begin.
    start: u64,
    /// It has what lies below, in sectors of the member.
    filled_to: u64,
    /// Sectors of the disk that it says it lacks.
    bad: Vec<Range<u64>>,
    replaces: bool,
}

/// What is wrong with what is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// A block has what it must not have, as one disk has it or as the others give it.
    Content {
        /// Sector of the array, what was found there, and what could be.
        violation: Violation,
        /// The disk and its sector, where it was not computed.
        at: Option<(DiskIndex, u64)>,
    },
    /// Members do not agree, though nothing says so.
    Unmarked {
        /// The first sector, as resync counts.
        first: u64,
        /// How many.
        sectors: u64,
    },
}

impl Holder {
    /// Whether it is a member in sync.
    fn is_filled(&self) -> bool {
        self.filled_to == u64::MAX && !self.replaces
    }

    fn holds(&self, sector: u64) -> bool {
        let on_disk = self.start + sector;
        sector < self.filled_to && !self.bad.iter().any(|bad| bad.contains(&on_disk))
    }
}

impl<'a> Remains<'a> {
    /// Finds what is on `disks`.
    pub fn find(world: &'a World, disks: &[DiskIndex]) -> Result<Self, NotWhole> {
        let found: Vec<(DiskIndex, RawSuperblock)> = disks
            .iter()
            .filter_map(|&disk| Some((disk, world.disk(disk, RawSuperblock::find)?)))
            .collect();
        // An update that a crash kept from all but the spares was never finished.
        let members = found.iter().map(|(_, sb)| sb).filter(|sb| sb.own_role().is_some());
        let freshest = members.max_by_key(|sb| sb.events).ok_or(NotWhole::NoSuperblock)?;
        let (mut holders, mut member_sectors, mut bitmaps) = (Vec::new(), Vec::new(), Vec::new());
        for slot in 0..freshest.raid_disks {
            let held = found.iter().filter(|(_, sb)| {
                let believed = sb.events.abs_diff(freshest.events) <= 1;
                believed && freshest.role_of(sb.dev_number) == Some(slot)
            });
            let mut held: Vec<&(DiskIndex, RawSuperblock)> = held.collect();
            // Of two with one number the later one has it.
            held.sort_by_key(|(_, sb)| (sb.replaces, std::cmp::Reverse(sb.events)));
            held.dedup_by_key(|(_, sb)| sb.replaces);
            member_sectors.push(held.first().map_or(freshest, |(_, sb)| sb).member_sectors());
            bitmaps.extend(
                held.iter().map(|(disk, sb)| world.disk(*disk, |disk| RawBitmap::find(disk, sb))),
            );
            let holder = |(disk, sb): &(DiskIndex, RawSuperblock)| {
                // Who does not know yet that it got the slot, or whom the freshest did not know, has nothing.
                let knows = sb.own_role() == Some(slot)
                    && sb.role_of(freshest.dev_number) == freshest.own_role();
                Holder {
                    disk: *disk,
                    start: sb.data_offset,
                    filled_to: if knows { sb.recovered_to.unwrap_or(u64::MAX) } else { 0 },
                    bad: world.disk(*disk, |disk| listed_as_bad(disk, sb)),
                    replaces: sb.replaces,
                }
            };
            holders.push(held.into_iter().map(holder).collect());
        }
        let shape = Shape {
            level: freshest.level,
            layout: freshest.layout,
            chunk_sectors: freshest.chunk_sectors,
            member_sectors,
        };
        let bitmaps = bitmaps.into_iter().collect::<Option<_>>().unwrap_or_default();
        let marks = Marks { agrees_to: freshest.agrees_to, bitmaps };
        Ok(Self { world, shape, holders, marks })
    }

    /// Disbelieves blocks of which a write failed last: beyond what the level bears they may be all that is left, and
    /// change under the copies that are made of them.
    pub fn without_half_written(mut self) -> Self {
        for holder in self.holders.iter_mut().flatten() {
            let half_written = |disk: &Disk| disk.half_written().collect::<Vec<u64>>();
            let sectors = self.world.disk(holder.disk, half_written);
            holder.bad.extend(sectors.into_iter().map(|sector| sector..sector + 1));
        }
        self
    }

    /// Disks of members in sync, where no more is missing than the array bears with one of them lost, and nothing
    /// says that members may differ or lack blocks.
    pub fn expendable(&self, redundancy: usize) -> Vec<DiskIndex> {
        let is_sound = |holder: &&Holder| holder.is_filled() && holder.bad.is_empty();
        let sound = self.holders.iter().map(|holders| holders.iter().find(is_sound));
        let sound: Vec<DiskIndex> = sound.flatten().map(|holder| holder.disk).collect();
        let bears = self.holders.len() - sound.len() < redundancy;
        let lists = self.holders.iter().flatten().any(|holder| !holder.bad.is_empty());
        if bears && !lists && self.marks.agrees_to == u64::MAX { sound } else { Vec::new() }
    }

    /// The disks that hold something.
    pub fn disks(&self) -> impl Iterator<Item = DiskIndex> {
        self.holders.iter().flatten().map(|holder| holder.disk)
    }

    /// The array, where each slot has a member that is filled to its end; and up to where its superblocks say that
    /// redundancy agrees, as resync counts.
    pub(super) fn whole(self) -> Result<(RawArray<'a>, u64), NotWhole> {
        let mut slots = Vec::new();
        for (slot, holders) in self.holders.iter().enumerate() {
            match holders.iter().find(|holder| !holder.replaces) {
                None => return Err(NotWhole::Missing(slot)),
                Some(holder) if !holder.is_filled() => {
                    return Err(NotWhole::Recovering(slot));
                }
                Some(holder) => slots.push((holder.disk, holder.start)),
            }
        }
        Ok((RawArray { world: self.world, shape: self.shape, slots }, self.marks.agrees_to))
    }

    /// Judges all that is left.
    pub fn judge(&self, model: &Model) -> Result<(), Wrong> {
        let has_redundancy = self.shape.has_parity() || matches!(self.shape.level, 1 | 10);
        if !has_redundancy && self.holders.iter().any(Vec::is_empty) {
            return Ok(());
        }
        for sector in 0..model.len() {
            let places = self.shape.places(sector);
            let counted = if self.shape.has_parity() { places[0].sector } else { sector };
            self.judge_copies(model, sector, &places, self.marks.agrees(counted))?;
        }
        let unmarked = match self.shape.has_parity() {
            true => self.judge_rows(model)?,
            false => {
                let sectors = (0..model.len()).filter(|sector| self.marks.agrees(*sector));
                sectors.filter(|sector| !self.copies_agree(&self.shape.places(*sector))).collect()
            }
        };
        match unmarked.first() {
            Some(&first) => Err(Wrong::Unmarked { first, sectors: unmarked.len() as u64 }),
            None => Ok(()),
        }
    }

    /// What members have in the places of a sector must be what the model allows. Where they may disagree, that
    /// goes for the copy that is read, and not for one that is being filled.
    fn judge_copies(
        &self,
        model: &Model,
        sector: u64,
        places: &[Place],
        agrees: bool,
    ) -> Result<(), Wrong> {
        let mut first = Ok(());
        for &place in places {
            for holder in self.holding(place).filter(|holder| agrees || holder.is_filled()) {
                let at = (holder.disk, holder.start + place.sector);
                let judged = judge(model, sector, &self.bytes(holder, place), Some(at));
                match judged {
                    Ok(()) if !agrees => return Ok(()),
                    Err(wrong) if agrees => return Err(wrong),
                    judged => first = first.and(judged),
                }
            }
        }
        first
    }

    fn copies_agree(&self, places: &[Place]) -> bool {
        let mut all = places
            .iter()
            .flat_map(|&place| self.holding(place).map(move |holder| self.bytes(holder, place)));
        let first = all.next();
        all.all(|bytes| Some(bytes) == first)
    }

    /// What the blocks of a row and its parities give for those that no member has must be what the model allows,
    /// however it is computed. Gives the sectors in which members do not agree.
    fn judge_rows(&self, model: &Model) -> Result<Vec<u64>, Wrong> {
        let chunk = self.shape.chunk_sectors;
        let mut unmarked = Vec::new();
        for row in 0..self.shape.rows() {
            let who = self.shape.row(row);
            for sector in (row * chunk..(row + 1) * chunk).filter(|at| self.marks.agrees(*at)) {
                let computed = self.compute(&who, |slot| self.held(slot, sector));
                let is_one = |slot| self.copies_agree(&[Place { slot, sector }]);
                if !computed.agrees || !(0..self.shape.slots()).all(is_one) {
                    unmarked.push(sector);
                }
                for (index, bytes) in computed.missing {
                    let data = row * who.data.len() as u64 + index as u64;
                    let of_array = data * chunk + sector % chunk;
                    if of_array < model.len() {
                        judge(model, of_array, &bytes, None)?;
                    }
                }
            }
        }
        Ok(unmarked)
    }

    /// Computes the blocks of one sector of a row that no member has.
    fn compute(&self, row: &Row, held: impl Fn(usize) -> Option<Sector>) -> Computed {
        let exponent = |slot: usize| row.exponents.get(slot).copied().flatten();
        // Parity without the blocks that are there: the sum of the others.
        let (mut p, mut q) = (held(row.p), row.q.and_then(&held));
        let mut missing = Vec::new();
        for (index, &slot) in row.data.iter().enumerate() {
            let Some(data) = held(slot) else {
                missing.push((index, exponent(slot)));
                continue;
            };
            p.iter_mut().for_each(|p| add(p, &data));
            let exponent = exponent(slot);
            q.iter_mut().for_each(|q| add_times(q, &data, exponent.expect("data have one")));
        }
        let zero = [0; SECTOR_BYTES];
        let is_zero = |sum: &Option<Sector>| sum.is_none_or(|sum| sum == zero);
        match (&missing[..], p, q) {
            ([], p, q) => Computed { agrees: is_zero(&p) && is_zero(&q), missing: Vec::new() },
            ([(index, exponent)], p, q) => {
                let by_q = q.map(|q| divide(&q, exponent.expect("data have one")));
                let agrees = p.is_none() || by_q.is_none() || p == by_q;
                let missing = p.or(by_q).map(|bytes| (*index, bytes));
                Computed { agrees, missing: missing.into_iter().collect() }
            }
            ([(first, one), (second, other)], Some(p), Some(q)) => {
                let exponent = |exponent: &Option<u32>| exponent.expect("data have one");
                let (x, y) = solve(&p, &q, exponent(one), exponent(other));
                Computed { agrees: true, missing: vec![(*first, x), (*second, y)] }
            }
            // Lost, or without a way to tell.
            _ => Computed { agrees: true, missing: Vec::new() },
        }
    }

    /// The first place of a sector of the array: the sector of its member, and whether a member in sync has it.
    pub fn place(&self, sector: u64) -> (u64, bool) {
        let place = self.shape.places(sector)[0];
        (place.sector, self.holders[place.slot].iter().any(Holder::is_filled))
    }

    /// Disks and sectors that hold a sector of the array: those of members in sync, whatever they list. Only where a
    /// crash left parity in doubt a list counts: a member takes a block off it a moment after it has written the
    /// block, and until then nothing that is believed gives it.
    pub fn copies(&self, sector: u64) -> Vec<(DiskIndex, u64)> {
        let places = self.shape.places(sector);
        let held = places.iter().flat_map(|place| {
            let in_doubt = self.shape.has_parity() && !self.marks.agrees(place.sector);
            let is_filled = self.holders[place.slot].iter().filter(|holder| holder.is_filled());
            let counts = is_filled.filter(move |holder| !in_doubt || holder.holds(place.sector));
            counts.map(move |holder| (holder.disk, holder.start + place.sector))
        });
        held.collect()
    }

    /// What the rest of its row gives for a sector of the array that no member in sync has. Blocks that their disks
    /// do not vouch for do not count.
    pub fn computed(&self, sector: u64) -> Option<Sector> {
        let place = self.shape.places(sector)[0];
        if !self.shape.has_parity() || !self.marks.agrees(place.sector) {
            return None;
        }
        let row = self.shape.row(place.sector / self.shape.chunk_sectors);
        let computed = self.compute(&row, |slot| {
            let other = Place { slot, ..place };
            let vouches = |holder: &&Holder| {
                let at = holder.start + other.sector;
                holder.is_filled() && self.world.disk(holder.disk, |disk| disk.owns(at))
            };
            let holder = self.holding(other).find(vouches)?;
            Some(self.bytes(holder, other))
        });
        let index = row.data.iter().position(|&slot| slot == place.slot);
        computed.missing.into_iter().find(|(at, _)| Some(*at) == index).map(|(_, bytes)| bytes)
    }

    /// What the disks hold of a sector of the array, and on levels with parity of the rest of its row: a line each.
    pub fn tell(&self, sector: u64) -> Vec<String> {
        let mut places = self.shape.places(sector);
        let counted = if self.shape.has_parity() { places[0].sector } else { sector };
        if self.shape.has_parity() {
            places = (0..self.shape.slots()).map(|slot| Place { slot, sector: counted }).collect();
        }
        let agrees = if self.marks.agrees(counted) { "must agree" } else { "may differ" };
        let mut lines = vec![format!("sector {sector}: its copies, or its row, {agrees}")];
        for place in places {
            for holder in &self.holders[place.slot] {
                lines.push(self.tell_holder(holder, place));
            }
        }
        lines
    }

    fn tell_holder(&self, holder: &Holder, place: Place) -> String {
        let bytes = self.bytes(holder, place);
        let found = identify(home_of(&bytes), &bytes);
        let begin: String = bytes[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        let lacks = if holder.holds(place.sector) { "" } else { ", which it lacks" };
        let (disk, at) = (holder.disk, holder.start + place.sector);
        format!("slot {}: {disk} sector {at}: {begin} {found}{lacks}", place.slot)
    }

    /// The sector of the array that lies first where resync counts `sector`.
    pub fn array_sector(&self, sector: u64) -> u64 {
        let chunk = self.shape.chunk_sectors;
        match self.shape.has_parity() {
            true => sector / chunk * chunk * self.shape.row(0).data.len() as u64 + sector % chunk,
            false => sector,
        }
    }

    fn held(&self, slot: usize, sector: u64) -> Option<Sector> {
        let place = Place { slot, sector };
        self.holding(place).next().map(|holder| self.bytes(holder, place))
    }

    fn holding(&self, place: Place) -> impl Iterator<Item = &Holder> {
        self.holders[place.slot].iter().filter(move |holder| holder.holds(place.sector))
    }

    fn bytes(&self, holder: &Holder, place: Place) -> Sector {
        let mut bytes = [0; SECTOR_BYTES];
        let sector = holder.start + place.sector;
        self.world.disk(holder.disk, |disk| disk.store.read(sector, &mut bytes));
        bytes
    }
}

/// What the members of a row give in one sector.
struct Computed {
    /// Whether all ways to compute it give the same.
    agrees: bool,
    /// The blocks that no member has: which of the row's, and its bytes.
    missing: Vec<(usize, Sector)>,
}

fn judge(
    model: &Model,
    sector: u64,
    bytes: &Sector,
    at: Option<(DiskIndex, u64)>,
) -> Result<(), Wrong> {
    let violation = model.judge(sector, bytes);
    violation.map_err(|violation| Wrong::Content { violation, at })
}

#[cfg(test)]
mod tests;

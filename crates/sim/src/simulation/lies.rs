//! Members that lie: bytes change on the platters, and nobody is told. A check must say exactly where
//! and, where the evidence shows it, who; a repair must mend exactly that.
//!
//! Users are quiet meanwhile: nothing warns those who read or modify what lies.

use std::collections::BTreeSet;

use mdspace_engine::array::{Action, Undecided};
use mdspace_engine::status::{MemberState, Mismatch, Mismatches};

use crate::oracle::{Place, RawArray};
use crate::settings::Scrubs;
use crate::stamp::SECTOR_BYTES;

use super::{Failure, Simulation};

/// A place where one member lies, or two do.
#[derive(Debug)]
struct Lie {
    liars: Vec<Place>,
    /// Where it is: a sector of the members on parity levels, of the array on mirrors.
    sector: u64,
    /// Who lies, where the evidence shows it.
    shown: Option<usize>,
}

impl Simulation {
    /// Lets members lie in a few places, if all is well otherwise, and judges how that is found and mended.
    pub(super) fn lie(&mut self) -> Result<(), Failure> {
        if self.settings.redundancy() == 0 {
            return Ok(());
        }
        self.drain()?;
        if self.atlas.is_sound() {
            self.end_of_writes_behind()?;
        }
        let status = self.idle_status()?;
        let world = self.world.clone();
        let Ok((array, _)) = RawArray::find(&world, &self.disks) else { return Ok(()) };
        // What a server still has to write would take a lie back.
        let late = self.world.has_late_writes();
        // A member that is being filled, or is yet to be, gets the lies of others or loses its own.
        let fills = status.members.iter().any(|member| member.state == MemberState::Recovering);
        let at_rest = self.atlas.is_sound() && !self.lists_bad_blocks() && !late && !fills;
        if !at_rest || array.mismatches(self.model.len()) > 0 {
            return Ok(());
        }
        let right = array.content();
        let lies = self.draw_lies(&array);
        self.world.note(format_args!("-- members lie: {lies:?}"));
        lies.iter().for_each(|lie| self.spread(&array, lie));
        let wrong = array.content();
        self.lies += lies.len() as u64;

        if let Some(found) = self.scrub(Action::Check)? {
            self.judge_found(&array, &lies, &found.mismatches)?;
        }
        let undecided = match self.settings.scrubs {
            Scrubs::ByData => Undecided::ByData,
            _ => Undecided::Leave,
        };
        expect(array.content() == wrong, || "changed something in a check".to_owned())?;
        if self.scrub(Action::Repair(undecided))?.is_some() {
            judge_mended(&array, &lies, &right, &wrong)?;
        }
        // The platters hold the truth again, whoever lied.
        for liar in lies.iter().flat_map(|lie| &lie.liars) {
            array.put(*liar, &right[liar.slot][bytes_of(*liar)]);
        }
        self.read_all();
        Ok(())
    }

    fn draw_lies(&mut self, array: &RawArray<'_>) -> Vec<Lie> {
        let block = self.process().block_sectors();
        let mut blocks = BTreeSet::new();
        let count = self.random.within(1..5);
        let lies: Vec<Lie> = (0..count).map(|_| self.draw_lie(array)).collect();
        lies.into_iter().filter(|lie| blocks.insert(lie.sector / block)).collect()
    }

    fn draw_lie(&mut self, array: &RawArray<'_>) -> Lie {
        let shape = &array.shape;
        let (sector, mut places) = match shape.has_parity() {
            true => {
                let sector = self.random.below(shape.rows() * shape.chunk_sectors);
                (sector, (0..shape.slots()).map(|slot| Place { slot, sector }).collect())
            }
            false => {
                let block = self.process().block_sectors();
                let sector = self.random.below(self.model.len() / block * block);
                (sector, shape.places(sector))
            }
        };
        // Three copies, or two parities, show one liar.
        let shows = if shape.has_parity() { shape.level == 6 } else { places.len() > 2 };
        self.random.shuffle(&mut places);
        let alone = self.random.coin() && self.settings.scrubs != Scrubs::ByForgedEvidence;
        places.truncate(if alone { 1 } else { 2 });
        let shown = (alone && shows).then_some(places[0].slot);
        Lie { liars: places, sector, shown }
    }

    /// Changes the sector on the platter of each liar: a byte of it, or all. Two liars never agree,
    /// unless they are to.
    fn spread(&mut self, array: &RawArray<'_>, lie: &Lie) {
        let forged = self.settings.scrubs == Scrubs::ByForgedEvidence;
        let is_small = forged || (lie.liars.len() == 1 && self.random.coin());
        let mut noise = [0; SECTOR_BYTES];
        for (nth, liar) in lie.liars.iter().enumerate() {
            if nth == 0 || !forged {
                noise.fill(0);
                match is_small {
                    true => {
                        noise[self.random.index(SECTOR_BYTES)] = 1 + self.random.below(255) as u8
                    }
                    false => self.random.garble(&mut noise),
                }
            }
            let mut bytes = array.read(*liar);
            bytes.iter_mut().zip(&noise).for_each(|(byte, noise)| *byte ^= noise);
            array.put(*liar, &bytes);
        }
    }

    /// A check names each lie at its place, with the liar where that can be told, and nothing else.
    fn judge_found(
        &self,
        array: &RawArray<'_>,
        lies: &[Lie],
        found: &Mismatches,
    ) -> Result<(), Failure> {
        let block = self.process().block_sectors();
        let expected: BTreeSet<(u64, Option<usize>)> =
            lies.iter().map(|lie| (lie.sector / block, lie.shown)).collect();
        let mut told = BTreeSet::new();
        for place in &found.first {
            let liar = place.liar.map(|slot| slot as usize);
            let sectors = place.member_sectors.end - place.member_sectors.start;
            let start = match array.shape.has_parity() {
                true => place.member_sectors.start,
                false => place.array_sector,
            };
            told.extend((0..sectors / block).map(|nth| (start / block + nth, liar)));
            expect(is_well_placed(array, place), || format!("misplaces {place:?}"))?;
        }
        expect(told == expected, || format!("finds {told:?} instead of {expected:?}"))?;
        let hidden = lies.iter().filter(|lie| lie.shown.is_none()).count() as u64;
        let counts = (found.first.len() as u64, found.undecidable > 0);
        expect(counts == (found.places, hidden > 0), || format!("counts wrongly: {found:?}"))
    }
}

/// Whether the sector of the array is the one that lies there, or the first of the row.
fn is_well_placed(array: &RawArray<'_>, place: &Mismatch) -> bool {
    let (shape, sector) = (&array.shape, place.member_sectors.start);
    let copies = shape.places(place.array_sector);
    let slot = place.liar.map(|slot| slot as usize);
    if !shape.has_parity() {
        return slot.is_none_or(|slot| copies.contains(&Place { slot, sector }));
    }
    let row = shape.row(sector / shape.chunk_sectors);
    let shown = slot.filter(|slot| row.data.contains(slot)).unwrap_or(row.data[0]);
    place.row == Some(sector / shape.chunk_sectors) && copies == [Place { slot: shown, sector }]
}

/// A repair has mended who was shown to lie, and has left alone what nobody can tell.
fn judge_mended(
    array: &RawArray<'_>,
    lies: &[Lie],
    right: &[Vec<u8>],
    wrong: &[Vec<u8>],
) -> Result<(), Failure> {
    let mut expected = right.to_vec();
    for liar in lies.iter().filter(|lie| lie.shown.is_none()).flat_map(|lie| &lie.liars) {
        let bytes = bytes_of(*liar);
        expected[liar.slot][bytes.clone()].copy_from_slice(&wrong[liar.slot][bytes]);
    }
    let found = array.content();
    for (slot, (found, expected)) in found.iter().zip(&expected).enumerate() {
        let sectors = found.chunks(SECTOR_BYTES).zip(expected.chunks(SECTOR_BYTES));
        let differs = sectors.enumerate().find(|(_, (found, expected))| found != expected);
        expect(differs.is_none(), || {
            let sector = differs.map(|(sector, _)| sector);
            format!("leaves or makes sector {sector:?} of slot {slot} wrong")
        })?;
    }
    Ok(())
}

/// Where a sector lies in the content of its slot.
fn bytes_of(place: Place) -> std::ops::Range<usize> {
    let start = place.sector as usize * SECTOR_BYTES;
    start..start + SECTOR_BYTES
}

fn expect(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::Scrub(what())) }
}

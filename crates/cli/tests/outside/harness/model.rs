//! What each sector of an array may hold.

use super::SECTOR;
use super::pattern::Pattern;

/// For every sector the version that must be there and those that may be there instead, because
/// their write was not promised yet when the power or the process went away.
#[derive(Clone)]
pub(crate) struct Model {
    pattern: Pattern,
    sectors: Vec<Versions>,
}

#[derive(Clone, Default)]
struct Versions {
    sure: u64,
    maybe: Vec<u64>,
}

impl Model {
    /// An array on which nothing was written.
    pub(crate) fn new(pattern: Pattern, sectors: u64) -> Self {
        let sectors = usize::try_from(sectors).expect("a small array");
        Self { pattern, sectors: vec![Versions::default(); sectors] }
    }

    /// Sectors of the array.
    pub(crate) fn sectors(&self) -> u64 {
        self.sectors.len() as u64
    }

    /// The bytes of a write of `count` sectors, which from now on may be found on the array.
    pub(crate) fn write(&mut self, first: u64, count: u64, version: u64) -> Vec<u8> {
        for sector in self.range(first, count) {
            sector.maybe.push(version);
        }
        (first..first + count).flat_map(|number| self.pattern.sector(number, version)).collect()
    }

    /// The last write of these sectors is promised.
    pub(crate) fn promise(&mut self, first: u64, count: u64) {
        for sector in self.range(first, count) {
            sector.sure = sector.maybe.last().copied().unwrap_or(sector.sure);
            sector.maybe.clear();
        }
    }

    /// Every write so far is promised.
    pub(crate) fn promise_all(&mut self) {
        self.promise(0, self.sectors());
    }

    /// Whether sectors from `first` on hold what they may; the first one that does not is told.
    pub(crate) fn verify(&self, first: u64, bytes: &[u8]) -> Result<(), String> {
        for (number, bytes) in (first..).zip(bytes.chunks(SECTOR)) {
            let found = self.pattern.version(number, bytes)?;
            let Versions { sure, maybe } = &self.sectors[number as usize];
            if found != *sure && !maybe.contains(&found) {
                return Err(format!(
                    "sector {number} holds version {found}; it must hold {sure} or one of {maybe:?}"
                ));
            }
        }
        Ok(())
    }

    /// Takes what was read as settled: a later read must find the same.
    pub(crate) fn settle(&mut self, first: u64, bytes: &[u8]) {
        for (number, bytes) in (first..).zip(bytes.chunks(SECTOR)) {
            let found = self.pattern.version(number, bytes).expect("verified before");
            self.sectors[number as usize] = Versions { sure: found, maybe: Vec::new() };
        }
    }

    fn range(&mut self, first: u64, count: u64) -> &mut [Versions] {
        &mut self.sectors[first as usize..(first + count) as usize]
    }
}

#[test]
fn a_promised_write_that_is_gone_and_a_version_never_written_are_told() {
    let pattern = Pattern { seed: 9 };
    let mut model = Model::new(pattern, 4);
    let first = model.write(1, 2, 1);
    assert!(model.verify(1, &[0; 2 * SECTOR]).is_ok(), "not promised: may be absent");
    assert!(model.verify(1, &first).is_ok(), "not promised: may be there");
    model.promise(1, 2);
    assert!(model.verify(1, &[0; SECTOR]).is_err(), "promised: must be there");
    assert!(model.verify(1, &pattern.sector(1, 5)).is_err(), "never written");
    let second = model.write(1, 1, 2);
    model.settle(1, &first);
    assert!(model.verify(1, &second).is_err(), "settled on the first version");
}

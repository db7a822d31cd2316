//! Bytes that say where they belong and when they were written.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use super::SECTOR;

/// What a sector holds: its own number, a version, and bytes that follow from both and the seed. A
/// misplaced, stale or torn sector therefore never looks right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    /// Tells two arrays, or two runs, apart.
    pub(crate) seed: u64,
}

impl Pattern {
    /// The bytes of one sector. Version 0 is a sector never written: zeroes.
    pub(crate) fn sector(self, number: u64, version: u64) -> [u8; SECTOR] {
        let mut bytes = [0; SECTOR];
        if version == 0 {
            return bytes;
        }
        let mut stream = Stream(self.seed ^ number.rotate_left(32) ^ version.rotate_left(48));
        for word in bytes.chunks_exact_mut(8) {
            word.copy_from_slice(&stream.next().to_le_bytes());
        }
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        bytes[8..16].copy_from_slice(&version.to_le_bytes());
        bytes
    }

    /// The version that `bytes` hold, if they are a whole and right sector `number`.
    pub(crate) fn version(self, number: u64, bytes: &[u8]) -> Result<u64, String> {
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let version = if bytes.iter().all(|&byte| byte == 0) { 0 } else { word(8) };
        if bytes == self.sector(number, version) {
            return Ok(version);
        }
        Err(format!(
            "sector {number} (seed {}) holds what claims to be version {} of sector {}: {:02x?}...",
            self.seed,
            word(8),
            word(0),
            &bytes[..32],
        ))
    }

    /// Bytes for `sectors` sectors from `first` on.
    pub(crate) fn bytes(self, first: u64, sectors: u64, version: u64) -> Vec<u8> {
        (first..first + sectors).flat_map(|number| self.sector(number, version)).collect()
    }

    /// Writes sectors 0 to `sectors` to a file.
    pub(crate) fn write_file(self, path: &Path, sectors: u64, version: u64) {
        let mut file = BufWriter::new(File::create(path).expect("the folder is writable"));
        for number in 0..sectors {
            file.write_all(&self.sector(number, version)).expect("the disk has room");
        }
        file.flush().expect("the disk has room");
    }
}

/// The seed of a test: its own, or the one that `MDSPACE_SEED` names.
pub(crate) fn seed(own: u64) -> u64 {
    let asked = std::env::var("MDSPACE_SEED").ok();
    let seed = asked.map_or(own, |text| text.parse().expect("MDSPACE_SEED is a number"));
    println!("seed {seed}; MDSPACE_SEED={seed} replays it");
    seed
}

/// Splitmix64 (Steele, Lea, Flood 2014): the tests' random numbers, all from a seed.
#[derive(Clone, Debug)]
pub(crate) struct Stream(pub(crate) u64);

impl Stream {
    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

#[test]
fn a_misplaced_stale_or_torn_sector_is_told_apart() {
    let pattern = Pattern { seed: 3 };
    let sector = pattern.sector(7, 2);
    assert_eq!(pattern.version(7, &sector), Ok(2));
    assert_eq!(pattern.version(7, &[0; SECTOR]), Ok(0));
    assert!(pattern.version(8, &sector).is_err(), "misplaced");
    let mut torn = sector;
    torn[256..].copy_from_slice(&pattern.sector(7, 1)[256..]);
    assert!(pattern.version(7, &torn).is_err(), "torn");
    assert!(Pattern { seed: 4 }.version(7, &sector).is_err(), "another array's");
}

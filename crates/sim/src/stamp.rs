//! What a write puts into each sector: its address and a version that no other write has, spread
//! over all 512 bytes, so that a sector says where it belongs and who wrote it, and so that no xor
//! of others looks like it.

use crate::random::splitmix64;

#[cfg(test)]
mod tests;

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;

/// Which write a sector's content is from. Zero is a sector of zeroes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub u64);

/// What a sector holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// What `version` wrote to this sector.
    Version(Version),
    /// What `version` wrote to another sector.
    Elsewhere(u64, Version),
    /// Nothing that a write ever stamped, told from other such by a digest.
    Garbage(u64),
}

const MARK: u64 = 0x6d64_7370_6163_6521;

/// Fills `bytes` with what `version` writes to `sector`.
pub fn stamp(sector: u64, version: Version, bytes: &mut [u8]) {
    assert_eq!(bytes.len(), SECTOR_BYTES);
    if version == Version::default() {
        bytes.fill(0);
        return;
    }
    let mut mixer = sector.rotate_left(32) ^ version.0;
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        let value = match index {
            0 => sector ^ MARK,
            1 => version.0,
            _ => splitmix64(&mut mixer),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// Fills the whole sectors in `bytes`, the first of which is `sector`.
pub fn stamp_range(sector: u64, version: Version, bytes: &mut [u8]) {
    for (at, chunk) in (sector..).zip(bytes.chunks_exact_mut(SECTOR_BYTES)) {
        stamp(at, version, chunk);
    }
}

/// Says what `bytes`, read from `sector`, are.
pub fn identify(sector: u64, bytes: &[u8]) -> Found {
    assert_eq!(bytes.len(), SECTOR_BYTES);
    if bytes.iter().all(|&byte| byte == 0) {
        return Found::Version(Version::default());
    }
    let (home, version) = (home_of(bytes), Version(word(bytes, 1)));
    let mut expected = [0; SECTOR_BYTES];
    stamp(home, version, &mut expected);
    match expected == bytes {
        true if home == sector => Found::Version(version),
        true => Found::Elsewhere(home, version),
        false => Found::Garbage(digest(bytes)),
    }
}

fn digest(bytes: &[u8]) -> u64 {
    (0..SECTOR_BYTES / 8).fold(0, |mut sum, index| splitmix64(&mut sum) ^ word(bytes, index))
}

/// The sector that stamped bytes say they belong to.
pub fn home_of(bytes: &[u8]) -> u64 {
    word(bytes, 0) ^ MARK
}

fn word(bytes: &[u8], index: usize) -> u64 {
    let word = &bytes[index * 8..index * 8 + 8];
    u64::from_le_bytes(word.try_into().expect("eight bytes"))
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Version(Version(0)) => write!(f, "zeroes"),
            Self::Version(version) => write!(f, "v{}", version.0),
            Self::Elsewhere(sector, version) => write!(f, "v{} of sector {sector}", version.0),
            Self::Garbage(word) => write!(f, "garbage of digest {word:#018x}"),
        }
    }
}

//! The tiny arrays of the small scope.

use std::str::FromStr;
use std::time::Duration;

use mdspace_format::Level;

use crate::disk::{DiskSpec, Latency};
use crate::settings::{Settings, Trouble};

/// A tiny array: a level, three or four members of two rows, with a bitmap or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shape {
    /// md's level number: 1, 5, 6 or 10.
    pub level: i32,
    /// Members.
    pub slots: u16,
    /// Whether it has a bitmap, a bit for each row.
    pub bitmap: bool,
}

/// Sectors of a chunk, of a block of claims and parity, and of what a bit of the bitmap stands for.
const CHUNK_SECTORS: u64 = 8;

/// Sectors of a member that the array uses: two rows.
const MEMBER_SECTORS: u64 = 2 * CHUNK_SECTORS;

/// Where data begin: right behind superblock, bitmap and bad-block log.
pub(super) const DATA_OFFSET: u64 = 32;

/// Where metadata 1.2 keeps the superblock.
pub(super) const SUPERBLOCK_SECTOR: u64 = 8;

/// Sectors of a disk.
const DISK_SECTORS: u64 = DATA_OFFSET + MEMBER_SECTORS;

impl Shape {
    const fn new(level: i32, slots: u16, bitmap: bool) -> Self {
        Self { level, slots, bitmap }
    }

    /// Every array of the full search.
    pub const ALL: [Self; 10] = [
        Self::new(1, 3, true),
        Self::new(5, 3, true),
        Self::new(6, 4, true),
        Self::new(10, 4, true),
        Self::new(10, 3, true),
        Self::new(5, 4, true),
        Self::new(1, 3, false),
        Self::new(5, 3, false),
        Self::new(6, 4, false),
        Self::new(10, 4, false),
    ];

    /// One of each level, for the reduced search.
    pub const REDUCED: [Self; 4] = [Self::ALL[0], Self::ALL[1], Self::ALL[2], Self::ALL[3]];

    /// Sectors of the array in a row, or in a chunk's length of a mirror.
    pub(super) fn row_sectors(self) -> u64 {
        CHUNK_SECTORS * self.slots_of_data()
    }

    fn slots_of_data(self) -> u64 {
        match self.level {
            1 => 1,
            10 => u64::from(self.slots) / 2,
            5 => u64::from(self.slots) - 1,
            _ => u64::from(self.slots) - 2,
        }
    }

    /// The slot that fails: the first that has what [`Write`](super::Operation::Write) writes. RAID6 has Q in
    /// slot 0 there.
    pub(super) fn failing_slot(self) -> u16 {
        if self.level == 6 { 1 } else { 0 }
    }

    /// Members whose blocks parity can stand for; none for mirrors.
    pub(super) fn parities(self) -> usize {
        match self.level {
            5 => 1,
            6 => 2,
            _ => 0,
        }
    }

    /// What the simulator calls it.
    pub(super) fn settings(self) -> Settings {
        let (layout, chunk_sectors) = match self.level {
            1 => (0, 0),
            10 => (0x102, CHUNK_SECTORS as u32),
            _ => (2, CHUNK_SECTORS as u32),
        };
        Settings {
            layout,
            slots: self.slots,
            spares: 0,
            chunk_sectors,
            member_sectors: MEMBER_SECTORS,
            data_offset: DATA_OFFSET,
            metadata_minor: 2,
            bitmap_chunk_bytes: self.bitmap.then_some(CHUNK_SECTORS as u32 * 512),
            unit_sectors: CHUNK_SECTORS as u32,
            noisy_disks: false,
            assume_clean: true,
            paths: 0,
            tuning: Vec::new(),
            flags: Vec::new(),
            write_behind: 0,
            disks: vec![disk(false); self.slots.into()],
            ..Settings::draw(0, Some(self.level), Trouble::Bearable)
        }
    }
}

/// A disk whose cache forgets. `at_once`: nothing comes between what it is asked and its answer.
pub(super) fn disk(at_once: bool) -> DiskSpec {
    let latency = Latency {
        least: Duration::from_micros(20),
        spread: Duration::from_micros(80),
        tail_one_in: 0,
        tail_factor: 1,
    };
    let instant_one_in = if at_once { 1 } else { 0 };
    DiskSpec { latency, instant_one_in, ..DiskSpec::plain(DISK_SECTORS) }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bitmap = if self.bitmap { "" } else { "-no-bitmap" };
        write!(f, "raid{}x{}{bitmap}", self.level, self.slots)
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|shape| shape.to_string() == text).copied();
        let names = || Self::ALL.map(|shape| shape.to_string()).join(", ");
        let shape = found.ok_or_else(|| format!("no array {text:?}: {}", names()))?;
        Level::from_number(shape.level).map(|_| shape).ok_or_else(|| "no level of md's".to_owned())
    }
}

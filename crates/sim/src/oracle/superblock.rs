//! The few fields of an md superblock that the oracle needs, read at their offsets.
//!
//! Offsets are bytes from the start of `mdp_superblock_1` (uapi `md_p.h`), little-endian.

use std::ops::Range;

use crate::disk::Disk;
use crate::stamp::SECTOR_BYTES;

/// What one disk says of its array.
#[derive(Clone, Debug)]
pub struct RawSuperblock {
    /// Level.
    pub level: i32,
    /// Layout; of RAID0 too.
    pub layout: u32,
    /// Chunk size in sectors.
    pub chunk_sectors: u64,
    /// Slots.
    pub raid_disks: usize,
    /// Where data begin, in sectors.
    pub data_offset: u64,
    /// Counts updates.
    pub events: u64,
    /// Up to where redundancy agrees, as resync counts; all ones where no write was under way, 0 where one
    /// was.
    pub agrees_to: u64,
    /// It holds good data up to this sector of the member only.
    pub recovered_to: Option<u64>,
    /// It is to take its slot over from another member.
    pub replaces: bool,
    /// Its place in the table of roles.
    pub dev_number: usize,
    /// Where the bitmap begins, if there is one.
    pub bitmap_sector: Option<u64>,
    /// Where the bad-block log lies, if it counts.
    pub bad_block_log: Option<Range<u64>>,
    size: u64,
    data_size: u64,
    roles: Vec<u16>,
}

const MAGIC: u32 = 0xa92b_4efc;
const BITMAP: u32 = 1;
const RECOVERY_OFFSET: u32 = 2;
const BAD_BLOCKS: u32 = 8;
const REPLACEMENT: u32 = 16;
const BYTES: usize = 4096;

impl RawSuperblock {
    /// Looks where metadata 1.1, 1.2 and 1.0 keep it.
    pub fn find(disk: &Disk) -> Option<Self> {
        let end = (disk.spec.sectors - 16) & !7;
        [0, 8, end].into_iter().find_map(|sector| Self::read(disk, sector))
    }

    fn read(disk: &Disk, sector: u64) -> Option<Self> {
        let mut bytes = [0; BYTES];
        disk.store.read(sector, &mut bytes[..(8 * SECTOR_BYTES).min(BYTES)]);
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if u32_at(0) != MAGIC || u64_at(144) != sector {
            return None;
        }
        let max_dev = (u32_at(220) as usize).min((BYTES - 256) / 2);
        let has = |feature: u32| u32_at(8) & feature != 0;
        let beside = |at: usize| sector.wrapping_add_signed(u32_at(at).cast_signed().into());
        let log_sectors = u64::from(u16::from_le_bytes([bytes[186], bytes[187]]));
        let role =
            |index: usize| u16::from_le_bytes([bytes[256 + index * 2], bytes[257 + index * 2]]);
        Some(Self {
            level: u32_at(72).cast_signed(),
            layout: u32_at(76),
            chunk_sectors: u64::from(u32_at(88)),
            raid_disks: u32_at(92) as usize,
            data_offset: u64_at(128),
            events: u64_at(200),
            agrees_to: u64_at(208),
            recovered_to: has(RECOVERY_OFFSET).then(|| u64_at(152)),
            replaces: has(REPLACEMENT),
            dev_number: u32_at(160) as usize,
            bitmap_sector: has(BITMAP).then(|| beside(96)),
            bad_block_log: has(BAD_BLOCKS).then(|| beside(188)..beside(188) + log_sectors),
            size: u64_at(80),
            data_size: u64_at(136),
            roles: (0..max_dev).map(role).collect(),
        })
    }

    /// The slot that this superblock gives to a device.
    pub fn role_of(&self, dev_number: usize) -> Option<usize> {
        let role = *self.roles.get(dev_number)?;
        (usize::from(role) < self.raid_disks).then_some(usize::from(role))
    }

    /// The slot that it gives to itself.
    pub fn own_role(&self) -> Option<usize> {
        self.role_of(self.dev_number)
    }

    /// Sectors of the member that the array uses.
    pub fn member_sectors(&self) -> u64 {
        if self.size == 0 { self.data_size } else { self.size }
    }
}

impl std::fmt::Display for RawSuperblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let clean = if self.agrees_to == u64::MAX { "clean" } else { "dirty" };
        let recovering = if self.recovered_to.is_some() { ", recovering" } else { "" };
        write!(f, "events {}, {clean}{recovering}, number {}", self.events, self.dev_number)?;
        let named = self.roles.iter().enumerate().filter(|&(_, &role)| role != 0xffff);
        named.into_iter().try_for_each(|(number, role)| write!(f, " {number}:{role:#x}"))
    }
}

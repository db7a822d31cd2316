use std::ops::Range;

use super::{AREA_BYTES, Superblock};
use crate::bitmap::{BitmapSuperblock, LOCKLESS_SECTORS_MAX};
use crate::{Features, MetadataVersion, Role, SECTOR_BYTES};

const AREA_SECTORS: u64 = AREA_BYTES as u64 / SECTOR_BYTES;
/// Sectors of the largest partial parity log that mdadm makes; its bitmaps are smaller.
const PPL_SECTORS: u64 = 2048;
/// Sectors of a bad-block log.
const LOG_SECTORS: u64 = 8;

/// Where the parts of a member lie, in sectors from the start of the device.
///
/// None stands for a part that is not there, and for a position that is no sector: on a parsed
/// superblock only the first.
impl Superblock {
    /// The superblock itself: its bytes in whole sectors.
    pub fn superblock_range(&self) -> Range<u64> {
        let sectors = (self.length_bytes() as u64).div_ceil(SECTOR_BYTES);
        self.place.sector..self.place.sector.saturating_add(sectors)
    }

    /// The data area, all that data may ever use.
    pub fn data_range(&self) -> Option<Range<u64>> {
        range(self.data_offset_sectors, self.data_size_sectors)
    }

    /// The part of the data area that the array uses now.
    pub fn used_data_range(&self) -> Option<Range<u64>> {
        let all = !self.has_size();
        range(
            self.data_offset_sectors,
            if all { self.data_size_sectors } else { self.size_sectors },
        )
    }

    /// Whether `size_sectors` speaks of this member: neither of linear, RAID0 nor a journal.
    pub(super) fn has_size(&self) -> bool {
        self.level.is_redundant() && self.own_role() != Role::Journal
    }

    /// First sector of the write-intent bitmap.
    pub fn bitmap_sector(&self) -> Option<u64> {
        if !self.features.contains(Features::BITMAP_OFFSET) {
            return None;
        }
        self.sector_at(self.bitmap_offset_sectors)
    }

    /// The bitmap with all the room that it may use: up to whatever lies next.
    pub fn bitmap_room(&self) -> Option<Range<u64>> {
        let log = self.bad_block_log_range().map(|log| log.start);
        self.bitmap_room_before(log)
    }

    /// The same for a bitmap of version 6, which takes no notice of the bad-block log: mdadm places the log
    /// behind a smaller bitmap of another version, and the kernel writes over it.
    pub fn lockless_bitmap_room(&self) -> Option<Range<u64>> {
        let room = self.bitmap_room_before(None)?;
        Some(room.start..room.end.min(room.start.saturating_add(LOCKLESS_SECTORS_MAX)))
    }

    fn bitmap_room_before(&self, log: Option<u64>) -> Option<Range<u64>> {
        let start = self.bitmap_sector()?;
        let data = self.used_data_range().map(|data| data.start);
        let area = (start < self.place.sector).then_some(self.place.sector);
        // 1.0 keeps 4 KiB for the superblock; a bitmap added later may lie in what is left of it.
        let rest = (self.place.version == MetadataVersion::V1_0)
            .then(|| self.place.sector.saturating_add(AREA_SECTORS));
        let end =
            [log, data, area, rest].into_iter().flatten().filter(|next| *next > start).min()?;
        Some(start..end)
    }

    /// Whether this bitmap, written where the superblock says in whole logical blocks, touches nothing else.
    pub fn has_room_for(&self, bitmap: &BitmapSuperblock, block_bytes: u32) -> bool {
        if !self.features.contains(Features::BITMAP_OFFSET) {
            return true;
        }
        let Some(room) = self.bitmap_room() else { return false };
        let block = u64::from(block_bytes).max(SECTOR_BYTES);
        let length = bitmap.on_disk_bytes().next_multiple_of(block);
        (room.start * SECTOR_BYTES).is_multiple_of(block)
            && length <= (room.end - room.start) * SECTOR_BYTES
    }

    /// The partial parity log: its place shares the field of the bitmap's.
    pub fn ppl_range(&self) -> Option<Range<u64>> {
        if !self.features.intersects(Features::PPL | Features::MULTIPLE_PPLS) {
            return None;
        }
        let [low, high, size_low, size_high] = self.bitmap_offset_sectors.to_le_bytes();
        let start = self.sector_at(i16::from_le_bytes([low, high]).into())?;
        range(start, u16::from_le_bytes([size_low, size_high]).into())
    }

    /// The bad-block log.
    pub fn bad_block_log_range(&self) -> Option<Range<u64>> {
        let log = self.bad_block_log?;
        range(self.sector_at(log.offset_sectors)?, log.size_sectors.into())
    }

    /// Sectors that neither md nor mdadm touches and that we may use for records of our own: in
    /// the headroom of 1.1 and 1.2, behind all that md may put there, before data.
    ///
    /// mdadm keeps a bitmap or a partial parity log that is added later before the bad-block log;
    /// where there is no such log, room for the largest of both is left. A bad-block log added
    /// later takes the last sectors before data, and those are left too. A reshape moves data into
    /// the headroom, so with one there is no private range. What lies here is void when the range
    /// moves.
    pub fn private_range(&self) -> Option<Range<u64>> {
        let moving = self.features.intersects(Features::RESHAPE_ACTIVE | Features::NEW_OFFSET);
        if self.place.version == MetadataVersion::V1_0 || moving {
            return None;
        }
        let start = match self.bad_block_log_range() {
            Some(log) => log.end,
            None => self.place.sector.saturating_add(AREA_SECTORS + PPL_SECTORS + LOG_SECTORS),
        };
        let md = [self.bitmap_sector(), self.ppl_range().map(|ppl| ppl.end)];
        let end = self.data_offset_sectors.saturating_sub(LOG_SECTORS);
        let private = start.next_multiple_of(AREA_SECTORS)..end;
        let behind = md.into_iter().flatten().all(|sector| sector <= start);
        (behind && private.start < private.end).then_some(private)
    }

    fn sector_at(&self, offset_sectors: i32) -> Option<u64> {
        self.place.sector.checked_add_signed(offset_sectors.into())
    }
}

fn range(start: u64, sectors: u64) -> Option<Range<u64>> {
    Some(start..start.checked_add(sectors)?)
}

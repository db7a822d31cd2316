use std::ops::Range;

use super::{Superblock, SuperblockError};
use crate::{Features, Level, MAX_SECTORS, MetadataVersion};

type Checked = Result<(), SuperblockError>;

/// Most updates that a superblock may count: a million a second for a hundred thousand years.
pub const EVENTS_MAX: u64 = 1 << 62;
/// Fewest sectors of data that md accepts.
const DATA_SECTORS_MIN: u64 = 10;
/// Sectors that md reads of a bad-block log: one page.
const LOG_SECTORS_MAX: u16 = 8;

/// What the checksum cannot tell: whether the values can be.
impl Superblock {
    /// Checks every value against the others and against a device of `device_sectors`.
    ///
    /// [`Superblock::parse`] does this; do it again after changing a superblock by hand.
    pub fn validate(&self, device_sectors: u64) -> Checked {
        self.check_features()?;
        self.check_shape()?;
        self.check_data(device_sectors)?;
        self.check_counters()?;
        self.check_progress()?;
        self.check_areas(device_sectors)
    }

    fn check_features(&self) -> Checked {
        let features = self.features;
        let bits = features.bits();
        let impossible = |reason| Err(SuperblockError::impossible("feature_map", bits, reason));
        let ppl = features.intersects(Features::PPL | Features::MULTIPLE_PPLS);
        if ppl && features.intersects(Features::BITMAP_OFFSET | Features::JOURNAL) {
            return impossible("a partial parity log excludes a bitmap and a journal");
        }
        if features.contains(Features::PPL | Features::MULTIPLE_PPLS) {
            return impossible("PPL and MULTIPLE_PPLS exclude each other");
        }
        if features.contains(Features::RAID0_LAYOUT) && self.level != Level::Raid0 {
            return impossible("RAID0_LAYOUT is for RAID0 only");
        }
        if features.contains(Features::BAD_BLOCKS) && self.bad_block_log.is_none() {
            return impossible("BAD_BLOCKS is set and there is no bad-block log");
        }
        Ok(())
    }

    fn check_shape(&self) -> Checked {
        if self.raid_disks == 0 || self.raid_disks as usize > super::MAX_ROLES {
            let reason = "an array has 1 to 1920 slots";
            return Err(SuperblockError::impossible("raid_disks", self.raid_disks, reason));
        }
        let chunk = self.chunk_sectors;
        let impossible = |reason| Err(SuperblockError::impossible("chunksize", chunk, reason));
        if self.level.has_chunks() && chunk == 0 {
            return impossible("this level needs a chunk size");
        }
        let power = self.level.has_parity() || self.level == Level::Raid10;
        if power && !(chunk.is_power_of_two() && chunk >= 8) {
            return impossible("this level needs a power of two of at least 8 sectors");
        }
        Ok(())
    }

    fn check_data(&self, device_sectors: u64) -> Checked {
        let size = self.data_size_sectors;
        if size < DATA_SECTORS_MIN {
            let reason = "fewer than 10 sectors of data";
            return Err(SuperblockError::impossible("data_size", size, reason));
        }
        if device_sectors > MAX_SECTORS {
            let reason = "the device has 8 EiB or more";
            return Err(SuperblockError::impossible("data_size", size, reason));
        }
        let end = self.data_range().filter(|data| data.end <= device_sectors);
        let Some(end) = end.map(|data| data.end) else {
            let reason = "data reaches beyond the end of the device";
            return Err(SuperblockError::impossible("data_size", size, reason));
        };
        if self.place.version == MetadataVersion::V1_0 && end > self.place.sector {
            let reason = "data reaches into the superblock";
            return Err(SuperblockError::impossible("data_size", size, reason));
        }
        if self.has_size() && self.size_sectors == 0 {
            return Err(SuperblockError::impossible("size", 0, "a redundant level needs a size"));
        }
        if self.has_size() && self.size_sectors > size {
            let reason = "more than the data area holds";
            return Err(SuperblockError::impossible("size", self.size_sectors, reason));
        }
        self.check_new_offset(device_sectors)
    }

    /// The data area that a reshape moves to must fit as well.
    fn check_new_offset(&self, device_sectors: u64) -> Checked {
        if !self.features.contains(Features::NEW_OFFSET) {
            return Ok(());
        }
        let moved = i64::from(self.reshape.new_offset_sectors);
        let used = self.used_data_range().map_or(0, |data| data.end - data.start);
        let end = self.data_offset_sectors.checked_add_signed(moved).map(|start| start + used);
        if end.is_none_or(|end| end > device_sectors) {
            let reason = "data would move off the device";
            return Err(SuperblockError::impossible("new_offset", moved, reason));
        }
        Ok(())
    }

    /// Counters that this array could have reached: there is always room for one more.
    fn check_counters(&self) -> Checked {
        if self.events > EVENTS_MAX {
            let reason = "more updates than an array can have had";
            return Err(SuperblockError::impossible("events", self.events, reason));
        }
        if self.dev_number as usize >= super::MAX_ROLES {
            let reason = "members are numbered from 0 to 1919";
            return Err(SuperblockError::impossible("dev_number", self.dev_number, reason));
        }
        let block = self.logical_block_size_bytes;
        if block != 0 && !(block.is_power_of_two() && (512..=4096).contains(&block)) {
            let reason = "a logical block has 512, 1024, 2048 or 4096 bytes";
            return Err(SuperblockError::impossible("logical_block_size", block, reason));
        }
        Ok(())
    }

    fn check_progress(&self) -> Checked {
        let recovered = self.recovery_offset_sectors.unwrap_or(0);
        if recovered > self.data_size_sectors && recovered != u64::MAX {
            let reason = "beyond the end of data";
            return Err(SuperblockError::impossible("recovery_offset", recovered, reason));
        }
        Ok(())
    }

    /// Superblock, bitmap, partial parity log, bad-block log and data must be apart.
    fn check_areas(&self, device_sectors: u64) -> Checked {
        let mut taken = vec![self.superblock_range()];
        taken.extend(self.used_data_range());
        if taken[0].end > device_sectors {
            let reason = "the superblock reaches beyond the end of the device";
            return Err(SuperblockError::impossible("super_offset", self.place.sector, reason));
        }
        if overlaps(&taken[0], &taken[1..]) {
            let reason = "data lies over the superblock";
            let offset = self.data_offset_sectors;
            return Err(SuperblockError::impossible("data_offset", offset, reason));
        }
        let bitmap = self.bitmap_offset_sectors;
        if self.features.contains(Features::BITMAP_OFFSET) {
            let header = self.bitmap_sector().map(|start| start..start.saturating_add(1));
            claim("bitmap_offset", bitmap, header, &mut taken, device_sectors)?;
        }
        if self.features.intersects(Features::PPL | Features::MULTIPLE_PPLS) {
            claim("ppl", bitmap, self.ppl_range(), &mut taken, device_sectors)?;
        }
        if let Some(log) = self.bad_block_log {
            let range = self.bad_block_log_range();
            claim("bblog_offset", log.offset_sectors, range, &mut taken, device_sectors)?;
            check_log_shape(log.size_sectors, log.shift)?;
        }
        Ok(())
    }
}

/// Adds an area to those taken, if it lies on the device and apart from them.
fn claim(
    field: &'static str,
    value: i32,
    range: Option<Range<u64>>,
    taken: &mut Vec<Range<u64>>,
    device_sectors: u64,
) -> Checked {
    let Some(range) = range.filter(|range| range.end <= device_sectors) else {
        return Err(SuperblockError::impossible(field, value, "outside the device"));
    };
    if overlaps(&range, taken) {
        let reason = "lies over the superblock, data or another area";
        return Err(SuperblockError::impossible(field, value, reason));
    }
    taken.push(range);
    Ok(())
}

fn overlaps(range: &Range<u64>, others: &[Range<u64>]) -> bool {
    others.iter().any(|other| range.start < other.end && other.start < range.end)
}

fn check_log_shape(size_sectors: u16, shift: u8) -> Checked {
    if size_sectors > LOG_SECTORS_MAX {
        let reason = "md reads at most 8 sectors of bad-block log";
        return Err(SuperblockError::impossible("bblog_size", size_sectors, reason));
    }
    if shift > 9 {
        let reason = "a unit of the bad-block log has at most 512 sectors";
        return Err(SuperblockError::impossible("bblog_shift", shift, reason));
    }
    Ok(())
}

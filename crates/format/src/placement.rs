//! Where mdadm puts the parts of a new member, so that an array made here is laid out like its.
//!
//! [`ArrayPlacement::new`] decides what all members share; [`ArrayPlacement::member`] then what
//! differs with a member's size. (mdadm `super1.c` and `Create.c`; compared field by field with
//! mdadm 4.2 over many sizes.)

use crate::bitmap::{self, PAGE_BYTES};
use crate::superblock::BadBlockLogPlace;
use crate::{Level, MAX_SECTORS, MetadataVersion, SECTOR_BYTES, SuperblockPlace};

/// Data starts on a multiple of this: 1 MiB.
const DATA_OFFSET_STEP: u64 = 2048;
/// Largest room before data that is left for a reshape to move it: 128 MiB.
const HEADROOM_MAX: u64 = 128 * 2048;
/// Without a size given, RAID1 uses whole pieces of 64 KiB, in case it becomes a RAID5 one day.
const RAID1_STEP: u64 = 128;
/// Sectors for the superblock, and what may lie around it, before bitmap and headroom.
const FRONT_SECTORS: u64 = 24;
/// Sectors of the bad-block log.
const LOG_SECTORS: u64 = 8;
/// Sectors from the superblock to a bitmap behind it.
const BITMAP_OFFSET: i32 = 8;
/// What mdadm takes unless that many bits do not fit.
const DEFAULT_CHUNK_BYTES: u64 = 64 << 20;
/// Smallest bitmap chunk that mdadm takes.
const MIN_CHUNK_BYTES: u64 = 4096;
/// Largest power of two in the header's 32 bits.
const MAX_CHUNK_BYTES: u64 = 1 << 31;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Where the superblock goes.
    pub version: MetadataVersion,
    /// Level of the array.
    pub level: Level,
    /// Layout of the array; of use here for RAID10, whose bitmap counts array sectors.
    pub layout: u32,
    /// Sectors of a chunk; 0 where the level has none.
    pub chunk_sectors: u32,
    /// Slots of the array.
    pub raid_disks: u32,
    /// Sectors to use of each member; none for all that fit in the smallest.
    pub size_sectors: Option<u64>,
    /// First sector of data; none for mdadm's choice.
    pub data_offset_sectors: Option<u64>,
    /// Whether to have a bitmap.
    pub bitmap: BitmapRequest,
}

/// Whether an array gets a bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitmapRequest {
    /// No bitmap.
    None,
    /// A bitmap beside the superblock.
    Internal {
        /// Bytes for each bit; none for mdadm's choice.
        chunk_bytes: Option<u32>,
    },
}

/// What all members of an array share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayPlacement {
    /// Where the superblock goes.
    pub version: MetadataVersion,
    /// First sector of data.
    pub data_offset_sectors: u64,
    /// Sectors used of each member; 0 for linear and RAID0.
    pub size_sectors: u64,
    /// The bitmap, if there is one.
    pub bitmap: Option<BitmapPlacement>,
}

/// The bitmap's place and grain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapPlacement {
    /// Signed sectors from the superblock.
    pub offset_sectors: i32,
    /// Bytes for each bit.
    pub chunk_bytes: u32,
    /// Sectors that the bits cover.
    pub sync_size_sectors: u64,
}

/// Where the parts of one member go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPlacement {
    /// The superblock.
    pub place: SuperblockPlace,
    /// First sector of data.
    pub data_offset_sectors: u64,
    /// Sectors that data may use.
    pub data_size_sectors: u64,
    /// The bad-block log; none where there is no room for it.
    pub bad_block_log: Option<BadBlockLogPlace>,
}

/// Why an array cannot be laid out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlacementError {
    /// There is no member.
    #[error("an array needs at least one member")]
    NoMembers,
    /// A device has no room.
    #[error("a device of {device_sectors} sectors is too small: {needed_sectors} are needed")]
    TooSmall {
        /// Its size.
        device_sectors: u64,
        /// Least size that would do.
        needed_sectors: u64,
    },
    /// A device is too large.
    #[error("a device of {device_sectors} sectors has 8 EiB or more")]
    TooLarge {
        /// Its size.
        device_sectors: u64,
    },
    /// Data cannot start there.
    #[error("data cannot start at sector {data_offset_sectors}: {reason}")]
    DataOffset {
        /// The sector asked for.
        data_offset_sectors: u64,
        /// Why not.
        reason: &'static str,
    },
    /// The bitmap does not fit.
    #[error("bitmap chunk of {chunk_bytes} bytes: {reason}")]
    BitmapChunk {
        /// The chunk asked for, or the smallest that would do.
        chunk_bytes: u64,
        /// Why not.
        reason: &'static str,
    },
}

impl ArrayPlacement {
    /// Lays out an array over devices of these sizes. The first decides where data starts.
    pub fn new(request: &Request, devices: &[u64]) -> Result<ArrayPlacement, PlacementError> {
        let first = *devices.first().ok_or(PlacementError::NoMembers)?;
        if let Some(large) = devices.iter().find(|sectors| **sectors > MAX_SECTORS) {
            return Err(PlacementError::TooLarge { device_sectors: *large });
        }
        let data_offset_sectors = data_offset(request, first)?;
        let mut size_sectors = u64::MAX;
        for device in devices {
            let room = component_room(request, data_offset_sectors, *device)?;
            size_sectors = size_sectors.min(room);
        }
        if !request.level.is_redundant() {
            size_sectors = 0;
        }
        let mut placement = ArrayPlacement {
            version: request.version,
            data_offset_sectors,
            size_sectors,
            bitmap: None,
        };
        if let BitmapRequest::Internal { chunk_bytes } = request.bitmap
            && request.level.is_redundant()
        {
            placement.bitmap = Some(placement.bitmap(request, chunk_bytes)?);
        }
        Ok(placement)
    }

    /// Lays out one member of `device_sectors`, at creation or when it is added later.
    pub fn member(&self, device_sectors: u64) -> Result<MemberPlacement, PlacementError> {
        if device_sectors > MAX_SECTORS {
            return Err(PlacementError::TooLarge { device_sectors });
        }
        let small = |needed_sectors| PlacementError::TooSmall { device_sectors, needed_sectors };
        let place = self.version.place(device_sectors).ok_or(small(24))?;
        let member = match self.version {
            MetadataVersion::V1_0 => self.member_before(place),
            MetadataVersion::V1_1 | MetadataVersion::V1_2 => {
                self.member_behind(place, device_sectors)
            }
        };
        let needed = self.size_sectors.max(10);
        match member {
            Some(member) if member.data_size_sectors >= needed => Ok(member),
            _ => Err(small(self.data_offset_sectors.saturating_add(needed))),
        }
    }

    /// Metadata 1.0: data at the front; bitmap, bad-block log and superblock behind it.
    fn member_before(&self, place: SuperblockPlace) -> Option<MemberPlacement> {
        let kept = self.bitmap_space() + LOG_SECTORS;
        let kept = kept.min(place.sector.checked_sub(self.size_sectors)?);
        Some(MemberPlacement {
            place,
            data_offset_sectors: self.data_offset_sectors,
            data_size_sectors: place.sector.checked_sub(kept)?,
            bad_block_log: (kept >= LOG_SECTORS).then(|| log_at(-(LOG_SECTORS as i32))),
        })
    }

    /// Metadata 1.1 and 1.2: superblock, bitmap and bad-block log at the front, data behind.
    fn member_behind(
        &self,
        place: SuperblockPlace,
        device_sectors: u64,
    ) -> Option<MemberPlacement> {
        let data = self.data_offset_sectors;
        let bitmap_end = BITMAP_OFFSET as u64 + self.bitmap_space();
        // Squeezed against data when the room is short, and left out if it would touch the bitmap.
        let last = data.checked_sub(place.sector + LOG_SECTORS)?;
        let offset = bitmap_end.min(last);
        let free = if self.bitmap.is_some() { bitmap_end } else { BITMAP_OFFSET as u64 };
        Some(MemberPlacement {
            place,
            data_offset_sectors: data,
            data_size_sectors: device_sectors.checked_sub(data)?,
            bad_block_log: (offset >= free).then(|| log_at(offset as i32)),
        })
    }

    /// Sectors of the bitmap; without one, those that mdadm leaves for it.
    fn bitmap_space(&self) -> u64 {
        match self.bitmap {
            Some(bitmap) => bitmap.on_disk_sectors(),
            None => bitmap_space(self.size_sectors),
        }
    }

    fn bitmap(
        &self,
        request: &Request,
        chunk_bytes: Option<u32>,
    ) -> Result<BitmapPlacement, PlacementError> {
        let sync_size_sectors = sync_size(request, self.size_sectors);
        let chunk_bytes = bitmap_chunk(self.size_sectors, sync_size_sectors, chunk_bytes)?;
        let mut bitmap =
            BitmapPlacement { offset_sectors: BITMAP_OFFSET, chunk_bytes, sync_size_sectors };
        if self.version == MetadataVersion::V1_0 {
            // One bit more than chunks, as mdadm counts here.
            let bits = sync_size_sectors / bitmap.chunk_sectors() + 1;
            bitmap.offset_sectors = -((whole_pages(bits) + LOG_SECTORS) as i32);
        }
        let end = front_sector(self.version) + BITMAP_OFFSET as u64 + bitmap.on_disk_sectors();
        if self.version != MetadataVersion::V1_0 && end > self.data_offset_sectors {
            let data_offset_sectors = self.data_offset_sectors;
            let reason = "the bitmap needs the room before it";
            return Err(PlacementError::DataOffset { data_offset_sectors, reason });
        }
        Ok(bitmap)
    }
}

impl BitmapPlacement {
    /// Sectors of header and bits, in whole pages.
    pub fn on_disk_sectors(&self) -> u64 {
        whole_pages(self.sync_size_sectors.div_ceil(self.chunk_sectors()))
    }

    fn chunk_sectors(&self) -> u64 {
        (u64::from(self.chunk_bytes) / SECTOR_BYTES).max(1)
    }
}

/// Sectors that mdadm keeps for a bitmap on a device, or for an array's members, of so many.
pub fn bitmap_space(sectors: u64) -> u64 {
    const GIB: u64 = 1 << 21;
    match sectors {
        0..128 => 0,
        _ if sectors - 128 >= 200 * GIB => 256,
        _ if sectors - 8 > 8 * GIB => 128,
        _ => 8,
    }
}

fn data_offset(request: &Request, first_device: u64) -> Result<u64, PlacementError> {
    let front = front_sector(request.version) + 2 * LOG_SECTORS;
    let error = |data_offset_sectors, reason| {
        Err(PlacementError::DataOffset { data_offset_sectors, reason })
    };
    match (request.version, request.data_offset_sectors) {
        (MetadataVersion::V1_0, None | Some(0)) => Ok(0),
        (MetadataVersion::V1_0, Some(asked)) => error(asked, "metadata 1.0 has data at the front"),
        (_, Some(asked)) if asked < front => {
            error(asked, "the superblock needs the room before it")
        }
        (_, Some(asked)) => Ok(asked),
        (_, None) => Ok(chosen_data_offset(first_device, request.chunk_sectors.into())),
    }
}

/// Where the superblock begins that lies before data.
fn front_sector(version: MetadataVersion) -> u64 {
    if version == MetadataVersion::V1_2 { 8 } else { 0 }
}

/// About 0.1 % of the device, and at most 128 MiB, is left as headroom.
fn chosen_data_offset(device_sectors: u64, chunk_sectors: u64) -> u64 {
    let mut headroom = HEADROOM_MAX;
    while headroom << 10 > device_sectors
        && headroom > 0
        && (chunk_sectors == 0 || headroom / 2 >= 2 * chunk_sectors)
    {
        headroom /= 2;
    }
    (FRONT_SECTORS + bitmap_space(device_sectors) + headroom).next_multiple_of(DATA_OFFSET_STEP)
}

/// Sectors of a device that the array can use, in whole chunks.
fn component_room(
    request: &Request,
    data_offset: u64,
    device_sectors: u64,
) -> Result<u64, PlacementError> {
    let small = |needed_sectors| PlacementError::TooSmall { device_sectors, needed_sectors };
    let kept = match request.version {
        MetadataVersion::V1_0 => 16 + LOG_SECTORS + bitmap_space(device_sectors),
        MetadataVersion::V1_1 | MetadataVersion::V1_2 => data_offset,
    };
    let whole = match request.version {
        MetadataVersion::V1_0 => device_sectors & !7,
        MetadataVersion::V1_1 | MetadataVersion::V1_2 => device_sectors,
    };
    let step = match (request.level, request.size_sectors) {
        (level, _) if level.has_chunks() && request.chunk_sectors > 1 => {
            size_step(level, request.layout, request.chunk_sectors)
        }
        (Level::Raid1, None) => RAID1_STEP,
        _ => 2, // KiB is mdadm's unit of sizes: an odd sector is lost.
    };
    let room = whole.saturating_sub(kept) / step * step;
    let size = request.size_sectors.map(|size| size / step * step);
    let wanted = size.unwrap_or(step).max(10);
    if room < wanted {
        return Err(small(kept.saturating_add(wanted)));
    }
    Ok(size.unwrap_or(room))
}

/// What the member size of a level with chunks is a multiple of, in sectors. RAID10 keeps as many chunks in
/// each far part: md cuts the rest off at its first update, so nothing else may stand on the members.
pub fn size_step(level: Level, layout: u32, chunk_sectors: u32) -> u64 {
    let parts = match level {
        Level::Raid10 => (layout >> 8 & 0xff).max(1),
        _ => 1,
    };
    u64::from(chunk_sectors) * u64::from(parts)
}

/// Sectors that a bitmap covers: the members', for RAID10 the array's.
fn sync_size(request: &Request, size_sectors: u64) -> u64 {
    if request.level != Level::Raid10 {
        return size_sectors;
    }
    let (near, far) = (request.layout & 0xff, request.layout >> 8 & 0xff);
    let chunk = u64::from(request.chunk_sectors.max(1));
    let rows = size_sectors / chunk / u64::from(far.max(1));
    // At most 2^54 sectors on 2^32 members, in copies: 128 bits hold it, a sane array needs 64.
    let chunks = u128::from(rows) * u128::from(request.raid_disks) / u128::from(near.max(1));
    u64::try_from(chunks * u128::from(chunk)).unwrap_or(u64::MAX)
}

/// The smallest chunk whose bits fit in the room that mdadm leaves, and at least 64 MiB.
fn bitmap_chunk(
    size_sectors: u64,
    sync_size_sectors: u64,
    asked: Option<u32>,
) -> Result<u32, PlacementError> {
    let error = |chunk_bytes, reason| Err(PlacementError::BitmapChunk { chunk_bytes, reason });
    let room_bytes = bitmap_space(size_sectors) * SECTOR_BYTES;
    let Some(bits_max) = room_bytes.checked_sub(bitmap::HEADER_BYTES as u64).map(|b| b * 8) else {
        return error(asked.unwrap_or(0).into(), "members this small have no room for a bitmap");
    };
    let mut least = MIN_CHUNK_BYTES;
    let mut bits = sync_size_sectors / (MIN_CHUNK_BYTES / SECTOR_BYTES) + 1;
    while bits > bits_max {
        least *= 2;
        bits = bits.div_ceil(2);
    }
    let chunk = asked.map_or(least.max(DEFAULT_CHUNK_BYTES), u64::from);
    if !chunk.is_power_of_two() || chunk > MAX_CHUNK_BYTES {
        return error(chunk, "a power of two of at most 2 GiB is needed");
    }
    if chunk < least {
        return error(least, "is the smallest whose bits fit beside the superblock");
    }
    u32::try_from(chunk).or(error(chunk, "a power of two of at most 2 GiB is needed"))
}

/// Sectors of a header and so many bits, in whole pages.
fn whole_pages(bits: u64) -> u64 {
    let page = PAGE_BYTES as u64;
    bitmap::on_disk_bytes(bits).div_ceil(page) * (page / SECTOR_BYTES)
}

fn log_at(offset_sectors: i32) -> BadBlockLogPlace {
    BadBlockLogPlace { offset_sectors, size_sectors: LOG_SECTORS as u16, shift: 0 }
}

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use mdspace_format::bitmap::{
    BitmapError, HEADER_BYTES, LOCKLESS_VERSION, LocklessBitmap, PAGE_BYTES,
};
use mdspace_format::superblock::{AREA_BYTES, SuperblockErrorKind, of_places};
use mdspace_format::{
    BadBlocks, BitmapSuperblock, DirtyMap, Features, MetadataVersion, Role, SECTOR_BYTES,
    Superblock, SuperblockError,
};

use mdspace_io::name_of_path;

use crate::failure::Failure;

/// Largest bitmap that is read; md's own has 128 KiB.
const BITMAP_BYTES_MAX: u64 = 64 << 20;

/// Smallest device that md puts a superblock on.
const DEVICE_BYTES_MIN: usize = 12 << 10;

/// What was found on one device.
#[derive(Clone, Debug)]
pub(crate) struct ExaminedMember {
    /// As the user named it.
    pub(crate) path: PathBuf,
    /// Size of the device.
    pub(crate) device_sectors: u64,
    /// The superblock that counts.
    pub(crate) superblock: Superblock,
    /// Its checksum, which fits.
    pub(crate) checksum: u32,
    /// The bitmap, or why it cannot be read; none where there is none.
    pub(crate) bitmap: Option<Result<ExaminedBitmap, String>>,
    /// The bad-block log, or why it cannot be read; none where the log is empty or missing.
    pub(crate) bad_blocks: Option<Result<BadBlocks, String>>,
}

/// A bitmap and how much of it is set.
#[derive(Clone, Debug)]
pub(crate) enum ExaminedBitmap {
    /// Versions 3 and 4.
    Bits { superblock: Box<BitmapSuperblock>, dirty_chunks: u64 },
    /// Version 6.
    Lockless(LocklessBitmap),
}

impl ExaminedMember {
    pub(super) fn read(path: &Path) -> Result<ExaminedMember, Failure> {
        let unreadable = |error: io::Error| {
            let why = format!("{}: {error}", name_of_path(path));
            Failure::new("cannot examine", why, "give a file or block device that can be read")
        };
        let file = mdspace_io::open_to_look(path).map_err(unreadable)?;
        let device_sectors = (&file).seek(SeekFrom::End(0)).map_err(unreadable)? / SECTOR_BYTES;
        let superblock = read_superblock(&file, device_sectors)
            .map_err(unreadable)?
            .map_err(|error| unusable(path, error))?;
        Ok(ExaminedMember {
            path: path.to_owned(),
            device_sectors,
            checksum: stored_checksum(&superblock),
            bitmap: superblock.bitmap_room().map(|room| read_bitmap(&file, &superblock, room)),
            bad_blocks: read_bad_blocks(&file, &superblock),
            superblock,
        })
    }

    /// Sectors of the bitmap in whole pages; 0 where there is none.
    pub(super) fn bitmap_sectors(&self) -> u64 {
        let pages = match &self.bitmap {
            Some(Ok(ExaminedBitmap::Bits { superblock, .. })) => superblock.pages(),
            _ => 0,
        };
        pages * (PAGE_BYTES as u64 / SECTOR_BYTES)
    }

    /// Bytes of the array as mdadm reckons them; none for levels that it does not.
    pub(super) fn array_bytes(&self) -> Option<u64> {
        use mdspace_format::Level;
        let superblock = &self.superblock;
        let disks = u64::from(superblock.raid_disks);
        let (parts, copies) = match superblock.level {
            Level::Linear | Level::Raid0 => return None,
            Level::Raid1 => (1, 1),
            Level::Raid4 | Level::Raid5 => (disks.saturating_sub(1), 1),
            Level::Raid6 => (disks.saturating_sub(2), 1),
            Level::Raid10 => (disks, (superblock.layout & 0xff) * (superblock.layout >> 8 & 0xff)),
        };
        let bytes = u128::from(superblock.size_sectors) * u128::from(SECTOR_BYTES * parts);
        let bytes = u64::try_from(bytes / u128::from(copies.max(1))).unwrap_or(u64::MAX);
        (parts > 0).then_some(bytes)
    }

    /// Whether the member holds current data of the array, as mdadm counts: neither spare, nor
    /// faulty, nor journal, nor replacement.
    pub(super) fn is_in_sync(&self) -> bool {
        let replaces = self.superblock.features.contains(Features::REPLACEMENT);
        matches!(self.superblock.own_role(), Role::Slot(_)) && !replaces
    }
}

/// The superblock that counts, also where the place of another one cannot be read. Of several errors, the one that knows
/// most: damaged or impossible before absent.
fn read_superblock(
    file: &File,
    device_sectors: u64,
) -> io::Result<Result<Superblock, SuperblockError>> {
    let mut places = Vec::new();
    let have = device_sectors.saturating_mul(SECTOR_BYTES) as usize;
    let mut failed = SuperblockError::Short { have, need: DEVICE_BYTES_MIN };
    for version in MetadataVersion::PROBE_ORDER {
        let Some(place) = version.place(device_sectors) else { continue };
        let mut bytes = [0; AREA_BYTES];
        let read = file.read_exact_at(&mut bytes, place.sector * SECTOR_BYTES);
        places.push(read.map(|()| match Superblock::parse(&bytes, place, device_sectors) {
            Ok(superblock) => Some(superblock),
            Err(error) => {
                if failed.kind() == SuperblockErrorKind::Absent {
                    failed = error;
                }
                None
            }
        }));
    }
    Ok(of_places(places)?.ok_or(failed))
}

fn unusable(path: &Path, error: SuperblockError) -> Failure {
    let cure = match error.kind() {
        SuperblockErrorKind::Absent => "give a member of an md array with metadata 1.0, 1.1 or 1.2",
        SuperblockErrorKind::Damaged => "assemble the array from its other members, then re-add it",
        SuperblockErrorKind::Impossible => "compare with the superblocks of the other members",
    };
    Failure::new("cannot examine", format!("{}: {error}", name_of_path(path)), cure)
}

/// The checksum of a superblock that was parsed is the one that encoding gives.
fn stored_checksum(superblock: &Superblock) -> u32 {
    let bytes = superblock.encode();
    u32::from_le_bytes([bytes[216], bytes[217], bytes[218], bytes[219]])
}

fn read_bitmap(
    file: &File,
    member: &Superblock,
    room: std::ops::Range<u64>,
) -> Result<ExaminedBitmap, String> {
    let start = room.start * SECTOR_BYTES;
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, start).map_err(|error| error.to_string())?;
    let superblock = match BitmapSuperblock::parse(&header, room.end - room.start) {
        Err(BitmapError::Version { version: LOCKLESS_VERSION, .. }) => {
            return read_lockless(file, member).map(ExaminedBitmap::Lockless);
        }
        parsed => parsed.map_err(|error| error.to_string())?,
    };
    let length = superblock.on_disk_bytes();
    if length > BITMAP_BYTES_MAX {
        return Err(format!(
            "its {length} bytes are more than the {BITMAP_BYTES_MAX} that are read"
        ));
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, start).map_err(|error| error.to_string())?;
    let dirty_chunks = DirtyMap::parse(superblock.chunks(), &bytes).count();
    Ok(ExaminedBitmap::Bits { superblock: Box::new(superblock), dirty_chunks })
}

fn read_lockless(file: &File, member: &Superblock) -> Result<LocklessBitmap, String> {
    let room = member.lockless_bitmap_room().unwrap_or_default();
    let mut bytes = vec![0; ((room.end - room.start) * SECTOR_BYTES) as usize];
    file.read_exact_at(&mut bytes, room.start * SECTOR_BYTES).map_err(|error| error.to_string())?;
    LocklessBitmap::parse(&bytes).map_err(|error| error.to_string())
}

fn read_bad_blocks(file: &File, superblock: &Superblock) -> Option<Result<BadBlocks, String>> {
    if !superblock.features.contains(Features::BAD_BLOCKS) {
        return None;
    }
    let (place, range) = superblock.bad_block_log.zip(superblock.bad_block_log_range())?;
    let mut bytes = vec![0; usize::from(place.size_sectors) * SECTOR_BYTES as usize];
    let read = file.read_exact_at(&mut bytes, range.start * SECTOR_BYTES);
    let log = read.map_err(|error| error.to_string());
    Some(log.and_then(|()| BadBlocks::parse(&bytes, place.shift).map_err(|e| e.to_string())))
}

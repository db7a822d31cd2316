//! Reading what a device says about itself.

use std::time::Duration;

use mdspace_format::bitmap::{BitmapError, LOCKLESS_VERSION, LocklessBitmap};
use mdspace_format::placement::size_step;
use mdspace_format::superblock::{self, Counting, SuperblockErrorKind};
use mdspace_format::{
    BadBlockLog, BitmapSuperblock, DirtyMap, Features, Level, MetadataVersion, Superblock,
    SuperblockError, Uuid,
};

use crate::backend::{
    IoError, IoErrorKind, IoOp, MemberId, MemberInfo, MemberIo, Patience, ReadInto,
};
use crate::lane::{Lane, join_all};
use crate::memory::Buffer;

use super::decide::{LeftOut, Reason};

/// Bytes of a superblock's area.
const SUPERBLOCK_BYTES: usize = 4096;

/// How long a device may take for each read. A disk that stands still takes half of it to begin to turn.
const PATIENCE: Duration = Duration::from_secs(30);

/// Most bytes of a bitmap that are read into memory. mdadm chooses chunks so large that 128 KiB are
/// enough; a bitmap beyond this is a forgery, or counts as all bits set.
const BITMAP_BYTES_MAX: u64 = 16 << 20;

/// A device with a superblock, and what its superblock points to.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The device.
    pub id: MemberId,
    /// What it can do.
    pub info: MemberInfo,
    /// What it says it is.
    pub superblock: Superblock,
    /// What it says too: each superblock lies in what the other one calls data.
    pub rival: Option<Superblock>,
    /// Its copy of the bitmap.
    pub bitmap: FoundBitmap,
    /// Its bad-block list.
    pub bad_blocks: Result<BadBlockLog, String>,
}

/// A bitmap as found.
#[derive(Clone, Debug)]
pub enum FoundBitmap {
    /// The array has none.
    None,
    /// Header and bits.
    Good(Box<BitmapSuperblock>, DirtyMap),
    /// There, and known, but not handled: a version that must not be touched.
    Refused(BitmapError),
    /// Damaged: counts as all bits set.
    Bad,
}

impl ReadError {
    /// Whether the device does not answer: then nothing more is asked of it.
    fn is_of_silence(&self) -> bool {
        let Self::Io { error, .. } = self else { return false };
        error.kind == IoErrorKind::Deadline
    }
}

impl FoundBitmap {
    /// Header and bits, where they can be used.
    pub fn good(&self) -> Option<(&BitmapSuperblock, &DirtyMap)> {
        match self {
            Self::Good(header, map) => Some((header, map)),
            Self::None | Self::Refused(_) | Self::Bad => None,
        }
    }
}

/// Why a device gives no candidate.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It cannot be read.
    #[error("{member}: cannot be read: {error}")]
    Io {
        /// The device's name.
        member: String,
        /// What happened.
        error: IoError,
    },
    /// It has something that is nearly a superblock.
    #[error("{member}: {error}")]
    Superblock {
        /// The device's name.
        member: String,
        /// What is wrong with it.
        error: SuperblockError,
    },
}

/// Reads a device's superblock: the one that counts, where several versions are found. `None` if there
/// is none.
pub async fn read_superblock(
    lane: &Lane,
    id: MemberId,
    info: &MemberInfo,
) -> Result<Option<Superblock>, ReadError> {
    Ok(read_counting(lane, id, info, None).await?.map(|counting| counting.superblock))
}

/// As [`read_superblock`], for who looks for members of the array that is `wanted`.
pub async fn read_counting(
    lane: &Lane,
    id: MemberId,
    info: &MemberInfo,
    wanted: Option<Uuid>,
) -> Result<Option<Counting>, ReadError> {
    let mut places = Vec::new();
    for version in MetadataVersion::PROBE_ORDER {
        let Some(place) = version.place(info.sectors) else { continue };
        let left = (info.sectors - place.sector) * 512;
        let length = SUPERBLOCK_BYTES.min(left as usize);
        let bytes = match read_bytes(lane, id, info, place.sector, length).await {
            Ok(bytes) => bytes,
            Err(error) if error.is_of_silence() => return Err(error),
            Err(error) => {
                places.push(Err(error));
                continue;
            }
        };
        places.push(match Superblock::parse(&bytes, place, info.sectors) {
            Ok(superblock) => Ok(Some(superblock)),
            Err(error) if error.kind() == SuperblockErrorKind::Absent => Ok(None),
            Err(error) => Err(ReadError::Superblock { member: info.name.clone(), error }),
        });
    }
    Ok(superblock::counting_of_places(places, wanted)?
        .map(|counting| Counting { superblock: with_size_of_md(counting.superblock), ..counting }))
}

/// With the member size that md would write at its next update. Members that md has updated and members
/// that it has not must not disagree about it.
fn with_size_of_md(superblock: Superblock) -> Superblock {
    if superblock.level != Level::Raid10 {
        return superblock;
    }
    let step = size_step(superblock.level, superblock.layout, superblock.chunk_sectors);
    Superblock { size_sectors: superblock.size_sectors / step * step, ..superblock }
}

/// Reads all of a device's metadata. `None` if it has no superblock.
pub async fn read(
    lane: &Lane,
    id: MemberId,
    info: MemberInfo,
) -> Result<Option<Candidate>, ReadError> {
    read_wanted(lane, id, info, None).await
}

async fn read_wanted(
    lane: &Lane,
    id: MemberId,
    info: MemberInfo,
    wanted: Option<Uuid>,
) -> Result<Option<Candidate>, ReadError> {
    let counting = read_counting(lane, id, &info, wanted).await?;
    let Some(Counting { superblock, rival }) = counting else { return Ok(None) };
    let bitmap = read_bitmap(lane, id, &info, &superblock).await?;
    let bad_blocks = read_bad_blocks(lane, id, &info, &superblock).await?;
    Ok(Some(Candidate { id, info, superblock, rival, bitmap, bad_blocks }))
}

/// Reads the metadata of several devices; `wanted` is the array that is looked for, if it is known. A device whose
/// metadata cannot be read counts as missing, as one that is no member does, and is named.
pub async fn read_all(
    lane: &Lane,
    devices: Vec<(MemberId, MemberInfo)>,
    wanted: Option<Uuid>,
) -> (Vec<Candidate>, Vec<LeftOut>) {
    let (mut candidates, mut left_out) = (Vec::new(), Vec::new());
    // All at once: several that do not answer take no longer than one.
    let reading = devices.into_iter().map(async |(id, info)| {
        let member = info.name.clone();
        (member, read_wanted(lane, id, info, wanted).await)
    });
    for (member, found) in join_all(reading).await {
        let reason = match found {
            Ok(Some(candidate)) => {
                candidates.push(candidate);
                continue;
            }
            Ok(None) => Reason::NoSuperblock,
            Err(ReadError::Io { error, .. }) => {
                Reason::Unreadable(format!("cannot be read: {error}"))
            }
            Err(ReadError::Superblock { error, .. }) => Reason::Unreadable(error.to_string()),
        };
        left_out.push(LeftOut { member, reason });
    }
    (candidates, left_out)
}

async fn read_bitmap(
    lane: &Lane,
    id: MemberId,
    info: &MemberInfo,
    superblock: &Superblock,
) -> Result<FoundBitmap, ReadError> {
    let Some(room) = superblock.bitmap_room() else { return Ok(FoundBitmap::None) };
    let (sector, room_sectors) = (room.start, room.end - room.start);
    // Damage of any kind makes resync longer, never assembly impossible.
    let head = match read_bytes(lane, id, info, sector, 512).await {
        Ok(head) => head,
        Err(error) if error.is_of_silence() => return Err(error),
        Err(_) => return Ok(FoundBitmap::Bad),
    };
    let header = match BitmapSuperblock::parse(&head, room_sectors) {
        Ok(header) if header.on_disk_bytes() > BITMAP_BYTES_MAX => return Ok(FoundBitmap::Bad),
        Ok(header) => header,
        Err(BitmapError::Version { version: LOCKLESS_VERSION, name }) => {
            let known = read_lockless(lane, id, info, superblock).await;
            let unknown = BitmapError::Version { version: LOCKLESS_VERSION, name };
            return Ok(FoundBitmap::Refused(known.map_or(unknown, BitmapError::Lockless)));
        }
        Err(error @ BitmapError::Version { .. }) => return Ok(FoundBitmap::Refused(error)),
        Err(_) => return Ok(FoundBitmap::Bad),
    };
    let length = (header.on_disk_bytes() as usize).next_multiple_of(512);
    let bytes = match read_bytes(lane, id, info, sector, length).await {
        Ok(bytes) => bytes,
        Err(error) if error.is_of_silence() => return Err(error),
        Err(_) => return Ok(FoundBitmap::Bad),
    };
    let map = DirtyMap::parse(header.chunks(), &bytes);
    Ok(FoundBitmap::Good(Box::new(header), map))
}

/// What a bitmap of version 6 says; none where it cannot be read or cannot be.
async fn read_lockless(
    lane: &Lane,
    id: MemberId,
    info: &MemberInfo,
    superblock: &Superblock,
) -> Option<LocklessBitmap> {
    let room = superblock.lockless_bitmap_room()?;
    let length = (room.end - room.start) as usize * 512;
    let bytes = read_bytes(lane, id, info, room.start, length).await.ok()?;
    LocklessBitmap::parse(&bytes).ok()
}

async fn read_bad_blocks(
    lane: &Lane,
    id: MemberId,
    info: &MemberInfo,
    superblock: &Superblock,
) -> Result<Result<BadBlockLog, String>, ReadError> {
    let log = superblock.bad_block_log;
    let Some(log) = log.filter(|_| superblock.features.contains(Features::BAD_BLOCKS)) else {
        return Ok(Ok(BadBlockLog::new(log.map_or(0, |log| log.shift))));
    };
    let sector = superblock.place.sector.checked_add_signed(log.offset_sectors.into());
    let Some(sector) = sector else { return Ok(Err("it lies before the device".to_owned())) };
    let length = usize::from(log.size_sectors) * 512;
    let bytes = read_bytes(lane, id, info, sector, length).await?;
    Ok(BadBlockLog::parse(&bytes, log.shift).map_err(|error| error.to_string()))
}

async fn read_bytes(
    lane: &Lane,
    id: MemberId,
    info: &MemberInfo,
    sector: u64,
    length: usize,
) -> Result<Vec<u8>, ReadError> {
    // A device with large blocks is read in whole blocks.
    let block = u64::from(info.logical_block_bytes / 512).max(1);
    let first = sector / block * block;
    let skip = (sector - first) as usize * 512;
    let whole = (skip + length).next_multiple_of(info.logical_block_bytes as usize);
    let into = ReadInto::Buffer(Buffer::zeroed(whole), 0..whole);
    let op = IoOp::Read { sector: first, into };
    let done = lane.io(MemberIo { member: id, op, patience: Patience::of(PATIENCE) }).await;
    done.result.map_err(|error| ReadError::Io { member: info.name.clone(), error })?;
    let buffer = done.buffer.expect("a finished read returns its buffer");
    Ok(buffer[skip..skip + length].to_vec())
}

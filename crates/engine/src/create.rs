//! Making an array: what each device becomes, and the first bytes written to it.
//!
//! [`plan`] is pure and refuses what could not run; [`write()`] then writes, superblocks last. A crash
//! between leaves devices without a superblock of the new array, or some with one: neither assembles
//! by accident, for an array that misses slots is refused. The members then assemble like any other.

use std::time::Duration;

use mdspace_format::bitmap::PAGE_BYTES;
use mdspace_format::new_array::{NewArray, NewArrayError, NewMember};
use mdspace_format::placement::{ArrayPlacement, BitmapRequest, PlacementError, Request};
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{
    BadBlocks, BitmapSuperblock, DirtyMap, Level, MetadataVersion, Role, Superblock, Timestamp,
    Uuid, layout,
};

use crate::array::plan::PLACES_MAX;
use crate::assembly;
use crate::backend::{IoError, IoOp, MemberId, MemberInfo, MemberIo, Patience, WriteFrom};
use crate::erase;
use crate::geometry::{Geometry, GeometryError, Shape, Slot};
use crate::lane::Lane;
use crate::memory::Buffer;

/// How long a device may take for each write and flush.
const PATIENCE: Duration = Duration::from_secs(30);

/// Chunk where the user names none, as mdadm: 512 KiB.
pub const DEFAULT_CHUNK_SECTORS: u32 = 1024;

/// What an array is to be.
#[derive(Clone, Debug)]
pub struct Creation {
    /// Its name on disk.
    pub name: SetName,
    /// Its UUID; nil for a random one, which [`make`] draws.
    pub uuid: Uuid,
    /// Where superblocks go.
    pub version: MetadataVersion,
    /// The level.
    pub level: Level,
    /// md's layout number.
    pub layout: u32,
    /// Sectors of a chunk; 0 where the level has none.
    pub chunk_sectors: u32,
    /// Slots, without spares.
    pub raid_disks: u16,
    /// Sectors to use of each member; none for all.
    pub size_sectors: Option<u64>,
    /// First sector of data; none for mdadm's choice.
    pub data_offset_sectors: Option<u64>,
    /// Whether to have a bitmap.
    pub bitmap: BitmapRequest,
    /// Take the members for in sync as they are.
    pub assume_clean: bool,
    /// RAID4, 5 and 6: no member becomes a spare so that a rebuild stands for the first resync.
    pub force: bool,
    /// Writes that may be left behind on write-mostly members; 0 for none.
    pub write_behind: u32,
}

impl Creation {
    /// An array as mdadm makes it when it is told no more: metadata 1.2, its default layout and chunk, all of each
    /// member, and a bitmap where the level has redundancy.
    pub fn new(name: SetName, level: Level, raid_disks: u16) -> Self {
        Self {
            name,
            uuid: Uuid::NIL,
            version: MetadataVersion::V1_2,
            level,
            layout: layout::default_number(level),
            chunk_sectors: if level.has_chunks() { DEFAULT_CHUNK_SECTORS } else { 0 },
            raid_disks,
            size_sectors: None,
            data_offset_sectors: None,
            bitmap: match level.is_redundant() {
                true => BitmapRequest::Internal { chunk_bytes: None },
                false => BitmapRequest::None,
            },
            assume_clean: false,
            force: false,
            write_behind: 0,
        }
    }
}

/// A device of the new array.
#[derive(Clone, Debug)]
pub struct NewDevice {
    /// The device.
    pub id: MemberId,
    /// What it can do.
    pub info: MemberInfo,
    /// Write-mostly and failfast.
    pub flags: MemberFlags,
}

/// Why an array cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CreateError {
    /// Fewer places than slots.
    #[error("{given} members for {raid_disks} slots; the word missing stands for one to come")]
    TooFewPlaces {
        /// Members given, missing ones included.
        given: usize,
        /// Slots.
        raid_disks: u16,
    },
    /// More missing than the level bears.
    #[error("with {missing} {} empty the array could not start", if *missing == 1 { "slot" } else { "slots" })]
    TooManyMissing {
        /// Empty slots.
        missing: usize,
    },
    /// A spare cannot be missing.
    #[error("a spare cannot be missing")]
    MissingSpare,
    /// Levels without redundancy have no use for spares.
    #[error("a level without redundancy takes no spares")]
    NoUseForSpares,
    /// Nobody to leave writes behind on, or nothing to remember them by.
    #[error("write-behind needs {0}")]
    WriteBehind(&'static str),
    /// The first resync cannot run.
    #[error("a RAID6 with one slot empty starts only by rebuilding a spare, and force forbids it")]
    DirtyDegraded,
    /// A shape that no array has.
    #[error(transparent)]
    Geometry(#[from] GeometryError),
    /// No room.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// Values that do not go together.
    #[error(transparent)]
    NewArray(#[from] NewArrayError),
    /// A device's logical blocks do not go with the array.
    #[error("{member}: {reason}")]
    Blocks {
        /// The device's name.
        member: String,
        /// Why.
        reason: String,
    },
    /// A device refused.
    #[error("{member}: {error}")]
    Io {
        /// The device's name.
        member: String,
        /// What happened.
        error: IoError,
    },
}

/// What [`write()`] is to put on the devices.
#[derive(Clone, Debug)]
pub struct CreatePlan {
    /// The devices with their superblocks, in the order of the command line.
    pub members: Vec<(NewDevice, Superblock)>,
    /// The bitmap's header, where there is one.
    pub bitmap: Option<BitmapSuperblock>,
    /// Whether redundancy counts as right from the start.
    pub in_sync: bool,
}

/// Decides what each of `places` becomes: slots in order, then spares; `None` is a slot left empty.
/// `device_uuid` gives a new random UUID at each call; `now_s` is in seconds since 1970.
pub fn plan(
    creation: &Creation,
    places: Vec<Option<NewDevice>>,
    now_s: u64,
    mut device_uuid: impl FnMut() -> Uuid,
) -> Result<CreatePlan, CreateError> {
    let roles = roles(creation, &places.iter().map(Option::is_some).collect::<Vec<_>>())?;
    let is_mostly_written = |device: &NewDevice| device.flags.write_mostly();
    check_write_behind(creation, places.iter().flatten().any(is_mostly_written))?;
    let sizes: Vec<u64> = places.iter().flatten().map(|device| device.info.sectors).collect();
    let placement = ArrayPlacement::new(&placement_request(creation), &sizes)?;
    let mut devices = Vec::new();
    let mut members = Vec::new();
    for (device, assigned) in places.into_iter().zip(&roles.assigned) {
        let (Some(device), Some((dev_number, role))) = (device, *assigned) else { continue };
        members.push(NewMember {
            device_sectors: device.info.sectors,
            device_uuid: device_uuid(),
            dev_number,
            role,
            flags: device.flags,
        });
        devices.push(device);
    }
    let array = NewArray {
        set_uuid: creation.uuid,
        set_name: creation.name,
        ctime: Timestamp::from_seconds(now_s),
        level: creation.level,
        layout: creation.layout,
        chunk_sectors: creation.chunk_sectors,
        raid_disks: creation.raid_disks.into(),
        in_sync: roles.in_sync,
        write_behind: creation.write_behind,
    };
    let superblocks = array.superblocks(&placement, &members)?;
    refuse_impossible(creation, &placement, &superblocks)?;
    refuse_misfits(&devices, &superblocks)?;
    Ok(CreatePlan {
        members: devices.into_iter().zip(superblocks).collect(),
        bitmap: array.bitmap(&placement),
        in_sync: roles.in_sync,
    })
}

/// As mdadm: who may lag behind is a write-mostly mirror, and only the bitmap knows by what.
fn check_write_behind(creation: &Creation, any_write_mostly: bool) -> Result<(), CreateError> {
    let lacks = match creation {
        _ if creation.write_behind == 0 => return Ok(()),
        _ if creation.level != Level::Raid1 => "RAID1",
        _ if creation.bitmap == BitmapRequest::None => "a bitmap",
        _ if !any_write_mostly => "a write-mostly member",
        _ => return Ok(()),
    };
    Err(CreateError::WriteBehind(lacks))
}

/// What each place becomes.
#[derive(Debug, PartialEq, Eq)]
struct Roles {
    /// `dev_number` and role of each place; `None` for an empty slot.
    assigned: Vec<Option<(u32, Role)>>,
    in_sync: bool,
}

/// mdadm's rules. Rebuilding one member reads the others and writes it, each in one sweep, where a
/// resync of parity would seek between reading and writing: so RAID4 and 5 start with their last
/// member as a spare. A RAID6 with one slot empty would be dirty and degraded, which nothing starts:
/// one more member becomes a spare.
fn roles(creation: &Creation, present: &[bool]) -> Result<Roles, CreateError> {
    let raid_disks = usize::from(creation.raid_disks);
    if present.len() < raid_disks {
        let given = present.len();
        return Err(CreateError::TooFewPlaces { given, raid_disks: creation.raid_disks });
    }
    let (slots, spares) = present.split_at(raid_disks);
    if spares.contains(&false) {
        return Err(CreateError::MissingSpare);
    }
    if !spares.is_empty() && !creation.level.is_redundant() {
        return Err(CreateError::NoUseForSpares);
    }
    let missing = slots.iter().filter(|present| !**present).count();
    let rebuilt = slot_to_rebuild(creation, slots, missing)?;
    let parity_is_computed = rebuilt.is_some() || missing == parity_disks(creation.level);
    let in_sync = creation.assume_clean
        || !creation.level.is_redundant()
        || (creation.level.has_parity() && parity_is_computed);
    let assigned = present.iter().enumerate().map(|(place, is_present)| {
        let number = place as u32;
        match place {
            _ if !is_present => None,
            // The slot's own number stays free: the spare takes the next one behind all places.
            _ if Some(place) == rebuilt => Some((present.len() as u32, Role::Spare)),
            _ if place < raid_disks => Some((number, Role::Slot(place as u16))),
            _ => Some((number, Role::Spare)),
        }
    });
    Ok(Roles { assigned: assigned.collect(), in_sync })
}

/// The slot whose member starts as a spare, if any.
fn slot_to_rebuild(
    creation: &Creation,
    slots: &[bool],
    missing: usize,
) -> Result<Option<usize>, CreateError> {
    let last = slots.iter().rposition(|present| *present);
    match (creation.level, missing) {
        _ if creation.assume_clean => Ok(None),
        (Level::Raid6, 1) if creation.force => Err(CreateError::DirtyDegraded),
        (Level::Raid4 | Level::Raid5, 0) if creation.force => Ok(None),
        (Level::Raid4 | Level::Raid5, 0) | (Level::Raid6, 1) => Ok(last),
        _ => Ok(None),
    }
}

fn parity_disks(level: Level) -> usize {
    match level {
        Level::Raid4 | Level::Raid5 => 1,
        Level::Raid6 => 2,
        _ => 0,
    }
}

fn placement_request(creation: &Creation) -> Request {
    Request {
        version: creation.version,
        level: creation.level,
        layout: creation.layout,
        chunk_sectors: creation.chunk_sectors,
        raid_disks: creation.raid_disks.into(),
        size_sectors: creation.size_sectors,
        data_offset_sectors: creation.data_offset_sectors,
        bitmap: creation.bitmap,
    }
}

/// Nothing is written for an array that assembly would refuse.
fn refuse_impossible(
    creation: &Creation,
    placement: &ArrayPlacement,
    superblocks: &[Superblock],
) -> Result<(), CreateError> {
    let holder = |slot| superblocks.iter().find(|sb| sb.own_role() == Role::Slot(slot));
    let missing = (0..creation.raid_disks).filter(|slot| holder(*slot).is_none()).count();
    let by_size = matches!(creation.level, Level::Linear | Level::Raid0);
    if by_size && missing > 0 {
        return Err(CreateError::TooManyMissing { missing });
    }
    let size = |slot| holder(slot).map_or(0, |superblock| superblock.data_size_sectors);
    let geometry = Geometry::new(&Shape {
        level: creation.level,
        layout: creation.layout,
        raid_disks: creation.raid_disks,
        chunk_sectors: creation.chunk_sectors,
        member_sectors: placement.size_sectors,
        member_sizes: if by_size { (0..creation.raid_disks).map(size).collect() } else { vec![] },
    })?;
    if creation.level.has_parity() && usize::from(creation.raid_disks) > PLACES_MAX {
        return Err(CreateError::Geometry(GeometryError::TooManyDisks {
            level: creation.level,
            raid_disks: creation.raid_disks,
            maximum: PLACES_MAX as u16,
        }));
    }
    match geometry.enough(&|slot: Slot| holder(slot.0).is_some()) {
        true => Ok(()),
        false => Err(CreateError::TooManyMissing { missing }),
    }
}

/// Nothing is written for an array whose members' blocks assembly would refuse.
fn refuse_misfits(devices: &[NewDevice], superblocks: &[Superblock]) -> Result<(), CreateError> {
    let members = || superblocks.iter().zip(devices.iter().map(|device| &device.info));
    let block = assembly::array_block_bytes(members());
    for (superblock, info) in members() {
        if let Some(reason) = assembly::misfit(superblock, info, block) {
            return Err(CreateError::Blocks { member: info.name.clone(), reason });
        }
    }
    Ok(())
}

/// Plans an array now, under new random UUIDs, and writes it.
pub async fn make(
    lane: &Lane,
    mut creation: Creation,
    places: Vec<Option<NewDevice>>,
) -> Result<(), CreateError> {
    if creation.uuid == Uuid::NIL {
        creation.uuid = random_uuid(lane);
    }
    let now_s = lane.backend().unix_time_s();
    let plan = plan(&creation, places, now_s, || random_uuid(lane))?;
    write(lane, &plan).await
}

fn random_uuid(lane: &Lane) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&lane.backend().random().to_le_bytes());
    bytes[8..].copy_from_slice(&lane.backend().random().to_le_bytes());
    Uuid(bytes)
}

/// Writes the new array's first bytes: bitmap and bad-block log, then superblocks, each durable
/// before the next. Superblocks of other versions, left from an earlier array, are erased.
pub async fn write(lane: &Lane, plan: &CreatePlan) -> Result<(), CreateError> {
    for (device, superblock) in &plan.members {
        let writer = Writer { lane, device };
        writer.erase_others(superblock).await?;
        if let Some(log) = superblock.bad_block_log {
            let bytes = BadBlocks::new().encode(log.size_sectors, log.shift);
            let bytes = bytes.expect("an empty list fits in every log");
            writer.write(near(superblock, log.offset_sectors), bytes).await?;
        }
        if let (Some(header), Some(sector)) = (&plan.bitmap, superblock.bitmap_sector()) {
            writer.write(sector, bitmap_bytes(header, plan.in_sync)).await?;
        }
        writer.flush().await?;
    }
    for (device, superblock) in &plan.members {
        let writer = Writer { lane, device };
        writer.write(superblock.place.sector, superblock.encode()).await?;
        writer.flush().await?;
    }
    Ok(())
}

fn near(superblock: &Superblock, offset_sectors: i32) -> u64 {
    let sector = superblock.place.sector.checked_add_signed(offset_sectors.into());
    sector.expect("a valid superblock points into its device")
}

/// Header and bits in whole pages, every bit set where redundancy is still to be made.
fn bitmap_bytes(header: &BitmapSuperblock, in_sync: bool) -> Vec<u8> {
    let mut map = DirtyMap::new(header.chunks());
    if !in_sync {
        map.set_all();
    }
    let bytes = (0..header.pages()).flat_map(|page| header.encode_page(&map, page));
    bytes.take((header.pages() as usize) * PAGE_BYTES).collect()
}

/// Writes to one device in whole logical blocks.
struct Writer<'a> {
    lane: &'a Lane,
    device: &'a NewDevice,
}

impl Writer<'_> {
    /// What an earlier array left here must not be assembled one day.
    async fn erase_others(&self, superblock: &Superblock) -> Result<(), CreateError> {
        let NewDevice { id, info, .. } = self.device;
        let erased = erase::other_superblocks(self.lane, *id, info, superblock.place).await;
        erased.map_err(|error| self.failed(error))
    }

    async fn write(&self, sector: u64, bytes: Vec<u8>) -> Result<(), CreateError> {
        let mut buffer = Buffer::zeroed(bytes.len());
        buffer.copy_from_slice(&bytes);
        let from = WriteFrom::Buffer(buffer, 0..bytes.len());
        self.io(IoOp::Write { sector, from, fua: false }).await
    }

    async fn flush(&self) -> Result<(), CreateError> {
        self.io(IoOp::Flush).await
    }

    async fn io(&self, op: IoOp) -> Result<(), CreateError> {
        let io = MemberIo { member: self.device.id, op, patience: Patience::of(PATIENCE) };
        self.lane.io(io).await.result.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: IoError) -> CreateError {
        CreateError::Io { member: self.device.info.name.clone(), error }
    }
}

#[cfg(test)]
mod tests;

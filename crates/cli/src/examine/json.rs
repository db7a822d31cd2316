use std::collections::BTreeMap;

use mdspace_format::bitmap::{LOCKLESS_VERSION, LocklessChunks};
use mdspace_format::{Features, Role, layout};
use mdspace_io::name_of_path;
use serde::Serialize;

use super::ExaminedMember;
use super::member::ExaminedBitmap;

/// What `mdspace examine --json` prints. Fields are added, never renamed.
#[derive(Serialize)]
pub(super) struct Examination {
    schema: u32,
    members: Vec<Member>,
}

/// One member. Numbers count what their names end with; times are seconds since 1970, UTC.
#[derive(Serialize)]
struct Member {
    member: String,
    device_sectors: u64,
    metadata: String,
    super_sector: u64,
    checksum: String,
    features: Vec<&'static str>,
    feature_map: u32,
    /// Why the array of this member cannot be served; empty is good.
    unsupported: Vec<String>,
    array: Array,
    device: Device,
    bitmap: Option<Bitmap>,
    bad_block_log: Option<BadBlockLog>,
    reshape: Option<Reshape>,
}

#[derive(Serialize)]
struct Array {
    uuid: String,
    name: String,
    created: u64,
    level: String,
    layout: Option<String>,
    layout_number: u32,
    chunk_bytes: u64,
    raid_disks: u32,
    size_bytes: Option<u64>,
    used_sectors: u64,
    state: &'static str,
    /// None for a clean array.
    resync_offset_sectors: Option<u64>,
    events: u64,
    updated: u64,
    logical_block_size_bytes: u32,
    /// Members known in each slot.
    slots: Vec<usize>,
}

#[derive(Serialize)]
struct Device {
    uuid: String,
    number: u32,
    role: &'static str,
    slot: Option<u16>,
    write_mostly: bool,
    failfast: bool,
    data_offset_sectors: u64,
    data_size_sectors: u64,
    recovery_offset_sectors: Option<u64>,
    corrected_reads: u32,
}

/// A bitmap, or the error that kept it from being read.
#[derive(Serialize)]
#[serde(untagged)]
enum Bitmap {
    Read {
        offset_sectors: i32,
        version: u32,
        uuid: String,
        events: u64,
        events_cleared: u64,
        stale: bool,
        chunk_bytes: u32,
        daemon_sleep_seconds: u32,
        write_behind: u32,
        sync_size_sectors: u64,
        chunks: u64,
        dirty_chunks: u64,
    },
    Lockless {
        offset_sectors: i32,
        version: u32,
        events: u64,
        /// None before the first kernel has started the array.
        chunk_sectors: Option<u32>,
        /// How many chunks are in each state, all of them.
        states: BTreeMap<&'static str, u32>,
    },
    Unreadable {
        error: String,
    },
}

#[derive(Serialize)]
struct BadBlockLog {
    offset_sectors: i32,
    size_sectors: u16,
    shift: u8,
    /// First sector of the device and number of sectors.
    ranges: Vec<(u64, u64)>,
    error: Option<String>,
}

#[derive(Serialize)]
struct Reshape {
    position_sectors: u64,
    delta_disks: i32,
    new_level: String,
    new_layout_number: u32,
    new_chunk_bytes: u64,
    new_offset_sectors: i32,
}

/// Everything known about the members, as one JSON object.
pub(super) fn examination(members: &[ExaminedMember]) -> Examination {
    Examination { schema: 1, members: members.iter().map(member).collect() }
}

fn member(member: &ExaminedMember) -> Member {
    let superblock = &member.superblock;
    Member {
        member: name_of_path(&member.path),
        device_sectors: member.device_sectors,
        metadata: superblock.place.version.to_string(),
        super_sector: superblock.place.sector,
        checksum: format!("{:08x}", member.checksum),
        features: superblock.features.names().collect(),
        feature_map: superblock.features.bits(),
        unsupported: superblock.unsupported_features().iter().map(|r| r.to_string()).collect(),
        array: array(member),
        device: device(member),
        bitmap: bitmap(member),
        bad_block_log: bad_block_log(member),
        reshape: reshape(member),
    }
}

fn array(member: &ExaminedMember) -> Array {
    let superblock = &member.superblock;
    let slots = |slot: u32| {
        superblock.roles.iter().filter(|role| role.slot().map(u32::from) == Some(slot)).count()
    };
    let clean = superblock.is_clean();
    Array {
        uuid: superblock.set_uuid.to_string(),
        name: superblock.set_name.to_string(),
        created: superblock.ctime.seconds(),
        level: superblock.level.to_string(),
        layout: layout::word(superblock.level, superblock.layout),
        layout_number: superblock.layout,
        chunk_bytes: u64::from(superblock.chunk_sectors) * 512,
        raid_disks: superblock.raid_disks,
        size_bytes: member.array_bytes(),
        used_sectors: superblock.size_sectors,
        state: if clean { "clean" } else { "active" },
        resync_offset_sectors: (!clean).then_some(superblock.resync_offset_sectors),
        events: superblock.events,
        updated: superblock.utime.seconds(),
        logical_block_size_bytes: superblock.logical_block_size_bytes,
        slots: (0..superblock.slots()).map(slots).collect(),
    }
}

fn device(member: &ExaminedMember) -> Device {
    let superblock = &member.superblock;
    let role = superblock.own_role();
    Device {
        uuid: superblock.device_uuid.to_string(),
        number: superblock.dev_number,
        role: match role {
            Role::Spare => "spare",
            Role::Faulty => "faulty",
            Role::Journal => "journal",
            Role::Slot(_) if !member.is_in_sync() => "replacement",
            Role::Slot(_) => "active",
        },
        slot: role.slot(),
        write_mostly: superblock.flags.write_mostly(),
        failfast: superblock.flags.fail_fast(),
        data_offset_sectors: superblock.data_offset_sectors,
        data_size_sectors: superblock.data_size_sectors,
        recovery_offset_sectors: superblock.recovery_offset_sectors,
        corrected_reads: superblock.corrected_reads,
    }
}

fn bitmap(member: &ExaminedMember) -> Option<Bitmap> {
    let offset_sectors = member.superblock.bitmap_offset_sectors;
    Some(match member.bitmap.as_ref()? {
        Err(error) => Bitmap::Unreadable { error: error.clone() },
        Ok(ExaminedBitmap::Lockless(found)) => Bitmap::Lockless {
            offset_sectors,
            version: LOCKLESS_VERSION,
            events: found.events,
            chunk_sectors: found.chunks.map(|chunks| chunks.chunk_sectors),
            states: found.chunks.iter().flat_map(LocklessChunks::counts).collect(),
        },
        Ok(ExaminedBitmap::Bits { superblock, dirty_chunks }) => Bitmap::Read {
            offset_sectors,
            version: superblock.version.number(),
            uuid: superblock.uuid.to_string(),
            events: superblock.events,
            events_cleared: superblock.events_cleared,
            stale: superblock.state.is_stale(),
            chunk_bytes: superblock.chunk_bytes,
            daemon_sleep_seconds: superblock.daemon_sleep_seconds,
            write_behind: superblock.write_behind,
            sync_size_sectors: superblock.sync_size_sectors,
            chunks: superblock.chunks(),
            dirty_chunks: *dirty_chunks,
        },
    })
}

fn bad_block_log(member: &ExaminedMember) -> Option<BadBlockLog> {
    let place = member.superblock.bad_block_log?;
    let (ranges, error) = match &member.bad_blocks {
        None => (Vec::new(), None),
        Some(Ok(blocks)) => {
            (blocks.ranges().iter().map(|bad| (bad.start, bad.end - bad.start)).collect(), None)
        }
        Some(Err(error)) => (Vec::new(), Some(error.clone())),
    };
    let (offset_sectors, size_sectors) = (place.offset_sectors, place.size_sectors);
    Some(BadBlockLog { offset_sectors, size_sectors, shift: place.shift, ranges, error })
}

fn reshape(member: &ExaminedMember) -> Option<Reshape> {
    let superblock = &member.superblock;
    let reshape = &superblock.reshape;
    superblock.features.contains(Features::RESHAPE_ACTIVE).then(|| Reshape {
        position_sectors: reshape.position_sectors,
        delta_disks: reshape.delta_disks,
        new_level: super::level_word(reshape.new_level),
        new_layout_number: reshape.new_layout,
        new_chunk_bytes: u64::from(reshape.new_chunk_sectors) * 512,
        new_offset_sectors: reshape.new_offset_sectors,
    })
}

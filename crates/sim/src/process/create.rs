//! What `mdspace create` leaves on the disks, written straight to them.

use mdspace_format::new_array::{NewArray, NewMember};
use mdspace_format::placement::{ArrayPlacement, BitmapPlacement, BitmapRequest, Request};
use mdspace_format::superblock::{BadBlockLogPlace, SetName};
use mdspace_format::{
    BitmapSuperblock, DirtyMap, Level, MetadataVersion, Role, Superblock, Timestamp, Uuid,
};

use crate::disk::{Disk, DiskIndex};
use crate::settings::Settings;
use crate::stamp::SECTOR_BYTES;
use crate::world::World;

/// Writes the first superblocks and bitmaps of the array to `disks`: slots first, then spares.
pub fn create(world: &World, settings: &Settings, disks: &[DiskIndex]) {
    let placement = placement(world, settings, disks);
    let members: Vec<NewMember> =
        (0..).zip(disks).map(|(number, &disk)| new_member(world, settings, number, disk)).collect();
    let array = new_array(world, settings);
    let mut superblocks = array.superblocks(&placement, &members).expect("the settings fit md");
    superblocks.iter_mut().for_each(|superblock| shorten_log(superblock, settings.log_sectors));
    let bitmap = array.bitmap(&placement);
    for (&disk, superblock) in disks.iter().zip(&superblocks) {
        world.change_disk(disk, |disk| {
            put(disk, superblock.place.sector, superblock.encode());
            if let Some(header) = &bitmap {
                put_bitmap(disk, superblock, header, settings.assume_clean);
            }
        });
    }
}

/// Leaves so many sectors of a bad-block log, or none.
fn shorten_log(superblock: &mut Superblock, sectors: Option<u16>) {
    let Some(sectors) = sectors else { return };
    let log = superblock.bad_block_log.take().filter(|_| sectors > 0);
    superblock.bad_block_log = log.map(|log| BadBlockLogPlace { size_sectors: sectors, ..log });
}

fn placement(world: &World, settings: &Settings, disks: &[DiskIndex]) -> ArrayPlacement {
    let level = level(settings);
    let version = match settings.metadata_minor {
        0 => MetadataVersion::V1_0,
        1 => MetadataVersion::V1_1,
        _ => MetadataVersion::V1_2,
    };
    let is_tiny = settings.member_sectors < TINY_SECTORS;
    let request = Request {
        version,
        level,
        layout: settings.layout,
        chunk_sectors: settings.chunk_sectors,
        raid_disks: settings.slots.into(),
        size_sectors: level.is_redundant().then_some(settings.member_sectors),
        data_offset_sectors: (settings.data_offset > 0).then_some(settings.data_offset),
        bitmap: match settings.bitmap_chunk_bytes {
            Some(bytes) if !is_tiny => BitmapRequest::Internal { chunk_bytes: Some(bytes) },
            _ => BitmapRequest::None,
        },
    };
    let sizes: Vec<u64> =
        disks.iter().map(|&disk| world.disk(disk, |disk| disk.spec.sectors)).collect();
    let mut placement = ArrayPlacement::new(&request, &sizes).expect("the settings fit the disks");
    if is_tiny {
        placement.bitmap = settings.bitmap_chunk_bytes.map(|bytes| tiny_bitmap(settings, bytes));
    }
    placement
}

/// mdadm gives members of less than 64 KiB no bitmap; an array can have one all the same.
const TINY_SECTORS: u64 = 128;

/// The bitmap of tiny members with metadata 1.1 or 1.2, right behind the superblock.
fn tiny_bitmap(settings: &Settings, chunk_bytes: u32) -> BitmapPlacement {
    let sync_size_sectors = match settings.level {
        10 => {
            settings.member_sectors * u64::from(settings.slots) / (settings.redundancy() as u64 + 1)
        }
        _ => settings.member_sectors,
    };
    BitmapPlacement { offset_sectors: 8, chunk_bytes, sync_size_sectors }
}

fn new_array(world: &World, settings: &Settings) -> NewArray {
    NewArray {
        set_uuid: uuid(world),
        set_name: SetName::new("sim:array").expect("a short name"),
        ctime: Timestamp::from_seconds(world.unix_time_s()),
        level: level(settings),
        layout: settings.layout,
        chunk_sectors: settings.chunk_sectors,
        raid_disks: settings.slots.into(),
        in_sync: settings.assume_clean || settings.redundancy() == 0,
        write_behind: settings.write_behind,
    }
}

fn new_member(world: &World, settings: &Settings, number: u16, disk: DiskIndex) -> NewMember {
    NewMember {
        device_sectors: world.disk(disk, |disk| disk.spec.sectors),
        device_uuid: uuid(world),
        dev_number: (settings.first_number + number).into(),
        role: if number < settings.slots { Role::Slot(number) } else { Role::Spare },
        flags: settings.flags.get(usize::from(number)).copied().unwrap_or_default(),
    }
}

fn level(settings: &Settings) -> Level {
    Level::from_number(settings.level).expect("the settings name a level of md's")
}

fn uuid(world: &World) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&world.identifier().to_le_bytes());
    bytes[8..].copy_from_slice(&world.identifier().to_le_bytes());
    Uuid(bytes)
}

fn put_bitmap(
    disk: &mut Disk,
    superblock: &Superblock,
    header: &BitmapSuperblock,
    assume_clean: bool,
) {
    let start = superblock.bitmap_sector().expect("the placement has a bitmap");
    let mut map = DirtyMap::new(header.chunks());
    if !assume_clean {
        map.set_all();
    }
    let pages = header.on_disk_bytes().div_ceil(4096);
    for page in 0..pages {
        let mut bytes = header.encode_page(&map, page).to_vec();
        bytes.truncate(header.page_bytes(page));
        put(disk, start + page * 8, bytes);
    }
}

fn put(disk: &mut Disk, sector: u64, mut bytes: Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(SECTOR_BYTES), 0);
    disk.store.overwrite(sector, &bytes);
}

use std::fmt::Write as _;
use std::path::Path;

use jiff::tz::TimeZone;
use mdspace_format::bitmap::{BitmapState, LocklessBitmap};
use mdspace_format::{
    BitmapSuperblock, Features, Level, MetadataVersion, Role, SECTOR_BYTES, Superblock, layout,
};

use mdspace_io::name_of_path;

use super::member::ExaminedBitmap;
use super::{ExaminedMember, level_word, line};
use crate::output::printable;
use crate::render::units::{both_sizes, zoned_time};

/// mdadm leaves the size in words out below this.
const SIZE_BYTES_MIN: u64 = 5000 << 10;
/// Sectors from the superblock that mdadm does not count as unused.
const FRONT_SECTORS: u64 = 72;

/// Where the text is read.
pub(super) struct Scene {
    /// Name of this host: arrays of its own are marked.
    pub(super) host: String,
    /// Its time zone.
    pub(super) zone: TimeZone,
}

impl Scene {
    /// All that `mdadm --examine` prints, field for field.
    pub(super) fn describe(&self, member: &ExaminedMember) -> String {
        let mut out = String::new();
        self.identity(&mut out, member);
        sizes(&mut out, member);
        state(&mut out, member);
        places(&mut out, member);
        self.update(&mut out, member);
        shape(&mut out, &member.superblock);
        roles(&mut out, &member.superblock);
        out
    }

    /// What mdadm tells with other options, or not at all. Empty for a member without a bitmap
    /// and bad blocks that can be served.
    pub(super) fn describe_more(&self, member: &ExaminedMember) -> String {
        let mut out = String::new();
        match &member.bitmap {
            None => {}
            Some(Ok(ExaminedBitmap::Bits { superblock, dirty_chunks })) => {
                let words = bitmap(&member.path, superblock, *dirty_chunks);
                line!(out, "\n{}", words.trim_end());
            }
            Some(Ok(ExaminedBitmap::Lockless(found))) => lockless_bitmap(&mut out, found),
            Some(Err(error)) => line!(out, "\n          Bitmap : cannot be read: {error}"),
        }
        match &member.bad_blocks {
            None => {}
            Some(Ok(blocks)) => {
                line!(out, "\n     Bad Blocks :");
                for bad in blocks.ranges() {
                    line!(out, "{:20} for {} sectors", bad.start, bad.end - bad.start);
                }
            }
            Some(Err(error)) => line!(out, "\n     Bad Blocks : cannot be read: {error}"),
        }
        for reason in member.superblock.unsupported_features() {
            line!(out, "\n     Not Served : {reason}");
        }
        out
    }

    fn identity(&self, out: &mut String, member: &ExaminedMember) {
        let superblock = &member.superblock;
        line!(out, "{}:", printable(&name_of_path(&member.path)));
        line!(out, "          Magic : {:08x}", mdspace_format::superblock::MAGIC);
        line!(out, "        Version : {}", superblock.place.version);
        line!(out, "    Feature Map : {:#x}", superblock.features.bits());
        line!(out, "     Array UUID : {}", superblock.set_uuid);
        let here = superblock.set_name.host().is_some_and(|host| host == self.host);
        let local = if here { format!("  (local to host {})", self.host) } else { String::new() };
        line!(out, "           Name : {}{local}", printable(&superblock.set_name.to_string()));
        line!(out, "  Creation Time : {}", self.time(superblock.ctime.seconds()));
        line!(out, "     Raid Level : {}", superblock.level);
        line!(out, "   Raid Devices : {}\n", superblock.raid_disks);
    }

    fn update(&self, out: &mut String, member: &ExaminedMember) {
        let superblock = &member.superblock;
        let flags = [
            (superblock.flags.write_mostly(), " write-mostly"),
            (superblock.flags.fail_fast(), " failfast"),
        ];
        if superblock.flags.0 != 0 {
            let words: String = flags.iter().filter(|flag| flag.0).map(|flag| flag.1).collect();
            line!(out, "          Flags :{words}");
        }
        line!(out, "    Update Time : {}", self.time(superblock.utime.seconds()));
        if let Some(log) = superblock.bad_block_log {
            let present = superblock.features.contains(Features::BAD_BLOCKS);
            let entries = u32::from(log.size_sectors) * 64;
            let offset = log.offset_sectors;
            let words = if present { " - bad blocks present." } else { "" };
            line!(
                out,
                "  Bad Block Log : {entries} entries available at offset {offset} sectors{words}"
            );
        }
        line!(out, "       Checksum : {:x} - correct", member.checksum);
        line!(out, "         Events : {}\n", superblock.events);
    }

    fn time(&self, seconds: u64) -> String {
        zoned_time(seconds, self.zone.clone())
    }
}

fn sizes(out: &mut String, member: &ExaminedMember) {
    let superblock = &member.superblock;
    line!(out, " Avail Dev Size : {}", sectors(superblock.data_size_sectors));
    if let Some(bytes) = member.array_bytes() {
        line!(out, "     Array Size : {} KiB{}", bytes >> 10, size_words(bytes));
    }
    let same = superblock.size_sectors == superblock.data_size_sectors;
    if superblock.level != Level::Raid0 && !same {
        line!(out, "  Used Dev Size : {}", sectors(superblock.size_sectors));
    }
    if superblock.data_offset_sectors != 0 {
        line!(out, "    Data Offset : {} sectors", superblock.data_offset_sectors);
    }
    let moved = superblock.reshape.new_offset_sectors;
    if moved != 0 && superblock.features.contains(Features::NEW_OFFSET) {
        let offset = superblock.data_offset_sectors.wrapping_add_signed(moved.into());
        line!(out, "     New Offset : {offset} sectors");
    }
    line!(out, "   Super Offset : {} sectors", superblock.place.sector);
    if let Some(offset) = superblock.recovery_offset_sectors {
        line!(out, "Recovery Offset : {offset} sectors");
    }
    // As mdadm does from August 2026 on.
    if !superblock.is_clean() {
        line!(out, "  Resync Offset : {} sectors", superblock.resync_offset_sectors);
    }
}

fn state(out: &mut String, member: &ExaminedMember) {
    let superblock = &member.superblock;
    let (before, after) = unused(member);
    let none = (before, after) == (0, 0);
    if !none && !superblock.features.contains(Features::NEW_OFFSET) {
        line!(out, "   Unused Space : before={before} sectors, after={after} sectors");
    }
    line!(out, "          State : {}", if superblock.is_clean() { "clean" } else { "active" });
    line!(out, "    Device UUID : {}\n", superblock.device_uuid);
}

/// Sectors before and behind data that a reshape could move it into, as mdadm reckons them.
fn unused(member: &ExaminedMember) -> (u64, u64) {
    let superblock = &member.superblock;
    let data = superblock.data_offset_sectors;
    let used = match superblock.level {
        Level::Linear | Level::Raid0 => superblock.data_size_sectors,
        _ => superblock.size_sectors,
    };
    let log = superblock.bad_block_log_range();
    let beside = superblock.ppl_range().map(|ppl| ppl.end - superblock.place.sector);
    if superblock.place.version == MetadataVersion::V1_0 {
        let ends = [log.map(|log| log.start), superblock.bitmap_sector()];
        let end = ends.into_iter().flatten().fold(superblock.place.sector, u64::min);
        return (data, end.saturating_sub(data + used));
    }
    // mdadm counts the end of a bitmap from the superblock and all else from the device's start.
    let bitmap = superblock
        .bitmap_sector()
        .map(|_| superblock.bitmap_offset_sectors.unsigned_abs() as u64 + member.bitmap_sectors());
    let ends = [bitmap, beside, log.map(|log| log.end)];
    let front = superblock.place.sector + FRONT_SECTORS;
    let earliest = ends.into_iter().flatten().fold(front, u64::max);
    let behind = match superblock.own_role() {
        // A journal uses every 4 KiB that there is.
        Role::Journal => (member.device_sectors - data) % 8,
        _ => member.device_sectors.saturating_sub(data + used),
    };
    (data.saturating_sub(earliest), behind)
}

fn places(out: &mut String, member: &ExaminedMember) {
    let superblock = &member.superblock;
    if superblock.features.contains(Features::BITMAP_OFFSET) {
        let offset = superblock.bitmap_offset_sectors;
        line!(out, "Internal Bitmap : {offset} sectors from superblock");
    } else if let Some(ppl) = superblock.ppl_range() {
        let (size, start) = (ppl.end - ppl.start, ppl.start);
        let offset = i128::from(start) - i128::from(superblock.place.sector);
        // mdadm prints the signed offset without its sign.
        let offset = offset as u16;
        line!(out, "            PPL : {size} sectors at offset {offset} sectors from superblock");
    }
    if superblock.features.contains(Features::RESHAPE_ACTIVE) {
        reshape(out, superblock);
    }
}

fn reshape(out: &mut String, superblock: &Superblock) {
    let reshape = &superblock.reshape;
    let position = reshape.position_sectors;
    let words = size_words(position.saturating_mul(SECTOR_BYTES));
    line!(out, "  Reshape pos'n : {}{words}", position / 2);
    if reshape.delta_disks != 0 {
        let (delta, disks) = (reshape.delta_disks, superblock.raid_disks as i32);
        line!(out, "  Delta Devices : {delta} ({}->{disks})", disks.wrapping_sub(delta));
    }
    if reshape.new_level != superblock.level.number() {
        line!(out, "      New Level : {}", level_word(reshape.new_level));
    }
    if reshape.new_layout != superblock.layout && has_layout(superblock.level) {
        line!(out, "     New Layout : {}", layout(superblock.level, reshape.new_layout));
    }
    if reshape.new_chunk_sectors != superblock.chunk_sectors {
        line!(out, "  New Chunksize : {}K", reshape.new_chunk_sectors / 2);
    }
    line!(out, "");
}

fn shape(out: &mut String, superblock: &Superblock) {
    let level = superblock.level;
    let raid0 = level == Level::Raid0 && superblock.features.contains(Features::RAID0_LAYOUT);
    if raid0 || has_layout(level) {
        line!(out, "         Layout : {}", layout(level, superblock.layout));
    }
    let chunk_kib = superblock.chunk_sectors / 2;
    match level {
        Level::Raid1 => {}
        Level::Linear => line!(out, "       Rounding : {chunk_kib}K"),
        _ => line!(out, "     Chunk Size : {chunk_kib}K"),
    }
    line!(out, "");
}

fn roles(out: &mut String, superblock: &Superblock) {
    let role = match superblock.roles.get(superblock.dev_number as usize) {
        None | Some(Role::Spare | Role::Faulty) => "spare".to_owned(),
        Some(Role::Journal) => "Journal".to_owned(),
        Some(Role::Slot(slot)) if superblock.features.contains(Features::REPLACEMENT) => {
            format!("Replacement device {slot}")
        }
        Some(Role::Slot(slot)) => format!("Active device {slot}"),
    };
    line!(out, "   Device Role : {role}");
    let held: Vec<usize> = (0..superblock.slots()).map(|slot| holders(superblock, slot)).collect();
    let redundant = superblock.level.is_redundant() || superblock.level == Level::Linear;
    let letters: String = held
        .iter()
        .map(|held| match held {
            0 => '.',
            1 => 'A',
            2 if redundant => 'R',
            _ => '?',
        })
        .collect();
    line!(out, "   Array State : {letters} ('A' == active, '.' == missing, 'R' == replacing)");
    let beyond = superblock
        .roles
        .iter()
        .any(|role| role.slot().is_some_and(|slot| u32::from(slot) > superblock.slots()));
    if beyond || letters.contains('?') {
        line!(out, "WARNING Array state is inconsistent - each number should appear only once");
        let words = superblock.roles.iter().enumerate().map(|(number, role)| match role {
            Role::Spare | Role::Faulty => format!(" {number}:-"),
            role => format!(" {number}:{}", role.number()),
        });
        line!(out, "{}", words.collect::<String>());
    }
}

/// Members that the superblock knows in a slot.
fn holders(superblock: &Superblock, slot: u32) -> usize {
    let in_slot = |role: &&Role| role.slot().map(u32::from) == Some(slot);
    superblock.roles.iter().filter(in_slot).count()
}

/// All that `mdadm --examine-bitmap` prints of a bitmap, field for field.
pub(super) fn bitmap(path: &Path, superblock: &BitmapSuperblock, dirty_chunks: u64) -> String {
    let mut out = String::new();
    line!(out, "        Filename : {}", printable(&name_of_path(path)));
    line!(out, "           Magic : {:08x}", mdspace_format::bitmap::MAGIC);
    line!(out, "         Version : {}", superblock.version.number());
    line!(out, "            UUID : {}", superblock.uuid);
    line!(out, "          Events : {}", superblock.events);
    line!(out, "  Events Cleared : {}", superblock.events_cleared);
    let state = match superblock.state.0 {
        0 => "OK",
        BitmapState::STALE => "Out of date",
        _ => "Unknown",
    };
    line!(out, "           State : {state}");
    line!(out, "       Chunksize : {}", chunk_words(superblock.chunk_bytes));
    line!(out, "          Daemon : {}s flush period", superblock.daemon_sleep_seconds);
    match superblock.write_behind {
        0 => line!(out, "      Write Mode : Normal"),
        writes => line!(out, "      Write Mode : Allow write behind, max {writes}"),
    }
    let size = superblock.sync_size_sectors;
    let words = size_words(size.saturating_mul(SECTOR_BYTES));
    line!(out, "       Sync Size : {}{words}", size / 2);
    let chunks = superblock.chunks();
    let share = dirty_chunks as f64 * 100.0 / chunks.max(1) as f64;
    line!(out, "          Bitmap : {chunks} bits (chunks), {dirty_chunks} dirty ({share:.1}%)");
    out
}

/// mdadm prints nothing of an llbitmap but that it does not know it.
fn lockless_bitmap(out: &mut String, bitmap: &LocklessBitmap) {
    line!(out, "\n          Bitmap : llbitmap, Linux 6.18 and later");
    line!(out, "          Events : {}", bitmap.events);
    let Some(chunks) = &bitmap.chunks else {
        return line!(out, "          Chunks : none, {bitmap}");
    };
    line!(out, "       Chunksize : {} sectors", chunks.chunk_sectors);
    line!(out, "          Chunks : {}", chunks.total());
    for (word, count) in chunks.counts() {
        line!(out, "{count:20} {word}");
    }
}

fn chunk_words(bytes: u32) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KB", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{} MB", bytes >> 20),
        _ => format!("{} GB", bytes >> 30),
    }
}

fn has_layout(level: Level) -> bool {
    matches!(level, Level::Raid5 | Level::Raid6 | Level::Raid10)
}

fn layout(level: Level, number: u32) -> String {
    match (level, number) {
        (Level::Raid0, 0) => "dangerous".to_owned(),
        _ => layout::word(level, number).unwrap_or_else(|| "-unknown-".to_owned()),
    }
}

fn sectors(sectors: u64) -> String {
    format!("{sectors} sectors{}", size_words(sectors.saturating_mul(SECTOR_BYTES)))
}

/// Bytes in both families of units, in brackets; empty for small sizes.
fn size_words(bytes: u64) -> String {
    if bytes < SIZE_BYTES_MIN { String::new() } else { format!(" ({})", both_sizes(bytes)) }
}

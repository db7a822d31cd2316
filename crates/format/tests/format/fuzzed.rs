//! What must hold for any bytes at all. The tests here and the long runs under `fuzz/` share this.

use std::ops::Range;

use mdspace_format::bitmap::{LOCKLESS_VERSION, LocklessBitmap};
use mdspace_format::{
    BadBlocks, BitmapSuperblock, DirtyMap, MetadataVersion, Superblock, SuperblockError,
    SuperblockPlace,
};

/// Chunks of the largest bitmap that is read into memory here.
const CHUNKS_MAX: u64 = 1 << 18;

/// A byte that picks the version, one that says whether to make magic, place and checksum right,
/// the device's sectors as u64, then the superblock.
pub(crate) fn superblock(input: &[u8]) {
    let Some((head, bytes)) = input.split_first_chunk::<10>() else { return };
    let version = MetadataVersion::PROBE_ORDER[usize::from(head[0] % 3)];
    let device_sectors = u64::from_le_bytes(head[2..].try_into().expect("eight bytes"));
    let Some(place) = version.place(device_sectors) else { return };
    let mut area = vec![0; 4096];
    let length = bytes.len().min(area.len());
    area[..length].copy_from_slice(&bytes[..length]);
    if head[1] & 1 == 1 {
        repair(&mut area, place.sector);
    }
    let _ = check_superblock(&area, place, device_sectors);
}

/// Sectors of room as u16, then the bitmap.
pub(crate) fn bitmap(input: &[u8]) {
    let Some((room, bytes)) = input.split_first_chunk::<2>() else { return };
    let room = u64::from(u16::from_le_bytes(*room));
    lockless_bitmap(bytes);
    let Ok(header) = BitmapSuperblock::parse(bytes, room) else { return };
    assert!(header.on_disk_bytes() <= room * 512, "{header:?}");
    assert_eq!(header.encode(), bytes[..256]);
    let chunks = header.chunks();
    assert_eq!(header.chunks_of(0..header.sync_size_sectors), 0..chunks);
    assert_eq!(header.sectors_of(0..chunks), 0..header.sync_size_sectors);
    if chunks > CHUNKS_MAX {
        return;
    }
    let mut map = DirtyMap::parse(chunks, bytes);
    assert_eq!(map.ranges().map(|dirty| dirty.end - dirty.start).sum::<u64>(), map.count());
    let pages: Vec<u8> =
        (0..header.pages()).flat_map(|page| header.encode_page(&map, page)).collect();
    assert_eq!(DirtyMap::parse(chunks, &pages), map);
    for range in map.clone().ranges() {
        assert!(map.clear(range.start), "{range:?}");
    }
}

/// The same bytes as a bitmap of version 6.
fn lockless_bitmap(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    if let Some(version) = bytes.get_mut(4..8) {
        version.copy_from_slice(&LOCKLESS_VERSION.to_le_bytes());
    }
    let Ok(bitmap) = LocklessBitmap::parse(&bytes) else { return };
    let Some(chunks) = bitmap.chunks else { return };
    let total = chunks.total();
    assert!(total >= 1 && total <= bytes.len() as u64 - 1024, "{bitmap:?}");
    assert_eq!(chunks.counts().map(|(_, count)| u64::from(count)).sum::<u64>(), total);
}

/// The shift, then the log.
pub(crate) fn bad_blocks(input: &[u8]) {
    let Some((shift, bytes)) = input.split_first() else { return };
    let Ok(blocks) = BadBlocks::parse(bytes, *shift) else { return };
    let ranges = blocks.ranges();
    assert!(ranges.iter().all(|bad| bad.start < bad.end), "{ranges:?}");
    assert!(ranges.windows(2).all(|two| two[0].end < two[1].start), "{ranges:?}");
    if let Ok(log) = blocks.encode(8, *shift) {
        assert_eq!(log.len(), 4096);
        assert_eq!(BadBlocks::parse(&log, *shift).as_ref(), Ok(&blocks));
    }
    let mut rest = blocks.clone();
    for bad in ranges {
        assert_eq!(blocks.first_in(bad.start..u64::MAX), Some(bad.clone()));
        rest.remove(bad.clone());
        assert_eq!(rest.first_in(bad.clone()), None);
    }
    assert!(rest.is_empty(), "{rest:?}");
}

/// Parses a superblock, and if that succeeds asks everything that a caller could ask.
pub(crate) fn check_superblock(
    bytes: &[u8],
    place: SuperblockPlace,
    device_sectors: u64,
) -> Result<Superblock, SuperblockError> {
    let parsed = Superblock::parse(bytes, place, device_sectors)?;
    let inside = |range: Option<Range<u64>>| {
        let fits = range.clone().is_none_or(|r| r.start <= r.end && r.end <= device_sectors);
        assert!(fits, "{range:?} in {parsed:?}");
    };
    inside(parsed.data_range());
    inside(parsed.used_data_range());
    inside(parsed.bad_block_log_range());
    inside(parsed.ppl_range());
    inside(parsed.bitmap_room());
    inside(parsed.private_range());
    inside(Some(parsed.superblock_range()));
    let _ = (parsed.own_role(), parsed.slots(), parsed.unsupported_features(), parsed.is_clean());
    let again = Superblock::parse(&parsed.encode(), place, device_sectors);
    assert_eq!(again.as_ref(), Ok(&parsed));
    Ok(parsed)
}

/// Makes magic, version, place and checksum right, so that the values behind them are reached.
fn repair(area: &mut [u8], sector: u64) {
    area[..8].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9, 1, 0, 0, 0]);
    area[144..152].copy_from_slice(&sector.to_le_bytes());
    set_checksum(area);
}

/// md's checksum, written once more from its description.
pub(crate) fn set_checksum(bytes: &mut [u8]) {
    let max_dev = u32::from_le_bytes(bytes[220..224].try_into().expect("four bytes")) as usize;
    let length = max_dev.saturating_mul(2).saturating_add(256).min(bytes.len());
    bytes[216..220].fill(0);
    let mut padded = bytes[..length].to_vec();
    padded.resize(length.next_multiple_of(4), 0);
    let word = |word: &[u8]| u32::from_le_bytes(word.try_into().expect("four bytes"));
    let sum: u64 = padded.chunks_exact(4).map(word).map(u64::from).sum();
    let folded = (sum as u32).wrapping_add((sum >> 32) as u32);
    bytes[216..220].copy_from_slice(&folded.to_le_bytes());
}

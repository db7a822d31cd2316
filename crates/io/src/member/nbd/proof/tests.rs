use super::*;
use mdspace_format::new_array::{NewArray, NewMember};
use mdspace_format::placement::{ArrayPlacement, BitmapRequest, Request};
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{Level, MetadataVersion, Role, Timestamp, Uuid};

/// Bytes of a device with a superblock of 1.2.
const DEVICE_BYTES: u64 = 4 << 20;

/// What is read of a device of so many bytes, of which this stands in the places that are compared.
fn blocks(bytes: u64, mut read: &[u8]) -> Blocks {
    let mut blocks = Blocks::new();
    for place in places(bytes) {
        let (here, rest) = read.split_at(read.len().min((place.end - place.start) as usize));
        add(&mut blocks, &place, here);
        read = rest;
    }
    blocks
}

/// Whether it is the same device; none where that is not known.
fn agrees(bytes: u64, before: &[u8], own: &[u8], after: &[u8]) -> Option<bool> {
    let [before, own, after] = [before, own, after].map(|read| blocks(bytes, read));
    agree(&before, &own, &after, bytes)
}

fn agree(before: &Blocks, own: &Blocks, after: &Blocks, bytes: u64) -> Option<bool> {
    match compare(bytes, before, own, after) {
        Compared::Same => Some(true),
        Compared::Other(_) => Some(false),
        Compared::Unclear => None,
    }
}

/// What is compared of such a device whose superblock says so many events; all but that is zeroes.
fn device(events: u64) -> Vec<u8> {
    let sectors = DEVICE_BYTES / 512;
    let request = Request {
        version: MetadataVersion::V1_2,
        level: Level::Raid1,
        layout: 0,
        chunk_sectors: 0,
        raid_disks: 1,
        size_sectors: None,
        data_offset_sectors: None,
        bitmap: BitmapRequest::None,
    };
    let array = NewArray {
        set_uuid: Uuid([1; 16]),
        set_name: SetName::default(),
        ctime: Timestamp::from_seconds(1),
        level: request.level,
        layout: request.layout,
        chunk_sectors: request.chunk_sectors,
        raid_disks: request.raid_disks,
        in_sync: true,
        write_behind: 0,
    };
    let member = NewMember {
        device_sectors: sectors,
        device_uuid: Uuid([2; 16]),
        dev_number: 0,
        role: Role::Slot(0),
        flags: MemberFlags::default(),
    };
    let placement = ArrayPlacement::new(&request, &[sectors]).unwrap();
    let mut superblock = array.superblocks(&placement, &[member]).unwrap().remove(0);
    superblock.events = events;
    let mut bytes =
        vec![0; places(DEVICE_BYTES).iter().map(|at| (at.end - at.start) as usize).sum()];
    bytes[4096..8192].copy_from_slice(&superblock.encode());
    bytes
}

/// What stands still beside a superblock that is updated are zeroes, of which an older copy has as many.
#[test]
fn while_its_superblock_is_updated_a_connection_to_a_copy_is_not_proven() {
    let compare = |own: u64, before, after| {
        agrees(DEVICE_BYTES, &device(before), &device(own), &device(after))
    };
    assert_eq!(compare(9, 9, 9), Some(true));
    assert_eq!(compare(5, 9, 9), Some(false));
    assert_eq!(compare(5, 8, 9), Some(false), "an older one");
    assert_eq!(compare(10, 8, 9), Some(false), "a newer one");
    assert_eq!(compare(8, 8, 9), None, "maybe one of the last update");
}

/// User data lie there where the superblock is of another version.
#[test]
fn a_block_that_cannot_be_read_is_not_compared() {
    let [known, other, later] = [9, 5, 9].map(|events| blocks(DEVICE_BYTES, &device(events)));
    for missing in [0, DEVICE_BYTES - 4096, DEVICE_BYTES - 8192] {
        let mut own = known.clone();
        own.remove(&missing);
        assert_eq!(agree(&known, &own, &later, DEVICE_BYTES), Some(true));
        assert_eq!(agree(&own, &known, &own, DEVICE_BYTES), Some(true));
        let mut own = other.clone();
        own.remove(&missing);
        assert_eq!(agree(&known, &own, &later, DEVICE_BYTES), Some(false));
    }
}

/// All that is left of both devices is blank.
#[test]
fn a_device_whose_superblock_cannot_be_read_is_not_proven() {
    let known = blocks(DEVICE_BYTES, &device(9));
    let mut own = known.clone();
    own.remove(&4096);
    assert_eq!(agree(&known, &own, &known, DEVICE_BYTES), None);
    assert_eq!(agree(&own, &known, &own, DEVICE_BYTES), None);
    assert_eq!(agree(&own, &own, &own, DEVICE_BYTES), None);
}

#[test]
fn sectors_that_were_written_meanwhile_tell_nothing() {
    let bytes = |first: u8, second: u8| [vec![first; 512], vec![second; 512]].concat();
    let same = bytes(1, 2);
    assert_eq!(agrees(1024, &same, &same, &same), Some(true));
    assert_eq!(agrees(1024, &same, &bytes(1, 3), &same), Some(false));
    assert_eq!(agrees(1024, &bytes(1, 2), &bytes(1, 3), &bytes(1, 4)), Some(true));
    assert_eq!(agrees(1024, &bytes(1, 2), &bytes(9, 3), &bytes(1, 4)), Some(false));
    assert_eq!(agrees(1024, &same, &same[..512], &same), None);
}

/// A device of which every compared sector changes between two looks proves nothing by that.
#[test]
fn a_connection_is_not_proven_where_every_sector_was_written_meanwhile() {
    let sector = |byte: u8| vec![byte; 512];
    assert_eq!(agrees(512, &sector(1), &sector(9), &sector(2)), None);
}

#[test]
fn all_places_of_superblocks_are_compared_on_every_size() {
    for sectors in [1, 8, 271, 272, 273, 4096, 1 << 21] {
        let compared = places(sectors * 512);
        let holds = |sector: u64| compared.iter().any(|place| place.contains(&(sector * 512)));
        let end = compared.last().unwrap().end;
        assert_eq!(end, sectors * 512);
        assert!(holds(0) && (sectors < 9 || holds(8)));
        if let Some(at) = sectors.checked_sub(16) {
            assert!(holds(at & !7), "1.0 on {sectors}");
        }
        if let Some(at) = (sectors & !127).checked_sub(128) {
            assert!(holds(at), "0.90 on {sectors}");
        }
        assert!(compared.iter().all(|place| place.start.is_multiple_of(4096)));
    }
}

#[test]
fn without_a_connection_to_compare_with_there_is_no_proof() {
    let questions = Questions::default();
    assert!(questions.ask(|| {}).is_err());
    questions.connected();
    let leave = || assert!(questions.disconnected());
    assert!(questions.ask(leave).is_err());
}

#[test]
fn the_last_lane_that_is_connected_no_more_is_told_from_the_others() {
    let questions = Questions::default();
    questions.connected();
    questions.connected();
    assert!(!questions.disconnected());
    assert!(questions.disconnected());
}

//! What is encoded is parsed again.

use std::ops::Range;

use mdspace_format::superblock::{Counting, counting, of_device, of_places};
use mdspace_format::{
    BadBlocks, BitmapSuperblock, DirtyMap, Features, MetadataVersion, Role, Superblock, Timestamp,
    Unsupported,
};

use crate::seeded::for_seeds;
use crate::specimen::{Specimen, bitmap};

#[test]
fn any_superblock_that_is_encoded_is_parsed_again() {
    for_seeds("any_superblock_that_is_encoded_is_parsed_again", 2000, |random| {
        let specimen = Specimen::random(random);
        assert_eq!(specimen.parse(), Ok(specimen.superblock.clone()));
    });
}

#[test]
fn the_bytes_behind_the_last_role_are_zero_and_do_not_count() {
    let specimen = Specimen::raid6(MetadataVersion::V1_2);
    let mut bytes = specimen.superblock.encode();
    let length = specimen.superblock.length_bytes();
    assert_eq!((bytes.len(), length), (4096, 512));
    assert!(bytes[length..].iter().all(|byte| *byte == 0));
    bytes[length..].fill(0xa5);
    let place = specimen.superblock.place;
    let parse = |bytes: &[u8]| Superblock::parse(bytes, place, specimen.device_sectors);
    assert_eq!(parse(&bytes), Ok(specimen.superblock.clone()));
    assert_eq!(parse(&bytes[..length]), Ok(specimen.superblock.clone()));
    assert!(parse(&bytes[..length - 1]).is_err());
}

#[test]
fn unknown_padding_and_features_survive_and_are_named() {
    let mut specimen = Specimen::raid6(MetadataVersion::V1_2);
    assert_eq!(specimen.superblock.unsupported_features(), []);
    specimen.superblock.padding.pad3[5] = 1;
    specimen.superblock.features |= Features::from_bits(1 << 20 | 4);
    let parsed = specimen.parse().unwrap();
    assert_eq!(parsed, specimen.superblock);
    let reasons = [
        Unsupported::Feature { name: "RESHAPE_ACTIVE" },
        Unsupported::UnknownFeature { bit: 1 << 20 },
        Unsupported::Padding { field: "pad3" },
    ];
    assert_eq!(parsed.unsupported_features(), reasons);
}

#[test]
fn every_feature_is_either_served_or_refused_by_name() {
    let served = [0, 1, 3, 4, 7, 12];
    for bit in 0..32 {
        let mut superblock = Specimen::raid6(MetadataVersion::V1_2).superblock;
        superblock.features = Features::from_bits(1 << bit);
        let reasons = superblock.unsupported_features();
        assert_eq!(reasons.is_empty(), served.contains(&bit), "bit {bit}: {reasons:?}");
        if let Some(reason) = reasons.first() {
            let text = reason.to_string();
            let name = superblock.features.names().next();
            assert!(text.contains(name.unwrap_or(&format!("{:#x}", 1u32 << bit))), "{text}");
        }
    }
}

#[test]
fn a_number_without_a_role_and_a_slot_beyond_the_array_make_a_spare() {
    let mut superblock = Specimen::raid6(MetadataVersion::V1_2).superblock;
    assert_eq!(superblock.own_role(), Role::Slot(1));
    superblock.roles[1] = Role::Slot(4);
    assert_eq!(superblock.own_role(), Role::Spare);
    superblock.reshape.delta_disks = -1;
    assert_eq!(superblock.own_role(), Role::Spare, "no reshape is under way");
    superblock.features |= Features::RESHAPE_ACTIVE;
    assert_eq!(superblock.own_role(), Role::Slot(4));
    superblock.dev_number = 128;
    assert_eq!(superblock.own_role(), Role::Spare);
}

/// Superblocks of one device, with data from `data` on.
fn found(version: MetadataVersion, data: Range<u64>, ctime_s: u64) -> Superblock {
    let mut superblock = Specimen::raid6(version).superblock;
    superblock.data_offset_sectors = data.start;
    superblock.data_size_sectors = data.end - data.start;
    superblock.ctime = Timestamp::from_seconds(ctime_s);
    superblock
}

#[test]
fn what_lies_in_the_data_of_another_superblock_is_data_whatever_it_says_of_itself() {
    use MetadataVersion::{V1_0, V1_2};
    let counts = |all: [Superblock; 2]| {
        let turned = all.iter().rev().cloned();
        let version = of_device(all.iter().cloned()).unwrap().place.version;
        assert_eq!(of_device(turned).unwrap().place.version, version, "in any order");
        version
    };
    let end = found(V1_0, 0..64, 1).place.sector;
    // Made by a user of the array, in its last sectors and in its first.
    assert_eq!(counts([found(V1_2, 2048..end + 16, 1), found(V1_0, 4096..end, 9)]), V1_2);
    assert_eq!(counts([found(V1_0, 0..end, 1), found(V1_2, 2048..end, 9)]), V1_0);
    // Each claims the other as data: one at the front would have been written over.
    assert_eq!(counts([found(V1_2, 2048..end + 16, 1), found(V1_0, 0..end, 9)]), V1_2);
    // Apart from each other: what was made last.
    assert_eq!(counts([found(V1_2, 2048..end, 1), found(V1_0, 4096..end, 9)]), V1_0);
    assert_eq!(counts([found(V1_2, 2048..end, 9), found(V1_0, 4096..end, 1)]), V1_2);
    assert_eq!(of_device([]), None);
}

/// In an array of 1.0 a user's data lie where others have their superblocks.
#[test]
fn of_two_superblocks_in_each_others_data_the_one_of_the_wanted_array_counts() {
    use MetadataVersion::{V1_0, V1_2};
    let end = found(V1_0, 0..64, 1).place.sector;
    let of = |uuid, superblock| Superblock { set_uuid: uuid, ..superblock };
    let [one, other, third] = [1, 2, 3].map(|byte| mdspace_format::Uuid([byte; 16]));
    let front = of(one, found(V1_2, 2048..end + 16, 1));
    let back = of(other, found(V1_0, 0..end, 9));
    let cases = [
        (None, &front, &back),
        (Some(third), &front, &back),
        (Some(one), &front, &back),
        (Some(other), &back, &front),
    ];
    for (wanted, superblock, rival) in cases {
        let counts = counting([back.clone(), front.clone()], wanted).unwrap();
        assert_eq!((&counts.superblock, counts.rival.as_ref()), (superblock, Some(rival)));
    }
    // Of one array both: the front, as ever.
    let counts = counting([of(other, front.clone()), back.clone()], Some(other)).unwrap();
    assert_eq!(counts.superblock.place, front.place);
    // What lies in the data of the other one, and not the other way round, is data for everybody.
    let data = of(other, found(V1_0, 4096..end, 9));
    let counts = counting([front.clone(), data], Some(other)).unwrap();
    assert_eq!(counts, Counting { superblock: front, rival: None });
}

#[test]
fn a_place_that_cannot_be_read_counts_only_where_no_other_one_has_a_superblock() {
    let there = found(MetadataVersion::V1_2, 2048..4096, 1);
    let places = [Err("bad sector"), Ok(None), Ok(Some(there.clone()))];
    assert_eq!(of_places(places), Ok(Some(there)));
    assert_eq!(of_places([Ok(None), Err("bad sector")]), Err("bad sector"));
    assert_eq!(of_places::<()>([Ok(None)]), Ok(None));
}

#[test]
fn any_bitmap_that_is_encoded_is_parsed_again() {
    for_seeds("any_bitmap_that_is_encoded_is_parsed_again", 200, |random| {
        let mut header = bitmap(random.below(1..2_000_000));
        header.chunk_bytes = 512 << random.below(0..8);
        header.events = random.next();
        header.padding = std::array::from_fn(|_| random.next() as u8);
        let room = header.on_disk_bytes().div_ceil(512);
        assert_eq!(BitmapSuperblock::parse(&header.encode(), room), Ok(header.clone()));

        let mut map = DirtyMap::new(header.chunks());
        let mut dirty = std::collections::BTreeSet::new();
        for _ in 0..random.below(0..300) {
            let chunk = random.below(0..header.chunks());
            assert_eq!(map.set(chunk), dirty.insert(chunk));
            let clean = random.below(0..header.chunks());
            assert_eq!(map.clear(clean), dirty.remove(&clean));
        }
        assert_eq!(map.count(), dirty.len() as u64);
        assert!(map.ranges().flatten().eq(dirty));
        let pages = (0..header.pages()).flat_map(|page| header.encode_page(&map, page));
        assert_eq!(DirtyMap::parse(header.chunks(), &pages.collect::<Vec<_>>()), map);
    });
}

#[test]
fn any_bad_block_log_is_parsed_again_and_agrees_with_a_plain_set() {
    for_seeds("any_bad_block_log_is_parsed_again_and_agrees_with_a_plain_set", 300, |random| {
        let (mut blocks, mut plain) = (BadBlocks::new(), std::collections::BTreeSet::new());
        for _ in 0..random.below(0..60) {
            let start = random.below(0..3000);
            let range = start..start + random.below(0..700);
            if random.one_in(3) {
                blocks.remove(range.clone());
                plain.retain(|sector| !range.contains(sector));
            } else {
                blocks.add(range.clone());
                plain.extend(range);
            }
        }
        let probe = random.below(0..4000);
        let first = plain.range(probe..).next().copied();
        assert_eq!(blocks.first_in(probe..u64::MAX).map(|range| range.start), first);
        let bytes = blocks.encode(8, 0).unwrap();
        assert_eq!(BadBlocks::parse(&bytes, 0), Ok(blocks.clone()));
        assert!(blocks.ranges().iter().cloned().flatten().eq(plain));
    });
}

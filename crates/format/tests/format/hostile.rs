//! Bytes that somebody made: any value in any field, torn writes, flipped bits.

use mdspace_format::superblock::{self, SuperblockErrorKind};
use mdspace_format::{
    BitmapSuperblock, Field, MetadataVersion, Superblock, SuperblockError, bitmap,
};

use crate::fuzzed::{check_superblock, set_checksum};
use crate::seeded::for_seeds;
use crate::specimen::{self, Specimen};

/// Values at the ends of every width, and where sums begin to overflow.
const EXTREMES: [u64; 18] = [
    0,
    1,
    2,
    7,
    8,
    9,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fff8,
    0xffff_ffff,
    1 << 54,
    (1 << 63) - 8,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

fn put(bytes: &mut [u8], field: &Field, value: u64) {
    let value = value.to_le_bytes();
    for (index, byte) in bytes[field.offset..][..field.bytes].iter_mut().enumerate() {
        *byte = value[index % 8];
    }
}

fn exercise(bytes: &[u8], specimen: &Specimen) -> Result<Superblock, SuperblockError> {
    check_superblock(bytes, specimen.superblock.place, specimen.device_sectors)
}

#[test]
fn any_extreme_value_in_any_field_is_valid_or_a_clear_error() {
    for version in MetadataVersion::PROBE_ORDER {
        let specimen = Specimen::raid6(version);
        let (mut valid, mut refused) = (0, 0);
        for field in superblock::FIELDS {
            for value in EXTREMES {
                let mut bytes = specimen.superblock.encode();
                put(&mut bytes, field, value);
                set_checksum(&mut bytes);
                match exercise(&bytes, &specimen) {
                    Ok(_) => valid += 1,
                    Err(error) => {
                        assert_ne!(error.kind(), SuperblockErrorKind::Damaged, "{field:?} {error}");
                        refused += 1;
                    }
                }
            }
        }
        assert!(valid > 100 && refused > 100, "{version}: {valid} valid, {refused} refused");
    }
}

#[test]
fn any_two_extreme_values_together_are_valid_or_a_clear_error() {
    let specimen = Specimen::raid6(MetadataVersion::V1_2);
    let fields = superblock::FIELDS.iter().filter(|field| field.name != "magic");
    let good = specimen.superblock.encode();
    for (index, first) in fields.clone().enumerate() {
        for second in fields.clone().skip(index + 1) {
            for (a, b) in EXTREMES.into_iter().flat_map(|a| EXTREMES.map(|b| (a, b))) {
                let mut bytes = good[..512].to_vec();
                put(&mut bytes, first, a);
                put(&mut bytes, second, b);
                set_checksum(&mut bytes);
                let _ = exercise(&bytes, &specimen);
            }
        }
    }
}

#[test]
fn each_impossible_value_is_refused_by_the_name_of_its_field() {
    let table: &[(&str, u64, &str)] = &[
        ("events", u64::MAX, "events"),
        ("events", u64::MAX - 1, "events"),
        ("dev_number", 5000, "dev_number"),
        ("dev_number", u64::from(u32::MAX), "dev_number"),
        ("logical_block_size", 1536, "logical_block_size"),
        ("logical_block_size", 8192, "logical_block_size"),
        ("logical_block_size", 4_294_966_784, "logical_block_size"),
        ("feature_map", 1 | 1024, "feature_map"),
        ("feature_map", 1024 | 2048, "feature_map"),
        ("feature_map", 512 | 2048, "feature_map"),
        ("feature_map", 4096, "feature_map"),
        ("level", 3, "level"),
        ("level", -4i64 as u64, "level"),
        ("size", 0, "size"),
        ("size", 1 << 21, "size"),
        ("chunksize", 0, "chunksize"),
        ("chunksize", 4, "chunksize"),
        ("chunksize", 1000, "chunksize"),
        ("raid_disks", 0, "raid_disks"),
        ("raid_disks", 1921, "raid_disks"),
        ("bitmap_offset", 0, "bitmap_offset"),
        ("bitmap_offset", -9i64 as u64, "bitmap_offset"),
        ("bitmap_offset", 1 << 22, "bitmap_offset"),
        ("bitmap_offset", 1 << 20, "bitmap_offset"),
        ("data_offset", 8, "data_offset"),
        ("data_offset", u64::MAX, "data_size"),
        ("data_size", 9, "data_size"),
        ("data_size", 1 << 21, "data_size"),
        ("bblog_offset", 8, "bblog_offset"),
        ("bblog_offset", -1i64 as u64, "bblog_offset"),
        ("bblog_size", 9, "bblog_size"),
        ("bblog_shift", 10, "bblog_shift"),
        ("max_dev", 1921, "max_dev"),
        ("max_dev", u64::MAX, "max_dev"),
    ];
    let specimen = Specimen::raid6(MetadataVersion::V1_2);
    for (name, value, blamed) in table {
        let field = superblock::FIELDS.iter().find(|field| field.name == *name).unwrap();
        let mut bytes = specimen.superblock.encode();
        put(&mut bytes, field, *value);
        set_checksum(&mut bytes);
        let error = exercise(&bytes, &specimen).expect_err(&format!("{name} {value}"));
        assert_eq!(error.kind(), SuperblockErrorKind::Impossible, "{name} {value}: {error}");
        assert!(error.to_string().contains(&format!("field {blamed} is")), "{name}: {error}");
    }
}

#[test]
fn a_superblock_of_a_smaller_or_another_device_is_refused() {
    let Specimen { superblock, device_sectors } = Specimen::raid6(MetadataVersion::V1_2);
    let error = Superblock::parse(&superblock.encode(), superblock.place, device_sectors - 1);
    assert_eq!(error.unwrap_err().kind(), SuperblockErrorKind::Impossible);
    let mut elsewhere = superblock.place;
    elsewhere.sector += 8;
    let error = Superblock::parse(&superblock.encode(), elsewhere, device_sectors).unwrap_err();
    assert_eq!(error, SuperblockError::Misplaced { recorded: 8, found_at: 16 });
    assert_eq!(error.kind(), SuperblockErrorKind::Absent);
}

/// Power fails while an update is written: any of its sectors are there, and the others are those of the update
/// before.
#[test]
fn a_superblock_torn_at_any_sector_is_refused() {
    let mut old = Specimen::raid6(MetadataVersion::V1_2);
    // All the roles that fit: 4096 bytes, eight sectors.
    old.superblock.roles.resize(superblock::MAX_ROLES, mdspace_format::Role::Spare);
    let mut new = old.clone();
    new.superblock.events += 1;
    // The second half of the first sector is roles; so is the rest.
    for sector in 1..8 {
        new.superblock.roles[sector * 256 - 128 + sector] = mdspace_format::Role::Faulty;
    }
    let (before, after) = (old.superblock.encode(), new.superblock.encode());
    let differs = |(old, new): (&[u8], &[u8])| old != new;
    assert!(before.chunks(512).zip(after.chunks(512)).all(differs), "each sector tells");
    for lands in 1..0xff_u8 {
        let sectors = before.chunks(512).zip(after.chunks(512)).enumerate();
        let torn =
            sectors.map(|(sector, (old, new))| if lands >> sector & 1 == 1 { new } else { old });
        let torn = torn.collect::<Vec<_>>().concat();
        let error = exercise(&torn, &new).unwrap_err();
        assert_eq!(error.kind(), SuperblockErrorKind::Damaged, "{lands:#x} landed: {error}");
    }
    assert!(
        exercise(&before, &new).is_ok() && exercise(&after, &new).is_ok(),
        "a whole one is not"
    );
}

#[test]
fn a_flipped_bit_anywhere_is_noticed() {
    let specimen = Specimen::raid6(MetadataVersion::V1_2);
    let good = specimen.superblock.encode();
    for bit in 0..specimen.superblock.length_bytes() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(exercise(&bytes, &specimen).is_err(), "bit {bit}");
    }
}

#[test]
fn a_mutated_superblock_with_a_right_checksum_never_panics() {
    for_seeds("a_mutated_superblock_with_a_right_checksum_never_panics", 20_000, |random| {
        let specimen = Specimen::random(random);
        let mut bytes = specimen.superblock.encode();
        for _ in 0..random.below(1..6) {
            let field = random.pick(superblock::FIELDS);
            let value = if random.one_in(2) { random.pick(&EXTREMES) } else { random.next() };
            if field.name != "magic" && field.name != "super_offset" {
                put(&mut bytes, &field, value);
            }
        }
        set_checksum(&mut bytes);
        let _ = exercise(&bytes, &specimen);
    });
}

#[test]
fn any_extreme_values_in_a_bitmap_header_are_valid_or_a_clear_error() {
    let good = specimen::bitmap(200_000).encode();
    for (index, first) in bitmap::FIELDS.iter().enumerate() {
        for second in &bitmap::FIELDS[index..] {
            for (a, b) in EXTREMES.into_iter().flat_map(|a| EXTREMES.map(|b| (a, b))) {
                let mut bytes = good;
                put(&mut bytes, first, a);
                put(&mut bytes, second, b);
                if let Ok(parsed) = BitmapSuperblock::parse(&bytes, 256) {
                    assert!(parsed.on_disk_bytes() <= 256 * 512, "{parsed:?}");
                    assert_eq!(parsed.encode(), bytes);
                }
            }
        }
    }
}

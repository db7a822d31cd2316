use super::*;
use crate::MetadataVersion;

const DEVICE_SECTORS: u64 = 1 << 21;

/// A superblock as mdadm makes it for slot 1 of a RAID6 of four.
fn raid6(version: MetadataVersion) -> Superblock {
    let place = version.place(DEVICE_SECTORS).unwrap();
    let front = version != MetadataVersion::V1_0;
    Superblock {
        place,
        features: Features::BITMAP_OFFSET,
        set_uuid: Uuid([7; 16]),
        set_name: SetName::new("host:home").unwrap(),
        ctime: Timestamp::from_seconds(1_700_000_000),
        level: Level::Raid6,
        layout: 2,
        size_sectors: DEVICE_SECTORS - 8192,
        chunk_sectors: 1024,
        raid_disks: 4,
        bitmap_offset_sectors: if front { 8 } else { -16 },
        reshape: Reshape::default(),
        data_offset_sectors: if front { 4096 } else { 0 },
        data_size_sectors: DEVICE_SECTORS - 4096,
        recovery_offset_sectors: None,
        journal_tail_sector: 0,
        dev_number: 1,
        corrected_reads: 3,
        device_uuid: Uuid([9; 16]),
        flags: MemberFlags(MemberFlags::FAIL_FAST),
        bad_block_log: Some(BadBlockLogPlace {
            offset_sectors: if front { 16 } else { -8 },
            size_sectors: 8,
            shift: 0,
        }),
        utime: Timestamp::from_seconds(1_700_000_100),
        events: 42,
        resync_offset_sectors: RESYNC_NONE,
        logical_block_size_bytes: 0,
        roles: (0..128).map(|n| if n < 4 { Role::Slot(n) } else { Role::Spare }).collect(),
        padding: Padding::default(),
    }
}

fn parse(superblock: &Superblock) -> Result<Superblock, SuperblockError> {
    Superblock::parse(&superblock.encode(), superblock.place, DEVICE_SECTORS)
}

#[test]
fn what_is_encoded_is_parsed_again_in_every_version() {
    for version in MetadataVersion::PROBE_ORDER {
        let superblock = raid6(version);
        assert_eq!(parse(&superblock), Ok(superblock), "{version}");
    }
}

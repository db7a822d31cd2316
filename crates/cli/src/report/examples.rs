//! Arrays that the tests of the renderings draw.

use std::time::Duration;

use mdspace_engine::balance::Load;
use mdspace_engine::status::{ConsistencyPolicy, SyncAction, SyncEnd, WriteBehindStatus};
use mdspace_format::{Level, MetadataVersion, Uuid};

use super::*;

/// A clean RAID6 of six files on host `host`.
pub(crate) fn clean_raid6() -> Report {
    report(&clean_status())
}

/// What the engine says of it.
pub(crate) fn clean_status() -> ArrayStatus {
    raid6((0..6).map(|slot| member(slot, MemberState::InSync, Some(slot))).collect())
}

/// The same array with slot 1 failed, slot 2 missing, and a spare a quarter rebuilt into slot 1.
pub(crate) fn rebuilding_raid6() -> Report {
    report(&rebuilding_status())
}

/// What the engine says of it.
pub(crate) fn rebuilding_status() -> ArrayStatus {
    let mut members: Vec<_> =
        [0, 3, 4, 5].map(|slot| member(slot, MemberState::InSync, Some(slot))).into();
    members.push(member(1, MemberState::Faulty, None));
    members.push(member(6, MemberState::Recovering, Some(1)));
    let mut status = raid6(members);
    status.state = ArrayState::Active;
    status.sync.action = SyncAction::Recover;
    status.sync.completed_sectors = 51_200;
    status.sync.total_sectors = 204_800;
    status.sync.speed_kib_s = 12_800;
    status
}

/// The same array, where the file system of the spare is full.
pub(crate) fn raid6_without_space() -> Report {
    let mut status = rebuilding_status();
    status.members[5].lacks_space = true;
    status.sync = SyncStatus {
        last_action: SyncAction::Recover,
        last_end: Some(SyncEnd::NoSpace),
        ..clean_status().sync
    };
    report(&status)
}

/// A RAID1 of two members, the second of which limps.
pub(crate) fn limping_raid1() -> Report {
    report(&mirror_status([184, 7_360]))
}

/// What the engine says of a RAID1 whose members answer reads after so many microseconds; from
/// 1000 on one limps.
pub(crate) fn mirror_status(service_us: [u64; 2]) -> ArrayStatus {
    let members = [0, 1].map(|slot| MemberStatus {
        load: Some(Load {
            reads: [900, 100][slot as usize],
            read_bytes: [900, 100][slot as usize] * 4096,
            writes: 50,
            pending: u64::from(slot),
            errors: 0,
            service: Duration::from_micros(service_us[slot as usize]),
            limps: service_us[slot as usize] >= 1000,
        }),
        ..member(slot, MemberState::InSync, Some(slot))
    });
    ArrayStatus {
        level: Level::Raid1,
        layout: 0,
        write_behind: Some(WriteBehindStatus { limit: 256, under_way: 3 }),
        chunk_sectors: 0,
        raid_disks: 2,
        size_sectors: 204_800,
        ..raid6(members.into())
    }
}

fn report(status: &ArrayStatus) -> Report {
    let workers = WorkersReport::default();
    let fronts = vec![FrontReport {
        address: "nbd:unix:/tmp/data.sock".into(),
        device: None,
        uri: Some("nbd+unix:///?socket=/tmp/data.sock".into()),
        clients: vec![],
    }];
    Report {
        multipath: Vec::new(),
        schema: SCHEMA,
        name: "data".into(),
        array: status.into(),
        fronts,
        workers,
        stripe_cache_bytes: 0,
        pid: 42,
        version: "1.2.3".to_owned(),
    }
}

fn raid6(members: Vec<MemberStatus>) -> ArrayStatus {
    ArrayStatus {
        uuid: "01234567:89abcdef:01234567:89abcdef".parse().expect("a good uuid"),
        name: "host:data".into(),
        metadata: MetadataVersion::V1_2,
        created_s: 1_795_176_000,
        updated_s: 1_795_176_060,
        events: 17,
        level: Level::Raid6,
        layout: 2,
        chunk_sectors: 1024,
        raid_disks: 6,
        size_sectors: 819_200,
        member_sectors: 204_800,
        logical_block_bytes: 512,
        state: ArrayState::Clean,
        consistency_policy: ConsistencyPolicy::Bitmap,
        bitmap: Some(BitmapStatus {
            chunk_bytes: 64 << 20,
            dirty_bits: 1,
            total_bits: 2,
            dirty_pages: 1,
        }),
        write_behind: None,
        sync: SyncStatus {
            action: SyncAction::Idle,
            last_action: SyncAction::Resync,
            completed_sectors: 0,
            total_sectors: 0,
            delayed: false,
            waiting: None,
            speed_kib_s: 0,
            last_end: None,
            skipped: Skipped::default(),
        },
        mismatch_sectors: 0,
        mismatches: Default::default(),
        lost: Skipped::default(),
        doubted: Skipped::default(),
        members,
    }
}

fn member(number: u32, state: MemberState, slot: Option<u32>) -> MemberStatus {
    MemberStatus {
        name: format!("/none/m{number}"),
        number,
        device_uuid: Uuid([number as u8; 16]),
        slot,
        state,
        is_lost: false,
        write_mostly: false,
        late: false,
        lacks_space: false,
        failfast: false,
        corrected_errors: 0,
        recovery_offset_sectors: if state == MemberState::Recovering { 51_200 } else { 0 },
        replacement: false,
        want_replacement: false,
        bad_ranges: 0,
        data_offset_sectors: 4096,
        size_sectors: 208_896,
        load: None,
    }
}

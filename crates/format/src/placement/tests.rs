use super::*;

const GIB: u64 = 1 << 21;

fn request(version: MetadataVersion) -> Request {
    Request {
        version,
        level: Level::Raid6,
        layout: 2,
        chunk_sectors: 1024,
        raid_disks: 4,
        size_sectors: None,
        data_offset_sectors: None,
        bitmap: BitmapRequest::Internal { chunk_bytes: None },
    }
}

#[test]
fn large_members_leave_128_mib_of_headroom() {
    let placement = ArrayPlacement::new(&request(MetadataVersion::V1_2), &[300 * GIB; 4]).unwrap();
    assert_eq!(placement.data_offset_sectors, 264192);
    let bitmap = placement.bitmap.unwrap();
    assert_eq!((bitmap.offset_sectors, bitmap.chunk_bytes), (8, 64 << 20));
}

#[test]
fn a_device_too_small_is_an_error_in_every_version() {
    for version in MetadataVersion::PROBE_ORDER {
        for sectors in [0, 1, 23, 24, 100] {
            let error = ArrayPlacement::new(&request(version), &[sectors; 4]).unwrap_err();
            assert!(
                matches!(error, PlacementError::TooSmall { .. }),
                "{version} {sectors}: {error}"
            );
        }
    }
}

use super::*;

/// An llbitmap by its description: chunks of 128 sectors, one byte each from byte 1024 on.
fn bytes(sync_size: u64, states: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xff; 1024];
    bytes[..256].fill(0);
    bytes[..8].copy_from_slice(&[b'b', b'i', b't', b'm', 6, 0, 0, 0]);
    bytes[24] = 17;
    bytes[40..48].copy_from_slice(&sync_size.to_le_bytes());
    bytes[52..56].copy_from_slice(&128u32.to_le_bytes());
    bytes[56] = 30;
    bytes.extend(states);
    bytes
}

fn refused_field(bytes: &[u8]) -> &'static str {
    match LocklessBitmap::parse(bytes) {
        Err(BitmapError::Impossible { field, .. }) => field,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_chunks_of_each_state_are_counted_and_none_beyond_the_end() {
    let states = [0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0xff, 3];
    let bitmap = LocklessBitmap::parse(&bytes(11 * 128 - 5, &states)).unwrap();
    let chunks = bitmap.chunks.unwrap();
    assert_eq!((bitmap.events, chunks.chunk_sectors, chunks.total()), (17, 128, 11));
    let counts: Vec<u32> = chunks.counts().map(|(_, count)| count).collect();
    assert_eq!(counts, [1, 2, 1, 1, 1, 1, 1, 1, 2]);
    let some = LocklessBitmap::parse(&bytes(3 * 128, &[3, 1, 3])).unwrap();
    assert_eq!(some.to_string(), "of its 3 chunks 1 clean, 2 need sync");
}

#[test]
fn a_bitmap_that_no_kernel_has_started_has_no_chunks_to_count() {
    let mut new = bytes(1 << 40, &[]);
    new[48] = 8;
    new[52..56].copy_from_slice(&67_108_864u32.to_le_bytes());
    let bitmap = LocklessBitmap::parse(&new).unwrap();
    assert_eq!(bitmap.chunks, None);
    assert!(bitmap.to_string().contains("no kernel has started"), "{bitmap}");
}

#[test]
fn sizes_that_cannot_be_are_refused_by_name() {
    assert_eq!(refused_field(&bytes(0, &[1])), "sync_size");
    assert_eq!(refused_field(&bytes(129, &[1])), "sync_size");
    assert_eq!(refused_field(&bytes(u64::MAX, &[1])), "sync_size");
    for chunk in [0u32, 64, 129, u32::MAX] {
        let mut odd = bytes(128, &[1]);
        odd[52..56].copy_from_slice(&chunk.to_le_bytes());
        assert_eq!(refused_field(&odd), "chunksize", "{chunk}");
    }
    let most = usize::try_from(CHUNKS_MAX).unwrap();
    let full = bytes(CHUNKS_MAX * 128, &vec![1; most]);
    assert_eq!(full.len() as u64, LOCKLESS_SECTORS_MAX * 512);
    assert_eq!(LocklessBitmap::parse(&full).unwrap().chunks.unwrap().total(), CHUNKS_MAX);
    let many = bytes(CHUNKS_MAX * 128 + 1, &vec![1; most + 1]);
    assert_eq!(refused_field(&many), "sync_size");
}

#[test]
fn bytes_of_another_kind_are_no_llbitmap() {
    let good = bytes(128, &[1]);
    let of = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        LocklessBitmap::parse(&bytes).unwrap_err()
    };
    assert!(matches!(of(0, 0), BitmapError::NoMagic { .. }));
    assert!(matches!(of(4, 5), BitmapError::Version { version: 5, .. }));
    assert_eq!(LocklessBitmap::parse(&good[..255]), Err(BitmapError::Short { have: 255 }));
}

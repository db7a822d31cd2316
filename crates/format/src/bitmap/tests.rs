use super::*;

fn bitmap(sync_size_sectors: u64) -> BitmapSuperblock {
    BitmapSuperblock {
        version: BitmapVersion::LittleEndian,
        uuid: Uuid([3; 16]),
        events: 17,
        events_cleared: 12,
        sync_size_sectors,
        state: BitmapState(0),
        chunk_bytes: 4096,
        daemon_sleep_seconds: 5,
        write_behind: 256,
        sectors_reserved: 0,
        padding: [0; 188],
    }
}

#[test]
fn a_header_that_is_encoded_is_parsed_again() {
    let bitmap = bitmap(1_000_000);
    assert_eq!(BitmapSuperblock::parse(&bitmap.encode(), 256), Ok(bitmap));
}

#[test]
fn clustered_and_lockless_bitmaps_are_refused_by_name() {
    for (version, name) in [(5, "clustered"), (6, "llbitmap, Linux 6.18 and later"), (7, "unknown")]
    {
        let mut bytes = bitmap(800).encode();
        bytes[4] = version;
        let error = BitmapSuperblock::parse(&bytes, 256).unwrap_err();
        assert_eq!(error, BitmapError::Version { version: version.into(), name });
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn bits_that_do_not_fit_in_the_room_are_refused() {
    let bits = (4096 - 256) * 8;
    let fits = bitmap(bits * 8);
    assert_eq!(BitmapSuperblock::parse(&fits.encode(), 8), Ok(fits));
    let error = BitmapSuperblock::parse(&bitmap(bits * 8 + 1).encode(), 8).unwrap_err();
    assert!(matches!(error, BitmapError::Impossible { field: "sync_size", .. }), "{error}");
}

#[test]
fn a_bitmap_of_another_array_or_an_older_update_does_not_speak_for_it() {
    let mut bitmap = bitmap(800);
    let uuid = bitmap.uuid;
    assert!(bitmap.speaks_for(uuid, 17));
    assert!(bitmap.speaks_for(uuid, 16));
    assert!(!bitmap.speaks_for(uuid, 18));
    assert!(!bitmap.speaks_for(Uuid::NIL, 17));
    bitmap.state = BitmapState(BitmapState::STALE);
    assert!(!bitmap.speaks_for(uuid, 17));
}

#[test]
fn bit_k_is_bit_k_mod_8_of_byte_256_plus_k_over_8() {
    let bitmap = bitmap(100_000 * 8);
    for chunk in [0, 1, 7, 8, 63, 64, 30_719, 30_720, 63_487, 63_488, 99_999] {
        let mut map = DirtyMap::new(bitmap.chunks());
        assert!(map.set(chunk), "it was clear");
        assert!(!map.set(chunk), "it was set");
        let byte = 256 + chunk / 8;
        assert_eq!(DirtyMap::page_of(chunk), byte / 4096);
        assert!(map.chunks_of_page(byte / 4096).contains(&chunk));
        let page = bitmap.encode_page(&map, byte / 4096);
        assert_eq!(page[(byte % 4096) as usize], 1 << (chunk % 8), "chunk {chunk}");
        let others = (0..bitmap.pages()).filter(|page| *page != byte / 4096);
        for page in others {
            assert_eq!(map.encode_page(page), [0; PAGE_BYTES], "chunk {chunk} page {page}");
        }
    }
}

#[test]
fn a_map_that_is_encoded_is_parsed_again_and_what_is_not_read_is_dirty() {
    let bitmap = bitmap(100_000 * 8);
    let mut map = DirtyMap::new(bitmap.chunks());
    [0, 5, 6, 30_719, 30_720, 99_999].into_iter().for_each(|chunk| {
        map.set(chunk);
    });
    let bytes: Vec<u8> =
        (0..bitmap.pages()).flat_map(|page| bitmap.encode_page(&map, page)).collect();
    assert_eq!(DirtyMap::parse(bitmap.chunks(), &bytes), map);
    let torn = DirtyMap::parse(bitmap.chunks(), &bytes[..4096 + 1]);
    assert_eq!(torn.count(), 5 + (100_000 - 30_720 - 8));
    assert!(torn.test(99_998));
}

#[test]
fn runs_of_dirty_chunks_come_out_in_order() {
    let mut map = DirtyMap::new(200);
    assert_eq!(map.ranges().count(), 0);
    for chunk in [0, 1, 2, 62, 63, 64, 65, 130, 199] {
        map.set(chunk);
    }
    assert_eq!(map.ranges().collect::<Vec<_>>(), [0..3, 62..66, 130..131, 199..200]);
    map.set_all();
    assert_eq!((map.count(), map.ranges().next()), (200, Some(0..200)));
    assert!(map.clear(100));
    assert_eq!(map.ranges().collect::<Vec<_>>(), [0..100, 101..200]);
}

#[test]
fn chunks_and_sectors_map_to_each_other_and_stop_at_the_end() {
    let bitmap = bitmap(83);
    assert_eq!(bitmap.chunks(), 11);
    assert_eq!(bitmap.chunks_of(0..1), 0..1);
    assert_eq!(bitmap.chunks_of(7..9), 0..2);
    assert_eq!(bitmap.chunks_of(8..8), 1..1);
    assert_eq!(bitmap.chunks_of(80..u64::MAX), 10..11);
    assert_eq!(bitmap.sectors_of(10..11), 80..83);
}

#[test]
fn only_the_last_page_is_shorter_than_a_page() {
    let bitmap = bitmap((4096 - 256 + 1) * 8 * 8);
    assert_eq!(bitmap.pages(), 2);
    assert_eq!((bitmap.page_bytes(0), bitmap.page_bytes(1), bitmap.page_bytes(2)), (4096, 512, 0));
}

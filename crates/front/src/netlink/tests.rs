use super::*;

/// The bytes of integers by hand: this host's are little-endian, as all that mdspace is built for.
#[cfg(target_endian = "little")]
#[test]
fn a_message_has_its_headers_and_attributes_at_the_kernels_offsets() {
    let inner = Attributes::default().u32(1, 5);
    let attributes = Attributes::default()
        .u64(2, 0x0102_0304_0506_0708)
        .text(10, "ab")
        .nest(7, &Attributes::default().nest(1, &inner));
    let expected = [
        &[56, 0, 0, 0][..],            // whole length
        &[0x1b, 0, 5, 0],              // family; request with an end
        &[9, 0, 0, 0, 0, 0, 0, 0],     // sequence; port
        &[3, 1, 0, 0],                 // command; version
        &[12, 0, 2, 0],                // 8 bytes of kind 2
        &[8, 7, 6, 5, 4, 3, 2, 1],     //
        &[7, 0, 10, 0, b'a', b'b', 0], // 3 bytes of kind 10
        &[0],                          // filled up
        &[16, 0, 7, 0],                // kind 7, which has
        &[12, 0, 1, 0],                // kind 1, which has
        &[8, 0, 1, 0, 5, 0, 0, 0],     // kind 1
    ]
    .concat();
    assert_eq!(message(0x1b, 3, 1, 9, &attributes), expected);
}

/// An answer of the kernel: an index, and the end behind it.
#[cfg(target_endian = "little")]
fn answer(errno: i32) -> Vec<u8> {
    let mut bytes = vec![28, 0, 0, 0, 0x1b, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 1, 1, 0, 0];
    bytes.extend([8, 0, 1, 0, 3, 0, 0, 0]);
    bytes.extend([36, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0]);
    bytes.extend((-errno).to_le_bytes());
    bytes.extend([0; 16]);
    bytes
}

#[cfg(target_endian = "little")]
#[test]
fn an_answer_gives_its_attributes_and_its_end() {
    let bytes = answer(22);
    let mut found = parts(&bytes);
    let Some(Some(Part::Answer(attributes))) = found.next() else { panic!("no answer") };
    assert_eq!(attributes.find(1), Some(&[3, 0, 0, 0][..]));
    assert_eq!(attributes.find(2), None);
    assert_eq!(found.next(), Some(Some(Part::End(22))));
    assert_eq!(found.next(), None);
}

#[cfg(target_endian = "little")]
#[test]
fn what_is_cut_off_is_no_answer_and_ends_nothing() {
    for cut in 1..answer(0).len() {
        let bytes = &answer(0)[..cut];
        let whole = parts(bytes).flatten().any(|part| matches!(part, Part::End(_)));
        assert!(!whole, "an end in {cut} bytes");
        assert!(parts(bytes).count() <= 2);
    }
    let mut wrong = answer(0);
    wrong[..4].copy_from_slice(&3u32.to_ne_bytes());
    assert_eq!(parts(&wrong).collect::<Vec<_>>(), [None], "shorter than its header");
}

#[test]
fn an_attribute_that_is_longer_than_the_message_is_not_found() {
    let long = Attributes(vec![9, 0, 1, 0, 1, 2, 3, 4]);
    assert_eq!(long.find(1), None);
    let short = Attributes([[2, 0, 1, 0], [8, 0, 1, 0]].concat());
    assert_eq!(short.find(1), None, "shorter than its own header");
}

#[test]
fn a_family_that_no_driver_has_is_not_found() {
    let Err(error) = Family::find("mdspace-none", 1) else { panic!("there is no such family") };
    // Where generic netlink itself is forbidden, as in a sandbox, nothing can be asked.
    let kinds = [io::ErrorKind::NotFound, io::ErrorKind::PermissionDenied];
    assert!(kinds.contains(&error.kind()) || error.raw_os_error() == Some(93), "{error}");
}

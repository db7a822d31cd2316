use super::*;

#[test]
fn a_uuid_prints_as_four_colon_groups_and_reads_back() {
    let uuid = Uuid(*b"\x01\x23\x45\x67\x89\xab\xcd\xef\xfe\xdc\xba\x98\x76\x54\x32\x10");
    let text = "01234567:89abcdef:fedcba98:76543210";
    assert_eq!(uuid.to_string(), text);
    assert_eq!(text.parse(), Ok(uuid));
    assert_eq!("01234567-89ab-cdef-fedc-ba9876543210".parse(), Ok(uuid));
    assert_eq!("0123456789ABCDEFFEDCBA9876543210".parse(), Ok(uuid));
}

#[test]
fn text_with_other_than_32_digits_is_refused() {
    for text in ["", "01", "0123456789abcdeffedcba987654321", "0123456789abcdeffedcba98765432100"] {
        assert!(text.parse::<Uuid>().is_err(), "{text:?}");
    }
    let error = "x123456789abcdeffedcba9876543210".parse::<Uuid>().unwrap_err();
    assert!(error.to_string().contains("x1234"), "{error}");
}

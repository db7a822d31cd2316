use super::*;

#[test]
fn every_layout_word_names_its_number_again() {
    for level in [0, 5, 6] {
        for layout in -2..32 {
            if let Some(word) = layout_word(level, layout) {
                assert_eq!(layout_number(level, &word), Some(layout), "level {level} {word}");
            }
        }
    }
}

#[test]
fn raid10_words_are_mdadms() {
    for (word, number, printed) in [
        ("n2", 0x102, "near=2"),
        ("n3", 0x103, "near=3"),
        ("f2", 0x201, "far=2"),
        ("o2", 0x1_0201, "offset=2"),
    ] {
        assert_eq!(layout_number(10, word), Some(number));
        assert_eq!(layout_word(10, number).as_deref(), Some(printed));
    }
    for bad in ["n", "n0", "x2", "n256", "é2", ""] {
        assert_eq!(layout_number(10, bad), None, "{bad:?}");
    }
}

#[test]
fn a_layout_of_raid6_is_none_of_raid5() {
    assert_eq!(layout_number(6, "left-symmetric-6"), Some(18));
    assert_eq!(layout_number(5, "left-symmetric-6"), None);
    assert_eq!(layout_number(5, "18"), None);
    assert_eq!(layout_number(5, "ls"), Some(2));
    assert_eq!(layout_number(1, "ls"), None);
}

#[test]
fn levels_have_mdadms_words() {
    assert_eq!(level_number("6"), Some(6));
    assert_eq!(level_number("mirror"), Some(1));
    assert_eq!(level_number("raid7"), None);
    assert_eq!(level_word(10), "raid10");
    assert_eq!(level_word(7), "unknown");
}

#[test]
fn a_uuid_is_four_groups_in_byte_order() {
    let uuid = uuid_of("01234567:89abcdef:01234567:89abcdef").expect("a good uuid");
    assert_eq!(uuid[..4], [0x01, 0x23, 0x45, 0x67]);
    assert_eq!(uuid_text(&uuid), "01234567:89abcdef:01234567:89abcdef");
    assert_eq!(uuid_of("01234567-89ab-cdef-0123-456789abcdef"), Ok(uuid));
    for bad in ["", "0123", "zz234567:89abcdef:01234567:89abcdef", "ééééééééééééééééé"]
    {
        assert!(uuid_of(bad).is_err(), "{bad:?}");
    }
}

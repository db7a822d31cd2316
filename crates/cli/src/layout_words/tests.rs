use super::*;

#[test]
fn every_layout_word_names_its_number_again() {
    for level in [Level::Raid0, Level::Raid5, Level::Raid6] {
        for layout in 0..32 {
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
        assert_eq!(layout_number(Level::Raid10, word), Some(number));
        assert_eq!(layout_word(Level::Raid10, number).as_deref(), Some(printed));
    }
    for bad in ["n", "n0", "x2", "n256", "é2", ""] {
        assert_eq!(layout_number(Level::Raid10, bad), None, "{bad:?}");
    }
}

#[test]
fn a_layout_of_raid6_is_none_of_raid5() {
    assert_eq!(layout_number(Level::Raid6, "left-symmetric-6"), Some(18));
    assert_eq!(layout_number(Level::Raid5, "left-symmetric-6"), None);
    assert_eq!(layout_number(Level::Raid5, "18"), None);
    assert_eq!(layout_number(Level::Raid5, "ls"), Some(2));
    assert_eq!(layout_number(Level::Raid1, "ls"), None);
}

#[test]
fn the_list_of_layouts_has_every_word_of_a_level() {
    for level in [Level::Raid0, Level::Raid5, Level::Raid6] {
        let words = (0..=20).filter_map(|layout| layout_word(level, layout));
        for word in words.filter(|word| !word.ends_with("-6")) {
            assert!(list(level).contains(&word), "{level}: {word}");
        }
    }
    for word in ["n2", "f2", "o2"] {
        assert!(list(Level::Raid10).contains(word) && layout_number(Level::Raid10, word).is_some());
    }
}

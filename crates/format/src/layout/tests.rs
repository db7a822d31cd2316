use super::*;

#[test]
fn every_layout_word_names_its_number_again() {
    for level in [Level::Raid0, Level::Raid5, Level::Raid6] {
        for layout in 0..32 {
            if let Some(named) = word(level, layout) {
                assert_eq!(number(level, &named), Some(layout), "level {level} {named}");
            }
        }
    }
}

#[test]
fn raid10_words_are_mdadms() {
    for (given, layout, printed) in [
        ("n2", 0x102, "near=2"),
        ("n3", 0x103, "near=3"),
        ("f2", 0x201, "far=2"),
        ("o2", 0x1_0201, "offset=2"),
    ] {
        assert_eq!(number(Level::Raid10, given), Some(layout));
        assert_eq!(word(Level::Raid10, layout).as_deref(), Some(printed));
    }
    for bad in ["n", "n0", "x2", "n256", "é2", ""] {
        assert_eq!(number(Level::Raid10, bad), None, "{bad:?}");
    }
}

#[test]
fn a_layout_of_raid6_is_none_of_raid5() {
    assert_eq!(number(Level::Raid6, "left-symmetric-6"), Some(18));
    assert_eq!(number(Level::Raid5, "left-symmetric-6"), None);
    assert_eq!(number(Level::Raid5, "18"), None);
    assert_eq!(number(Level::Raid5, "ls"), Some(2));
    assert_eq!(number(Level::Raid1, "ls"), None);
}

#[test]
fn the_list_of_layouts_has_every_word_of_a_level() {
    for level in [Level::Raid0, Level::Raid5, Level::Raid6] {
        let words = (0..=20).filter_map(|layout| word(level, layout));
        for named in words.filter(|named| !named.ends_with("-6")) {
            assert!(choices(level).contains(&named), "{level}: {named}");
        }
    }
    for named in ["n2", "f2", "o2"] {
        assert!(choices(Level::Raid10).contains(named) && number(Level::Raid10, named).is_some());
    }
}

#[test]
fn the_layout_without_a_word_is_mdadms() {
    for (level, expected) in [
        (Level::Raid0, Some("original")),
        (Level::Raid5, Some("left-symmetric")),
        (Level::Raid6, Some("left-symmetric")),
        (Level::Raid10, Some("near=2")),
        (Level::Raid1, None),
    ] {
        assert_eq!(word(level, default_number(level)).as_deref(), expected, "{level}");
    }
}

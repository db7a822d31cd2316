use super::*;

#[test]
fn a_word_that_is_no_level_asks_for_nothing() {
    for right in ["debug", "WARN", "mdspace_io=trace", "info,mdspace=debug", "mdspace_engine"] {
        assert!(filter(right).is_some(), "{right}");
    }
    for wrong in ["bogus", "verbose", "info,bogus", "mdspace=loud", "info, ,"] {
        assert!(filter(wrong).is_none(), "{wrong}");
    }
}

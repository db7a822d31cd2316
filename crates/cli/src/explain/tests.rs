use super::{block_words, recovery_words};

#[test]
fn a_recovery_offset_of_all_ones_is_told_as_what_it_means() {
    assert!(recovery_words(u64::MAX).ends_with("all of it is good"));
    assert!(recovery_words(4096).ends_with("its first 2 MiB are good"));
}

#[test]
fn a_recorded_logical_block_names_the_kernels_that_refuse_it() {
    assert_eq!(block_words(0), None);
    let words = block_words(4096).unwrap();
    assert!(words.contains("4096 bytes") && words.contains("up to 6.18"), "{words}");
}

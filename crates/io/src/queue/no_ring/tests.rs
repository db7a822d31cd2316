use super::*;

#[test]
fn a_ring_without_room_in_locked_memory_is_told_as_that_and_nothing_else_is() {
    let told = |errno| explained(&io::Error::from_raw_os_error(errno));
    let (full, forbidden) = (told(libc::ENOMEM), told(libc::EPERM));
    assert!(full.to_string().contains("RLIMIT_MEMLOCK"), "{full}");
    assert!(!full.to_string().contains("io_uring_disabled"), "{full}");
    assert!(is_of_locked_memory(&full) && !is_of_locked_memory(&forbidden));
    assert!(forbidden.to_string().contains("io_uring_disabled"), "{forbidden}");
    assert!(!forbidden.to_string().contains("MEMLOCK"), "{forbidden}");
}

use super::*;

#[test]
fn a_lock_is_told_by_the_device_and_the_inode_number_of_its_file() {
    let line = "12: OFDLCK ADVISORY  WRITE -1 fe:0a:5400036 0 EOF";
    assert!(locks(line, (libc::makedev(0xfe, 0x0a), 5_400_036)));
    assert!(!locks(line, (libc::makedev(0xfe, 0x0b), 5_400_036)));
    assert!(!locks(line, (libc::makedev(0xfe, 0x0a), 5_400_037)));
    assert!(!locks("12: -> FLOCK", (0, 0)) && !locks("", (0, 0)));
}

use super::*;

/// The first words of what the kernel says; the others do not matter here.
fn told(device: u64, inode: u64, is_device: u64) -> Behind {
    let mut status = [9; STATUS_WORDS];
    status[..3].copy_from_slice(&[device, inode, is_device]);
    Behind::of_status(status)
}

#[test]
fn a_loop_device_says_by_numbers_which_file_or_device_it_has() {
    assert_eq!(told(0xfe00, 12, 0), Behind::File((0xfe00, 12)));
    assert_eq!(told(0xfe00, 12, 0xfe00), Behind::File((0xfe00, 12)), "its file system's");
    assert_eq!(told(5, 300, 0x0701), Behind::Device(0x0701));
}

#[test]
fn what_is_no_loop_device_says_nothing() {
    let file = tempfile::tempfile().expect("a temporary file");
    assert!(Behind::of_open(&file).is_err());
    let folder = tempfile::tempdir().expect("a temporary folder");
    let null = folder.path().join("null");
    fs::create_dir(&null).expect("a folder");
    fs::write(null.join("dev"), "1:3\n").expect("a file");
    assert!(Behind::of_place(&null).is_err(), "a character device has this number and name");
    assert!(Backing::of(&null).is_none());
}

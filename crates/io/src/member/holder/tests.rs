//! What the kernel's own notes say.

use std::os::unix::fs::MetadataExt;

use super::*;

#[test]
fn the_mount_of_this_very_directory_is_found() {
    let here = fs::metadata(".").unwrap().dev();
    // On an overlay or a file system without a device of its own there is nothing to find.
    if sysfs(here).is_some() {
        let holder = mounted(|device| device == here).unwrap();
        assert!(holder.who.starts_with("the mount on /"), "{holder:?}");
    }
    assert_eq!(mounted(|device| device == libc::makedev(4095, 1)), None);
}

#[test]
fn the_state_of_a_process_stands_behind_whatever_name_it_has() {
    assert_eq!(state_in("13201 (mdspace) Z 1 13201"), Some('Z'));
    assert_eq!(state_in("7 (a) Z (b) S 1 7"), Some('S'));
    assert_eq!(state_in(""), None);
    assert!(!has_ended(Path::new("/proc/self")));
}

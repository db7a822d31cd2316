use super::*;

#[test]
fn those_who_have_a_file_through_one_loop_device_share_it_and_no_others_do() {
    let file = (u64::from(std::process::id()), u64::MAX);
    let claim = |through, alone| claim(file, through, alone, [7, 8, 9]).expect("sockets");
    let first = claim(7, false);
    let second = claim(7, false);
    assert!(first.is_some() && second.is_some());
    assert!(claim(8, false).is_none() && claim(7, true).is_none() && claim(8, true).is_none());
    assert!(is_claimed(file).expect("a socket"));
    drop(first);
    assert!(claim(8, false).is_none());
    drop(second);
    assert!(!is_claimed(file).expect("a socket"));
    let alone = claim(8, true);
    assert!(alone.is_some() && is_claimed(file).expect("a socket"));
    assert!(claim(8, false).is_none() && claim(8, true).is_none() && claim(7, false).is_none());
    drop(alone);
    assert!(claim(8, false).is_some());
}

#[test]
fn a_lock_is_told_by_the_device_and_the_inode_number_of_its_file() {
    let line = "12: OFDLCK ADVISORY  WRITE -1 fe:0a:5400036 0 EOF";
    let locks = |file| is_in(line, "", file);
    assert!(locks((libc::makedev(0xfe, 0x0a), 5_400_036)));
    assert!(!locks((libc::makedev(0xfe, 0x0b), 5_400_036)));
    assert!(!locks((libc::makedev(0xfe, 0x0a), 5_400_037)));
    assert!(locked("12: -> FLOCK").is_none() && locked("").is_none());
}

/// As btrfs does: `stat` and the loop device tell the number of the subvolume, `/proc/locks` that of the file system.
#[test]
fn a_lock_is_told_by_the_inode_number_where_files_have_other_device_numbers_than_their_file_system()
{
    let mounts = "27 1 254:0 / / rw - ext4 /dev/vda rw\n43 27 0:39 / /b rw - btrfs /dev/loop0 rw\n";
    let told = "1: FLOCK  ADVISORY  WRITE 12691 00:27:257 0 EOF\n2: POSIX ADVISORY WRITE 7 fe:00:300 0 EOF\n";
    let locked = |file| is_in(told, mounts, file);
    let subvolume = libc::makedev(0, 40);
    assert!(locked((subvolume, 257)));
    assert!(!locked((subvolume, 258)));
    assert!(!locked((subvolume, 300)), "it is on a disk, and that is not a subvolume's");
    assert!(!locked((libc::makedev(254, 0), 257)), "another file system has this number");
    assert!(locked((libc::makedev(254, 0), 300)));
}

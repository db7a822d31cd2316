use super::*;

const MOUNTINFO: &str = "\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
40 22 0:35 / /mnt/pool rw - btrfs /dev/vdb rw
41 22 7:3 / /mnt/my\\040disk rw - xfs /dev/loop3 rw
";
const SWAPS: &str = "\
Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority
/dev/vdc                                file\t\t1048572\t\t0\t\t-2
/var/swap\\040file                       file\t\t1048572\t\t0\t\t-2
";

/// A host with the lists above and a sysfs of these files.
fn host(files: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
    let temp = tempfile::tempdir().expect("a temporary directory");
    for (path, text) in files {
        let path = temp.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    let sys = temp.path().to_owned();
    (temp, Host { sys, mountinfo: MOUNTINFO.into(), swaps: SWAPS.into() })
}

#[test]
fn a_mount_is_found_by_number_and_by_source() {
    let (_temp, host) = host(&[]);
    let by_number = host.holder_of_device("7:3", Path::new("/dev/loop3")).expect("a mount");
    assert_eq!(by_number, Holder::new("a mount at /mnt/my disk", "umount /mnt/my disk"));
    let by_source = host.holder_of_device("254:16", Path::new("/dev/vdb")).expect("a mount");
    assert_eq!(by_source.cure, "umount /mnt/pool");
    assert_eq!(host.holder_of_device("254:99", Path::new("/dev/vdz")), None);
}

#[test]
fn a_swap_file_and_a_swap_device_are_found() {
    let (_temp, host) = host(&[]);
    assert_eq!(host.holder_of_file(Path::new("/var/swap file")).expect("swap").who, "swap");
    let device = host.holder_of_device("254:32", Path::new("/dev/vdc")).expect("swap");
    assert_eq!(device.cure, "swapoff /dev/vdc");
    assert_eq!(host.holder_of_file(Path::new("/var/other")), None);
}

#[test]
fn md_and_dm_are_named_with_their_cure() {
    let (_temp, host) = host(&[
        ("dev/block/8:0/holders/md127", ""),
        ("dev/block/8:16/holders/dm-3", ""),
        ("block/dm-3/dm/name", "vg-root\n"),
    ]);
    let md = host.holder_of_device("8:0", Path::new("/dev/sda")).expect("md");
    assert_eq!(md, Holder::new("md127", "mdadm --stop /dev/md127"));
    let dm = host.holder_of_device("8:16", Path::new("/dev/sdb")).expect("dm");
    assert_eq!(dm, Holder::new("dm-3 (vg-root)", "dmsetup remove vg-root"));
}

#[test]
fn a_disk_is_in_use_when_one_of_its_partitions_is() {
    let (_temp, host) = host(&[
        ("dev/block/8:0/sda1/partition", "1\n"),
        ("dev/block/8:0/sda1/dev", "7:3\n"),
        ("dev/block/8:0/queue/x", ""),
    ]);
    let holder = host.holder_of_device("8:0", Path::new("/dev/sda")).expect("a mount");
    assert_eq!(holder.who, "a mount at /mnt/my disk on its partition /dev/sda1");
}

#[test]
fn a_file_behind_a_loop_device_is_in_use() {
    let (_temp, host) =
        host(&[("block/loop5/loop/backing_file", "/data/a b\n"), ("block/vda/size", "1\n")]);
    let holder = host.holder_of_file(Path::new("/data/a b")).expect("a loop device");
    assert_eq!(holder, Holder::new("/dev/loop5", "losetup -d /dev/loop5"));
    assert_eq!(host.holder_of_file(Path::new("/data/a")), None);
}

#[test]
fn a_locked_file_is_in_use_and_a_free_one_is_not() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    assert_eq!(busy(file.path()).expect("an answer"), None);
    let held = open_alone(file.path()).expect("a free file");
    assert!(busy(file.path()).expect("an answer").is_some());
    drop(held);
    assert_eq!(busy(file.path()).expect("an answer"), None);
}

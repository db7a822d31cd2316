use super::*;

#[test]
fn a_mount_is_read_with_and_without_tags() {
    let tagged = "36 25 8:17 / /mnt/a\\040b rw,relatime shared:1 master:2 - ext4 /dev/sdb1 rw,errors=continue";
    let mount = MountLine::parse(tagged).unwrap();
    let (number, point) = (libc::makedev(8, 17), "/mnt/a\\040b");
    assert_eq!(mount, MountLine { id: 36, number, point, source: "/dev/sdb1" });
    assert_eq!((mount.device(), mount.place()), (Some(number), "/mnt/a b".into()));
    let plain = "40 1 0:31 / /data rw - btrfs /dev/sdc rw";
    assert_eq!(MountLine::parse(plain).unwrap().source, "/dev/sdc");
    assert_eq!(MountLine::parse("garbage"), None);
}

/// Where even the name hangs, its file system is another one than that of a file which answers.
#[test]
fn a_name_on_a_file_system_that_hangs_is_no_file_of_another_one() {
    let mounts = "1 0 8:1 / / rw - ext4 /dev/sda1 rw\n\
                  2 1 0:50 / /mnt/a\\040b rw - fuse.x x rw\n\
                  3 1 0:51 / /srv rw - tmpfs x rw\n\
                  4 1 0:52 / /srv rw - tmpfs x rw\n";
    let may_hold = |name, device| may_hold(mounts, Path::new(name), device);
    let (root, fuse) = (libc::makedev(8, 1), libc::makedev(0, 50));
    assert!(may_hold("/mnt/a b/file", fuse) && !may_hold("/mnt/a b/file", root));
    assert!(may_hold("/mnt/a bc", root) && !may_hold("/mnt/a bc", fuse));
    let (hidden, unknown) = (libc::makedev(0, 51), libc::makedev(0, 99));
    assert!(!may_hold("/srv/file", hidden) && may_hold("/srv/file", unknown));
}

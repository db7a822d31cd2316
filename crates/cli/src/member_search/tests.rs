use super::*;

#[test]
fn a_device_has_the_name_that_leads_to_it_after_every_boot() {
    let folder = tempfile::tempdir().unwrap();
    let (device, by_id) = (folder.path().join("sdb"), folder.path().join("by-id"));
    fs::write(&device, "").unwrap();
    fs::create_dir(&by_id).unwrap();
    let name = |member: &Path| lasting_name(member, &by_id);
    assert_eq!(name(&device), None);
    for link in ["wwn-1", "ata-disk_1"] {
        std::os::unix::fs::symlink(&device, by_id.join(link)).unwrap();
    }
    assert_eq!(name(&device), by_id.join("ata-disk_1").to_str().map(str::to_owned));
    assert_eq!(name(&folder.path().join("none")), None);
}

#[test]
fn every_block_device_is_a_path() {
    let partitions =
        "major minor  #blocks  name\n\n   8        0  1024 sda\n  72       1 10 cciss!c0d0p1\n";
    let expect = [PathBuf::from("/dev/sda"), PathBuf::from("/dev/cciss/c0d0p1")];
    assert_eq!(devices(partitions), expect);
}

#[test]
fn what_cannot_be_read_is_left_out_where_its_name_may_lead_to_another_device_and_says_why() {
    let (block, file) = (true, false);
    let broken = || Err(io::Error::other("broken"));
    for (found, is_block, why) in [
        (Ok(None), block, Some("has no superblock of the array")),
        (broken(), block, Some("cannot be read: broken")),
        (Ok(None), file, None),
        (broken(), file, None),
    ] {
        let said = why_not(found, is_block).map(|reason| reason.to_string());
        assert_eq!(said.as_deref(), why);
    }
}

#[test]
fn a_device_that_may_be_a_member_and_cannot_be_read_is_named() {
    let system = |errno: Errno| io::Error::from(errno);
    for error in [system(Errno::IO), system(Errno::ILSEQ), io::ErrorKind::TimedOut.into()] {
        assert!(is_trouble(&error), "{error}");
    }
    let no_medium = [Errno::NOMEDIUM, Errno::NXIO, Errno::NODEV, Errno::NOENT, Errno::ACCESS];
    assert!(no_medium.iter().all(|errno| !is_trouble(&system(*errno))));
    assert!(!is_trouble(&io::Error::other("it is no file or block device")));
}

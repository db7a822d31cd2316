use rustix::fs::MemfdFlags;
use rustix::mm::{MlockAllFlags, mlockall};
use vm_memory::Bytes;

use super::*;

const PAGE: u64 = 4096;

fn file(bytes: u64) -> File {
    let file = File::from(rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd"));
    file.set_len(bytes).expect("it has room");
    file
}

fn at(guest_address: u64, pages: u64, user_address: u64) -> RegionPlace {
    RegionPlace { guest_address, bytes: pages * PAGE, user_address, file_offset: 0 }
}

#[test]
fn regions_are_found_by_the_addresses_of_both_sides() {
    let regions = vec![(at(PAGE * 8, 2, 0x9000), file(PAGE * 2)), (at(0, 1, 0x5000), file(PAGE))];
    let memory = Memory::new(regions).expect("they do not overlap");
    assert_eq!(memory.guest_address(0x5fff), Some(GuestAddress(0xfff)));
    assert_eq!(memory.guest_address(0x9000), Some(GuestAddress(PAGE * 8)));
    assert_eq!(memory.guest_address(0x6000), None);
    assert_eq!(memory.guest_address(0xb000), None);
    let memory = memory.with(at(PAGE, 1, 0), file(PAGE)).expect("there is room");
    memory.guest().write_slice(&[3; 4096], GuestAddress(PAGE)).expect("it is there");
    let memory = memory.without(at(PAGE, 1, 0)).expect("it is there");
    assert!(memory.guest().write_slice(&[3; 4096], GuestAddress(PAGE)).is_err());
    assert!(matches!(memory.without(at(PAGE, 1, 0)), Err(MemoryError::Unknown)));
}

#[test]
fn regions_that_cannot_be_are_refused() {
    let refused = |regions: Vec<(RegionPlace, File)>| Memory::new(regions).expect_err("refused");
    let overlap = vec![(at(0, 2, 0), file(PAGE * 2)), (at(PAGE, 1, PAGE * 9), file(PAGE))];
    assert!(matches!(refused(overlap), MemoryError::Place(_)));
    assert!(matches!(refused(vec![(at(0, 2, 0), file(PAGE))]), MemoryError::Short), "too short");
    assert!(matches!(refused(vec![(at(0, 0, 0), file(PAGE))]), MemoryError::Short), "empty");
    let wraps = at(u64::MAX - PAGE + 1, 2, 0);
    assert!(matches!(refused(vec![(wraps, file(PAGE * 2))]), MemoryError::TooLong));
    let odd = RegionPlace { guest_address: PAGE / 2, ..at(0, 1, 0) };
    assert!(matches!(refused(vec![(odd, file(PAGE))]), MemoryError::Unaligned));
    let far = RegionPlace { file_offset: u64::MAX - 1, ..at(0, 1, 0) };
    assert!(matches!(refused(vec![(far, file(PAGE))]), MemoryError::TooLong));
    let odd = RegionPlace { file_offset: 1, ..at(0, 1, 0) };
    assert!(matches!(refused(vec![(odd, file(PAGE * 2))]), MemoryError::Map(_)), "within a page");
    let on_a_disk = File::open("/proc/self/exe").expect("it is read");
    assert!(matches!(refused(vec![(at(0, 1, 0), on_a_disk)]), MemoryError::FileSystem));
    let many = |index: u64| (at(index * PAGE, 1, index * PAGE), file(PAGE));
    let many: Vec<_> = (0..=REGIONS_MAX as u64).map(many).collect();
    assert!(matches!(refused(many), MemoryError::TooMany));
}

/// The flags of the mapping that begins there, as the kernel names them.
fn flags_of(start: *const u8) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("it is read");
    let start = format!("{:x}-", start.addr());
    let mut from = maps.lines().skip_while(|line| !line.starts_with(&start));
    let flags = from.find_map(|line| line.strip_prefix("VmFlags: "));
    flags.expect("each mapping has flags").split_whitespace().map(str::to_owned).collect()
}

/// In a process of its own: other tests' memory is not to be locked.
#[test]
fn guest_memory_is_not_locked_with_the_process() {
    const CHILD: &str = "MDSPACE_TEST_MLOCKALL";
    if std::env::var_os(CHILD).is_some() {
        mlockall(MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT).expect("a little may be locked");
        let record = Shared::map(file(PAGE), 0, PAGE).expect("it is mapped");
        let guest = Region::new(at(0, 1, 0), file(PAGE)).expect("it is mapped");
        let is_locked = |map: &Shared| flags_of(map.map.as_ptr()).iter().any(|flag| flag == "lo");
        assert!(is_locked(&record), "all else is");
        assert!(!is_locked(&guest.shared));
        return;
    }
    let name = "vhost_user::memory::tests::guest_memory_is_not_locked_with_the_process";
    let child = std::process::Command::new(std::env::current_exe().expect("its path"))
        .args(["--exact", name])
        .env(CHILD, "yes")
        .output()
        .expect("it starts");
    assert!(child.status.success(), "{}", String::from_utf8_lossy(&child.stdout));
}

use std::fs::File;

use rustix::fs::MemfdFlags;
use vm_memory::{Bytes, FileOffset, MmapRegion, VolatileMemory};

use super::*;

const BYTES: usize = 64 << 10;

fn shared() -> (File, MmapRegion) {
    let file = File::from(rustix::fs::memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd"));
    file.set_len(BYTES as u64).expect("it has room");
    let offset = FileOffset::new(file.try_clone().expect("a descriptor"), 0);
    (file, MmapRegion::from_file(offset, BYTES).expect("it is mapped"))
}

/// Without the guard the read ends the process, as `a_signal_of_another_mapping_ends_the_process` shows.
#[test]
fn memory_that_was_taken_away_reads_as_zeroes_and_says_so() {
    let (file, map) = shared();
    // SAFETY: the mapping is this test's, and outlives the guard.
    let guard = unsafe { Guard::new(map.as_ptr(), map.size()) }.expect("a place");
    let memory = map.as_volatile_slice();
    memory.write_obj(7_u8, BYTES - 1).expect("in the memory");
    assert!(!guard.is_lost());
    file.set_len(0).expect("it can be shortened");
    assert_eq!(memory.read_obj::<u8>(BYTES - 1).expect("in the memory"), 0);
    assert!(guard.is_lost());
    memory.write_obj(7_u8, 0).expect("in the memory");
    assert_eq!(memory.read_obj::<u8>(0).expect("in the memory"), 7, "it can still be used");
    drop(guard);
    let (_file, other) = shared();
    // SAFETY: as before.
    let guard = unsafe { Guard::new(other.as_ptr(), other.size()) }.expect("a place");
    assert!(!guard.is_lost(), "a place that is used again knows nothing of before");
}

#[test]
fn what_is_read_while_a_range_changes_is_not_believed() {
    let place = Place::new();
    assert_eq!(place.range(), None, "it has none");
    place.change(1 << 20, 1 << 12);
    assert_eq!(place.range(), Some(1 << 20..(1 << 20) + (1 << 12)));
    assert_eq!(place.at_one_time(|| 7), Some(7));
    assert_eq!(place.at_one_time(|| place.change(1 << 30, 1 << 24)), None, "another one now");
    assert_eq!(place.range(), Some(1 << 30..(1 << 30) + (1 << 24)));
    place.changes.fetch_add(1, Ordering::Relaxed);
    assert_eq!(place.range(), None, "it is being changed");
}

#[test]
fn a_signal_that_somebody_sends_changes_nothing() {
    let (file, map) = shared();
    // SAFETY: the mapping is this test's, and outlives the guard.
    let guard = unsafe { Guard::new(map.as_ptr(), map.size()) }.expect("a place");
    for _ in 0..2 {
        // SAFETY: it touches no memory; the handler returns.
        assert_eq!(unsafe { libc::raise(libc::SIGBUS) }, 0);
    }
    assert!(!guard.is_lost());
    file.set_len(0).expect("it can be shortened");
    assert_eq!(map.as_volatile_slice().read_obj::<u8>(0).expect("in the memory"), 0);
    assert!(guard.is_lost());
}

#[test]
fn a_signal_of_another_mapping_ends_the_process() {
    const CHILD: &str = "MDSPACE_TEST_SIGBUS";
    if std::env::var_os(CHILD).is_some() {
        let (_kept, guarded) = shared();
        // SAFETY: the mapping is this test's, and outlives the guard.
        let _guard = unsafe { Guard::new(guarded.as_ptr(), guarded.size()) }.expect("a place");
        let (file, other) = shared();
        file.set_len(0).expect("it can be shortened");
        let read = other.as_volatile_slice().read_obj::<u8>(0);
        unreachable!("{read:?}");
    }
    let name = "vhost_user::guard::tests::a_signal_of_another_mapping_ends_the_process";
    let child = std::process::Command::new(std::env::current_exe().expect("its path"))
        .args(["--exact", name])
        .env(CHILD, "yes")
        .output()
        .expect("it starts");
    let signal = std::os::unix::process::ExitStatusExt::signal(&child.status);
    assert_eq!(signal, Some(libc::SIGBUS));
}

use std::os::unix::fs::symlink;

use super::*;

fn disks(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn one_array_at_a_time_syncs_on_a_disk() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let [one, other] = [0, 1].map(|_| Disks::new(run_dir.path(), Places::default()));
    assert!(one.begin_on(&disks(&["8:0", "8:16"])));
    assert!(!other.begin_on(&disks(&["8:16", "8:32"])), "8:16 is taken");
    let third = Disks::new(run_dir.path(), Places::default());
    assert!(third.begin_on(&disks(&["8:32"])), "who waits holds nothing");
    third.end();
    one.end();
    assert!(other.begin_on(&disks(&["8:16", "8:32"])));
    assert!(!one.begin_on(&disks(&["8:16"])), "now it is the other way round");
    drop(other);
    assert!(one.begin_on(&disks(&["8:16"])), "a process that is gone holds nothing");
}

#[test]
fn who_asks_again_keeps_the_locks_that_it_holds() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let disks_of_one = Disks::new(run_dir.path(), Places::default());
    assert!(disks_of_one.begin_on(&disks(&["8:0", "8:16"])));
    let locks = ["8:0", "8:16"].map(|disk| run_dir.path().join(format!("disk-{disk}.sync")));
    // Where a lock is taken anew its file is made anew.
    locks.iter().for_each(|lock| fs::remove_file(lock).expect("a lock file"));
    assert!(disks_of_one.begin_on(&disks(&["8:16", "8:32"])));
    assert_eq!(locks.map(|lock| lock.exists()), [false, false]);
    // What it does not need any more it has let go.
    let other = Disks::new(run_dir.path(), Places::default());
    assert!(other.begin_on(&disks(&["8:0"])));
    assert!(!other.begin_on(&disks(&["8:0", "8:32"])));
    assert!(disks_of_one.begin_on(&disks(&["8:0"])), "who is refused holds nothing");
}

#[test]
fn what_is_no_block_device_is_on_no_disk() {
    let run_dir = tempfile::tempdir().expect("a directory");
    let [one, other] = [0, 1].map(|_| Disks::new(run_dir.path(), Places::default()));
    let file = run_dir.path().join("member");
    fs::write(&file, b"").expect("a file");
    let members = [file.to_str().expect("plain"), "ram:64M", "nbd+unix:///x.sock"];
    assert!(one.begin(&members) && other.begin(&members));
}

#[test]
fn a_partition_lies_on_its_disk() {
    let sysfs = tempfile::tempdir().expect("a directory");
    let disk = sysfs.path().join("devices/sda");
    fs::create_dir_all(disk.join("sda1")).expect("a folder");
    fs::write(disk.join("dev"), "8:0\n").expect("a file");
    fs::write(disk.join("sda1/dev"), "8:1\n").expect("a file");
    fs::write(disk.join("sda1/partition"), "1\n").expect("a file");
    for (name, place) in [("8:0", "devices/sda"), ("8:1", "devices/sda/sda1")] {
        let device = sysfs.path().join(name);
        symlink(sysfs.path().join(place), &device).expect("a link");
        assert_eq!(whole_disk(&device).expect("it is there"), "8:0", "{name}");
    }
}

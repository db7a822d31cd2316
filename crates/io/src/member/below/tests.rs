//! Devices over devices in a tree that looks like sysfs.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::time::{Duration, Instant};

use super::*;

const SECTOR: u64 = 512;

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A tree with one loop device, `loop7`, over a file of 64 KiB.
struct Tree {
    folder: tempfile::TempDir,
    /// What mappings are made of, by their minor numbers.
    tables: BTreeMap<u32, Vec<Part>>,
    /// What loop devices say that they have, by their minor numbers, where that is not what their names lead to; none
    /// where they cannot be asked.
    behind: BTreeMap<u32, Option<Behind>>,
    /// Loop devices that do not answer, by their minor numbers.
    silent: Vec<u32>,
    /// A loop device, by its minor number, whose user leaves when it is asked: what goes then.
    leaves: Option<(u32, PathBuf)>,
}

impl Tree {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (tables, behind, silent, leaves) = Default::default();
        let tree = Self { folder, tables, behind, silent, leaves };
        for folder in ["dev/block", "block"] {
            fs::create_dir_all(tree.path(folder)).expect("a folder");
        }
        let file = File::create(tree.file()).expect("a file");
        file.set_len(64 << 10).expect("a hole");
        tree.add_loop("loop7", 7);
        tree
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.path("file")
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("a file");
    }

    /// Shows a device at its place, and by its number.
    fn add(&self, place: &str, (major, minor): (u32, u32)) {
        fs::create_dir_all(self.path(place)).expect("a folder");
        self.write(&format!("{place}/dev"), &format!("{major}:{minor}\n"));
        let by_number = self.path(&format!("dev/block/{major}:{minor}"));
        symlink(self.path(place), by_number).expect("a link");
    }

    fn add_loop(&self, name: &str, minor: u32) {
        let place = format!("block/{name}");
        self.add(&place, (7, minor));
        fs::create_dir_all(self.path(&format!("{place}/loop"))).expect("a folder");
        let file = format!("{}\n", self.file().display());
        self.write(&format!("{place}/loop/backing_file"), &file);
    }

    /// A partition of so many sectors.
    fn add_partition(&self, place: &str, minor: u32, start: u64, sectors: u64) {
        self.add(place, (259, minor));
        self.write(&format!("{place}/partition"), "1\n");
        self.write(&format!("{place}/start"), &format!("{start}\n"));
        self.write(&format!("{place}/size"), &format!("{sectors}\n"));
    }

    /// A mapping over another device.
    fn add_mapping(&self, name: &str, minor: u32, slave: &str) {
        let place = format!("block/{name}");
        self.add(&place, (253, minor));
        for (folder, device, other) in
            [(&place[..], "slaves", slave), (slave, "holders", &place[..])]
        {
            let folder = self.path(&format!("{folder}/{device}"));
            fs::create_dir_all(&folder).expect("a folder");
            let link = folder.join(Path::new(other).file_name().expect("a name"));
            symlink(self.path(other), link).expect("a link");
        }
    }

    /// Attaches another name of the file.
    fn attach(&self, name: &str, loop_device: &str) {
        fs::hard_link(self.file(), self.path(name)).expect("another name");
        let told = format!("{}\n", self.path(name).display());
        self.write(&format!("block/{loop_device}/loop/backing_file"), &told);
    }

    fn remove(&self, name: &str) {
        fs::remove_file(self.path(name)).expect("it was there");
    }

    fn claim(&self, (major, minor): (u32, u32)) -> Result<Claimed, Refused> {
        let parts = |mapping| self.tables.get(&libc::minor(mapping)).cloned();
        let ask = |device, place: &Path| {
            if let Some((_, user)) =
                self.leaves.as_ref().filter(|(asked, _)| *asked == libc::minor(device))
            {
                fs::remove_dir_all(user).expect("it was there");
            }
            Question::answered(match self.behind.get(&libc::minor(device)) {
                _ if self.silent.contains(&libc::minor(device)) => {
                    Err(io::ErrorKind::TimedOut.into())
                }
                Some(told) => told.ok_or_else(|| io::ErrorKind::PermissionDenied.into()),
                None => Behind::of_name(&Backing::of(place).expect("a loop device").path),
            })
        };
        let system = System { sysfs: self.folder.path(), parts: &parts, ask: &ask };
        claim_in(&system, libc::makedev(major, minor), false)
    }

    /// Claims what nobody has, or has in a moment: a process that another test starts has what was let go of too, until its
    /// own program runs.
    fn claim_free(&self, device: (u32, u32)) -> Claimed {
        self.claim_once_free(device).expect("a free device")
    }

    fn claim_once_free(&self, device: (u32, u32)) -> Result<Claimed, Refused> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.claim(device) {
                Err(Refused::InUse(_)) if Instant::now() < until => std::thread::yield_now(),
                claimed => return claimed,
            }
        }
    }

    /// A mapping of which the device mapper says what it is made of.
    fn add_table(&mut self, name: &str, minor: u32, slave: &str, parts: Vec<Part>) {
        self.add_mapping(name, minor, slave);
        fs::create_dir_all(self.path(&format!("block/{name}/dm"))).expect("a folder");
        self.tables.insert(minor, parts);
    }

    /// Whether these sectors of the file can be had by one who uses the file itself.
    fn are_free(&self, start: u64, sectors: u64) -> bool {
        let file = open_to_lock(&self.file());
        let bytes = Bytes::new(start * SECTOR, sectors * SECTOR);
        lock::bytes(&file, bytes, false).expect("a file that can be locked")
    }

    /// Whether they are free, or will be in a moment.
    fn come_free(&self, start: u64, sectors: u64) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            if self.are_free(start, sectors) {
                return true;
            }
            if Instant::now() >= until {
                return false;
            }
            std::thread::yield_now();
        }
    }
}

fn open_to_lock(path: &Path) -> File {
    open(path, Behind::of_name(path).expect("a file")).expect("the file")
}

fn is_in_use(claimed: Result<Claimed, Refused>) -> bool {
    matches!(claimed, Err(Refused::InUse(_)))
}

/// A tree with `loop8` over another name of the file that `loop7` is over. Both know what they have.
fn twins() -> Tree {
    let mut tree = Tree::new();
    tree.add_loop("loop8", 8);
    tree.attach("other", "loop8");
    let behind = Behind::of_name(&tree.file()).expect("a file");
    tree.behind = [(7, Some(behind)), (8, Some(behind))].into();
    tree
}

#[test]
fn a_partition_has_its_own_bytes_of_the_file_below_its_disk() {
    let tree = Tree::new();
    tree.add_partition("block/loop7/loop7p1", 1, 8, 16);
    tree.add_partition("block/loop7/loop7p2", 2, 24, 16);
    let held = tree.claim_free((259, 1));
    assert!(!tree.are_free(8, 1) && !tree.are_free(23, 1));
    assert!(tree.come_free(0, 8) && tree.come_free(24, 8));
    assert!(is_in_use(tree.claim((259, 1))), "the same bytes");
    assert!(is_in_use(tree.claim((7, 7))), "the disk has them too");
    let _other = tree.claim_free((259, 2));
    drop(held);
    assert!(tree.come_free(8, 16));
}

#[test]
fn a_mapping_keeps_who_uses_the_file_itself_out() {
    let tree = Tree::new();
    tree.add_partition("block/loop7/loop7p1", 1, 8, 16);
    tree.add_mapping("dm-0", 0, "block/loop7/loop7p1");
    tree.add_mapping("dm-1", 1, "block/dm-0");
    let held = tree.claim_free((253, 1));
    assert!(!tree.are_free(8, 16), "the bytes of the partition, two mappings above");
    assert!(tree.come_free(0, 8) && tree.come_free(24, 8), "its disk has others");
    drop(held);
    let file = open_to_lock(&tree.file());
    assert!(lock::bytes(&file, Bytes::ALL, false).expect("a file that can be locked"));
    assert!(is_in_use(tree.claim((253, 1))), "the file is a member itself");
}

#[test]
fn mappings_over_one_loop_device_have_the_bytes_that_their_tables_say() {
    let mut tree = Tree::new();
    let disk = libc::makedev(7, 7);
    let linear = |start, sectors| vec![Part::linear(0, sectors, disk, start)];
    tree.add_table("dm-0", 0, "block/loop7", linear(8, 16));
    tree.add_table("dm-1", 1, "block/loop7", linear(20, 16));
    tree.add_table("dm-2", 2, "block/loop7", linear(24, 16));
    let upper = vec![Part::linear(0, 4, libc::makedev(253, 0), 8)];
    tree.add_table("dm-3", 3, "block/dm-0", upper);
    tree.add_mapping("dm-4", 4, "block/loop7");
    let pieces = (0..8).map(|piece| Part::linear(piece, 1, disk, 40 + 2 * piece));
    tree.add_table("dm-5", 5, "block/loop7", pieces.collect());
    let many = tree.claim_free((253, 5));
    assert!(!tree.are_free(40, 1) && tree.come_free(41, 1) && !tree.are_free(54, 1));
    assert_eq!(many.files.len(), 1, "one descriptor for all pieces");
    let held = tree.claim_free((253, 0));
    assert!(!tree.are_free(8, 1) && !tree.are_free(23, 1));
    assert!(tree.come_free(0, 8) && tree.come_free(24, 8));
    assert!(is_in_use(tree.claim((253, 1))), "bytes of both");
    assert!(is_in_use(tree.claim((253, 3))), "bytes of the one below");
    assert!(is_in_use(tree.claim((253, 4))), "nobody knows which bytes");
    drop(tree.claim_free((253, 2)));
    drop(held);
    let _upper = tree.claim_free((253, 3));
    assert!(!tree.are_free(16, 4) && tree.come_free(8, 8) && tree.come_free(20, 4));
}

#[test]
fn another_loop_device_whose_partition_the_kernel_uses_is_a_user_of_those_bytes() {
    let tree = Tree::new();
    tree.add_loop("loop8", 8);
    tree.add_partition("block/loop8/loop8p1", 1, 8, 16);
    tree.add_partition("block/loop7/loop7p1", 2, 8, 8);
    tree.add_partition("block/loop7/loop7p2", 3, 24, 8);
    drop(tree.claim_free((7, 7)));
    tree.add_mapping("dm-0", 0, "block/loop8/loop8p1");
    assert!(is_in_use(tree.claim((7, 7))));
    assert!(is_in_use(tree.claim((259, 2))), "a part of those bytes");
    drop(tree.claim_free((259, 3)));
}

#[test]
fn of_loop_devices_over_one_file_one_is_claimed_whatever_names_the_file_has() {
    let tree = twins();
    // As the kernel does: no other file gets its number.
    let _kept = open_to_lock(&tree.file());
    for name in ["file", "other"] {
        tree.remove(name);
        for (first, second) in [(7, 8), (8, 7)] {
            let held = tree.claim_free((7, first));
            assert!(is_in_use(tree.claim((7, second))), "{second} beside {first}, without {name}");
            drop(held);
        }
    }
    // Another file has the name by now.
    fs::write(tree.file(), [0; 4096]).expect("a file");
    let _held = tree.claim_free((7, 7));
    assert!(tree.come_free(0, 8), "it is not its file");
    assert!(is_in_use(tree.claim((7, 8))));
}

/// The kernel keeps partitions apart, and not mappings.
#[test]
fn a_file_without_a_name_is_shared_by_partitions_of_one_loop_device_and_by_no_mappings() {
    let mut tree = twins();
    let disk = libc::makedev(7, 7);
    tree.add_partition("block/loop7/loop7p1", 1, 8, 16);
    tree.add_partition("block/loop7/loop7p2", 2, 24, 16);
    tree.add_table(
        "dm-0",
        0,
        "block/loop7",
        (0..8).map(|at| Part::linear(at, 1, disk, at)).collect(),
    );
    tree.add_table("dm-1", 1, "block/loop7", vec![Part::linear(0, 8, disk, 0)]);
    tree.remove("file");
    let partitions = [1, 2].map(|minor| tree.claim_free((259, minor)));
    assert!(is_in_use(tree.claim((253, 0))) && is_in_use(tree.claim((7, 8))));
    drop(partitions);
    let _mapping = tree.claim_free((253, 0));
    assert!(is_in_use(tree.claim((253, 1))) && is_in_use(tree.claim((259, 2))));
}

#[test]
fn a_loop_device_that_cannot_be_asked_is_believed_by_its_name_and_refused_without_one() {
    let mut tree = Tree::new();
    tree.behind.insert(7, None);
    let held = tree.claim_free((7, 7));
    assert!(!tree.are_free(0, 8));
    drop(held);
    tree.remove("file");
    let Err(Refused::Hidden { device, .. }) = tree.claim_once_free((7, 7)) else {
        panic!("it is claimed")
    };
    assert_eq!(device, Path::new("/dev/loop7"));
}

#[test]
fn a_loop_device_that_the_kernel_uses_is_found_by_its_file_under_whatever_name() {
    for (claimed, used) in [(7, "block/loop8"), (8, "block/loop7")] {
        let tree = twins();
        tree.remove("file");
        drop(tree.claim_free((7, claimed)));
        tree.add_mapping("dm-0", 0, used);
        assert!(is_in_use(tree.claim((7, claimed))), "{claimed} beside {used}");
    }
}

/// The user of the first one may leave while they are asked.
#[test]
fn each_loop_device_over_the_same_bytes_is_looked_at_for_who_uses_it() {
    for is_silent in [false, true] {
        let mut tree = twins();
        tree.add_loop("loop9", 9);
        tree.behind.insert(9, tree.behind[&8]);
        tree.remove("other");
        tree.add_mapping("dm-0", 0, "block/loop8");
        tree.add_mapping("dm-1", 1, "block/loop9");
        if is_silent {
            tree.silent = vec![9];
            tree.write("block/loop9/loop/backing_file", "/nowhere/file\n");
        }
        tree.leaves = Some((8, tree.path("block/loop8/holders/dm-0")));
        match (tree.claim((7, 7)), is_silent) {
            (Err(Refused::InUse(_)), false) => {}
            (Err(Refused::Silent(SilentLoop(device))), true) => {
                assert_eq!(device, Path::new("/dev/loop9"));
            }
            (claimed, _) => panic!("{claimed:?}, silent: {is_silent}"),
        }
    }
}

#[test]
fn a_silent_loop_device_is_named_where_it_may_have_the_same_bytes_and_somebody_uses_it() {
    let mut tree = twins();
    tree.remove("other");
    tree.silent = vec![8];
    drop(tree.claim_free((7, 7)));
    tree.add_mapping("dm-0", 0, "block/loop8");
    let Err(Refused::Silent(SilentLoop(device))) = tree.claim_once_free((7, 7)) else {
        panic!("claimed")
    };
    assert_eq!(device, Path::new("/dev/loop8"));
    fs::write(tree.path("other"), "another file").expect("a file");
    drop(tree.claim_free((7, 7)));
}

#[test]
fn a_silent_loop_device_below_a_member_is_named() {
    let mut tree = Tree::new();
    tree.silent = vec![7];
    let Err(Refused::SilentBelow(device)) = tree.claim((7, 7)) else { panic!("it is claimed") };
    assert_eq!(device, Path::new("/dev/loop7"));
}

/// Its device has no name here, and is not opened: what lies below it is locked all the same.
#[test]
fn below_a_loop_device_over_one_without_a_name_the_file_is_locked() {
    let mut tree = Tree::new();
    tree.add_loop("loop8", 8);
    tree.write("block/loop8/loop/backing_file", "/nowhere/loop7\n");
    tree.behind.insert(8, Some(Behind::Device(libc::makedev(7, 7))));
    let _held = tree.claim_free((7, 8));
    assert!(!tree.are_free(0, 8));
    assert!(is_in_use(tree.claim((7, 7))));
}

#[test]
fn a_tree_without_an_end_is_left() {
    let tree = Tree::new();
    tree.add("block/dm-0", (253, 0));
    fs::create_dir_all(tree.path("block/dm-0/slaves")).expect("a folder");
    symlink(tree.path("block/dm-0"), tree.path("block/dm-0/slaves/dm-0")).expect("a link");
    drop(tree.claim_free((253, 0)));
}

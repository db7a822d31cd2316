use super::*;

fn told(device: u64, inode: u64, device_of_node: u64) -> Behind {
    let mut info = LoopInfo::new(Path::new(""), 0);
    (info.device, info.inode, info.device_of_node) = (device, inode, device_of_node);
    Behind::of_info(&info)
}

/// A tree that looks like sysfs, with a loop device of this minor number over each name.
fn tree(names: &[(u32, &str)]) -> tempfile::TempDir {
    let tree = tempfile::tempdir().expect("a temporary folder");
    for (minor, name) in names {
        let place = tree.path().join(format!("block/loop{minor}"));
        fs::create_dir_all(place.join("loop")).expect("a folder");
        fs::write(place.join("dev"), format!("7:{minor}\n")).expect("a file");
        fs::write(place.join("loop/backing_file"), format!("{name}\n")).expect("a file");
    }
    tree
}

/// Those over `behind`, and those that are silent, where each device answers so by its minor number.
fn over(
    tree: &tempfile::TempDir,
    behind: Behind,
    answer: impl Fn(u32) -> Question,
) -> [Vec<PathBuf>; 2] {
    let ask = |number, _: &Path| answer(libc::minor(number));
    let over = Over::of(behind, LoopDevice::all(tree.path()), &ask);
    [over.sure, over.silent].map(|all| all.iter().map(LoopDevice::node).collect())
}

#[test]
fn a_loop_device_that_hangs_answers_for_no_other_one_and_not_against_another_file() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [mine, other] = ["mine", "other"].map(|name| folder.path().join(name));
    fs::write(&mine, "mine").expect("a file");
    fs::write(&other, "other").expect("a file");
    let [mine, other] = [&mine, &other].map(|path| Behind::of_name(path).expect("a file"));
    let name = folder.path().join("other").display().to_string();
    let tree = tree(&[(1, &name), (2, "/gone"), (3, "/gone"), (4, "/gone (deleted)")]);
    let answer = |minor| match minor {
        1 | 4 => Question::answered(Err(io::ErrorKind::TimedOut.into())),
        2 => Question::answered(Ok(mine)),
        _ => Question::answered(Err(io::ErrorKind::PermissionDenied.into())),
    };
    let [second, fourth] = ["/dev/loop2", "/dev/loop4"].map(|node| vec![PathBuf::from(node)]);
    assert_eq!(over(&tree, mine, answer), [second, fourth.clone()]);
    assert_eq!(over(&tree, other, answer), [vec!["/dev/loop1".into()], fourth]);
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

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use mdspace_engine::paths::Policy;
use mdspace_engine::time::Time;

use super::super::lock;
use super::*;

struct NoHost;

impl Host for NoHost {
    fn reopen(&self, _: &Arc<Paths>, _: usize) {}

    fn fence(&self, _: &Arc<Paths>, _: usize, _: FenceId) -> bool {
        false
    }
}

/// A device of one path, whose first connection leads to memory.
fn device() -> (Arc<MemberTable>, Arc<Paths>, MemberId) {
    let members = MemberTable::new();
    let opened = members.open("ram:64K", OpenMode::RUN).expect("memory");
    let old = opened.0;
    let table = "0 128 multipath 0 0 1 1 round-robin 0 1 0 a".parse().expect("a table line");
    let paths =
        Paths::new("d", table, Policy::default(), vec![Ok(opened)], &[true], Box::new(NoHost));
    (members, paths.expect("a device"), old)
}

fn reopened(members: &Arc<MemberTable>, paths: &Paths, name: &str) -> OpenedPath {
    reopen(members, paths, (0, name), (OpenMode::RUN, Alone { has_company: false }))
}

/// Lanes ask what they owe a path's connection, and of one that is closed nothing is known.
#[test]
fn the_old_connection_of_a_path_is_open_until_the_paths_know_of_the_new_one() {
    let (members, paths, old) = device();
    let (new, _) = reopened(&members, &paths, "ram:64K").expect("it opens");
    assert!(members.info(old).is_some() && members.info(new).is_some());
    assert_eq!(paths.members(), [old]);
}

/// A device of one path, to a file of this name.
fn device_over(path: &Path) -> (Arc<MemberTable>, Arc<Paths>, MemberId) {
    let members = MemberTable::new();
    let name = path.to_str().expect("a plain name");
    let opened = members.open(name, OpenMode::RUN).expect("the file");
    let old = opened.0;
    let table = format!("0 128 multipath 0 0 1 1 round-robin 0 1 0 {name}");
    let table = table.parse().expect("a table line");
    let paths =
        Paths::new("d", table, Policy::default(), vec![Ok(opened)], &[false], Box::new(NoHost));
    (members, paths.expect("a device"), old)
}

fn file_of_64_kib(path: &Path) {
    File::create(path).and_then(|file| file.set_len(64 << 10)).expect("a file");
}

/// What was unplugged comes back under its name as another device of the kernel.
#[test]
fn a_failed_path_goes_to_what_has_its_name_by_now_and_closes_what_it_had() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("disk");
    file_of_64_kib(&path);
    let (members, paths, old) = device_over(&path);
    let name = path.to_str().expect("a plain name");
    let connect = || {
        connect_anew(&members, &paths, 0, name, (OpenMode::RUN, Alone { has_company: false }));
    };

    // Its name is gone for a moment, or leads to the same as before.
    connect();
    fs::rename(&path, folder.path().join("other")).expect("renamed");
    connect();
    assert_eq!(paths.members(), [old]);

    file_of_64_kib(&path);
    connect();
    assert_eq!(paths.members(), [old], "it joins");
    paths.message(&["fail_path", name], Time::ZERO).expect("a message");
    connect();
    let [new] = paths.members()[..] else { panic!("it has one connection") };
    assert!(new != old && members.info(old).is_none());
    assert_eq!(members.identity(new), Identity::of_name(&path).ok());
}

/// Who has it may write there. The path stays out, and the operator is told once.
#[test]
fn a_path_that_somebody_else_has_by_now_stays_out_and_an_event_says_who_has_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("disk");
    file_of_64_kib(&path);
    let (members, paths, old) = device_over(&path);
    let name = path.to_str().expect("a plain name");
    paths.message(&["fail_path", name], Time::ZERO).expect("a message");
    fs::rename(&path, folder.path().join("other")).expect("renamed");
    file_of_64_kib(&path);
    let others = MemberTable::new();
    others.open(name, OpenMode::RUN).expect("a free file");
    for _ in 0..2 {
        connect_anew(&members, &paths, 0, name, (OpenMode::RUN, Alone { has_company: false }));
    }
    assert!(paths.members().is_empty() && members.info(old).is_none());
    let events = paths.events_after(0);
    let told: Vec<_> = events.iter().filter(|event| event.event == "PathInUse").collect();
    let [told] = told[..] else { panic!("told once: {events:?}") };
    assert_eq!(told.member.as_deref(), Some(name));
    assert!(told.note.contains("in use by"), "{}", told.note);
}

/// Opens a device with a path to each file.
fn open_over(paths: &[&Path]) -> Result<(Arc<MemberTable>, Arc<Paths>), OpenError> {
    let members = MemberTable::new();
    let names: Vec<&str> = paths.iter().map(|path| path.to_str().expect("a plain name")).collect();
    let count = paths.len();
    let table = format!("0 128 multipath 0 0 1 1 round-robin 0 {count} 0 {}", names.join(" "));
    let spec = MultipathSpec::new(table.parse().expect("a table line"), Policy::default());
    members.open_multipath("d", &spec, OpenMode::RUN).map(|(_, paths)| (members, paths))
}

/// What is written over the other path a hung write could undo, and a hung read could not.
#[test]
fn a_path_on_which_a_stopped_process_hangs_keeps_the_device_down_unless_writes_are_over_there() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [one, other] = ["one", "other"].map(|name| folder.path().join(name));
    file_of_64_kib(&one);
    file_of_64_kib(&other);
    let hangs = MemberTable::new();
    let (id, _) = hangs.open(one.to_str().expect("a plain name"), OpenMode::RUN).expect("free");
    let file = hangs.file(id).expect("a file").expect("a descriptor");
    let Err(refused) = open_over(&[&one, &other]) else { panic!("writes may be under way") };
    let OpenError::InUse { cure, .. } = &refused else { panic!("{refused}") };
    assert!(cure.contains("leave it out of the file once nothing"), "{cure}");

    lock::mark_writes_over(&file).expect("marked");
    let (members, paths) = open_over(&[&one, &other]).expect("nothing else can land");
    let path = |path: usize| paths.status().groups[0].paths[path].clone();
    assert_eq!((path(0).state, path(0).reason.as_str()), ("failed", HANGS));
    assert_eq!(path(1).state, "joining");
    let name = one.to_str().expect("a plain name");
    let connect = || {
        let how = (OpenMode::RUN, Alone { has_company: false });
        connect_anew(&members, &paths, 0, name, how);
    };
    connect();
    assert!(paths.events_after(0).iter().all(|event| event.event != "PathInUse"));
    assert_eq!(paths.members().len(), 1);
    drop((hangs, file));
    connect();
    assert_eq!(paths.members().len(), 2, "it has come when the last call has ended");
}

#[test]
fn a_new_connection_that_can_do_less_than_the_device_is_not_used() {
    let (members, paths, _) = device();
    let refused =
        reopened(&members, &paths, "null:hdd?size=1M").map(|_| ()).expect_err("no zeroes");
    assert!(refused.contains("zeroes"), "{refused}");
    assert!(members.are_let_go(), "it is closed again");
}

/// Else its path would not come back before the operator's word.
#[test]
fn a_fence_that_hangs_is_killed_with_what_it_has_started_and_has_failed() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let pipe = folder.path().join("pipe");
    let made = Command::new("mkfifo").arg(&pipe).status().expect("mkfifo");
    assert!(made.success());
    let command = format!("sleep 1000 3>{} & wait", pipe.display());
    let is_late = Arc::new(AtomicBool::new(false));
    let late = is_late.clone();
    let fence = thread::spawn(move || run_fence(&command, "a", || late.load(Ordering::Acquire)));
    // What the command has started has the other end.
    let mut pipe = File::open(&pipe).expect("a pipe");
    is_late.store(true, Ordering::Release);
    assert_eq!(pipe.read(&mut [0]).expect("its end"), 0);
    let why = fence.join().expect("it ends").expect_err("it proves nothing");
    assert!(why.contains("killed"), "{why}");
}

#[test]
fn a_fence_says_how_its_command_ended() {
    assert_eq!(run_fence("test $MDSPACE_PATH = a", "a", || false), Ok(()));
    let why = run_fence("exit 3", "a", || false).expect_err("it failed");
    assert!(why.contains('3'), "{why}");
}

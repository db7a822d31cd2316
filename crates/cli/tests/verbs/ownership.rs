//! Who has a member: through loop devices, over exports, and what is no member at all.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::user::User;

const MIRROR: &str = "--level=1 --raid-devices=2 --assume-clean";

/// A loop device over a file; detached with the value.
struct Loop(String);

impl Loop {
    /// None where this user may not make one, or the host has none.
    fn over(user: &User, member: &str) -> Option<Self> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show"]).arg(user.path(member));
        let output = losetup.output().ok().filter(|output| output.status.success())?;
        Some(Self(String::from_utf8(output.stdout).expect("a path").trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // A loop device that is in use goes with its last user.
        let _ = Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_members_bytes_are_not_taken_through_a_loop_device() {
    let user = User::with_members(&["a", "b", "c", "d"]);
    user.expect(0, &format!("create data {MIRROR} a b"));
    let Some(device) = Loop::over(&user, "a") else {
        return eprintln!("SKIPPED: no loop device can be attached here");
    };
    let before = user.bytes("a");
    let words = format!("create other {MIRROR} --run c {}", device.0);
    user.refused(&words, &[&device.0, "in use by"]);
    user.refused(&format!("zero-superblock --run {}", device.0), &["in use by"]);
    user.expect(0, &format!("create other {MIRROR} c d"));
    user.refused(&format!("add other --run {}", device.0), &["in use by"]);
    assert!(before == user.bytes("a"), "a member has changed");
    user.expect(0, "stop other");
    user.expect(0, "stop data");
    // Two loop devices over the same bytes are one member.
    let twin = Loop::over(&user, "a").expect("a second loop device");
    user.expect(0, &format!("assemble data {} b", device.0));
    user.refused(&format!("create other {MIRROR} --run c {}", twin.0), &["in use by"]);
    user.expect(0, "stop data");
}

/// As where a device has several paths, and a mapping over them.
#[test]
fn a_search_takes_the_same_bytes_once() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, &format!("create data {MIRROR} a b"));
    let uuid = user.detail("data")["array"]["uuid"].as_str().expect("a UUID").to_owned();
    user.expect(0, "stop data");
    let (Some(a), Some(_b)) = (Loop::over(&user, "a"), Loop::over(&user, "b")) else {
        return eprintln!("SKIPPED: no loop device can be attached here");
    };
    let _twin = Loop::over(&user, "b").expect("a second one");
    let _above = Loop::over(&user, &a.0).expect("one over another");
    let found = user.expect(0, &format!("assemble data --uuid={uuid}"));
    assert!(found.contains("started with 2 of 2 members"), "{found}");
    user.expect(0, "stop data");
}

/// Its name in /dev/disk/by-id, say, is another one in another enclosure.
#[test]
fn a_saved_array_finds_a_member_whose_name_is_gone() {
    let user = User::with_members(&["a", "b"]);
    let (Some(a), Some(b)) = (Loop::over(&user, "a"), Loop::over(&user, "b")) else {
        return eprintln!("SKIPPED: no loop device can be attached here");
    };
    user.expect(0, &format!("create data {MIRROR} {} {}", a.0, b.0));
    user.expect(0, "save data");
    user.expect(0, "stop data");
    let config = user.path("etc/data.toml");
    let text = fs::read_to_string(&config).expect("a configuration");
    assert!(text.contains(&b.0), "{text}");
    fs::write(&config, text.replace(&b.0, "/dev/disk/by-id/gone")).expect("room");
    let found = user.expect(0, "assemble data");
    assert!(found.contains("started with 2 of 2 members"), "{found}");
    user.expect(0, "stop data");
    // As when it was lost with its enclosure, and the array saved before it came back under another name.
    let gone = "/dev/disk/by-id/gone";
    let lost = format!("members = [{:?}]\nmissing = [{gone:?}]", a.0);
    let members = text.lines().find(|line| line.starts_with("members")).expect("its members");
    fs::write(&config, text.replace(members, &lost).replace(&b.0, gone)).expect("room");
    let found = user.expect(0, "assemble data");
    assert!(found.contains("started with 2 of 2 members"), "{found}");
    user.expect(0, "stop data");
}

/// A loop device goes on with a file that was deleted. Another name of that may be there.
#[test]
fn a_file_is_not_taken_by_another_name_than_the_deleted_one_of_a_loop_device() {
    let user = User::with_members(&["a", "c", "d"]);
    fs::hard_link(user.path("a"), user.path("b")).expect("another name");
    user.expect(0, &format!("create data {MIRROR} --run b d"));
    let Some(device) = Loop::over(&user, "a") else {
        return eprintln!("SKIPPED: no loop device can be attached here");
    };
    let above = Loop::over(&user, &device.0).expect("another one over it");
    fs::remove_file(user.path("a")).expect("it was there");
    let devices = [&device.0, &above.0];
    for device in devices {
        user.refused(&format!("create other {MIRROR} --run --force {device} c"), &["in use by"]);
    }
    user.expect(0, "stop data");
    let by_name = format!("create other {MIRROR} --run --force b d");
    for device in devices {
        user.expect(0, &format!("create data {MIRROR} --run --force {device} c"));
        user.refused(&by_name, &["in use by"]);
        user.expect(0, "stop data");
    }
    // Nobody but the kernel has it then, which may have mounted it.
    user.refused(&by_name, &["in use by the loop device", "losetup -d"]);
}

/// Names of a file go, and its loop devices stay.
#[test]
fn of_two_loop_devices_over_one_file_one_is_taken_whatever_names_the_file_has() {
    let user = User::with_members(&["a", "c", "d"]);
    fs::hard_link(user.path("a"), user.path("b")).expect("another name");
    let Some(one) = Loop::over(&user, "a") else {
        return eprintln!("SKIPPED: no loop device can be attached here");
    };
    let other = Loop::over(&user, "b").expect("another one");
    for name in ["a", "b"] {
        fs::remove_file(user.path(name)).expect("it was there");
        for (first, second) in [(&one.0, &other.0), (&other.0, &one.0)] {
            user.expect(0, &format!("create data {MIRROR} --run --force {first} c"));
            let twin = format!("create other {MIRROR} --run --force {second} d");
            user.refused(&twin, &["in use by"]);
            user.expect(0, "stop data");
        }
    }
}

/// Asks a server for a change, and goes away before it answers: the kernel forgets what it knew of the file.
fn forget_attributes(file: &Path) {
    let mut asking = Command::new("chmod");
    asking.arg("640").arg(file).stdin(Stdio::null());
    let mut asking = asking.spawn().expect("chmod");
    while !User::sleeps(asking.id()) {
        std::thread::yield_now();
    }
    asking.kill().expect("it is there");
    asking.wait().expect("it was killed");
}

/// A loop device does not say which file it has while the file system of that file does not answer.
#[test]
fn a_loop_device_that_hangs_keeps_no_other_file_from_an_array() {
    let user = User::with_members(&["a", "b", "c", "d"]);
    let served = user.run(&format!("create data {MIRROR} --serve=loop a b"));
    if served.status != 0 {
        return eprintln!("SKIPPED: no loop device can be attached here");
    }
    let process = user.detail("data")["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
    let process = process.expect("a process number");
    user.halt(process);
    forget_attributes(&user.run_dir().join("data.mount/data"));
    user.expect(0, &format!("create other {MIRROR} c d"));
    user.signal(Signal::CONT, process);
    user.expect(0, "stop data");
    user.expect(0, "stop other");
}

/// Serves a file as `NAME` at the socket `NAME.sock`; returns the member over it.
fn serve(user: &User, name: &str) -> String {
    let socket = user.path(&format!("{name}.sock"));
    let words = "--level=linear --raid-devices=1 --force --assume-clean";
    user.expect(0, &format!("create {name} {words} --serve=nbd:unix:{} {name}", socket.display()));
    format!("nbd+unix:///{name}?socket={}", socket.display())
}

#[test]
fn an_export_is_a_member_of_one_running_array_only() {
    let servers = User::with_members(&["a", "b"]);
    let (one, other) = (serve(&servers, "a"), serve(&servers, "b"));
    servers.expect(0, &format!("create data {MIRROR} {one} {other}"));
    // Another user, by a link to the same socket.
    let user = User::with_members(&["c"]);
    std::os::unix::fs::symlink(servers.path("a.sock"), user.path("link")).expect("a link");
    let link = format!("nbd+unix:///a?socket={}", user.path("link").display());
    user.refused(&format!("assemble data {link} {other}"), &["in use by"]);
    user.refused(&format!("create more {MIRROR} --run c {link}"), &["in use by"]);
    let paths = format!("[[group]]\n[[group.path]]\nmember = \"{link}\"\n");
    fs::write(user.path("paths"), paths).expect("a file");
    user.refused("multipath mp --file=paths", &["is in use by"]);
    servers.expect(0, "stop data");
    user.expect(0, &format!("assemble data {link} {other}"));
    servers.refused(&format!("assemble data {one} {other}"), &["in use by"]);
    user.expect(0, "stop data");
    // Multipath devices may share it, as ways of one array's members.
    user.expect(0, "multipath mp --file=paths");
    user.expect(0, "multipath too --file=paths");
    servers.refused(&format!("assemble data {one} {other}"), &["in use by"]);
    user.expect(0, "stop mp");
    servers.refused(&format!("assemble data {one} {other}"), &["in use by"]);
    user.expect(0, "stop too");
    servers.expect(0, &format!("assemble data {one} {other}"));
    servers.expect(0, "stop data");
    for name in ["a", "b"] {
        servers.expect(0, &format!("stop {name}"));
    }
}

#[test]
fn a_pipe_or_an_endless_device_keeps_no_verb_waiting() {
    let user = User::with_members(&["a"]);
    let made = Command::new("mkfifo").arg(user.path("pipe")).status();
    assert!(made.is_ok_and(|made| made.success()));
    let create = |member: &str| format!("create data {MIRROR} --run a {member}");
    user.refused(&create("pipe"), &["neither a file nor a block device"]);
    user.refused(&create("multipath:pipe"), &["pipe"]);
    user.refused(&create("multipath:/dev/zero"), &["/dev/zero"]);
    user.refused("zero-superblock --run pipe", &["neither a file nor a block device"]);
    user.expect(1, "examine pipe");
    user.expect(1, "explain pipe");
    user.refused("assemble --scan --device=pipe", &["no member was found"]);
    user.refused("assemble data --config=pipe", &["pipe"]);
    user.refused("assemble data --config=/dev/zero", &["/dev/zero"]);
    let long = fs::File::create(user.path("long")).expect("a file");
    long.set_len((1 << 20) + 1).expect("a hole");
    user.refused("assemble data --config=long", &["longer than 1 MiB"]);
    user.refused(&create("multipath:long"), &["longer than 1 MiB"]);
    assert!(user.processes().is_empty());
}

/// The same of what verbs and the process keep in directories of their own.
#[test]
fn a_pipe_in_the_place_of_a_log_or_record_keeps_nobody_waiting() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "mdstat");
    let pipes = ["data.events", "data.log", "data.scrub", "data.scrub.new"];
    let made = Command::new("mkfifo").args(pipes.map(|name| user.run_dir().join(name))).status();
    assert!(made.is_ok_and(|made| made.success()));
    user.refused_with(4, "events data", &["no array runs"]);
    let said = user.expect(0, &format!("create data {MIRROR} a b"));
    assert!(said.contains("no log is written"), "{said}");
    assert!(said.contains("events are not kept"), "{said}");
    user.expect(0, "action data check --for=1h --wait");
    user.expect(0, "stop data");
    user.expect(0, "assemble data a b");
    user.expect(0, "stop data");
}

#[test]
fn data_that_no_program_knows_are_asked_about() {
    let user = User::with_members(&["a", "b", "c"]);
    let mut noise = 1u32;
    let bytes = (0..3 << 20).map(|_| {
        noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (noise >> 24) as u8
    });
    let mut file = vec![0; 8 << 20];
    file.splice(2 << 20..5 << 20, bytes);
    fs::write(user.path("b"), &file).expect("a file");
    user.refused(&format!("create data {MIRROR} a b"), &["3.0 MiB", "not recognised", "--run"]);
    assert!(user.bytes("b") == file, "a member has changed");
    user.expect(0, &format!("create data {MIRROR} a c"));
    user.refused("add data b", &["3.0 MiB", "not recognised"]);
    assert!(user.bytes("b") == file, "a member has changed");
    user.expect(0, "add data b --run");
    user.expect(0, "stop data");
}

#[test]
fn a_member_is_told_by_what_it_is_and_not_by_where_its_name_leads_by_now() {
    let user = User::with_members(&["a", "b"]);
    let link = |name: &str, to: &str| {
        drop(fs::remove_file(user.path(name)));
        std::os::unix::fs::symlink(user.path(to), user.path(name)).expect("a link");
    };
    link("one", "a");
    link("other", "b");
    user.expect(0, &format!("create data {MIRROR} one other"));
    link("one", "b");
    user.expect(0, "fail data b");
    let detail = user.expect(0, "detail data");
    let is_faulty = |line: &str| line.contains("faulty") && line.ends_with("/other");
    assert!(detail.lines().any(is_faulty), "{detail}");
    user.expect(0, "add data b");
    link("one", "a");
    user.expect(0, "stop data");
}

/// Makes an array whose export is large enough to be a member of another one like it; returns that member.
fn serve_large(user: &User, name: &str, members: [&str; 3]) -> String {
    let words = "--level=5 --raid-devices=3 --size=2M --assume-clean";
    let socket = user.path(&format!("{name}.sock"));
    let members = members.join(" ");
    user.expect(
        0,
        &format!("create {name} {words} --run --serve=nbd:unix:{} {members}", socket.display()),
    );
    format!("nbd+unix:///{name}?socket={}", socket.display())
}

#[test]
fn an_array_does_not_take_its_own_export_over_any_number_of_hops() {
    let user = User::with_members(&["a", "b", "c", "d", "e", "f", "g", "h"]);
    let data = serve_large(&user, "data", ["a", "b", "c"]);
    let loops = "leads back to the array itself";
    user.refused(&format!("add data --run {data}"), &[&data, loops]);
    user.refused(&format!("replace data --run a --with {data}"), &[&data, loops]);
    // By another name of the same place.
    let link = format!("nbd+unix:///?socket={}", user.path("link").display());
    std::os::unix::fs::symlink(user.path("data.sock"), user.path("link")).expect("a link");
    user.refused(&format!("add data --run {link}"), &[&link, loops]);
    // Over an array on its export, and over a multipath member.
    let other = serve_large(&user, "other", ["d", "e", &data]);
    user.refused(&format!("add data --run {other}"), &[&other, loops]);
    fs::write(user.path("paths"), format!("[[group]]\n[[group.path]]\nmember = \"{other}\"\n"))
        .expect("a file");
    user.refused("add data --run multipath:paths", &[loops]);
    // Over a multipath device that stands alone.
    let table = format!("0 8192 multipath 1 queue_if_no_path 0 1 1 round-robin 0 1 1 {other} 1");
    let socket = user.path("paths.sock");
    let front = format!("--serve=nbd:unix:{}", socket.display());
    let done = user.run_words(&["multipath", "mp", &front, "--dm-table", &table]);
    assert_eq!(done.status, 0, "{done:#?}");
    let over_paths = format!("nbd+unix:///mp?socket={}", socket.display());
    user.refused(&format!("add data --run {over_paths}"), &[&over_paths, loops]);
    // What does not lead back is taken, and what did may once it does not any more.
    let apart = serve_large(&user, "apart", ["f", "g", "h"]);
    user.expect(0, &format!("add data --run {apart}"));
    user.refused(&format!("add apart --run {other}"), &[&other, loops]);
    for name in ["mp", "other"] {
        user.expect(0, &format!("stop {name}"));
    }
    for name in ["data", "apart"] {
        user.expect(0, &format!("stop {name} --force"));
    }
}

#[test]
fn a_member_below_which_a_process_is_silent_is_refused_in_time() {
    let user = User::with_members(&["a", "b", "c", "d", "e", "f", "g"]);
    let data = serve_large(&user, "data", ["a", "b", "c"]);
    let other = serve_large(&user, "other", ["d", "e", &data]);
    let pid = u32::try_from(user.detail("data")["pid"].as_u64().expect("a number")).expect("one");
    user.halt(pid);
    let create = format!("create third {MIRROR} --run f {other}");
    user.refused(&create, &[&other, "cannot be told", "data.sock"]);
    user.signal(Signal::CONT, pid);
    user.expect(0, &create);
    for name in ["third", "other", "data"] {
        user.expect(0, &format!("stop {name} --force"));
    }
}

#[test]
fn of_two_arrays_that_add_each_others_export_at_once_one_is_refused() {
    let user = User::with_members(&["a", "b", "c", "d", "e", "f"]);
    let one = serve_large(&user, "one", ["a", "b", "c"]);
    let other = serve_large(&user, "other", ["d", "e", "f"]);
    let adds = [format!("add one --run {other}"), format!("add other --run {one}")];
    let started = adds.map(|words| user.command(&words).spawn().expect("mdspace starts"));
    let ended = started.map(|mut child| child.wait().expect("it ends").success());
    assert!(ended != [true, true], "each keeps its data in the other");
    for name in ["one", "other"] {
        user.expect(0, &format!("stop {name} --force"));
    }
}

#[test]
fn a_little_data_in_a_large_file_is_asked_about() {
    use std::os::unix::fs::FileExt;
    let user = User::with_members(&["a"]);
    let large = fs::File::create(user.path("large")).expect("a file");
    large.set_len(20 << 30).expect("a hole");
    large.write_all_at(b"precious", 5_700_000_123).expect("room on disk");
    user.refused(&format!("create data {MIRROR} a large"), &["large holds", "not recognised"]);
    large.set_len(0).expect("cut");
    large.set_len(20 << 30).expect("a hole");
    user.expect(0, &format!("create data {MIRROR} a large"));
    user.expect(0, "stop data");
}

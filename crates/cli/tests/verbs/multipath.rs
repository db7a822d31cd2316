//! Multipath over processes of our own: a disk, and proxies in front of it that are the paths. A proxy
//! that is stopped and goes on does what it was asked before, late: what a server with a full socket
//! buffer does.

use mdspace_front::nbd::Errno;
use rustix::process::Signal;
use serde_json::Value;

use crate::client::Client;
use crate::load::Load;
use crate::user::User;

const SECTORS: u64 = 8192;
const BLOCK: usize = 4096;
/// Times that a test can wait for, on a machine that is busy.
/// All paths end at one disk, whose cache is the device's.
const QUICK: &str = "--polling-interval=0.2 --no-path-retry=100 --cache=shared";
/// As `QUICK`, where a server is stopped.
const IMPATIENT: &str = "--read-deadline=1 --write-deadline=1";
/// Where no server is, and one that is only slow must not be taken for it.
const PATIENT: &str = "--fence=true --read-deadline=60 --write-deadline=60";

/// A disk of a file, and paths to it.
struct Paths {
    user: User,
    members: Vec<String>,
}

impl Paths {
    fn new(count: usize) -> Self {
        let user = User::with_members(&["disk"]);
        // Of a blank device one path is used.
        let disk = std::fs::File::options().write(true).open(user.path("disk")).expect("a disk");
        std::os::unix::fs::FileExt::write_all_at(&disk, &block(0), 0).expect("written");
        let table = format!("0 {SECTORS} multipath 0 0 1 1 round-robin 0 1 0 disk");
        let mut paths = Self { user, members: Vec::new() };
        paths.serve("base", &table, "");
        for path in 0..count {
            paths.members.push(paths.proxy(path));
        }
        paths
    }

    /// Serves a device of `table` under `name`, at the socket of that name.
    fn serve(&self, name: &str, table: &str, more: &str) {
        let socket = self.user.path(&format!("{name}.sock"));
        let serve = format!("--serve=nbd:unix:{}", socket.display());
        let (table, name) = (format!("--dm-table={table}"), name.to_owned());
        let mut words = vec!["multipath", &name, &table, &serve];
        words.extend(more.split_whitespace());
        let done = self.user.run_words(&words);
        assert_eq!(done.status, 0, "{words:?}: {done:#?}");
    }

    fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.user.path(&format!("{name}.sock")).display())
    }

    /// Starts the server of a path.
    fn proxy(&self, path: usize) -> String {
        let table = format!("0 {SECTORS} multipath 0 0 1 1 round-robin 0 1 0 {}", self.uri("base"));
        // One that is killed is known to owe nothing to the base any more.
        self.serve(&format!("p{path}"), &table, &format!("{QUICK} --fence=true"));
        self.uri(&format!("p{path}"))
    }

    fn pid(&self, name: &str) -> u32 {
        let pid = self.user.detail(name)["pid"].as_u64().expect("a number");
        u32::try_from(pid).expect("a process number")
    }

    /// The device over all paths in one group.
    fn top(&self, features: &str, more: &str) -> Client {
        let count = self.members.len();
        let paths = self.members.join(" ");
        self.serve_top(&format!("{features} 0 1 1 round-robin 0 {count} 0 {paths}"), more);
        Client::connect(&self.user.path("top.sock"))
    }

    fn serve_top(&self, rest_of_table: &str, more: &str) {
        let table = format!("0 {SECTORS} multipath {rest_of_table}");
        self.serve("top", &table, &format!("{QUICK} {more}"));
    }

    /// The device over all paths, under load. What was in flight over a path that is lost is known
    /// to be over: the test has killed its server.
    fn under_load(&self, features: &str) -> Load {
        drop(self.top(features, PATIENT));
        Load::start(&self.user.path("top.sock"))
    }

    fn ends_well(&self, load: Load) {
        let errors = load.end();
        let events = self.user.run("events top");
        assert!(errors.is_empty(), "{} errors\n{}", errors.len(), events.out);
    }

    fn kill(&self, name: &str) {
        self.user.signal(Signal::KILL, self.pid(name));
    }

    fn states(&self) -> Vec<String> {
        let detail = self.user.detail("top");
        let groups = detail["multipath"]["groups"].as_array().expect("groups").clone();
        let paths =
            groups.iter().flat_map(|group| group["paths"].as_array().expect("paths").clone());
        paths.map(|path| path["state"].as_str().expect("a word").to_owned()).collect()
    }

    fn unproved(&self) -> Vec<Value> {
        self.user.detail("top")["multipath"]["unproved"].as_array().expect("ranges").clone()
    }

    fn wait_for(&self, what: &str, holds: impl Fn() -> bool) {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !holds() {
            assert!(std::time::Instant::now() < until, "{what}: {:#}", self.user.detail("top"));
            std::thread::yield_now();
        }
    }

    fn message(&self, words: &str) {
        self.user.expect(0, &format!("message top {words}"));
    }
}

fn block(salt: u8) -> Vec<u8> {
    (0..BLOCK).map(|at| (at / 16) as u8 ^ salt).collect()
}

#[test]
fn a_killed_path_is_not_noticed_and_comes_back_when_its_server_does() {
    let paths = Paths::new(2);
    let mut top = paths.top("1 queue_if_no_path", "--fence=true");
    for at in 0..8 {
        top.write(at * BLOCK as u64, &block(at as u8)).expect("written");
    }
    paths.user.signal(Signal::KILL, paths.pid("p0"));
    for round in 0..5u8 {
        for at in 0..8 {
            assert!(top.read(at * BLOCK as u64, BLOCK).expect("read") == block(at as u8 ^ round));
            top.write(at * BLOCK as u64, &block(at as u8 ^ (round + 1))).expect("written");
        }
    }
    paths.wait_for("the path fails", || paths.states() == ["failed", "active"]);
    paths.proxy(0);
    paths.wait_for("the path is back", || paths.states() == ["active", "active"]);
    paths.wait_for("events tell it", || {
        let events = paths.user.expect(0, "events top");
        events.contains("PathFailed") && events.contains("PathReinstated")
    });
    drop(top);
    for name in ["top", "p0", "p1", "base"] {
        paths.user.expect(0, &format!("stop {name} --force"));
    }
    assert!(paths.user.processes().is_empty());
}

#[test]
fn a_device_whose_paths_are_only_read_tells_its_clients_so() {
    let paths = Paths::new(2);
    let members = paths.members.join(" ");
    let table = format!("0 0 1 1 round-robin 0 2 0 {members}");
    paths.serve_top(&table, &format!("{PATIENT} --readonly"));
    let later = paths.user.path("later.sock");
    paths.user.expect(0, &format!("serve top nbd:unix:{}", later.display()));
    for socket in [paths.user.path("top.sock"), later] {
        assert!(Client::is_told_read_only(&socket), "{}", socket.display());
        let mut client = Client::connect(&socket);
        assert_eq!(client.write(0, &block(1)), Err(Errno::NotPermitted));
        assert!(client.read(0, BLOCK).expect("read") == block(0));
    }
    assert_eq!(paths.states(), ["active", "active"], "no write fails a path");
    assert!(!Client::is_told_read_only(&paths.user.path("p0.sock")));
}

/// The late-write rule: what was sent over the stopped path is done when it goes on, after the newer
/// write would have been.
#[test]
fn a_write_that_a_stopped_path_does_late_never_overwrites_a_newer_one() {
    let paths = Paths::new(2);
    let mut top = paths.top("1 queue_if_no_path", IMPATIENT);
    top.write(0, &block(1)).expect("written");
    let stopped = paths.pid("p0");
    paths.user.halt(stopped);
    // Whichever of the two meets the stopped path is done over the other one.
    top.write(0, &block(2)).expect("written in spite of the stopped path");
    top.write(BLOCK as u64, &block(3)).expect("written");
    assert!(top.read(0, BLOCK).expect("read") == block(2));
    let unproved = paths.unproved();
    assert_eq!(unproved.len(), 1, "{unproved:?}");
    let first = unproved[0]["first_sector"].as_u64().expect("a sector") * 512;
    let text = paths.user.expect(0, "detail top");
    assert!(text.contains("may still appear"), "{text}");

    // Elsewhere writes go on; there a different one waits.
    top.write(64 * BLOCK as u64, &block(9)).expect("written");
    let waiting = top.send_write(first, &block(7));
    let other = if first == 0 { BLOCK as u64 } else { 0 };
    top.write(other, &block(8)).expect("written");
    assert!(top.read(first, BLOCK).expect("read") != block(7), "it waits");

    paths.user.signal(Signal::CONT, stopped);
    top.answer(waiting).expect("written when the earlier one was proved");
    assert!(top.read(first, BLOCK).expect("read") == block(7));
    paths.wait_for("the path is back", || paths.states() == ["active", "active"]);
    assert!(paths.unproved().is_empty());
    for _ in 0..20 {
        assert!(top.read(first, BLOCK).expect("read") == block(7), "nothing old appears");
    }
}

/// The cases of mptest, dm-multipath's own regression suite, from here on.
#[test]
fn without_failures_a_load_runs_over_all_paths() {
    let paths = Paths::new(2);
    let load = paths.under_load("0");
    load.goes_on(50);
    let detail = paths.user.detail("top");
    let groups = detail["multipath"]["groups"][0]["paths"].as_array().expect("paths").clone();
    assert!(groups.iter().all(|path| path["ios"].as_u64() > Some(100)), "{detail:#}");
    paths.ends_well(load);
}

#[test]
fn under_load_paths_that_go_offline_one_after_the_other_are_not_noticed() {
    let paths = Paths::new(2);
    let load = paths.under_load("1 queue_if_no_path");
    for round in 0..4 {
        let (name, other) = [("p0", "p1"), ("p1", "p0")][round % 2];
        let socket = paths.user.path(&format!("{name}.sock"));
        let front = format!("nbd:unix:{}", socket.display());
        paths.user.expect(0, &format!("unserve {name} {front} --force"));
        load.goes_on(20);
        paths.user.expect(0, &format!("serve {name} {front}"));
        paths.wait_for(&format!("{name} is back beside {other}"), || {
            paths.states() == ["active", "active"]
        });
    }
    paths.ends_well(load);
}

#[test]
fn under_load_paths_whose_servers_are_killed_one_after_the_other_are_not_noticed() {
    let paths = Paths::new(2);
    let load = paths.under_load("1 queue_if_no_path");
    for round in 0..4 {
        paths.kill(["p0", "p1"][round % 2]);
        load.goes_on(20);
        paths.proxy(round % 2);
        paths.wait_for("it is back", || paths.states() == ["active", "active"]);
    }
    paths.ends_well(load);
}

#[test]
fn under_load_paths_are_failed_and_reinstated_by_message() {
    let paths = Paths::new(2);
    let load = paths.under_load("0");
    for round in 0..6 {
        let path = &paths.members[round % 2];
        paths.message(&format!("fail_path {path}"));
        assert_eq!(paths.states()[round % 2], "failed");
        load.goes_on(10);
        assert_eq!(paths.states()[round % 2], "failed", "until the operator says otherwise");
        paths.message(&format!("reinstate_path {path}"));
        paths.wait_for("it is back", || paths.states() == ["active", "active"]);
    }
    paths.ends_well(load);
    let refused = |words: &str, why: &str| {
        paths.user.refused(&format!("message top {words}"), &[why]);
    };
    refused("fail_path nothing", "is no path");
    refused("make_coffee", "is no message");
    refused("switch_group 3", "count from 1 to 1");
}

#[test]
fn under_load_groups_are_switched_disabled_and_enabled() {
    let paths = Paths::new(2);
    let [one, other] = &paths.members[..] else { panic!("two paths") };
    paths
        .serve_top(&format!("0 0 2 1 round-robin 0 1 0 {one} queue-length 0 1 0 {other}"), PATIENT);
    let load = Load::start(&paths.user.path("top.sock"));
    let groups = || {
        let detail = paths.user.detail("top");
        let state = |group: usize| detail["multipath"]["groups"][group]["state"].clone();
        (state(0), state(1))
    };
    let is = |one: &str, other: &str| assert_eq!(groups(), (one.into(), other.into()));
    is("active", "enabled");
    paths.message("switch_group 2");
    is("enabled", "active");
    load.goes_on(10);
    paths.message("disable_group 2");
    is("active", "disabled");
    load.goes_on(10);
    paths.message("disable_group 1");
    load.goes_on(10);
    paths.message("enable_group 1");
    paths.message("enable_group 2");
    paths.message("switch_group 2");
    is("enabled", "active");
    paths.kill("p1");
    load.goes_on(10);
    is("active", "enabled");
    paths.proxy(1);
    paths.wait_for("it is back", || paths.states() == ["active", "active"]);
    is("active", "enabled");
    let line = paths.user.detail("top")["multipath"]["status"].as_str().expect("a line").to_owned();
    assert!(line.starts_with("0 8192 multipath 2 0 0 0 2 1 A 0 1 0 nbd+unix"), "{line}");
    paths.ends_well(load);
}

#[test]
fn with_all_paths_down_requests_wait_if_they_are_told_to_and_service_goes_on() {
    let paths = Paths::new(2);
    let load = paths.under_load("1 queue_if_no_path");
    load.goes_on(5);
    paths.kill("p0");
    paths.kill("p1");
    paths.wait_for("both are lost", || paths.states() == ["failed", "failed"]);
    let detail = paths.user.expect(0, "detail top");
    assert!(detail.contains("requests wait for a path, 20 s at most"), "{detail}");
    let before = load.rounds();
    paths.proxy(1);
    load.goes_on(20);
    assert!(load.rounds() > before && load.end().is_empty());
}

#[test]
fn with_all_paths_down_requests_fail_if_they_are_told_to_and_service_goes_on() {
    let paths = Paths::new(2);
    let load = paths.under_load("0");
    load.goes_on(5);
    paths.kill("p0");
    paths.kill("p1");
    paths.wait_for("both are lost", || paths.states() == ["failed", "failed"]);
    load.goes_on(5);
    paths.message("queue_if_no_path");
    paths.proxy(0);
    paths.proxy(1);
    paths.wait_for("both are back", || paths.states() == ["active", "active"]);
    load.goes_on(20);
    let errors = load.end();
    assert!(!errors.is_empty(), "requests without a path fail");
}

#[test]
fn waiting_for_a_path_has_an_end() {
    let paths = Paths::new(1);
    drop(paths.top("1 queue_if_no_path", "--fence=true"));
    paths.user.expect(0, "stop top --force");
    let table = format!("0 {SECTORS} multipath 1 queue_if_no_path 0 1 1 round-robin 0 1 0 ");
    let quick = "--polling-interval=0.2 --no-path-retry=5 --fence=true";
    paths.serve("top", &(table + &paths.members[0]), quick);
    let mut top = Client::connect(&paths.user.path("top.sock"));
    paths.kill("p0");
    paths.wait_for("the path is lost", || paths.states() == ["failed"]);
    assert!(top.read(0, BLOCK).is_err(), "after a second at most");
    assert!(paths.user.expect(0, "detail top").contains("have waited for a path long enough"));
    paths.proxy(0);
    paths.wait_for("the path is back", || paths.states() == ["active"]);
    assert!(top.read(0, BLOCK).is_ok());
}

#[test]
fn without_a_fence_a_different_write_where_one_may_appear_fails_in_the_end_and_the_operator_can_help()
 {
    let paths = Paths::new(2);
    let mut top = paths.top("1 queue_if_no_path", "");
    paths.user.expect(0, "stop top --force");
    drop(top);
    let list = paths.members.join(" ");
    let table = format!("0 {SECTORS} multipath 0 0 1 1 round-robin 0 2 0 {list}");
    paths.serve("top", &table, "--polling-interval=0.2 --no-path-retry=3 --write-deadline=1");
    top = Client::connect(&paths.user.path("top.sock"));
    let stopped = paths.pid("p0");
    paths.user.halt(stopped);
    top.write(0, &block(1)).expect("written");
    top.write(BLOCK as u64, &block(2)).expect("written");
    let unproved = paths.unproved();
    let first = unproved[0]["first_sector"].as_u64().expect("a sector") * 512;
    let path = unproved[0]["path"].as_str().expect("a path").to_owned();
    assert!(top.write(first, &block(3)).is_err(), "what may appear there is not proved");
    paths.user.signal(Signal::KILL, stopped);
    assert!(top.write(first, &block(3)).is_err(), "a closed connection proves nothing");
    paths.message(&format!("fail_path {path} --fenced"));
    top.write(first, &block(4)).expect("written on the operator's word");
    assert!(top.read(first, BLOCK).expect("read") == block(4) && paths.unproved().is_empty());
}

#[test]
fn paths_to_different_devices_are_refused() {
    let user = User::with_members(&["a", "b"]);
    std::fs::File::options().write(true).open(user.path("b")).unwrap().set_len(4 << 20).unwrap();
    let run = |words: &[&str], why: &str| {
        let done = user.run_words(words);
        assert!(done.status != 0 && done.err.contains(why), "{words:?}: {done:#?}");
    };
    let table = |rest: &str| format!("--dm-table=0 8192 multipath 0 0 1 1 round-robin 0 {rest}");
    run(&["multipath", "x", &table("2 0 a b")], "they are not one device");
    std::fs::File::options().write(true).open(user.path("b")).unwrap().set_len(8 << 20).unwrap();
    std::fs::write(user.path("c"), vec![7; 8 << 20]).unwrap();
    run(&["multipath", "x", &table("2 0 a c")], "its first block is not that of");
    run(&["multipath", "x", &table("1 0 none")], "no path can be opened");
    run(&["multipath", "x", &table("1 7 a")], "word 11");
    run(&["multipath", "x", "--file=none.toml"], "none.toml");
    std::fs::write(user.path("bad.toml"), "[[group]]\nselector = \"best\"\n").unwrap();
    run(&["multipath", "x", "--file=bad.toml"], "group 1: selector best");
    assert!(user.processes().is_empty());
}

/// The other path would write to the disk beside the one who has it.
#[test]
fn a_device_is_not_served_while_somebody_else_has_one_of_its_paths() {
    let user = User::with_members(&["a", "b"]);
    let create = "--level=1 --raid-devices=2 --assume-clean";
    user.expect(0, &format!("create one {create} a b"));
    for name in ["a", "b"] {
        let other = format!("{name}2");
        std::fs::copy(user.path(name), user.path(&other)).expect("room");
        let path = |name| format!("{{member = \"{}\"}}", user.path(name).display());
        let mut paths = [name, &other].map(path);
        if name == "b" {
            paths.reverse();
        }
        let file = format!("[[group]]\npath = [{}]\n", paths.join(", "));
        std::fs::write(user.path(&format!("{name}.toml")), file).expect("a file");
    }
    let why = ["a is in use by mdspace"];
    user.refused("assemble two --run multipath:a.toml multipath:b.toml", &why);
    user.refused("multipath two --file=a.toml", &why);
    user.refused("multipath two --file=b.toml", &["b is in use by mdspace"]);
    user.refused(&format!("create two {create} --run multipath:a.toml multipath:b.toml"), &why);
    user.refused("add one --run multipath:a.toml", &["a is in use by"]);
    user.expect(0, "stop one");
    user.expect(0, "assemble two multipath:a.toml multipath:b.toml");
    user.expect(0, "stop two");
}

/// Its name stays, and leads elsewhere: another disk is put into the place of the broken one.
#[test]
fn what_a_failed_multipath_device_leads_to_by_now_is_asked_about_as_any_other() {
    let user = User::with_members(&["a", "b", "c"]);
    let lead_to = |disk: &str| {
        let path = user.path(disk);
        let file = format!("[[group]]\npath = [{{member = \"{}\"}}]\n", path.display());
        std::fs::write(user.path("m.toml"), file).expect("a file");
    };
    lead_to("b");
    let create = "create top --level=1 --raid-devices=2 --assume-clean";
    user.expect(0, &format!("{create} a multipath:m.toml"));
    user.expect(0, "fail top multipath:m.toml");
    std::fs::write(user.path("c"), vec![7; 8 << 20]).expect("a file");
    lead_to("c");
    for words in ["add top multipath:m.toml", "replace top a --with multipath:m.toml"] {
        user.refused(words, &["m.toml holds", "not recognised", "--run"]);
    }
    assert!(user.bytes("c") == vec![7; 8 << 20], "other people's data are overwritten");
    // The control: the member itself is known, and no question.
    lead_to("b");
    user.expect(0, "add top multipath:m.toml");
    user.run("wait top");
    user.expect(0, "detail top --test");
    user.expect(0, "stop top");
}

#[test]
fn a_multipath_device_that_was_missing_is_taken_back_and_without_a_path_left_out_if_told_to() {
    let user = User::with_members(&["a", "b"]);
    let file = format!("[[group]]\npath = [{{member = \"{}\"}}]\n", user.path("b").display());
    std::fs::write(user.path("m.toml"), file).expect("a file");
    let create = "create top --level=1 --raid-devices=2 --assume-clean --save";
    user.expect(0, &format!("{create} a multipath:m.toml"));
    user.expect(0, "fail top multipath:m.toml");
    user.expect(0, "save top");
    user.expect(0, "re-add top multipath:m.toml");
    user.expect(0, "wait top");
    user.expect(0, "stop top");
    let said = user.expect(0, "assemble top");
    assert!(said.contains("started with 2 of 2 members"), "{said}");
    user.expect(0, "save top");
    user.expect(0, "stop top");
    // It is the same array in its configuration, and under a name that leads to none of its members.
    let saved = std::fs::read_to_string(user.path("etc/top.toml")).expect("it was saved");
    assert!(!saved.contains("missing"), "{saved}");

    std::fs::rename(user.path("b"), user.path("away")).expect("it moves");
    user.refused("assemble top", &["no path can be opened"]);
    let said = user.expect(0, "assemble top --run");
    assert!(said.contains("started with 1 of 2 members"), "{said}");
    assert!(said.contains("m.toml") && said.contains("no path can be opened"), "{said}");
    user.expect(0, "save top");
    user.expect(0, "stop top");
    let saved = std::fs::read_to_string(user.path("etc/top.toml")).expect("it was saved");
    let missing = saved.lines().find(|line| line.starts_with("missing")).expect("one is missing");
    assert!(missing.contains("m.toml"), "{saved}");
}

#[test]
fn a_device_that_is_listed_twice_is_told_under_whatever_name() {
    let user = User::with_members(&["disk", "other"]);
    let table = "--dm-table=0 8192 multipath 0 0 1 1 round-robin 0 2 0 disk ./disk";
    let done = user.run_words(&["multipath", "top", table]);
    assert_eq!(done.status, 0, "{done:#?}");
    assert!(done.out.contains("./disk: is the same device as disk, listed twice"), "{done:#?}");
    user.expect(0, "stop top");
    let file = "[[group]]\npath = [{member = \"disk\"}, {member = \"./disk\"}]\n";
    std::fs::write(user.path("m.toml"), file).unwrap();
    let create = "create m --level=1 --raid-devices=2 --assume-clean multipath:m.toml other";
    let done = user.run(create);
    assert_eq!(done.status, 0, "{done:#?}");
    assert!(done.out.contains("./disk: is the same device as disk, listed twice"), "{done:#?}");
    user.expect(0, "stop m");
}

#[test]
fn an_array_of_multipath_members_bears_the_loss_of_a_path_of_each() {
    let paths = Paths::new(2);
    let file = paths.user.path("m.toml");
    let member = |path: &String| format!("{{ member = \"{path}\" }}");
    let list: Vec<String> = paths.members.iter().map(member).collect();
    let text = format!(
        "polling_interval = 0.2\ncache = \"shared\"\nfence = \"true\"\n[[group]]\nselector = \"expected\"\npath = [{}]\n",
        list.join(", ")
    );
    std::fs::write(&file, text).expect("a file");
    std::fs::File::create(paths.user.path("plain")).unwrap().set_len(8 << 20).unwrap();
    let serve = format!("--serve=nbd:unix:{}", paths.user.path("data.sock").display());
    // No write to a bitmap is under way when the path is lost: that one would fail the member.
    let words = "create data --level=1 --raid-devices=2 --assume-clean --bitmap=none --run";
    paths.user.expect(0, &format!("{words} {serve} multipath:m.toml plain"));
    let load = Load::start(&paths.user.path("data.sock"));
    load.goes_on(5);
    paths.kill("p0");
    load.goes_on(20);
    // All may have gone to the other path, or to the other member: then the checker finds it.
    let detail = || paths.user.expect(0, "detail data");
    paths.wait_for("the loss is seen", || detail().contains("failed once"));
    assert!(detail().contains("multipath:"), "{}", detail());
    assert_eq!(paths.user.expect(0, "get data degraded").trim(), "0");
    paths.user.expect(0, &format!("message data fail_path {}", paths.members[0]));
    paths.ends_well(load);
    paths.user.expect(0, "stop data --force");
}

/// Its process was killed: a write may still appear anywhere, until the operator says of each path that none can, or
/// at the start of all.
#[test]
fn the_operators_word_reaches_the_paths_of_an_arrays_member() {
    let paths = Paths::new(2);
    let member = |path: &String| format!("{{ member = \"{path}\" }}");
    let list: Vec<String> = paths.members.iter().map(member).collect();
    let times = "polling_interval = 0.2\nno_path_retry = 1000\ncache = \"shared\"\n";
    let text = format!("{times}[[group]]\npath = [{}]\n", list.join(", "));
    std::fs::write(paths.user.path("m.toml"), text).expect("a file");
    let serve = format!("--serve=nbd:unix:{}", paths.user.path("data.sock").display());
    let words = "--level=linear --raid-devices=1 --force --run";
    paths.user.expect(0, &format!("create data {words} {serve} multipath:m.toml"));
    let write = |salt| {
        let mut client = Client::connect(&paths.user.path("data.sock"));
        assert_eq!(client.write(0, &block(salt)), Ok(()));
    };
    let device = || paths.user.detail("data")["multipath"][0].clone();
    let unproved = || device()["unproved"].as_array().expect("ranges").len();
    write(1);
    paths.kill("data");
    paths.user.expect(0, &format!("assemble data {serve} multipath:m.toml"));
    for (at, path) in paths.members.iter().enumerate() {
        assert_eq!(unproved(), 2 - at);
        paths.user.expect(0, &format!("message data fail_path {path} --fenced"));
        let reason = device()["groups"][0]["paths"][at]["reason"].clone();
        assert_eq!(reason, "failed by the operator");
    }
    assert_eq!(unproved(), 0);
    for path in &paths.members {
        paths.user.expect(0, &format!("message data reinstate_path {path}"));
    }
    write(2);
    paths.kill("data");
    paths.user.expect(0, &format!("assemble data --fenced {serve} multipath:m.toml"));
    assert_eq!(unproved(), 0);
    write(3);
    paths.user.expect(0, "stop data");
}

#[test]
fn a_better_group_is_used_again_when_the_user_says() {
    for (failback, comes_back) in [("manual", false), ("immediate", true), ("0.3", true)] {
        let paths = Paths::new(2);
        let [one, other] = &paths.members[..] else { panic!("two paths") };
        let table = format!("0 0 2 1 round-robin 0 1 0 {one} round-robin 0 1 0 {other}");
        paths.serve_top(&table, &format!("--fence=true --failback={failback}"));
        let load = Load::start(&paths.user.path("top.sock"));
        let first = || {
            let detail = paths.user.detail("top");
            detail["multipath"]["groups"][0]["state"].as_str().expect("a word").to_owned()
        };
        paths.kill("p0");
        load.goes_on(10);
        assert_eq!(first(), "enabled", "{failback}");
        paths.proxy(0);
        paths.wait_for("it is back", || paths.states() == ["active", "active"]);
        match comes_back {
            true => paths.wait_for("the first group is used", || first() == "active"),
            false => {
                load.goes_on(10);
                assert_eq!(first(), "enabled", "until the operator switches");
                paths.message("switch_group 1");
                assert_eq!(first(), "active");
            }
        }
        assert!(load.end().is_empty(), "{failback}");
    }
}

#[test]
fn lanes_have_connections_of_their_own_and_lose_a_path_together() {
    let paths = Paths::new(2);
    drop(paths.top("1 queue_if_no_path", "--fence=true --lanes=3"));
    let load = Load::start(&paths.user.path("top.sock"));
    // Clients are spread over the lanes; these only read, so that the first one's bytes stay its own.
    let mut readers: Vec<Client> =
        (0..5).map(|_| Client::connect(&paths.user.path("top.sock"))).collect();
    for round in 0..3 {
        paths.kill(["p0", "p1"][round % 2]);
        for reader in &mut readers {
            for at in 0..20 {
                reader.read(at * BLOCK as u64, BLOCK).expect("read over the other path");
            }
        }
        load.goes_on(10);
        paths.proxy(round % 2);
        paths.wait_for("it is back", || paths.states() == ["active", "active"]);
    }
    paths.ends_well(load);
}

#[test]
fn a_verb_for_arrays_says_of_a_multipath_device_what_it_is() {
    let paths = Paths::new(0);
    for words in ["wait base", "add base disk", "replace base disk --with=disk", "save base"] {
        let done = paths.user.run(words);
        let is_told = done.err.contains("it is a multipath device and no array");
        assert!(done.status == 1 && is_told && !done.err.contains("Device"), "{words}: {done:#?}");
    }
    paths.user.expect(0, "stop base");
}

#[test]
fn a_device_stands_in_the_list_and_verbs_for_arrays_say_what_it_is() {
    let paths = Paths::new(1);
    let shown = paths.user.expect(0, "mdstat");
    assert!(shown.contains("base : active multipath disk[0]\n"), "{shown}");
    assert!(shown.contains("      4096 blocks [1/1] [U]\n"), "{shown}");
    assert!(shown.contains("p0 : active multipath base.sock[0]\n"), "{shown}");
    let it_is = "it is a multipath device and no array";
    for verb in ["wait", "get", "save", "set mismatch_cnt=1 --save", "restart", "readonly"] {
        let (verb, more) = verb.split_once(' ').unwrap_or((verb, ""));
        let words = format!("{verb} base {more}");
        let done = paths.user.run(words.trim_end());
        assert!(done.status != 0 && done.err.contains(it_is), "{words}: {done:#?}");
        assert!(!done.err.contains("lost the process"), "{words}: {done:#?}");
    }
    paths.user.expect(0, &format!("message p0 fail_path {}", paths.uri("base")));
    let shown = paths.user.expect(0, "mdstat");
    assert!(shown.contains("p0 : broken multipath base.sock[0](F)\n"), "{shown}");
    assert!(shown.contains("      4096 blocks [1/0] [_]\n"), "{shown}");
}

//! Several arrays at one address, with the clients that users have.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{
    Images, MIB, Mdspace, Nbd, Pattern, Request, SECTOR, Tools, path_text, until,
};

/// Two arrays of two files each, at one Unix socket. The first has room for a member of the other.
struct Shared {
    images: Images,
    mdspace: Mdspace,
}

impl Shared {
    fn start() -> Self {
        let shared = Self { images: Images::new(), mdspace: Mdspace::new() };
        for (name, size) in [("one", 20), ("two", 16)] {
            let members = shared.images.sparse(name, 2, (size + 2) * MIB);
            let size = format!("--size={size}M");
            let front = format!("--serve={}", shared.address());
            let mut arguments = vec!["create", name, "--level=1", "--raid-devices=2"];
            arguments.extend([&*size, "--assume-clean", "--run", &front]);
            arguments.extend(members.iter().map(|path| path_text(path)));
            shared.mdspace.succeed(&arguments);
        }
        shared
    }

    fn socket(&self) -> PathBuf {
        self.images.folder().join("all.sock")
    }

    fn address(&self) -> String {
        format!("nbd:unix:{}?shared", self.socket().display())
    }

    fn uri(&self, name: &str) -> String {
        format!("nbd+unix:///{name}?socket={}", self.socket().display())
    }

    /// Runs a client; gives its exit code, and what it printed.
    fn client(&self, program: &str, arguments: &[&str]) -> (bool, String) {
        let mut command = Tools::find().command(program);
        let run = command.args(arguments).current_dir(self.images.folder()).output();
        let output = run.unwrap_or_else(|error| panic!("{program} starts: {error}"));
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    }

    fn succeed(&self, program: &str, arguments: &[&str]) -> String {
        let (is_success, text) = self.client(program, arguments);
        assert!(is_success, "{program} {arguments:?}: {text}");
        text
    }

    /// What the address lists.
    fn listed(&self) -> Vec<String> {
        let text = self.succeed("nbdinfo", &["--list", "--json", &self.uri("")]);
        let list: serde_json::Value = serde_json::from_str(&text).expect("nbdinfo prints JSON");
        let exports = list["exports"].as_array().expect("a list").iter();
        let mut names: Vec<String> =
            exports.filter_map(|export| Some(export["export-name"].as_str()?.into())).collect();
        names.sort();
        names
    }
}

/// The broker of a socket.
fn broker_of(socket: &Path) -> Option<Pid> {
    let word = format!("{}.broker", socket.display());
    let is_it = |process: &Pid| {
        let line = fs::read(format!("/proc/{}/cmdline", process.as_raw_pid())).unwrap_or_default();
        line.split(|&byte| byte == 0).any(|found| found == word.as_bytes())
    };
    let all = fs::read_dir("/proc").expect("/proc is there");
    let mut processes = all
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw);
    processes.find(is_it)
}

#[test]
fn several_arrays_are_served_at_one_address_each_under_its_name() {
    let shared = Shared::start();
    assert_eq!(shared.listed(), ["one", "two"]);
    assert_eq!(shared.mdspace.report("two")["fronts"][0]["uri"], shared.uri("two"));
    for (name, seed) in [("one", 31), ("two", 32)] {
        let file = shared.images.folder().join(name);
        Pattern { seed }.write_file(&file, 16 * MIB / SECTOR as u64, 1);
        shared.succeed("nbdcopy", &["--flush", name, &shared.uri(name)]);
    }
    for name in ["one", "two"] {
        let back = format!("{name}.back");
        shared.succeed("nbdcopy", &[&shared.uri(name), &back]);
        shared.succeed("cmp", &["--bytes=16MiB", name, &back]);
    }
    assert!(
        !shared.client("cmp", &["--bytes=16MiB", "one.back", "two.back"]).0,
        "they are two arrays"
    );
    let (is_success, text) = shared.client("nbdinfo", &[&shared.uri("")]);
    assert!(!is_success && text.contains("for the default export"), "no array is meant: {text}");

    // Neither lists the other for what it is told, and each goes by itself.
    shared.mdspace.succeed(&["readonly", "one"]);
    until("the address tells that one is read-only", || {
        shared.succeed("nbdinfo", &[&shared.uri("one")]).contains("is_read_only: true")
    });
    assert!(shared.succeed("nbdinfo", &[&shared.uri("two")]).contains("is_read_only: false"));
    shared.mdspace.succeed(&["stop", "one"]);
    assert_eq!(shared.listed(), ["two"]);
    let address = shared.address();
    let address = address.strip_suffix("?shared").expect("it ends so");
    shared.mdspace.succeed(&["unserve", "two", address]);
    until("the broker has ended", || broker_of(&shared.socket()).is_none());
    assert!(!shared.socket().exists());
    shared.mdspace.succeed(&["stop", "two"]);
}

#[test]
fn a_client_outlives_the_broker_and_the_next_one_takes_its_place() {
    let shared = Shared::start();
    let mut client = Nbd::connect(&shared.socket(), "two").expect("it is served");
    let data = vec![0x5a; 64 << 10];
    client.write(0, &data);
    let first = broker_of(&shared.socket()).expect("it runs");
    kill_process(first, Signal::KILL).expect("it runs");
    until("another broker runs", || {
        broker_of(&shared.socket()).is_some_and(|broker| broker != first)
    });
    client.flush();
    assert_eq!(client.read(0, 64 << 10), data);
    until("both arrays are served again", || {
        ["one", "two"].iter().all(|name| Nbd::connect(&shared.socket(), name).is_ok())
    });
    assert_eq!(shared.listed(), ["one", "two"]);

    // The death of an array's process takes that array's clients alone.
    shared.mdspace.kill();
    until("the broker has ended", || broker_of(&shared.socket()).is_none());
    assert!(client.submit(&Request::Flush).and_then(|_| client.receive()).is_err());
}

/// An array over another one at the same address is fine; a circle is not.
#[test]
fn no_array_gets_itself_for_a_member_through_a_shared_address() {
    let shared = Shared::start();
    let front = format!("--serve={}", shared.address());
    let (two, one) = (shared.uri("two"), shared.uri("one"));
    let words = ["create", "over", "--level=linear", "--raid-devices=1", "--force", "--run"];
    shared.mdspace.succeed(&[&words[..], &[&front, &two]].concat());
    assert_eq!(shared.listed(), ["one", "over", "two"]);
    for member in [&two, &shared.uri("over")] {
        let refused = shared.mdspace.run(&["add", "two", "--run", member]);
        assert_eq!(refused.status, 1, "{refused:#?}");
        assert!(refused.err.contains("leads back to the array itself"), "{refused:#?}");
    }
    shared.mdspace.succeed(&["add", "two", "--run", &one]);
    shared.mdspace.succeed(&["stop", "over"]);
    shared.mdspace.succeed(&["stop", "two", "--force"]);
    shared.mdspace.succeed(&["stop", "one", "--force"]);
}

//! An array's life: made, served, stopped, killed, brought back.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::client::Client;
use crate::user::User;

const RAID1: &str = "--level=1 --raid-devices=2";

#[test]
fn an_array_is_served_when_create_returns_and_gone_when_stop_returns() {
    let user = User::with_members(&["a", "b"]);
    let serve = format!("--serve=nbd:unix:{}", user.path("s").display());
    let said = user.expect(0, &format!("create data {RAID1} {serve} a b"));
    assert!(said.contains("started with 2 of 2 members"), "{said}");
    assert!(said.contains(&format!("served at nbd:unix:{}", user.path("s").display())), "{said}");
    let mut hello = [0; 8];
    user.client("s").read_exact(&mut hello).expect("NBD speaks first");
    assert_eq!(&hello, b"NBDMAGIC");
    user.expect(0, "stop data --force");
    assert!(user.processes().is_empty());
    assert!(!user.path("s").exists() && !user.run_dir().join("data.sock").exists());
    user.refused_with(4, "detail data", &["no array runs", "mdspace assemble data"]);
}

#[test]
fn an_array_comes_back_from_its_members_in_any_order_and_under_another_name() {
    let user = User::with_members(&["a", "b", "c"]);
    user.expect(0, "create data --level=5 --raid-devices=3 --homehost=h a b c");
    let uuid = user.detail("data")["array"]["uuid"].clone();
    user.expect(0, "stop data");
    user.expect(0, "assemble other c a b");
    let detail = user.detail("other");
    assert_eq!((&detail["array"]["uuid"], &detail["array"]["name"]), (&uuid, &"h:data".into()));
    assert_eq!(detail["schema"], 1);
    user.expect(0, "stop other");
}

#[test]
fn a_killed_process_leaves_an_array_that_assembles_at_once() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, &format!("create data {RAID1} a b"));
    let pids = user.processes();
    assert_eq!(pids.len(), 1);
    user.signal(Signal::KILL, pids[0]);
    user.expect(0, "assemble data a b");
    assert_eq!(user.expect(0, "get data degraded").trim(), "0");
    user.expect(0, "stop data");
}

#[test]
fn clients_that_connect_are_told_whether_the_array_takes_writes() {
    let user = User::with_members(&["a", "b"]);
    let (one, two) = (user.path("one.nbd"), user.path("two.nbd"));
    let fronts =
        format!("--serve=nbd:unix:{} --serve=nbd:unix:{}?ro", one.display(), two.display());
    user.expect(0, &format!("create data {RAID1} --assume-clean {fronts} a b"));
    let told = || [Client::is_told_read_only(&one), Client::is_told_read_only(&two)];
    assert_eq!(told(), [false, true]);
    user.expect(0, "readonly data");
    assert_eq!(told(), [true, true]);
    user.expect(0, "readwrite data");
    assert_eq!(told(), [false, true]);
    user.expect(0, "stop data");
    user.expect(0, &format!("assemble data --readonly {fronts} a b"));
    assert_eq!(told(), [true, true]);
    user.expect(0, "stop data");
}

#[test]
fn what_was_done_and_could_not_be_said_has_an_exit_code_of_its_own() {
    let user = User::with_members(&["a", "b"]);
    let full = || File::options().write(true).open("/dev/full").expect("a full device");
    let words = format!("create data {RAID1} --assume-clean a b");
    let unsaid = user.command(&words).stdout(full()).status().expect("mdspace starts");
    assert_eq!(unsaid.code(), Some(5));
    assert_eq!(user.expect(0, "get data degraded").trim(), "0");
    let nothing = user.command(&words).stdout(full()).stderr(full()).status();
    assert_eq!(nothing.expect("mdspace starts").code(), Some(1), "it runs already");
    user.expect(0, "stop data");
}

#[test]
fn a_wrong_word_for_the_way_of_calls_is_refused() {
    let user = User::with_members(&["a", "b"]);
    let words = format!("create data {RAID1} --assume-clean a b");
    let refused = user.command(&words).env("MDSPACE_IO", "bogus").output().expect("it starts");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && said.contains("\"bogus\""), "{said}");
    assert!(user.processes().is_empty());
}

/// Nothing of it waits for the process: the kernel takes connections for one that is stopped.
#[test]
fn a_process_that_does_not_answer_keeps_no_verb_waiting() {
    let user = User::with_members(&["a", "b", "c", "d"]);
    user.expect(0, &format!("create one {RAID1} --assume-clean a b"));
    let stopped = user.processes()[0];
    user.expect(0, &format!("create two {RAID1} --assume-clean c d"));
    user.halt(stopped);
    let shown = user.run("mdstat");
    assert_eq!(shown.status, 4, "{shown:?}");
    assert!(shown.out.contains("two : active") && !shown.out.contains("one :"), "{shown:?}");
    assert!(shown.err.contains("one does not answer"), "{shown:?}");
    for words in ["detail one --test", "detail one", "stop one --force", "fail one a", "wait one"] {
        let refused = user.run(words);
        assert_eq!(refused.status, 4, "{words}: {refused:?}");
        assert!(refused.err.contains("does not answer"), "{words}: {refused:?}");
    }
    let refused = user.run("stop one --force");
    for said in [format!("kill -CONT {stopped}"), "kill -KILL".into()] {
        assert!(refused.err.contains(&said), "{refused:?}");
    }
    user.signal(Signal::CONT, stopped);
    let shown = user.expect(0, "mdstat");
    assert!(shown.contains("one :") && shown.contains("two :"), "{shown}");
    user.expect(0, "stop one");
    user.expect(0, "stop two");
}

/// Its lock is held, its socket says hello, and nothing more comes.
#[test]
fn a_process_that_greets_and_then_hangs_keeps_no_verb_waiting() {
    let user = User::new();
    user.expect(0, "mdstat");
    let lock = File::create(user.run_dir().join("one.lock")).expect("a file");
    lock.lock().expect("a free lock");
    let socket = UnixListener::bind(user.run_dir().join("one.sock")).expect("a socket");
    let hello = b"{\"protocol\":2,\"version\":\"0.1.0\"}\n";
    std::thread::spawn(move || {
        let mut greeted = Vec::new();
        for mut stream in socket.incoming().flatten() {
            drop(stream.write_all(hello));
            greeted.push(stream);
        }
    });
    let pid = std::process::id().to_string();
    for words in [
        "stop one --force",
        "fail one a",
        "set one sync_action=idle",
        "wait one",
        "mdstat",
        "add one a",
    ] {
        let refused = user.run(words);
        assert_eq!(refused.status, 4, "{words}: {refused:?}");
        assert!(refused.err.contains("does not answer"), "{words}: {refused:?}");
        assert!(refused.err.contains(&format!("ps -p {pid}")), "{words}: {refused:?}");
    }
}

#[test]
fn a_process_in_the_foreground_stops_cleanly_at_sigterm() {
    let user = User::with_members(&["a", "b"]);
    let words = format!("create data {RAID1} --assume-clean --foreground a b");
    let mut child = user
        .command(&words)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("mdspace starts");
    let mut line = String::new();
    let said = child.stdout.take().expect("its output is piped");
    BufReader::new(said).read_line(&mut line).expect("it says that it is ready");
    assert!(line.contains("started with 2 of 2"), "{line}");
    user.signal(Signal::TERM, child.id());
    assert!(child.wait().expect("it ends").success());
    let found = user.expect(0, "examine a");
    assert!(found.contains("State : clean"), "{found}");
    assert!(user.processes().is_empty());
}

/// As disks do at a boot.
#[test]
fn an_array_waits_for_a_member_that_comes_late_and_starts_without_one_that_does_not() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, &format!("create data {RAID1} --assume-clean --save a b"));
    user.expect(0, "stop data");
    let start = |seconds: u32| {
        let words = format!("assemble data --foreground --run-after={seconds}");
        let mut command = user.command(&words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("mdspace starts");
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        let err = BufReader::new(child.stderr.take().expect("it is piped"));
        (child, out.lines(), err.lines())
    };
    let started = |lines: &mut dyn Iterator<Item = std::io::Result<String>>| {
        let mut lines = lines.map(|line| line.expect("text"));
        lines.find(|line| line.contains("started with")).expect("it starts")
    };
    fs::rename(user.path("b"), user.path("away")).expect("it is there");
    let (mut child, mut out, mut err) = start(1_000_000);
    let said = err.next().expect("it says something").expect("text");
    assert!(said.contains("data: waits for a member that was there when it last ran"), "{said}");
    user.refused_with(4, "detail data", &["no array"]);
    fs::rename(user.path("away"), user.path("b")).expect("it is there");
    let line = started(&mut out);
    assert!(line.contains("started with 2 of 2"), "{line}");
    user.expect(0, "stop data");
    assert!(child.wait().expect("it ends").success());

    fs::rename(user.path("b"), user.path("away")).expect("it is there");
    user.refused("assemble data", &["there when the array last ran"]);
    let (mut child, mut out, mut err) = start(0);
    let said = err.next().expect("it says something").expect("text");
    assert!(said.contains("data: starts without a member"), "{said}");
    let line = started(&mut out);
    assert!(line.contains("started with 1 of 2"), "{line}");
    assert!(user.expect(0, "events data").contains("DegradedArray"));
    user.expect(0, "stop data");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn nothing_is_left_running_when_the_command_that_waits_is_gone() {
    let user = User::with_members(&["a", "b"]);
    // Closed before the start: a child of another test may hold a copy for a moment.
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let run_dir = user.run_dir().display().to_string();
    let words = format!("__serve --run-dir={run_dir} create data {RAID1} --assume-clean a b");
    let mut command = user.command(&words);
    let mut child = command.stdout(writer).stderr(Stdio::null()).spawn().expect("a start");
    assert!(!child.wait().expect("it ends").success());
    assert!(user.processes().is_empty());
    assert!(user.expect(0, "examine a").contains("State : clean"));
}

/// As a script does that has a lock: the next one to take it would wait for the array's end.
#[test]
fn nothing_that_the_starter_has_open_stays_open_with_the_array() {
    let user = User::with_members(&["a", "b"]);
    let done = user.run_behind("exec 9>lock", &format!("create data {RAID1} a b"));
    assert_eq!(done.status, 0, "{done:?}");
    let lock = fs::canonicalize(user.path("lock")).expect("the lock was made");
    for process in user.processes() {
        let open = fs::read_dir(format!("/proc/{process}/fd")).expect("it runs").flatten();
        let places: Vec<_> = open.filter_map(|open| fs::read_link(open.path()).ok()).collect();
        assert!(!places.is_empty() && !places.contains(&lock), "{places:?}");
    }
    user.expect(0, "stop data");
}

#[test]
fn a_name_is_served_once() {
    let user = User::with_members(&["a", "b", "c", "d"]);
    user.expect(0, &format!("create data {RAID1} a b"));
    user.refused(&format!("create data {RAID1} c d"), &["runs already", "mdspace stop data"]);
    assert_eq!(user.processes().len(), 1);
    user.expect(0, "stop data");
}

#[test]
fn stop_refuses_while_a_client_is_connected_and_names_it() {
    let user = User::with_members(&["a", "b"]);
    let serve = format!("--serve=nbd:unix:{}", user.path("s").display());
    user.expect(0, &format!("create data {RAID1} {serve} a b"));
    let mut client = user.client("s");
    let mut hello = [0; 8];
    client.read_exact(&mut hello).expect("NBD speaks first");
    let own_pid = std::process::id().to_string();
    user.refused("stop data", &["connected", &own_pid, "--force"]);
    user.expect(0, "stop data --force");
    assert_eq!(client.read_to_end(&mut Vec::new()).ok().filter(|bytes| *bytes > 64), None);
}

#[test]
fn fronts_come_and_go_while_the_array_runs() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, &format!("create data {RAID1} a b"));
    let front = format!("nbd:unix:{}", user.path("s").display());
    user.expect(0, &format!("serve data {front}"));
    drop(user.client("s"));
    user.expect(0, "serve data nbd:tcp:0?ro");
    let fronts = user.detail("data")["fronts"].as_array().map(Vec::len);
    assert_eq!(fronts, Some(2));
    let mut client = user.client("s");
    // It is connected, and not only asking to be.
    client.read_exact(&mut [0; 8]).expect("NBD speaks first");
    let own_pid = std::process::id().to_string();
    user.refused(
        &format!("unserve data {front}"),
        &["cannot close", "connected", &own_pid, "--force"],
    );
    assert!(user.path("s").exists(), "it is served still");
    drop(client);
    user.expect(0, &format!("unserve data {front}"));
    assert!(!user.path("s").exists());
    user.expect(0, &format!("serve data {front}"));
    let _client = user.client("s");
    user.expect(0, &format!("unserve data {front} --force"));
    user.refused(&format!("unserve data {front}"), &["not served there"]);
    user.expect(0, "stop data --force");
}

/// A virtual machine's user is in a group, and is not the one who serves.
#[test]
fn a_socket_in_the_current_directory_is_served_with_its_rights_and_closed_by_its_place() {
    let user = User::with_members(&["a", "b"]);
    let group = rustix::process::getegid().as_raw();
    let front = format!("nbd:unix:s?mode=0660&group={group}");
    user.expect(0, &format!("create data {RAID1} --save --serve={front} a b"));
    let mode = || fs::metadata(user.path("s")).expect("a socket").permissions().mode();
    assert_eq!(mode() & 0o777, 0o660);
    user.expect(0, "restart data");
    assert_eq!(mode() & 0o777, 0o660);
    user.expect(0, "unserve data nbd:unix:s");
    assert!(!user.path("s").exists());
    user.refused("serve data nbd:unix:s?group=no-such-group", &["no group", "getent group"]);
    let wrong = user.run("serve data nbd:unix:s?mode=9");
    assert_eq!((wrong.status, wrong.err.contains("mode=0660")), (2, true), "{wrong:?}");
    user.expect(0, "stop data");
    user.refused(
        "create more --level=1 --raid-devices=1 --force --serve=nbd:unix:s?owner=no-such-user c",
        &["no user"],
    );
}

#[test]
fn events_are_followed_until_the_array_stops() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, &format!("create data {RAID1} --assume-clean a b"));
    let mut command = user.command("events data --follow");
    let mut child = command.stdout(Stdio::piped()).spawn().expect("mdspace starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its output is piped")).lines();
    let mut next = || lines.next().expect("a line").expect("readable");
    assert!(next().ends_with("NewArray"));
    user.expect(0, "fail data b");
    let line = next();
    assert!(line.contains("Fail ") && line.ends_with("/b"), "{line}");
    user.expect(0, "stop data");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn who_follows_events_is_told_that_a_process_was_killed() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, &format!("create data {RAID1} --assume-clean a b"));
    let mut command = user.command("events data --follow");
    let mut child = command.stdout(Stdio::piped()).spawn().expect("mdspace starts");
    let mut lines = BufReader::new(child.stdout.take().expect("its output is piped")).lines();
    assert!(lines.next().expect("a line").expect("readable").ends_with("NewArray"));
    let process = user.detail("data")["pid"].as_u64().expect("a process number");
    user.signal(Signal::KILL, u32::try_from(process).expect("a process number"));
    assert_eq!(child.wait().expect("it ends").code(), Some(1));
}

#[test]
fn a_relative_run_directory_is_the_one_of_the_user() {
    let user = User::with_members(&["a", "b"]);
    let run = |words: &str| {
        let mut command = user.command(words);
        let output = command.env("MDSPACE_RUN_DIR", "run").output().expect("mdspace starts");
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&format!("create data {RAID1} --assume-clean a b"));
    run("detail data");
    run("stop data");
    assert!(!user.run_dir().join("data.sock").exists());
}

/// The process that serves has left the directory that it was started in.
#[test]
fn a_front_that_is_opened_later_uses_the_relative_run_directory_of_the_start() {
    let user = User::with_members(&["a", "b"]);
    let run_dir = format!("run-of-{}", std::process::id());
    let run = |words: &str| {
        let mut command = user.command(words);
        let output = command.env("MDSPACE_RUN_DIR", &run_dir).output().expect("mdspace starts");
        let is_elsewhere = std::path::Path::new("/").join(&run_dir).exists();
        assert!(!is_elsewhere, "{words}: it has made /{run_dir}");
        assert!(output.status.success(), "{words}: {}", String::from_utf8_lossy(&output.stderr));
    };
    run(&format!("create data {RAID1} --assume-clean a b"));
    run(&format!("serve data nbd:unix:{}", user.path("data.nbd").display()));
    run("stop data");
}

#[test]
fn help_completions_and_the_manual_are_there() {
    let user = User::new();
    assert!(user.expect(0, "help").contains("assemble"));
    let create = user.expect(0, "help create");
    for words in ["--raid-devices", "Examples:", "512K", "parity-first", "help member"] {
        assert!(create.contains(words), "without {words}:\n{create}");
    }
    // How a disk is modelled is for benchmarks.
    assert!(!create.contains("null:SIZE"), "{create}");
    assert!(user.expect(0, "help member").contains("null:SIZE"));
    assert!(user.expect(0, "help --json").contains("\"zero-superblock\""));
    for shell in ["bash", "zsh", "fish"] {
        let script = user.expect(0, &format!("completions {shell}"));
        assert!(script.contains("mdspace") && script.contains("zero-superblock"), "{script}");
        let serve = ["__serve'", "__serve:", "__serve ", "\"__serve\""];
        let others = ["__unmount-after", "__open-device", "__tune-device"];
        let mut hidden = serve.into_iter().chain(others);
        assert!(!hidden.any(|verb| script.contains(verb)), "{script}");
    }
    assert!(user.expect(0, "man").contains(".TH"));
    user.expect(2, "help fly");
    user.expect(2, "fly");
}

#[test]
fn an_array_that_no_block_device_bears_is_refused_with_what_was_looked_for() {
    let user = User::new();
    let words = "assemble no-such-array-anywhere";
    user.refused(words, &["no member of an array of that name", "name the members"]);
    let uuid = "01234567:89abcdef:01234567:89abcdef";
    user.refused(&format!("{words} --uuid={uuid}"), &[uuid]);
}

/// The socket may stand in the environment of a shell that a service left, or have no room.
#[test]
fn an_array_whose_start_cannot_be_told_to_a_service_manager_is_served() {
    let user = User::with_members(&["a", "b"]);
    let words = format!("create data {RAID1} --assume-clean --foreground a b");
    let mut command = user.command(&words);
    command.env("NOTIFY_SOCKET", user.path("nobody")).stderr(Stdio::null()).stdout(Stdio::null());
    let mut child = command.spawn().expect("mdspace starts");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while user.run("stop data").status != 0 {
        let ended = child.try_wait().expect("it is ours");
        assert!(ended.is_none() && std::time::Instant::now() < until, "it ended: {ended:?}");
    }
    assert!(child.wait().expect("it ends").success());
}

/// Starts an array in the foreground whose standard error is `log`; returns when it is served.
fn foreground_with_log(user: &User, log: Stdio) -> Child {
    let words = format!("create data {RAID1} --assume-clean --foreground a b");
    let mut command = user.command(&words);
    command.env("MDSPACE_LOG", "debug").stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().expect("mdspace starts");
    let mut line = String::new();
    let said = child.stdout.take().expect("its output is piped");
    BufReader::new(said).read_line(&mut line).expect("it says that it is ready");
    assert!(line.contains("started with 2 of 2"), "{line}");
    child
}

#[test]
fn a_log_that_cannot_be_written_ends_no_array() {
    let user = User::with_members(&["a", "b"]);
    let full = File::options().write(true).open("/dev/full").expect("Linux");
    let mut child = foreground_with_log(&user, full.into());
    for _ in 0..20 {
        user.detail("data");
    }
    user.expect(0, "stop data");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_log_that_nothing_reads_stalls_no_array() {
    let user = User::with_members(&["a", "b"]);
    let (_reader, writer) = std::io::pipe().expect("a pipe");
    rustix::io::ioctl_fionbio(&writer, true).expect("a pipe may be full");
    while rustix::io::write(&writer, &[b'x'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).expect("writers wait again");
    let mut child = foreground_with_log(&user, writer.into());
    for _ in 0..20 {
        user.detail("data");
    }
    user.expect(0, "stop data");
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn a_signal_that_means_nothing_ends_no_array_and_quit_stops_it_cleanly() {
    let user = User::with_members(&["a", "b"]);
    let mut child = foreground_with_log(&user, Stdio::null());
    let plain = [Signal::USR1, Signal::USR2, Signal::ALARM, Signal::XFSZ, Signal::XCPU];
    for signal in plain.into_iter().chain([Signal::POWER, Signal::STKFLT]) {
        user.signal(signal, child.id());
    }
    for number in [34, 50, 64] {
        let mut kill = std::process::Command::new("sh");
        kill.arg("-c").arg(format!("kill -{number} {}", child.id()));
        assert!(kill.status().is_ok_and(|status| status.success()), "{number}");
    }
    user.detail("data");
    user.signal(Signal::QUIT, child.id());
    assert!(child.wait().expect("it ends").success());
    assert!(user.expect(0, "examine a").contains("State : clean"));
}

#[test]
fn events_outlive_a_process_that_was_killed_and_go_on_with_the_next_one() {
    let user = User::with_members(&["a", "b"]);
    user.refused_with(4, "events data", &["no array runs"]);
    user.expect(0, &format!("create data {RAID1} --assume-clean a b"));
    user.expect(0, "fail data b");
    let told = user.expect(0, "events data --json");
    assert!(told.contains("Fail"), "{told}");
    let says_whose = |line: &str| line.starts_with(r#"{"schema":1,"array":"data","sequence":"#);
    assert!(told.lines().all(says_whose), "{told}");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let written = || fs::read_to_string(user.run_dir().join("data.events")).unwrap();
    while !written().contains("Fail") {
        assert!(std::time::Instant::now() < until, "{}", written());
        std::thread::yield_now();
    }
    user.signal(Signal::KILL, user.processes()[0]);
    assert_eq!(user.expect(0, "events data --json"), told);
    user.expect(0, "assemble data a");
    let numbers: Vec<u64> = user
        .expect(0, "events data --json")
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["sequence"].as_u64())
        .map(|number| number.unwrap())
        .collect();
    assert!(numbers.len() > told.lines().count(), "{numbers:?}");
    assert!(numbers.is_sorted() && numbers.windows(2).all(|two| two[0] != two[1]), "{numbers:?}");
    user.expect(0, "stop data");
    // A new array of the name has a past of its own.
    user.expect(0, &format!("create data {RAID1} --assume-clean --run a b"));
    let fresh = user.expect(0, "events data --json");
    assert!(!fresh.contains("Fail"), "{fresh}");
    user.expect(0, "stop data");
}

/// The process that a command has started, if it has got to its program.
fn serving_process_of(command: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{command}/task/{command}/children")).ok()?;
    let mut children = children.split_whitespace().filter_map(|number| number.parse().ok());
    children.find(|process: &u32| {
        let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).any(|word| word == b"__serve")
    })
}

#[test]
fn a_process_that_is_stopped_at_its_start_keeps_no_verb() {
    let user = User::with_members(&["a", "b"]);
    for _ in 0..100 {
        let mut create = user.command(&format!("create data {RAID1} --run a b"));
        let create = create.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut create = create.expect("mdspace starts");
        let serving = loop {
            let found = serving_process_of(create.id());
            if found.is_some() || create.try_wait().expect("it is ours").is_some() {
                break found;
            }
            std::thread::yield_now();
        };
        if let Some(serving) = serving {
            user.signal(Signal::STOP, serving);
        }
        let created = create.wait_with_output().expect("it is ours");
        if created.status.success() {
            // It was quicker.
            serving.into_iter().for_each(|serving| user.signal(Signal::CONT, serving));
            user.expect(0, "stop data");
            continue;
        }
        let said = String::from_utf8_lossy(&created.stderr).into_owned();
        assert!(created.status.code() == Some(4) && said.contains("kill -CONT"), "{said}");
        serving.into_iter().for_each(|serving| user.signal(Signal::KILL, serving));
        return;
    }
    panic!("each start was quicker");
}

/// A full file system takes a part of a line. The next line that finds room begins anew.
#[test]
fn an_event_that_finds_no_room_spoils_none_that_finds_some() {
    let user = User::new();
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean ram:16M ram:17M");
    let process = Pid::from_raw(user.processes()[0].cast_signed());
    let file = user.run_dir().join("data.events");
    let written = || fs::read_to_string(&file).unwrap();
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    let wait_for = |what: &dyn Fn() -> bool| {
        while !what() {
            assert!(std::time::Instant::now() < until, "{}", written());
            std::thread::yield_now();
        }
    };
    wait_for(&|| written().contains("NewArray"));
    let most = written().len() as u64 + 10;
    let limit = |current| Rlimit { current, maximum: None };
    prlimit(process, Resource::Fsize, limit(Some(most))).expect("a limit may be set");
    user.expect(0, "fail data ram:17M");
    wait_for(&|| written().len() as u64 == most);
    prlimit(process, Resource::Fsize, limit(None)).expect("a limit may be lifted");
    user.expect(0, "add data ram:18M");
    user.run("wait data");
    let told = user.expect(0, "events data --json");
    user.expect(0, "stop data");
    let kept = user.expect(0, "events data --json");
    let lost: Vec<&str> = told.lines().filter(|line| !kept.contains(line)).collect();
    // What happened while there was no room.
    let may_be = |line: &&str| line.contains("Fail") || line.contains("DegradedArray");
    assert!(lost.iter().all(may_be), "{lost:#?}");
}

/// New clients are told what the array is after the last of the orders.
#[test]
fn of_two_orders_at_once_that_switch_writes_fronts_follow_the_last() {
    let user = User::with_members(&["a", "b"]);
    let serve = format!("--serve=nbd:unix:{}", user.path("s").display());
    user.expect(0, &format!("create data {RAID1} --assume-clean {serve} a b"));
    let order = |word: &str| {
        let mut client = UnixStream::connect(user.run_dir().join("data.sock")).expect("it listens");
        client.write_all(format!("{{\"request\":\"{word}\"}}\n").as_bytes()).expect("asked");
        // One may be refused while the other is carried out.
        first_answer(&client);
    };
    for round in 0..100 {
        std::thread::scope(|scope| {
            scope.spawn(|| order("readonly"));
            scope.spawn(|| order("readwrite"));
        });
        let is_read_only = user.detail("data")["array"]["array_state"] == "readonly";
        assert_eq!(Client::is_told_read_only(&user.path("s")), is_read_only, "round {round}");
    }
    user.expect(0, "stop data --force");
}

/// What a process answers behind its greeting, and signs of life.
fn first_answer(client: &UnixStream) -> String {
    let mut lines = BufReader::new(client).lines().skip(1).map(|line| line.expect("told"));
    lines.find(|line| !line.contains("working")).expect("an answer")
}

#[test]
fn clients_that_follow_events_keep_no_verb_out() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, &format!("create data {RAID1} --assume-clean a b"));
    let follow = |_| {
        let mut client = UnixStream::connect(user.run_dir().join("data.sock")).expect("it listens");
        client.write_all(b"{\"request\":\"events\",\"follow\":true}\n").expect("asked");
        client
    };
    let mut clients: Vec<UnixStream> = (0..64).map(follow).collect();
    let said: Vec<String> = clients.iter().map(first_answer).collect();
    let (told, refused) = said.iter().partition::<Vec<_>, _>(|said| said.contains("NewArray"));
    assert_eq!((told.len(), refused.len()), (32, 32), "{said:?}");
    assert!(refused.iter().all(|said| said.contains("others do")), "{refused:?}");
    let mut said = said.iter();
    clients.retain(|_| said.next().is_some_and(|said| said.contains("NewArray")));
    user.detail("data");
    user.expect(0, "stop data");
}

#[test]
fn clients_that_followed_events_and_are_gone_keep_no_verb_out() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, &format!("create data {RAID1} --assume-clean a b"));
    for _ in 0..64 {
        let mut client = UnixStream::connect(user.run_dir().join("data.sock")).expect("it listens");
        client.write_all(b"{\"request\":\"events\",\"follow\":true}\n").expect("asked");
        let event = first_answer(&client);
        assert!(event.contains("NewArray"), "{event}");
    }
    let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
    while user.run("detail data").status != 0 {
        assert!(std::time::Instant::now() < until, "they hold their places");
    }
    user.expect(0, "stop data");
}

#[test]
fn an_array_whose_run_directory_is_deleted_keeps_its_name_and_is_found_again() {
    let user = User::with_members(&["a", "b", "c", "d"]);
    user.expect(0, &format!("create data {RAID1} a b"));
    fs::remove_file(user.run_dir().join("data.lock")).expect("a lock");
    fs::remove_file(user.run_dir().join("data.sock")).expect("a control socket");
    user.refused(&format!("create data {RAID1} c d"), &["runs already", "mdspace stop data"]);
    let is_back = || user.run_dir().join("data.sock").exists();
    while !is_back() {
        std::thread::yield_now();
    }
    assert_eq!(user.detail("data")["name"], "data");
    fs::remove_dir_all(user.run_dir()).expect("a run directory");
    while !is_back() {
        std::thread::yield_now();
    }
    user.expect(0, "stop data");
    assert!(user.processes().is_empty());
    user.expect(0, &format!("create data {RAID1} --run a b"));
    user.expect(0, "stop data");
}

/// The writing end of a pipe that nobody reads.
fn unread() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

/// As `| head` leaves it, or a full disk.
#[test]
fn an_output_that_cannot_be_written_leaves_no_verb_half_done() {
    let full = || File::options().write(true).open("/dev/full").expect("a full device").into();
    let outputs: [(&dyn Fn() -> Stdio, i32); 2] = [(&unread, 0), (&full, 5)];
    for (output, status) in outputs {
        let user = User::with_members(&["a", "b"]);
        let run = |words: &str| {
            let ended = user.command(words).stdout(output()).stderr(Stdio::null()).status();
            assert_eq!(ended.expect("mdspace starts").code(), Some(status), "{words}");
        };
        run(&format!("create data {RAID1} --assume-clean --save a b"));
        assert!(user.path("etc/data.toml").exists(), "it was to be saved");
        fs::remove_file(user.path("etc/data.toml")).expect("it is there");
        run("set data --save sync_speed_min=2000");
        run("save data");
        assert!(user.path("etc/data.toml").exists(), "it was to be saved");
        // A stop has something to say of a member that is gone.
        fs::remove_file(user.path("b")).expect("it is there");
        run("restart data --run");
        assert_eq!(user.expect(0, "get data degraded"), "1\n");
        user.expect(0, "stop data");
        let user = User::with_members(&["a", "b"]);
        user.expect(0, &format!("create data {RAID1} --assume-clean a b"));
        user.expect(0, "stop data");
        let mut erase = user.command("zero-superblock --run a b");
        let ended = erase.stdout(output()).stderr(Stdio::null()).status();
        assert_eq!(ended.expect("mdspace starts").code(), Some(status));
        user.expect(1, "examine a");
        user.expect(1, "examine b");
    }
}

#[test]
fn an_exit_code_does_not_depend_on_who_reads_the_output() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, &format!("create data {RAID1} --assume-clean a b"));
    user.expect(0, "fail data b");
    let test = user.command("detail data --test").stdout(unread()).status();
    assert_eq!(test.expect("mdspace starts").code(), Some(1), "it is degraded");
    let follow = user.command("events data --follow").stdout(unread()).status();
    assert_eq!(follow.expect("mdspace starts").code(), Some(0), "it ends without a reader");
    user.expect(0, "stop data");
}

#[test]
fn an_array_in_the_foreground_is_served_whoever_reads_its_output() {
    let full = || File::options().write(true).open("/dev/full").expect("a full device").into();
    let outputs: [&dyn Fn() -> Stdio; 2] = [&unread, &full];
    for output in outputs {
        let user = User::with_members(&["a", "b"]);
        let words = format!("create data {RAID1} --assume-clean --foreground a b");
        let mut command = user.command(&words);
        let mut child =
            command.stdout(output()).stderr(Stdio::null()).spawn().expect("mdspace starts");
        while user.run("detail data").status != 0 {
            assert_eq!(child.try_wait().expect("it may be asked"), None, "it has ended");
        }
        user.expect(0, "stop data");
        assert!(child.wait().expect("it ends").success());
        assert!(user.expect(0, "examine a").contains("State : clean"));
    }
}

#[test]
fn of_two_stops_at_once_none_ends_before_the_array_has() {
    for _ in 0..4 {
        let user = User::with_members(&["a", "b"]);
        user.expect(0, &format!("create data {RAID1} --assume-clean a b"));
        let stops = [0, 1, 2].map(|_| {
            let mut command = user.command("stop data");
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
        });
        for stop in stops {
            let ended = stop.wait_with_output().expect("it ends");
            let said = String::from_utf8_lossy(&ended.stderr);
            // One that comes late finds no array.
            let late =
                ["no array runs", "starting or stopping"].iter().any(|why| said.contains(why));
            assert!(ended.status.success() || late, "{said}");
        }
        assert!(user.processes().is_empty());
        assert!(user.expect(0, "examine a").contains("State : clean"));
    }
}

#[test]
fn a_front_whose_socket_is_deleted_is_found_again() {
    let user = User::with_members(&["a", "b"]);
    let (socket, other) = (user.path("s"), user.path("t"));
    let fronts =
        format!("--serve=nbd:unix:{} --serve=nbd:unix:{}", socket.display(), other.display());
    user.expect(0, &format!("create data {RAID1} --assume-clean --lanes=2 {fronts} a b"));
    let mut first = Client::connect(&socket);
    assert_eq!(first.write(0, &[1; 4096]), Ok(()));
    for _ in 0..2 {
        fs::remove_file(&socket).expect("it is there");
        while !socket.exists() {
            std::thread::yield_now();
        }
        let mut second = Client::connect(&socket);
        assert_eq!(second.read(0, 4096), Ok(vec![1; 4096]));
    }
    // Who was connected stays, and what is somebody else's is left alone.
    assert_eq!(first.read(0, 4096), Ok(vec![1; 4096]));
    fs::remove_file(&other).expect("it is there");
    fs::write(&other, "precious").expect("a file");
    let log = || fs::read_to_string(user.run_dir().join("data.log")).expect("a log");
    while !log().contains("exists and is no socket") {
        std::thread::yield_now();
    }
    drop(first);
    user.expect(0, "stop data --force");
    assert!(!socket.exists());
    assert_eq!(fs::read(&other).ok(), Some(b"precious".to_vec()));
}

/// Some administrators read the log and nothing else.
#[test]
fn the_log_tells_of_failures_rebuilds_and_orders() {
    let user = User::with_members(&["a", "b", "s"]);
    user.expect(0, &format!("create data {RAID1} --assume-clean a b"));
    user.expect(0, "set data max_read_errors=7");
    user.expect(0, "fail data a");
    user.expect(0, "add data s");
    user.run("wait data");
    user.expect(0, "readonly data");
    user.expect(0, "stop data");
    let log = fs::read_to_string(user.run_dir().join("data.log")).expect("a log");
    let is_told = |level: &str, words: &str| {
        log.lines().any(|line| line.contains(level) && line.contains(words))
    };
    for (level, words) in [
        ("INFO", "max_read_errors"),
        ("INFO", "ordered: Fail"),
        ("WARN", "/a"),
        ("WARN", "DegradedArray"),
        ("INFO", "ordered: Add"),
        ("INFO", "RebuildStarted"),
        ("INFO", "SpareActive"),
        ("INFO", "ordered: Readonly"),
    ] {
        assert!(is_told(level, words), "without {level} {words}:\n{log}");
    }
    assert!(!log.contains("Detail"), "looks are no news:\n{log}");
}

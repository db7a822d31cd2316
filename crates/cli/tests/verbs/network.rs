//! Members that are exports of NBD servers: our own, each with an array of one file.

use rustix::process::Signal;

use crate::client::Client;
use crate::user::User;

/// Serves a file as `NAME` at the socket `NAME.sock`; returns the member over it.
fn serve(user: &User, name: &str) -> String {
    let socket = user.path(&format!("{name}.sock"));
    let words = "--level=linear --raid-devices=1 --force --assume-clean";
    user.expect(0, &format!("create {name} {words} --serve=nbd:unix:{} {name}", socket.display()));
    format!("nbd+unix:///{name}?socket={}", socket.display())
}

fn pid_of(user: &User, name: &str) -> u32 {
    let pid = user.detail(name)["pid"].as_u64().expect("a number");
    u32::try_from(pid).expect("a process number")
}

/// A file system may begin behind blocks of zeroes, and a superblock of md may stand at the end.
#[test]
fn what_an_export_holds_anywhere_is_asked_about_as_what_a_file_holds() {
    let user = User::with_members(&["a", "b"]);
    let export = serve(&user, "b");
    let file = format!("[[group]]\n[[group.path]]\nmember = \"{export}\"\n");
    std::fs::write(user.path("m.toml"), file).expect("a file");
    let mirror = "--level=1 --raid-devices=2";
    let is_asked = |what: &str| {
        for member in [&*export, "multipath:m.toml"] {
            let words = format!("create top {mirror} a {member}");
            user.refused(&words, &["holds", what, "--run overwrites"]);
        }
        let words = format!("bench run {mirror} --member=a --member={export} --runtime=0.1");
        user.refused(&words, &["holds", what, "--run overwrites"]);
    };
    let socket = user.path("b.sock");
    let bytes = user.detail("b")["array"]["size_bytes"].as_u64().expect("a number");
    let zeroes = [0; 4096];
    let write = |at: u64, block: &[u8]| {
        Client::connect(&socket).write(at, block).expect("written");
    };

    // Where Btrfs has its first superblock.
    write(64 << 10, &[7; 4096]);
    is_asked("of data that is not recognised");
    write(64 << 10, &zeroes);
    // At the end, and where metadata 0.90 lies.
    write(bytes - 4096, &[7; 4096]);
    is_asked("of data that is not recognised");
    write(bytes - 4096, &zeroes);
    let mut block = zeroes;
    block[..4].copy_from_slice(&0xa92b_4efc_u32.to_le_bytes());
    let place = (bytes & !0xffff) - (64 << 10);
    write(place, &block);
    is_asked("an md superblock 0.90");
    write(place, &zeroes);

    user.expect(0, &format!("create top {mirror} a {export}"));
    user.expect(0, "stop top");
    user.expect(0, "stop b");
}

/// Its server comes back with another image behind the same address.
#[test]
fn what_a_failed_export_leads_to_by_now_is_asked_about_as_any_other() {
    let user = User::with_members(&["a", "b", "c"]);
    let export = serve(&user, "b");
    user.expect(0, &format!("create top --level=1 --raid-devices=2 --assume-clean a {export}"));
    user.expect(0, &format!("fail top {export}"));
    user.expect(0, "stop b --force");
    let socket = user.path("b.sock");
    let front = format!("--serve=nbd:unix:{}", socket.display());
    let other = "--level=linear --raid-devices=1 --force --assume-clean";
    user.expect(0, &format!("create b {other} {front} c"));
    assert_eq!(Client::connect(&socket).write(1 << 20, &[7; 4096]), Ok(()));
    for words in [format!("add top {export}"), format!("replace top a --with {export}")] {
        user.refused(&words, &["holds", "not recognised", "--run"]);
    }
    assert!(Client::connect(&socket).read(1 << 20, 4096) == Ok(vec![7; 4096]), "overwritten");
    // The control: the member itself is known, and no question.
    user.expect(0, "stop b");
    user.expect(0, &format!("assemble b {front} b"));
    user.expect(0, &format!("add top {export}"));
    user.run("wait top");
    user.expect(0, "detail top --test");
    user.expect(0, "stop top");
    user.expect(0, "stop b");
}

#[test]
fn exports_are_members_and_a_killed_server_is_a_failed_member_that_comes_back() {
    let user = User::with_members(&["a", "b"]);
    let (one, other) = (serve(&user, "a"), serve(&user, "b"));
    let words = "--level=1 --raid-devices=2 --assume-clean --lanes=2";
    user.expect(0, &format!("create top {words} {one} {other}"));
    assert_eq!(user.expect(0, "get top degraded").trim(), "0");
    user.refused(&format!("create again {words} {one} {other}"), &["md superblock 1.2 of array"]);

    user.signal(Signal::KILL, pid_of(&user, "b"));
    user.expect(0, "readonly top");
    user.expect(0, "readwrite top");
    user.expect(0, &format!("fail top {other}"));
    assert_eq!(user.expect(0, "get top degraded").trim(), "1");
    user.refused(&format!("re-add top {other}"), &["cannot open the export", "b.sock"]);

    let socket = user.path("b.sock");
    user.expect(0, &format!("assemble b --serve=nbd:unix:{} b", socket.display()));
    user.expect(0, &format!("re-add top {other}"));
    user.run("wait top");
    assert_eq!(user.expect(0, "get top degraded").trim(), "0");
    for name in ["top", "a", "b"] {
        user.expect(0, &format!("stop {name}"));
    }
    assert!(user.processes().is_empty());
    let unproved = std::fs::read_dir(user.run_dir().join("unproved")).expect("it was made");
    assert_eq!(unproved.count(), 0, "all was answered");
}

#[test]
fn an_export_that_was_missing_is_taken_back_when_it_is_there_again() {
    let user = User::with_members(&["a", "b", "c"]);
    let export = serve(&user, "b");
    let front = format!("--serve=nbd:unix:{}", user.path("b.sock").display());
    let words = "--level=1 --raid-devices=2 --assume-clean --save";
    user.expect(0, &format!("create top {words} a {export}"));
    user.expect(0, &format!("fail top {export}"));
    user.expect(0, "save top");
    user.expect(0, &format!("re-add top {export}"));
    user.expect(0, "wait top");
    user.expect(0, "stop top");
    let said = user.expect(0, "assemble top");
    assert!(said.contains("started with 2 of 2 members"), "{said}");
    user.expect(0, &format!("fail top {export}"));
    user.expect(0, "save top");
    user.expect(0, "stop top");
    // One that is missing keeps nobody waiting who cannot reach it.
    user.expect(0, "stop b");
    let is_without = || {
        let said = user.expect(0, "assemble top");
        assert!(said.contains("1 of 2 members") && said.contains("not there: nbd+unix"), "{said}");
        user.expect(0, "stop top");
    };
    is_without();
    // Another one behind its address is not taken.
    user.expect(0, &format!("create b --level=linear --raid-devices=1 --force --run {front} c"));
    is_without();
    user.expect(0, "stop b");
}

/// The array is broken, and none of its superblocks says that one of them failed.
#[test]
fn a_restart_of_a_broken_array_has_all_that_it_lost_at_once() {
    let user = User::with_members(&["a", "b"]);
    let exports = [serve(&user, "a"), serve(&user, "b")];
    let socket = user.path("top.sock");
    let front = format!("--serve=nbd:unix:{}", socket.display());
    let words = "--level=1 --raid-devices=2 --assume-clean";
    user.expect(0, &format!("create top {words} {front} {}", exports.join(" ")));
    let mut client = Client::connect(&socket);
    client.write(0, &[1; 4096]).expect("written");
    for name in ["a", "b"] {
        user.expect(0, &format!("stop {name} --force"));
    }
    assert!(client.read(0, 4096).is_err(), "nobody has it");
    drop(client);
    assert_eq!(user.expect(0, "get top array_state").trim(), "broken");
    for name in ["a", "b"] {
        let front = format!("--serve=nbd:unix:{}", user.path(&format!("{name}.sock")).display());
        user.expect(0, &format!("assemble {name} {front} {name}"));
    }
    user.expect(0, "restart top");
    assert!(Client::connect(&socket).read(0, 4096) == Ok(vec![1; 4096]), "other bytes");
    assert_eq!(user.expect(0, "get top degraded").trim(), "0");
    for name in ["top", "a", "b"] {
        user.expect(0, &format!("stop {name} --force"));
    }
}

#[test]
fn an_export_that_cannot_be_reached_is_left_out_of_an_array_that_is_told_to_start_without() {
    let user = User::with_members(&["a", "b", "c"]);
    let export = serve(&user, "b");
    let front = format!("--serve=nbd:unix:{}", user.path("b.sock").display());
    let words = "--level=1 --raid-devices=2 --assume-clean --save";
    user.expect(0, &format!("create top {words} a {export}"));
    user.expect(0, "stop top");
    user.expect(0, "stop b");
    user.refused("assemble top", &["check the address", "--run"]);
    let said = user.expect(0, "assemble top --run");
    assert!(said.contains("started with 1 of 2 members"), "{said}");
    assert!(said.contains("b.sock") && said.contains("left out"), "{said}");
    user.expect(0, &format!("assemble b {front} b"));
    user.expect(0, &format!("re-add top {export}"));
    user.run("wait top");
    assert_eq!(user.expect(0, "get top degraded").trim(), "0");

    // One to which a write may still appear is done without, too.
    user.signal(Signal::KILL, pid_of(&user, "top"));
    user.refused("assemble top", &["may still appear", "--run"]);
    let said = user.expect(0, "assemble top --run");
    assert!(said.contains("1 of 2") && said.contains("may still appear"), "{said}");
    user.expect(0, "stop top");
    user.expect(0, "stop b");
}

/// They stand nowhere but there: what reads devices does not find them.
#[test]
fn a_scan_starts_an_array_with_the_remote_members_of_its_configuration() {
    let user = User::with_members(&["a", "b"]);
    let other = serve(&user, "b");
    let words = "--level=1 --raid-devices=2 --assume-clean --save";
    user.expect(0, &format!("create top {words} a {other}"));
    user.expect(0, "stop top");
    user.expect(0, "assemble --scan --run --device=a");
    assert_eq!(user.expect(0, "get top degraded").trim(), "0");
    // Where nothing tells its UUID, it is what runs under its name and has its members.
    let file = user.path("etc/top.toml");
    std::fs::write(&file, format!("members = [\"{other}\"]\n")).expect("room");
    let said = user.expect(0, "assemble --scan --device=b");
    assert!(said.contains("top: runs already"), "{said}");
    std::fs::write(&file, "members = [\"nbd://127.0.0.1:1\"]\n").expect("room");
    let cure = ["another array runs as top", "say in its configuration"];
    user.refused("assemble --scan --device=b", &cure);
    user.expect(0, "stop top");
    user.expect(0, "stop b");
}

/// A write lies in the socket of a stopped server: its member is not taken back before the answer has
/// come, and after a restart not before the operator says that it is fenced.
#[test]
fn a_member_that_owes_the_answer_to_a_write_does_not_come_back() {
    let user = User::with_members(&["a", "b"]);
    let (one, other) = (serve(&user, "a"), serve(&user, "b"));
    let socket = user.path("top.sock");
    let front = format!("--serve=nbd:unix:{}", socket.display());
    let words = "--level=1 --raid-devices=2 --assume-clean";
    user.expect(0, &format!("create top {words} {front} {one} {other}"));
    let lose = || {
        assert_eq!(user.expect(0, "get top degraded").trim(), "0");
        // A lane that has no connection yet sends nothing, and owes nothing.
        for _ in 0..8 {
            assert_eq!(Client::connect(&socket).write(0, &[2; 4096]), Ok(()));
        }
        user.halt(pid_of(&user, "b"));
        user.expect(0, "set top write_deadline=2");
        assert_eq!(Client::connect(&socket).write(0, &[1; 4096]), Ok(()));
        assert_eq!(user.expect(0, "get top degraded").trim(), "1");
        // On a busy machine a server that works may be that slow.
        user.expect(0, "set top write_deadline=30");
    };
    let b = pid_of(&user, "b");
    lose();
    user.refused(&format!("re-add top {other}"), &["may still appear", "--fenced"]);
    user.signal(Signal::CONT, b);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while user.run(&format!("re-add top {other}")).status != 0 {
        assert!(std::time::Instant::now() < until, "its answers have come");
    }
    user.run("wait top");

    lose();
    user.refused(&format!("re-add top {other}"), &["may still appear"]);
    user.signal(Signal::KILL, pid_of(&user, "top"));
    user.signal(Signal::CONT, b);
    user.refused(&format!("assemble top {one} {other}"), &["may still appear", "--run"]);
    // The killed process had the other one open, too.
    user.refused(&format!("assemble top --run {one}"), &["may still appear", "--fenced"]);
    user.expect(0, &format!("assemble top --run --fenced {front} {one}"));
    user.refused(&format!("re-add top {other}"), &["may still appear"]);
    user.expect(0, &format!("message top fail_path {other} --fenced"));
    user.expect(0, &format!("re-add top {other}"));
    user.run("wait top");
    assert_eq!(user.expect(0, "get top degraded").trim(), "0");
    for name in ["top", "a", "b"] {
        user.expect(0, &format!("stop {name}"));
    }
}

/// The record of a process that was killed lies where that process kept its state.
#[test]
fn an_export_that_may_still_be_written_to_is_refused_also_where_state_is_kept_elsewhere_by_now() {
    let user = User::with_members(&["a", "b"]);
    let (one, other) = (serve(&user, "a"), serve(&user, "b"));
    let words = "--level=1 --raid-devices=2 --assume-clean";
    user.expect(0, &format!("create top {words} {one} {other}"));
    user.signal(Signal::KILL, pid_of(&user, "top"));
    let assemble = |word: &str| {
        let mut command = user.command(&format!("assemble top {word} {one} {other}"));
        let done = command.env("MDSPACE_STATE_DIR", user.path("state")).output();
        let done = done.expect("it starts");
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (status, why) = assemble("--run");
    assert!(status == Some(1) && why.contains("may still appear"), "{why}");
    let (status, why) = assemble("--fenced");
    assert_eq!(status, Some(0), "{why}");
    let records = std::fs::read_dir(user.run_dir().join("unproved")).expect("it was made");
    assert_eq!(records.count(), 0, "that word was about them");
    for name in ["top", "a", "b"] {
        user.expect(0, &format!("stop {name}"));
    }
}

/// What is sent over its connection after that word is not proved by it.
#[test]
fn the_word_that_nothing_may_appear_is_refused_of_a_member_that_the_array_uses() {
    let user = User::with_members(&["a", "b"]);
    let (one, other) = (serve(&user, "a"), serve(&user, "b"));
    let socket = user.path("top.sock");
    let front = format!("--serve=nbd:unix:{}", socket.display());
    let words = "--level=1 --raid-devices=2 --assume-clean --bitmap=none";
    user.expect(0, &format!("create top {words} {front} --write-mostly={other} {one} {other}"));
    let mut client = Client::connect(&socket);
    assert_eq!(client.write(0, &[1; 4096]), Ok(()));
    let b = pid_of(&user, "b");
    user.halt(b);
    let cookie = client.send_write(0, &[2; 4096]);
    // It is answered by the other one, and has come after the write.
    client.read(1 << 20, 4096).expect("read");
    let word = format!("message top fail_path {other} --fenced");
    user.refused(&word, &["`mdspace fail` it first"]);
    user.expect(0, &format!("fail top {other}"));
    assert_eq!(client.answer(cookie).map(drop), Ok(()));
    user.refused(&format!("re-add top {other}"), &["may still appear", "--fenced"]);
    user.signal(Signal::KILL, b);
    user.expect(0, &word);
    drop(client);
    user.expect(0, "stop top");
    user.expect(0, "stop a");
}

#[test]
fn a_stop_by_force_waits_for_no_client_and_says_who_has_not_answered() {
    let user = User::with_members(&["a"]);
    let one = serve(&user, "a");
    let socket = user.path("top.sock");
    let words = "--level=linear --raid-devices=1 --force --assume-clean";
    user.expect(0, &format!("create top {words} --serve=nbd:unix:{} {one}", socket.display()));
    let mut client = Client::connect(&socket);
    assert_eq!(client.write(0, &[1; 4096]), Ok(()));
    let server = pid_of(&user, "a");
    user.halt(server);
    client.send_write(0, &[2; 4096]);
    let began = std::time::Instant::now();
    let told = user.expect(0, "stop top --force");
    assert!(told.contains(&one) && told.contains("has not answered"), "{told}");
    let patience = std::time::Duration::from_secs(40);
    assert!(began.elapsed() < patience, "{:?}: longer than fronts once took", began.elapsed());
    user.signal(Signal::CONT, server);
    user.expect(0, "stop a --force");
}

/// Nothing runs then that could say how it was.
#[test]
fn a_restart_whose_array_is_killed_while_it_stops_leaves_what_says_how_it_was() {
    let user = User::with_members(&["a"]);
    let one = serve(&user, "a");
    let socket = user.path("top.sock");
    let words = "--level=linear --raid-devices=1 --force --assume-clean";
    user.expect(0, &format!("create top {words} --serve=nbd:unix:{} {one}", socket.display()));
    user.expect(0, "set top spare_group=shelf");
    let (server, array) = (pid_of(&user, "a"), pid_of(&user, "top"));
    let mut client = Client::connect(&socket);
    user.halt(server);
    // The stop waits for it.
    client.send_write(0, &[2; 4096]);
    let file = user.run_dir().join("top.restart.toml");
    let said = std::thread::scope(|scope| {
        let restart = scope.spawn(|| user.run("restart top --force"));
        while !file.exists() {
            assert!(!restart.is_finished(), "it has not begun");
            std::thread::yield_now();
        }
        user.signal(Signal::KILL, array);
        restart.join().expect("it ends")
    });
    assert_ne!(said.status, 0, "{said:?}");
    let cure = format!("assemble top --config={}", file.display());
    assert!(said.err.contains(&cure), "{said:?}");
    user.signal(Signal::CONT, server);
    user.expect(0, &format!("{cure} --fenced"));
    assert_eq!(user.expect(0, "get top spare_group"), "shelf\n");
    user.expect(0, "stop top");
    user.expect(0, "stop a");
}

#[test]
fn what_is_no_export_is_refused_with_the_reason() {
    let user = User::with_members(&["a"]);
    let one = serve(&user, "a");
    let create = |member: &str| format!("create top --level=1 --raid-devices=2 {member} missing");
    let wrong = one.replace("///a", "///other");
    user.refused(&create(&wrong), &["no such export"]);
    let absent = format!("nbd+unix://{}", user.path("none").display());
    user.refused(&create(&absent), &["none"]);
    let done = user.run(&create("nbds://host/a"));
    assert!(done.status == 2 && done.err.contains("TLS"), "{done:?}");
    let done = user.run(&create("nbd://host:x/a"));
    assert!(done.status == 2 && done.err.contains("HOST:PORT"), "{done:?}");
    user.expect(0, "stop a");
}

//! What `explain` says of members, and that what it tells to type does what it says.

use rustix::process::Signal;
use serde_json::Value;

use crate::client::Client;
use crate::user::User;

/// A RAID5 of a, b, c and d, stopped after b failed; e is empty.
fn degraded_raid5() -> User {
    let user = User::with_members(&["a", "b", "c", "d", "e"]);
    let shape = "--level=5 --raid-devices=4 --assume-clean --homehost=h";
    user.expect(0, &format!("create data {shape} a b c d"));
    user.expect(0, "fail data b");
    user.expect(0, "stop data");
    user
}

fn explained(user: &User, status: i32, members: &str) -> Value {
    let text = user.expect(status, &format!("explain --json {members}"));
    serde_json::from_str(&text).expect("one JSON object")
}

#[test]
fn members_are_explained_and_nothing_is_written() {
    let user = degraded_raid5();
    let before: Vec<_> = ["a", "b", "c", "d", "e"].map(|member| user.bytes(member)).into();
    let text = user.expect(1, "explain a b c d e");
    for words in [
        "h:data: raid5 with 4 slots",
        "a: slot 0",
        "b: slot 1",
        "2 updates behind",
        "left out: it is marked as failed",
        "It starts: degraded, with one slot empty",
        "mdspace assemble data --readonly '--serve=nbd:unix:/tmp/data.nbd?ro' a b c d",
        "Members of no array that mdspace knows:\n    e: has no md superblock",
    ] {
        assert!(text.contains(words), "without {words:?}:\n{text}");
    }
    let after: Vec<_> = ["a", "b", "c", "d", "e"].map(|member| user.bytes(member)).into();
    assert!(before == after, "a member has changed");
    let text = user.expect(1, "explain nothing");
    assert!(text.contains("Could not be looked at:\n    nothing") && !text.contains("no array"));
}

#[test]
fn what_explain_tells_to_type_is_what_assemble_wants() {
    let user = degraded_raid5();
    // c is missing although the superblocks count on it: too few. With the stale b nothing changes.
    for members in ["a d", "a b d"] {
        let verdict = &explained(&user, 1, members)["arrays"][0]["verdict"];
        assert_eq!(verdict["starts"], false, "{verdict}");
        user.refused(&format!("assemble data {members}"), &["not enough"]);
    }
    user.expect(0, "assemble data a c d");
    user.expect(0, "add data --run e");
    user.run("wait data");
    user.expect(0, "stop data");
    // Now all of a, e, c and d are counted on.
    let verdict = &explained(&user, 1, "a c d")["arrays"][0]["verdict"];
    assert_eq!(verdict["options"], serde_json::json!(["--run"]), "{verdict}");
    user.refused("assemble data a c d", &["--run"]);
    // To look at it is no risk, and needs no leave.
    let look = verdict["look"].as_str().expect("a command");
    let socket = user.path("look.nbd").display().to_string();
    let look = look.replace("/tmp/data.nbd", &socket).replace('\'', "");
    assert!(!look.contains("--run") && look.contains(&socket), "{look}");
    let before: Vec<_> = ["a", "c", "d"].map(|member| user.bytes(member)).into();
    let said = user.expect(0, look.strip_prefix("mdspace ").expect("a command of ours"));
    assert!(said.contains("started with 3 of 4 members; slot 1 is empty"), "{said}");
    user.expect(0, "stop data");
    let after: Vec<_> = ["a", "c", "d"].map(|member| user.bytes(member)).into();
    assert!(before == after, "a member has changed");
    let assemble = verdict["assemble"].as_str().expect("a command");
    user.expect(0, assemble.strip_prefix("mdspace ").expect("a command of ours"));
    user.expect(0, "stop data");
}

#[test]
fn what_explain_tells_to_type_brings_back_a_member_that_missed_writes() {
    let user = User::with_members(&["a", "b", "c"]);
    user.expect(0, "create data --level=5 --raid-devices=3 --assume-clean --homehost=h a b c");
    user.expect(0, "fail data b");
    user.expect(0, "remove data b");
    user.expect(0, "stop data");
    let verdict = &explained(&user, 0, "a b c")["arrays"][0]["verdict"];
    for command in ["assemble", "re_add"] {
        let command = verdict[command].as_str().expect("a command");
        user.expect(0, command.strip_prefix("mdspace ").expect("a command of ours"));
    }
    user.run("wait data");
    assert_eq!(user.detail("data")["array"]["degraded"], 0);
    user.expect(0, "stop data");
    let verdict = &explained(&user, 0, "a b c")["arrays"][0]["verdict"];
    assert_eq!(verdict["re_add"], Value::Null, "{verdict}");
}

#[test]
fn members_of_two_arrays_are_told_apart_also_while_one_runs() {
    let user = User::with_members(&["a", "b", "c", "d"]);
    user.expect(0, "create one --level=1 --raid-devices=2 --assume-clean a b");
    user.expect(0, "create two --level=0 --raid-devices=2 c d");
    user.expect(0, "stop two");
    let found = explained(&user, 0, "a c d b");
    let arrays = found["arrays"].as_array().expect("a list");
    let members = |array: &Value| -> Vec<String> {
        let members = array["members"].as_array().expect("a list").iter();
        members.map(|member| member["member"].as_str().expect("a name").to_owned()).collect()
    };
    assert_eq!(arrays.iter().map(members).collect::<Vec<_>>(), [["a", "b"], ["c", "d"]]);
    user.expect(0, "stop one");
}

#[test]
fn a_copy_of_a_member_and_two_halves_are_explained() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    user.expect(0, "stop data");
    std::fs::copy(user.path("a"), user.path("copy")).expect("room");
    let why = |status, members| {
        explained(&user, status, members)["arrays"][0]["verdict"]["why"].to_string()
    };
    assert!(why(1, "a copy b").contains("one is a copy of the other"));
    for half in ["a", "b"] {
        user.expect(0, &format!("assemble data --run {half}"));
        user.expect(0, "stop data");
        user.expect(0, &format!("assemble data --run {half}"));
        user.expect(0, "stop data");
    }
    assert!(why(1, "a b").contains("ran without the other"), "{}", why(1, "a b"));
}

#[test]
fn an_array_without_doubt_has_nothing_to_accept() {
    let user = User::with_members(&["a", "b", "c"]);
    user.expect(0, "create data --level=5 --raid-devices=3 --assume-clean a b c");
    assert_eq!(user.detail("data")["array"]["doubted"]["sectors"], 0);
    user.refused("accept-doubt data", &["no redundancy is in doubt", "In Doubt"]);
    user.expect(0, "set data accept_doubt=1");
    user.expect(0, "stop data");
}

#[test]
fn a_forced_start_says_how_much_it_takes_for_right() {
    let user = User::with_members(&["a", "b", "c"]);
    let socket = user.path("data.nbd");
    let shape = "--level=5 --raid-devices=3 --assume-clean --bitmap=none";
    user.expect(0, &format!("create data {shape} --serve=nbd:unix:{} a b c", socket.display()));
    Client::connect(&socket).write(0, &[1; 4096]).unwrap();
    let pids = user.processes();
    user.signal(Signal::KILL, pids[0]);
    user.refused("assemble data a b --run", &["--force"]);
    let done = user.run("assemble data a b --run --force");
    let told = done.out + &done.err;
    assert!(told.contains("MiB of each member what is missing comes from parity"), "{told}");
    assert_eq!(done.status, 0, "{told}");
    assert!(!told.contains("In 0.0 MiB"), "{told}");
    user.expect(0, "stop data");
}

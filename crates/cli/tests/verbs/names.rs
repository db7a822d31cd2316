//! Names and paths that would steer a terminal or break a line.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::user::User;

const NAMES: [&str; 3] = ["line\nMD_FORGED=1", "esc\x1b[2Jape", "turn\u{202e}ed\u{2028}"];

fn is_plain(text: &str) -> bool {
    let steers = |c: char| {
        (c.is_control() && c != '\n')
            || ('\u{202a}'..='\u{202e}').contains(&c)
            || ('\u{2066}'..='\u{2069}').contains(&c)
            || matches!(c, '\u{2028}' | '\u{2029}')
    };
    !text.chars().any(steers)
}

#[test]
fn paths_are_printed_escaped_everywhere() {
    let user = User::with_members(&NAMES);
    let mut words = vec!["create", "data", "--level=1", "--raid-devices=2", "--assume-clean"];
    words.extend(&NAMES[..2]);
    let created = user.run_words(&words);
    assert_eq!(created.status, 0, "{created:?}");
    let failed = user.run_words(&["fail", "data", NAMES[1]]);
    assert_eq!(failed.status, 0, "{failed:?}");
    let added = user.run_words(&["add", "data", NAMES[2]]);
    assert_eq!(added.status, 0, "{added:?}");
    let mut said = created.out + &added.out;
    for words in ["detail data", "detail data --export", "mdstat", "events data"] {
        let text = user.expect(0, words);
        assert!(is_plain(&text), "{words}: {text:?}");
        assert!(!text.lines().any(|line| line.starts_with("MD_FORGED")), "{words}: {text:?}");
        said += &text;
    }
    for refused in [["examine", "no\x1bname"], ["zero-superblock", "no\nname"]] {
        let done = user.run_words(&refused);
        assert_eq!(done.status, 1);
        said += &done.err;
    }
    user.expect(0, "stop data");
    for verb in ["examine", "explain"] {
        said += &user.run_words(&[verb, NAMES[0], NAMES[1]]).out;
    }
    assert!(is_plain(&said), "{said:?}");
    assert!(!said.lines().any(|line| line.starts_with("MD_FORGED")), "{said:?}");
}

#[test]
fn a_new_array_has_no_name_that_steers_a_terminal() {
    let user = User::with_members(&["a", "b"]);
    for name in NAMES {
        let words = ["create", "data", "--level=1", "--raid-devices=2", "--name", name, "a", "b"];
        let done = user.run_words(&words);
        assert_eq!(done.status, 2, "{done:?}");
        assert!(is_plain(&done.err), "{done:?}");
    }
    assert!(user.bytes("a").iter().all(|byte| *byte == 0), "a member has changed");
}

/// One of them is what the other one's name looks like in print.
#[test]
fn members_whose_path_is_no_text_are_named_in_every_verb() {
    let names = [&b"disk-\xff"[..], b"disk-\\xff", b"spare-\xfe\n"].map(OsStr::from_bytes);
    let user = User::with_members(&names);
    let run = |status: i32, words: &str, members: &[&OsStr]| {
        let words = words.split(' ').map(OsStr::new);
        let done = user.run_words(&words.chain(members.iter().copied()).collect::<Vec<_>>());
        assert_eq!(done.status, status, "{done:?}");
        done.out
    };
    let members = |states: &[&str]| {
        let detail = user.detail("data");
        for (member, state) in detail["array"]["members"].as_array().unwrap().iter().zip(states) {
            assert!(member["member"].as_str().unwrap().ends_with(state), "{detail:#}");
        }
        detail["array"]["degraded"].clone()
    };
    run(0, "create data --level=1 --raid-devices=2 --assume-clean --save", &names[..2]);
    assert_eq!(members(&["/disk-\\xff", "/disk-\\x5cxff"]), 0);
    for words in ["detail data", "mdstat"] {
        assert!(user.expect(0, words).contains("disk-\\xff"), "{words}");
    }
    run(0, "fail data", &names[..1]);
    assert_eq!(members(&[]), 1);
    assert!(user.expect(0, "events data").contains("disk-\\xff"));
    run(0, "remove data", &names[..1]);
    run(0, "add data --run", &names[..1]);
    user.run("wait data");
    run(0, "add data", &names[2..]);
    run(0, "replace data", &names[1..2]);
    user.run("wait data");
    run(0, "remove data", &names[1..2]);
    user.expect(0, "save data");
    user.expect(0, "restart data");
    assert_eq!(members(&[]), 0);
    user.expect(0, "stop data");
    user.expect(0, "assemble data");
    assert_eq!(members(&[]), 0);
    user.expect(0, "stop data");
    let held = [names[0], names[2]];
    assert!(run(0, "examine", &held).contains("disk-\\xff"));
    let explained = run(0, "explain", &held);
    assert!(explained.contains("$'disk-\\xff'"), "{explained}");
    run(0, "assemble data", &held);
    user.expect(0, "stop data");
    run(0, "zero-superblock --run", &held);
}

#[test]
fn a_name_that_no_array_has_leads_to_the_one_that_is_meant_and_stop_starts_nothing() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    for mistyped in ["dat", "data2", "daat", "dtaa", "dats"] {
        let why = ["these do: data", "if you mean data"];
        user.refused_with(4, &format!("detail {mistyped}"), &why);
    }
    for other in ["vault", "d", "da"] {
        let done = user.run(&format!("detail {other}"));
        assert!(done.status == 4 && !done.err.contains("if you mean"), "{done:#?}");
    }
    let left: Vec<_> = std::fs::read_dir(user.run_dir()).expect("a folder").flatten().collect();
    let is_of_data = |name: &OsStr| name == "by-uuid" || name.as_bytes().starts_with(b"data.");
    assert!(left.iter().all(|entry| is_of_data(&entry.file_name())), "{left:?}");
    let why = ["these do: data", "if you mean data, say so; else nothing is to be stopped"];
    user.refused_with(4, "stop dat", &why);
    let done = user.run("stop other");
    assert!(done.err.contains("mdspace mdstat") && !done.err.contains("assemble"), "{done:#?}");
    user.expect(0, "stop data");
}

//! Members that fail, leave, come back and are checked.

use crate::user::User;

/// A RAID1 that is in sync from the start.
fn mirror(user: &User) {
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
}

#[test]
fn a_member_fails_leaves_and_comes_back_by_the_bitmap() {
    let user = User::with_members(&["a", "b"]);
    mirror(&user);
    user.expect(0, "detail data --test");
    user.refused("remove data b", &["active", "fail"]);
    user.expect(0, "fail data b");
    user.expect(1, "detail data --test");
    user.refused("fail data a", &["needs this member"]);
    user.expect(0, "remove data failed");
    let said = user.expect(0, "re-add data b");
    assert!(said.contains("by the bitmap"), "{said}");
    user.run("wait data");
    user.expect(0, "detail data --test");
    let events = user.expect(0, "events data --json");
    let words: Vec<_> = ["NewArray", "\"Fail\"", "DegradedArray", "SpareActive"]
        .into_iter()
        .filter(|word| !events.contains(word))
        .collect();
    assert!(words.is_empty(), "without {words:?}:\n{events}");
    user.expect(0, "stop data");
}

#[test]
fn a_spare_takes_the_place_of_a_failed_member() {
    let user = User::with_members(&["a", "b", "s"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --spare-devices=1 --assume-clean a b s");
    user.expect(0, "fail data a");
    let waited = user.run("wait data").status;
    assert!(waited <= 1, "{waited}");
    user.expect(0, "detail data --test");
    let detail = user.expect(0, "detail data");
    assert!(detail.lines().any(|line| line.contains("active sync") && line.ends_with("/s")));
    assert!(detail.lines().any(|line| line.contains("faulty") && line.ends_with("/a")));
    user.expect(0, "stop data");
}

#[test]
fn a_check_counts_what_differs_and_repair_mends_it() {
    use std::os::unix::fs::FileExt;
    let user = User::with_members(&["a", "b"]);
    mirror(&user);
    user.expect(0, "action data check --wait");
    assert_eq!(user.expect(0, "get data mismatch_cnt").trim(), "0");
    user.expect(0, "stop data");
    let file = std::fs::File::options().write(true).open(user.path("b")).expect("a file");
    file.write_all_at(&[1], (8 << 20) - 4096).expect("room in the member");
    user.expect(0, "assemble data a b");
    user.expect(3, "action data check --wait");
    assert_ne!(user.expect(0, "get data mismatch_cnt").trim(), "0");
    // Two copies do not tell which of them is right.
    user.expect(3, "action data repair --wait");
    assert!(user.expect(3, "action data check --wait").contains("undecidable between"));
    assert_ne!(user.expect(0, "get data mismatch_cnt").trim(), "0");
    user.expect(0, "action data repair --trust=a --wait");
    user.expect(0, "action data check --wait");
    assert_eq!(user.expect(0, "get data mismatch_cnt").trim(), "0");
    user.expect(1, "action data check --force-parity");
    user.expect(0, "stop data");
}

/// Bytes of one member of a stopped RAID6 are flipped: a check names it and the place, a repair mends it.
#[test]
fn the_member_that_lies_is_named_in_detail_and_mended_by_repair() {
    use std::os::unix::fs::FileExt;
    let user = User::with_members(&["a", "b", "c", "d", "e"]);
    user.expect(0, "create data --level=6 --raid-devices=5 --run a b c d e");
    user.run("wait data");
    user.expect(0, "stop data");
    let file =
        std::fs::File::options().read(true).write(true).open(user.path("c")).expect("a file");
    let at = (6 << 20) + 1234;
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("inside the member");
    file.write_all_at(&[byte[0] ^ 0x55], at).expect("room in the member");
    user.expect(0, "assemble data a b c d e");
    assert!(
        user.expect(0, "action data check --wait").contains("differs from what all others say")
    );
    let detail: serde_json::Value =
        serde_json::from_str(&user.expect(0, "detail data --json")).expect("JSON");
    let array = &detail["array"];
    let place = &array["mismatches"]["first"][0];
    assert!(place["liar"].as_str().is_some_and(|liar| liar.ends_with('c')), "{place}");
    let data_offset = array["members"][2]["data_offset_bytes"].as_u64().expect("a number");
    assert_eq!(place["member_sector"].as_u64(), Some((at - data_offset) / 512), "{place}");
    user.expect(0, "action data repair --wait");
    user.expect(0, "action data check --wait");
    assert_eq!(user.expect(0, "get data mismatch_cnt").trim(), "0");
    let mut mended = [0];
    file.read_exact_at(&mut mended, at).expect("inside the member");
    assert_eq!(mended, byte);
    user.expect(0, "stop data");
}

/// Byte 777 of a sector of member `c`'s data is flipped.
fn flip(user: &User, data_offset: u64, sector: u64) {
    use std::os::unix::fs::FileExt;
    let file =
        std::fs::File::options().read(true).write(true).open(user.path("c")).expect("a file");
    let (at, mut byte) = (data_offset + sector * 512 + 77, [0]);
    file.read_exact_at(&mut byte, at).expect("inside the member");
    file.write_all_at(&[byte[0] ^ 0x55], at).expect("room in the member");
}

/// One parity shows that something is wrong and not what, and so do two copies: nothing is changed, and
/// the commands that would decide are printed.
#[test]
fn what_nobody_can_tell_ends_with_3_and_the_commands_that_would_decide() {
    for (create, members, deciding) in [
        ("--level=5 --raid-devices=3 --force", "a b c", &["repair --force-parity"][..]),
        ("--level=1 --raid-devices=2", "a c", &["repair --trust=", "/a, or", "/c; or the first"]),
    ] {
        let user = User::with_members(&["a", "b", "c"]);
        user.expect(0, &format!("create data --assume-clean --run {create} {members}"));
        let array = user.detail("data")["array"].clone();
        let data_offset = array["members"][0]["data_offset_bytes"].as_u64().expect("a number");
        user.expect(0, "stop data");
        flip(&user, data_offset, 100);
        let lying = user.bytes("c");
        user.expect(0, &format!("assemble data {members}"));
        for action in ["check", "repair"] {
            let done = user.run(&format!("action data {action} --wait"));
            assert_eq!(done.status, 3, "{done:#?}");
            assert!(done.out.contains("sector 100"), "{done:#?}");
            let told = deciding.iter().all(|command| done.err.contains(command));
            assert!(told && done.err.contains("undecidable in 1 place"), "{done:#?}");
        }
        let data = data_offset as usize..;
        assert_eq!(user.bytes("c")[data.clone()], lying[data], "nothing was changed");
        user.expect(0, "action data repair --force-parity --wait");
        user.expect(0, "action data check --wait");
        user.expect(0, "stop data");
    }
}

/// One sector lies before the place where the time is over, one behind it.
#[test]
fn a_check_with_a_time_to_spend_goes_on_where_it_ended_also_in_another_process() {
    let user = User::with_members(&["a", "b", "c"]);
    user.expect(0, "create data --level=1 --raid-devices=3 --assume-clean --run a b c");
    let array = user.detail("data")["array"].clone();
    let data_offset = array["members"][2]["data_offset_bytes"].as_u64().expect("a number");
    user.expect(0, "stop data");
    [100, 9000].into_iter().for_each(|sector| flip(&user, data_offset, sector));
    let found = |words: &str| {
        let printed = user.expect(0, words);
        [100, 9000].map(|sector: u64| printed.contains(&format!("sector {sector} of the array")))
    };
    let begin = || user.expect(0, "assemble data a b c");
    begin();
    user.refused("action data idle --for=1h", &["time to spend"]);
    user.expect(2, "action data check --for=2");
    // It comes no further than this, and its second goes by.
    user.expect(0, "set data sync_max=4096");
    let first = user.expect(0, "action data check --for=1s --wait");
    assert!(first.contains("ended at sector 4096"), "{first}");
    assert!(first.contains("sector 100 ") && !first.contains("sector 9000"), "{first}");
    user.expect(0, "stop data");
    let kept = user.path("run").join("data.scrub");
    let text = std::fs::read_to_string(&kept).expect("the place is kept");
    assert!(text.ends_with(" 4096\n"), "{text}");

    begin();
    assert_eq!(found("action data check --for=1h --wait"), [false, true], "from there to the end");
    user.expect(0, "stop data");
    assert!(!kept.exists(), "it has come to the end");
    begin();
    assert_eq!(found("action data check --for=1h --wait"), [true, true], "and begins anew");
    user.expect(0, "stop data");
    // Another array's place is none of ours.
    std::fs::write(&kept, text.replace(text.split(' ').next().expect("a word"), "0"))
        .expect("room");
    begin();
    assert_eq!(found("action data check --for=1h --wait"), [true, true]);
    user.expect(0, "stop data");
}

#[test]
fn wait_ends_with_0_when_all_is_done_and_with_4_where_no_array_is() {
    let user = User::with_members(&["a", "b"]);
    mirror(&user);
    // A script that comes late is as glad as one that has waited.
    user.expect(0, "wait data");
    user.expect(4, "wait dat");
    user.expect(0, "stop data");
}

#[test]
fn settings_are_md_s_own_and_unknown_ones_are_refused() {
    let user = User::with_members(&["a", "b"]);
    mirror(&user);
    assert_eq!(user.expect(0, "get data level"), "raid1\n");
    assert_eq!(user.expect(0, "get data sync_completed"), "none\n");
    user.expect(0, "set data array_state=readonly");
    assert_eq!(user.expect(0, "get data array_state"), "readonly\n");
    user.expect(0, "readwrite data");
    assert_eq!(user.expect(0, "get data array_state"), "clean\n");
    user.refused_with(2, "get data nonsense", &["no such key"]);
    user.refused_with(2, "set data level=5", &["no key"]);
    user.refused_with(2, "set data array_state=gone", &["readonly"]);
    user.refused_with(2, "set data stripe_size=8192", &["no key"]);
    user.expect(0, "stop data");
}

#[test]
fn a_key_refuses_what_it_cannot_take_with_its_range_and_the_array_runs_on() {
    let user = User::with_members(&["a", "b", "c"]);
    user.expect(0, "create data --level=5 --raid-devices=3 --run --stripe-size=64K a b c");
    assert_eq!(user.expect(0, "get data stripe_size"), "65536\n");
    assert_eq!(user.expect(0, "get data stripe_hash_locks"), "32\n");
    user.expect(0, "set data rmw_level=0");
    assert_eq!(user.expect(0, "get data rmw_level"), "0\n");
    user.refused_with(2, "set data rmw_level=3", &["0 to 2"]);
    user.refused_with(2, "set data rmw_level=-1", &["0 to 2"]);
    user.refused_with(2, "set data stripe_size=4096", &["fixed", "--stripe-size"]);
    assert_eq!(user.expect(0, "get data rmw_level"), "0\n");
    user.expect(0, "stop data");
}

#[test]
fn mdstat_shows_every_array_and_detail_test_tells_an_absent_one() {
    let user = User::with_members(&["a", "b", "c", "d"]);
    mirror(&user);
    user.expect(0, "create more --level=0 --raid-devices=2 c d");
    let text = user.expect(0, "mdstat");
    assert!(text.contains("\ndata : active raid1 a[0] b[1]\n"), "{text}");
    assert!(text.contains("\nmore : active raid0 c[0] d[1]\n"), "{text}");
    user.expect(4, "detail nothing --test");
    let export = user.expect(0, "detail data --export");
    assert!(export.contains("MD_LEVEL=raid1\nMD_DEVICES=2\n"), "{export}");
    user.expect(0, "stop data");
    user.expect(0, "stop more");
}

#[test]
fn a_spare_is_not_added_twice() {
    let user = User::with_members(&["a", "b", "s"]);
    mirror(&user);
    user.expect(0, "add data s");
    user.refused("add data s", &["a spare of the array already"]);
    assert_eq!(user.detail("data")["array"]["members"].as_array().expect("members").len(), 3);
    user.expect(0, "stop data");
}

#[test]
fn a_member_that_works_hands_over_to_another() {
    let user = User::with_members(&["a", "b", "s", "t"]);
    mirror(&user);
    std::fs::write(user.path("note"), "nothing").expect("a file");
    user.refused("replace data a --with note", &["note"]);
    user.refused("replace data a --with b", &["no spare"]);
    user.refused("replace data s", &["no spare"]);
    user.refused("replace data a", &["has no spare"]);
    user.expect(0, "action data frozen");
    user.expect(0, "replace data a --with s");
    let detail = user.expect(0, "detail data");
    let slot_0: Vec<&str> = detail.lines().filter(|line| line.contains("  0      ")).collect();
    assert_eq!(slot_0.len(), 2, "{detail}");
    assert!(slot_0[0].contains("active sync") && slot_0[0].ends_with("/a"), "{detail}");
    assert!(slot_0[1].contains("spare rebuilding") && slot_0[1].ends_with("/s"), "{detail}");
    let mdstat = user.expect(0, "mdstat");
    assert!(mdstat.contains(" a[0] b[1] s[2](R)\n") && mdstat.contains("[2/2] [UU]"), "{mdstat}");
    let state = |at: usize| user.detail("data")["array"]["members"][at]["state"].to_string();
    assert!(state(0).contains("want_replacement"), "{}", state(0));
    assert!(state(2).contains("\"replacement\""), "{}", state(2));
    user.expect(0, "detail data --test");
    let examined = user.expect(0, "examine s");
    assert!(examined.contains("Device Role : Replacement device 0"), "{examined}");
    assert!(examined.contains("Array State : RA "), "{examined}");
    // A restart goes on with it.
    user.expect(0, "stop data");
    user.expect(0, "assemble data a b s");
    let waited = user.run("wait data").status;
    assert!(waited <= 1, "{waited}");
    let detail = user.expect(0, "detail data");
    assert!(detail.lines().any(|line| line.contains("active sync") && line.ends_with("/s")));
    assert!(detail.lines().any(|line| line.contains("faulty") && line.ends_with("/a")));
    user.expect(0, "detail data --test");
    user.expect(0, "remove data failed");
    user.expect(0, "set data want_replacement=b");
    assert!(state(0).contains("want_replacement"), "{}", state(0));
    user.expect(0, "add data t");
    user.run("wait data");
    user.expect(0, "action data check --wait");
    assert_eq!(user.expect(0, "get data mismatch_cnt").trim(), "0");
    user.expect(0, "stop data");
    assert!(user.expect(0, "examine t").contains("Device Role : Active device 1"));
}

/// No order helps it, and each says so and what does.
#[test]
fn what_a_broken_array_is_ordered_says_that_it_is_broken_and_what_helps() {
    let user = User::with_members(&["a", "b", "c", "d"]);
    user.expect(0, "create data --level=5 --raid-devices=3 --assume-clean a b c");
    user.expect(0, "fail data a");
    user.expect(0, "fail data --force b");
    let orders = [
        "readwrite data",
        "readonly data",
        "add data d",
        "re-add data a",
        "replace data c --with=d",
    ];
    for order in orders.into_iter().chain(["action data check", "action data resync"]) {
        user.refused(order, &["only 1 of 3 members is left", "stop", "explain", "recovery.md"]);
    }
    assert!(user.expect(0, "events data").contains("BrokenArray"));
    user.expect(0, "stop data");
    user.expect(0, "assemble data a b c");
    user.expect(0, "stop data");
}

#[test]
fn what_cannot_be_set_or_told_has_a_cure_of_its_own() {
    let user = User::with_members(&["a", "b"]);
    mirror(&user);
    user.refused_with(
        2,
        "set data max_read_errors=many",
        &["takes a number", "a value that the key takes"],
    );
    user.refused_with(2, "set data colour=red", &["no key colour", "mdspace get NAME"]);
    user.refused("message data fail_path x", &["no member with several paths", "help multipath"]);
    user.expect(0, "stop data");
}

/// Who may make an empty file is told how; who names what must be there already is not.
#[test]
fn what_to_do_about_a_member_that_is_missing_fits_what_it_is_wanted_for() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    let cure = |words: &str| {
        let done = user.run(words);
        assert_eq!(done.status, 1, "mdspace {words}: {done:#?}");
        done.err.lines().last().expect("three lines").trim().to_owned()
    };
    let create = "create more --level=1 --raid-devices=1 --force";
    for words in [&format!("{create} none"), "add data none"] {
        assert!(cure(words).contains("truncate -s"), "{words}");
    }
    for words in ["re-add data none", "assemble data none", "replace data a --with=none"] {
        assert!(cure(words).starts_with("do: check the name: files"), "{words}");
    }
    let export = format!("{create} nbd+unix:///none?socket=/nowhere");
    assert!(cure(&export).contains("that its server runs"), "{export}");
    assert!(cure(&format!("{create} multipath:none")).starts_with("do: check the name: files"));
    assert!(cure(&format!("{create} /dev/none")).contains("lsblk"));
    assert!(cure(&format!("{create} a")).contains("choose another member"));
    assert!(cure("assemble other a").contains("it runs already"));
    user.refused("add data a", &["it is a member of the array already", "give another one"]);
}

/// With a spare at hand too: the first line says that the array bears no loss yet.
#[test]
fn a_new_array_with_spares_says_that_one_of_them_is_built_in() {
    let user = User::with_members(&["a", "b", "c", "d"]);
    let said = user.expect(0, "create data --level=5 --raid-devices=3 --spare-devices=1 a b c d");
    let built = "started with 2 of 3 members; one of 2 spares is built from them";
    assert!(said.contains(built), "{said}");
    user.expect(0, "stop data");
}

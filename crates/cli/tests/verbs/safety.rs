//! What mdspace must not touch: other people's data, members in use, and anything after a wrong word.

use std::fs;
use std::os::unix::fs::FileExt;

use mdspace_front::nbd::Errno;

use crate::client::Client;
use crate::user::User;

/// Puts something on a member that nobody should lose: an ext4 superblock's magic and a label.
fn put_file_system(user: &User, member: &str) {
    let file = fs::File::options().write(true).open(user.path(member)).expect("a file");
    let mut superblock = vec![0; 1024];
    superblock[0..4].copy_from_slice(&64u32.to_le_bytes()); // inodes
    superblock[4..8].copy_from_slice(&4096u32.to_le_bytes()); // blocks
    superblock[56..58].copy_from_slice(&0xef53u16.to_le_bytes());
    superblock[76..80].copy_from_slice(&1u32.to_le_bytes()); // revision
    superblock[120..128].copy_from_slice(b"precious");
    file.write_all_at(&superblock, 1024).expect("room in the member");
}

#[test]
fn a_full_member_is_shown_and_without_a_terminal_left_alone() {
    let user = User::with_members(&["a", "b"]);
    put_file_system(&user, "b");
    let before = (user.bytes("a"), user.bytes("b"));
    user.refused("create data --level=1 --raid-devices=2 a b", &["b holds", "--run"]);
    assert!(before == (user.bytes("a"), user.bytes("b")), "a member has changed");
    user.expect(0, "create data --level=1 --raid-devices=2 --run a b");
    user.expect(0, "stop data");
    user.refused("create data --level=1 --raid-devices=2 a b", &["array", "raid1"]);
}

#[test]
fn a_taken_front_costs_no_member() {
    let user = User::with_members(&["a", "b"]);
    fs::write(user.path("s"), "not a socket").expect("a file");
    let before = user.bytes("a");
    let serve = format!("--serve=nbd:unix:{}", user.path("s").display());
    let words = format!("create data --level=1 --raid-devices=2 {serve} a b");
    user.refused(&words, &["no socket"]);
    assert!(before == user.bytes("a"), "a member has changed");
    assert!(user.processes().is_empty());
}

#[test]
fn an_impossible_array_costs_no_member() {
    let user = User::with_members(&["a", "b"]);
    let before = user.bytes("a");
    user.expect(2, "create data --level=6 --raid-devices=2 a b");
    user.expect(2, "create data --level=5 --raid-devices=2 --chunk=3K a b");
    user.refused("create data --level=1 --raid-devices=2 --size=1G a b", &["cannot create data"]);
    user.expect(2, "create data --level=0 --raid-devices=2 a missing");
    user.expect(2, "create data --level=1 --raid-devices=3 a b");
    user.expect(2, "create data --level=5 --raid-devices=2 --layout=n2 a b");
    user.expect(2, "create data --level=1 --raid-devices=2 --serve=nonsense a b");
    assert!(before == user.bytes("a"), "a member has changed");
    assert!(user.processes().is_empty());
}

#[test]
fn a_member_in_use_is_refused_with_its_user_and_the_cure() {
    let user = User::with_members(&["a", "b", "c"]);
    user.expect(0, "create data --level=1 --raid-devices=2 a b");
    // Never to stop what runs: the name was mistyped.
    let cure = ["mdspace array data", "choose another member", "mdspace detail data"];
    user.refused("create other --level=1 --raid-devices=2 --run a c", &cure);
    user.refused("zero-superblock --run a", &cure);
    user.refused("assemble other a b", &["mdspace array data", "it runs already"]);
    user.expect(2, "create other --level=1 --raid-devices=2 --run c c");
    user.expect(0, "stop data");
}

#[test]
fn a_readonly_assembly_writes_nothing() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    user.expect(0, "stop data");
    let before = (user.bytes("a"), user.bytes("b"));
    user.expect(0, "assemble data --readonly a b");
    assert_eq!(user.expect(0, "get data array_state"), "readonly\n");
    // The first write would find no member that takes it, and break the array.
    for order in ["readwrite data", "set data array_state=active"] {
        user.refused(order, &["open for reading alone", "stop data", "without --readonly"]);
    }
    assert_eq!(user.expect(0, "get data array_state"), "readonly\n");
    user.expect(0, "stop data");
    assert!(before == (user.bytes("a"), user.bytes("b")), "a member has changed");
    user.expect(0, "create new --level=1 --raid-devices=2 --assume-clean --run --readonly a b");
    user.expect(0, "readwrite new");
    user.expect(0, "stop new");
}

#[test]
fn an_array_that_lacks_a_member_starts_only_when_told_to() {
    let user = User::with_members(&["a", "b", "blank"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    user.expect(0, "stop data");
    user.refused("assemble data a", &["missing", "--run"]);
    user.refused("assemble data a blank", &["blank has no md superblock", "--run"]);
    user.refused("assemble data blank", &["no md superblock"]);
    user.expect(0, "assemble data --run a");
    user.expect(1, "detail data --test");
    user.expect(0, "stop data");
}

#[test]
fn zero_superblock_erases_the_superblock_and_asks_first() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 a b");
    user.expect(0, "stop data");
    user.refused("zero-superblock a", &["a holds", "--run"]);
    user.expect(0, "examine a");
    user.expect(0, "zero-superblock --run a");
    user.expect(1, "examine a");
    user.expect(0, "examine b");
    user.refused("zero-superblock --run a", &["no md superblock"]);
}

/// Lets a member bear, beside what it has, the superblock that it had at version 1.0: there and,
/// since all that counts is its magic, at the place of 0.90.
fn put_old_superblocks(user: &User, member: &str, old: &[u8]) {
    let file = fs::File::options().write(true).open(user.path(member)).expect("a file");
    let [v1_0, v0_90] = [old.len() - (8 << 10), old.len() - (64 << 10)];
    for place in [v1_0, v0_90] {
        file.write_all_at(&old[v1_0..v1_0 + 4096], place as u64).expect("room in the member");
    }
}

#[test]
fn superblocks_of_earlier_arrays_at_other_places_are_erased() {
    let user = User::with_members(&["a", "b", "s"]);
    user.expect(0, "create old --level=1 --raid-devices=2 --metadata=1.0 s missing");
    user.expect(0, "stop old");
    let old = user.bytes("s");
    user.expect(0, "create old --level=1 --raid-devices=2 --metadata=1.1 --run s missing");
    user.expect(0, "stop old");
    put_old_superblocks(&user, "a", &old);
    put_old_superblocks(&user, "s", &old);
    user.refused("zero-superblock s", &["superblock 1.0", "superblock 1.1", "superblock 0.90"]);

    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean --run a b");
    user.refused("add data s", &["s holds", "superblock 1.0", "superblock 0.90"]);
    user.expect(0, "add data --run s");
    user.expect(0, "stop data");
    for member in ["a", "s"] {
        let found = user.run(&format!("zero-superblock {member}")).err;
        let others: Vec<_> = ["1.0", "1.1", "0.90"]
            .into_iter()
            .filter(|version| found.contains(&format!("superblock {version}")))
            .collect();
        assert!(found.contains("superblock 1.2") && others.is_empty(), "{others:?}: {found}");
    }
}

#[test]
fn a_stop_says_which_member_was_deleted() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    fs::remove_file(user.path("b")).expect("it was there");
    let told = user.expect(0, "stop data");
    assert!(told.contains("b was deleted") && !told.contains("a was deleted"), "{told}");
}

/// Nothing can do without the member, and a write behind its new end would make zeroes of what was there.
#[test]
fn a_file_of_a_striped_array_that_was_cut_gives_errors_and_no_zeroes() {
    let user = User::with_members(&["a", "b"]);
    let socket = user.path("s");
    let shape = "--level=0 --raid-devices=2 --chunk=4";
    user.expect(0, &format!("create data {shape} --serve=nbd:unix:{} a b", socket.display()));
    let mut client = Client::connect(&socket);
    let all = vec![7; 64 << 10];
    assert_eq!(client.write(0, &all), Ok(()));
    let file = fs::File::options().write(true).open(user.path("b")).expect("it is there");
    let whole = file.metadata().expect("it is open").len();
    file.set_len(whole / 2).expect("cut");
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while client.read(0, all.len()).is_ok() {
        assert!(std::time::Instant::now() < until, "the cut member still answers");
    }
    file.set_len(whole).expect("grown");
    assert!(client.read(0, all.len()).is_err(), "its end is zeroes now");
    assert_eq!(client.write(0, &all), Err(Errno::Io));
    user.expect(0, "stop data --force");
}

#[test]
fn descriptors_are_counted_before_anything_is_promised() {
    let user = User::with_members(&["a", "b"]);
    let serve = format!("--serve=nbd:unix:{}", user.path("s").display());
    let words = format!("create data --level=1 --raid-devices=2 --assume-clean {serve} a b");
    for limit in [20, 24, 100] {
        let refused = user.run_behind(&format!("ulimit -n {limit}"), &words);
        assert_eq!(refused.status, 1, "{limit}: {refused:?}");
        assert!(refused.err.contains("ulimit -n"), "{limit}: {refused:?}");
        assert!(user.processes().is_empty() && !user.path("s").exists());
    }
    assert!(user.bytes("a").iter().all(|byte| *byte == 0), "a member has changed");
    // The soft limit is ours to raise, and a front more is counted too.
    let created = user.run_behind("ulimit -Sn 50", &words);
    assert_eq!(created.status, 0, "{created:?}");
    user.expect(0, "detail data");
    user.expect(0, "stop data --force");
    let created = user.run_behind("ulimit -n 700", &words.replace("create", "create --run"));
    assert_eq!(created.status, 0, "{created:?}");
    let other = format!("serve data nbd:unix:{}", user.path("t").display());
    user.refused(&other, &["descriptors", "the limit is 700"]);
    user.expect(0, "stop data --force");
}

/// A disk failed, and another one has its name by now.
#[test]
fn what_has_the_name_of_a_failed_member_is_asked_about_as_any_other() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    user.expect(0, "fail data b");
    fs::rename(user.path("b"), user.path("broken")).expect("it was there");
    fs::write(user.path("b"), vec![7; 8 << 20]).expect("a file");
    let before = user.bytes("b");
    user.refused("add data b", &["b holds", "not recognised", "--run"]);
    user.refused("replace data a --with b", &["b holds", "not recognised", "--run"]);
    assert!(before == user.bytes("b"), "other people's data are overwritten");
    // The control: the member itself is known, and no question.
    fs::rename(user.path("broken"), user.path("b")).expect("it was there");
    user.expect(0, "add data b");
    user.run("wait data");
    user.expect(0, "detail data --test");
    user.expect(0, "stop data");
}

#[test]
fn an_array_with_the_largest_chunks_is_served() {
    let user = User::new();
    for member in ["a", "b"] {
        let file = fs::File::create(user.path(member)).expect("a file");
        file.set_len(9 << 30).expect("a hole");
    }
    let serve = format!("--serve=nbd:unix:{}", user.path("s").display());
    user.expect(0, &format!("create data --level=0 --raid-devices=2 --chunk=4G {serve} a b"));
    assert_eq!(Client::connect(&user.path("s")).write(0, &[7; 4096]), Ok(()));
    user.expect(0, "stop data --force");
}

/// Else people learn to answer yes.
#[test]
fn what_is_wrong_on_the_command_line_is_told_before_anything_is_asked() {
    let user = User::with_members(&["a", "b", "c"]);
    user.expect(0, "create old --level=1 --raid-devices=2 --assume-clean a b");
    user.expect(0, "stop old");
    std::os::unix::fs::symlink(user.path("a"), user.path("link")).expect("a link");
    let before = user.bytes("a");
    for (words, why) in [
        ("--level=6 --raid-devices=3 a b c", "at least 4 members"),
        ("--level=5 --raid-devices=3 --chunk=100 a b c", "no chunks of 100K"),
        ("--level=5 --raid-devices=3 --layout=n2 a b c", "left-symmetric (the default)"),
        ("--level=1 --raid-devices=2 --layout=n2 a b", "leave the layout out"),
        ("--level=1 --raid-devices=2 a a", "a is named twice"),
        ("--level=1 --raid-devices=2 a link", "link is named twice"),
        ("--level=1 --raid-devices=3 a b", "2 members for 3 slots"),
        ("--level=1 --raid-devices=2 --write-mostly=c a b", "--write-mostly=c is no member"),
        ("--level=1 --raid-devices=2 --failfast=nothing a b", "--failfast=nothing is no member"),
        ("--level=5 --raid-devices=3 --failfast=a a b c", "--failfast is for mirrors"),
        ("--level=0 --raid-devices=2 --bitmap=internal a b", "--bitmap=internal: raid0 has no"),
        ("--level=0 --raid-devices=2 --bitmap-chunk=4M a b", "--bitmap-chunk: raid0 has no"),
        ("--level=0 --raid-devices=2 --consistency-policy=resync a b", "raid0 has no redundancy"),
        ("--level=1 --raid-devices=2 --spare-devices=1 a b", "2 members for 2 slots and 1 spare\n"),
        ("--level=10 --raid-devices=2 --layout=n3 a b", "3 copies on 2 members"),
        ("--level=1 --raid-devices=2 --data-offset=1 a b", "give another --data-offset"),
        ("--level=1 --raid-devices=2 --bitmap-chunk=3K a b", "give another --bitmap-chunk"),
        ("--level=0 --raid-devices=2 a missing", "with 1 slot empty the array could not start"),
        ("--level=5 --raid-devices=3 a missing missing", "with 2 slots empty"),
        ("--level=0 --raid-devices=2 --spare-devices=1 a b c", "leave --spare-devices out"),
        ("--level=1 --raid-devices=2 missing missing", "give at least one member"),
        ("--level=1 --raid-devices=2 --write-behind=9 a b", "--write-mostly=MEMBER says on whom"),
    ] {
        for run in ["", "--run "] {
            let done = user.run(&format!("create data {run}{words}"));
            assert_eq!(done.status, 2, "{words}: {done:#?}");
            assert!(done.err.contains(why) && !done.err.contains("a holds"), "{words}: {done:#?}");
        }
    }
    let long = format!("nbd:unix:/{}", "x".repeat(120));
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = format!("nbd:tcp:{}", other.local_addr().expect("its address"));
    for (front, why) in [
        ("nbd:unix:/no/such/folder/socket", "/no/such/folder is no directory"),
        ("fuse:/no/such/folder", "/no/such/folder is no directory"),
        (&*long, "107 bytes at most"),
        (&*taken, "do: another program listens there"),
    ] {
        let words = format!("create data --level=1 --raid-devices=2 --serve={front} a b");
        user.refused(&words, &["cannot serve at", why]);
    }
    assert!(before == user.bytes("a") && user.processes().is_empty());
    user.expect(0, "create data --level=1 --raid-devices=2 --run --write-mostly=link a b");
    let member = &user.detail("data")["array"]["members"][0];
    assert_eq!(member["state"][1], "write_mostly", "a link leads to the member: {member}");
    user.refused("serve data nbd:unix:/no/such/socket", &["/no/such is no directory", "mkdir -p"]);
    user.refused("serve data fuse:/no/such", &["/no/such is no directory", "mkdir -p"]);
    user.expect(0, "stop data");
}

#[test]
fn what_is_not_there_has_a_cure_that_fits_the_verb_and_the_place() {
    let user = User::with_members(&["a", "b"]);
    let makes = "truncate -s 1G";
    let shape = "--level=1 --raid-devices=2";
    user.refused(&format!("create data {shape} a nothing"), &["nothing", makes]);
    user.expect(0, &format!("create data {shape} --assume-clean a b"));
    user.refused("add data nothing", &["nothing", makes]);
    for words in [
        "assemble other a nothing",
        "zero-superblock nothing",
        "replace data a --with=nothing",
        "examine nothing",
        &format!("create other {shape} /dev/mdspace-no-device b"),
        "add data /dev/mdspace-no-device",
        "zero-superblock /dev/mdspace-no-device",
    ] {
        let done = user.run(words);
        assert!(done.status == 1 && !done.err.contains(makes), "{words}: {done:#?}");
        let is_device = words.contains("/dev/");
        assert_eq!(is_device, done.err.contains("lsblk"), "{words}: {done:#?}");
    }
    user.expect(0, "stop data");
}

/// Whoever mistypes a device's name in a copy makes one.
#[test]
fn a_regular_file_among_the_devices_is_no_member() {
    let user = User::with_members(&["a", "b"]);
    let place = std::path::PathBuf::from(format!("/dev/mdspace-test-{}", std::process::id()));
    let Ok(file) = fs::File::create(&place) else {
        println!("SKIPPED: this needs root");
        return;
    };
    file.set_len(8 << 20).expect("room in memory");
    let words = format!("create data --level=1 --raid-devices=2 --run a {}", place.display());
    let done = user.run(&words);
    fs::remove_file(&place).expect("it is there");
    assert!(done.status == 1 && done.err.contains("among the devices"), "{done:#?}");
}

/// Who is asked first how an array is kept does not learn to type `--run`.
#[test]
fn what_holds_an_array_is_asked_about_with_the_way_to_start_it() {
    let user = User::with_members(&["a", "b", "c"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    user.expect(0, "stop data");
    let way =
        "do: `mdspace explain a b` says how to start the array that it is of; --run overwrites it";
    user.refused("create more --level=1 --raid-devices=2 a b", &["array", "data (raid1", way]);
    user.refused("zero-superblock a b", &[way]);
    fs::write(user.path("c"), [1; 4096]).expect("a file");
    let look = "do: look at it again, or choose another member; --run overwrites it";
    user.refused("create more --level=1 --raid-devices=1 --force c", &["not recognised", look]);
}

#[test]
fn a_log_level_that_is_none_is_told_to_who_starts_the_array() {
    let user = User::with_members(&["a", "b"]);
    let mut create = user.command("create data --level=1 --raid-devices=2 --assume-clean a b");
    let said = create.env("MDSPACE_LOG", "bogus").output().expect("it starts");
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("MDSPACE_LOG=\"bogus\" is no level"), "{said}");
    user.expect(0, "stop data");
}

/// A service manager runs it after any other stop, too. An error would have it start the array again.
#[test]
fn a_stop_that_waits_for_users_has_done_its_work_where_no_array_runs() {
    let user = User::with_members(&["a"]);
    user.expect(0, "create data --level=0 --raid-devices=1 --force a");
    user.expect(0, "stop data --force-after=1");
    user.expect(0, "stop data --force-after=1");
    user.expect(4, "stop data");
}

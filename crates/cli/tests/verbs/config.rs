//! Configurations: what an array comes back with, and arrays that are found.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::client::Client;
use crate::user::User;

fn pid(user: &User) -> u64 {
    user.detail("data")["pid"].as_u64().expect("a process number")
}

/// A RAID5 that is served, with settings of its own.
fn served() -> (User, String) {
    let user = User::with_members(&["a", "b", "c"]);
    let socket = user.path("data.nbd").display().to_string();
    let words = "--level=5 --raid-devices=3 --run --lanes=2 --stripe-size=16K";
    user.expect(0, &format!("create data {words} --serve=nbd:unix:{socket}?ro --save a b c"));
    (user, socket)
}

#[test]
fn an_array_comes_back_as_it_was_saved() {
    let (user, socket) = served();
    user.expect(0, "set data stripe_cache_size=512");
    user.expect(0, "set data spare_group=shelf --save");
    user.expect(0, "set data stripe_cache_size=700");
    user.expect(0, "stop data");
    user.expect(0, "assemble data");
    let detail = user.detail("data");
    assert_eq!(detail["fronts"][0]["address"], format!("nbd:unix:{socket}?ro"));
    assert_eq!(detail["array"]["members"].as_array().map(Vec::len), Some(3));
    assert_eq!(user.expect(0, "get data stripe_cache_size"), "512\n", "saved before the last word");
    assert_eq!(user.expect(0, "get data spare_group"), "shelf\n");
    assert_eq!(user.expect(0, "get data stripe_size"), "16384\n");
    // It knows what it was told, and saves it again.
    user.expect(0, "save data --config=other.toml");
    let same = |one: &str, other: &str| {
        let text = |path| std::fs::read_to_string(user.path(path)).expect("a configuration");
        assert_eq!(text(one), text(other));
    };
    same("etc/data.toml", "other.toml");
    user.expect(0, "stop data");
    // What the command line says counts more.
    user.expect(0, "assemble data --config=other.toml --stripe-size=8K a b c");
    assert_eq!(user.expect(0, "get data stripe_size"), "8192\n");
    user.expect(0, "stop data");
}

#[test]
fn without_a_member_of_its_configuration_an_array_starts_only_when_told_to() {
    let (user, _) = served();
    user.run("wait data");
    user.expect(0, "stop data");
    std::fs::rename(user.path("b"), user.path("elsewhere")).expect("it moves");
    user.refused("assemble data", &["missing", "--run"]);
    user.expect(0, "assemble data --run");
    assert_eq!(user.run("detail data --test").status, 1);
    user.expect(0, "stop data");
}

/// A disk that fails later would find no spare.
#[test]
fn a_spare_of_its_configuration_that_is_missing_is_named() {
    let user = User::with_members(&["a", "b", "c"]);
    let words = "--level=1 --raid-devices=2 --spare-devices=1 --assume-clean --save";
    user.expect(0, &format!("create data {words} a b c"));
    user.expect(0, "stop data");
    std::fs::rename(user.path("c"), user.path("elsewhere")).expect("it moves");
    let said = user.expect(0, "assemble data");
    let name = user.path("c").display().to_string();
    assert!(said.contains(&format!("mdspace add data {name}")), "{said}");
    user.expect(0, "stop data");
}

fn text(user: &User) -> String {
    std::fs::read_to_string(user.path("etc/data.toml")).expect("a configuration")
}

/// As when a cable comes loose, and the array is saved before it is back.
#[test]
fn a_member_that_is_missing_stays_in_the_configuration_until_it_is_removed() {
    let (user, _) = served();
    user.run("wait data");
    user.expect(0, "stop data");
    let (b, elsewhere) = (user.path("b"), user.path("elsewhere"));
    std::fs::rename(&b, &elsewhere).expect("it moves");
    let name = b.display().to_string();
    let said = user.expect(0, "assemble data --run");
    assert!(said.contains("slot 1 is empty") && said.contains(&name), "{said}");
    user.expect(0, "save data");
    user.expect(0, "set data stripe_cache_size=300 --save");
    user.expect(0, "restart data");
    user.expect(0, "save data");
    user.expect(0, "stop data");
    std::fs::rename(&elsewhere, &b).expect("it comes back");
    let said = user.expect(0, "assemble data");
    assert!(said.contains(&format!("{name} is out of date")), "{said}");
    user.expect(0, "save data");
    assert!(text(&user).contains(&name));
    user.expect(0, "re-add data b");
    user.expect(0, "wait data");
    user.expect(0, "save data");
    assert!(!text(&user).contains("missing = [\"/"), "{}", text(&user));
    // One that fails is as good as missing.
    user.expect(0, "fail data b");
    user.expect(0, "save data");
    assert!(text(&user).contains(&format!("missing = [\"{name}\"]")), "{}", text(&user));
    user.expect(0, "remove data b");
    user.expect(0, "save data");
    assert!(!text(&user).contains(&name), "{}", text(&user));
    user.expect(0, "stop data");
}

#[test]
fn a_missing_member_is_forgotten_by_remove_and_told_by_what_it_is() {
    let (user, _) = served();
    user.run("wait data");
    user.expect(0, "stop data");
    std::fs::rename(user.path("b"), user.path("moved")).expect("it moves");
    user.expect(0, "assemble data --run a c");
    // Its configuration was not read, and tells all the same who is missing.
    user.expect(0, "save data");
    let name = user.path("b").display().to_string();
    assert!(text(&user).contains(&name), "{}", text(&user));
    // By another name it is the same member.
    user.expect(0, "re-add data moved");
    user.expect(0, "save data");
    assert!(!text(&user).contains(&name), "{}", text(&user));
    user.expect(0, "stop data");
    std::fs::rename(user.path("moved"), user.path("b")).expect("it moves");
    user.expect(0, "assemble data --run a c");
    user.expect(0, "save data");
    let moved = user.path("moved").display().to_string();
    assert!(text(&user).contains(&moved), "{}", text(&user));
    let said = user.expect(0, "remove data moved");
    assert!(said.contains("mdspace save data"), "{said}");
    user.refused("remove data moved", &["not a member"]);
    user.expect(0, "save data");
    assert!(!text(&user).contains(&moved), "{}", text(&user));
    // What has the name of a missing member by now is another array's, and stops nothing.
    user.expect(0, "stop data");
    user.expect(0, "assemble data a c --save");
    user.expect(0, "re-add data b");
    user.expect(0, "fail data b");
    user.expect(0, "save data");
    user.expect(0, "stop data");
    user.expect(0, "zero-superblock --run b");
    let said = user.expect(0, "assemble data");
    assert!(said.contains("started with 2 of 3 members; slot 1 is empty"), "{said}");
    user.expect(0, "stop data");
}

/// As where people write the file, and name devices as they know them.
#[test]
fn a_member_is_not_missing_because_the_configuration_calls_it_otherwise() {
    let (user, _) = served();
    user.run("wait data");
    user.expect(0, "stop data");
    let name = |link: &str| user.path(link).display().to_string();
    for (link, member) in [("link-a", "a"), ("link-b", "b"), ("link-c", "c")] {
        std::os::unix::fs::symlink(user.path(member), user.path(link)).expect("a link");
    }
    let (a, b, c) = (name("link-a"), name("link-b"), name("link-c"));
    let members = format!("members = [\"{a}\", \"{b}\", \"{c}\"]\n");
    std::fs::write(user.path("etc/data.toml"), members).expect("room");
    user.expect(0, "assemble data a b c");
    user.expect(0, "save data");
    assert!(!text(&user).contains("link-"), "{}", text(&user));
    user.expect(0, "stop data");
    // One file may have called it both already.
    let missing = format!("missing = [\"{a}\"]\n{}", text(&user));
    std::fs::write(user.path("etc/data.toml"), missing).expect("room");
    let said = user.expect(0, "assemble data");
    assert!(said.contains("started with 3 of 3"), "{said}");
    user.expect(0, "stop data");
    // What is missing is still named.
    let members = format!("members = [\"{a}\", \"{b}\", \"{c}\"]\n");
    std::fs::write(user.path("etc/data.toml"), members).expect("room");
    user.expect(0, "assemble data --run a c");
    user.expect(0, "save data");
    assert!(text(&user).contains(&format!("missing = [\"{b}\"]")), "{}", text(&user));
    user.expect(0, "stop data");
}

#[test]
fn a_uuid_in_a_configuration_may_be_written_in_any_way_that_mdadm_reads() {
    let (user, _) = served();
    user.run("wait data");
    user.expect(0, "fail data b");
    user.expect(0, "save data");
    user.expect(0, "stop data");
    let uuid = text(&user).lines().find_map(|line| line.strip_prefix("uuid = ").map(str::to_owned));
    let uuid = uuid.expect("it has one");
    let same = uuid.replace(':', "-").to_uppercase();
    let before = text(&user).replace(&uuid, &same);
    std::fs::write(user.path("etc/data.toml"), before).expect("room");
    user.expect(0, "assemble data --run a c");
    user.expect(0, "set data max_read_errors=7 --save");
    user.expect(0, "save data");
    let name = user.path("b").display().to_string();
    assert!(text(&user).contains(&format!("missing = [\"{name}\"]")), "{}", text(&user));
    user.expect(0, "stop data");
}

#[test]
fn set_with_save_keeps_settings_that_this_process_was_not_told() {
    let (user, _) = served();
    user.expect(0, "set data max_read_errors=7 --save");
    user.expect(0, "stop data");
    user.expect(0, "assemble data a b c");
    user.expect(0, "set data stripe_cache_size=300 --save");
    let said = text(&user);
    assert!(said.contains("max_read_errors = \"7\""), "{said}");
    assert!(said.contains("stripe_cache_size = \"300\""), "{said}");
    user.expect(0, "stop data");
}

#[test]
fn set_with_save_changes_the_settings_of_a_configuration_and_nothing_else() {
    let (user, socket) = served();
    let before = text(&user);
    user.run("wait data");
    user.expect(0, &format!("unserve data nbd:unix:{socket}?ro"));
    user.expect(0, "fail data b");
    user.expect(0, "remove data b");
    user.expect(0, "set data max_read_errors=7 --save");
    let said = text(&user);
    assert!(said.contains("max_read_errors = \"7\""), "{said}");
    let rest = |text: &str| text.replace("max_read_errors = \"7\"\n", "");
    assert_eq!(rest(&said), rest(&before));
    // It is of another array.
    let other = "uuid = \"00000001:00000002:00000003:00000004\"\n";
    std::fs::write(user.path("etc/data.toml"), other).expect("room");
    let why = ["00000001:00000002:00000003:00000004", "mdspace save data"];
    user.refused("set data max_read_errors=8 --save", &why);
    assert_eq!(text(&user), other);
    assert_eq!(user.expect(0, "get data max_read_errors"), "8\n");
    user.expect(0, "stop data");
}

#[test]
fn a_configuration_that_says_nonsense_is_refused_and_nothing_runs() {
    let (user, _) = served();
    user.expect(0, "stop data");
    let path = user.path("etc/data.toml");
    let good = std::fs::read_to_string(&path).expect("a configuration");
    for (nonsense, why) in [
        ("members = 3", "members"),
        ("colour = \"red\"", "colour"),
        ("lanes = 0", "1 to 256"),
        ("uuid = \"no\"", "UUID"),
        ("serve = [\"pigeon\"]", "pigeon"),
        ("stripe_size = 5000", "stripe_size"),
    ] {
        let key = nonsense.split(' ').next().expect("a word");
        let others = good.lines().filter(|line| !line.starts_with(key));
        let text = format!("{nonsense}\n{}\n", others.collect::<Vec<_>>().join("\n"));
        std::fs::write(&path, text).expect("room");
        user.refused("assemble data", &["data.toml", why]);
    }
    assert!(user.processes().is_empty());
    user.refused("assemble data --config=nothing.toml", &["nothing.toml"]);
}

#[test]
fn a_restart_keeps_data_fronts_and_settings() {
    let user = User::with_members(&["a", "b"]);
    let socket = user.path("data.nbd");
    let serve = format!("--serve=nbd:unix:{}", socket.display());
    user.expect(0, &format!("create data --level=1 --raid-devices=2 --assume-clean {serve} a b"));
    user.expect(0, "set data max_read_errors=7");
    let before = pid(&user);
    {
        let mut client = Client::connect(&socket);
        client.write(4096, &[0x5a; 8192]).expect("a write");
        user.refused("restart data", &["connected"]);
        assert_eq!(pid(&user), before);
        assert!(!user.run_dir().join("data.restart.toml").exists(), "it runs on");
    }
    user.expect(0, "restart data");
    assert_ne!(pid(&user), before);
    assert_eq!(Client::connect(&socket).read(4096, 8192), Ok(vec![0x5a; 8192]));
    assert_eq!(user.expect(0, "get data max_read_errors"), "7\n");
    let _client = Client::connect(&socket);
    user.expect(0, "restart data --force");
    assert_eq!(user.expect(0, "get data max_read_errors"), "7\n");
    user.expect(0, "stop data");
    let left = std::fs::read_dir(user.run_dir()).expect("a folder").flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("restart")), "{left:?}");
    user.refused_with(4, "restart data", &["no array runs"]);
}

/// Its members are open to be written to; those that are not stay so.
#[test]
fn an_array_that_was_told_to_take_no_writes_takes_them_again_after_a_restart_when_told_to() {
    let user = User::with_members(&["a", "b"]);
    let socket = user.path("data.nbd");
    let serve = format!("--serve=nbd:unix:{}", socket.display());
    user.expect(0, &format!("create data --level=1 --raid-devices=2 --assume-clean {serve} a b"));
    let takes_writes_when_told_to = || {
        assert_eq!(user.expect(0, "get data array_state"), "readonly\n");
        user.expect(0, "readwrite data");
        assert_eq!(Client::connect(&socket).write(4096, &[0x5a; 8192]), Ok(()));
    };
    user.expect(0, "readonly data");
    user.expect(0, "restart data");
    takes_writes_when_told_to();
    user.expect(0, "readonly data");
    user.expect(0, "save data");
    user.expect(0, "stop data");
    user.expect(0, "assemble data");
    takes_writes_when_told_to();
    user.expect(0, "stop data");
    user.expect(0, "assemble data --readonly a b");
    user.expect(0, "restart data");
    assert_eq!(user.expect(0, "get data array_state"), "readonly\n");
    user.refused("readwrite data", &["open for reading alone"]);
    user.expect(0, "stop data");
}

/// The smallest speed is 1 000 KiB/s before one is set, and the largest is not below it.
#[test]
fn settings_that_bound_each_other_come_back_whatever_their_names() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    user.expect(0, "set data sync_speed_min=100");
    user.expect(0, "set data sync_speed_max=200");
    user.expect(0, "restart data");
    assert_eq!(user.expect(0, "get data sync_speed_max"), "200\n");
    assert_eq!(user.expect(0, "get data sync_speed_min"), "100\n");
}

#[test]
fn a_setting_that_cannot_be_set_shows_in_the_exit_code() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean --save a b");
    user.expect(0, "stop data");
    let file = user.path("etc/data.toml");
    let text = std::fs::read_to_string(&file).expect("a configuration");
    let said = "[settings]\nsync_speed_max = \"fast\"\nmax_read_errors = \"7\"\n";
    std::fs::write(&file, text.replace("[settings]\n", said)).expect("a configuration");
    user.refused("assemble data", &["data is served", "sync_speed_max", "fast"]);
    assert_eq!(user.expect(0, "get data max_read_errors"), "7\n");
}

#[test]
fn one_broken_configuration_keeps_no_other_array_from_its_scan() {
    let user = User::with_members(&["a", "b", "c", "d"]);
    user.expect(0, "create one --level=1 --raid-devices=2 --assume-clean --save a b");
    user.expect(0, "create two --level=1 --raid-devices=2 --assume-clean --save c d");
    user.expect(0, "stop one");
    user.expect(0, "stop two");
    std::fs::write(user.path("etc/one.toml"), "members = [").expect("a configuration");
    let said = user.run("assemble --scan --device=a --device=b --device=c --device=d");
    assert_eq!(said.status, 1, "{said:?}");
    assert!(said.out.contains("two: started") && !said.out.contains("one: started"), "{said:?}");
    assert!(said.err.contains("one.toml"), "{said:?}");
    user.expect(0, "stop two");
}

#[test]
fn a_scan_assembles_every_array_that_it_finds() {
    let user = User::with_members(&["a", "b", "c", "d", "x"]);
    user.refused("assemble --scan --device=a --device=x", &["no member"]);
    user.expect(0, "create one --level=1 --raid-devices=2 --assume-clean a b");
    user.expect(0, "create two --level=0 --raid-devices=2 c d");
    user.expect(0, "set one max_read_errors=5 --save");
    user.expect(0, "stop one");
    user.expect(0, "stop two");
    // The members of one stand in its configuration.
    let said = user.expect(0, "assemble --scan --device=d --device=c --device=x");
    assert!(said.contains("one: started with 2 of 2") && said.contains("two: started"), "{said}");
    assert_eq!(user.expect(0, "get one max_read_errors"), "5\n");
    let said = user.expect(0, "assemble --scan --device=c --device=d");
    assert_eq!(said.matches("runs already").count(), 2, "{said}");
    user.expect(0, "stop two");
    let said = user.run("assemble --scan --device=c");
    assert_eq!(said.status, 1, "{said:?}");
    assert!(said.err.contains("only 1 of 2 members"), "{said:?}");
    user.expect(2, "assemble --scan data");
    user.expect(2, "assemble");
    user.expect(0, "stop one");
}

/// What it finds may be a path of a member that has several.
#[test]
fn a_scan_starts_an_array_over_paths_that_it_finds_itself() {
    let user = User::with_members(&["a", "b"]);
    let a = user.path("a");
    let table =
        |path: &str| format!("table = \"0 16384 multipath 0 0 1 1 round-robin 0 1 0 {path}\"\n");
    std::fs::write(user.path("m.toml"), table(&a.display().to_string())).expect("room");
    let words = "--level=1 --raid-devices=2 --assume-clean --save multipath:m.toml b";
    user.expect(0, &format!("create one {words}"));
    user.expect(0, "stop one");
    let said = user.expect(0, "assemble --scan --device=a --device=b");
    assert!(said.contains("one: started with 2 of 2"), "{said}");
    user.expect(0, "stop one");
    // By another name, and with a file that does not tell: it is known by what it is.
    std::fs::hard_link(&a, user.path("same")).expect("a link");
    let said = user.expect(0, "assemble --scan --device=same");
    assert!(said.contains("one: started with 2 of 2"), "{said}");
    user.expect(0, "stop one");
}

#[test]
fn a_scan_names_what_it_cannot_read() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create one --level=1 --raid-devices=2 --assume-clean a b");
    user.expect(0, "stop one");
    // It is a file, and has no end that could be sought.
    let said = user.run("assemble --scan --device=/proc/self/mem --device=a --device=b");
    assert!(said.status == 0 && said.out.contains("2 of 2"), "{said:?}");
    assert!(said.err.contains("/proc/self/mem cannot be read"), "{said:?}");
    user.expect(0, "stop one");
}

/// Its members tell which array it is of.
#[test]
fn a_scan_obeys_a_configuration_that_names_no_uuid() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create one --level=1 --raid-devices=2 --assume-clean --save a b");
    user.expect(0, "stop one");
    let (a, b) = (user.path("a"), user.path("b"));
    let said = format!("members = [{a:?}, {b:?}]\nreadonly = true\n");
    std::fs::write(user.path("etc/one.toml"), said).expect("room");
    user.expect(0, "assemble --scan --device=a");
    assert_eq!(user.expect(0, "get one array_state"), "readonly\n");
    let said = user.expect(0, "assemble --scan --device=a");
    assert!(said.contains("one: runs already"), "{said}");
    user.expect(0, "stop one");
}

/// Without it the array would be served for writing, or where it must not be.
#[test]
fn a_scan_starts_no_array_whose_configuration_it_cannot_use() {
    let user = User::with_members(&["a", "b", "c", "d"]);
    user.expect(0, "create one --level=1 --raid-devices=2 --assume-clean --save a b");
    user.expect(0, "create two --level=1 --raid-devices=2 --assume-clean c d");
    user.expect(0, "stop one");
    user.expect(0, "stop two");
    let saved = std::fs::read_to_string(user.path("etc/one.toml")).expect("it was saved");
    let (a, c) = (user.path("a"), user.path("c"));
    let members = saved.lines().find(|line| line.starts_with("members")).expect("its members");
    let bad = saved.replace(members, "members = [\"ram:5\"]\nreadonly = true");
    let of_two = format!("members = [{a:?}, {c:?}]\nreadonly = true\n");
    let devices = "--device=a --device=b --device=c --device=d";
    for (bad, starts_two) in [(bad, true), (of_two, false)] {
        std::fs::write(user.path("etc/one.toml"), bad).expect("room");
        let said = user.run(&format!("assemble --scan {devices}"));
        assert_eq!(said.status, 1, "{said:?}");
        assert!(!said.out.contains("one: started"), "{said:?}");
        assert_eq!(said.out.contains("two: started"), starts_two, "{said:?}");
        if starts_two {
            user.expect(0, "stop two");
        }
    }
}

/// Its name, a UUID or a member in its text: whatever leads to it keeps an array from being served otherwise.
#[test]
fn a_scan_starts_no_array_that_an_unusable_configuration_may_be_about() {
    let user = User::with_members(&["a", "b", "c", "d"]);
    user.expect(0, "create one --name=data --level=1 --raid-devices=2 --assume-clean --save a b");
    user.expect(0, "create two --level=1 --raid-devices=2 --assume-clean c d");
    user.expect(0, "stop one");
    user.expect(0, "stop two");
    let file = user.path("etc/one.toml");
    let saved = std::fs::read_to_string(&file).expect("it was saved");
    let uuid = saved.lines().find(|line| line.starts_with("uuid")).expect("its UUID");
    let (a, nowhere) = (user.path("a"), "members = [\"/nowhere/a\", \"/nowhere/b\"]");
    for (name, bad) in [
        ("one", format!("nonsense = 1\n{uuid}\n{nowhere}\n")),
        ("one", format!("nonsense = 1\nmembers = [{a:?}]\n")),
        ("one", format!("members = [{a:?}\n")),
        ("data", format!("nonsense = 1\n{nowhere}\n")),
        ("data", format!("{nowhere}\nreadonly = true\n")),
        ("data", "serve = []\nreadonly = true\n".to_owned()),
    ] {
        std::fs::remove_file(&file).expect("it was there");
        let file = user.path(&format!("etc/{name}.toml"));
        std::fs::write(&file, &bad).expect("room");
        let said = user.run("assemble --scan --device=a --device=b --device=c --device=d");
        assert_eq!(said.status, 1, "{bad}: {said:?}");
        assert!(!said.out.contains("data: started"), "{bad}: {said:?}");
        assert!(said.out.contains("two: started"), "{bad}: {said:?}");
        assert!(said.err.contains(&format!("{name}.toml")), "{bad}: {said:?}");
        user.expect(0, "stop two");
        std::fs::rename(&file, user.path("etc/one.toml")).expect("room");
    }
    // The control: one that is not about it keeps nothing back.
    std::fs::write(&file, "nonsense = 1\nmembers = [\"/nowhere/a\"]\n").expect("room");
    let said = user.run("assemble --scan --device=a --device=b");
    assert!(said.out.contains("data: started") && said.status == 1, "{said:?}");
    user.expect(0, "stop data");
}

/// They may be of an older array of this name.
#[test]
fn members_that_systemds_unit_takes_in_place_of_those_that_are_saved_are_told() {
    let user = User::with_members(&["a", "b"]);
    let saved = user.expect(0, "create one --level=1 --raid-devices=2 --assume-clean --save a b");
    assert!(!saved.contains("MEMBERS"), "{saved}");
    let file = user.path("etc/one.env");
    std::fs::write(&file, "OPTIONS=--run\nMEMBERS=/dev/sdb /dev/sdc\n").expect("room");
    let said = user.expect(0, "save one");
    assert!(said.contains("one.env sets MEMBERS"), "{said}");
    std::fs::write(&file, "# MEMBERS=/dev/sdb\nMEMBERS=\"\"\nOPTIONS=--run\n").expect("room");
    let said = user.expect(0, "save one");
    assert!(!said.contains("MEMBERS"), "{said}");
    user.expect(0, "stop one");
}

/// A snapshot of a disk, or a copy that somebody made of it, says the same of itself.
#[test]
fn a_scan_leaves_out_a_copy_of_a_member_that_its_configuration_knows() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create one --level=1 --raid-devices=2 --assume-clean --save a b");
    user.expect(0, "stop one");
    std::fs::copy(user.path("a"), user.path("copy")).expect("room");
    let said = user.run("assemble --scan --device=copy");
    assert!(said.status == 0 && said.out.contains("started with 2 of 2 members"), "{said:?}");
    assert!(said.err.contains("copy says that it is"), "{said:?}");
    user.expect(0, "stop one");
    // Where nothing says which is which, neither is taken.
    std::fs::remove_file(user.path("etc/one.toml")).expect("it was there");
    let said = user.run("assemble --scan --device=copy --device=a --device=b");
    assert!(said.status == 1 && said.err.contains("leave one of them out"), "{said:?}");
}

#[test]
fn a_scan_takes_what_it_finds_beside_the_members_of_a_configuration() {
    let user = User::with_members(&["a", "b", "c"]);
    user.expect(0, "create one --level=1 --raid-devices=2 --assume-clean --save a b");
    user.expect(0, "add one c");
    user.expect(0, "stop one");
    let said = user.expect(0, "assemble --scan --device=c");
    assert!(said.contains("started with 2 of 2 members, and 1 spare"), "{said}");
    user.expect(0, "stop one");
}

#[test]
fn a_scan_says_which_array_of_a_configuration_it_could_not_start() {
    let user = User::with_members(&["a", "b", "c", "d"]);
    user.expect(0, "create one --level=1 --raid-devices=2 --assume-clean --save a b");
    user.expect(0, "create two --level=1 --raid-devices=2 --assume-clean --save c d");
    user.expect(0, "stop one");
    user.expect(0, "stop two");
    for member in ["a", "b"] {
        std::fs::remove_file(user.path(member)).expect("it was there");
    }
    let said = user.run("assemble --scan --device=c");
    assert_eq!(said.status, 1, "{said:?}");
    assert!(said.out.contains("two: started"), "{said:?}");
    assert!(said.err.contains("one") && said.err.contains("none of its members"), "{said:?}");
    user.expect(0, "stop two");
}

#[test]
fn a_scan_does_not_take_another_array_of_the_same_name_for_one_that_runs() {
    let user = User::with_members(&["a", "b", "c", "d"]);
    user.expect(0, "create one --name=data --level=1 --raid-devices=2 --assume-clean a b");
    user.expect(0, "create two --name=data --level=1 --raid-devices=2 --assume-clean c d");
    user.expect(0, "stop one");
    user.expect(0, "stop two");
    let scan = "assemble --scan --device=a --device=b --device=c --device=d";
    for _ in 0..2 {
        let said = user.run(scan);
        assert_eq!(said.status, 1, "{said:?}");
        assert!(said.err.contains("another array runs as data"), "{said:?}");
    }
    // One that runs under another name runs.
    user.expect(0, "stop data");
    user.expect(0, "assemble other a b");
    let said = user.expect(0, scan);
    assert!(said.contains("other: runs already") && said.contains("data: started"), "{said}");
    user.expect(0, "stop data");
    user.expect(0, "stop other");
}

#[test]
fn a_folder_that_others_may_write_to_serves_nothing() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let (user, _) = served();
    user.expect(0, "stop data");
    let (folder, moved) = (user.path("etc"), user.path("moved"));
    let open = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&folder, mode).expect("a mode");
    };
    open(0o777);
    let why = ["folder of configurations", "other users may write to it", "MDSPACE_CONFIG_DIR"];
    user.refused("assemble data", &why);
    user.refused("assemble --scan", &why);
    open(0o700);
    std::fs::rename(&folder, &moved).expect("moved");
    symlink(&moved, &folder).expect("a link");
    user.refused("assemble data", &["folder of configurations", "it is a link"]);
    user.expect(0, "assemble data a b c");
    user.refused("save data", &["folder of configurations", "it is a link"]);
    user.expect(0, "stop data");
    std::fs::remove_file(&folder).expect("a link");
    std::fs::rename(&moved, &folder).expect("moved");
    // Who may write to its parent may put another one in its place.
    let parent = user.path(".");
    let open_parent = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&parent, mode).expect("a mode");
    };
    open_parent(0o777);
    user.refused("assemble data", &["folder of configurations", "on its way, may be written to"]);
    user.refused("mdstat", &["run directory", "on its way, may be written to"]);
    open_parent(0o700);
    user.expect(0, "assemble data");
    user.expect(0, "stop data");
}

#[test]
fn a_log_follows_no_link_that_lies_in_the_place_of_its_folder() {
    let user = User::with_members(&["a", "b"]);
    let (other, state) = (user.path("other"), user.path("state"));
    std::fs::create_dir(&other).expect("a folder");
    std::os::unix::fs::symlink(&other, &state).expect("a link");
    let mut create = user.command("create data --level=1 --raid-devices=2 --assume-clean a b");
    let done = create.env("MDSPACE_STATE_DIR", &state).output().expect("it runs");
    assert!(done.status.success(), "{done:?}");
    assert_eq!(std::fs::read_dir(&other).expect("a folder").count(), 0, "a file follows the link");
    assert!(user.run_dir().join("data.log").exists(), "there is no log");
    user.expect(0, "stop data");
}

#[test]
fn a_restart_that_cannot_write_down_what_runs_says_where_and_stops_nothing() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    std::fs::create_dir(user.run_dir().join("data.restart.toml")).expect("its place is taken");
    user.refused("restart data", &["see to it that", "data.restart.toml"]);
    user.expect(0, "stop data");
}

#[test]
fn a_restart_asks_as_assemble_does_before_it_goes_on_with_fewer_members() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    std::fs::rename(user.path("b"), user.path("elsewhere")).expect("it was there");
    user.refused("restart data", &["--run", "--config="]);
    assert!(user.processes().is_empty());
    user.expect(0, "assemble data --run a");
    user.expect(0, "restart data");
    assert_eq!(user.expect(0, "get data degraded").trim(), "1");
    user.expect(0, "stop data");
}

/// They would share the file that says how the array was.
#[test]
fn of_restarts_at_once_one_is_done_and_the_others_say_so() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    user.expect(0, "set data max_read_errors=7");
    for _ in 0..3 {
        let restarts: Vec<_> = std::thread::scope(|scope| {
            let begun: Vec<_> = (0..3).map(|_| scope.spawn(|| user.run("restart data"))).collect();
            begun.into_iter().map(|restart| restart.join().expect("it ends")).collect()
        });
        assert!(restarts.iter().any(|restart| restart.status == 0), "{restarts:#?}");
        let others = restarts.iter().filter(|restart| restart.status != 0);
        for other in others {
            assert!(other.err.contains("restarts it already"), "{other:#?}");
        }
        assert_eq!(user.expect(0, "get data max_read_errors"), "7\n");
    }
    user.expect(0, "stop data");
}

/// Starts a restart of the array, and halts it once it has written down how the array is.
fn start_and_halt(user: &User, restart: &mut Command) -> Child {
    let file = user.run_dir().join("data.restart.toml");
    let mut restart = restart.stdout(Stdio::null()).spawn().expect("mdspace starts");
    while !file.exists() {
        assert!(restart.try_wait().expect("it is ours").is_none(), "it writes its file first");
        std::thread::yield_now();
    }
    user.signal(Signal::STOP, restart.id());
    restart
}

/// It is done between the moment when the restart wrote down how the array is and the stop.
#[test]
fn what_is_ordered_while_an_array_restarts_and_is_done_counts_afterwards() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    for value in 1..=100 {
        let before = pid(&user);
        let mut restart = start_and_halt(&user, &mut user.command("restart data"));
        let is_set = user.run(&format!("set data max_read_errors={value}")).status == 0;
        let is_in_time = is_set && pid(&user) == before;
        user.signal(Signal::CONT, restart.id());
        assert!(restart.wait().expect("it is ours").success());
        if is_in_time {
            let now = user.expect(0, "get data max_read_errors");
            assert_eq!(now, format!("{value}\n"));
            user.expect(0, "stop data");
            return;
        }
    }
    panic!("each restart was quicker");
}

/// An update replaces it, and `restart` is how the array gets the new one.
#[test]
fn a_restart_whose_program_is_replaced_meanwhile_starts_the_array_again() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    let program = user.path("mdspace");
    for _ in 0..100 {
        std::fs::copy(env!("CARGO_BIN_EXE_mdspace"), &program).expect("room");
        let before = pid(&user);
        let mut restart = user.command_of_program(&program, "restart data");
        let mut restart = start_and_halt(&user, &mut restart);
        let is_in_time = user.run("get data level").status == 0 && pid(&user) == before;
        std::fs::remove_file(&program).expect("it was there");
        user.signal(Signal::CONT, restart.id());
        assert!(restart.wait().expect("it is ours").success());
        assert_ne!(pid(&user), before);
        if is_in_time {
            user.expect(0, "stop data");
            return;
        }
    }
    panic!("each restart was quicker");
}

/// A folder in memory, which is soon full; gone with the value.
struct SmallFolder(PathBuf);

impl SmallFolder {
    /// None where this user may mount nothing.
    fn at(path: PathBuf) -> Option<Self> {
        std::fs::create_dir(&path).expect("a new folder");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=256k,mode=700", "none"]).arg(&path);
        mount.stderr(Stdio::null()).status().ok().filter(|status| status.success())?;
        Some(Self(path))
    }

    fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::create(self.0.join("filling")).expect("a file");
        while file.write_all(&[1; 4096]).is_ok() {}
    }
}

impl Drop for SmallFolder {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// It was stopped when that was found out.
#[test]
fn a_restart_that_cannot_write_down_the_last_orders_starts_the_array_and_says_so() {
    let user = User::with_members(&["a", "b"]);
    let Some(folder) = SmallFolder::at(user.run_dir()) else {
        return eprintln!("SKIPPED: nothing can be mounted here");
    };
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    user.expect(0, "set data max_read_errors=7");
    for value in 101..=200 {
        let before = pid(&user);
        let mut restart = user.command("restart data");
        let restart = start_and_halt(&user, restart.stderr(Stdio::piped()));
        let is_set = user.run(&format!("set data max_read_errors={value}")).status == 0;
        let is_in_time = is_set && pid(&user) == before;
        if is_in_time {
            folder.fill();
        }
        user.signal(Signal::CONT, restart.id());
        let ended = restart.wait_with_output().expect("it is ours");
        assert_ne!(pid(&user), before);
        if is_in_time {
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(!ended.status.success() && said.contains("before its last orders"), "{said}");
            assert_eq!(user.expect(0, "get data max_read_errors"), "7\n");
            user.expect(0, "stop data");
            return;
        }
        user.expect(0, "set data max_read_errors=7");
    }
    panic!("each restart was quicker");
}

/// Else it would take a write in the moment after its start.
#[test]
fn a_saved_array_is_read_only_before_anyone_can_connect() {
    let user = User::with_members(&["a", "b"]);
    let socket = user.path("data.sock");
    let serve = format!("--serve=nbd:unix:{}", socket.display());
    user.expect(0, &format!("create data --level=1 --raid-devices=2 --assume-clean {serve} a b"));
    user.expect(0, "set data max_read_errors=7");
    user.expect(0, "save data");
    user.expect(0, "stop data");
    let config = user.path("etc/data.toml");
    let text = std::fs::read_to_string(&config).expect("a configuration");
    let set = "[settings]\n";
    assert!(text.contains(set), "{text}");
    let read_only = format!("{set}array_state = \"readonly\"\n");
    std::fs::write(&config, text.replace(set, &read_only)).expect("room");
    for _ in 0..20 {
        let told = std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                while std::os::unix::net::UnixStream::connect(&socket).is_err() {
                    std::thread::yield_now();
                }
                Client::is_told_read_only(&socket)
            });
            user.expect(0, "assemble data");
            first.join().expect("it was served")
        });
        assert!(told, "who came first could write");
        user.expect(0, "stop data");
    }
}

#[test]
fn of_two_settings_that_are_saved_at_once_none_is_lost() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean --save a b");
    for value in 1..=30 {
        let set = |key: &str| user.expect(0, &format!("set data {key}={value} --save"));
        std::thread::scope(|scope| {
            scope.spawn(|| set("max_read_errors"));
            scope.spawn(|| set("sync_io_depth"));
            scope.spawn(|| user.expect(0, "save data"));
        });
        let text = std::fs::read_to_string(user.path("etc/data.toml")).expect("a configuration");
        for key in ["max_read_errors", "sync_io_depth"] {
            assert!(text.contains(&format!("{key} = \"{value}\"")), "{text}");
        }
    }
    user.expect(0, "stop data");
}

/// Where udev looks whether the members of an array are the kernel's.
fn entry_of(user: &User, folder: &Path) -> PathBuf {
    let uuid = user.detail("data")["array"]["uuid"].as_str().expect("a UUID").to_owned();
    let digits: String = uuid.chars().filter(char::is_ascii_hexdigit).collect();
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    folder.join("by-uuid").join(parts.join("-"))
}

/// udev asks for it when the array lets go of a device, whenever and under whatever name that came.
#[test]
fn every_array_leaves_word_that_its_members_are_not_the_kernels() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    let entry = entry_of(&user, &user.run_dir());
    assert!(entry.exists(), "{}", entry.display());
    user.expect(0, "stop data");
    assert!(entry.exists(), "udev looks when the array has stopped");
}

#[test]
fn members_of_a_saved_array_are_the_kernels_again_when_it_is_released() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean --save a b");
    let (now, boot) = (entry_of(&user, &user.run_dir()), entry_of(&user, &user.path("etc")));
    assert!(now.exists() && boot.exists(), "{}", boot.display());
    user.refused("release data", &["data runs", "mdspace stop data"]);
    assert!(now.exists() && boot.exists(), "it was refused");
    user.expect(0, "stop data");
    let said = user.expect(0, "release data");
    assert!(
        said.contains("the kernel's md's again") && said.contains("data.toml.released"),
        "{said}"
    );
    assert!(!now.exists() && !boot.exists());
    user.refused("release data", &["no configuration"]);
    user.refused("assemble data", &["no member of an array of that name"]);
    // What was put aside is read where it is named.
    let kept = user.path("etc/data.toml.released");
    user.expect(0, &format!("assemble data --config={}", kept.display()));
    assert!(now.exists() && !boot.exists(), "it may be given back at the next boot");
    user.expect(0, "save data");
    assert!(boot.exists());
    user.expect(0, "stop data");
}

#[test]
fn members_that_run_under_another_name_are_not_released() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean --save a b");
    let boot = entry_of(&user, &user.path("etc"));
    user.expect(0, "stop data");
    user.expect(0, "assemble other a b");
    user.refused("release data", &["run as other", "mdspace stop other"]);
    assert!(boot.exists());
    user.expect(0, "stop other");
    user.expect(0, "release data");
    assert!(!boot.exists());
}

#[test]
fn an_array_that_is_made_anew_takes_the_place_of_the_old_one_at_boot() {
    let user = User::with_members(&["a", "b"]);
    let create = "create data --level=1 --raid-devices=2 --assume-clean --save --run a b";
    user.expect(0, create);
    let old = entry_of(&user, &user.path("etc"));
    user.expect(0, "stop data");
    user.expect(0, create);
    let new = entry_of(&user, &user.path("etc"));
    assert!(new.exists() && !old.exists(), "{} {}", old.display(), new.display());
    user.expect(0, "stop data");
}

/// A person may have written it, or an older version that kept nothing.
#[test]
fn an_array_that_starts_by_a_configuration_is_kept_from_the_kernel_at_the_next_boot() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    let entry = entry_of(&user, &user.path("etc"));
    user.expect(0, "stop data");
    assert!(!entry.exists(), "it is not saved");
    let members = ["a", "b"].map(|name| user.path(name));
    std::fs::create_dir_all(user.path("etc")).expect("room");
    std::fs::write(user.path("etc/data.toml"), format!("members = {members:?}\n")).expect("room");
    user.expect(0, "assemble data");
    assert!(entry.exists(), "{}", entry.display());
    user.expect(0, "stop data");
}

#[test]
fn a_restart_changes_nothing_while_another_one_is_at_work_and_follows_one_that_was_killed() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    let before = pid(&user);
    let place = user.run_dir().join("data.restarting");
    std::fs::write(&place, "4711\n").expect("room");
    let other = std::fs::File::open(&place).expect("it is there");
    other.lock().expect("a lock");
    user.refused("restart data", &["process 4711 restarts it already", "wait"]);
    assert_eq!(pid(&user), before);
    assert!(!user.run_dir().join("data.restart.toml").exists(), "it wrote nothing");
    // Killed, it leaves its file.
    drop(other);
    user.expect(0, "restart data");
    assert_ne!(pid(&user), before);
    assert!(!place.exists(), "it is over");
    user.expect(0, "stop data");
}

#[test]
fn a_configuration_of_an_array_that_was_made_anew_says_whose_members_it_found() {
    let (user, _) = served();
    let old = user.detail("data")["array"]["uuid"].as_str().expect("a UUID").to_owned();
    user.expect(0, "stop data");
    let said = user.expect(0, "create data --level=5 --raid-devices=3 --assume-clean --run a b c");
    assert!(said.contains("etc/data.toml is of an older array") && said.contains("save"), "{said}");
    let new = user.detail("data")["array"]["uuid"].as_str().expect("a UUID").to_owned();
    user.expect(0, "stop data");
    user.refused("assemble data", &[&old, &new, "made anew", "--save"]);
    user.expect(0, "assemble data a b c --save");
    user.expect(0, "stop data");
    user.expect(0, "assemble data");
    user.expect(0, "stop data");
}

/// The mirror of `a` and `b` stops. Then each runs without the other.
fn let_halves_run_apart(user: &User) {
    user.expect(0, "stop data");
    for half in ["a", "b"] {
        user.expect(0, &format!("assemble data --run {half}"));
        user.expect(0, "stop data");
    }
}

/// Each half has run without the other: superblocks do not tell which one counts.
#[test]
fn what_was_decided_about_halves_that_ran_apart_holds_over_restarts_and_boots() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean --save a b");
    let_halves_run_apart(&user);
    user.refused("assemble data", &["each ran without the other"]);
    user.expect(0, "assemble data --prefer=a");
    user.expect(0, "restart data");
    user.expect(0, "stop data");
    // As at a boot: the configuration still names both.
    user.expect(0, "assemble data");
    assert_eq!(user.expect(0, "get data degraded"), "1\n");
    user.expect(0, "stop data");
    user.refused("assemble data --run b", &["decided against", "--prefer=MEMBER"]);
    // It goes on alone once more: now the other one is older news than that.
    user.expect(0, "assemble data --prefer=b b");
    user.expect(0, "stop data");
    user.refused("assemble data", &["each ran without the other"]);
    user.expect(0, "assemble data --prefer=b");
    user.expect(0, "add data --run a");
    user.expect(0, "wait data");
    user.expect(0, "stop data");
    user.expect(0, "assemble data");
    assert_eq!(user.expect(0, "get data degraded"), "0\n");
    user.expect(0, "stop data");
}

/// All that went on with the decision are gone.
#[test]
fn an_array_starts_with_a_member_that_came_later_beside_a_half_that_was_decided_against() {
    let user = User::with_members(&["a", "b", "c"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean a b");
    let_halves_run_apart(&user);
    user.expect(0, "assemble data --prefer=a a b");
    user.expect(0, "add data c");
    user.expect(0, "wait data");
    user.expect(0, "fail data a");
    user.expect(0, "remove data a");
    for _ in 0..2 {
        user.expect(0, "stop data");
        user.expect(0, "assemble data --run b c");
        assert_eq!(user.expect(0, "get data degraded"), "1\n");
    }
    user.expect(0, "stop data");
}

#[test]
fn a_state_that_is_set_and_saved_is_there_at_the_next_start() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create data --level=1 --raid-devices=2 --assume-clean --save a b");
    for (state, is) in [("readonly", "readonly\n"), ("active", "clean\n")] {
        user.expect(0, &format!("set data array_state={state} --save"));
        user.expect(0, "stop data");
        user.expect(0, "assemble data");
        assert_eq!(user.expect(0, "get data array_state"), is);
    }
    user.expect(0, "stop data");
}

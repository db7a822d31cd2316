//! Mirrors of unequal members: what users say about them and are told.

use crate::user::User;

#[test]
fn a_read_policy_is_set_while_the_array_runs_and_refused_with_the_words() {
    let user = User::with_members(&["a", "b"]);
    user.expect(0, "create m --level=1 --raid-devices=2 --run a b");
    assert_eq!(user.expect(0, "get m read_policy").trim(), "expected");
    for policy in ["first", "nearest", "md", "expected"] {
        user.expect(0, &format!("set m read_policy={policy}"));
        assert_eq!(user.expect(0, "get m read_policy").trim(), policy);
    }
    user.refused_with(2, "set m read_policy=fastest", &["first, nearest, md, expected", "fastest"]);
    user.refused_with(2, "set m rmw_level=1", &["no key"]);
    let load = &user.detail("m")["array"]["members"][0]["load"];
    assert!(load["reads"].is_u64() && load["service_us"].is_u64(), "{load}");
    assert_eq!(load["limping"], false);
    assert!(user.expect(0, "detail m").contains("Load of 0"));
    user.expect(0, "stop m");
}

#[test]
fn write_behind_and_failfast_are_written_as_md_has_them() {
    let user = User::with_members(&["a", "b"]);
    let create = "create m --level=1 --raid-devices=2 --run";
    user.expect(0, &format!("{create} --write-behind --write-mostly=b --failfast=a a b"));
    assert_eq!(user.expect(0, "get m bitmap/backlog").trim(), "256");
    let detail = user.expect(0, "detail m");
    assert!(detail.contains("Write Behind : at most 256 writes, 0 under way"), "{detail}");
    assert!(detail.contains("active sync writemostly"), "{detail}");
    assert!(detail.contains("active sync failfast"), "{detail}");
    user.expect(0, "stop m");
    let examined = user.expect(0, "examine b");
    assert!(examined.contains("write-mostly"), "{examined}");
    user.expect(0, "assemble m a b");
    assert_eq!(user.expect(0, "get m bitmap/backlog").trim(), "256", "it stands in the bitmap");
    user.expect(0, "stop m");
}

#[test]
fn write_behind_needs_a_mirror_a_bitmap_and_a_write_mostly_member() {
    let user = User::with_members(&["a", "b"]);
    for (words, lacks) in [
        ("--level=10 --write-mostly=b", "RAID1"),
        ("--level=1 --bitmap=none --write-mostly=b", "a bitmap"),
        ("--level=1", "a write-mostly member"),
    ] {
        let create = format!("create m --raid-devices=2 --run --write-behind=8 {words} a b");
        user.refused_with(2, &create, &["write-behind needs", lacks]);
    }
    assert_eq!(user.run("create m --level=1 -n 2 --write-behind=16384 a b").status, 2);
    assert!(user.bytes("a").iter().all(|byte| *byte == 0), "nothing was written");
}

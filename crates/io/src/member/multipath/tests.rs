use mdspace_engine::paths::Policy;

use super::*;

struct NoHost;

impl Host for NoHost {
    fn reopen(&self, _: &Arc<Paths>, _: usize) {}

    fn fence(&self, _: &Arc<Paths>, _: usize, _: FenceId) -> bool {
        false
    }
}

/// A device of one path, whose first connection leads to memory.
fn device() -> (Arc<MemberTable>, Arc<Paths>, MemberId) {
    let members = MemberTable::new();
    let opened = members.open("ram:64K", OpenMode::RUN).expect("memory");
    let old = opened.0;
    let table = "0 128 multipath 0 0 1 1 round-robin 0 1 0 a".parse().expect("a table line");
    let paths =
        Paths::new("d", table, Policy::default(), vec![Ok(opened)], &[true], Box::new(NoHost));
    (members, paths.expect("a device"), old)
}

fn reopened(members: &Arc<MemberTable>, paths: &Paths, name: &str) -> OpenedPath {
    reopen(members, paths, name, (OpenMode::RUN, Alone { has_company: false }))
}

/// Lanes ask what they owe a path's connection, and of one that is closed nothing is known.
#[test]
fn the_old_connection_of_a_path_is_open_until_the_paths_know_of_the_new_one() {
    let (members, paths, old) = device();
    let (new, _) = reopened(&members, &paths, "ram:64K").expect("it opens");
    assert!(members.info(old).is_some() && members.info(new).is_some());
    assert_eq!(paths.members(), [old]);
}

#[test]
fn a_new_connection_that_can_do_less_than_the_device_is_not_used() {
    let (members, paths, _) = device();
    let refused =
        reopened(&members, &paths, "null:hdd?size=1M").map(|_| ()).expect_err("no zeroes");
    assert!(refused.contains("zeroes"), "{refused}");
    assert!(members.are_let_go(), "it is closed again");
}

use std::os::unix::fs::PermissionsExt;

use super::*;

fn run_dir() -> (tempfile::TempDir, RunDir) {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let run_dir = RunDir::open_at(temp.path().join("run")).expect("a new directory");
    (temp, run_dir)
}

fn name(text: &str) -> ArrayName {
    text.parse().expect("a good name")
}

fn running(run_dir: &RunDir) -> Vec<ArrayName> {
    run_dir.running().expect("a list").into_iter().map(|running| running.name).collect()
}

#[test]
fn an_array_runs_exactly_while_its_lock_is_held() {
    let (_temp, run_dir) = run_dir();
    let lock = run_dir.try_lock(&name("b")).expect("a lock file");
    assert!(lock.is_some());
    assert!(run_dir.try_lock(&name("b")).expect("a lock file").is_none());
    let _other = run_dir.try_lock(&name("a")).expect("a lock file");
    assert_eq!(running(&run_dir), [name("a"), name("b")]);
    drop(lock);
    assert_eq!(running(&run_dir), [name("a")]);
    let gone = |text: &str| run_dir.wait_until_gone(&name(text), Duration::ZERO);
    assert!(gone("b").expect("a lock file") && !gone("a").expect("a lock file"));
}

/// As where one command stops an array that another one starts again at once.
#[test]
fn a_process_that_has_ended_is_gone_though_another_one_has_its_name() {
    let (_temp, run_dir) = run_dir();
    let _lock = run_dir.try_lock(&name("a")).expect("a lock file").expect("a free name");
    let mut ended = std::process::Command::new("true").spawn().expect("a process");
    let number = i32::try_from(ended.id()).ok();
    let own = i32::try_from(std::process::id()).ok();
    assert!(ended.wait().expect("it ends").success());
    let gone = |process| run_dir.wait_until_process_gone(&name("a"), process, Duration::ZERO);
    assert!(gone(number).expect("a lock file"));
    assert!(!gone(own).expect("a lock file") && !gone(None).expect("a lock file"));
}

#[test]
fn a_directory_that_others_may_write_is_refused() {
    let (_temp, run_dir) = run_dir();
    let path = run_dir.path().to_owned();
    assert!(RunDir::open_at(path.clone()).is_ok());
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).expect("own directory");
    assert!(RunDir::open_at(path.clone()).is_err());
    let link = path.with_file_name("link");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    assert!(RunDir::open_at(link).is_err());
}

#[test]
fn a_path_too_long_for_a_socket_is_refused() {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let failure = RunDir::open_at(temp.path().join("x".repeat(100))).expect_err("too long");
    assert!(failure.why.contains("too long"), "{failure}");
}

#[test]
fn a_name_is_not_taken_twice_though_its_lock_file_is_deleted() {
    let (_temp, run_dir) = run_dir();
    let lock = run_dir.try_lock(&name("a")).expect("a lock file").expect("a free name");
    assert!(!lock.keep().expect("it is there"));
    std::fs::remove_file(run_dir.lock_path(&name("a"))).expect("it was there");
    assert!(run_dir.try_lock(&name("a")).expect("a lock file").is_none());
    assert!(!run_dir.is_running(&name("a")).expect("a lock file"), "nobody holds the new file");
    assert!(lock.keep().expect("it is made anew"));
    assert!(run_dir.is_running(&name("a")).expect("a lock file"));
    assert!(!lock.keep().expect("it is there"));
    drop(lock);
    assert!(run_dir.try_lock(&name("a")).expect("a lock file").is_some());
}

#[test]
fn a_run_directory_that_is_deleted_is_made_anew_and_safe() {
    let (_temp, run_dir) = run_dir();
    let lock = run_dir.try_lock(&name("a")).expect("a lock file").expect("a free name");
    std::fs::remove_dir_all(run_dir.path()).expect("it was there");
    assert!(lock.keep().expect("it is made anew"));
    assert_eq!(running(&run_dir), [name("a")]);
    std::fs::remove_dir_all(run_dir.path()).expect("it was there");
    std::os::unix::fs::symlink("/tmp", run_dir.path()).expect("a link in its place");
    assert!(lock.keep().is_err());
}

#[test]
fn who_waits_for_a_name_waits_also_with_a_lock_file_that_is_deleted() {
    let (_temp, run_dir) = run_dir();
    let lock = run_dir.try_lock(&name("a")).expect("a lock file").expect("a free name");
    let old = run_dir.open_lock(&name("a")).expect("a lock file");
    std::fs::remove_file(run_dir.lock_path(&name("a"))).expect("it was there");
    assert!(lock.keep().expect("it is made anew"));
    assert!(old.try_lock_shared().is_err());
    lock.unlock().expect("locks of its own");
    assert!(old.try_lock_shared().is_ok());
    assert!(run_dir.try_lock(&name("a")).expect("a lock file").is_some());
}

#[test]
fn a_place_that_is_not_this_users_keeps_no_name_from_them() {
    use std::os::linux::net::SocketAddrExt;
    let (_temp, run_dir) = run_dir();
    let place = name_lock::place_name(&run_dir, &name("a")).expect("a folder");
    let place = std::os::unix::net::SocketAddr::from_abstract_name(place).expect("a short name");
    // Nobody listens there: it does not say whose it is.
    let _planted = std::os::unix::net::UnixDatagram::bind_addr(&place).expect("a free place");
    let lock = run_dir.try_lock(&name("a")).expect("a lock file");
    assert!(lock.is_some());
    assert!(run_dir.try_lock(&name("a")).expect("a lock file").is_none(), "the file keeps it");
}

/// Where arrays of a user go, and where else they are looked for.
fn places(variables: &[(&str, &str)], folders: &[&str]) -> (String, Vec<String>) {
    let value = |name: &str| Some(variables.iter().find(|known| known.0 == name)?.1.into());
    let is_ours = |path: &Path| folders.iter().any(|folder| path == Path::new(folder));
    let places = Places::of(Uid::from_raw(7), value, is_ours);
    let text = |path: PathBuf| path.display().to_string();
    (text(places.first), places.others.into_iter().map(text).collect())
}

#[test]
fn new_arrays_go_to_one_place_whatever_the_environment() {
    let (of_login, of_cron) = (("XDG_RUNTIME_DIR", "/run/user/7"), ("HOME", "/home/seven"));
    let usual = ("/run/user/7/mdspace".to_owned(), vec!["/tmp/mdspace-7".to_owned()]);
    assert_eq!(places(&[of_login], &["/run/user/7"]), usual);
    assert_eq!(places(&[of_cron], &["/run/user/7"]), usual);
    assert_eq!(places(&[("XDG_RUNTIME_DIR", "")], &["/run/user/7"]), usual);
    let (first, others) = places(&[("XDG_RUNTIME_DIR", "/else")], &["/run/user/7"]);
    assert_eq!(first, "/run/user/7/mdspace");
    assert_eq!(others, ["/else/mdspace", "/tmp/mdspace-7"]);
    assert_eq!(places(&[], &[]), ("/tmp/mdspace-7".to_owned(), Vec::new()));
    let own = [("MDSPACE_RUN_DIR", "/own"), of_login];
    assert_eq!(places(&own, &["/run/user/7"]), ("/own".to_owned(), Vec::new()));
}

#[test]
fn an_array_that_is_restarted_stays_where_it_ran_and_the_others_are_found_as_before() {
    let [first, other, third] = ["/first", "/other", "/third"].map(PathBuf::from);
    let places =
        Places { first: first.clone(), others: vec![other.clone(), third.clone()], roots: None };
    let moved = places.clone().beginning_with(&other);
    assert_eq!(moved, Places { first: other, others: vec![first.clone(), third], roots: None });
    assert_eq!(places.clone().beginning_with(&first), places);
}

/// Two directories of one user, the first for new arrays.
fn two_run_dirs() -> (tempfile::TempDir, RunDir, RunDir) {
    let temp = tempfile::tempdir().expect("a temporary directory");
    let (first, other) = (temp.path().join("first"), temp.path().join("other"));
    let places = Places { first, others: vec![other.clone()], roots: None };
    let first = RunDir::open_among(places).expect("a new directory");
    (temp, first, RunDir::open_at(other).expect("a new directory"))
}

#[test]
fn an_array_is_found_in_whatever_directory_it_runs() {
    let (_temp, first, other) = two_run_dirs();
    let _a = first.try_lock(&name("a")).expect("a lock file").expect("a free name");
    let lock = other.try_lock(&name("b")).expect("a lock file").expect("a free name");
    let found = |text: &str| first.having(&name(text)).path().to_owned();
    assert_eq!(found("a"), first.path());
    assert_eq!(found("b"), other.path());
    assert_eq!(found("none"), first.path(), "where it would be started");
    assert_eq!(running(&first), [name("a"), name("b")]);
    assert!(first.try_lock(&name("b")).expect("a lock file").is_none(), "the name is in use");
    drop(lock);
    assert!(first.try_lock(&name("b")).expect("a lock file").is_some());
}

#[test]
fn a_directory_that_may_not_be_looked_into_is_named() {
    let (temp, first, other) = two_run_dirs();
    let _b = other.try_lock(&name("b")).expect("a lock file").expect("a free name");
    assert_eq!(first.unseen(), Vec::<String>::new());
    std::fs::set_permissions(other.path(), PermissionsExt::from_mode(0o777)).expect("our own");
    let of_others =
        format!("arrays in {} are not shown: other users may write to it", other.path().display());
    assert_eq!(first.unseen(), [of_others]);
    assert!(first.running().expect("a list").is_empty());
    // What is no directory may not be read as one, also by root.
    let roots = temp.path().join("roots");
    std::fs::write(&roots, []).expect("a file");
    let places = Places { first: first.path().to_owned(), others: vec![], roots: Some(roots) };
    let unseen = RunDir::open_among(places).expect("our own").unseen();
    assert!(
        unseen.len() == 1 && unseen[0].starts_with("arrays of root are not shown: "),
        "{unseen:?}"
    );
}

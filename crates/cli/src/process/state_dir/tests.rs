use super::*;

/// Places for records of a user with these variables, and where old ones are looked for.
fn places(user: u32, variables: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
    let value = |name: &str| Some(variables.iter().find(|known| known.0 == name)?.1.into());
    let places = StatePlaces::of(Uid::from_raw(user), value);
    let text = |place: PathBuf| place.display().to_string();
    let all = |places: Vec<PathBuf>| places.into_iter().map(text).collect();
    (all(places.records), all(places.old_records))
}

#[test]
fn records_go_to_no_directory_that_a_logout_or_a_boot_deletes() {
    let of_service = [("HOME", "/nonexistent"), ("XDG_RUNTIME_DIR", "/run/user/7")];
    let expected = ["/nonexistent/.local/state/mdspace", "/var/tmp/mdspace-7"];
    assert_eq!(places(7, &of_service).0, expected);
    let in_memory = [("MDSPACE_RUN_DIR", "/run/user/7/own"), ("HOME", "/home/seven")];
    let expected = ["/home/seven/.local/state/mdspace", "/var/tmp/mdspace-7"];
    assert_eq!(places(7, &in_memory).0, expected);
    assert_eq!(places(0, &[]).0, ["/var/lib/mdspace", "/var/tmp/mdspace-0"]);
}

#[test]
fn the_directory_that_the_user_has_chosen_is_the_first_for_records() {
    let chosen = [("MDSPACE_STATE_DIR", "/a"), ("MDSPACE_RUN_DIR", "/b"), ("XDG_STATE_HOME", "/c")];
    assert_eq!(places(7, &chosen).0, ["/a", "/c/mdspace", "/var/tmp/mdspace-7"]);
    assert_eq!(places(7, &chosen[1..]).0[0], "/b");
}

#[test]
fn records_are_looked_for_wherever_a_process_of_the_user_may_have_left_them() {
    let (_, old) = places(7, &[("XDG_RUNTIME_DIR", "/else"), ("HOME", "/home/seven")]);
    let usual = ["/run/user/7/mdspace", "/else/mdspace", "/tmp/mdspace-7", "/tmp/mdspace-state"];
    assert_eq!(old, usual);
    let (_, old) = places(7, &[("MDSPACE_RUN_DIR", "/own")]);
    assert!(old.contains(&"/own".to_owned()) && old.contains(&"/tmp/mdspace-7".to_owned()));
    assert!(places(0, &[]).1.contains(&"/run/mdspace".to_owned()));
}

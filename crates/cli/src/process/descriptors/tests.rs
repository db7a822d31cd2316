use super::*;

fn limit(current: Option<u64>, maximum: Option<u64>) -> Rlimit {
    Rlimit { current, maximum }
}

#[test]
fn every_lane_has_a_connection_to_every_member_behind_a_network() {
    let near = Needs::new(4, ["/dev/sda", "ram:1M"], 0);
    let far = Needs::new(4, ["/dev/sda", "nbd://host/export"], 0);
    assert_eq!(far.count(), near.count() + 4 + OF_EXPORT);
    assert_eq!(near.count(), OF_PROCESS + OF_CONTROL + 8 + 8);
}

#[test]
fn paths_are_counted_one_by_one() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("paths.toml");
    let text = "[[group]]\npath = [{ member = \"nbd://a/x\" }, { member = \"nbd://b/x\" }]\n";
    std::fs::write(&file, text).expect("a file");
    let name = format!("multipath:{}", file.display());
    assert_eq!(Needs::new(2, [&*name], 1), Needs::new(2, ["nbd://a/x", "nbd://b/x"], 1));
}

#[test]
fn a_limit_is_raised_as_far_as_it_may_be_and_never_lowered() {
    assert_eq!(raised(limit(Some(20), Some(100)), 100), Ok(Some(100)));
    assert_eq!(raised(limit(Some(20), Some(99)), 100), Err(99));
    assert_eq!(raised(limit(Some(20), None), 100), Ok(Some(ENOUGH)));
    assert_eq!(raised(limit(Some(20), None), ENOUGH + 1), Ok(Some(ENOUGH + 1)));
    assert_eq!(raised(limit(Some(ENOUGH + 9), None), 100), Ok(Some(ENOUGH + 9)));
    assert_eq!(raised(limit(None, None), 100), Ok(None));
}

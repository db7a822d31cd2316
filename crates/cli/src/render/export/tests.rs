use super::*;
use crate::report::examples;

#[test]
fn every_line_is_an_assignment_under_mdadms_names() {
    let text = text(&examples::rebuilding_raid6());
    assert!(text.lines().all(|line| line.starts_with("MD_") && line.contains('=')));
    assert!(text.contains("MD_UUID=01234567:89abcdef:01234567:89abcdef\n"));
    assert!(text.contains("MD_DEVICE__none_m6_ROLE=1\nMD_DEVICE__none_m6_DEV=/none/m6\n"));
    assert!(text.contains("MD_DEVICE__none_m1_ROLE=spare\n"));
}

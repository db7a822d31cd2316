use super::*;
use crate::report::examples::{clean_status, rebuilding_status};

/// A RAID6 in sync with spares of these sizes in sectors.
fn with_spares(sizes: &[u64]) -> ArrayStatus {
    let mut status = clean_status();
    let model = status.members[0].clone();
    status.members.extend(sizes.iter().map(|size| MemberStatus {
        name: format!("/dev/spare-{size}"),
        slot: None,
        state: MemberState::Spare,
        size_sectors: *size,
        ..model.clone()
    }));
    status
}

#[test]
fn an_array_that_lost_a_member_needs_a_spare_if_it_has_none() {
    assert!(!lacks(&clean_status()));
    let mut status = clean_status();
    status.members.remove(2);
    assert!(lacks(&status));
    status.state = ArrayState::Broken;
    assert!(!lacks(&status), "no spare helps it");
    let mut status = with_spares(&[300_000]);
    status.members.remove(2);
    assert!(!lacks(&status), "its own will take the slot");
    // Of two slots one is being rebuilt already.
    assert!(lacks(&rebuilding_status()));
}

#[test]
fn an_array_whose_member_is_to_be_replaced_needs_a_spare() {
    let mut status = clean_status();
    status.members[3].want_replacement = true;
    assert!(lacks(&status));
    let mut replacement = status.members[3].clone();
    replacement.want_replacement = false;
    replacement.replacement = true;
    replacement.state = MemberState::Recovering;
    status.members.push(replacement);
    assert!(!lacks(&status));
}

fn of_size(bytes: u64) -> Wanted {
    Wanted { bytes, but_for: Vec::new() }
}

#[test]
fn a_spare_that_went_back_is_not_given_again() {
    let status = with_spares(&[400_000, 300_000]);
    let but_for = vec!["/dev/spare-300000".to_owned()];
    let given = to_give(&status, &Wanted { bytes: 512, but_for });
    assert_eq!(given.map(|member| member.size_sectors), Some(400_000));
}

#[test]
fn the_smallest_spare_that_is_large_enough_is_given() {
    let status = with_spares(&[400_000, 100, 300_000]);
    let given = |bytes| to_give(&status, &of_size(bytes)).map(|member| member.size_sectors);
    assert_eq!(given(300_000 * 512), Some(300_000));
    assert_eq!(given(300_000 * 512 + 1), Some(400_000));
    assert_eq!(given(400_000 * 512 + 1), None);
}

#[test]
fn a_spare_that_is_needed_at_home_or_exists_there_alone_is_not_given() {
    let mut status = with_spares(&[400_000]);
    status.members.remove(0);
    assert!(to_give(&status, &of_size(512)).is_none());
    let mut status = with_spares(&[400_000]);
    status.members[6].name = "ram:200M".to_owned();
    assert!(to_give(&status, &of_size(512)).is_none());
}

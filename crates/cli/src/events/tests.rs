use mdspace_engine::ranges::Ranges;
use mdspace_engine::status::Mismatch;

use super::*;
use crate::report::examples::{clean_status, mirror_status, rebuilding_status};

fn words(before: &ArrayStatus, after: &ArrayStatus) -> Vec<String> {
    between(before, after).into_iter().map(|happened| happened.event).collect()
}

#[test]
fn nothing_happens_between_two_equal_moments() {
    assert!(words(&clean_status(), &clean_status()).is_empty());
    assert!(words(&rebuilding_status(), &rebuilding_status()).is_empty());
}

#[test]
fn a_failure_degrades_the_array_and_starts_a_rebuild() {
    let expect = ["Fail", "DegradedArray", "RebuildStarted"];
    assert_eq!(words(&clean_status(), &rebuilding_status()), expect);
}

#[test]
fn a_rebuild_is_told_every_twenty_percent_and_at_its_end() {
    let before = rebuilding_status();
    let mut after = rebuilding_status();
    after.sync.completed_sectors = after.sync.total_sectors * 39 / 100;
    assert!(words(&before, &after).is_empty());
    after.sync.completed_sectors = after.sync.total_sectors * 40 / 100;
    assert_eq!(words(&before, &after), ["Rebuild40"]);
    after.sync.action = SyncAction::Idle;
    after.members[5].state = MemberState::InSync;
    assert_eq!(words(&before, &after), ["SpareActive", "RebuildFinished"]);
}

#[test]
fn an_array_that_breaks_is_told_with_what_is_left_of_it() {
    let mut broken = clean_status();
    broken.state = ArrayState::Broken;
    let slots = broken.raid_disks;
    broken.members[0].state = MemberState::Faulty;
    assert_eq!(words(&clean_status(), &broken), ["Fail", "DegradedArray", "BrokenArray"]);
    let note = between(&clean_status(), &broken)[2].note.clone();
    assert_eq!(note, Some(format!("only {} of {slots} members are left", slots - 1)));
    assert!(words(&broken, &broken).is_empty());
}

#[test]
fn redundancy_in_doubt_is_told_when_a_member_is_missing_and_when_it_ends() {
    let mut whole = clean_status();
    whole.doubted = (&Ranges::of(0..4096)).into();
    let mut degraded = whole.clone();
    degraded.members[0].state = MemberState::Faulty;
    assert!(words(&clean_status(), &whole).is_empty());
    assert_eq!(words(&whole, &degraded), ["Fail", "DegradedArray", "InDoubt"]);
    let note = between(&whole, &degraded)[2].note.clone();
    assert!(note.is_some_and(|note| note.starts_with("2.0 MiB")));
    let mut accepted = degraded.clone();
    accepted.doubted = Default::default();
    assert_eq!(words(&degraded, &accepted), ["InDoubtEnded"]);
}

#[test]
fn the_end_of_a_check_says_what_it_found() {
    let mut before = clean_status();
    before.sync.action = SyncAction::Check;
    let mut after = clean_status();
    after.mismatch_sectors = 8;
    let happened = between(&before, &after);
    assert_eq!(happened[0].note.as_deref(), Some("mismatches found: 8"));
    after.sync.last_end = Some(SyncEnd::Incomplete);
    after.sync.skipped = (&[64..72, 128..256].into_iter().collect::<Ranges>()).into();
    let happened = between(&before, &after);
    let expect =
        "mismatches found: 8; incomplete; not done: 2 ranges (136 sectors): 64-71, 128-255";
    assert_eq!(happened[0].note.as_deref(), Some(expect));
}

#[test]
fn each_mismatch_is_told_once_with_its_place_and_the_liar() {
    let place = |sector, liar| Mismatch {
        array_sector: sector,
        member_sectors: sector..sector + 1,
        row: Some(3),
        slots: (0..6).collect(),
        liar,
    };
    let mut one = clean_status();
    one.sync.action = SyncAction::Check;
    one.mismatches.first = vec![place(40, Some(2))];
    let mut two = one.clone();
    two.mismatches.first.push(place(90, None));
    let found = between(&clean_status(), &one);
    assert_eq!(words(&clean_status(), &one), ["Mismatch", "RebuildStarted"]);
    assert_eq!(found[0].member.as_deref(), Some("/none/m2"));
    let note = found[0].note.as_deref().expect("a note");
    assert!(note.starts_with("sector 40 of the array, 1 from 40") && note.contains("row 3"));
    assert_eq!(words(&one, &two), ["Mismatch"]);
    let note = between(&one, &two).remove(0).note.expect("a note");
    assert!(note.contains("undecidable between /none/m0 /none/m1"), "{note}");
    let mut ended = two.clone();
    ended.sync.action = SyncAction::Idle;
    assert_eq!(words(&two, &ended), ["RebuildFinished"]);
    assert!(words(&ended, &ended).is_empty());
}

#[test]
fn the_log_forgets_the_oldest_and_never_a_number() {
    let mut log = EventLog::default();
    for _ in 0..EVENTS_KEPT + 5 {
        log.record(7, vec![Happened::to_array("Fail")]);
    }
    let kept = log.after(0);
    assert_eq!(kept.len(), EVENTS_KEPT);
    assert_eq!(kept.first().map(|event| event.sequence), Some(6));
    assert_eq!(log.after(EVENTS_KEPT as u64 + 4).len(), 1);
}

#[test]
fn a_member_that_limps_is_named_and_so_is_its_recovery() {
    let (well, limping) = (mirror_status([184, 190]), mirror_status([184, 7_360]));
    assert_eq!(words(&well, &limping), ["Limping"]);
    let happened = between(&well, &limping);
    assert_eq!(happened[0].member.as_deref(), Some("/none/m1"));
    let note = "a read takes 7360 us: it is read less until it is quick again";
    assert_eq!(happened[0].note.as_deref(), Some(note));
    assert_eq!(words(&limping, &well), ["LimpingEnded"]);
    assert!(between(&limping, &limping).is_empty(), "it is told once");
    let mut failed = mirror_status([184, 190]);
    failed.members[1].state = MemberState::Faulty;
    failed.members[1].load = None;
    assert_eq!(words(&limping, &failed), ["Fail", "DegradedArray"]);
}

#[test]
fn a_member_behind_which_there_is_no_space_is_named_once() {
    let (before, mut full) = (clean_status(), clean_status());
    full.members[1].lacks_space = true;
    let happened = between(&before, &full);
    assert_eq!(happened.len(), 1, "{happened:?}");
    assert_eq!(happened[0].event, "NoSpace");
    assert_eq!(happened[0].member.as_ref(), Some(&full.members[1].name));
    assert!(between(&full, &full).is_empty() && between(&full, &before).is_empty());
}

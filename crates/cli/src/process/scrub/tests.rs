use super::*;
use crate::report::examples;

#[test]
fn a_place_is_kept_for_its_array_alone_and_forgotten_at_the_end() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let file = folder.path().join("data.scrub");
    assert_eq!(kept_place(&file, "one"), None);
    keep_place(&file, "one", 4096).expect("room");
    assert_eq!(kept_place(&file, "one"), Some(4096));
    assert_eq!(kept_place(&file, "other"), None);
    keep_place(&file, "one", 0).expect("room");
    assert!(!file.exists());
    keep_place(&file, "one", 0).expect("nothing to forget");
}

#[test]
fn what_nobody_wrote_there_is_no_place() {
    let folder = tempfile::TempDir::new().expect("a temporary folder");
    let file = folder.path().join("data.scrub");
    for text in ["", "one", "one ", "one -1", "one 99999999999999999999999", "one 1 2", "\u{0}"] {
        fs::write(&file, text).expect("room");
        assert_eq!(kept_place(&file, "one"), None, "{text:?}");
    }
}

fn status(action: SyncAction, delayed: bool, waiting: Option<SyncAction>) -> ArrayStatus {
    let mut status = examples::clean_status();
    (status.sync.action, status.sync.delayed, status.sync.waiting) = (action, delayed, waiting);
    status
}

/// A check with a time to spend gives way to what cannot wait, and goes on after that: it ends then.
#[test]
fn a_scrub_keeps_its_time_while_it_waits_and_ends_when_it_goes_on_after_that() {
    let now = Instant::now();
    let budget = Budget { given: now, ends: now, kept: now };
    let check = Some(SyncAction::Check);
    let resync = Phase::of(&status(SyncAction::Resync, false, check));
    assert_eq!(resync, Phase::Waits);
    assert!(!budget.is_spent(resync, now));
    assert_eq!(budget.next_look(resync), now + KEEP_EVERY);
    let goes_on = Phase::of(&status(SyncAction::Check, false, None));
    assert_eq!(goes_on, Phase::Runs);
    assert!(budget.is_spent(goes_on, now));
    assert_eq!(budget.next_look(goes_on), now);
    assert_eq!(Phase::of(&status(SyncAction::Idle, false, None)), Phase::HasEnded);
    assert_eq!(Phase::of(&status(SyncAction::Resync, false, None)), Phase::HasEnded);
}

/// What other arrays keep from its begin is at no place yet.
#[test]
fn a_scrub_that_other_arrays_delay_waits() {
    assert_eq!(Phase::of(&status(SyncAction::Repair, true, None)), Phase::Waits);
}

/// The answer says that none runs: the scrub was ordered after it.
#[test]
fn what_was_asked_before_a_scrub_was_ordered_does_not_end_it() {
    let given = Instant::now();
    let budget = Budget { given, ends: given, kept: given };
    assert!(!budget.is_meant(given - Duration::from_millis(1)));
    assert!(budget.is_meant(given));
}

use std::time::Duration;

use super::*;

const WORKS: [Work; 4] = [Work::Recovery, Work::Replacement, Work::Resync, Work::Request];

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

/// Each reason by what it keeps from running: recovery, replacement, resync, a check.
#[test]
fn each_reason_keeps_what_it_is_about_from_running() {
    let table = [
        (Reason::Frozen, [true; 4]),
        (Reason::ReadOnly, [true; 4]),
        (Reason::Broken, [true; 4]),
        (Reason::Stopping, [true; 4]),
        (Reason::Failed(Work::Recovery), [true, false, false, false]),
        (Reason::Failed(Work::Replacement), [false, true, false, false]),
        (Reason::Failed(Work::Resync), [false, false, true, false]),
        (Reason::Later(Work::Recovery, at(9)), [true, false, false, false]),
        (Reason::Later(Work::Replacement, at(9)), [false, true, false, false]),
        (Reason::Later(Work::Resync, at(9)), [false, false, true, false]),
    ];
    for (reason, keeps) in table {
        let mut why = WhyIdle::default();
        why.add(reason);
        assert_eq!(WORKS.map(|work| why.keeps(work)), keeps, "{reason:?}");
        assert_eq!(why.keeps_all(), keeps == [true; 4], "{reason:?}");
    }
    assert!(WORKS.iter().all(|work| !WhyIdle::default().keeps(*work)));
}

/// Each reason by what ends it: a change, an order to go on, one to freeze, one to check, a resync, the
/// clock before and at its time.
#[test]
fn each_reason_ends_with_what_may_cure_it() {
    let events = [
        Event::Change,
        Event::GoOn,
        Event::Freeze,
        Event::Request,
        Event::Resynced,
        Event::Clock(at(8)),
        Event::Clock(at(9)),
    ];
    let (y, n) = (true, false);
    let table = [
        (Reason::Frozen, [n, y, y, y, n, n, n]),
        (Reason::ReadOnly, [n; 7]),
        (Reason::Broken, [n; 7]),
        (Reason::Stopping, [n; 7]),
        (Reason::Failed(Work::Recovery), [y, y, y, n, y, n, n]),
        (Reason::Failed(Work::Replacement), [y, y, y, n, y, n, n]),
        (Reason::Failed(Work::Resync), [y, y, y, n, n, n, n]),
        (Reason::Later(Work::Recovery, at(9)), [y, y, y, n, n, n, y]),
        (Reason::Later(Work::Replacement, at(9)), [y, y, y, n, n, n, y]),
        (Reason::Later(Work::Resync, at(9)), [y, y, y, n, n, n, y]),
    ];
    for (reason, ends) in table {
        assert_eq!(events.map(|event| reason.ends_with(event)), ends, "{reason:?}");
    }
}

#[test]
fn an_order_to_freeze_freezes_and_stays_until_another_one() {
    let mut why = WhyIdle::default();
    why.happened(Event::Freeze);
    why.happened(Event::Freeze);
    assert!(why.is_frozen());
    why.happened(Event::Change);
    assert!(why.is_frozen());
    why.happened(Event::GoOn);
    assert!(!why.is_frozen());
}

/// Lack of space comes with ranges that were left out: it is tried again all the same.
#[test]
fn the_last_word_about_one_work_counts() {
    let mut why = WhyIdle::default();
    why.add(Reason::Failed(Work::Recovery));
    why.add(Reason::Later(Work::Recovery, at(5)));
    why.add(Reason::Later(Work::Resync, at(3)));
    assert_eq!(why.next_alarm(), Some(at(3)));
    why.happened(Event::Clock(at(5)));
    assert!(!why.keeps(Work::Recovery) && !why.keeps(Work::Resync));
    assert_eq!(why.next_alarm(), None);
}

#[test]
fn a_reason_replaces_none_that_is_about_something_else() {
    let mut why = WhyIdle::default();
    let reasons = [
        Reason::Frozen,
        Reason::Failed(Work::Recovery),
        Reason::Later(Work::Resync, at(3)),
        Reason::ReadOnly,
        Reason::Failed(Work::Request),
    ];
    reasons.into_iter().for_each(|reason| why.add(reason));
    why.add(Reason::ReadOnly);
    assert_eq!(why.0.len(), reasons.len());
    assert!(reasons.iter().all(|reason| why.0.contains(reason)), "{:?}", why.0);
}

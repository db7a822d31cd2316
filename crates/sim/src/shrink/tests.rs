//! What a failure does not need goes, and what it needs stays.

use super::*;
use crate::settings::Trouble;
use crate::trace::Trace;
use crate::trial;

const BUDGET: Budget = Budget { runs: 500, steps: u64::MAX };

#[test]
fn what_a_failure_does_not_need_goes() {
    for seed in 0..40 {
        let settings = Settings::draw(seed, None, Trouble::Bearable);
        let aims = settings.aims.len();
        // It fails with a slot and an aim, if there was one, and more than twelve requests.
        let fails =
            |settings: &Settings| (settings.requests > 12 && settings.aims.len() >= aims.min(1), 1);
        let shrunk = shrink(&settings, BUDGET, fails);
        let Settings { requests, aims: left, paths, workers, lanes, .. } = &shrunk.settings;
        assert_eq!((*requests, left.len()), (13, aims.min(1)), "seed {seed}: {shrunk:?}");
        assert_eq!((*paths, *workers, *lanes), (0, 0, 1), "seed {seed}: {shrunk:?}");
        assert!(shrunk.settings.happenings.iter().all(|weight| *weight == 0), "seed {seed}");
    }
}

#[test]
fn no_more_is_tried_than_there_is_budget_for() {
    let settings = Settings::draw(1, None, Trouble::Beyond);
    let shrunk = shrink(&settings, Budget { runs: 7, ..BUDGET }, |_| (false, 1));
    assert_eq!((shrunk.runs, shrunk.settings), (7, settings.clone()));
    let shrunk = shrink(&settings, Budget { steps: 30, ..BUDGET }, |_| (true, 10));
    assert_eq!(shrunk.runs, 3);
}

/// Each is a run that could be drawn: its array can be created, and nothing goes wrong.
#[test]
fn whatever_is_smaller_runs() {
    for seed in 0..6 {
        let mut settings = Settings::draw(seed, None, Trouble::Bearable);
        settings.requests = 20;
        for (words, candidate) in smaller(&settings) {
            let ended = trial::run(candidate, Trace::silent(), None, None).result;
            assert!(ended.is_ok(), "seed {seed}, {words}: {ended:?}");
        }
        let smallest = shrink(&settings, BUDGET, |_| (true, 1)).settings;
        let ended = trial::run(smallest.clone(), Trace::silent(), None, None).result;
        assert!(ended.is_ok(), "seed {seed}: {smallest}: {ended:?}");
    }
}

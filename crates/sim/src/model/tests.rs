//! The model allows what a crash, a race or a failure explains, and nothing else.

use super::*;
use crate::stamp::stamp;

/// A model of one sector, and short words for what happens to it.
struct One(Model);

impl One {
    fn new() -> Self {
        Self(Model::zeroes(1))
    }

    fn begin(&mut self, version: u64) -> Asked {
        self.0.begin_write(0..1, &[Version(version)])
    }

    fn write(&mut self, version: u64) {
        let asked = self.begin(version);
        self.0.end_write(asked, Certainty::Done);
    }

    fn fail(&mut self, version: u64) {
        let asked = self.begin(version);
        self.0.end_write(asked, Certainty::Unknown);
    }

    fn flush(&mut self) {
        let asked = self.0.begin_flush();
        self.0.end_flush(asked);
    }

    fn read(&mut self, version: u64) -> bool {
        let asked = self.0.begin_read();
        self.finish_read(asked, version)
    }

    fn finish_read(&mut self, asked: Asked, version: u64) -> bool {
        let mut bytes = [0; SECTOR_BYTES];
        stamp(0, Version(version), &mut bytes);
        self.0.end_read(asked, 0, &bytes).is_ok()
    }

    fn legal(&self) -> Vec<u64> {
        self.0.legal(0)
    }
}

#[test]
fn an_acknowledged_write_is_the_only_legal_value() {
    let mut one = One::new();
    one.write(1);
    assert_eq!(one.legal(), [1]);
    assert!(one.read(1));
    assert!(!one.read(0));
}

#[test]
fn garbage_is_never_legal_where_something_was_written() {
    let mut one = One::new();
    one.write(1);
    let asked = one.0.begin_read();
    let violation = one.0.end_read(asked, 0, &[7; SECTOR_BYTES]).unwrap_err();
    assert!(matches!(violation.found, Found::Garbage(_)));
    assert_eq!(violation.legal, [1]);
}

#[test]
fn of_two_writes_at_once_either_may_win() {
    let mut one = One::new();
    let (first, second) = (one.begin(1), one.begin(2));
    one.0.end_write(second, Certainty::Done);
    one.0.end_write(first, Certainty::Done);
    assert_eq!(one.legal(), [1, 2]);
    assert!(one.read(1));
    assert_eq!(one.legal(), [1], "the first read decides");
}

#[test]
fn a_read_may_see_what_was_there_when_it_began() {
    let mut one = One::new();
    let read = one.0.begin_read();
    one.write(1);
    assert!(one.finish_read(read, 0));
    assert!(!one.read(0), "a later one may not");
}

#[test]
fn a_read_beside_a_write_decides_nothing() {
    let mut one = One::new();
    let write = one.begin(1);
    assert!(one.read(1));
    assert!(one.read(0));
    one.0.end_write(write, Certainty::Done);
    assert!(!one.read(0));
}

#[test]
fn a_failed_write_leaves_old_or_new_until_the_first_read() {
    let mut one = One::new();
    one.write(1);
    one.fail(2);
    assert_eq!(one.legal(), [1, 2]);
    assert!(one.read(2));
    assert!(!one.read(1));
}

#[test]
fn a_failed_write_is_over_when_a_later_one_is_acknowledged() {
    let mut one = One::new();
    one.fail(1);
    one.write(2);
    assert_eq!(one.legal(), [2]);
}

#[test]
fn a_power_cut_brings_back_what_no_flush_covered() {
    let mut one = One::new();
    one.write(1);
    one.flush();
    one.write(2);
    one.write(3);
    one.0.cut_power();
    assert_eq!(one.legal(), [1, 2, 3]);
    assert!(one.read(2));
    one.0.cut_power();
    assert_eq!(one.legal(), [2], "what is on the platter stays");
}

#[test]
fn a_flush_covers_only_what_ended_before_it_began() {
    let mut one = One::new();
    let write = one.begin(1);
    let flush = one.0.begin_flush();
    one.0.end_write(write, Certainty::Done);
    one.0.end_flush(flush);
    one.0.cut_power();
    assert_eq!(one.legal(), [0, 1]);
}

#[test]
fn a_durable_write_buries_what_was_before() {
    let mut one = One::new();
    one.write(1);
    let write = one.begin(2);
    one.0.end_write(write, Certainty::Durable);
    one.0.cut_power();
    assert_eq!(one.legal(), [2]);
}

#[test]
fn a_write_in_flight_survives_a_cut_or_not() {
    let mut one = One::new();
    one.begin(1);
    one.0.cut_power();
    assert_eq!(one.legal(), [0, 1]);
    one.write(2);
    assert_eq!(one.legal(), [2]);
}

#[test]
fn a_kill_loses_nothing_that_was_acknowledged() {
    let mut one = One::new();
    one.write(1);
    one.begin(2);
    one.0.kill();
    assert_eq!(one.legal(), [1, 2]);
}

#[test]
fn a_value_that_a_read_ruled_out_may_return_after_a_cut() {
    let mut one = One::new();
    one.fail(1);
    assert!(one.read(0));
    assert_eq!(one.legal(), [0]);
    one.0.cut_power();
    assert_eq!(one.legal(), [0, 1]);
}

#[test]
fn in_an_unsteady_array_another_value_may_come_to_be_read_and_the_first_does_not_come_back() {
    let mut one = One::new();
    one.0.set_steady(false);
    one.fail(1);
    assert!(one.read(0) && one.read(0) && one.read(1) && !one.read(2));
    assert!(!one.read(0) && one.read(1));
    one.0.kill();
    assert_eq!(one.legal(), [1], "what is read rests on records");
}

#[test]
fn reads_at_one_time_may_see_either_value_of_an_unsteady_array() {
    let mut one = One::new();
    one.0.set_steady(false);
    one.fail(1);
    let both = [one.0.begin_read(), one.0.begin_read()];
    for (asked, version) in both.into_iter().zip([0, 1]) {
        assert!(one.finish_read(asked, version));
    }
    assert_eq!(one.legal(), [0, 1]);
}

/// It may have been the one that was read, and another one has what was read before.
#[test]
fn what_was_read_first_may_come_back_when_a_member_is_lost() {
    for lose in [Model::lose_a_member, Model::lose_a_member_now, Model::cut_power] {
        let mut one = One::new();
        one.0.set_steady(false);
        one.fail(1);
        assert!(one.read(0) && one.read(1));
        lose(&mut one.0);
        assert!(one.read(0));
    }
}

/// A read that began before may have been answered by that one.
#[test]
fn a_member_that_is_lost_now_gives_nothing_to_later_reads() {
    let mut one = One::new();
    one.0.set_steady(false);
    one.fail(1);
    assert!(one.read(0));
    let before = one.0.begin_read();
    one.0.lose_a_member_now();
    assert!(one.finish_read(before, 1));
    assert!(one.read(0) && one.read(1) && !one.read(0));
}

#[test]
fn of_an_unknown_sector_anything_is_legal_until_it_is_written() {
    let mut one = One(Model::anything(1));
    let asked = one.0.begin_read();
    assert!(one.0.end_read(asked, 0, &[7; SECTOR_BYTES]).is_ok());
    one.write(1);
    assert!(!one.read(2));
}

#[test]
fn a_discard_leaves_old_or_zeroes() {
    let mut one = One::new();
    one.write(1);
    one.fail(0);
    assert_eq!(one.legal(), [1, 0]);
}

#[test]
fn histories_stay_short_when_flushes_come() {
    let mut one = One::new();
    for version in 1..1_000 {
        one.write(version);
        one.flush();
    }
    assert!(one.0.sectors[0].is_settled());
    assert!(one.0.volatile.is_empty());
}

#[test]
fn zeroes_that_may_be_from_a_discard_say_nothing_of_the_platter() {
    let mut one = One::new();
    one.write(1);
    one.0.cut_power();
    one.fail(0);
    assert!(one.read(0));
    one.0.cut_power();
    assert!(one.read(1));
}

#[test]
fn after_a_lost_flush_only_fua_is_durable() {
    for (lost, legal) in [(false, vec![1]), (true, vec![0, 1])] {
        let mut one = One::new();
        if lost {
            one.0.lose_a_flush();
        }
        one.write(1);
        one.flush();
        one.0.cut_power();
        assert_eq!(one.legal(), legal);
        let asked = one.begin(2);
        one.0.end_write(asked, Certainty::Durable);
        one.0.cut_power();
        assert_eq!(one.legal(), [2]);
    }
}

#[test]
fn what_was_accepted_may_be_anything_and_what_was_read_before_does_not_come_back() {
    let mut one = One::new();
    one.0.set_steady(false);
    one.write(1);
    assert!(one.read(1));
    one.0.may_be_anything(0);
    let garbage = |one: &mut One, byte| {
        let asked = one.0.begin_read();
        one.0.end_read(asked, 0, &[byte; SECTOR_BYTES]).is_ok()
    };
    assert!(garbage(&mut one, 7) && garbage(&mut one, 7));
    assert!(!one.read(1), "it was read, and then something else");
    assert!(garbage(&mut one, 9) && !garbage(&mut one, 7));
    one.write(2);
    assert!(one.read(2) && !garbage(&mut one, 9));
}

#[test]
fn what_was_read_before_another_value_comes_back_only_where_doubt_is_accepted() {
    for accepts in [false, true] {
        let mut one = One::new();
        one.0.set_steady(false);
        one.write(1);
        assert!(one.read(1));
        let asked = one.0.begin_write(0..1, &[Version(2)]);
        one.0.end_write(asked, Certainty::Unknown);
        assert!(one.read(2));
        if accepts {
            one.0.may_be_anything(0);
        }
        assert_eq!(one.read(1), accepts);
        assert_eq!(one.read(2), !accepts, "it was read, and perhaps another one after it");
    }
}

#[test]
fn after_a_kill_in_a_write_the_old_value_may_follow_the_new_one_but_no_older_one() {
    let mut one = One::new();
    one.0.set_steady(false);
    assert!(one.read(0));
    let asked = one.0.begin_write(0..1, &[Version(1)]);
    one.0.end_write(asked, Certainty::Unknown);
    assert!(one.read(1));
    one.0.begin_write(0..1, &[Version(2)]);
    one.0.kill();
    assert!(one.read(2) && one.read(1));
    assert!(!one.read(2) && !one.read(0), "they were read, and then another one");
}

#[test]
fn what_rests_on_one_member_is_lost_with_it_and_a_crash_though_it_was_flushed() {
    for holds in [false, true] {
        let mut one = One::new();
        one.0.set_steady(false);
        one.0.answers_rest_on_one();
        one.write(1);
        one.flush();
        if holds {
            one.0.answers_hold();
            one.flush();
        }
        assert!(one.read(1));
        one.write(2);
        one.0.kill();
        let legal = if holds { vec![2] } else { vec![0, 1, 2] };
        assert_eq!(one.legal(), legal, "{holds}");
    }
}

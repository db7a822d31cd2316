//! A flush that fails: no lane is told that all is well while a member counts as good and has lost
//! what the flush was to make durable.

use std::rc::Rc;

use mdspace_engine::array::{Array, ArrayLane, Rule};
use mdspace_engine::request::Request;
use mdspace_engine::status::MemberState;
use mdspace_format::Level;

use crate::machine::Machine;
use crate::whole_array::{LANES, new_array, run_lanes_of, write};

/// The member whose flush fails once, and the one that holds the data then.
const FAILED: usize = 0;
const SURVIVOR: usize = 1;

/// Both lanes write a sector each and flush it. The first flush of one member fails, whoever sends it.
fn flush_on_both_lanes(broken: &[Rule]) {
    let machine = Machine::new(2, 4096, LANES);
    let start = new_array(&machine, Level::Raid1, 0);
    let data = start.members[FAILED].superblock.data_offset_sectors;
    machine.fail_next_flush(FAILED);
    let array = Array::new(&start, LANES);
    broken.iter().for_each(|rule| array.break_rule(*rule));
    let disks = machine.clone();
    let status = run_lanes_of(&array, &machine, start, async move |port: Rc<ArrayLane>, lane| {
        write(&port, lane, 9).await;
        port.serve(Request::Flush).await.unwrap();
        let is_lost = disks.has_given_up(FAILED, data + lane);
        let is_out = disks.says_faulty(SURVIVOR, FAILED);
        assert!(!is_lost || is_out, "a crash would bring back what was flushed away");
    });
    let failed = status.members.iter().filter(|member| member.state == MemberState::Faulty).count();
    assert_eq!(failed, 1);
}

#[test]
fn no_flush_is_answered_before_all_know_of_one_that_failed() {
    shuttle::check_random(|| flush_on_both_lanes(&[]), 3000);
}

/// Each is enough: its flush is known to have failed, or that it fails.
#[test]
fn a_second_flush_is_believed_by_neither_of_two_rules() {
    for broken in [Rule::FailedFlushesStayFailed, Rule::FailuresEndReads] {
        shuttle::check_random(move || flush_on_both_lanes(&[broken]), 1000);
    }
}

#[test]
#[should_panic(expected = "a crash would bring back what was flushed away")]
fn the_test_notices_a_second_flush_that_is_believed() {
    let broken = &[Rule::FailedFlushesStayFailed, Rule::FailuresEndReads];
    shuttle::check_random(move || flush_on_both_lanes(broken), 5000);
}

//! A view without a failed member: until it is settled no write that failed on the member, or passed
//! over it, is answered.

use std::rc::Rc;

use mdspace_engine::array::{Array, ArrayLane, BrokenHere, Rule};
use mdspace_engine::status::MemberState;
use mdspace_format::Level;
use shuttle::rand::{Rng, thread_rng};
use shuttle::sync::atomic::{AtomicBool, Ordering};

use crate::machine::Machine;
use crate::whole_array::{LANES, new_array, read, run_lanes_of, write};

/// The member that takes no data, and the one that does.
const FAILED: usize = 0;
const SURVIVOR: usize = 1;

/// So many runs show what one in some thousands does.
const SELDOM: usize = 60_000;

/// Both lanes write: on one the member fails, on the other it fails too or is passed over. Who is
/// answered looks whether a crash would forget the failure, and who knows that the other was answered
/// reads what it wrote.
fn write_while_a_member_fails(broken: &[Rule], looks: bool) {
    let machine = Machine::new(2, 4096, LANES);
    let start = new_array(&machine, Level::Raid1, 0);
    // Its metadata go well: it is a write of data that finds out.
    machine.fail_from(FAILED, start.members[FAILED].superblock.data_offset_sectors);
    let array = Array::new(&start, LANES);
    broken.iter().for_each(|rule| array.break_rule(*rule));
    let (disks, answered) = (machine.clone(), [const { AtomicBool::new(false) }; LANES]);
    let status = run_lanes_of(&array, &machine, start, async move |port: Rc<ArrayLane>, lane| {
        let other = 1 - lane;
        let look = async || {
            let is_answered = answered[other as usize].load(Ordering::SeqCst);
            let value = read(&port, other).await;
            assert!(value == 9 || !is_answered, "the failed member was read");
        };
        // One lane may come later, under the new view. The bit of their chunk is there by then. A read of what the other one
        // writes may wait for that, and one of its own block does not.
        for _ in 0..lane * thread_rng().gen_range(0..64) {
            match looks {
                true => look().await,
                false => drop(read(&port, lane).await),
            }
        }
        write(&port, lane, 9).await;
        assert!(disks.says_faulty(SURVIVOR, FAILED), "a crash would forget the failure");
        answered[lane as usize].store(true, Ordering::SeqCst);
        look().await;
    });
    let failed = status.members.iter().filter(|member| member.state == MemberState::Faulty).count();
    assert_eq!(failed, 1);
}

#[test]
fn no_write_is_answered_before_all_lanes_and_survivors_know_of_the_failure() {
    shuttle::check_random(|| write_while_a_member_fails(&[], thread_rng().gen_bool(0.5)), 2000);
}

#[test]
fn a_lane_that_has_not_adopted_the_view_reads_again_under_it() {
    let broken = [Rule::LanesAdoptWhatIsSettled];
    shuttle::check_random(move || write_while_a_member_fails(&broken, true), 5000);
}

#[test]
fn where_every_lane_adopts_first_nothing_need_be_read_again() {
    let unaware = || {
        let _broken = BrokenHere::new(Rule::OldReadsAreReadAgain);
        write_while_a_member_fails(&[], true);
    };
    shuttle::check_random(unaware, 5000);
}

#[test]
#[should_panic(expected = "the failed member was read")]
fn the_test_notices_when_no_lane_adopts_first_and_none_reads_again() {
    let unaware = || {
        let _broken = BrokenHere::new(Rule::OldReadsAreReadAgain);
        // Nor is a member distrusted before it is out.
        let broken = [Rule::LanesAdoptWhatIsSettled, Rule::FailedFlushesEndReads];
        write_while_a_member_fails(&broken, true);
    };
    shuttle::check_random(unaware, 5000);
}

#[test]
#[should_panic(expected = "a crash would forget the failure")]
fn the_test_notices_a_view_that_is_settled_before_the_survivors_say_so() {
    let broken = [Rule::SurvivorsRecordWhatIsSettled];
    shuttle::check_random(move || write_while_a_member_fails(&broken, false), SELDOM);
}

#[test]
#[should_panic(expected = "a crash would forget the failure")]
fn the_test_notices_a_write_past_a_failed_member_that_does_not_wait() {
    let broken = [Rule::WritesPastFailedMembersWait];
    shuttle::check_random(move || write_while_a_member_fails(&broken, false), SELDOM);
}

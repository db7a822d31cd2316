//! The owner of the paths, without lanes: groups, messages, and dm's lines.

use crate::lane::LaneId;

use super::*;

const NOW: Time = Time::from_nanos(5);

struct Nobody;

impl Host for Nobody {
    fn reopen(&self, _: &Arc<Paths>, _: usize) {}

    fn fence(&self, _: &Arc<Paths>, _: usize, _: FenceId) -> bool {
        false
    }
}

/// Begins every fence that is asked for, and keeps which.
#[derive(Clone, Default)]
struct Fencing(Arc<Mutex<Vec<FenceId>>>);

impl Fencing {
    fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// The fence of that number ends.
    fn end(&self, paths: &Paths, number: usize, done: Result<(), String>) {
        let fence = self.0.lock()[number];
        paths.fenced(0, fence, done, NOW);
    }
}

impl Host for Fencing {
    fn reopen(&self, _: &Arc<Paths>, _: usize) {}

    fn fence(&self, _: &Arc<Paths>, _: usize, fence: FenceId) -> bool {
        self.0.lock().push(fence);
        true
    }
}

/// A device of these groups, each path of which leads to it, proved.
pub(super) fn device(groups: &str, failback: Failback) -> Arc<Paths> {
    device_of(groups, failback, Box::new(Nobody))
}

pub(super) fn device_of(groups: &str, failback: Failback, host: Box<dyn Host>) -> Arc<Paths> {
    let table: Table = format!("0 2048 multipath 0 0 {groups}").parse().expect("a table line");
    let member = |index: usize| {
        let info = MemberInfo {
            name: "disk".into(),
            sectors: 2048,
            logical_block_bytes: 512,
            rotational: false,
            discard_zeroes: false,
            is_sparse: false,
        };
        (MemberId { index: index as u16, generation: 0 }, info)
    };
    let names: Vec<&str> = table.paths().map(|(_, path)| &*path.member).collect();
    let first = |name: &str| names.iter().position(|other| *other == name).expect("it is there");
    let opened: Vec<_> = names.iter().map(|name| Ok(member(first(name)))).collect();
    let (count, policy) = (names.len(), Policy { failback, ..Policy::default() });
    let remote = vec![true; count];
    let paths = Paths::new("d", table, policy, opened, &remote, host).expect("a device");
    (0..count).for_each(|path| paths.reinstate(path, NOW));
    paths
}

/// What dm's status line says of groups and paths: `A` and `E` groups, `F` and `A` paths.
fn letters(paths: &Paths) -> String {
    let states = ["A", "D", "E", "F"];
    let status = paths.status().status;
    status.split(' ').skip(9).filter(|word| states.contains(word)).collect()
}

fn say(paths: &Arc<Paths>, words: &str) {
    paths.message(&words.split(' ').collect::<Vec<_>>(), NOW).expect("a message");
}

const TWO_GROUPS: &str = "2 1 round-robin 0 1 0 a round-robin 0 2 0 b c";

#[test]
fn the_next_group_is_used_when_the_last_path_of_one_fails() {
    let paths = device(TWO_GROUPS, Failback::Manual);
    assert_eq!(letters(&paths), "AAEAA");
    paths.fail(0, None, "it is cut", true, NOW);
    assert_eq!(letters(&paths), "EFAAA");
    paths.fail(1, None, "it is cut", true, NOW);
    assert_eq!(letters(&paths), "EFAFA");
    paths.fail(2, None, "it is cut", true, NOW);
    assert_eq!(letters(&paths), "EFEFF");
    assert!(paths.owner.lock().view.usable.is_empty());
    paths.reinstate(0, NOW);
    assert_eq!(letters(&paths), "AAEFF");
}

#[test]
fn a_better_group_is_used_again_when_the_user_wants_it() {
    let later = |span| NOW + Duration::from_secs(span);
    let after_failback = |failback, span| {
        let paths = device(TWO_GROUPS, failback);
        paths.fail(0, None, "it is cut", true, NOW);
        paths.reinstate(0, NOW);
        paths.look(later(span));
        letters(&paths)
    };
    assert_eq!(after_failback(Failback::Manual, 1000), "EAAAA");
    assert_eq!(after_failback(Failback::Immediate, 0), "AAEAA");
    let after = Failback::After(Duration::from_secs(10));
    assert_eq!(after_failback(after, 9), "EAAAA");
    assert_eq!(after_failback(after, 10), "AAEAA");
}

#[test]
fn a_better_group_that_fails_again_is_not_used_after_its_time() {
    let paths = device(TWO_GROUPS, Failback::After(Duration::from_secs(10)));
    paths.fail(0, None, "it is cut", true, NOW);
    paths.reinstate(0, NOW);
    paths.fail(0, None, "it is cut", true, NOW);
    paths.look(NOW + Duration::from_secs(10));
    assert_eq!(letters(&paths), "EFAAA");
}

#[test]
fn a_device_without_paths_is_looked_at_when_waiting_ends_and_no_more_often_than_others() {
    for queues in [true, false] {
        let paths = device(TWO_GROUPS, Failback::Manual);
        say(&paths, if queues { "queue_if_no_path" } else { "fail_if_no_path" });
        (0..3).for_each(|path| paths.fail(path, None, "it is cut", true, NOW));
        let (rarely, most) = (paths.policy.polling_interval, paths.wait_max());
        for span in [Duration::ZERO, most, most + rarely] {
            let next = paths.look(NOW + span).since(NOW + span);
            let waits = queues && span < most;
            assert_eq!(
                next,
                if waits { rarely.min(most - span) } else { rarely },
                "{queues}, {span:?}"
            );
        }
    }
}

/// Another path's slow first flush is cut for a path that could take over.
#[test]
fn a_path_that_waited_for_a_proof_and_is_of_no_use_since_takes_over_from_none() {
    type End = fn(&Arc<Paths>);
    let ends: [End; 3] = [
        |paths| {
            let mut owner = paths.owner.lock();
            paths.refuse_in(&mut owner, 0, "it is another device".into(), NOW);
        },
        |paths| say(paths, "fail_path a"),
        |paths| paths.owner.lock().paths[0].lost = true,
    ];
    for (end, number) in ends.into_iter().zip(0..) {
        let paths = device(TWO_GROUPS, Failback::Manual);
        paths.fail(0, None, "it is cut", false, NOW);
        paths.owner.lock().paths[0].awaits_proof = true;
        assert!(paths.owner.lock().paths[0].could_take_over());
        end(&paths);
        assert!(!paths.owner.lock().paths[0].could_take_over(), "{number}");
    }
}

#[test]
fn messages_do_what_dms_do() {
    let paths = device(TWO_GROUPS, Failback::Manual);
    for (message, expected) in [
        ("switch_group 2", "EAAAA"),
        ("switch_group 1", "AAEAA"),
        ("disable_group 1", "DAAAA"),
        ("enable_group 1", "EAAAA"),
        ("disable_group 2", "AADAA"),
        // With nothing else left a disabled group serves, as dm's does.
        ("fail_path a", "EFDAA"),
        // It enables every group up to this one.
        ("switch_group 2", "EFAAA"),
        ("fail_path b", "EFAFA"),
    ] {
        say(&paths, message);
        assert_eq!(letters(&paths), expected, "after {message}");
    }
    assert!(!paths.status().table.contains("queue_if_no_path"));
    say(&paths, "queue_if_no_path");
    assert!(paths.status().table.starts_with("0 2048 multipath 1 queue_if_no_path 0 2 1 "));
    say(&paths, "fail_if_no_path");
    assert!(paths.status().table.starts_with("0 2048 multipath 0 0 2 1 "));
    for wrong in ["switch_group 3", "switch_group 0", "disable_group", "fail_path d", "", "stop"] {
        let words: Vec<&str> = wrong.split(' ').collect();
        assert!(paths.message(&words, NOW).is_err(), "{wrong}");
    }
}

#[test]
fn the_device_begins_with_the_group_that_the_table_says() {
    let paths = device("2 2 round-robin 0 1 0 a round-robin 0 1 0 b", Failback::Manual);
    assert_eq!(letters(&paths), "EAAA");
}

#[test]
fn the_status_line_has_the_words_of_each_selector() {
    for (group, expected) in [
        ("round-robin 0 1 1 a 1", "A 0 1 0 a A 0"),
        ("queue-length 0 1 1 a 1", "A 0 1 1 a A 0 0"),
        ("service-time 0 1 2 a 1 7", "A 0 1 2 a A 0 0 7"),
        ("historical-service-time 2 900 3 1 1 a 1", "A 2 900 3 1 3 a A 0 0 0 0"),
        ("io-affinity 0 1 1 a 3", "A 0 1 1 a A 0 0"),
        ("expected 0 1 0 a", "A 0 1 0 a A 0"),
    ] {
        let paths = device(&format!("1 1 {group}"), Failback::Manual);
        assert_eq!(paths.status().status, format!("0 2048 multipath 2 0 0 0 1 1 {expected}"));
    }
}

#[test]
fn a_device_that_is_listed_twice_is_told() {
    let told = |groups: &str| -> Vec<_> {
        let twice = |event: &PathEvent| event.event == "PathTwice";
        device(groups, Failback::Manual).events_after(0).into_iter().filter(twice).collect()
    };
    let events = told("2 1 round-robin 0 2 0 a b round-robin 0 1 0 a");
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].member.as_deref(), Some("a"));
    assert_eq!(told(TWO_GROUPS), []);
}

/// A write that is sent while a fence runs may be done after the fence has looked.
#[test]
fn a_fence_proves_nothing_of_what_was_late_after_it_began() {
    let fences = Fencing::default();
    let paths = device_of(TWO_GROUPS, Failback::Manual, Box::new(fences.clone()));
    let member = MemberId { index: 0, generation: 0 };
    let late = |range| paths.add_late(0, member, LaneId(0), range, true, NOW);
    let unproved = || -> Vec<_> {
        let owner = paths.owner.lock();
        owner.late.iter().map(|late| late.range.clone()).collect()
    };
    let second = 16..24;
    late(0..8);
    late(16..24);
    assert_eq!(fences.count(), 1, "one at a time");
    fences.end(&paths, 0, Ok(()));
    assert_eq!(unproved(), vec![second.clone()]);
    paths.begin_fence(0, NOW);
    fences.end(&paths, 1, Err("it failed".into()));
    assert_eq!(unproved(), vec![second.clone()]);
    paths.begin_fence(0, NOW);
    fences.end(&paths, 2, Ok(()));
    assert!(unproved().is_empty());
    assert_eq!(fences.count(), 3);
    // The operator's word is about all that was sent until then, whatever runs.
    late(0..8);
    late(16..24);
    say(&paths, "fail_path a --fenced");
    assert!(unproved().is_empty());
}

/// The operator has brought the path back meanwhile, and what it was sent since is as late as what came before.
#[test]
fn a_fence_that_the_operators_word_has_ended_proves_nothing() {
    let fences = Fencing::default();
    let paths = device_of(TWO_GROUPS, Failback::Manual, Box::new(fences.clone()));
    let member = |index| MemberId { index, generation: 0 };
    let unproved = || paths.owner.lock().late.iter().count();
    paths.add_late(0, member(0), LaneId(0), 0..8, true, NOW);
    say(&paths, "fail_path a --fenced");
    assert_eq!(unproved(), 0);
    say(&paths, "reinstate_path a");
    assert!(paths.opened(0, Ok((member(5), paths.info().clone()))));
    paths.reinstate(0, NOW);
    fences.end(&paths, 0, Ok(()));
    assert_eq!(letters(&paths), "EAAAA", "its connection is not the one that was fenced");
    paths.add_late(0, member(5), LaneId(0), 0..8, true, NOW);
    assert_eq!(fences.count(), 2);
    fences.end(&paths, 0, Ok(()));
    assert_eq!(unproved(), 1, "it was the first one");
    fences.end(&paths, 1, Ok(()));
    assert_eq!(unproved(), 0);
}

#[test]
fn a_path_takes_no_requests_while_its_fence_runs() {
    let fences = Fencing::default();
    let paths = device_of(TWO_GROUPS, Failback::Manual, Box::new(fences.clone()));
    let usable = || -> Vec<usize> {
        let view = paths.view();
        view.usable.iter().chain(&view.others).map(|usable| usable.path).collect()
    };
    assert_eq!(usable(), [0, 1, 2]);
    paths.add_late(0, MemberId { index: 0, generation: 0 }, LaneId(0), 0..8, true, NOW);
    assert_eq!(usable(), [1, 2], "though it has not failed");
    fences.end(&paths, 0, Err("the command failed".into()));
    assert_eq!(usable(), [1, 2, 0]);
    paths.begin_fence(0, NOW);
    fences.end(&paths, 1, Ok(()));
    assert_eq!(usable(), [1, 2], "it is to be connected anew");
}

/// It would end what the next device does over the same path. That one asks for its own.
#[test]
fn a_device_that_is_closed_asks_for_no_fence() {
    let fences = Fencing::default();
    let paths = device_of(TWO_GROUPS, Failback::Manual, Box::new(fences.clone()));
    paths.close();
    paths.add_late(0, MemberId { index: 0, generation: 0 }, LaneId(0), 0..8, true, NOW);
    paths.begin_fence(0, NOW);
    assert_eq!(fences.count(), 0);
}

/// Without a host that can fence, nothing changes.
#[test]
fn a_path_without_a_fence_serves_on_beside_its_late_writes() {
    let paths = device(TWO_GROUPS, Failback::Manual);
    paths.add_late(0, MemberId { index: 0, generation: 0 }, LaneId(0), 0..8, false, NOW);
    assert_eq!(letters(&paths), "AAEAA");
}

/// No answer to another lane proves anything of them, and none over a connection that is lost.
#[test]
fn late_writes_are_proved_by_their_own_answer_and_that_is_told_once() {
    let paths = device(TWO_GROUPS, Failback::Manual);
    let member = MemberId { index: 0, generation: 0 };
    let proved = |event: &PathEvent| event.event == "LateWritesProved";
    let told = || paths.events_after(0).into_iter().filter(proved).count();
    let late = || paths.owner.lock().late.iter().count();
    paths.add_late(0, member, LaneId(0), 0..8, false, NOW);
    for (lane, left, times) in [(LaneId(1), 1, 0), (LaneId(0), 0, 1), (LaneId(0), 0, 1)] {
        paths.settle_late(member, lane, false, NOW);
        assert_eq!((late(), told()), (left, times), "{lane:?}");
    }
    paths.add_late(0, member, LaneId(0), 0..8, true, NOW);
    paths.settle_late(member, LaneId(0), false, NOW);
    assert_eq!((late(), told()), (1, 1), "its connection is lost");
}

#[test]
fn a_path_that_joins_while_it_is_fenced_needs_another_connection() {
    let fences = Fencing::default();
    let paths = device_of(TWO_GROUPS, Failback::Manual, Box::new(fences.clone()));
    paths.owner.lock().paths[0].health = Health::Joining;
    paths.recall(0, std::iter::once(0..8).collect());
    paths.begin_fence(0, NOW);
    fences.end(&paths, 0, Ok(()));
    let owner = paths.owner.lock();
    assert!(owner.paths[0].lost && owner.paths[0].health == Health::Failed);
}

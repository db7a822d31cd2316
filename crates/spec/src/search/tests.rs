use super::{By, Model, Steps, search};

/// Counts to a number by ones and twos. What it counts past is wrong; what it ends at may wait.
struct Counter {
    to: u8,
    wrong: Option<u8>,
    waits: Option<u8>,
    by: By,
}

impl Model for Counter {
    type State = u8;

    fn start(&self) -> u8 {
        0
    }

    fn steps(&self, state: &u8, steps: &mut Steps<u8>) {
        for more in [1, 2] {
            if state + more <= self.to {
                steps.add(self.by, || format!("add {more}"), Ok(state + more));
            }
        }
    }

    fn wrong(&self, state: &u8) -> Option<String> {
        (self.wrong == Some(*state)).then(|| format!("{state}"))
    }

    fn is_quiet(&self, state: &u8) -> bool {
        self.waits.is_none_or(|waits| *state > waits)
    }
}

const COUNTER: Counter = Counter { to: 9, wrong: None, waits: None, by: By::Array };

#[test]
fn every_state_is_seen_once() {
    let found = search(&COUNTER);
    assert!(found.violation.is_none());
    assert_eq!((found.states, found.depth), (10, 5));
}

#[test]
fn the_shortest_way_to_what_is_wrong_is_told() {
    let violation = search(&Counter { wrong: Some(4), ..COUNTER }).violation.expect("4 is wrong");
    assert_eq!((violation.what.as_str(), violation.trace.len()), ("4", 2));
    assert_eq!(violation.trace, ["add 2", "add 2"]);
}

#[test]
fn a_request_that_only_the_world_can_end_waits_for_ever() {
    assert!(search(&Counter { waits: Some(8), ..COUNTER }).violation.is_none());
    let world = search(&Counter { waits: Some(8), by: By::World, ..COUNTER }).violation;
    assert!(world.expect("nothing ends it").trace.is_empty());
    let never = search(&Counter { waits: Some(9), ..COUNTER }).violation;
    assert_eq!(never.expect("it ends at 9").what, "a request waits for ever");
}

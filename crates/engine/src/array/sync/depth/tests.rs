use super::*;

/// Members that serve so many pieces side by side, each in the same time.
struct Members {
    side_by_side: u64,
    service: Duration,
    now: Time,
    ends: std::collections::BinaryHeap<std::cmp::Reverse<(Time, Time)>>,
    served: Vec<Time>,
}

impl Members {
    fn new(side_by_side: u64, service: Duration) -> Self {
        let (now, ends) = (Time::from_nanos(1), Default::default());
        Self { side_by_side, service, now, ends, served: vec![now; side_by_side as usize] }
    }

    /// Keeps as much in flight as `depth` says until `span` is over; gives sectors a second.
    fn run(&mut self, depth: &mut Depth, span: Duration) -> f64 {
        let (end, began) = (self.now + span, self.now);
        let mut sectors = 0;
        while self.now < end {
            while (self.ends.len() as u64) < depth.pieces() {
                let server = self.served.iter_mut().min().expect("there is one");
                *server = (*server).max(self.now) + self.service;
                self.ends.push(std::cmp::Reverse((*server, self.now)));
            }
            let std::cmp::Reverse((when, since)) = self.ends.pop().expect("just filled");
            self.now = when;
            sectors += PIECE_SECTORS;
            depth.ended(when, PIECE_SECTORS, when.since(since));
        }
        assert!(self.ends.len() as u64 <= MOST.max(self.side_by_side));
        sectors as f64 / self.now.since(began).as_secs_f64()
    }
}

const MOMENT: Duration = Duration::from_millis(100);
const PIECE_TAKES: Duration = Duration::from_micros(100);

#[test]
fn it_grows_as_long_as_that_brings_speed_and_no_further() {
    for side_by_side in [1, 2, 5, 8, 16, 40] {
        let (mut depth, mut members) = (Depth::default(), Members::new(side_by_side, PIECE_TAKES));
        members.run(&mut depth, MOMENT);
        let best = side_by_side as f64 * PIECE_SECTORS as f64 / PIECE_TAKES.as_secs_f64();
        let speed = members.run(&mut depth, MOMENT);
        assert!(speed >= 0.9 * best, "{side_by_side} side by side: {speed} of {best}");
        let pieces = depth.pieces();
        assert!(pieces >= side_by_side && pieces <= (4 * side_by_side).max(2 * FIRST), "{pieces}");
    }
}

#[test]
fn it_shrinks_when_responses_grow_and_speed_does_not() {
    let (mut depth, mut members) = (Depth::default(), Members::new(16, PIECE_TAKES));
    members.run(&mut depth, MOMENT);
    let before = depth.pieces();
    assert!(before >= 16, "{before}");
    // Others take most of the members.
    let mut slow = Members::new(2, PIECE_TAKES);
    slow.now = members.now;
    slow.served.fill(members.now);
    slow.run(&mut depth, MOMENT);
    assert!(depth.pieces() <= before / 2, "{} after {before}", depth.pieces());
    // They are gone.
    members.now = slow.now;
    members.ends.clear();
    members.served.fill(slow.now);
    members.run(&mut depth, 4 * MOMENT);
    assert!(depth.pieces() >= 16, "{}", depth.pieces());
}

#[test]
fn what_a_spoiled_measurement_has_deepened_does_not_stay() {
    for (side_by_side, most) in [(4, 8), (64, MOST)] {
        let mut members = Members::new(side_by_side, PIECE_TAKES);
        let mut depth = Depth { pieces: MOST, rest: REST, ..Depth::default() };
        members.run(&mut depth, 30 * MOMENT);
        let found = depth.pieces();
        assert!(found >= side_by_side && found <= most, "{found} for {side_by_side}");
    }
}

#[test]
fn nothing_is_learned_on_a_clock_that_stands() {
    let mut depth = Depth::default();
    (0..10_000).for_each(|_| depth.ended(Time::from_nanos(1), PIECE_SECTORS, Duration::ZERO));
    assert_eq!(depth.pieces(), FIRST);
}

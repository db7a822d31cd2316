//! Choices between places whose times are those of a small model: so many servers, so long each.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::*;

const MICROSECOND: u64 = 1000;

/// A device: I/Os wait for one of its servers.
struct Device {
    servers: usize,
    nanos: u64,
    free_at: BinaryHeap<Reverse<u64>>,
}

impl Device {
    fn new(servers: usize, micros: u64) -> Self {
        Self { servers, nanos: micros * MICROSECOND, free_at: BinaryHeap::new() }
    }

    /// When an I/O ends that arrives now. `noise` is 0 to 1.
    fn end(&mut self, now: u64, noise: f64) -> u64 {
        let free = match self.free_at.len() < self.servers {
            true => now,
            false => self.free_at.pop().map_or(now, |Reverse(free)| free.max(now)),
        };
        let end = free + (self.nanos as f64 * (0.5 + noise)) as u64;
        self.free_at.push(Reverse(end));
        end
    }

    /// I/Os a second that it can bear.
    fn limit(&self) -> f64 {
        self.servers as f64 * 1e9 / self.nanos as f64
    }
}

/// How a place is chosen.
type Policy = fn(&LaneGauges, usize, u64) -> usize;

fn expected(lane: &LaneGauges, places: usize, now: u64) -> usize {
    // The first one wins a tie: whoever chooses lets another one be the first each time.
    let first = now as usize / 16;
    let candidates = (0..places).map(|place| ((first + place) % places, Work::of(4096)));
    lane.first_to_end(candidates, || Time::from_nanos(now)).unwrap()
}

fn fewest_pending(lane: &LaneGauges, places: usize, _: u64) -> usize {
    (0..places).min_by_key(|&place| lane.of(place).in_flight()).unwrap()
}

/// So many I/Os always under way.
struct Loop {
    gauges: Gauges,
    devices: Vec<Device>,
    policy: Policy,
    under_way: BinaryHeap<Reverse<(u64, u64)>>,
    started: Vec<(usize, Started)>,
    now: u64,
    noise: u64,
    /// Ends of each place.
    ended: Vec<u64>,
}

impl Loop {
    fn new(devices: Vec<Device>, policy: Policy, depth: usize) -> Self {
        let (gauges, ended) = (Gauges::new(1, devices.len()), vec![0; devices.len()]);
        let (under_way, started) = Default::default();
        let mut this =
            Self { gauges, devices, policy, under_way, started, now: 1, noise: 7, ended };
        (0..depth).for_each(|_| this.start());
        this
    }

    fn start(&mut self) {
        self.noise = self.noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let noise = (self.noise >> 40) as f64 / (1u64 << 24) as f64;
        let lane = self.gauges.of_lane(0);
        let place = (self.policy)(lane, self.devices.len(), self.now);
        let now = Time::from_nanos(self.now);
        let started = lane.begin(place, 1, Work::of(4096), 4096, || now);
        let end = self.devices[place].end(self.now, noise);
        self.under_way.push(Reverse((end, self.started.len() as u64)));
        self.started.push((place, started));
    }

    /// Runs for a span; gives the I/Os a second that ended in each place.
    fn run(&mut self, micros: u64) -> Vec<f64> {
        self.ended.fill(0);
        let until = self.now + micros * MICROSECOND;
        while self.now < until {
            let Reverse((end, number)) = self.under_way.pop().unwrap();
            self.now = end;
            let (place, started) = self.started[number as usize];
            let now = Time::from_nanos(end);
            self.gauges.of_lane(0).end(place, started, true, || now);
            self.ended[place] += 1;
            self.start();
        }
        self.ended.iter().map(|&count| count as f64 * 1e6 / micros as f64).collect()
    }
}

/// A drive on NVMe and one on SATA, as `null:nvme` and `null:sata-ssd` are.
fn unequal() -> Vec<Device> {
    vec![Device::new(8, 110), Device::new(77, 92)]
}

#[test]
fn unequal_places_give_together_what_each_could_alone() {
    let limit: f64 = unequal().iter().map(Device::limit).sum();
    for depth in [128, 256] {
        let mut all = Loop::new(unequal(), expected, depth);
        all.run(20_000);
        let got: f64 = all.run(100_000).iter().sum();
        assert!(got >= 0.98 * limit, "depth {depth}: {got} of {limit}");
    }
}

/// The negative control of the test above: the count of I/Os alone does not know who is fast.
#[test]
fn fewest_pending_alone_leaves_the_faster_place_idle() {
    let limit: f64 = unequal().iter().map(Device::limit).sum();
    let mut all = Loop::new(unequal(), fewest_pending, 128);
    all.run(20_000);
    let got: f64 = all.run(100_000).iter().sum();
    assert!(got < 0.95 * limit, "{got} of {limit}");
}

#[test]
fn equal_places_share_equally() {
    // With three there is always one more in one place than in the other, and neither is slower.
    for (depth, share_wanted) in
        [(2, 0.45..0.55), (3, 0.3..0.7), (8, 0.4..0.6), (64, 0.45..0.55), (200, 0.45..0.55)]
    {
        let devices = vec![Device::new(16, 100), Device::new(16, 100)];
        let mut all = Loop::new(devices, expected, depth);
        all.run(20_000);
        let got = all.run(200_000);
        let share = got[0] / (got[0] + got[1]);
        assert!(share_wanted.contains(&share), "depth {depth}: share {share}");
    }
}

#[test]
fn one_at_a_time_goes_to_the_quicker_place() {
    let devices = vec![Device::new(16, 300), Device::new(16, 100)];
    let mut all = Loop::new(devices, expected, 1);
    all.run(20_000);
    let got = all.run(1_000_000);
    assert!(got[0] < 0.01 * got[1], "{got:?}");
}

#[test]
fn a_place_that_gets_slow_is_relieved_within_a_tenth_of_a_second_and_tried_again_later() {
    for (depth, micros) in [(1, 100), (4, 100), (64, 100), (1, 5000), (4, 5000)] {
        let devices = vec![Device::new(16, micros), Device::new(16, micros)];
        let mut all = Loop::new(devices, expected, depth);
        all.run(1_000_000);
        all.devices[0].nanos *= 50;
        all.run(100_000.max(60 * micros));
        let slow = all.run(1_000_000.max(4000 * micros));
        // What two such drives would be given by turns is a half.
        assert!(slow[0] < 0.08 * slow[1], "depth {depth}, {micros} us: {slow:?}");
        assert!(slow[0] > 0.0, "it is tried again");
        assert!(all.gauges.load(0, 1).limps, "depth {depth}, {micros} us");
        assert!(!all.gauges.load(1, 1).limps);
        all.devices[0].nanos /= 50;
        all.run(60_000_000);
        let well = all.run(1_000_000);
        assert!(well[0] > 0.2 * well[1], "depth {depth}, {micros} us: {well:?}");
        assert!(!all.gauges.load(0, 1).limps);
    }
}

#[test]
fn a_load_that_begins_grows_or_ends_makes_no_place_limp() {
    for depths in [[1, 64], [64, 1], [1, 512], [512, 1]] {
        let devices = vec![Device::new(4, 400), Device::new(4, 100)];
        let mut all = Loop::new(devices, expected, depths[0]);
        all.run(1_000_000);
        for _ in depths[0]..depths[1] {
            all.start();
        }
        for _ in depths[1]..depths[0] {
            let Reverse((end, number)) = all.under_way.pop().unwrap();
            let (place, started) = all.started[number as usize];
            all.gauges.of_lane(0).end(place, started, true, || Time::from_nanos(end));
        }
        for _ in 0..50 {
            all.run(2_000);
            for place in 0..2 {
                assert!(!all.gauges.load(place, 1).limps, "{depths:?}, place {place}");
            }
        }
    }
}

#[test]
fn an_unknown_place_is_tried_first() {
    let gauges = Gauges::new(1, 2);
    let lane = gauges.of_lane(0);
    let clock = || Time::from_nanos(5_000_000);
    let started = lane.begin(0, 1, Work::of(4096), 4096, || Time::from_nanos(4_000_000));
    lane.end(0, started, true, clock);
    assert_eq!(expected(lane, 2, 5_000_000), 1);
}

#[test]
fn another_device_in_the_same_place_begins_anew_and_late_ends_do_not_count() {
    let gauges = Gauges::new(1, 1);
    let lane = gauges.of_lane(0);
    let clock = || Time::from_nanos(1);
    let old = lane.begin(0, 1, Work::of(4096), 4096, clock);
    let new = lane.begin(0, 2, Work::of(4096), 4096, clock);
    lane.end(0, old, false, clock);
    assert_eq!(
        gauges.load(0, 2),
        Load { reads: 1, read_bytes: 4096, pending: 1, ..Load::default() }
    );
    lane.end(0, new, false, clock);
    assert_eq!((gauges.load(0, 2).pending, gauges.load(0, 2).errors), (0, 1));
    assert_eq!(gauges.load(0, 1), Load::default());
}

#[test]
fn lanes_are_summed_by_whoever_asks() {
    let gauges = Gauges::new(2, 1);
    let clock = || Time::from_nanos(1);
    for lane in 0..2 {
        gauges.of_lane(lane).begin(0, 1, Work::of(512), 512, clock);
        gauges.of_lane(lane).of(0).write_begins(1);
    }
    let load = gauges.load(0, 1);
    assert_eq!((load.reads, load.read_bytes, load.writes, load.pending), (2, 1024, 2, 4));
}

#[test]
fn what_is_quick_is_measured_now_and_then_only() {
    let gauges = Gauges::new(1, 1);
    let lane = gauges.of_lane(0);
    let asked = std::cell::Cell::new(0);
    let clock = || {
        asked.set(asked.get() + 1);
        Time::from_nanos(1)
    };
    for _ in 0..1600 {
        let started = lane.begin(0, 1, Work::of(4096), 4096, clock);
        lane.end(0, started, true, clock);
    }
    assert!(asked.get() <= 2 * (1600 / QUICK_EVERY + LIMP_MEASUREMENTS), "{}", asked.get());
}

#[test]
fn a_streak_counts_sectors_in_a_row() {
    let gauge = Gauge::default();
    for (sector, streak) in [(100, 8), (108, 16), (116, 24), (300, 8)] {
        gauge.move_head(sector, 8);
        assert_eq!((gauge.streak(), gauge.head()), (streak, sector + 8));
    }
}

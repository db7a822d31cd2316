use super::*;
use crate::backend::MemberId;

fn usable(count: usize) -> Vec<Usable> {
    let one = |path: usize| Usable {
        path,
        member: MemberId { index: path as u16, generation: 1 },
        remote: false,
        relative_throughput: 1,
        lanes: 1 << path,
    };
    (0..count).map(one).collect()
}

/// An I/O under way: its path, its bytes, and its time where the selector wants it.
type Begun = (usize, u64, Option<Began>);

/// A lane with a clock of its own, and I/Os that end when told to.
struct Bench {
    selector: Selector,
    usable: Vec<Usable>,
    counters: LaneCounters,
    chooser: Chooser,
    now: Cell<u64>,
}

impl Bench {
    fn new(name: &str, args: &[u32], count: usize) -> Self {
        Self {
            selector: Selector::new(name, args).unwrap(),
            usable: usable(count),
            counters: LaneCounters::new(count),
            chooser: Chooser::new(LaneId(1), count),
            now: Cell::new(2_000_000_000),
        }
    }

    fn clock(&self) -> Time {
        Time::from_nanos(self.now.get())
    }

    fn begin(&self, bytes: u64) -> (usize, Begun) {
        let clock = || self.clock();
        let at = self.chooser.choose(self.selector, &self.usable, &self.counters, bytes, clock);
        let path = self.usable[at].path;
        self.chooser.begin(path, bytes, &self.counters);
        (path, (path, bytes, self.chooser.begin_timed(self.selector, path, bytes, clock)))
    }

    fn end(&self, (path, bytes, began): Begun, after_nanos: u64) {
        self.now.set(self.now.get() + after_nanos);
        self.chooser.end(path, bytes, &self.counters);
        if let Some(began) = began {
            self.chooser.end_timed(path, began, true, &self.counters, || self.clock());
        }
    }

    /// Which paths take so many I/Os that all stay under way.
    fn chosen(&self, count: usize, bytes: u64) -> Vec<usize> {
        (0..count).map(|_| self.begin(bytes).0).collect()
    }
}

#[test]
fn round_robin_takes_turns() {
    let bench = Bench::new("round-robin", &[], 3);
    assert_eq!(bench.chosen(7, 4096), [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn queue_length_takes_the_shortest_and_lets_ties_take_turns() {
    let bench = Bench::new("queue-length", &[], 3);
    let (path, first) = bench.begin(4096);
    assert_eq!((path, bench.chosen(2, 4096)), (0, vec![1, 2]));
    bench.end(first, 0);
    assert_eq!(bench.chosen(4, 4096), [0, 1, 2, 0]);
}

#[test]
fn service_time_shares_bytes_by_throughput() {
    let mut bench = Bench::new("service-time", &[], 3);
    bench.usable[0].relative_throughput = 3;
    bench.usable[2].relative_throughput = 0;
    let chosen = bench.chosen(40, 4096);
    let share = |path: usize| chosen.iter().filter(|&&chosen| chosen == path).count();
    assert_eq!((share(0), share(1), share(2)), (30, 10, 0));
    // Large ones count for more.
    let bench = Bench::new("service-time", &[], 2);
    assert_eq!(bench.chosen(1, 1 << 20), [0]);
    assert_eq!(bench.chosen(5, 4096), [1; 5]);
    // Without share only where no other is left.
    let mut bench = Bench::new("service-time", &[], 1);
    bench.usable[0].relative_throughput = 0;
    assert_eq!(bench.chosen(2, 4096), [0, 0]);
}

#[test]
fn historical_service_time_learns_who_is_slow() {
    for name in ["historical-service-time", "expected"] {
        let bench = Bench::new(name, &[], 2);
        let mut taken = [0, 0];
        for round in 0..400 {
            let (path, counted) = bench.begin(4096);
            if round >= 100 {
                taken[path] += 1;
            }
            bench.end(counted, [20_000, 400_000][path]);
        }
        assert!(taken[0] > 270, "{name}: {taken:?}");
    }
}

#[test]
fn paths_within_the_threshold_share_by_queue() {
    let bench = Bench::new("historical-service-time", &[0, 10], 2);
    for path in [0, 1] {
        bench.counters.paths[path].service_nanos.set([100, 900][path]);
        bench.counters.paths[path].measured_nanos.set(bench.now.get());
    }
    assert_eq!(bench.chosen(4, 4096), [0, 1, 0, 1]);
    bench.counters.paths[1].service_nanos.set(90_000);
    assert_eq!(bench.chosen(4, 4096), [0; 4], "beyond it the slow one gets none");
}

#[test]
fn io_affinity_keeps_a_lane_on_its_path() {
    let mut bench = Bench::new("io-affinity", &[], 3);
    assert_eq!(bench.chosen(3, 4096), [1, 1, 1], "lane 1 has path 1");
    bench.usable.remove(1);
    assert_eq!(
        bench.chosen(4, 4096),
        [0, 2, 0, 2],
        "without its path it lets the others take turns"
    );
    bench.usable[0].lanes = 1 << 1 | 1 << 2;
    bench.usable[1].lanes = 1 << 1;
    assert_eq!(bench.chosen(4, 4096), [0, 2, 0, 2], "two paths of its own take turns");
}

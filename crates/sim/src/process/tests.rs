//! A mirror whose members answer at different and changing times, read on the simulated clock.

use std::time::Duration;

use mdspace_engine::balance::Load;

use super::*;
use crate::disk::Latency;
use crate::random::Random;
use crate::settings::{Settings, Trouble};
use crate::trace::Trace;

/// A user who always has so many reads of 4 KiB under way.
struct Reader {
    world: Rc<World>,
    process: Process,
    disks: Vec<DiskIndex>,
    depth: u64,
    begun: u64,
    ended: u64,
    random: Random,
}

impl Reader {
    /// Over two members that take about so long.
    fn new(micros: [u64; 2], depth: u64, policy: &str) -> Self {
        let mut settings = Settings::draw(1, Some(1), Trouble::Bearable);
        (settings.slots, settings.spares, settings.assume_clean) = (2, 0, true);
        settings.flags.clear();
        settings.disks.truncate(2);
        for (disk, micros) in settings.disks.iter_mut().zip(micros) {
            let micros = Duration::from_micros(micros);
            let latency = Latency { least: micros / 2, spread: micros, ..Latency::default() };
            disk.latency = Latency { tail_one_in: 0, ..latency };
            (disk.instant_one_in, disk.rotational) = (0, false);
        }
        let mut random = Random::new(7);
        let world = World::new(random.fork(), Trace::default());
        let disks: Vec<_> =
            settings.disks.iter().map(|disk| world.add_disk(disk.clone())).collect();
        create(&world, &settings, &disks);
        let tuning = [("read_policy", policy), ("read_deadline", "0")];
        let process = Process::start(&world, &disks, 1, 0, (&settings.options(), &tuning), 0);
        let process = process.unwrap_or_else(|error| panic!("{error}"));
        Self { world, process, disks, depth, begun: 0, ended: 0, random }
    }

    /// Reads for so long; gives the reads that each member got meanwhile.
    fn read_for(&mut self, span: Duration) -> [u64; 2] {
        let before = self.loads().map(|load| load.reads);
        let until = self.world.now() + span;
        self.world.set_alarm(until, 0);
        while self.world.now() < until {
            while self.begun - self.ended < self.depth {
                self.begin();
            }
            self.world.step();
            while self.process.pop().is_some() {
                self.ended += 1;
            }
        }
        let after = self.loads().map(|load| load.reads);
        [after[0] - before[0], after[1] - before[1]]
    }

    fn begin(&mut self) {
        let blocks = self.process.sectors() / 8;
        let sector = self.random.below(blocks) * 8;
        let into = Rc::new(RefCell::new(vec![0; 4096]));
        self.process.submit(0, self.begun, Request::Read { sector, into });
        self.begun += 1;
    }

    fn loads(&self) -> [Load; 2] {
        let answer = self.process.command(Action::Status);
        let mut status = None;
        self.world.run_until(|| {
            status = status.take().or_else(|| answer.take());
            status.is_some()
        });
        let Some(Ok(Reply::Status(status))) = status else { panic!("no status: {status:?}") };
        [0, 1].map(|slot| {
            let member = status.member_at(slot).expect("both are there");
            member.load.expect("a mirror's member")
        })
    }

    fn slow_down(&self, times: Option<u32>) {
        self.world.change_disk(self.disks[0], |disk| disk.faults.slowness = times);
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_member_that_limps_is_relieved_within_a_tenth_of_a_second_and_tried_again_later() {
    for depth in [1, 4, 16] {
        let mut reader = Reader::new([100, 100], depth, "expected");
        let well = reader.read_for(SECOND);
        assert!(well[0] > well[1] / 4, "depth {depth}: {well:?}");
        reader.slow_down(Some(30));
        reader.read_for(SECOND / 10);
        let limping = reader.read_for(SECOND);
        assert!(limping[0] * 20 < limping[1], "depth {depth}: {limping:?}");
        assert!(limping[0] > 0, "depth {depth}: it is tried again");
        assert_eq!(reader.loads().map(|load| load.limps), [true, false], "depth {depth}");
        reader.slow_down(None);
        reader.read_for(4 * SECOND);
        let again = reader.read_for(SECOND);
        // Deep queues on devices that never wait find no reason to give it more.
        assert!(again[0] > again[1] / 30, "depth {depth}: {again:?}");
        assert_eq!(reader.loads().map(|load| load.limps), [false, false], "depth {depth}");
    }
}

/// The negative control: who knows nothing of time goes on asking the member that limps.
#[test]
fn by_the_first_readable_member_a_limping_one_is_not_relieved() {
    let mut reader = Reader::new([100, 100], 4, "first");
    reader.slow_down(Some(30));
    reader.read_for(SECOND / 10);
    let reads = reader.read_for(SECOND);
    assert!(reads[0] > 0 && reads[1] == 0, "{reads:?}");
}

#[test]
fn unequal_members_get_what_each_can_bear() {
    let reads = |policy| {
        let mut reader = Reader::new([1000, 50], 16, policy);
        reader.read_for(SECOND / 10);
        reader.read_for(SECOND).iter().sum::<u64>()
    };
    let [first, md, expected] = ["first", "md", "expected"].map(reads);
    assert!(expected as f64 >= 1.5 * md as f64 && md > first, "{expected}, {md}, {first}");
    // The quick one alone: 16 reads every 50 us.
    assert!(expected as f64 >= 0.98 * 16.0 * 20_000.0, "{expected}");
}

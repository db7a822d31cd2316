//! Everything that can be changed while an array runs is changed, while users write and members come and
//! go.

use mdspace_engine::array::{Action, CommandError, Undecided};
use mdspace_engine::status::MemberState;

use crate::shapes::{self, Shape};
use crate::world::{Setup, Worker, World};

/// Keys with values between which they go to and fro.
const KEYS: &[(&str, &[&str])] = &[
    ("stripe_cache_size", &["17", "64", "256", "4096"]),
    ("group_thread_cnt", &["0", "1", "2"]),
    ("max_stripe_batch", &["1", "8", "32"]),
    ("rmw_level", &["0", "1", "2"]),
    ("sync_io_depth", &["0", "1", "7", "64"]),
    ("sync_speed_max", &["none", "100000", "60000"]),
    ("sync_cache_share", &["1", "25", "100"]),
    ("sync_latency_target", &["0", "1", "2"]),
];

struct Churn {
    world: World,
    hired: Vec<Option<Worker>>,
    /// Rebuilds, checks and repairs that were begun, and members that failed.
    seen: [usize; 2],
}

impl Churn {
    fn turn_a_key(&mut self) {
        let (key, values) = KEYS[self.world.random.below(KEYS.len() as u64) as usize];
        let value = values[self.world.random.below(values.len() as u64) as usize];
        if self.world.shape().has_parity() || key.starts_with("sync_") {
            self.world.set(key, value);
        }
    }

    fn hire_or_dismiss(&mut self) {
        if !self.world.shape().has_parity() {
            return;
        }
        let at = self.world.random.below(self.hired.len() as u64) as usize;
        match self.hired[at].take() {
            None => self.hired[at] = Some(self.world.hire(at)),
            Some(worker) => {
                self.world.dismiss(&worker);
                self.world.until("a worker that leaves", |world| world.has_left(&worker));
            }
        }
    }

    /// Fails a member of a whole array, or brings back one that failed.
    fn lose_or_bring_back(&mut self) {
        let disks = usize::from(self.world.shape().disks);
        let faulty = (0..disks).find(|disk| {
            matches!(self.world.member_state(*disk), Some(MemberState::Faulty) | None)
        });
        match faulty {
            Some(disk) => {
                if self.world.member_state(disk).is_some() {
                    self.world.remove(disk);
                }
                self.world.add(disk).unwrap();
                self.seen[0] += 1;
            }
            None if self.world.status().degraded() == 0 => {
                let disk = self.world.random.below(disks as u64) as usize;
                self.world.fail(disk);
                self.seen[1] += 1;
            }
            None => {}
        }
    }

    fn scrub(&mut self) {
        let action = match self.world.random.below(4) {
            0 => Action::Repair(Undecided::Leave),
            1 => Action::Idle,
            _ => Action::Check,
        };
        match self.world.command(action) {
            Ok(_) | Err(CommandError::Busy(_)) => {}
            Err(error) => panic!("a scrub: {error} ({})", self.world),
        }
    }

    fn step(&mut self) {
        match self.world.random.below(10) {
            0..3 => self.turn_a_key(),
            3 => self.hire_or_dismiss(),
            4..6 => self.lose_or_bring_back(),
            6 => self.scrub(),
            7 => self.world.verify(),
            _ => self.world.write_many(4),
        }
        let rounds = self.world.random.below(30) as usize;
        self.world.rounds(rounds);
    }
}

#[test]
fn nothing_is_lost_whatever_is_changed_while_members_come_and_go() {
    let larger = |shape: Shape| Shape { member_sectors: 2048, ..shape };
    let shapes = [shapes::RAID5, shapes::RAID6, shapes::RAID6.without_bitmap(), shapes::RAID10];
    let mut seen = [0, 0];
    for (seed, shape) in (1..).zip(shapes.into_iter().chain([shapes::RAID1]).map(larger)) {
        let setup = Setup { workers: 2, ..Setup::shuffled(shape, 5000 + seed) };
        let world = World::synced(setup);
        let mut churn = Churn { world, hired: vec![None, None], seen: [0, 0] };
        for _ in 0..150 {
            churn.step();
        }
        while churn.world.status().degraded() > 0 {
            churn.lose_or_bring_back();
            churn.world.wait_idle();
        }
        let mut world = churn.world;
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}");
        world.verify();
        for disk in 0..world.shape().can_lose() {
            world.fail(disk);
        }
        world.verify();
        seen = [seen[0] + churn.seen[0], seen[1] + churn.seen[1]];
    }
    assert!(seen.iter().all(|&times| times > 40), "too quiet: {seen:?} came back and failed");
}

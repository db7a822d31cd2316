use std::sync::Arc;
use std::time::Duration;

use mdspace_engine::lane::{LaneId, Turn};

use crate::lanes::{EventFd, LanesConfig, Term};

use super::Runner;

fn runner() -> Runner {
    let config = LanesConfig { spin: Duration::MAX, ..LanesConfig::default() };
    Runner::new(LaneId(0), &config, Arc::new(EventFd::new().unwrap()), Term::WithTheOthers).unwrap()
}

#[test]
fn an_idle_lane_makes_the_buffers_that_it_will_need() {
    let runner = runner();
    let stock = runner.io.stock();
    let _held = stock.allocate(4096);
    runner.idle(None, || false);
    assert!(stock.kept_bytes() > 0);
}

/// A worker has no I/O on a ring when its members are in memory: other lanes' wakes are all that it hears.
#[test]
fn a_lane_looks_for_work_anew_after_each_task_that_it_ran() {
    let runner = runner();
    assert!(matches!(runner.turn(), Turn::Idle(_)));
    runner.idle(None, || false);
    assert!(matches!(runner.turn(), Turn::Idle(_)));
    assert!(runner.idle_since.get().is_some(), "nothing has happened");
    runner.lane.spawn(async {});
    assert!(matches!(runner.turn(), Turn::Idle(_)));
    assert!(runner.idle_since.get().is_none(), "it has run a task");
}

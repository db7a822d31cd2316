//! A lane on the calling thread.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::rc::Rc;
use std::sync::Arc;

use mdspace_engine::lane::{Lane, LaneId, Turn};

use crate::lane_io::LaneIo;

use super::run::Runner;
use super::{EventFd, LanesConfig, Term};

/// A lane without a thread of its own, for short work: to examine members, to test. It runs only
/// inside [`run_until`](Self::run_until) and [`block_on`](Self::block_on).
pub struct LocalLane(Runner);

impl LocalLane {
    /// A lane of this thread; of `config` only members, way and spin count.
    pub fn new(config: &LanesConfig) -> io::Result<Self> {
        Runner::new(LaneId(0), config, Arc::new(EventFd::new()?), Term::WithTheOthers).map(Self)
    }

    /// The engine's side of it.
    pub fn lane(&self) -> &Rc<Lane> {
        &self.0.lane
    }

    /// The tasks' way to the world.
    pub fn io(&self) -> &LaneIo {
        &self.0.io
    }

    /// Runs the lane's tasks until `done`, asked whenever something may have changed.
    pub fn run_until(&self, done: impl Fn() -> bool) {
        loop {
            let turn = self.0.turn();
            if done() {
                return;
            }
            if let Turn::Idle(timer) = turn {
                self.0.idle(timer, || false);
            }
        }
    }

    /// Runs the lane until `task` has ended, and gives its value.
    pub fn block_on<T: 'static>(&self, task: impl Future<Output = T> + 'static) -> T {
        let value = Rc::new(Cell::new(None));
        let (theirs, ended) = (value.clone(), Rc::new(Cell::new(false)));
        let says_so = ended.clone();
        self.lane().spawn(async move {
            theirs.set(Some(task.await));
            says_so.set(true);
        });
        self.run_until(|| ended.get());
        value.take().expect("an ended task has a value")
    }
}

impl std::fmt::Debug for LocalLane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LocalLane")
    }
}

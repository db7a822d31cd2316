//! The life of a lane: take what has ended, let the tasks go on, submit, and sleep when there is
//! nothing to do.

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use mdspace_engine::backend::Backend;
use mdspace_engine::lane::{Lane, LaneId, Turn};
use mdspace_engine::time::Time;

use crate::driver::Driver;
use crate::lane_io::LaneIo;

use super::mailbox::Mailbox;
use super::{EventFd, LanesConfig, Term};

/// A lane and its driver, on the thread that made them.
pub(super) struct Runner {
    pub(super) lane: Rc<Lane>,
    pub(super) io: LaneIo,
    pub(super) driver: Rc<Driver>,
    spin: Duration,
    /// Since when no I/O has ended and no task has run.
    idle_since: Cell<Option<Time>>,
}

impl Runner {
    pub(super) fn new(
        id: LaneId,
        config: &LanesConfig,
        wake: Arc<EventFd>,
        term: Term,
    ) -> io::Result<Self> {
        let driver = Driver::new(config.io, config.members.clone(), wake.clone(), term)?;
        config.members.wake_on_news(&wake);
        let lane = Lane::new(id, driver.clone(), wake);
        driver.drive(&lane);
        let io = LaneIo::new(driver.clone());
        Ok(Self { lane, io, driver, spin: config.spin, idle_since: Cell::new(None) })
    }

    /// One time around. Idle: nothing to do before an I/O ends, a wake, or this time.
    pub(super) fn turn(&self) -> Turn {
        let ended = self.driver.advance(&self.lane);
        let turn = self.lane.turn();
        if ended > 0 || self.lane.has_run() {
            self.idle_since.set(None);
        }
        match turn {
            Turn::Idle(_) if self.driver.has_unsubmitted() => Turn::Busy,
            turn => turn,
        }
    }

    /// Makes the buffers that will be missed, looks again for a while, then sleeps, unless there is `news` of
    /// another kind than the lane's.
    pub(super) fn idle(&self, timer: Option<Time>, news: impl Fn() -> bool) {
        let now = self.driver.now();
        let since = self.idle_since.get().unwrap_or(now);
        self.idle_since.set(Some(since));
        if self.driver.stock().make_ahead() {
            return;
        }
        if now.since(since) < self.spin {
            return std::hint::spin_loop();
        }
        if !news() && self.lane.remote().try_sleep() {
            self.driver.sleep(timer);
            self.lane.remote().awake();
        }
        self.idle_since.set(None);
    }
}

thread_local! {
    static IS_LANE: Cell<bool> = const { Cell::new(false) };
}

/// Whether the calling thread is a lane's: it must wait for nothing that a lane does.
pub fn is_lane_thread() -> bool {
    IS_LANE.get()
}

/// The life of a lane's thread. Says how it ends.
pub(super) fn run(
    id: LaneId,
    term: Term,
    config: &LanesConfig,
    mailbox: &Mailbox,
    started: &Sender<io::Result<()>>,
) -> LaneEnd {
    IS_LANE.set(true);
    let runner = match Runner::new(id, config, mailbox.wake().clone(), term) {
        Ok(runner) => runner,
        Err(error) => {
            drop(started.send(Err(error)));
            return LaneEnd::Clear;
        }
    };
    drop(started.send(Ok(())));
    // Last in, first out: an unwinding lane would free memory that the kernel still fills.
    let _abort = AbortOnPanic;
    loop {
        for setup in mailbox.collect() {
            setup(&runner.lane, &runner.io);
            runner.idle_since.set(None);
        }
        let stopping = mailbox.stop_requested();
        if stopping {
            runner.driver.request_stop(&runner.lane);
        }
        let Turn::Idle(timer) = runner.turn() else { continue };
        let at_rest = runner.lane.task_count() == 0 && runner.driver.awaited_total() == 0;
        if stopping && at_rest {
            return match runner.driver.in_flight_total() {
                0 => LaneEnd::Clear,
                _ => LaneEnd::CallsLeft,
            };
        }
        // A letter that came after the last look may have had its wake taken back with an older one.
        runner.idle(timer, || mailbox.is_filled() || mailbox.stop_requested() != stopping);
    }
}

/// How a lane ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LaneEnd {
    /// Its thread ends with it.
    Clear,
    /// The kernel has calls that nobody waits for; the thread of a ring does not end before them.
    CallsLeft,
}

struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("a lane has panicked: its memory may still be in the kernel's hands");
            std::process::abort();
        }
    }
}

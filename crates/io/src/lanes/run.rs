//! The life of a lane's thread: take what has ended, let the tasks go on, submit, and sleep when
//! there is nothing to do.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use mdspace_engine::backend::Backend;
use mdspace_engine::lane::{Lane, LaneId, Turn};
use mdspace_engine::time::Time;

use crate::driver::Driver;
use crate::lane_io::LaneIo;

use super::LanesConfig;
use super::mailbox::Mailbox;

pub(super) fn run(
    id: LaneId,
    config: &LanesConfig,
    mailbox: Arc<Mailbox>,
    started: &Sender<io::Result<()>>,
) {
    let wake = mailbox.wake().clone();
    let driver = match Driver::new(config.io, config.members.clone(), wake.clone()) {
        Ok(driver) => driver,
        Err(error) => return drop(started.send(Err(error))),
    };
    config.members.wake_on_close(&wake);
    let lane = Lane::new(id, driver.clone(), wake);
    drop(started.send(Ok(())));
    let io = LaneIo::new(driver.clone());
    // Last in, first out: an unwinding lane would free memory that the kernel still fills.
    let _abort = AbortOnPanic;
    Loop { lane, io, driver, mailbox, config, idle_since: None }.run();
}

struct Loop<'a> {
    lane: Rc<Lane>,
    io: LaneIo,
    driver: Rc<Driver>,
    mailbox: Arc<Mailbox>,
    config: &'a LanesConfig,
    idle_since: Option<Time>,
}

impl Loop<'_> {
    fn run(&mut self) {
        loop {
            for setup in self.mailbox.collect() {
                setup(&self.lane, &self.io);
                self.idle_since = None;
            }
            let stopping = self.mailbox.stop_requested();
            if stopping {
                self.driver.request_stop();
            }
            if self.driver.advance(&self.lane) > 0 {
                self.idle_since = None;
            }
            let Turn::Idle(timer) = self.lane.turn() else { continue };
            if self.driver.has_unsubmitted() {
                continue;
            }
            if stopping && self.lane.task_count() == 0 && self.driver.in_flight_total() == 0 {
                return;
            }
            self.idle(timer, stopping);
        }
    }

    /// Looks again for a while, then sleeps.
    fn idle(&mut self, timer: Option<Time>, stopping: bool) {
        let now = self.driver.now();
        let since = *self.idle_since.get_or_insert(now);
        if now.since(since) < self.config.spin {
            std::hint::spin_loop();
            return;
        }
        // A letter that came after the last look may have had its wake taken back with an older one.
        let letters = self.mailbox.is_filled() || self.mailbox.stop_requested() != stopping;
        if !letters && self.lane.remote().try_sleep() {
            self.driver.sleep(timer);
            self.lane.remote().awake();
        }
        self.idle_since = None;
    }
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

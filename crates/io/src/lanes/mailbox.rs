//! What other threads may ask of a lane.

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mdspace_engine::lane::Lane;
use mdspace_engine::sync::Mutex;

use crate::lane_io::LaneIo;

use super::EventFd;

/// Something to run once on a lane.
pub(super) type Setup = Box<dyn FnOnce(&Rc<Lane>, &LaneIo) + Send>;

pub(super) struct Mailbox {
    /// `None` once the lane has ended.
    letters: Mutex<Option<Vec<Setup>>>,
    /// Whether a lane should look into `letters`.
    filled: AtomicBool,
    stop: AtomicBool,
    wake: Arc<EventFd>,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            letters: Mutex::new(Some(Vec::new())),
            filled: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            wake: Arc::new(EventFd::new()?),
        })
    }

    /// Gives the lane something to run. One that has ended drops it.
    pub(super) fn post(&self, setup: Setup) {
        match &mut *self.letters.lock() {
            Some(letters) => letters.push(setup),
            None => return,
        }
        self.filled.store(true, Ordering::Release);
        // The counter holds the wake until the lane sleeps, so none is slept through.
        self.wake.wake();
    }

    pub(super) fn request_stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake.wake();
    }

    /// What has been posted since the last look.
    pub(super) fn collect(&self) -> Vec<Setup> {
        if !self.filled.load(Ordering::Relaxed) {
            return Vec::new();
        }
        self.filled.store(false, Ordering::Relaxed);
        self.letters.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The lane has ended: drops what it did not run, and whatever is posted from now on.
    pub(super) fn close(&self) {
        let letters = self.letters.lock().take();
        // Outside the lock: what they hold may do something when it is dropped.
        drop(letters);
    }

    /// Whether something has been posted since the last look.
    pub(super) fn is_filled(&self) -> bool {
        self.filled.load(Ordering::Acquire)
    }

    pub(super) fn stop_requested(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    pub(super) fn wake(&self) -> &Arc<EventFd> {
        &self.wake
    }
}

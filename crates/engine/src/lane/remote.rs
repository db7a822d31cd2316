//! The side of a lane that other threads may touch: wakes, and the driver's sleep.

use std::sync::Arc;

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

use super::tasks::TaskSlot;

/// Wakes a lane's driver from its sleep: an eventfd in `io`, a mark in `sim`.
pub trait Notify: Send + Sync {
    /// Ends the driver's sleep, or its next one if it is awake.
    fn notify(&self);
}

/// Wakes for tasks of one lane, from any thread.
pub struct Remote {
    woken: Mutex<Vec<TaskSlot>>,
    pending: AtomicBool,
    sleeping: AtomicBool,
    notify: Arc<dyn Notify>,
}

impl Remote {
    pub(super) fn new(notify: Arc<dyn Notify>) -> Arc<Self> {
        Arc::new(Self {
            woken: Mutex::default(),
            pending: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            notify,
        })
    }

    pub(super) fn wake(&self, slot: TaskSlot) {
        self.woken.lock().push(slot);
        // `sleeping` is only ever exchanged, so each exchange sees all that came before the earlier
        // ones: either the driver sees `pending` and stays awake, or this sees it sleeping.
        self.pending.store(true, Ordering::Relaxed);
        if self.sleeping.swap(false, Ordering::AcqRel) {
            self.notify.notify();
        }
    }

    pub(super) fn drain(&self, mut wake: impl FnMut(TaskSlot)) {
        if !self.pending.load(Ordering::Relaxed) {
            return;
        }
        self.pending.store(false, Ordering::Relaxed);
        let woken = std::mem::take(&mut *self.woken.lock());
        woken.into_iter().for_each(&mut wake);
    }

    /// Says that the driver is about to sleep. False when a wake came meanwhile: turn again instead.
    pub fn try_sleep(&self) -> bool {
        self.sleeping.swap(true, Ordering::AcqRel);
        if self.pending.load(Ordering::Relaxed) {
            self.sleeping.swap(false, Ordering::AcqRel);
            return false;
        }
        true
    }

    /// Says that the driver is awake again.
    pub fn awake(&self) {
        self.sleeping.swap(false, Ordering::AcqRel);
    }
}

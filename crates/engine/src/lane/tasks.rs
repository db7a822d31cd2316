//! The tasks of one lane: futures in reusable slots and the queue of those that may go on.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Wake, Waker};

use super::remote::Remote;

pub(super) type Task = Pin<Box<dyn Future<Output = ()>>>;

/// Slot of a task on its lane.
pub(super) type TaskSlot = u32;

pub(super) struct Tasks {
    slots: Vec<Slot>,
    free: Vec<TaskSlot>,
    ready: VecDeque<TaskSlot>,
    remote: Arc<Remote>,
}

struct Slot {
    /// Empty while free, and while the task is being polled.
    task: Option<Task>,
    occupied: bool,
    queued: bool,
    /// Made once a slot, shared by all tasks that ever live in it.
    waker: Waker,
}

impl Tasks {
    pub(super) fn new(remote: Arc<Remote>) -> Self {
        Self { slots: Vec::new(), free: Vec::new(), ready: VecDeque::new(), remote }
    }

    pub(super) fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn add(&mut self, task: Task) {
        let slot = self.free.pop().unwrap_or_else(|| self.grow());
        let entry = &mut self.slots[slot as usize];
        entry.task = Some(task);
        entry.occupied = true;
        self.wake(slot);
    }

    fn grow(&mut self) -> TaskSlot {
        let slot = TaskSlot::try_from(self.slots.len()).expect("fewer than 2^32 tasks");
        let waker = Waker::from(Arc::new(RemoteWake { remote: self.remote.clone(), slot }));
        self.slots.push(Slot { task: None, occupied: false, queued: false, waker });
        slot
    }

    pub(super) fn wake(&mut self, slot: TaskSlot) {
        let entry = &mut self.slots[slot as usize];
        if entry.occupied && !entry.queued {
            entry.queued = true;
            self.ready.push_back(slot);
        }
    }

    pub(super) fn next_ready(&mut self) -> Option<(TaskSlot, Task, Waker)> {
        let slot = self.ready.pop_front()?;
        let entry = &mut self.slots[slot as usize];
        entry.queued = false;
        let task = entry.task.take().expect("a queued task is at rest");
        // Lent, not cloned: a clone would touch the reference count at every poll.
        let waker = std::mem::replace(&mut entry.waker, Waker::noop().clone());
        Some((slot, task, waker))
    }

    /// Takes every task out, and frees its slot.
    pub(super) fn take_all(&mut self) -> Vec<Task> {
        self.ready.clear();
        let mut tasks = Vec::new();
        for (slot, entry) in (0..).zip(&mut self.slots) {
            entry.queued = false;
            if std::mem::replace(&mut entry.occupied, false) {
                tasks.extend(entry.task.take());
                self.free.push(slot);
            }
        }
        tasks
    }

    /// Puts a polled task to rest, or frees its slot and hands it back to be dropped.
    pub(super) fn put_back(
        &mut self,
        slot: TaskSlot,
        task: Task,
        waker: Waker,
        ended: bool,
    ) -> Option<Task> {
        let entry = &mut self.slots[slot as usize];
        entry.waker = waker;
        if !ended {
            entry.task = Some(task);
            return None;
        }
        entry.occupied = false;
        if entry.queued {
            // Woken while it ended: take the stale wake out, or it would meet the slot's next task.
            entry.queued = false;
            self.ready.retain(|&queued| queued != slot);
        }
        self.free.push(slot);
        Some(task)
    }
}

struct RemoteWake {
    remote: Arc<Remote>,
    slot: TaskSlot,
}

impl Wake for RemoteWake {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        self.remote.wake(self.slot);
    }
}

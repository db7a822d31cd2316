//! The queues of a device, each on its lane.

use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mdspace_engine::lane::LaneId;

use crate::nbd::Exports;
use crate::partial_writes::PartialWrites;
use crate::volume::{Volume, VolumePart, heard, tell_lane};
use crate::wait::SharedWait;

use super::parameters::Shape;
use super::queue::Queue;
use super::request::Limits;
use super::ring::QueueRing;

/// Running queues. Dropping it gives the device up without waiting for them.
#[derive(Debug)]
pub(super) struct Server(Arc<Shared>);

/// What the queues of a device serve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) queues: u16,
    /// Entries of each.
    pub(super) depth: u16,
    pub(super) limits: Limits,
}

#[derive(Debug)]
struct Shared {
    exports: Exports,
    partial_writes: PartialWrites,
    terms: Terms,
    closing: AtomicBool,
    /// The task of each queue that takes requests, while it waits.
    waiting: Vec<SharedWait>,
    /// Why queues have ended that nobody closed.
    trouble: Mutex<Option<String>>,
    /// Queues that have requests, or may get some.
    serving: Mutex<usize>,
    queue_left: Condvar,
}

/// A queue's place; dropped when nothing of it is under way any more.
#[derive(Debug)]
pub(super) struct Presence {
    queue: u16,
    shared: Arc<Shared>,
}

/// What a volume's fronts need to know of it.
pub(super) fn shape_of<V: Volume>(exports: &Exports, volume: &V) -> io::Result<Shape> {
    let export = exports.as_slice()[0].clone();
    let said = tell_lane(volume, LaneId(0), move |part, _, _| {
        Shape::new(&export, part.unit_sectors(), part.discards())
    });
    let shape = heard(&said)?;
    let is_read_only = shape.is_read_only || exports.switch().is_on();
    Ok(Shape { is_read_only, ..shape })
}

impl Server {
    /// Gives the driver all entries of all queues of `device`, and serves them on the lanes of `volume`.
    pub(super) fn start<V: Volume>(
        exports: Exports,
        partial_writes: PartialWrites,
        terms: Terms,
        device: &Arc<File>,
        volume: &V,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            exports,
            partial_writes,
            terms,
            closing: AtomicBool::new(false),
            waiting: (0..terms.queues).map(|_| SharedWait::default()).collect(),
            trouble: Mutex::default(),
            serving: Mutex::new(0),
            queue_left: Condvar::new(),
        });
        // A device that is given up here ends the queues that have begun.
        let server = Self(shared);
        // What may fail does so before the driver has a queue: a device of which it has some cannot be taken over.
        let ring = |queue| {
            let ring = QueueRing::new(device.clone(), queue, terms.depth)?;
            let arrives = ring.news()?;
            Ok((device.clone(), ring, arrives))
        };
        let rings: Vec<_> = (0..terms.queues).map(ring).collect::<io::Result<_>>()?;
        let lanes: Vec<LaneId> = volume.lane_ids().collect();
        let start = |(queue, ring): (usize, (Arc<File>, QueueRing, OwnedFd))| {
            let presence = Presence::new(queue as u16, &server.0);
            let lane = lanes[queue % lanes.len()];
            tell_lane(volume, lane, move |part, lane, io| {
                Queue::start(lane, io, ring, part.clone(), presence)
            })
        };
        let said: Vec<_> = rings.into_iter().enumerate().map(start).collect();
        said.iter().try_for_each(|said| heard(said)?)?;
        Ok(server)
    }

    /// Why queues have ended that nobody closed.
    pub(super) fn trouble(&self) -> Option<String> {
        self.0.trouble().clone()
    }

    /// Ends all queues, and waits until what the kernel asked for has ended, but no longer than `patience`: true. What is
    /// not answered then the driver keeps for the next process. One who has more patience may ask again.
    pub(super) fn close(&self, patience: Duration) -> bool {
        self.0.close();
        let serving = self.0.serving();
        let waited = self.0.queue_left.wait_timeout_while(serving, patience, |left| *left > 0);
        let (left, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *left == 0
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Shared {
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn close(&self) {
        if !self.closing.swap(true, Ordering::AcqRel) {
            self.waiting.iter().for_each(SharedWait::wake);
        }
    }

    /// A panic on one lane leaves these as usable as they were.
    fn serving(&self) -> MutexGuard<'_, usize> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Presence {
    fn new(queue: u16, shared: &Arc<Shared>) -> Self {
        *shared.serving() += 1;
        Self { queue, shared: shared.clone() }
    }

    /// The number of the queue.
    pub(super) fn queue(&self) -> u16 {
        self.queue
    }

    pub(super) fn terms(&self) -> &Terms {
        &self.shared.terms
    }

    pub(super) fn partial_writes(&self) -> &PartialWrites {
        &self.shared.partial_writes
    }

    /// Notes what is read, in bytes.
    pub(super) fn note_read(&self, sector: u64, bytes: usize) {
        self.shared.exports.note_read(sector * 512..sector * 512 + bytes as u64);
    }

    /// Whether the queue takes no more requests.
    pub(super) fn is_over(&self) -> bool {
        self.shared.is_closing()
    }

    /// Ends the device's queues on every lane: the driver cannot be understood. Its requests wait for another process.
    pub(super) fn give_up(&self, why: &dyn fmt::Display) {
        let queue = self.queue;
        tracing::error!(%why, queue, "a ublk device is given up");
        self.shared.trouble().get_or_insert_with(|| why.to_string());
        self.shared.close();
    }

    /// Waits for `work`, but gives it up once the queue takes no more requests.
    pub(super) async fn unless_over<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.shared.waiting[usize::from(self.queue)].unless(|| self.is_over(), work).await
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        *self.shared.serving() -= 1;
        self.shared.queue_left.notify_all();
    }
}

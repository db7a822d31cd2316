//! Work of the embedding program on an array's lanes.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use mdspace_engine::array::ArrayLane;
use mdspace_engine::lane::Lane;
use mdspace_engine::memory::Sink;
use mdspace_engine::request::{Queue, Request};
use mdspace_io::LaneIo;

use crate::Error;
use crate::pieces::Bounds;

/// An array on one lane: requests begin and end on the calling thread. It never leaves its lane.
///
/// Each request is one of the engine, so its length is the memory that it takes. For requests without a copy, go below:
/// fill a [`payload`](LaneIo::payload) and [`submit`](ArrayLane::submit) it.
#[derive(Clone)]
pub struct Part {
    array: Rc<ArrayLane>,
    lane: Rc<Lane>,
    io: LaneIo,
    bounds: Bounds,
}

impl Part {
    pub(crate) fn new(array: &Rc<ArrayLane>, lane: &Rc<Lane>, io: &LaneIo, bounds: Bounds) -> Self {
        Self { array: array.clone(), lane: lane.clone(), io: io.clone(), bounds }
    }

    /// Reads a range.
    pub async fn read(&self, offset_bytes: u64, len_bytes: usize) -> Result<Vec<u8>, Error> {
        self.bounds.check(offset_bytes, len_bytes as u64)?;
        let into = self.io.payload(len_bytes);
        let sector = offset_bytes / 512;
        self.request(Request::Read { sector, into: into.clone() }).await?;
        Ok(into.to_vec())
    }

    /// Writes a range.
    pub async fn write(&self, offset_bytes: u64, bytes: &[u8]) -> Result<(), Error> {
        self.bounds.check(offset_bytes, bytes.len() as u64)?;
        let from = self.io.payload(bytes.len());
        from.put(0, bytes);
        self.request(Request::Write { sector: offset_bytes / 512, from, fua: false }).await
    }

    /// Makes durable what was answered before, on whatever lane.
    pub async fn flush(&self) -> Result<(), Error> {
        self.request(Request::Flush).await
    }

    /// Any request of the engine.
    pub async fn request(&self, request: Request) -> Result<(), Error> {
        let queue = Queue::new();
        self.array.submit(&queue, 0, request);
        queue.next().await.result.map_err(Error::from)
    }

    /// The engine's side of it, which takes requests with queues of one's own.
    pub fn array(&self) -> &Rc<ArrayLane> {
        &self.array
    }

    /// The lane, which runs tasks ([`Lane::spawn`]). A panic in a task of its own ends the process.
    pub fn lane(&self) -> &Rc<Lane> {
        &self.lane
    }

    /// Sockets and memory of the lane.
    pub fn io(&self) -> &LaneIo {
        &self.io
    }
}

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Part(lane {})", self.lane.id().0)
    }
}

/// A task of the embedding program. Its panic ends it, and not the lane: the engine owns what is under way.
pub(crate) struct Caught<T>(Option<Pin<Box<dyn Future<Output = T>>>>);

impl<T> Caught<T> {
    pub(crate) fn begin<Task>(begin: impl FnOnce() -> Task) -> Self
    where
        Task: Future<Output = T> + 'static,
    {
        Self(catch_unwind(AssertUnwindSafe(|| Box::pin(begin()) as Pin<Box<_>>)).ok())
    }
}

impl<T> Future for Caught<T> {
    type Output = Result<T, Error>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(task) = self.0.as_mut() else { return Poll::Ready(Err(Error::Panicked)) };
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context)));
        let Ok(polled) = polled else {
            self.end();
            return Poll::Ready(Err(Error::Panicked));
        };
        let value = ready!(polled);
        self.end();
        Poll::Ready(Ok(value))
    }
}

impl<T> Caught<T> {
    /// Drops the task, whatever its own drop does.
    fn end(&mut self) {
        let task = self.0.take();
        // What it panics with was told on stderr.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(task)));
    }
}

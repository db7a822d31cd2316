//! A mount that is served: its lanes, and the programs that have the file open.

use std::future::{Future, poll_fn};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::task::Poll;
use std::time::Duration;

use mdspace_io::Socket;

use crate::partial_writes::PartialWrites;
use crate::peer::describe_process;
use crate::volume::Volume;
use crate::wait::SharedWait;

use super::connection::Connection;
use super::mount::{Mount, MountError};
use super::ring::{self, Ring, Share};
use super::session::Session;

/// A running mount. Dropping it unmounts without a wait.
#[derive(Debug)]
pub struct FuseServer {
    mount: Mount,
    unmounted: Once,
    shared: Arc<Shared>,
}

/// Requests had not ended when patience ran out.
#[derive(Debug, thiserror::Error)]
#[error("requests of the mount {mount} have not ended")]
pub struct InUse {
    /// The directory.
    pub mount: String,
}

#[derive(Debug)]
struct Shared {
    session: Session,
    closing: AtomicBool,
    /// The receiving task of each lane, while it waits.
    waiting: Vec<SharedWait>,
    /// The kernel takes entries of rings.
    has_rings: AtomicBool,
    /// The task of each lane's ring, while it waits.
    at_ring: Vec<SharedWait>,
    partial_writes: PartialWrites,
    /// Lanes that serve the mount.
    serving: Mutex<usize>,
    lane_left: Condvar,
}

/// One lane's part in the mount; dropped when the lane serves it no more.
#[derive(Debug)]
pub(super) struct Presence {
    lane: usize,
    shared: Arc<Shared>,
}

impl FuseServer {
    /// Serves `session` at `mount` on all lanes of `volume`. All fronts of one volume have the same `partial_writes`.
    pub fn start<V: Volume>(
        mut mount: Mount,
        session: Session,
        partial_writes: PartialWrites,
        volume: &V,
    ) -> Result<FuseServer, MountError> {
        let lanes = volume.lane_count();
        let rings = rings(&session, lanes);
        let session = if rings.is_empty() { session.without_ring() } else { session };
        let devices = mount.take_devices(lanes)?;
        let shared = Arc::new(Shared {
            session,
            closing: AtomicBool::new(false),
            waiting: (0..lanes).map(|_| SharedWait::default()).collect(),
            has_rings: AtomicBool::new(false),
            at_ring: (0..lanes).map(|_| SharedWait::default()).collect(),
            partial_writes,
            serving: Mutex::new(lanes),
            lane_left: Condvar::new(),
        });
        let mut rings = rings.into_iter();
        for (id, device) in volume.lane_ids().zip(devices) {
            let presence = Presence { lane: id.0.into(), shared: shared.clone() };
            let ring = rings.next();
            volume.run_on(id, move |part, lane, io| {
                let ends = (Socket::polled(device), ring);
                Connection::start(lane, io, ends, part.clone(), presence);
            });
        }
        Ok(FuseServer { mount, unmounted: Once::new(), shared })
    }

    /// The mount.
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    fn directory(&self) -> &Path {
        self.mount.directory()
    }

    /// The file.
    pub fn path(&self) -> PathBuf {
        self.directory().join(&self.shared.session.file().name)
    }

    /// The processes that have the file open, as words for the user. This process is none of them.
    pub fn clients(&self) -> Vec<String> {
        let own = std::process::id();
        let mut processes = self.shared.session.processes();
        processes.retain(|&process| process != own);
        processes.sort_unstable();
        processes.dedup();
        processes.into_iter().map(describe_process).collect()
    }

    /// Unmounts, and waits until what programs asked for has ended, but no longer than `patience`. One who has
    /// more of it may ask again.
    pub fn close(&self, patience: Duration) -> Result<(), InUse> {
        self.end();
        let serving = self.shared.serving();
        let waited = self.shared.lane_left.wait_timeout_while(serving, patience, |left| *left > 0);
        let (left, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match *left {
            0 => Ok(()),
            _ => Err(InUse { mount: self.directory().display().to_string() }),
        }
    }
}

/// A ring for each lane; none where the kernel offers none, or not all can be made.
fn rings(session: &Session, lanes: usize) -> Vec<Ring> {
    if !session.takes_ring() || !ring::is_offered() {
        return Vec::new();
    }
    let rings: io::Result<Vec<Ring>> =
        (0..lanes).map(|lane| Ring::new(Share { lane, lanes })).collect();
    rings.unwrap_or_else(|error| {
        tracing::warn!(%error, "a mount is served without io_uring, slower");
        Vec::new()
    })
}

impl FuseServer {
    fn end(&self) {
        self.unmounted.call_once(|| self.mount.unmount());
        self.shared.close();
    }
}

impl Drop for FuseServer {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn close(&self) {
        if self.closing.swap(true, Ordering::AcqRel) {
            return;
        }
        self.waiting.iter().chain(&self.at_ring).for_each(SharedWait::wake);
    }

    /// A panic on one lane leaves the count as usable as it was.
    fn serving(&self) -> MutexGuard<'_, usize> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Presence {
    pub(super) fn session(&self) -> &Session {
        &self.shared.session
    }

    pub(super) fn partial_writes(&self) -> &PartialWrites {
        &self.shared.partial_writes
    }

    /// Whether the mount is being closed.
    pub(super) fn is_over(&self) -> bool {
        self.shared.is_closing()
    }

    /// Ends the mount on every lane: the kernel cannot be understood.
    pub(super) fn give_up(&self) {
        self.shared.close();
    }

    /// Says to every lane that the kernel takes entries of rings now.
    pub(super) fn begin_rings(&self) {
        self.shared.has_rings.store(true, Ordering::Release);
        self.shared.at_ring.iter().for_each(SharedWait::wake);
    }

    /// Waits until the kernel takes entries of rings. False: the mount is being closed.
    pub(super) async fn rings_begin(&self) -> bool {
        let begun = poll_fn(|_| match self.shared.has_rings.load(Ordering::Acquire) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        });
        self.unless_over_at_ring(begun).await.is_some()
    }

    /// As [`unless_over`](Self::unless_over), for the task of the ring.
    pub(super) async fn unless_over_at_ring<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.shared.at_ring[self.lane].unless(|| self.is_over(), work).await
    }

    /// Waits for `work`, but gives it up once the mount is being closed.
    pub(super) async fn unless_over<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        self.shared.waiting[self.lane].unless(|| self.is_over(), work).await
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        *self.shared.serving() -= 1;
        self.shared.lane_left.notify_all();
    }
}

#[cfg(test)]
mod tests;

//! A server of socket pairs: each connection's other end is had by the kernel's nbd driver.
//!
//! There is no handshake, and no client comes or goes: the driver has as many connections as it was given, one for each
//! of its queues. A device with several connections cuts one off on which a request takes longer than 30 s, also where
//! this process was stopped meanwhile, and sends what was not answered there over another one. With one connection it
//! waits. What it has cut off is still under way here. If a request that was sent again were executed beside that, the
//! older one could end last, over what was written since. So no connection executes anything before those that are cut
//! off have ended what they have. The driver shuts a socket down before it sends its requests elsewhere. So who looks at
//! the other sockets after it has received such a request sees that they are shut down.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mdspace_engine::lane::Lane;
use mdspace_io::{LaneIo, Socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, socketpair};

use crate::arrivals::Arrivals;
use crate::partial_writes::PartialWrites;
use crate::volume::{Volume, VolumePart};
use crate::wait::SharedWait;

use super::budget::Budget;
use super::connection::{Connection, Place, Terms};
use super::export::{Export, Exports};
use super::request::Framing;
use super::session::{Limits, Session};
use super::wire::export_flag;

/// All that a connection may hold is its own: it waits for no other client.
const LIMITS: Limits = Limits { requests: 256, payload_bytes: 32 << 20, own_bytes: 32 << 20 };
/// The kernel is never cut off for being slow: ten years.
const STALL: Duration = Duration::from_secs(10 * 365 * 86_400);

/// A running server. Dropping it ends its connections without waiting for them.
#[derive(Debug)]
pub struct PairServer(Arc<Shared>);

/// The number of a connection, from 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ConnectionNumber(pub usize);

/// Requests had not ended when patience ran out.
#[derive(Debug, thiserror::Error)]
#[error("requests of the kernel's nbd driver have not ended")]
pub struct UnderWay;

#[derive(Debug)]
struct Shared {
    exports: Arc<Exports>,
    partial_writes: PartialWrites,
    closing: AtomicBool,
    lanes: Vec<Arrivals<(OwnedFd, Presence)>>,
    /// Those that have requests, or may get some.
    wires: Mutex<Vec<Arc<Wire>>>,
    /// Counts changes of these.
    changes: AtomicU64,
    wire_left: Condvar,
}

/// Our end of a connection.
#[derive(Debug)]
struct Wire {
    number: ConnectionNumber,
    /// A duplicate, by which any thread can look at it, and end it.
    socket: OwnedFd,
    /// Its lane, while it waits for others to end.
    waiting: SharedWait,
}

/// A connection's entry in the list, on its lane; dropped when nothing of it is under way any more.
#[derive(Debug)]
struct Presence {
    wire: Arc<Wire>,
    shared: Arc<Shared>,
    /// Itself and all others, as of a change.
    known: RefCell<Known>,
}

#[derive(Debug, Default)]
struct Known {
    change: u64,
    wires: Vec<Arc<Wire>>,
}

/// What may become of requests that were just received.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Verdict {
    Execute,
    /// A connection that the driver has cut off has requests under way.
    Wait,
    /// This one is cut off: what it has not begun comes again by another one.
    Drop,
}

impl PairServer {
    /// Serves the first of `exports` on all lanes of `volume`. It has no connections yet. All fronts of one volume have
    /// the same `partial_writes`.
    pub fn start<V: Volume>(exports: Exports, partial_writes: PartialWrites, volume: &V) -> Self {
        let is_read_only = exports.switch().is_on();
        let exports = if is_read_only { exports.read_only() } else { exports };
        let shared = Arc::new(Shared {
            exports: Arc::new(exports),
            partial_writes,
            closing: AtomicBool::new(false),
            lanes: (0..volume.lane_count()).map(|_| Arrivals::default()).collect(),
            wires: Mutex::default(),
            changes: AtomicU64::new(0),
            wire_left: Condvar::new(),
        });
        for id in volume.lane_ids() {
            let (shared, index) = (shared.clone(), usize::from(id.0));
            volume.run_on(id, move |part, lane, io| {
                lane.spawn(shared.serve(index, lane.clone(), io.clone(), part.clone()));
            });
        }
        Self(shared)
    }

    /// What is served.
    pub fn export(&self) -> &Export {
        &self.0.exports.as_slice()[0]
    }

    /// The transmission flags of that, as `doc/proto.md` has them. Zeroes are not offered: the driver would ask for
    /// 4 GiB of them at a time, of many at once, and cut the connection off before they are written.
    pub fn flags(&self) -> u16 {
        self.export().flags(Framing::Simple) & !export_flag::SEND_WRITE_ZEROES
    }

    /// How many lanes serve connections.
    pub fn lane_count(&self) -> usize {
        self.0.lanes.len()
    }

    /// Makes a connection, which a lane serves from now on; gives the driver's end.
    pub fn connect(&self, number: ConnectionNumber) -> io::Result<OwnedFd> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
        let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        let wire =
            Arc::new(Wire { number, socket: ours.try_clone()?, waiting: SharedWait::default() });
        self.0.change(|wires| wires.push(wire.clone()));
        let known = RefCell::default();
        let presence = Presence { wire, shared: self.0.clone(), known };
        self.0.lanes[number.0 % self.0.lanes.len()].push((ours, presence));
        Ok(theirs)
    }

    /// Connections of which none is left that the driver has not cut off.
    pub fn cut_off(&self, count: usize) -> Vec<ConnectionNumber> {
        let wires = self.0.wires().clone();
        let alive = are_alive(&wires);
        // Those that wait for others look again whether they are cut off themselves.
        wires.iter().for_each(|wire| wire.waiting.wake());
        let has_one = |number: &ConnectionNumber| {
            wires.iter().zip(&alive).any(|(wire, alive)| *alive && wire.number == *number)
        };
        (0..count).map(ConnectionNumber).filter(|number| !has_one(number)).collect()
    }

    /// Ends all connections, and waits until what the kernel asked for has ended, but no longer than `patience`. One who
    /// has more of it may ask again.
    pub fn close(&self, patience: Duration) -> Result<(), UnderWay> {
        self.0.close();
        let wires = self.0.wires();
        let waited = self.0.wire_left.wait_timeout_while(wires, patience, |left| !left.is_empty());
        let (left, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if left.is_empty() { Ok(()) } else { Err(UnderWay) }
    }
}

impl Drop for PairServer {
    fn drop(&mut self) {
        self.0.close();
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
        // Before the list is looked at: what comes later has not begun.
        self.lanes.iter().for_each(Arrivals::turn_away);
        for wire in self.wires().iter() {
            // One that cannot be shut down any more is.
            let _ = rustix::net::shutdown(&wire.socket, Shutdown::Both);
            wire.waiting.wake();
        }
    }

    /// A panic on one lane leaves the list as usable as it was.
    fn wires(&self) -> MutexGuard<'_, Vec<Arc<Wire>>> {
        self.wires.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Wire>>)) {
        let mut wires = self.wires();
        change(&mut wires);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Serves the connections that come to one lane.
    async fn serve<P: VolumePart + 'static>(
        self: Arc<Self>,
        index: usize,
        lane: Rc<Lane>,
        io: LaneIo,
        part: Rc<P>,
    ) {
        let writes = self.partial_writes.beside();
        lane.spawn(writes.watch());
        let nothing = Budget::new(0);
        while let Some((socket, presence)) = self.lanes[index].next().await {
            let socket = match Socket::new(socket) {
                Ok(socket) => socket,
                Err(error) => {
                    tracing::warn!(%error, "a connection of the nbd driver is lost on its way to its lane");
                    continue;
                }
            };
            let session = Session::in_transmission(self.exports.clone(), LIMITS);
            let terms = Terms {
                // There is no handshake.
                handshake_until: lane.lived(),
                stall: STALL,
                budget: nothing.borrower(),
                writes: writes.clone(),
                tls: None,
                early: Vec::new(),
            };
            Connection::start(&lane, &io, socket, part.clone(), session, terms, presence);
        }
    }
}

impl Place for Presence {
    fn take(&self) -> bool {
        true
    }

    fn is_over(&self) -> bool {
        self.shared.is_closing()
    }

    async fn admits(&self) -> bool {
        let verdict = Cell::new(self.verdict());
        if verdict.get() == Verdict::Wait {
            let is_clear = || {
                verdict.set(self.verdict());
                verdict.get() != Verdict::Wait
            };
            self.wire.waiting.unless(is_clear, pending::<()>()).await;
        }
        verdict.get() == Verdict::Execute
    }
}

impl Presence {
    /// One that waits here is alive, and waits for such as were cut off before: none of those waits for it.
    fn verdict(&self) -> Verdict {
        self.look_for_others();
        let wires = &self.known.borrow().wires;
        if wires.len() == 1 {
            return Verdict::Execute;
        }
        match are_alive(wires).split_first() {
            Some((true, others)) if others.iter().all(|alive| *alive) => Verdict::Execute,
            Some((true, _)) => Verdict::Wait,
            _ => Verdict::Drop,
        }
    }

    fn look_for_others(&self) {
        let mut known = self.known.borrow_mut();
        if known.change == self.shared.changes.load(Ordering::Acquire) {
            return;
        }
        let wires = self.shared.wires();
        let others = wires.iter().filter(|wire| !Arc::ptr_eq(wire, &self.wire));
        known.wires = std::iter::once(&self.wire).chain(others).cloned().collect();
        known.change = self.shared.changes.load(Ordering::Acquire);
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.shared.change(|wires| wires.retain(|wire| !Arc::ptr_eq(wire, &self.wire)));
        self.shared.wires().iter().for_each(|wire| wire.waiting.wake());
        self.shared.wire_left.notify_all();
    }
}

/// Of each, whether it has not been shut down. All count as shut down where the system does not say: the driver sends
/// again what it has no answer for.
fn are_alive(wires: &[Arc<Wire>]) -> Vec<bool> {
    let sockets = wires.iter().map(|wire| wire.socket.as_fd());
    // A hang-up is told without being asked for.
    let asked = sockets.map(|socket| PollFd::from_borrowed_fd(socket, PollFlags::empty()));
    let mut asked: Vec<PollFd<'_>> = asked.collect();
    let told = retry_on_intr(|| poll(&mut asked, Some(&Timespec::default())));
    asked.iter().map(|asked| told.is_ok() && !asked.revents().contains(PollFlags::HUP)).collect()
}

#[cfg(test)]
mod tests;

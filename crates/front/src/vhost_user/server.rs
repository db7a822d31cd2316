//! A server: one socket, its one client at a time, and the lanes on which that one's rings live.
//!
//! A thread of its own takes clients and hears their messages, which are few and may come slowly. It never waits for
//! a lane, but where the protocol wants it: a ring that stops has answered what it took. A client is served when nothing
//! that the one before asked for is under way: a virtual machine that starts again never meets late writes of its
//! former life.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use mdspace_engine::lane::{Lane, LaneId};
use mdspace_io::LaneIo;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use rustix::net::Shutdown;
use vhost::vhost_user::{BackendReqHandler, Error};

use crate::address::Address;
use crate::arrivals::Arrivals;
use crate::listener::{ListenError, Listener, Renewable};
use crate::nbd::{Budget, Exports};
use crate::partial_writes::PartialWrites;
use crate::peer;
use crate::volume::{Volume, VolumePart, heard, tell_lane};

use super::device::{Device, Lanes, Order};
use super::disk::Disk;
use super::message;
use super::padded::{self, PaddedTable};
use super::ring::{Client, Ring, Terms, Trouble};

/// How long a server waits after the system refused it a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long half a message is waited for, and between two looks for the other half.
const HALF_WITHIN: Duration = Duration::from_secs(5);
const HALF_PAUSE: Duration = Duration::from_millis(10);

/// A running server. Dropping it disconnects its client without waiting for it.
#[derive(Debug)]
pub struct Server(Arc<Shared>);

/// A client's requests had not ended when patience ran out.
#[derive(Debug, thiserror::Error)]
#[error("requests of this client have not ended: {client}")]
pub struct StillConnected {
    /// Who it is.
    pub client: String,
}

/// Sees to it that clients find a server, as long as that is open.
#[derive(Debug)]
pub struct Keeper(Weak<Shared>);

#[derive(Debug)]
struct Shared {
    address: Address,
    listener: Renewable,
    exports: Exports,
    /// What is best written as a whole.
    row_sectors: u64,
    budget: Budget,
    partial_writes: PartialWrites,
    closing: AtomicBool,
    /// Ends the wait of the thread.
    news: OwnedFd,
    seat: Mutex<Option<Arc<Line>>>,
    seat_is_free: Condvar,
    /// The orders to each.
    lanes: Vec<Arrivals<Order>>,
}

/// The connection to a client.
#[derive(Debug)]
struct Line {
    peer: String,
    /// A duplicate of its socket, by which any thread can disconnect it.
    socket: UnixStream,
    is_gone: AtomicBool,
    /// Why was told.
    is_told: AtomicBool,
}

impl Keeper {
    /// Makes a socket anew whose file is not there any more, or is another one that is no socket of a running process.
    /// True: it was. Not for a lane's thread.
    pub fn keep(&self) -> Result<bool, ListenError> {
        let Some(shared) = self.0.upgrade() else { return Ok(false) };
        let renewed = shared.listener.renew(|| shared.is_closing())?;
        if renewed {
            shared.wake();
        }
        Ok(renewed)
    }
}

impl Server {
    /// Serves the default export of `volume` at `listener`, on all of its lanes. All fronts of one volume have the same
    /// `partial_writes`. Fails where the system gives no thread, or a lane does not answer.
    pub fn start<V: Volume>(
        listener: Listener,
        exports: Exports,
        budget: Budget,
        partial_writes: PartialWrites,
        volume: &V,
    ) -> io::Result<Server> {
        let exports = exports.at(listener.address());
        let row_sectors = heard(&tell_lane(volume, LaneId(0), |part, _, _| part.unit_sectors()))?;
        let shared = Arc::new(Shared {
            address: listener.address().clone(),
            listener: Renewable::new(listener),
            exports,
            row_sectors,
            budget,
            partial_writes,
            closing: AtomicBool::new(false),
            news: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            seat: Mutex::default(),
            seat_is_free: Condvar::new(),
            lanes: (0..volume.lane_count()).map(|_| Arrivals::default()).collect(),
        });
        let run = {
            let shared = shared.clone();
            move || shared.run()
        };
        thread::Builder::new().name("vhost-user".into()).spawn(run)?;
        for id in volume.lane_ids() {
            let (shared, index) = (shared.clone(), usize::from(id.0));
            volume.run_on(id, move |part, lane, io| {
                lane.spawn(shared.serve(index, lane.clone(), io.clone(), part.clone()));
            });
        }
        Ok(Server(shared))
    }

    /// Where it answers.
    pub fn address(&self) -> &Address {
        &self.0.address
    }

    /// What sees to it that clients find it.
    pub fn keeper(&self) -> Keeper {
        Keeper(Arc::downgrade(&self.0))
    }

    /// The client that is connected, if there is one.
    pub fn clients(&self) -> Vec<String> {
        self.0.seat().iter().map(|line| line.peer.clone()).collect()
    }

    /// Who is still connected after `patience`; at once nobody, when the client leaves. One that has gone may not have
    /// been noticed yet.
    pub fn clients_that_stay(&self, patience: Duration) -> Vec<String> {
        let is_taken = |seat: &mut Option<Arc<Line>>| seat.is_some();
        let waited = self.0.seat_is_free.wait_timeout_while(self.0.seat(), patience, is_taken);
        let (seat, _) = waited.unwrap_or_else(PoisonError::into_inner);
        seat.iter().map(|line| line.peer.clone()).collect()
    }

    /// Takes no more clients, disconnects the one that is there, and waits until what it asked for has ended, but no
    /// longer than `patience`. One who has more of it may ask again.
    pub fn close(&self, patience: Duration) -> Result<(), StillConnected> {
        self.0.close();
        match self.clients_that_stay(patience).pop() {
            None => Ok(()),
            Some(client) => Err(StillConnected { client }),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Taking clients.
impl Shared {
    /// The thread.
    fn run(self: Arc<Self>) {
        while !self.is_closing() {
            let renewals = self.listener.renewals();
            match self.open_listener() {
                Ok(listener) => self.take_clients_at(&listener, renewals),
                Err(error) => {
                    tracing::error!(%error, "cannot accept clients");
                    thread::sleep(ACCEPT_PAUSE);
                }
            }
        }
        self.lanes.iter().for_each(Arrivals::close);
    }

    fn open_listener(&self) -> io::Result<UnixListener> {
        let listener = UnixListener::from(self.listener.duplicate()?);
        // A client may be gone again when it is accepted.
        listener.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Serves one client after another, until the server closes or listens anew.
    fn take_clients_at(self: &Arc<Self>, listener: &UnixListener, renewals: u64) {
        let is_over = || self.is_closing() || self.listener.renewals() != renewals;
        let mut next = None;
        while !is_over() {
            let client = next.take().or_else(|| self.accept(listener));
            if let Some(socket) = client {
                next = self.serve_client(socket, listener);
            } else {
                self.wait_for([listener.as_fd()]);
            }
        }
    }

    fn accept(&self, listener: &UnixListener) -> Option<UnixStream> {
        match listener.accept() {
            Ok((socket, _)) => Some(socket),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            // The listener is shut down.
            Err(_) if self.is_closing() => None,
            Err(error) => {
                tracing::warn!(%error, "a client could not be accepted");
                thread::sleep(ACCEPT_PAUSE);
                None
            }
        }
    }

    /// Waits for one of `sources`, or for news of the server. Says which of them are ready.
    fn wait_for<const N: usize>(&self, sources: [std::os::fd::BorrowedFd<'_>; N]) -> [bool; N] {
        let mut polled: Vec<PollFd<'_>> = sources
            .iter()
            .chain(&[self.news.as_fd()])
            .map(|source| PollFd::from_borrowed_fd(*source, PollFlags::IN))
            .collect();
        // A signal ends the wait early; whoever waits looks again.
        let _ = rustix::event::poll(&mut polled, None);
        if !polled[N].revents().is_empty() {
            let _ = rustix::io::read(&self.news, &mut [0; 8]);
        }
        std::array::from_fn(|at| !polled[at].revents().is_empty())
    }

    /// Serves a client until it leaves, and all that it asked for has ended. Gives the next one, if that has come in the
    /// place of one that never said a word.
    fn serve_client(
        self: &Arc<Self>,
        socket: UnixStream,
        listener: &UnixListener,
    ) -> Option<UnixStream> {
        let peer = peer::describe(socket.as_fd());
        let duplicate = match socket.set_nonblocking(false).and_then(|()| socket.try_clone()) {
            Ok(duplicate) => duplicate,
            Err(error) => {
                tracing::warn!(peer, %error, "a client is refused");
                return None;
            }
        };
        tracing::info!(peer, "a client has connected");
        let line = Arc::new(Line {
            peer,
            socket: duplicate,
            is_gone: AtomicBool::new(false),
            is_told: AtomicBool::new(false),
        });
        *self.seat() = Some(line.clone());
        // A close that came in between has not seen this client.
        if self.is_closing() {
            line.disconnect();
        }
        let disk = Disk::new(&self.exports, self.row_sectors, self.lanes.len());
        let device = Arc::new(Mutex::new(Device::new(disk, line.clone(), self.clone())));
        let mut handler = BackendReqHandler::from_stream(socket, device.clone());
        let next = self.hear(&device, &mut handler, &line, listener);
        line.disconnect();
        device.lock().unwrap_or_else(PoisonError::into_inner).abandon();
        *self.seat() = None;
        self.seat_is_free.notify_all();
        tracing::info!(peer = line.peer, "a client has left");
        next
    }

    /// Hears a client's messages until it leaves, or is cut off.
    fn hear(
        &self,
        device: &Mutex<Device>,
        handler: &mut BackendReqHandler<Mutex<Device>>,
        line: &Line,
        listener: &UnixListener,
    ) -> Option<UnixStream> {
        let (mut has_spoken, mut half_since) = (false, None);
        while !line.is_gone() {
            let [has_some, has_newcomer] = self.wait_for([line.socket.as_fd(), listener.as_fd()]);
            let has_message = has_some && message::is_whole(&line.socket);
            if has_message {
                half_since = None;
                match hear_one(device, handler, line) {
                    Ok(()) => has_spoken = true,
                    Err(Error::Disconnected) => return None,
                    Err(error) => {
                        line.tell_why(&error);
                        return None;
                    }
                }
            } else if has_newcomer && let Some(newcomer) = self.accept(listener) {
                let peer = peer::describe(newcomer.as_fd());
                if !has_spoken {
                    tracing::warn!(peer = line.peer, "a client is cut off: it says nothing");
                    return Some(newcomer);
                }
                let by = &line.peer;
                tracing::warn!(peer, by, "a client is refused: the disk has one already");
            } else if has_some {
                if half_since.get_or_insert_with(Instant::now).elapsed() > HALF_WITHIN {
                    line.tell_why(&"it does not end its message");
                    return None;
                }
                thread::sleep(HALF_PAUSE);
            }
        }
        None
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn close(&self) {
        if self.closing.swap(true, Ordering::AcqRel) {
            return;
        }
        self.listener.shut_down();
        if let Some(line) = &*self.seat() {
            line.disconnect();
        }
        self.wake();
    }

    fn wake(&self) {
        // A full counter has woken the thread too.
        let _ = rustix::io::write(&self.news, &1_u64.to_ne_bytes());
    }

    fn seat(&self) -> MutexGuard<'_, Option<Arc<Line>>> {
        self.seat.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hears one message.
fn hear_one(
    device: &Mutex<Device>,
    handler: &mut BackendReqHandler<Mutex<Device>>,
    line: &Line,
) -> Result<(), Error> {
    let padded = PaddedTable::take(&line.socket).map_err(Error::SocketError)?;
    let Some(PaddedTable { regions, needs_reply }) = padded else {
        return handler.handle_request();
    };
    let mut device = device.lock().unwrap_or_else(PoisonError::into_inner);
    let used = device.use_regions(regions);
    if needs_reply && device.replies() {
        padded::reply(&line.socket, used.is_ok()).map_err(Error::SocketError)?;
    }
    used
}

/// Serving rings.
impl Shared {
    /// Follows the orders to one lane.
    async fn serve<P: VolumePart + 'static>(
        self: Arc<Self>,
        index: usize,
        lane: Rc<Lane>,
        io: LaneIo,
        part: Rc<P>,
    ) {
        // What comes when the lane has ended is dropped.
        let arrivals = Closing(&self.lanes[index]);
        let writes = self.partial_writes.beside();
        lane.spawn(writes.watch());
        let mut rings: BTreeMap<usize, Rc<Ring<P>>> = BTreeMap::new();
        while let Some(order) = arrivals.0.next().await {
            match order {
                Order::Start(setup, done) => {
                    let (index, client) = (setup.index, setup.client.clone());
                    let terms = Terms { budget: self.budget.borrower(), writes: writes.clone() };
                    match Ring::start(&lane, &io, part.clone(), *setup, terms) {
                        Ok(ring) => drop(rings.insert(index, ring)),
                        Err(trouble) => client.give_up(&trouble),
                    }
                    let _ = done.send(());
                }
                Order::Change { index, change, done } => {
                    if let Some(ring) = rings.get(&index) {
                        ring.change(change);
                    }
                    let _ = done.send(());
                }
                // Of a ring that could not start the sender is dropped: it has ended.
                Order::Stop { index, stop, done } => {
                    if let Some(ring) = rings.remove(&index) {
                        ring.stop(stop, done);
                    }
                }
            }
        }
    }
}

impl Lanes for Shared {
    fn order(&self, index: usize, order: Order) {
        self.lanes[index % self.lanes.len()].push(order);
    }
}

impl Line {
    fn disconnect(&self) {
        self.is_gone.store(true, Ordering::Release);
        // One that cannot be disconnected any more is gone.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    /// Once: what goes wrong later follows from it.
    fn tell_why(&self, why: &dyn fmt::Display) {
        if !self.is_told.swap(true, Ordering::AcqRel) {
            tracing::warn!(peer = self.peer, "a client is cut off: {why}");
        }
    }
}

impl Client for Line {
    fn give_up(&self, why: &Trouble) {
        self.tell_why(why);
        self.disconnect();
    }

    fn is_gone(&self) -> bool {
        self.is_gone.load(Ordering::Acquire)
    }
}

/// Drops what comes too late: whoever waits for it learns that the lane has ended.
struct Closing<'a>(&'a Arrivals<Order>);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.turn_away();
    }
}

#[cfg(test)]
mod tests;

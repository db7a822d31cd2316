//! A server: where its clients come from, who they are, and the lanes that they live on.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use mdspace_engine::lane::Lane;
use mdspace_io::{LaneIo, Socket};

use crate::address::Address;
use crate::arrivals::Arrivals;
use crate::listener::{ListenError, Listener, Renewable};
use crate::partial_writes::PartialWrites;
use crate::peer;
use crate::tls::Identity;
use crate::volume::{Volume, VolumePart};
use crate::wait::SharedWait;

use super::budget::Budget;
use super::clients::Clients;
use super::connection::{Connection, Place, Terms};
use super::export::Exports;
use super::handover::Begun;
use super::membership::{Membership, SharedAddress};
use super::session::{Limits, Session};

/// How long a server waits after the system refused it a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A running server. Dropping it disconnects its clients without waiting for them.
#[derive(Debug)]
pub struct Server(Arc<Shared>);

/// What clients may take.
#[derive(Clone, Debug)]
pub struct ServerLimits {
    /// Clients at the same time, from the end of their handshakes; 96 by default. As many others may be at
    /// their handshakes: of more than that the oldest is cut off of the user or address that has most.
    pub clients: usize,
    /// Of one user on this host, or of one address; 64 by default. The rest is kept for others.
    pub clients_of_one: usize,
    /// From a client's connection to the end of its handshake; 10 s by default.
    pub handshake: Duration,
    /// How long a client may take no answer, or send nothing of a write that it began, beyond the time that
    /// the bytes take at 256 KiB/s; 60 s by default.
    pub stall: Duration,
    /// For each client.
    pub session: Limits,
    /// For what they hold beyond their own shares. Servers of one process share it.
    pub budget: Budget,
    /// All fronts of one volume have the same.
    pub partial_writes: PartialWrites,
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
            clients: 96,
            clients_of_one: 64,
            handshake: Duration::from_secs(10),
            stall: Duration::from_secs(60),
            session: Limits::default(),
            budget: Budget::default(),
            partial_writes: PartialWrites::default(),
        }
    }
}

/// Clients that were still there when patience ran out.
#[derive(Debug, thiserror::Error)]
#[error("requests of these clients have not ended: {}", clients.join(", "))]
pub struct StillConnected {
    /// Who they are.
    pub clients: Vec<String>,
}

#[derive(Debug)]
struct Shared {
    address: Address,
    source: Source,
    exports: Arc<Exports>,
    /// The same while clients may only read.
    read_only_exports: Arc<Exports>,
    limits: ServerLimits,
    /// Clients are served over TLS alone.
    identity: Option<Arc<Identity>>,
    closing: AtomicBool,
    /// The accepting task, while it waits.
    accepting: SharedWait,
    lanes: Vec<Arrivals<(Arrival, Presence)>>,
    clients: Mutex<Clients>,
    client_left: Condvar,
}

/// Where clients come from.
#[derive(Debug)]
enum Source {
    Listener(Renewable),
    /// Other processes serve their arrays at the same address.
    Broker(Membership),
}

/// A client's socket, and what a broker has gone through with it.
#[derive(Debug)]
struct Arrival {
    socket: OwnedFd,
    begun: Option<Begun>,
}

/// A client's entry in the list; dropped when its connection is over.
#[derive(Debug)]
struct Presence {
    number: u64,
    shared: Arc<Shared>,
}

/// Sees to it that clients find a server, as long as that is open.
#[derive(Debug)]
pub struct Keeper(Weak<Shared>);

impl Keeper {
    /// Makes a Unix socket anew whose file is not there any more, or is another one that is no socket of a
    /// running process. True: it was. Reads certificates anew that have changed. Not for a lane's thread.
    pub fn keep(&self) -> Result<bool, ListenError> {
        let Some(shared) = self.0.upgrade() else { return Ok(false) };
        if let Some(identity) = &shared.identity
            && identity.renew()?
        {
            let directory = identity.directory().display();
            tracing::info!(front = %shared.address, "certificates of {directory} were read anew");
        }
        match &shared.source {
            Source::Listener(listener) => {
                let renewed = listener.renew(|| shared.is_closing())?;
                if renewed {
                    shared.accepting.wake();
                }
                Ok(renewed)
            }
            Source::Broker(membership) => {
                let kept = shared.keep_place(membership);
                kept.map_err(|source| {
                    let front = shared.address.clone().into();
                    ListenError::Io { front, source }
                })?;
                Ok(false)
            }
        }
    }
}

impl Server {
    /// Serves `volume` under the names of `exports` at `listener`, on all of its lanes. Clients may
    /// only read where an export or the listener's address says so.
    pub fn start<V: Volume>(
        listener: Listener,
        exports: Exports,
        limits: ServerLimits,
        volume: &V,
    ) -> Server {
        let exports = exports.at(listener.address());
        let (address, identity) = (listener.address().clone(), listener.identity().cloned());
        let source = Source::Listener(Renewable::new(listener));
        Server(Shared::start(address, identity, source, exports, limits, volume))
    }

    /// Serves `volume` as the first of `exports` at an address that other processes serve at, too.
    pub fn share<V: Volume>(
        shared: SharedAddress,
        exports: Exports,
        limits: ServerLimits,
        volume: &V,
    ) -> io::Result<Server> {
        let address = shared.address().clone();
        let exports = exports.at(&address);
        let membership = Membership::begin(shared, &exports)?;
        let source = Source::Broker(membership);
        let shared = Shared::start(address, None, source, exports, limits, volume);
        // Without a thread it is dropped, and leaves the address.
        let server = Server(shared);
        server.0.hear_broker()?;
        Ok(server)
    }

    /// Where it answers, with the port that the system chose.
    pub fn address(&self) -> &Address {
        &self.0.address
    }

    /// The URI by which clients find the first export there.
    pub fn uri(&self) -> Option<String> {
        self.0.address.uri(&self.0.exports.as_slice()[0].name)
    }

    /// What sees to it that clients find it.
    pub fn keeper(&self) -> Keeper {
        Keeper(Arc::downgrade(&self.0))
    }

    /// Who is connected, in the order of arrival.
    pub fn clients(&self) -> Vec<String> {
        self.0.clients().peers()
    }

    /// Who is still connected after `patience`; at once nobody, when the last one leaves. A client
    /// that has gone may not have been noticed yet.
    pub fn clients_that_stay(&self, patience: Duration) -> Vec<String> {
        let are_there = |clients: &mut Clients| !clients.is_empty();
        let waited = self.0.client_left.wait_timeout_while(self.0.clients(), patience, are_there);
        let (clients, _) = waited.unwrap_or_else(PoisonError::into_inner);
        clients.peers()
    }

    /// Takes no more clients, disconnects those that are there, and waits until what they asked for
    /// has ended, but no longer than `patience`. One who has more of it may ask again.
    pub fn close(&self, patience: Duration) -> Result<(), StillConnected> {
        self.0.close();
        match self.clients_that_stay(patience) {
            clients if clients.is_empty() => Ok(()),
            clients => Err(StillConnected { clients }),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Shared {
    fn start<V: Volume>(
        address: Address,
        identity: Option<Arc<Identity>>,
        source: Source,
        exports: Exports,
        limits: ServerLimits,
        volume: &V,
    ) -> Arc<Shared> {
        let shared = Arc::new(Shared {
            address,
            identity,
            source,
            read_only_exports: Arc::new(exports.clone().read_only()),
            exports: Arc::new(exports),
            limits,
            closing: AtomicBool::new(false),
            accepting: SharedWait::default(),
            lanes: (0..volume.lane_count()).map(|_| Arrivals::default()).collect(),
            clients: Mutex::default(),
            client_left: Condvar::new(),
        });
        for id in volume.lane_ids() {
            let (shared, index) = (shared.clone(), usize::from(id.0));
            volume.run_on(id, move |part, lane, io| {
                if index == 0 {
                    lane.spawn(shared.clone().accept(lane.clone(), io.clone()));
                }
                lane.spawn(shared.serve(index, lane.clone(), io.clone(), part.clone()));
            });
        }
        shared
    }

    /// A panic on one thread leaves the list as usable as it was.
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    fn close(&self) {
        if self.closing.swap(true, Ordering::AcqRel) {
            return;
        }
        match &self.source {
            Source::Listener(listener) => listener.shut_down(),
            Source::Broker(membership) => membership.end(),
        }
        self.accepting.wake();
        // Before the list is looked at: who comes later has not begun.
        self.lanes.iter().for_each(Arrivals::turn_away);
        self.clients().disconnect_all();
        self.limits.budget.wake_all();
    }

    /// Accepts clients and spreads them over the lanes.
    async fn accept(self: Arc<Self>, lane: Rc<Lane>, io: LaneIo) {
        let Source::Listener(source) = &self.source else { return };
        while !self.is_closing() {
            let renewals = source.renewals();
            match source.duplicate().and_then(Socket::new) {
                Ok(listener) => {
                    let is_over = || self.is_closing() || source.renewals() != renewals;
                    self.accept_at(&listener, is_over, &lane, &io).await;
                }
                Err(error) => {
                    tracing::error!(%error, "cannot accept clients");
                    self.pause(|| self.is_closing(), &lane).await;
                }
            }
        }
    }

    /// Accepts clients until the server closes, or listens anew.
    async fn accept_at(
        self: &Arc<Self>,
        listener: &Socket,
        is_over: impl Fn() -> bool,
        lane: &Lane,
        io: &LaneIo,
    ) {
        // On a Unix socket a shutdown does not end an accept that the ring has under way.
        while let Some(accepted) = self.accepting.unless(&is_over, io.accept(listener, None)).await
        {
            match accepted {
                Ok(socket) => self.admit(socket.as_fd(), None),
                Err(error) => {
                    tracing::warn!(%error, "a client could not be accepted");
                    self.pause(&is_over, lane).await;
                }
            }
        }
    }

    async fn pause(&self, is_over: impl Fn() -> bool, lane: &Lane) {
        let pause = lane.sleep_until(lane.backend().now() + ACCEPT_PAUSE);
        self.accepting.unless(is_over, pause).await;
    }

    /// Finds another broker where that of a shared address has ended.
    fn keep_place(self: &Arc<Self>, membership: &Membership) -> io::Result<()> {
        if self.is_closing() || !membership.keep(&self.exports)? {
            return Ok(());
        }
        tracing::warn!(front = %self.address, "the broker had ended: another one runs");
        self.hear_broker()?;
        if self.is_closing() {
            membership.end();
        }
        Ok(())
    }

    /// Takes the clients that a broker gives, on a thread of its own, until that has ended.
    fn hear_broker(self: &Arc<Self>) -> io::Result<()> {
        let Source::Broker(membership) = &self.source else { return Ok(()) };
        let (line, shared) = (membership.line(), self.clone());
        let hear = move || {
            let Source::Broker(membership) = &shared.source else { return };
            while let Some((socket, begun)) = membership.next(&line) {
                shared.admit(socket.as_fd(), Some(begun));
            }
        };
        thread::Builder::new().name("broker".into()).spawn(hear).map(drop)
    }

    /// Gives a client to the lane with the fewest.
    fn admit(self: &Arc<Self>, socket: BorrowedFd<'_>, begun: Option<Begun>) {
        let duplicate = || socket.try_clone_to_owned();
        let (Ok(ours), Ok(theirs)) = (duplicate(), duplicate()) else {
            let peer = peer::describe(socket);
            return tracing::warn!(peer, "a client is refused: no descriptor is left");
        };
        let admitted = self.clients().admit(ours, self.lanes.len(), self.limits.clients);
        let Some((number, lane)) = admitted else { return };
        tracing::info!(peer = peer::describe(socket), lane, "a client has connected");
        peer::prepare_tcp(socket);
        let presence = Presence { number, shared: self.clone() };
        self.lanes[lane].push((Arrival { socket: theirs, begun }, presence));
    }

    /// Serves the clients that come to one lane.
    async fn serve<P: VolumePart + 'static>(
        self: Arc<Self>,
        index: usize,
        lane: Rc<Lane>,
        io: LaneIo,
        part: Rc<P>,
    ) {
        let writes = self.limits.partial_writes.beside();
        lane.spawn(writes.watch());
        while let Some((Arrival { socket, begun }, presence)) = self.lanes[index].next().await {
            let socket = match Socket::new(socket) {
                Ok(socket) => socket,
                Err(error) => {
                    tracing::warn!(%error, "a client is lost on its way to its lane");
                    continue;
                }
            };
            let exports = match self.exports.switch().is_on() {
                true => &self.read_only_exports,
                false => &self.exports,
            };
            let session = match &begun {
                Some(begun) => Session::resumed(exports.clone(), self.limits.session, begun),
                None => Session::new(exports.clone(), self.limits.session),
            };
            let tls = self.identity.as_ref().map(|identity| identity.config());
            let session = if tls.is_some() { session.requiring_tls() } else { session };
            let terms = Terms {
                handshake_until: lane.lived() + self.limits.handshake,
                stall: self.limits.stall,
                budget: self.limits.budget.borrower(),
                writes: writes.clone(),
                tls,
                early: begun.map(|begun| begun.came).unwrap_or_default(),
            };
            Connection::start(&lane, &io, socket, part.clone(), session, terms, presence);
        }
    }
}

impl Place for Presence {
    fn take(&self) -> bool {
        self.shared.clients().give_place(self.number, &self.shared.limits)
    }

    fn is_over(&self) -> bool {
        self.shared.is_closing()
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let left = self.shared.clients().remove(self.number);
        if let Some(peer) = left {
            tracing::info!(peer, "a client has left");
        }
        self.shared.client_left.notify_all();
    }
}

#[cfg(test)]
mod tests;

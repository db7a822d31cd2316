//! A server: one listening socket, its clients, and the lanes that they live on.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use mdspace_engine::lane::Lane;
use mdspace_io::{LaneIo, Socket};
use rustix::net::{Shutdown, sockopt};

use crate::address::Address;
use crate::arrivals::Arrivals;
use crate::listener::{ListenError, Listener, Renewable};
use crate::partial_writes::PartialWrites;
use crate::peer::{self, Who};
use crate::tls::Identity;
use crate::volume::{Volume, VolumePart};
use crate::wait::SharedWait;

use super::budget::Budget;
use super::connection::{Connection, Place, Terms};
use super::export::Exports;
use super::session::{Limits, Session};

/// How long a server waits after the system refused it a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A TCP client that is silent for so long is asked whether it is still there.
const KEEPALIVE_TIME: Duration = Duration::from_secs(60);

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
    listener: Renewable,
    exports: Arc<Exports>,
    /// The same while clients may only read.
    read_only_exports: Arc<Exports>,
    limits: ServerLimits,
    /// Clients are served over TLS alone.
    identity: Option<Arc<Identity>>,
    closing: AtomicBool,
    /// The accepting task, while it waits.
    accepting: SharedWait,
    lanes: Vec<Arrivals<(OwnedFd, Presence)>>,
    clients: Mutex<Clients>,
    client_left: Condvar,
}

/// Clients by the order of their arrival.
#[derive(Debug, Default)]
struct Clients {
    arrived: u64,
    /// How many were cut off at their handshakes since one last left nobody there.
    cut_off: u64,
    present: BTreeMap<u64, Client>,
}

#[derive(Debug)]
struct Client {
    peer: String,
    who: Option<Who>,
    lane: usize,
    /// Its handshake is over, and it has a place.
    has_place: bool,
    /// Others took what it had at its handshake.
    is_cut_off: bool,
    /// A duplicate of its socket, by which any thread can disconnect it.
    socket: OwnedFd,
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
        let renewed = shared.listener.renew(|| shared.is_closing())?;
        if renewed {
            shared.accepting.wake();
        }
        Ok(renewed)
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
        let shared = Arc::new(Shared {
            address: listener.address().clone(),
            identity: listener.identity().cloned(),
            listener: Renewable::new(listener),
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
        Server(shared)
    }

    /// Where it answers, with the port that the system chose.
    pub fn address(&self) -> &Address {
        &self.0.address
    }

    /// What sees to it that clients find it.
    pub fn keeper(&self) -> Keeper {
        Keeper(Arc::downgrade(&self.0))
    }

    /// Who is connected, in the order of arrival.
    pub fn clients(&self) -> Vec<String> {
        self.0.clients().present.values().map(|client| client.peer.clone()).collect()
    }

    /// Who is still connected after `patience`; at once nobody, when the last one leaves. A client
    /// that has gone may not have been noticed yet.
    pub fn clients_that_stay(&self, patience: Duration) -> Vec<String> {
        let are_there = |clients: &mut Clients| !clients.present.is_empty();
        let waited = self.0.client_left.wait_timeout_while(self.0.clients(), patience, are_there);
        let (clients, _) = waited.unwrap_or_else(PoisonError::into_inner);
        clients.present.values().map(|client| client.peer.clone()).collect()
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
        self.listener.shut_down();
        self.accepting.wake();
        // Before the list is looked at: who comes later has not begun.
        self.lanes.iter().for_each(Arrivals::turn_away);
        for client in self.clients().present.values() {
            client.disconnect();
        }
        self.limits.budget.wake_all();
    }

    /// Accepts clients and spreads them over the lanes.
    async fn accept(self: Arc<Self>, lane: Rc<Lane>, io: LaneIo) {
        while !self.is_closing() {
            let renewals = self.listener.renewals();
            match self.listener.duplicate().and_then(Socket::new) {
                Ok(listener) => self.accept_at(&listener, renewals, &lane, &io).await,
                Err(error) => {
                    tracing::error!(%error, "cannot accept clients");
                    self.pause(renewals, &lane).await;
                }
            }
        }
    }

    /// Accepts clients until the server closes, or listens anew.
    async fn accept_at(
        self: &Arc<Self>,
        listener: &Socket,
        renewals: u64,
        lane: &Lane,
        io: &LaneIo,
    ) {
        while let Some(accepted) = self.unless_over(renewals, io.accept(listener, None)).await {
            match accepted {
                Ok(socket) => self.admit(&socket),
                Err(error) => {
                    tracing::warn!(%error, "a client could not be accepted");
                    self.pause(renewals, lane).await;
                }
            }
        }
    }

    async fn pause(&self, renewals: u64, lane: &Lane) {
        let pause = lane.sleep_until(lane.backend().now() + ACCEPT_PAUSE);
        self.unless_over(renewals, pause).await;
    }

    /// Waits for `work`, but gives it up once the server is closing, or listens anew: on a Unix socket a
    /// shutdown does not end an accept that the ring has under way.
    async fn unless_over<T>(&self, renewals: u64, work: impl Future<Output = T>) -> Option<T> {
        let is_over = || self.is_closing() || self.listener.renewals() != renewals;
        self.accepting.unless(is_over, work).await
    }

    /// Gives a client to the lane with the fewest.
    fn admit(self: &Arc<Self>, socket: &Socket) {
        let peer = peer::describe(socket.as_fd());
        let mut clients = self.clients();
        let limit = self.limits.clients;
        if clients.placed().count() >= limit {
            return tracing::warn!(peer, limit, "a client is refused: too many are connected");
        }
        let who = peer::who(socket.as_fd());
        clients.cut_off_one_without_a_place(&who, limit);
        let duplicate = || socket.as_fd().try_clone_to_owned();
        let (Ok(ours), Ok(theirs)) = (duplicate(), duplicate()) else {
            return tracing::warn!(peer, "a client is refused: no descriptor is left");
        };
        prepare_tcp(socket);
        let lane = clients.emptiest_lane(self.lanes.len());
        tracing::info!(peer, lane, "a client has connected");
        let number = clients.arrived;
        clients.arrived += 1;
        let (has_place, is_cut_off) = (false, false);
        let client = Client { peer, who, lane, has_place, is_cut_off, socket: ours };
        clients.present.insert(number, client);
        drop(clients);
        let presence = Presence { number, shared: self.clone() };
        self.lanes[lane].push((theirs, presence));
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
        while let Some((socket, presence)) = self.lanes[index].next().await {
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
            let session = Session::new(exports.clone(), self.limits.session);
            let tls = self.identity.as_ref().map(|identity| identity.config());
            let session = if tls.is_some() { session.requiring_tls() } else { session };
            let terms = Terms {
                handshake_until: lane.lived() + self.limits.handshake,
                stall: self.limits.stall,
                budget: self.limits.budget.borrower(),
                writes: writes.clone(),
                tls,
            };
            Connection::start(&lane, &io, socket, part.clone(), session, terms, presence);
        }
    }
}

impl Clients {
    fn placed(&self) -> impl Iterator<Item = &Client> {
        self.present.values().filter(|client| client.has_place)
    }

    /// Those at their handshakes, by the order of their arrival.
    fn without_a_place(&self) -> impl Iterator<Item = (u64, &Client)> {
        let is_one = |client: &Client| !client.has_place && !client.is_cut_off;
        self.present.iter().map(|(number, client)| (*number, client)).filter(move |it| is_one(it.1))
    }

    /// So that with one that comes no more than `most` are at their handshakes. Who has most there gives way, with the
    /// oldest: a client that never says a word keeps no other out.
    fn cut_off_one_without_a_place(&mut self, comes: &Option<Who>, most: usize) {
        if self.without_a_place().count() < most {
            return;
        }
        let mut counts = BTreeMap::from([(comes, 1)]);
        for (_, client) in self.without_a_place() {
            *counts.entry(&client.who).or_insert(0) += 1;
        }
        let rank = |(number, client): &(u64, &Client)| (counts[&client.who], Reverse(*number));
        let Some((number, _)) = self.without_a_place().max_by_key(rank) else { return };
        let Some(client) = self.present.get_mut(&number) else { return };
        client.is_cut_off = true;
        client.disconnect();
        self.cut_off += 1;
        // A client that connects again and again fills no log.
        if self.cut_off.is_power_of_two() {
            let (peer, count) = (&client.peer, self.cut_off);
            tracing::warn!(peer, count, "clients are cut off: too many are at their handshakes");
        }
    }

    /// A connection is over.
    fn remove(&mut self, number: u64) -> Option<Client> {
        let left = self.present.remove(&number);
        if self.without_a_place().next().is_none() {
            self.cut_off = 0;
        }
        left
    }

    /// Gives a client whose handshake is over a place, if there is one.
    fn give_place(&mut self, number: u64, limits: &ServerLimits) -> bool {
        let who = self.present.get(&number).map(|client| &client.who);
        let all = self.placed().count();
        let own = self.placed().filter(|client| Some(&client.who) == who).count();
        let Some(client) = self.present.get_mut(&number) else { return false };
        client.has_place = all < limits.clients && own < limits.clients_of_one;
        if !client.has_place {
            let peer = &client.peer;
            tracing::warn!(peer, all, own, "a client is refused: too many are connected");
        }
        client.has_place
    }

    fn emptiest_lane(&self, lanes: usize) -> usize {
        let mut counts = vec![0; lanes];
        self.present.values().for_each(|client| counts[client.lane] += 1);
        (0..lanes).min_by_key(|&lane| counts[lane]).expect("there is at least one lane")
    }
}

impl Client {
    fn disconnect(&self) {
        // One that cannot be disconnected any more is gone.
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
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
        if let Some(client) = left {
            tracing::info!(peer = client.peer, "a client has left");
        }
        self.shared.client_left.notify_all();
    }
}

/// Replies are batched here already, so that the system need not wait for more of them; and a
/// machine that lost its power must not keep its place for ever. Both fail on Unix sockets, which
/// need neither.
fn prepare_tcp(socket: &Socket) {
    let _ = sockopt::set_tcp_nodelay(socket, true);
    let _ = sockopt::set_tcp_keepidle(socket, KEEPALIVE_TIME);
    let _ = sockopt::set_socket_keepalive(socket, true);
}

#[cfg(test)]
mod tests;

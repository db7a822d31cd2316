//! The clients of a server: who they are, on which lanes, and who gives way when too many come.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::Shutdown;

use crate::peer::{self, Who};

use super::server::ServerLimits;

/// Clients by the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Clients {
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

impl Clients {
    /// A client that has come, which goes to the lane with the fewest; gives its number and that lane. A `duplicate` of its
    /// socket is kept. None: so many have a place that no more come in.
    pub(super) fn admit(
        &mut self,
        duplicate: OwnedFd,
        lanes: usize,
        limit: usize,
    ) -> Option<(u64, usize)> {
        let peer = peer::describe(duplicate.as_fd());
        if self.placed().count() >= limit {
            tracing::warn!(peer, limit, "a client is refused: too many are connected");
            return None;
        }
        let who = peer::who(duplicate.as_fd());
        self.cut_off_one_without_a_place(&who, limit);
        let lane = self.emptiest_lane(lanes);
        let number = self.arrived;
        self.arrived += 1;
        let (has_place, is_cut_off, socket) = (false, false, duplicate);
        self.present.insert(number, Client { peer, who, lane, has_place, is_cut_off, socket });
        Some((number, lane))
    }

    /// Who they are, in the order of their arrival.
    pub(super) fn peers(&self) -> Vec<String> {
        self.present.values().map(|client| client.peer.clone()).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    pub(super) fn disconnect_all(&self) {
        self.present.values().for_each(Client::disconnect);
    }

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

    /// A connection is over here; gives who it was.
    pub(super) fn remove(&mut self, number: u64) -> Option<String> {
        let left = self.present.remove(&number);
        if self.without_a_place().next().is_none() {
            self.cut_off = 0;
        }
        left.map(|client| client.peer)
    }

    /// Gives a client whose handshake is over a place, if there is one.
    pub(super) fn give_place(&mut self, number: u64, limits: &ServerLimits) -> bool {
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

#[cfg(test)]
mod tests;

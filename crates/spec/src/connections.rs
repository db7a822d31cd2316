//! What a flush of a device proves that is behind two connections, each with a cache of its own at the
//! other end: a server's page cache, a writer of qcow2.
//!
//! Blocks are written once each. The array takes a device out whose flush fails: the other model goes on
//! from there.

use crate::rules::rules;
use crate::search::{Model, Steps};

rules! {
    FlushAllThatOwe: "A flush goes over every connection that has answered writes since its own last good flush.",
    LossFailsNextFlush: "A connection that is lost while it owes a flush makes the device's next flush fail.",
    UnclearIsFailed: "A flush that was sent and has no answer has failed; it is not sent again over another connection.",
    AnsweredSinceSending: "A good flush settles what its connection owes only if no write was answered there since the flush was sent.",
}

const BLOCKS: u8 = 3;

/// One search.
pub(crate) struct Connections {
    pub(crate) without: Option<Rule>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Flush {
    None,
    Sent,
    Done,
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Connection {
    /// Blocks that were sent, and that its cache has, as masks.
    sent: u8,
    cached: u8,
    owes: bool,
    answered_since: bool,
    flush: Flush,
}

impl Connection {
    const NEW: Self =
        Self { sent: 0, cached: 0, owes: false, answered_since: false, flush: Flush::None };

    fn is_flushing(&self) -> bool {
        matches!(self.flush, Flush::Sent | Flush::Done)
    }

    fn send_flush(&mut self) {
        (self.flush, self.answered_since) = (Flush::Sent, false);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct State {
    connections: [Connection; 2],
    /// Blocks as masks.
    durable: u8,
    answered: u8,
    promised: u8,
    next: u8,
    /// What the flush under way will promise.
    flushing: Option<u8>,
    must_fail: bool,
    failed: bool,
    flushes_left: u8,
    losses_left: u8,
}

impl Connections {
    fn keeps(&self, rule: Rule) -> bool {
        self.without != Some(rule)
    }

    fn writes(&self, state: &State, over: usize, steps: &mut Steps<State>) {
        if state.next < BLOCKS {
            let mut next = *state;
            next.connections[over].sent |= 1 << state.next;
            next.next += 1;
            steps.world(|| format!("block {} is sent over connection {over}", state.next), next);
        }
        for block in (0..BLOCKS).filter(|block| state.connections[over].sent & 1 << block != 0) {
            let mut next = *state;
            let connection = &mut next.connections[over];
            connection.sent &= !(1 << block);
            connection.cached |= 1 << block;
            (connection.owes, connection.answered_since) = (true, true);
            next.answered |= 1 << block;
            steps.array(|| format!("connection {over} answers the write of block {block}"), next);
        }
    }

    fn flushes(&self, state: &State, over: usize, steps: &mut Steps<State>) {
        let mut next = *state;
        let connection = &mut next.connections[over];
        match connection.flush {
            Flush::Sent => {
                next.durable |= connection.cached;
                (connection.cached, connection.flush) = (0, Flush::Done);
                steps.array(|| format!("connection {over}'s server does the flush"), next);
            }
            Flush::Done => {
                connection.flush = Flush::Ended;
                let since = connection.answered_since;
                connection.owes = since && self.keeps(Rule::AnsweredSinceSending);
                steps.array(|| format!("connection {over} answers the flush well"), next);
            }
            Flush::None | Flush::Ended => {}
        }
    }

    /// A connection is lost with its cache and made again, or does not answer a flush in time.
    fn losses(&self, state: &State, over: usize, steps: &mut Steps<State>) {
        if state.losses_left == 0 {
            return;
        }
        let (lost, other) = (state.connections[over], 1 - over);
        let mut next = *state;
        next.losses_left -= 1;
        let mut late = next;
        next.connections[other].sent |= lost.sent; // a write without an answer is sent again
        next.connections[over] = Connection::NEW;
        next.must_fail |= lost.owes && self.keeps(Rule::LossFailsNextFlush);
        if lost.is_flushing() {
            self.unclear(&mut next, other);
            late.connections[over].flush = Flush::Ended;
            late.connections[over].owes = true;
            self.unclear(&mut late, other);
            steps.world(|| format!("connection {over} does not answer the flush in time"), late);
        }
        steps.world(|| format!("connection {over} is lost with its cache, and made again"), next);
    }

    fn unclear(&self, state: &mut State, other: usize) {
        if self.keeps(Rule::UnclearIsFailed) {
            state.must_fail = true;
        } else {
            state.connections[other].send_flush();
        }
    }

    fn device_flush(&self, state: &State, steps: &mut Steps<State>) {
        let mut next = *state;
        match state.flushing {
            None if state.flushes_left > 0 && state.answered & !state.promised != 0 => {
                next.flushes_left -= 1;
                next.flushing = Some(state.answered);
                for (number, connection) in next.connections.iter_mut().enumerate() {
                    let all = self.keeps(Rule::FlushAllThatOwe);
                    if if all { connection.owes } else { number == 0 } {
                        connection.send_flush();
                    }
                }
                next.failed = state.must_fail;
                let fails = if next.failed { " and fails" } else { "" };
                steps.world(|| format!("a flush of the device begins{fails}"), next);
            }
            Some(promises) if !state.connections.iter().any(Connection::is_flushing) => {
                next.flushing = None;
                next.connections.iter_mut().for_each(|c| c.flush = Flush::None);
                next.failed = state.must_fail;
                if !next.failed {
                    next.promised |= promises;
                }
                let result = if next.failed { "with an error" } else { "well" };
                steps.array(|| format!("the flush of the device is answered {result}"), next);
            }
            _ => {}
        }
    }
}

impl Model for Connections {
    type State = State;

    fn start(&self) -> State {
        State {
            connections: [Connection::NEW; 2],
            durable: 0,
            answered: 0,
            promised: 0,
            next: 0,
            flushing: None,
            must_fail: false,
            failed: false,
            flushes_left: 2,
            losses_left: 2,
        }
    }

    fn steps(&self, state: &State, steps: &mut Steps<State>) {
        if state.failed {
            return;
        }
        for over in 0..2 {
            self.writes(state, over, steps);
            self.flushes(state, over, steps);
            self.losses(state, over, steps);
        }
        self.device_flush(state, steps);
    }

    fn wrong(&self, state: &State) -> Option<String> {
        let gone = state.promised & !state.durable != 0;
        gone.then(|| "a block that a flush has promised is not durable".into())
    }

    /// A flush that is under way can end.
    fn is_quiet(&self, state: &State) -> bool {
        state.flushing.is_none() || state.failed
    }
}

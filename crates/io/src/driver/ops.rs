//! All that a lane has in flight, by token.

use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::backend::Ticket;
use mdspace_engine::time::Time;

use crate::queue::Token;

use super::NEVER;
use super::device::Device;
use super::link::{WireOp, note_owed};
use super::member_op::MemberOp;
use super::remote_op::RemoteOp;
use super::socket_op::SocketOp;

pub(super) enum Op {
    Member(MemberOp),
    /// An I/O of a member behind a network: the kernel knows its link's calls alone.
    Remote(RemoteOp),
    Wire(WireOp),
    Socket(SocketOp),
}

/// A member I/O that someone asks to end early.
pub(super) enum Found {
    /// The kernel has a call of it.
    Called(Token),
    /// Its member only pretends.
    Pretended(Token),
    /// It goes over this member's link.
    Remote(Rc<Device>),
}

/// What is past its deadline.
pub(super) struct Expired {
    /// Calls, and the tickets of those that are member I/Os.
    pub(super) late: Vec<(Token, Option<Ticket>)>,
    /// I/Os of members behind a network.
    pub(super) remote: Vec<Token>,
    /// When the next deadline comes.
    pub(super) next: Time,
}

impl Op {
    fn deadline(&mut self) -> Option<&mut Time> {
        match self {
            Self::Member(op) => Some(&mut op.deadline),
            Self::Socket(op) => Some(&mut op.deadline),
            Self::Remote(op) => Some(&mut op.deadline),
            Self::Wire(_) => None,
        }
    }

    /// Drops a socket call that has ended and that nobody wants.
    pub(super) fn discard(self) {
        match self {
            Self::Socket(op) => op.discard(),
            _ => unreachable!("a member I/O always has an end"),
        }
    }
}

#[derive(Default)]
pub(super) struct Ops {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    /// Below 2^31, so that no token meets the ring's own.
    generation: u32,
    op: Option<Op>,
}

impl Ops {
    pub(super) fn live(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[inline]
    pub(super) fn add(&mut self, op: Op) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, op: None });
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 calls in flight")
        });
        let slot = &mut self.slots[index as usize];
        slot.op = Some(op);
        token(slot.generation, index)
    }

    #[inline]
    pub(super) fn add_member(&mut self, op: MemberOp) -> (Token, &mut MemberOp) {
        let token = self.add(Op::Member(op));
        match self.at(token) {
            Op::Member(op) => (token, op),
            _ => unreachable!("just added"),
        }
    }

    pub(super) fn holds(&self, token: Token) -> bool {
        let slot = &self.slots[index(token)];
        slot.op.is_some() && u64::from(slot.generation) == token.0 >> 32
    }

    pub(super) fn at(&mut self, token: Token) -> &mut Op {
        assert!(self.holds(token), "a call completes once");
        self.slots[index(token)].op.as_mut().expect("a token in use has its call")
    }

    pub(super) fn remove(&mut self, token: Token) -> Op {
        assert!(self.holds(token), "a call ends once");
        let slot = &mut self.slots[index(token)];
        slot.generation = (slot.generation + 1) & (u32::MAX >> 1);
        self.free.push(index(token) as u32);
        slot.op.take().expect("a token in use has its call")
    }

    /// The I/O of a member behind a network that this number names, if any does: a server may send
    /// any.
    pub(super) fn remote(&mut self, number: u64) -> Option<&mut RemoteOp> {
        let slot = self.slots.get_mut(index(Token(number)))?;
        match &mut slot.op {
            Some(Op::Remote(op)) if u64::from(slot.generation) == number >> 32 => Some(op),
            _ => None,
        }
    }

    /// Shows all I/Os of members behind a network.
    pub(super) fn each_remote(&mut self, mut show: impl FnMut(Token, &RemoteOp)) {
        for (index, slot) in self.slots.iter().enumerate() {
            if let Some(Op::Remote(op)) = &slot.op {
                show(token(slot.generation, index as u32), op);
            }
        }
    }

    /// Shuts down every connection. False: no call of any is left.
    pub(super) fn end_wires(&mut self) -> bool {
        let wires = self.slots.iter().filter_map(|slot| match &slot.op {
            Some(Op::Wire(op)) => Some(op),
            _ => None,
        });
        wires.map(WireOp::shut_down).count() > 0
    }

    /// Forgets a connection's call that has ended.
    pub(super) fn end_wire(&mut self, token: Token) {
        if self.holds(token) && matches!(self.at(token), Op::Wire(_)) {
            drop(self.remove(token));
        }
    }

    /// Forgets the I/Os of members behind a network, unless the kernel still has a call of one.
    pub(super) fn drop_remote(&mut self) {
        if self.slots.iter().any(|slot| matches!(slot.op, Some(Op::Wire(_)))) {
            return;
        }
        let mut remote = Vec::new();
        self.each_remote(|token, op| {
            note_owed(op);
            remote.push(token);
        });
        remote.into_iter().for_each(|token| drop(self.remove(token)));
    }

    /// Notes the wish to end a member I/O early; nothing when it has been answered.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> Option<Found> {
        self.slots.iter_mut().enumerate().find_map(|(index, slot)| match &mut slot.op {
            Some(Op::Member(op)) if op.ticket == Some(ticket) => {
                op.cancelled = true;
                let token = token(slot.generation, index as u32);
                Some(if op.is_pretended() { Found::Pretended(token) } else { Found::Called(token) })
            }
            Some(Op::Remote(op)) if op.ticket == Some(ticket) => {
                op.cancelled = true;
                Some(Found::Remote(op.device.clone()))
            }
            _ => None,
        })
    }

    /// The result of a member I/O that only waited; nothing when it has ended before.
    pub(super) fn pretended_result(&mut self, token: Token) -> Option<i32> {
        self.holds(token).then(|| match self.at(token) {
            Op::Member(op) => op.pretended_result(),
            _ => unreachable!("only members pretend"),
        })
    }

    /// Gives everything so much more time. Gives the earliest deadline then.
    pub(super) fn postpone(&mut self, span: Duration) -> Time {
        let deadlines = self.slots.iter_mut().filter_map(|slot| slot.op.as_mut()?.deadline());
        let postponed = deadlines.map(|deadline| {
            *deadline = if *deadline == NEVER { NEVER } else { *deadline + span };
            *deadline
        });
        postponed.min().unwrap_or(NEVER)
    }

    /// Finds what is past its deadline, and takes the tickets of what ends with it. The deadline of a call
    /// that has not `begun` counts from its start, unless it waits for calls of its member that hang.
    ///
    /// Walks all that is in flight; deadlines are long and met, so this is rare.
    pub(super) fn expire(&mut self, now: Time, begun: impl Fn(Token) -> bool) -> Expired {
        let (mut late, mut remote, mut next) = (Vec::new(), Vec::new(), NEVER);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let Some(&mut deadline) = slot.op.as_mut().and_then(Op::deadline) else { continue };
            if deadline > now {
                next = next.min(deadline);
                continue;
            }
            if let Some(Op::Member(op)) = &mut slot.op
                && let Some(later) =
                    op.waits_until(now, || begun(token(slot.generation, index as u32)))
            {
                op.deadline = later;
                next = next.min(later);
                continue;
            }
            if let Some(deadline) = slot.op.as_mut().and_then(Op::deadline) {
                *deadline = NEVER;
            }
            let ticket = match &mut slot.op {
                Some(Op::Member(op)) => op.overtake(),
                Some(Op::Socket(op)) => {
                    op.timed_out = true;
                    None
                }
                _ => {
                    remote.push(token(slot.generation, index as u32));
                    continue;
                }
            };
            late.push((token(slot.generation, index as u32), ticket));
        }
        Expired { late, remote, next }
    }
}

fn token(generation: u32, index: u32) -> Token {
    Token(u64::from(generation) << 32 | u64::from(index))
}

fn index(token: Token) -> usize {
    token.0 as u32 as usize
}

//! All that a lane has in flight, by token.

use mdspace_engine::backend::Ticket;
use mdspace_engine::time::Time;

use crate::queue::Token;

use super::NEVER;
use super::member_op::MemberOp;
use super::socket_op::SocketOp;

pub(super) enum Op {
    Member(MemberOp),
    Socket(SocketOp),
}

impl Op {
    /// Drops a socket call that has ended and that nobody wants.
    pub(super) fn discard(self) {
        match self {
            Self::Socket(op) => op.discard(),
            Self::Member(_) => unreachable!("a member I/O always has an end"),
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
            Op::Socket(_) => unreachable!("just added"),
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

    /// Notes the wish to end a member I/O early. Gives its token, and whether its member only
    /// pretends; nothing when the I/O has been answered.
    pub(super) fn cancel(&mut self, ticket: Ticket) -> Option<(Token, bool)> {
        self.slots.iter_mut().enumerate().find_map(|(index, slot)| match &mut slot.op {
            Some(Op::Member(op)) if op.ticket == Some(ticket) => {
                op.cancelled = true;
                Some((token(slot.generation, index as u32), op.is_pretended()))
            }
            _ => None,
        })
    }

    /// The result of a member I/O that only waited; nothing when it has ended before.
    pub(super) fn pretended_result(&mut self, token: Token) -> Option<i32> {
        self.holds(token).then(|| match self.at(token) {
            Op::Member(op) => op.pretended_result(),
            Op::Socket(_) => unreachable!("only members pretend"),
        })
    }

    /// Takes the tickets of the I/Os whose deadline has come, and says when the next one comes.
    ///
    /// Walks all that is in flight; deadlines are long and met, so this is rare.
    pub(super) fn expire(&mut self, now: Time) -> (Vec<(Token, Option<Ticket>)>, Time) {
        let (mut late, mut next) = (Vec::new(), NEVER);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let deadline = match &mut slot.op {
                Some(Op::Member(op)) => &mut op.deadline,
                Some(Op::Socket(op)) => &mut op.deadline,
                None => continue,
            };
            if *deadline > now {
                next = next.min(*deadline);
                continue;
            }
            *deadline = NEVER;
            let ticket = match &mut slot.op {
                Some(Op::Member(op)) => op.ticket.take(),
                Some(Op::Socket(op)) => {
                    op.timed_out = true;
                    None
                }
                None => None,
            };
            late.push((token(slot.generation, index as u32), ticket));
        }
        (late, next)
    }
}

fn token(generation: u32, index: u32) -> Token {
    Token(u64::from(generation) << 32 | u64::from(index))
}

fn index(token: Token) -> usize {
    token.0 as u32 as usize
}

//! Member I/Os in flight on one lane, by ticket.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use smallvec::SmallVec;

use crate::backend::{IoDone, Ticket};
use crate::memory::Buffer;

use super::Lane;
use super::tasks::TaskSlot;

/// Takes the end of an I/O that was started without a task.
pub trait OpOwner {
    /// The I/O that was started with `tag` ended.
    fn done(self: Rc<Self>, tag: u64, done: IoDone);
}

/// Sees the end of an I/O before whoever asked for it: what answers it by another one.
pub(crate) trait Passage {
    /// The I/O that was passed on with `tag` ended so. `None`: it goes on, and will end again.
    fn pass(self: Rc<Self>, tag: u64, done: IoDone) -> Option<IoDone>;
}

/// Usually one: a device over paths whose paths are such devices has more.
type Passages = SmallVec<[(Rc<dyn Passage>, u64); 1]>;

#[derive(Default)]
pub(super) struct Ops {
    slots: Vec<OpSlot>,
    free: Vec<u32>,
    /// By slot, what an I/O's end goes through first, the innermost in front. Empty where nothing ever
    /// is passed on.
    passages: Vec<Passages>,
}

struct OpSlot {
    generation: u32,
    state: OpState,
}

enum OpState {
    Free,
    Waiting(Option<TaskSlot>),
    Done(IoDone),
    Direct(Rc<dyn OpOwner>, u64),
    Abandoned,
}

pub(super) enum Finished {
    Wake(TaskSlot),
    Kept,
    Direct { owner: Rc<dyn OpOwner>, tag: u64, done: IoDone },
    Abandoned(Option<Buffer>),
}

impl Ops {
    /// The ticket of the next I/O, should it not be done at once.
    pub(super) fn next(&self) -> Ticket {
        match self.free.last() {
            Some(&slot) => Ticket { slot, generation: self.slots[slot as usize].generation },
            None => {
                let slot = u32::try_from(self.slots.len());
                Ticket { slot: slot.expect("fewer than 2^32 I/Os in flight"), generation: 0 }
            }
        }
    }

    /// Takes note that the I/O with the next ticket is under way.
    pub(super) fn begin(&mut self, ticket: Ticket) {
        assert!(ticket == self.next(), "nothing is started in between");
        if self.free.pop().is_none() {
            self.slots.push(OpSlot { generation: 0, state: OpState::Free });
        }
        self.slots[ticket.slot as usize].state = OpState::Waiting(None);
    }

    /// The end of an I/O goes through `passage` before whatever it goes through already.
    #[inline]
    pub(super) fn add_passage(&mut self, ticket: Ticket, passage: Rc<dyn Passage>, tag: u64) {
        let slot = ticket.slot as usize;
        if self.passages.len() <= slot {
            self.passages.resize_with(slot + 1, SmallVec::new);
        }
        self.passages[slot].push((passage, tag));
    }

    /// What the end of an I/O goes through next.
    #[inline]
    pub(super) fn take_passage(&mut self, ticket: Ticket) -> Option<(Rc<dyn Passage>, u64)> {
        let passages = self.passages.get_mut(ticket.slot as usize)?;
        if passages.len() < 2 { passages.pop() } else { Some(passages.remove(0)) }
    }

    /// As [`begin`](Self::begin), with an owner who takes the end.
    pub(super) fn begin_direct(&mut self, ticket: Ticket, owner: Rc<dyn OpOwner>, tag: u64) {
        self.begin(ticket);
        self.slot(ticket).state = OpState::Direct(owner, tag);
    }

    fn release(&mut self, ticket: Ticket) -> Option<IoDone> {
        let entry = self.slot(ticket);
        entry.generation = entry.generation.wrapping_add(1);
        let state = std::mem::replace(&mut entry.state, OpState::Free);
        self.free.push(ticket.slot);
        match state {
            OpState::Done(done) => Some(done),
            _ => None,
        }
    }

    pub(super) fn finish(&mut self, ticket: Ticket, done: IoDone) -> Finished {
        let entry = self.slot(ticket);
        match std::mem::replace(&mut entry.state, OpState::Free) {
            OpState::Waiting(task) => {
                entry.state = OpState::Done(done);
                task.map_or(Finished::Kept, Finished::Wake)
            }
            OpState::Direct(owner, tag) => {
                self.release(ticket);
                Finished::Direct { owner, tag, done }
            }
            OpState::Abandoned => {
                self.release(ticket);
                Finished::Abandoned(done.buffer)
            }
            OpState::Free | OpState::Done(_) => panic!("a ticket completes once"),
        }
    }

    fn poll(&mut self, ticket: Ticket, task: TaskSlot) -> Option<IoDone> {
        let entry = self.slot(ticket);
        match &mut entry.state {
            OpState::Done(_) => self.release(ticket),
            OpState::Waiting(waiter) => {
                *waiter = Some(task);
                None
            }
            _ => panic!("only a waiting I/O is polled"),
        }
    }

    /// Gives the end of an I/O to an owner. A result that is there already is handed back.
    fn leave_to(&mut self, ticket: Ticket, owner: &Rc<dyn OpOwner>, tag: u64) -> Option<IoDone> {
        let entry = self.slot(ticket);
        if matches!(entry.state, OpState::Done(_)) {
            return self.release(ticket);
        }
        entry.state = OpState::Direct(owner.clone(), tag);
        None
    }

    /// Gives up the interest in an I/O. A result that is there already is handed back.
    fn abandon(&mut self, ticket: Ticket) -> Option<IoDone> {
        let entry = self.slot(ticket);
        if matches!(entry.state, OpState::Done(_)) {
            return self.release(ticket);
        }
        entry.state = OpState::Abandoned;
        None
    }

    /// Leaves every direct I/O in flight to the backend, and gives the owners. What passes ends on hears
    /// of none any more.
    pub(super) fn disown(&mut self) -> Vec<Rc<dyn OpOwner>> {
        self.passages.clear();
        let mut owners = Vec::new();
        for entry in &mut self.slots {
            if matches!(entry.state, OpState::Direct(..))
                && let OpState::Direct(owner, _) =
                    std::mem::replace(&mut entry.state, OpState::Abandoned)
            {
                owners.push(owner);
            }
        }
        owners
    }

    fn slot(&mut self, ticket: Ticket) -> &mut OpSlot {
        let entry = &mut self.slots[ticket.slot as usize];
        assert!(entry.generation == ticket.generation, "a ticket is used by its owner only");
        entry
    }
}

/// A member I/O under way, as a future of its end.
pub struct Io<'a> {
    lane: &'a Lane,
    state: IoState,
}

enum IoState {
    Done(IoDone),
    Pending(Ticket),
    Taken,
}

impl<'a> Io<'a> {
    /// One that has ended.
    pub(crate) fn done(lane: &'a Lane, done: IoDone) -> Self {
        Self { lane, state: IoState::Done(done) }
    }

    pub(super) fn pending(lane: &'a Lane, ticket: Ticket) -> Self {
        Self { lane, state: IoState::Pending(ticket) }
    }

    /// Names it to the backend, for a cancel; `None` once it has ended.
    pub fn ticket(&self) -> Option<Ticket> {
        match self.state {
            IoState::Pending(ticket) => Some(ticket),
            IoState::Done(_) | IoState::Taken => None,
        }
    }
}

impl Io<'_> {
    /// Gives the end to an owner, who is told at once if it is there already.
    pub(crate) fn leave_to(mut self, owner: Rc<dyn OpOwner>, tag: u64) {
        match std::mem::replace(&mut self.state, IoState::Taken) {
            IoState::Pending(ticket) => {
                let done = self.lane.ops.borrow_mut().leave_to(ticket, &owner, tag);
                if let Some(done) = done {
                    owner.done(tag, done);
                }
            }
            IoState::Done(done) => owner.done(tag, done),
            IoState::Taken => {}
        }
    }
}

impl Future for Io<'_> {
    type Output = IoDone;

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<IoDone> {
        match std::mem::replace(&mut self.state, IoState::Taken) {
            IoState::Done(done) => Poll::Ready(done),
            IoState::Pending(ticket) => {
                let done = self.lane.ops.borrow_mut().poll(ticket, self.lane.current.get());
                match done {
                    Some(done) => Poll::Ready(done),
                    None => {
                        self.state = IoState::Pending(ticket);
                        Poll::Pending
                    }
                }
            }
            IoState::Taken => panic!("a finished I/O is not polled again"),
        }
    }
}

impl Drop for Io<'_> {
    fn drop(&mut self) {
        let done = match std::mem::replace(&mut self.state, IoState::Taken) {
            IoState::Pending(ticket) => self.lane.ops.borrow_mut().abandon(ticket),
            IoState::Done(done) => Some(done),
            IoState::Taken => None,
        };
        if let Some(buffer) = done.and_then(|done| done.buffer) {
            self.lane.backend.recycle(buffer);
        }
    }
}

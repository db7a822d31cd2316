//! Calls of front ends on their sockets, as futures.

use std::future::Future;
use std::os::fd::{FromRawFd, OwnedFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use mdspace_engine::time::Time;

use crate::lane_io::Outgoing;
use crate::payload::Payload;
use crate::queue::{Call, Token};

use super::ops::Op;
use super::{Driver, NEVER};

pub(crate) struct SocketOp {
    state: State,
    pub(super) deadline: Time,
    pub(super) timed_out: bool,
    kept: Kept,
    /// Open until the call has ended.
    _socket: Rc<OwnedFd>,
}

/// What a call keeps until the kernel is done with it.
pub(crate) enum Kept {
    Nothing,
    /// The call's value is a new descriptor.
    Connection,
    /// Memory that the call fills.
    Bytes(Vec<u8>),
    /// A payload that the call fills.
    Payload(Rc<Payload>),
    /// A message that goes out.
    Message(Box<Outgoing>),
}

enum State {
    Waiting(Option<Waker>),
    Ended(i32),
    /// Nobody waits any more; what is kept goes when the call ends.
    Abandoned,
}

impl SocketOp {
    /// Takes the call's end; gives the waker of whoever waits.
    pub(super) fn end(&mut self, result: i32) -> End {
        if let Kept::Payload(payload) = &self.kept {
            payload.filled();
        }
        match std::mem::replace(&mut self.state, State::Ended(result)) {
            State::Waiting(waker) => End::Wake(waker),
            State::Ended(_) => panic!("a call ends once"),
            State::Abandoned => End::Abandoned,
        }
    }

    /// Drops a call that has ended and that nobody wants.
    pub(super) fn discard(self) {
        if let (Kept::Connection, State::Ended(fd @ 0..)) = (&self.kept, &self.state) {
            // SAFETY: a connection accepted for nobody; no one else owns its descriptor.
            drop(unsafe { OwnedFd::from_raw_fd(*fd) });
        }
    }
}

/// Who hears of a call's end.
pub(super) enum End {
    Wake(Option<Waker>),
    /// Nobody: it is to be discarded.
    Abandoned,
}

/// A call under way, as a future of its end: its result or negative errno, and what it kept.
pub(crate) struct SocketCall {
    driver: Rc<Driver>,
    token: Option<Token>,
}

impl Driver {
    /// Starts a call on a socket. `deadline`: the call ends with `ETIMEDOUT` then.
    ///
    /// # Safety
    /// Every pointer in `call` points into what `kept` owns.
    pub(crate) unsafe fn start(
        self: &Rc<Self>,
        call: Call,
        socket: Rc<OwnedFd>,
        kept: Kept,
        deadline: Option<Time>,
    ) -> SocketCall {
        if let Kept::Payload(payload) = &kept {
            payload.filling();
        }
        let deadline = deadline.unwrap_or(NEVER);
        let state = State::Waiting(None);
        let op = SocketOp { state, deadline, timed_out: false, kept, _socket: socket };
        let token = self.ops.borrow_mut().add(Op::Socket(op));
        self.queue.borrow_mut().push(token, call);
        self.note_deadline(deadline);
        SocketCall { driver: self.clone(), token: Some(token) }
    }
}

impl Future for SocketCall {
    type Output = (i32, Kept);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<(i32, Kept)> {
        let token = self.token.expect("a finished call is not polled again");
        let mut ops = self.driver.ops.borrow_mut();
        let Op::Socket(op) = ops.at(token) else { unreachable!("a socket's token") };
        let State::Ended(result) = op.state else {
            op.state = State::Waiting(Some(context.waker().clone()));
            return Poll::Pending;
        };
        let Op::Socket(op) = ops.remove(token) else { unreachable!("a socket's token") };
        drop(ops);
        self.token = None;
        let late = op.timed_out && result == -libc::ECANCELED;
        Poll::Ready((if late { -libc::ETIMEDOUT } else { result }, op.kept))
    }
}

impl Drop for SocketCall {
    fn drop(&mut self) {
        let Some(token) = self.token.take() else { return };
        let mut ops = self.driver.ops.borrow_mut();
        let Op::Socket(op) = ops.at(token) else { unreachable!("a socket's token") };
        if matches!(op.state, State::Ended(_)) {
            let ended = ops.remove(token);
            drop(ops);
            return ended.discard();
        }
        op.state = State::Abandoned;
        drop(ops);
        self.driver.queue.borrow_mut().cancel(token);
    }
}

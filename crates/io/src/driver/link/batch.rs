//! Requests that go out together, in one send, or in several where the socket takes no more.

use std::os::fd::AsRawFd;
use std::rc::Rc;

use mdspace_engine::lane::Lane;

use crate::member::Nbd;
use crate::nbd_wire::REQUEST_HEADER_BYTES;
use crate::queue::{Call, Token};

use super::super::Driver;
use super::super::device::Device;
use super::super::ops::Op;
use super::super::remote_op::Stage;
use super::{Link, WireCall, WireOp, link_of, nbd_of};

/// Requests of one send at most, and bytes after which a send takes no more of them: bytes that go with them, of which
/// none may leave before the deadline, and that come back.
const BATCH_REQUESTS: usize = 256;
const BATCH_BYTES: usize = 4 << 20;
/// The system's limit on the pieces of one send.
const PIECES_MAX: usize = 1024;

/// Requests that go out together.
pub(super) struct Batch {
    tokens: Vec<Token>,
    headers: Vec<[u8; REQUEST_HEADER_BYTES]>,
    pieces: Vec<libc::iovec>,
    /// The first piece of which something is left.
    at: usize,
    message: libc::msghdr,
}

impl Batch {
    fn new() -> Box<Self> {
        // SAFETY: all zeroes is an empty message header.
        let message = unsafe { std::mem::zeroed() };
        let (tokens, headers, pieces) = (Vec::new(), Vec::new(), Vec::new());
        Box::new(Self { tokens, headers, pieces, at: 0, message })
    }

    /// The header of what is left; valid while `self` rests in its box unchanged.
    fn rest(&mut self) -> *const libc::msghdr {
        let rest = &mut self.pieces[self.at..];
        self.message.msg_iov = rest.as_mut_ptr();
        self.message.msg_iovlen = rest.len().min(PIECES_MAX) as _;
        &raw const self.message
    }

    /// Takes note of bytes that have gone.
    fn advance(&mut self, mut bytes: usize) {
        while let Some(piece) = self.pieces.get_mut(self.at) {
            if bytes < piece.iov_len {
                // SAFETY: within the piece.
                piece.iov_base = unsafe { piece.iov_base.cast::<u8>().add(bytes) }.cast();
                piece.iov_len -= bytes;
                return;
            }
            bytes -= piece.iov_len;
            self.at += 1;
        }
        assert!(bytes == 0, "the kernel sends no more than it was given");
    }
}

impl Driver {
    /// Sends what is queued, unless a send is under way.
    pub(super) fn send(&self, device: &Rc<Device>) {
        let link = link_of(device);
        let free = link.connection(|connection| !connection.sending && !connection.ending);
        if free != Some(true) || link.queued.borrow().is_empty() {
            return;
        }
        let batch = self.batch(link, nbd_of(&device.member));
        if batch.tokens.is_empty() {
            return;
        }
        let socket = link.connection(|connection| {
            connection.sending = true;
            connection.socket.clone()
        });
        let socket = socket.expect("seen to be up");
        let op = WireOp { device: device.clone(), call: WireCall::Send(batch) };
        let mut ops = self.ops.borrow_mut();
        let token = ops.add(Op::Wire(op));
        let Op::Wire(WireOp { call: WireCall::Send(batch), .. }) = ops.at(token) else {
            unreachable!("just added")
        };
        let message = batch.rest();
        self.queue.borrow_mut().push(token, Call::Send { fd: socket.as_raw_fd(), message });
    }

    fn batch(&self, link: &Link, nbd: &Nbd) -> Box<Batch> {
        let mut batch = Batch::new();
        let mut ops = self.ops.borrow_mut();
        let mut queued = link.queued.borrow_mut();
        let (mut bytes, now) = (0, nbd.now());
        while bytes < BATCH_BYTES && batch.tokens.len() < BATCH_REQUESTS {
            let Some(token) = queued.pop_front() else { break };
            // One past its deadline is gone.
            let Some(op) = ops.remote(token.0) else { continue };
            batch.headers.push(op.header(token, nbd.export, now));
            batch.tokens.push(token);
            bytes += op.payload_bytes();
        }
        for (token, header) in batch.tokens.iter().zip(&batch.headers) {
            let at = header.as_ptr().cast_mut().cast();
            batch.pieces.push(libc::iovec { iov_base: at, iov_len: header.len() });
            if let Some(op) = ops.remote(token.0) {
                op.payload(&mut batch.pieces);
            }
        }
        batch
    }

    /// Takes the end of a send: its value, or a negative errno.
    pub(super) fn sent(&self, lane: &Lane, token: Token, result: i32) {
        let mut ops = self.ops.borrow_mut();
        let Op::Wire(WireOp { device, call: WireCall::Send(batch) }) = ops.at(token) else {
            unreachable!("a send's token")
        };
        let device = device.clone();
        let link = link_of(&device);
        let ending = link.connection(|connection| connection.ending) == Some(true);
        let again = matches!(result, n if n == -libc::EINTR || n == -libc::EAGAIN);
        if !ending && (result > 0 || again) {
            batch.advance(usize::try_from(result).unwrap_or(0));
            if batch.at < batch.pieces.len() {
                let message = batch.rest();
                let fd = link.connection(|connection| connection.socket.as_raw_fd());
                let fd = fd.expect("a send under way has its connection");
                return self.queue.borrow_mut().push(token, Call::Send { fd, message });
            }
        }
        let Op::Wire(WireOp { call: WireCall::Send(batch), .. }) = ops.remove(token) else {
            unreachable!("a send's token")
        };
        let whole = batch.at == batch.pieces.len();
        let mut answered = Vec::new();
        for token in &batch.tokens {
            let Some(op) = ops.remote(token.0).filter(|op| op.stage == Stage::Sending) else {
                continue;
            };
            if whole {
                op.stage = Stage::Sent;
                answered.extend(op.early_answer.take().map(|errno| (*token, errno)));
            }
        }
        drop(ops);
        link.connection(|connection| connection.sending = false);
        for (token, errno) in answered {
            self.answer(lane, token, errno);
        }
        match whole {
            true => self.send(&device),
            false => self.lose(lane, &device),
        }
    }
}

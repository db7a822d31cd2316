//! The answers of a server, as they arrive: a stream of headers, each with the data that were asked for.

use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use mdspace_engine::lane::Lane;

use crate::nbd_wire::{Fields, SIMPLE_REPLY_MAGIC};
use crate::queue::{Call, Token};

use super::super::Driver;
use super::super::device::Device;
use super::super::ops::Op;
use super::super::remote_op::{Next, Stage, token_of};
use super::{WireCall, WireOp, link_of};

const ANSWER_HEADER_BYTES: usize = 16;

/// How far the stream of answers is.
#[derive(Default)]
pub(super) struct Answers {
    header: Vec<u8>,
    /// Whose data come, and how many bytes of them have and are to come.
    data: Option<(Token, usize, usize)>,
}

impl Driver {
    pub(super) fn receive(&self, device: &Rc<Device>, socket: &OwnedFd, mut inbox: Box<[u8]>) {
        let (to, len) = (inbox.as_mut_ptr(), inbox.len() as u32);
        let op = WireOp { device: device.clone(), call: WireCall::Receive(inbox) };
        let token = self.ops.borrow_mut().add(Op::Wire(op));
        let call = Call::Recv { fd: socket.as_raw_fd(), to, len, flags: 0 };
        self.queue.borrow_mut().push(token, call);
    }

    /// Takes the end of a receive: its value, or a negative errno.
    pub(super) fn received(&self, lane: &Lane, token: Token, result: i32) {
        let removed = self.ops.borrow_mut().remove(token);
        let Op::Wire(WireOp { device, call: WireCall::Receive(inbox) }) = removed else {
            unreachable!("a receive's token")
        };
        let link = link_of(&device);
        let taken = link.connection(|connection| {
            connection.receiving = false;
            let answers = std::mem::take(&mut connection.answers);
            (!connection.ending).then(|| (connection.socket.clone(), answers))
        });
        let Some(Some((socket, mut answers))) = taken else {
            return self.hang_up(lane, &device);
        };
        let again = matches!(result, n if n == -libc::EINTR || n == -libc::EAGAIN);
        let bytes = usize::try_from(result).unwrap_or(0);
        let good =
            again || bytes > 0 && self.take_answers(lane, &device, &mut answers, &inbox[..bytes]);
        if !good {
            return self.lose(lane, &device);
        }
        // What an answer's owner does at once may have hung up.
        let goes_on = link.connection(|connection| {
            connection.answers = answers;
            connection.receiving = !connection.ending;
            connection.receiving
        });
        match goes_on {
            Some(true) => self.receive(&device, &socket, inbox),
            _ => self.hang_up(lane, &device),
        }
    }

    /// Reads answers. False: the server broke the protocol.
    fn take_answers(
        &self,
        lane: &Lane,
        device: &Rc<Device>,
        answers: &mut Answers,
        mut input: &[u8],
    ) -> bool {
        while !input.is_empty() {
            if let Some((token, at, left)) = answers.data {
                let (bytes, rest) = input.split_at(left.min(input.len()));
                input = rest;
                match self.ops.borrow_mut().remote(token.0) {
                    Some(op) => op.fill(at, bytes),
                    None => return false,
                }
                let (at, left) = (at + bytes.len(), left - bytes.len());
                answers.data = (left > 0).then_some((token, at, left));
                if left == 0 {
                    self.answer(lane, token, 0);
                }
                continue;
            }
            let missing = ANSWER_HEADER_BYTES - answers.header.len();
            let (bytes, rest) = input.split_at(missing.min(input.len()));
            input = rest;
            answers.header.extend_from_slice(bytes);
            if answers.header.len() < ANSWER_HEADER_BYTES {
                continue;
            }
            let header = std::mem::take(&mut answers.header);
            match self.begin_answer(device, &header) {
                None => return false,
                Some((token, 0, errno)) => self.answer(lane, token, errno),
                Some((token, bytes, _)) => answers.data = Some((token, 0, bytes)),
            }
        }
        true
    }

    /// Whom an answer is for, how many bytes follow, and its error. None: it is for nobody.
    fn begin_answer(&self, device: &Rc<Device>, header: &[u8]) -> Option<(Token, usize, u32)> {
        let mut fields = Fields(header);
        if fields.u32()? != SIMPLE_REPLY_MAGIC {
            return None;
        }
        let (errno, cookie) = (fields.u32()?, fields.u64()?);
        let (mut ops, token) = (self.ops.borrow_mut(), token_of(cookie));
        let op = ops.remote(token.0)?;
        if !op.awaits(token, cookie) || !Rc::ptr_eq(&op.device, device) {
            return None;
        }
        Some((token, if errno == 0 { op.answer_bytes() } else { 0 }, errno))
    }

    pub(super) fn answer(&self, lane: &Lane, token: Token, errno: u32) {
        let mut ops = self.ops.borrow_mut();
        let op = ops.remote(token.0).expect("seen to wait for its answer");
        if op.stage == Stage::Sending && op.writes() {
            // A server that answers before it has all: the kernel still reads the memory.
            op.early_answer = Some(errno);
            return;
        }
        match op.absorb(errno, self) {
            Next::Again => {
                let device = op.device.clone();
                drop(ops);
                link_of(&device).queued.borrow_mut().push_back(token);
                self.list(&device);
            }
            Next::End(result) => {
                drop(ops);
                self.end_remote(lane, token, result);
            }
        }
    }
}

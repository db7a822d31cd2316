//! One lane's connection to a member behind a network: what goes out together in one send, and the
//! answers as they arrive, in any order.
//!
//! Answers are received into the link's own memory and copied from there: so a read can be given up
//! at any time, and its memory comes back at once. What is written goes out of the writer's own.
//!
//! A connection that is lost, by an error or because the server broke the protocol, stays lost: see
//! [`Nbd`]. The socket is shut down, and when the kernel has ended both calls on it, everything that
//! was under way ends as gone.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mdspace_engine::backend::{IoDone, IoError, IoErrorKind, IoOp, MemberId, Submitted, Ticket};
use mdspace_engine::lane::Lane;
use mdspace_engine::sync::Mutex;
use mdspace_engine::time::Time;

use crate::errno::io_error;
use crate::lanes::EventFd;
use crate::member::{self, Member, Nbd};
use crate::nbd_wire::{
    Fields, Put, REQUEST_HEADER_BYTES, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC, command,
};
use crate::queue::{Call, Token};

use super::Driver;
use super::device::Device;
use super::ops::Op;
use super::remote_op::{Next, RemoteOp, Stage};

/// Requests of one send at most, and bytes after which a send takes no more of them.
const BATCH_REQUESTS: usize = 256;
const BATCH_BYTES: usize = 4 << 20;
/// The system's limit on the pieces of one send.
const PIECES_MAX: usize = 1024;
/// Memory for what arrives, a link.
const INBOX_BYTES: usize = 256 << 10;
const ANSWER_HEADER_BYTES: usize = 16;

/// A member's connection on one lane.
#[derive(Default)]
pub(super) struct Link {
    state: RefCell<State>,
    queued: RefCell<VecDeque<Token>>,
    /// In the driver's list of links to look after.
    listed: Cell<bool>,
    /// Writes that had been sent when the connection was lost: they may still be done.
    unanswered: Cell<usize>,
}

#[derive(Default)]
enum State {
    /// Nobody has asked for anything yet.
    #[default]
    Idle,
    Connecting(Arc<Mutex<Option<io::Result<OwnedFd>>>>),
    Up(Connection),
    Lost,
}

struct Connection {
    socket: Rc<OwnedFd>,
    /// The kernel has a call of this kind.
    sending: bool,
    receiving: bool,
    /// Shut down: waits for the calls to end.
    ending: bool,
    answers: Answers,
}

/// How far the stream of answers is.
#[derive(Default)]
struct Answers {
    header: Vec<u8>,
    /// Whose data come, and how many bytes of them have and are to come.
    data: Option<(Token, usize, usize)>,
}

/// A call of a link that the kernel has.
pub(super) struct WireOp {
    device: Rc<Device>,
    call: WireCall,
}

enum WireCall {
    Send(Box<Batch>),
    Receive(Box<[u8]>),
}

/// Requests that go out together.
struct Batch {
    tokens: Vec<Token>,
    headers: Vec<[u8; REQUEST_HEADER_BYTES]>,
    pieces: Vec<libc::iovec>,
    /// The first piece of which something is left.
    at: usize,
    message: libc::msghdr,
}

/// The links of a lane that want something.
#[derive(Default)]
pub(super) struct Links {
    listed: RefCell<Vec<Rc<Device>>>,
    connecting: RefCell<Vec<Rc<Device>>>,
}

impl Links {
    pub(super) fn want_something(&self) -> bool {
        !self.listed.borrow().is_empty() || !self.connecting.borrow().is_empty()
    }

    /// Whether requests wait that could go out now.
    pub(super) fn have_unsent(&self) -> bool {
        !self.listed.borrow().is_empty()
    }
}

impl Link {
    pub(super) fn unanswered(&self) -> usize {
        self.unanswered.get()
    }

    fn connection<T>(&self, work: impl FnOnce(&mut Connection) -> T) -> Option<T> {
        match &mut *self.state.borrow_mut() {
            State::Up(connection) => Some(work(connection)),
            _ => None,
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // No call is under way: each holds the device, and so this.
        self.connection(|connection| {
            if !connection.ending {
                take_leave(&connection.socket);
            }
        });
    }
}

/// Starting.
impl Driver {
    /// Starts an I/O of a member behind a network.
    pub(super) fn submit_remote(
        &self,
        device: Rc<Device>,
        ticket: Ticket,
        deadline: Time,
        op: IoOp,
    ) -> Submitted {
        let nbd = nbd_of(&device.member);
        let flushes_nothing = matches!(op, IoOp::Flush) && !nbd.export.flushes();
        if flushes_nothing || matches!(&*link_of(&device).state.borrow(), State::Lost) {
            let gone = IoError { kind: IoErrorKind::Gone, errno: IoError::NOT_SENT };
            let result = if flushes_nothing { Ok(()) } else { Err(gone) };
            return Submitted::Done(IoDone { result, buffer: op.into_buffer() });
        }
        let export = nbd.export;
        let op = RemoteOp::new(self, device.clone(), export, ticket, deadline, op);
        self.note_deadline(deadline);
        let token = self.ops.borrow_mut().add(Op::Remote(op));
        link_of(&device).queued.borrow_mut().push_back(token);
        self.list(&device);
        Submitted::Pending
    }

    /// Has the link looked after in the next turn.
    pub(super) fn list(&self, device: &Rc<Device>) {
        if !link_of(device).listed.replace(true) {
            self.links.listed.borrow_mut().push(device.clone());
        }
    }

    /// Connects, sends and ends what waits for that.
    pub(super) fn look_after_links(&self, lane: &Lane) {
        let mut connecting = self.links.connecting.take();
        connecting.retain(|device| !self.has_connected(lane, device));
        self.links.connecting.borrow_mut().append(&mut connecting);
        for device in self.links.listed.take() {
            let link = link_of(&device);
            link.listed.set(false);
            self.end_cancelled(lane, link);
            let is_idle = matches!(&*link.state.borrow(), State::Idle);
            if is_idle {
                self.connect(lane, &device);
            }
            self.send(&device);
            let is_lost = matches!(&*link.state.borrow(), State::Lost);
            if is_lost {
                self.end_all(lane, &device);
            }
        }
    }

    fn connect(&self, lane: &Lane, device: &Rc<Device>) {
        if let Some(socket) = nbd_of(&device.member).take_first() {
            return self.up(lane, device, socket);
        }
        let place: Arc<Mutex<Option<io::Result<OwnedFd>>>> = Arc::default();
        *link_of(device).state.borrow_mut() = State::Connecting(place.clone());
        self.links.connecting.borrow_mut().push(device.clone());
        let (member, wake) = (device.member.clone(), self.wake.clone());
        let thread = std::thread::Builder::new().name("nbd-connect".into());
        let started = thread.spawn(move || connect(member, &place, &wake));
        if let Err(error) = started {
            tracing::warn!("{}: cannot connect: {error}", device.member.info.name);
            *link_of(device).state.borrow_mut() = State::Lost;
        }
    }

    /// Looks whether the thread that connects is done. True: nothing is to be waited for.
    fn has_connected(&self, lane: &Lane, device: &Rc<Device>) -> bool {
        let place = match &*link_of(device).state.borrow() {
            State::Connecting(place) => place.clone(),
            _ => return true,
        };
        let Some(result) = place.lock().take() else { return false };
        match result {
            Ok(socket) => self.up(lane, device, socket),
            Err(error) => {
                tracing::warn!("{}: cannot connect: {error}", device.member.info.name);
                *link_of(device).state.borrow_mut() = State::Lost;
                self.end_all(lane, device);
            }
        }
        true
    }

    fn up(&self, lane: &Lane, device: &Rc<Device>, socket: OwnedFd) {
        let socket = Rc::new(socket);
        let connection = Connection {
            socket: socket.clone(),
            sending: false,
            receiving: true,
            ending: false,
            answers: Answers::default(),
        };
        *link_of(device).state.borrow_mut() = State::Up(connection);
        self.receive(device, &socket, vec![0; INBOX_BYTES].into_boxed_slice());
        self.send(device);
        if device.member.closing.load(Ordering::Acquire) {
            self.hang_up(lane, device);
        }
    }

    /// Ends what was cancelled before it was sent.
    fn end_cancelled(&self, lane: &Lane, link: &Link) {
        let mut ended = Vec::new();
        let mut ops = self.ops.borrow_mut();
        link.queued.borrow_mut().retain(|&token| match ops.remote(token.0) {
            Some(op) if op.cancelled => {
                ended.push(token);
                false
            }
            Some(_) => true,
            None => false,
        });
        drop(ops);
        for token in ended {
            self.end_remote(lane, token, Err(io_error(libc::ECANCELED)));
        }
    }
}

/// Sending.
impl Driver {
    /// Sends what is queued, unless a send is under way.
    fn send(&self, device: &Rc<Device>) {
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
        let mut bytes = 0;
        while bytes < BATCH_BYTES && batch.tokens.len() < BATCH_REQUESTS {
            let Some(token) = queued.pop_front() else { break };
            // One past its deadline is gone.
            let Some(op) = ops.remote(token.0) else { continue };
            batch.headers.push(op.header(token, nbd.export));
            batch.tokens.push(token);
            bytes += op.answer_bytes();
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
    fn sent(&self, lane: &Lane, token: Token, result: i32) {
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
            false => self.hang_up(lane, &device),
        }
    }
}

/// Receiving.
impl Driver {
    fn receive(&self, device: &Rc<Device>, socket: &OwnedFd, mut inbox: Box<[u8]>) {
        let (to, len) = (inbox.as_mut_ptr(), inbox.len() as u32);
        let op = WireOp { device: device.clone(), call: WireCall::Receive(inbox) };
        let token = self.ops.borrow_mut().add(Op::Wire(op));
        let call = Call::Recv { fd: socket.as_raw_fd(), to, len, flags: 0 };
        self.queue.borrow_mut().push(token, call);
    }

    /// Takes the end of a receive: its value, or a negative errno.
    fn received(&self, lane: &Lane, token: Token, result: i32) {
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
            return self.hang_up(lane, &device);
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
        let mut ops = self.ops.borrow_mut();
        let op = ops.remote(cookie)?;
        let asked = op.stage != Stage::Queued && op.early_answer.is_none();
        if !asked || !Rc::ptr_eq(&op.device, device) {
            return None;
        }
        Some((Token(cookie), if errno == 0 { op.answer_bytes() } else { 0 }, errno))
    }

    fn answer(&self, lane: &Lane, token: Token, errno: u32) {
        let mut ops = self.ops.borrow_mut();
        let op = ops.remote(token.0).expect("seen to wait for its answer");
        if op.stage == Stage::Sending && op.writes() {
            // A server that answers before it has all: the kernel still reads the memory.
            op.early_answer = Some(errno);
            return;
        }
        match op.absorb(errno) {
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

/// Ending.
impl Driver {
    /// Takes the end of a link's call.
    pub(super) fn end_wire(&self, lane: &Lane, token: Token, result: i32) {
        let is_send = match self.ops.borrow_mut().at(token) {
            Op::Wire(op) => matches!(op.call, WireCall::Send(_)),
            _ => unreachable!("a link's token"),
        };
        match is_send {
            true => self.sent(lane, token, result),
            false => self.received(lane, token, result),
        }
    }

    fn end_remote(&self, lane: &Lane, token: Token, result: Result<(), IoError>) {
        let Op::Remote(op) = self.ops.borrow_mut().remove(token) else {
            unreachable!("a remote I/O's token")
        };
        let ticket = op.ticket;
        let done = op.end(result, &self.stock);
        match ticket {
            Some(ticket) => lane.complete(ticket, done),
            // Answered at its deadline: what is left of it comes home late.
            None => drop(done.buffer.map(|buffer| self.stock.recycle(buffer))),
        }
    }

    /// Answers an I/O whose deadline has come. One that was sent stays in flight until the server
    /// answers or the connection is lost.
    pub(super) fn expire_remote(&self, lane: &Lane, token: Token) {
        let mut ops = self.ops.borrow_mut();
        let Some(op) = ops.remote(token.0) else { return };
        let error = op.unanswered(IoErrorKind::Deadline);
        if op.stage == Stage::Queued {
            drop(ops);
            return self.end_remote(lane, token, Err(error));
        }
        let Some(ticket) = op.ticket.take() else { return };
        let buffer = op.give_up_memory(&self.stock);
        drop(ops);
        lane.complete(ticket, IoDone { result: Err(error), buffer });
    }

    /// Ends the connection of a link; what is under way there ends when the kernel lets go.
    pub(super) fn hang_up(&self, lane: &Lane, device: &Rc<Device>) {
        let link = link_of(device);
        let drained = link.connection(|connection| {
            if !std::mem::replace(&mut connection.ending, true) {
                if !connection.sending {
                    take_leave(&connection.socket);
                }
                // SAFETY: no pointer is passed.
                unsafe { libc::shutdown(connection.socket.as_raw_fd(), libc::SHUT_RDWR) };
            }
            !connection.sending && !connection.receiving
        });
        if drained == Some(true) {
            *link.state.borrow_mut() = State::Lost;
            self.end_all(lane, device);
        }
    }

    /// Ends everything of a link that is lost.
    fn end_all(&self, lane: &Lane, device: &Rc<Device>) {
        let link = link_of(device);
        link.queued.borrow_mut().clear();
        let mut ended = Vec::new();
        self.ops.borrow_mut().each_remote(|token, op| {
            if !Rc::ptr_eq(&op.device, device) {
                return;
            }
            if op.stage != Stage::Queued && op.writes() {
                link.unanswered.set(link.unanswered.get() + 1);
            }
            ended.push((token, op.unanswered(IoErrorKind::Gone)));
        });
        for (token, error) in ended {
            self.end_remote(lane, token, Err(error));
        }
    }

    /// Hangs up where nobody waits for anything, so that the lane can end.
    pub(super) fn hang_up_where_idle(&self, lane: &Lane) {
        self.devices.borrow().end_idle_paths();
        let mut waited = Vec::new();
        self.ops.borrow_mut().each_remote(|_, op| {
            if op.ticket.is_some() {
                waited.push(op.device.member.id);
            }
        });
        let idle = |id: &MemberId| !waited.contains(id);
        let devices = self.devices.borrow().links();
        devices
            .iter()
            .filter(|device| idle(&device.member.id))
            .for_each(|device| self.hang_up(lane, device));
    }
}

impl WireOp {
    /// Ends the connection, for a lane that is dropped with it.
    pub(super) fn shut_down(&self) {
        link_of(&self.device).connection(|connection| {
            connection.ending = true;
            // SAFETY: no pointer is passed.
            unsafe { libc::shutdown(connection.socket.as_raw_fd(), libc::SHUT_RDWR) };
        });
    }
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

/// The life of the thread that connects.
fn connect(member: Arc<Member>, place: &Mutex<Option<io::Result<OwnedFd>>>, wake: &EventFd) {
    let result = nbd_of(&member).connect();
    *place.lock() = Some(result);
    wake.wake();
}

/// Tells the server that the connection ends. One that does not listen is left without.
fn take_leave(socket: &OwnedFd) {
    let mut message = Vec::with_capacity(REQUEST_HEADER_BYTES);
    message.put_u32(REQUEST_MAGIC);
    message.put_u16(0);
    message.put_u16(command::DISC);
    message.put_u64(0);
    message.put_u64(0);
    message.put_u32(0);
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the message is as long as is said.
    unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), flags) };
}

fn nbd_of(member: &Member) -> &Nbd {
    match &member.device {
        member::Device::Nbd(nbd) => nbd,
        _ => unreachable!("only members behind a network have links"),
    }
}

fn link_of(device: &Device) -> &Link {
    device.link.as_ref().expect("a member behind a network has a link")
}

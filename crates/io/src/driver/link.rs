//! One lane's connection to a member behind a network: what goes out together in one send, and the
//! answers as they arrive, in any order.
//!
//! Answers are received into the link's own memory and copied from there: so a read can be given up
//! at any time, and its memory comes back at once. What is written goes out of the writer's own.
//!
//! A lane makes no connection: the member has one for it from the start.
//!
//! A connection that is lost, by an error or because the server broke the protocol, stays lost: see
//! [`Nbd`]. The socket is shut down, and when the kernel has ended both calls on it, everything that
//! was under way ends as gone.

mod answers;
mod batch;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use mdspace_engine::backend::{IoDone, IoError, IoErrorKind, IoOp, MemberId, Submitted, Ticket};
use mdspace_engine::lane::Lane;
use mdspace_engine::sync::Mutex;
use mdspace_engine::time::Time;

use crate::errno::io_error;
use crate::member::proof::{self, Asker};
use crate::member::{self, Made, Member, Nbd};
use crate::nbd_wire::{Put, REQUEST_HEADER_BYTES, REQUEST_MAGIC, command};
use crate::queue::Token;

use super::Driver;
use super::device::Device;
use super::ops::Op;
use super::remote_op::{RemoteOp, Stage};

use answers::Answers;
use batch::Batch;

/// Memory for what arrives, a link.
const INBOX_BYTES: usize = 256 << 10;

/// When a thread is asked for again that the system did not give.
const WITHOUT_THREAD_AGAIN_AFTER: Duration = Duration::from_millis(100);

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

/// Where a thread leaves what it has proved.
type Place = Arc<Mutex<Option<io::Result<OwnedFd>>>>;

#[derive(Default)]
enum State {
    /// The connection is not taken up yet.
    #[default]
    Idle,
    /// A thread proves it.
    Proving(Place),
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

/// A call of a link that the kernel has.
pub(super) struct WireOp {
    device: Rc<Device>,
    call: WireCall,
}

enum WireCall {
    Send(Box<Batch>),
    Receive(Box<[u8]>),
}

/// The links of a lane that want something.
#[derive(Default)]
pub(super) struct Links {
    listed: RefCell<Vec<Rc<Device>>>,
    proving: RefCell<Vec<Rc<Device>>>,
}

impl Links {
    pub(super) fn want_something(&self) -> bool {
        !self.listed.borrow().is_empty() || !self.proving.borrow().is_empty()
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

    pub(super) fn is_up(&self) -> bool {
        matches!(&*self.state.borrow(), State::Up(connection) if !connection.ending)
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

    /// Takes connections up, sends and ends what waits for that.
    pub(super) fn look_after_links(&self, lane: &Lane) {
        let mut proving = self.links.proving.take();
        proving.retain(|device| !self.has_proved(lane, device));
        self.links.proving.borrow_mut().append(&mut proving);
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

    /// Takes up the connection that was made for this lane. It has none where the member was lost before.
    fn connect(&self, lane: &Lane, device: &Rc<Device>) {
        match nbd_of(&device.member).take(lane.id()) {
            Some(Made { socket, is_told: true }) => self.up(lane, device, socket),
            Some(Made { socket, is_told: false }) => self.prove(lane, device, socket),
            None => *link_of(device).state.borrow_mut() = State::Lost,
        }
    }

    /// Has a thread prove the connection. Without one it is tried again soon.
    fn prove(&self, lane: &Lane, device: &Rc<Device>, socket: OwnedFd) {
        let place: Place = Arc::default();
        *link_of(device).state.borrow_mut() = State::Proving(place.clone());
        self.links.proving.borrow_mut().push(device.clone());
        let (member, wake, id) = (device.member.clone(), self.wake.clone(), lane.id());
        let members = self.devices.borrow().table();
        let handed = Arc::new(Mutex::new(Some(socket)));
        let taken = handed.clone();
        let thread = std::thread::Builder::new().name("nbd-prove".into());
        let started = thread.spawn(move || {
            let Some(socket) = taken.lock().take() else { return };
            let (nbd, bytes) = (nbd_of(&member), member.info.sectors * 512);
            let proved = nbd.prove_again(id, socket, bytes, || members.have_lanes_look());
            *place.lock() = Some(proved);
            wake.wake();
        });
        if started.is_err()
            && let Some(socket) = handed.lock().take()
        {
            nbd_of(&device.member).give_back(id, Made { socket, is_told: false });
            *link_of(device).state.borrow_mut() = State::Idle;
            self.note_deadline(self.about_now() + WITHOUT_THREAD_AGAIN_AFTER);
        }
    }

    /// Looks whether the thread that proves is done. True: nothing is to be waited for.
    fn has_proved(&self, lane: &Lane, device: &Rc<Device>) -> bool {
        let place = match &*link_of(device).state.borrow() {
            State::Proving(place) => Some(place.clone()),
            State::Idle => None,
            _ => return true,
        };
        match place.map(|place| place.lock().take()) {
            None => self.connect(lane, device),
            Some(None) => return false,
            Some(Some(Ok(socket))) => self.up(lane, device, socket),
            Some(Some(Err(error))) => {
                tracing::warn!("{}: cannot connect: {error}", device.member.info.name);
                nbd_of(&device.member).have_disconnected(lane.id());
                *link_of(device).state.borrow_mut() = State::Lost;
            }
        }
        if matches!(&*link_of(device).state.borrow(), State::Lost) {
            self.list(device);
        }
        true
    }

    /// Tells other lanes what identifies a member, read over this lane's connection.
    pub(super) fn identify(&self, member: &Arc<Member>, asked: Vec<Asker>) {
        let Some(lane) = self.lane.get().and_then(Weak::upgrade) else { return };
        let (on_lane, member) = (lane.clone(), member.clone());
        lane.spawn(async move {
            // Without an answer who asks gives up.
            let Ok(read) = proof::read(&on_lane, member.id, member.info.sectors * 512).await else {
                return;
            };
            asked.into_iter().for_each(|asker| drop(asker.send(read.clone())));
        });
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
        if device.is_closing() {
            // What waits is not sent: cut off, it might appear late.
            return self.hang_up(lane, device);
        }
        self.send(device);
        // What has waited for this and was just sent is answered before a connection gives way.
        if device.gives_way_now() {
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

    pub(super) fn end_remote(&self, lane: &Lane, token: Token, result: Result<(), IoError>) {
        let Op::Remote(op) = self.ops.borrow_mut().remove(token) else {
            unreachable!("a remote I/O's token")
        };
        let ticket = op.ticket;
        let (member, flushed) = (op.device.member.id, op.request_flushes());
        let done = op.end(result, &self.stock);
        match ticket {
            Some(ticket) => lane.complete(ticket, done),
            None => self.end_late(lane, member, flushed, done),
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

    /// Ends the connection of a link that the server has ended, or on which it broke the protocol.
    pub(super) fn lose(&self, lane: &Lane, device: &Rc<Device>) {
        if link_of(device).is_up() {
            nbd_of(&device.member).have_lost();
        }
        self.hang_up(lane, device);
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
            nbd_of(&device.member).have_disconnected(lane.id());
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
            if note_owed(op) {
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

/// Notes that an I/O will not be answered. Whether it is a write that was sent.
pub(super) fn note_owed(op: &RemoteOp) -> bool {
    let Some(owed) = op.owed() else { return false };
    nbd_of(&op.device.member).owe(owed);
    true
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

//! One client's connection on its lane: a session between a socket and the array.
//!
//! Two tasks share it. [`receive`](Connection::receive) turns bytes into requests, many for each
//! `recv`; [`answer`](Connection::answer) turns all that has ended meanwhile into one send. Both
//! live on the lane that got the connection, and so does every request.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::ops::{ControlFlow, Range};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use mdspace_engine::lane::Lane;
use mdspace_engine::memory::Sink;
use mdspace_engine::request::{self as engine, Completion, Queue, RequestError};
use mdspace_engine::time::Time;
use mdspace_io::{LaneIo, Message, Payload, Socket};
use rustls::ServerConfig;

use crate::partial_writes::{LaneWrites, WholeWrite};
use crate::pieces::{PIECE_SECTORS, do_in_pieces};
use crate::tags::Tags;
use crate::volume::VolumePart;
use crate::wait::Wait;

use super::batch::Data;
use super::budget::{Borrower, Call};
use super::request::{Command, Request};
use super::session::{Closing, Event, Session};
use super::transport::Transport;
use super::wire::Errno;

/// Memory for one `recv`: several dozen small writes, or many hundred reads.
const RECEIVE_BYTES: usize = 256 << 10;
/// A payload with so many bytes left is received into its own memory, without a copy.
const DIRECT_BYTES: usize = 32 << 10;
/// Bytes of a sector, the engine's unit.
const SECTOR_BYTES: u64 = 512;

/// A client's place among those that are served. It is dropped when the connection is over.
pub(super) trait Place {
    /// Takes it, when the handshake is over. False: there is none.
    fn take(&self) -> bool;

    /// Whether clients are being disconnected.
    fn is_over(&self) -> bool;

    /// Waits until what has just been received may be executed. False: none of it may be any more.
    async fn admits(&self) -> bool {
        true
    }
}

/// What a connection needs of its server.
pub(super) struct Terms {
    /// Transmission begins before this, as its lane has [lived](Lane::lived), or never.
    pub(super) handshake_until: Time,
    /// How long a client may take no answer, or send nothing of a write that it began.
    pub(super) stall: Duration,
    /// For what it holds beyond its own share.
    pub(super) budget: Borrower,
    /// Those of all clients on the lane.
    pub(super) writes: Rc<LaneWrites>,
    /// What TLS is begun with, where the session asks for it.
    pub(super) tls: Option<Arc<ServerConfig>>,
    /// What another process has received of it.
    pub(super) early: Vec<u8>,
}

/// A client that takes its answers, or sends its writes, at this rate is never cut off: 256 KiB/s.
const LEAST_BYTES_PER_S: usize = 256 << 10;

/// One client's connection.
pub(super) struct Connection<V, K> {
    lane: Rc<Lane>,
    io: LaneIo,
    transport: Transport,
    volume: Rc<V>,
    state: RefCell<State>,
    /// Where the engine's completions arrive.
    queue: Rc<Queue>,
    terms: Terms,
    over: Rc<Over>,
    sending: Transfer,
    writing: Transfer,
    receiving_ended: Cell<bool>,
    /// The client has gone without a goodbye, or is cut off.
    is_gone: Cell<bool>,
    /// The answering task, while it waits for something to send.
    answering: Wait,
    /// The receiving task, while it waits for answers to be sent.
    receiving: Wait,
    place: K,
    has_place: Cell<bool>,
}

struct State {
    session: Session<Rc<Payload>>,
    under_way: Tags<UnderWay>,
}

/// A request that the array is working on.
struct UnderWay {
    request: Request,
    /// What a read fills.
    data: Option<Rc<Payload>>,
    /// A flush must follow before the answer.
    flush_next: bool,
    /// Keeps writes of parts of the same blocks waiting.
    whole: Option<WholeWrite>,
}

/// A write whose payload is still arriving.
struct Writing {
    request: Request,
    payload: Rc<Payload>,
    filled: usize,
}

impl Data for Rc<Payload> {
    fn len_bytes(&self) -> usize {
        self.len()
    }
}

impl<V: VolumePart + 'static, K: Place + 'static> Connection<V, K> {
    /// Serves a client on `lane` until it leaves.
    pub(super) fn start(
        lane: &Rc<Lane>,
        io: &LaneIo,
        socket: Socket,
        volume: Rc<V>,
        session: Session<Rc<Payload>>,
        mut terms: Terms,
        place: K,
    ) {
        let early = std::mem::take(&mut terms.early);
        let connection = Rc::new(Connection {
            lane: lane.clone(),
            io: io.clone(),
            transport: Transport::new(io.clone(), socket, early),
            volume,
            state: RefCell::new(State { session, under_way: Tags::default() }),
            queue: Queue::new(),
            terms,
            over: Rc::default(),
            sending: Transfer::default(),
            writing: Transfer::default(),
            receiving_ended: Cell::new(false),
            is_gone: Cell::new(false),
            answering: Wait::default(),
            receiving: Wait::default(),
            place,
            has_place: Cell::new(false),
        });
        let answering = connection.clone();
        lane.spawn(async move { answering.answer().await });
        let (watched, over) = (Rc::downgrade(&connection), connection.over.clone());
        let watching =
            Watching { stall: connection.terms.stall, call: connection.terms.budget.call() };
        lane.spawn(Connection::watch(watched, over, lane.clone(), watching));
        lane.spawn(async move { connection.receive().await });
    }

    /// Until transmission has begun, everything must happen soon.
    fn deadline(&self) -> Option<Time> {
        let is_handshake = self.state.borrow().session.export().is_none();
        is_handshake.then(|| self.terms.handshake_until + self.lane.backend().stood_still())
    }
}

/// Watching.
impl<V: VolumePart + 'static, K: Place + 'static> Connection<V, K> {
    /// Gives back what the client does not use when others begin to wait for it. Cuts the client off when it takes
    /// no answers, or does not go on with a write that it began: what it holds is memory that others wait for. No
    /// send and no receipt is timed by itself.
    async fn watch(connection: Weak<Self>, over: Rc<Over>, lane: Rc<Lane>, watching: Watching) {
        let Watching { stall, call } = watching;
        let mut seen = [Seen::default(); 2];
        loop {
            let pause = lane.sleep_until(lane.backend().now() + stall / 4);
            over.or(call.or(pause)).await;
            let Some(this) = connection.upgrade() else { return };
            this.give_back();
            let now = lane.lived();
            let transfers = [&this.sending, &this.writing];
            let stalls =
                |(seen, transfer): (&mut Seen, &Transfer)| seen.stalls(transfer, now, stall);
            if seen.iter_mut().zip(transfers).any(stalls) {
                tracing::warn!("a client is cut off: it takes no answers, or sends half a write");
                return this.hang_up();
            }
        }
    }
}

/// Receiving.
impl<V: VolumePart + 'static, K: Place + 'static> Connection<V, K> {
    async fn receive(self: Rc<Self>) {
        let mut buffer = Vec::with_capacity(RECEIVE_BYTES);
        let mut writing = None;
        loop {
            buffer.clear();
            let received;
            (received, buffer) = self.transport.recv(buffer, self.deadline()).await;
            match received {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => break tracing::debug!(%error, "a client is gone"),
            }
            if !self.place.admits().await {
                break;
            }
            let ended = self.read(&buffer, &mut writing).await;
            self.answering.wake();
            if ended.is_break() {
                break;
            }
        }
        // Only who took leave waits for answers: nothing long goes on for others.
        if !self.state.borrow().session.has_taken_leave() {
            self.is_gone.set(true);
        }
        // A write whose payload did not arrive whole is dropped here, with `writing`.
        self.receiving_ended.set(true);
        self.answering.wake();
    }

    /// Whether it is at its handshake, or has a place since that is over.
    fn may_go_on(&self) -> bool {
        if self.has_place.get() || self.state.borrow().session.export().is_none() {
            return true;
        }
        self.has_place.set(self.place.take());
        self.has_place.get()
    }

    /// Reads all of `input`.
    async fn read(
        self: &Rc<Self>,
        mut input: &[u8],
        writing: &mut Option<Writing>,
    ) -> ControlFlow<()> {
        loop {
            let event = self.state.borrow_mut().session.poll(&mut input);
            // The first request may come in one piece with the end of the handshake: no memory is given before.
            if !self.may_go_on() {
                return ControlFlow::Break(());
            }
            match event {
                Event::Hungry => return ControlFlow::Continue(()),
                Event::StartTls => return self.start_tls(input).await,
                Event::Request(request) => match request.command {
                    Command::Write { .. } => {
                        self.writing.begins(request.payload_bytes());
                        *writing = Some(self.prepare(request));
                    }
                    _ if self.takes_long(&request) => self.execute_in_pieces(request),
                    Command::Trim { .. } | Command::WriteZeroes { .. } => {
                        let whole = Some(self.begin_whole(&request).await);
                        self.execute(UnderWay { whole, ..UnderWay::new(request) });
                    }
                    Command::BlockStatus { .. } => {
                        self.execute(UnderWay::new(request));
                        // The lane has looked at much of the array: others have their turn.
                        self.lane.pause().await;
                    }
                    _ => self.execute(UnderWay::new(request)),
                },
                Event::Payload { .. } => {
                    let write = writing.take().expect("a payload follows its write");
                    *writing = self.fill(write, &mut input).await?;
                    if writing.is_some() {
                        return ControlFlow::Continue(());
                    }
                }
                Event::Full => {
                    self.answering.wake();
                    self.room().await?;
                }
                Event::Closed(Closing::Goodbye) => return ControlFlow::Break(()),
                Event::Closed(Closing::Misbehaved(how)) => {
                    tracing::info!(%how, "a client broke the NBD protocol and is cut off");
                    return ControlFlow::Break(());
                }
            }
        }
    }

    /// Goes over to TLS, when the client has been sent all that it is to get without.
    async fn start_tls(&self, came: &[u8]) -> ControlFlow<()> {
        self.answering.wake();
        poll_fn(|context| {
            let is_sent =
                !self.state.borrow().session.has_replies() && !self.sending.is_under_way();
            if is_sent || self.is_gone.get() {
                return Poll::Ready(());
            }
            self.receiving.set(context.waker());
            Poll::Pending
        })
        .await;
        let Some(config) = self.terms.tls.clone() else { return ControlFlow::Break(()) };
        match self.transport.start_tls(config, came, self.deadline()).await {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                tracing::info!(%error, "a client has not come through the handshake of TLS");
                ControlFlow::Break(())
            }
        }
    }

    fn prepare(&self, request: Request) -> Writing {
        let payload = self.io.payload(request.payload_bytes());
        Writing { request, payload, filled: 0 }
    }

    /// Adds to a write's payload, and starts the write when it is whole. Gives it back otherwise.
    async fn fill(
        &self,
        mut write: Writing,
        input: &mut &[u8],
    ) -> ControlFlow<(), Option<Writing>> {
        let taken = self.state.borrow_mut().session.take_payload(input);
        write.payload.put(write.filled, taken);
        self.lane.count_copy(taken.len());
        write.filled += taken.len();
        let length = write.payload.len();
        if length - write.filled >= DIRECT_BYTES && self.transport.is_plain() {
            let rest = write.filled..length;
            let received = self.transport.recv_payload(&write.payload, rest).await;
            if received.is_err() {
                return ControlFlow::Break(());
            }
            self.state.borrow_mut().session.payload_received(length - write.filled);
            write.filled = length;
        }
        if write.filled < length {
            return ControlFlow::Continue(Some(write));
        }
        self.writing.ends();
        let fua = write.request.command == Command::Write { fua: true };
        let sector = write.request.offset_bytes / SECTOR_BYTES;
        let work = engine::Request::Write { sector, from: write.payload, fua };
        let whole = Some(self.begin_whole(&write.request).await);
        self.submit(UnderWay { whole, ..UnderWay::new(write.request) }, work);
        ControlFlow::Continue(None)
    }

    /// Waits until the session may read on: answers were sent, or the budget of all clients has room.
    async fn room(&self) -> ControlFlow<()> {
        let mut turn = self.terms.budget.turn();
        poll_fn(|context| {
            let session = &mut self.state.borrow_mut().session;
            if !session.is_full() {
                return Poll::Ready(ControlFlow::Continue(()));
            }
            if self.place.is_over() {
                return Poll::Ready(ControlFlow::Break(()));
            }
            if let Some(bytes) = session.wanted_bytes()
                && turn.poll_borrow(bytes, context.waker()).is_ready()
            {
                session.grant(bytes);
                return Poll::Ready(ControlFlow::Continue(()));
            }
            self.receiving.set(context.waker());
            Poll::Pending
        })
        .await
    }

    /// Gives back what the client does not hold any more: when it holds nothing, or when others wait.
    fn give_back(&self) {
        let session = &mut self.state.borrow_mut().session;
        if session.granted_bytes() == 0 {
            return;
        }
        let budget = &self.terms.budget;
        if session.held_bytes() == 0 || budget.is_wanted() {
            let unused = session.take_back();
            if unused > 0 {
                budget.give_back(unused);
            }
        }
    }

    /// Waits where a part of one of the blocks is written.
    async fn begin_whole(&self, request: &Request) -> WholeWrite {
        let start = request.offset_bytes;
        self.terms.writes.begin_when_free(start..start.saturating_add(request.length_bytes)).await
    }

    /// Whether a request changes so much, without a payload, that it goes in pieces.
    fn takes_long(&self, request: &Request) -> bool {
        let changes = match request.command {
            Command::Trim { .. } => self.volume.discards(),
            Command::WriteZeroes { fast, .. } => !fast,
            _ => false,
        };
        changes && request.length_bytes > PIECE_SECTORS * SECTOR_BYTES
    }

    /// Gives up or zeroes a long range: whoever writes a part of one of its blocks waits for one piece of it.
    fn execute_in_pieces(self: &Rc<Self>, request: Request) {
        let flush_next = match request.command {
            Command::Trim { fua } | Command::WriteZeroes { fua, .. } => fua,
            _ => false,
        };
        let under_way = UnderWay { flush_next, ..UnderWay::new(request) };
        let tag = self.state.borrow_mut().under_way.add(under_way);
        self.queue.begin();
        let this = self.clone();
        self.lane.spawn(async move {
            let done = this.piece_by_piece(&request).await;
            this.queue.end(tag, done);
        });
    }

    /// It ends early when the client has gone, or all are being disconnected. Of a client with so many requests that no
    /// more are read the socket alone says so.
    async fn piece_by_piece(&self, request: &Request) -> Result<(), RequestError> {
        let start = request.offset_bytes / SECTOR_BYTES;
        let end = start + request.length_bytes / SECTOR_BYTES;
        let is_trim = matches!(request.command, Command::Trim { .. });
        let work = |piece: Range<u64>| {
            let (sector, sectors) = (piece.start, piece.end - piece.start);
            match is_trim {
                true => engine::Request::Discard { sector, sectors },
                false => engine::Request::WriteZeroes { sector, sectors, fua: false },
            }
        };
        let is_over = || self.is_gone.get() || self.place.is_over() || self.transport.is_hung_up();
        let (place, writes) = ((&self.volume, &*self.lane), &self.terms.writes);
        do_in_pieces(place, writes, start..end, work, is_over).await
    }

    fn execute(&self, plain: UnderWay) {
        let request = plain.request;
        let sector = request.offset_bytes / SECTOR_BYTES;
        let sectors = request.length_bytes / SECTOR_BYTES;
        match request.command {
            Command::Read => {
                let into = self.io.payload(request.payload_bytes());
                let under_way = UnderWay { data: Some(into.clone()), ..plain };
                self.submit(under_way, engine::Request::Read { sector, into });
            }
            Command::Flush => self.submit(plain, engine::Request::Flush),
            Command::Trim { fua } => {
                let under_way = UnderWay { flush_next: fua, ..plain };
                self.submit(under_way, engine::Request::Discard { sector, sectors });
            }
            Command::WriteZeroes { fast: true, .. } => {
                let why = "zeroing is not known to be faster than writing here";
                self.state.borrow_mut().session.failed(&request, Errno::NotSupported, why);
            }
            Command::WriteZeroes { fua, .. } => {
                self.submit(plain, engine::Request::WriteZeroes { sector, sectors, fua });
            }
            // A hint; the array's own cache knows better.
            Command::Cache => self.state.borrow_mut().session.done(&request),
            Command::BlockStatus { .. } => {
                let start = request.offset_bytes;
                let of =
                    |context| self.volume.extents(context, start..start + request.length_bytes);
                self.state.borrow_mut().session.extents(&request, of);
            }
            Command::Write { .. } => unreachable!("a write waits for its payload"),
        }
    }

    fn submit(&self, under_way: UnderWay, work: engine::Request) {
        let tag = self.state.borrow_mut().under_way.add(under_way);
        self.volume.submit(&self.queue, tag, work);
    }
}

/// Answering.
impl<V: VolumePart + 'static, K: Place + 'static> Connection<V, K> {
    /// Sends whatever is ready, until nothing is expected any more. Requests of a client that is
    /// gone are waited for all the same: their memory and their writes are under way.
    async fn answer(&self) {
        let mut message = Message::new();
        let mut broken = false;
        loop {
            while let Some(completion) = self.queue.pop() {
                self.end(completion);
            }
            let batch = self.state.borrow_mut().session.take_replies();
            let Some(batch) = batch else {
                if self.receiving_ended.get() && self.queue.in_flight() == 0 {
                    break;
                }
                self.something_to_send().await;
                continue;
            };
            if !broken {
                self.sending.begins(batch.weight_bytes());
                let send = self.transport.send(&batch, message, self.deadline());
                let sent;
                (sent, message) = self.ending_meanwhile(send).await;
                self.sending.ends();
                if let Err(error) = sent {
                    tracing::debug!(%error, "a client does not take its answers");
                    broken = true;
                    self.hang_up();
                }
            }
            self.state.borrow_mut().session.sent(batch);
            self.give_back();
            self.receiving.wake();
        }
        if !self.is_gone.get() {
            self.sending.begins(0);
            self.transport.say_goodbye(message).await;
        }
        self.hang_up();
    }

    /// Waits for `work`, and notes what the array ends meanwhile: the writes of a client that takes no answers are
    /// under way no longer than those of others.
    async fn ending_meanwhile<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|context| {
            let done = work.as_mut().poll(context);
            while done.is_pending()
                && let Poll::Ready(completion) = pin!(self.queue.next()).poll(context)
            {
                self.end(completion);
            }
            done
        })
        .await
    }

    /// Ends the receiving task too, if it has not ended.
    fn hang_up(&self) {
        self.is_gone.set(true);
        if let Err(error) = self.transport.shut_down() {
            tracing::trace!(%error, "the client was faster");
        }
    }

    async fn something_to_send(&self) {
        poll_fn(|context| {
            let expected = !self.receiving_ended.get() || self.queue.in_flight() > 0;
            if self.state.borrow().session.has_replies() || !expected {
                return Poll::Ready(());
            }
            if let Poll::Ready(completion) = pin!(self.queue.next()).poll(context) {
                self.end(completion);
                return Poll::Ready(());
            }
            self.answering.set(context.waker());
            Poll::Pending
        })
        .await;
    }

    /// The array has ended a request.
    fn end(&self, Completion { tag, result }: Completion) {
        let mut state = self.state.borrow_mut();
        let UnderWay { request, data, flush_next, whole } = state.under_way.remove(tag);
        drop(whole);
        match (result, data) {
            (Ok(()), None) if flush_next => {
                drop(state);
                self.submit(UnderWay::new(request), engine::Request::Flush);
            }
            (Ok(()), None) => state.session.done(&request),
            (Ok(()), Some(data)) => state.session.data(&request, data),
            (Err(error), _) => state.session.failed(&request, errno(error), &error.to_string()),
        }
    }
}

impl<V, K> Drop for Connection<V, K> {
    fn drop(&mut self) {
        self.over.comes();
    }
}

/// What the task that watches a connection looks for.
struct Watching {
    stall: Duration,
    /// For what the client has borrowed.
    call: Arc<Call>,
}

/// The end of a connection, for the task that watches it.
#[derive(Default)]
struct Over {
    is_here: Cell<bool>,
    watching: Wait,
}

impl Over {
    fn comes(&self) {
        self.is_here.set(true);
        self.watching.wake();
    }

    /// Waits for `other`, or for the end.
    async fn or(&self, other: impl Future<Output = ()>) {
        let mut other = pin!(other);
        poll_fn(|context| {
            self.watching.set(context.waker());
            if self.is_here.get() { Poll::Ready(()) } else { other.as_mut().poll(context) }
        })
        .await;
    }
}

/// Bytes that the client has to take, or to send.
#[derive(Default)]
struct Transfer {
    /// How many there were.
    number: Cell<u64>,
    /// Of the one under way.
    bytes: Cell<Option<usize>>,
}

impl Transfer {
    fn begins(&self, bytes: usize) {
        self.number.set(self.number.get() + 1);
        self.bytes.set(Some(bytes));
    }

    fn ends(&self) {
        self.bytes.set(None);
    }

    fn is_under_way(&self) -> bool {
        self.bytes.get().is_some()
    }
}

/// The transfer that was under way at the last look, and since which look.
#[derive(Clone, Copy, Default)]
struct Seen {
    number: u64,
    since: Time,
}

impl Seen {
    /// Whether the same transfer has been under way for longer than it may.
    fn stalls(&mut self, transfer: &Transfer, now: Time, stall: Duration) -> bool {
        let number = transfer.number.get();
        let Some(bytes) = transfer.bytes.get().filter(|_| number == self.number) else {
            *self = Seen { number, since: now };
            return false;
        };
        now.since(self.since) > stall + Duration::from_secs((bytes / LEAST_BYTES_PER_S) as u64)
    }
}

impl UnderWay {
    fn new(request: Request) -> UnderWay {
        UnderWay { request, data: None, flush_next: false, whole: None }
    }
}

fn errno(error: RequestError) -> Errno {
    match error {
        RequestError::OutOfRange | RequestError::Unaligned => Errno::Invalid,
        RequestError::ReadOnly => Errno::NotPermitted,
        RequestError::NoSpace => Errno::NoSpace,
        RequestError::Lost => Errno::Io,
        RequestError::Stopped => Errno::Shutdown,
    }
}

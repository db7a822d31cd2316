//! One connection: bytes in, events out; answers in, bytes out.

use std::sync::Arc;

use super::batch::{Batch, Data, Weight};
use super::context::{Context, Contexts, Extent};
use super::export::{Export, Exports};
use super::handover::Begun;
use super::handshake::{Handshake, Step};
use super::reply::Reply;
use super::request::{Agreement, Command, Cookie, Framing, Header, Refusal, Request};
use super::wire::{Errno, Gather, PAYLOAD_BYTES_MAX, command, split_front};

/// Unsent answers to options, in bytes, at which a session stops reading.
const HANDSHAKE_REPLY_BYTES_MAX: usize = 64 << 10;
/// Unsent answers, in bytes and without data, at which a session in transmission stops reading.
const REPLY_BYTES_MAX: usize = 256 << 10;
/// Extents of a context in one reply; a client that wants more asks again from where they end.
const EXTENTS_MAX: usize = 1024;

/// One connection as the server sees it. `B` is the buffer in which the data of a read is sent.
///
/// The caller repeats, in this order:
///
/// 1. [`poll`](Session::poll) with what was received, until it says [`Event::Hungry`],
///    [`Event::Full`] or [`Event::Closed`]; execute what it asks for.
/// 2. Answer each [`Event::Request`] once, in any order, with [`done`](Session::done),
///    [`data`](Session::data), [`extents`](Session::extents) or [`failed`](Session::failed).
/// 3. Send what [`take_replies`](Session::take_replies) gives, then hand it back to
///    [`sent`](Session::sent).
///
/// A request counts from its header until its answer was sent, so a client that never reads
/// its answers holds a bounded amount of memory.
#[derive(Debug)]
pub struct Session<B> {
    exports: Arc<Exports>,
    limits: Limits,
    phase: Phase,
    /// Set once transmission has begun; answers need it also after the connection was closed.
    agreed: Option<Agreement>,
    /// What the client holds: requests under way and answers not sent.
    held: Weight,
    /// Payload bytes that it may hold: its own, and what was granted.
    allowed_bytes: usize,
    /// Answers being gathered.
    ready: Batch<B>,
    /// An empty batch whose memory waits to be used again.
    spare: Option<Batch<B>>,
}

/// What one connection may hold.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Limits {
    /// Requests from their header until their answer was sent.
    pub requests: usize,
    /// Payload bytes of these requests; one request may always have up to 32 MiB.
    pub payload_bytes: usize,
    /// How much of that is the connection's own. For the rest the caller has to [`grant`](Session::grant).
    pub own_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { requests: 256, payload_bytes: 32 << 20, own_bytes: 1 << 20 }
    }
}

/// What a session asks of its caller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// All input was used; more must be received.
    Hungry,
    /// The client's next bytes are those of TLS, also those that are in the input still. What it is to be told already
    /// goes out as it is, before those of the server. From then on the session is given what they decipher to.
    StartTls,
    /// Execute this and answer it. For a write, [`Event::Payload`] comes next.
    Request(Request),
    /// The next `left` bytes are the payload of the write announced last. Take them with
    /// [`Session::take_payload`], or receive them into their buffer and say so with
    /// [`Session::payload_received`].
    Payload {
        /// Bytes still to come.
        left: usize,
    },
    /// A limit is reached. Input stays unread until answers were sent, or
    /// [`wanted_bytes`](Session::wanted_bytes) are granted.
    Full,
    /// Nothing more is read from this connection.
    Closed(Closing),
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Closing {
    /// The client took leave: finish what is under way, send the answers, close.
    Goodbye,
    /// The client broke the protocol: its stream has lost its meaning. Close.
    Misbehaved(Misbehaved),
}

/// How a client broke the protocol beyond an error reply.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Misbehaved {
    /// Framing is lost.
    #[error("a header without its magic number")]
    Magic,
    /// proto.md asks to drop such clients.
    #[error("unknown client flags {0:#x}")]
    ClientFlags(u32),
    /// Only fixed newstyle has replies to options.
    #[error("option {0} without fixed newstyle")]
    NotFixedNewstyle(u32),
    /// The limit of options in a handshake.
    #[error("more than {0} options in one handshake")]
    TooManyOptions(usize),
    /// `EXPORT_NAME` with a name that is not served; there is no error reply for it.
    #[error("an export that is not served")]
    UnknownExport,
    /// `EXPORT_NAME` where TLS is required; there is no error reply for it.
    #[error("an export by EXPORT_NAME without TLS")]
    NoTls,
    /// proto.md forbids it: `EXPORT_NAME` is for clients that know neither.
    #[error("an export by EXPORT_NAME after extended headers")]
    OldAfterNew,
    /// Of an extended request, whose length may be anything.
    #[error("a payload of {0} bytes, where 32 MiB is the most")]
    PayloadTooLong(u64),
}

#[derive(Debug)]
enum Phase {
    Handshake(Handshake),
    Transmission(Transmission),
    Closed(Closing),
}

#[derive(Debug, Default)]
struct Transmission {
    gather: Gather,
    next: Next,
}

/// What the next bytes of a transmission are.
#[derive(Clone, Copy, Debug, Default)]
enum Next {
    #[default]
    Header,
    /// The payload of a block status, with its contexts.
    Selection(Header),
    /// A valid request for which there is no room yet.
    Parked(Request),
    /// Payload for the caller.
    Payload { left: usize },
    /// Payload of a write that was refused.
    Discard { left: usize },
}

impl<B: Data> Session<B> {
    /// A new connection; its greeting is ready to be sent.
    pub fn new(exports: Arc<Exports>, limits: Limits) -> Session<B> {
        let mut ready = Batch::new();
        let mut handshake = None;
        ready.header(|out| handshake = Some(Handshake::new(exports.clone(), out)));
        let phase = Phase::Handshake(handshake.expect("the header was just written"));
        Session::begin(exports, limits, phase, ready)
    }

    /// A connection whose handshake another process has begun. What came there already is its first input.
    pub(super) fn resumed(exports: Arc<Exports>, limits: Limits, begun: &Begun) -> Session<B> {
        let handshake = Handshake::resume(exports.clone(), begun);
        Session::begin(exports, limits, Phase::Handshake(handshake), Batch::new())
    }

    fn begin(exports: Arc<Exports>, limits: Limits, phase: Phase, ready: Batch<B>) -> Session<B> {
        let (held, allowed_bytes) = (Weight::default(), limits.own_bytes);
        Session { exports, limits, phase, agreed: None, held, allowed_bytes, ready, spare: None }
    }

    /// A new connection that serves nothing before the client has begun TLS. To be called before anything is polled.
    pub fn requiring_tls(mut self) -> Session<B> {
        if let Phase::Handshake(handshake) = &mut self.phase {
            handshake.require_tls();
        }
        self
    }

    /// A connection whose other end knows the first export already, as the kernel's driver does: it begins with requests,
    /// and its replies are simple ones.
    pub fn in_transmission(exports: Arc<Exports>, limits: Limits) -> Session<B> {
        let (framing, contexts) = (Framing::Simple, Contexts::default());
        let agreed = Some(Agreement { export: 0, framing, contexts });
        let phase = Phase::Transmission(Transmission::default());
        Session { agreed, ..Session::begin(exports, limits, phase, Batch::new()) }
    }

    /// The export, once transmission has begun.
    pub fn export(&self) -> Option<&Export> {
        self.agreed.map(|agreed| &self.exports.as_slice()[agreed.export])
    }

    /// Whether the client has said goodbye.
    pub fn has_taken_leave(&self) -> bool {
        matches!(self.phase, Phase::Closed(Closing::Goodbye))
    }

    /// Requests that the client holds: under way, or answered and not sent.
    pub fn held_requests(&self) -> usize {
        self.held.requests
    }

    /// Reads from `input` up to the next event; what was used is taken off its front.
    pub fn poll(&mut self, input: &mut &[u8]) -> Event {
        loop {
            if self.is_full() {
                return Event::Full;
            }
            let event = match &self.phase {
                Phase::Handshake(_) => self.poll_handshake(input),
                Phase::Transmission(_) => self.poll_transmission(input),
                Phase::Closed(closing) => Some(Event::Closed(*closing)),
            };
            if let Some(event) = event {
                return event;
            }
        }
    }

    /// Takes the payload that `input` begins with, as far as it goes, off its front.
    pub fn take_payload<'i>(&mut self, input: &mut &'i [u8]) -> &'i [u8] {
        let taken = split_front(input, self.payload_left().min(input.len()));
        self.payload_received(taken.len());
        taken
    }

    /// Notes that `bytes` of payload went straight into their buffer.
    ///
    /// # Panics
    ///
    /// Panics when `bytes` is more than was left.
    pub fn payload_received(&mut self, bytes: usize) {
        let left = self.payload_left();
        assert!(bytes <= left, "{bytes} bytes of payload received where {left} were left");
        if let Phase::Transmission(transmission) = &mut self.phase {
            transmission.next = Next::payload(left - bytes);
        }
    }

    /// Bytes of payload that the caller must take before the next header is read.
    pub fn payload_left(&self) -> usize {
        match &self.phase {
            Phase::Transmission(Transmission { next: Next::Payload { left }, .. }) => *left,
            _ => 0,
        }
    }

    /// Input would meet [`Event::Full`].
    pub fn is_full(&self) -> bool {
        match &self.phase {
            Phase::Handshake(_) => self.ready.header_bytes() > HANDSHAKE_REPLY_BYTES_MAX,
            Phase::Transmission(transmission) => match transmission.next {
                Next::Header => {
                    self.held.requests >= self.limits.requests
                        || self.ready.header_bytes() > REPLY_BYTES_MAX
                }
                Next::Parked(request) => !self.has_room_for(&request),
                Next::Selection(_) | Next::Payload { .. } | Next::Discard { .. } => false,
            },
            Phase::Closed(_) => false,
        }
    }

    fn has_room_for(&self, request: &Request) -> bool {
        self.would_hold(request).is_some_and(|bytes| bytes <= self.allowed_bytes)
    }

    /// Payload bytes with this request; none where the connection may not hold so many.
    fn would_hold(&self, request: &Request) -> Option<usize> {
        let bytes = self.held.bytes + request.payload_bytes();
        (self.held.bytes == 0 || bytes <= self.limits.payload_bytes).then_some(bytes)
    }

    /// Bytes that must be granted before the session can read on, if that is what it lacks.
    pub fn wanted_bytes(&self) -> Option<usize> {
        let Phase::Transmission(Transmission { next: Next::Parked(request), .. }) = &self.phase
        else {
            return None;
        };
        self.would_hold(request)?.checked_sub(self.allowed_bytes).filter(|bytes| *bytes > 0)
    }

    /// Allows the connection to hold so many bytes more.
    pub fn grant(&mut self, bytes: usize) {
        self.allowed_bytes += bytes;
    }

    /// Bytes granted that the connection has not given back.
    pub fn granted_bytes(&self) -> usize {
        self.allowed_bytes - self.limits.own_bytes
    }

    /// Payload bytes that the client holds.
    pub fn held_bytes(&self) -> usize {
        self.held.bytes
    }

    /// Takes back what was granted and is not held now.
    pub fn take_back(&mut self) -> usize {
        let needed = self.held.bytes.max(self.limits.own_bytes);
        let bytes = self.allowed_bytes.saturating_sub(needed);
        self.allowed_bytes -= bytes;
        bytes
    }

    /// Answers are ready to be taken.
    pub fn has_replies(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Hands out all answers given so far; `None` if there are none.
    pub fn take_replies(&mut self) -> Option<Batch<B>> {
        if self.ready.is_empty() {
            return None;
        }
        let fresh = self.spare.take().unwrap_or_else(Batch::new);
        Some(std::mem::replace(&mut self.ready, fresh))
    }

    /// Takes back a batch that was sent, or could not be: its requests no longer count.
    pub fn sent(&mut self, mut batch: Batch<B>) {
        let weight = batch.reset();
        self.held.requests -= weight.requests;
        self.held.bytes -= weight.bytes;
        self.spare = Some(batch);
    }

    fn poll_handshake(&mut self, input: &mut &[u8]) -> Option<Event> {
        let Phase::Handshake(handshake) = &mut self.phase else { return None };
        let mut step = Step::Hungry;
        self.ready.header(|out| step = handshake.poll(input, out));
        match step {
            Step::Hungry => return Some(Event::Hungry),
            Step::Answered => {}
            Step::StartTls => return Some(Event::StartTls),
            Step::Transmit(agreed) => {
                self.agreed = Some(agreed);
                self.phase = Phase::Transmission(Transmission::default());
            }
            Step::HandOver { .. } => unreachable!("a session serves its exports itself"),
            Step::Close(closing) => self.phase = Phase::Closed(closing),
        }
        None
    }

    fn poll_transmission(&mut self, input: &mut &[u8]) -> Option<Event> {
        let (Phase::Transmission(transmission), Some(agreed)) = (&mut self.phase, self.agreed)
        else {
            return None;
        };
        match transmission.next {
            Next::Payload { left } => Some(Event::Payload { left }),
            Next::Discard { left } => {
                let count = split_front(input, left.min(input.len())).len();
                transmission.next = Next::discard(left - count);
                (count < left).then_some(Event::Hungry)
            }
            Next::Selection(header) => {
                let length = header.length_bytes as usize;
                let Some(payload) = transmission.gather.take(input, length) else {
                    return Some(Event::Hungry);
                };
                let selected = header.select(payload, agreed.contexts);
                transmission.next = Next::Header;
                match selected {
                    Ok((header, contexts)) => self.admit(header, Agreement { contexts, ..agreed }),
                    Err((header, refusal)) => self.refuse(header, agreed, refusal),
                }
                None
            }
            Next::Parked(request) => self.start(request),
            Next::Header => {
                let header_bytes = agreed.framing.header_bytes();
                let Some(bytes) = transmission.gather.take(input, header_bytes) else {
                    return Some(Event::Hungry);
                };
                match Header::decode(bytes, agreed.framing) {
                    None => self.misbehaved(Misbehaved::Magic),
                    Some(header) if header.kind == command::DISC => {
                        self.phase = Phase::Closed(Closing::Goodbye);
                    }
                    Some(header) => self.receive(header, agreed),
                }
                None
            }
        }
    }

    fn misbehaved(&mut self, how: Misbehaved) {
        self.phase = Phase::Closed(Closing::Misbehaved(how));
    }

    fn receive(&mut self, header: Header, agreed: Agreement) {
        let trailing = header.trailing_bytes(agreed.framing);
        if agreed.framing == Framing::Extended && trailing > PAYLOAD_BYTES_MAX.into() {
            return self.misbehaved(Misbehaved::PayloadTooLong(trailing));
        }
        if header.has_selection(agreed.framing) {
            return self.expect(Next::Selection(header));
        }
        self.admit(header, agreed);
    }

    /// A header becomes a request, or is refused and its payload goes by unread.
    fn admit(&mut self, header: Header, agreed: Agreement) {
        match header.admit(&self.exports.as_slice()[agreed.export], agreed) {
            Ok(request) => self.expect(Next::Parked(request)),
            Err(refusal) => self.refuse(header, agreed, refusal),
        }
    }

    fn refuse(&mut self, header: Header, agreed: Agreement, refusal: Refusal) {
        let trailing = header.trailing_bytes(agreed.framing);
        self.expect(Next::discard(trailing as usize));
        self.held.requests += 1;
        self.ready.add_weight(0);
        let Header { cookie, offset_bytes, .. } = header;
        self.reply(cookie, offset_bytes, |reply| reply.error(refusal.errno, refusal.message));
    }

    fn expect(&mut self, next: Next) {
        if let Phase::Transmission(transmission) = &mut self.phase {
            transmission.next = next;
        }
    }

    /// Lets a valid request through, there being room for its payload.
    fn start(&mut self, request: Request) -> Option<Event> {
        let bytes = request.payload_bytes();
        self.held.requests += 1;
        self.held.bytes += bytes;
        let writes = matches!(request.command, Command::Write { .. });
        self.expect(Next::payload(if writes { bytes } else { 0 }));
        if request.is_empty() {
            self.done(&request);
            return None;
        }
        if request.command == Command::Read {
            let start = request.offset_bytes;
            self.exports.note_read(start..start + request.length_bytes);
        }
        Some(Event::Request(request))
    }
}

impl Next {
    fn payload(left: usize) -> Next {
        if left > 0 { Next::Payload { left } } else { Next::Header }
    }

    fn discard(left: usize) -> Next {
        if left > 0 { Next::Discard { left } } else { Next::Header }
    }
}

/// Answers.
impl<B: Data> Session<B> {
    /// Answers a request that returns no data, and did what it was asked.
    ///
    /// # Panics
    ///
    /// Panics for a block status, or for a read of at least one byte: these return something.
    pub fn done(&mut self, request: &Request) {
        let returns_nothing = match request.command {
            Command::Read => request.length_bytes == 0,
            Command::BlockStatus { .. } => false,
            _ => true,
        };
        assert!(returns_nothing, "{request:?} was answered without its data");
        self.answer(request, |reply| reply.done(request));
    }

    /// Answers a read with its data.
    ///
    /// # Panics
    ///
    /// Panics unless `request` is a read of exactly as many bytes as `data` has.
    pub fn data(&mut self, request: &Request, data: B) {
        let length = request.payload_bytes();
        assert!(
            request.command == Command::Read && data.len_bytes() == length,
            "{request:?} was answered with {} bytes of data",
            data.len_bytes()
        );
        self.answer(request, |reply| reply.data_header(request));
        if length > 0 {
            self.ready.data(data);
        }
    }

    /// Answers a block status with the extents `of` each of its contexts, from the request's offset on.
    ///
    /// What lies beyond the request is cut off, and so is what comes after 1024 extents.
    ///
    /// # Panics
    ///
    /// Panics unless `request` is a block status, and for extents that are missing or empty.
    pub fn extents(&mut self, request: &Request, of: impl Fn(Context) -> Vec<Extent>) {
        let Command::BlockStatus { one_extent, contexts } = request.command else {
            panic!("{request:?} was answered with extents");
        };
        let last = contexts.iter().last();
        self.answer(request, |mut reply| {
            for context in contexts.iter() {
                let told = clip(of(context), request.length_bytes, one_extent);
                reply.extents(context, &told, Some(context) == last);
            }
        });
    }

    /// Answers a request with an error and a line for people, of which at most 4096 bytes are sent.
    pub fn failed(&mut self, request: &Request, errno: Errno, message: &str) {
        self.answer(request, |reply| reply.error(errno, message));
    }

    fn answer(&mut self, request: &Request, write: impl FnOnce(Reply<'_>)) {
        self.ready.add_weight(request.payload_bytes());
        self.reply(request.cookie, request.offset_bytes, write);
    }

    fn reply(&mut self, cookie: Cookie, offset_bytes: u64, write: impl FnOnce(Reply<'_>)) {
        let agreed = self.agreed.expect("a request came in, so transmission has begun");
        let framing = agreed.framing;
        self.ready.header(|out| write(Reply { out, framing, cookie, offset_bytes }));
    }
}

/// The extents inside the request, or the first one of them.
fn clip(mut extents: Vec<Extent>, length_bytes: u64, one_extent: bool) -> Vec<Extent> {
    assert!(!extents.is_empty(), "a block status has at least one extent");
    extents.truncate(if one_extent { 1 } else { EXTENTS_MAX });
    let mut left = length_bytes;
    extents.retain_mut(|extent| {
        assert!(extent.length_bytes > 0, "an extent has at least one byte");
        extent.length_bytes = extent.length_bytes.min(left);
        left -= extent.length_bytes;
        extent.length_bytes > 0
    });
    extents
}

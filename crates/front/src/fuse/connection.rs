//! The kernel's requests on one lane: messages from `/dev/fuse` to the array, and answers back.
//!
//! Each lane has a descriptor of its own, cloned for the same mount; the kernel hands a request to the
//! first that reads. It is answered over the descriptor that it came from. Where kernel and lane have a ring for the
//! mount, reads and writes come through that, and so do most others.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::ops::{ControlFlow, Range};
use std::os::fd::AsFd;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use mdspace_engine::lane::Lane;
use mdspace_engine::memory::{Sink, Source};
use mdspace_engine::request::{self as engine, Completion, Queue, RequestError};
use mdspace_engine::time::Time;
use mdspace_io::{LaneIo, Payload, Socket};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::partial_writes::{LaneWrites, WholeWrite};
use crate::pieces::do_in_pieces;
use crate::tags::Tags;
use crate::volume::VolumePart;
use crate::wait::Wait;

use super::ring::Ring;
use super::server::Presence;
use super::session::{self, Wanted};
use super::wire::{MESSAGE_BYTES_MAX, RING_BYTES_MAX};

/// Messages that are read before other work of the lane gets its turn.
const BATCH: usize = 64;
/// Payload under way on one lane beyond which it reads no more messages.
const HELD_BYTES_MAX: usize = 64 << 20;
/// How long a ring is looked at for more, where the last requests came as soon after the ones before. Programs that
/// ask more seldom wake it.
const POLL_FOR: Duration = Duration::from_micros(50);
/// `poll`'s word for something to read.
const POLLIN: i16 = 1;
/// Bytes of a sector, the engine's unit.
const SECTOR_BYTES: u64 = 512;

/// One lane's end of a mount.
pub(super) struct Connection<V> {
    lane: Rc<Lane>,
    io: LaneIo,
    device: Socket,
    ring: RefCell<Option<Ring>>,
    /// When the ring last gave requests, and before that.
    taken: Cell<[Time; 2]>,
    volume: Rc<V>,
    /// Where the engine's completions arrive.
    queue: Rc<Queue>,
    under_way: RefCell<Tags<UnderWay>>,
    held_bytes: Cell<usize>,
    receiving_ended: Cell<bool>,
    /// The answering task, while it waits for something to answer.
    answering: Wait,
    /// The receiving task, while it waits for memory.
    receiving: Wait,
    writes: Rc<LaneWrites>,
    presence: Presence,
}

/// A request that the array is working on.
struct UnderWay {
    unique: u64,
    /// What a read fills, and which part of it was asked for.
    read: Option<(Rc<Payload>, Range<usize>)>,
    /// What a write took from its program.
    written: Option<usize>,
    /// Keeps writes of parts of blocks waiting.
    whole: Option<WholeWrite>,
    held_bytes: usize,
}

/// A range in whole blocks, and the part of it that was asked for.
struct Blocks {
    sector: u64,
    bytes: usize,
    asked: Range<usize>,
}

impl Blocks {
    /// The blocks around a range of the array.
    fn around(offset_bytes: u64, length: usize, block: u64) -> Blocks {
        let start = offset_bytes / block * block;
        let end = (offset_bytes + length as u64).next_multiple_of(block);
        let skipped = (offset_bytes - start) as usize;
        let asked = skipped..skipped + length;
        Blocks { sector: start / SECTOR_BYTES, bytes: (end - start) as usize, asked }
    }

    fn is_whole(&self) -> bool {
        self.asked == (0..self.bytes)
    }
}

impl<V: VolumePart + 'static> Connection<V> {
    /// Serves the mount on `lane` until it is unmounted or closed.
    pub(super) fn start(
        lane: &Rc<Lane>,
        io: &LaneIo,
        (device, ring): (Socket, Option<Ring>),
        volume: Rc<V>,
        presence: Presence,
    ) {
        let connection = Rc::new(Connection {
            lane: lane.clone(),
            io: io.clone(),
            device,
            ring: RefCell::default(),
            taken: Cell::default(),
            volume,
            queue: Queue::new(),
            under_way: RefCell::default(),
            held_bytes: Cell::new(0),
            receiving_ended: Cell::new(false),
            answering: Wait::default(),
            receiving: Wait::default(),
            writes: presence.partial_writes().beside(),
            presence,
        });
        let (receiving, at_ring) = (connection.clone(), connection.clone());
        lane.spawn(connection.writes.watch());
        lane.spawn(async move { receiving.receive().await });
        if let Some(ring) = ring {
            lane.spawn(async move { at_ring.serve_ring(ring).await });
        }
        lane.spawn(async move { connection.answer().await });
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.presence.session().block_bytes())
    }
}

/// Receiving.
impl<V: VolumePart + 'static> Connection<V> {
    async fn receive(self: &Rc<Self>) {
        let mut message = vec![0; MESSAGE_BYTES_MAX];
        loop {
            let read = (0..BATCH).try_for_each(|_| self.receive_one(&mut message));
            let go_on = match read {
                ControlFlow::Continue(()) => {
                    self.lane.pause().await;
                    self.room().await
                }
                ControlFlow::Break(Idle::Empty) => self.something_to_read().await,
                ControlFlow::Break(Idle::Full) => self.room().await,
                ControlFlow::Break(Idle::Over) => false,
            };
            if !go_on {
                break;
            }
        }
        self.receiving_ended.set(true);
        self.answering.wake();
    }

    fn receive_one(self: &Rc<Self>, message: &mut [u8]) -> ControlFlow<Idle> {
        if self.held_bytes.get() > HELD_BYTES_MAX {
            return ControlFlow::Break(Idle::Full);
        }
        if self.presence.is_over() {
            return ControlFlow::Break(Idle::Over);
        }
        match rustix::io::read(&self.device, &mut *message) {
            Ok(length) => match self.presence.session().parse(&message[..length]) {
                Ok(request) => {
                    self.execute(request, |range| self.payload_of(&message[range]));
                    ControlFlow::Continue(())
                }
                Err(broken) => {
                    self.give_up(&broken);
                    ControlFlow::Break(Idle::Over)
                }
            },
            Err(Errno::AGAIN) => ControlFlow::Break(Idle::Empty),
            // The request was withdrawn before it was read.
            Err(Errno::NOENT | Errno::INTR) => ControlFlow::Continue(()),
            Err(Errno::NODEV) => ControlFlow::Break(Idle::Over),
            Err(error) => {
                tracing::error!(%error, "the mount cannot be read");
                self.presence.give_up();
                ControlFlow::Break(Idle::Over)
            }
        }
    }

    /// Waits for a message. False: the mount is being closed, or gone.
    async fn something_to_read(&self) -> bool {
        let ready = self.presence.unless_over(self.io.poll(&self.device, POLLIN, None)).await;
        ready.is_some_and(|ready| match ready {
            Ok(events) => events & POLLIN != 0,
            Err(error) => {
                tracing::error!(%error, "the mount cannot be waited for");
                false
            }
        })
    }

    /// Waits until more may be read. False: the mount is being closed.
    async fn room(&self) -> bool {
        let room = poll_fn(|context| {
            if self.held_bytes.get() <= HELD_BYTES_MAX {
                return Poll::Ready(());
            }
            self.receiving.set(context.waker());
            Poll::Pending
        });
        self.presence.unless_over(room).await.is_some()
    }

    fn give_up(&self, broken: &session::Broken) {
        tracing::error!(%broken, "the mount is given up");
        self.presence.give_up();
    }

    fn payload_of(&self, bytes: &[u8]) -> Rc<Payload> {
        let payload = self.io.payload(bytes.len());
        payload.put(0, bytes);
        self.lane.count_copy(bytes.len());
        payload
    }

    /// `data` copies a part of the request's message.
    fn execute(
        self: &Rc<Self>,
        request: session::Request,
        data: impl FnOnce(Range<usize>) -> Rc<Payload>,
    ) {
        let unique = request.unique;
        match request.wanted {
            Wanted::Nothing => {}
            Wanted::Answer(answer) => self.send(&[&answer]),
            Wanted::Begin { answer, is_over_ring } => {
                self.send(&[&answer]);
                if is_over_ring {
                    self.presence.begin_rings();
                }
            }
            Wanted::Read { length: 0, .. } => self.send(&[&session::whole(unique, &[])]),
            Wanted::Read { offset_bytes, length } => {
                let blocks = Blocks::around(offset_bytes, length, self.block_bytes());
                let into = self.io.payload(blocks.bytes);
                let read = Some((into.clone(), blocks.asked));
                let held_bytes = blocks.bytes;
                let under_way = UnderWay { unique, read, written: None, whole: None, held_bytes };
                self.submit(under_way, engine::Request::Read { sector: blocks.sector, into });
            }
            Wanted::Write { data: range, .. } if range.is_empty() => {
                self.send(&[&session::written(unique, 0)]);
            }
            Wanted::Write { offset_bytes, data: range, durable: fua } => {
                let blocks = Blocks::around(offset_bytes, range.len(), self.block_bytes());
                let from = data(range);
                if !blocks.is_whole() {
                    let (this, bytes) = (self.clone(), from.to_vec());
                    // Also while it waits for its turn.
                    self.held_bytes.set(self.held_bytes.get() + bytes.len());
                    return self.lane.spawn(async move {
                        let done = this.write_part(offset_bytes, &bytes, fua).await;
                        this.answer_one(unique, done, || session::written(unique, bytes.len()));
                        this.release(bytes.len());
                    });
                }
                let (sector, length) = (blocks.sector, from.len());
                let work = engine::Request::Write { sector, from, fua };
                let range = offset_bytes..offset_bytes + length as u64;
                let Some(whole) = self.writes.begin(&range) else {
                    let this = self.clone();
                    self.held_bytes.set(self.held_bytes.get() + length);
                    return self.lane.spawn(async move {
                        let done = this.write_whole(range, work).await;
                        this.answer_one(unique, done, || session::written(unique, length));
                        this.release(length);
                    });
                };
                let (written, whole) = (Some(length), Some(whole));
                let under_way = UnderWay { unique, read: None, written, whole, held_bytes: length };
                self.submit(under_way, work);
            }
            Wanted::Flush => {
                let under_way =
                    UnderWay { unique, read: None, written: None, whole: None, held_bytes: 0 };
                self.submit(under_way, engine::Request::Flush);
            }
            Wanted::Zero { offset_bytes, length_bytes, give_up } => {
                let this = self.clone();
                self.lane.spawn(async move {
                    let range = offset_bytes..offset_bytes + length_bytes;
                    let done = this.zero(range, give_up).await;
                    this.answer_one(unique, done, || session::whole(unique, &[]));
                });
            }
        }
    }

    fn submit(&self, under_way: UnderWay, work: engine::Request) {
        self.held_bytes.set(self.held_bytes.get() + under_way.held_bytes);
        let tag = self.under_way.borrow_mut().add(under_way);
        self.volume.submit(&self.queue, tag, work);
    }
}

/// The ring.
impl<V: VolumePart + 'static> Connection<V> {
    /// Serves the ring, where the kernel takes one, until it ends.
    async fn serve_ring(self: &Rc<Self>, mut ring: Ring) {
        if !self.presence.rings_begin().await {
            return;
        }
        let signalled = match ring.begin(self.device.as_fd()) {
            Ok(signalled) => signalled,
            // The kernel would wait for the entries for ever.
            Err(error) => {
                tracing::error!(%error, "a ring of a mount does not begin: the mount is given up");
                return self.presence.give_up();
            }
        };
        *self.ring.borrow_mut() = Some(ring);
        while !self.presence.is_over() && !self.with_ring(|ring| ring.is_over()) {
            if self.take_turn() || self.polling_pays() {
                self.lane.pause().await;
                continue;
            }
            self.with_ring(|ring| ring.clear_news());
            if !self.take_turn() {
                let ready = self.io.poll(&signalled, POLLIN, None);
                // What it says, the next turn finds.
                let _ = self.presence.unless_over_at_ring(ready).await;
            }
        }
    }

    /// Whether the next requests are likely to come sooner than a sleep is over.
    fn polling_pays(&self) -> bool {
        let [before, last] = self.taken.get();
        last.since(before) < POLL_FOR && self.now().since(last) < POLL_FOR
    }

    fn now(&self) -> Time {
        self.lane.backend().now()
    }

    fn with_ring<T>(&self, act: impl FnOnce(&mut Ring) -> T) -> T {
        act(self.ring.borrow_mut().as_mut().expect("it is there from its start on"))
    }

    /// Hands answers over, and begins the requests that have come. False: there was none.
    fn take_turn(self: &Rc<Self>) -> bool {
        self.with_ring(Ring::turn);
        let mut has_taken = false;
        while let Some(arrived) = self.with_ring(Ring::next) {
            has_taken = true;
            match self.with_ring(|ring| self.presence.session().parse(ring.message(&arrived))) {
                Ok(request) => self.execute(fitting(request), |range| {
                    self.with_ring(|ring| self.payload_of(&ring.message(&arrived)[range]))
                }),
                Err(broken) => {
                    self.give_up(&broken);
                    break;
                }
            }
        }
        if has_taken {
            let [_, last] = self.taken.get();
            self.taken.set([last, self.now()]);
        }
        has_taken
    }

    /// Hands over the answers that were put into the ring.
    fn hand_over(&self) {
        if let Some(ring) = &mut *self.ring.borrow_mut() {
            ring.turn();
        }
    }
}

/// Ranges that do not end with blocks, and what takes several requests.
impl<V: VolumePart + 'static> Connection<V> {
    /// Writes parts of blocks: the blocks are read, and written with the new bytes. No other write of them is under
    /// way then, of whatever front: of two that change one block one would lose its bytes.
    async fn write_part(&self, offset_bytes: u64, bytes: &[u8], fua: bool) -> Result<(), Errno> {
        let blocks = Blocks::around(offset_bytes, bytes.len(), self.block_bytes());
        let start = blocks.sector * SECTOR_BYTES;
        let _alone = self.presence.partial_writes().begin(start..start + blocks.bytes as u64).await;
        let payload = self.io.payload(blocks.bytes);
        self.held_bytes.set(self.held_bytes.get() + blocks.bytes);
        let (sector, into) = (blocks.sector, payload.clone());
        let mut done = self.ask(engine::Request::Read { sector, into }).await;
        if done.is_ok() {
            payload.put(blocks.asked.start, bytes);
            done = self.ask(engine::Request::Write { sector, from: payload, fua }).await;
        }
        self.release(blocks.bytes);
        done
    }

    /// Writes whole blocks, in turn with writes of parts of them.
    async fn write_whole(&self, bytes: Range<u64>, work: engine::Request) -> Result<(), Errno> {
        let _whole = self.writes.begin_when_free(bytes).await;
        self.ask(work).await
    }

    /// It ends early when the file is gone: what was written through another front meanwhile would be zeroed later.
    async fn zero(&self, range: Range<u64>, give_up: bool) -> Result<(), Errno> {
        let block = self.block_bytes();
        let inner = range.start.next_multiple_of(block)..range.end / block * block;
        if inner.start >= inner.end {
            return self.write_zeroes(range).await;
        }
        self.write_zeroes(range.start..inner.start).await?;
        self.write_zeroes(inner.end..range.end).await?;
        let inner = inner.start / SECTOR_BYTES..inner.end / SECTOR_BYTES;
        let work = |piece: Range<u64>| {
            let (sector, sectors) = (piece.start, piece.end - piece.start);
            match give_up {
                true => engine::Request::Punch { sector, sectors },
                false => engine::Request::WriteZeroes { sector, sectors, fua: false },
            }
        };
        let is_over = || self.presence.is_over() || self.receiving_ended.get();
        let done = do_in_pieces((&self.volume, &*self.lane), &self.writes, inner, work, is_over);
        done.await.map_err(errno)
    }

    /// Zeroes less than two blocks.
    async fn write_zeroes(&self, range: Range<u64>) -> Result<(), Errno> {
        match range.is_empty() {
            true => Ok(()),
            false => {
                let zeroes = vec![0; (range.end - range.start) as usize];
                self.write_part(range.start, &zeroes, false).await
            }
        }
    }

    /// Asks the array, and waits for the end.
    async fn ask(&self, request: engine::Request) -> Result<(), Errno> {
        let queue = Queue::new();
        self.volume.submit(&queue, 0, request);
        queue.next().await.result.map_err(errno)
    }

    fn answer_one(&self, unique: u64, done: Result<(), Errno>, answer: impl FnOnce() -> Vec<u8>) {
        match done {
            Ok(()) => self.send(&[&answer()]),
            Err(errno) => self.send(&[&session::error(unique, errno)]),
        }
        self.hand_over();
    }
}

/// Answering.
impl<V: VolumePart + 'static> Connection<V> {
    /// Answers whatever ends, until nothing is expected any more.
    async fn answer(self: &Rc<Self>) {
        while let Some(completion) = self.next_end().await {
            self.end(completion);
            while let Some(completion) = self.queue.pop() {
                self.end(completion);
            }
            if self.ring.borrow().is_some() && self.take_turn() {
                self.lane.pause().await;
            }
        }
    }

    async fn next_end(&self) -> Option<Completion> {
        poll_fn(|context| {
            if let Poll::Ready(completion) = pin!(self.queue.next()).poll(context) {
                return Poll::Ready(Some(completion));
            }
            if self.receiving_ended.get() && self.queue.in_flight() == 0 {
                return Poll::Ready(None);
            }
            self.answering.set(context.waker());
            Poll::Pending
        })
        .await
    }

    /// The array has ended a request.
    fn end(&self, Completion { tag, result }: Completion) {
        let UnderWay { unique, read, written, whole, held_bytes } =
            self.under_way.borrow_mut().remove(tag);
        drop(whole);
        match (result, &read) {
            (Err(error), _) => self.send(&[&session::error(unique, errno(error))]),
            (Ok(()), Some((payload, asked))) => {
                let bytes = payload.stable().expect("a read that has ended fills nothing more");
                let header = session::header(unique, asked.len());
                self.send(&[header.as_bytes(), &bytes[asked.clone()]]);
            }
            (Ok(()), None) => match written {
                Some(length) => self.send(&[&session::written(unique, length)]),
                None => self.send(&[&session::whole(unique, &[])]),
            },
        }
        self.release(held_bytes);
    }

    fn release(&self, bytes: usize) {
        self.held_bytes.set(self.held_bytes.get() - bytes);
        if self.held_bytes.get() <= HELD_BYTES_MAX {
            self.receiving.wake();
        }
    }

    /// Hands an answer to the kernel: over the device, which takes it at once and as a whole, or through the ring, where
    /// the request came that way.
    fn send(&self, parts: &[&[u8]]) {
        if self.ring.borrow_mut().as_mut().is_some_and(|ring| ring.answer(parts)) {
            let data = parts[1..].iter().map(|part| part.len()).sum();
            return self.lane.count_copy(data);
        }
        let slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        match rustix::io::writev(&self.device, &slices) {
            // A request whose program was killed meanwhile is withdrawn: its answer finds nothing.
            Ok(_) | Err(Errno::NOENT | Errno::NODEV) => {}
            Err(error) => tracing::warn!(%error, "the kernel does not take an answer"),
        }
    }
}

/// The request, where its answer has room in an entry of a ring. The kernel was told how much that is.
fn fitting(request: session::Request) -> session::Request {
    match request {
        session::Request { unique, wanted: Wanted::Read { length, .. } }
            if length > RING_BYTES_MAX =>
        {
            let answer = session::error(unique, Errno::INVAL);
            session::Request { unique, wanted: Wanted::Answer(answer) }
        }
        request => request,
    }
}

/// Why no message is read now.
enum Idle {
    /// There is none.
    Empty,
    /// Too much is under way.
    Full,
    /// There will be none.
    Over,
}

fn errno(error: RequestError) -> Errno {
    match error {
        RequestError::OutOfRange | RequestError::Unaligned => Errno::INVAL,
        RequestError::ReadOnly => Errno::ROFS,
        RequestError::NoSpace => Errno::NOSPC,
        RequestError::Lost | RequestError::Stopped => Errno::IO,
    }
}

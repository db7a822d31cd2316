//! One queue of a device on its lane: the kernel's requests to the array, and answers back.
//!
//! Two tasks share it. [`take`](Queue::take) begins what the kernel asks for; [`answer`](Queue::answer) ends whatever the
//! array has done, and hands all of it to the driver at once.
//!
//! Data are read from and written to `/dev/ublkcN`, between the memory of a request and that of the program that asked
//! (`UBLK_F_USER_COPY`). That is done at once, by the lane: it copies memory, and never waits for a device. Over a ring it
//! would not be faster: the driver says of this file that reads and writes may wait, and the ring gives such to threads of
//! the kernel. A write's bytes are copied once, before it begins, so parity and mirrors never see them change.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::future::{Future, poll_fn};
use std::io;
use std::ops::{ControlFlow, Range};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use mdspace_engine::lane::Lane;
use mdspace_engine::memory::{Sink, Source};
use mdspace_engine::request::{self as engine, Completion, RequestError};
use mdspace_io::{LaneIo, Payload, Socket};
use rustix::io::Errno;

use crate::partial_writes::{LaneWrites, WholeWrite};
use crate::pieces::do_in_pieces;
use crate::tags::Tags;
use crate::volume::VolumePart;
use crate::wait::Wait;

use super::request::Wanted;
use super::ring::{Arrival, QueueRing};
use super::server::Presence;
use super::slots::Slots;
use super::wire::{ABORTED, data_at};

/// Requests that are begun before other work of the lane gets its turn.
const BATCH: usize = 64;
/// Payload under way in one queue beyond which it begins no more.
const HELD_BYTES_MAX: usize = 64 << 20;
/// `poll`'s word for something to read.
const POLLIN: i16 = 1;
const SECTOR_BYTES: u64 = 512;

/// One queue. The ring goes before the place is left.
pub(super) struct Queue<V> {
    io: LaneIo,
    lane: Rc<Lane>,
    volume: Rc<V>,
    ring: RefCell<QueueRing>,
    arrives: Socket,
    device: Arc<File>,
    slots: RefCell<Slots>,
    /// Where the engine's completions arrive.
    ends: Rc<engine::Queue>,
    under_way: RefCell<Tags<UnderWay>>,
    held_bytes: Cell<usize>,
    taking_ended: Cell<bool>,
    /// The answering task, while it waits for something to answer.
    answering: Wait,
    /// The taking task, while it waits for memory.
    taking: Wait,
    writes: Rc<LaneWrites>,
    presence: Presence,
}

/// A request that the array is working on.
struct UnderWay {
    tag: u16,
    /// What a read fills.
    read: Option<Rc<Payload>>,
    /// What a read or write tells the kernel that it has done.
    bytes: usize,
    /// Keeps writes of parts of blocks waiting, of other fronts.
    whole: Option<WholeWrite>,
}

/// Why nothing is taken now.
enum Idle {
    /// Nothing has arrived.
    Empty,
    /// Too much is under way.
    Full,
    /// No more will arrive.
    Over,
}

impl<V: VolumePart + 'static> Queue<V> {
    /// Gives the driver the queue's entries, and serves it on `lane` until the device is stopped, or the queue closed.
    pub(super) fn start(
        lane: &Rc<Lane>,
        io: &LaneIo,
        (device, mut ring, arrives): (Arc<File>, QueueRing, OwnedFd),
        volume: Rc<V>,
        presence: Presence,
    ) -> io::Result<()> {
        let (depth, arrives) = (presence.terms().depth, Socket::polled(arrives));
        ring.fetch()?;
        let queue = Rc::new(Self {
            io: io.clone(),
            lane: lane.clone(),
            volume,
            ring: RefCell::new(ring),
            arrives,
            device,
            slots: RefCell::new(Slots::fetching(depth)),
            ends: engine::Queue::new(),
            under_way: RefCell::default(),
            held_bytes: Cell::new(0),
            taking_ended: Cell::new(false),
            answering: Wait::default(),
            taking: Wait::default(),
            writes: presence.partial_writes().beside(),
            presence,
        });
        lane.spawn(queue.writes.watch());
        let taking = queue.clone();
        lane.spawn(async move { taking.take().await });
        lane.spawn(async move { queue.answer().await });
        Ok(())
    }
}

/// Taking.
impl<V: VolumePart + 'static> Queue<V> {
    async fn take(self: Rc<Self>) {
        loop {
            self.turn();
            let taken = (0..BATCH).try_for_each(|_| self.take_one());
            self.turn();
            let go_on = match taken {
                ControlFlow::Continue(()) => {
                    self.lane.pause().await;
                    true
                }
                ControlFlow::Break(Idle::Empty) => self.something_arrives().await,
                ControlFlow::Break(Idle::Full) => self.room().await,
                ControlFlow::Break(Idle::Over) => false,
            };
            if !go_on {
                break;
            }
        }
        if self.slots.borrow().are_over() {
            self.ring.borrow_mut().end();
        }
        self.taking_ended.set(true);
        self.answering.wake();
    }

    fn take_one(self: &Rc<Self>) -> ControlFlow<Idle> {
        if self.held_bytes.get() > HELD_BYTES_MAX && !self.presence.is_over() {
            return ControlFlow::Break(Idle::Full);
        }
        let arrival = self.ring.borrow_mut().next();
        match arrival {
            Some(arrival) => {
                self.arrived(arrival);
                ControlFlow::Continue(())
            }
            None if self.presence.is_over() || self.slots.borrow().are_over() => {
                ControlFlow::Break(Idle::Over)
            }
            None => ControlFlow::Break(Idle::Empty),
        }
    }

    fn arrived(self: &Rc<Self>, Arrival { tag, result }: Arrival) {
        let taken = match result {
            0 => self.slots.borrow_mut().take(tag).map(Some),
            _ => self.slots.borrow_mut().end(tag).map(|()| None),
        };
        match (taken, result) {
            // The driver asks the next process.
            (Ok(Some(_)), _) if self.presence.is_over() => {}
            (Ok(Some(tag)), _) => self.begin(tag),
            (Ok(None), ABORTED) => {}
            (Ok(None), errno) => {
                let refusal = io::Error::from_raw_os_error(-errno);
                self.presence.give_up(&format!("the ublk driver takes no entry: {refusal}"));
            }
            (Err(broken), _) => self.presence.give_up(&broken),
        }
    }

    fn begin(self: &Rc<Self>, tag: u16) {
        let asked = self.ring.borrow().asked(tag);
        match Wanted::of(&asked, &self.presence.terms().limits) {
            Ok(wanted) => self.execute(tag, wanted),
            Err(errno) => {
                tracing::warn!(?asked, %errno, "a request of the ublk driver is refused");
                self.commit(tag, Err(errno));
            }
        }
    }

    /// Waits until the driver has said something. False: the queue is being closed.
    async fn something_arrives(&self) -> bool {
        let ready = self.presence.unless_over(self.io.poll(&self.arrives, POLLIN, None)).await;
        match ready {
            None => false,
            Some(Ok(_)) => {
                self.ring.borrow().clear_news();
                true
            }
            Some(Err(error)) => {
                self.presence.give_up(&format!("the ublk driver cannot be waited for: {error}"));
                false
            }
        }
    }

    /// Waits until more may be begun. False: the queue is being closed.
    async fn room(&self) -> bool {
        let room = poll_fn(|context| {
            if self.held_bytes.get() <= HELD_BYTES_MAX {
                return Poll::Ready(());
            }
            self.taking.set(context.waker());
            Poll::Pending
        });
        self.presence.unless_over(room).await.is_some()
    }

    fn execute(self: &Rc<Self>, tag: u16, wanted: Wanted) {
        match wanted {
            Wanted::Read { sector, bytes } => {
                self.presence.note_read(sector, bytes);
                let into = self.io.payload(bytes);
                let read = Some(into.clone());
                self.hold(bytes);
                self.submit_to_array(
                    UnderWay { tag, read, bytes, whole: None },
                    engine::Request::Read { sector, into },
                );
            }
            Wanted::Write { sector, bytes, fua } => {
                let from = self.io.payload(bytes);
                if let Err(error) = self.copy_in(tag, &from) {
                    tracing::warn!(%error, "the ublk driver does not give what is to be written");
                    return self.commit(tag, Err(Errno::IO));
                }
                self.hold(bytes);
                let range = bytes_of(sector..sector + bytes as u64 / SECTOR_BYTES);
                let work = engine::Request::Write { sector, from, fua };
                match self.writes.begin(&range) {
                    Some(whole) => {
                        let under_way = UnderWay { tag, read: None, bytes, whole: Some(whole) };
                        self.submit_to_array(under_way, work);
                    }
                    None => self.write_in_turn(tag, range, work),
                }
            }
            Wanted::Flush => {
                let under_way = UnderWay { tag, read: None, bytes: 0, whole: None };
                self.submit_to_array(under_way, engine::Request::Flush);
            }
            Wanted::Discard { sector, sectors } => {
                let work = |sector, sectors| engine::Request::Discard { sector, sectors };
                self.do_range(tag, sector..sector + sectors, work);
            }
            Wanted::Zero { sector, sectors, fua, keeps } => {
                // What must last at once is written: giving room up promises nothing of that.
                let work = move |sector, sectors| match keeps || fua {
                    true => engine::Request::WriteZeroes { sector, sectors, fua },
                    false => engine::Request::Punch { sector, sectors },
                };
                self.do_range(tag, sector..sector + sectors, work);
            }
        }
    }

    fn submit_to_array(&self, under_way: UnderWay, work: engine::Request) {
        let number = self.under_way.borrow_mut().add(under_way);
        self.volume.submit(&self.ends, number, work);
    }

    /// A write of blocks of which a part is written through another front.
    fn write_in_turn(self: &Rc<Self>, tag: u16, range: Range<u64>, work: engine::Request) {
        let this = self.clone();
        self.lane.spawn(async move {
            let bytes = (range.end - range.start) as usize;
            let whole = this.writes.begin_in_turn(range).await;
            let queue = engine::Queue::new();
            this.volume.submit(&queue, 0, work);
            let done = queue.next().await.result;
            drop(whole);
            this.answer_one(tag, done, bytes);
            this.release(bytes);
        });
    }

    fn do_range(
        self: &Rc<Self>,
        tag: u16,
        sectors: Range<u64>,
        work: impl Fn(u64, u64) -> engine::Request + 'static,
    ) {
        let this = self.clone();
        self.lane.spawn(async move {
            let piece = |piece: Range<u64>| work(piece.start, piece.end - piece.start);
            let is_over = || this.presence.is_over();
            let place = (&this.volume, &*this.lane);
            let done = do_in_pieces(place, &this.writes, sectors, piece, is_over).await;
            this.answer_one(tag, done, 0);
        });
    }

    /// Takes the bytes that are to be written.
    fn copy_in(&self, tag: u16, payload: &Payload) -> io::Result<()> {
        let at = data_at(self.presence.queue(), tag);
        let mut copied = Ok(());
        payload.fill(0..payload.len(), &mut |bytes| copied = self.device.read_exact_at(bytes, at));
        copied
    }

    /// Gives the bytes that were read.
    fn copy_out(&self, tag: u16, payload: &Payload) -> io::Result<()> {
        let bytes = payload.stable().expect("a read that has ended fills nothing more");
        self.device.write_all_at(bytes, data_at(self.presence.queue(), tag))
    }
}

/// Answering.
impl<V: VolumePart + 'static> Queue<V> {
    /// Answers whatever ends, until nothing is expected any more.
    async fn answer(self: Rc<Self>) {
        while let Some(completion) = self.next_end().await {
            self.end(completion);
            while let Some(completion) = self.ends.pop() {
                self.end(completion);
            }
            self.turn();
        }
    }

    async fn next_end(&self) -> Option<Completion> {
        poll_fn(|context| {
            if let Poll::Ready(completion) = pin!(self.ends.next()).poll(context) {
                return Poll::Ready(Some(completion));
            }
            if self.taking_ended.get() && self.ends.in_flight() == 0 {
                return Poll::Ready(None);
            }
            self.answering.set(context.waker());
            Poll::Pending
        })
        .await
    }

    /// The array has ended a request.
    fn end(&self, Completion { tag: number, result }: Completion) {
        let UnderWay { tag, read, bytes, whole } = self.under_way.borrow_mut().remove(number);
        drop(whole);
        let given = match (result, &read) {
            (Ok(()), Some(payload)) => self.copy_out(tag, payload),
            _ => Ok(()),
        };
        match given {
            Ok(()) => self.give(tag, result, bytes),
            Err(error) => {
                tracing::warn!(%error, "the ublk driver does not take what was read");
                self.commit(tag, Err(Errno::IO));
            }
        }
        self.release(bytes);
    }

    /// Answers a request, and hands that to the driver.
    fn answer_one(&self, tag: u16, done: Result<(), RequestError>, bytes: usize) {
        self.give(tag, done, bytes);
        self.turn();
    }

    fn give(&self, tag: u16, done: Result<(), RequestError>, bytes: usize) {
        match done {
            Err(RequestError::Stopped) => self.leave_unanswered(),
            Err(error) => self.commit(tag, Err(errno(error))),
            Ok(()) => self.commit(tag, Ok(bytes)),
        }
    }

    /// A request was not done since this process gives the device up: the driver asks the next one again.
    fn leave_unanswered(&self) {
        if !self.presence.is_over() {
            self.presence.give_up(&"the array was stopped");
        }
    }

    fn commit(&self, tag: u16, result: Result<usize, Errno>) {
        self.slots.borrow_mut().give_back(tag);
        let result = match result {
            Ok(bytes) => i32::try_from(bytes).expect("a request has a few MiB at most"),
            Err(errno) => -errno.raw_os_error(),
        };
        self.ring.borrow_mut().commit(tag, result);
    }

    /// Hands the driver what was answered, and takes what it has.
    fn turn(&self) {
        let turned = self.ring.borrow_mut().turn();
        if let Err(error) = turned {
            self.presence.give_up(&format!("the ublk driver cannot be answered: {error}"));
        }
    }

    fn hold(&self, bytes: usize) {
        self.held_bytes.set(self.held_bytes.get() + bytes);
    }

    fn release(&self, bytes: usize) {
        self.held_bytes.set(self.held_bytes.get() - bytes);
        if self.held_bytes.get() <= HELD_BYTES_MAX {
            self.taking.wake();
        }
    }
}

fn bytes_of(sectors: Range<u64>) -> Range<u64> {
    sectors.start * SECTOR_BYTES..sectors.end * SECTOR_BYTES
}

/// What the kernel makes a state of a block device of.
fn errno(error: RequestError) -> Errno {
    match error {
        RequestError::NoSpace => Errno::NOSPC,
        RequestError::OutOfRange
        | RequestError::Unaligned
        | RequestError::ReadOnly
        | RequestError::Lost
        | RequestError::Stopped => Errno::IO,
    }
}

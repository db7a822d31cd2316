//! One ring on its lane: what the guest asks goes to the array, and its answers come back.
//!
//! Two tasks share it. [`take`](Ring::take) begins what the guest made available; [`answer`](Ring::answer) ends
//! whatever the array has done, and signals once for all of it. Data are copied: a write takes its bytes out of guest
//! memory before it begins, so that parity and mirrors never see them change, and a read is copied there at its end,
//! when the ring still has a client. No member ever writes to guest memory.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::io;
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::task::Poll;
use std::time::Duration;

use mdspace_engine::lane::Lane;
use mdspace_engine::memory::{Sink, Source};
use mdspace_engine::request::{self as engine, Completion, RequestError};
use mdspace_engine::time::Time;
use mdspace_io::{LaneIo, Payload, Socket};
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{GuestAddress, GuestMemoryError, VolatileMemoryError};

use crate::nbd::budget::Borrower;
use crate::partial_writes::{LaneWrites, WholeWrite};
use crate::pieces::{PIECE_SECTORS, do_in_pieces};
use crate::tags::Tags;
use crate::volume::VolumePart;
use crate::wait::Wait;

use super::chain::{BadChain, Chain, Spans, Table};
use super::disk::{Disk, SECTOR_BYTES, feature};
use super::event;
use super::memory::Memory;
use super::record::{BadRecord, Record, Records};
use super::request::{Request, Status, Wanted};

/// Descriptors of a ring.
pub(super) const SIZE_MAX: u16 = 1024;

/// Bytes of requests under way that cost no shared word; the rest is borrowed.
const OWN_BYTES: usize = 1 << 20;

/// Requests, and bytes that are copied, in one turn: then others on the lane have theirs.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 1 << 20;

/// How long a ring is looked at for more, where the last request came as soon after the one before. A guest that asks
/// more seldom wakes it.
const POLL_FOR: Duration = Duration::from_micros(50);

/// How long a full eventfd is waited for.
const SIGNAL_WITHIN: Duration = Duration::from_secs(5);

/// Who has the ring.
pub(super) trait Client: Debug {
    /// Cuts it off: it has broken the rules, or cannot be served any more.
    fn give_up(&self, why: &Trouble);

    /// It has left, or was cut off: it reads no answer any more.
    fn is_gone(&self) -> bool;
}

/// What a ring begins with.
pub(super) struct Setup {
    pub(super) index: usize,
    pub(super) memory: Arc<Memory>,
    pub(super) places: Places,
    pub(super) size: u16,
    /// The first entry of the available ring that was not taken.
    pub(super) next_available: u16,
    /// What the guest has agreed to.
    pub(super) features: u64,
    pub(super) kick: File,
    pub(super) call: Option<File>,
    pub(super) is_enabled: bool,
    pub(super) records: Option<Arc<Records>>,
    pub(super) disk: Arc<Disk>,
    pub(super) client: Arc<dyn Client + Send + Sync>,
}

/// Where a ring's parts are in guest memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) descriptors: GuestAddress,
    pub(super) used: GuestAddress,
    pub(super) available: GuestAddress,
}

/// What changes while a ring runs.
pub(super) enum Change {
    Memory(Arc<Memory>, Places),
    Call(Option<File>),
    Enable(bool),
}

/// How a ring ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// What it has taken is answered first.
    Drain,
    /// Its client is gone: guest memory is not touched any more.
    Abandon,
}

/// What a lane gives its rings.
pub(super) struct Terms {
    pub(super) budget: Borrower,
    pub(super) writes: Rc<LaneWrites>,
}

/// Why a ring cannot go on.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error(transparent)]
    Chain(#[from] BadChain),
    #[error("the ring is wrong: {0}")]
    Queue(#[from] virtio_queue::Error),
    #[error("the ring is not in the shared memory")]
    Place,
    #[error("descriptor {0} is made available twice")]
    Twice(u16),
    #[error("guest memory cannot be reached: {0}")]
    Access(#[from] GuestMemoryError),
    #[error("its record of requests cannot be used: {0}")]
    Record(#[from] BadRecord),
    #[error("its record of requests cannot be reached: {0}")]
    RecordAccess(#[from] VolatileMemoryError),
    #[error("shared memory was taken away")]
    Lost,
    #[error("its eventfd cannot be used: {0}")]
    Event(#[from] io::Error),
    #[error("the array was stopped")]
    Stopped,
}

/// A ring.
pub(super) struct Ring<V> {
    io: LaneIo,
    lane: Rc<Lane>,
    volume: Rc<V>,
    disk: Arc<Disk>,
    client: Arc<dyn Client + Send + Sync>,
    terms: Terms,
    queue: RefCell<Queue>,
    record: RefCell<Option<Record>>,
    /// What a process before this one had begun, and not answered.
    left: RefCell<VecDeque<u16>>,
    memory: RefCell<Arc<Memory>>,
    /// The guest may say that descriptors name tables.
    is_indirect: bool,
    /// Each write must last before its answer: the guest never flushes.
    is_durable: bool,
    kick: Socket,
    call: RefCell<Option<Socket>>,
    is_enabled: Cell<bool>,
    stop: Cell<Option<Stop>>,
    /// Who hears of the end, and where the ring stood then.
    stopped: RefCell<Option<Sender<u16>>>,
    taking_ended: Cell<bool>,
    /// Where the array's completions arrive.
    ends: Rc<engine::Queue>,
    under_way: RefCell<Tags<UnderWay>>,
    /// Heads of what was taken and not answered.
    heads: RefCell<Heads>,
    own_bytes: Cell<usize>,
    /// Something was answered since the last signal.
    has_answered: Cell<bool>,
    /// The next signal is due whatever the guest wants.
    must_signal: Cell<bool>,
    /// Something has changed for the taking task.
    has_news: Cell<bool>,
    taking: Wait,
    answering: Wait,
}

/// A request that was taken.
struct UnderWay {
    head: u16,
    /// As it was when the request was taken.
    memory: Arc<Memory>,
    data: Spans,
    status: GuestAddress,
    /// What a read fills.
    payload: Option<Rc<Payload>>,
    /// Keeps writes of parts of the same blocks waiting.
    whole: Option<WholeWrite>,
    held: Held,
}

/// Memory that a request takes, in bytes.
#[derive(Clone, Copy, Default)]
struct Held {
    own: usize,
    borrowed: usize,
}

impl<V: VolumePart + 'static> Ring<V> {
    /// Serves a ring until it is [stopped](Self::stop).
    pub(super) fn start(
        lane: &Rc<Lane>,
        io: &LaneIo,
        volume: Rc<V>,
        setup: Setup,
        terms: Terms,
    ) -> Result<Rc<Self>, Trouble> {
        let mut queue = Queue::new(SIZE_MAX)?;
        queue.try_set_size(setup.size)?;
        queue.set_event_idx(setup.features & feature::EVENT_IDX != 0);
        queue.set_ready(true);
        place(&mut queue, &setup.memory, setup.places)?;
        let used = queue.used_idx(setup.memory.guest(), Ordering::Acquire)?.0;
        queue.set_next_used(used);
        queue.set_next_avail(setup.next_available);
        let (mut record, mut left) = (None, VecDeque::new());
        if let Some(records) = &setup.records {
            let (opened, found) = Record::open(records, setup.index, setup.size, used)?;
            record = Some(opened);
            if let Some(found) = found {
                queue.set_next_avail(found.next_available);
                left = found.heads.into();
            }
        }
        let ring = Rc::new(Ring {
            io: io.clone(),
            lane: lane.clone(),
            volume,
            disk: setup.disk,
            client: setup.client,
            terms,
            queue: RefCell::new(queue),
            record: RefCell::new(record),
            left: RefCell::new(left),
            memory: RefCell::new(setup.memory),
            is_indirect: setup.features & feature::INDIRECT_DESC != 0,
            is_durable: setup.features & feature::FLUSH == 0,
            kick: Socket::polled(setup.kick.into()),
            call: RefCell::new(setup.call.map(|file| Socket::polled(file.into()))),
            is_enabled: Cell::new(setup.is_enabled),
            stop: Cell::new(None),
            stopped: RefCell::default(),
            taking_ended: Cell::new(false),
            ends: engine::Queue::new(),
            under_way: RefCell::default(),
            heads: RefCell::new(Heads::new(setup.size)),
            own_bytes: Cell::new(0),
            // A process before this one may have died between an answer and its signal. One too many does no harm.
            has_answered: Cell::new(true),
            must_signal: Cell::new(true),
            has_news: Cell::new(false),
            taking: Wait::default(),
            answering: Wait::default(),
        });
        lane.spawn(ring.clone().take());
        lane.spawn(ring.clone().answer());
        Ok(ring)
    }

    pub(super) fn change(&self, change: Change) {
        match change {
            Change::Memory(memory, places) => {
                let placed = place(&mut self.queue.borrow_mut(), &memory, places);
                *self.memory.borrow_mut() = memory;
                placed.unwrap_or_else(|trouble| self.give_up(&trouble));
            }
            Change::Call(file) => {
                *self.call.borrow_mut() = file.map(|file| Socket::polled(file.into()));
                // Who waits for the new one may have missed a signal of the old one.
                self.must_signal.set(true);
                self.has_answered.set(true);
                self.answering.wake();
            }
            Change::Enable(is_enabled) => self.is_enabled.set(is_enabled),
        }
        self.tell();
    }

    /// Ends it. `stopped` hears of the end, or is dropped with the lane.
    pub(super) fn stop(&self, stop: Stop, stopped: Sender<u16>) {
        self.stop.set(Some(stop));
        *self.stopped.borrow_mut() = Some(stopped);
        self.tell();
        self.answering.wake();
    }

    fn tell(&self) {
        self.has_news.set(true);
        self.taking.wake();
    }

    /// Nothing is answered any more, nor is guest memory touched. The client may go while the ring drains, too.
    fn is_abandoned(&self) -> bool {
        self.stop.get() == Some(Stop::Abandon) || self.client.is_gone()
    }

    fn give_up(&self, trouble: &Trouble) {
        // Nothing of what went wrong after that was the guest's word.
        let is_lost = self.is_lost();
        self.client.give_up(if is_lost { &Trouble::Lost } else { trouble });
    }

    fn is_lost(&self) -> bool {
        self.memory.borrow().is_lost() || self.record.borrow().as_ref().is_some_and(Record::is_lost)
    }

    fn now(&self) -> Time {
        self.lane.backend().now()
    }
}

/// Says where a ring is, if it is there.
fn place(queue: &mut Queue, memory: &Memory, places: Places) -> Result<(), Trouble> {
    queue.try_set_desc_table_address(places.descriptors)?;
    queue.try_set_avail_ring_address(places.available)?;
    queue.try_set_used_ring_address(places.used)?;
    // The crate takes 0 for a ring that was never placed.
    match places.available != GuestAddress(0) && queue.is_valid(memory.guest()) {
        true => Ok(()),
        false => Err(Trouble::Place),
    }
}

/// Taking.
impl<V: VolumePart + 'static> Ring<V> {
    /// Begins what was left by a process before this one, then whatever comes.
    async fn take(self: Rc<Self>) {
        if let Err(trouble) = self.take_until_stopped().await {
            self.give_up(&trouble);
        }
        self.taking_ended.set(true);
        self.answering.wake();
    }

    async fn take_until_stopped(self: &Rc<Self>) -> Result<(), Trouble> {
        let (mut last, mut polling_pays) = (self.now(), false);
        while self.stop.get().is_none() {
            let is_enabled = self.is_enabled.get();
            if is_enabled && self.take_some().await? {
                let now = self.now();
                polling_pays = now.since(last) < POLL_FOR;
                last = now;
                self.lane.pause().await;
            } else if is_enabled && polling_pays && self.now().since(last) < POLL_FOR {
                self.lane.pause().await;
            } else if !is_enabled || !self.wants_kicks(true)? {
                self.kicked().await?;
                self.wants_kicks(false)?;
            }
        }
        // It counts as taken: whoever takes over after a drain goes on behind it.
        while !self.is_abandoned()
            && let Some(head) = self.next_left()
        {
            self.begin(head).await?;
        }
        Ok(())
    }

    /// Begins some of what the guest made available. False: there was nothing.
    async fn take_some(self: &Rc<Self>) -> Result<bool, Trouble> {
        let mut bytes = 0;
        for taken in 0..BATCH {
            let Some(head) = self.next_head()? else { return Ok(taken > 0) };
            bytes += self.begin(head).await?;
            if bytes >= BATCH_BYTES {
                break;
            }
        }
        Ok(true)
    }

    /// The next head, on record.
    fn next_head(&self) -> Result<Option<u16>, Trouble> {
        if let Some(left) = self.next_left() {
            return Ok(Some(left));
        }
        let Some(head) = self.next_available()? else { return Ok(None) };
        let head = self.checked(head)?;
        if let Some(record) = &mut *self.record.borrow_mut() {
            record.begin(head)?;
        }
        Ok(Some(head))
    }

    fn next_left(&self) -> Option<u16> {
        self.left.borrow_mut().pop_front()
    }

    fn next_available(&self) -> Result<Option<u16>, Trouble> {
        let memory = self.memory.borrow();
        let mut queue = self.queue.borrow_mut();
        if queue.avail_idx(memory.guest(), Ordering::Acquire)?.0 == queue.next_avail() {
            return Ok(None);
        }
        // The crate says the same of an entry that cannot be read as of none.
        let chain = queue.iter(memory.guest())?.next().ok_or(Trouble::Place)?;
        Ok(Some(chain.head_index()))
    }

    /// A head that may be taken now.
    fn checked(&self, head: u16) -> Result<u16, Trouble> {
        if head >= self.queue.borrow().size() {
            return Err(BadChain::Index(head).into());
        }
        match self.heads.borrow().contains(head) {
            true => Err(Trouble::Twice(head)),
            false => Ok(head),
        }
    }

    /// Asks the guest to say when there is more, or not to. True: there is more already.
    fn wants_kicks(&self, wants: bool) -> Result<bool, Trouble> {
        let memory = self.memory.borrow();
        let mut queue = self.queue.borrow_mut();
        match wants {
            true => Ok(queue.enable_notification(memory.guest())?),
            false => Ok(queue.disable_notification(memory.guest()).map(|()| false)?),
        }
    }

    /// Waits for the guest, or for news of the ring.
    async fn kicked(&self) -> Result<(), Trouble> {
        let mut kick = pin!(self.io.poll(&self.kick, libc::POLLIN, None));
        let ready = poll_fn(|context| {
            if self.has_news.take() {
                return Poll::Ready(None);
            }
            self.taking.set(context.waker());
            kick.as_mut().poll(context).map(Some)
        })
        .await;
        match ready {
            None => Ok(()),
            Some(ready) => Ok(ready.and_then(|_| event::clear(&self.kick))?),
        }
    }

    /// Begins the request at `head`, unless the ring is abandoned before there is memory for it. Gives the bytes of its
    /// data.
    async fn begin(self: &Rc<Self>, head: u16) -> Result<usize, Trouble> {
        let head = self.checked(head)?;
        self.heads.borrow_mut().insert(head);
        let begun = self.try_to_begin(head).await;
        if !matches!(begun, Ok(Some(_))) {
            self.heads.borrow_mut().remove(head);
        }
        begun.map(Option::unwrap_or_default)
    }

    async fn try_to_begin(self: &Rc<Self>, head: u16) -> Result<Option<usize>, Trouble> {
        let memory = self.memory.borrow().clone();
        let table = {
            let queue = self.queue.borrow();
            let address = GuestAddress(queue.desc_table());
            Table { address, size: queue.size(), is_indirect: self.is_indirect }
        };
        let chain = Chain::walk(memory.guest(), table, head)?;
        let Request { wanted, data, status } = Request::parse(memory.guest(), chain, &self.disk)?;
        let bytes = match wanted {
            Wanted::Read { bytes, .. } | Wanted::Write { bytes, .. } => bytes,
            _ => 0,
        };
        let Some(held) = self.hold(bytes + data.own_bytes()).await else { return Ok(None) };
        let under_way = UnderWay { head, memory, data, status, payload: None, whole: None, held };
        self.execute(wanted, under_way).map(|()| Some(bytes))
    }

    /// Waits until so many bytes of one more request may be held. None: it is not to be answered any more.
    async fn hold(&self, bytes: usize) -> Option<Held> {
        let own = self.own_bytes.get() + bytes;
        if own <= OWN_BYTES {
            self.own_bytes.set(own);
            return Some(Held { own: bytes, borrowed: 0 });
        }
        let mut turn = self.terms.budget.turn();
        poll_fn(|context| {
            if self.is_abandoned() {
                return Poll::Ready(None);
            }
            self.taking.set(context.waker());
            let borrowed = turn.poll_borrow(bytes, context.waker());
            borrowed.map(|()| Some(Held { own: 0, borrowed: bytes }))
        })
        .await
    }

    fn execute(self: &Rc<Self>, wanted: Wanted, plain: UnderWay) -> Result<(), Trouble> {
        let fua = self.is_durable;
        match wanted {
            Wanted::Answer(status) => self.finish(plain, status, 0)?,
            Wanted::Identify => {
                plain.data.write(plain.memory.guest(), &self.disk.serial())?;
                self.finish(plain, Status::Ok, self.disk.serial().len())?;
            }
            Wanted::Flush => self.submit(plain, engine::Request::Flush),
            Wanted::Read { sector, bytes } => {
                self.disk.note_read(sector, bytes);
                let into = self.io.payload(bytes);
                let under_way = UnderWay { payload: Some(into.clone()), ..plain };
                self.submit(under_way, engine::Request::Read { sector, into });
            }
            Wanted::Write { sector, bytes } => {
                let from = self.io.payload(bytes);
                let mut copied = Ok(());
                let mut copy = |to: &mut [u8]| copied = plain.data.read(plain.memory.guest(), to);
                from.fill(0..bytes, &mut copy);
                copied?;
                self.lane.count_copy(bytes);
                let range = bytes_of(sector, bytes as u64 / SECTOR_BYTES);
                self.write(plain, range, engine::Request::Write { sector, from, fua })?;
            }
            Wanted::Discard { sector, sectors } => {
                let work = |sector, sectors| engine::Request::Discard { sector, sectors };
                self.write_range(plain, sector..sector + sectors, work)?;
            }
            Wanted::Zero { sector, sectors, unmap } => {
                let work = move |sector, sectors| match unmap && !fua {
                    true => engine::Request::Punch { sector, sectors },
                    false => engine::Request::WriteZeroes { sector, sectors, fua },
                };
                self.write_range(plain, sector..sector + sectors, work)?;
            }
        }
        Ok(())
    }

    /// Submits what writes a range without data: `work` makes a request of its first sector and their number. A long range
    /// goes in pieces: a write that waits for one of its blocks waits for one piece.
    fn write_range(
        self: &Rc<Self>,
        plain: UnderWay,
        range: Range<u64>,
        work: impl Fn(u64, u64) -> engine::Request + 'static,
    ) -> Result<(), Trouble> {
        let (sector, sectors) = (range.start, range.end - range.start);
        if sectors <= PIECE_SECTORS {
            return self.write(plain, bytes_of(sector, sectors), work(sector, sectors));
        }
        if plain.memory.is_lost() {
            return Err(Trouble::Lost);
        }
        let tag = self.under_way.borrow_mut().add(plain);
        self.ends.begin();
        let this = self.clone();
        self.lane.spawn(async move {
            let work = |piece: Range<u64>| work(piece.start, piece.end - piece.start);
            let (place, writes) = ((&this.volume, &*this.lane), &this.terms.writes);
            let done = do_in_pieces(place, writes, range, work, || this.is_abandoned()).await;
            this.ends.end(tag, done);
        });
        Ok(())
    }

    /// Submits what writes whole blocks, in turn with writes of parts of them. Nothing is written of what was read where
    /// memory has been taken away: neither data nor ranges.
    fn write(
        self: &Rc<Self>,
        plain: UnderWay,
        range: Range<u64>,
        work: engine::Request,
    ) -> Result<(), Trouble> {
        if plain.memory.is_lost() {
            return Err(Trouble::Lost);
        }
        if let Some(whole) = self.terms.writes.begin(&range) {
            self.submit(UnderWay { whole: Some(whole), ..plain }, work);
            return Ok(());
        }
        let this = self.clone();
        self.lane.spawn(async move {
            let whole = Some(this.terms.writes.begin_in_turn(range).await);
            this.submit(UnderWay { whole, ..plain }, work);
        });
        Ok(())
    }

    fn submit(&self, under_way: UnderWay, work: engine::Request) {
        let tag = self.under_way.borrow_mut().add(under_way);
        self.volume.submit(&self.ends, tag, work);
    }
}

/// The heads of chains that are under way. All of them are indices of the ring.
struct Heads {
    is_under_way: Vec<bool>,
    count: usize,
}

impl Heads {
    fn new(size: u16) -> Heads {
        Heads { is_under_way: vec![false; size.into()], count: 0 }
    }

    fn contains(&self, head: u16) -> bool {
        self.is_under_way[usize::from(head)]
    }

    fn insert(&mut self, head: u16) {
        let before = std::mem::replace(&mut self.is_under_way[usize::from(head)], true);
        self.count += usize::from(!before);
    }

    fn remove(&mut self, head: u16) {
        let before = std::mem::replace(&mut self.is_under_way[usize::from(head)], false);
        self.count -= usize::from(before);
    }

    fn is_empty(&self) -> bool {
        self.count == 0
    }
}

fn bytes_of(sector: u64, sectors: u64) -> Range<u64> {
    sector * SECTOR_BYTES..(sector + sectors) * SECTOR_BYTES
}

/// Answering.
impl<V: VolumePart + 'static> Ring<V> {
    /// Answers whatever ends, until the ring is stopped and nothing is under way.
    async fn answer(self: Rc<Self>) {
        while self.something_to_tell().await {
            let mut bytes = 0;
            while bytes < BATCH_BYTES
                && let Some(completion) = self.ends.pop()
            {
                bytes += self.end(completion);
            }
            if self.has_answered.take() && !self.is_abandoned() {
                let signalled = self.signal().await;
                signalled.unwrap_or_else(|trouble| self.give_up(&trouble));
            }
            if bytes >= BATCH_BYTES {
                self.lane.pause().await;
            }
        }
        if let Some(stopped) = self.stopped.borrow_mut().take() {
            // Who asked may have gone.
            let _ = stopped.send(self.queue.borrow().next_avail());
        }
    }

    /// False: there is nothing, and nothing will come.
    async fn something_to_tell(&self) -> bool {
        poll_fn(|context| {
            self.answering.set(context.waker());
            if let Poll::Ready(completion) = pin!(self.ends.next()).poll(context) {
                self.end(completion);
                return Poll::Ready(true);
            }
            if self.has_answered.get() && !self.is_abandoned() {
                return Poll::Ready(true);
            }
            let is_idle = self.taking_ended.get() && self.heads.borrow().is_empty();
            if is_idle && self.stop.get().is_some() { Poll::Ready(false) } else { Poll::Pending }
        })
        .await
    }

    /// The array has ended a request. Gives the bytes that were read for it.
    fn end(&self, Completion { tag, result }: Completion) -> usize {
        let under_way = self.under_way.borrow_mut().remove(tag);
        let data = under_way.payload.as_ref().map_or(0, |payload| payload.len());
        if result == Err(RequestError::Stopped) && !self.is_abandoned() {
            // The guest is told nothing from here on: the request stays on record, and the next process does it.
            self.give_up(&Trouble::Stopped);
        }
        let (status, bytes) = match result {
            Ok(()) => (Status::Ok, data),
            Err(_) => (Status::IoError, 0),
        };
        self.finish(under_way, status, bytes).unwrap_or_else(|trouble| self.give_up(&trouble));
        bytes
    }

    /// Tells the guest, if it is still there. `bytes` of data were read for it.
    fn finish(&self, under_way: UnderWay, status: Status, bytes: usize) -> Result<(), Trouble> {
        let UnderWay { head, memory, data, status: at, payload, whole, held } = under_way;
        drop(whole);
        self.release(held);
        self.heads.borrow_mut().remove(head);
        if self.is_abandoned() {
            self.answering.wake();
            return Ok(());
        }
        if let (Status::Ok, Some(payload)) = (status, payload) {
            let read = payload.stable().expect("a read that has ended fills nothing more");
            data.write(memory.guest(), read)?;
            self.lane.count_copy(read.len());
        }
        status.write(memory.guest(), at)?;
        self.tell_guest(head, bytes as u32 + 1)
    }

    fn tell_guest(&self, head: u16, bytes: u32) -> Result<(), Trouble> {
        let mut queue = self.queue.borrow_mut();
        let record = self.record.borrow();
        if let Some(record) = &*record {
            record.end(head)?;
        }
        queue.add_used(self.memory.borrow().guest(), head, bytes)?;
        if let Some(record) = &*record {
            record.ended(head, queue.next_used())?;
        }
        self.has_answered.set(true);
        self.answering.wake();
        Ok(())
    }

    fn release(&self, held: Held) {
        self.own_bytes.set(self.own_bytes.get() - held.own);
        if held.borrowed > 0 {
            self.terms.budget.give_back(held.borrowed);
        }
    }

    /// Wakes the guest, unless it does not want that now.
    async fn signal(&self) -> Result<(), Trouble> {
        let is_wanted = self.queue.borrow_mut().needs_notification(self.memory.borrow().guest())?
            | self.must_signal.take();
        if self.is_lost() {
            return Err(Trouble::Lost);
        }
        let call = self.call.borrow().clone().filter(|_| is_wanted);
        let Some(call) = call else { return Ok(()) };
        match self.io.signal(&call, Some(self.now() + SIGNAL_WITHIN)).await {
            // A full one has woken the guest.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
            signalled => Ok(signalled?),
        }
    }
}

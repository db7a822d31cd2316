//! What an array, its futures and its end share.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};

use mdspace_engine::array::{Action, Reply};
use mdspace_engine::assembly::LeftOut;
use mdspace_engine::backend::MemberId;
use mdspace_engine::lane::LaneId;
use mdspace_io::RunningArray;

use crate::Error;
use crate::answer::{answer, refuse_lanes};
use crate::opened::{HOME, Opened};
use crate::pieces::Bounds;
use crate::requests::Order;

/// An array with its members and lanes.
pub(crate) struct Shared {
    /// None once the array has ended.
    running: RwLock<Option<RunningArray>>,
    opened: Mutex<Opened>,
    next_lane: AtomicUsize,
    pub(crate) lane_count: usize,
    pub(crate) bounds: Bounds,
    pub(crate) left_out: Vec<LeftOut>,
}

/// The lane of each thread that blocks: its requests stay together.
fn ordinal_of_thread() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static ORDINAL: usize = THREADS.fetch_add(1, Ordering::Relaxed);
    }
    ORDINAL.with(|ordinal| *ordinal)
}

impl Shared {
    /// Takes over an array that has just been started.
    pub(crate) fn started(
        opened: Opened,
        running: RunningArray,
        left_out: Vec<LeftOut>,
    ) -> Result<Self, Error> {
        let (reply, bounds) = answer();
        running.run_on(HOME, move |part, _, _| {
            reply.give(Ok(Bounds {
                size_bytes: part.sectors() * 512,
                block_bytes: part.block_bytes(),
                row_bytes: part.row_sectors() * 512,
            }));
        });
        Ok(Self {
            bounds: bounds.wait()?,
            lane_count: running.lanes().count(),
            running: RwLock::new(Some(running)),
            opened: Mutex::new(opened),
            next_lane: AtomicUsize::new(0),
            left_out,
        })
    }

    /// Uses the array, unless it has ended.
    pub(crate) fn with_running<T>(&self, work: impl FnOnce(&RunningArray) -> T) -> Option<T> {
        let running = self.running.read().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().map(work)
    }

    /// Refuses what comes after the end.
    pub(crate) fn refuse_ended(&self) -> Result<(), Error> {
        self.with_running(|_| ()).ok_or(Error::Stopped)
    }

    /// Uses the members and lanes, one at a time.
    pub(crate) fn with_opened<T>(&self, work: impl FnOnce(&mut Opened) -> T) -> T {
        work(&mut self.opened.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The open member of this name.
    pub(crate) fn find(&self, member: &str) -> Result<MemberId, Error> {
        self.with_opened(|opened| opened.find(member)).ok_or_else(|| Error::Asked {
            why: format!("the array has no member {member}"),
            cure: "name one that status() has".into(),
        })
    }

    /// The lane of the calling thread's requests.
    pub(crate) fn lane_of_thread(&self) -> LaneId {
        self.lane(ordinal_of_thread())
    }

    /// The lane whose turn it is.
    pub(crate) fn next_lane(&self) -> LaneId {
        self.lane(self.next_lane.fetch_add(1, Ordering::Relaxed))
    }

    fn lane(&self, number: usize) -> LaneId {
        LaneId((number % self.lane_count) as u16)
    }

    /// Refuses what the array has not, or has not any more.
    pub(crate) fn check(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), Error> {
        self.refuse_ended()?;
        self.bounds.check(offset_bytes, len_bytes)
    }

    pub(crate) async fn read(
        &self,
        lane: LaneId,
        offset_bytes: u64,
        bytes: &mut [u8],
    ) -> Result<(), Error> {
        self.check(offset_bytes, bytes.len() as u64)?;
        let pieces = self.bounds.moved(offset_bytes, bytes.len() as u64);
        let mut rest = bytes;
        let put = |read: Vec<u8>| {
            let part =
                rest.split_off_mut(..read.len()).expect("no more is read than was asked for");
            part.copy_from_slice(&read);
        };
        self.carry_out(lane, pieces.map(Order::Read), put).await
    }

    pub(crate) async fn write(
        &self,
        lane: LaneId,
        offset_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), Error> {
        self.check(offset_bytes, bytes.len() as u64)?;
        let pieces = self.bounds.moved(offset_bytes, bytes.len() as u64);
        let orders = pieces.map(|piece| {
            let start = (piece.offset_bytes - offset_bytes) as usize;
            let bytes = bytes[start..start + piece.len_bytes as usize].to_vec();
            Order::Write { offset_bytes: piece.offset_bytes, bytes }
        });
        self.carry_out(lane, orders, |_| {}).await
    }

    pub(crate) async fn flush(&self, lane: LaneId) -> Result<(), Error> {
        self.send(lane, Order::Flush).await.map(drop)
    }

    pub(crate) async fn write_zeroes(
        &self,
        lane: LaneId,
        offset: u64,
        len: u64,
    ) -> Result<(), Error> {
        self.check(offset, len)?;
        let orders = self.bounds.zeroed(offset, len).map(Order::WriteZeroes);
        self.carry_out(lane, orders, |_| {}).await
    }

    pub(crate) async fn discard(&self, lane: LaneId, offset: u64, len: u64) -> Result<(), Error> {
        self.check(offset, len)?;
        let orders = self.bounds.zeroed(offset, len).map(Order::Discard);
        self.carry_out(lane, orders, |_| {}).await
    }

    /// Has the array carry out an order, and waits for that.
    pub(crate) fn order(&self, action: Action) -> Result<Reply, Error> {
        refuse_lanes()?;
        let (reply, answer) = answer();
        self.with_running(|running| {
            running.order(action, move |done| reply.give(done.map_err(Error::from)));
        });
        answer.wait()
    }

    /// Ends the array, closes its members and ends its lanes. Gives the members that have not answered.
    pub(crate) fn end(&self, action: Action) -> Result<Vec<String>, Error> {
        // Other calls find the array until it has ended: it may wait for a member that is to be failed.
        let unanswered = match self.order(action) {
            Ok(Reply::Stopped { unanswered }) => unanswered,
            // Another order has ended it.
            Ok(_) | Err(Error::Stopped) => Vec::new(),
            Err(error) => return Err(error),
        };
        // Of several that end it each comes back when it has ended.
        self.with_opened(|opened| {
            let running = self.running.write().unwrap_or_else(PoisonError::into_inner).take();
            let Some(running) = running else { return };
            let mut owing = opened.all();
            owing.retain(|id| running.owes_answers(*id));
            running.let_go();
            opened.end(&owing);
        });
        Ok(unanswered)
    }
}

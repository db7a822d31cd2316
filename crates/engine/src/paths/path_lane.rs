//! A multipath device on one lane: requests in, I/Os of its paths out.

mod flush;
mod request;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::array::rules::{Rule, keep};
use crate::backend::{
    IoDone, IoError, IoErrorKind, IoOp, MemberId, MemberIo, Patience, Submitted, Ticket,
};
use crate::lane::{Lane, LaneId, Passage};
use crate::memory::Buffer;
use crate::sync::atomic::{Ordering, fence};
use crate::time::Time;

use request::Request;

use super::kept::{Kept, makes_durable, written_by};
use super::late::LateId;
use super::policy::Cache;
use super::selector::{Began, Chooser, LaneCounters};
use super::table::Selector;
use super::view::{Usable, View};
use super::{Paths, watch};

/// Errno of a device that is gone.
const ENODEV: i32 = 19;

/// The device's part on one lane.
pub struct PathLane {
    paths: Arc<Paths>,
    lane: Weak<Lane>,
    lane_id: LaneId,
    view: RefCell<Arc<View>>,
    chooser: Chooser,
    counters: Arc<LaneCounters>,
    /// Requests that went straight to a path, by their tickets' slots.
    direct: RefCell<Vec<Option<Direct>>>,
    /// When these began, where the selector wants to know.
    began: RefCell<Vec<Option<Began>>>,
    /// Requests without an answer.
    in_flight: Cell<usize>,
    /// Those of them that need more than one path, or time.
    slow: RefCell<Vec<Ticket>>,
    /// Those of these that somebody wants to end early.
    cancelled: RefCell<Vec<Ticket>>,
    /// Those of these that wait for the proof that an earlier write is over, and since when.
    held: RefCell<Vec<(Ticket, Time)>>,
    /// A task looks for answers to late writes.
    settling: Cell<bool>,
    /// Its paths do not answer on the spot.
    waits: Cell<bool>,
}

/// A request that a path has.
struct Direct {
    ticket: Ticket,
    /// When it ends at the latest, over whatever path, as its lane has [lived](Lane::lived).
    deadline: Option<Time>,
    kept: Kept,
    chosen: Chosen,
}

/// A path for a request of so many bytes.
#[derive(Clone, Copy)]
struct Chosen {
    path: usize,
    member: MemberId,
    remote: bool,
    /// Whether no other path takes requests.
    is_last: bool,
    bytes: u64,
    /// The selector, if it chooses by times.
    timed_by: Option<Selector>,
    /// The view that it was chosen from.
    generation: u64,
}

impl Chosen {
    #[inline]
    fn new(view: &View, usable: &Usable, bytes: u64) -> Self {
        let &Usable { path, member, remote, .. } = usable;
        let timed_by = view.selector.takes_times().then_some(view.selector);
        let is_last = view.usable.len() + view.others.len() <= 1;
        Self { path, member, remote, is_last, bytes, timed_by, generation: view.generation }
    }
}

/// What an error says.
pub(super) enum Meaning {
    /// The device answered: another path would say the same.
    OfTheDevice,
    /// The device answered, or the path's server did.
    Unclear,
    /// The path is of no use now.
    OfThePath,
}

impl PathLane {
    /// The device's part on `lane`. Its paths are to be [looked after](Paths::look_after_on) on some lane.
    pub fn attach(paths: &Arc<Paths>, lane: &Rc<Lane>) -> Rc<Self> {
        let counters = paths.add_lane();
        let count = counters.paths.len();
        Rc::new(Self {
            paths: paths.clone(),
            lane: Rc::downgrade(lane),
            lane_id: lane.id(),
            view: RefCell::new(paths.view()),
            chooser: Chooser::new(lane.id(), count),
            counters,
            direct: RefCell::default(),
            began: RefCell::default(),
            in_flight: Cell::new(0),
            slow: RefCell::default(),
            cancelled: RefCell::default(),
            held: RefCell::default(),
            settling: Cell::new(false),
            waits: Cell::new(false),
        })
    }

    /// Requests without an answer.
    pub fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// Whether its paths may do an I/O on the spot.
    #[inline]
    pub fn may_be_at_once(&self) -> bool {
        !self.waits.get() && !self.paths.has_own_caches
    }

    /// Does an I/O of the device on the spot, where its paths need no waiting. `None`, with nothing
    /// done: it must be submitted.
    pub fn at_once(&self, io: &mut MemberIo) -> Option<Result<(), IoError>> {
        let lane = self.lane.upgrade()?;
        // Its end tells what was lost, or that nothing will be.
        if matches!(io.op, IoOp::Flush) || self.paths.has_untold_loss() {
            return None;
        }
        let chosen = self.choose_for(&lane, &io.op)?;
        let timed = chosen.timed_by.is_some();
        let began = if timed { self.count_begin(&lane, &chosen) } else { None };
        let device = std::mem::replace(&mut io.member, chosen.member);
        let ended = lane.backend().at_once(io);
        io.member = device;
        let good = ended == Some(Ok(()));
        let is_read = matches!(io.op, IoOp::Read { .. });
        if good && !is_read && self.may_be_in_a_cache(true, makes_durable(&io.op)) {
            self.counters.paths[chosen.path].written.add(1);
        }
        match timed {
            true => self.count_end(&lane, &chosen, began, good),
            false if good => self.chooser.count_done(chosen.path, chosen.bytes, &self.counters),
            false => {}
        }
        // Paths that are files or networks never answer on the spot: not asked again.
        self.waits.set(ended.is_none());
        // An error is for a task to deal with.
        ended.filter(Result::is_ok)
    }

    /// Starts an I/O of the device; its end goes to the lane under `ticket`, unless it is done at once.
    pub fn submit(self: &Rc<Self>, ticket: Ticket, io: MemberIo) -> Submitted {
        let Some(lane) = self.lane.upgrade() else {
            return Submitted::Done(refused(io.op));
        };
        self.in_flight.set(self.in_flight.get() + 1);
        let MemberIo { mut op, patience, .. } = io;
        if self.paths.has_own_caches && matches!(op, IoOp::Flush) {
            return self.submit_flush(&lane, ticket, patience);
        }
        let Some(chosen) = self.choose_for(&lane, &op) else {
            return self.submit_slowly(&lane, ticket, patience, op);
        };
        let began = self.count_begin(&lane, &chosen);
        let for_path = self.patience(chosen.remote, chosen.is_last, &op, patience);
        let kept = self.keep(&mut op, chosen.remote, &lane);
        let io = MemberIo { member: chosen.member, op, patience: for_path };
        let submitted = lane.backend().submit(ticket, io);
        // A path that refuses at once leaves the request to the others, with the same end.
        let deadline = patience.deadline_by(|| lane.lived());
        let direct = Direct { ticket, deadline, kept, chosen };
        match submitted {
            Submitted::Pending => {
                put(&self.direct, ticket, direct);
                if let Some(began) = began {
                    put(&self.began, ticket, began);
                }
                lane.passes(ticket, self.clone(), ticket.slot.into());
                Submitted::Pending
            }
            Submitted::Done(done) => match self.end_direct(&lane, direct, began, done) {
                Some(done) => Submitted::Done(done),
                None => Submitted::Pending,
            },
        }
    }

    /// Asks for an early end of an I/O. One that waits ends soon; one that a path has ends with it.
    pub fn cancel(&self, ticket: Ticket) {
        if self.slow.borrow().contains(&ticket) {
            self.cancelled.borrow_mut().push(ticket);
            self.paths.changed.notify();
        }
    }

    fn refresh(&self) {
        let known = self.view.borrow().generation;
        if self.paths.generation.load(Ordering::Acquire) != known {
            *self.view.borrow_mut() = self.paths.view();
        }
    }

    /// The path for a request that comes in; none where it has to wait.
    #[inline]
    fn choose_for(&self, lane: &Lane, op: &IoOp) -> Option<Chosen> {
        self.paths.note_given(op);
        self.refresh();
        let view = self.view.borrow();
        let waits = keep(Rule::WritesWaitForProof);
        let is_barred = || waits && written_by(op).is_some_and(|range| view.is_barred(&range, &[]));
        if view.usable.is_empty() || view.is_proving || !view.late.is_empty() && is_barred() {
            return None;
        }
        let (bytes, clock) = (op.bytes() as u64, || lane.backend().now());
        let at = self.chooser.choose(view.selector, &view.usable, &self.counters, bytes, clock);
        Some(Chosen::new(&view, &view.usable[at], bytes))
    }

    /// A path for a request that has been told an error by some, if there is one.
    fn choose_but(&self, lane: &Lane, bytes: u64, but: &[usize]) -> Option<Chosen> {
        let view = self.view.borrow();
        if !but.is_empty() {
            let mut all = view.usable.iter().chain(&view.others);
            let usable = all.find(|usable| !but.contains(&usable.path))?;
            return Some(Chosen::new(&view, usable, bytes));
        }
        if view.usable.is_empty() {
            return None;
        }
        let clock = || lane.backend().now();
        let at = self.chooser.choose(view.selector, &view.usable, &self.counters, bytes, clock);
        Some(Chosen::new(&view, &view.usable[at], bytes))
    }

    /// Counts an I/O that begins; its time goes where its end will look for it.
    #[inline]
    fn count_begin(&self, lane: &Lane, chosen: &Chosen) -> Option<Began> {
        self.chooser.begin(chosen.path, chosen.bytes, &self.counters);
        let selector = chosen.timed_by?;
        let clock = || lane.backend().now();
        self.chooser.begin_timed(selector, chosen.path, chosen.bytes, clock)
    }

    #[inline]
    fn count_end(&self, lane: &Lane, chosen: &Chosen, began: Option<Began>, good: bool) {
        self.chooser.end(chosen.path, chosen.bytes, &self.counters);
        if let Some(began) = began {
            let clock = || lane.backend().now();
            self.chooser.end_timed(chosen.path, began, good, &self.counters, clock);
        }
    }

    /// How long a path may take. What makes durable has all the time of its request: when a path does not
    /// answer it has failed, and another path does not change that. Another write leaves half of the time for
    /// another path. A path behind a network has a deadline of its own. A local one has none for reads: the
    /// memory that it may still fill cannot be given to another path.
    fn patience(&self, remote: bool, is_last: bool, op: &IoOp, outer: Patience) -> Patience {
        let policy = &self.paths.policy;
        if let IoOp::Read { .. } = op {
            return if remote { outer.at_most(policy.read_deadline) } else { outer };
        }
        let span = policy.write_deadline;
        if makes_durable(op) {
            let has_end = !remote || outer != Patience::FOREVER;
            return if has_end { outer } else { Patience::of(span) };
        }
        let outer = if is_last { outer } else { outer.half() };
        if remote { outer.at_most(span) } else { outer }
    }

    /// Takes the end of a path's I/O. Gives the request's end, unless the request goes on.
    fn end_direct(
        self: &Rc<Self>,
        lane: &Rc<Lane>,
        direct: Direct,
        began: Option<Began>,
        done: IoDone,
    ) -> Option<IoDone> {
        let Direct { ticket, deadline, kept, chosen } = direct;
        // First what it was: with nothing in flight a path may be let go.
        if done.result.is_ok() {
            self.note_answered(&kept, &chosen);
        }
        self.count_end(lane, &chosen, began, done.result.is_ok());
        let waits = keep(Rule::AnswersWaitForProof);
        if done.result.is_ok() && !(waits && self.is_held(&kept, &[])) {
            let result = self.end_of(&kept, Ok(()));
            let buffer = kept.into_buffer(done.buffer, lane.backend());
            return Some(self.answer(result, buffer));
        }
        let mut request = Request::new(ticket, deadline, kept, done.buffer);
        let goes_on = match done.result {
            Ok(()) => {
                request.landed = true;
                Ok(())
            }
            Err(error) => self.goes_on(lane, &mut request, &chosen, error),
        };
        match goes_on {
            Ok(()) => {
                let this = self.clone();
                lane.spawn(async move { this.serve(request).await });
                None
            }
            Err(error) => Some(self.end(lane, request, Err(error))),
        }
    }

    /// Whether a write must wait for the proof that an earlier one is over: to begin, and also to be
    /// answered. One that was under way when the earlier one lost its path has landed in any order with
    /// it, but once it is answered, nothing older may appear.
    fn is_held(&self, kept: &Kept, own: &[LateId]) -> bool {
        self.refresh();
        let view = self.view.borrow();
        !view.late.is_empty() && kept.written().is_some_and(|range| view.is_barred(&range, own))
    }

    /// Whether a path that has answered may have what was written only in a cache that is lost with it.
    #[inline]
    fn may_be_in_a_cache(&self, writes: bool, is_durable: bool) -> bool {
        writes && !is_durable && self.paths.policy.cache != Cache::Shared
    }

    /// Notes a write that a path has answered, and may have in a cache of its own, or has made durable.
    #[inline]
    fn note_answered(&self, kept: &Kept, chosen: &Chosen) {
        let (writes, is_durable) = (kept.written().is_some(), kept.makes_durable());
        if let Kept::Flush { covers } = kept {
            return self.paths.note_flushed(*covers);
        }
        if is_durable {
            self.paths.note_durable(kept);
        }
        if !self.may_be_in_a_cache(writes, is_durable) {
            return;
        }
        self.counters.paths[chosen.path].written.add(1);
        if self.paths.loses_when_away {
            // Whoever notes that it was away sees the count, or this lane sees that.
            fence(Ordering::SeqCst);
        }
        if self.paths.generation.load(Ordering::Acquire) != chosen.generation {
            self.paths.answered_late(chosen.path, chosen.member, chosen.generation);
        }
    }

    /// Learns from an error of a path. Either another path is to be asked, or the request ends with the
    /// error that is given.
    fn goes_on(
        self: &Rc<Self>,
        lane: &Rc<Lane>,
        request: &mut Request,
        chosen: &Chosen,
        error: IoError,
    ) -> Result<(), IoError> {
        request.error = error;
        match meaning(error, &request.kept) {
            Meaning::OfTheDevice => return Err(error),
            Meaning::Unclear => request.answered.push(chosen.path),
            Meaning::OfThePath => {
                let lost = matches!(error.kind, IoErrorKind::Gone);
                let now = lane.backend().now();
                if let Some(range) = request.kept.written().filter(|_| error.may_still_be_done()) {
                    let id = self.paths.add_late(
                        chosen.path,
                        chosen.member,
                        self.lane_id,
                        range,
                        lost,
                        now,
                    );
                    request.own.push(id);
                    self.settle_late_writes(lane);
                }
                self.paths.fail_with(chosen.path, chosen.member, error, now);
                // The server may have met an error and told no client: over another path all would be well.
                // Only the bytes of a durable write go there, so that it is known what the device holds.
                if request.kept.makes_durable() && !error.was_not_sent() {
                    let failed = IoError { kind: IoErrorKind::Flush, errno: error.errno };
                    match request.kept {
                        Kept::Flush { .. } if keep(Rule::DurableWritesFailOnce) => {
                            return Err(failed);
                        }
                        Kept::Flush { .. } => {}
                        _ => {
                            request.failed_flush =
                                Some(failed).filter(|_| keep(Rule::LostFuaIsAFailedFlush));
                        }
                    }
                }
            }
        }
        // Memory that the path may still fill or read is not ours to give to another one.
        let overdue = error.kind == IoErrorKind::Deadline && !chosen.remote;
        let memory_is_home = !(overdue && request.kept.fills_lent_memory());
        let op = memory_is_home.then(|| request.kept.again(request.buffer.take())).flatten();
        op.map(|op| put_back(op, request)).ok_or(error)
    }

    fn end(&self, lane: &Lane, request: Request, result: Result<(), IoError>) -> IoDone {
        let result = self.end_of(&request.kept, request.failed_flush.map_or(result, Err));
        let buffer = request.kept.into_buffer(request.buffer, lane.backend());
        self.answer(result, buffer)
    }

    fn answer(&self, result: Result<(), IoError>, buffer: Option<Buffer>) -> IoDone {
        self.in_flight.set(self.in_flight.get() - 1);
        IoDone { result, buffer }
    }

    /// Looks for answers to late writes of this lane, as long as some may come.
    fn settle_late_writes(self: &Rc<Self>, lane: &Rc<Lane>) {
        if !self.settling.replace(true) {
            let this = self.clone();
            lane.spawn(async move {
                watch::settle(&this.paths, this.lane_id, &this.lane, &this.settling).await
            });
        }
    }
}

impl Passage for PathLane {
    fn pass(self: Rc<Self>, tag: u64, done: IoDone) -> Option<IoDone> {
        let direct = self.direct.borrow_mut()[tag as usize].take();
        let direct = direct.expect("an I/O ends once");
        let began = match direct.chosen.timed_by {
            Some(_) => self.began.borrow_mut()[tag as usize].take(),
            None => None,
        };
        match self.lane.upgrade() {
            Some(lane) => self.end_direct(&lane, direct, began, done),
            None => Some(done),
        }
    }
}

/// Keeps what belongs to an I/O under way.
#[inline]
fn put<T>(all: &RefCell<Vec<Option<T>>>, ticket: Ticket, one: T) {
    let (mut all, slot) = (all.borrow_mut(), ticket.slot as usize);
    if all.len() <= slot {
        all.resize_with(slot + 1, || None);
    }
    all[slot] = Some(one);
}

pub(super) fn meaning(error: IoError, kept: &Kept) -> Meaning {
    match error.kind {
        // Somebody has asked for that end.
        IoErrorKind::Cancelled => Meaning::OfTheDevice,
        IoErrorKind::NoSpace | IoErrorKind::Unsupported => Meaning::OfTheDevice,
        // Another path would find nothing left to flush, and meet the same reservation.
        IoErrorKind::Flush | IoErrorKind::Reserved => Meaning::OfTheDevice,
        // What it was to make durable may be lost: one more flush would find nothing to do, over whatever
        // path, and say that all is well.
        IoErrorKind::Medium | IoErrorKind::Other if matches!(kept, Kept::Flush { .. }) => {
            Meaning::OfTheDevice
        }
        // A server says EIO for its own troubles too.
        IoErrorKind::Medium => Meaning::Unclear,
        IoErrorKind::Gone | IoErrorKind::Deadline | IoErrorKind::Other => Meaning::OfThePath,
    }
}

fn put_back(op: IoOp, request: &mut Request) {
    request.buffer = op.into_buffer();
}

fn refused(op: IoOp) -> IoDone {
    let error = IoError { kind: IoErrorKind::Gone, errno: ENODEV };
    IoDone { result: Err(error), buffer: op.into_buffer() }
}

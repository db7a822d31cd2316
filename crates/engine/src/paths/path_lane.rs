//! A multipath device on one lane: requests in, I/Os of its paths out.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use crate::backend::{
    IoDone, IoError, IoErrorKind, IoOp, MemberId, MemberIo, Patience, Submitted, Ticket,
};
use crate::lane::{Lane, LaneId, OpOwner, first_of};
use crate::memory::Buffer;
use crate::sync::atomic::Ordering;
use crate::time::Time;

use super::kept::{Kept, written_by};
use super::late::LateId;
use super::selector::{Chooser, Counted, LaneCounters};
use super::table::Selector;
use super::view::{Usable, View};
use super::{Paths, watch};

/// How often a request is tried over each path at most: one that fails over all of them, again and
/// again as they come back, is what is wrong itself.
const TRIES_A_PATH: usize = 3;

/// Errno of a device that is gone (ENODEV), and of a request that took too long (ETIMEDOUT).
const ENODEV: i32 = 19;
const ETIMEDOUT: i32 = 110;

/// The device's part on one lane.
pub struct PathLane {
    paths: Arc<Paths>,
    lane: Weak<Lane>,
    lane_id: LaneId,
    view: RefCell<Arc<View>>,
    chooser: Chooser,
    counters: Arc<LaneCounters>,
    /// Requests that went straight to a path, by tag.
    direct: RefCell<Slots>,
    /// Requests without an answer.
    in_flight: Cell<usize>,
    /// Those of them that need more than one path, or time.
    slow: RefCell<Vec<Ticket>>,
    /// Those of these that somebody wants to end early.
    cancelled: RefCell<Vec<Ticket>>,
    /// A task looks for answers to late writes.
    settling: Cell<bool>,
    /// Its paths do not answer on the spot.
    waits: Cell<bool>,
}

#[derive(Default)]
struct Slots {
    slots: Vec<Option<Direct>>,
    free: Vec<usize>,
}

/// A request that a path has.
struct Direct {
    ticket: Ticket,
    patience: Patience,
    kept: Kept,
    chosen: Chosen,
}

#[derive(Clone, Copy)]
struct Chosen {
    path: usize,
    member: MemberId,
    remote: bool,
    selector: Selector,
    counted: Counted,
}

/// A request that needs more than one path, or time.
struct Request {
    ticket: Ticket,
    deadline: Option<Time>,
    kept: Kept,
    /// The buffer that came with it, unless a path has it.
    buffer: Option<Buffer>,
    /// Writes of its own that were not answered.
    own: Vec<LateId>,
    /// Paths that said that the device cannot do it.
    answered: Vec<usize>,
    error: IoError,
}

/// What an error says.
enum Meaning {
    /// The device answered: another path would say the same.
    OfTheDevice,
    /// The device answered, or the path's server did.
    Unclear,
    /// The path is of no use now.
    OfThePath,
}

impl PathLane {
    /// The device's part on `lane`. The first one watches over the paths.
    pub fn attach(paths: &Arc<Paths>, lane: &Rc<Lane>) -> Rc<Self> {
        let counters = paths.add_lane();
        let count = counters.paths.len();
        let this = Rc::new(Self {
            paths: paths.clone(),
            lane: Rc::downgrade(lane),
            lane_id: lane.id(),
            view: RefCell::new(paths.view()),
            chooser: Chooser::new(lane.id(), count),
            counters,
            direct: RefCell::default(),
            in_flight: Cell::new(0),
            slow: RefCell::default(),
            cancelled: RefCell::default(),
            settling: Cell::new(false),
            waits: Cell::new(false),
        });
        watch::start(paths, lane);
        this
    }

    /// Requests without an answer.
    pub fn in_flight(&self) -> usize {
        self.in_flight.get()
    }

    /// Does an I/O of the device on the spot, where its paths need no waiting. `None`, with nothing
    /// done: it must be submitted.
    pub fn at_once(&self, io: &mut MemberIo) -> Option<Result<(), IoError>> {
        if self.waits.get() || self.is_barred(&io.op) {
            return None;
        }
        let lane = self.lane.upgrade()?;
        let bytes = io.op.bytes() as u64;
        let (device, chosen) = (io.member, self.choose(&lane, bytes, &[])?);
        io.member = chosen.member;
        let ended = lane.backend().at_once(io);
        io.member = device;
        self.count_end(&lane, &chosen, ended == Some(Ok(())));
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
        let MemberIo { op, patience, .. } = io;
        let chosen = match self.is_barred(&op) {
            true => None,
            false => self.choose(&lane, op.bytes() as u64, &[]),
        };
        let Some(chosen) = chosen else {
            return self.submit_slowly(&lane, ticket, patience, op);
        };
        let for_path = self.patience(&chosen, &op, patience);
        let (op, kept) = Kept::of(op, chosen.remote);
        let direct = Direct { ticket, patience, kept, chosen };
        let tag = self.direct.borrow_mut().add(direct);
        let owner: Rc<dyn OpOwner> = self.clone();
        let io = MemberIo { member: chosen.member, op, patience: for_path };
        // The path's I/O has a ticket of its own.
        lane.hold(ticket);
        let Some(done) = lane.io_direct(io, &owner, tag) else { return Submitted::Pending };
        match self.end_direct(&lane, tag, done) {
            Some((_, done)) => {
                lane.let_go(ticket);
                Submitted::Done(done)
            }
            None => Submitted::Pending,
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

    fn is_barred(&self, op: &IoOp) -> bool {
        self.refresh();
        let view = self.view.borrow();
        !view.late.is_empty() && written_by(op).is_some_and(|range| view.is_barred(&range, &[]))
    }

    /// A path for an I/O, and counts it there. Not one of `but`.
    fn choose(&self, lane: &Lane, bytes: u64, but: &[usize]) -> Option<Chosen> {
        let view = self.view.borrow();
        let clock = || lane.backend().now();
        let (selector, usable) = match but {
            [] => {
                if view.usable.is_empty() {
                    return None;
                }
                let selector = view.selector;
                let chosen =
                    self.chooser.choose(selector, &view.usable, &self.counters, bytes, clock);
                (selector, &view.usable[chosen])
            }
            _ => {
                let mut all = view.usable.iter().chain(&view.others);
                (view.selector, all.find(|usable| !but.contains(&usable.path))?)
            }
        };
        let &Usable { path, member, remote, .. } = usable;
        let counted = self.chooser.begin(selector, path, bytes, &self.counters, clock);
        Some(Chosen { path, member, remote, selector, counted })
    }

    fn count_end(&self, lane: &Lane, chosen: &Chosen, good: bool) {
        let clock = || lane.backend().now();
        self.chooser.end(chosen.selector, chosen.counted, good, &self.counters, clock);
    }

    /// How long a path may take. Only one behind a network gives memory back that is overdue.
    fn patience(&self, chosen: &Chosen, op: &IoOp, outer: Patience) -> Patience {
        if !chosen.remote {
            return outer;
        }
        let policy = &self.paths.policy;
        let span = match op {
            IoOp::Read { .. } => policy.read_deadline,
            _ => policy.write_deadline,
        };
        // As seen from time's start, whose deadline is the span itself.
        let outer = outer.deadline(Time::ZERO).map(|until| until.since(Time::ZERO));
        Patience::of(outer.map_or(span, |outer| outer.min(span)))
    }

    /// Takes the end of a path's I/O. Gives the request's end, unless the request goes on.
    fn end_direct(
        self: &Rc<Self>,
        lane: &Rc<Lane>,
        tag: u64,
        done: IoDone,
    ) -> Option<(Ticket, IoDone)> {
        let Direct { ticket, patience, kept, chosen } = self.direct.borrow_mut().remove(tag);
        self.count_end(lane, &chosen, done.result.is_ok());
        let error = match done.result {
            Ok(()) => {
                let buffer = kept.into_buffer(done.buffer, lane.backend());
                return Some((ticket, self.answer(Ok(()), buffer)));
            }
            Err(error) => error,
        };
        let deadline = patience.deadline(lane.backend().now());
        let (own, answered) = (Vec::new(), Vec::new());
        let mut request =
            Request { ticket, deadline, kept, buffer: done.buffer, own, answered, error };
        if self.goes_on(lane, &mut request, &chosen, error) {
            let this = self.clone();
            lane.spawn(async move { this.serve(request).await });
            return None;
        }
        let done = self.end(lane, request, Err(error));
        Some((ticket, done))
    }

    /// Learns from an error of a path. Whether another path is to be asked.
    fn goes_on(
        self: &Rc<Self>,
        lane: &Rc<Lane>,
        request: &mut Request,
        chosen: &Chosen,
        error: IoError,
    ) -> bool {
        request.error = error;
        match meaning(error, chosen.remote) {
            Meaning::OfTheDevice => return false,
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
                self.paths.fail(chosen.path, Some(chosen.member), &error.to_string(), lost, now);
            }
        }
        // Memory that the path may still fill or read is not ours to give to another one.
        let overdue = error.kind == IoErrorKind::Deadline && !chosen.remote;
        let memory_is_home = !(overdue && request.kept.fills_lent_memory());
        memory_is_home
            && request.kept.again(request.buffer.take()).map(|op| put_back(op, request)).is_some()
    }

    /// Starts a request that no path can have at once.
    fn submit_slowly(
        self: &Rc<Self>,
        lane: &Rc<Lane>,
        ticket: Ticket,
        patience: Patience,
        op: IoOp,
    ) -> Submitted {
        let (op, kept) = Kept::of(op, true);
        let buffer = op.into_buffer();
        let deadline = patience.deadline(lane.backend().now());
        let error = IoError { kind: IoErrorKind::Gone, errno: ENODEV };
        let (own, answered) = (Vec::new(), Vec::new());
        let request = Request { ticket, deadline, kept, buffer, own, answered, error };
        let this = self.clone();
        lane.spawn(async move { this.serve(request).await });
        Submitted::Pending
    }

    /// Serves a request by whatever path there is, until it is done or there is no hope.
    async fn serve(self: Rc<Self>, mut request: Request) {
        let Some(lane) = self.lane.upgrade() else { return };
        self.slow.borrow_mut().push(request.ticket);
        let wait_until = lane.backend().now() + self.paths.wait_max();
        let mut tries = TRIES_A_PATH * self.counters.paths.len();
        let result = loop {
            if let Some(error) = self.is_to_end(&lane, &request) {
                break Err(error);
            }
            let barred = request
                .kept
                .written()
                .is_some_and(|range| self.view.borrow().is_barred(&range, &request.own));
            let chosen = match barred {
                true => None,
                false => self.choose(&lane, written_bytes(&request.kept), &request.answered),
            };
            let Some(chosen) = chosen else {
                // Every path has said that the device cannot do it.
                if !barred && !request.answered.is_empty() {
                    break Err(request.error);
                }
                if !self.wait(&lane, &request, barred, wait_until).await {
                    break Err(self.given_up(&request, barred));
                }
                continue;
            };
            tries -= 1;
            match self.try_path(&lane, &mut request, chosen).await {
                Ok(()) => break Ok(()),
                Err(error) if tries == 0 => {
                    self.goes_on(&lane, &mut request, &chosen, error);
                    break Err(error);
                }
                Err(error) if !self.goes_on(&lane, &mut request, &chosen, error) => {
                    break Err(error);
                }
                Err(_) => {}
            }
        };
        self.blame_those_that_answered_wrongly(&lane, &request, result);
        let ticket = request.ticket;
        self.slow.borrow_mut().retain(|other| *other != ticket);
        self.cancelled.borrow_mut().retain(|other| *other != ticket);
        let done = self.end(&lane, request, result);
        lane.complete(ticket, done);
    }

    async fn try_path(
        &self,
        lane: &Rc<Lane>,
        request: &mut Request,
        chosen: Chosen,
    ) -> Result<(), IoError> {
        let op = request.kept.again(request.buffer.take()).expect("seen to be possible");
        let now = lane.backend().now();
        let left =
            request.deadline.map_or(Patience::FOREVER, |until| Patience::of(until.since(now)));
        let patience = self.patience(&chosen, &op, left);
        let done = lane.io(MemberIo { member: chosen.member, op, patience }).await;
        self.count_end(lane, &chosen, done.result.is_ok());
        request.buffer = done.buffer;
        done.result
    }

    /// Whether a request ends now, whatever paths there are.
    fn is_to_end(&self, lane: &Lane, request: &Request) -> Option<IoError> {
        self.refresh();
        if self.view.borrow().closed {
            return Some(IoError { kind: IoErrorKind::Gone, errno: ENODEV });
        }
        if self.cancelled.borrow().contains(&request.ticket) {
            return Some(IoError { kind: IoErrorKind::Cancelled, errno: 125 });
        }
        let overdue = request.deadline.is_some_and(|deadline| deadline <= lane.backend().now());
        overdue.then_some(IoError { kind: IoErrorKind::Deadline, errno: ETIMEDOUT })
    }

    /// Waits for another view. False: it has waited long enough, or is not to wait.
    async fn wait(&self, lane: &Rc<Lane>, request: &Request, barred: bool, until: Time) -> bool {
        let (seen, waits) = {
            let view = self.view.borrow();
            (view.generation, view.waits)
        };
        // A barred write waits whether or not requests wait for paths, but no longer.
        let may_wait = if barred { lane.backend().now() < until } else { waits };
        if !may_wait {
            return false;
        }
        let until = if barred { Some(until) } else { None };
        let ends = [until, request.deadline].into_iter().flatten().min();
        let news = self.paths.changed.until(|| {
            let moved = self.paths.generation.load(Ordering::Acquire) != seen;
            (moved || self.cancelled.borrow().contains(&request.ticket)).then_some(())
        });
        match ends {
            Some(ends) => first_of(news, lane.sleep_until(ends)).await,
            None => news.await,
        }
        true
    }

    fn given_up(&self, request: &Request, barred: bool) -> IoError {
        match barred {
            true => IoError { kind: IoErrorKind::Deadline, errno: ETIMEDOUT },
            false => request.error,
        }
    }

    /// A path that said "cannot" where another one could is at fault itself.
    fn blame_those_that_answered_wrongly(
        &self,
        lane: &Lane,
        request: &Request,
        result: Result<(), IoError>,
    ) {
        if result.is_err() {
            return;
        }
        for &path in &request.answered {
            let why = "it said an error where another path could";
            self.paths.fail(path, None, why, false, lane.backend().now());
        }
    }

    fn end(&self, lane: &Lane, request: Request, result: Result<(), IoError>) -> IoDone {
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

impl OpOwner for PathLane {
    fn done(self: Rc<Self>, tag: u64, done: IoDone) {
        let Some(lane) = self.lane.upgrade() else { return };
        if let Some((ticket, done)) = self.end_direct(&lane, tag, done) {
            lane.complete(ticket, done);
        }
    }
}

impl Slots {
    fn add(&mut self, direct: Direct) -> u64 {
        match self.free.pop() {
            Some(slot) => {
                self.slots[slot] = Some(direct);
                slot as u64
            }
            None => {
                self.slots.push(Some(direct));
                self.slots.len() as u64 - 1
            }
        }
    }

    fn remove(&mut self, tag: u64) -> Direct {
        self.free.push(tag as usize);
        self.slots[tag as usize].take().expect("an I/O ends once")
    }
}

fn meaning(error: IoError, remote: bool) -> Meaning {
    match error.kind {
        IoErrorKind::NoSpace | IoErrorKind::Unsupported => Meaning::OfTheDevice,
        // A server says EIO for its own troubles too.
        IoErrorKind::Medium if remote => Meaning::Unclear,
        IoErrorKind::Medium => Meaning::Unclear,
        IoErrorKind::Gone | IoErrorKind::Deadline | IoErrorKind::Cancelled | IoErrorKind::Other => {
            Meaning::OfThePath
        }
    }
}

fn written_bytes(kept: &Kept) -> u64 {
    kept.written().map_or(0, |range: Range<u64>| (range.end - range.start) * 512)
}

fn put_back(op: IoOp, request: &mut Request) {
    request.buffer = op.into_buffer();
}

fn refused(op: IoOp) -> IoDone {
    let error = IoError { kind: IoErrorKind::Gone, errno: ENODEV };
    IoDone { result: Err(error), buffer: op.into_buffer() }
}

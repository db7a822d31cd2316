//! A request that needs more than one path, or time: one that was told an error, that has no path yet, or
//! that waits for the proof that an earlier write is over.

use std::ops::Range;
use std::rc::Rc;

use crate::backend::{IoError, IoErrorKind, IoOp, MemberIo, Patience, Submitted, Ticket};
use crate::lane::{Lane, first_of};
use crate::memory::Buffer;
use crate::sync::atomic::Ordering;
use crate::time::Time;

use super::super::kept::Kept;
use super::super::late::LateId;
use super::{Chosen, ENODEV, PathLane};

/// Errno of a request that took too long.
const ETIMEDOUT: i32 = 110;

/// How often a request is tried over each path at most: one that fails over all of them, again and
/// again as they come back, is what is wrong itself.
const TRIES_A_PATH: usize = 3;

/// A request that needs more than one path, or time.
pub(super) struct Request {
    pub(super) ticket: Ticket,
    /// As its lane has [lived](Lane::lived).
    pub(super) deadline: Option<Time>,
    pub(super) kept: Kept,
    /// The buffer that came with it, unless a path has it.
    pub(super) buffer: Option<Buffer>,
    /// Writes of its own that were not answered.
    pub(super) own: Vec<LateId>,
    /// Paths that said that the device cannot do it.
    pub(super) answered: Vec<usize>,
    pub(super) error: IoError,
    /// It is done, and waits to be answered.
    pub(super) landed: bool,
    /// What it was to make durable may be lost, whatever becomes of its own bytes.
    pub(super) failed_flush: Option<IoError>,
}

impl Request {
    pub(super) fn new(
        ticket: Ticket,
        deadline: Option<Time>,
        kept: Kept,
        buffer: Option<Buffer>,
    ) -> Self {
        let error = IoError { kind: IoErrorKind::Gone, errno: ENODEV };
        let (own, answered) = (Vec::new(), Vec::new());
        let (landed, failed_flush) = (false, None);
        Self { ticket, deadline, kept, buffer, own, answered, error, landed, failed_flush }
    }

    fn bytes(&self) -> u64 {
        self.kept.written().map_or(0, |range: Range<u64>| (range.end - range.start) * 512)
    }
}

impl PathLane {
    /// Starts a request that no path can have at once.
    pub(super) fn submit_slowly(
        self: &Rc<Self>,
        lane: &Rc<Lane>,
        ticket: Ticket,
        patience: Patience,
        mut op: IoOp,
    ) -> Submitted {
        let kept = self.keep(&mut op, true, lane);
        let buffer = op.into_buffer();
        let deadline = patience.deadline(lane.lived());
        let request = Request::new(ticket, deadline, kept, buffer);
        let this = self.clone();
        lane.spawn(async move { this.serve(request).await });
        Submitted::Pending
    }

    /// Serves a request by whatever path there is, and answers it.
    pub(super) async fn serve(self: Rc<Self>, request: Request) {
        let Some(lane) = self.lane.upgrade() else { return };
        let ticket = request.ticket;
        let (request, result) = self.carry_out(&lane, request).await;
        let done = self.end(&lane, request, result);
        lane.complete(ticket, done);
    }

    /// Asks whatever path there is, until the request is done or there is no hope.
    pub(super) async fn carry_out(
        self: &Rc<Self>,
        lane: &Rc<Lane>,
        mut request: Request,
    ) -> (Request, Result<(), IoError>) {
        self.slow.borrow_mut().push(request.ticket);
        let wait_until = lane.lived() + self.paths.wait_max();
        let mut tries = TRIES_A_PATH * self.counters.paths.len();
        let result = loop {
            let barred = self.is_held(&request.kept, &request.own);
            if request.landed && !barred {
                break Ok(());
            }
            if let Some(error) = self.is_to_end(lane, &request) {
                break Err(error);
            }
            self.note_held(lane, request.ticket, barred);
            let waits = self.view.borrow().is_proving;
            let chosen = match barred || waits {
                true => None,
                false => self.choose_but(lane, request.bytes(), &request.answered),
            };
            let Some(chosen) = chosen else {
                // Every path has said that the device cannot do it.
                if !barred && !waits && !request.answered.is_empty() {
                    break Err(request.error);
                }
                if !self.wait(lane, &request, barred, wait_until).await {
                    break Err(self.given_up(&request, barred));
                }
                continue;
            };
            tries -= 1;
            match self.try_path(lane, &mut request, chosen).await {
                Ok(()) => request.landed = true,
                Err(error) => {
                    let goes_on = self.goes_on(lane, &mut request, &chosen, error);
                    if let Err(error) = goes_on.and(if tries == 0 { Err(error) } else { Ok(()) }) {
                        break Err(error);
                    }
                }
            }
        };
        self.blame_those_that_answered_wrongly(lane, &request, result);
        let ticket = request.ticket;
        self.note_held(lane, ticket, false);
        self.slow.borrow_mut().retain(|other| *other != ticket);
        self.cancelled.borrow_mut().retain(|other| *other != ticket);
        (request, result)
    }

    /// Notes whether a write is held back, for whoever asks.
    fn note_held(&self, lane: &Lane, ticket: Ticket, is_held: bool) {
        let mut held = self.held.borrow_mut();
        match (held.iter().position(|(other, _)| *other == ticket), is_held) {
            (None, true) => held.push((ticket, lane.backend().now())),
            (Some(at), false) => drop(held.remove(at)),
            _ => return,
        }
        let since = held.first().map_or(0, |(_, since)| since.as_nanos());
        self.counters.held_since_nanos.set(since);
        self.counters.held.set(held.len() as u64);
    }

    async fn try_path(
        &self,
        lane: &Rc<Lane>,
        request: &mut Request,
        chosen: Chosen,
    ) -> Result<(), IoError> {
        let op = request.kept.again(request.buffer.take()).expect("seen to be possible");
        let now = lane.lived();
        let left =
            request.deadline.map_or(Patience::FOREVER, |until| Patience::of(until.since(now)));
        let patience = self.patience(chosen.remote, chosen.is_last, &op, left);
        let began = self.count_begin(lane, &chosen);
        let done = lane.io(MemberIo { member: chosen.member, op, patience }).await;
        if done.result.is_ok() {
            self.note_answered(&request.kept, &chosen);
        }
        self.count_end(lane, &chosen, began, done.result.is_ok());
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
        let overdue = request.deadline.is_some_and(|deadline| deadline <= lane.lived());
        overdue.then_some(IoError { kind: IoErrorKind::Deadline, errno: ETIMEDOUT })
    }

    /// Waits for another view. False: it has waited long enough, or is not to wait.
    async fn wait(&self, lane: &Rc<Lane>, request: &Request, barred: bool, until: Time) -> bool {
        let (seen, waits) = {
            let view = self.view.borrow();
            (view.generation, view.waits)
        };
        // A barred write waits whether or not requests wait for paths, but no longer.
        let may_wait = if barred { lane.lived() < until } else { waits };
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
            Some(ends) => first_of(news, lane.live_until(ends)).await,
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
}

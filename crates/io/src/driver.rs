//! What one lane's thread does for its I/O: the backend of the engine, over a queue of calls.

mod at_once;
mod device;
mod lease;
mod link;
mod member_op;
mod ops;
mod remote_op;
mod socket_op;
mod stock;

#[cfg(test)]
mod tests;

use std::cell::{Cell, OnceCell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mdspace_engine::backend::{
    Backend, IoDone, IoError, IoErrorKind, MemberId, MemberIo, Patience, Submitted, Ticket,
};
use mdspace_engine::lane::Lane;
use mdspace_engine::memory::Buffer;
use mdspace_engine::time::Time;

use crate::clock;
use crate::errno::io_error;
use crate::lanes::{EventFd, Term};
use crate::member::{Device, MemberTable};
use crate::prefetch::Ahead;
use crate::queue::{Completion, IoChoice, Queue, Token};

use device::{Devices, Swept};
use link::Links;
use member_op::{MemberOp, Step};
use ops::{Expired, Found, Op, Ops};

pub(crate) use socket_op::Kept;
pub(crate) use stock::Stock;

/// Zeroes that a lane keeps for members that cannot make their own, in bytes.
const ZEROES_BYTES: usize = 256 << 10;

/// How late a sleeping thread may wake: Linux rounds timers by 50 µs, and starting takes its time.
const OVERSLEEP: Duration = Duration::from_micros(100);

/// How often, and how long each time, a lane that is dropped looks for the end of its connections.
const LET_GO_LOOKS: u32 = 100;
const LET_GO_LOOK: Duration = Duration::from_millis(10);

/// A lane that looks so late has stood still: its process was stopped, its machine paused, or the system gave it
/// no CPU. Members had that time to answer in, and nobody heard them.
const STANDSTILL: Duration = Duration::from_secs(1);

/// Time that never comes.
const NEVER: Time = Time::from_nanos(u64::MAX);

pub(crate) struct Driver {
    queue: Rc<RefCell<Queue>>,
    ops: RefCell<Ops>,
    devices: RefCell<Devices>,
    stock: Rc<Stock>,
    ahead: Ahead,
    /// No I/O in flight has an earlier deadline. Later ones may be known only when it has come.
    deadline: Cell<Time>,
    /// When it last looked for I/Os past their deadline, or meant to wake.
    looked: Cell<Time>,
    /// It has slept until then, or less.
    has_slept: Cell<bool>,
    /// How long the lane has stood still in all.
    stood_still: Cell<Duration>,
    /// I/Os of members that only pretend, by the time of their end.
    pretended: RefCell<BinaryHeap<Reverse<(Time, u64)>>>,
    /// What devices of the embedding program have answered. It is told in the next turn: their work takes time, in which
    /// the ring is not looked at.
    answered: RefCell<Vec<(Ticket, IoDone)>>,
    /// The time when it was last asked for since the lane woke or turned; [`NEVER`] before that.
    lately: Cell<Time>,
    /// Completions on their way; kept for their allocation.
    reaped: RefCell<Vec<Completion>>,
    zeroes: OnceCell<Rc<Buffer>>,
    links: Links,
    /// The lane that it drives.
    lane: OnceCell<Weak<Lane>>,
    /// Ends the lane's sleep, from any thread.
    wake: Arc<EventFd>,
    stop: RefCell<Stop>,
    flushes: bool,
}

/// Whether the lane is asked to end, and who wants to know.
#[derive(Default)]
struct Stop {
    requested: bool,
    waiting: Vec<Waker>,
}

impl Driver {
    pub(crate) fn new(
        choice: IoChoice,
        members: Arc<MemberTable>,
        wake: Arc<EventFd>,
        term: Term,
    ) -> io::Result<Rc<Self>> {
        let queue = Rc::new(RefCell::new(Queue::new(choice, wake.clone())?));
        Ok(Rc::new(Self {
            ops: RefCell::default(),
            devices: RefCell::new(Devices::new(members, term)),
            stock: Stock::new(queue.clone()),
            ahead: Ahead::default(),
            deadline: Cell::new(NEVER),
            looked: Cell::new(NEVER),
            has_slept: Cell::new(false),
            stood_still: Cell::new(Duration::ZERO),
            pretended: RefCell::default(),
            answered: RefCell::default(),
            lately: Cell::new(NEVER),
            reaped: RefCell::default(),
            zeroes: OnceCell::new(),
            links: Links::default(),
            lane: OnceCell::new(),
            wake,
            stop: RefCell::default(),
            flushes: !flushes_are_off(),
            queue,
        }))
    }

    /// Says which lane it drives, before the first I/O.
    pub(crate) fn drive(&self, lane: &Rc<Lane>) {
        self.lane.get_or_init(|| Rc::downgrade(lane));
    }

    pub(crate) fn stock(&self) -> &Rc<Stock> {
        &self.stock
    }

    /// Everything that the kernel still has of this lane.
    pub(crate) fn in_flight_total(&self) -> usize {
        self.ops.borrow().live()
    }

    /// Of that, what somebody waits for: not what was answered at its deadline, which may never end.
    pub(crate) fn awaited_total(&self) -> usize {
        let answered = self.answered.borrow().len();
        self.in_flight_total() + answered - self.devices.borrow().overdue_total()
    }

    /// Submits what was started and hands the lane what has ended. Returns how much has.
    pub(crate) fn advance(&self, lane: &Lane) -> usize {
        self.lately.set(NEVER);
        if self.links.want_something() {
            self.look_after_links(lane);
        }
        let mut reaped = self.reaped.take();
        let mut queue = self.queue.borrow_mut();
        queue.flush();
        queue.reap(&mut reaped);
        drop(queue);
        let mut count = reaped.len();
        for completion in reaped.drain(..) {
            self.complete(lane, completion);
        }
        self.reaped.replace(reaped);
        count += self.end_pretended(lane);
        let answered = self.answered.take();
        count += answered.len();
        answered.into_iter().for_each(|(ticket, done)| lane.complete(ticket, done));
        // After the completions: what has ended in time is not late because we looked late.
        self.expire(lane);
        let mut devices = self.devices.borrow_mut();
        let Swept { to_end, asked } = devices.sweep(&self.queue, &self.lane, lane.id());
        drop(devices);
        to_end.iter().for_each(|device| self.hang_up(lane, device));
        asked.into_iter().for_each(|(member, asked)| self.identify(&member, asked));
        count
    }

    /// Sleeps until something ends, the lane is woken, or a time comes that it waits for.
    pub(crate) fn sleep(&self, lane_timer: Option<Time>) {
        let now = self.now();
        let mut until = self.deadline.get().min(lane_timer.unwrap_or(NEVER));
        if let Some(&Reverse((end, _))) = self.pretended.borrow().peek() {
            // The system wakes late: the last of the wait is spent looking.
            until = until.min(end - OVERSLEEP);
        }
        let at_most = (until != NEVER).then(|| until.since(now));
        if at_most != Some(Duration::ZERO) {
            self.looked.set(until);
            self.has_slept.set(until != NEVER);
            self.queue.borrow_mut().sleep(at_most);
            self.lately.set(NEVER);
        }
    }

    fn complete(&self, lane: &Lane, completion: Completion) {
        let mut ops = self.ops.borrow_mut();
        match ops.at(completion.token) {
            Op::Socket(op) => match op.end(completion.result) {
                socket_op::End::Wake(waker) => {
                    drop(ops);
                    waker.into_iter().for_each(Waker::wake);
                }
                socket_op::End::Abandoned => {
                    let op = ops.remove(completion.token);
                    drop(ops);
                    op.discard();
                }
            },
            Op::Wire(_) => {
                drop(ops);
                self.end_wire(lane, completion.token, completion.result);
            }
            Op::Remote(_) => unreachable!("the kernel knows the link's calls alone"),
            Op::Member(op) => match op.absorb(completion.result, self) {
                Step::Call(call) => self.queue.borrow_mut().push(completion.token, call),
                Step::End(result) => {
                    let Op::Member(op) = ops.remove(completion.token) else { return };
                    drop(ops);
                    self.end_member(lane, op, result);
                }
            },
        }
    }

    fn end_member(&self, lane: &Lane, op: MemberOp, result: Result<(), IoError>) {
        let ticket = op.ticket;
        if ticket.is_none() {
            op.device.overdue.set(op.device.overdue.get() - 1);
        }
        let (member, flushed) = (op.device.member.id, op.call_flushes());
        let done = op.end(result, &self.stock);
        match ticket {
            Some(ticket) => lane.complete(ticket, done),
            None => self.end_late(lane, member, flushed, done),
        }
    }

    /// Ends an I/O that was answered at its deadline: the memory comes home late, and so does a loss, where its last
    /// call or request `flushed`.
    fn end_late(&self, lane: &Lane, member: MemberId, flushed: bool, done: IoDone) {
        done.buffer.into_iter().for_each(|buffer| self.stock.recycle(buffer));
        if let Err(error) = done.result
            && flushed
        {
            lane.flush_failed_late(member, error);
        }
    }

    /// Ends the I/Os of members that only pretend whose time has come. Returns how many.
    fn end_pretended(&self, lane: &Lane) -> usize {
        if self.pretended.borrow().is_empty() {
            return 0;
        }
        let (now, mut count) = (self.now(), 0);
        while let Some(token) = self.pop_pretended(now) {
            // A cancelled one comes twice.
            let Some(result) = self.ops.borrow_mut().pretended_result(token) else { continue };
            self.complete(lane, Completion { token, result });
            count += 1;
        }
        count
    }

    fn pop_pretended(&self, now: Time) -> Option<Token> {
        let mut pretended = self.pretended.borrow_mut();
        let &Reverse((end, token)) = pretended.peek()?;
        (end <= now).then(|| pretended.pop())?;
        Some(Token(token))
    }

    /// Answers what is past its deadline; the device keeps the memory until it is done with it.
    fn expire(&self, lane: &Lane) {
        let has_slept = self.has_slept.replace(false);
        if self.deadline.get() == NEVER && !has_slept {
            return;
        }
        let now = self.about_now();
        let late_by = now.since(self.looked.replace(now));
        if late_by >= STANDSTILL {
            self.stood_still.set(self.stood_still.get() + late_by);
            self.deadline.set(self.ops.borrow_mut().postpone(late_by));
        }
        if self.deadline.get() > now {
            return;
        }
        let begun = |token| self.queue.borrow().has_begun(token);
        let Expired { late, remote, next } = self.ops.borrow_mut().expire(now, begun);
        self.deadline.set(next);
        remote.into_iter().for_each(|token| self.expire_remote(lane, token));
        for (token, ticket) in late {
            self.queue.borrow_mut().cancel(token);
            if let Some(ticket) = ticket {
                let result = Err(IoError { kind: IoErrorKind::Deadline, errno: 0 });
                lane.complete(ticket, IoDone { result, buffer: None });
            }
        }
    }

    /// Ends the connections of a lane that is dropped, and waits a moment for the kernel to let go of
    /// their memory.
    fn end_links(&self) {
        for _ in 0..LET_GO_LOOKS {
            if !self.ops.borrow_mut().end_wires() {
                break;
            }
            let mut queue = self.queue.borrow_mut();
            queue.flush();
            queue.sleep(Some(LET_GO_LOOK));
            let mut reaped = Vec::new();
            queue.reap(&mut reaped);
            drop(queue);
            reaped.into_iter().for_each(|ended| self.ops.borrow_mut().end_wire(ended.token));
        }
        self.ops.borrow_mut().drop_remote();
    }

    /// Tells the tasks that the lane is asked to end.
    pub(crate) fn request_stop(&self, lane: &Lane) {
        self.hang_up_where_idle(lane);
        let mut stop = self.stop.borrow_mut();
        stop.requested = true;
        let waiting = std::mem::take(&mut stop.waiting);
        drop(stop);
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn poll_stop(&self, context: &Context<'_>) -> Poll<()> {
        let mut stop = self.stop.borrow_mut();
        if stop.requested {
            return Poll::Ready(());
        }
        stop.waiting.retain(|waker| !waker.will_wake(context.waker()));
        stop.waiting.push(context.waker().clone());
        Poll::Pending
    }

    /// Whether calls have been started that the kernel does not know of yet, or answers wait to be told.
    pub(crate) fn has_unsubmitted(&self) -> bool {
        self.links.have_unsent()
            || self.queue.borrow_mut().has_unsubmitted()
            || !self.answered.borrow().is_empty()
    }

    /// The time, as it was at the first question of this turn: deadlines are long, and a turn is short.
    fn about_now(&self) -> Time {
        if self.lately.get() == NEVER {
            self.lately.set(self.now());
        }
        self.lately.get()
    }

    fn note_deadline(&self, deadline: Time) {
        if deadline != NEVER && self.deadline.get() == NEVER {
            // Without a deadline it had no need to look.
            self.looked.set(self.about_now());
        }
        self.deadline.set(self.deadline.get().min(deadline));
    }

    fn zeroes(&self) -> Rc<Buffer> {
        let make = || Rc::new(Buffer::zeroed(ZEROES_BYTES));
        self.zeroes.get_or_init(make).clone()
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.end_links();
        if self.in_flight_total() > 0 {
            // The kernel may still fill this memory: better lost than used twice. And the end of a queue
            // may wait for its calls.
            std::mem::forget(self.ops.take());
            std::mem::forget(self.queue.clone());
        }
    }
}

impl Backend for Driver {
    fn at_once(&self, io: &mut MemberIo) -> Option<Result<(), IoError>> {
        let mut devices = self.devices.borrow_mut();
        let Some(device) = devices.find(io.member, &self.queue, &self.lane) else {
            return Some(Err(io_error(libc::ENODEV)));
        };
        let ended = at_once::answer(self, &device.member, &mut io.op);
        if ended.is_none()
            && let Some(paths) = device.paths().filter(|paths| paths.may_be_at_once())
        {
            let paths = paths.clone();
            drop(devices);
            return paths.at_once(io);
        }
        ended
    }

    fn prefetch(&self, blocks: &[(MemberId, u64)], bytes: usize) {
        let mut devices = self.devices.borrow_mut();
        let places = blocks.iter().filter_map(|&(member, sector)| {
            match &devices.find(member, &self.queue, &self.lane)?.member.device {
                Device::Ram(ram) => Some(ram.address(sector as usize * 512)),
                _ => None,
            }
        });
        self.ahead.expect(places, bytes);
    }

    fn submit(&self, ticket: Ticket, mut io: MemberIo) -> Submitted {
        let mut devices = self.devices.borrow_mut();
        let ended = match devices.find(io.member, &self.queue, &self.lane) {
            Some(device) => match at_once::answer(self, &device.member, &mut io.op) {
                Some(result) => Err(result),
                None => Ok(device.clone()),
            },
            None => Err(Err(io_error(libc::ENODEV))),
        };
        drop(devices);
        let device = match ended {
            Ok(device) => device,
            Err(result) => {
                return Submitted::Done(IoDone { result, buffer: io.op.into_buffer() });
            }
        };
        if let Some(paths) = device.paths() {
            return paths.submit(ticket, io);
        }
        let mut op = io.op;
        if let Device::Own(own) = &device.member.device {
            let result = at_once::ask(own, &mut op, self);
            let done = IoDone { result, buffer: op.into_buffer() };
            self.answered.borrow_mut().push((ticket, done));
            return Submitted::Pending;
        }
        if device.is_inline() {
            let op = MemberOp::new(self, device, ticket, NEVER, op);
            return Submitted::Done(op.run_inline(self));
        }
        let deadline = match io.patience {
            Patience::FOREVER => NEVER,
            patience => patience.deadline(self.about_now()).unwrap_or(NEVER),
        };
        if device.link.is_some() {
            return self.submit_remote(device, ticket, deadline, op);
        }
        let op = MemberOp::new(self, device, ticket, deadline, op);
        if let Some(error) = op.refusal() {
            return Submitted::Done(op.end(Err(error), &self.stock));
        }
        self.note_deadline(deadline);
        let mut ops = self.ops.borrow_mut();
        let (token, op) = ops.add_member(op);
        match op.pretend(self) {
            Some(end) => self.pretended.borrow_mut().push(Reverse((end, token.0))),
            None => self.queue.borrow_mut().push(token, op.next(self)),
        }
        Submitted::Pending
    }

    fn cancel(&self, ticket: Ticket) {
        let found = self.ops.borrow_mut().cancel(ticket);
        match found {
            Some(Found::Pretended(token)) => {
                self.pretended.borrow_mut().push(Reverse((Time::ZERO, token.0)));
            }
            Some(Found::Called(token)) => self.queue.borrow_mut().cancel(token),
            Some(Found::Remote(device)) => self.list(&device),
            None => self.devices.borrow().cancel(ticket),
        }
    }

    fn in_flight(&self, member: MemberId) -> usize {
        self.devices.borrow().in_flight(member)
    }

    fn unanswered(&self, member: MemberId) -> usize {
        self.devices.borrow().unanswered(member)
    }

    fn now(&self) -> Time {
        clock::now()
    }

    fn stood_still(&self) -> Duration {
        self.stood_still.get()
    }

    fn unix_time_s(&self) -> u64 {
        // A clock before 1970 is a clock that was never set.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    fn random(&self) -> u64 {
        let mut bytes = [0u8; 8];
        // SAFETY: eight bytes are written to `bytes`.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        assert!(got == 8, "the system gives eight random bytes at once");
        u64::from_ne_bytes(bytes)
    }

    fn allocate(&self, bytes: usize) -> Buffer {
        self.stock.allocate(bytes)
    }

    fn recycle(&self, buffer: Buffer) {
        self.stock.recycle(buffer);
    }
}

/// The negative control of durability tests: with `MDSPACE_TEST_NO_FLUSH=1` flushes and FUA do
/// nothing, and a test that cuts the power must then find lost writes. Not in a release, whose users have data.
fn flushes_are_off() -> bool {
    let asked = std::env::var_os("MDSPACE_TEST_NO_FLUSH").is_some_and(|value| value == "1");
    let is_release = !cfg!(debug_assertions);
    match (asked, is_release) {
        (true, true) => tracing::warn!("MDSPACE_TEST_NO_FLUSH=1 does nothing in a release"),
        (true, false) => {
            tracing::warn!("MDSPACE_TEST_NO_FLUSH=1: nothing is made durable; for tests only");
        }
        (false, _) => {}
    }
    asked && !is_release
}

//! A lane: one thread's tasks, member I/Os and timers.
//!
//! A lane runs a request from start to finish where it arrived. It owns no thread, no clock and no
//! system call: a driver (`io` on a pinned thread, `sim` under a seed) calls [`Lane::complete`] for
//! every finished I/O and [`Lane::turn`] whenever something may be ready.
//!
//! Tasks must bear a poll without cause: a wake names a task slot, and slots are reused. The lane's
//! own futures ([`Io`], [`Sleep`]) wake the whole task in which they are polled.

mod join;
mod ops;
mod remote;
mod tasks;
mod timers;

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use crate::backend::{Backend, IoDone, IoError, MemberId, MemberIo, Submitted, Ticket};
use crate::time::Time;

pub(crate) use join::{first_of, join_all};
pub(crate) use ops::Passage;
pub use ops::{Io, OpOwner};
pub use remote::{Notify, Remote};
pub use timers::Sleep;

use ops::Ops;
use tasks::{TaskSlot, Tasks};
use timers::Timers;

/// Which lane; lanes count from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u16);

/// What a lane has done for its members and with its own hands, ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// I/Os to members.
    pub member_ios: u64,
    /// Bytes read from and written to members.
    pub member_bytes: u64,
    /// Bytes copied from one place of memory to another on behalf of requests.
    pub copied_bytes: u64,
}

/// What a lane's turn left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// Tasks are ready still: turn again soon.
    Busy,
    /// Nothing to do before a completion, a wake, or this time.
    Idle(Option<Time>),
}

/// What is told of a flush that fails after its deadline: whose it was, and its error.
type TellLateFlush = dyn Fn(MemberId, IoError);

/// Polls in one turn before the driver gets a look at its ring again.
const POLLS_PER_TURN: usize = 256;

/// One thread's executor. Not `Send`: it never leaves its thread.
pub struct Lane {
    id: LaneId,
    backend: Rc<dyn Backend>,
    tasks: RefCell<Tasks>,
    ops: RefCell<Ops>,
    timers: RefCell<Timers>,
    remote: Arc<Remote>,
    member_ios: Cell<u64>,
    member_bytes: Cell<u64>,
    copied_bytes: Cell<u64>,
    /// The task that is being polled.
    current: Cell<TaskSlot>,
    /// Tasks that wait for the next turn.
    next_turn: RefCell<Vec<TaskSlot>>,
    /// Hears of flushes that fail after their deadline.
    late_flush: RefCell<Option<Rc<TellLateFlush>>>,
    /// Whether the last turn ran a task.
    has_run: Cell<bool>,
    has_ended: Cell<bool>,
}

impl Lane {
    /// A lane over `backend`; `notify` wakes its driver from other threads.
    pub fn new(id: LaneId, backend: Rc<dyn Backend>, notify: Arc<dyn Notify>) -> Rc<Self> {
        let remote = Remote::new(notify);
        Rc::new(Self {
            id,
            backend,
            tasks: RefCell::new(Tasks::new(remote.clone())),
            ops: RefCell::default(),
            timers: RefCell::default(),
            remote,
            member_ios: Cell::default(),
            member_bytes: Cell::default(),
            copied_bytes: Cell::default(),
            current: Cell::new(0),
            next_turn: RefCell::default(),
            late_flush: RefCell::default(),
            has_run: Cell::default(),
            has_ended: Cell::default(),
        })
    }

    /// Which lane this is.
    pub fn id(&self) -> LaneId {
        self.id
    }

    /// The lane's way to the members.
    pub fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// The lane's side that other threads may touch.
    pub fn remote(&self) -> &Arc<Remote> {
        &self.remote
    }

    /// What the lane has done so far.
    pub fn traffic(&self) -> Traffic {
        Traffic {
            member_ios: self.member_ios.get(),
            member_bytes: self.member_bytes.get(),
            copied_bytes: self.copied_bytes.get(),
        }
    }

    /// Counts bytes that were copied in memory, by whomever on this lane.
    pub fn count_copy(&self, bytes: usize) {
        self.copied_bytes.set(self.copied_bytes.get() + bytes as u64);
    }

    #[inline]
    fn count_io(&self, io: &MemberIo) {
        self.member_ios.set(self.member_ios.get() + 1);
        self.member_bytes.set(self.member_bytes.get() + io.op.bytes() as u64);
    }

    /// Starts a task. It runs for the first time in the next turn.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) {
        self.tasks.borrow_mut().add(Box::pin(task));
    }

    /// Tasks that have not ended.
    pub fn task_count(&self) -> usize {
        self.tasks.borrow().live()
    }

    /// Starts a member I/O and gives a future of its end. The I/O runs whether or not the future is
    /// polled; a future dropped early leaves the I/O to the backend.
    pub fn io(&self, mut io: MemberIo) -> Io<'_> {
        match self.io_at_once(&mut io) {
            Some(result) => Io::done(self, IoDone { result, buffer: io.op.into_buffer() }),
            None => self.io_later(io),
        }
    }

    /// Does a member I/O on the spot, where the member needs no waiting. The buffer stays in `io`. `None`,
    /// with nothing done: it is one for [`io_later`](Self::io_later).
    #[inline]
    pub(crate) fn io_at_once(&self, io: &mut MemberIo) -> Option<Result<(), IoError>> {
        let ended = self.backend.at_once(io);
        if ended.is_some() {
            self.count_io(io);
        }
        ended
    }

    pub(crate) fn io_later(&self, io: MemberIo) -> Io<'_> {
        self.count_io(&io);
        let ticket = self.ops.borrow().next();
        match self.backend.submit(ticket, io) {
            Submitted::Done(done) => Io::done(self, done),
            Submitted::Pending => {
                self.ops.borrow_mut().begin(ticket);
                Io::pending(self, ticket)
            }
        }
    }

    /// Starts a member I/O whose end goes to `owner` with `tag`, without a task. Returns the end at
    /// once when the backend had it at once; `owner` is not called then.
    pub fn io_direct(&self, mut io: MemberIo, owner: &Rc<dyn OpOwner>, tag: u64) -> Option<IoDone> {
        if let Some(result) = self.io_at_once(&mut io) {
            return Some(IoDone { result, buffer: io.op.into_buffer() });
        }
        self.count_io(&io);
        let ticket = self.ops.borrow().next();
        match self.backend.submit(ticket, io) {
            Submitted::Done(done) => Some(done),
            Submitted::Pending => {
                self.ops.borrow_mut().begin_direct(ticket, owner.clone(), tag);
                None
            }
        }
    }

    /// For a backend that answers an I/O by another one under the same ticket, just started: its end
    /// goes through `passage` first.
    pub(crate) fn passes(&self, ticket: Ticket, passage: Rc<dyn Passage>, tag: u64) {
        self.ops.borrow_mut().add_passage(ticket, passage, tag);
    }

    /// A future that ends at `when`.
    pub fn sleep_until(&self, when: Time) -> Sleep<'_> {
        Sleep::new(self, when)
    }

    /// The time without that in which the lane stood still: neither a member nor a client was late then.
    #[inline]
    pub fn lived(&self) -> Time {
        self.backend.now() - self.backend.stood_still()
    }

    /// Waits until the lane has [lived](Self::lived) until then.
    pub async fn live_until(&self, until: Time) {
        while self.lived() < until {
            self.sleep_until(until + self.backend.stood_still()).await;
        }
    }

    /// Lets every other ready task go first.
    pub async fn pause(&self) {
        let mut paused = false;
        poll_fn(|_| {
            if std::mem::replace(&mut paused, true) {
                return Poll::Ready(());
            }
            self.tasks.borrow_mut().wake(self.current.get());
            Poll::Pending
        })
        .await;
    }

    /// Waits for the next turn: the driver has looked at its ring, and other lanes had time.
    pub(crate) async fn next_turn(&self) {
        let mut waited = false;
        poll_fn(|_| {
            if std::mem::replace(&mut waited, true) {
                return Poll::Ready(());
            }
            self.next_turn.borrow_mut().push(self.current.get());
            Poll::Pending
        })
        .await;
    }

    /// Takes the end of an I/O from the backend's driver.
    pub fn complete(&self, ticket: Ticket, mut done: IoDone) {
        let finished = loop {
            let mut ops = self.ops.borrow_mut();
            let Some((passage, tag)) = ops.take_passage(ticket) else {
                break ops.finish(ticket, done);
            };
            drop(ops);
            let Some(passed) = passage.pass(tag, done) else { return };
            done = passed;
        };
        match finished {
            ops::Finished::Wake(task) => self.tasks.borrow_mut().wake(task),
            ops::Finished::Direct { owner, tag, done } => owner.done(tag, done),
            ops::Finished::Abandoned(Some(buffer)) => self.backend.recycle(buffer),
            ops::Finished::Abandoned(None) | ops::Finished::Kept => {}
        }
    }

    /// Who hears of flushes that fail after their deadline.
    pub fn on_late_flush(&self, tell: impl Fn(MemberId, IoError) + 'static) {
        *self.late_flush.borrow_mut() = Some(Rc::new(tell));
    }

    /// Takes from the backend's driver that a flush, or a durable write, has failed that was answered at its deadline.
    pub fn flush_failed_late(&self, member: MemberId, error: IoError) {
        let tell = self.late_flush.borrow().clone();
        tell.into_iter().for_each(|tell| tell(member, error));
    }

    /// Drops every task where it stands and every owner of an I/O in flight, as the end of a process
    /// does. They hold the lane that holds them: a lane given up with tasks on it is never freed else.
    pub fn end(&self) {
        self.has_ended.set(true);
        self.late_flush.take();
        let tasks = self.tasks.borrow_mut().take_all();
        // Outside the borrow, as in a turn: guards may wake other tasks.
        drop(tasks);
        let owners = self.ops.borrow_mut().disown();
        drop(owners);
    }

    /// Whether [`end`](Self::end) was called: what its tasks leave behind ends with the process.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    /// Runs what is ready: woken tasks and expired timers.
    pub fn turn(&self) -> Turn {
        for task in self.next_turn.take() {
            self.tasks.borrow_mut().wake(task);
        }
        for polls in 0..POLLS_PER_TURN {
            self.take_wakes();
            let Some((slot, mut task, waker)) = self.tasks.borrow_mut().next_ready() else {
                self.has_run.set(polls > 0);
                return match self.next_turn.borrow().is_empty() {
                    true => Turn::Idle(self.timers.borrow().next()),
                    false => Turn::Busy,
                };
            };
            self.current.set(slot);
            let mut context = std::task::Context::from_waker(&waker);
            let ended = task.as_mut().poll(&mut context).is_ready();
            // The task drops outside the borrow: its guards may wake other tasks.
            let ended_task = self.tasks.borrow_mut().put_back(slot, task, waker, ended);
            drop(ended_task);
        }
        self.has_run.set(true);
        Turn::Busy
    }

    /// Whether the last turn ran a task.
    pub fn has_run(&self) -> bool {
        self.has_run.get()
    }

    fn take_wakes(&self) {
        self.remote.drain(|task| self.tasks.borrow_mut().wake(task));
        if self.timers.borrow().is_empty() {
            return;
        }
        let now = self.backend.now();
        while let Some(task) = self.timers.borrow_mut().pop_expired(now) {
            self.tasks.borrow_mut().wake(task);
        }
    }
}

impl std::fmt::Debug for Lane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lane({})", self.id.0)
    }
}

//! The way without a ring: calls on files run on a few threads for each file, sockets are polled by the lane
//! itself.
//!
//! A file whose calls hang keeps its own threads, and nobody else's.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mdspace_engine::sync::Mutex;

use crate::lanes::EventFd;

use super::{Call, Completion, FileRef, ONE, Token};

/// Threads of one file on one lane at most: its calls under way at once.
pub(super) const THREADS_MAX: usize = 16;

/// Makes a call on a file, on the thread that asks.
pub(super) type Run = fn(Call) -> i32;

pub(crate) struct Threads {
    done: Arc<Done>,
    files: BTreeMap<RawFd, FileThreads>,
    /// Most of each file.
    threads_max: usize,
    run: Run,
    /// The system has refused one; it would refuse a thousand times.
    refused: bool,
    /// Socket calls that wait for their socket.
    waiting: Vec<(Token, Call)>,
    /// Completions that needed no thread.
    ready: Vec<Completion>,
}

/// Where threads lay what has ended.
struct Done {
    completions: Mutex<Vec<Completion>>,
    /// The lane sleeps, or is about to.
    sleeping: AtomicBool,
    wake: Arc<EventFd>,
}

/// The threads of one file.
struct FileThreads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    jobs: Mutex<Jobs>,
    more: Condvar,
    done: Arc<Done>,
    run: Run,
}

#[derive(Default)]
struct Jobs {
    queue: VecDeque<Job>,
    idle: usize,
    ended: bool,
}

struct Job(Token, Call);

// SAFETY: a call's pointers name memory that its pusher leaves alone until the completion, so the
// thread that runs the call is their only user.
unsafe impl Send for Job {}

impl Threads {
    /// With so many threads a file at most, which make calls by `run`.
    pub(super) fn new(threads_max: usize, run: Run, wake: Arc<EventFd>) -> Self {
        let completions = Mutex::default();
        let done = Arc::new(Done { completions, sleeping: AtomicBool::new(false), wake });
        Self {
            done,
            files: BTreeMap::new(),
            threads_max,
            run,
            refused: false,
            waiting: Vec::new(),
            ready: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, token: Token, call: Call) {
        if let Some(file) = file_of(call) {
            return self.push_job(file, Job(token, call));
        }
        match run_socket(call) {
            Some(result) => self.ready.push(Completion { token, result }),
            None => self.waiting.push((token, call)),
        }
    }

    fn push_job(&mut self, file: RawFd, job: Job) {
        let (done, run) = (&self.done, self.run);
        let own = self.files.entry(file).or_insert_with(|| FileThreads::new(done.clone(), run));
        let mut jobs = own.shared.jobs.lock();
        jobs.queue.push_back(job);
        let wanted = jobs.queue.len() > jobs.idle && own.threads.len() < self.threads_max;
        drop(jobs);
        own.shared.more.notify_one();
        let started = if wanted { own.start_thread() } else { Ok(()) };
        if own.threads.is_empty() {
            // Without any thread the lane makes the call, and everything else on it waits.
            self.ready.extend(own.run_here());
        }
        if let Err(error) = started
            && !std::mem::replace(&mut self.refused, true)
        {
            tracing::warn!(
                %error,
                "the system gives no more threads: reads and writes are slower; cure: raise its limit \
                 on tasks (TasksMax in the systemd unit, RLIMIT_NPROC)"
            );
        }
    }

    /// Whether a thread has taken a call. One that none has waits for others of its file.
    pub(super) fn has_begun(&self, token: Token) -> bool {
        let waits =
            |own: &FileThreads| own.shared.jobs.lock().queue.iter().any(|job| job.0 == token);
        !self.files.values().any(waits)
    }

    pub(super) fn cancel(&mut self, token: Token) {
        let cancelled = Completion { token, result: -libc::ECANCELED };
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.0 == token) {
            self.waiting.swap_remove(at);
            self.ready.push(cancelled);
            return;
        }
        for own in self.files.values() {
            let mut jobs = own.shared.jobs.lock();
            if let Some(at) = jobs.queue.iter().position(|job| job.0 == token) {
                jobs.queue.remove(at);
                return self.ready.push(cancelled);
            }
        }
    }

    pub(super) fn flush(&mut self) {
        if !self.waiting.is_empty() {
            self.poll(Some(Duration::ZERO));
        }
    }

    pub(super) fn reap(&mut self, out: &mut Vec<Completion>) {
        out.append(&mut self.ready);
        out.append(&mut self.done.completions.lock());
    }

    pub(super) fn sleep(&mut self, at_most: Option<Duration>) {
        if !self.ready.is_empty() {
            return;
        }
        // SeqCst pairs with `finish`: either the completion is seen here, or the sleeper there.
        self.done.sleeping.store(true, Ordering::SeqCst);
        if self.done.completions.lock().is_empty() {
            self.poll(at_most);
        }
        self.done.sleeping.store(false, Ordering::SeqCst);
    }

    /// Waits for a socket or the eventfd, and runs the calls whose sockets are ready.
    fn poll(&mut self, at_most: Option<Duration>) {
        let pollfd = |(fd, events)| libc::pollfd { fd, events, revents: 0 };
        let sockets = self.waiting.iter().filter_map(|&(_, call)| socket_of(call));
        let mut fds: Vec<_> = sockets.map(pollfd).collect();
        fds.push(pollfd((self.done.wake.as_raw_fd(), libc::POLLIN)));
        let span = at_most.map(|span| libc::timespec {
            tv_sec: span.as_secs().try_into().unwrap_or(libc::time_t::MAX),
            tv_nsec: span.subsec_nanos().into(),
        });
        let span = span.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: `fds` and `span` outlive the call; no signal mask is given.
        let ready =
            unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as _, span, std::ptr::null()) };
        if ready <= 0 {
            return;
        }
        if fds.pop().is_some_and(|wake| wake.revents != 0) {
            self.done.wake.clear();
        }
        let mut polled = fds.iter();
        let ready = &mut self.ready;
        self.waiting.retain(|&(token, call)| {
            let revents = polled.next().map_or(0, |fd| fd.revents);
            let result = match call {
                _ if revents == 0 => None,
                Call::Poll { .. } => Some(revents.into()),
                _ => run_socket(call),
            };
            ready.extend(result.map(|result| Completion { token, result }));
            result.is_none()
        });
    }
}

impl FileThreads {
    fn new(done: Arc<Done>, run: Run) -> Self {
        let shared = Shared { jobs: Mutex::default(), more: Condvar::new(), done, run };
        Self { shared: Arc::new(shared), threads: Vec::new() }
    }

    /// One more, if the system gives one: else those that there are do the work.
    fn start_thread(&mut self) -> io::Result<()> {
        let shared = self.shared.clone();
        self.threads.push(std::thread::Builder::new().spawn(move || shared.serve())?);
        Ok(())
    }

    fn run_here(&self) -> Option<Completion> {
        let Job(token, call) = self.shared.jobs.lock().queue.pop_front()?;
        Some(Completion { token, result: (self.shared.run)(call) })
    }
}

impl Drop for FileThreads {
    fn drop(&mut self) {
        self.shared.jobs.lock().ended = true;
        self.shared.more.notify_all();
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

impl Shared {
    /// The life of one thread.
    fn serve(&self) {
        let mut jobs = self.jobs.lock();
        loop {
            if let Some(Job(token, call)) = jobs.queue.pop_front() {
                drop(jobs);
                self.done.finish(Completion { token, result: (self.run)(call) });
                jobs = self.jobs.lock();
            } else if jobs.ended {
                return;
            } else {
                jobs.idle += 1;
                jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
                jobs.idle -= 1;
            }
        }
    }
}

impl Done {
    fn finish(&self, completion: Completion) {
        self.completions.lock().push(completion);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.wake.wake();
        }
    }
}

/// The file that a call is on; `None` for calls on sockets.
fn file_of(call: Call) -> Option<RawFd> {
    match call {
        Call::Read { file, .. }
        | Call::Write { file, .. }
        | Call::WriteVectors { file, .. }
        | Call::Sync { file }
        | Call::Allocate { file, .. } => Some(file.fd),
        Call::Accept { .. }
        | Call::Recv { .. }
        | Call::Send { .. }
        | Call::Poll { .. }
        | Call::Signal { .. } => None,
    }
}

/// The socket that a call waits for, and for what; `None` for calls on files.
fn socket_of(call: Call) -> Option<(RawFd, i16)> {
    match call {
        Call::Accept { fd } | Call::Recv { fd, .. } => Some((fd, libc::POLLIN)),
        Call::Send { fd, .. } | Call::Signal { fd } => Some((fd, libc::POLLOUT)),
        Call::Poll { fd, events } => Some((fd, events)),
        Call::Read { .. }
        | Call::Write { .. }
        | Call::WriteVectors { .. }
        | Call::Sync { .. }
        | Call::Allocate { .. } => None,
    }
}

/// Tries a call on a socket; `None` when it would wait.
fn run_socket(call: Call) -> Option<i32> {
    let result = match call {
        Call::Accept { fd } => accept(fd),
        // SAFETY: the pusher of the call keeps its memory until the completion.
        Call::Recv { fd, to, len, flags } => unsafe {
            libc::recv(fd, to.cast(), len as usize, flags & !libc::MSG_WAITALL | libc::MSG_DONTWAIT)
        },
        // SAFETY: as for `Recv`; the message and all it points to are kept.
        Call::Send { fd, message } => unsafe {
            libc::sendmsg(fd, message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
        },
        Call::Signal { fd } => return signal(fd),
        _ => return None,
    };
    match errno_of(result) {
        again if again == -libc::EAGAIN || again == -libc::EINTR => None,
        result => Some(result),
    }
}

/// Accepts without waiting, also when the connection is gone again since the poll.
fn accept(fd: RawFd) -> isize {
    // SAFETY: these calls take no pointer to memory of ours.
    unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
        libc::accept4(fd, std::ptr::null_mut(), std::ptr::null_mut(), libc::SOCK_CLOEXEC) as isize
    }
}

/// Adds one to an eventfd; `None` when it is full. Its flags are others' too, who may wait for it: they stay.
fn signal(fd: RawFd) -> Option<i32> {
    let mut polled = libc::pollfd { fd, events: libc::POLLOUT, revents: 0 };
    // SAFETY: one entry is polled, and eight bytes are read from a static.
    unsafe {
        if libc::poll(&raw mut polled, 1, 0) != 1 || polled.revents & libc::POLLOUT == 0 {
            return None;
        }
        Some(errno_of(libc::write(fd, (&raw const ONE).cast(), size_of_val(&ONE))))
    }
}

/// Makes a call on a file, here and now.
pub(crate) fn run_file(call: Call) -> i32 {
    let raw = |file: FileRef| file.fd;
    let result = match call {
        // SAFETY: the pusher of the call keeps its memory until the completion.
        Call::Read { file, to, len, offset, .. } => unsafe {
            libc::pread(raw(file), to.cast(), len as usize, offset as libc::off_t)
        },
        // SAFETY: as for `Read`.
        Call::Write { file, from, len, offset, .. } => unsafe {
            libc::pwrite(raw(file), from.cast(), len as usize, offset as libc::off_t)
        },
        // SAFETY: as for `Read`, of the vectors and of what they name.
        Call::WriteVectors { file, from, count, offset } => unsafe {
            libc::pwritev(raw(file), from, count as i32, offset as libc::off_t)
        },
        // SAFETY: no pointer is passed.
        Call::Sync { file } => unsafe { libc::fdatasync(raw(file)) as isize },
        // SAFETY: no pointer is passed.
        Call::Allocate { file, mode, offset, len } => unsafe {
            libc::fallocate(raw(file), mode, offset as libc::off_t, len as libc::off_t) as isize
        },
        _ => unreachable!("socket calls do not reach the threads"),
    };
    errno_of(result)
}

fn errno_of(result: isize) -> i32 {
    if result >= 0 {
        return i32::try_from(result).expect("transfers are shorter than 2 GiB");
    }
    -io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// As [`run_file`], but reads pipes too.
#[cfg(test)]
pub(super) fn run_stream(call: Call) -> i32 {
    let Call::Read { file, to, len, .. } = call else { return run_file(call) };
    // SAFETY: as for `run_file`.
    errno_of(unsafe { libc::read(file.fd, to.cast(), len as usize) })
}

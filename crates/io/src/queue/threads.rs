//! The way without a ring: file calls run on a few threads, sockets are polled by the lane itself.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use mdspace_engine::sync::Mutex;

use crate::lanes::EventFd;

use super::{Call, Completion, FileRef, Token};

/// Threads of one lane at most: file calls under way at once.
pub(super) const THREADS_MAX: usize = 16;

pub(crate) struct Threads {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Most of them.
    threads_max: usize,
    /// The system has refused one; it would refuse a thousand times.
    refused: bool,
    /// Socket calls that wait for their socket.
    waiting: Vec<(Token, Call)>,
    /// Completions that needed no thread.
    ready: Vec<Completion>,
}

struct Shared {
    jobs: Mutex<Jobs>,
    more: Condvar,
    done: Mutex<Vec<Completion>>,
    /// The lane sleeps, or is about to.
    sleeping: AtomicBool,
    wake: Arc<EventFd>,
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
    /// With so many threads at most.
    pub(super) fn new(threads_max: usize, wake: Arc<EventFd>) -> Self {
        let shared = Shared {
            jobs: Mutex::default(),
            more: Condvar::new(),
            done: Mutex::default(),
            sleeping: AtomicBool::new(false),
            wake,
        };
        Self {
            shared: Arc::new(shared),
            threads: Vec::new(),
            threads_max,
            refused: false,
            waiting: Vec::new(),
            ready: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, token: Token, call: Call) {
        if socket_of(call).is_none() {
            return self.push_job(Job(token, call));
        }
        match run_socket(call) {
            Some(result) => self.ready.push(Completion { token, result }),
            None => self.waiting.push((token, call)),
        }
    }

    fn push_job(&mut self, job: Job) {
        let mut jobs = self.shared.jobs.lock();
        jobs.queue.push_back(job);
        let wanted = jobs.queue.len() > jobs.idle && self.threads.len() < self.threads_max;
        drop(jobs);
        self.shared.more.notify_one();
        if wanted {
            self.start_thread();
        }
        if self.threads.is_empty() {
            self.run_here();
        }
    }

    /// One more, if the system gives one: else those that there are do the work.
    fn start_thread(&mut self) {
        let shared = self.shared.clone();
        match std::thread::Builder::new().spawn(move || shared.serve()) {
            Ok(thread) => self.threads.push(thread),
            Err(error) if !self.refused => {
                self.refused = true;
                tracing::warn!(
                    %error,
                    threads = self.threads.len(),
                    "the system gives no more threads: reads and writes are slower; cure: raise \
                     its limit on tasks (TasksMax in the systemd unit, RLIMIT_NPROC)"
                );
            }
            Err(_) => {}
        }
    }

    /// Without any thread the lane makes the call, and everything else on it waits.
    fn run_here(&mut self) {
        let job = self.shared.jobs.lock().queue.pop_front();
        let run = |Job(token, call)| Completion { token, result: run_file(call) };
        self.ready.extend(job.map(run));
    }

    pub(super) fn cancel(&mut self, token: Token) {
        let cancelled = Completion { token, result: -libc::ECANCELED };
        if let Some(at) = self.waiting.iter().position(|waiting| waiting.0 == token) {
            self.waiting.swap_remove(at);
            self.ready.push(cancelled);
            return;
        }
        let mut jobs = self.shared.jobs.lock();
        if let Some(at) = jobs.queue.iter().position(|job| job.0 == token) {
            jobs.queue.remove(at);
            self.ready.push(cancelled);
        }
    }

    pub(super) fn flush(&mut self) {
        if !self.waiting.is_empty() {
            self.poll(Some(Duration::ZERO));
        }
    }

    pub(super) fn reap(&mut self, out: &mut Vec<Completion>) {
        out.append(&mut self.ready);
        out.append(&mut self.shared.done.lock());
    }

    pub(super) fn sleep(&mut self, at_most: Option<Duration>) {
        if !self.ready.is_empty() {
            return;
        }
        // SeqCst pairs with `finish`: either the completion is seen here, or the sleeper there.
        self.shared.sleeping.store(true, Ordering::SeqCst);
        if self.shared.done.lock().is_empty() {
            self.poll(at_most);
        }
        self.shared.sleeping.store(false, Ordering::SeqCst);
    }

    /// Waits for a socket or the eventfd, and runs the calls whose sockets are ready.
    fn poll(&mut self, at_most: Option<Duration>) {
        let pollfd = |(fd, events)| libc::pollfd { fd, events, revents: 0 };
        let sockets = self.waiting.iter().filter_map(|&(_, call)| socket_of(call));
        let mut fds: Vec<_> = sockets.map(pollfd).collect();
        fds.push(pollfd((self.shared.wake.as_raw_fd(), libc::POLLIN)));
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
            self.shared.wake.clear();
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

impl Drop for Threads {
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
                self.finish(Completion { token, result: run_file(call) });
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

    fn finish(&self, completion: Completion) {
        self.done.lock().push(completion);
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.wake.wake();
        }
    }
}

/// The socket that a call waits for, and for what; `None` for calls on files.
fn socket_of(call: Call) -> Option<(RawFd, i16)> {
    match call {
        Call::Accept { fd } | Call::Recv { fd, .. } => Some((fd, libc::POLLIN)),
        Call::Send { fd, .. } => Some((fd, libc::POLLOUT)),
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

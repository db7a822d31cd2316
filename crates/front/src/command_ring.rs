//! A ring of one thread over which commands (`IORING_OP_URING_CMD`) go to a driver of the kernel and end with requests.
//!
//! It is not the lane's. The lane waits for an eventfd that the kernel signals when the ring has news, and then enters
//! the ring. The kernel finishes what has come then, and at no other time (`IORING_SETUP_DEFER_TASKRUN`).

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use io_uring::squeue::EntryMarker;
use io_uring::{IoUring, cqueue};
use rustix::event::{EventfdFlags, eventfd};

/// One that is made on any thread, and from [`enable`](Self::enable) on that thread's.
pub(crate) struct CommandRing<E: EntryMarker> {
    uring: IoUring<E>,
    news: OwnedFd,
}

/// What came of a visit to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entered {
    /// There was nothing to do.
    Idle,
    /// The kernel has taken commands, or finished some.
    Done,
    /// The kernel has no memory for it at this moment: what was pushed stays where it is.
    Busy,
}

impl<E: EntryMarker> CommandRing<E> {
    /// Of so many commands at once.
    pub(crate) fn new(commands: u32) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_r_disabled().setup_clamp().setup_submit_all();
        builder.setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag();
        let uring = builder.build(commands)?;
        // The ring's own descriptor tells its poller nothing of requests that wait for this thread's entering.
        let news = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        uring.submitter().register_eventfd(news.as_raw_fd())?;
        Ok(Self { uring, news })
    }

    /// Makes it this thread's.
    pub(crate) fn enable(&self) -> io::Result<()> {
        self.uring.submitter().register_enable_rings()
    }

    /// What a task polls to wait for news.
    pub(crate) fn news(&self) -> io::Result<OwnedFd> {
        self.news.try_clone()
    }

    /// Forgets that there are news, before it is looked for them.
    pub(crate) fn clear_news(&self) {
        // One that is clear has nothing to read.
        let _ = rustix::io::read(&self.news, &mut [0; 8]);
    }

    /// Adds a command, which goes to the kernel when the ring is [entered](Self::enter).
    ///
    /// # Safety
    ///
    /// Memory that the command names stays, and no thread uses it until the command has ended.
    ///
    /// # Panics
    ///
    /// If more commands are added than the ring was made for.
    pub(crate) unsafe fn push(&mut self, command: &E) {
        // SAFETY: the caller keeps the memory.
        let pushed = unsafe { self.uring.submission().push(command) };
        pushed.expect("the ring has a place for each command");
    }

    /// Hands the kernel what was pushed, and has it finish what has come.
    pub(crate) fn enter(&mut self) -> io::Result<Entered> {
        let commands = self.uring.submission();
        let is_idle = commands.is_empty() && !commands.taskrun() && !commands.cq_overflow();
        drop(commands);
        if is_idle {
            return Ok(Entered::Idle);
        }
        match self.uring.submit().map_err(|error| (error.raw_os_error(), error)) {
            Ok(_) => Ok(Entered::Done),
            Err((Some(libc::EINTR | libc::EAGAIN | libc::EBUSY), _)) => Ok(Entered::Busy),
            Err((_, error)) => Err(error),
        }
    }

    /// The next command that has ended. None: there is none now.
    pub(crate) fn next(&mut self) -> Option<cqueue::Entry> {
        self.uring.completion().next()
    }
}

//! The system calls that a lane has under way, and the two ways to run them: the kernel's ring,
//! or a few threads where the ring is forbidden or too old.
//!
//! A [`Call`] holds plain pointers: whoever pushes it owns what they point to until its completion
//! has been reaped.

mod no_ring;
mod ring;
mod threads;

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use crate::lanes::EventFd;

pub use no_ring::{is_of_locked_memory, try_ring};
pub(crate) use ring::MEMORY_PLACES;
pub(crate) use threads::run_file;

use ring::{Entries, Ring};
use threads::{THREADS_MAX, Threads};

/// Which way a lane's system calls take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// The ring where the kernel has one that will do, else the threads.
    #[default]
    Auto,
    /// io_uring, or an error.
    Uring,
    /// `preadv` and `pwritev` on threads.
    Preadv,
    /// A ring with the fewest entries.
    #[cfg(test)]
    TinyRing,
    /// As `Preadv`, where the system gives no thread.
    #[cfg(test)]
    NoThreads,
    /// One thread a file, which reads pipes as if they had addresses.
    #[cfg(test)]
    OneThread,
}

impl IoChoice {
    /// What `MDSPACE_IO` asks for: `auto`, `uring` or `preadv`. Gives a word that is none of these back.
    pub fn from_env() -> Result<Self, String> {
        let word = std::env::var_os("MDSPACE_IO").unwrap_or_default();
        match word.to_string_lossy().as_ref() {
            "uring" => Ok(Self::Uring),
            "preadv" => Ok(Self::Preadv),
            "" | "auto" => Ok(Self::Auto),
            other => Err(other.to_owned()),
        }
    }
}

/// Names a call from its push to its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token(pub(crate) u64);

/// A file as calls name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileRef {
    pub(crate) fd: RawFd,
    /// Its place among the ring's registered files.
    pub(crate) fixed: Option<u16>,
    /// The system may wait for it where a call is made, though it is told not to.
    pub(crate) waits: bool,
}

/// One system call. Offsets and lengths are bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call {
    Read {
        file: FileRef,
        to: *mut u8,
        len: u32,
        offset: u64,
        registered: Option<u16>,
    },
    Write {
        file: FileRef,
        from: *const u8,
        len: u32,
        offset: u64,
        registered: Option<u16>,
    },
    WriteVectors {
        file: FileRef,
        from: *const libc::iovec,
        count: u32,
        offset: u64,
    },
    Sync {
        file: FileRef,
    },
    Allocate {
        file: FileRef,
        mode: i32,
        offset: u64,
        len: u64,
    },
    Accept {
        fd: RawFd,
    },
    Recv {
        fd: RawFd,
        to: *mut u8,
        len: u32,
        flags: i32,
    },
    Send {
        fd: RawFd,
        message: *const libc::msghdr,
    },
    Poll {
        fd: RawFd,
        events: i16,
    },
    /// Adds one to an eventfd.
    Signal {
        fd: RawFd,
    },
}

/// What is added to an eventfd.
static ONE: u64 = 1;

/// How a call ended: its value, or a negative errno.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    pub(crate) token: Token,
    pub(crate) result: i32,
}

/// A lane's calls under way.
#[expect(clippy::large_enum_variant, reason = "one a lane, and the ring is on the hot path")]
pub(crate) enum Queue {
    Ring(Ring),
    Threads(Threads),
}

impl Queue {
    /// The queue of the calling thread, which alone may use it. `wake` ends its sleep.
    pub(crate) fn new(choice: IoChoice, wake: Arc<EventFd>) -> io::Result<Self> {
        match choice {
            IoChoice::Uring => Ring::new(Entries::MANY, wake)
                .map(Self::Ring)
                .map_err(|error| no_ring::explained(&error)),
            IoChoice::Preadv => Ok(Self::Threads(Threads::new(THREADS_MAX, run_file, wake))),
            #[cfg(test)]
            IoChoice::TinyRing => Ring::new(Entries::FEWEST, wake).map(Self::Ring),
            #[cfg(test)]
            IoChoice::NoThreads => Ok(Self::Threads(Threads::new(0, run_file, wake))),
            #[cfg(test)]
            IoChoice::OneThread => Ok(Self::Threads(Threads::new(1, threads::run_stream, wake))),
            IoChoice::Auto => Ok(match Ring::new(Entries::MANY, wake.clone()) {
                Ok(ring) => Self::Ring(ring),
                Err(error) => {
                    let error = no_ring::explained(&error);
                    tracing::warn!("I/O of a lane goes through threads, slower: {error}");
                    Self::Threads(Threads::new(THREADS_MAX, run_file, wake))
                }
            }),
        }
    }

    /// Starts a call, at the latest with the next `flush`.
    pub(crate) fn push(&mut self, token: Token, call: Call) {
        match self {
            Self::Ring(ring) => ring.push(token, call),
            Self::Threads(threads) => threads.push(token, call),
        }
    }

    /// Asks for an early end of a call; it still completes.
    pub(crate) fn cancel(&mut self, token: Token) {
        match self {
            Self::Ring(ring) => ring.cancel(token),
            Self::Threads(threads) => threads.cancel(token),
        }
    }

    /// Whether a call has begun, as far as that can be seen.
    pub(crate) fn has_begun(&self, token: Token) -> bool {
        match self {
            // Nothing keeps one from its worker.
            Self::Ring(_) => true,
            Self::Threads(threads) => threads.has_begun(token),
        }
    }

    /// Hands what was pushed to the kernel and lets it finish what it can.
    pub(crate) fn flush(&mut self) {
        match self {
            Self::Ring(ring) => ring.flush(),
            Self::Threads(threads) => threads.flush(),
        }
    }

    /// Whether something was pushed that waits for a `flush`.
    pub(crate) fn has_unsubmitted(&mut self) -> bool {
        match self {
            Self::Ring(ring) => ring.has_unsubmitted(),
            Self::Threads(_) => false,
        }
    }

    /// Appends what has completed.
    pub(crate) fn reap(&mut self, out: &mut Vec<Completion>) {
        match self {
            Self::Ring(ring) => ring.reap(out),
            Self::Threads(threads) => threads.reap(out),
        }
    }

    /// Waits until something completes, the lane's `EventFd` is notified, or `at_most` has passed.
    pub(crate) fn sleep(&mut self, at_most: Option<Duration>) {
        match self {
            Self::Ring(ring) => ring.sleep(at_most),
            Self::Threads(threads) => threads.sleep(at_most),
        }
    }

    /// Whether a file that is taken out of the ring's table closes while calls of others are under way.
    pub(crate) fn gives_files_back(&self) -> bool {
        match self {
            Self::Ring(ring) => ring.gives_files_back,
            Self::Threads(_) => true,
        }
    }

    /// Puts a file into, or with -1 takes it out of, the ring's table. False: use the plain number.
    pub(crate) fn register_file(&mut self, place: u16, fd: RawFd) -> bool {
        match self {
            Self::Ring(ring) => ring.register_file(place, fd),
            Self::Threads(_) => false,
        }
    }

    /// Gives the kernel standing access to memory: it stays pinned until its place is given up.
    pub(crate) fn register_memory(&mut self, place: u16, memory: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Ring(ring) => ring.register_memory(place, memory),
            Self::Threads(_) => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        }
    }

    pub(crate) fn unregister_memory(&mut self, place: u16) {
        if let Self::Ring(ring) = self {
            drop(ring.register_memory(place, &mut []));
        }
    }
}

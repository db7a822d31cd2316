//! Making the connections that lanes need, many at once: a slow server takes the time of one.
//!
//! A thread makes each of them and holds no member: who waits may go away, and members close without it.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use mdspace_engine::lane::LaneId;

use super::nbd::CONNECTS_WITHIN;
use super::open::NoConnection;
use super::{Member, Nbd};

/// Connections that are made at once.
const AT_ONCE: usize = 16;

/// Between two looks whether somebody still waits for them.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A connection that a lane needs to a member.
pub(super) struct Needed {
    pub(super) member: Arc<Member>,
    pub(super) lane: LaneId,
}

/// How long so many connections to one export may take.
pub(super) fn patience(count: usize) -> Duration {
    CONNECTS_WITHIN * u32::try_from(count.div_ceil(AT_ONCE)).unwrap_or(u32::MAX)
}

/// Makes them, as long as they `are_awaited`; says whether they are. The first one that does not come ends that, if it is
/// needed by then. `tell` has lanes that are connected look at what they are asked.
pub(super) fn make(
    needed: &[Needed],
    tell: impl Fn() + Clone + Send + 'static,
    are_awaited: impl Fn() -> bool,
    is_needed: impl Fn(&Needed) -> bool,
) -> Result<bool, NoConnection> {
    let (sender, made) = channel();
    let (mut left, mut under_way) = (needed.iter().enumerate(), 0);
    loop {
        while under_way < AT_ONCE
            && let Some((at, one)) = left.next()
        {
            one.begin(at, &sender, tell.clone()).map_err(|error| one.refused(&error))?;
            under_way += 1;
        }
        if under_way == 0 {
            return Ok(true);
        }
        let (at, answer) = match made.recv_timeout(LOOK_EVERY) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) if are_awaited() => continue,
            Err(_) => return Ok(false),
        };
        under_way -= 1;
        match answer {
            Ok(socket) => needed[at].take(socket),
            Err(error) if is_needed(&needed[at]) => return Err(needed[at].refused(&error)),
            Err(_) => {}
        }
    }
}

impl Needed {
    /// Has a thread make it and give it there, under this number.
    fn begin(
        &self,
        at: usize,
        to: &Sender<(usize, io::Result<OwnedFd>)>,
        tell: impl Fn() + Send + 'static,
    ) -> io::Result<()> {
        let (connecting, to) = (self.nbd().connecting(self.member.info.sectors * 512), to.clone());
        let thread = thread::Builder::new().name("nbd-connect".into());
        // It closes again where nobody waits for it any more.
        let started = thread.spawn(move || drop(to.send((at, connecting.make(tell)))));
        started.map(drop)
    }

    /// Whether it has not come, and the member is there.
    pub(super) fn is_missing(&self) -> bool {
        self.member.lacks(self.lane) && !self.member.closing.load(Ordering::Acquire)
    }

    /// Ends it.
    pub(super) fn end(&self) {
        self.nbd().have_disconnected(self.lane);
    }

    fn take(&self, socket: OwnedFd) {
        self.nbd().add(self.lane, socket);
    }

    fn nbd(&self) -> &Nbd {
        self.member.nbd().expect("no other member lacks connections")
    }

    fn refused(&self, why: &io::Error) -> NoConnection {
        NoConnection { name: self.member.info.name.clone(), why: why.to_string() }
    }
}

//! A process at a shared address: what it tells the broker there, and the clients that it gets from that.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::address::Address;

use super::export::{Export, Exports};
use super::handover::{Begun, FromBroker, Line, Offer};

/// How long a broker may take to answer an offer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);
/// How often a broker is asked that ends meanwhile.
const TRIES: usize = 3;

/// Connects to the broker of an address, and starts that where there is none.
pub type Dial = Box<dyn Fn() -> io::Result<UnixStream> + Send + Sync>;

/// A shared address at which nothing is served yet, with a broker that runs.
pub struct SharedAddress {
    address: Address,
    dial: Dial,
    line: Line,
}

/// A process's place at a shared address, until it is dropped.
#[derive(Debug)]
pub(super) struct Membership {
    place: Mutex<Place>,
    is_lost: AtomicBool,
}

struct Place {
    address: Address,
    dial: Dial,
    line: Arc<Line>,
    /// What the broker knows.
    offered: Option<Export>,
}

impl SharedAddress {
    /// One whose broker is `connected`. When that has ended another one is found by `dial`.
    pub fn new(address: Address, connected: UnixStream, dial: Dial) -> io::Result<SharedAddress> {
        let line = Line::new(connected)?;
        Ok(SharedAddress { address, dial, line })
    }

    /// Where it is.
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Membership {
    /// Offers what is served.
    pub(super) fn begin(shared: SharedAddress, exports: &Exports) -> io::Result<Membership> {
        let SharedAddress { address, dial, line } = shared;
        let mut place = Place { address, dial, line: Arc::new(line), offered: None };
        if let Err(error) = place.offer(exports) {
            // It may have ended with another process, while nothing was offered.
            if error.kind() != io::ErrorKind::UnexpectedEof {
                return Err(error);
            }
            place.come_again(exports)?;
        }
        Ok(Membership { place: Mutex::new(place), is_lost: AtomicBool::new(false) })
    }

    /// The line over which clients come, to one thread.
    pub(super) fn line(&self) -> Arc<Line> {
        self.place().line.clone()
    }

    /// The next client. None: the broker has ended.
    pub(super) fn next(&self, line: &Line) -> Option<(OwnedFd, Begun)> {
        loop {
            match line.recv() {
                Ok(Some((FromBroker::Client(begun), Some(socket)))) => {
                    return Some((socket, begun));
                }
                // Of an offer that was made anew.
                Ok(Some((FromBroker::Taken, _))) => {}
                Ok(Some((FromBroker::Refused(why), _))) => tracing::error!("the broker: {why}"),
                Ok(Some((FromBroker::Client(_), None))) => {
                    tracing::warn!("a client came without its socket: no descriptor is left");
                }
                Ok(None) => break,
                Err(error) => {
                    tracing::warn!(%error, "the broker is lost");
                    break;
                }
            }
        }
        line.shut_down();
        self.is_lost.store(true, Ordering::Release);
        None
    }

    /// Tells the broker what has changed, and finds another one where it has ended. True: a thread is to hear that one.
    pub(super) fn keep(&self, exports: &Exports) -> io::Result<bool> {
        let mut place = self.place();
        if self.is_lost.load(Ordering::Acquire) {
            place.come_again(exports)?;
            self.is_lost.store(false, Ordering::Release);
            return Ok(true);
        }
        let export = offered(exports);
        if place.offered.as_ref() != Some(&export) {
            place.send(export)?;
        }
        Ok(false)
    }

    /// Gets no more clients.
    pub(super) fn end(&self) {
        self.place().line.shut_down();
    }

    /// A panic elsewhere leaves the place as usable as it was.
    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Offers what is served to another broker.
    fn come_again(&mut self, exports: &Exports) -> io::Result<()> {
        let mut tries = 0..TRIES;
        loop {
            self.line = Arc::new(Line::new((self.dial)()?)?);
            match self.offer(exports) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    tries.next().ok_or(error)?;
                }
                offered => return offered,
            }
        }
    }

    /// Says what is served, and waits for the answer.
    fn offer(&mut self, exports: &Exports) -> io::Result<()> {
        self.send(offered(exports)).map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => io::ErrorKind::UnexpectedEof.into(),
            _ => error,
        })?;
        self.line.wait_at_most(Some(ANSWERS_WITHIN))?;
        match self.line.recv()? {
            Some((FromBroker::Taken, _)) => self.line.wait_at_most(None),
            Some((FromBroker::Refused(why), _)) => Err(io::Error::other(why)),
            Some((FromBroker::Client(_), _)) => Err(io::Error::other("the broker is confused")),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn send(&mut self, export: Export) -> io::Result<()> {
        let address = self.address.to_string();
        self.line.send(&Offer { address, export: export.clone() }, None)?;
        self.offered = Some(export);
        Ok(())
    }
}

/// What clients may know before the process itself tells them.
fn offered(exports: &Exports) -> Export {
    let export = exports.as_slice()[0].clone();
    let read_only = export.read_only || exports.switch().is_on();
    Export { read_only, ..export }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a place at {}", self.address)
    }
}

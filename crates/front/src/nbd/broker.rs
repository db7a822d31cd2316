//! One address at which several processes serve their arrays.
//!
//! A broker takes the clients there, and tells them what is served. When one has chosen an export the process that serves
//! it gets the socket, and goes on with the handshake: no request ever goes through the broker. It ends with the last of
//! those processes. When it dies clients that have chosen notice nothing, and the processes start another one.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::address::{Address, Endpoint, Socket};
use crate::listener::{ListenError, Listener, Renewable};
use crate::peer;
use crate::rights::Rights;

use super::clients::Clients;
use super::export::{Export, Exports};
use super::handover::{Begun, FromBroker, Line, Offer};
use super::handshake::{Handshake, Step};

/// From a client's connection to its choice.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Clients that have not chosen, at the same time.
const CLIENTS_MAX: usize = 96;
/// How long a broker waits for its first process.
const BEGINS_WITHIN: Duration = Duration::from_secs(10);
/// Between two looks whether clients and processes find it.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// After the system refused a connection or a thread.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);
/// Answers to options are sent at the latest when they are so many bytes.
const ANSWER_BYTES: usize = 64 << 10;
/// Read from a client at a time: it has little to say.
const READ_BYTES: usize = 4096;

/// A broker.
#[derive(Debug)]
pub struct Broker(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    address: Address,
    /// Where clients come.
    front: Renewable,
    /// Where processes come.
    rendezvous: Renewable,
    state: Mutex<State>,
    clients: Mutex<Clients>,
    /// Ends the wait of the thread that accepts.
    news: OwnedFd,
    is_over: AtomicBool,
}

/// The processes, by the order of their arrival.
#[derive(Debug, Default)]
struct State {
    arrived: u64,
    present: BTreeMap<u64, Process>,
}

/// A process that serves an array here, or is about to.
#[derive(Debug)]
struct Process {
    line: Arc<Line>,
    serves: Option<Export>,
}

impl Broker {
    /// Listens at a shared address for clients, and at the path `rendezvous` for processes of the same user.
    pub fn bind(address: &Address, rendezvous: &Path) -> Result<Broker, ListenError> {
        let endpoint = Endpoint::Nbd(Socket::Unix(rendezvous.to_owned()));
        let rights = Rights::default();
        let place = Address { endpoint, read_only: false, shared: false, rights };
        // First: while another broker answers there the address is that one's.
        let rendezvous = Listener::bind(&place)?;
        let front = Listener::bind(address)?;
        let news = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let news = news.map_err(|error| ListenError::Io {
            front: address.clone().into(),
            source: error.into(),
        })?;
        Ok(Broker(Arc::new(Shared {
            address: address.clone(),
            front: Renewable::new(front),
            rendezvous: Renewable::new(rendezvous),
            state: Mutex::default(),
            clients: Mutex::default(),
            news,
            is_over: AtomicBool::new(false),
        })))
    }

    /// Works until the last process has gone, or none has come.
    pub fn run(&self) {
        let shared = &self.0;
        let began = Instant::now();
        while !shared.is_over() {
            if began.elapsed() >= BEGINS_WITHIN && shared.state().arrived == 0 {
                shared.end();
            }
            if let Err(error) = shared.take_those_who_come() {
                tracing::error!(%error, "the broker cannot take all who come");
                thread::sleep(REFUSED_PAUSE);
            }
        }
        // Who has ended it removes the sockets meanwhile.
        drop(shared.state());
    }
}

/// Taking clients and processes.
impl Shared {
    fn take_those_who_come(self: &Arc<Self>) -> io::Result<()> {
        let front = UnixListener::from(self.front.duplicate()?);
        let rendezvous = UnixListener::from(self.rendezvous.duplicate()?);
        let mut polled = [front.as_fd(), rendezvous.as_fd(), self.news.as_fd()]
            .map(|source| PollFd::from_borrowed_fd(source, PollFlags::IN));
        let patience = Timespec { tv_sec: LOOK_EVERY.as_secs().cast_signed(), tv_nsec: 0 };
        // A signal ends the wait early.
        let ready = poll(&mut polled, Some(&patience)).unwrap_or(0);
        if ready == 0 {
            return self.look();
        }
        let [clients, processes, _] = polled.map(|polled| !polled.revents().is_empty());
        if clients && let Some(socket) = self.accept(&front)? {
            let shared = self.clone();
            start("client", move || shared.serve_client(socket))?;
        }
        if processes && let Some(socket) = self.accept(&rendezvous)? {
            let line = Arc::new(Line::new(socket.into())?);
            let number = self.state().arrive(line.clone());
            let shared = self.clone();
            let started = start("process", move || shared.serve_process(number, &line));
            if started.is_err() {
                self.leave(number);
            }
            started?;
        }
        Ok(())
    }

    /// One who has come, of whatever family of sockets. None: gone again.
    fn accept(&self, listener: &UnixListener) -> io::Result<Option<OwnedFd>> {
        listener.set_nonblocking(true)?;
        match rustix::net::accept_with(listener, SocketFlags::CLOEXEC) {
            Ok(socket) => Ok(Some(socket)),
            Err(Errno::WOULDBLOCK | Errno::CONNABORTED | Errno::INTR) => Ok(None),
            // The listener is shut down.
            Err(_) if self.is_over() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes sockets anew whose files were deleted.
    fn look(&self) -> io::Result<()> {
        for listener in [&self.front, &self.rendezvous] {
            listener.renew(|| self.is_over()).map_err(io::Error::other)?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Takes no more. The address is free before the rendezvous: who finds no broker there starts one.
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        self.front.shut_down();
        self.rendezvous.shut_down();
        // It is never so full that one more does not fit.
        let _ = rustix::io::write(&self.news, &1_u64.to_ne_bytes());
    }

    /// A panic on one thread leaves the lists as usable as they were.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Processes.
impl Shared {
    /// Hears what a process offers, until it leaves.
    fn serve_process(&self, number: u64, line: &Line) {
        while let Ok(Some((offer, _))) = line.recv::<Offer>() {
            let verdict = match self.take(number, offer) {
                Ok(()) => FromBroker::Taken,
                Err(why) => FromBroker::Refused(why),
            };
            if line.send(&verdict, None).is_err() {
                break;
            }
        }
        self.leave(number);
    }

    /// Serves what a process offers, in place of what it has offered before.
    fn take(&self, number: u64, offer: Offer) -> Result<(), String> {
        let Offer { address, export } = offer;
        if !self.is_same(&address) {
            return Err(format!("arrays are served there with other options: {}", self.address));
        }
        let mut state = self.state();
        let mut others = state.present.iter().filter(|(other, _)| **other != number);
        if others.any(|(_, process)| process.serves_as(&export.name)) {
            return Err(format!("another array is served there as {}", export.name));
        }
        if let Some(process) = state.present.get_mut(&number) {
            process.serves = Some(export);
        }
        Ok(())
    }

    /// Whether an array wants the address as this broker has it. Each array may be read-only by itself.
    fn is_same(&self, address: &str) -> bool {
        let writable = |address: &Address| Address { read_only: false, ..address.clone() };
        Address::parse(address).is_ok_and(|other| writable(&other) == writable(&self.address))
    }

    /// A process has gone. The last one ends the broker.
    fn leave(&self, number: u64) {
        let mut state = self.state();
        state.present.remove(&number);
        if state.present.is_empty() {
            self.end();
        }
    }

    /// What is served now.
    fn exports(&self) -> Option<Exports> {
        let state = self.state();
        let served = state.present.values().filter_map(|process| process.serves.clone()).collect();
        // None is meant by a client that gives no name: which one is first changes with every start.
        Exports::new(served).ok().map(Exports::without_default)
    }

    fn line_of(&self, export: &str) -> Option<Arc<Line>> {
        let state = self.state();
        let process = state.present.values().find(|process| process.serves_as(export));
        process.map(|process| process.line.clone())
    }
}

impl State {
    fn arrive(&mut self, line: Arc<Line>) -> u64 {
        let number = self.arrived;
        self.arrived += 1;
        self.present.insert(number, Process { line, serves: None });
        number
    }
}

impl Process {
    fn serves_as(&self, name: &str) -> bool {
        self.serves.as_ref().is_some_and(|export| export.name == name)
    }
}

/// Clients.
impl Shared {
    fn serve_client(&self, socket: OwnedFd) {
        let Ok(duplicate) = socket.try_clone() else { return };
        let Some((number, _)) = self.clients().admit(duplicate, 1, CLIENTS_MAX) else { return };
        peer::prepare_tcp(&socket);
        // Of whatever family: the calls are the same.
        let chosen = self.negotiate(&UnixStream::from(socket));
        let peer = self.clients().remove(number);
        match chosen {
            Ok(Some(export)) => tracing::info!(peer, export, "a client has chosen"),
            Ok(None) => tracing::debug!(peer, "a client has left"),
            Err(error) => tracing::debug!(peer, %error, "a client is gone"),
        }
    }

    /// Tells a client what is served, and hands it over; gives the export that it has chosen.
    fn negotiate(&self, mut socket: &UnixStream) -> io::Result<Option<String>> {
        let Some(exports) = self.exports() else { return Ok(None) };
        let exports = Arc::new(exports);
        let until = Instant::now() + HANDSHAKE_WITHIN;
        let mut answers = Vec::new();
        let mut handshake = Handshake::handing_over(exports.clone(), &mut answers);
        let mut buffer = [0; READ_BYTES];
        loop {
            send(socket, &mut answers, until)?;
            socket.set_read_timeout(Some(left(until)?))?;
            let count = socket.read(&mut buffer)?;
            if count == 0 {
                return Ok(None);
            }
            let mut input = &buffer[..count];
            loop {
                match handshake.poll(&mut input, &mut answers) {
                    Step::Hungry => break,
                    Step::Answered if answers.len() < ANSWER_BYTES => {}
                    Step::Answered => send(socket, &mut answers, until)?,
                    Step::HandOver { export, mut begun } => {
                        send(socket, &mut answers, until)?;
                        begun.came.extend_from_slice(input);
                        let export = exports.as_slice()[export].name.clone();
                        self.hand_over(socket, &export, begun)?;
                        return Ok(Some(export));
                    }
                    Step::Close(_) => {
                        send(socket, &mut answers, until)?;
                        return Ok(None);
                    }
                    Step::StartTls | Step::Transmit(_) => {
                        unreachable!("a broker offers no TLS, and transmits nothing")
                    }
                }
            }
        }
    }

    /// Gives a client to the process that serves what it has chosen.
    fn hand_over(&self, socket: &UnixStream, export: &str, begun: Begun) -> io::Result<()> {
        let line = self.line_of(export).ok_or_else(|| io::Error::other("its array has gone"))?;
        // Timeouts belong to the socket, not to the descriptor.
        socket.set_read_timeout(None)?;
        socket.set_write_timeout(None)?;
        let sent = line.send(&FromBroker::Client(begun), Some(socket.as_fd()));
        // Half a message has no other half. The process comes again.
        sent.inspect_err(|_| line.shut_down())
    }
}

fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

fn send(mut socket: &UnixStream, answers: &mut Vec<u8>, until: Instant) -> io::Result<()> {
    if !answers.is_empty() {
        socket.set_write_timeout(Some(left(until)?))?;
        socket.write_all(answers)?;
        answers.clear();
    }
    Ok(())
}

/// How much of the handshake's time is left.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests;

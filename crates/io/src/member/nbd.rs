//! A member behind a network: an export of an NBD server.
//!
//! ```text
//! uri: where it is ── dial: connection and handshake, which may wait ── driver::link: requests
//!                        └─ proof: it leads to the device of the first connection
//! ```
//!
//! Each lane has a connection of its own, which is made before the lane is counted on: a lane makes none itself, and a
//! server without a place for one more fails no member. All but the first are proved to lead to the same device before
//! they serve, and once more when they begin to: a copy of the device was the same as long as nothing had been written.
//! A connection that is lost is not made again: the member is
//! gone, since what answers at the same address later may be another device. Whoever opens it again
//! gets a new member, and proves that it is the same device.

mod connections;
mod dial;
pub(crate) mod proof;
mod uri;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mdspace_engine::lane::LaneId;
use mdspace_engine::sync::Mutex;

use crate::nbd_wire::export_flag;

pub(super) use dial::{CONNECTS_WITHIN, ask};
pub(super) use uri::Server;
pub(crate) use uri::Uri;

use super::lineage::{Answer, Below, Question};
use super::place::{self, ServerPlace, SocketFile};
use super::unproved::{Moment, Owed, Record};
use connections::Connections;
pub(crate) use connections::Made;
use dial::{Asking, dial};
use proof::Questions;

/// An open export, shared by all lanes.
#[derive(Debug)]
pub(crate) struct Nbd {
    uri: Uri,
    pub(crate) export: Export,
    /// What the lock of the export is called: by where the first connection led.
    pub(super) lock_name: String,
    /// No other socket gets that name while the lock is held.
    _socket_file: Option<SocketFile>,
    connections: Connections,
    /// That writes may be under way to it; none for one that is only read.
    pub(super) record: Option<Record>,
    /// Writes that were sent over connections that are lost, and not answered.
    owed: Mutex<Vec<Owed>>,
    /// Its server is not mdspace.
    pub(super) leaf: bool,
    /// Its place among the members of this process; none for one that is only looked at.
    pub(super) below: Option<Arc<Below>>,
    /// What later connections want to know of a lane that is connected.
    pub(crate) questions: Arc<Questions>,
    /// It is lost, and another connection is to take its place.
    gives_way: AtomicBool,
}

/// What a server says of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Export {
    pub(crate) bytes: u64,
    /// Transmission flags as sent.
    flags: u16,
    /// Smallest unit of a request, in bytes.
    pub(crate) block_bytes: u32,
    /// Most bytes of one read or write.
    pub(crate) payload_bytes: u32,
}

impl Export {
    fn has(self, flag: u16) -> bool {
        self.flags & flag == flag
    }

    pub(crate) fn is_read_only(self) -> bool {
        self.has(export_flag::READ_ONLY)
    }

    pub(crate) fn is_rotational(self) -> bool {
        self.has(export_flag::ROTATIONAL)
    }

    /// One that has a flush, and perhaps durable writes.
    #[cfg(test)]
    pub(crate) fn that_flushes(forces: bool) -> Self {
        let force = if forces { export_flag::SEND_FUA } else { 0 };
        let flags = export_flag::SEND_FLUSH | force;
        Self { bytes: 1 << 20, flags, block_bytes: 512, payload_bytes: 1 << 20 }
    }

    /// One that can make zeroes too.
    #[cfg(test)]
    pub(crate) fn that_makes_zeroes(forces: bool) -> Self {
        let export = Self::that_flushes(forces);
        Self { flags: export.flags | export_flag::SEND_WRITE_ZEROES, ..export }
    }

    /// Whether a flush means something. Without, the server promises that writes need none.
    pub(crate) fn flushes(self) -> bool {
        self.has(export_flag::SEND_FLUSH)
    }

    /// Whether a write can carry its own durability.
    pub(crate) fn forces(self) -> bool {
        self.has(export_flag::SEND_FUA)
    }

    pub(crate) fn writes_zeroes(self) -> bool {
        self.has(export_flag::SEND_WRITE_ZEROES)
    }

    /// Whether a flush over one connection covers what was written over another.
    pub(crate) fn shares(self) -> bool {
        self.has(export_flag::CAN_MULTI_CONN)
    }
}

/// Why an export is not opened.
#[derive(Debug)]
pub(super) enum NotOpened {
    /// It leads to the process that opens it.
    LeadsBack,
    /// Whether it does is not known.
    Unclear(String),
    /// The system or the server refused.
    System(io::Error),
}

impl From<io::Error> for NotOpened {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

impl Nbd {
    /// Connects, and asks for the export. Waits a few seconds at most. With a question, which the server
    /// is asked first, the export may be refused by its answer.
    pub(super) fn open(uri: Uri, question: Option<Question>) -> Result<Self, NotOpened> {
        let socket_file = Self::socket_file(&uri)?;
        let mut asking = question.map(|question| Asking { question, answer: None });
        let dialled = dial(&uri, asking.as_mut(), |_, _| Ok(()));
        let leaf = asking.as_ref().is_some_and(|asking| asking.answer.is_none());
        let (socket, export) = match (dialled, asking.and_then(|asking| asking.answer)) {
            (_, Some(Answer::Yes)) => return Err(NotOpened::LeadsBack),
            (_, Some(Answer::Unclear(why))) => return Err(NotOpened::Unclear(why)),
            (dialled, _) => dialled?,
        };
        // Another socket file in the place of the one to which the connection leads would be locked
        // in its stead.
        let place = socket_file.as_ref().map(|file| file.place.clone());
        if Self::socket_file(&uri)?.map(|file| file.place) != place {
            let why = "its socket was made anew in this moment; try again";
            return Err(io::Error::other(why).into());
        }
        let place = place.map_or_else(|| ServerPlace::at_the_end_of(&socket), Ok)?;
        let lock_name = place::lock_name(&place, &uri.export);
        let questions = Arc::<Questions>::default();
        questions.connected();
        Ok(Self {
            uri,
            export,
            lock_name,
            _socket_file: socket_file,
            connections: Connections::new(socket),
            record: None,
            leaf,
            below: None,
            owed: Mutex::default(),
            questions,
            gives_way: AtomicBool::new(false),
        })
    }

    fn socket_file(uri: &Uri) -> io::Result<Option<SocketFile>> {
        match &uri.server {
            Server::Unix(path) => SocketFile::open(path)
                .map(Some)
                .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", uri.server))),
            Server::Tcp { .. } => Ok(None),
        }
    }

    /// Whether a connection is missing that a lane needs before it is counted on.
    pub(super) fn lacks(&self, lane: LaneId) -> bool {
        self.connections.lack(lane)
    }

    /// Whether a lane has a connection that may serve, and has not taken it up.
    pub(crate) fn waits_for(&self, lane: LaneId) -> bool {
        self.connections.wait_for(lane)
    }

    /// The connection that was made for a lane, once.
    pub(crate) fn take(&self, lane: LaneId) -> Option<Made> {
        self.connections.take(lane)
    }

    /// Gives back what its lane cannot take up yet.
    pub(crate) fn give_back(&self, lane: LaneId, made: Made) {
        self.connections.give_back(lane, made);
    }

    /// Notes that the server has ended a connection: the member is lost, and no lane needs another one.
    pub(crate) fn have_lost(&self) {
        self.connections.lose_one().into_iter().for_each(|lane| self.have_disconnected(lane));
    }

    /// Has lanes hang up once nothing is in flight over their connections.
    pub(super) fn give_way(&self) {
        self.gives_way.store(true, Ordering::Release);
    }

    pub(crate) fn gives_way(&self) -> bool {
        self.gives_way.load(Ordering::Acquire)
    }

    /// Notes that a lane is connected no more. Without another one nothing goes there.
    pub(crate) fn have_disconnected(&self, lane: LaneId) {
        if self.connections.end(lane) {
            self.serves_no_more();
        }
    }

    fn serves_no_more(&self) {
        if self.questions.disconnected() {
            self.below.iter().for_each(|below| below.set_in_use(false));
        }
    }

    /// For a write that is sent now.
    pub(crate) fn now(&self) -> Moment {
        self.record.as_ref().map_or_else(Moment::default, Record::now)
    }

    /// Notes a write that was sent and will not be answered.
    pub(crate) fn owe(&self, write: Owed) {
        self.owed.lock().push(write);
    }

    /// What making one more connection takes; `bytes` is what the member has.
    pub(super) fn connecting(&self, bytes: u64) -> Connecting {
        let (uri, questions) = (self.uri.clone(), self.questions.clone());
        Connecting { uri, export: self.export, bytes, questions }
    }

    /// Takes the connection that was made for a lane.
    pub(super) fn add(&self, lane: LaneId, socket: OwnedFd) {
        self.connections.add(lane, Made { socket, is_told: false });
    }

    /// Proves a connection once more, before it serves. Waits, as [`Connecting::make`].
    pub(crate) fn prove_again(
        &self,
        lane: LaneId,
        socket: OwnedFd,
        bytes: u64,
        tell: impl Fn(),
    ) -> io::Result<OwnedFd> {
        let prove = |stream: &mut dyn dial::Stream| {
            proof::prove(stream, self.export, bytes, &self.questions, &tell)
        };
        let socket = dial::go_on(socket, &self.uri, prove)?;
        // It is counted first: as soon as it is told it may be lost.
        self.may_serve();
        match self.connections.tell(lane) {
            Some(false) => Ok(socket),
            was => {
                self.serves_no_more();
                was.map(|_| socket).ok_or_else(|| io::Error::other("its lane has ended"))
            }
        }
    }

    fn may_serve(&self) {
        self.questions.connected();
        self.below.iter().for_each(|below| below.set_in_use(true));
    }
}

/// A connection to be made.
pub(super) struct Connecting {
    uri: Uri,
    export: Export,
    bytes: u64,
    questions: Arc<Questions>,
}

impl Connecting {
    /// Makes and proves it. Waits a few seconds at most, for the server and for a lane that is connected, which `tell` has
    /// look at the questions.
    pub(super) fn make(self, tell: impl Fn()) -> io::Result<OwnedFd> {
        let prove = |stream: &mut dyn dial::Stream, export| match export == self.export {
            true => proof::prove(stream, export, self.bytes, &self.questions, &tell),
            false => Err(io::Error::other("the export is not what it was")),
        };
        dial(&self.uri, None, prove).map(|(socket, _)| socket)
    }
}

impl Nbd {
    /// Says on its record what it owes, and removes that if it is nothing.
    pub(super) fn end_record(&mut self) {
        if let Some(record) = self.record.take() {
            record.end(&self.owed.lock());
        }
    }
}

impl Drop for Nbd {
    fn drop(&mut self) {
        self.end_record();
    }
}

//! What a broker and the processes that serve arrays tell each other.
//!
//! They talk over a Unix stream. A message is its length in bytes, 32 bits and big-endian, and a JSON value:
//!
//! - process to broker: an [`Offer`], and another one when that changes,
//! - broker to process ([`FromBroker`]): a word on each offer, and each client, with its socket (`SCM_RIGHTS`).

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::export::Export;
use super::handshake::ClientFlags;
use super::request::Framing;
use crate::passed;

/// The longest message in bytes. An option of 16 KiB, and what came behind it, is less as JSON.
const MESSAGE_BYTES_MAX: usize = 256 << 10;
/// How long the other end may take no message: it does nothing else for long.
const TAKES_WITHIN: Duration = Duration::from_secs(5);

/// What a process serves at a shared address.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Offer {
    /// The address as its user has written it.
    pub(super) address: String,
    pub(super) export: Export,
}

/// What a broker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FromBroker {
    /// An offer stands from now on.
    Taken,
    /// It does not, and why.
    Refused(String),
    /// A client, whose socket comes with it.
    Client(Begun),
}

/// A handshake, as far as a broker has gone through it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub(super) struct Begun {
    pub(super) client: ClientFlags,
    pub(super) framing: Framing,
    /// An export, and the numbers of the metadata contexts that were chosen for it.
    pub(super) chosen: Option<(String, Vec<u32>)>,
    /// What the client has sent that is not answered. It begins with an option.
    pub(super) came: Vec<u8>,
}

/// One end between a broker and a process.
#[derive(Debug)]
pub(super) struct Line {
    stream: UnixStream,
    /// Held for a whole message.
    sending: Mutex<()>,
}

impl Line {
    pub(super) fn new(stream: UnixStream) -> io::Result<Line> {
        stream.set_nonblocking(false)?;
        stream.set_write_timeout(Some(TAKES_WITHIN))?;
        Ok(Line { stream, sending: Mutex::default() })
    }

    /// How long a message may not come. None: as long as it takes.
    pub(super) fn wait_at_most(&self, patience: Option<Duration>) -> io::Result<()> {
        self.stream.set_read_timeout(patience)
    }

    /// Sends a message whole. After an error the line is of no more use.
    pub(super) fn send(
        &self,
        message: &impl Serialize,
        socket: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let text = serde_json::to_vec(message)?;
        let length = u32::try_from(text.len()).ok().filter(|_| text.len() <= MESSAGE_BYTES_MAX);
        let length = length.ok_or_else(|| io::Error::other("the message is too long"))?;
        let bytes = [&length.to_be_bytes()[..], &text].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut with = SendAncillaryBuffer::new(&mut space);
        let sockets = socket.map(|socket| [socket]);
        if let Some(sockets) = &sockets {
            with.push(SendAncillaryMessage::ScmRights(sockets));
        }
        let _whole = self.sending.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sent = 0;
        while sent < bytes.len() {
            let rest = [IoSlice::new(&bytes[sent..])];
            sent += retry_on_intr(|| sendmsg(&self.stream, &rest, &mut with, SendFlags::NOSIGNAL))?;
            // The socket went with the first bytes.
            with.clear();
        }
        Ok(())
    }

    /// The next message, and the socket that came with it. None: the other end is closed.
    pub(super) fn recv<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        let mut length = [0; 4];
        let mut socket = None;
        if !self.fill(&mut length, &mut socket)? {
            return Ok(None);
        }
        let length = u32::from_be_bytes(length) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a message is too long"));
        }
        let mut text = vec![0; length];
        if !self.fill(&mut text, &mut socket)? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some((serde_json::from_slice(&text)?, socket)))
    }

    /// Fills `bytes`, and keeps a socket that comes with them. False: the other end is closed, and none of them came.
    fn fill(&self, bytes: &mut [u8], socket: &mut Option<OwnedFd>) -> io::Result<bool> {
        let mut filled = 0;
        while filled < bytes.len() {
            let (count, passed) = passed::receive(&self.stream, &mut bytes[filled..])?;
            *socket = passed.or(socket.take());
            match count {
                0 if filled == 0 => return Ok(false),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        Ok(true)
    }

    /// Ends the line at both ends.
    pub(super) fn shut_down(&self) {
        // One that is over already needs no end.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

//! The bytes of one connection: as the socket has them, or through TLS.

use std::cell::RefCell;
use std::io;
use std::net::Shutdown;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use mdspace_engine::memory::Source;
use mdspace_engine::time::Time;
use mdspace_io::{LaneIo, Message, Payload, Socket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustls::ServerConfig;

use super::batch::{Batch, Piece};
use crate::tls::Records;

/// Memory for what comes enciphered: four of the longest records.
const RECEIVE_BYTES: usize = 64 << 10;
/// So many bytes are enciphered at a time, and then sent.
const SEND_BYTES: usize = 64 << 10;

/// One client's socket.
pub(super) struct Transport {
    io: LaneIo,
    socket: Socket,
    /// What another process has received, and not read.
    early: RefCell<Vec<u8>>,
    tls: RefCell<Option<Tls>>,
}

struct Tls {
    records: Records,
    /// What came with the end of the handshake, deciphered.
    early: Vec<u8>,
    /// Memory for what comes; with the kernel while it waits.
    came: Vec<u8>,
    /// The client sends no more.
    is_closed: bool,
}

impl Transport {
    /// What came `early` is received first.
    pub(super) fn new(io: LaneIo, socket: Socket, early: Vec<u8>) -> Transport {
        Transport { io, socket, early: RefCell::new(early), tls: RefCell::default() }
    }

    /// Whether payloads can be received where they belong.
    pub(super) fn is_plain(&self) -> bool {
        self.tls.borrow().is_none()
    }

    /// As [`LaneIo::recv`], into an empty buffer that has room for [`RECEIVE_BYTES`].
    pub(super) async fn recv(
        &self,
        mut buffer: Vec<u8>,
        deadline: Option<Time>,
    ) -> (io::Result<usize>, Vec<u8>) {
        if self.is_plain() {
            let early = self.early.take();
            if !early.is_empty() {
                buffer.extend_from_slice(&early);
                return (Ok(early.len()), buffer);
            }
            return self.io.recv(&self.socket, buffer, deadline).await;
        }
        let received = self.recv_deciphered(&mut buffer, deadline).await;
        (received.map(|()| buffer.len()), buffer)
    }

    async fn recv_deciphered(
        &self,
        buffer: &mut Vec<u8>,
        deadline: Option<Time>,
    ) -> io::Result<()> {
        self.with_tls(|tls| buffer.append(&mut tls.early));
        while buffer.is_empty() && !self.with_tls(|tls| tls.is_closed) {
            let mut came = self.with_tls(|tls| std::mem::take(&mut tls.came));
            came.clear();
            let received;
            (received, came) = self.io.recv(&self.socket, came, deadline).await;
            if received? == 0 {
                break;
            }
            self.with_tls(|tls| {
                let opened = tls.records.open(&came, buffer);
                tls.came = came;
                tls.is_closed = opened?;
                io::Result::Ok(())
            })?;
        }
        Ok(())
    }

    /// As [`LaneIo::recv_payload`], where it [is plain](Self::is_plain).
    pub(super) async fn recv_payload(
        &self,
        payload: &Rc<Payload>,
        range: Range<usize>,
    ) -> io::Result<()> {
        self.io.recv_payload(&self.socket, payload, range, None).await
    }

    /// Sends all of a batch. `message` is memory for it, and comes back for the next one. After an error some of it may
    /// have gone out: the stream is of no more use.
    pub(super) async fn send(
        &self,
        batch: &Batch<Rc<Payload>>,
        mut message: Message,
        deadline: Option<Time>,
    ) -> (io::Result<()>, Message) {
        if !self.is_plain() {
            return self.send_enciphered(batch, message, deadline).await;
        }
        for piece in batch.pieces() {
            match piece {
                Piece::Headers(bytes) => message.push(bytes),
                Piece::Data(data) => message.push_payload(data.clone(), 0..data.len()),
            }
        }
        self.send_message(message, deadline).await
    }

    /// Sends a message, which comes back empty.
    async fn send_message(
        &self,
        message: Message,
        deadline: Option<Time>,
    ) -> (io::Result<()>, Message) {
        let (sent, mut message) = self.io.send(&self.socket, message, deadline).await;
        message.clear();
        (sent, message)
    }

    /// However long the batch is, no more of it is enciphered at a time than a part.
    async fn send_enciphered(
        &self,
        batch: &Batch<Rc<Payload>>,
        mut message: Message,
        deadline: Option<Time>,
    ) -> (io::Result<()>, Message) {
        let mut plain = Vec::with_capacity(SEND_BYTES);
        for piece in batch.pieces() {
            let mut from = 0;
            loop {
                from += fill(&mut plain, &piece, from);
                if plain.len() < SEND_BYTES {
                    break;
                }
                let sent;
                (sent, message) = self.send_sealed(&plain, message, deadline).await;
                if sent.is_err() {
                    return (sent, message);
                }
                plain.clear();
            }
        }
        self.send_sealed(&plain, message, deadline).await
    }

    async fn send_sealed(
        &self,
        plain: &[u8],
        message: Message,
        deadline: Option<Time>,
    ) -> (io::Result<()>, Message) {
        match self.with_tls(|tls| tls.records.seal(plain)) {
            Ok(()) => self.send_outgoing(message, deadline).await,
            Err(error) => (Err(error), message),
        }
    }

    /// Sends what TLS has to say.
    async fn send_outgoing(
        &self,
        mut message: Message,
        deadline: Option<Time>,
    ) -> (io::Result<()>, Message) {
        let mut out = Vec::new();
        if let Err(error) = self.with_tls(|tls| tls.records.take_outgoing(&mut out)) {
            return (Err(error), message);
        }
        if out.is_empty() {
            return (Ok(()), message);
        }
        message.push(&out);
        self.send_message(message, deadline).await
    }

    /// Goes through the handshake of TLS, which begins with what `came` already. Nothing else is sent meanwhile. An error
    /// says why there is none; the client was told then, if it listens.
    pub(super) async fn start_tls(
        &self,
        config: Arc<ServerConfig>,
        came: &[u8],
        deadline: Option<Time>,
    ) -> io::Result<()> {
        let records = Records::new(config).map_err(io::Error::other)?;
        let mut buffer = Vec::with_capacity(RECEIVE_BYTES);
        buffer.extend_from_slice(&came[..came.len().min(RECEIVE_BYTES)]);
        if came.len() > RECEIVE_BYTES {
            return Err(io::Error::other("more than a handshake came before it began"));
        }
        let (early, came) = (Vec::new(), Vec::with_capacity(RECEIVE_BYTES));
        *self.tls.borrow_mut() = Some(Tls { records, early, came, is_closed: false });
        loop {
            let opened = self.with_tls(|tls| tls.records.open(&buffer, &mut tls.early));
            let (sent, _) = self.send_outgoing(Message::new(), deadline).await;
            let is_closed = opened?;
            sent?;
            if !self.with_tls(|tls| tls.records.is_handshaking()) {
                self.with_tls(|tls| tls.is_closed = is_closed);
                return Ok(());
            }
            buffer.clear();
            let received;
            (received, buffer) = self.io.recv(&self.socket, buffer, deadline).await;
            if received? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Tells the client that nothing more is sent. In plain there is nothing to tell.
    pub(super) async fn say_goodbye(&self, message: Message) {
        if !self.is_plain() {
            self.with_tls(|tls| tls.records.close());
            // One that does not listen any more need not hear of it.
            let _ = self.send_outgoing(message, None).await;
        }
    }

    /// Whether the client sends no more. What it sent before that may be unread.
    pub(super) fn is_hung_up(&self) -> bool {
        let mut asked = [PollFd::new(&self.socket, PollFlags::RDHUP)];
        let told = retry_on_intr(|| poll(&mut asked, Some(&Timespec::default())));
        let hung_up = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        told.is_ok() && asked[0].revents().intersects(hung_up)
    }

    pub(super) fn shut_down(&self) -> io::Result<()> {
        self.io.shutdown(&self.socket, Shutdown::Both)
    }

    /// No wait lies within: both tasks of the connection use it.
    fn with_tls<T>(&self, act: impl FnOnce(&mut Tls) -> T) -> T {
        act(self.tls.borrow_mut().as_mut().expect("what is not plain goes through TLS"))
    }
}

/// Appends a piece from byte `from` on, up to as many bytes as are sent at a time; gives how many.
fn fill(plain: &mut Vec<u8>, piece: &Piece<'_, Rc<Payload>>, from: usize) -> usize {
    let room = SEND_BYTES - plain.len();
    match piece {
        Piece::Headers(bytes) => {
            let part = &bytes[from..bytes.len().min(from + room)];
            plain.extend_from_slice(part);
            part.len()
        }
        Piece::Data(payload) => {
            let count = room.min(payload.len() - from);
            let at = plain.len();
            plain.resize(at + count, 0);
            payload.take(from, &mut plain[at..]);
            count
        }
    }
}

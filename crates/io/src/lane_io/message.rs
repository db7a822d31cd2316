//! Bytes that go out together: headers of our own and payloads in between, without copying those.

use std::ops::Range;
use std::rc::Rc;

use crate::payload::Payload;

/// The system's limit on the pieces of one send.
const PIECES_MAX: usize = 1024;

/// Many small pieces for one send. Reusable: [`clear`](Self::clear) keeps the allocations.
#[derive(Default)]
pub struct Message {
    /// All bytes that were copied in.
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
    len: usize,
}

enum Piece {
    /// A range of `bytes`.
    Bytes(Range<usize>),
    Payload(Rc<Payload>, Range<usize>),
}

impl Message {
    /// An empty message.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a copy of `bytes`.
    pub fn push(&mut self, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.len += bytes.len();
        if let Some(Piece::Bytes(last)) = self.pieces.last_mut() {
            last.end = self.bytes.len();
        } else {
            self.pieces.push(Piece::Bytes(start..self.bytes.len()));
        }
    }

    /// Appends a part of a payload, which is held until the message is sent or cleared.
    ///
    /// The kernel reads it while it sends: nothing may fill it meanwhile.
    pub fn push_payload(&mut self, payload: Rc<Payload>, range: Range<usize>) {
        assert!(range.start <= range.end && range.end <= payload.len(), "a range of the payload");
        self.len += range.len();
        self.pieces.push(Piece::Payload(payload, range));
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Empties it for the next use.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.pieces.clear();
        self.len = 0;
    }

    /// The pieces from byte `from` on, at most as many as one send takes.
    fn iovecs(&self, from: usize, out: &mut Vec<libc::iovec>) {
        out.clear();
        let mut skip = from;
        for piece in &self.pieces {
            let (at, len) = match piece {
                Piece::Bytes(range) => (self.bytes[range.clone()].as_ptr(), range.len()),
                Piece::Payload(payload, range) => (payload.at(range).cast_const(), range.len()),
            };
            if skip >= len {
                skip -= len;
                continue;
            }
            // SAFETY: `skip` is less than the length of the piece.
            let iov_base = unsafe { at.add(skip) }.cast_mut().cast();
            out.push(libc::iovec { iov_base, iov_len: len - skip });
            skip = 0;
            if out.len() == PIECES_MAX {
                return;
            }
        }
    }
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Message({} bytes, {} pieces)", self.len, self.pieces.len())
    }
}

/// A message on its way: the system's view of it, and how far it is.
pub(crate) struct Outgoing {
    pub(super) message: Message,
    sent: usize,
    iovecs: Vec<libc::iovec>,
    header: libc::msghdr,
}

impl Outgoing {
    pub(super) fn new(message: Message) -> Box<Self> {
        // SAFETY: all zeroes is an empty message header.
        let header = unsafe { std::mem::zeroed() };
        Box::new(Self { message, sent: 0, iovecs: Vec::new(), header })
    }

    /// The header of what is left; valid while `self` rests in its box unchanged.
    pub(super) fn rest(&mut self) -> *const libc::msghdr {
        self.message.iovecs(self.sent, &mut self.iovecs);
        self.header.msg_iov = self.iovecs.as_mut_ptr();
        self.header.msg_iovlen = self.iovecs.len() as _;
        &raw const self.header
    }

    /// Takes note of bytes that went out. True when all have.
    pub(super) fn sent(&mut self, bytes: usize) -> bool {
        self.sent += bytes;
        self.sent >= self.message.len
    }
}

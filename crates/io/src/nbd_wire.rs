//! NBD's numbers, and big-endian fields in and out of byte strings, for both ends of a connection.
//!
//! Names follow `doc/proto.md` of the NetworkBlockDevice project (public domain) without the `NBD_`
//! prefix, and mean what they mean there.
#![allow(missing_docs, reason = "proto.md says what they mean")]

/// `NBDMAGIC`, the first eight bytes a server sends.
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`, the server's second magic and the start of every option.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Starts every reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Starts every request of the transmission phase.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Starts a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Starts one chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// Starts every request once extended headers were agreed on.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// Starts every chunk of a reply once extended headers were agreed on.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Bytes of an option's header: magic, option, length of its data.
pub const OPTION_HEADER_BYTES: usize = 16;
/// Bytes of a request's header: magic, flags, type, cookie, offset, length.
pub const REQUEST_HEADER_BYTES: usize = 28;
/// Bytes of an extended request's header: the same, and a length of 64 bits.
pub const EXTENDED_REQUEST_HEADER_BYTES: usize = 32;
/// The longest string that the protocol allows.
pub const STRING_BYTES_MAX: usize = 4096;
/// The largest payload that clients may count on everywhere; announced as the maximum block size.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;
/// Zeroes after the reply to `EXPORT_NAME`, unless both ends agreed to leave them out.
pub const EXPORT_NAME_PADDING: usize = 124;

/// Handshake flags; the server's have 16 bits, the client's answer has 32.
pub mod handshake_flag {
    pub const FIXED_NEWSTYLE: u16 = 1 << 0;
    pub const NO_ZEROES: u16 = 1 << 1;
}

/// Options of the handshake.
pub mod option {
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    pub const INFO: u32 = 6;
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
    pub const EXTENDED_HEADERS: u32 = 11;
}

/// Types of replies to an option; errors have bit 31.
pub mod option_reply {
    pub const ACK: u32 = 1;
    pub const SERVER: u32 = 2;
    pub const INFO: u32 = 3;
    pub const META_CONTEXT: u32 = 4;
    pub const ERROR: u32 = 1 << 31;
    pub const ERR_UNSUP: u32 = ERROR | 1;
    pub const ERR_INVALID: u32 = ERROR | 3;
    pub const ERR_TLS_REQD: u32 = ERROR | 5;
    pub const ERR_UNKNOWN: u32 = ERROR | 6;
    pub const ERR_TOO_BIG: u32 = ERROR | 9;
    pub const ERR_EXT_HEADER_REQD: u32 = ERROR | 10;
}

/// Items of information in the answer to `INFO` and `GO`.
pub mod info {
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export can do.
pub mod export_flag {
    pub const HAS_FLAGS: u16 = 1 << 0;
    pub const READ_ONLY: u16 = 1 << 1;
    pub const SEND_FLUSH: u16 = 1 << 2;
    pub const SEND_FUA: u16 = 1 << 3;
    pub const ROTATIONAL: u16 = 1 << 4;
    pub const SEND_TRIM: u16 = 1 << 5;
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub const SEND_DF: u16 = 1 << 7;
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    pub const SEND_CACHE: u16 = 1 << 10;
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
    pub const BLOCK_STATUS_PAYLOAD: u16 = 1 << 12;
}

/// Types of requests.
pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    pub const DISC: u16 = 2;
    pub const FLUSH: u16 = 3;
    pub const TRIM: u16 = 4;
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a request.
pub mod command_flag {
    pub const FUA: u16 = 1 << 0;
    pub const NO_HOLE: u16 = 1 << 1;
    pub const DF: u16 = 1 << 2;
    pub const REQ_ONE: u16 = 1 << 3;
    pub const FAST_ZERO: u16 = 1 << 4;
    /// Of an extended request: its length is that of a payload which follows.
    pub const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Flags and types of structured reply chunks; error chunks have bit 15 in their type.
pub mod chunk {
    pub const FLAG_DONE: u16 = 1 << 0;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const OFFSET_HOLE: u16 = 2;
    pub const BLOCK_STATUS: u16 = 5;
    pub const BLOCK_STATUS_EXT: u16 = 6;
    pub const ERROR_BIT: u16 = 1 << 15;
    pub const ERROR: u16 = ERROR_BIT | 1;
}

/// States of an extent in `base:allocation`.
pub mod extent_state {
    pub const HOLE: u32 = 1 << 0;
    pub const ZERO: u32 = 1 << 1;
}

/// States of an extent in `mdspace:redundancy`; 0 is fully redundant. `docs/admin.md` says what they mean.
pub mod redundancy_state {
    pub const DEGRADED: u32 = 1 << 0;
    pub const REBUILDING: u32 = 1 << 1;
    pub const UNSYNCED: u32 = 1 << 2;
    pub const LOST: u32 = 1 << 3;
    pub const SINGLE: u32 = 1 << 4;
}

/// An error as it stands in a reply. The numbers are the protocol's, on every platform.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u32)]
pub enum Errno {
    /// `EPERM`: a write to a read-only export.
    NotPermitted = 1,
    /// `EIO`: the array could not do it.
    Io = 5,
    /// `ENOMEM`: no buffer could be had.
    NoMemory = 12,
    /// `EINVAL`: unknown command or flag, range or alignment wrong.
    Invalid = 22,
    /// `ENOSPC`: a write beyond the end.
    NoSpace = 28,
    /// `EOVERFLOW`: an unfragmented read larger than this server sends in one piece.
    Overflow = 75,
    /// `ENOTSUP`: zeroing would not be faster than writing zeroes.
    NotSupported = 95,
    /// `ESHUTDOWN`: the server is about to stop.
    Shutdown = 108,
}

impl Errno {
    /// The error for a number from the wire. Unknown numbers count as `EINVAL`, as proto.md asks.
    pub fn from_wire(number: u32) -> Errno {
        match number {
            1 => Errno::NotPermitted,
            5 => Errno::Io,
            12 => Errno::NoMemory,
            28 => Errno::NoSpace,
            75 => Errno::Overflow,
            95 => Errno::NotSupported,
            108 => Errno::Shutdown,
            _ => Errno::Invalid,
        }
    }
}

/// Appends big-endian fields.
pub trait Put {
    fn put_u16(&mut self, value: u16);
    fn put_u32(&mut self, value: u32);
    fn put_u64(&mut self, value: u64);
}

impl Put for Vec<u8> {
    fn put_u16(&mut self, value: u16) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend_from_slice(&value.to_be_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend_from_slice(&value.to_be_bytes());
    }
}

/// The length of something that a limit of this module keeps far below 4 GiB.
pub fn length_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("replies are limited to far less than 4 GiB")
}

/// Reads big-endian fields off the front of a byte string; `None` where it is too short.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.bytes(2).map(|b| u16::from_be_bytes(b.try_into().expect("two bytes")))
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.bytes(4).map(|b| u32::from_be_bytes(b.try_into().expect("four bytes")))
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.bytes(8).map(|b| u64::from_be_bytes(b.try_into().expect("eight bytes")))
    }

    /// A string with its 32-bit length in front.
    pub fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.u32()?;
        self.bytes(usize::try_from(length).ok()?)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Collects the next few bytes of a stream that arrives in pieces of any size.
///
/// Bytes that arrive whole are not copied.
#[derive(Debug, Default)]
pub struct Gather {
    held: Vec<u8>,
    complete: bool,
}

impl Gather {
    /// The next `need` bytes, or `None` after all of `input` was kept for the next call, which must
    /// ask for the same number.
    pub fn take<'a, 'i: 'a>(&'a mut self, input: &mut &'i [u8], need: usize) -> Option<&'a [u8]> {
        if std::mem::take(&mut self.complete) {
            self.held.clear();
        }
        if self.held.is_empty() && input.len() >= need {
            return Some(split_front(input, need));
        }
        let missing = need - self.held.len();
        let piece = split_front(input, missing.min(input.len()));
        self.held.extend_from_slice(piece);
        self.complete = self.held.len() == need;
        self.complete.then_some(&self.held[..])
    }
}

/// Takes `count` bytes, which must be there, off the front.
pub fn split_front<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (front, rest) = input.split_at(count);
    *input = rest;
    front
}

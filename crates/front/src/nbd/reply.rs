//! Replies of the transmission phase as bytes, without the payloads.

use super::context::{Context, Extent};
use super::request::{Command, Cookie, Framing, Request};
use super::wire::{
    EXTENDED_REPLY_MAGIC, Errno, Put, SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX, STRUCTURED_REPLY_MAGIC,
    chunk, length_u32,
};

/// Writes the reply to one request.
pub(super) struct Reply<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) framing: Framing,
    /// The request's.
    pub(super) cookie: Cookie,
    /// The request's; extended headers repeat it.
    pub(super) offset_bytes: u64,
}

impl Reply<'_> {
    /// Success without data. A simple reply is the shortest, and allowed where it is no read that must be
    /// answered in chunks.
    pub(super) fn done(mut self, request: &Request) {
        let in_chunks = match self.framing {
            Framing::Simple => false,
            Framing::Structured => request.command == Command::Read,
            Framing::Extended => true,
        };
        if in_chunks { self.last_chunk(chunk::NONE, 0) } else { self.simple(0) }
    }

    /// What stands before the data of a read.
    pub(super) fn data_header(mut self, request: &Request) {
        if self.framing == Framing::Simple {
            return self.simple(0);
        }
        self.last_chunk(chunk::OFFSET_DATA, 8 + length_u32(request.payload_bytes()));
        self.out.put_u64(request.offset_bytes);
    }

    /// The answer to a block status in one context, the last one or one of several.
    pub(super) fn extents(&mut self, context: Context, extents: &[Extent], is_last: bool) {
        let flags = if is_last { chunk::FLAG_DONE } else { 0 };
        let count = length_u32(extents.len());
        if self.framing == Framing::Extended {
            self.chunk(flags, chunk::BLOCK_STATUS_EXT, 8 + 16 * count);
            self.out.put_u32(context.id());
            self.out.put_u32(count);
            for extent in extents {
                self.out.put_u64(extent.length_bytes);
                self.out.put_u64(extent.status.into());
            }
            return;
        }
        self.chunk(flags, chunk::BLOCK_STATUS, 4 + 8 * count);
        self.out.put_u32(context.id());
        for extent in extents {
            let length = u32::try_from(extent.length_bytes);
            self.out.put_u32(length.expect("the request had 32 bits, and extents end with it"));
            self.out.put_u32(extent.status);
        }
    }

    /// An error; the message goes only into chunks.
    pub(super) fn error(mut self, errno: Errno, message: &str) {
        if self.framing == Framing::Simple {
            return self.simple(errno as u32);
        }
        let message = &message[..message.floor_char_boundary(STRING_BYTES_MAX)];
        self.last_chunk(chunk::ERROR, 6 + length_u32(message.len()));
        self.out.put_u32(errno as u32);
        self.out.put_u16(u16::try_from(message.len()).expect("at most 4096 bytes"));
        self.out.extend_from_slice(message.as_bytes());
    }

    fn simple(&mut self, error: u32) {
        self.out.put_u32(SIMPLE_REPLY_MAGIC);
        self.out.put_u32(error);
        self.out.put_u64(self.cookie.0);
    }

    fn last_chunk(&mut self, kind: u16, length: u32) {
        self.chunk(chunk::FLAG_DONE, kind, length);
    }

    fn chunk(&mut self, flags: u16, kind: u16, length: u32) {
        let is_extended = self.framing == Framing::Extended;
        self.out.put_u32(if is_extended { EXTENDED_REPLY_MAGIC } else { STRUCTURED_REPLY_MAGIC });
        self.out.put_u16(flags);
        self.out.put_u16(kind);
        self.out.put_u64(self.cookie.0);
        if is_extended {
            self.out.put_u64(self.offset_bytes);
            self.out.put_u64(length.into());
        } else {
            self.out.put_u32(length);
        }
    }
}

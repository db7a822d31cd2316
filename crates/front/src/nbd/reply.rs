//! Replies of the transmission phase as bytes, without the payloads.

use super::request::{Agreement, Command, Cookie, Refusal, Request};
use super::session::Extent;
use super::wire::{
    BASE_ALLOCATION_ID, Errno, Put, SIMPLE_REPLY_MAGIC, STRING_BYTES_MAX, STRUCTURED_REPLY_MAGIC,
    chunk, extent_state, length_u32,
};

/// Success without data. Only reads must be answered in chunks; a simple reply is shorter.
pub(super) fn done(out: &mut Vec<u8>, agreed: Agreement, request: &Request) {
    if agreed.structured_replies && request.command == Command::Read {
        chunk_header(out, chunk::NONE, request.cookie, 0);
    } else {
        simple(out, request.cookie, 0);
    }
}

/// What stands before the data of a read.
pub(super) fn data_header(out: &mut Vec<u8>, agreed: Agreement, request: &Request) {
    if agreed.structured_replies {
        chunk_header(out, chunk::OFFSET_DATA, request.cookie, 8 + request.length_bytes);
        out.put_u64(request.offset_bytes);
    } else {
        simple(out, request.cookie, 0);
    }
}

/// The answer to a block status.
pub(super) fn extents(out: &mut Vec<u8>, request: &Request, extents: &[Extent]) {
    let length = 4 + 8 * length_u32(extents.len());
    chunk_header(out, chunk::BLOCK_STATUS, request.cookie, length);
    out.put_u32(BASE_ALLOCATION_ID);
    for extent in extents {
        let hole = if extent.hole { extent_state::HOLE } else { 0 };
        let zero = if extent.zero { extent_state::ZERO } else { 0 };
        out.put_u32(extent.length_bytes);
        out.put_u32(hole | zero);
    }
}

/// The answer to a request that was not executed.
pub(super) fn refusal(out: &mut Vec<u8>, agreed: Agreement, cookie: Cookie, refusal: Refusal) {
    error(out, agreed, cookie, refusal.errno, refusal.message);
}

/// An error; the message goes only into structured replies.
pub(super) fn error(
    out: &mut Vec<u8>,
    agreed: Agreement,
    cookie: Cookie,
    errno: Errno,
    message: &str,
) {
    if !agreed.structured_replies {
        return simple(out, cookie, errno as u32);
    }
    let message = &message[..message.floor_char_boundary(STRING_BYTES_MAX)];
    chunk_header(out, chunk::ERROR, cookie, 6 + length_u32(message.len()));
    out.put_u32(errno as u32);
    out.put_u16(u16::try_from(message.len()).expect("at most 4096 bytes"));
    out.extend_from_slice(message.as_bytes());
}

fn simple(out: &mut Vec<u8>, cookie: Cookie, error: u32) {
    out.put_u32(SIMPLE_REPLY_MAGIC);
    out.put_u32(error);
    out.put_u64(cookie.0);
}

/// Every reply here is one chunk, so each chunk is the last.
fn chunk_header(out: &mut Vec<u8>, kind: u16, cookie: Cookie, length: u32) {
    out.put_u32(STRUCTURED_REPLY_MAGIC);
    out.put_u16(chunk::FLAG_DONE);
    out.put_u16(kind);
    out.put_u64(cookie.0);
    out.put_u32(length);
}

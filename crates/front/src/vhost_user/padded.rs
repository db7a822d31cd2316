//! Memory tables with room for more regions than they have.
//!
//! User-Mode Linux sends room for two regions whatever their number, and other servers take it. The crate takes a table
//! of the exact length alone: a longer one is taken out of the socket before it hears of it.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recv, recvmsg, send,
};

use super::memory::RegionPlace;

/// A message's header: number, flags and bytes of the body, four bytes each, little-endian.
const HEADER_BYTES: usize = 12;
/// A table: regions, padding, four bytes each. A region: address in the guest, bytes, address in the front end's process,
/// offset in the file, eight bytes each.
const TABLE_BYTES: usize = 8;
const REGION_BYTES: usize = 32;
/// Regions for which there is room.
const ROOM_MAX: usize = 8;

const SET_MEM_TABLE: u32 = 5;
/// Version 1.
const VERSION: u32 = 1;
const REPLY: u32 = 1 << 2;
const NEED_REPLY: u32 = 1 << 3;

/// A table that was taken.
#[derive(Debug)]
pub(super) struct PaddedTable {
    pub(super) regions: Vec<(RegionPlace, File)>,
    /// The front end waits for an answer, if it has agreed to answers.
    pub(super) needs_reply: bool,
}

impl PaddedTable {
    /// Takes the next message if it is such a table.
    pub(super) fn take(socket: impl AsFd) -> io::Result<Option<PaddedTable>> {
        let mut start = [0; HEADER_BYTES + TABLE_BYTES];
        let (seen, _) = recv(&socket, &mut start[..], RecvFlags::PEEK)?;
        let number = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| start[at + byte]));
        let (code, bytes, regions) = (number(0), number(8) as usize, number(12) as usize);
        let is_padded = seen == start.len()
            && code == SET_MEM_TABLE
            && regions <= ROOM_MAX
            && bytes > TABLE_BYTES + regions * REGION_BYTES
            && bytes <= TABLE_BYTES + ROOM_MAX * REGION_BYTES;
        if !is_padded {
            return Ok(None);
        }
        let mut message = vec![0; HEADER_BYTES + bytes];
        let files = receive(&socket, &mut message)?;
        let wrong = || io::Error::new(io::ErrorKind::InvalidData, "each region has one file");
        if files.len() != regions || regions == 0 {
            return Err(wrong());
        }
        let table = &message[HEADER_BYTES + TABLE_BYTES..][..regions * REGION_BYTES];
        let regions = table.chunks_exact(REGION_BYTES).map(place).zip(files).collect();
        Ok(Some(PaddedTable { regions, needs_reply: number(4) & NEED_REPLY != 0 }))
    }
}

/// Receives a whole message and its files.
fn receive(socket: impl AsFd, message: &mut [u8]) -> io::Result<Vec<File>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(ROOM_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::WAITALL;
    let length = message.len();
    let received = recvmsg(socket, &mut [IoSliceMut::new(message)], &mut ancillary, flags)?;
    let mut files = Vec::new();
    for part in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = part {
            files.extend(received.map(File::from));
        }
    }
    match received.bytes == length {
        true => Ok(files),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn place(region: &[u8]) -> RegionPlace {
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| region[at + byte]));
    RegionPlace {
        guest_address: number(0),
        bytes: number(8),
        user_address: number(16),
        file_offset: number(24),
    }
}

/// Answers a table.
pub(super) fn reply(socket: impl AsFd, is_taken: bool) -> io::Result<()> {
    let mut message = [SET_MEM_TABLE, VERSION | REPLY, 8].map(u32::to_le_bytes).concat();
    message.extend_from_slice(&u64::from(!is_taken).to_le_bytes());
    send(socket, &message, SendFlags::NOSIGNAL)?;
    Ok(())
}

//! Proving that a later connection leads to the device to which the first one does: the same address may
//! lead to another server by then, with an export of the same size.
//!
//! The thread that connects reads, over the new connection, where md keeps its superblocks. It has a lane
//! that is connected read the same, before and after. A sector that was the same both times, and is another
//! one over the new connection, is another device's. So is one whose superblock is older than it was before.

use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use mdspace_engine::backend::{IoError, IoOp, MemberId, MemberIo, Patience, ReadInto};
use mdspace_engine::lane::Lane;
use mdspace_engine::paths::{Compared, Identity};
use mdspace_engine::sync::Mutex;

use crate::nbd_wire::{
    Fields, Put, REQUEST_HEADER_BYTES, REQUEST_MAGIC, SIMPLE_REPLY_MAGIC, command, length_u32,
};

use super::Export;
use super::dial::Stream;

/// How long a proof may take, and each answer of a lane.
pub(super) const PROOF_PATIENCE: Duration = Duration::from_secs(20);

/// md's superblocks 1.1 and 1.2 lie here, and those of 1.0 and 0.90 at the end, in bytes.
const HEAD_BYTES: u64 = 8 << 10;
const TAIL_BYTES: u64 = 128 << 10;
/// A device that is written to meanwhile is looked at again.
const LOOKS: u32 = 5;
const SECTOR_BYTES: usize = 512;

/// One that waits for what a lane reads there.
pub(crate) type Asker = Sender<Vec<u8>>;

/// Who wants to know what a lane reads there.
#[derive(Debug, Default)]
pub(crate) struct Questions(Mutex<Asked>);

#[derive(Debug, Default)]
struct Asked {
    askers: Vec<Asker>,
    /// Lanes that could answer.
    connected: usize,
}

impl Questions {
    /// Asks; `tell` has the lanes look.
    fn ask(&self, tell: impl Fn()) -> io::Result<Vec<u8>> {
        let (sender, answer): (_, Receiver<Vec<u8>>) = channel();
        let mut asked = self.0.lock();
        match asked.connected {
            0 => drop(sender),
            _ => asked.askers.push(sender),
        }
        drop(asked);
        tell();
        answer.recv_timeout(PROOF_PATIENCE).map_err(|_| {
            io::Error::other("no earlier connection is left that it could be compared with")
        })
    }

    /// Those to be answered by the lane that asks for them.
    pub(crate) fn take(&self) -> Vec<Asker> {
        std::mem::take(&mut self.0.lock().askers)
    }

    /// A lane is connected.
    pub(crate) fn connected(&self) {
        self.0.lock().connected += 1;
    }

    /// A lane is connected no more. Without another one there is no answer. True: there is no other one.
    pub(crate) fn disconnected(&self) -> bool {
        let mut asked = self.0.lock();
        asked.connected -= 1;
        if asked.connected == 0 {
            asked.askers.clear();
        }
        asked.connected == 0
    }
}

/// What is compared of a device of so many bytes.
fn places(bytes: u64) -> Vec<Range<u64>> {
    let bytes = bytes / SECTOR_BYTES as u64 * SECTOR_BYTES as u64;
    if bytes <= HEAD_BYTES + TAIL_BYTES {
        return std::iter::once(0..bytes).collect();
    }
    // From a whole block on, whatever its size.
    vec![0..HEAD_BYTES, (bytes - TAIL_BYTES) / 4096 * 4096..bytes]
}

/// Reads it on a lane that is connected.
pub(crate) async fn read(lane: &Lane, member: MemberId, bytes: u64) -> Result<Vec<u8>, IoError> {
    let mut read = Vec::new();
    for place in places(bytes) {
        let len = (place.end - place.start) as usize;
        let into = ReadInto::Buffer(lane.backend().allocate(len), 0..len);
        let op = IoOp::Read { sector: place.start / SECTOR_BYTES as u64, into };
        let done = lane.io(MemberIo { member, op, patience: Patience::of(PROOF_PATIENCE) }).await;
        if let Some(buffer) = done.buffer {
            read.extend_from_slice(&buffer[..len]);
            lane.backend().recycle(buffer);
        }
        done.result?;
    }
    Ok(read)
}

/// Proves a new connection. `tell` has the lanes look at the questions.
pub(super) fn prove(
    stream: &mut dyn Stream,
    export: Export,
    bytes: u64,
    questions: &Questions,
    tell: impl Fn(),
) -> io::Result<()> {
    let (mut before, mut compared) = (questions.ask(&tell)?, Compared::Unclear);
    for _ in 0..LOOKS {
        let own = read_over(stream, export, bytes)?;
        let after = questions.ask(&tell)?;
        compared = compare(bytes, &before, &own, &after);
        if compared == Compared::Same {
            return Ok(());
        }
        before = after;
    }
    Err(io::Error::other(match compared {
        Compared::Unclear => {
            "its superblock, or each sector that could tell the device from another one, is written to all the \
             time"
        }
        Compared::Other(_) | Compared::Same => {
            "another device answers there than over the first connection"
        }
    }))
}

/// Compares what was read of [`places`] over a new connection with what a lane read before and after.
fn compare(bytes: u64, before: &[u8], own: &[u8], after: &[u8]) -> Compared {
    let identity = |mut read: &[u8]| {
        let piece = |place: Range<u64>| {
            let len = (place.end - place.start) as usize;
            let (piece, rest) = read.split_at(len.min(read.len()));
            read = rest;
            (place.start, piece)
        };
        let pieces: Vec<_> = places(bytes).into_iter().map(piece).collect();
        Identity::of_pieces(bytes / SECTOR_BYTES as u64, &pieces)
    };
    identity(own).compare(&identity(before), &identity(after))
}

fn read_over(stream: &mut dyn Stream, export: Export, bytes: u64) -> io::Result<Vec<u8>> {
    let mut read = Vec::new();
    for place in places(bytes) {
        for start in place.clone().step_by(export.payload_bytes as usize) {
            let len = (place.end - start).min(export.payload_bytes.into()) as usize;
            read.extend(read_piece(stream, start, len)?);
        }
    }
    Ok(read)
}

fn read_piece(stream: &mut dyn Stream, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut header = Vec::with_capacity(REQUEST_HEADER_BYTES);
    header.put_u32(REQUEST_MAGIC);
    header.put_u16(0);
    header.put_u16(command::READ);
    header.put_u64(offset);
    header.put_u64(offset);
    header.put_u32(length_u32(len));
    stream.write_all(&header)?;
    let mut answer = [0; 16];
    stream.read_exact(&mut answer)?;
    let mut fields = Fields(&answer);
    let (magic, errno, cookie) = (fields.u32(), fields.u32(), fields.u64());
    if magic != Some(SIMPLE_REPLY_MAGIC) || cookie != Some(offset) {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "an answer to no question"));
    }
    match errno {
        Some(0) => {}
        errno => {
            let errno = i32::try_from(errno.unwrap_or(0)).unwrap_or(libc::EINVAL);
            return Err(io::Error::from_raw_os_error(errno));
        }
    }
    let mut data = vec![0; len];
    stream.read_exact(&mut data)?;
    Ok(data)
}

#[cfg(test)]
mod tests;

//! Proving that a later connection leads to the device to which the first one does: the same address may
//! lead to another server by then, with an export of the same size.
//!
//! The thread that connects reads, over the new connection, where md keeps its superblocks. It has a lane
//! that is connected read the same, before and after. A sector that was the same both times, and is another
//! one over the new connection, is another device's. So is one whose superblock is older than it was before.
//! A block that cannot be read there is not compared: it may lie in the data of a member of another version. The
//! superblock, where there is one, is read.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use mdspace_engine::backend::{IoError, IoErrorKind, IoOp, MemberId, MemberIo, Patience, ReadInto};
use mdspace_engine::lane::Lane;
use mdspace_engine::paths::{Compared, Identity};
use mdspace_engine::sync::Mutex;

use crate::errno::io_error;
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
/// A device that is written to meanwhile is looked at again, for as long as the proof may take.
const LOOKS: u32 = 32;
const SECTOR_BYTES: usize = 512;
/// Superblocks begin on blocks of this size, and end on them.
const BLOCK_BYTES: u64 = 4096;

/// The blocks of [`places`] that can be read, each by its first byte.
pub(crate) type Blocks = BTreeMap<u64, Vec<u8>>;

/// One that waits for what a lane reads there.
pub(crate) type Asker = Sender<Blocks>;

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
    fn ask(&self, tell: impl Fn()) -> io::Result<Blocks> {
        let (sender, answer): (_, Receiver<Blocks>) = channel();
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

    pub(crate) fn are_asked(&self) -> bool {
        !self.0.lock().askers.is_empty()
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

/// The blocks of a place, of the device's own size at its end.
fn blocks_of(place: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = place.end;
    place.clone().step_by(BLOCK_BYTES as usize).map(move |at| at..end.min(at + BLOCK_BYTES))
}

fn add(read: &mut Blocks, place: &Range<u64>, bytes: &[u8]) {
    let blocks = blocks_of(place).zip(bytes.chunks(BLOCK_BYTES as usize));
    read.extend(blocks.map(|(at, block)| (at.start, block.to_vec())));
}

/// Reads it on a lane that is connected.
pub(crate) async fn read(lane: &Lane, member: MemberId, bytes: u64) -> Result<Blocks, IoError> {
    let mut read = Blocks::new();
    for place in places(bytes) {
        if read_on(lane, member, &place, &mut read).await? {
            continue;
        }
        for block in blocks_of(&place) {
            read_on(lane, member, &block, &mut read).await?;
        }
    }
    Ok(read)
}

/// Whether all of a place could be read.
async fn read_on(
    lane: &Lane,
    member: MemberId,
    place: &Range<u64>,
    read: &mut Blocks,
) -> Result<bool, IoError> {
    let len = (place.end - place.start) as usize;
    let into = ReadInto::Buffer(lane.backend().allocate(len), 0..len);
    let op = IoOp::Read { sector: place.start / SECTOR_BYTES as u64, into };
    let done = lane.io(MemberIo { member, op, patience: Patience::of(PROOF_PATIENCE) }).await;
    if let Some(buffer) = done.buffer {
        if done.result.is_ok() {
            add(read, place, &buffer[..len]);
        }
        lane.backend().recycle(buffer);
    }
    match done.result {
        Err(error) if error.kind == IoErrorKind::Medium => Ok(false),
        result => result.map(|()| true),
    }
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
             time or cannot be read"
        }
        Compared::Other(_) | Compared::Same => {
            "another device answers there than over the first connection"
        }
    }))
}

/// Compares what was read of [`places`] over a new connection with what a lane read before and after.
fn compare(bytes: u64, before: &Blocks, own: &Blocks, after: &Blocks) -> Compared {
    let by_all = |at: &u64| [before, own, after].iter().all(|read| read.contains_key(at));
    let identity = |read: &Blocks| identity(bytes, read, by_all);
    match (identity(own), identity(before), identity(after)) {
        (Some(own), Some(before), Some(after)) => own.compare(&before, &after),
        // What is left of a device without its superblock may be as blank as another one's.
        _ => Compared::Unclear,
    }
}

/// What the blocks say that count.
fn identity(bytes: u64, read: &Blocks, counts: impl Fn(&u64) -> bool) -> Option<Identity> {
    let pieces = read.iter().filter(|(at, _)| counts(at));
    let pieces: Vec<_> = pieces.map(|(at, block)| (*at, &block[..])).collect();
    Identity::of_pieces(bytes / SECTOR_BYTES as u64, &pieces)
}

fn read_over(stream: &mut dyn Stream, export: Export, bytes: u64) -> io::Result<Blocks> {
    let mut read = Blocks::new();
    for place in places(bytes) {
        if let Some(bytes) = read_place(stream, export, &place)? {
            add(&mut read, &place, &bytes);
            continue;
        }
        for block in blocks_of(&place) {
            let bytes = read_place(stream, export, &block)?;
            bytes.into_iter().for_each(|bytes| add(&mut read, &block, &bytes));
        }
    }
    Ok(read)
}

/// None: the server cannot read it.
fn read_place(
    stream: &mut dyn Stream,
    export: Export,
    place: &Range<u64>,
) -> io::Result<Option<Vec<u8>>> {
    let mut read = Vec::new();
    for start in place.clone().step_by(export.payload_bytes as usize) {
        let len = (place.end - start).min(export.payload_bytes.into()) as usize;
        let Some(piece) = read_piece(stream, start, len)? else { return Ok(None) };
        read.extend(piece);
    }
    Ok(Some(read))
}

/// None: the server cannot read it.
fn read_piece(stream: &mut dyn Stream, offset: u64, len: usize) -> io::Result<Option<Vec<u8>>> {
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
            return match io_error(errno).kind {
                IoErrorKind::Medium => Ok(None),
                _ => Err(io::Error::from_raw_os_error(errno)),
            };
        }
    }
    let mut data = vec![0; len];
    stream.read_exact(&mut data)?;
    Ok(Some(data))
}

#[cfg(test)]
mod tests;

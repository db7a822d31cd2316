//! Requests of a guest, as far as they survived every check (5.2.6).

use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

use super::chain::{BadChain, Chain, Spans};
use super::disk::{Disk, RANGE_SECTORS_MAX, SECTOR_BYTES, SERIAL_BYTES};

/// Bytes of a request's header: type 4, reserved 4, sector 8; little-endian.
const HEADER_BYTES: usize = 16;
/// Bytes of a range to discard or zero: sector 8, sectors 4, flags 4; little-endian.
const RANGE_BYTES: usize = 16;
/// The bit of a range's flags that lets a write-zeroes give up space.
const UNMAP: u32 = 1;
/// Bytes of data in one request.
pub(super) const DATA_BYTES_MAX: usize = 32 << 20;

/// Types of requests.
mod kind {
    pub(super) const IN: u32 = 0;
    pub(super) const OUT: u32 = 1;
    pub(super) const FLUSH: u32 = 4;
    pub(super) const GET_ID: u32 = 8;
    pub(super) const DISCARD: u32 = 11;
    pub(super) const WRITE_ZEROES: u32 = 13;
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

/// A request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) wanted: Wanted,
    /// Where a write's data come from, or a read's go.
    pub(super) data: Spans,
    /// Where the status goes.
    pub(super) status: GuestAddress,
}

/// What is asked for. Ranges lie on the disk, and are not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Read {
        sector: u64,
        bytes: usize,
    },
    Write {
        sector: u64,
        bytes: usize,
    },
    Flush,
    Identify,
    Discard {
        sector: u64,
        sectors: u64,
    },
    Zero {
        sector: u64,
        sectors: u64,
        /// Give up what the range takes.
        unmap: bool,
    },
    /// Nothing: the answer is known.
    Answer(Status),
}

impl Request {
    /// Reads a request from its chain.
    pub(super) fn parse(
        memory: &GuestMemoryMmap,
        chain: Chain,
        disk: &Disk,
    ) -> Result<Request, BadChain> {
        let Chain { mut readable, mut writable } = chain;
        let status = writable.pop_byte().ok_or(BadChain::NoStatus)?;
        let mut header = [0; HEADER_BYTES];
        if !take(memory, &mut readable, &mut header)? {
            let wanted = Wanted::Answer(Status::IoError);
            return Ok(Request { wanted, data: Spans::default(), status });
        }
        let number = |from: usize| u64::from_le_bytes(std::array::from_fn(|at| header[from + at]));
        // Both halves of the first number are four bytes long.
        let (kind, sector) = (number(0) as u32, number(8));
        let (wanted, data) = match kind {
            kind::IN => (read(disk, sector, &writable), writable),
            kind::OUT => (write(disk, sector, &readable), readable),
            kind::FLUSH => (Wanted::Flush, Spans::default()),
            kind::GET_ID if writable.bytes() < SERIAL_BYTES => {
                (Wanted::Answer(Status::IoError), Spans::default())
            }
            kind::GET_ID => (Wanted::Identify, writable),
            kind::DISCARD | kind::WRITE_ZEROES => {
                (change(memory, disk, kind, readable)?, Spans::default())
            }
            _ => (Wanted::Answer(Status::Unsupported), Spans::default()),
        };
        Ok(Request { wanted, data, status })
    }
}

/// Copies what stands first. False: there is less.
fn take(memory: &GuestMemoryMmap, from: &mut Spans, out: &mut [u8]) -> Result<bool, BadChain> {
    let Some(front) = from.split_off_front(out.len()) else { return Ok(false) };
    front.read(memory, out).map(|()| true).map_err(|_| BadChain::Outside)
}

fn read(disk: &Disk, sector: u64, data: &Spans) -> Wanted {
    match bytes_on(disk, sector, data) {
        Some(0) => Wanted::Answer(Status::Ok),
        Some(bytes) => Wanted::Read { sector, bytes },
        None => Wanted::Answer(Status::IoError),
    }
}

fn write(disk: &Disk, sector: u64, data: &Spans) -> Wanted {
    match bytes_on(disk, sector, data).filter(|_| !disk.is_read_only) {
        Some(0) => Wanted::Answer(Status::Ok),
        Some(bytes) => Wanted::Write { sector, bytes },
        None => Wanted::Answer(Status::IoError),
    }
}

/// The length of the data, if all of it lies on the disk in whole blocks, and one request may have so many.
fn bytes_on(disk: &Disk, sector: u64, data: &Spans) -> Option<usize> {
    let bytes = data.bytes();
    let sectors = bytes as u64 / SECTOR_BYTES;
    let is_whole = bytes <= DATA_BYTES_MAX && (bytes as u64).is_multiple_of(SECTOR_BYTES);
    (is_whole && disk.has(sector, sectors)).then_some(bytes)
}

/// A discard, or a write of zeroes, of one range.
fn change(
    memory: &GuestMemoryMmap,
    disk: &Disk,
    kind: u32,
    mut data: Spans,
) -> Result<Wanted, BadChain> {
    let mut range = [0; RANGE_BYTES];
    if data.bytes() != RANGE_BYTES || !take(memory, &mut data, &mut range)? {
        return Ok(Wanted::Answer(Status::IoError));
    }
    let half = |from: usize| u32::from_le_bytes(std::array::from_fn(|at| range[from + at]));
    let sector = u64::from(half(0)) | u64::from(half(4)) << 32;
    let (sectors, flags) = (u64::from(half(8)), half(12));
    let may_unmap = if kind == kind::WRITE_ZEROES { UNMAP } else { 0 };
    Ok(if flags & !may_unmap != 0 {
        Wanted::Answer(Status::Unsupported)
    } else if disk.is_read_only || sectors > RANGE_SECTORS_MAX.into() || !disk.has(sector, sectors)
    {
        Wanted::Answer(Status::IoError)
    } else if sectors == 0 {
        Wanted::Answer(Status::Ok)
    } else if kind == kind::DISCARD {
        Wanted::Discard { sector, sectors }
    } else {
        Wanted::Zero { sector, sectors, unmap: flags & UNMAP != 0 }
    })
}

impl Status {
    /// Writes the answer's last byte.
    pub(super) fn write(
        self,
        memory: &GuestMemoryMmap,
        at: GuestAddress,
    ) -> Result<(), vm_memory::GuestMemoryError> {
        memory.write_obj(self as u8, at)
    }
}

#[cfg(test)]
mod tests;

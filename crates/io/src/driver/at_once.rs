//! I/Os that end where they begin: of members in memory, and those that are refused.

use std::ops::Range;

use mdspace_engine::backend::{IoError, IoErrorKind, IoOp, ReadInto, WriteFrom};
use mdspace_engine::memory::{Sink, Source};

use crate::errno::io_error;
use crate::member::{Device, Kept, Member, Own, Ram};

use super::lease::payload_of_sink;
use super::{Driver, Stock};

/// Answers an I/O that needs no waiting. `None`, with nothing done: it does.
#[inline]
pub(super) fn answer(
    driver: &Driver,
    member: &Member,
    op: &mut IoOp,
) -> Option<Result<(), IoError>> {
    if let Err(error) = check(member, op) {
        return Some(Err(error));
    }
    match &member.device {
        Device::Ram(ram) => {
            serve(ram, op, &driver.stock);
            driver.ahead.fetch_some();
        }
        Device::Null(null) if null.is_immediate() => serve(null.kept(), op, &driver.stock),
        _ if matches!(op, IoOp::Flush) && !driver.flushes => {}
        Device::Null(_)
        | Device::File { .. }
        | Device::Nbd(_)
        | Device::Own(_)
        | Device::Multipath(_) => return None,
    }
    Some(Ok(()))
}

/// What a member in memory does. Lengths and places have been checked.
trait InMemory {
    /// Copies `len` bytes at `offset` to `to`.
    ///
    /// # Safety
    /// `to` has room for `len` bytes, outside the member.
    unsafe fn read(&self, offset: u64, to: *mut u8, len: usize);

    /// Takes bytes for `offset`.
    fn write(&self, offset: u64, from: &[u8]);

    /// Makes the range read as zeroes.
    fn zero(&self, offset: u64, len: u64);
}

impl InMemory for Ram {
    #[inline]
    unsafe fn read(&self, offset: u64, to: *mut u8, len: usize) {
        // SAFETY: the caller's word.
        unsafe { self.read(offset as usize, to, len) }
    }

    #[inline]
    fn write(&self, offset: u64, from: &[u8]) {
        // SAFETY: a slice is never a member's memory, of which no reference is made.
        unsafe { self.write(offset as usize, from.as_ptr(), from.len()) }
    }

    fn zero(&self, offset: u64, len: u64) {
        self.zero(offset as usize, len as usize);
    }
}

impl InMemory for Kept {
    #[inline]
    unsafe fn read(&self, offset: u64, to: *mut u8, len: usize) {
        // SAFETY: the caller's word.
        unsafe { self.read(offset, to, len) }
    }

    #[inline]
    fn write(&self, offset: u64, from: &[u8]) {
        // SAFETY: as for `Ram`.
        unsafe { self.write(offset, from.as_ptr(), from.len()) }
    }

    fn zero(&self, offset: u64, len: u64) {
        self.zero(offset, len as usize);
    }
}

#[inline]
fn serve(member: &impl InMemory, op: &mut IoOp, stock: &Stock) {
    match op {
        IoOp::Read { sector, into: ReadInto::Buffer(buffer, range) } => {
            let to = &mut buffer[range.clone()];
            // SAFETY: the room of a slice; no member's, as for `write`.
            unsafe { member.read(*sector * 512, to.as_mut_ptr(), to.len()) };
        }
        IoOp::Read { sector, into: ReadInto::Sink(sink, range) } => {
            read_into(member, *sector * 512, &**sink, range, stock);
        }
        IoOp::Write { sector, from, .. } => write(member, *sector * 512, from, stock),
        IoOp::Discard { sector, sectors } | IoOp::WriteZeroes { sector, sectors, .. } => {
            member.zero(*sector * 512, *sectors * 512);
        }
        IoOp::Flush => {}
    }
}

fn read_into(
    member: &impl InMemory,
    offset: u64,
    sink: &dyn Sink,
    range: &Range<usize>,
    stock: &Stock,
) {
    if let Some(payload) = payload_of_sink(sink) {
        let lent = payload.lend();
        // SAFETY: the payload's room for the range; it may be filled.
        unsafe { member.read(offset, payload.at_lent(lent, range), range.len()) };
        return payload.filled();
    }
    let mut bounce = stock.allocate(range.len());
    // SAFETY: the buffer's room.
    unsafe { member.read(offset, bounce.as_mut_ptr(), bounce.len()) };
    sink.put(range.start, &bounce);
    stock.recycle(bounce);
}

#[inline]
fn write(member: &impl InMemory, offset: u64, from: &WriteFrom, stock: &Stock) {
    match from {
        WriteFrom::Buffer(buffer, range) => member.write(offset, &buffer[range.clone()]),
        WriteFrom::Shared(buffer, range) => member.write(offset, &buffer[range.clone()]),
        WriteFrom::Source(source, range) => write_from(member, offset, &**source, range, stock),
        WriteFrom::Gather(parts) => {
            let mut at = offset;
            for (source, range) in parts {
                write_from(member, at, &**source, range, stock);
                at += range.len() as u64;
            }
        }
    }
}

fn write_from(
    member: &impl InMemory,
    offset: u64,
    source: &dyn Source,
    range: &Range<usize>,
    stock: &Stock,
) {
    if let Some(bytes) = source.stable() {
        return member.write(offset, &bytes[range.clone()]);
    }
    let mut bounce = stock.allocate(range.len());
    source.take(range.start, &mut bounce);
    member.write(offset, &bounce);
    stock.recycle(bounce);
}

/// What a device of the embedding program does. Lengths and places have been checked.
pub(super) fn ask(own: &Own, op: &mut IoOp, driver: &Driver) -> Result<(), IoError> {
    let fua = matches!(op, IoOp::Write { fua: true, .. } | IoOp::WriteZeroes { fua: true, .. });
    match op {
        IoOp::Read { sector, into: ReadInto::Buffer(buffer, range) } => {
            own.read(&mut buffer[range.clone()], *sector * 512)?;
        }
        IoOp::Read { sector, into: ReadInto::Sink(sink, range) } => {
            let mut read = Ok(());
            sink.fill(range.clone(), &mut |to| read = own.read(to, *sector * 512));
            read?;
        }
        IoOp::Write { sector, from, .. } => write_to_own(own, *sector * 512, from, &driver.stock)?,
        IoOp::Discard { sector, sectors } | IoOp::WriteZeroes { sector, sectors, .. } => {
            own.zero(*sector * 512, *sectors * 512)?;
        }
        IoOp::Flush => {}
    }
    match matches!(op, IoOp::Flush) || fua {
        true if driver.flushes => own.flush(),
        _ => Ok(()),
    }
}

fn write_to_own(own: &Own, offset: u64, from: &WriteFrom, stock: &Stock) -> Result<(), IoError> {
    let source = |at: u64, source: &dyn Source, range: &Range<usize>| {
        if let Some(bytes) = source.stable() {
            return own.write(&bytes[range.clone()], at);
        }
        let mut bounce = stock.allocate(range.len());
        source.take(range.start, &mut bounce);
        let written = own.write(&bounce, at);
        stock.recycle(bounce);
        written
    };
    match from {
        WriteFrom::Buffer(buffer, range) => own.write(&buffer[range.clone()], offset),
        WriteFrom::Shared(buffer, range) => own.write(&buffer[range.clone()], offset),
        WriteFrom::Source(one, range) => source(offset, &**one, range),
        WriteFrom::Gather(parts) => {
            let mut at = offset;
            for (part, range) in parts {
                source(at, &**part, range)?;
                at += range.len() as u64;
            }
            Ok(())
        }
    }
}

/// Whether the member can be asked this at all.
#[inline]
fn check(member: &Member, op: &IoOp) -> Result<(), IoError> {
    let (sector, bytes, writes) = match op {
        IoOp::Read { sector, into } => (*sector, into.len() as u64, false),
        IoOp::Write { sector, from, .. } => (*sector, from.len() as u64, true),
        IoOp::Flush => return Ok(()),
        IoOp::Discard { .. } if !member.info.discard_zeroes => {
            return Err(io_error(libc::EOPNOTSUPP));
        }
        IoOp::Discard { sector, sectors } | IoOp::WriteZeroes { sector, sectors, .. } => {
            (*sector, sectors.saturating_mul(512), true)
        }
    };
    if writes && member.read_only {
        return Err(io_error(libc::EROFS));
    }
    let end = sector.checked_mul(512).and_then(|start| start.checked_add(bytes));
    match end {
        Some(end) if end <= member.info.sectors * 512 => Ok(()),
        _ => Err(IoError { kind: IoErrorKind::Medium, errno: libc::ENODATA }),
    }
}

//! Which bytes of other devices a mapping of the kernel's device mapper is.
//!
//! Its table says so (`linux/dm-ioctl.h`). Only root may ask. Of targets that store data in an order of their
//! own (thin volumes, snapshots, caches) nothing is known here.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;

use super::super::lock::Bytes;
use super::super::mounts;

/// Where the device mapper is asked.
const CONTROL: &str = "/dev/mapper/control";
/// `DM_TABLE_STATUS`.
const TABLE_STATUS: u32 = 0xc138_fd0c;
/// `DM_STATUS_TABLE_FLAG`: what each target was made of.
const TABLE_FLAG: u32 = 1 << 4;
/// `DM_BUFFER_FULL_FLAG`: the answer has no room.
const FULL_FLAG: u32 = 1 << 8;
/// `DM_NOFLUSH_FLAG`: who asks changes nothing.
const NO_FLUSH_FLAG: u32 = 1 << 11;
/// The version of the interface that these numbers are of.
const VERSION: [u32; 3] = [4, 0, 0];
/// `struct dm_ioctl`, in bytes, and where its fields are. It begins with the version, the size of all, and
/// where the data begin.
const HEADER_BYTES: usize = 312;
const DATA_START_AT: usize = 16;
const TARGETS_AT: usize = 20;
const FLAGS_AT: usize = 28;
const DEVICE_AT: usize = 40;
/// `struct dm_target_spec`, in bytes, and where its fields are.
const TARGET_BYTES: usize = 40;
const LENGTH_AT: usize = 8;
const NEXT_AT: usize = 20;
const KIND_AT: usize = 24;
/// Room for an answer, at first and at most.
const ROOM: usize = 16 << 10;
const ROOM_MAX: usize = 4 << 20;

const SECTOR_BYTES: u64 = 512;

/// Bytes of a mapping, and the bytes of another device that they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    from: Bytes,
    pub(super) device: u64,
    at: Bytes,
    /// Byte by byte in the same order; else anywhere among them.
    in_order: bool,
}

impl Part {
    /// What these bytes of the mapping are of the other device; none if nothing.
    pub(super) fn below(&self, bytes: Bytes) -> Option<Bytes> {
        let common = bytes.common_from(self.from)?;
        Some(if self.in_order { common.within(self.at) } else { self.at })
    }
}

/// All parts of a mapping. None: they cannot be known.
pub(super) fn parts(mapping: u64) -> Option<Vec<Part>> {
    let control = OpenOptions::new().read(true).write(true).open(CONTROL).ok()?;
    // The kinds first: the table of an encrypted device has its key.
    let kinds = ask(&control, mapping, NO_FLUSH_FLAG).ok()?;
    if !kinds.iter().all(Target::is_plain) {
        return None;
    }
    let targets = ask(&control, mapping, NO_FLUSH_FLAG | TABLE_FLAG).ok()?;
    parts_of(&targets)
}

fn parts_of(targets: &[Target]) -> Option<Vec<Part>> {
    let parts = targets.iter().map(Target::parts).collect::<Option<Vec<_>>>()?;
    Some(parts.into_iter().flatten().collect())
}

/// A line of a table.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    start: u64,
    sectors: u64,
    kind: String,
    words: String,
}

impl Target {
    /// It says where its bytes are, or has none.
    fn is_plain(&self) -> bool {
        matches!(&*self.kind, "linear" | "striped" | "error" | "zero")
    }

    fn parts(&self) -> Option<Vec<Part>> {
        let from = sectors(self.start, self.sectors)?;
        let mut words = self.words.split(' ');
        let part = |words: &mut std::str::Split<'_, char>, count, in_order| {
            let device = mounts::device_number(words.next()?)?;
            let at = sectors(words.next()?.parse().ok()?, count)?;
            Some(Part { from, device, at, in_order })
        };
        match &*self.kind {
            "error" | "zero" => Some(Vec::new()),
            "linear" => Some(vec![part(&mut words, self.sectors, true)?]),
            "striped" => {
                let stripes: u64 = words.next()?.parse().ok()?;
                // The size of a chunk.
                words.next()?;
                let each = self.sectors.checked_div(stripes)?;
                (0..stripes).map(|_| part(&mut words, each, stripes == 1)).collect()
            }
            _ => None,
        }
    }
}

/// None: no sector, or beyond what an offset counts.
fn sectors(start: u64, count: u64) -> Option<Bytes> {
    let end = start.checked_add(count)?.checked_mul(SECTOR_BYTES)?;
    (count > 0 && i64::try_from(end).is_ok())
        .then(|| Bytes::new(start * SECTOR_BYTES, count * SECTOR_BYTES))
}

/// Asks what a mapping is made of.
fn ask(control: &File, mapping: u64, flags: u32) -> io::Result<Vec<Target>> {
    let mut room = ROOM;
    loop {
        let mut answer = vec![0; room];
        let mut put = |at: usize, bytes: &[u8]| answer[at..at + bytes.len()].copy_from_slice(bytes);
        let numbers = VERSION.into_iter().chain([room as u32, HEADER_BYTES as u32]);
        numbers.enumerate().for_each(|(index, number)| put(index * 4, &number.to_ne_bytes()));
        put(FLAGS_AT, &flags.to_ne_bytes());
        put(DEVICE_AT, &mapping.to_ne_bytes());
        // SAFETY: the kernel writes no more bytes than it is told that there are.
        let asked =
            unsafe { libc::ioctl(control.as_raw_fd(), TABLE_STATUS as _, answer.as_mut_ptr()) };
        if asked != 0 {
            return Err(io::Error::last_os_error());
        }
        let is_full = number(&answer, FLAGS_AT).is_none_or(|flags| flags & FULL_FLAG != 0);
        match is_full {
            true if room < ROOM_MAX => room *= 4,
            true => return Err(io::ErrorKind::OutOfMemory.into()),
            false => return parse(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Reads an answer. None: it is cut short.
fn parse(answer: &[u8]) -> Option<Vec<Target>> {
    let data = answer.get(number(answer, DATA_START_AT)? as usize..)?;
    let mut at = 0;
    let mut targets = Vec::new();
    for _ in 0..number(answer, TARGETS_AT)? {
        let target = data.get(at..)?;
        let text =
            |start| std::str::from_utf8(target.get(start..)?.split(|byte| *byte == 0).next()?).ok();
        let long = |at: usize| Some(u64::from_ne_bytes(target.get(at..at + 8)?.try_into().ok()?));
        targets.push(Target {
            start: long(0)?,
            sectors: long(LENGTH_AT)?,
            kind: text(KIND_AT)?.to_owned(),
            words: text(TARGET_BYTES)?.to_owned(),
        });
        // From the first target on.
        at = number(target, NEXT_AT)? as usize;
    }
    Some(targets)
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests;

//! What mdspace does with a case.

use std::path::PathBuf;

use super::cases::Case;
use crate::harness::{Mdspace, Nbd, Pattern, Request, SECTOR, Stream, path_text};

/// Requests that we keep in flight.
const DEPTH: usize = 16;
/// Bytes of one request when a whole array is read or written.
const WHOLE_REQUEST_BYTES: usize = 512 << 10;

/// One case on our side: its images and what the array must hold.
pub(crate) struct Ours<'a> {
    pub(crate) case: &'a Case,
    pub(crate) members: Vec<PathBuf>,
    pub(crate) spares: Vec<PathBuf>,
}

impl Ours<'_> {
    /// Makes the array, fills it with `content`, checks it, fails members and writes `more` in
    /// pieces. Returns what the array holds.
    pub(crate) fn make(&self, content: &dyn Fn(u64) -> Vec<u8>, pattern: Pattern) -> Vec<u8> {
        let (mdspace, name) = (Mdspace::new(), &*self.case.name);
        let options = self.case.options();
        let serve = mdspace.serve(name);
        let mut arguments = vec!["create", name, "--run", &serve];
        arguments.extend(options.iter().map(String::as_str));
        arguments.extend(self.members.iter().map(|path| path_text(path)));
        mdspace.succeed(&arguments);
        let mut nbd = mdspace.connect(name);
        let mut expected = content(nbd.bytes);
        write_whole(&mut nbd, &expected);
        self.check(&mdspace);
        for &slot in self.case.failed {
            mdspace.succeed(&["fail", name, path_text(&self.members[slot])]);
        }
        write_pieces(&mut nbd, &mut expected, pattern);
        assert_eq!(first_difference(&read_whole(&mut nbd), &expected), None, "{name}");
        drop(nbd);
        mdspace.succeed(&["stop", name]);
        expected
    }

    /// Assembles what md left, reads all of it, writes pieces, rebuilds what md failed, checks.
    /// Returns what the array holds.
    pub(crate) fn take_over(&self, mut expected: Vec<u8>, pattern: Pattern) -> Vec<u8> {
        let (mdspace, name) = (Mdspace::new(), &*self.case.name);
        let mut nbd = self.assemble(&mdspace, &self.members);
        assert_eq!(nbd.bytes, expected.len() as u64, "size of {name}");
        assert_eq!(first_difference(&read_whole(&mut nbd), &expected), None, "{name}");
        write_pieces(&mut nbd, &mut expected, pattern);
        for spare in &self.spares {
            mdspace.succeed(&["add", name, path_text(spare), "--run"]);
        }
        self.check(&mdspace);
        assert_eq!(first_difference(&read_whole(&mut nbd), &expected), None, "{name}");
        drop(nbd);
        mdspace.succeed(&["stop", name]);
        expected
    }

    /// Assembles what md took over, with spares in the place of what was failed, and compares.
    pub(crate) fn verify(&self, expected: &[u8]) {
        let mdspace = Mdspace::new();
        let kept = (0..self.members.len()).filter(|slot| !self.case.failed.contains(slot));
        let members: Vec<PathBuf> =
            kept.map(|slot| self.members[slot].clone()).chain(self.spares.clone()).collect();
        let mut nbd = self.assemble(&mdspace, &members);
        assert_eq!(first_difference(&read_whole(&mut nbd), expected), None, "{}", self.case.name);
        self.check(&mdspace);
        drop(nbd);
        mdspace.succeed(&["stop", &self.case.name]);
    }

    fn assemble(&self, mdspace: &Mdspace, members: &[PathBuf]) -> Nbd {
        let name = &*self.case.name;
        let serve = mdspace.serve(name);
        let mut arguments = vec!["assemble", name, &serve];
        arguments.extend(members.iter().map(|path| path_text(path)));
        mdspace.succeed(&arguments);
        mdspace.connect(name)
    }

    fn check(&self, mdspace: &Mdspace) {
        if self.case.redundant() {
            assert_eq!(mdspace.check(&self.case.name), 0, "{} differs", self.case.name);
        }
    }
}

/// Writes all of the array, `DEPTH` requests at a time.
fn write_whole(nbd: &mut Nbd, content: &[u8]) {
    let pieces = content.chunks(WHOLE_REQUEST_BYTES).zip((0_u64..).step_by(WHOLE_REQUEST_BYTES));
    for (piece, offset) in pieces {
        write_at_depth(nbd, offset, piece);
    }
    drain(nbd);
    nbd.flush();
}

/// Overwrites pieces of random place and size, and the last sector.
fn write_pieces(nbd: &mut Nbd, expected: &mut [u8], pattern: Pattern) {
    let mut random = Stream(pattern.seed);
    let sectors = (expected.len() / SECTOR) as u64;
    for index in 0..40 {
        let largest = [8, 64, 1024, 4096][index % 4];
        let count = 1 + random.below(largest);
        let first = if index == 0 { sectors - count } else { random.below(sectors - count) };
        let bytes = pattern.bytes(first, count, 2 + index as u64);
        let offset = first as usize * SECTOR;
        expected[offset..offset + bytes.len()].copy_from_slice(&bytes);
        // Overlapping writes in flight together have no order.
        drain(nbd);
        write_at_depth(nbd, offset as u64, &bytes);
    }
    drain(nbd);
    nbd.flush();
}

fn write_at_depth(nbd: &mut Nbd, offset: u64, bytes: &[u8]) {
    if nbd.in_flight() == DEPTH {
        accept(nbd);
    }
    nbd.submit(&Request::Write(offset, bytes.to_vec())).expect("the front takes a write");
}

fn drain(nbd: &mut Nbd) {
    while nbd.in_flight() > 0 {
        accept(nbd);
    }
}

fn accept(nbd: &mut Nbd) {
    let reply = nbd.receive().expect("the front answers");
    assert_eq!(reply.error, 0, "a write failed");
}

/// Reads all of the array.
fn read_whole(nbd: &mut Nbd) -> Vec<u8> {
    let mut content = Vec::new();
    while (content.len() as u64) < nbd.bytes {
        let rest = nbd.bytes - content.len() as u64;
        let bytes = rest.min(WHOLE_REQUEST_BYTES as u64);
        content.extend(nbd.read(content.len() as u64, bytes as u32));
    }
    content
}

/// The first sector that differs.
pub(crate) fn first_difference(found: &[u8], expected: &[u8]) -> Option<String> {
    if found.len() != expected.len() {
        return Some(format!("{} bytes instead of {}", found.len(), expected.len()));
    }
    let sector = found.chunks(SECTOR).zip(expected.chunks(SECTOR)).position(|(f, e)| f != e)?;
    let at = sector * SECTOR;
    Some(format!(
        "sector {sector} begins with {:02x?} instead of {:02x?}",
        &found[at..at + 16],
        &expected[at..at + 16]
    ))
}

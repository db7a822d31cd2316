//! What a member's disk would hold after a power cut: the log of dm-log-writes, replayed.
//!
//! The kernel target logs a write only once a flush (or the write's own FUA) has made it durable,
//! so the log up to a mark is the disk without its volatile cache. On disk, little-endian: at byte
//! 0 the magic, version and count of entries (u64 each) and the sector size (u32); then for each
//! entry one sector with the target's sector, the count of sectors, flags and the length of a mark
//! (u64 each, then the mark), followed by the written sectors.
//! Source: Documentation/admin-guide/device-mapper/log-writes.rst and the headers in
//! drivers/md/dm-log-writes.c.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const FLAG_DISCARD: u64 = 4;
const FLAG_MARK: u64 = 8;

/// One member's log.
pub(crate) struct WriteLog {
    file: File,
    entries: u64,
    sector_bytes: u64,
}

/// What one entry of a log did.
enum Entry {
    /// Bytes at an offset of the member.
    Write { offset: u64, data: Vec<u8> },
    /// A discarded range, in bytes.
    Discard { offset: u64, bytes: u64 },
    /// A mark that the test left.
    Mark(String),
}

impl WriteLog {
    /// Opens what a log device held.
    pub(crate) fn open(path: &Path) -> Self {
        let file = File::open(path).expect("the log exists");
        let mut head = [0; 28];
        file.read_exact_at(&mut head, 0).expect("a log has a head");
        assert_eq!(u64_at(&head, 0), MAGIC, "{} is no write log", path.display());
        assert_eq!(u64_at(&head, 8), 1, "an unknown version of the log");
        let sector_bytes = u32::from_le_bytes(head[24..28].try_into().expect("4 bytes"));
        Self { file, entries: u64_at(&head, 16), sector_bytes: sector_bytes.into() }
    }

    /// Writes to `image`, a fresh sparse file, what was durable at the mark. Panics when the mark is
    /// not in the log.
    pub(crate) fn replay(&self, mark: &str, image: &File) {
        let mut at = self.sector_bytes;
        for _ in 0..self.entries {
            let (entry, next) = self.entry(at);
            at = next;
            match entry {
                Entry::Mark(name) if name == mark => return,
                Entry::Mark(_) => {}
                Entry::Write { offset, data } => {
                    image.write_all_at(&data, offset).expect("the image takes the write");
                }
                Entry::Discard { offset, bytes } => zero(image, offset, bytes),
            }
        }
        panic!("mark {mark:?} is not among the {} entries of the log", self.entries);
    }

    /// The entry at a byte of the log, and where the next one begins.
    fn entry(&self, at: u64) -> (Entry, u64) {
        let mut head = vec![0; self.sector_bytes as usize];
        self.file.read_exact_at(&mut head, at).expect("the log is whole");
        let bytes = u64_at(&head, 8) * self.sector_bytes;
        let offset = u64_at(&head, 0) * self.sector_bytes;
        let flags = u64_at(&head, 16);
        let data_at = at + self.sector_bytes;
        if flags & FLAG_MARK != 0 {
            let mark = &head[32..32 + u64_at(&head, 24) as usize];
            let text = String::from_utf8_lossy(mark).trim_end_matches('\0').to_owned();
            return (Entry::Mark(text), data_at);
        }
        if flags & FLAG_DISCARD != 0 {
            return (Entry::Discard { offset, bytes }, data_at);
        }
        let mut data = vec![0; bytes as usize];
        match self.file.read_exact_at(&mut data, data_at) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => panic!("the log is cut off"),
            result => result.expect("the log is readable"),
        }
        (Entry::Write { offset, data }, data_at + bytes)
    }
}

fn zero(image: &File, offset: u64, bytes: u64) {
    let zeroes = vec![0; bytes as usize];
    image.write_all_at(&zeroes, offset).expect("the image takes the write");
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"))
}

//! The file of a member, and the file systems that ask somebody about it.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::thread;

use super::lock;
use super::named::Identity;
use super::seen::Seen;

/// An open file or block device. Its lock ends when it closes.
#[derive(Debug)]
pub(crate) struct MemberFile {
    file: ManuallyDrop<File>,
    identity: Identity,
    asks_server: bool,
    /// It keeps others out, and a write to it has landed when its call ends.
    has_claim: bool,
}

/// What is known of a file without a word with the server of its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileFacts {
    /// Its size.
    pub bytes: u64,
    /// Whether a name leads to it: it has not been deleted.
    pub has_name: bool,
}

impl MemberFile {
    /// Of an open file that is this one. `has_claim`: it was opened so that it keeps others out, and no page cache
    /// writes anything there later.
    pub(crate) fn new(file: File, identity: Identity, has_claim: bool) -> Self {
        let asks_server = asks_server(&file);
        Self { file: ManuallyDrop::new(file), identity, asks_server, has_claim }
    }

    /// Which file or device it is: that stays so while it is open, and nobody is asked for it again.
    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    /// Its user has let go of it, and no call that the kernel still has there is a write: whoever opens it next is to know.
    /// Without that mark some may be.
    pub(super) fn mark_writes_over(&self) {
        // Of one that keeps nobody out it would be said for somebody else.
        if self.has_claim && !self.asks_server {
            drop(lock::mark_writes_over(&self.file));
        }
    }

    /// Whether a program or another host answers for its file system, and may not: then a call waits where
    /// it is made, whatever it was told.
    pub(crate) fn asks_server(&self) -> bool {
        self.asks_server
    }

    /// None for a block device.
    pub(super) fn facts(&self) -> Option<FileFacts> {
        let seen = Seen::of(&self.file)?;
        seen.is_file.then_some(FileFacts { bytes: seen.bytes, has_name: seen.names > 0 })
    }
}

impl Deref for MemberFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for MemberFile {
    /// Who lets go of a member last may be a lane, which other members need: it waits for no server.
    fn drop(&mut self) {
        // SAFETY: it is taken once, here, and not used after.
        let file = unsafe { ManuallyDrop::take(&mut self.file) };
        let close = move || {
            lock::release(&file);
            drop(file);
        };
        match self.asks_server {
            // Where the system has no thread for it, it closes here: what `spawn` does not take is dropped.
            true => drop(thread::Builder::new().name("close".into()).spawn(close)),
            false => close(),
        }
    }
}

fn asks_server(file: &File) -> bool {
    /// `f_type` of `statfs(2)`: FUSE, NFS, CIFS, SMB2, Ceph, 9P.
    const ASKING: [i64; 6] =
        [0x6573_5546, 0x6969, 0xff53_4d42, 0xfe53_4d42, 0x00c3_6400, 0x0102_1997];
    file_system(file).is_some_and(|kind| ASKING.contains(&kind))
}

/// The kind of file system that a file is on, as `statfs(2)` numbers them.
pub(super) fn file_system(file: &File) -> Option<i64> {
    // SAFETY: all zeroes is an empty answer.
    let mut answer: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `answer` is as large as the system expects.
    let asked = unsafe { libc::fstatfs(file.as_raw_fd(), &mut answer) };
    (asked == 0).then_some(answer.f_type as i64 & 0xffff_ffff)
}

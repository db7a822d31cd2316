//! The kernel's ring. Entries have 128 bytes, so that FUSE and ublk may ride on the same ring.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::squeue::Entry128;
use io_uring::types::{CancelBuilder, Fd, Fixed, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use crate::lanes::EventFd;

use super::{Call, Completion, FileRef, ONE, Token};

type Uring = IoUring<Entry128>;

/// How many calls it takes before it enters the kernel, and how many ends it holds. More wait in line.
#[derive(Clone, Copy)]
pub(super) struct Entries {
    submissions: u32,
    completions: u32,
}

impl Entries {
    pub(super) const MANY: Self = Self { submissions: 256, completions: 4096 };
    #[cfg(test)]
    pub(super) const FEWEST: Self = Self { submissions: 1, completions: 2 };
}

/// Places in the ring's tables of files and of memory.
pub(crate) const FILE_PLACES: u16 = 1024;
pub(crate) const MEMORY_PLACES: u16 = 1024;

/// Completions of the ring's own entries.
const WAKE: u64 = u64::MAX;
const NOBODY: u64 = u64::MAX - 1;

pub(crate) struct Ring {
    uring: Uring,
    /// Entries that the submission queue had no place for.
    backlog: VecDeque<Entry128>,
    wake: Arc<EventFd>,
    wake_armed: bool,
    files: bool,
    memory: bool,
    pub(super) gives_files_back: bool,
}

impl Ring {
    pub(super) fn new(entries: Entries, wake: Arc<EventFd>) -> io::Result<Self> {
        let uring = build(entries)?;
        let params = uring.params();
        if !params.is_feature_ext_arg() || !params.is_feature_nodrop() {
            return Err(io::Error::other("this kernel's io_uring is too old"));
        }
        let files = uring.submitter().register_files(&[-1; FILE_PLACES as usize]).is_ok();
        let memory = uring.submitter().register_buffers_sparse(MEMORY_PLACES.into()).is_ok();
        // Calls of a member that hangs keep the kernel's workers: it has one more for whoever comes then. As
        // it comes, four a CPU serve all members. The kernel knows this since 5.15.
        uring.submitter().register_iowq_max_workers(&mut [entries.completions, 0])?;
        let (backlog, wake_armed, gives_files_back) = (VecDeque::new(), false, gives_files_back());
        Ok(Self { uring, backlog, wake, wake_armed, files, memory, gives_files_back })
    }

    pub(super) fn push(&mut self, token: Token, call: Call) {
        self.push_entry(entry(call, token.0));
    }

    pub(super) fn cancel(&mut self, token: Token) {
        let cancel = opcode::AsyncCancel2::new(CancelBuilder::user_data(token.0)).build();
        self.push_entry(cancel.user_data(NOBODY).into());
    }

    fn push_entry(&mut self, entry: Entry128) {
        // SAFETY: the pusher of a call keeps what its pointers name until the completion.
        if self.backlog.is_empty() && unsafe { self.uring.submission().push(&entry) }.is_ok() {
            return;
        }
        self.backlog.push_back(entry);
        self.flush();
    }

    pub(super) fn flush(&mut self) {
        loop {
            self.enter(0, None);
            let mut queue = self.uring.submission();
            if self.backlog.is_empty() || queue.is_full() {
                return;
            }
            while let Some(entry) = self.backlog.front() {
                // SAFETY: as in `push_entry`.
                if unsafe { queue.push(entry) }.is_err() {
                    break;
                }
                self.backlog.pop_front();
            }
        }
    }

    /// Enters the kernel if there is something to submit, to run or to wait for.
    fn enter(&mut self, want: usize, at_most: Option<Duration>) {
        let queue = self.uring.submission();
        if want == 0 && queue.is_empty() && !queue.taskrun() && !queue.cq_overflow() {
            return;
        }
        drop(queue);
        let entered = match at_most {
            None => self.uring.submit_and_wait(want),
            Some(span) => {
                let span = Timespec::from(span);
                let args = SubmitArgs::new().timespec(&span);
                self.uring.submitter().submit_with_args(want, &args)
            }
        };
        match entered.map_err(|error| error.raw_os_error()) {
            // EBUSY, EAGAIN: the kernel wants completions reaped first; the entries stay queued.
            Ok(_) | Err(Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN)) => {}
            Err(errno) => panic!("a ring of our own refuses to be entered: errno {errno:?}"),
        }
    }

    pub(super) fn has_unsubmitted(&mut self) -> bool {
        !self.uring.submission().is_empty()
    }

    pub(super) fn reap(&mut self, out: &mut Vec<Completion>) {
        for entry in self.uring.completion() {
            match entry.user_data() {
                NOBODY => {}
                WAKE => {
                    self.wake_armed = false;
                    self.wake.clear();
                }
                token => out.push(Completion { token: Token(token), result: entry.result() }),
            }
        }
    }

    pub(super) fn sleep(&mut self, at_most: Option<Duration>) {
        if !self.wake_armed {
            self.wake_armed = true;
            let poll = opcode::PollAdd::new(Fd(self.wake.as_raw_fd()), libc::POLLIN as u32).build();
            self.push_entry(poll.user_data(WAKE).into());
        }
        if self.uring.completion().is_empty() {
            self.enter(1, at_most);
        }
    }

    pub(super) fn register_file(&mut self, place: u16, fd: RawFd) -> bool {
        self.files
            && place < FILE_PLACES
            && self.uring.submitter().register_files_update(place.into(), &[fd]).is_ok()
    }

    pub(super) fn register_memory(&mut self, place: u16, memory: &mut [u8]) -> io::Result<()> {
        if !self.memory {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let at = if memory.is_empty() { std::ptr::null_mut() } else { memory.as_mut_ptr() };
        let iovec = libc::iovec { iov_base: at.cast(), iov_len: memory.len() };
        // SAFETY: the kernel pins the pages, so they outlive the memory's owner; they are touched
        // only by calls whose own pointer lies within the memory.
        unsafe { self.uring.submitter().register_buffers_update(place.into(), &[iovec], None) }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // The kernel takes a closed ring apart later, and would keep members open and locked until
        // then. Taken back first, they close with the member; an error means there were none.
        let submitter = self.uring.submitter();
        drop(submitter.unregister_files());
        drop(submitter.unregister_buffers());
    }
}

/// Whether this kernel lets go of each file that a ring does not need any more. Before Linux 6.13 it does so in the order in
/// which they were registered and taken back: a call that hangs keeps all files of later times.
fn gives_files_back() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    release.is_ok_and(|release| is_at_least(&release, (6, 13)))
}

/// Whether a kernel of this release is so new.
fn is_at_least(release: &str, wanted: (u32, u32)) -> bool {
    let mut numbers = release.split(|not_digit: char| !not_digit.is_ascii_digit());
    let mut number = || numbers.next()?.parse().ok();
    let known = number().and_then(|major: u32| Some((major, number()?)));
    known.is_some_and(|known| known >= wanted)
}

/// The best ring that this kernel offers: completions are run when the lane asks (6.1), or at
/// least without an interrupt of another core (5.19).
fn build(Entries { submissions, completions }: Entries) -> io::Result<Uring> {
    let common = || {
        let mut builder = Uring::builder();
        builder.dontfork().setup_cqsize(completions).setup_clamp().setup_submit_all();
        builder
    };
    common()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_taskrun_flag()
        .build(submissions)
        .or_else(|_| common().setup_coop_taskrun().setup_taskrun_flag().build(submissions))
}

fn entry(call: Call, user_data: u64) -> Entry128 {
    /// Builds for the registered place of a file, or its plain number.
    macro_rules! with_file {
        ($file:expr, |$target:ident| $build:expr) => {{
            let FileRef { fd, fixed, waits } = $file;
            let entry = match fixed {
                Some(place) => {
                    let $target = Fixed(place.into());
                    $build
                }
                None => {
                    let $target = Fd(fd);
                    $build
                }
            };
            // A thread of the kernel's makes the call then, and no lane waits.
            if waits { entry.flags(squeue::Flags::ASYNC) } else { entry }
        }};
    }
    let entry = match call {
        Call::Read { file, to, len, offset, registered: None } => {
            with_file!(file, |f| opcode::Read::new(f, to, len).offset(offset).build())
        }
        Call::Read { file, to, len, offset, registered: Some(at) } => {
            with_file!(file, |f| opcode::ReadFixed::new(f, to, len, at).offset(offset).build())
        }
        Call::Write { file, from, len, offset, registered: None } => {
            with_file!(file, |f| opcode::Write::new(f, from, len).offset(offset).build())
        }
        Call::Write { file, from, len, offset, registered: Some(at) } => {
            with_file!(file, |f| {
                opcode::WriteFixed::new(f, from, len, at).offset(offset).build()
            })
        }
        Call::WriteVectors { file, from, count, offset } => {
            with_file!(file, |f| opcode::Writev::new(f, from, count).offset(offset).build())
        }
        Call::Sync { file } => {
            with_file!(file, |f| opcode::Fsync::new(f).flags(FsyncFlags::DATASYNC).build())
        }
        Call::Allocate { file, mode, offset, len } => {
            with_file!(file, |f| opcode::Fallocate::new(f, len).offset(offset).mode(mode).build())
        }
        Call::Accept { fd } => {
            opcode::Accept::new(Fd(fd), std::ptr::null_mut(), std::ptr::null_mut())
                .flags(libc::SOCK_CLOEXEC)
                .build()
        }
        Call::Recv { fd, to, len, flags } => {
            opcode::Recv::new(Fd(fd), to, len).flags(flags).build()
        }
        Call::Send { fd, message } => {
            opcode::SendMsg::new(Fd(fd), message).flags(libc::MSG_NOSIGNAL as u32).build()
        }
        Call::Poll { fd, events } => opcode::PollAdd::new(Fd(fd), events as u16 as u32).build(),
        Call::Signal { fd } => {
            opcode::Write::new(Fd(fd), (&raw const ONE).cast(), size_of_val(&ONE) as u32)
                // As `write` does: an eventfd has no offsets.
                .offset(u64::MAX)
                .build()
        }
    };
    entry.user_data(user_data).into()
}

#[cfg(test)]
mod tests;

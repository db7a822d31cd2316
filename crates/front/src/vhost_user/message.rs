//! Messages as they arrive. The crate waits for the end of one that has begun, and hears no other client meanwhile.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};

/// Bytes of a header: request 4, flags 4, bytes of the body 4; little-endian.
const HEADER_BYTES: usize = 12;
const BODY_BYTES_AT: usize = 8;
/// The crate takes no longer bodies, and says so.
const BODY_BYTES_MAX: u64 = 0x1000;

/// Whether the crate has nothing to wait for: a whole message is there, a wrong one, or nothing will come any more.
pub(super) fn is_whole(socket: impl AsFd) -> bool {
    let mut header = [0; HEADER_BYTES];
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let seen = recv(&socket, &mut header[..], flags).map_or(0, |(seen, _)| seen);
    let there = rustix::io::ioctl_fionread(&socket).unwrap_or(0);
    let bytes: [u8; 4] = std::array::from_fn(|at| header[BODY_BYTES_AT + at]);
    let body = u64::from(u32::from_le_bytes(bytes));
    let is_there = match seen == HEADER_BYTES {
        true => body > BODY_BYTES_MAX || there >= HEADER_BYTES as u64 + body,
        // A look ends where descriptors came with what was seen.
        false => there >= HEADER_BYTES as u64,
    };
    is_there || has_hung_up(&socket)
}

fn has_hung_up(socket: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&socket, PollFlags::RDHUP)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    // What cannot be asked is left to the crate.
    poll(&mut polled, Some(&at_once)).is_err() || !polled[0].revents().is_empty()
}

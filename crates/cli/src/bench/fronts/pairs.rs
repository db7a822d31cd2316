//! Which front is compared with which server, and what is asked of it.

use serde::Serialize;

use crate::args::FrontWord;

use super::servers::{Host, Served, Way};

/// A front and its rival.
pub(super) struct Pair {
    /// Names it on the command line.
    pub(super) word: FrontWord,
    pub(super) front: &'static str,
    pub(super) rival: &'static str,
    pub(super) ours: fn(&Host) -> Result<Served, String>,
    pub(super) theirs: fn(&Host) -> Result<Served, String>,
    pub(super) depth: u32,
    pub(super) read: Option<Goal>,
    pub(super) write: Option<Goal>,
    /// What bounds our figure.
    pub(super) bound: &'static str,
}

/// How many times as fast as the rival it must be, and should be.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Goal {
    pub(super) floor: f64,
    pub(super) aim: f64,
}

const fn goal(floor: f64, aim: f64) -> Option<Goal> {
    Some(Goal { floor, aim })
}

pub(super) const PAIRS: &[Pair] = &[
    Pair {
        word: FrontWord::Nbd,
        front: "NBD, one connection",
        rival: "nbdkit memory",
        ours: Served::nbd,
        theirs: Served::nbdkit,
        depth: 32,
        read: goal(1.1, 2.0),
        write: goal(1.3, 2.0),
        bound: "not looked into",
    },
    Pair {
        word: FrontWord::Fuse,
        front: "FUSE file",
        rival: "fuser, 2 threads",
        ours: |host| Served::fuse(host, Way::Ring),
        theirs: Served::fuser,
        depth: 32,
        read: goal(3.0, 4.0),
        write: goal(3.0, 4.0),
        bound: "the kernel's part of a request",
    },
    Pair {
        word: FrontWord::Fuse,
        front: "FUSE file without io_uring",
        rival: "fuser, 2 threads",
        ours: |host| Served::fuse(host, Way::Device),
        theirs: Served::fuser,
        depth: 32,
        read: None,
        write: None,
        bound: "system calls: two a request",
    },
    Pair {
        word: FrontWord::Loop,
        front: "loop",
        rival: "loop on fuser",
        ours: |host| Served::loop_device(host, Way::Ring),
        theirs: Served::loop_on_fuser,
        depth: 32,
        read: goal(3.0, 5.0),
        write: goal(3.0, 5.0),
        bound: "not looked into",
    },
    Pair {
        word: FrontWord::Loop,
        front: "loop without io_uring",
        rival: "loop on fuser",
        ours: |host| Served::loop_device(host, Way::Device),
        theirs: Served::loop_on_fuser,
        depth: 32,
        read: None,
        write: None,
        bound: "system calls: two a request",
    },
    Pair {
        word: FrontWord::VhostUser,
        front: "vhost-user-blk, one queue",
        rival: "qemu-storage-daemon, memory",
        ours: |host| Served::vhost_user(host, "ram"),
        theirs: Served::storage_daemon_of_memory,
        depth: 128,
        read: goal(2.5, 4.5),
        write: goal(2.5, 4.5),
        bound: "one lane: chains, a copy, the array",
    },
    Pair {
        word: FrontWord::VhostUser,
        front: "vhost-user-blk of zeroes",
        rival: "qemu-storage-daemon null-co",
        ours: |host| Served::vhost_user(host, "null"),
        theirs: Served::storage_daemon_of_zeroes,
        depth: 128,
        read: goal(2.5, 4.5),
        write: goal(2.5, 4.5),
        bound: "one lane: chains, a copy, the array",
    },
];

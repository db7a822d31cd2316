//! The real backend: lanes on threads, one io_uring each, members that are files, block devices or
//! memory, and sockets for the front ends.
//!
//! ```text
//! Lanes ── run: one thread's loop ── Driver (engine's Backend) ── Queue ─┬─ Ring (io_uring)
//!                                      │   LaneIo (sockets)              └─ Threads (preadv)
//!                                      └── MemberTable (open members, shared)
//! ```
//!
//! `MDSPACE_IO=auto|uring|preadv` chooses the queue. `MDSPACE_TEST_NO_FLUSH=1` turns flushes and FUA
//! into nothing, not in releases: the negative control of tests that cut the power.

mod clock;
mod driver;
mod errno;
pub mod inherited;
mod lane_io;
mod lanes;
mod member;
pub mod nbd_wire;
mod payload;
mod prefetch;
mod queue;
mod running;
mod workers;

pub use clock::now;
pub use lane_io::{LaneIo, Message, Socket};
pub use lanes::{Lanes, LanesConfig, LocalLane, StartError, StillBusy, Topology, is_lane_thread};
pub use member::{
    FileFacts, Identity, KeyHelp, Lineage, LineageAnswer, LoopInfo, MemberTable, MountLine,
    MultipathSpec, NoConnection, NotConnected, OneConnection, OpenError, OpenMode, OwnDevice,
    ServerPlace, UnprovedWrites, abstract_name, are_twins, check_name, claimed_by, devices_on,
    is_remote, lies_on, name_of_path, null_keys, null_presets, open_to_look, path_of_name,
    read_file, read_text, stands_on,
};
pub use payload::Payload;
pub use prefetch::Ahead;
pub use queue::{IoChoice, is_of_locked_memory, try_ring};
pub use running::{AssembleError, RunningArray};
pub use workers::{SetError, WorkerCounts};

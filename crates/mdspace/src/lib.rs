//! Linux software RAID (md) in your own program: RAID 0, 1, 4, 5, 6, 10 and linear, on files, block devices, memory, and
//! devices of your own. What lies on the members is md's format: `mdspace`, `mdadm` and the kernel's md take them as well.
//!
//! ```
//! use mdspace::{Array, Level};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let disks = ["a", "b", "c", "d"].map(|name| folder.path().join(name));
//! for disk in &disks {
//!     std::fs::File::create(disk)?.set_len(64 << 20)?;
//! }
//! let array = Array::create("data", Level::Raid6).members(&disks).assume_clean(true).start()?;
//! array.write_at(&[7; 4096], 8192)?;
//! array.flush()?;
//! array.stop()?;
//!
//! // Two disks are lost, and RAID6 bears that.
//! let array = Array::assemble(&disks[2..]).allow_degraded(true).start()?;
//! let mut bytes = [0; 4096];
//! array.read_at(&mut bytes, 8192)?;
//! assert_eq!(bytes, [7; 4096]);
//! array.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Where to start
//!
//! [`Array`] is the one type to know. [`Array::create`] and [`Array::assemble`] say what is wanted and
//! [`start`](Create::start) it; [`Array::in_memory`] is an array for tests, without files. An `Array` is shared by
//! reference or in an `Arc`: any number of threads read and write at the same time.
//!
//! | you have | use |
//! |---|---|
//! | threads | [`read_at`](Array::read_at), [`write_at`](Array::write_at), [`flush`](Array::flush): they block |
//! | an executor, whichever it is | [`read_async`](Array::read_async), [`write_async`](Array::write_async), [`flush_async`](Array::flush_async): `Send` futures |
//! | work that is to run where the I/O runs | [`on_lane`](Array::on_lane): no hand-over between threads, no `Send` |
//! | disks that no file and no block device are | [`OwnDevice`], as [`Member::own`] |
//! | clients over NBD | `mdspace-front`, with [`Array::with_running`]; `examples/serve_own_device.rs` does it |
//!
//! Two programs stand in `examples/`: `copy_out.rs` assembles an array from files without writing to them, and copies it
//! out; `serve_own_device.rs` keeps members in a device type of its own, and serves the array over NBD.
//!
//! # What is durable
//!
//! A write that was answered is read by everyone from then on, and survives a crash of this process. It survives a power
//! cut when a [`flush`](Array::flush) that began after its answer has ended. Writes that are under way at a crash or a
//! power cut are old or new, sector by sector.
//!
//! # Stop, drop and crash
//!
//! [`Array::stop`] waits for what is under way, makes everything durable and marks the members clean. An array that is
//! dropped without it ends as in a crash, and the log says so at `WARN`: the members stay marked as in use, and the next
//! assembly resyncs what the bitmap marks. What was acknowledged is there. On RAID 4, 5 and 6, do not rely on it while a
//! member is missing: such an array is dirty and degraded then, and [`Assemble::force`] alone starts it. A process
//! that is killed leaves the same.
//!
//! A panic of yours ends no lane: not in a task of [`on_lane`](Array::on_lane), and not in an [`OwnDevice`], whose
//! member fails. With `panic = "abort"` each of them ends the process, as any other.
//!
//! # What this crate leaves to the program `mdspace`
//!
//! Members behind a network or several paths: their late writes are kept on record across restarts, by that program.
//! Looking at what lies on a disk: [`Create::start`] refuses a member whose first or last MiB holds a byte that is not
//! zero, and recognises nothing. Deciding between halves of an array that ran apart. Configurations, spares that arrays
//! share, and watching files that somebody cuts shorter while no one reads them.
#![forbid(unsafe_code)]

mod answer;
mod array;
mod assemble;
mod create;
mod error;
mod held;
mod lane;
mod member;
mod opened;
mod pieces;
mod requests;
mod shared;

pub use answer::Answer;
pub use array::Array;
pub use assemble::Assemble;
pub use create::Create;
pub use error::Error;
pub use lane::Part;
pub use member::Member;

pub use mdspace_engine::assembly::{LeftOut, Reason, Refusal};
pub use mdspace_engine::create::CreateError;
pub use mdspace_engine::status;
pub use mdspace_format::{Level, MetadataVersion, Uuid, layout};
pub use mdspace_io::{OpenError, OwnDevice};

/// What lanes run, for those who go below [`Part`].
pub mod low {
    pub use mdspace_engine::array::{Action, ArrayLane, CommandError, Reply};
    pub use mdspace_engine::lane::{Lane, LaneId};
    pub use mdspace_engine::memory::{Sink, Source};
    pub use mdspace_engine::request::{Completion, Queue, Request, RequestError};
    pub use mdspace_io::{LaneIo, Payload, RunningArray};
}

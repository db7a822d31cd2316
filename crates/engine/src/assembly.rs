//! From devices to an array: what belongs together, what is fresh, and whether it may start.
//!
//! [`read`] looks at one device; [`decide`] is pure and refuses whatever it cannot prove to be safe.

mod blocks;
mod decide;
mod read;

pub(crate) use blocks::{array_block_bytes, larger_block, misfit};
pub use decide::{Assembly, Decided, LeftOut, Options, Reason, Refusal, decide, missing_members};
pub use read::{Candidate, FoundBitmap, ReadError, read, read_all, read_counting, read_superblock};

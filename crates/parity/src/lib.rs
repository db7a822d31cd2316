//! XOR, P+Q and recovery for md's RAID4/5/6.
//!
//! Each operation is written once, over a vector of bytes, and instantiated per instruction set. [`kernels`] gives the best set that this CPU has; [`Kernels::for_isa`] gives a
//! named one, and `scalar` is the oracle that the others are tested against.
//!
//! ```
//! let data: [&[u8]; 3] = [&[1; 512], &[2; 512], &[3; 512]];
//! let (mut p, mut q) = ([0; 512], [0; 512]);
//! mdspace_parity::kernels().pq(&data, &mut p, &mut q);
//!
//! // Members 0 and 2 die.
//! let (mut first, mut last) = ([0; 512], [0; 512]);
//! let survivors: [&[u8]; 3] = [&[], data[1], &[]];
//! mdspace_parity::kernels().recover_two(&survivors, [0, 2], &p, &q, [&mut first, &mut last]);
//! assert_eq!((&first[..], &last[..]), (data[0], data[2]));
//! ```
//!
//! What holds everywhere:
//! - all non-empty slices of a call have one length, any length; other calls panic;
//! - an empty input slice stands for a block of zeroes: a gap in a DDF layout, or a lost block;
//! - nothing is allocated, no call blocks, and slices need no alignment.
//!
//! Start reading at `kernels.rs` (the door), then `operation.rs` (the algorithms).
//!
//! Source of the mathematics: H. Peter Anvin, "The mathematics of RAID-6".

pub mod gf;
mod isa;
mod kernels;
mod operation;
mod vector;

pub use isa::{Isa, UnknownIsa};
pub use kernels::{Change, Kernels, UnusableIsa, kernels};

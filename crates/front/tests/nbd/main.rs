//! The NBD core against conversations written from the protocol, in pieces, mutated, and hostile.
//!
//! Random tests print their seed; `MDSPACE_SEED=N cargo test -p mdspace-front --test nbd` replays
//! one.

mod behaviour;
mod corpus;
mod fuzz;
mod ram;
mod seed;

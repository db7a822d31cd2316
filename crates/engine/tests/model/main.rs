//! The engine's shared state under a model checker: every test runs under many schedules of its
//! threads, and a deadlock or a failed assertion is printed with the schedule that leads to it.
//!
//! `cargo test -p mdspace-engine --features model --test model`

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod announced;
mod caching;
mod claims;
mod flushes;
mod handover;
mod machine;
mod taken;
mod views;
mod whole_array;

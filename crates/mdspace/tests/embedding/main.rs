//! Programs that embed an array: what works, and what they do wrong.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod bed;
mod ending;
mod examples;
mod lanes;
mod members;
mod own_devices;
mod requests;
mod starting;

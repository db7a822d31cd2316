//! What an md array is and does: every level, every member state, every decision.
#![forbid(unsafe_code)]
pub mod status;

//! A member that keeps nothing: writes vanish, reads give zeroes, after a time.

use std::time::Duration;

/// `null:SIZE?latency=TIME`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Null {
    /// From the start of an I/O to its end.
    pub(crate) latency: Duration,
}

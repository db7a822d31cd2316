//! The figures of a drive.

use std::time::Duration;

/// What a `null:` device is like. As it is by default, every I/O ends at once.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Drive {
    pub(super) read: Direction,
    pub(super) write: Direction,
    pub(super) flush_latency: Duration,
    pub(super) spread: Spread,
    /// The p99 of a lognormal spread over its mean.
    pub(super) p99: f64,
    /// I/Os that the drive takes at once; later ones wait outside.
    pub(super) queue_depth: usize,
    /// I/Os that it works at, at once.
    pub(super) queues: usize,
    pub(super) rotation: Option<Rotation>,
    pub(super) faults: FaultRates,
    /// Whether it keeps what is written.
    pub(super) memory_backed: bool,
    pub(super) seed: u64,
}

/// What reads or writes cost.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Direction {
    /// Mean time of service, without what the bandwidth makes of the bytes.
    pub(super) latency: Duration,
    pub(super) bytes_per_second: Option<u64>,
    pub(super) per_second: Option<u64>,
}

/// How the times of service lie about their mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spread {
    Constant,
    Exponential,
    Lognormal,
}

/// What makes a disk of a drive.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Rotation {
    pub(super) turns_per_minute: u64,
    /// Mean over all pairs of places.
    pub(super) seek: Duration,
    /// To the next track.
    pub(super) track_seek: Duration,
}

/// How often a drive goes wrong: chances, an I/O each.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct FaultRates {
    pub(super) error: f64,
    pub(super) hang: f64,
    pub(super) hang_time: Duration,
    pub(super) limp: f64,
    pub(super) limp_time: Duration,
    pub(super) limp_factor: f64,
}

impl Default for Drive {
    fn default() -> Self {
        let direction =
            Direction { latency: Duration::ZERO, bytes_per_second: None, per_second: None };
        Self {
            read: direction.clone(),
            write: direction,
            flush_latency: Duration::ZERO,
            spread: Spread::Constant,
            p99: 2.0,
            queue_depth: usize::MAX,
            queues: usize::MAX,
            rotation: None,
            faults: FaultRates {
                error: 0.0,
                hang: 0.0,
                hang_time: Duration::from_secs(60),
                limp: 0.0,
                limp_time: Duration::from_secs(10),
                limp_factor: 20.0,
            },
            memory_backed: false,
            seed: 0,
        }
    }
}

impl Drive {
    /// Whether it takes no time and knows no faults.
    pub(super) fn is_immediate(&self) -> bool {
        let free = |direction: &Direction| {
            direction.latency.is_zero()
                && direction.bytes_per_second.is_none()
                && direction.per_second.is_none()
        };
        let FaultRates { error, hang, limp, .. } = self.faults;
        free(&self.read)
            && free(&self.write)
            && self.flush_latency.is_zero()
            && self.rotation.is_none()
            && error + hang + limp == 0.0
    }

    /// Whether seeks cost time.
    pub(crate) fn is_rotational(&self) -> bool {
        self.rotation.is_some()
    }
}

//! The clock of every lane of the process.

use std::sync::LazyLock;
use std::time::Instant;

use mdspace_engine::time::Time;

/// Now on that clock, since it was first looked at.
pub fn now() -> Time {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let nanos = START.elapsed().as_nanos();
    Time::from_nanos(u64::try_from(nanos).expect("a process lives less than 584 years"))
}

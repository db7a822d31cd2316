//! Our check and rebuild.

use std::time::Instant;

use mdspace_engine::array::Action;

use super::MEMBER_MIB;
use crate::bench::REPETITIONS;
use crate::bench::bed::Bed;
use crate::bench::workload::{Subject, parse};
use crate::failure::Failure;

/// Which task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Check,
    Rebuild,
}

impl Task {
    pub(super) const ALL: [Self; 2] = [Self::Check, Self::Rebuild];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Rebuild => "rebuild",
        }
    }

    /// MiB/s of one member, five times.
    pub(super) fn measure(self) -> Result<Vec<f64>, Failure> {
        let words = format!("--level=6 --raid-devices=6 --chunk=512K --member=ram:{MEMBER_MIB}M");
        let mut bed = Bed::ready(&parse(&words))?;
        let mib = bed.status()?.member_sectors as f64 / 2048.0;
        let mut rates = Vec::new();
        for _ in 0..REPETITIONS {
            if self == Self::Rebuild {
                bed.fail_members(&[1])?;
                bed.remove_member(1)?;
            }
            let began = Instant::now();
            match self {
                Self::Check => bed.order(Action::Check).map(drop)?,
                Self::Rebuild => bed.add_member(1, &format!("ram:{MEMBER_MIB}M"))?,
            }
            bed.wait_for_sync()?;
            rates.push(mib / began.elapsed().as_secs_f64());
        }
        bed.stop()?;
        Ok(rates)
    }
}

//! How fast a check or a rebuild is that nobody disturbs.

use std::time::Instant;

use mdspace_engine::array::Action;

use super::bed::Bed;
use super::workload::{Subject, parse};
use crate::failure::Failure;

/// Which task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Check,
    Rebuild,
}

/// The slot that is rebuilt.
pub(super) const LOST: usize = 1;

impl Task {
    pub(super) const ALL: [Self; 2] = [Self::Check, Self::Rebuild];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Rebuild => "rebuild",
        }
    }

    /// MiB/s of one member of the array that `bench run` makes of these words, so many times.
    pub(super) fn measure(self, words: &str, repetitions: usize) -> Result<Vec<f64>, Failure> {
        let args = parse(words);
        let member = args.member[0].clone();
        // What a model does not keep need not be written.
        let mut bed = match member.starts_with("null:") {
            true => Bed::new(&args)?,
            false => Bed::ready(&args)?,
        };
        let mib = bed.status()?.member_sectors as f64 / 2048.0;
        let mut rates = Vec::new();
        for _ in 0..repetitions {
            if self == Self::Rebuild {
                bed.lose_member(LOST)?;
            }
            let began = Instant::now();
            match self {
                Self::Check => bed.order(Action::Check).map(drop)?,
                Self::Rebuild => bed.add_member(LOST, &member)?,
            }
            bed.wait_for_sync()?;
            rates.push(mib / began.elapsed().as_secs_f64());
        }
        bed.stop()?;
        Ok(rates)
    }
}

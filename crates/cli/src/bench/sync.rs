//! How fast a check or a rebuild is that nobody disturbs.

use std::time::Instant;

use mdspace_engine::array::Action;

use super::bed::Bed;
use super::figures::Ratio;
use super::workload::{Subject, parse};
use crate::failure::Failure;

/// Which task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    Check,
    Rebuild,
}

/// How fast it was.
#[derive(Clone, Copy, Debug)]
pub(super) struct Speed {
    /// Of one member.
    pub(super) mib_s: Ratio,
    /// The least part of the time in which the lane had the CPU that it wanted.
    pub(super) cpu_share: f64,
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

    /// On the array that `bench run` makes of these words, so many times.
    pub(super) fn measure(self, words: &str, repetitions: usize) -> Result<Speed, Failure> {
        let args = parse(words);
        let member = args.member[0].clone();
        // What a model does not keep need not be written.
        let mut bed = match member.starts_with("null:") {
            true => Bed::new(&args)?,
            false => Bed::ready(&args)?,
        };
        let mib = bed.status()?.member_sectors as f64 / 2048.0;
        let (mut rates, mut cpu_share) = (Vec::new(), 1.0_f64);
        for _ in 0..repetitions {
            if self == Self::Rebuild {
                bed.lose_member(LOST)?;
            }
            let (began, delayed) = (Instant::now(), bed.run_delay()?);
            match self {
                Self::Check => bed.order(Action::Check).map(drop)?,
                Self::Rebuild => bed.add_member(LOST, &member)?,
            }
            bed.wait_for_sync()?;
            let (whole, delayed) = (began.elapsed(), bed.run_delay()?.saturating_sub(delayed));
            rates.push(mib / bed.counted(whole, delayed).as_secs_f64());
            cpu_share = cpu_share.min(1.0 - delayed.as_secs_f64() / whole.as_secs_f64());
        }
        bed.stop()?;
        Ok(Speed { mib_s: Ratio::of(rates), cpu_share })
    }
}

//! The stress test of 2012: writes of 1 to 64 KiB over a small area, then a check.

use std::sync::mpsc::channel;
use std::time::Duration;

use mdspace_engine::lane::LaneId;
use serde::Serialize;

use crate::bench::bed::Bed;
use crate::bench::load::Pattern;
use crate::bench::measure::{Load, Outcome, Until, array_load};
use crate::bench::workload::{Subject, parse};
use crate::failure::Failure;

const SIZES: [usize; 7] = [1 << 10, 2 << 10, 4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10];
/// A few rows, so that writes meet.
const AREA_BYTES: u64 = 4 << 20;
const DEPTH: usize = 16;

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Stress {
    pub(super) command: String,
    pub(super) requests: u64,
    pub(super) errors: u64,
    pub(super) mismatch_sectors: u64,
}

impl Stress {
    /// Runs on the array that these words of `bench run` make.
    pub(super) fn run(words: &str, span: Duration) -> Result<Self, Failure> {
        let bed = Bed::ready(&parse(words))?;
        let Outcome { requests, errors, .. } = all_sizes(&bed, 5 * span);
        let mismatch_sectors = bed.check()?;
        bed.stop()?;
        Ok(Self { command: words.to_owned(), requests, errors, mismatch_sectors })
    }

    /// Whether nothing went wrong.
    pub(super) fn is_good(&self) -> bool {
        self.errors == 0 && self.mismatch_sectors == 0 && self.requests > 0
    }
}

/// All sizes at once on every lane, each lane with addresses of its own.
fn all_sizes(bed: &Bed, span: Duration) -> Outcome {
    let array = bed.array();
    let lanes = array.lanes().count();
    let (sender, receiver) = channel();
    for lane in 0..lanes {
        for block_bytes in SIZES {
            let load = Load {
                pattern: Pattern::write(true),
                block_bytes,
                depth: DEPTH,
                lane: lane as u64,
                lanes: lanes as u64,
                until: Until::Elapsed(span),
                area_bytes: Some(AREA_BYTES),
            };
            let sender = sender.clone();
            array.run_on(LaneId(lane as u16), move |port, lane, io| {
                let (port, lane, io) = (port.clone(), lane.clone(), io.clone());
                lane.clone().spawn(async move {
                    // The caller waits below: it is there to hear.
                    let _ = sender.send(array_load(port, lane, io, load).await);
                });
            });
        }
    }
    drop(sender);
    let mut sum = Outcome::default();
    receiver.iter().for_each(|outcome| sum.add(outcome));
    sum
}

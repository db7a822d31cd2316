//! `mdspace bench`: what an array gives, beside what its members give and what physics allows.

mod bed;
mod figures;
mod fronts;
mod guest;
mod latency;
mod limits;
mod load;
mod machine;
mod measure;
mod paths_bed;
mod peers;
mod published;
mod rebuild;
mod run;
mod sync;
mod table;
mod workload;

pub(crate) use fronts::fronts;
pub(crate) use limits::limits;
pub(crate) use peers::peers;
pub(crate) use published::published;
pub(crate) use rebuild::rebuild;
pub(crate) use run::run;

use std::time::Duration;

use mdspace_io::Lanes;

use crate::failure::Failure;

pub(crate) use load::Pattern;

/// Interleaved repetitions; the median is told, and the spread beside it.
const REPETITIONS: usize = 5;

/// fio's words for a pattern.
impl std::str::FromStr for Pattern {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "read" => Ok(Self::read(false)),
            "write" => Ok(Self::write(false)),
            "randread" => Ok(Self::read(true)),
            "randwrite" => Ok(Self::write(true)),
            "rw" | "readwrite" => Ok(Self { random: false, reads_percent: 50 }),
            "randrw" => Ok(Self { random: true, reads_percent: 50 }),
            _ => Err(format!("{word:?} is none of read, write, rw, randread, randwrite, randrw")),
        }
    }
}

/// Ends the lanes of something that was measured.
fn stop_lanes(lanes: Lanes) -> Result<(), Failure> {
    lanes.stop(Duration::from_secs(10)).map_err(|error| failed("stop the lanes", error))
}

/// A failure of something that a benchmark needs.
fn failed(what: &str, why: impl ToString) -> Failure {
    Failure::new(
        format!("cannot {what} for the benchmark"),
        why,
        "see `mdspace bench run --help` for what can be set",
    )
}

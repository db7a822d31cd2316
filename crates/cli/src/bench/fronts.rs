//! `mdspace bench fronts`: each front beside the best known server of its kind.
//!
//! Both sides of a row are real: a process of this very program with an array of memory, and the other server's. One
//! client loads them in turns. Where a program or a right is missing, the row says so and the rest is measured.

mod clients;
mod pairs;
mod servers;
mod text;

use std::time::Duration;

use serde::Serialize;

use crate::args::BenchFrontsArgs;
use crate::failure::Failure;
use crate::output;

use super::figures::Ratio;
use super::{REPETITIONS, machine};

use clients::Work;
use pairs::{Goal, PAIRS, Pair};
use servers::{Host, Served};

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    machine: String,
    /// Threads that wanted a CPU in the minute before: others' work, of which there should be none.
    load_average: f64,
    rows: Vec<Row>,
}

/// One front and its rival under one load.
#[derive(Debug, Serialize)]
struct Row {
    front: &'static str,
    rival: &'static str,
    load: String,
    /// Requests a second; none where it was not measured.
    ours: Option<Ratio>,
    theirs: Option<Ratio>,
    /// Ours over theirs.
    times: Option<Ratio>,
    /// What it must be, and should be; none where it only stands beside.
    goal: Option<Goal>,
    bound: &'static str,
    /// Why a side was not measured.
    absent: Vec<String>,
}

/// Measures every front and prints them.
pub(crate) fn fronts(args: &BenchFrontsArgs) -> Result<(), Failure> {
    let repetitions = if args.quick { REPETITIONS.div_ceil(2) } else { REPETITIONS };
    let runtime = if args.quick { args.runtime / 5.0 } else { args.runtime };
    let span = Duration::from_secs_f64(runtime / repetitions as f64);
    let load_average = machine::load_average();
    let host = Host::new().map_err(|why| super::failed("make a folder", why))?;
    let wanted = |pair: &&Pair| args.front.is_none_or(|word| word == pair.word);
    let rows = PAIRS.iter().filter(wanted).flat_map(|pair| measure(&host, pair, repetitions, span));
    let rows = rows.collect();
    let report = Report { schema: 1, machine: machine::describe(), load_average, rows };
    match args.json {
        true => output::print_json(&report),
        false => output::print(&text::text(&report)),
    }
}

/// The rows of a pair: reads, and writes.
fn measure(host: &Host, pair: &Pair, repetitions: usize, span: Duration) -> [Row; 2] {
    let sides = [(pair.ours)(host), (pair.theirs)(host)];
    let sides = sides.map(|side| side.and_then(|side| side.filled(host)));
    let mut absent = Vec::new();
    let [ours, theirs] = sides.map(|side| side.map_err(|why| absent.push(why)).ok());
    [(false, pair.read), (true, pair.write)].map(|(write, goal)| {
        let work = Work { write, depth: pair.depth, span };
        let mut row = Row::new(pair, work, goal, absent.clone());
        row.take_turns(host, [&ours, &theirs], work, repetitions);
        row
    })
}

impl Row {
    fn new(pair: &Pair, work: Work, goal: Option<Goal>, absent: Vec<String>) -> Self {
        let &Pair { front, rival, bound, .. } = pair;
        let load = work.to_string();
        Self { front, rival, load, ours: None, theirs: None, times: None, goal, bound, absent }
    }

    fn take_turns(
        &mut self,
        host: &Host,
        sides: [&Option<Served>; 2],
        work: Work,
        repetitions: usize,
    ) {
        let mut rates = [Vec::new(), Vec::new()];
        for _ in 0..repetitions {
            for (side, rates) in sides.iter().zip(&mut rates) {
                let rate = side.as_ref().map(|side| side.load(host, work));
                match rate.transpose() {
                    Ok(rate) => rates.extend(rate),
                    Err(why) => return self.absent.push(why),
                }
            }
        }
        let [ours, theirs] = &rates;
        if !ours.is_empty() && !theirs.is_empty() {
            self.times = Some(Ratio::of_pairs(ours, theirs, |one, other| one / other));
        }
        [self.ours, self.theirs] = rates.map(|rates| (!rates.is_empty()).then(|| Ratio::of(rates)));
    }

    /// Whether the floor is held; none where there is none, or nothing was compared.
    fn holds(&self) -> Option<bool> {
        Some(self.times?.median >= self.goal?.floor)
    }
}

#[cfg(test)]
mod tests;

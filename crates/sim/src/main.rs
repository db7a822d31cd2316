//! `sim`: runs the engine in the simulated world, one seed verbosely or many until one fails.
#![forbid(unsafe_code)]

mod canaries;
mod coverage;
mod exhaust;
mod failure;

use std::num::NonZero;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

use clap::Parser;
use mdspace_engine::array::Rule;
use mdspace_sim::exhaustive::Address;
use mdspace_sim::regression::Regression;
use mdspace_sim::settings::{Settings, Trouble};
use mdspace_sim::simulation::Outcome;
use mdspace_sim::trace::{LEGEND, Trace};
use mdspace_sim::trial;

use coverage::Coverage;

/// Runs the mdspace engine on virtual disks with a virtual clock, under a seed.
#[derive(Parser)]
struct Options {
    /// Replays this seed, one line an event
    seed: Option<u64>,
    /// Runs so many seeds, from --first on
    #[arg(long, default_value_t = 100, conflicts_with = "seed")]
    seeds: u64,
    /// The first of many seeds
    #[arg(long, default_value_t = 0, conflicts_with = "seed")]
    first: u64,
    /// Runs seeds until one fails
    #[arg(long, conflicts_with_all = ["seed", "seeds"])]
    until_failure: bool,
    /// Goes on after a failure; with --canaries, counts the seeds that notice
    #[arg(long, conflicts_with = "until_failure")]
    keep_going: bool,
    /// Only arrays of this level, md's number: -1, 0, 1, 4, 5, 6, 10
    #[arg(long, allow_hyphen_values = true)]
    level: Option<i32>,
    /// Only seeds with this story
    #[arg(long, value_parser = story)]
    story: Option<&'static str>,
    /// How much trouble to make
    #[arg(long, default_value = "bearable")]
    trouble: Trouble,
    /// In a replay, tells what this sector of a disk holds: DISK:SECTOR
    #[arg(long, requires = "seed", value_parser = disk_and_sector)]
    watch: Option<(u16, u64)>,
    /// Says nothing but how it ended
    #[arg(long)]
    quiet: bool,
    /// Explains the lines of a replay
    #[arg(long)]
    legend: bool,
    /// Breaks each rule of the engine in turn, until a seed notices; --seeds says after how many it lives
    #[arg(long, conflicts_with_all = ["seed", "until_failure"])]
    canaries: bool,
    /// Runs so many seeds at once; 0: one on each core
    #[arg(long, default_value_t = 0, conflicts_with = "seed")]
    jobs: usize,
    /// Breaks one rule of the engine, as --canaries names them
    #[arg(long, value_name = "RULE", value_parser = rule)]
    broken: Option<Rule>,
    /// Says in how many seeds the engine came to each point of its orderings
    #[arg(long, conflicts_with_all = ["seed", "canaries"])]
    coverage: bool,
    /// Leaves a failing run as large as it is
    #[arg(long)]
    no_shrink: bool,
    /// Replays the run of this file, which --save or a failure wrote, one line an event
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "seeds", "first", "until_failure", "canaries"])]
    settings: Option<PathBuf>,
    /// Writes the shrunk run of a failure to this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["no_shrink", "keep_going", "canaries"])]
    save: Option<PathBuf>,
    /// Tiny arrays, short sequences of operations: every crash point, every subset of what was not durable
    #[arg(long, conflicts_with_all = ["seed", "canaries", "until_failure", "keep_going"])]
    exhaustive: bool,
    /// Fewer of them, in seconds
    #[arg(long, requires = "exhaustive")]
    reduced: bool,
    /// Replays one crash that --exhaustive printed
    #[arg(long, requires = "exhaustive", value_name = "ADDRESS")]
    at: Option<Address>,
}

impl Options {
    fn wants(&self, settings: &Settings) -> bool {
        self.story.is_none_or(|story| story == settings.story)
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.legend {
        println!("{LEGEND}");
        return ExitCode::SUCCESS;
    }
    // A broken engine panics, and that is as good as any other failure.
    trial::keep_panics();
    let good = match (options.seed, &options.settings) {
        (Some(seed), _) => replay(drawn(seed, &options), &options),
        (None, Some(file)) => match Regression::read(file) {
            Ok(regression) => replay(regression.broken(), &options),
            Err(error) => {
                eprintln!("{} does not hold a run: {error}", file.display());
                false
            }
        },
        (None, None) if options.exhaustive => exhaust::run(&options),
        (None, None) if options.canaries => canaries::run(&options),
        (None, None) => run_many(&options),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A run as the options want it.
fn drawn(seed: u64, options: &Options) -> Settings {
    let settings = Settings::draw(seed, options.level, options.trouble);
    Settings { broken: options.broken, ..settings }
}

fn replay(settings: Settings, options: &Options) -> bool {
    if !options.quiet {
        println!("{LEGEND}\n");
    }
    let ended = run(settings, options, Trace::new(!options.quiet));
    ended.inspect(|outcome| println!("{outcome:?}")).is_some()
}

fn run_many(options: &Options) -> bool {
    let seeds = if options.until_failure { u64::MAX - options.first } else { options.seeds };
    let since = Instant::now();
    let ended = Mutex::new((Outcome::default(), Coverage::default(), 0_u64, 0_u64));
    in_parallel(options, options.first..options.first + seeds, |seed| {
        let settings = drawn(seed, options);
        if !options.wants(&settings) {
            return true;
        }
        let outcome = run(settings, options, Trace::silent());
        let (sum, coverage, runs, failures) =
            &mut *ended.lock().expect("no run panics under the lock");
        *runs += 1;
        match outcome {
            Some(outcome) => {
                sum.answered += outcome.answered;
                sum.failed += outcome.failed;
                sum.lies += outcome.lies;
                coverage.add(&outcome);
            }
            None => *failures += 1,
        }
        *failures == 0 || options.keep_going
    });
    let (Outcome { answered, failed, lies, .. }, coverage, runs, failures) =
        ended.into_inner().expect("no run panics under the lock");
    let per_minute = runs as f64 * 60.0 / since.elapsed().as_secs_f64();
    println!(
        "{runs} seeds, {failures} failed; {answered} requests, {failed} ended in errors; {lies} lies; \
         {per_minute:.0} seeds a minute"
    );
    if options.coverage {
        print!("{coverage}");
    }
    failures == 0
}

/// Hands out seeds in order, as many at a time as there are jobs, until one says that it is enough.
fn in_parallel<T>(
    options: &Options,
    seeds: impl Iterator<Item = T> + Send,
    run: impl Fn(T) -> bool + Sync,
) {
    let jobs = match options.jobs {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        jobs => jobs,
    };
    let left = Mutex::new(Some(seeds));
    let next = || left.lock().expect("no run panics under the lock").as_mut()?.next();
    let work = || {
        while let Some(seed) = next() {
            if !run(seed) {
                *left.lock().expect("no run panics under the lock") = None;
            }
        }
    };
    std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
}

/// Runs one seed. What is wrong is printed, with the commands that replay it, large and small.
fn run(settings: Settings, options: &Options, trace: Trace) -> Option<Outcome> {
    let trial = trial::run(settings.clone(), trace, options.watch, None);
    match trial.result {
        Ok(outcome) => Some(outcome),
        Err(reason) => {
            failure::print(&settings, &reason, trial.steps, options);
            None
        }
    }
}

fn story(name: &str) -> Result<&'static str, String> {
    let found = Settings::stories().find(|story| *story == name);
    found.ok_or_else(|| {
        format!("the stories are {}", Settings::stories().collect::<Vec<_>>().join(", "))
    })
}

fn rule(name: &str) -> Result<Rule, String> {
    let found = Rule::ALL.iter().find(|rule| rule.name() == name).copied();
    found.ok_or_else(|| "no rule of the engine: --canaries names them".to_owned())
}

fn disk_and_sector(text: &str) -> Result<(u16, u64), String> {
    let parsed = text
        .trim_start_matches('d')
        .split_once(':')
        .and_then(|(disk, sector)| Some((disk.parse().ok()?, sector.parse().ok()?)));
    parsed.ok_or_else(|| "a disk and a sector of it, as 2:1024".to_owned())
}

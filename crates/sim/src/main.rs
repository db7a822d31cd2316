//! `sim`: runs the engine in the simulated world, one seed verbosely or many until one fails.
#![forbid(unsafe_code)]

mod canaries;

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::Mutex;

use clap::Parser;
use mdspace_engine::array::Rule;
use mdspace_sim::settings::{Settings, Trouble};
use mdspace_sim::simulation::{Outcome, Simulation};
use mdspace_sim::trace::{LEGEND, Trace};

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
    /// Goes on after a failure
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
    #[arg(long, conflicts_with_all = ["seed", "until_failure", "keep_going"])]
    canaries: bool,
    /// Runs so many seeds at once; 0: one on each core
    #[arg(long, default_value_t = 0, conflicts_with = "seed")]
    jobs: usize,
    /// Breaks one rule of the engine, as --canaries names them
    #[arg(long, value_name = "RULE", value_parser = rule)]
    broken: Option<Rule>,
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
    let good = match options.seed {
        Some(seed) => replay(seed, &options),
        None if options.canaries => canaries::run(&options),
        None => run_many(&options),
    };
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay(seed: u64, options: &Options) -> bool {
    if !options.quiet {
        println!("{LEGEND}\n");
    }
    run(seed, options, Trace::new(!options.quiet))
        .inspect(|outcome| println!("{outcome:?}"))
        .is_some()
}

fn run_many(options: &Options) -> bool {
    let seeds = if options.until_failure { u64::MAX - options.first } else { options.seeds };
    let ended = Mutex::new((Outcome::default(), 0_u64, 0_u64));
    in_parallel(options, seeds, |seed| {
        let outcome = run(seed, options, Trace::silent());
        let (sum, runs, failures) = &mut *ended.lock().expect("no run panics under the lock");
        *runs += 1;
        match outcome {
            Some(outcome) => {
                sum.answered += outcome.answered;
                sum.failed += outcome.failed;
                sum.lies += outcome.lies;
            }
            None => *failures += 1,
        }
        *failures == 0 || options.keep_going
    });
    let (Outcome { answered, failed, lies, .. }, runs, failures) =
        ended.into_inner().expect("no run panics under the lock");
    println!(
        "{runs} seeds, {failures} failed; {answered} requests, {failed} ended in errors; {lies} lies"
    );
    failures == 0
}

/// Hands out seeds in order, as many at a time as there are jobs, until one says that it is enough.
fn in_parallel(options: &Options, seeds: u64, run: impl Fn(u64) -> bool + Sync) {
    let jobs = match options.jobs {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        jobs => jobs,
    };
    let end = options.first + seeds;
    let left = Mutex::new(options.first..end);
    let next = || left.lock().expect("no run panics under the lock").next();
    let work = || {
        while let Some(seed) = next() {
            if !run(seed) {
                *left.lock().expect("no run panics under the lock") = end..end;
            }
        }
    };
    std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
}

/// Runs one seed. What is wrong is printed with the command that replays it.
fn run(seed: u64, options: &Options, trace: Trace) -> Option<Outcome> {
    let mut settings = Settings::draw(seed, options.level, options.trouble);
    if !options.wants(&settings) {
        return Some(Outcome::default());
    }
    settings.broken = options.broken;
    let broken = options.broken.map(|rule| format!(" --broken {}", rule.name()));
    let replay = settings.replay(options.level) + &broken.unwrap_or_default();
    let words = settings.to_string();
    match run_settings(settings, trace, options.watch) {
        Ok(outcome) => Some(outcome),
        Err(reason) => {
            println!("seed {seed} FAILED: {reason}\n  {words}\n  replay: {replay}");
            None
        }
    }
}

/// Runs it to its end. An error says what is wrong, be it by a panic.
fn run_settings(
    settings: Settings,
    trace: Trace,
    watch: Option<(u16, u64)>,
) -> Result<Outcome, String> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        let simulation = Simulation::new(settings, trace)?;
        if let Some((disk, sector)) = watch {
            simulation.watch(disk, sector);
        }
        simulation.run()
    }));
    match result {
        Ok(ended) => ended.map_err(|failure| failure.to_string()),
        Err(panic) => Err(format!("panic: {}", panic_words(&*panic))),
    }
}

fn story(name: &str) -> Result<&'static str, String> {
    let found = Settings::stories().iter().find(|story| **story == name).copied();
    found.ok_or_else(|| format!("the stories are {}", Settings::stories().join(", ")))
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

fn panic_words(panic: &(dyn std::any::Any + Send)) -> &str {
    let owned = panic.downcast_ref::<String>().map(String::as_str);
    owned.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without words")
}

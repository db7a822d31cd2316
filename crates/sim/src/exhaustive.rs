//! The exhaustive search in a small scope: tiny arrays, short sequences of operations, every crash point
//! of each, and every subset of what the disks had not made durable.
//!
//! The engine runs once a sequence. At each moment of the run that differs from the one before, what the
//! disks hold and what was under way says what a power cut, or a kill, may leave. Each such image that
//! was not seen before is judged: the engine assembles and reads it.

mod crash;
mod judge;
mod run;
mod seen;
mod sequence;
mod shape;

#[cfg(test)]
mod tests;

use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use mdspace_engine::array::{BrokenHere, Rule};

use crash::Leftovers;
use judge::Judge;
use run::{Moment, Run};
use seen::Seen;

pub use crash::Crash;
pub use judge::{When, Wrong};
pub use run::Ended;
pub use sequence::{Operation, Sequence, Step};
pub use shape::Shape;

/// What is searched.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Arrays.
    pub shapes: Vec<Shape>,
    /// Operations of which sequences are made.
    pub alphabet: Vec<Operation>,
    /// Operations of the longest sequences.
    pub longest: usize,
    /// In sequences of so many operations at most, one may begin before the one before it has ended.
    pub overlapping: usize,
    /// Times that each sequence runs: lanes and disks take turns in another order each time.
    pub schedules: u64,
    /// Images of one crash that are all looked at; where there are more, those that
    /// differ in one column.
    pub images: usize,
    /// A rule of the engine that is broken.
    pub broken: Option<Rule>,
}

/// What was covered.
#[derive(Debug, Default)]
pub struct Covered {
    /// Sequences, each on each array.
    pub sequences: u64,
    /// Of them, those that the engine refused, as it may.
    pub refused: u64,
    /// Moments at which the array crashed.
    pub moments: u64,
    /// Images that crashes left.
    pub images: u64,
    /// Images that differ, in what they hold or in what they must hold.
    pub distinct: u64,
    /// The first thing that is wrong, of the shortest sequence.
    pub finding: Option<Finding>,
}

/// A sequence on an array, under a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Which array.
    pub shape: Shape,
    /// What is done.
    pub sequence: Sequence,
    /// What orders lanes and disks.
    pub schedule: u64,
}

/// Something is wrong.
#[derive(Debug)]
pub struct Finding {
    /// What ran.
    pub scenario: Scenario,
    /// When and how it crashed, if it did.
    pub at: Option<At>,
    /// What is wrong.
    pub reason: String,
}

/// A crash of a sequence on an array, and what was left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    /// The moment, as the run counts them.
    pub moment: u64,
    /// What went.
    pub crash: Crash,
    /// What became of each piece: 0, it was lost; else the number of the write that was left.
    pub fates: Vec<u8>,
    /// What each piece was, in words.
    pub words: Vec<String>,
}

/// Names one crash of one scenario: `raid5x3/write,flush/0/17/cut/0110`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    scenario: Scenario,
    moment: u64,
    crash: Crash,
    fates: Vec<u8>,
}

/// What the search counts.
#[derive(Default)]
struct Counts {
    refused: AtomicU64,
    moments: AtomicU64,
    images: AtomicU64,
    distinct: AtomicU64,
}

impl Scope {
    /// All arrays, all operations, sequences of three.
    pub fn full() -> Self {
        Self {
            shapes: Shape::ALL.to_vec(),
            alphabet: Operation::ALL.to_vec(),
            longest: 3,
            overlapping: 2,
            schedules: 1,
            images: 256,
            broken: None,
        }
    }

    /// One array of each level, fewer operations, sequences of two.
    pub fn reduced() -> Self {
        Self {
            shapes: Shape::REDUCED.to_vec(),
            alphabet: Operation::REDUCED.to_vec(),
            longest: 2,
            overlapping: 0,
            schedules: 1,
            images: 64,
            broken: None,
        }
    }

    /// The scope with a broken rule.
    pub fn with_broken(self, broken: Option<Rule>) -> Self {
        Self { broken, ..self }
    }

    /// Searches it on so many threads, the shortest sequences first, until something is wrong.
    pub fn search(&self, jobs: usize) -> Covered {
        let runs = self.runs();
        let (next, first) = (AtomicUsize::new(0), Mutex::new(None::<(usize, Finding)>));
        let (seen, counts) = (Seen::default(), Counts::default());
        let work = || {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let Some(scenario) = runs.get(index) else { return };
                let Err(finding) = self.play(scenario, &seen, &counts) else { continue };
                next.store(runs.len(), Ordering::Relaxed);
                let mut first = first.lock().expect("nothing panics under it");
                if first.as_ref().is_none_or(|(other, _)| index < *other) {
                    *first = Some((index, *finding));
                }
            }
        };
        std::thread::scope(|scope| (0..jobs).for_each(|_| drop(scope.spawn(work))));
        let first = first.into_inner().expect("nothing panics under it");
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Covered {
            sequences: first.as_ref().map_or(runs.len(), |(index, _)| index + 1) as u64,
            refused: count(&counts.refused),
            moments: count(&counts.moments),
            images: count(&counts.images),
            distinct: count(&counts.distinct),
            finding: first.map(|(_, finding)| finding),
        }
    }

    /// Every sequence on every array, the shortest first.
    fn runs(&self) -> Vec<Scenario> {
        let lengths = 1..=self.longest;
        let sequences = lengths
            .flat_map(|length| Sequence::all(length, &self.alphabet, length <= self.overlapping));
        let on_each = |sequence: Sequence| {
            let schedules = (0..self.schedules).flat_map(|schedule| {
                let on = |shape: &Shape| (*shape, schedule);
                self.shapes.iter().map(on).collect::<Vec<_>>()
            });
            let scenario = move |(shape, schedule)| {
                let sequence = sequence.clone();
                Scenario { shape, sequence, schedule }
            };
            schedules.map(scenario).collect::<Vec<_>>()
        };
        sequences.flat_map(on_each).collect()
    }

    fn play(&self, scenario: &Scenario, seen: &Seen, counts: &Counts) -> Result<(), Box<Finding>> {
        let _broken = self.broken.map(BrokenHere::new);
        let judge = Judge { shape: scenario.shape, verbose: false, seen };
        let mut found = None;
        let mut visit = |moment: &Moment<'_>| {
            counts.moments.fetch_add(1, Ordering::Relaxed);
            found = self.crash_here(moment, &judge, counts).err();
            found.is_none()
        };
        let ended = scenario.run(false, &mut visit);
        let finding = |at, reason| Box::new(Finding { scenario: scenario.clone(), at, reason });
        if let Some((at, wrong)) = found.map(|found| *found) {
            return Err(finding(Some(at), wrong.to_string()));
        }
        match ended {
            Ok(Err(Ended::Refused(_))) => {
                counts.refused.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Ok(ended) => ended.map_err(|error| finding(None, error.to_string())),
            Err(words) => Err(finding(None, words)),
        }
    }

    /// Lets the array crash in every way at one moment.
    fn crash_here(
        &self,
        moment: &Moment<'_>,
        judge: &Judge<'_>,
        counts: &Counts,
    ) -> Result<(), Box<(At, Wrong)>> {
        for crash in Crash::ALL {
            let left = Leftovers::of(crash, moment.world, moment.model);
            let base = left.base_name();
            for fates in left.all_fates(self.images) {
                counts.images.fetch_add(1, Ordering::Relaxed);
                if !judge.seen.is_new(judge.shape, left.name(base, &fates)) {
                    continue;
                }
                counts.distinct.fetch_add(1, Ordering::Relaxed);
                if let Err(wrong) = judge.judge(&left.image(&fates), &left) {
                    let words = left.words(&fates);
                    let at = At { moment: moment.number, crash, fates, words };
                    return Err(Box::new((at, wrong)));
                }
            }
        }
        Ok(())
    }
}

impl Address {
    /// Plays the sequence to the crash and judges what is left; `verbose` with every line of its trace. An
    /// error says what is wrong.
    pub fn judge(&self, broken: Option<Rule>, verbose: bool) -> Result<(), String> {
        let _broken = broken.map(BrokenHere::new);
        let seen = Seen::default();
        let judge = Judge { shape: self.scenario.shape, verbose, seen: &seen };
        let mut judged = None;
        let mut visit = |moment: &Moment<'_>| {
            if moment.number < self.moment {
                return true;
            }
            let left = Leftovers::of(self.crash, moment.world, moment.model);
            if verbose {
                println!("-- {:?}", self.crash);
                left.words(&self.fates).iter().for_each(|words| println!("   {words}"));
            }
            judged = Some(judge.judge(&left.image(&self.fates), &left));
            false
        };
        let ended = self.scenario.run(verbose, &mut visit);
        match (judged, ended) {
            (Some(judged), _) => judged.map_err(|wrong| wrong.to_string()),
            (None, Ok(ended)) => ended.map_err(|error| error.to_string()),
            (None, Err(words)) => Err(words),
        }
    }
}

impl Scenario {
    /// Runs it. A panic of the engine is an error.
    fn run(
        &self,
        verbose: bool,
        visit: &mut dyn FnMut(&Moment<'_>) -> bool,
    ) -> Result<Result<(), Ended>, String> {
        judge::guarded(|| Run::new(self, verbose, visit)?.run(&self.sequence))
    }
}

impl Finding {
    /// What `--at` takes to show it again.
    pub fn address(&self) -> String {
        let Self { scenario: Scenario { shape, sequence, schedule }, at, .. } = self;
        match at {
            Some(At { moment, crash, fates, .. }) => {
                let crash = if *crash == Crash::Cut { "cut" } else { "kill" };
                let fates: String = fates.iter().map(|fate| digit(*fate)).collect();
                format!("{shape}/{sequence}/{schedule}/{moment}/{crash}/{fates}")
            }
            None => format!("{shape}/{sequence}/{schedule}/{}/cut/", u64::MAX),
        }
    }
}

/// A fate as a digit: no sector has as many as 36 writes that differ.
fn digit(fate: u8) -> char {
    char::from_digit(fate.into(), 36).expect("few writes of one sector")
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('/').collect();
        let [shape, sequence, schedule, moment, crash, fates] = parts[..] else {
            return Err("an address is ARRAY/SEQUENCE/SCHEDULE/MOMENT/CRASH/FATES".to_owned());
        };
        let fate = |digit: char| {
            let fate = digit.to_digit(36).map(|digit| digit as u8);
            fate.ok_or_else(|| format!("{digit:?} is no digit"))
        };
        let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number"));
        Ok(Self {
            scenario: Scenario {
                shape: shape.parse()?,
                sequence: sequence.parse()?,
                schedule: number(schedule)?,
            },
            moment: number(moment)?,
            crash: match crash {
                "cut" => Crash::Cut,
                "kill" => Crash::Kill,
                other => return Err(format!("{other:?} is neither cut nor kill")),
            },
            fates: fates.chars().map(fate).collect::<Result<_, _>>()?,
        })
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Scenario { shape, sequence, .. } = &self.scenario;
        writeln!(f, "{shape} {sequence}: {}", self.reason)?;
        if let Some(at) = &self.at {
            writeln!(f, "  {:?} at moment {}, with these pieces at risk:", at.crash, at.moment)?;
            at.words.iter().try_for_each(|words| writeln!(f, "    {words}"))?;
        }
        Ok(())
    }
}

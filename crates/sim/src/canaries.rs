//! Negative controls of the simulator: each rule of the engine is broken, one at a time, until a seed
//! notices. docs/sim.md says which of them live.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Instant;

use mdspace_engine::array::{Asked, Rule};
use mdspace_sim::settings::{Settings, Trouble};
use mdspace_sim::trace::Trace;
use mdspace_sim::trial;

use super::{Options, in_parallel};

/// How the break of a rule was noticed.
struct Noticed {
    seed: u64,
    trouble: Trouble,
    story: &'static str,
    reason: String,
}

/// What the seeds noticed of one break.
#[derive(Default)]
struct Sum {
    first: Option<Noticed>,
    /// How many of them by the name of their story.
    stories: BTreeMap<&'static str, u64>,
    /// Seeds that noticed it, and those that asked about the rule and did not.
    hits: Vec<u64>,
    missed: Vec<u64>,
}

impl Sum {
    fn add(&mut self, noticed: Noticed) {
        self.hits.push(noticed.seed);
        *self.stories.entry(noticed.story).or_default() += 1;
        if self.first.as_ref().is_none_or(|first| noticed.seed < first.seed) {
            self.first = Some(noticed);
        }
    }

    /// The stories of the seeds that noticed, those of most first, and of how many that asked about the rule.
    fn by_story(&self, asked: &BTreeMap<&'static str, u64>) -> String {
        let mut stories: Vec<_> = self.stories.iter().collect();
        stories.sort_by_key(|(_, seeds)| std::cmp::Reverse(**seeds));
        let name = |story: &'static str| if story.is_empty() { "no story" } else { story };
        let words = stories
            .iter()
            .map(|(story, seeds)| format!("{} {seeds} of {}", name(story), asked[*story]));
        words.collect::<Vec<_>>().join(", ")
    }
}

/// A seed that the whole engine runs through. Only that counts.
struct Good {
    seed: u64,
    trouble: Trouble,
    story: &'static str,
    asked: Asked,
}

/// Breaks each rule in turn. True when all of it was noticed.
pub(super) fn run(options: &Options) -> bool {
    let mut alive = 0;
    let rules: Vec<Rule> = options.broken.map_or(Rule::ALL.to_vec(), |rule| vec![rule]);
    let good = good_seeds(options);
    for rule in &rules {
        let since = Instant::now();
        let sum: Mutex<Sum> = Mutex::default();
        let asked = || good.iter().filter(|good| good.asked.has(*rule));
        in_parallel(options, asked(), |good| {
            let Good { seed, trouble, story, .. } = *good;
            let reason = breaks(*rule, good, options);
            let mut sum = sum.lock().expect("nothing panics under the lock");
            match reason {
                Some(reason) => sum.add(Noticed { seed, trouble, story, reason }),
                None => {
                    sum.missed.push(seed);
                    return true;
                }
            }
            options.keep_going
        });
        let seconds = since.elapsed().as_secs_f64();
        let mut sum = sum.into_inner().expect("nothing panics under the lock");
        let mut stories = BTreeMap::new();
        asked().for_each(|good| *stories.entry(good.story).or_default() += 1);
        let of_all = match options.keep_going {
            true => {
                format!("{} of {} ({}), ", sum.hits.len(), options.seeds, sum.by_story(&stories))
            }
            false => String::new(),
        };
        let name = rule.name();
        if options.keep_going && options.story.is_some() {
            sum.hits.sort_unstable();
            sum.missed.sort_unstable();
            println!("{name:<30} noticed by {:?}, not by {:?}", sum.hits, sum.missed);
        }
        match sum.first {
            Some(Noticed { seed, trouble, reason, .. }) => {
                let trouble = if trouble == Trouble::Beyond { " beyond" } else { "" };
                println!("{name:<30} {of_all}seed {seed}{trouble}, {seconds:.1} s: {reason}");
            }
            None => {
                alive += 1;
                println!("{name:<30} LIVES, {seconds:.1} s: {}", rule.sentence());
            }
        }
    }
    let runs = good.len();
    println!(
        "{} rules, {alive} broken ones live after {} seeds, {runs} of them run",
        rules.len(),
        options.seeds
    );
    alive == 0
}

/// The seeds to be run, by turns within bearable trouble and beyond, and what each asks.
fn good_seeds(options: &Options) -> Vec<Good> {
    let good: Mutex<Vec<Good>> = Mutex::default();
    in_parallel(options, options.first..options.first + options.seeds, |seed| {
        let trouble = Trouble::by_turns(seed);
        let settings = Settings::draw(seed, options.level, trouble);
        if !options.wants(&settings) {
            return true;
        }
        let story = settings.story;
        Asked::take_here();
        let result = trial::run(settings, Trace::silent(), None, None).result;
        let asked = Asked::take_here();
        match result {
            Ok(_) => {
                let mut good = good.lock().expect("nothing panics under the lock");
                good.push(Good { seed, trouble, story, asked });
            }
            Err(reason) => println!("seed {seed} fails as it is: {}", reason.words),
        }
        true
    });
    let mut good = good.into_inner().expect("nothing panics under the lock");
    good.sort_by_key(|good| good.seed);
    good
}

/// What is noticed of a broken rule.
fn breaks(rule: Rule, good: &Good, options: &Options) -> Option<String> {
    let whole = Settings::draw(good.seed, options.level, good.trouble);
    let broken = Settings { broken: Some(rule), ..whole };
    trial::run(broken, Trace::silent(), None, None).result.err().map(|reason| reason.words)
}

//! Negative controls of the simulator: each rule of the engine is broken, one at a time, until a seed
//! notices. docs/sim.md says which of them live.

use std::sync::Mutex;
use std::time::Instant;

use mdspace_engine::array::Rule;
use mdspace_sim::settings::{Settings, Trouble};
use mdspace_sim::trace::Trace;
use mdspace_sim::trial;

use super::{Options, in_parallel};

/// How the break of a rule was noticed.
struct Noticed {
    seed: u64,
    trouble: Trouble,
    reason: String,
}

/// Breaks each rule in turn. True when all of it was noticed.
pub(super) fn run(options: &Options) -> bool {
    let mut alive = 0;
    let rules: Vec<Rule> = options.broken.map_or(Rule::ALL.to_vec(), |rule| vec![rule]);
    for rule in &rules {
        let since = Instant::now();
        let first: Mutex<Option<Noticed>> = Mutex::default();
        in_parallel(options, options.seeds, |seed| {
            let Some(noticed) = breaks(*rule, seed, options) else { return true };
            let mut first = first.lock().expect("nothing panics under the lock");
            if first.as_ref().is_none_or(|other| noticed.seed < other.seed) {
                *first = Some(noticed);
            }
            false
        });
        let seconds = since.elapsed().as_secs_f64();
        match first.into_inner().expect("nothing panics under the lock") {
            Some(Noticed { seed, trouble, reason }) => {
                let trouble = if trouble == Trouble::Beyond { " beyond" } else { "" };
                println!("{:<30} seed {seed}{trouble}, {seconds:.1} s: {reason}", rule.name());
            }
            None => {
                alive += 1;
                println!("{:<30} LIVES, {seconds:.1} s: {}", rule.name(), rule.sentence());
            }
        }
    }
    println!("{} rules, {alive} broken ones live after {} seeds", rules.len(), options.seeds);
    alive == 0
}

/// Runs a seed with a broken rule. Only what the whole engine runs through counts.
fn breaks(rule: Rule, seed: u64, options: &Options) -> Option<Noticed> {
    let trouble = Trouble::by_turns(seed);
    let whole = Settings::draw(seed, options.level, trouble);
    if !options.wants(&whole) {
        return None;
    }
    let broken = Settings { broken: Some(rule), ..whole.clone() };
    let result = |settings| trial::run(settings, Trace::silent(), None, None).result;
    let reason = result(broken).err()?.words;
    result(whole).is_ok().then_some(Noticed { seed, trouble, reason })
}

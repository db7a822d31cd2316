//! Negative controls of the simulator: each rule of the engine is broken, one at a time, until a seed
//! notices. docs/sim.md says which of them live.

use std::panic;
use std::time::Instant;

use mdspace_engine::array::Rule;
use mdspace_sim::settings::{Settings, Trouble};

use super::{Options, run_settings};

/// How the break of a rule was noticed.
struct Noticed {
    seed: u64,
    trouble: Trouble,
    reason: String,
}

/// Breaks each rule in turn. True when all of it was noticed.
pub(super) fn run(options: &Options) -> bool {
    // A broken engine panics, and that is as good as any other notice.
    panic::set_hook(Box::new(|_| {}));
    let mut alive = 0;
    for rule in Rule::ALL {
        let since = Instant::now();
        let noticed = (options.first..options.first + options.seeds)
            .find_map(|seed| breaks(*rule, seed, options));
        let seconds = since.elapsed().as_secs_f64();
        match noticed {
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
    println!("{} rules, {alive} broken ones live after {} seeds", Rule::ALL.len(), options.seeds);
    alive == 0
}

/// Runs a seed with a broken rule. Only what the whole engine runs through counts.
fn breaks(rule: Rule, seed: u64, options: &Options) -> Option<Noticed> {
    let trouble = Trouble::by_turns(seed);
    let whole = Settings::draw(seed, options.level, trouble);
    let broken = Settings { broken: Some(rule), ..whole.clone() };
    let reason = run_settings(broken, false, None).err()?;
    run_settings(whole, false, None).is_ok().then_some(Noticed { seed, trouble, reason })
}

//! `sim --exhaustive`: the search in the small scope, and what it covered.

use std::num::NonZero;
use std::time::Instant;

use mdspace_sim::exhaustive::Scope;

use super::Options;

/// Searches, or replays one crash. True when nothing is wrong.
pub(super) fn run(options: &Options) -> bool {
    let broken = options.broken;
    if let Some(address) = &options.at {
        return match address.judge(broken, true) {
            Ok(()) => true,
            Err(reason) => {
                println!("{reason}");
                false
            }
        };
    }
    let since = Instant::now();
    let jobs = match options.jobs {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        jobs => jobs,
    };
    let mut scope = if options.reduced { Scope::reduced() } else { Scope::full() };
    scope.shapes.retain(|shape| options.level.is_none_or(|level| level == shape.level));
    let covered = scope.with_broken(broken).search(jobs);
    println!(
        "{} sequences ({} refused), {} crash points, {} images, {} distinct; {:.1} s",
        covered.sequences,
        covered.refused,
        covered.moments,
        covered.images,
        covered.distinct,
        since.elapsed().as_secs_f64()
    );
    let Some(finding) = &covered.finding else { return true };
    let broken = broken.map(|rule| format!(" --broken {}", rule.name())).unwrap_or_default();
    print!("FAILED: {finding}");
    println!(
        "  replay: cargo run --release -p mdspace-sim -- --exhaustive --at {}{broken}",
        finding.address()
    );
    false
}

//! What lanes share, under every schedule of its threads and every order of memory that the language
//! allows: a lost wake shows as a deadlock, two owners of a claim as a data race.
//!
//! `cargo test -p mdspace-engine --features weak-memory --test weak_memory`

#![allow(clippy::unwrap_used, reason = "what fails here fails the test")]

mod claims;
mod handover;
mod sleep;

/// Every schedule with at most so many switches that no thread asked for.
fn check(switches: usize, test: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(switches);
    model.check(test);
}

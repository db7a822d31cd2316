//! Whole arrays over disks in memory: made, used, broken, mended and assembled again.
//!
//! Every test runs a [`world::World`] on one thread under a seed; a failure prints the seed.
#![expect(clippy::unwrap_used, reason = "a test ends at what it did not expect")]

mod accepted;
mod adding;
mod areas;
mod asked;
mod back;
mod behind;
mod caching;
mod choices;
mod chosen;
mod churn;
mod counted;
mod crash;
mod degraded;
mod doubt;
mod faults;
mod filling;
mod flushes;
mod given_up;
mod hedged;
mod hostile;
mod hung;
mod kinds;
mod left_undone;
mod levels;
mod listed;
mod lost;
mod members;
mod neighbours;
mod picks;
mod power;
mod prefetched;
mod refused;
mod replacing;
mod resets;
mod rough;
mod rounds;
mod shapes;
mod sharing;
mod stopping;
mod streams;
mod stress;
mod superblocks;
mod suspects;
mod swaps;
mod syncing;
mod taken_over;
mod together;
mod told;
mod torn;
mod updates;
mod verdicts;
mod workers;
mod world;

//! Makes a failing run smaller, as long as it fails for a reason of the same kind.
//!
//! It goes round and round over all ways to have less of something, and keeps each that still fails. Less of one
//! thing changes what is drawn for the others: where nothing more can go, a few more seeds are tried with each.

#[cfg(test)]
mod tests;

use mdspace_format::superblock::MemberFlags;

use crate::disk::{DiskSpec, Latency};
use crate::settings::{Happening, Settings};

/// A run that fails with as little as could be found.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// It.
    pub settings: Settings,
    /// What it has less of, in the order in which that was first found.
    pub removed: Vec<String>,
    /// Runs that this took.
    pub runs: u64,
}

/// How much may be tried.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Runs.
    pub runs: u64,
    /// Steps of all their worlds.
    pub steps: u64,
}

/// Seeds that are tried with each change in the end: the run's own and those that follow.
const SEEDS: u64 = 4;

/// Shrinks a failing run. `run` gives whether one fails for the same reason, and the steps of its world.
pub fn shrink(
    settings: &Settings,
    mut budget: Budget,
    mut run: impl FnMut(&Settings) -> (bool, u64),
) -> Shrunk {
    let mut shrunk = Shrunk { settings: settings.clone(), removed: Vec::new(), runs: 0 };
    let (mut at, mut in_vain, mut more_seeds) = (0, 0, 0);
    loop {
        let all = smaller(&shrunk.settings);
        if in_vain >= all.len() {
            if more_seeds > 0 || all.is_empty() {
                return shrunk;
            }
            (in_vain, more_seeds) = (0, SEEDS - 1);
        }
        let (words, candidate) = &all[at % all.len()];
        let seeds = candidate.seed..=candidate.seed.saturating_add(more_seeds);
        let mut failing = None;
        for seed in seeds {
            let candidate = Settings { seed, ..candidate.clone() };
            let (fails, steps) = run(&candidate);
            shrunk.runs += 1;
            budget.steps = budget.steps.saturating_sub(steps);
            if fails {
                failing = Some(candidate);
                break;
            }
            if shrunk.runs >= budget.runs || budget.steps == 0 {
                break;
            }
        }
        match failing {
            Some(candidate) => {
                shrunk.settings = candidate;
                if !shrunk.removed.contains(words) {
                    shrunk.removed.push(words.clone());
                }
                in_vain = 0;
            }
            None => (at, in_vain) = (at + 1, in_vain + 1),
        }
        if shrunk.runs >= budget.runs || budget.steps == 0 {
            return shrunk;
        }
    }
}

/// A way to have less of something.
type Way = fn(&mut Settings);

/// Those of one step each, the large ones first.
const WAYS: &[(&str, Way)] = &[
    ("half of the requests", |settings| settings.requests = settings.requests.div_ceil(2)),
    ("no troubles by chance", |settings| settings.happenings.fill(0)),
    ("no aims", |settings| settings.aims.clear()),
    ("no paths", |settings| settings.paths = 0),
    ("no workers", |settings| settings.workers = 0),
    ("one lane", |settings| settings.lanes = 1),
    ("no spares", |settings| {
        settings.spares = 0;
        settings.disks.truncate(settings.slots.into());
    }),
    ("one slot less", |settings| {
        let least = match settings.level {
            -1 | 0 => 1,
            1 => 2,
            4 | 5 => 3,
            6 => 4,
            // Its layouts go with their slots.
            _ => settings.slots,
        };
        if settings.slots > least {
            settings.slots -= 1;
            settings.disks.remove(settings.slots.into());
            settings.flags.truncate(settings.disks.len());
        }
    }),
    ("no bitmap", |settings| {
        (settings.bitmap_chunk_bytes, settings.write_behind) = (None, 0);
    }),
    ("no writes behind", |settings| settings.write_behind = 0),
    ("no flags", |settings| settings.flags.fill(MemberFlags::default())),
    ("the keys of a new array", |settings| settings.tuning.clear()),
    ("zeroes on the disks", |settings| settings.noisy_disks = false),
    ("members in sync from the start", |settings| {
        (settings.noisy_disks, settings.assume_clean) = (false, true);
    }),
    ("half of the sectors", |settings| resize(settings, settings.member_sectors / 2)),
    ("small chunks", |settings| {
        settings.chunk_sectors = settings.chunk_sectors.min(8);
        settings.unit_sectors = 8;
    }),
    ("disks of one kind", |settings| {
        let spec = |disk: &DiskSpec| DiskSpec {
            volatile_cache: disk.volatile_cache,
            ..DiskSpec::plain(disk.sectors)
        };
        settings.disks = settings.disks.iter().map(spec).collect();
    }),
    ("disks of one speed", |settings| {
        settings.disks.iter_mut().for_each(|disk| {
            (disk.latency, disk.instant_one_in) = (Latency::default(), 0);
        });
    }),
    ("no slow records", |settings| {
        settings.disks.iter_mut().for_each(|disk| disk.slow_start = (0, 1));
    }),
    ("no volatile caches", |settings| {
        settings.disks.iter_mut().for_each(|disk| disk.volatile_cache = false);
    }),
    ("half of the requests at once", |settings| {
        settings.habits.depth = settings.habits.depth.div_ceil(2);
    }),
    ("writes of a block", |settings| settings.habits.lengths = [1, 0, 0, 0, 0]),
    ("no reads", |settings| settings.habits.kinds[0] = 0),
    ("no flushes", |settings| settings.habits.kinds[2] = 0),
    ("no discards", |settings| settings.habits.kinds[3] = 0),
    ("no writes of zeroes", |settings| settings.habits.kinds[4] = 0),
    ("no durable writes", |settings| settings.habits.fua_one_in = 0),
    ("no changing memory", |settings| settings.habits.unstable_one_in = 0),
    ("no streams", |settings| settings.habits.stream_percent = 0),
    ("no hot places", |settings| settings.habits.hot_percent = 0),
    ("no trickle", |settings| settings.habits.trickle = false),
    ("fewer requests", |settings| settings.requests -= settings.requests / 8),
    ("one request less", |settings| {
        settings.requests = settings.requests.saturating_sub(1).max(1);
    }),
];

/// All that is smaller by one thing.
fn smaller(settings: &Settings) -> Vec<(String, Settings)> {
    let mut all = Vec::new();
    let mut add = |words: String, way: &dyn Fn(&mut Settings)| {
        let mut changed = settings.clone();
        way(&mut changed);
        if changed != *settings {
            all.push((words, changed));
        }
    };
    for (words, way) in WAYS {
        add((*words).to_owned(), way);
    }
    for at in 0..settings.aims.len() {
        add(format!("no {}", settings.aims[at]), &|settings| {
            settings.aims.remove(at);
        });
    }
    for (at, happening) in Happening::ALL.iter().enumerate() {
        add(format!("no {happening:?} by chance"), &|settings| settings.happenings[at] = 0);
    }
    for &(key, _) in &settings.tuning {
        // The largest speed goes with the least one, below which it may not be.
        let goes =
            |other: &str| other == key || other == "sync_speed_max" && key == "sync_speed_min";
        add(format!("{key} as in a new array"), &|settings| {
            settings.tuning.retain(|(other, _)| !goes(other));
        });
    }
    all
}

/// Another size of all members, in whole chunks and blocks; none below which bitmaps and chunks are pointless.
fn resize(settings: &mut Settings, wanted: u64) {
    let unit = u64::from(settings.chunk_sectors.max(2)).max(settings.block_sectors());
    let sectors = (wanted / unit * unit).max(128_u64.next_multiple_of(unit));
    let before = settings.member_sectors;
    // Where members differ, all stay as they are.
    let is_alike =
        |disk: &DiskSpec| disk.sectors == settings.disks[0].sectors && disk.sectors > before;
    if sectors >= before || !settings.disks.iter().all(is_alike) {
        return;
    }
    settings.member_sectors = sectors;
    settings.disks.iter_mut().for_each(|disk| disk.sectors -= (before - sectors) & !7);
}

//! `mdspace bench peers`: the same loads on Linux md under User-Mode Linux.
//!
//! The guest's members are `brd` ramdisks, its load is fio's io_uring engine in batches (libaio for
//! dm-multipath, which it serves better), straight to the block device. Each side is compared with its own raw member first.

mod samples;
mod script;
mod text;

use serde::Serialize;

use crate::args::BenchPeersArgs;
use crate::failure::Failure;
use crate::output;

use super::guest::{CAVEAT, Guest};
use super::machine;
use super::sync::Task;

use samples::{LoadSamples, Row, SyncRow, SyncSamples};
use script::script;

/// An array and the loads on it, in the words of `bench run`.
struct Shape {
    name: &'static str,
    array: &'static str,
    loads: &'static [Load],
}

struct Load {
    name: &'static str,
    words: &'static str,
    /// Slots that have failed.
    lost: &'static str,
}

const fn load(name: &'static str, words: &'static str) -> Load {
    Load { name, words, lost: "" }
}

const RANDOM_WRITE: &str = "--rw=randwrite --bs=4k --iodepth=128";
const RANDOM_READ: &str = "--rw=randread --bs=4k --iodepth=128";

/// In a shape, what needs all members comes before what does not.
const SHAPES: [Shape; 4] = [
    Shape {
        name: "RAID6 4+2",
        array: "--level=6 --raid-devices=6 --chunk=512K",
        loads: &[
            load("4 KiB random write", RANDOM_WRITE),
            load("4 KiB sequential write", "--rw=write --bs=4k --iodepth=256"),
            load("1 MiB write", "--rw=write --bs=1m --iodepth=8"),
            load("4 KiB random read", RANDOM_READ),
            Load { name: "degraded 4 KiB random read", words: RANDOM_READ, lost: "--fail=1" },
            Load { name: "degraded 4 KiB random write", words: RANDOM_WRITE, lost: "--fail=1" },
        ],
    },
    Shape {
        name: "RAID5 3+1",
        array: "--level=5 --raid-devices=4 --chunk=512K",
        loads: &[load("4 KiB random write", RANDOM_WRITE)],
    },
    Shape {
        name: "RAID1",
        array: "--level=1 --raid-devices=2",
        loads: &[load("4 KiB random write", RANDOM_WRITE)],
    },
    Shape {
        name: "RAID10",
        array: "--level=10 --raid-devices=4 --chunk=512K",
        loads: &[load("4 KiB random write", RANDOM_WRITE)],
    },
];

/// Of two paths to one member.
const SELECTORS: [&str; 3] = ["service-time", "queue-length", "round-robin"];

fn multipath_name(selector: &str) -> String {
    format!("2 paths, {selector}, 4 KiB random read")
}

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    machine: String,
    peer: &'static str,
    caveat: &'static str,
    /// The last ones are of dm-multipath.
    loads: Vec<Row>,
    /// What the guest could not do, and why.
    absent: Vec<(String, String)>,
    syncs: Vec<SyncRow>,
}

/// Measures md in a guest, then ours, several times over, and prints both: a machine that is slower for a
/// minute is slower for both.
pub(crate) fn peers(args: &BenchPeersArgs) -> Result<(), Failure> {
    let (passes, seconds) = if args.quick { (3, 0.5) } else { (5, 1.0) };
    let guest = Guest::find()?;
    let (mut loads, mut absent) = (loads(), Vec::new());
    let mut syncs = Task::ALL.map(SyncSamples::new);
    for _ in 0..passes {
        let theirs = guest.run(&script(), 1, seconds)?;
        absent.extend(loads.extract_if(.., |load| theirs.why_not(&load.name).is_some()).map(
            |load| {
                let why = theirs.why_not(&load.name).unwrap_or_default().to_owned();
                (load.name, why)
            },
        ));
        loads.iter_mut().try_for_each(|load| load.measure(&theirs, seconds))?;
        syncs.iter_mut().try_for_each(|sync| sync.measure(&theirs))?;
    }
    let machine = machine::describe();
    let (peer, caveat) = ("Linux md and dm-multipath", CAVEAT);
    let loads = loads.into_iter().map(LoadSamples::row).collect();
    let syncs = syncs.map(SyncSamples::row).into();
    let report = Report { schema: 2, machine, peer, caveat, loads, absent, syncs };
    match args.json {
        true => output::print_json(&report),
        false => output::print(&text::report(&report)),
    }
}

/// Every load of the table.
fn loads() -> Vec<LoadSamples> {
    let of_shape = |shape: &'static Shape| {
        shape.loads.iter().map(move |load| {
            let words = format!("{} {} {}", shape.array, load.words, load.lost);
            LoadSamples::new(format!("{}, {}", shape.name, load.name), &words)
        })
    };
    let of_paths = |selector: &&str| {
        let words = format!("--multipath={selector} {RANDOM_READ}");
        LoadSamples::new(multipath_name(selector), &words)
    };
    SHAPES.iter().flat_map(of_shape).chain(SELECTORS.iter().map(of_paths)).collect()
}

#[cfg(test)]
mod tests;

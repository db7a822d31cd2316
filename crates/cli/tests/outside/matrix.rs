//! The full matrix: every level in every layout, with several chunks, at every place of the superblock,
//! clean and degraded, between the real md and mdspace. Hours on a slow machine: `make test-all` runs
//! it, one level a test; `MDSPACE_MATRIX=5,2` runs only every fifth case, from the second on.

use std::borrow::Cow;

use crate::interop::{Case, take_over_each_others};

/// Cases in one round of boots: more would not fit in the guest's time.
const CASES_A_BOOT: usize = 30;
/// Chunks in KiB: md's smallest, one between, and the default.
const CHUNKS_KIB: [u32; 3] = [4, 64, 512];
const METADATA: [&str; 3] = ["1.0", "1.1", "1.2"];

/// A level, its layouts, how many members it is tried with, and the slots that it loses.
struct Row {
    level: &'static str,
    layouts: &'static [&'static str],
    chunks: &'static [u32],
    members: &'static [usize],
    losses: &'static [&'static [usize]],
}

const RAID5_LAYOUTS: &[&str] = &[
    "left-asymmetric",
    "right-asymmetric",
    "left-symmetric",
    "right-symmetric",
    "parity-first",
    "parity-last",
];

const RAID6_LAYOUTS: &[&str] = &[
    "left-asymmetric",
    "right-asymmetric",
    "left-symmetric",
    "right-symmetric",
    "parity-first",
    "parity-last",
    "ddf-zero-restart",
    "ddf-N-restart",
    "ddf-N-continue",
    "left-asymmetric-6",
    "right-asymmetric-6",
    "left-symmetric-6",
    "right-symmetric-6",
    "parity-first-6",
];

impl Row {
    /// Every combination; the bitmap and the number of members take turns.
    fn cases(&self) -> Vec<Case> {
        let mut cases = Vec::new();
        for layout in self.layouts {
            for chunk_kib in self.chunks {
                for metadata in METADATA {
                    for failed in self.losses {
                        let number = cases.len();
                        cases.push(Case {
                            name: Cow::Owned(format!("r{}n{number}", self.level)),
                            level: self.level,
                            members: self.members[number / 2 % self.members.len()],
                            layout,
                            chunk_kib: *chunk_kib,
                            metadata,
                            bitmap: self.level != "0" && self.level != "linear" && number % 3 != 1,
                            failed,
                        });
                    }
                }
            }
        }
        cases
    }

    fn run(&self) {
        let (step, first) = sample();
        let cases: Vec<Case> = self.cases().into_iter().skip(first).step_by(step).collect();
        for boot in cases.chunks(CASES_A_BOOT) {
            let (first, last) = (&boot[0].name, &boot[boot.len() - 1].name);
            println!("{} of {} cases: {first} to {last}", boot.len(), self.cases().len());
            boot.iter().for_each(|case| println!("{}: {}", case.name, case.options().join(" ")));
            take_over_each_others(boot);
        }
    }
}

/// Every how manieth case is run, and the first of them, from `MDSPACE_MATRIX`; all without it.
fn sample() -> (usize, usize) {
    let Ok(text) = std::env::var("MDSPACE_MATRIX") else { return (1, 0) };
    let parsed = text.split_once(',').and_then(|(step, first)| {
        Some((step.parse().ok().filter(|step| *step > 0)?, first.parse().ok()?))
    });
    parsed.unwrap_or_else(|| panic!("MDSPACE_MATRIX is STEP,FIRST and not {text:?}"))
}

#[test]
fn linear_and_raid0() {
    let none: &[&[usize]] = &[&[]];
    let linear =
        Row { level: "linear", layouts: &[""], chunks: &[0], members: &[2, 4], losses: none };
    let raid0 = Row { level: "0", chunks: &CHUNKS_KIB, ..linear };
    linear.run();
    raid0.run();
}

#[test]
fn raid1() {
    let losses: &[&[usize]] = &[&[], &[0], &[1]];
    Row { level: "1", layouts: &[""], chunks: &[0], members: &[2, 3], losses }.run();
}

#[test]
fn raid4() {
    let losses: &[&[usize]] = &[&[], &[0], &[2]];
    Row { level: "4", layouts: &[""], chunks: &CHUNKS_KIB, members: &[3, 5], losses }.run();
}

#[test]
fn raid5() {
    let losses: &[&[usize]] = &[&[], &[1]];
    let (layouts, members) = (RAID5_LAYOUTS, &[3, 4, 6][..]);
    Row { level: "5", layouts, chunks: &CHUNKS_KIB, members, losses }.run();
}

#[test]
fn raid6() {
    let losses: &[&[usize]] = &[&[], &[0, 3]];
    let (layouts, members) = (RAID6_LAYOUTS, &[4, 5, 6][..]);
    Row { level: "6", layouts, chunks: &CHUNKS_KIB, members, losses }.run();
}

#[test]
fn raid10() {
    let losses: &[&[usize]] = &[&[], &[1]];
    let (layouts, members) = (&["n2", "n3", "f2", "f3", "o2", "o3"][..], &[4, 5, 3][..]);
    Row { level: "10", layouts, chunks: &CHUNKS_KIB, members, losses }.run();
}

//! The story of a run, one line an event, and its hash: equal seeds must give equal hashes.
//!
//! [`LEGEND`] explains the lines.

use std::fmt::{Arguments, Write};

use mdspace_engine::time::Time;

/// How to read a trace.
pub const LEGEND: &str = "\
time in microseconds, then who and what:
  L0 > d2 w 1024+8     lane 0 submits a write of 8 sectors from sector 1024 of disk 2
     * d2 w 1024+8     the disk has done it: from now on others read it
  L0 < d2 w 1024+8     lane 0 receives its completion;  '!' instead: an error, which follows
  L0 T d2 w 1024+8     its deadline passed; the disk may still do it
operations: r read, w write, W write with FUA, f flush, d discard, z write zeroes, Z the same with FUA
  Q0 > #7 w 40+16 v12  queue 0 of the array takes request 7, a write of version 12 (FUA: W)
  Q0 < #7              it is acknowledged;  '!': refused or failed, with the reason
  --                   what the simulation does to the array, its disks or its clock";

/// Writes the story down.
#[derive(Debug, Default)]
pub struct Trace {
    hash: u64,
    lines: u64,
    line: String,
    verbose: bool,
    silent: bool,
}

impl Trace {
    /// A trace that is also printed when `verbose`.
    pub fn new(verbose: bool) -> Self {
        Self { verbose, ..Self::default() }
    }

    /// A trace that keeps nothing, not even its hash: writing lines is a tenth of the time of a run.
    pub fn silent() -> Self {
        Self { silent: true, ..Self::default() }
    }

    /// Adds one event.
    pub fn add(&mut self, now: Time, event: Arguments<'_>) {
        if self.silent {
            return;
        }
        self.line.clear();
        let nanos = now.as_nanos();
        write!(self.line, "{:>10}.{:03} {event}", nanos / 1000, nanos % 1000)
            .expect("writing to a string does not fail");
        self.hash = fnv1a(self.hash, self.line.as_bytes());
        self.lines += 1;
        if self.verbose {
            println!("{}", self.line);
        }
    }

    /// The hash of all lines so far.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Lines so far.
    pub fn lines(&self) -> u64 {
        self.lines
    }
}

/// FNV-1a over 64 bits, continued from `hash`.
fn fnv1a(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash ^ 0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

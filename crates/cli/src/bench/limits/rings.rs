//! What each kind of work cannot do without on a lane's ring: the member I/Os themselves.

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use mdspace_engine::lane::LaneId;
use mdspace_io::{Lanes, LanesConfig, MemberTable, OpenMode};
use tempfile::TempDir;

use super::rounds::Rounds;
use crate::bench::load::Pattern;
use crate::bench::measure::{Load, Outcome, RawMember, Until, raw_load};
use crate::bench::run::{failed, pinned};
use crate::failure::Failure;

const MEMBERS: usize = 6;
const MEMBER_BYTES: u64 = 64 << 20;
pub(super) const BLOCK_BYTES: usize = 4096;

/// A load on six file members in the page cache.
pub(super) struct RingLoad {
    pub(super) name: &'static str,
    kind: Kind,
    depth: usize,
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
    /// The six I/Os of a read-modify-write.
    Modify,
}

pub(super) const LOADS: [RingLoad; 3] = [
    RingLoad { name: "raw 4 KiB random read", kind: Kind::Read, depth: 128 },
    RingLoad { name: "raw 4 KiB random write", kind: Kind::Write, depth: 128 },
    RingLoad { name: "RAID6 4 KiB random write, six member I/Os", kind: Kind::Modify, depth: 128 },
];

/// File members, and lanes of one and of two threads.
pub(super) struct Rings {
    lanes: Vec<Lanes>,
    members: Vec<RawMember>,
    folder: TempDir,
}

impl Rings {
    /// Makes the files in `directory`, or where temporary files go.
    pub(super) fn new(directory: Option<&Path>) -> Result<Self, Failure> {
        let place = directory.map_or_else(std::env::temp_dir, Path::to_owned);
        let folder = TempDir::new_in(place).map_err(|error| failed("make a folder", error))?;
        let table = MemberTable::new();
        let mut members = Vec::new();
        for at in 0..MEMBERS {
            let path = folder.path().join(format!("m{at}"));
            let bytes = vec![at as u8 + 1; MEMBER_BYTES as usize];
            std::fs::write(&path, bytes).map_err(|error| failed("write a file member", error))?;
            let mode = OpenMode { buffered: true, ..OpenMode::RUN };
            let opened = table.open(&path.to_string_lossy(), mode);
            let (id, info) = opened.map_err(|error| failed("open a file member", error))?;
            members.push(RawMember { id, first_sector: 0, sectors: info.sectors });
        }
        let lanes = (1..=2).map(|count| {
            let members = table.clone();
            let config =
                LanesConfig { count, cpus: pinned(count), members, ..LanesConfig::default() };
            Lanes::start(config).map_err(|error| failed("start lanes", error))
        });
        Ok(Self { lanes: lanes.collect::<Result<_, _>>()?, members, folder })
    }

    /// What the members are, in a word or two.
    pub(super) fn place(&self) -> String {
        format!("files in {}", self.folder.path().parent().unwrap_or(Path::new("/")).display())
    }

    /// Runs a load on that many lanes at once.
    pub(super) fn run(&self, load: &RingLoad, threads: usize, span: Duration) -> Outcome {
        let (sender, receiver) = channel();
        for lane in 0..threads {
            let (sender, members, kind) = (sender.clone(), self.members.clone(), load.kind);
            let load = Load {
                pattern: if matches!(kind, Kind::Read) {
                    Pattern::read(true)
                } else {
                    Pattern::write(true)
                },
                block_bytes: BLOCK_BYTES,
                depth: load.depth,
                lane: lane as u64,
                lanes: threads as u64,
                until: Until::Elapsed(span),
                area_bytes: None,
            };
            self.lanes[threads - 1].run_on(LaneId(lane as u16), move |lane, io| {
                let (lane, io) = (lane.clone(), io.clone());
                lane.clone().spawn(async move {
                    let outcome = match kind {
                        Kind::Read | Kind::Write => raw_load(members, lane, io, load).await,
                        Kind::Modify => Rounds::run(members, lane, io, load).await,
                    };
                    // The caller waits below: it is there to hear.
                    let _ = sender.send(outcome);
                });
            });
        }
        drop(sender);
        let mut sum = Outcome::default();
        receiver.iter().for_each(|outcome| sum.add(outcome));
        sum
    }
}

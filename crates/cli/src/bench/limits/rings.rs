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
use crate::bench::{failed, machine};
use crate::failure::Failure;

const NVME: &str = "null:nvme";
const MEMBERS: usize = 6;
const MEMBER_BYTES: u64 = 64 << 20;
pub(super) const BLOCK_BYTES: usize = 4096;

/// A load on six members.
pub(super) struct RingLoad {
    name: &'static str,
    kind: Kind,
    depth: usize,
    place: Place,
}

/// What the members are.
#[derive(Clone, Copy)]
enum Place {
    /// Files in the page cache.
    Files,
    /// Models of fast drives.
    Nvme,
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
    /// The six I/Os of a read-modify-write.
    Modify,
}

const fn on_files(name: &'static str, kind: Kind) -> RingLoad {
    RingLoad { name, kind, depth: 128, place: Place::Files }
}

const fn one_on_nvme(name: &'static str, kind: Kind) -> RingLoad {
    RingLoad { name, kind, depth: 1, place: Place::Nvme }
}

pub(super) const LOADS: [RingLoad; 5] = [
    on_files("raw 4 KiB random read", Kind::Read),
    on_files("raw 4 KiB random write", Kind::Write),
    on_files("RAID6 4 KiB random write, six member I/Os", Kind::Modify),
    one_on_nvme("raw 4 KiB random write, depth 1", Kind::Write),
    one_on_nvme("RAID6 4 KiB random write, six member I/Os, depth 1", Kind::Modify),
];

/// File members, and lanes of one and of two threads.
pub(super) struct Rings {
    lanes: Vec<Lanes>,
    files: Vec<RawMember>,
    nvme: Vec<RawMember>,
    folder: TempDir,
}

impl Rings {
    /// Makes the files in `directory`, or where temporary files go.
    pub(super) fn new(directory: Option<&Path>) -> Result<Self, Failure> {
        let place = directory.map_or_else(std::env::temp_dir, Path::to_owned);
        let folder = TempDir::new_in(place).map_err(|error| failed("make a folder", error))?;
        let table = MemberTable::new();
        let (mut files, mut nvme) = (Vec::new(), Vec::new());
        for at in 0..MEMBERS {
            let path = folder.path().join(format!("m{at}"));
            let bytes = vec![at as u8 + 1; MEMBER_BYTES as usize];
            std::fs::write(&path, bytes).map_err(|error| failed("write a file member", error))?;
            files.push(open(&table, &path.to_string_lossy())?);
            nvme.push(open(&table, NVME)?);
        }
        let lanes = (1..=2).map(|count| {
            let members = table.clone();
            let config = LanesConfig {
                count,
                cpus: machine::pinned(count),
                members,
                ..LanesConfig::default()
            };
            Lanes::start(config).map_err(|error| failed("start lanes", error))
        });
        Ok(Self { lanes: lanes.collect::<Result<_, _>>()?, files, nvme, folder })
    }

    /// The load, and what its members are.
    pub(super) fn name(&self, load: &RingLoad) -> String {
        match load.place {
            Place::Files => {
                let folder = self.folder.path().parent().unwrap_or(Path::new("/"));
                format!("{} on files in {}", load.name, folder.display())
            }
            Place::Nvme => format!("{} on {NVME}", load.name),
        }
    }

    /// Runs a load on that many lanes at once.
    pub(super) fn run(&self, load: &RingLoad, threads: usize, span: Duration) -> Outcome {
        let (sender, receiver) = channel();
        for lane in 0..threads {
            let members = match load.place {
                Place::Files => self.files.clone(),
                Place::Nvme => self.nvme.clone(),
            };
            let (sender, kind) = (sender.clone(), load.kind);
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
        if matches!(load.place, Place::Nvme) {
            sum.count_whole();
        }
        sum
    }
}

fn open(table: &MemberTable, name: &str) -> Result<RawMember, Failure> {
    let mode = OpenMode { buffered: true, ..OpenMode::RUN };
    let opened = table.open(name, mode);
    let (id, info) = opened.map_err(|error| failed("open a member", error))?;
    Ok(RawMember { id, first_sector: 0, sectors: info.sectors })
}

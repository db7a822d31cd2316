//! Options of `mdspace bench`: fio's words where fio has them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Subcommand, ValueEnum};
use mdspace_format::Level;

use crate::bench::Pattern;
use crate::member_probe::Probed;

use super::key_value;
use super::size::{Size, bytes_of, short};

#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(subcommand)]
    pub(crate) verb: BenchVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchVerb {
    /// Measure an array and its raw members in turns. The members' data are lost.
    #[command(after_long_help = super::member::help())]
    Run(BenchRunArgs),
    /// Measure the bare loops that each kind of work cannot do without.
    Limits(BenchLimitsArgs),
    /// Measure what published work on md measured, and print both.
    Published(BenchPublishedArgs),
    /// Measure Linux md under User-Mode Linux by the same loads, and compare.
    Peers(BenchPeersArgs),
    /// Measure each front beside the best known server of its kind.
    Fronts(BenchFrontsArgs),
    /// Measure checks and rebuilds, alone and beside users.
    Rebuild(BenchRebuildArgs),
}

#[derive(Args, Debug)]
pub(crate) struct BenchRunArgs {
    /// Level of the array.
    #[arg(long, short = 'l', default_value = "6", value_parser = level)]
    pub(crate) level: Level,
    /// Members of the array.
    #[arg(long, short = 'n', default_value_t = 6)]
    pub(crate) raid_devices: usize,
    /// Chunk size; a bare number is KiB.
    #[arg(long, short = 'c', default_value = "512K")]
    pub(crate) chunk: Size,
    /// Layout, in mdadm's words.
    #[arg(long, short = 'p')]
    pub(crate) layout: Option<String>,
    /// Write-intent bitmap: internal or none.
    #[arg(long, short = 'b', default_value = "internal", value_parser = ["internal", "none"])]
    pub(crate) bitmap: String,
    /// A member: ram:SIZE or null:DEVICE for all of them, or one each.
    #[arg(long, default_value = "ram:256M")]
    pub(crate) member: Vec<String>,
    /// 0: reach file members through the page cache; 1: directly where they allow it.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=1))]
    pub(crate) direct: u8,
    /// What to do: read, write, rw, randread, randwrite or randrw.
    #[arg(long, default_value = "randwrite")]
    pub(crate) rw: Pattern,
    /// Of a hundred requests of a mixed load, so many read.
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u8).range(1..=99))]
    pub(crate) rwmixread: u8,
    /// Bytes of a request; a bare number is bytes.
    #[arg(long, default_value = "4k")]
    pub(crate) bs: BlockSize,
    /// Requests in flight on each lane.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) iodepth: u16,
    /// Lanes, each with its own thread and load.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) lanes: u16,
    /// Seconds of measuring on each side, cut into five repetitions.
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    pub(crate) runtime: f64,
    /// Send only so many requests on each lane, once and to the array alone: for instruction counts.
    #[arg(long, value_name = "N")]
    pub(crate) number_ios: Option<u64>,
    /// Measure no array but a multipath device, whose paths all lead to the one member, by this
    /// selector.
    #[arg(long, value_name = "SELECTOR", value_parser = ["round-robin", "queue-length", "service-time", "historical-service-time", "expected"])]
    pub(crate) multipath: Option<String>,
    /// Paths of the multipath device.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) paths: u8,
    /// Fail the member in this slot first.
    #[arg(long, value_name = "SLOT")]
    pub(crate) fail: Vec<usize>,
    /// Set one of md's keys before measuring: stripe_size, stripe_hash_locks, or a number that
    /// `mdspace get` lists.
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub(crate) set: Vec<(String, String)>,
    /// Answer yes to every question.
    #[arg(long, short = 'R')]
    pub(crate) run: bool,
    /// What the members were when they were looked at.
    #[arg(skip)]
    pub(crate) probed: Probed,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

impl BenchRunArgs {
    /// What to do, with the mix.
    pub(crate) fn pattern(&self) -> Pattern {
        match self.rw.reads_percent {
            0 | 100 => self.rw,
            _ => Pattern { reads_percent: self.rwmixread, ..self.rw },
        }
    }
}

impl fmt::Display for BenchRunArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pattern = match self.pattern() {
            pure @ Pattern { reads_percent: 0 | 100, .. } => pure.to_string(),
            mixed => format!("{mixed} with {} % reads,", mixed.reads_percent),
        };
        let members = self.member.join(" ");
        match &self.multipath {
            Some(selector) => write!(f, "{} paths to {members} by {selector}", self.paths)?,
            None => write!(
                f,
                "{} of {}, members {members}, chunk {}, bitmap {}",
                self.level,
                self.raid_devices,
                short(self.chunk.bytes),
                self.bitmap,
            )?,
        }
        let block = short(self.bs.bytes() as u64);
        write!(f, ", {pattern} {block}, depth {}, {} lanes", self.iodepth, self.lanes)?;
        self.set.iter().try_for_each(|(key, value)| write!(f, ", {key}={value}"))
    }
}

#[derive(Args, Debug)]
pub(crate) struct BenchLimitsArgs {
    /// Seconds of measuring for each loop, cut into five repetitions.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    pub(crate) runtime: f64,
    /// A fifth of the time.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Where file members are made and removed again; default: where temporary files go.
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BenchPublishedArgs {
    /// Only the table of this year.
    #[arg(long, value_name = "YEAR")]
    pub(crate) table: Option<u16>,
    /// Seconds of measuring for each side of a row, cut into five repetitions.
    #[arg(long, default_value_t = 2.0, value_parser = seconds)]
    pub(crate) runtime: f64,
    /// A fifth of the time.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BenchPeersArgs {
    /// Fewer and shorter repetitions.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct BenchFrontsArgs {
    /// Only this front.
    #[arg(long)]
    pub(crate) front: Option<FrontWord>,
    /// Seconds of measuring for each side of a row, cut into five repetitions.
    #[arg(long, default_value_t = 5.0, value_parser = seconds)]
    pub(crate) runtime: f64,
    /// A fifth of the time.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A front of `bench fronts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FrontWord {
    /// An NBD socket.
    Nbd,
    /// A file.
    Fuse,
    /// A loop device.
    Loop,
    /// The disk of a virtual machine.
    VhostUser,
}

#[derive(Args, Debug)]
pub(crate) struct BenchRebuildArgs {
    /// Only this table.
    #[arg(long)]
    pub(crate) table: Option<RebuildTable>,
    /// Fewer and shorter repetitions.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A table of `bench rebuild`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RebuildTable {
    /// Checks and rebuilds with nobody else there.
    Alone,
    /// Users beside a rebuild.
    Users,
}

/// fio's block size: a bare number is bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockSize(usize);

impl BlockSize {
    pub(crate) fn bytes(self) -> usize {
        self.0
    }
}

impl FromStr for BlockSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = bytes_of(text, 1)?;
        if bytes == 0 || !bytes.is_multiple_of(512) || bytes > 32 << 20 {
            return Err("a block is whole sectors of 512 bytes, at most 32M".into());
        }
        Ok(Self(bytes as usize))
    }
}

fn level(word: &str) -> Result<Level, String> {
    let digits = word.trim_start_matches("raid");
    let number = if word == "linear" { Some(-1) } else { digits.parse().ok() };
    number.and_then(Level::from_number).ok_or_else(|| format!("{word:?} is not a level"))
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.01..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("between 0.01 and 3600 seconds".into()),
    }
}

//! `mdspace bench run`: an array and its raw members, in turns, in one run.

use std::sync::Arc;
use std::time::Duration;

use mdspace_engine::array::settings::{SettingError, StartSettings};
use mdspace_engine::array::{Action, Reply};
use mdspace_engine::assembly::Options;
use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_engine::create::{self, Creation, NewDevice};
use mdspace_engine::lane::{LaneId, Traffic};
use mdspace_engine::status::ArrayStatus;
use mdspace_format::Uuid;
use mdspace_format::placement::BitmapRequest;
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{Level, MetadataVersion};
use mdspace_io::{Lanes, LanesConfig, MemberTable, OpenMode, RunningArray};
use serde::Serialize;

use crate::args::BenchRunArgs;
use crate::failure::Failure;
use crate::layout_words::layout_number;
use crate::output;

use super::figures::{Figures, Ratio, figures, ratio};
use super::load::Pattern;
use super::measure::{Load, Outcome, RawMember, Until, array_load, raw_load};
use super::workload::Comparison;
use super::{machine, table};

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    raw: Figures,
    array: Figures,
    ratio: f64,
    /// Raw over the bare copies of `bench limits`, where members are in memory. Below 0.9 raw is no
    /// measure for an array.
    raw_over_copies: Option<Ratio>,
    bytes_copied_per_byte: f64,
    member_ios_per_io: f64,
    member_bytes_per_byte: f64,
    errors: u64,
    simd: &'static str,
    settings: String,
}

/// Runs the benchmark and prints what it found.
pub(crate) fn run(args: &BenchRunArgs) -> Result<(), Failure> {
    let bed = Bed::ready(args)?;
    if let Some(number) = args.number_ios {
        let Outcome { requests, errors, .. } = bed.load(args, Until::Requests(number), Side::Array);
        bed.stop()?;
        return output::print_line(&format!("{requests} requests, {errors} errors"));
    }
    let report = report(args, bed.compare(args, args.runtime));
    bed.stop()?;
    match args.json {
        true => output::print_json(&report),
        false => {
            let mut facts = vec![("array over raw", report.ratio)];
            facts
                .extend(report.raw_over_copies.map(|ratio| ("raw over bare copies", ratio.median)));
            facts.extend([
                ("bytes copied per byte", report.bytes_copied_per_byte),
                ("member I/Os per I/O", report.member_ios_per_io),
                ("member bytes per byte", report.member_bytes_per_byte),
            ]);
            output::print(&table::run(&report.settings, &report.raw, &report.array, &facts))
        }
    }
}

fn report(args: &BenchRunArgs, Comparison { raw, array, bare }: Comparison) -> Report {
    let block = args.bs.bytes();
    let requests: u64 = array.iter().map(|outcome| outcome.requests).sum::<u64>().max(1);
    let per = |of: fn(&Outcome) -> u64| array.iter().map(of).sum::<u64>() as f64 / requests as f64;
    let errors = raw.iter().chain(&array).map(|outcome| outcome.errors).sum();
    let copied = per(|outcome| outcome.traffic.copied_bytes) / block as f64;
    let ios = per(|outcome| outcome.traffic.member_ios);
    let bytes = per(|outcome| outcome.traffic.member_bytes) / block as f64;
    let raw_over_copies = (!bare.is_empty()).then(|| ratio(&raw, &bare));
    let (raw, array) = (figures(raw, block), figures(array, block));
    Report {
        schema: 1,
        ratio: array.iops / raw.iops,
        raw_over_copies,
        raw,
        array,
        bytes_copied_per_byte: copied,
        member_ios_per_io: ios,
        member_bytes_per_byte: bytes,
        errors,
        simd: mdspace_parity::kernels().isa().name(),
        settings: args.to_string(),
    }
}

/// Which side of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Raw,
    Array,
}

/// An array made for measuring, on its own lanes.
pub(super) struct Bed {
    array: RunningArray,
    raw_members: Vec<RawMember>,
    ids: Vec<MemberId>,
    /// The members answer at times of a model, also while nobody has the CPU.
    modelled: bool,
}

impl Bed {
    pub(super) fn new(args: &BenchRunArgs) -> Result<Self, Failure> {
        let members = MemberTable::new();
        let names = member_names(args)?;
        let mode = OpenMode { buffered: args.direct == 0, ..OpenMode::RUN };
        let mut devices = Vec::new();
        for name in &names {
            let opened = members.open(name, mode);
            let opened = opened.map_err(|error| failed("open a member", error))?;
            devices.push(opened);
        }
        let modelled = devices.iter().any(|(id, _)| members.is_modelled(*id));
        let config = LanesConfig {
            count: args.lanes.into(),
            cpus: pinned(args.lanes.into()),
            members,
            ..LanesConfig::default()
        };
        let lanes = Lanes::start(config).map_err(|error| failed("start lanes", error))?;
        create_array(args, &lanes, &devices)?;
        let ids = devices.iter().map(|(id, _)| *id).collect();
        let (settings, live) = split_settings(&args.set)?;
        let options = Options { run: true, settings, ..Options::default() };
        let infos = devices.clone();
        let array = RunningArray::assemble(Arc::new(lanes), devices, options);
        let array = array.map_err(|error| failed("start the array", error))?;
        for (key, value) in live {
            array.set(key, value).map_err(|error| failed("set a key", error))?;
        }
        let mut bed = Self { array, raw_members: Vec::new(), ids, modelled };
        let status = bed.status()?;
        bed.raw_members = raw_members(&status, &infos);
        Ok(bed)
    }

    pub(super) fn status(&self) -> Result<ArrayStatus, Failure> {
        match self.order(Action::Status)? {
            Reply::Status(status) => Ok(*status),
            _ => Err(failed("ask for the status", "the answer was not a status")),
        }
    }

    /// Writes the whole array once, so that no load meets memory or files that were never touched.
    pub(super) fn fill(&self) -> Result<(), Failure> {
        let pattern = Pattern::write(false);
        let block_bytes = 1 << 20;
        let blocks = self.status()?.size_sectors * 512 / block_bytes as u64;
        let (sender, receiver) = std::sync::mpsc::channel();
        let load = Load {
            pattern,
            block_bytes,
            depth: 8,
            lane: 0,
            lanes: 1,
            until: Until::Requests(blocks),
            area_bytes: None,
        };
        self.array.run_on(LaneId(0), move |port, lane, io| {
            let (port, lane, io) = (port.clone(), lane.clone(), io.clone());
            lane.clone().spawn(async move {
                let outcome = array_load(port, lane, io, load).await;
                // The caller waits below: it is there to hear.
                let _ = sender.send(outcome.errors);
            });
        });
        match receiver.recv() {
            Ok(0) => Ok(()),
            Ok(errors) => Err(failed("fill the array", format!("{errors} writes failed"))),
            Err(error) => Err(failed("fill the array", error)),
        }
    }

    pub(super) fn array(&self) -> &RunningArray {
        &self.array
    }

    /// Orders something of the array.
    pub(super) fn order(&self, action: Action) -> Result<Reply, Failure> {
        self.array.command(action).map_err(|error| failed("order something of the array", error))
    }

    /// Lets go of a failed member.
    pub(super) fn remove_member(&self, slot: usize) -> Result<(), Failure> {
        self.order(Action::Remove { member: self.ids[slot] }).map(drop)
    }

    /// Gives an empty slot a new member; its rebuild begins.
    pub(super) fn add_member(&mut self, slot: usize, name: &str) -> Result<(), Failure> {
        let opened = self.array.lanes().members().open(name, OpenMode::RUN);
        let (member, info) = opened.map_err(|error| failed("open a member", error))?;
        self.ids[slot] = member;
        self.order(Action::Add { member, info, only_back: false }).map(drop)
    }

    pub(super) fn fail_members(&self, slots: &[usize]) -> Result<(), Failure> {
        for slot in slots {
            let member = *self
                .ids
                .get(*slot)
                .ok_or_else(|| failed("fail a member", "the array has no such slot"))?;
            let action = Action::Fail { member, force: false };
            self.array.command(action).map_err(|error| failed("fail a member", error))?;
        }
        Ok(())
    }

    /// Runs one load on every lane at once.
    pub(super) fn measure(
        &self,
        pattern: Pattern,
        block_bytes: usize,
        depth: usize,
        until: Until,
        side: Side,
    ) -> Outcome {
        let lanes = self.array.lanes().count();
        let before = self.worker_traffic();
        let (sender, receiver) = std::sync::mpsc::channel();
        for lane in 0..lanes {
            let load = Load {
                pattern,
                block_bytes,
                depth,
                lane: lane as u64,
                lanes: lanes as u64,
                until,
                area_bytes: None,
            };
            let (sender, members) = (sender.clone(), self.raw_members.clone());
            self.array.run_on(LaneId(lane as u16), move |port, lane, io| {
                let (port, lane, io) = (port.clone(), lane.clone(), io.clone());
                lane.clone().spawn(async move {
                    let outcome = match side {
                        Side::Array => array_load(port, lane, io, load).await,
                        Side::Raw => raw_load(members, lane, io, load).await,
                    };
                    let _ = sender.send(outcome);
                });
            });
        }
        drop(sender);
        let mut sum = Outcome::default();
        receiver.iter().for_each(|outcome| sum.add(outcome));
        let after = self.worker_traffic();
        sum.traffic.member_ios += after.member_ios - before.member_ios;
        sum.traffic.member_bytes += after.member_bytes - before.member_bytes;
        sum.traffic.copied_bytes += after.copied_bytes - before.copied_bytes;
        if self.modelled {
            sum.count_whole();
        }
        sum
    }

    fn worker_traffic(&self) -> Traffic {
        let mut sum = Traffic::default();
        for (_, traffic) in self.array.worker_traffic() {
            sum.member_ios += traffic.member_ios;
            sum.member_bytes += traffic.member_bytes;
            sum.copied_bytes += traffic.copied_bytes;
        }
        sum
    }

    pub(super) fn stop(self) -> Result<(), Failure> {
        let lanes = self.array.lanes().clone();
        self.array.stop().map_err(|error| failed("stop the array", error))?;
        match Arc::into_inner(lanes) {
            Some(lanes) => {
                let stopped = lanes.stop(Duration::from_secs(10));
                stopped.map_err(|error| failed("stop the lanes", error))
            }
            None => Ok(()),
        }
    }
}

type Setting = (String, String);

/// What is fixed when the array starts, and what is set after.
fn split_settings(all: &[Setting]) -> Result<(StartSettings, Vec<&Setting>), Failure> {
    let mut start = StartSettings::default();
    let mut live = Vec::new();
    for setting @ (key, value) in all {
        match start.set(key, value) {
            Ok(()) => {}
            Err(SettingError::Unknown { .. }) => live.push(setting),
            Err(error) => return Err(failed("set a key", error)),
        }
    }
    Ok((start, live))
}

fn create_array(
    args: &BenchRunArgs,
    lanes: &Lanes,
    devices: &[(MemberId, MemberInfo)],
) -> Result<(), Failure> {
    let layout = match (&args.layout, args.level) {
        (Some(word), level) => layout_number(level, word)
            .ok_or_else(|| failed("create the array", "the level has no such layout"))?,
        (None, Level::Raid5 | Level::Raid6) => 2,
        (None, Level::Raid10) => 0x102,
        (None, Level::Raid0) => 1,
        (None, _) => 0,
    };
    let bitmap = match args.bitmap.as_str() {
        "none" => BitmapRequest::None,
        _ => BitmapRequest::Internal { chunk_bytes: None },
    };
    let creation = Creation {
        name: SetName::new("bench").map_err(|error| failed("create the array", error))?,
        uuid: Uuid(*b"mdspace bench..."),
        version: MetadataVersion::V1_2,
        level: args.level,
        layout,
        chunk_sectors: if args.level.has_chunks() { args.chunk.sectors() as u32 } else { 0 },
        raid_disks: devices.len() as u16,
        size_sectors: None,
        data_offset_sectors: None,
        bitmap,
        assume_clean: true,
        force: false,
    };
    let slots = devices.iter().map(|(id, info)| {
        Some(NewDevice { id: *id, info: info.clone(), flags: MemberFlags::default() })
    });
    let slots: Vec<_> = slots.collect();
    lanes
        .call(LaneId(0), async move |lane, _| {
            let random = || {
                let words = [lane.backend().random(), lane.backend().random()];
                Uuid(std::array::from_fn(|at| words[at / 8].to_le_bytes()[at % 8]))
            };
            let plan = create::plan(&creation, slots, lane.backend().unix_time_s(), random)?;
            create::write(&lane, &plan).await
        })
        .map_err(|error| failed("create the array", error))
}

fn member_names(args: &BenchRunArgs) -> Result<Vec<String>, Failure> {
    match args.member.as_slice() {
        [one] if one.starts_with("ram:") || one.starts_with("null:") => {
            Ok(vec![one.clone(); args.raid_devices])
        }
        names if names.len() == args.raid_devices => Ok(names.to_vec()),
        names => {
            let why = format!("{} members for {} slots", names.len(), args.raid_devices);
            Err(failed("set up the members", why))
        }
    }
}

fn raw_members(status: &ArrayStatus, devices: &[(MemberId, MemberInfo)]) -> Vec<RawMember> {
    let by_name = status.members.iter().zip(devices);
    let members = by_name.map(|(member, (id, info))| RawMember {
        id: *id,
        first_sector: member.data_offset_sectors,
        sectors: info.sectors - member.data_offset_sectors,
    });
    members.collect()
}

/// The first CPUs that this process may use, one a lane; none when there are too few.
pub(super) fn pinned(lanes: usize) -> Vec<usize> {
    let there = machine::cpus();
    if lanes <= there.len() { there[..lanes].to_vec() } else { Vec::new() }
}

pub(super) fn failed(what: &str, why: impl ToString) -> Failure {
    Failure::new(
        format!("cannot {what} for the benchmark"),
        why,
        "see `mdspace bench run --help` for what can be set",
    )
}

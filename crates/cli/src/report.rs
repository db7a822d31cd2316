//! What a serving process says about its array: the JSON of `detail --json`, and what the other
//! renderings are drawn from. Fields are added, never renamed.

use std::collections::BTreeSet;
use std::path::Path;

use mdspace_engine::balance::Load;
use mdspace_engine::status::{
    ArrayState, ArrayStatus, BITS_A_PAGE, BitmapStatus, MemberState, MemberStatus, Mismatch,
    Skipped, SyncEnd, SyncStatus,
};
use mdspace_format::layout;
use serde::{Deserialize, Serialize};

mod paths;

pub(crate) use paths::{DeviceReport, HeldReport, PathReport, PathsReport, ServedReport};

/// The `schema` of every JSON object that mdspace prints.
pub(crate) const SCHEMA: u32 = 1;

/// Of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// One array and the process that serves it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Version of this object.
    pub(crate) schema: u32,
    /// What the array is called on this host.
    pub(crate) name: String,
    /// The array.
    pub(crate) array: ArrayReport,
    /// Those of its members that have several paths.
    #[serde(default)]
    pub(crate) multipath: Vec<PathsReport>,
    /// Where it is served.
    pub(crate) fronts: Vec<FrontReport>,
    /// Its worker threads.
    pub(crate) workers: WorkersReport,
    /// Memory of its stripe cache.
    pub(crate) stripe_cache_bytes: usize,
    /// The serving process.
    pub(crate) pid: u32,
    /// Of the program that it runs; older ones do not say it.
    #[serde(default)]
    pub(crate) version: String,
}

/// Threads that share in the work of busy lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WorkersReport {
    /// Asked for on each NUMA node: `group_thread_cnt`.
    pub(crate) asked: usize,
    /// Running on all nodes.
    pub(crate) running: usize,
}

/// [`ArrayStatus`] with md's words for md's numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ArrayReport {
    pub(crate) name: String,
    pub(crate) uuid: String,
    pub(crate) metadata: String,
    /// Seconds since 1970.
    pub(crate) created: u64,
    /// Seconds since 1970.
    pub(crate) updated: u64,
    pub(crate) events: u64,
    pub(crate) level: String,
    /// md's number; `layout` is its word.
    pub(crate) layout_number: u32,
    pub(crate) layout: Option<String>,
    pub(crate) chunk_bytes: u64,
    pub(crate) raid_disks: u32,
    pub(crate) size_bytes: u64,
    pub(crate) member_bytes: u64,
    pub(crate) logical_block_bytes: u32,
    pub(crate) array_state: String,
    pub(crate) degraded: u32,
    pub(crate) failed: bool,
    pub(crate) consistency_policy: String,
    pub(crate) bitmap: Option<BitmapReport>,
    pub(crate) write_behind: Option<WriteBehindReport>,
    pub(crate) sync: SyncReport,
    pub(crate) mismatch_cnt: u64,
    /// Where the last check or repair found mismatches, and who lies.
    #[serde(default)]
    pub(crate) mismatches: MismatchesReport,
    /// Sectors of the array that no member can give any more, for bad blocks of members.
    #[serde(default)]
    pub(crate) lost: SkippedReport,
    /// Sectors of a member where a missing or bad block is an error, for a crash or a failed write may have
    /// left its parity half-written.
    #[serde(default)]
    pub(crate) doubted: SkippedReport,
    pub(crate) members: Vec<MemberReport>,
}

/// [`BitmapStatus`], with md's pages counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BitmapReport {
    pub(crate) chunk_bytes: u64,
    pub(crate) dirty_bits: u64,
    pub(crate) total_bits: u64,
    pub(crate) dirty_pages: u64,
    pub(crate) total_pages: u64,
}

/// Writes that were answered before write-mostly members have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WriteBehindReport {
    /// At most so many.
    pub(crate) limit: u32,
    pub(crate) under_way: u32,
}

/// [`SyncStatus`] with md's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SyncReport {
    pub(crate) action: String,
    pub(crate) last_action: String,
    pub(crate) completed_sectors: u64,
    pub(crate) total_sectors: u64,
    /// It has not begun: another array syncs on a device of this one.
    #[serde(default)]
    pub(crate) delayed: bool,
    pub(crate) speed_kib_s: u64,
    /// How the last task ended, in a word of [`SyncEnd`]; null before the first has.
    pub(crate) last_end: Option<String>,
    pub(crate) skipped: SkippedReport,
}

/// [`Mismatches`](mdspace_engine::status::Mismatches).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MismatchesReport {
    pub(crate) places: u64,
    /// Those where it is not known which member is wrong.
    pub(crate) undecidable: u64,
    /// The first places.
    pub(crate) first: Vec<MismatchReport>,
}

/// One place, in sectors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MismatchReport {
    pub(crate) array_sector: u64,
    pub(crate) member_sector: u64,
    pub(crate) sectors: u64,
    pub(crate) row: Option<u64>,
    pub(crate) slots: Vec<u32>,
    /// The member that lies; null where that is not known.
    pub(crate) liar: Option<String>,
    pub(crate) liar_slot: Option<u32>,
    /// On mirrors: what is written while it changes, swap above all, may differ without harm.
    #[serde(default)]
    pub(crate) may_be_harmless: bool,
}

impl From<&ArrayStatus> for MismatchesReport {
    fn from(status: &ArrayStatus) -> Self {
        let found = &status.mismatches;
        let place = |place: &Mismatch| MismatchReport {
            array_sector: place.array_sector,
            member_sector: place.member_sectors.start,
            sectors: place.member_sectors.end - place.member_sectors.start,
            row: place.row,
            slots: place.slots.clone(),
            liar: place.liar.and_then(|slot| Some(status.member_at(slot)?.name.clone())),
            liar_slot: place.liar,
            may_be_harmless: place.row.is_none(),
        };
        Self {
            places: found.places,
            undecidable: found.undecidable,
            first: found.first.iter().map(place).collect(),
        }
    }
}

impl MismatchReport {
    /// For people.
    pub(crate) fn words(&self, array: &ArrayReport) -> String {
        let Self { array_sector, member_sector, sectors, .. } = self;
        let at = format!(
            "sector {array_sector} of the array, {sectors} from {member_sector} of members' data"
        );
        let row = self.row.map_or(String::new(), |row| format!(", row {row}"));
        let harmless = if self.may_be_harmless { " (may be harmless)" } else { "" };
        let member_in = |slot: &u32| {
            let held = array.members.iter().find(|member| member.slot == Some(*slot));
            held.map_or_else(|| format!("slot {slot}"), |member| member.member.clone())
        };
        match &self.liar {
            Some(liar) => format!("{at}{row}: {liar} differs from what all others say{harmless}"),
            None => {
                let members: Vec<String> = self.slots.iter().map(member_in).collect();
                format!("{at}{row}: undecidable between {}{harmless}", members.join(" "))
            }
        }
    }
}

/// [`Skipped`], ranges as pairs of the first sector and the one behind the last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SkippedReport {
    pub(crate) ranges: u64,
    pub(crate) sectors: u64,
    /// The first of them.
    pub(crate) first: Vec<(u64, u64)>,
}

/// [`MemberStatus`] with md's words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MemberReport {
    pub(crate) member: String,
    pub(crate) number: u32,
    pub(crate) device_uuid: String,
    pub(crate) slot: Option<u32>,
    /// Words of md's `dev-*/state`, as `in_sync` or `spare`, and ours: `late`, `lacks_space`.
    pub(crate) state: Vec<String>,
    pub(crate) errors: u32,
    /// Member sectors known good; null when all are.
    pub(crate) recovery_start: Option<u64>,
    pub(crate) bad_ranges: u32,
    pub(crate) data_offset_bytes: u64,
    pub(crate) size_bytes: u64,
    /// What it does for a mirror; null on other levels and without a slot.
    pub(crate) load: Option<LoadReport>,
    /// Numbers of the block device; null for files.
    pub(crate) major: Option<u32>,
    pub(crate) minor: Option<u32>,
}

/// [`Load`], with the member's share of the array's reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoadReport {
    /// Of all reads since the array was assembled, in percent.
    pub(crate) read_share: u32,
    pub(crate) reads: u64,
    pub(crate) read_bytes: u64,
    pub(crate) writes: u64,
    /// Reads and writes under way.
    pub(crate) pending: u64,
    /// Mean time of a read.
    pub(crate) service_us: u64,
    /// Reads that failed.
    pub(crate) read_errors: u64,
    /// Reads take much longer than they used to, and than on other members.
    pub(crate) limping: bool,
}

/// One front end of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FrontReport {
    /// As the user gave it, with what was chosen for them (a port) filled in.
    pub(crate) address: String,
    /// The file or the block device by which programs of this host reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
    /// How clients of NBD name it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) uri: Option<String>,
    /// The clients that are connected.
    pub(crate) clients: Vec<String>,
}

impl FrontReport {
    /// For people, as `1 client`.
    pub(crate) fn clients_words(&self) -> String {
        match self.clients.len() {
            1 => "1 client".to_owned(),
            clients => format!("{clients} clients"),
        }
    }
}

impl From<&ArrayStatus> for ArrayReport {
    fn from(status: &ArrayStatus) -> Self {
        Self {
            name: status.name.clone(),
            uuid: status.uuid.to_string(),
            metadata: status.metadata.to_string(),
            created: status.created_s,
            updated: status.updated_s,
            events: status.events,
            level: status.level.to_string(),
            layout_number: status.layout,
            layout: layout::word(status.level, status.layout),
            chunk_bytes: u64::from(status.chunk_sectors) * 512,
            raid_disks: status.raid_disks,
            size_bytes: status.size_sectors * 512,
            member_bytes: status.member_sectors * 512,
            logical_block_bytes: status.logical_block_bytes,
            array_state: status.state.word().into(),
            degraded: status.degraded(),
            failed: status.state == ArrayState::Broken,
            consistency_policy: status.consistency_policy.word().into(),
            bitmap: status.bitmap.map(BitmapReport::from),
            write_behind: status.write_behind.map(|behind| WriteBehindReport {
                limit: behind.limit,
                under_way: behind.under_way,
            }),
            sync: (&status.sync).into(),
            mismatch_cnt: status.mismatch_sectors,
            mismatches: MismatchesReport::from(status),
            lost: SkippedReport::from(&status.lost),
            doubted: SkippedReport::from(&status.doubted),
            members: member_reports(&status.members),
        }
    }
}

impl From<BitmapStatus> for BitmapReport {
    fn from(bitmap: BitmapStatus) -> Self {
        Self {
            chunk_bytes: bitmap.chunk_bytes,
            dirty_bits: bitmap.dirty_bits,
            total_bits: bitmap.total_bits,
            dirty_pages: bitmap.dirty_pages,
            total_pages: bitmap.total_bits.div_ceil(BITS_A_PAGE),
        }
    }
}

impl From<&SyncStatus> for SyncReport {
    fn from(sync: &SyncStatus) -> Self {
        Self {
            action: sync.action.word().into(),
            last_action: sync.last_action.word().into(),
            completed_sectors: sync.completed_sectors,
            total_sectors: sync.total_sectors,
            delayed: sync.delayed,
            speed_kib_s: sync.speed_kib_s,
            last_end: sync.last_end.map(|end| end.word().to_owned()),
            skipped: SkippedReport::from(&sync.skipped),
        }
    }
}

impl From<&Skipped> for SkippedReport {
    fn from(skipped: &Skipped) -> Self {
        let first = skipped.first.iter().map(|range| (range.start, range.end)).collect();
        Self { ranges: skipped.ranges, sectors: skipped.sectors, first }
    }
}

impl SkippedReport {
    /// For people, as `3 ranges (24 sectors): 8-15, 64-71, 128-135`; none where nothing was skipped.
    pub(crate) fn words(&self) -> Option<String> {
        if self.ranges == 0 {
            return None;
        }
        let listed: Vec<String> =
            self.first.iter().map(|(start, end)| format!("{start}-{}", end - 1)).collect();
        let more = if self.ranges > listed.len() as u64 { ", ..." } else { "" };
        let (ranges, sectors) = (self.ranges, self.sectors);
        let noun = if ranges == 1 { "range" } else { "ranges" };
        Some(format!("{ranges} {noun} ({sectors} sectors): {}{more}", listed.join(", ")))
    }
}

impl Report {
    /// What redundancy in doubt means and how it ends; none where a resync is about to end it.
    pub(crate) fn doubt_words(&self) -> Option<String> {
        let array = &self.array;
        let matters = array.degraded > 0 || array.lost.ranges > 0 || !array.sync.runs();
        let mib = array.doubted.sectors as f64 / 2048.0;
        (array.doubted.sectors > 0 && matters).then(|| {
            format!(
                "{mib:.1} MiB of each member; missing blocks there are errors until \
                 `mdspace accept-doubt {}`",
                self.name
            )
        })
    }
}

impl ArrayReport {
    /// What waits for space, or that writes found none, and where; none where there is enough.
    pub(crate) fn space_words(&self) -> Option<String> {
        let lacking = self.members.iter().filter(|member| member.is("lacks_space"));
        let places: BTreeSet<String> =
            lacking.filter(|member| !member.is("faulty")).map(MemberReport::place_words).collect();
        if places.is_empty() {
            return None;
        }
        let places = places.into_iter().collect::<Vec<_>>().join(" and ");
        let SyncReport { action, last_action, last_end, .. } = &self.sync;
        let task = if last_action == "recover" { "rebuild" } else { last_action };
        Some(match action == "idle" && last_end.as_deref() == Some(SyncEnd::NoSpace.word()) {
            true => format!("the {task} waits for space {places}"),
            false => format!("writes found no space {places} in the last minute"),
        })
    }
}

impl SyncReport {
    /// Whether a task runs.
    pub(crate) fn runs(&self) -> bool {
        !matches!(self.action.as_str(), "idle" | "frozen")
    }

    /// Part done, 0 to 1.
    pub(crate) fn fraction(&self) -> f64 {
        match self.total_sectors {
            0 => 0.0,
            total => self.completed_sectors as f64 / total as f64,
        }
    }
}

impl From<&MemberStatus> for MemberReport {
    fn from(member: &MemberStatus) -> Self {
        Self {
            member: member.name.clone(),
            number: member.number,
            device_uuid: member.device_uuid.to_string(),
            slot: member.slot,
            state: state_words(member),
            errors: member.corrected_errors,
            recovery_start: (member.state == MemberState::Recovering)
                .then_some(member.recovery_offset_sectors),
            bad_ranges: member.bad_ranges,
            data_offset_bytes: member.data_offset_sectors * 512,
            size_bytes: member.size_sectors * 512,
            load: None,
            major: None,
            minor: None,
        }
    }
}

fn member_reports(members: &[MemberStatus]) -> Vec<MemberReport> {
    let reads = members.iter().filter_map(|member| member.load).map(|load| load.reads).sum();
    let report = |member: &MemberStatus| MemberReport {
        load: member.load.map(|load| LoadReport::new(&load, reads)),
        ..MemberReport::from(member)
    };
    members.iter().map(report).collect()
}

impl LoadReport {
    fn new(load: &Load, all_reads: u64) -> Self {
        Self {
            read_share: (load.reads * 100 / all_reads.max(1)) as u32,
            reads: load.reads,
            read_bytes: load.read_bytes,
            writes: load.writes,
            pending: load.pending,
            service_us: load.service.as_micros() as u64,
            read_errors: load.errors,
            limping: load.limps,
        }
    }

    /// For people, as `90 % of reads, 184 us each; 3 pending`.
    pub(crate) fn words(&self) -> String {
        let Self { read_share, service_us, pending, read_errors, .. } = self;
        let mut words = format!("{read_share} % of reads, {service_us} us each; {pending} pending");
        if *read_errors > 0 {
            words += &format!("; {read_errors} read errors");
        }
        if self.limping {
            words += "; LIMPING";
        }
        words
    }
}

impl MemberReport {
    /// Whether md's `state` file would name `word`.
    pub(crate) fn is(&self, word: &str) -> bool {
        self.state.iter().any(|w| w == word)
    }

    /// Where its bytes lie, for people: below a folder, or behind the member.
    fn place_words(&self) -> String {
        let folder = Path::new(&self.member).parent();
        match folder.filter(|folder| folder.is_absolute() && self.major.is_none()) {
            Some(folder) => format!("below {}", folder.display()),
            None => format!("behind {}", self.member),
        }
    }

    /// Whether it waits for a slot or is being rebuilt into one: md's `(S)` and "spare".
    pub(crate) fn is_spare(&self) -> bool {
        self.is("spare")
    }
}

fn state_words(member: &MemberStatus) -> Vec<String> {
    let state = match member.state {
        MemberState::InSync => "in_sync",
        MemberState::Recovering | MemberState::Spare => "spare",
        MemberState::Faulty => "faulty",
    };
    let flags = [
        (member.write_mostly, "write_mostly"),
        (member.failfast, "failfast"),
        (member.late, "late"),
        (member.lacks_space, "lacks_space"),
        (member.want_replacement, "want_replacement"),
        (member.replacement, "replacement"),
    ];
    let flags = flags.into_iter().filter(|(on, _)| *on).map(|(_, word)| word);
    std::iter::once(state).chain(flags).map(str::to_owned).collect()
}

#[cfg(test)]
pub(crate) mod examples;

#[cfg(test)]
mod tests;

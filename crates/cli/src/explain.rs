//! `mdspace explain`: what members are to each other, what `assemble` would decide, and what to type.
//!
//! For whoever must rescue an array: nothing is written, and no member needs to be free. The verdict is
//! the one of [`assembly::decide`], on the very bytes that `assemble` would read.

mod text;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use mdspace_engine::assembly::{
    self, Assembly, Candidate, FoundBitmap, LeftOut, Options, Reason, Refusal,
};
use mdspace_engine::lane::LaneId;
use mdspace_format::bitmap::BitmapError;
use mdspace_format::superblock::RESYNC_NONE;
use mdspace_format::{BadBlockLog, Features, Role, Superblock, Uuid};
use mdspace_io::{Lanes, LanesConfig, MemberTable, OpenMode};
use serde::Serialize;

use crate::failure::Failure;
use crate::member_probe::{Look, Opened};
use crate::process::{cure_of, decided};
use crate::report::SCHEMA;
use crate::run_dir::RunDir;

pub(crate) use text::{shell_word, text};

/// How long lanes may take to end: nothing is under way on them.
const LANES_END: Duration = Duration::from_secs(5);

/// What was found on a set of devices.
#[derive(Debug, Serialize)]
pub(crate) struct Explanation {
    schema: u32,
    /// One entry for each array, in the order of their first members.
    arrays: Vec<ArrayFound>,
    /// Devices that belong to none, and why.
    others: Vec<Other>,
}

impl Explanation {
    /// Whether every array found starts without an option, and every device belongs to one.
    pub(crate) fn is_plain(&self) -> bool {
        let plain = |array: &ArrayFound| array.verdict.starts && array.verdict.options.is_empty();
        self.others.is_empty() && !self.arrays.is_empty() && self.arrays.iter().all(plain)
    }
}

#[derive(Debug, Serialize)]
struct Other {
    member: String,
    why: String,
    /// Whether it could be read. If not, its array is unknown.
    read: bool,
}

#[derive(Debug, Serialize)]
struct ArrayFound {
    uuid: String,
    name: String,
    level: String,
    raid_disks: u32,
    members: Vec<MemberFound>,
    /// Slots for which no member was given.
    empty_slots: Vec<u16>,
    verdict: Verdict,
}

/// One member, in its own words and against the others.
#[derive(Debug, Serialize)]
struct MemberFound {
    member: String,
    /// None for spares and failed ones.
    slot: Option<u16>,
    /// Its own opinion: `slot 2`, `spare`, `failed`.
    role: String,
    events: u64,
    /// Updates of the array that it missed.
    events_behind: u64,
    /// Last update, seconds since 1970.
    updated: u64,
    /// Whether the array was stopped cleanly when this was written.
    clean: bool,
    /// Remarks: being rebuilt, bad blocks, what `assemble` thinks of it.
    notes: Vec<String>,
}

/// What `assemble` would do.
#[derive(Debug, Serialize)]
struct Verdict {
    starts: bool,
    /// Options without which it would not start.
    options: Vec<&'static str>,
    /// How it would start, or why it would not.
    why: String,
    /// What to do where it does not start.
    cure: Option<&'static str>,
    /// A command that looks at the array and writes nothing; none where it does not start.
    look: Option<String>,
    /// The command that brings it back.
    assemble: Option<String>,
    /// The command that brings back, after that, members which it starts without since they are out of date.
    re_add: Option<String>,
}

/// Reads the devices and judges every array that is on them.
pub(crate) fn explain(names: &[String]) -> Result<Explanation, Failure> {
    let members = MemberTable::new();
    let config = LanesConfig { count: 1, members: members.clone(), ..LanesConfig::default() };
    let lanes = Lanes::start(config)
        .map_err(|error| Failure::new("cannot explain", error, "see `mdspace doctor`"))?;
    let (mut candidates, mut others) = (Vec::new(), Vec::new());
    // All at once: several that do not answer take no longer than one.
    let found: Vec<_> = thread::scope(|scope| {
        let reading: Vec<_> =
            names.iter().map(|name| scope.spawn(|| read(&lanes, &members, name))).collect();
        reading.into_iter().map(|read| read.join().expect("reading does not panic")).collect()
    });
    for (name, found) in names.iter().zip(found) {
        match found {
            Ok(candidate) => candidates.push(candidate),
            Err((read, why)) => others.push(Other { member: name.clone(), why, read }),
        }
    }
    if let Err(error) = lanes.stop(LANES_END) {
        tracing::warn!("{error}");
    }
    let arrays = by_array(candidates).into_iter().map(ArrayFound::of).collect();
    Ok(Explanation { schema: SCHEMA, arrays, others })
}

/// An error says whether it was read, and why it tells nothing.
fn read(
    lanes: &Lanes,
    members: &Arc<MemberTable>,
    name: &str,
) -> Result<Candidate, (bool, String)> {
    let looking = Look::start(name, {
        let (members, name) = (members.clone(), name.to_owned());
        move |_| Opened::new(&members, &name, OpenMode::LOOK)
    });
    let silent = |error| (false, format!("{name}: {error}"));
    let opened = looking.and_then(Look::end).map_err(silent)?;
    let opened = opened.map_err(|error| (false, error.to_string()))?;
    let (id, info) = opened.take().expect("it was opened for us");
    let found = lanes.call(LaneId(0), async move |lane, _| assembly::read(&lane, id, info).await);
    members.close(id);
    match found {
        Ok(Some(candidate)) => Ok(candidate),
        Ok(None) => Err((true, format!("{name}: has no md superblock 1.0, 1.1 or 1.2"))),
        Err(error) => Err((true, error.to_string())),
    }
}

fn by_array(candidates: Vec<Candidate>) -> Vec<Vec<Candidate>> {
    let mut arrays: Vec<(Uuid, Vec<Candidate>)> = Vec::new();
    for candidate in candidates {
        let uuid = candidate.superblock.set_uuid;
        match arrays.iter_mut().find(|(known, _)| *known == uuid) {
            Some((_, members)) => members.push(candidate),
            None => arrays.push((uuid, vec![candidate])),
        }
    }
    arrays.into_iter().map(|(_, members)| members).collect()
}

impl ArrayFound {
    fn of(candidates: Vec<Candidate>) -> Self {
        let freshest = candidates.iter().map(|member| member.superblock.events).max();
        let model = candidates.iter().find(|member| Some(member.superblock.events) == freshest);
        let model = model.expect("an array has members").superblock.clone();
        let mut members: Vec<MemberFound> =
            candidates.iter().map(|candidate| MemberFound::of(candidate, &model)).collect();
        let names = members.iter().map(|member| member.member.clone()).collect::<Vec<_>>();
        let held = |slot: &u16| members.iter().any(|member| member.slot == Some(*slot));
        let slots = 0..u16::try_from(model.raid_disks).unwrap_or(u16::MAX);
        let empty_slots = slots.filter(|slot| !held(slot)).collect();
        let (verdict, left_out) = Verdict::of(candidates, &model, &names);
        for LeftOut { member, reason } in left_out {
            let found = members.iter_mut().find(|found| found.member == member);
            found.into_iter().for_each(|found| found.notes.push(format!("left out: it {reason}")));
        }
        Self {
            uuid: model.set_uuid.to_string(),
            name: model.set_name.to_string(),
            level: model.level.to_string(),
            raid_disks: model.raid_disks,
            members,
            empty_slots,
            verdict,
        }
    }
}

impl MemberFound {
    fn of(candidate: &Candidate, model: &Superblock) -> Self {
        let superblock = &candidate.superblock;
        Self {
            member: candidate.info.name.clone(),
            slot: superblock.own_role().slot(),
            role: role_word(superblock.own_role()),
            events: superblock.events,
            events_behind: model.events - superblock.events,
            updated: superblock.utime.seconds(),
            clean: superblock.resync_offset_sectors == RESYNC_NONE,
            notes: notes(candidate, model),
        }
    }
}

fn role_word(role: Role) -> String {
    match role {
        Role::Slot(slot) => format!("slot {slot}"),
        Role::Spare => "spare".to_owned(),
        Role::Faulty => "failed".to_owned(),
        _ => "journal".to_owned(),
    }
}

fn notes(candidate: &Candidate, model: &Superblock) -> Vec<String> {
    let superblock = &candidate.superblock;
    let mut notes = Vec::new();
    let known = model.roles.get(superblock.dev_number as usize);
    if let (Role::Slot(_), Some(Role::Faulty)) = (superblock.own_role(), known) {
        notes.push("the freshest member says that it failed".to_owned());
    }
    if superblock.features.contains(Features::REPLACEMENT) {
        notes.push("is to replace the member in its slot".to_owned());
    }
    notes.extend(superblock.recovery_offset_sectors.map(recovery_words));
    notes.extend(block_words(superblock.logical_block_size_bytes));
    if let FoundBitmap::Refused(error) = &candidate.bitmap {
        notes.push(error.to_string());
        notes.extend(lockless_words(error).map(str::to_owned));
    }
    if let Some((_, map)) = candidate.bitmap.good().filter(|(_, map)| map.count() > 0) {
        notes.push(format!("its bitmap marks {} chunks", map.count()));
    }
    match candidate.bad_blocks.as_ref().map(BadBlockLog::blocks) {
        Ok(bad) if !bad.ranges().is_empty() => {
            notes.push(format!("lists {} bad ranges that it cannot give", bad.ranges().len()));
        }
        Ok(_) => {}
        Err(reason) => notes.push(format!("its bad-block list cannot be read: {reason}")),
    }
    notes.extend(superblock.unsupported_features().iter().map(ToString::to_string));
    notes
}

/// How far a member is rebuilt. All ones is what md writes of one whose rebuild is through and that is
/// not called in sync yet.
fn recovery_words(sectors: u64) -> String {
    match sectors {
        u64::MAX => "was being rebuilt: its recovery offset says that all of it is good".to_owned(),
        _ => format!("was being rebuilt: its first {} MiB are good", sectors >> 11),
    }
}

/// What a kernel or mdadm may do to the data of an array with a bitmap of version 6.
fn lockless_words(error: &BitmapError) -> Option<&'static str> {
    let BitmapError::Lockless(bitmap) = error else { return None };
    Some(match bitmap.chunks {
        None => "the kernel that starts it first may zero all members",
        Some(_) => {
            "without its bitmap (mdadm --grow --bitmap=none) chunks that need sync count as in sync: resync \
             all of it then"
        }
    })
}

/// What a recorded logical block means to other kernels.
fn block_words(bytes: u32) -> Option<String> {
    (bytes != 0).then(|| {
        format!("records logical blocks of {bytes} bytes: Linux up to 6.18 does not assemble it")
    })
}

impl Verdict {
    /// The mildest options with which the array starts.
    fn of(
        candidates: Vec<Candidate>,
        model: &Superblock,
        names: &[String],
    ) -> (Self, Vec<LeftOut>) {
        // As `assemble` knows it.
        let decided =
            RunDir::open().map_or_else(|_| Vec::new(), |run_dir| decided::all(run_dir.path()));
        let with =
            |run, force| Options { run, force, decided: decided.clone(), ..Options::default() };
        let tries: [(_, &[&'static str]); 3] = [
            (with(false, false), &[]),
            (with(true, false), &["--run"]),
            (with(true, true), &["--run", "--force"]),
        ];
        let mut first = None;
        for (options, words) in tries {
            match assembly::decide(candidates.clone(), &options) {
                Ok(assembly) => return Self::starting(assembly, first, words, model, names),
                Err(refusal) => first = first.or(Some(refusal)),
            }
        }
        let refusal = first.expect("three tries were refused");
        let verdict = Self {
            starts: false,
            options: Vec::new(),
            cure: Some(cure_of(&refusal)),
            why: refusal.to_string(),
            look: None,
            assemble: None,
            re_add: None,
        };
        (verdict, Vec::new())
    }

    fn starting(
        assembly: Assembly,
        refusal: Option<Refusal>,
        options: &[&'static str],
        model: &Superblock,
        names: &[String],
    ) -> (Self, Vec<LeftOut>) {
        let short = model.set_name.short().to_string();
        let words = ["mdspace assemble".to_owned(), text::array_name(&short)];
        let command = |options: &[&str]| {
            let options = options.iter().map(|option| (*option).to_owned());
            let all: Vec<String> = words.iter().cloned().chain(options).collect();
            let members = names.iter().map(|name| shell_word(name));
            all.into_iter().chain(members).collect::<Vec<_>>().join(" ")
        };
        // What is only read starts without `--run`.
        let leave = options.iter().filter(|option| **option != "--run");
        let front = shell_word(&format!("--serve=nbd:unix:/tmp/{}.nbd?ro", words[1]));
        let look: Vec<String> = leave
            .map(|option| (*option).to_owned())
            .chain(["--readonly".to_owned(), front])
            .collect();
        let verdict = Self {
            starts: true,
            options: options.to_vec(),
            why: text::how_it_starts(&assembly, model, refusal.as_ref()),
            cure: refusal.as_ref().map(cure_of),
            look: Some(command(&look.iter().map(|word| &**word).collect::<Vec<_>>())),
            assemble: Some(command(options)),
            re_add: re_add(&words[1], &assembly),
        };
        (verdict, assembly.left_out)
    }
}

/// How members come back that were left out for what they have missed. Only a free slot takes one.
fn re_add(name: &str, assembly: &Assembly) -> Option<String> {
    let stale = assembly.left_out.iter().filter(|out| matches!(out.reason, Reason::Stale { .. }));
    let members: Vec<String> = stale.map(|out| shell_word(&out.member)).collect();
    let is_useful = assembly.degraded > 0 && !members.is_empty();
    is_useful.then(|| format!("mdspace re-add {name} {}", members.join(" ")))
}

#[cfg(test)]
mod tests;

//! What lies on a would-be member.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use mdspace_format::superblock::{AREA_BYTES, counting_of_places, has_magic};
use mdspace_format::{MetadataVersion, Superblock, Uuid};
use rustix::fs::SeekFrom::{Data, Hole};
use rustix::fs::seek;
use rustix::io::Errno;

use super::look::Headway;
use crate::doctor::find_program;

/// Bytes that are read at once.
pub(super) const WINDOW_BYTES: u64 = 1 << 20;

/// Up to so many windows are read; of more of them the first and the last, and so many at even distances
/// between.
const WINDOWS_MAX: u64 = 256;

/// A file of more pieces is taken to be whole from there on.
const RANGES_MAX: usize = 1 << 16;

/// `blkid -p` found several signatures that exclude each other.
const BLKID_AMBIVALENT: i32 = 8;

/// An md superblock, whole or damaged.
pub(crate) struct FoundSuperblock {
    pub(crate) sector: u64,
    /// None for 0.90, which is not handled.
    version: Option<MetadataVersion>,
    pub(crate) superblock: Option<Superblock>,
}

/// Memory that direct I/O takes, for a superblock and what belongs to it.
#[repr(C, align(4096))]
pub(crate) struct Area(pub(crate) [u8; AREA_BYTES]);

impl Area {
    pub(crate) fn zeroes() -> Box<Self> {
        Box::new(Self([0; AREA_BYTES]))
    }
}

/// What is looked at before it is overwritten, of whatever kind it is.
pub(crate) trait Source {
    /// Its size.
    fn bytes(&self) -> io::Result<u64>;

    /// Reads what lies at `at`: whole blocks.
    fn read(&self, into: &mut [u8], at: u64) -> Result<(), Unread>;

    /// What of it may hold data.
    fn data(&self, headway: &Headway) -> io::Result<Vec<Range<u64>>>;

    /// What stands for it where a program looks that opens files.
    fn stand_in(&self, headway: &Headway) -> io::Result<File>;
}

/// Why something cannot be read.
pub(crate) enum Unread {
    /// It is what lies there. The rest may be read.
    Here(io::Error),
    /// The member does not answer, or is gone.
    Member(io::Error),
}

impl From<Unread> for io::Error {
    fn from(unread: Unread) -> Self {
        let (Unread::Here(error) | Unread::Member(error)) = unread;
        error
    }
}

impl Source for File {
    fn bytes(&self) -> io::Result<u64> {
        (&*self).seek(SeekFrom::End(0))
    }

    fn read(&self, into: &mut [u8], at: u64) -> Result<(), Unread> {
        self.read_exact_at(into, at).map_err(Unread::Here)
    }

    fn data(&self, headway: &Headway) -> io::Result<Vec<Range<u64>>> {
        data(self, headway)
    }

    fn stand_in(&self, _: &Headway) -> io::Result<File> {
        self.try_clone()
    }
}

/// One line for each thing found; none for an empty member.
pub(super) fn of(member: &impl Source, headway: &Headway) -> io::Result<Vec<String>> {
    let found = superblocks(member)?;
    headway.note();
    let mut lines: Vec<String> = found.iter().map(describe).collect();
    let signatures = signatures(member, headway)?;
    headway.note();
    // What md's own parser has said better.
    let known = |line: &String| !found.is_empty() && line.starts_with("linux_raid_member");
    lines.extend(signatures.into_iter().filter(|line| !known(line)));
    if lines.is_empty() {
        lines.extend(unrecognised(member, headway)?);
    }
    Ok(lines)
}

/// How much lies there that is neither hole nor zeroes, and how much cannot be read. Where that is much, it is
/// an estimate.
fn unrecognised(member: &impl Source, headway: &Headway) -> io::Result<Vec<String>> {
    let ranges = member.data(headway)?;
    let bytes: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    let windows: u64 = ranges.iter().map(windows_of).sum();
    let looks = windows.min(WINDOWS_MAX);
    let mut memory = vec![0; WINDOW_BYTES as usize];
    let (mut seen, mut full, mut unread) = (0, 0, 0);
    for look in 0..looks {
        // The last look is at the last window.
        let number = look * (windows - 1) / (looks - 1).max(1);
        let Some(window) = window_at(&ranges, number) else { break };
        let part = &mut memory[..(window.end - window.start) as usize];
        seen += part.len() as u64;
        let read = member.read(part, window.start);
        headway.note();
        match read {
            Ok(()) => {}
            Err(Unread::Here(_)) => {
                unread += part.len() as u64;
                continue;
            }
            Err(Unread::Member(error)) => return Err(error),
        }
        let is_full = |block: &&[u8]| block.iter().any(|byte| *byte != 0);
        full += part.chunks(512).filter(is_full).map(|block| block.len() as u64).sum::<u64>();
    }
    let about = if looks < windows { "about " } else { "" };
    let of_all = |part: u64| u128::from(part) * u128::from(bytes) / u128::from(seen.max(1));
    let line = |part: u64, what: &str| {
        (part > 0).then(|| format!("{about}{} {what}", short_size(of_all(part) as u64)))
    };
    let lines = [line(full, "of data that is not recognised"), line(unread, "that cannot be read")];
    Ok(lines.into_iter().flatten().collect())
}

/// What of a member may hold data: a file's holes are left out.
fn data(file: &File, headway: &Headway) -> io::Result<Vec<Range<u64>>> {
    let end = (&*file).seek(SeekFrom::End(0))?;
    let (mut at, mut ranges) = (0, Vec::new());
    while at < end {
        headway.note();
        // What knows no holes, or has very many, is all data.
        let start = match seek(file, Data(at)) {
            Ok(start) => start.max(at),
            Err(Errno::NXIO) => break,
            Err(_) => at,
        };
        let hole = seek(file, Hole(start)).ok().filter(|_| ranges.len() < RANGES_MAX);
        let stop = hole.unwrap_or(end).clamp(start + 1, end.max(start + 1));
        ranges.push(start..stop.min(end));
        at = stop;
    }
    Ok(ranges)
}

fn windows_of(range: &Range<u64>) -> u64 {
    (range.end - range.start).div_ceil(WINDOW_BYTES)
}

/// A window of these ranges, by its number.
fn window_at(ranges: &[Range<u64>], mut number: u64) -> Option<Range<u64>> {
    for range in ranges {
        let count = windows_of(range);
        if number < count {
            let start = range.start + number * WINDOW_BYTES;
            return Some(start..(start + WINDOW_BYTES).min(range.end));
        }
        number -= count;
    }
    None
}

fn short_size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.iter().find(|(shift, _)| bytes >= 1 << shift);
    unit.map_or_else(
        || format!("{bytes} bytes"),
        |(shift, name)| format!("{:.1} {name}", bytes as f64 / (1u64 << shift) as f64),
    )
}

/// The md superblocks of a member, in the order in which mdadm looks. An error where one of their places cannot be
/// read: who overwrites them must know them all.
pub(crate) fn superblocks(member: &impl Source) -> io::Result<Vec<FoundSuperblock>> {
    let found: io::Result<Vec<_>> = places(member)?.into_iter().collect();
    Ok(found?.into_iter().flatten().collect())
}

/// Whether one of the md superblocks of a member is `known`. An error where none is and one may be in a place that
/// cannot be read.
pub(super) fn has_superblock(
    member: &impl Source,
    known: impl Fn(&Superblock) -> bool,
) -> io::Result<bool> {
    let places = places(member)?;
    let mut found = places.iter().flatten().flatten();
    if found.any(|found| found.superblock.as_ref().is_some_and(&known)) {
        return Ok(true);
    }
    places.into_iter().try_for_each(|place| place.map(drop)).map(|()| false)
}

/// The md superblock that counts on a member, as assembly has it.
pub(crate) fn superblock_that_counts(
    member: &impl Source,
    wanted: Option<Uuid>,
) -> io::Result<Option<Superblock>> {
    counts(places(member)?, wanted)
}

fn counts(
    places: Vec<io::Result<Option<FoundSuperblock>>>,
    wanted: Option<Uuid>,
) -> io::Result<Option<Superblock>> {
    let superblock = |found: Option<FoundSuperblock>| found.and_then(|found| found.superblock);
    let found = places.into_iter().map(|place| place.map(superblock));
    Ok(counting_of_places(found, wanted)?.map(|counting| counting.superblock))
}

fn places(member: &impl Source) -> io::Result<Vec<io::Result<Option<FoundSuperblock>>>> {
    let device_sectors = member.bytes()? / 512;
    Ok(places_read(device_sectors, |area, at| Ok(member.read(area, at)?)))
}

/// What `read` gives of each place of a superblock.
fn places_read(
    device_sectors: u64,
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
) -> Vec<io::Result<Option<FoundSuperblock>>> {
    let places = MetadataVersion::PROBE_ORDER.iter().filter_map(|v| v.place(device_sectors));
    let places = places.map(|place| (place.sector, Some(place)));
    let old = MetadataVersion::sector_of_0_90(device_sectors).map(|sector| (sector, None));
    let looked = places.chain(old).map(|(sector, place)| {
        let mut area = Area::zeroes();
        read(&mut area.0, sector * 512)?;
        let parse = |place| Superblock::parse(&area.0, place, device_sectors).ok();
        Ok(has_magic(&area.0).then(|| {
            let (version, superblock) = (place.map(|place| place.version), place.and_then(parse));
            FoundSuperblock { sector, version, superblock }
        }))
    });
    looked.collect()
}

fn describe(found: &FoundSuperblock) -> String {
    let Some(version) = found.version else {
        return "an md superblock 0.90".to_owned();
    };
    let Some(superblock) = &found.superblock else {
        return format!("a damaged md superblock {version}");
    };
    format!(
        "md superblock {version} of array {} ({}, {} devices), UUID {}",
        superblock.set_name, superblock.level, superblock.raid_disks, superblock.set_uuid
    )
}

/// What blkid finds; without blkid nothing. It gets the open file: the name may lead elsewhere.
fn signatures(member: &impl Source, headway: &Headway) -> io::Result<Vec<String>> {
    let Some(blkid) = find_program("blkid") else { return Ok(Vec::new()) };
    let mut look = Command::new(blkid);
    look.args(["-p", "-o", "export", "/proc/self/fd/0"])
        .stdin(Stdio::from(member.stand_in(headway)?));
    let output = look.output()?;
    if output.status.code() == Some(BLKID_AMBIVALENT) {
        return Ok(vec!["several signatures that exclude each other".into()]);
    }
    Ok(signature_line(&String::from_utf8_lossy(&output.stdout)).into_iter().collect())
}

/// blkid's `KEY=value` lines as one line for people; none where it names nothing.
fn signature_line(export: &str) -> Option<String> {
    let value = |key: &str| {
        let mut values = export.lines().filter_map(|line| line.split_once('='));
        values.find(|(name, _)| *name == key).map(|(_, value)| value)
    };
    let kind = match (value("TYPE"), value("PTTYPE")) {
        (Some(kind), _) => format!("{kind} {}", value("USAGE").unwrap_or("signature")),
        (None, Some(table)) => format!("{table} partition table"),
        (None, None) => return None,
    };
    let label = value("LABEL").map(|label| format!(", label {label:?}")).unwrap_or_default();
    let uuid = value("UUID").map(|uuid| format!(", UUID {uuid}")).unwrap_or_default();
    Some(kind + &label + &uuid)
}

#[cfg(test)]
mod tests;

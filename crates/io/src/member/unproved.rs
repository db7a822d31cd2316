//! What servers may still do of what they were sent: a record for each export that is open for writing.
//!
//! A server may do what lies in its socket's buffer long after both ends of the connection were closed, also
//! when the process that sent it is gone. So the record is made before the first write, with room for all that
//! it may have to say, and removed when the member closes and all was answered. A record whose process is
//! gone tells where writes may still appear: anywhere, unless that process has come to say where.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mdspace_engine::sync::Mutex;

use super::lock::{self, Bytes};
use super::{named, place};

/// Ranges of a member beyond this are kept as one, from the first to the last.
const RANGES_MAX: usize = 1024;
/// Room for them, and for their length and checksum. The names of the member follow.
const RANGES_BYTES: u64 = 48 << 10;
/// What a record is called while it is made.
const UNFINISHED: &str = "new";

/// The records of this process, and those of processes that are gone.
#[derive(Clone, Debug)]
pub struct UnprovedWrites {
    /// Where they are made, or why they cannot be used.
    folder: Result<PathBuf, String>,
    /// Where else some may lie.
    others: Vec<PathBuf>,
    known: Arc<Mutex<Vec<Known>>>,
    moment: Arc<AtomicU64>,
}

/// What parts writes that were sent before a fence began from those that were sent after that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

/// A write that was sent and will not be answered.
#[derive(Clone, Debug)]
pub(crate) struct Owed {
    pub(crate) sectors: Range<u64>,
    /// When its last piece was sent.
    pub(crate) sent: Moment,
}

/// A record, as far as this process has to do with it.
#[derive(Debug)]
struct Known {
    file: PathBuf,
    /// What the member was called when it was opened, or asked for.
    name: String,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its member is open. What it was sent until then can be done no more.
    Open { proved_until: Option<Moment> },
    /// Its member was closed without all answers, by this process or one that is gone. It was sent nothing after
    /// that.
    Left { sent_until: Moment },
}

/// The record of an open member.
#[derive(Debug)]
pub(crate) struct Record {
    unproved: UnprovedWrites,
    path: PathBuf,
    /// Locked, so that others see that its process lives.
    file: File,
}

impl UnprovedWrites {
    /// In `folder`, which is made when there is something to keep.
    pub fn in_folder(folder: PathBuf) -> Self {
        Self::with(Ok(folder))
    }

    /// Nowhere: members that need a record are refused, and `why` is said.
    pub fn nowhere(why: String) -> Self {
        Self::with(Err(why))
    }

    fn with(folder: Result<PathBuf, String>) -> Self {
        let (others, known, moment) = Default::default();
        Self { folder, others, known, moment }
    }

    /// Those in other folders count as well. None is made there.
    pub fn and_in(self, others: Vec<PathBuf>) -> Self {
        let is_other = |other: &PathBuf| self.folder.as_ref() != Ok(other);
        Self { others: others.into_iter().filter(is_other).collect(), ..self }
    }

    fn folder(&self) -> io::Result<&Path> {
        self.folder.as_deref().map_err(|why| io::Error::other(why.clone()))
    }

    /// Sectors of `member` where a write of a process that is gone may still appear. A member is the same
    /// under each name that leads to the same export.
    pub fn of(&self, member: &str) -> io::Result<Vec<Range<u64>>> {
        let mut paths = Vec::new();
        for folder in
            std::iter::once(self.folder()?).chain(self.others.iter().map(PathBuf::as_path))
        {
            paths.extend(entries(folder).map_err(|error| at(folder, error))?);
        }
        let wanted = [Some(escaped(member)), place::of_export(member)];
        let mut ranges = Vec::new();
        for path in paths {
            if path.extension().is_some_and(|extension| extension == UNFINISHED) {
                continue;
            }
            let Some(left) = Left::read(&path).map_err(|error| at(&path, error))? else { continue };
            if left.names.iter().any(|name| wanted.iter().flatten().any(|wanted| wanted == name)) {
                ranges.extend(left.ranges);
                self.note(path, member, State::Left { sent_until: self.now() });
            }
        }
        Ok(ranges)
    }

    /// The operator's word is that nothing that was sent to `member` until now can be done any more.
    pub fn forget(&self, member: &str) {
        self.prove(member, self.sent_until_now());
    }

    fn now(&self) -> Moment {
        Moment(self.moment.load(Ordering::Acquire))
    }

    /// The moment that ends now.
    pub(super) fn sent_until_now(&self) -> Moment {
        Moment(self.moment.fetch_add(1, Ordering::AcqRel))
    }

    /// Nothing that was sent to `member` until then can be done any more. Removes records of nothing else.
    pub(super) fn prove(&self, member: &str, until: Moment) {
        let mut files = Vec::new();
        self.known.lock().retain_mut(|record| match &mut record.state {
            _ if record.name != member => true,
            State::Left { sent_until } if *sent_until <= until => {
                files.push(std::mem::take(&mut record.file));
                false
            }
            State::Left { .. } => true,
            State::Open { proved_until } => {
                *proved_until = Some(until).max(*proved_until);
                true
            }
        });
        for file in files {
            if let Err(error) = fs::remove_file(&file) {
                tracing::error!("{}: what is proved is not forgotten: {error}", file.display());
            }
        }
    }

    /// Makes the record of a member that is about to be used, durable when it returns. `place` is where its
    /// name leads.
    pub(crate) fn begin(&self, member: &str, place: &str) -> io::Result<Record> {
        let folder = self.folder()?;
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let (path, unfinished, file) = new_file(folder)?;
        let written = write_new(&file, member, place)
            .and_then(|()| fs::rename(&unfinished, &path))
            .and_then(|()| File::open(folder)?.sync_all());
        if let Err(error) = written {
            // What has no room is of no use; the error tells.
            drop(fs::remove_file(&unfinished));
            return Err(at(folder, error));
        }
        self.note(path.clone(), member, State::Open { proved_until: None });
        Ok(Record { unproved: self.clone(), path, file })
    }

    fn note(&self, file: PathBuf, member: &str, state: State) {
        let mut known = self.known.lock();
        if !known.iter().any(|record| record.file == file && record.name == member) {
            known.push(Known { file, name: member.to_owned(), state });
        }
    }
}

impl Record {
    /// For a write that is sent now.
    pub(crate) fn now(&self) -> Moment {
        self.unproved.now()
    }

    /// Its member is closed. What it owes may still appear, as far as that is not proved to be over.
    pub(crate) fn end(self, owed: &[Owed]) {
        let mut known = self.unproved.known.lock();
        let own = |record: &Known| record.file == self.path;
        let proved_until =
            known.iter().filter(|record| own(record)).find_map(|record| match record.state {
                State::Open { proved_until } => proved_until,
                State::Left { .. } => None,
            });
        let unproved = || owed.iter().filter(|write| Some(write.sent) > proved_until);
        let Some(sent_until) = unproved().map(|write| write.sent).max() else {
            known.retain(|record| !own(record));
            drop(known);
            if let Err(error) = fs::remove_file(&self.path) {
                let file = self.path.display();
                tracing::error!("{file}: a record of nothing is not removed: {error}");
            }
            return;
        };
        let left = State::Left { sent_until };
        known.iter_mut().filter(|record| own(record)).for_each(|record| record.state = left);
        drop(known);
        let ranges: Vec<Range<u64>> = unproved().map(|write| write.sectors.clone()).collect();
        // Without it the record says that they may appear anywhere.
        drop(self.file.write_all_at(&ranges_part(&ranges), 0));
    }
}

/// What lies in a folder; nothing where that is not there.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// A file of this folder that was not there, and what it is called before it is whole.
fn new_file(folder: &Path) -> io::Result<(PathBuf, PathBuf, File)> {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let path = folder.join(format!("{}-{number}", std::process::id()));
        let unfinished = path.with_extension(UNFINISHED);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        match options.open(&unfinished) {
            // A process that is gone had the same number.
            Ok(file) if path.exists() => drop((fs::remove_file(&unfinished)?, file)),
            Ok(file) => return Ok((path, unfinished, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(at(folder, error)),
        }
    }
}

fn write_new(file: &File, member: &str, place: &str) -> io::Result<()> {
    if !lock::bytes(file, Bytes::ALL, false)? {
        return Err(io::Error::other("a new file is locked"));
    }
    let mut content = ranges_part(&whole());
    // Bytes take the room that a file of holes would not have.
    content.resize(RANGES_BYTES as usize, b'\n');
    content.extend(format!("{}\n{}\n", escaped(member), escaped(place)).bytes());
    file.write_all_at(&content, 0)?;
    file.sync_all()
}

/// What a record says whose process is gone.
#[derive(Debug, PartialEq, Eq)]
struct Left {
    names: Vec<String>,
    ranges: Vec<Range<u64>>,
}

impl Left {
    /// None: its process lives, or it was removed meanwhile.
    fn read(path: &Path) -> io::Result<Option<Self>> {
        let file = match named::open_regular(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        if !lock::bytes(&file, Bytes::ALL, true)? {
            return Ok(None);
        }
        let content = named::read_short(&file)?;
        match Self::parse(&content) {
            Some(left) => Ok(Some(left)),
            None => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "this record of writes that may still appear cannot be read; remove it when the old \
                 connections of all servers have ended",
            )),
        }
    }

    /// Ranges that cannot be read count as the whole member; names must be readable.
    fn parse(content: &[u8]) -> Option<Self> {
        let (ranges, names) = content.split_at_checked(RANGES_BYTES as usize)?;
        let names = std::str::from_utf8(names).ok()?.strip_suffix('\n')?;
        let names: Vec<String> = names.lines().map(str::to_owned).collect();
        (names.len() == 2)
            .then(|| Self { names, ranges: parse_ranges(ranges).unwrap_or_else(whole) })
    }
}

fn at(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// A name in one line.
fn escaped(name: &str) -> String {
    name.escape_default().to_string()
}

fn whole() -> Vec<Range<u64>> {
    std::iter::once(0..u64::MAX / 512).collect()
}

/// Length and checksum of what follows, then a range a line: its first sector, and the one behind its last.
fn ranges_part(ranges: &[Range<u64>]) -> Vec<u8> {
    let line = |start, end| format!("{start} {end}\n");
    let text: String = match ranges.len() <= RANGES_MAX {
        true => ranges.iter().map(|range| line(range.start, range.end)).collect(),
        false => {
            let start = ranges.iter().map(|range| range.start).min().unwrap_or(0);
            line(start, ranges.iter().map(|range| range.end).max().unwrap_or(0))
        }
    };
    format!("{} {:x}\n{text}", text.len(), place::checksum(text.as_bytes())).into_bytes()
}

fn parse_ranges(part: &[u8]) -> Option<Vec<Range<u64>>> {
    let end = part.iter().position(|&byte| byte == b'\n')?;
    let (len, sum) = std::str::from_utf8(&part[..end]).ok()?.split_once(' ')?;
    let text = part[end + 1..].get(..len.parse().ok()?)?;
    if place::checksum(text) != u64::from_str_radix(sum, 16).ok()? {
        return None;
    }
    let range = |line: &str| {
        let (start, end) = line.split_once(' ')?;
        let (start, end) = (start.parse().ok()?, end.parse().ok()?);
        (start < end).then_some(start..end)
    };
    std::str::from_utf8(text).ok()?.lines().map(range).collect()
}

#[cfg(test)]
mod tests;

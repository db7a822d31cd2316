//! A look at what lies on members that are no files of this host: behind a network, or behind paths.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use mdspace_engine::backend::{
    IoError, IoErrorKind, IoOp, MemberId, MemberInfo, MemberIo, Patience, ReadInto,
};
use mdspace_format::{Superblock, Uuid};
use mdspace_io::{LanesConfig, LocalLane, OpenMode};
use rustix::fs::{MemfdFlags, memfd_create};

use super::contents::{Source, Unread, WINDOW_BYTES};
use super::look::Headway;
use super::{Purpose, Question, contents, look, open, question_of, refused};
use crate::failure::Failure;

/// How long a server may take for a read.
const PATIENCE: Duration = Duration::from_secs(30);

/// Shows what lies on exports and behind paths, and asks. `run` answers yes.
pub(crate) fn check_remote<'a>(
    members: impl Iterator<Item = &'a str>,
    run: bool,
    purpose: &Purpose,
) -> Result<(), Failure> {
    let mut question = Question::default();
    for member in members {
        question.join(look_at(member, purpose, |_| false)?);
    }
    if run { Ok(()) } else { question.ask(purpose.what()) }
}

/// As [`check_remote`], for one member; one whose superblock is `known` is no question. The array itself may hold it
/// still, and its server bear one connection: `run` looks at nothing.
pub(crate) fn check_remote_unless(
    member: &str,
    run: bool,
    purpose: &Purpose,
    known: impl Fn(&Superblock) -> bool + Send + 'static,
) -> Result<(), Failure> {
    if run {
        return Ok(());
    }
    let shown = look_at(member, purpose, known).map_err(|failure| {
        let cure = format!("{}; --run takes it without a look at what it holds", failure.cure);
        Failure { cure, ..failure }
    })?;
    shown.ask(purpose.what())
}

/// The superblock that counts on an export or behind paths, which may never answer.
pub(crate) fn superblock_of_remote(
    name: &str,
    wanted: Option<Uuid>,
) -> io::Result<Option<Superblock>> {
    let remote = Remote::open(name, &Purpose::known("cannot look at a member"));
    let remote = remote.map_err(|failure| io::Error::other(failure.why))?;
    contents::superblock_that_counts(&remote, wanted)
}

/// What lies on a member; no question for an empty one, and for one whose superblock is `known`.
fn look_at(
    member: &str,
    purpose: &Purpose,
    known: impl Fn(&Superblock) -> bool + Send + 'static,
) -> Result<Question, Failure> {
    let (name, theirs) = (member.to_owned(), purpose.clone());
    look(member, purpose.what(), move |headway| {
        let remote = Remote::open(&name, &theirs)?;
        let shown = || match contents::has_superblock(&remote, &known)? {
            true => Ok(Question::default()),
            false => question_of(&name, &remote, headway),
        };
        shown().map_err(|error: io::Error| {
            let why = format!("{name} cannot be read: {error}");
            Failure::new(theirs.what(), why, "look at its server")
        })
    })?
}

/// A member that a lane of this thread reads.
struct Remote {
    local: LocalLane,
    id: MemberId,
    info: MemberInfo,
}

impl Remote {
    fn open(name: &str, purpose: &Purpose) -> Result<Self, Failure> {
        let config = LanesConfig::default();
        let system = |error| Failure::new(purpose.what(), error, "see `mdspace doctor`");
        let local = LocalLane::new(&config).map_err(system)?;
        let opened = open(&config.members, name, OpenMode::LOOK);
        let (id, info) = opened.map_err(|error| refused(error, purpose))?;
        Ok(Self { local, id, info })
    }
}

impl Source for Remote {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.info.sectors * 512)
    }

    fn read(&self, into: &mut [u8], at: u64) -> Result<(), Unread> {
        let (lane, length) = (self.local.lane().clone(), into.len());
        let buffer = lane.backend().allocate(length);
        let io = MemberIo {
            member: self.id,
            op: IoOp::Read { sector: at / 512, into: ReadInto::Buffer(buffer, 0..length) },
            patience: Patience::of(PATIENCE),
        };
        let done = self.local.block_on(async move { lane.io(io).await });
        done.result.map_err(unread)?;
        into.copy_from_slice(
            &done.buffer.expect("a finished read gives its buffer back")[..length],
        );
        Ok(())
    }

    fn data(&self, _: &Headway) -> io::Result<Vec<Range<u64>>> {
        let all = 0..self.bytes()?;
        Ok(vec![all])
    }

    /// A file in memory with its start and its end, where programs look.
    fn stand_in(&self, headway: &Headway) -> io::Result<File> {
        let file = File::from(memfd_create("member", MemfdFlags::CLOEXEC)?);
        let bytes = self.bytes()?;
        file.set_len(bytes)?;
        let length = WINDOW_BYTES.min(bytes);
        let mut window = vec![0; length as usize];
        for at in [0, bytes - length] {
            match self.read(&mut window, at) {
                Ok(()) => file.write_all_at(&window, at)?,
                Err(Unread::Here(_)) => {}
                Err(Unread::Member(error)) => return Err(error),
            }
            headway.note();
        }
        Ok(file)
    }
}

fn unread(error: IoError) -> Unread {
    let is_of_member = matches!(error.kind, IoErrorKind::Gone | IoErrorKind::Deadline);
    let error = io::Error::other(error.to_string());
    if is_of_member { Unread::Member(error) } else { Unread::Here(error) }
}

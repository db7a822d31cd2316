//! A look at what lies on members behind a network.

use std::time::Duration;

use mdspace_engine::assembly::{self, ReadError};
use mdspace_engine::backend::{
    IoError, IoErrorKind, IoOp, MemberId, MemberInfo, MemberIo, Patience, ReadInto,
};
use mdspace_engine::lane::Lane;
use mdspace_io::{LanesConfig, LocalLane, OpenMode};

use super::{Purpose, Question, open, refused};
use crate::failure::Failure;

/// How much of a member's start is looked at, in bytes.
const HEAD_BYTES: usize = 64 << 10;

/// How long a server may take for that read.
const PATIENCE: Duration = Duration::from_secs(30);

/// Shows what lies on exports, and asks. `run` answers yes.
pub(crate) fn check_remote<'a>(
    members: impl Iterator<Item = &'a str>,
    run: bool,
    purpose: &Purpose,
) -> Result<(), Failure> {
    let mut question = Question::default();
    for member in members {
        match contents(member, purpose)? {
            Contents::Nothing => {}
            Contents::OfArray(line) => question.add(member, &[line], true),
            Contents::Data(line) => question.add(member, &[line], false),
        }
    }
    if run { Ok(()) } else { question.ask(purpose.what()) }
}

/// What lies on an export, in a line.
enum Contents {
    Nothing,
    OfArray(String),
    Data(String),
}

fn contents(member: &str, purpose: &Purpose) -> Result<Contents, Failure> {
    let config = LanesConfig::default();
    let system = |error| Failure::new(purpose.what(), error, "see `mdspace doctor`");
    let local = LocalLane::new(&config).map_err(system)?;
    let opened = open(&config.members, member, OpenMode::LOOK);
    let (id, info) = opened.map_err(|error| refused(error, purpose))?;
    let lane = local.lane().clone();
    let found = local.block_on(async move { look(&lane, id, info).await });
    let unreadable = |error: IoError| {
        Failure::new(
            purpose.what(),
            format!("{member} cannot be read: {error}"),
            "look at its server",
        )
    };
    found.map_err(unreadable)
}

async fn look(lane: &Lane, id: MemberId, info: MemberInfo) -> Result<Contents, IoError> {
    match assembly::read_superblock(lane, id, &info).await {
        Ok(Some(superblock)) => {
            let line = format!("a member of md array {}", superblock.set_uuid);
            return Ok(Contents::OfArray(line));
        }
        Err(ReadError::Io { error, .. }) if error.kind == IoErrorKind::Deadline => {
            return Err(error);
        }
        // What is nearly a superblock is data to be asked about: the look below sees it.
        Ok(None) | Err(_) => {}
    }
    let bytes = HEAD_BYTES.min(info.sectors as usize * 512);
    let into = ReadInto::Buffer(lane.backend().allocate(bytes), 0..bytes);
    let done = lane
        .io(MemberIo {
            member: id,
            op: IoOp::Read { sector: 0, into },
            patience: Patience::of(PATIENCE),
        })
        .await;
    done.result?;
    let head = done.buffer.expect("a finished read gives its buffer back");
    Ok(match head.iter().all(|&byte| byte == 0) {
        true => Contents::Nothing,
        false => Contents::Data("data: its first 64 KiB are not empty".to_owned()),
    })
}

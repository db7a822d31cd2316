//! Whom `assemble` starts, and how long it waits for those that come late, as disks do at a boot.

use std::thread;
use std::time::{Duration, Instant};

use mdspace_engine::assembly::missing_members;
use mdspace_format::Superblock;

use crate::args::AssembleArgs;
use crate::failure::Failure;
use crate::{config, member_search, output};

/// Between two looks.
const PAUSE: Duration = Duration::from_millis(500);

/// Adds what the configuration says, and members that are looked for.
pub(super) fn complete(args: &mut AssembleArgs) -> Result<(), Failure> {
    config::complete(args)?;
    member_search::complete(args)
}

/// The same, once all members are there that the array counts on. After `patience` it starts without the others, if it can.
pub(super) fn wait(args: &mut AssembleArgs, patience: Duration) -> Result<(), Failure> {
    let begun = Instant::now();
    let mut has_told = false;
    loop {
        let mut with_members = args.clone();
        config::complete(&mut with_members)?;
        let completed = member_search::complete(&mut with_members);
        let missing = completed.as_ref().map_or(Missing::All, |()| Missing::of(&with_members));
        let is_over = begun.elapsed() >= patience;
        if missing == Missing::Some(0) || is_over {
            completed?;
            if missing != Missing::Some(0) {
                tell(args, &format!("starts without {missing}, as it has waited for {patience:?}"));
                with_members.run = true;
            }
            *args = with_members;
            return Ok(());
        }
        if !has_told {
            tell(args, &format!("waits for {missing}, {patience:?} at most"));
            has_told = true;
        }
        thread::sleep(PAUSE);
    }
}

fn tell(args: &AssembleArgs, what: &str) {
    output::print_aside(&format!("{}: {what}", args.name()));
}

/// Members that are not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// So many of those that the array had when it last ran.
    Some(usize),
    /// None can be read that would tell.
    All,
}

impl Missing {
    fn of(args: &AssembleArgs) -> Self {
        let found = member_search::superblocks_of_members(args.members.clone(), args.uuid);
        let found: Vec<Superblock> =
            found.into_iter().filter_map(|(_, found)| found.ok().flatten()).collect();
        let Some(newest) = found.iter().max_by_key(|superblock| superblock.events) else {
            return Self::All;
        };
        let of_it = found.iter().filter(|superblock| superblock.set_uuid == newest.set_uuid);
        Self::Some(missing_members(newest, of_it))
    }
}

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Some(1) => write!(f, "a member that was there when it last ran"),
            Self::Some(count) => write!(f, "{count} members that were there when it last ran"),
            Self::All => write!(f, "its members"),
        }
    }
}

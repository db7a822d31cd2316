//! What outlives a serving process: logs, and writes that may still appear.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use mdspace_io::UnprovedWrites;
use rustix::process::Uid;

use crate::{own_dir, run_dir};

/// The folder of records, in a state directory or where those go else.
const RECORDS: &str = "unproved";

/// Where writes are kept that a server has not answered. What is kept in a directory that is not safe any more
/// is neither believed nor forgotten.
pub(super) fn unproved() -> UnprovedWrites {
    let StatePlaces { usual, records, old_records } = StatePlaces::of_this_process();
    if let Err(why) = own_dir::check(&usual) {
        return UnprovedWrites::nowhere(format!("the state directory {}: {why}", usual.display()));
    }
    let is_safe = |place: &&PathBuf| own_dir::check(place) == Ok(true);
    let others = records.iter().chain(&old_records).filter(is_safe);
    let others = others.map(|place| place.join(RECORDS)).collect();
    match records.iter().find(|place| own_dir::make(place).is_ok()) {
        Some(place) => UnprovedWrites::in_folder(place.join(RECORDS)).and_in(others),
        None => {
            let all: Vec<_> = records.iter().map(|place| place.display().to_string()).collect();
            UnprovedWrites::nowhere(format!("no state directory can be made: {}", all.join(", ")))
        }
    }
}

/// `$MDSPACE_STATE_DIR`; beside the sockets where those have a place of their own; else the usual
/// place for this user. Where that cannot be made, or is not safe from other users, the run directory.
pub(super) fn state_dir(run_dir: &Path) -> PathBuf {
    let place = StatePlaces::of_this_process().usual;
    own_dir::make(&place).map_or_else(|_| run_dir.to_owned(), |()| place)
}

/// Where the state of a user's processes may be.
#[derive(Debug, PartialEq, Eq)]
struct StatePlaces {
    usual: PathBuf,
    /// For records: the first that can be made. None goes at a logout, or with the memory of the machine.
    records: Vec<PathBuf>,
    /// Where other records of this user may lie: of processes with another environment, or of older ones.
    old_records: Vec<PathBuf>,
}

impl StatePlaces {
    fn of_this_process() -> Self {
        let places = Self::of(rustix::process::geteuid(), |name| env::var_os(name));
        // The serving process leaves the directory that it was started in.
        let absolute = |place: PathBuf| std::path::absolute(&place).unwrap_or(place);
        let all = |places: Vec<PathBuf>| places.into_iter().map(absolute).collect();
        Self {
            usual: absolute(places.usual),
            records: all(places.records),
            old_records: all(places.old_records),
        }
    }

    /// Those of a user with this environment.
    fn of(user: Uid, environment: impl Fn(&str) -> Option<OsString>) -> Self {
        let set = |name| environment(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let temporary = set("TMPDIR").unwrap_or_else(|| "/tmp".into()).join("mdspace-state");
        let of_user = match (user.is_root(), set("XDG_STATE_HOME"), set("HOME")) {
            (true, ..) => "/var/lib/mdspace".into(),
            (_, Some(state), _) => state.join("mdspace"),
            (_, None, Some(home)) => home.join(".local/state/mdspace"),
            (_, None, None) => temporary.clone(),
        };
        let chosen = set("MDSPACE_STATE_DIR").or_else(|| set("MDSPACE_RUN_DIR"));
        let usual = chosen.unwrap_or_else(|| of_user.clone());
        let last = PathBuf::from(format!("/var/tmp/mdspace-{}", user.as_raw()));
        let mut records = vec![usual.clone(), of_user, last];
        records.retain(|place| lasts(place));
        records.dedup();
        let sockets = run_dir::places_of(user, environment);
        Self { usual, records, old_records: sockets.into_iter().chain([temporary]).collect() }
    }
}

/// Whether a directory outlives the session of its user and the boot.
fn lasts(place: &Path) -> bool {
    !["/run", "/var/run"].iter().any(|folder| place.starts_with(folder))
}

#[cfg(test)]
mod tests;

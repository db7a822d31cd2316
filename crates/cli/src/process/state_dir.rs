//! What outlives a serving process: logs, and writes that may still appear.

use std::env;
use std::path::{Path, PathBuf};

use mdspace_io::UnprovedWrites;

use crate::{own_dir, run_dir};

/// Where writes are kept that a server has not answered. What is kept in a directory that is not safe any more
/// is neither believed nor forgotten.
pub(super) fn unproved() -> UnprovedWrites {
    let place = absolute_place();
    match own_dir::check(&place) {
        Ok(_) => UnprovedWrites::in_folder(state_dir(&run_dir::default_path()).join("unproved")),
        Err(why) => {
            UnprovedWrites::nowhere(format!("the state directory {}: {why}", place.display()))
        }
    }
}

/// `$MDSPACE_STATE_DIR`; beside the sockets where those have a place of their own; else the usual
/// place for this user. Where that cannot be made, or is not safe from other users, the run directory.
pub(super) fn state_dir(run_dir: &Path) -> PathBuf {
    let place = absolute_place();
    own_dir::make(&place).map_or_else(|_| run_dir.to_owned(), |()| place)
}

/// The serving process leaves the directory that it was started in.
fn absolute_place() -> PathBuf {
    let place = usual_place();
    std::path::absolute(&place).unwrap_or(place)
}

fn usual_place() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = set("MDSPACE_STATE_DIR").or_else(|| set("MDSPACE_RUN_DIR")) {
        return folder;
    }
    if rustix::process::geteuid().is_root() {
        return "/var/lib/mdspace".into();
    }
    match (set("XDG_STATE_HOME"), set("HOME")) {
        (Some(state), _) => state.join("mdspace"),
        (None, Some(home)) => home.join(".local/state/mdspace"),
        (None, None) => env::temp_dir().join("mdspace-state"),
    }
}

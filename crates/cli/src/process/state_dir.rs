//! What outlives a serving process: logs, and writes that may still appear.

use std::env;
use std::path::{Path, PathBuf};

use mdspace_io::UnprovedWrites;

use crate::{own_dir, run_dir};

/// Where writes are kept that a server has not answered.
pub(super) fn unproved() -> UnprovedWrites {
    UnprovedWrites::in_folder(state_dir(&run_dir::default_path()).join("unproved"))
}

/// `$MDSPACE_STATE_DIR`; beside the sockets where those have a place of their own; else the usual
/// place for this user. Where that cannot be made, or is not safe from other users, the run directory.
pub(super) fn state_dir(run_dir: &Path) -> PathBuf {
    let place = usual_place();
    // The serving process leaves the directory that it was started in.
    let place = std::path::absolute(&place).unwrap_or(place);
    own_dir::make(&place).map_or_else(|_| run_dir.to_owned(), |()| place)
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

//! Tells the host's udev which arrays are ours, so that it does not hand their members to the
//! kernel's md when we let go of them. `packaging/udev/63-mdspace.rules` is the other half.

use std::fs;
use std::io;

use crate::report::ArrayReport;
use crate::run_dir::RunDir;
use crate::settings;

use super::rotating;

/// Leaves `by-uuid/UUID` in the run directory for an array, whatever its members are: a block device may be behind
/// one, and may come later. It stays when the array stops: that is when udev looks.
pub(super) fn leave(array: &ArrayReport, run_dir: &RunDir) -> io::Result<()> {
    let folder = run_dir.path().join("by-uuid");
    fs::create_dir_all(&folder)?;
    rotating::append(&folder.join(settings::dashed(&array.uuid))).map(drop)
}

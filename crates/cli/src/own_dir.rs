//! Directories in which no other user can put a file.

use std::fs::{DirBuilder, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;

/// Makes a directory of this user unless it is there. The error says why it is not safe to use.
pub(crate) fn make(path: &Path) -> Result<(), String> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| error.to_string()).and_then(|()| check(path))
}

/// Refuses a directory that another user owns or may write to, and a link. One that is not there
/// holds nothing and passes.
pub(crate) fn check(path: &Path) -> Result<(), String> {
    match std::fs::symlink_metadata(path) {
        Ok(metadata) => check_owner(&metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

fn check_owner(metadata: &Metadata) -> Result<(), String> {
    if !metadata.is_dir() {
        return Err("it is no directory".into());
    }
    if metadata.uid() != rustix::process::geteuid().as_raw() {
        return Err("it belongs to another user".into());
    }
    if metadata.mode() & 0o022 != 0 {
        return Err("other users may write to it".into());
    }
    Ok(())
}

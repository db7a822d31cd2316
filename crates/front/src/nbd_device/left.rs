//! Devices of the nbd driver that a crash left.

use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::host_device::{HostDevice, is_mounted_anywhere};

use super::driver::Driver;
use super::index::{Identity, Index};
use super::served_lock::ServedLock;

/// Whether this is a device of ours, or a partition of one, that no process serves: who opens it waits for its array.
pub fn is_left(device: &Path, folder: &Path) -> bool {
    Index::of_disk(device).is_some_and(|index| {
        let is_ours = index.identity().is_some_and(|identity| identity.is_ours());
        is_ours && !is_served(&index.path(), folder)
    })
}

/// Whether a process serves this device of ours.
pub fn is_served(device: &Path, folder: &Path) -> bool {
    let Some(index) = Index::of(device) else { return false };
    let is_ours = index.identity().is_some_and(|identity| identity.is_ours());
    is_ours && matches!(ServedLock::take(index, folder), Ok(None))
}

/// Devices of ours, by the driver's text.
pub(super) fn devices() -> Vec<(Index, Identity)> {
    let all = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let indices = all.filter_map(|entry| Index::of(Path::new(&entry.file_name())));
    let known = indices.filter_map(|index| Some((index, index.identity()?)));
    let mut ours: Vec<_> = known.filter(|(_, identity)| identity.is_ours()).collect();
    ours.sort_by_key(|(index, _)| *index);
    ours
}

/// Ends what a crash left of an array that is served in another way now; gives the devices that are in use, and stay.
pub fn release_left(identity: &Identity, folder: &Path) -> Vec<PathBuf> {
    let left = devices().into_iter().filter(|(_, known)| known == identity);
    let Ok(driver) = Driver::find() else { return Vec::new() };
    let is_left = |index| matches!(ServedLock::take(index, folder), Ok(Some(_)));
    let left: Vec<Index> = left.map(|(index, _)| index).filter(|index| is_left(*index)).collect();
    left.iter().for_each(|index| give_up(&driver, *index, identity));
    left.into_iter()
        .filter(|index| index.identity().as_ref() == Some(identity))
        .map(Index::path)
        .collect()
}

/// Whether all connections of a device are alive. One of another container shows nothing else: neither its process nor
/// the lock. A request that the driver sends here meanwhile it sends again elsewhere.
fn is_alive(driver: &Driver, index: Index, identity: &Identity) -> io::Result<bool> {
    let (ours, theirs) = UnixStream::pair()?;
    let theirs = [OwnedFd::from(theirs)];
    driver.give(index, identity, &theirs)?;
    drop(theirs);
    // It has an end where the driver did not take the other one.
    ours.set_nonblocking(true)?;
    Ok((&ours).read(&mut [0]).is_ok_and(|bytes| bytes == 0))
}

/// Ends a device that a crash left, unless it is in use: its array may come back.
pub(super) fn give_up(driver: &Driver, index: Index, identity: &Identity) {
    let device = index.path();
    let device = device.display();
    if is_used(index) {
        return tracing::warn!(
            "{device} was left by a crash, and is in use: start its array, or unmount it"
        );
    }
    if is_alive(driver, index, identity).unwrap_or(false) {
        return tracing::warn!("{device} is served by a process that is not seen here");
    }
    match driver.disconnect(index) {
        Ok(()) => tracing::warn!("{device} was left by a crash, and is disconnected"),
        Err(error) => tracing::warn!(%error, "{device} was left by a crash, and stays"),
    }
}

/// Whether something uses a device that was left, as far as that shows without opening it: that might wait for it.
pub(super) fn is_used(index: Index) -> bool {
    let Ok(number) = index.number() else { return true };
    let left = Left { path: index.path(), number };
    !left.users(None).is_empty() || is_mounted_anywhere(number)
}

/// A device that no process serves.
struct Left {
    path: PathBuf,
    number: u64,
}

impl HostDevice for Left {
    fn path(&self) -> &Path {
        &self.path
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn is_detached(&self) -> bool {
        false
    }
}

//! Devices of the nbd driver that a crash left.

use std::fs;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::host_device::is_left_used;
use crate::identity::Identity;
use crate::served_lock::ServedLock;

use super::driver::Driver;
use super::index::Index;

/// Whether this is a device of ours, or a partition of one, that no process serves: who opens it waits for its array.
pub(crate) fn is_left(device: &Path, folder: &Path) -> bool {
    let index = Index::of_disk(device);
    index.is_some_and(|index| index.is_ours() && !is_served(&index.path(), folder))
}

/// Whether a process serves this device of ours.
pub(crate) fn is_served(device: &Path, folder: &Path) -> bool {
    Index::of(device).is_some_and(|index| {
        index.is_ours() && matches!(ServedLock::take(&index.name(), folder), Ok(None))
    })
}

/// Devices of an array, by the driver's text.
pub(super) fn devices_of(identity: &Identity) -> io::Result<Vec<Index>> {
    let asked = indices()?.into_iter().map(|index| Ok((index, index.is_known_of(identity)?)));
    let asked = asked.collect::<io::Result<Vec<_>>>()?;
    Ok(asked.into_iter().filter(|(_, is_its)| *is_its).map(|(index, _)| index).collect())
}

/// All that the driver has, whosever they are.
pub(super) fn indices() -> io::Result<Vec<Index>> {
    let all = fs::read_dir("/sys/block")?.collect::<io::Result<Vec<_>>>()?;
    let known = all.iter().filter_map(|entry| Index::of(Path::new(&entry.file_name())));
    let mut known: Vec<Index> = known.collect();
    known.sort();
    Ok(known)
}

/// Ends what a crash left of an array that is served in another way now; gives the devices that are in use, and stay.
pub(crate) fn release_left(identity: &Identity, folder: &Path) -> Vec<PathBuf> {
    let Ok(driver) = Driver::find() else { return Vec::new() };
    let is_left = |index: &Index| matches!(ServedLock::take(&index.name(), folder), Ok(Some(_)));
    let Ok(known) = devices_of(identity) else { return Vec::new() };
    let left: Vec<Index> = known.into_iter().filter(is_left).collect();
    left.iter().for_each(|index| give_up(&driver, *index, identity));
    left.into_iter().filter(|index| index.is_of(identity)).map(Index::path).collect()
}

/// Whether a connection of a device is alive. One of another container shows nothing else: neither its process nor
/// the lock. A request that the driver sends here meanwhile it sends again elsewhere.
fn is_alive(driver: &Driver, index: Index, identity: &Identity) -> io::Result<bool> {
    let pairs = (0..index.connections()).map(|_| UnixStream::pair());
    let (ours, theirs): (Vec<UnixStream>, Vec<OwnedFd>) = pairs
        .map(|pair| pair.map(|(ours, theirs)| (ours, theirs.into())))
        .collect::<io::Result<Vec<_>>>()?
        .into_iter()
        .unzip();
    ours.iter().try_for_each(|ours| ours.set_nonblocking(true))?;
    driver.give(index, identity, &theirs)?;
    drop(theirs);
    Ok(ours.iter().any(has_ended))
}

/// Whether the other end is closed: the driver did not take it, since it has one that is alive.
fn has_ended(mut ours: &UnixStream) -> bool {
    ours.read(&mut [0]).is_ok_and(|bytes| bytes == 0)
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
    match is_alive(driver, index, identity) {
        Ok(false) => {}
        Ok(true) => {
            return tracing::warn!("{device} is served by a process that is not seen here");
        }
        Err(error) => {
            return tracing::warn!(%error, "{device} was left by a crash, and stays");
        }
    }
    match driver.disconnect(index) {
        Ok(()) => tracing::warn!("{device} was left by a crash, and is disconnected"),
        Err(error) => tracing::warn!(%error, "{device} was left by a crash, and stays"),
    }
}

/// Whether something uses a device that was left.
pub(super) fn is_used(index: Index) -> bool {
    index.number().map_or(true, |number| is_left_used(&index.path(), number))
}

#[cfg(test)]
mod tests;

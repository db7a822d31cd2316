//! Devices that a crash left.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::driver_device::NoDevice;
use crate::host_device::is_left_used;
use crate::identity::Identity;
use crate::served_lock::{ServedLock, recorded};

use super::UblkError;
use super::control::{Control, is};
use super::index::{Index, indices, is_of};
use super::wire::{DeviceInfo, state};

/// How long a process may take to let go of its device: of one that was killed while all entries of a queue were under
/// way the driver notices the end when it looks at requests that are old, by itself every half a minute.
const GONE_WITHIN: Duration = Duration::from_secs(45);
/// How long a process may take to close a device after that.
const CLOSES_WITHIN: Duration = Duration::from_secs(10);
/// How long one that lives may take to let go of its device.
const LETS_GO_WITHIN: Duration = Duration::from_secs(2);
/// Between two tries.
const TRY_EVERY: Duration = Duration::from_millis(20);

/// Whether this is a device of ours, or a partition of one, that no process serves: who opens it waits for its array.
pub(crate) fn is_left(device: &Path, folder: &Path) -> bool {
    let index = Index::of_disk(device);
    index.is_some_and(|index| index.is_ours(folder) && !index.is_served(folder))
}

/// Whether a process serves this device of ours.
pub(crate) fn is_served(device: &Path, folder: &Path) -> bool {
    Index::of(device).is_some_and(|index| index.is_ours(folder) && index.is_served(folder))
}

/// Devices of an array, with what the driver knows of each.
pub(super) fn devices_of(
    control: &Control,
    identity: &Identity,
    folder: &Path,
) -> io::Result<Vec<(Index, DeviceInfo)>> {
    let known = |index: Index| match control.info(index) {
        Ok(info) => {
            let is_its = is_of(&info, recorded(&index.name(), folder).as_ref(), identity);
            Ok(is_its.then_some((index, info)))
        }
        // It goes just now.
        Err(error) if is(&error, Errno::NODEV) => Ok(None),
        Err(error) => Err(error),
    };
    indices()?.into_iter().filter_map(|index| known(index).transpose()).collect()
}

/// Ends what a crash left of an array that is served in another way now; gives the devices that are in use, and stay.
pub(crate) fn release_left(identity: &Identity, folder: &Path) -> Vec<PathBuf> {
    let Ok(control) = Control::open() else { return Vec::new() };
    let Ok(known) = devices_of(&control, identity, folder) else { return Vec::new() };
    let free = |index: &Index| ServedLock::take(&index.name(), folder).ok().flatten();
    let left = known.into_iter().filter_map(|(index, info)| Some((index, info, free(&index)?)));
    let stays = |(index, info, _lock): (Index, DeviceInfo, ServedLock)| {
        give_up(&control, index, &info);
        control.info(index).is_ok().then(|| index.path())
    };
    left.filter_map(stays).collect()
}

/// Ends a device that a crash left, unless it is in use: its array may come back.
pub(super) fn give_up(control: &Control, index: Index, info: &DeviceInfo) {
    let has_disk = info.state != state::DEAD;
    if has_disk && is_used(index) {
        return tracing::warn!(
            "{index} was left by a crash, and is in use: start its array, or unmount it"
        );
    }
    if let Err(error) = wait_until_quiet(control, index) {
        return tracing::warn!("{error}");
    }
    if is_open_elsewhere(index) {
        return tracing::warn!("{index} is served by a process that is not seen here");
    }
    match take_away(control, index) {
        Ok(()) => tracing::warn!("{index} was left by a crash, and is taken away"),
        Err(error) => tracing::warn!(%error, "{index} was left by a crash, and stays"),
    }
}

/// Stops and deletes a device that nobody serves any more.
pub(super) fn take_away(control: &Control, index: Index) -> io::Result<()> {
    let gone = |ended: io::Result<()>| match ended {
        Err(error) if is(&error, Errno::NODEV) => Ok(()),
        ended => ended,
    };
    gone(control.stop_left(index))?;
    gone(control.delete(index))
}

/// Whether something uses a device that was left.
pub(super) fn is_used(index: Index) -> bool {
    index.number().map_or(true, |number| is_left_used(&index.path(), number))
}

/// Whether a process has a device open to serve it.
fn is_open_elsewhere(index: Index) -> bool {
    open(index).is_err_and(|error| is(&error, Errno::BUSY))
}

/// Opens what a device is served by. Busy: another process has it open.
pub(super) fn open(index: Index) -> io::Result<std::fs::File> {
    OpenOptions::new().read(true).write(true).open(index.server_path())
}

/// Waits until the driver has noticed that a device's process is gone: before that most orders about it would wait for
/// ever, if the driver has lost requests.
pub(super) fn wait_until_quiet(control: &Control, index: Index) -> Result<(), UblkError> {
    let begin = Instant::now();
    loop {
        let info = control.info(index)?;
        if info.state != state::LIVE {
            return Ok(());
        }
        let lives = u32::try_from(info.process)
            .is_ok_and(|process| Path::new(&format!("/proc/{process}")).exists());
        let patience = if lives { LETS_GO_WITHIN } else { GONE_WITHIN };
        if begin.elapsed() >= patience {
            return Err(match is_open_elsewhere(index) {
                true => NoDevice::Served(index.path()).into(),
                false => UblkError::Stuck(index.path()),
            });
        }
        thread::sleep(TRY_EVERY);
    }
}

/// Has the driver forget the process that served a device, once that has let go of it.
pub(super) fn forget_process(control: &Control, index: Index) -> Result<(), UblkError> {
    let begin = Instant::now();
    loop {
        match control.start_recovery(index) {
            Ok(()) => return Ok(()),
            // One that was killed after this has not given the driver any queue.
            Err(error)
                if is(&error, Errno::INVAL)
                    && control.info(index).is_ok_and(|info| info.state == state::QUIESCED) =>
            {
                return Ok(());
            }
            Err(error) if !is(&error, Errno::BUSY) => return Err(error.into()),
            Err(_) if begin.elapsed() >= CLOSES_WITHIN => {
                return Err(NoDevice::Served(index.path()).into());
            }
            Err(_) => thread::sleep(TRY_EVERY),
        }
    }
}

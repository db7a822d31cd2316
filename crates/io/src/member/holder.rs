//! Who uses a member that we may not have.
//!
//! The kernel refuses without a name, so this looks where users can be seen: stacked devices,
//! mounts, swap, loop devices, and the open files of processes. Only for messages; another user may
//! come or go meanwhile.

use std::fs;
use std::path::{Path, PathBuf};

use super::loop_device::{self, Behind, FileId, LoopDevice, Over};
use super::mounts::{MountLine, device_number};
use super::probe::sysfs;
use super::seen::Seen;

/// Where the kernel shows its devices.
pub(super) const SYSFS: &str = "/sys";

/// A user of a member, and what would end the use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Holder {
    pub(super) who: String,
    pub(super) cure: String,
}

impl Holder {
    fn new(who: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { who: who.into(), cure: cure.into() }
    }

    /// Of an export: the name that locks it says no more.
    pub(super) fn of_export() -> Self {
        Self::new(
            "another array or multipath device of this host",
            "stop that one first, or give it another export",
        )
    }

    pub(super) fn this_process() -> Self {
        Self::new("this process", "name every member once, and stop what uses it")
    }

    pub(super) fn unknown() -> Self {
        Self::new(
            "someone who cannot be seen from here",
            "stop that user first; as root, more users can be named",
        )
    }
}

/// Who has claimed a block device or one of its partitions inside the kernel, as far as that is shown.
pub fn claimed_by(device: u64) -> Option<String> {
    in_kernel_of(&with_partitions(device)).map(|holder| holder.who)
}

fn with_partitions(device: u64) -> Vec<u64> {
    let mut devices = vec![device];
    devices.extend(sysfs(device).map(|disk| partitions(&disk)).unwrap_or_default());
    devices
}

fn in_kernel_of(devices: &[u64]) -> Option<Holder> {
    let stacked = devices.iter().find_map(|&device| stacked_on(&sysfs(device)?));
    stacked
        .or_else(|| mounted(|source| devices.contains(&source)))
        .or_else(|| swap(|seen| devices.contains(&seen.device)))
}

/// Who has claimed a block device or, if it is a whole disk, one of its partitions.
pub(super) fn of_device(device: u64) -> Option<Holder> {
    let devices = with_partitions(device);
    in_kernel_of(&devices)
        .or_else(|| devices.iter().find_map(|device| loop_over(Behind::Device(*device))))
        .or_else(|| process(|seen| devices.contains(&seen.device), |_| true))
}

/// Who uses, inside the kernel, a block device that sysfs shows at `place`.
pub(super) fn in_kernel(place: &Path, device: u64) -> Option<Holder> {
    stacked_on(place)
        .or_else(|| mounted(|source| source == device))
        .or_else(|| swap(|seen| seen.device == device))
}

/// A loop device that does not say which file it has, where nothing else tells.
#[derive(Debug)]
pub(super) struct SilentLoop(pub(super) PathBuf);

/// Who uses the file of this device and inode number without a lock.
pub(super) fn of_file(file: FileId) -> Result<Option<Holder>, SilentLoop> {
    let loops = LoopDevice::all(Path::new(SYSFS));
    match Over::of(Behind::File(file), loops, &loop_device::ask).found()? {
        Some(device) => Ok(Some(as_holder(&device))),
        None => Ok(swap(|seen| seen.file == file)),
    }
}

/// Who holds a lock on the file of this device and inode number.
pub(super) fn of_locked_file(file: FileId) -> Option<Holder> {
    let locked = |info: &str| info.lines().any(|line| line.starts_with("lock:"));
    process(|seen| seen.file == file, locked).or_else(|| loop_over(Behind::File(file)))
}

fn partitions(disk: &Path) -> Vec<u64> {
    let number = |entry: &Path| {
        entry.join("partition").exists().then_some(())?;
        number_of(entry)
    };
    entries(disk).iter().filter_map(|entry| number(entry)).collect()
}

/// The number of the block device that sysfs shows there.
pub(super) fn number_of(place: &Path) -> Option<u64> {
    device_number(fs::read_to_string(place.join("dev")).ok()?.trim())
}

/// The one number in a file of sysfs.
pub(super) fn count_in(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// An array, a mapping or a cache that stands on the device.
fn stacked_on(device: &Path) -> Option<Holder> {
    let holder = entries(&device.join("holders")).into_iter().next()?;
    let name = holder.file_name()?.to_string_lossy().into_owned();
    if name.starts_with("md") {
        let who = format!("the kernel's md array /dev/{name}");
        return Some(Holder::new(who, format!("stop it: mdadm --stop /dev/{name}")));
    }
    let Ok(mapping) = fs::read_to_string(holder.join("dm/name")) else {
        return Some(Holder::new(format!("/dev/{name}"), format!("take /dev/{name} down first")));
    };
    let mapping = mapping.trim();
    let cure = format!("take it down: vgchange -an, multipath -f or dmsetup remove {mapping}");
    Some(Holder::new(format!("the mapping /dev/mapper/{mapping}"), cure))
}

fn mounted(is_source: impl Fn(u64) -> bool) -> Option<Holder> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let is_it =
        |mount: &MountLine<'_>| is_source(mount.number) || mount.device().is_some_and(&is_source);
    let point = MountLine::all(&mounts).find(is_it)?.point;
    Some(Holder::new(format!("the mount on {point}"), format!("unmount it: umount {point}")))
}

fn swap(is_it: impl Fn(&Seen) -> bool) -> Option<Holder> {
    let swaps = fs::read_to_string("/proc/swaps").ok()?;
    swaps.lines().skip(1).find_map(|line| {
        let path = line.split_whitespace().next()?;
        is_it(&Seen::at(Path::new(path))?)
            .then(|| Holder::new("the system, as swap", format!("take it away: swapoff {path}")))
    })
}

/// By what it has and not by a name: that may have gone, or lead elsewhere by now.
fn loop_over(behind: Behind) -> Option<Holder> {
    let loops = LoopDevice::all(Path::new(SYSFS));
    Over::of(behind, loops, &loop_device::ask).sure.first().map(as_holder)
}

fn as_holder(device: &LoopDevice) -> Holder {
    let device = device.node().display().to_string();
    let cure = format!("detach it: losetup -d {device}");
    Holder::new(format!("the loop device {device}"), cure)
}

/// A process that has it open, and whose `fdinfo` has what we look for.
fn process(is_it: impl Fn(&Seen) -> bool, info: impl Fn(&str) -> bool) -> Option<Holder> {
    let has_it = |process: &Path| {
        let has_it = |place: &Path| {
            entries(&place.join("fd")).iter().any(|fd| {
                let text = || {
                    let name = fd.file_name().unwrap_or_default();
                    fs::read_to_string(place.join("fdinfo").join(name)).unwrap_or_default()
                };
                Seen::at(fd).is_some_and(|seen| is_it(&seen)) && info(&text())
            })
        };
        // Of one that was killed a thread may be left.
        has_it(process)
            || has_ended(process) && entries(&process.join("task")).iter().any(|task| has_it(task))
    };
    let processes = entries(Path::new("/proc")).into_iter().filter_map(|process| {
        let pid: u32 = process.file_name()?.to_str()?.parse().ok()?;
        Some((pid, process))
    });
    let (pid, process) =
        processes.filter(|(_, process)| has_it(process)).min_by_key(|(pid, _)| {
            // Ourselves last: we have just opened it to ask.
            (*pid == std::process::id(), *pid)
        })?;
    if pid == std::process::id() {
        return Some(Holder::this_process());
    }
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    if has_ended(&process) {
        let who =
            format!("{} (process {pid}), which was stopped or killed and cannot end", name.trim());
        let cure = "it waits for a device that hangs: thaw, reset or detach that one";
        return Some(Holder::new(who, cure));
    }
    Some(Holder::new(format!("{} (process {pid})", name.trim()), "stop that process first"))
}

/// Whether a process has ended but for a thread that the kernel holds.
fn has_ended(process: &Path) -> bool {
    let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
    state_in(&stat) == Some('Z')
}

/// The state of a process in the words of its `stat`, where any name stands before it in brackets.
fn state_in(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// What lies in a directory, in order; nothing if it cannot be read.
pub(super) fn entries(directory: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<_> = list.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

#[cfg(test)]
mod tests;

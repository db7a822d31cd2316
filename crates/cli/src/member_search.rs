//! Finds an array's members among the block devices of this host.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use mdspace_engine::assembly::{LeftOut, Reason};
use mdspace_format::{Superblock, Uuid};
use mdspace_io::{
    Identity, are_twins, is_remote, name_of_path, open_to_look, path_of_name, stands_on,
};
use rustix::io::Errno;

use crate::args::{ArrayName, AssembleArgs, MemberSpec};
use crate::config::UuidWord;
use crate::failure::Failure;
use crate::member_probe::{self, Look, asked_of, is_same_place, superblock_of_remote};
use crate::output;
use crate::process::fronts::is_left;
use crate::process::paths_of;

/// The block devices of this host, one a line behind two lines of heading.
const PARTITIONS: &str = "/proc/partitions";

/// Gives `assemble` without members those that are found: by `--uuid`, else by the array's name.
pub(crate) fn complete(args: &mut AssembleArgs) -> Result<(), Failure> {
    if !args.members.is_empty() {
        return Ok(());
    }
    let what = format!("cannot assemble {}", args.name());
    let failed = |why: String| Failure::new(&what, why, "name the members");
    let (mut found, mut closed) = (Vec::new(), 0);
    let devices = block_devices().map_err(|error| failed(format!("{PARTITIONS}: {error}")))?;
    for (device, found_there) in superblocks_of(devices, args.uuid) {
        match found_there {
            Ok(Some(superblock)) if is_wanted(&superblock, args.name(), args.uuid) => {
                found.push((device, superblock));
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => closed += 1,
            Err(error) => say_unread(&device, &error),
            Ok(_) => {}
        }
    }
    if found.is_empty() {
        let wanted =
            args.uuid.map_or_else(|| "that name".to_owned(), |uuid| format!("UUID {uuid}"));
        let closed = match closed {
            0 => String::new(),
            count => format!(" that may be read; {count} may not be"),
        };
        return Err(failed(format!(
            "no member of an array of {wanted} among the block devices{closed}"
        )));
    }
    let (found, left_out) = beside(&Known::default(), found);
    args.members = found.into_iter().map(MemberSpec::Path).collect();
    args.left_out.extend(left_out);
    Ok(())
}

/// What an array has already, beside what a search finds.
#[derive(Default)]
pub(crate) struct Known {
    places: Vec<PathBuf>,
    /// Of members that are no devices of this host. One of those may lead to the same.
    device_uuids: Vec<Uuid>,
    /// Of devices that are what the configuration says: what says the same elsewhere is a copy.
    confirmed: BTreeMap<Uuid, String>,
}

impl Known {
    /// Of these members, some of which a configuration knows by `device_uuids`; what was read of them is among `found`.
    pub(crate) fn new(
        members: &[MemberSpec],
        device_uuids: &BTreeMap<String, UuidWord>,
        found: &[(PathBuf, Superblock)],
    ) -> Result<Self, Failure> {
        let mut known = Self::default();
        for member in members {
            let name = member.absolute()?;
            if let MemberSpec::Path(path) = member {
                known.places.push(path.clone());
                let is_it = |found: &&(PathBuf, Superblock)| {
                    let uuid = found.1.device_uuid;
                    found.0 == *path && device_uuids.get(&name).is_some_and(|word| word.0 == uuid)
                };
                let it = found.iter().find(is_it).map(|(_, superblock)| superblock.device_uuid);
                known.confirmed.extend(it.map(|uuid| (uuid, name.clone())));
                continue;
            }
            let paths = paths_of(&name).into_iter().flatten().filter(|path| !is_remote(path));
            known.places.extend(paths.map(|path| path_of_name(&path)));
            known.device_uuids.extend(device_uuids.get(&name).map(|word| word.0));
        }
        Ok(known)
    }

    fn has(&self, (path, superblock): &(PathBuf, Superblock)) -> bool {
        self.device_uuids.contains(&superblock.device_uuid)
            || self.places.iter().any(|known| is_same_place(known, path))
    }
}

/// Devices that were found, with their superblocks, as members beside those `known`. What is known already is not taken
/// again, nor are the same bytes twice: of a mapping, its paths and loop devices over one file one is taken, that on
/// which none of the others stands. Gives what was left out.
pub(crate) fn beside(
    known: &Known,
    mut found: Vec<(PathBuf, Superblock)>,
) -> (Vec<PathBuf>, Vec<LeftOut>) {
    found.retain(|device| !known.has(device));
    let mut left_out = Vec::new();
    found.retain(|(path, superblock)| {
        let Some(original) = known.confirmed.get(&superblock.device_uuid) else { return true };
        let reason = Reason::Unreadable(format!("says that it is {original}, which is there"));
        left_out.push(LeftOut { member: name_of_path(path), reason });
        false
    });
    // A snapshot over a member stands on it, too, and says what that said once. Of two that differ assembly takes none.
    let is_same =
        |(_, one): &(PathBuf, Superblock), (_, other): &(PathBuf, Superblock)| one == other;
    let mut once: Vec<(PathBuf, Superblock)> = Vec::new();
    for device in found {
        if !once.iter().any(|known| is_same(known, &device) && is_same_place(&known.0, &device.0)) {
            once.push(device);
        }
    }
    let mut members = Vec::new();
    for (number, device) in once.iter().enumerate() {
        let path = &device.0;
        let shares = |known: &&PathBuf| {
            stands_on(known, path) || stands_on(path, known) || are_twins(known, path)
        };
        let others = once.iter().enumerate().filter(|(_, other)| is_same(other, device));
        let takes_its_place = |(earlier, (other, _)): &(usize, &(PathBuf, Superblock))| {
            stands_on(other, path) || *earlier < number && are_twins(other, path)
        };
        let mut others = others.filter(takes_its_place).map(|(_, (other, _))| other);
        match known.places.iter().find(shares).or_else(|| others.next()) {
            None => members.push(path.clone()),
            Some(other) => {
                let why = format!("has the same bytes as {}", name_of_path(other));
                let reason = Reason::Unreadable(why);
                left_out.push(LeftOut { member: name_of_path(path), reason });
            }
        }
    }
    (members, left_out)
}

/// Where members of the array are that the names `members` once led to: names of block devices may lead to
/// others after a boot, and one of them may be gone (`is_device_gone`). What belongs to another array goes, what is found
/// elsewhere comes. Gives what went.
/// Files stay where nothing else does: assembly says then that the array was made anew.
pub(crate) fn follow(
    members: &mut Vec<MemberSpec>,
    array: Uuid,
    device_uuids: &BTreeMap<String, UuidWord>,
    is_device_gone: bool,
) -> Result<Vec<LeftOut>, Failure> {
    // A name that is listed twice is no name of another one's device: assembly says what is wrong with it.
    let mut names = BTreeSet::new();
    let paths = members.iter().filter_map(path_of).filter(|path| names.insert(*path));
    let paths: Vec<_> = paths.map(Path::to_path_buf).collect();
    let (mut left_out, mut files) = (Vec::new(), Vec::new());
    let (there, others): (Vec<_>, Vec<_>) = superblocks_of(paths.clone(), Some(array))
        .into_iter()
        .partition(|(_, found)| belongs(found, array));
    let there = there.into_iter().filter_map(|(path, found)| Some((path, found.ok()??)));
    let there: Vec<(PathBuf, Superblock)> = there.collect();
    for (path, found) in others {
        let is_block = is_block(&path);
        let Some(reason) = why_not(found, is_block) else { continue };
        members.retain(|member| path_of(member) != Some(&path));
        left_out.push(LeftOut { member: name_of_path(&path), reason });
        if !is_block {
            files.push(MemberSpec::Path(path));
        }
    }
    for (path, original) in doubles(&there, device_uuids) {
        members.retain(|member| path_of(member) != Some(&path));
        let why = format!("leads to the same device as {}", name_of_path(&original));
        left_out.push(LeftOut { member: name_of_path(&path), reason: Reason::Unreadable(why) });
    }
    // As the name of one that was removed from the array, and is plugged in still.
    let is_elsewhere = |(path, found): &(PathBuf, Superblock)| {
        let known = device_uuids.get(&name_of_path(path)).map(|known| known.0);
        let is_there = |uuid| there.iter().any(|(_, other)| other.device_uuid == uuid);
        known.is_some_and(|known| known != found.device_uuid && !is_there(known))
    };
    if is_device_gone || left_out.len() > files.len() || there.iter().any(is_elsewhere) {
        let moved =
            devices_beside(&paths, array).into_iter().filter(|(_, found)| belongs(found, array));
        let moved = moved.filter_map(|(device, found)| Some((device, found.ok()??)));
        let (moved, twice) = beside(&Known::new(members, device_uuids, &there)?, moved.collect());
        members.extend(moved.into_iter().map(MemberSpec::Path));
        left_out.extend(twice);
    }
    if members.is_empty() {
        let names: Vec<_> = files.iter().filter_map(path_of).map(name_of_path).collect();
        left_out.retain(|left_out| !names.contains(&left_out.member));
        members.append(&mut files);
    }
    Ok(left_out)
}

/// Names that lead to the device of another name, and that one: of disks that tell one serial number udev gives a name to
/// the last one alone. A name counts before others if it is known to be of that device.
fn doubles(
    there: &[(PathBuf, Superblock)],
    device_uuids: &BTreeMap<String, UuidWord>,
) -> Vec<(PathBuf, PathBuf)> {
    let is_known = |(path, superblock): &&(PathBuf, Superblock)| {
        let known = device_uuids.get(&name_of_path(path));
        known.is_some_and(|known| known.0 == superblock.device_uuid)
    };
    let (known, others): (Vec<_>, Vec<_>) = there.iter().partition(is_known);
    let mut doubles = Vec::new();
    let mut taken: Vec<(Identity, &PathBuf)> = Vec::new();
    for (path, _) in known.into_iter().chain(others) {
        let Some(identity) = identity_of(path) else { continue };
        match taken.iter().find(|(other, _)| *other == identity) {
            Some((_, original)) => doubles.push((path.clone(), (*original).clone())),
            None => taken.push((identity, path)),
        }
    }
    doubles
}

/// What a name leads to, if that answers.
pub(crate) fn identity_of(path: &Path) -> Option<Identity> {
    asked_of(path, |path| Identity::of_name(path).ok()).flatten()
}

/// Why what a member's name leads to takes no part in the array that it does not belong to; none where assembly is to
/// say it. A file that holds no superblock is still what was named; a block device may be any other.
fn why_not(found: io::Result<Option<Superblock>>, is_block: bool) -> Option<Reason> {
    match found {
        Ok(Some(_)) => Some(Reason::OtherArray),
        _ if !is_block => None,
        Ok(None) => Some(Reason::Unreadable("has no superblock of the array".to_owned())),
        Err(error) => Some(Reason::Unreadable(format!("cannot be read: {error}"))),
    }
}

fn belongs(found: &io::Result<Option<Superblock>>, array: Uuid) -> bool {
    matches!(found, Ok(Some(superblock)) if superblock.set_uuid == array)
}

/// The block devices of this host that none of `paths` leads to, with the superblock that counts on each.
fn devices_beside(
    paths: &[PathBuf],
    array: Uuid,
) -> Vec<(PathBuf, io::Result<Option<Superblock>>)> {
    let place = |path: &PathBuf| asked_of(path, |path| fs::canonicalize(path).ok()).flatten();
    let known: Vec<_> = paths.iter().filter_map(place).collect();
    let mut devices = block_devices().unwrap_or_default();
    devices.retain(|device| fs::canonicalize(device).is_ok_and(|place| !known.contains(&place)));
    superblocks_of(devices, Some(array))
}

fn path_of(member: &MemberSpec) -> Option<&Path> {
    match member {
        MemberSpec::Path(path) => Some(path),
        _ => None,
    }
}

/// Whether a member that is not there was a block device, by its name.
pub(crate) fn is_name_of_device(member: &MemberSpec) -> bool {
    path_of(member).is_some_and(|path| path.starts_with("/dev"))
}

fn is_block(path: &Path) -> bool {
    let found = asked_of(path, |path| fs::metadata(path).ok()).flatten();
    found.is_some_and(|found| found.file_type().is_block_device())
}

/// A name of a block device, given without links, that leads to it after every boot, where udev made one: the first in `by_id`.
pub(crate) fn lasting_name(device: &Path, by_id: &Path) -> Option<String> {
    let links = fs::read_dir(by_id).ok()?.flatten().map(|link| link.path());
    let mut names: Vec<_> = links
        .filter(|link| fs::canonicalize(link).is_ok_and(|place| place == device))
        .map(|link| name_of_path(&link))
        .collect();
    names.sort();
    names.into_iter().next()
}

/// The block devices of this host. A device that a crash left of an array waits for this very search.
pub(crate) fn block_devices() -> io::Result<Vec<PathBuf>> {
    let mut devices = devices(&fs::read_to_string(PARTITIONS)?);
    devices.retain(|device| !is_left(device));
    Ok(devices)
}

/// `/proc/partitions` as paths: the fourth column, `!` standing for `/`.
fn devices(partitions: &str) -> Vec<PathBuf> {
    let lines = partitions.lines().skip(2);
    let names = lines.filter_map(|line| line.split_whitespace().nth(3));
    names.map(|name| Path::new("/dev").join(name.replace('!', "/"))).collect()
}

/// The superblock that counts on each device, of which that of the `wanted` array is preferred. Several that do not
/// answer take no longer than one.
pub(crate) fn superblocks_of(
    devices: Vec<PathBuf>,
    wanted: Option<Uuid>,
) -> Vec<(PathBuf, io::Result<Option<Superblock>>)> {
    let members = devices.into_iter().map(MemberSpec::Path).collect();
    let found = superblocks_of_members(members, wanted);
    let of_path = |(member, found)| match member {
        MemberSpec::Path(path) => Some((path, found)),
        _ => None,
    };
    found.into_iter().filter_map(of_path).collect()
}

/// The same for members of any kind. What lies in memory has none.
pub(crate) fn superblocks_of_members(
    members: Vec<MemberSpec>,
    wanted: Option<Uuid>,
) -> Vec<(MemberSpec, io::Result<Option<Superblock>>)> {
    let begun = members.into_iter().filter_map(|member| {
        let (name, theirs) = (member.absolute().ok()?, member.clone());
        let looking = Look::start(name.clone(), move |_| match theirs {
            MemberSpec::Path(path) => read_superblock(&path, wanted),
            MemberSpec::Nbd(_) | MemberSpec::Multipath(_) => superblock_of_remote(&name, wanted),
            MemberSpec::Ram { .. } | MemberSpec::Null(_) => Ok(None),
        });
        Some((member, looking))
    });
    let begun: Vec<_> = begun.collect();
    let end = |looking: io::Result<Look<_>>| looking.and_then(Look::end).flatten();
    begun.into_iter().map(|(member, looking)| (member, end(looking))).collect()
}

/// The superblock that counts on a device, which may never answer.
pub(crate) fn read_superblock(
    device: &Path,
    wanted: Option<Uuid>,
) -> io::Result<Option<Superblock>> {
    member_probe::superblock_that_counts(&open_to_look(device)?, wanted)
}

/// Names a device that gives no superblock, where it may be a member all the same. One that is not there or has no
/// medium is none, and what this user may not read tells nothing.
pub(crate) fn say_unread(device: &Path, error: &io::Error) {
    if is_trouble(error) {
        output::print_aside(&format!("{} cannot be read: {error}: left out", name_of_path(device)));
    }
}

fn is_trouble(error: &io::Error) -> bool {
    use io::ErrorKind::{NotADirectory, NotFound, PermissionDenied, TimedOut};
    let is_none =
        [Errno::NOMEDIUM, Errno::NXIO, Errno::NODEV].map(|errno| Some(errno.raw_os_error()));
    match error.kind() {
        TimedOut => true,
        NotFound | PermissionDenied | NotADirectory => false,
        _ => error.raw_os_error().is_some() && !is_none.contains(&error.raw_os_error()),
    }
}

fn is_wanted(superblock: &Superblock, name: &ArrayName, uuid: Option<Uuid>) -> bool {
    match uuid {
        Some(uuid) => superblock.set_uuid == uuid,
        None => superblock.set_name.short() == name.as_str(),
    }
}

#[cfg(test)]
mod tests;

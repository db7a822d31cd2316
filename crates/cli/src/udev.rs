//! Tells the host's udev which arrays are mdspace's, so that it does not hand their members to the kernel's md.
//! `packaging/udev/63-mdspace.rules` is the other half.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::args::ArrayName;
use crate::settings;

#[cfg(test)]
mod tests;

/// An entry `by-uuid/UUID` in a folder: udev looks for it, and it holds the name of the array. What is in the run
/// directory lasts until the host boots, what is beside configurations until the array is released.
fn entry(folder: &Path, array: &str) -> PathBuf {
    folder.join("by-uuid").join(settings::dashed(array))
}

/// Keeps the members of an array from md by its UUID, whatever they are: a block device may be behind one, and may
/// come later. The entry survives a power cut. Says whether it is new.
pub(crate) fn keep_from_md(folder: &Path, array: &str, name: &ArrayName) -> io::Result<bool> {
    let path = entry(folder, array);
    let word = format!("{name}\n");
    if fs::read_to_string(&path).is_ok_and(|there| there == word) {
        return Ok(false);
    }
    let entries = path.parent().expect("it is in by-uuid");
    fs::create_dir_all(entries)?;
    let mut file = File::create(&path)?;
    file.write_all(word.as_bytes())?;
    file.sync_all()?;
    File::open(entries)?.sync_all()?;
    File::open(folder)?.sync_all()?;
    Ok(true)
}

/// The UUIDs that are kept from md for an array of this name.
pub(crate) fn kept_from_md(folder: &Path, name: &ArrayName) -> Vec<String> {
    let word = format!("{name}\n");
    let entries = fs::read_dir(folder.join("by-uuid")).into_iter().flatten().flatten();
    let is_of_it = |path: &Path| fs::read_to_string(path).is_ok_and(|there| there == word);
    let of_it = entries.filter(|entry| is_of_it(&entry.path()));
    of_it.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Leaves the members of an array to md. Says whether they were kept from it.
pub(crate) fn leave_to_md(folder: &Path, array: &str) -> io::Result<bool> {
    match fs::remove_file(entry(folder, array)) {
        Ok(()) => File::open(folder.join("by-uuid"))?.sync_all().map(|()| true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Has udev look at a member again. A file is none of its business.
pub(crate) fn look_again(member: &Path) -> io::Result<()> {
    let found = fs::metadata(member)?;
    let number = found.st_rdev();
    let is_device = rustix::fs::FileType::from_raw_mode(found.st_mode()).is_block_device();
    if !is_device {
        return Ok(());
    }
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    fs::write(format!("/sys/dev/block/{major}:{minor}/uevent"), "change")
}

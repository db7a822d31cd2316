//! A file that makes way for a fresh one when it is large.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

#[cfg(test)]
mod tests;

/// When a file makes way, and how many old ones are kept.
#[derive(Clone, Copy)]
pub(super) struct Rotation {
    pub(super) at_bytes: u64,
    /// `NAME.1` is the newest of them.
    pub(super) old_kept: u32,
}

/// A file to which whole lines are appended.
pub(super) struct RotatingFile {
    path: PathBuf,
    rotation: Rotation,
    /// What to do with each fresh file.
    opened: fn(&File) -> io::Result<()>,
    file: File,
    bytes: u64,
    /// A write failed: the file may end with a part of a line.
    is_torn: bool,
}

impl RotatingFile {
    pub(super) fn open(
        path: PathBuf,
        rotation: Rotation,
        opened: fn(&File) -> io::Result<()>,
    ) -> io::Result<Self> {
        let mut file = append(&path)?;
        opened(&file)?;
        let mut bytes = file.metadata()?.len();
        // A crash, or a full file system, may have cut the last line off.
        if bytes > 0 && !ends_a_line(&file, bytes)? {
            file.write_all(b"\n")?;
            bytes += 1;
        }
        Ok(Self { path, rotation, opened, file, bytes, is_torn: false })
    }

    /// Forgets what was written so far, old files too.
    pub(super) fn begin_anew(&mut self) -> io::Result<()> {
        for number in 1..=self.rotation.old_kept {
            fs::remove_file(old(&self.path, number)).or_else(unless_missing)?;
        }
        self.file.set_len(0)?;
        self.bytes = 0;
        Ok(())
    }

    fn open_again(&mut self) -> io::Result<()> {
        *self = Self::open(self.path.clone(), self.rotation, self.opened)?;
        Ok(())
    }

    /// Whether someone has deleted or moved it. The next line would then not be found at its path.
    fn is_gone(&self) -> bool {
        let ours = self.file.metadata().map(|data| (data.dev(), data.ino()));
        let there = fs::symlink_metadata(&self.path).map(|data| (data.dev(), data.ino()));
        !matches!((ours, there), (Ok(ours), Ok(there)) if ours == there)
    }
}

impl Write for RotatingFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.is_torn || self.is_gone() {
            self.open_again()?;
        }
        if self.bytes + line.len() as u64 > self.rotation.at_bytes {
            rotate(&self.path, self.rotation.old_kept)?;
            self.open_again()?;
        }
        self.file.write_all(line).inspect_err(|_| self.is_torn = true)?;
        self.bytes += line.len() as u64;
        Ok(line.len())
    }

    /// What was written survives a power cut.
    fn flush(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// An old file: `number` 1 is the newest.
pub(super) fn old(path: &Path, number: u32) -> PathBuf {
    PathBuf::from(format!("{}.{number}", path.display()))
}

/// `x.log.1` becomes `x.log.2`, `x.log` becomes `x.log.1`. What is not there needs nothing.
fn rotate(path: &Path, old_kept: u32) -> io::Result<()> {
    for number in (1..old_kept).rev() {
        rename(&old(path, number), &old(path, number + 1))?;
    }
    rename(path, &old(path, 1))
}

fn ends_a_line(file: &File, bytes: u64) -> io::Result<bool> {
    let mut last = [0];
    file.read_exact_at(&mut last, bytes - 1)?;
    Ok(last == *b"\n")
}

fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to).or_else(unless_missing)
}

fn unless_missing(error: io::Error) -> io::Result<()> {
    if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

pub(super) fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.create(true).read(true).append(true).mode(0o600);
    // A pipe that has the name is not waited for.
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).expect("a flag of open(2)");
    let file = options.custom_flags(flags).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no regular file")),
    }
}

//! The log of a serving process: standard error in the foreground, else a file that is rotated.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::args::ArrayName;
use crate::run_dir::RunDir;

use super::state_dir::state_dir;

/// A log file that has this many bytes becomes `NAME.log.1`, the one before it `NAME.log.2`.
const ROTATE_AT_BYTES: u64 = 4 << 20;

/// Old log files kept.
const OLD_KEPT: u32 = 2;

/// Where an array's log is.
pub(crate) fn path(name: &ArrayName, run_dir: &RunDir) -> PathBuf {
    let folder = state_dir();
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    // A user without a home still has a run directory.
    made.map_or_else(|_| run_dir.path().to_owned(), |()| folder).join(format!("{name}.log"))
}

/// The log, to append to.
pub(crate) fn open(name: &ArrayName, run_dir: &RunDir) -> io::Result<File> {
    append(&path(name, run_dir))
}

/// Logs to standard error.
pub(crate) fn to_stderr() {
    tracing_subscriber::fmt().with_env_filter(filter()).with_writer(io::stderr).init();
}

/// Logs to the array's file. Standard error goes there too, so that a panic is found.
pub(crate) fn to_file(name: &ArrayName, run_dir: &RunDir) -> io::Result<()> {
    let log = RotatingLog::open(path(name, run_dir))?;
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter()).with_ansi(false);
    subscriber.with_writer(log).init();
    Ok(())
}

/// `$MDSPACE_LOG`, else what an administrator should read.
fn filter() -> EnvFilter {
    EnvFilter::try_from_env("MDSPACE_LOG").unwrap_or_else(|_| EnvFilter::new("info"))
}

/// A file that makes way for a fresh one when it is large.
struct RotatingLog {
    path: PathBuf,
    current: Mutex<Current>,
}

struct Current {
    file: File,
    bytes: u64,
}

impl RotatingLog {
    fn open(path: PathBuf) -> io::Result<Self> {
        let current = Mutex::new(Current::open(&path)?);
        Ok(Self { path, current })
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut current = self.current.lock().expect("no writer panics");
        if current.bytes + bytes.len() as u64 > ROTATE_AT_BYTES {
            rotate(&self.path)?;
            *current = Current::open(&self.path)?;
        }
        current.bytes += bytes.len() as u64;
        current.file.write_all(bytes)
    }
}

impl Current {
    fn open(path: &Path) -> io::Result<Self> {
        let file = append(path)?;
        rustix::stdio::dup2_stderr(&file)?;
        let bytes = file.metadata()?.len();
        Ok(Self { file, bytes })
    }
}

/// `x.log.1` becomes `x.log.2`, `x.log` becomes `x.log.1`.
fn rotate(path: &Path) -> io::Result<()> {
    let old = |number| PathBuf::from(format!("{}.{number}", path.display()));
    for number in (1..OLD_KEPT).rev() {
        if old(number).exists() {
            fs::rename(old(number), old(number + 1))?;
        }
    }
    fs::rename(path, old(1))
}

fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// One line of the log.
struct Line<'a>(&'a RotatingLog);

impl Write for Line<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for RotatingLog {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self)
    }
}

//! The log of a serving process: standard error in the foreground, else a file that is rotated.

use std::env;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::args::ArrayName;
use crate::run_dir::RunDir;

/// A log file that has this many bytes becomes `NAME.log.1`, the one before it `NAME.log.2`.
const ROTATE_AT_BYTES: u64 = 4 << 20;

/// Old log files kept.
const OLD_KEPT: u32 = 2;

/// Where an array's log is.
pub(crate) fn path(name: &ArrayName, run_dir: &RunDir) -> PathBuf {
    let made = std::path::absolute(state_dir()).and_then(|folder| {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(folder)
    });
    // A user without a home still has a run directory.
    made.unwrap_or_else(|_| run_dir.path().to_owned()).join(format!("{name}.log"))
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

/// `$MDSPACE_STATE_DIR`; beside the sockets where those have a place of their own; else the usual
/// place for this user.
fn state_dir() -> PathBuf {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(folder) = set("MDSPACE_STATE_DIR").or_else(|| set("MDSPACE_RUN_DIR")) {
        return folder;
    }
    if rustix::process::geteuid().is_root() {
        return "/var/lib/mdspace".into();
    }
    match (set("XDG_STATE_HOME"), set("HOME")) {
        (Some(state), _) => state.join("mdspace"),
        (None, Some(home)) => home.join(".local/state/mdspace"),
        (None, None) => env::temp_dir().join("mdspace-state"),
    }
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

//! The log of a serving process: standard error in the foreground, else a file that is rotated.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;

use crate::args::ArrayName;
use crate::run_dir::RunDir;

use super::rotating::{self, RotatingFile, Rotation};
use super::state_dir::state_dir;

/// A log file of this size becomes `NAME.log.1`, the one before it `NAME.log.2`.
const ROTATION: Rotation = Rotation { at_bytes: 4 << 20, old_kept: 2 };

/// Lines that wait for the log's thread at most. More are dropped, and counted in the log.
const LINES_WAITING: usize = 4096;

/// Where an array's log is.
pub(crate) fn path(name: &ArrayName, run_dir: &RunDir) -> PathBuf {
    state_dir(run_dir.path()).join(format!("{name}.log"))
}

/// The log, to append to.
pub(crate) fn open(name: &ArrayName, run_dir: &RunDir) -> io::Result<File> {
    rotating::append(&path(name, run_dir))
}

/// The log of this process, as long as it is held. A thread of its own writes the lines: a full file
/// system, or a terminal that nothing reads, stalls that thread and no request.
#[must_use]
pub(crate) struct Log {
    _thread: WorkerGuard,
}

/// Logs to standard error.
pub(crate) fn to_stderr() -> Log {
    start(io::stderr()).0
}

/// Logs to the array's file. Standard error goes there too, so that a panic is found. An array is served
/// without its log rather than not: then a note for the user says so, as it does where the log is not the one wanted.
pub(crate) fn to_file(name: &ArrayName, run_dir: &RunDir) -> (Log, Option<String>) {
    to_path(path(name, run_dir))
}

/// Logs to a file, in the same way.
pub(crate) fn to_path(path: PathBuf) -> (Log, Option<String>) {
    let opened = |file: &File| Ok(rustix::stdio::dup2_stderr(file)?);
    match RotatingFile::open(path.clone(), ROTATION, opened) {
        Ok(log) => start(log),
        Err(error) => {
            let note = format!("no log is written: {}: {error}", path.display());
            (start(io::sink()).0, Some(note))
        }
    }
}

/// Begins a log. Gives a note for the user where `MDSPACE_LOG` does not say which.
fn start(writer: impl Write + Send + 'static) -> (Log, Option<String>) {
    let dropped = Arc::new(OnceLock::new());
    let counted = Counted { writer, dropped: dropped.clone(), failed: 0, told: 0 };
    let queue = NonBlockingBuilder::default().buffered_lines_limit(LINES_WAITING);
    let (lines, thread) = queue.thread_name("log").finish(counted);
    dropped.get_or_init(|| lines.error_counter());
    let wanted = std::env::var("MDSPACE_LOG").ok().filter(|words| !words.is_empty());
    let filter = wanted.as_deref().and_then(filter);
    let is_nonsense = wanted.is_some() && filter.is_none();
    let filter = filter.unwrap_or_else(|| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    subscriber.with_writer(lines).init();
    let note = wanted.filter(|_| is_nonsense).map(|words| {
        format!(
            "MDSPACE_LOG={words:?} is no level, as debug, and no list of them: it counts as info"
        )
    });
    note.iter().for_each(|note| tracing::warn!("{note}"));
    (Log { _thread: thread }, note)
}

/// What `MDSPACE_LOG` asks for, in the words of `env_logger`. A word that is no level is a part of the program there:
/// one that does not exist would leave an empty log.
fn filter(words: &str) -> Option<EnvFilter> {
    let levels = ["off", "error", "warn", "info", "debug", "trace"];
    let is_known = |word: &str| {
        levels.iter().any(|level| word.eq_ignore_ascii_case(level))
            || word.contains(['=', '['])
            || word.starts_with("mdspace")
    };
    let is_right = words.split(',').all(|word| is_known(word.trim()));
    words.parse().ok().filter(|_| is_right)
}

/// A log that says how many lines it lacks.
struct Counted<W> {
    writer: W,
    /// Lines that found the queue full.
    dropped: Arc<OnceLock<ErrorCounter>>,
    /// Lines that could not be written.
    failed: usize,
    /// How many of both the log has told of.
    told: usize,
}

impl<W: Write> Write for Counted<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let lacking = self.failed + self.dropped.get().map_or(0, ErrorCounter::dropped_lines);
        let written = match lacking - self.told {
            0 => Ok(()),
            lines => writeln!(self.writer, "{lines} lines of the log are lost"),
        };
        match written.and_then(|()| self.writer.write_all(line)) {
            Ok(()) => self.told = lacking,
            Err(_) => self.failed += 1,
        }
        Ok(line.len())
    }

    /// The log of a power cut is worth no wait for the disk.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;

//! Events on disk, one JSON object a line: what `events` shows when the process is gone.

use std::io::{self, Write};
use std::path::PathBuf;

use mdspace_io::read_text;
use tracing_appender::non_blocking::{NonBlocking, NonBlockingBuilder, WorkerGuard};

use crate::args::ArrayName;
use crate::events::Event;
use crate::run_dir::RunDir;

use super::rotating::{self, RotatingFile, Rotation};
use super::state_dir::state_dir;

/// Some thousands of events, twice.
const ROTATION: Rotation = Rotation { at_bytes: 512 << 10, old_kept: 1 };

/// Events that wait for the journal's thread at most. More are dropped: nothing waits for a disk here.
const EVENTS_WAITING: usize = 1024;

/// Where an array's events are.
fn path(name: &ArrayName, run_dir: &RunDir) -> PathBuf {
    state_dir(run_dir.path()).join(format!("{name}.events"))
}

/// The events of an array that were written, oldest first. A line that a crash cut off is left out.
pub(crate) fn read(name: &ArrayName, run_dir: &RunDir) -> Vec<Event> {
    let path = path(name, run_dir);
    let files = [rotating::old(&path, 1), path];
    let texts = files.map(|file| read_text(&file).unwrap_or_default());
    let lines = texts.iter().flat_map(|text| text.lines());
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Writes the events of a process, on a thread of its own.
pub(super) struct Journal {
    lines: NonBlocking,
    _thread: WorkerGuard,
}

impl Journal {
    /// Goes on where the last process ended; those of a `new` array begin a fresh file.
    pub(super) fn open(name: &ArrayName, run_dir: &RunDir, new: bool) -> io::Result<Self> {
        let mut file = RotatingFile::open(path(name, run_dir), ROTATION, |_| Ok(()))?;
        if new {
            file.begin_anew()?;
        }
        let queue = NonBlockingBuilder::default().buffered_lines_limit(EVENTS_WAITING);
        let (lines, thread) = queue.thread_name("journal").finish(file);
        Ok(Self { lines, _thread: thread })
    }

    pub(super) fn write(&mut self, event: &Event) {
        let mut line = serde_json::to_vec(event).expect("an event has no map keys");
        line.push(b'\n');
        // What finds the queue full is dropped there.
        let _ = self.lines.write_all(&line);
    }
}

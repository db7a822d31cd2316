//! The programs that run for the demo: none outlives it, whatever ends it.

use std::io;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Programs that run now. A signal to the demo ends them.
#[derive(Clone, Default)]
pub(super) struct Children(Arc<Mutex<Inside>>);

#[derive(Default)]
struct Inside {
    running: Vec<Pid>,
    interrupted: bool,
}

/// One of them; ended when dropped.
pub(super) struct Child {
    child: Option<std::process::Child>,
    pid: Pid,
    children: Children,
}

impl Children {
    /// From here on a signal ends the programs and not the demo, which then cleans up.
    pub(super) fn heed_signals() -> io::Result<Self> {
        let children = Self::default();
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM])?;
        let heeding = children.clone();
        thread::Builder::new().name("signals".into()).spawn(move || {
            for _ in signals.forever() {
                heeding.interrupt();
            }
        })?;
        Ok(children)
    }

    pub(super) fn interrupted(&self) -> bool {
        self.inside().interrupted
    }

    /// Starts a program; after a signal none starts.
    pub(super) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        // Held over the start: a signal meanwhile finds the program in the list.
        let mut inside = self.inside();
        if inside.interrupted {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let pid = Pid::from_child(&child);
        inside.running.push(pid);
        drop(inside);
        Ok(Child { child: Some(child), pid, children: self.clone() })
    }

    fn interrupt(&self) {
        let mut inside = self.inside();
        inside.interrupted = true;
        for pid in &inside.running {
            // One that has just ended is what we want.
            let _ = kill_process(*pid, Signal::KILL);
        }
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Child {
    /// Waits for its end.
    pub(super) fn output(mut self) -> io::Result<Output> {
        self.child.take().expect("waited for once").wait_with_output()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.children.inside().running.retain(|pid| *pid != self.pid);
        if let Some(mut child) = self.child.take() {
            // Only a failure elsewhere leaves a program unwaited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

//! How a serving process comes to its end: by order or by signal, and not before who ordered it has
//! been told.

use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use mdspace_io::MemberTable;
use signal_hook::consts::{
    SIGALRM, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGVTALRM,
    SIGXCPU, SIGXFSZ,
};
use signal_hook::iterator::Signals;

use crate::args::ArrayName;
use crate::control::Reply;
use crate::control::server::Replies;
use crate::failure::Failure;
use crate::member_probe::any_left_behind;
use crate::run_dir::NameLock;

use super::fronts::{Fronts, Next};
use super::recorder::Recorder;
use super::{answers, systemd};

/// Signals that ask for a stop.
const STOPS: [i32; 4] = [SIGHUP, SIGINT, SIGTERM, SIGQUIT];

/// Signals that ask for nothing. Of SIGXFSZ the write tells that was too large, by its error.
const MEANINGLESS: [i32; 10] =
    [SIGALRM, SIGIO, SIGPROF, SIGUSR1, SIGUSR2, SIGVTALRM, SIGXCPU, SIGXFSZ, SIGSTKFLT, SIGPWR];

/// Of `signal(7)`, of most processors.
const SIGSTKFLT: i32 = 16;
const SIGPWR: i32 = 30;

/// Real-time signals ask for nothing either. Those before them are the C library's own.
const REAL_TIME: RangeInclusive<i32> = 34..=64;

/// Whether a signal asks for nothing.
fn is_meaningless(signal: i32) -> bool {
    MEANINGLESS.contains(&signal) || REAL_TIME.contains(&signal)
}

/// How far the process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Serving,
    /// Everything is stopped; who asked for it is still to be told.
    Stopped,
    /// Nothing is left to say.
    Ending,
}

/// The process's phase, and the wait for the last one.
pub(super) struct Ending {
    phase: Mutex<Phase>,
    /// Orders to stop whose answer is not sent.
    unanswered: AtomicUsize,
    comes: Condvar,
    /// The kernel has calls on members that hang: it ends the process when they end.
    calls_left: AtomicBool,
}

impl Default for Ending {
    fn default() -> Self {
        Self {
            phase: Mutex::new(Phase::Serving),
            unanswered: AtomicUsize::new(0),
            comes: Condvar::new(),
            calls_left: AtomicBool::new(false),
        }
    }
}

impl Ending {
    /// The phase, held while somebody changes it.
    pub(super) fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether every member was let go.
    pub(super) fn note_members(&self, table: &MemberTable) {
        self.calls_left.store(!table.are_let_go(), Ordering::Relaxed);
    }

    /// The last act of a process: gives its name free, if the process may not end soon. Else who waits for the
    /// name waits for that end.
    pub(super) fn leave_name(&self, lock: &NameLock) {
        let may_stay = self.calls_left.load(Ordering::Relaxed) || any_left_behind();
        if may_stay {
            give_free(lock);
        }
    }

    /// Waits for the end, and until everyone who ordered it has been told.
    pub(super) fn wait(&self) {
        let goes_on = |phase: &mut Phase| {
            *phase != Phase::Ending || self.unanswered.load(Ordering::Acquire) > 0
        };
        let ended = self.comes.wait_while(self.phase(), goes_on);
        drop(ended.unwrap_or_else(PoisonError::into_inner));
    }

    /// An order to stop is answered.
    fn answered(&self) {
        let _phase = self.phase();
        self.unanswered.fetch_sub(1, Ordering::AcqRel);
        self.comes.notify_all();
    }
}

/// Holds a name until the process ends: other commands that take it wait for that end. A start that `has_failed` at a
/// member which does not answer gives it free, for the process may not end soon.
pub(super) fn hold_to_the_end(lock: Arc<NameLock>, has_failed: bool) {
    if has_failed && any_left_behind() {
        give_free(&lock);
    }
    std::mem::forget(lock);
}

fn give_free(lock: &NameLock) {
    if let Err(error) = lock.unlock() {
        tracing::warn!("the name is not free before the process has ended: {error}");
    }
}

/// What a process serves.
pub(super) trait Served: Send + Sync + 'static {
    fn name(&self) -> &ArrayName;
    fn recorder(&self) -> &Recorder;
    fn ending(&self) -> &Ending;

    fn fronts(&self) -> &Fronts;

    /// Stops what the fronts serve, once they are closed: there is no way back then. With `force` it waits for no
    /// device for long. Gives lines for the user: what was not answered.
    fn stop_served(&self, force: bool) -> Vec<String>;

    /// Stops what it serves because its start has failed, and gives its name free. What a crash left waits for the next
    /// start.
    fn end_early(&self, lock: &NameLock) -> Result<(), Failure> {
        self.fronts().leave_devices();
        let stopped = self.stop(true, Next::Stopped);
        self.ending().leave_name(lock);
        stopped.map(drop)
    }

    /// Closes the fronts and stops what they serve. Without `force` not while a client is connected. Gives
    /// lines for the user.
    fn stop(&self, force: bool, next: Next) -> Result<Vec<String>, Failure> {
        if *self.ending().phase() != Phase::Serving {
            return Ok(Vec::new());
        }
        let mut notes = self.fronts().close_all(self.name(), force, next)?;
        // The phase is not locked meanwhile: a second order, by force, hurries the first.
        notes.extend(self.stop_served(force));
        let mut phase = self.ending().phase();
        if *phase != Phase::Serving {
            return Ok(notes);
        }
        *phase = Phase::Stopped;
        notes.iter().for_each(|note| tracing::warn!("{note}"));
        tracing::info!("{} is stopped", self.name());
        Ok(notes)
    }

    /// Whether nothing is served any more.
    fn is_stopped(&self) -> bool {
        *self.ending().phase() != Phase::Serving
    }

    /// Lets the process end, once what a stop had to say is said.
    fn let_end(&self) {
        self.recorder().close();
        *self.ending().phase() = Phase::Ending;
        self.ending().comes.notify_all();
    }

    /// Stops as ordered, tells who ordered it, and lets the process end.
    fn stop_and_tell(&self, force: bool, replies: &mut Replies<'_>) -> io::Result<()> {
        self.stop_and_tell_as(force, Next::Stopped, replies, |notes| Reply::Done { notes })
    }

    /// As [`stop_and_tell`](Self::stop_and_tell), in other words.
    fn stop_and_tell_as(
        &self,
        force: bool,
        next: Next,
        replies: &mut Replies<'_>,
        words: impl FnOnce(Vec<String>) -> Reply,
    ) -> io::Result<()> {
        self.ending().unanswered.fetch_add(1, Ordering::AcqRel);
        let stopped = self.stop(force, next);
        let is_stopped = stopped.is_ok();
        let sent = replies.send(&answers::reply(stopped.map(words)));
        if is_stopped {
            self.let_end();
        }
        self.ending().answered();
        sent
    }
}

/// Takes every signal that would end the process without a stop.
pub(super) fn signals() -> io::Result<Signals> {
    Signals::new(STOPS.into_iter().chain(MEANINGLESS).chain(REAL_TIME))
}

/// Stops and ends at a signal that asks for it.
pub(super) fn stop_on(process: Arc<impl Served>, mut signals: Signals) -> io::Result<()> {
    thread::Builder::new().name("signals".into()).spawn(move || {
        for signal in signals.forever() {
            if is_meaningless(signal) {
                tracing::info!("signal {signal} means nothing here");
                continue;
            }
            tracing::info!("signal {signal}: stopping {}", process.name());
            drop(systemd::stopping());
            match process.stop(true, Next::Stopped) {
                Ok(_) => return process.let_end(),
                Err(failure) => tracing::error!("{failure}"),
            }
        }
    })?;
    Ok(())
}

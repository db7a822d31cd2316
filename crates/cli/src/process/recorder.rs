//! Watches the array, and keeps what happened for `events`.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::ServingProcess;
use mdspace_engine::status::ArrayStatus;

use crate::args::ArrayName;
use crate::control::Reply;
use crate::control::server::{CONNECTIONS_MAX, Replies};
use crate::events::{self, Event, EventLog, Happened};
use crate::failure::Failure;
use crate::run_dir::RunDir;

use super::journal::{self, Journal};

/// News that come in quick succession are looked at together.
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(250);

/// Between two looks at what brings no news by itself.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Half of the control connections: those who follow for long leave the others to the verbs.
const FOLLOWERS_MAX: usize = CONNECTIONS_MAX / 2;

/// How long one who wants to follow waits for a place: those who have gone are noticed within a second.
const PLACE_WITHIN: Duration = Duration::from_secs(3);

/// What happened so far.
#[derive(Default)]
pub(super) struct Recorder {
    inside: Mutex<Inside>,
    news: Condvar,
    followers: Mutex<usize>,
    follower_left: Condvar,
}

/// One who follows, until it is dropped.
struct Follower<'a>(&'a Recorder);

impl Drop for Follower<'_> {
    fn drop(&mut self) {
        *self.0.followers() -= 1;
        self.0.follower_left.notify_one();
    }
}

#[derive(Default)]
struct Inside {
    log: EventLog,
    /// Where they are kept for the time after this process; none where that cannot be written.
    journal: Option<Journal>,
    /// The array when it was last looked at.
    last: Option<ArrayStatus>,
    /// Statuses that were asked for, and the number of that one.
    asked: u64,
    looked_at: u64,
    closed: bool,
    /// The array is to say when something happens, and has not yet.
    watching: bool,
    /// Something may have happened since the last look.
    poked: bool,
}

impl Recorder {
    /// Goes on with the events of the process before; a `new` array has none. The note is for the user.
    pub(super) fn open(name: &ArrayName, run_dir: &RunDir, new: bool) -> (Self, Option<String>) {
        let before = if new { Vec::new() } else { journal::read(name, run_dir) };
        let (journal, note) = match Journal::open(name, run_dir, new) {
            Ok(journal) => (Some(journal), None),
            Err(error) => (None, Some(format!("{name}: events are not kept: {error}"))),
        };
        let inside = Inside { log: EventLog::after_those(before), journal, ..Inside::default() };
        (Self { inside: Mutex::new(inside), ..Self::default() }, note)
    }

    /// Events after `sequence`; waits a second for one if there is none. `None` once the array is stopped.
    fn wait_after(&self, sequence: u64) -> Option<Vec<Event>> {
        let nothing = |inside: &mut Inside| !inside.closed && inside.log.after(sequence).is_empty();
        let waited = self.news.wait_timeout_while(self.inside(), LOOK_EVERY, nothing);
        let inside = waited.unwrap_or_else(PoisonError::into_inner).0;
        let events = inside.log.after(sequence);
        (!inside.closed || !events.is_empty()).then_some(events)
    }

    /// Events after `sequence` that are kept now.
    pub(super) fn after(&self, sequence: u64) -> Vec<Event> {
        self.inside().log.after(sequence)
    }

    /// Ends every wait: the array is stopped.
    pub(super) fn close(&self) {
        let mut inside = self.inside();
        inside.closed = true;
        let journal = inside.journal.take();
        drop(inside);
        self.news.notify_all();
        // Waits a moment for its last lines.
        drop(journal);
    }

    /// Asks for the array as it is, and looks at it. Called at news, and at once after every order of a user.
    pub(super) fn ask_and_look(
        &self,
        ask: impl FnOnce() -> Result<ArrayStatus, Failure>,
    ) -> Result<ArrayStatus, Failure> {
        let number = self.begin_to_ask();
        ask().inspect(|status| self.look(number, status.clone()))
    }

    fn begin_to_ask(&self) -> u64 {
        let mut inside = self.inside();
        inside.asked += 1;
        inside.asked
    }

    /// Compares the array with the last look, and keeps what happened between. Which of two that were asked for at the
    /// same time is older nobody knows: the one that was asked for first does not count any more, and a new one is.
    fn look(&self, number: u64, now: ArrayStatus) {
        let mut inside = self.inside();
        if number < inside.looked_at {
            drop(inside);
            return self.poke();
        }
        inside.looked_at = number;
        let happened = match &inside.last {
            Some(last) => events::between(last, &now),
            None => events::at_start(&now),
        };
        inside.last = Some(now);
        drop(inside);
        self.record(happened);
    }

    /// Keeps what happened.
    pub(super) fn record(&self, happened: Vec<Happened>) {
        if happened.is_empty() {
            return;
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut inside = self.inside();
        let Inside { log, journal, .. } = &mut *inside;
        let first = log.last_sequence();
        log.record(time, happened);
        let new = log.after(first);
        if let Some(journal) = journal {
            new.iter().for_each(|event| journal.write(event));
        }
        drop(inside);
        new.iter().for_each(to_log);
        self.news.notify_all();
    }

    /// Sends the events kept; with `follow` those to come, until the array is stopped.
    pub(super) fn tell(&self, follow: bool, replies: &mut Replies<'_>) -> io::Result<()> {
        let place = follow.then(|| self.begin_to_follow());
        if let Some(None) = place {
            let why = format!("{FOLLOWERS_MAX} others do");
            let failure = Failure::new("the events cannot be followed", why, "end some of those");
            return replies.send(&Reply::Failed { failure });
        }
        let mut last = 0;
        let mut next = Some(self.after(0));
        while let Some(events) = next {
            // A client that has gone without a word must not keep its connection until something happens.
            if events.is_empty() && !replies.are_awaited() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            for event in events {
                last = event.sequence;
                replies.send(&Reply::Event { event })?;
            }
            next = if follow { self.wait_after(last) } else { None };
        }
        replies.send(&Reply::done())
    }

    /// None: too many follow already.
    fn begin_to_follow(&self) -> Option<Follower<'_>> {
        let full = |followers: &mut usize| *followers >= FOLLOWERS_MAX;
        let waited = self.follower_left.wait_timeout_while(self.followers(), PLACE_WITHIN, full);
        let (mut followers, waited) = waited.unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            return None;
        }
        *followers += 1;
        Some(Follower(self))
    }

    fn followers(&self) -> MutexGuard<'_, usize> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for a look soon.
    pub(super) fn poke(&self) {
        self.inside().poked = true;
        self.news.notify_all();
    }

    /// Whether the array is to be asked for news: it has answered before.
    fn begin_to_watch(&self) -> bool {
        !std::mem::replace(&mut self.inside().watching, true)
    }

    fn told(&self) {
        self.inside().watching = false;
        self.poke();
    }

    /// Waits for news, no longer than `longest`; false once the array is stopped.
    fn wait_for_news(&self, longest: Option<Duration>) -> bool {
        let quiet = |inside: &mut Inside| !inside.closed && !inside.poked;
        let mut inside = match longest {
            Some(time) => {
                let waited = self.news.wait_timeout_while(self.inside(), time, quiet);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.news.wait_while(self.inside(), quiet);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        inside.poked = false;
        !inside.closed
    }

    /// Waits before the next look; false once the array is stopped.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let open = |inside: &mut Inside| !inside.closed;
        let waited = self.news.wait_timeout_while(self.inside(), time, open);
        !waited.unwrap_or_else(PoisonError::into_inner).0.closed
    }
}

/// Tells the log: who reads that alone hears of a lost disk too.
fn to_log(event: &Event) {
    let words = [Some(&event.event), event.member.as_ref(), event.note.as_ref()];
    let words: Vec<&str> = words.into_iter().flatten().map(String::as_str).collect();
    let words = words.join(" ");
    match event.is_bad() {
        true => tracing::warn!("{words}"),
        false => tracing::info!("{words}"),
    }
}

/// Watches on a thread of its own until the array is stopped.
pub(super) fn spawn(process: &Arc<ServingProcess>) -> io::Result<()> {
    let process = Arc::clone(process);
    thread::Builder::new().name("events".into()).spawn(move || watch(&process))?;
    Ok(())
}

fn watch(process: &Arc<ServingProcess>) {
    let mut told = BTreeMap::new();
    loop {
        if process.recorder.begin_to_watch() {
            let process_told = process.clone();
            process.array.watch(move || process_told.recorder.told());
        }
        // Only now: what happens after this is told.
        let asked = Instant::now();
        let status = process.recorder.ask_and_look(|| process.array.status());
        let status = match next(status) {
            Next::Look(status) => status,
            Next::AskAgain if process.recorder.pause(LOOK_EVERY) => continue,
            Next::AskAgain | Next::End => return,
        };
        for (member, paths) in process.array.members().paths() {
            let last: &mut u64 = told.entry(member).or_default();
            let events = paths.events_after(*last);
            *last = events.last().map_or(*last, |event| event.sequence);
            process.recorder.record(events.into_iter().map(Happened::from).collect());
        }
        process.array.fail_cut_members();
        process.look_for_spare(&status);
        process.look_after_scrub(&status, asked);
        let next = next_look(process, &status);
        let recorder = &process.recorder;
        if !recorder.pause(LOOK_AT_MOST_EVERY) || !recorder.wait_for_news(next) {
            return;
        }
    }
}

/// What a watch does next.
#[derive(Debug, PartialEq)]
enum Next {
    Look(Box<ArrayStatus>),
    AskAgain,
    End,
}

/// An array that is silent for long, since a member hangs, is watched on: a stop alone ends that.
fn next(status: Result<ArrayStatus, Failure>) -> Next {
    match status {
        Ok(status) => Next::Look(Box::new(status)),
        Err(failure) if failure.is_of_silence() => Next::AskAgain,
        Err(_) => Next::End,
    }
}

/// How long the array may go without a look if it has no news; none: for ever.
fn next_look(process: &ServingProcess, status: &ArrayStatus) -> Option<Duration> {
    // How long reads take is known to the lanes alone.
    let mirrors = status.members.iter().any(|member| member.load.is_some());
    let watched = mirrors || process.array.members().are_to_be_watched();
    let times = [
        watched.then_some(LOOK_EVERY),
        process.next_look_for_spare(status),
        process.next_look_at_scrub(status),
    ];
    times.into_iter().flatten().min()
}

#[cfg(test)]
mod tests;

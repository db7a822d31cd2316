//! Watches the array, and keeps what happened for `events`.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::ServingProcess;
use mdspace_engine::status::ArrayStatus;

use crate::control::Reply;
use crate::control::server::Replies;
use crate::events::{self, Event, EventLog, Happened};

/// Time between two looks while a sync task runs, and while none does.
const LOOK_EVERY_BUSY: Duration = Duration::from_millis(250);
const LOOK_EVERY_IDLE: Duration = Duration::from_secs(1);

/// What happened so far.
#[derive(Default)]
pub(super) struct Recorder {
    inside: Mutex<Inside>,
    news: Condvar,
}

#[derive(Default)]
struct Inside {
    log: EventLog,
    /// The array when it was last looked at.
    last: Option<ArrayStatus>,
    closed: bool,
}

impl Recorder {
    /// Events after `sequence`; waits for one if there is none. `None` once the array is stopped.
    pub(super) fn wait_after(&self, sequence: u64) -> Option<Vec<Event>> {
        let nothing = |inside: &mut Inside| !inside.closed && inside.log.after(sequence).is_empty();
        let waited = self.news.wait_while(self.inside(), nothing);
        let inside = waited.unwrap_or_else(PoisonError::into_inner);
        Some(inside.log.after(sequence)).filter(|events| !events.is_empty())
    }

    /// Events after `sequence` that are kept now.
    pub(super) fn after(&self, sequence: u64) -> Vec<Event> {
        self.inside().log.after(sequence)
    }

    /// Ends every wait: the array is stopped.
    pub(super) fn close(&self) {
        self.inside().closed = true;
        self.news.notify_all();
    }

    /// Compares the array with the last look, and keeps what happened between. Called now and then,
    /// and at once after every order of a user.
    pub(super) fn look(&self, now: ArrayStatus) {
        let mut inside = self.inside();
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
        self.inside().log.record(time, happened);
        self.news.notify_all();
    }

    /// Sends the events kept; with `follow` those to come, until the array is stopped.
    pub(super) fn tell(&self, follow: bool, replies: &mut Replies<'_>) -> io::Result<()> {
        let mut last = 0;
        let mut next = Some(self.after(0));
        while let Some(events) = next {
            for event in events {
                last = event.sequence;
                replies.send(&Reply::Event { event })?;
            }
            next = if follow { self.wait_after(last) } else { None };
        }
        replies.send(&Reply::done())
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits before the next look; false once the array is stopped.
    pub(super) fn pause(&self, time: Duration) -> bool {
        let open = |inside: &mut Inside| !inside.closed;
        let waited = self.news.wait_timeout_while(self.inside(), time, open);
        !waited.unwrap_or_else(PoisonError::into_inner).0.closed
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
    while let Ok(status) = process.array.status() {
        for (member, paths) in process.array.members().paths() {
            let last: &mut u64 = told.entry(member).or_default();
            let events = paths.events_after(*last);
            *last = events.last().map_or(*last, |event| event.sequence);
            process.recorder.record(events.into_iter().map(Happened::from).collect());
        }
        process.array.fail_cut_members();
        process.array.keep_unproved();
        process.look_for_spare(&status);
        process.look_after_scrub(&status);
        let time = if status.sync.action.runs() { LOOK_EVERY_BUSY } else { LOOK_EVERY_IDLE };
        process.recorder.look(status);
        if !process.recorder.pause(time) {
            return;
        }
    }
}

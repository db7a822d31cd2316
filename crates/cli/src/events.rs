//! What happened to an array, in the words of `mdadm --monitor`.

use std::collections::VecDeque;
use std::fmt;

use mdspace_engine::paths::PathEvent;
use mdspace_engine::status::{
    ArrayState, ArrayStatus, MemberState, MemberStatus, SyncAction, SyncEnd,
};
use serde::{Deserialize, Serialize};

use crate::report::{ArrayReport, MismatchReport, SkippedReport};

/// Events kept for those who ask later.
const EVENTS_KEPT: usize = 1000;

/// Percent between two `RebuildNN` events, as mdadm's `--increment`.
const REBUILD_STEP_PERCENT: u64 = 20;

/// One thing that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Event {
    /// Number of the event, from 1; it goes on when another process serves the array.
    pub(crate) sequence: u64,
    /// Seconds since 1970.
    pub(crate) time: u64,
    /// mdadm's word: `Fail`, `RebuildStarted`, ...
    pub(crate) event: String,
    /// The member that it is about.
    pub(crate) member: Option<String>,
    /// More, for people.
    pub(crate) note: Option<String>,
}

impl Event {
    /// Whether redundancy or data may be less than they were.
    pub(crate) fn is_bad(&self) -> bool {
        let bad = [
            "Fail",
            "FailSpare",
            "DegradedArray",
            "BrokenArray",
            "InDoubt",
            "NoSpace",
            "Hanging",
            "Limping",
            "Mismatch",
            "PathFailed",
            "PathRefused",
            "PathInUse",
            "PathNotFlushed",
            "AllPathsLost",
            "LateWritesRecalled",
            "FenceFailed",
            "QueueingDisabled",
        ];
        bad.contains(&self.event.as_str())
    }
}

/// The last events of one array.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    events: VecDeque<Event>,
    last_sequence: u64,
}

impl EventLog {
    /// A log that goes on after `events`.
    pub(crate) fn after_those(mut events: Vec<Event>) -> Self {
        events.drain(..events.len().saturating_sub(EVENTS_KEPT));
        let last_sequence = events.iter().map(|event| event.sequence).max().unwrap_or(0);
        Self { events: events.into(), last_sequence }
    }

    /// The number of the last event.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Appends what happened at `time`, and forgets the oldest beyond the limit.
    pub(crate) fn record(&mut self, time: u64, happened: Vec<Happened>) {
        for Happened { event, member, note } in happened {
            self.last_sequence += 1;
            self.events.push_back(Event {
                sequence: self.last_sequence,
                time,
                event,
                member,
                note,
            });
        }
        let excess = self.events.len().saturating_sub(EVENTS_KEPT);
        self.events.drain(..excess);
    }

    /// Events after `sequence` that are still kept.
    pub(crate) fn after(&self, sequence: u64) -> Vec<Event> {
        self.events.iter().filter(|event| event.sequence > sequence).cloned().collect()
    }
}

/// An event without its number and time.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Happened {
    event: String,
    member: Option<String>,
    note: Option<String>,
}

impl From<PathEvent> for Happened {
    fn from(PathEvent { event, member, note, .. }: PathEvent) -> Self {
        Self { event: event.into(), member, note: Some(note).filter(|note| !note.is_empty()) }
    }
}

impl Happened {
    fn to_array(event: impl Into<String>) -> Self {
        Self { event: event.into(), member: None, note: None }
    }

    /// A sync task began.
    fn started(action: SyncAction) -> Self {
        let note = Some(action.word().to_owned());
        Self { event: "RebuildStarted".into(), member: None, note }
    }

    /// A sync task ended: what it found, and what it left.
    fn finished(action: SyncAction, after: &ArrayStatus) -> Self {
        let mut notes = Vec::new();
        if matches!(action, SyncAction::Check | SyncAction::Repair) {
            notes.push(format!("mismatches found: {}", after.mismatch_sectors));
            notes.extend(mismatch_words(after));
        }
        if let Some(end) = after.sync.last_end.filter(|end| *end != SyncEnd::Complete) {
            notes.push(end.word().to_owned());
        }
        notes.extend(
            SkippedReport::from(&after.sync.skipped).words().map(|w| format!("not done: {w}")),
        );
        let note = Some(notes.join("; ")).filter(|note| !note.is_empty());
        Self { event: "RebuildFinished".into(), member: None, note }
    }

    /// A spare came from another array.
    pub(crate) fn moved(member: &str, giver: &impl fmt::Display) -> Self {
        Self { note: Some(format!("from {giver}")), ..Self::to_member("MoveSpare", member) }
    }

    fn to_member(event: &str, member: &str) -> Self {
        Self { event: event.into(), member: Some(member.into()), note: None }
    }
}

/// Who lies in how many places, as far as anyone can tell.
fn mismatch_words(status: &ArrayStatus) -> Vec<String> {
    let found = &status.mismatches;
    let mut words = Vec::new();
    for member in &status.members {
        let places = found.first.iter().filter(|place| place.liar.is_some());
        let lies = places.filter(|place| place.liar == member.slot).count();
        if lies > 0 {
            words.push(format!("{} differs from all others in {lies} places", member.name));
        }
    }
    if found.undecidable > 0 {
        words.push(format!("undecidable in {} places", found.undecidable));
    }
    words
}

/// The places that a check or repair has found since; mdadm has no word for them.
fn mismatches_found(before: &ArrayStatus, after: &ArrayStatus) -> Vec<Happened> {
    let scrubs = |action| matches!(action, SyncAction::Check | SyncAction::Repair);
    let (was, is) = (before.sync.action, after.sync.action);
    if !scrubs(was) && !scrubs(is) {
        return Vec::new();
    }
    // One that began since has found all of its places since.
    let known = if scrubs(was) { before.mismatches.first.len() } else { 0 };
    let report = ArrayReport::from(after);
    let happened = |place: &MismatchReport| Happened {
        event: "Mismatch".into(),
        member: place.liar.clone(),
        note: Some(place.words(&report)),
    };
    report.mismatches.first.iter().skip(known).map(happened).collect()
}

/// What there is to say of an array that is seen for the first time.
pub(crate) fn at_start(status: &ArrayStatus) -> Vec<Happened> {
    let mut happened = vec![Happened::to_array("NewArray")];
    if status.degraded() > 0 {
        happened.push(Happened::to_array("DegradedArray"));
    }
    if status.sync.action.runs() && !status.sync.delayed {
        happened.push(Happened::started(status.sync.action));
    }
    happened
}

/// What happened between two moments.
pub(crate) fn between(before: &ArrayStatus, after: &ArrayStatus) -> Vec<Happened> {
    let mut happened = member_events(before, after);
    if before.degraded() == 0 && after.degraded() > 0 {
        happened.push(Happened::to_array("DegradedArray"));
    }
    if before.state != ArrayState::Broken && after.state == ArrayState::Broken {
        happened.push(broken(after));
    }
    happened.extend(doubt_events(before, after));
    happened.extend(sync_events(before, after));
    happened
}

/// More members are lost than the level bears; mdadm has no word for that.
fn broken(status: &ArrayStatus) -> Happened {
    Happened { note: Some(status.left().to_string()), ..Happened::to_array("BrokenArray") }
}

/// Missing blocks turned into errors, for their parity is in doubt, or are computed again; mdadm has no
/// words for them.
fn doubt_events(before: &ArrayStatus, after: &ArrayStatus) -> Option<Happened> {
    let hurts = |status: &ArrayStatus| status.degraded() > 0 && status.doubted.sectors > 0;
    let event = match (hurts(before), hurts(after)) {
        (false, true) => "InDoubt",
        (true, false) => "InDoubtEnded",
        _ => return None,
    };
    let note = (event == "InDoubt").then(|| {
        let mib = after.doubted.sectors as f64 / 2048.0;
        format!("{mib:.1} MiB of each member: `mdspace accept-doubt` has them computed from parity")
    });
    Some(Happened { note, ..Happened::to_array(event) })
}

fn member_events(before: &ArrayStatus, after: &ArrayStatus) -> Vec<Happened> {
    let was = |uuid| before.members.iter().find(|m| m.device_uuid == uuid);
    let mut happened = Vec::new();
    for member in &after.members {
        let was = was(member.device_uuid);
        match (was.is_some_and(|was| was.late), member.late) {
            (false, true) => happened.push(Happened::to_member("Hanging", &member.name)),
            // One that is no member any more has not recovered.
            (true, false) if member.state == MemberState::InSync => {
                happened.push(Happened::to_member("HangingEnded", &member.name));
            }
            _ => {}
        }
        if member.lacks_space && !was.is_some_and(|was| was.lacks_space) {
            let note = "writes find no space behind it: make room there".to_owned();
            let event = Happened::to_member("NoSpace", &member.name);
            happened.push(Happened { note: Some(note), ..event });
        }
        let event = match (was.map(|was| was.state), member.state) {
            (Some(MemberState::InSync), MemberState::Faulty) => "Fail",
            (Some(MemberState::Spare | MemberState::Recovering), MemberState::Faulty) => {
                "FailSpare"
            }
            // One that came back between two looks was not there before.
            (
                None | Some(MemberState::Spare | MemberState::Recovering | MemberState::Faulty),
                MemberState::InSync,
            ) => "SpareActive",
            _ => continue,
        };
        happened.push(Happened::to_member(event, &member.name));
    }
    happened.extend(limping_events(before, after));
    happened
}

/// Members that got slow, or are no longer; mdadm has no words for them.
fn limping_events(before: &ArrayStatus, after: &ArrayStatus) -> Vec<Happened> {
    let limps = |member: &MemberStatus| member.load.is_some_and(|load| load.limps);
    let limped = |uuid| before.members.iter().any(|m| m.device_uuid == uuid && limps(m));
    let mut happened = Vec::new();
    for member in &after.members {
        let (event, tells) = match (limped(member.device_uuid), limps(member)) {
            (false, true) => ("Limping", "it is read less until it is quick again"),
            // One that is no member any more has not recovered.
            (true, false) if member.state == MemberState::InSync => {
                ("LimpingEnded", "it is read as before")
            }
            _ => continue,
        };
        let service = member.load.map(|load| load.service).unwrap_or_default();
        let note = format!("a read takes {} us: {tells}", service.as_micros());
        happened.push(Happened { note: Some(note), ..Happened::to_member(event, &member.name) });
    }
    happened
}

fn sync_events(before: &ArrayStatus, after: &ArrayStatus) -> Vec<Happened> {
    // What is delayed has not started.
    let action = |status: &ArrayStatus| match status.sync.delayed {
        true => SyncAction::Idle,
        false => status.sync.action,
    };
    let (was, is) = (action(before), action(after));
    let mut happened = Vec::new();
    happened.extend(mismatches_found(before, after));
    if was.runs() && was != is {
        happened.push(Happened::finished(was, after));
    }
    if is.runs() && was != is {
        happened.push(Happened::started(is));
    }
    let step = |status: &ArrayStatus| {
        let percent = status.sync.completed_sectors * 100 / status.sync.total_sectors.max(1);
        percent / REBUILD_STEP_PERCENT
    };
    if was == is && is.runs() && step(after) > step(before) && step(after) < 5 {
        happened.push(Happened::to_array(format!("Rebuild{}", step(after) * REBUILD_STEP_PERCENT)));
    }
    happened
}

#[cfg(test)]
mod tests;

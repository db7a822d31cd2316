//! The values that one sector may have.

use crate::stamp::{Found, Version};

use super::Certainty;

/// A point in the order of everything that is asked and answered.
pub(super) type Moment = u64;

/// The writes that a sector's content may be from.
#[derive(Clone, Debug)]
pub(super) struct History {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    value: Value,
    begun: Moment,
    /// `None` while the write is under way.
    ended: Option<Moment>,
    certainty: Certainty,
    /// A read saw another value when nothing was under way, and this one never returns unless a
    /// power cut brings it back.
    hidden: Option<Moment>,
    /// The first read that saw it when nothing was under way has ended then.
    read: Option<Moment>,
    /// It was possible at the last power cut, so it is on a platter or it is not.
    on_platter: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Known(Found),
    Anything,
}

impl History {
    pub(super) fn zeroes() -> Self {
        Self::of(Value::Known(Found::Version(Version::default())))
    }

    pub(super) fn anything() -> Self {
        Self::of(Value::Anything)
    }

    fn of(value: Value) -> Self {
        let entry = Entry {
            value,
            begun: 0,
            ended: Some(0),
            certainty: Certainty::Durable,
            hidden: None,
            read: None,
            on_platter: true,
        };
        Self { entries: vec![entry] }
    }

    pub(super) fn begin(&mut self, version: Version, now: Moment) {
        self.entries.push(Entry {
            value: Value::Known(Found::Version(version)),
            begun: now,
            ended: None,
            certainty: Certainty::Unknown,
            hidden: None,
            read: None,
            on_platter: false,
        });
    }

    pub(super) fn end(&mut self, begun: Moment, now: Moment, certainty: Certainty) {
        let ending = self.entries.iter_mut().filter(|e| e.begun == begun && e.ended.is_none());
        for entry in ending {
            entry.ended = Some(now);
            entry.certainty = certainty;
        }
    }

    /// Whether a read that began at `begun` may return `found`.
    pub(super) fn allows(&self, found: Found, begun: Moment) -> bool {
        let was_left = |entry: &Entry| {
            entry.value == Value::Known(found) && entry.hidden.is_some_and(|hidden| hidden < begun)
        };
        self.live(begun).any(|entry| match entry.value {
            Value::Anything => !self.entries.iter().any(was_left),
            Value::Known(known) => known == found,
        })
    }

    /// What was held there may have become anything, and stays that. Nothing is written there now. It may be what was
    /// read before another value, but not what was read last.
    pub(super) fn may_be_anything(&mut self, now: Moment) {
        for entry in self.entries.iter_mut().filter(|entry| entry.hidden.is_some()) {
            (entry.read, entry.hidden) = (None, None);
        }
        let anything = Entry {
            value: Value::Anything,
            begun: now,
            ended: Some(now),
            certainty: Certainty::Unknown,
            hidden: None,
            read: None,
            on_platter: true,
        };
        self.entries.push(anything);
    }

    /// The versions that a read which began at `begun` may return; `u64::MAX` stands for any.
    pub(super) fn legal(&self, begun: Moment) -> Vec<u64> {
        let versions = self.live(begun).map(|entry| match entry.value {
            Value::Known(Found::Version(version)) => version.0,
            Value::Known(_) | Value::Anything => u64::MAX,
        });
        versions.collect()
    }

    fn live(&self, begun: Moment) -> impl Iterator<Item = &Entry> {
        let overwritten = self.newest_begin(|e| {
            e.certainty != Certainty::Unknown && e.ended.is_some_and(|ended| ended < begun)
        });
        self.entries.iter().filter(move |entry| {
            let over = entry.ended.is_some_and(|ended| ended < overwritten);
            let hidden = entry.hidden.is_some_and(|hidden| hidden < begun);
            !over && !hidden
        })
    }

    /// Whatever ended before this has been overwritten by one of the writes that `covers` picks.
    fn newest_begin(&self, covers: impl Fn(&Entry) -> bool) -> Moment {
        let begins = self.entries.iter().filter(|entry| covers(entry)).map(|entry| entry.begun);
        begins.max().unwrap_or(0)
    }

    /// A read from `begun` to `now` returned `found`: if nothing was under way, that is it.
    pub(super) fn settle(&mut self, found: Found, begun: Moment, now: Moment) {
        let quiet = self.entries.iter().all(|e| e.ended.is_some_and(|ended| ended < begun));
        let seen = Value::Known(found);
        if !quiet || self.live(begun).any(|entry| entry.value == Value::Anything) {
            return;
        }
        // Zeroes may be from the platter or from a later discard: only where it is sure does the
        // read say what a power cut can bring back.
        let from_platter = self.live(begun).all(|e| e.value != seen || e.on_platter);
        if from_platter {
            self.entries.retain(|entry| entry.value == seen || !entry.on_platter);
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.value != seen) {
            entry.hidden.get_or_insert(now);
        }
    }

    /// As [`settle`](Self::settle), where another value may come to be read, but none that was read before this.
    pub(super) fn turn(&mut self, found: Found, begun: Moment, now: Moment) {
        let quiet = self.entries.iter().all(|e| e.ended.is_some_and(|ended| ended < begun));
        if !quiet {
            return;
        }
        let seen = Value::Known(found);
        let is_known = self.live(begun).any(|entry| entry.value == seen);
        let anything = self.live(begun).find(|entry| entry.value == Value::Anything);
        if let Some(anything) = anything.filter(|_| !is_known).cloned() {
            self.entries.push(Entry { value: seen, ..anything });
        }
        for entry in &mut self.entries {
            if entry.value == seen {
                entry.read.get_or_insert(now);
            } else if entry.read.is_some_and(|read| read < begun) {
                entry.hidden.get_or_insert(now);
            }
        }
    }

    /// What was read last may be read again after another value. What was read before that stays away.
    pub(super) fn forget_last_read(&mut self) {
        for entry in self.entries.iter_mut().filter(|entry| entry.hidden.is_none()) {
            entry.read = None;
        }
    }

    /// What was read before another value may come back.
    pub(super) fn unhide(&mut self) {
        self.entries.iter_mut().for_each(|entry| entry.hidden = None);
    }

    /// What reads have seen says nothing of those to come.
    pub(super) fn forget_turns(&mut self) {
        for entry in &mut self.entries {
            (entry.read, entry.hidden) = (None, None);
        }
    }

    /// A flush that began at `begun` is acknowledged. Drops what can never be seen again, by a read
    /// as old as `oldest_read` either.
    pub(super) fn flush(&mut self, begun: Moment, oldest_read: Moment) {
        for entry in &mut self.entries {
            let covered = entry.ended.is_some_and(|ended| ended < begun);
            if covered && entry.certainty == Certainty::Done {
                entry.certainty = Certainty::Durable;
            }
        }
        let buried = self.newest_begin(|entry| {
            entry.certainty == Certainty::Durable
                && entry.ended.is_some_and(|ended| ended < oldest_read)
        });
        self.entries.retain(|entry| entry.ended.is_none_or(|ended| ended >= buried));
    }

    /// Whether a power cut would change nothing.
    pub(super) fn is_settled(&self) -> bool {
        matches!(&self.entries[..], [only] if only.certainty == Certainty::Durable)
    }

    /// What was answered until then, and is not durable, may be lost.
    pub(super) fn lose_answers(&mut self, until: Moment) {
        let is_lost = |entry: &&mut Entry| entry.ended.is_some_and(|ended| ended <= until);
        for entry in self.entries.iter_mut().filter(is_lost) {
            if entry.certainty == Certainty::Done {
                entry.certainty = Certainty::Unknown;
            }
        }
    }

    /// Whatever no durable write has buried may be on the platter now.
    pub(super) fn cut_power(&mut self, now: Moment) {
        let buried = self.newest_begin(|entry| entry.certainty == Certainty::Durable);
        self.entries.retain(|entry| entry.ended.is_none_or(|ended| ended >= buried));
        let certainty = match self.entries.len() {
            1 => Certainty::Durable,
            _ => Certainty::Unknown,
        };
        for entry in &mut self.entries {
            *entry = Entry {
                begun: now,
                ended: Some(now),
                certainty,
                hidden: None,
                read: None,
                on_platter: true,
                ..entry.clone()
            };
        }
    }
}

//! What a sync task leaves to users while they ask anything: a share of what is in flight, and as much of
//! the members' time as keeps their slow requests from getting much slower.
//!
//! Slow is one request in a hundred. How long those take without a sync task is known from the minute
//! before, or found out by pausing for a second.

use std::time::Duration;

use crate::time::Time;

use super::super::settings::Settings;
use super::super::users::{Histogram, SLOW, Users};

#[cfg(test)]
mod tests;

/// Between two looks at users.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Users who asked nothing for so long, and wait for nothing, are gone.
const GONE: Duration = Duration::from_millis(50);

/// Who comes back within this time meets the speed that was found before.
const BACK: Duration = Duration::from_secs(5);

/// A judgement takes so long and so many timed requests, or is made after a while with fewer.
const PERIOD: Duration = Duration::from_millis(100);
const PERIOD_LONG: Duration = Duration::from_millis(500);
const REQUESTS: u64 = 100;
const REQUESTS_FEW: u64 = 8;

/// How the speed follows a judgement, and before it was too fast for the first time.
const SLOWER: f64 = 0.7;
const FASTER: f64 = 1.25;
const FIRST_FASTER: f64 = 2.0;

/// Below this part of what is allowed there is room for more.
const ROOM: f64 = 0.85;

/// How long the task pauses to find out how users fare without it, and how long it believes that. It
/// also pauses when it can go no slower and they are slow all the same: they may ask something else by
/// now, or something else keeps them.
const PAUSE: Duration = Duration::from_secs(1);
const BELIEVED: Duration = Duration::from_secs(60);

/// What one task knows of its users.
pub(super) struct Courtesy {
    looked: Option<Time>,
    requests: u64,
    /// When users were last seen.
    seen: Option<Time>,
    compete: bool,
    /// What the task may do while they are there, in KiB/s.
    allowed: Option<f64>,
    was_too_fast: bool,
    /// How long slow requests take without the task.
    usual: Option<Duration>,
    pausing: bool,
    /// When it paused last.
    paused: Option<Time>,
    period: Period,
    /// What the task did in the last period, in KiB/s.
    speed: f64,
}

/// What happened since it began.
struct Period {
    began: Time,
    times: Histogram,
    done_sectors: u64,
}

impl Courtesy {
    pub(super) fn new(now: Time) -> Self {
        Self {
            looked: None,
            requests: 0,
            seen: None,
            compete: false,
            allowed: None,
            was_too_fast: false,
            usual: None,
            pausing: false,
            paused: None,
            period: Period { began: now, times: Histogram::default(), done_sectors: 0 },
            speed: 0.0,
        }
    }

    /// Whether users want the members too, and the task has what it must have at least.
    pub(super) fn yields(&self, settings: &Settings) -> bool {
        self.compete && self.speed >= f64::from(settings.sync_speed_min())
    }

    /// Whether users are there.
    pub(super) fn competes(&self) -> bool {
        self.compete
    }

    /// What the task may do now, in KiB/s; `None` without a bound.
    pub(super) fn allowed_kib_s(&self) -> Option<f64> {
        match self.compete {
            true if self.pausing => Some(0.0),
            true => self.allowed,
            false => None,
        }
    }

    /// Looks at users, now and then. The task has done so many sectors by now.
    pub(super) fn look(&mut self, now: Time, users: &Users, settings: &Settings, done: u64) {
        if self.looked.is_some_and(|looked| now.since(looked) < LOOK_EVERY) {
            return;
        }
        let (requests, first) = (users.requests(), self.looked.is_none());
        self.looked = Some(now);
        if (requests != self.requests && !first) || users.waiting() > 0 {
            let before = self.seen.replace(now);
            if !self.compete {
                self.meet(now, users, settings, done, before);
            }
        } else if self.seen.is_none_or(|seen| now.since(seen) >= GONE) {
            (self.compete, self.pausing) = (false, false);
            self.note_speed(now, done);
        }
        self.requests = requests;
        if self.compete {
            self.judge(now, users, settings, done);
        }
    }

    /// Users come, who were last there at `before`.
    fn meet(
        &mut self,
        now: Time,
        users: &Users,
        settings: &Settings,
        done: u64,
        before: Option<Time>,
    ) {
        self.note_speed(now, done);
        self.compete = true;
        if before.is_none_or(|before| now.since(before) > BACK) {
            (self.allowed, self.was_too_fast) = (None, false);
        }
        self.begin_period(now, users, done);
        if settings.sync_latency_target().is_none() {
            self.allowed = None;
            return;
        }
        // Users first: it begins as slowly as it may.
        self.allowed = self.allowed.or(Some(settings.sync_speed_min().into()));
        self.usual = self.usual.or_else(|| users.undisturbed());
        if self.usual.is_none() {
            self.pause(now);
        }
    }

    fn pause(&mut self, now: Time) {
        (self.pausing, self.paused) = (true, Some(now));
    }

    fn begin_period(&mut self, now: Time, users: &Users, done: u64) {
        self.period = Period { began: now, times: users.times(), done_sectors: done };
    }

    fn note_speed(&mut self, now: Time, done: u64) {
        let span = now.since(self.period.began).as_secs_f64();
        if span >= LOOK_EVERY.as_secs_f64() {
            self.speed = (done - self.period.done_sectors) as f64 / 2.0 / span;
        }
        if span >= PERIOD.as_secs_f64() && !self.compete {
            (self.period.began, self.period.done_sectors) = (now, done);
        }
    }

    fn judge(&mut self, now: Time, users: &Users, settings: &Settings, done: u64) {
        let span = now.since(self.period.began);
        if span < if self.pausing { PAUSE } else { PERIOD } {
            return;
        }
        let times = users.times().less(&self.period.times);
        let ripe = times.count() >= REQUESTS || self.pausing || span >= PERIOD_LONG;
        if !ripe {
            return;
        }
        let few = times.count() < REQUESTS_FEW;
        let slow = times.quantile(SLOW);
        if std::mem::take(&mut self.pausing) {
            self.usual = (times.count() > 0).then_some(slow).or(self.usual);
        } else {
            self.note_speed(now, done);
            match settings.sync_latency_target() {
                None => self.allowed = None,
                Some(target) => self.follow(now, settings, target, (!few).then_some(slow)),
            }
        }
        self.begin_period(now, users, done);
    }

    /// Follows what slow requests took in a period.
    fn follow(&mut self, now: Time, settings: &Settings, target: f64, slow: Option<Duration>) {
        let outdated = self.paused.is_some_and(|paused| now.since(paused) >= BELIEVED);
        let Some(usual) = self.usual.filter(|_| !outdated) else { return self.pause(now) };
        let least = f64::from(settings.sync_speed_min());
        let allowed = self.allowed.unwrap_or(self.speed).max(least);
        let most = usual.mul_f64(target);
        let slow = slow.unwrap_or(Duration::ZERO);
        if slow > most {
            // What was in flight before users came makes the first period slow: that is no doubt yet.
            let again = std::mem::replace(&mut self.was_too_fast, true);
            if allowed <= least && again && self.paused.is_none() {
                return self.pause(now);
            }
            self.allowed = Some((allowed.min(self.speed.max(least)) * SLOWER).max(least));
        } else if slow < most.mul_f64(ROOM) {
            let faster = if self.was_too_fast { FASTER } else { FIRST_FASTER };
            // What it could do but did not is no measure of what it may.
            self.allowed = Some((allowed * faster).min((2.0 * self.speed).max(allowed)));
        }
    }
}

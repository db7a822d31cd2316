//! What a flush of the device may rest on, where a path has a cache of its own: that of its server, which a
//! flush over another path does not reach, and which is lost with the server.
//!
//! A path *owes* a flush while it has answered writes that no good flush of it covers, and before its first: an
//! earlier process may have left writes in its cache. Lanes count the writes
//! that each path has answered. A flush goes over every path that owes one, and covers what was answered
//! before it was sent. A connection that is lost while it owes a flush makes the device's next flush fail,
//! once, as a disk does that has lost its cache. All other requests fail too, if writes of this process may be lost, from
//! the moment at which the path is connected anew, or another one serves after none did: they would read or change what is
//! older than what was answered. Each path gets its first flush before it takes requests, when it is proved to lead to the
//! device, so that the loss of one that has taken no writes since fails nothing. Over one that is not proved nothing is
//! flushed: a server tells an error once, and then it is for those who have written there.
//!
//! A device of this host has one cache, behind all its paths. It loses that with its power: when no path served it and one
//! was unplugged, it was *away*. What it had answered and not flushed is lost then. It gets one first flush, before the first
//! path takes requests: from then on an absence loses nothing of an earlier process. A path that is found to lead to
//! another device, before the first request, had that one's: the device gets its own then.

use crate::array::rules::{Rule, keep};
use crate::backend::{IoError, IoErrorKind, IoOp, MemberId, MemberIo, Patience};
use crate::lane::{Lane, first_of};
use crate::sync::atomic::{Ordering, fence};
use crate::time::Time;

use super::kept::Kept;
use super::owner::{Health, OwnedPath, Owner, Standing};
use super::path_lane::{Meaning, meaning};
use super::{Paths, flag};

/// What the paths owe.
#[derive(Debug)]
pub(super) struct Owed {
    paths: Vec<PathOwes>,
    /// Losses of connections that owed a flush. Only grows.
    losses: u64,
    /// Those of them that no failed flush has told.
    untold: u64,
    /// Paths that get their first flush now.
    first_flushes: usize,
}

/// What one path owes.
#[derive(Debug)]
struct PathOwes {
    /// Writes that a good flush covers, or whose loss a flush tells.
    covered: u64,
    first: FirstFlushOf,
    /// It has answered its first flush with an error that no flush of the device has told.
    has_untold_error: bool,
}

/// How a path is about its first flush: an earlier process may have left writes in its cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstFlushOf {
    /// It was open at the start: if it is lost before, the device's next flush tells.
    Expected,
    /// Nothing says that there is something to lose: it was down at the start, or the device is blank.
    Wanted,
    /// It has not got it, and a flush tells that what was there may be lost.
    Told,
    /// It has got it, or has answered it with an error, which is told.
    Done,
}

impl Owed {
    /// Of paths, `open` or not at the start.
    pub(super) fn new(open: impl Iterator<Item = bool>) -> Self {
        let of = |open| PathOwes {
            covered: 0,
            first: if open { FirstFlushOf::Expected } else { FirstFlushOf::Wanted },
            has_untold_error: false,
        };
        Self { paths: open.map(of).collect(), losses: 0, untold: 0, first_flushes: 0 }
    }

    /// What a path has answered so far was made durable.
    fn cover(&mut self, path: usize, answered: u64) {
        let own = &mut self.paths[path];
        own.covered = own.covered.max(answered);
        own.first = FirstFlushOf::Done;
    }

    /// Nothing says of a path that it leads to the device, and has something to lose.
    pub(super) fn expect_nothing(&mut self, path: usize) {
        let own = &mut self.paths[path];
        if own.first == FirstFlushOf::Expected {
            own.first = FirstFlushOf::Wanted;
        }
    }

    /// What was flushed over a path may not have been the device's.
    fn ask_anew(&mut self, path: usize) {
        let own = &mut self.paths[path];
        if own.first == FirstFlushOf::Done {
            own.first = FirstFlushOf::Wanted;
        }
    }

    /// Whether a path has had its first flush, and was not found to lead elsewhere since.
    fn any_had_first(&self) -> bool {
        self.paths.iter().any(|own| own.first == FirstFlushOf::Done)
    }

    /// A flush that fails tells that what a path has answered so far may be lost.
    fn tell_of(&mut self, path: usize, answered: u64) {
        let own = &mut self.paths[path];
        own.covered = own.covered.max(answered);
        if own.first == FirstFlushOf::Expected {
            own.first = FirstFlushOf::Told;
        }
    }

    /// Notes the loss of what a path has answered so far: a flush tells it.
    fn lose(&mut self, path: usize, answered: u64) {
        self.tell_of(path, answered);
        self.note_loss();
    }

    fn note_loss(&mut self) {
        self.losses += 1;
        self.untold += 1;
    }

    /// Notes how a path's first flush ended that was sent when it had answered so many writes.
    fn end_first(&mut self, path: usize, answered: u64, ended: Ended) {
        if ended.is_to_be_told() {
            let own = &mut self.paths[path];
            own.covered = own.covered.max(answered);
            if std::mem::replace(&mut own.first, FirstFlushOf::Told) != FirstFlushOf::Told {
                own.has_untold_error = ended == Ended::Answered;
                self.note_loss();
            }
        }
        if ended.is_answer() {
            self.cover(path, answered);
        }
    }

    /// The same of the device of this host that a path leads to.
    fn end_first_of_device(&mut self, path: usize, ended: Ended) {
        let own = &mut self.paths[path];
        own.has_untold_error = ended == Ended::Answered;
        if ended.is_answer() {
            own.first = FirstFlushOf::Done;
        }
    }

    /// Whether a flush has a loss to tell.
    fn has_untold(&self) -> bool {
        self.untold > 0
    }

    /// Whether a flush has a loss to tell. It is told once.
    fn tell(&mut self) -> bool {
        self.paths.iter_mut().for_each(|own| own.has_untold_error = false);
        std::mem::take(&mut self.untold) > 0
    }
}

/// A flush of the device under way.
pub(super) struct DeviceFlush {
    pub(super) parts: Vec<PathFlush>,
    /// Losses before it began.
    losses: u64,
}

/// A flush over one path that owes it.
pub(super) struct PathFlush {
    pub(super) path: usize,
    pub(super) member: MemberId,
    pub(super) remote: bool,
    /// Writes that the path had answered when the flush was sent.
    answered: u64,
}

/// The first flush of a path, until it is dropped.
struct FirstFlush<'a> {
    paths: &'a Paths,
    part: PathFlush,
    ended: Ended,
}

/// How a first flush ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Well,
    /// With an error that the server told.
    Answered,
    Unanswered,
    /// It was not sent: it is sent when the path is back.
    NotSent,
}

impl Ended {
    fn is_answer(self) -> bool {
        matches!(self, Self::Well | Self::Answered)
    }

    /// Whether what was to be flushed may be lost.
    fn is_to_be_told(self) -> bool {
        matches!(self, Self::Answered | Self::Unanswered)
    }
}

impl Paths {
    /// What goes over which path. `None`: the flush fails, for a cache was lost.
    pub(super) fn begin_flush(&self) -> Option<DeviceFlush> {
        let mut owner = self.owner.lock();
        let mut parts = Vec::new();
        for path in 0..self.group_of.len() {
            let Some(answered) = self.owed_over(&owner, path) else { continue };
            match self.flush_over(&owner, path, answered) {
                Some(part) => {
                    parts.push(part);
                    if !keep(Rule::FlushesGoOverAllPaths) {
                        break;
                    }
                }
                None => self.lose(&mut owner, path, answered),
            }
        }
        let losses = owner.owed.losses;
        let is_told = self.tell_of_losses(&mut owner) && keep(Rule::LostCachesAreTold);
        (!is_told).then_some(DeviceFlush { parts, losses })
    }

    /// A path's flush went well.
    pub(super) fn flushed(&self, part: &PathFlush) {
        self.owner.lock().owed.cover(part.path, part.answered);
    }

    /// A path's flush did not end well, which the flush of the device tells. What the path still has in its
    /// cache it still owes; what went with its connection, or was there before this process, is told with this flush.
    pub(super) fn not_flushed(&self, part: &PathFlush) {
        let mut owner = self.owner.lock();
        match owner.paths[part.path].lost {
            true => owner.owed.tell_of(part.path, part.answered),
            false if owner.owed.paths[part.path].first != FirstFlushOf::Done => {
                owner.owed.cover(part.path, part.answered);
            }
            false => {}
        }
    }

    /// Ends a flush. Whether no cache was lost meanwhile.
    pub(super) fn end_flush(&self, flush: &DeviceFlush) -> bool {
        let mut owner = self.owner.lock();
        let kept_all = owner.owed.losses == flush.losses;
        if !kept_all {
            self.tell_of_losses(&mut owner);
        }
        kept_all || !keep(Rule::LostCachesAreTold)
    }

    /// Writes that a path has answered, if it owes a flush.
    fn owed_over(&self, owner: &Owner, path: usize) -> Option<u64> {
        let (answered, own) = (self.answered_over(path), &owner.owed.paths[path]);
        // One that joins gets its first flush by itself.
        let has_earlier = || {
            let is_known = !matches!(owner.paths[path].health, Health::Refused | Health::Joining);
            own.first == FirstFlushOf::Expected && is_known
        };
        (own.covered != answered || has_earlier()).then_some(answered)
    }

    /// A flush over a path, if its connection is there and proved to lead to the device.
    fn flush_over(&self, owner: &Owner, path: usize, answered: u64) -> Option<PathFlush> {
        let own = &owner.paths[path];
        let (member, _) =
            own.member.as_ref().filter(|_| own.standing != Standing::Unproved && !own.lost)?;
        Some(PathFlush { path, member: *member, remote: own.remote, answered })
    }

    /// Whether a path that was opened has not got its first flush.
    pub(super) fn wants_first_flush(&self, path: usize) -> bool {
        self.wants_first_flush_in(&self.owner.lock(), path)
    }

    pub(super) fn wants_first_flush_in(&self, owner: &Owner, path: usize) -> bool {
        match self.has_own_caches {
            true => owner.owed.paths[path].first != FirstFlushOf::Done,
            // What is to be told already is told by the next flush, whatever a first one says.
            false => {
                let is_told = self.has(flag::EARLIER_LOST) || owner.owed.any_had_first();
                self.loses_when_away && !owner.may_be_written && !is_told
            }
        }
    }

    /// A path may lead elsewhere, where it had its first flush. Once requests may have gone over the paths of a device of
    /// this host that gets no other one, which might be told an error in the place of a request.
    pub(super) fn flush_anew(&self, owner: &mut Owner, path: usize) {
        if self.has_own_caches || !owner.may_be_written {
            owner.owed.ask_anew(path);
        }
    }

    /// A path leads elsewhere: the error that its first flush was told was not of the device.
    pub(super) fn take_back_error(&self, owner: &mut Owner, path: usize) {
        let own = &mut owner.owed.paths[path];
        if owner.may_be_written || !std::mem::take(&mut own.has_untold_error) {
            return;
        }
        match self.has_own_caches {
            true => owner.owed.untold -= 1,
            false => drop(self.flags.fetch_and(!flag::EARLIER_LOST, Ordering::AcqRel)),
        }
    }

    /// Flushes what an earlier process may have left in the cache of a path that was opened, over the connection on
    /// which it was `proved`. What it cannot make durable the device's next flush tells. False: the path does not do what
    /// it is asked, and is asked again when it is back.
    pub(super) async fn flush_first(&self, lane: &Lane, path: usize, proved: MemberId) -> bool {
        // Paths to a device of this host share its cache. It tells an error to one flush, so no other one overlaps that.
        let is_free = || self.has_own_caches || self.owner.lock().owed.first_flushes == 0;
        self.changed.until(|| is_free().then_some(())).await;
        if !self.wants_first_flush(path) {
            return true;
        }
        let Some(mut first) = self.begin_first_flush(path, proved) else { return false };
        let patience = match self.has_own_caches {
            true => Patience::of(self.policy.write_deadline),
            false => Patience::FOREVER,
        };
        let flush = lane.io(MemberIo { member: proved, op: IoOp::Flush, patience });
        let answer = async { flush.await.result };
        let flushed = match self.has_own_caches {
            true => answer.await,
            false => first_of(answer, self.another_waits(lane, path)).await,
        };
        let is_of_path =
            |error: &IoError| matches!(meaning(*error, &Kept::FLUSH), Meaning::OfThePath);
        let failed = flushed.err().filter(is_of_path);
        first.ended = match (flushed, failed) {
            (Ok(()), _) => Ended::Well,
            (Err(_), None) => Ended::Answered,
            (Err(error), Some(_)) if error.was_not_sent() && !self.has_own_caches => Ended::NotSent,
            (Err(_), Some(_)) => Ended::Unanswered,
        };
        drop(first);
        failed.inspect(|error| self.fail_with(path, proved, *error, lane.backend().now()));
        failed.is_none()
    }

    /// Ends when the first flush of a device of this host has had its time over one path, and there is another one: how
    /// long a drive may take to flush its cache the array knows, and without another path it decides.
    async fn another_waits(&self, lane: &Lane, path: usize) -> Result<(), IoError> {
        let other_waits = || {
            let owner = self.owner.lock();
            let mut paths = owner.paths.iter().enumerate();
            paths.any(|(other, own)| other != path && own.could_take_over())
        };
        lane.live_until(lane.lived() + self.policy.write_deadline).await;
        self.changed.until(|| other_waits().then_some(())).await;
        Err(IoError { kind: IoErrorKind::Deadline, errno: 0 })
    }

    fn begin_first_flush(&self, path: usize, proved: MemberId) -> Option<FirstFlush<'_>> {
        let mut owner = self.owner.lock();
        let answered = self.answered_over(path);
        let part = self.flush_over(&owner, path, answered).filter(|part| part.member == proved)?;
        owner.owed.first_flushes += 1;
        Some(FirstFlush { paths: self, part, ended: Ended::Unanswered })
    }

    /// Whether a path gets its first flush, or is to get it as soon as it is proved.
    pub(super) fn any_first_flush(&self) -> bool {
        let owner = self.owner.lock();
        let joins = |(path, owes): (&OwnedPath, &PathOwes)| {
            path.health == Health::Joining && owes.first != FirstFlushOf::Done
        };
        let mut both = owner.paths.iter().zip(&owner.owed.paths);
        self.has_own_caches && (owner.owed.first_flushes > 0 || both.any(joins))
    }

    /// Waits until no path gets its first flush: that may be told an error which a later one is not. False: it takes
    /// longer than `until`, as the lane has lived.
    pub(super) async fn first_flushes_end(&self, lane: &Lane, until: Option<Time>) -> bool {
        let have_ended = || self.is_closed() || !self.any_first_flush();
        let end = self.changed.until(|| have_ended().then_some(()));
        match until {
            Some(until) => first_of(end, lane.live_until(until)).await,
            None => end.await,
        }
        have_ended()
    }

    /// What the device has answered and was not told to flush may be lost. Its paths have no caches of their own.
    pub(super) fn lose_what_is_not_flushed(&self) {
        fence(Ordering::SeqCst);
        let answered = self.answered();
        if self.flushed.swap(answered, Ordering::AcqRel) != answered {
            self.note_loss();
        }
    }

    /// Notes how the first flush of a device of this host ended, over a path that is proved still or not.
    fn end_first_of_device(&self, owner: &mut Owner, path: usize, ended: Ended) {
        if ended == Ended::Well && !owner.paths[path].is_peer() {
            // Another path may be the first one to join, and lead to a newer copy.
            return;
        }
        owner.owed.end_first_of_device(path, ended);
        if ended.is_to_be_told() && keep(Rule::LostCachesAreTold) {
            self.flags.fetch_or(flag::EARLIER_LOST, Ordering::AcqRel);
        }
    }

    /// The device has made durable what it had answered, where its paths have no caches of their own.
    pub(super) fn note_flushed(&self, answered: u64) {
        self.flushed.fetch_max(answered, Ordering::AcqRel);
    }

    /// Writes that the device has answered.
    pub(super) fn answered(&self) -> u64 {
        (0..self.group_of.len()).map(|path| self.answered_over(path)).sum()
    }

    /// Writes of this process may be lost: requests fail until a flush has told that. What they read or change would be
    /// older than what was answered.
    fn note_loss(&self) {
        if keep(Rule::LostCachesAreTold) {
            self.flags.fetch_or(flag::LOSS_UNTOLD, Ordering::AcqRel);
        }
    }

    /// Whether writes of this process may be lost, and no flush has told that.
    #[inline]
    pub(super) fn has_untold_loss(&self) -> bool {
        self.has(flag::LOSS_UNTOLD)
    }

    /// What is lost as far as no flush has told it, in words.
    pub(super) fn loss(&self, owner: &Owner) -> Option<&'static str> {
        let is_told_next = self.has(flag::EARLIER_LOST)
            || self.has_own_caches && owner.owed.has_untold() && keep(Rule::LostCachesAreTold);
        match self.has_untold_loss() {
            true => Some(
                "writes that were answered may be lost: requests fail until a flush has failed, once",
            ),
            false if is_told_next => {
                Some("writes of before may be lost: the next flush fails, once")
            }
            false => None,
        }
    }

    /// A flush tells what was lost. Whether anything was.
    pub(super) fn tell_loss(&self) -> bool {
        const LOST: u32 = flag::LOSS_UNTOLD | flag::EARLIER_LOST;
        self.has(LOST) && self.flags.fetch_and(!LOST, Ordering::AcqRel) & LOST != 0
    }

    /// A path gets another connection, or another path served none meanwhile: what it owes over the old one is lost.
    pub(super) fn lose_connection(&self, owner: &mut Owner, path: usize) {
        if self.has_own_caches
            && let Some(answered) = self.owed_over(owner, path)
        {
            self.lose(owner, path, answered);
        }
    }

    /// What a path owes is lost.
    fn lose(&self, owner: &mut Owner, path: usize, answered: u64) {
        // What an earlier process has left there was read when the array was assembled: it fails no request.
        if owner.owed.paths[path].covered != answered {
            self.note_loss();
        }
        owner.owed.lose(path, answered);
    }

    /// A flush tells all losses so far. Whether there are any that none has told.
    fn tell_of_losses(&self, owner: &mut Owner) -> bool {
        self.tell_loss();
        owner.owed.tell()
    }

    /// A write was answered that had begun under another view. Its connection may have been replaced since, and what was
    /// answered there is in no cache any more; or the device was away since, over whatever path it is back.
    pub(super) fn answered_late(&self, path: usize, member: MemberId, generation: u64) {
        let mut owner = self.owner.lock();
        let was_away = generation < owner.back_since;
        let own = &owner.paths[path];
        if was_away || own.lost || !own.is_over(member) {
            owner.owed.note_loss();
            self.note_loss();
        }
    }

    /// Writes that a path has answered to all lanes.
    fn answered_over(&self, path: usize) -> u64 {
        self.counters.lock().iter().map(|lane| lane.paths[path].written.get()).sum()
    }
}

impl Drop for FirstFlush<'_> {
    fn drop(&mut self) {
        let paths = self.paths;
        let mut owner = paths.owner.lock();
        let (path, answered, ended) = (self.part.path, self.part.answered, self.ended);
        // A refused one's was another device's.
        if owner.paths[path].health != Health::Refused {
            match paths.has_own_caches {
                true => owner.owed.end_first(path, answered, ended),
                false => paths.end_first_of_device(&mut owner, path, ended),
            }
            if ended.is_to_be_told() {
                let note = "what was written before and not flushed may be lost".to_owned();
                paths.tell(&mut owner, "PathNotFlushed", Some(path), note);
            }
        }
        owner.owed.first_flushes -= 1;
        drop(owner);
        paths.changed.notify();
    }
}

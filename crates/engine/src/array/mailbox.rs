//! What lanes tell the controller. Every field is a flag, a set or bounded by the members, so nothing
//! grows however long the controller is away.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Poll, Waker};

use crate::backend::{IoError, MemberId, Scope};
use crate::ranges::Ranges;
use crate::request::RequestError;
use crate::sync::Mutex;
use crate::time::Time;

use super::command::{Action, Command, CommandError};
use super::controller::Admission;
use super::ended::{Asked, Ended};
use super::mirror::Counted;
use super::news::{News, NewsCount};

/// Ranges that lie in the mailbox before the controller is woken for them.
const MADE_WHOLE_MAX: usize = 1 << 10;

/// A member that failed an I/O.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    pub(crate) member: MemberId,
    pub(crate) error: IoError,
    /// It is failed for this only if the array can do without it.
    pub(crate) if_borne: bool,
}

/// What became of some blocks of a member, in sectors from its data offset.
#[derive(Clone, Debug)]
pub(crate) struct BlockNews {
    pub(crate) member: MemberId,
    pub(crate) ranges: Ranges,
}

impl BlockNews {
    fn add(news: &mut Vec<Self>, member: MemberId, ranges: &Ranges) {
        match news.iter_mut().find(|known| known.member == member) {
            Some(known) => ranges.iter().for_each(|range| known.ranges.insert(range)),
            None => news.push(Self { member, ranges: ranges.clone() }),
        }
    }
}

/// What has come in since the controller looked last.
#[derive(Default)]
pub(crate) struct Mail {
    /// A write waits for the array to be marked dirty.
    pub(crate) want_open: bool,
    /// A write waits for bitmap bits; they stand in [`Intent`](super::intent::Intent).
    pub(crate) want_intent: bool,
    /// Members that failed, each once.
    pub(crate) failures: Vec<Failure>,
    /// What members did not take, by member.
    pub(crate) refused: Vec<BlockNews>,
    /// What nobody could tell members to hold, by member.
    pub(crate) unfilled: Vec<BlockNews>,
    /// What could neither be read nor computed, by member.
    pub(crate) unreadable: Vec<BlockNews>,
    /// How many pieces of news about blocks were posted so far.
    pub(crate) heard: NewsCount,
    /// Read errors that were mended, by member.
    pub(crate) corrected: Vec<(MemberId, u32)>,
    /// Members that let a read pass its deadline, each once.
    pub(crate) late: Vec<MemberId>,
    /// Members behind which a write found no space, each once.
    pub(crate) no_space: Vec<MemberId>,
    /// Members that were late and answer again, each once.
    pub(crate) answered: Vec<MemberId>,
    /// Ranges, as resync counts, that were in doubt and turned out to be of one time.
    pub(crate) resolved: Ranges,
    /// Devices on their way into the array, each with what its last step showed.
    pub(super) admissions: Vec<Admission>,
    /// Writes that did not end well everywhere, and wait for the controller's word under their claims.
    pub(crate) ended: Vec<Arc<Asked>>,
    /// Ranges in doubt that a write has made whole. Nobody waits for that.
    pub(crate) made_whole: Ranges,
    /// Ranges that a resync left undone, and that a write may have made readable since.
    pub(crate) may_resync: Ranges,
    /// What users ask for.
    pub(crate) commands: VecDeque<Command>,
    /// The sync task has news.
    pub(crate) sync_moved: bool,
    /// A write behind has landed while none began.
    pub(crate) landed: bool,
}

impl Mail {
    fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.is_silent()
    }

    /// Whether it is questions and nothing else.
    pub(crate) fn only_asks(&self) -> bool {
        let asks = |command: &Command| matches!(command.action, Action::Status | Action::News);
        !self.commands.is_empty() && self.commands.iter().all(asks) && self.is_silent()
    }

    /// Whether it tells what became of blocks.
    pub(crate) fn tells_of_blocks(&self) -> bool {
        let kinds = [&self.unreadable, &self.unfilled, &self.refused];
        kinds.iter().any(|news| !news.is_empty())
    }

    /// Whether no lane has anything to say.
    fn is_silent(&self) -> bool {
        !self.want_open
            && !self.want_intent
            && !self.sync_moved
            && !self.landed
            && self.admissions.is_empty()
            && self.failures.is_empty()
            && self.refused.is_empty()
            && self.unfilled.is_empty()
            && self.unreadable.is_empty()
            && self.corrected.is_empty()
            && self.late.is_empty()
            && self.no_space.is_empty()
            && self.answered.is_empty()
            && self.resolved.is_empty()
            && self.may_resync.is_empty()
            && self.ended.is_empty()
    }
}

#[derive(Default)]
struct Inside {
    mail: Mail,
    heard: NewsCount,
    waiting: Option<Waker>,
    /// Whether the controller is woken when a write makes something whole.
    wakes_when_whole: bool,
    /// Ranges that writes have made whole, as long as a view says that they are in doubt.
    whole: Ranges,
    /// Writes of which parts were refused that are tried again, as if all of those were.
    tried_again: Vec<Arc<Ended>>,
    /// Nobody collects any more.
    closed: bool,
}

/// The controller's mailbox; lanes post, the controller collects.
#[derive(Default)]
pub(crate) struct Mailbox(Mutex<Inside>);

impl Mailbox {
    pub(crate) fn want_open(&self) {
        self.post(|inside| inside.mail.want_open = true);
    }

    pub(crate) fn want_intent(&self) {
        self.post(|inside| inside.mail.want_intent = true);
    }

    pub(crate) fn sync_moved(&self) {
        self.post(|inside| inside.mail.sync_moved = true);
    }

    /// Whether members have failed of which the controller has not collected the news.
    pub(crate) fn tells_of_failures(&self) -> bool {
        !self.0.lock().mail.failures.is_empty()
    }

    /// A write behind has landed that the controller may wait for.
    pub(crate) fn landed(&self) {
        self.post(|inside| inside.mail.landed = true);
    }

    pub(crate) fn member_failed(&self, member: MemberId, error: IoError) {
        self.failure(Failure { member, error, if_borne: false });
    }

    /// A member that is to be failed at its first error (`failfast`) had one.
    pub(crate) fn member_failed_fast(&self, member: MemberId, error: IoError) {
        self.failure(Failure { member, error, if_borne: true });
    }

    fn failure(&self, failure: Failure) {
        let failures = |mail: &mut Mail| match mail
            .failures
            .iter_mut()
            .find(|known| known.member == failure.member)
        {
            // That the whole array is another host's counts more than what came of it.
            Some(known) if known.if_borne || failure.error.kind.scope() == Scope::Array => {
                *known = failure;
            }
            Some(_) => {}
            None => mail.failures.push(failure),
        };
        self.post(|inside| failures(&mut inside.mail));
    }

    /// What became of blocks of a member. The caller holds a claim on them until a settled view has heard
    /// of so many pieces of news, so that no two pieces are about the same blocks.
    pub(super) fn blocks(&self, news: News, member: MemberId, blocks: &Ranges) -> NewsCount {
        let mut count = NewsCount::default();
        self.post(|inside| {
            inside.heard = inside.heard.next();
            count = inside.heard;
            let mail = &mut inside.mail;
            mail.heard = count;
            let of_its_kind = match news {
                News::Refused => &mut mail.refused,
                News::Unfilled => &mut mail.unfilled,
                News::Unreadable => &mut mail.unreadable,
            };
            BlockNews::add(of_its_kind, member, blocks);
        });
        count
    }

    /// A read error of a member was mended.
    pub(crate) fn corrected(&self, member: MemberId) {
        self.post(|Inside { mail, .. }| {
            match mail.corrected.iter_mut().find(|(known, _)| *known == member) {
                Some((_, errors)) => *errors += 1,
                None => mail.corrected.push((member, 1)),
            }
        });
    }

    pub(crate) fn member_late(&self, member: MemberId) {
        self.post(|inside| add_once(&mut inside.mail.late, member));
    }

    pub(crate) fn member_without_space(&self, member: MemberId) {
        self.post(|inside| add_once(&mut inside.mail.no_space, member));
    }

    pub(crate) fn member_answered(&self, member: MemberId) {
        self.post(|inside| add_once(&mut inside.mail.answered, member));
    }

    pub(crate) fn resolved(&self, range: Range<u64>) {
        self.post(|inside| inside.mail.resolved.insert(range));
    }

    /// Has the end of a write judged. Once the array has ended nobody does, and it is an error. One that is `counted`
    /// as behind is so no more, in one step: it is not to be a reason of its own verdict.
    pub(crate) fn ended(&self, asked: Arc<Asked>, counted: Option<Counted<'_>>) {
        let mut refused = None;
        self.post(|inside| {
            match inside.closed {
                true => refused = Some(asked),
                false => inside.mail.ended.push(asked),
            }
            inside.mail.landed |= counted.is_some_and(Counted::end);
        });
        refused.into_iter().for_each(|asked| asked.fail(RequestError::Stopped));
    }

    /// A write has ended, but for parts that were refused and are tried again. The controller is not woken. The
    /// write counts as not judged until the guard drops.
    pub(crate) fn tries_again(&self, ended: Ended) -> TriedAgain<'_> {
        let ended = Arc::new(ended);
        self.0.lock().tried_again.push(ended.clone());
        TriedAgain(self, ended)
    }

    /// Looks at the writes that have ended, or nearly, and that the controller has not collected.
    pub(crate) fn each_not_judged(&self, mut look: impl FnMut(&Ended)) {
        let inside = self.0.lock();
        inside.mail.ended.iter().for_each(|asked| look(&asked.ended));
        inside.tried_again.iter().for_each(|ended| look(ended));
    }

    /// Controller: whether something cannot begin before some doubt has ended, so that it is woken when a write ends some.
    pub(crate) fn wakes_when_whole(&self, wakes: bool) {
        let mut inside = self.0.lock();
        inside.wakes_when_whole = wakes;
        inside.mail.sync_moved |= wakes && !inside.mail.made_whole.is_empty();
    }

    /// Says that a write has made ranges in doubt whole. The controller hears of it with the next mail,
    /// before any news that it would make a difference to; at once where something waits for that.
    pub(crate) fn made_whole(&self, ranges: &Ranges) {
        if ranges.is_empty() {
            return;
        }
        let mut inside = self.0.lock();
        for range in ranges.iter() {
            inside.whole.insert(range.clone());
            inside.mail.made_whole.insert(range);
        }
        if inside.wakes_when_whole || inside.mail.made_whole.iter().count() > MADE_WHOLE_MAX {
            inside.mail.sync_moved = true;
            let waiting = inside.waiting.take();
            drop(inside);
            waiting.into_iter().for_each(Waker::wake);
        }
    }

    /// Whether writes have made all of a range whole, and no view that is published says so. No later write of it has
    /// failed since.
    pub(crate) fn was_made_whole(&self, range: &Range<u64>) -> bool {
        self.0.lock().whole.contains(range)
    }

    /// All ranges of which that is so.
    pub(crate) fn whole(&self) -> Ranges {
        self.0.lock().whole.clone()
    }

    /// Keeps ranges that are whole, and that views go on to call in doubt. False where that comes to more than `most` pieces.
    pub(crate) fn stays_whole(&self, ranges: &Ranges, most: usize) -> bool {
        let mut inside = self.0.lock();
        ranges.iter().for_each(|range| inside.whole.insert(range));
        inside.whole.iter().count() <= most
    }

    /// A write has failed in these ranges.
    pub(crate) fn is_in_doubt_again(&self, ranges: &Ranges) {
        let mut inside = self.0.lock();
        ranges.iter().for_each(|range| inside.whole.remove(&range));
    }

    /// A view was published that calls these ranges in doubt, and no others.
    pub(crate) fn is_in_doubt_only_in(&self, doubted: &Ranges) {
        let mut inside = self.0.lock();
        if !inside.whole.is_empty() {
            inside.whole = inside.whole.both(doubted);
        }
    }

    /// Says that a write went well where a resync could not do its work.
    pub(crate) fn may_resync(&self, ranges: &Ranges) {
        if !ranges.is_empty() {
            let add =
                |mail: &mut Mail| ranges.iter().for_each(|range| mail.may_resync.insert(range));
            self.post(|inside| add(&mut inside.mail));
        }
    }

    /// Posts a command; it is answered here once the array has ended.
    pub(crate) fn command(&self, command: Command) {
        let mut refused = None;
        self.post(|inside| match inside.closed {
            true => refused = Some(command),
            false => inside.mail.commands.push_back(command),
        });
        if let Some(command) = refused {
            (command.reply)(Err(CommandError::Stopped));
        }
    }

    /// Posts what a device that is to be taken in showed; it is refused here once the array has ended.
    pub(super) fn admission(&self, admission: Admission) {
        let mut refused = None;
        self.post(|inside| match inside.closed {
            true => refused = Some(admission),
            false => inside.mail.admissions.push(admission),
        });
        refused.into_iter().for_each(Admission::refuse);
    }

    /// Says that nobody collects any more, and answers what was not collected.
    pub(crate) fn close(&self) {
        let (mut left, mut admissions, mut ended) = (VecDeque::new(), Vec::new(), Vec::new());
        self.post(|inside| {
            inside.closed = true;
            ended = std::mem::take(&mut inside.mail.ended);
            admissions = std::mem::take(&mut inside.mail.admissions);
            left = std::mem::take(&mut inside.mail.commands);
        });
        ended.into_iter().for_each(|asked| asked.fail(RequestError::Stopped));
        admissions.into_iter().for_each(Admission::refuse);
        left.into_iter().for_each(|command| (command.reply)(Err(CommandError::Stopped)));
    }

    fn post(&self, write: impl FnOnce(&mut Inside)) {
        let waiting = {
            let mut inside = self.0.lock();
            write(&mut inside);
            inside.waiting.take()
        };
        if let Some(waker) = waiting {
            waker.wake();
        }
    }

    /// Waits until someone has told that `member` failed. The mail stays: for its one reader, while it
    /// is at something else.
    pub(crate) async fn failure_of(&self, member: MemberId) -> IoError {
        poll_fn(|context| {
            let mut inside = self.0.lock();
            let failed = |known: &&Failure| known.member == member && !known.if_borne;
            if let Some(known) = inside.mail.failures.iter().find(failed) {
                return Poll::Ready(known.error);
            }
            inside.waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// Waits for mail, or until `deadline`; the mail is empty then.
    pub(crate) async fn collect(&self, lane: &crate::lane::Lane, deadline: Option<Time>) -> Mail {
        let mut alarm = deadline.map(|when| Box::pin(lane.sleep_until(when)));
        poll_fn(|context| {
            let mut inside = self.0.lock();
            let due = |alarm: &mut std::pin::Pin<Box<crate::lane::Sleep<'_>>>| {
                alarm.as_mut().poll(context).is_ready()
            };
            if !inside.mail.is_empty() || alarm.as_mut().is_some_and(due) {
                return Poll::Ready(std::mem::take(&mut inside.mail));
            }
            inside.waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// A write of which parts are tried again.
pub(crate) struct TriedAgain<'a>(&'a Mailbox, Arc<Ended>);

impl Drop for TriedAgain<'_> {
    fn drop(&mut self) {
        self.0.0.lock().tried_again.retain(|ended| !Arc::ptr_eq(ended, &self.1));
    }
}

fn add_once(members: &mut Vec<MemberId>, member: MemberId) {
    if !members.contains(&member) {
        members.push(member);
    }
}

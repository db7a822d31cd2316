//! One flush of a member at a time, shared by all lanes and the controller.
//!
//! A device tells a flush error once, to one flush; the next one goes well although the data are gone.
//! So a flush is believed only if no other flush of the member overlapped it or failed before it.
//! Both hold by construction: who comes while a flush is under way waits for the next one, which
//! covers all that waited, and the end of a failed flush marks its member before another can begin.
//!
//! A durable write (FUA) may be a write and a flush to its device. So it counts as a flush: one that
//! fails, or does not answer in time, marks its member at once, and a flush has ended when the durable
//! writes that were under way at its end have ended too.
//!
//! Of users' flushes none waits for a durable write that is behind an answer: other members have what it
//! writes. The controller's do, for they say of one member alone what it has.
//!
//! Once a flush has told of a loss, or a member fails otherwise, nothing counts that this member gives: a drive that has
//! reset gives what was there before writes that the others have. Nor does a flush of it, for the reset may have been told
//! to what failed. Nor does what others were filled with since, for that may come from such blocks. So that moment makes a
//! view in which those have no more than they hold for good, and what was read under an older view is read again. Reads look
//! at two words for that. They share nothing else of this state, and other writes nothing at all.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use smallvec::SmallVec;

use crate::backend::{IoError, IoErrorKind, IoOp, MemberId, MemberIo, Patience, Scope};
use crate::lane::{Io, Lane};
use crate::signal::Signal;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

use super::Array;
use super::points::Point;
use super::rules::{Rule, keep};
use super::view::{ArrayView, MemberView};

/// What is known of the flushes of each member.
#[derive(Default)]
pub(crate) struct Flushes {
    members: Mutex<Vec<MemberFlushes>>,
    /// A flush or a durable write ended.
    ended: Signal,
    /// A durable write that was behind ended.
    behind_ended: Signal,
    any_distrusted: AnyDistrusted,
}

/// Whether some member is distrusted. On cache lines of its own, for each read looks at it.
#[derive(Default)]
#[repr(align(128))]
struct AnyDistrusted(AtomicBool);

/// The flushes of one member, counted.
struct MemberFlushes {
    member: MemberId,
    begun: u64,
    ended: u64,
    /// The one that is under way has no deadline.
    may_hang: bool,
    /// One failed: what the member was given is not sure to be there, whatever later flushes say.
    failed: Option<IoError>,
    /// It fails for this, and what was read of it was taken back. It is there until the others have answered.
    leaves: Option<IoError>,
    writes: DurableWrites,
}

/// The durable writes of one member, numbered as they begin.
#[derive(Default)]
struct DurableWrites {
    begun: u64,
    under_way: BTreeSet<u64>,
    /// Those that are behind an answer.
    behind: BTreeSet<u64>,
}

impl DurableWrites {
    fn of(&mut self, behind: bool) -> &mut BTreeSet<u64> {
        if behind { &mut self.behind } else { &mut self.under_way }
    }

    fn all_have_ended(&self) -> bool {
        self.under_way.is_empty() && self.behind.is_empty()
    }
}

/// A durable write that is under way, until it is dropped.
pub(super) struct DurableWrite<'a> {
    array: &'a Array,
    member: MemberId,
    number: u64,
    behind: bool,
}

/// What someone who wants a flush is to do now.
enum Turn {
    /// Send it. It is counted as begun.
    Send,
    /// Wait for the end of the flush with this number, behind the one that is under way now.
    Wait { number: u64, ahead: Ahead },
    /// Nothing: it is done, or failed.
    Over(Result<(), IoError>),
}

/// A flush that is under way.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Ahead {
    number: u64,
    /// It has no deadline.
    may_hang: bool,
}

impl Flushes {
    /// A flush that covers all writes to `member` that have ended by now.
    fn ask(&self, member: MemberId, patience: Patience) -> Turn {
        self.with(member, |flushes| {
            let is_under_way = flushes.begun > flushes.ended;
            let covered = is_under_way && !keep(Rule::FlushesCoverWhatEnded);
            flushes.turn(flushes.begun + u64::from(!covered), patience)
        })
    }

    /// The same, later, for one who waits for the flush with this number.
    fn ask_again(&self, member: MemberId, wanted: u64, patience: Patience) -> Turn {
        self.with(member, |flushes| flushes.turn(wanted, patience))
    }

    fn end(
        &self,
        member: MemberId,
        result: Result<(), IoError>,
        remember: bool,
    ) -> Result<(), IoError> {
        let result = self.with(member, |flushes| {
            flushes.ended = flushes.begun;
            if let Some(error) = result.err().filter(|_| remember) {
                self.fail(flushes, error);
            }
            flushes.lost_by().map_or(result, Err)
        });
        self.ended.notify();
        result
    }

    /// Marks a member. One that was only late may tell of a loss by something else.
    fn fail(&self, flushes: &mut MemberFlushes, error: IoError) {
        flushes.failed = flushes.told().or(Some(error));
        if flushes.told().is_some() {
            self.any_distrusted.0.store(true, Ordering::Release);
        }
    }

    /// What a flush of a member has told: it may have lost what it was given.
    fn told_by(&self, member: MemberId) -> Option<IoError> {
        let members = self.members.lock();
        members.iter().find(|known| known.member == member)?.told()
    }

    /// Whether nothing counts any more that a member gives: a flush has told of a loss, or it fails otherwise. It may have
    /// reset before that, and told nothing.
    pub(super) fn distrusts(&self, member: MemberId) -> bool {
        self.distrusted_for(member).is_some()
    }

    fn distrusted_for(&self, member: MemberId) -> Option<IoError> {
        let members = self.members.lock();
        members.iter().find(|known| known.member == member)?.distrusted_for()
    }

    /// A member fails. False where that was known.
    fn leaves(&self, member: MemberId, error: IoError) -> bool {
        let is_news = self.with(member, |known| {
            let is_news = known.leaves.is_none();
            known.leaves.get_or_insert(error);
            is_news
        });
        self.any_distrusted.0.store(true, Ordering::Release);
        // Who waits for a flush of it.
        self.ended.notify();
        is_news
    }

    /// These members are out, and no lane reads them any more.
    pub(super) fn have_left(&self, is_out: impl Fn(MemberId) -> bool) {
        let members = &mut *self.members.lock();
        members
            .iter_mut()
            .filter(|known| is_out(known.member))
            .for_each(|known| known.leaves = None);
        self.look_for_distrust(members);
    }

    fn look_for_distrust(&self, members: &[MemberFlushes]) {
        let any = members.iter().any(|known| known.distrusted_for().is_some());
        self.any_distrusted.0.store(any, Ordering::Release);
    }

    /// Whether a flush of a member has failed, or was not answered in time.
    fn has_failed(&self, member: MemberId) -> bool {
        let members = self.members.lock();
        members.iter().any(|known| known.member == member && known.failed.is_some())
    }

    /// Whether any member is distrusted. Of one that is out whose flush has told, reads may end yet.
    #[inline]
    pub(super) fn any_distrusted(&self) -> bool {
        self.any_distrusted.0.load(Ordering::Acquire)
    }

    /// Durable writes of a member that began by now have lower numbers than this.
    fn durable_writes_begun(&self, member: MemberId) -> u64 {
        self.with(member, |flushes| flushes.writes.begun)
    }

    /// Whether all durable writes of a member with lower numbers have ended.
    fn have_ended_below(&self, member: MemberId, number: u64) -> bool {
        self.with(member, |flushes| {
            flushes.writes.under_way.first().is_none_or(|first| *first >= number)
        })
    }

    /// Waits for the durable writes of a member that are behind now. They may have met the error that a flush
    /// beside them does not tell of.
    pub(super) async fn what_is_behind(&self, member: MemberId) -> Result<(), IoError> {
        let begun = self.durable_writes_begun(member);
        let all = || {
            self.with(member, |flushes| {
                let first = flushes.writes.behind.first();
                first
                    .is_none_or(|first| *first >= begun)
                    .then_some(flushes.lost_by().map_or(Ok(()), Err))
            })
        };
        self.behind_ended.until(all).await
    }

    /// Forgets a member: it left the array, or is about to be filled anew. But flushes may wait for the durable
    /// writes that it has not ended.
    pub(crate) fn forget(&self, member: MemberId) {
        let mut members = self.members.lock();
        members.retain_mut(|flushes| {
            let is_it = flushes.member == member;
            if is_it {
                (flushes.begun, flushes.ended) = Default::default();
                (flushes.failed, flushes.leaves) = Default::default();
            }
            !is_it || !flushes.writes.all_have_ended()
        });
        self.look_for_distrust(&members);
    }

    fn with<T>(&self, member: MemberId, use_it: impl FnOnce(&mut MemberFlushes) -> T) -> T {
        let members = &mut *self.members.lock();
        let at = members.iter().position(|known| known.member == member).unwrap_or_else(|| {
            let writes = DurableWrites::default();
            members.push(MemberFlushes {
                member,
                begun: 0,
                ended: 0,
                may_hang: false,
                failed: None,
                leaves: None,
                writes,
            });
            members.len() - 1
        });
        use_it(&mut members[at])
    }
}

impl<'a> DurableWrite<'a> {
    /// A durable write to a member is about to be sent. No user's flush waits for what is `behind`: others have it.
    pub(super) fn begin(array: &'a Array, member: MemberId, behind: bool) -> Self {
        let number = array.flushes.with(member, |flushes| {
            let number = flushes.writes.begun;
            flushes.writes.begun += 1;
            flushes.writes.of(behind).insert(number);
            number
        });
        Self { array, member, number, behind }
    }

    /// Its end. Where the member could not make it durable, what was written before may be lost too, and no
    /// later flush tells. A member that has not answered, or has gone, may have met that error without telling it.
    pub(super) fn end(self, result: Result<(), IoError>) {
        // A write that is refused, or finds no space, has come to no flush.
        let came_to_none =
            |error: &IoError| matches!(error.kind.scope(), Scope::Sectors | Scope::Space);
        if let Some(error) = result.err().filter(|error| !came_to_none(error)) {
            let flushes = &self.array.flushes;
            flushes.with(self.member, |known| flushes.fail(known, error));
            self.array.has_told(self.member);
        }
    }
}

impl Drop for DurableWrite<'_> {
    fn drop(&mut self) {
        let Self { array, member, number, behind } = *self;
        let flushes = &array.flushes;
        let was_oldest = flushes.with(member, |known| {
            let writes = known.writes.of(behind);
            let oldest = writes.first().copied();
            writes.remove(&number);
            oldest == Some(number)
        });
        // A flush waits for the oldest.
        match was_oldest {
            true if behind => flushes.behind_ended.notify(),
            true => flushes.ended.notify(),
            false => {}
        }
    }
}

impl Array {
    /// A flush, or a durable write, has failed that was answered at its deadline. The member was only late until now.
    pub(super) fn flush_failed_late(&self, member: MemberId, error: IoError) {
        // Of one that is out, reads may end yet, until it is forgotten.
        let is_known = self.flushes.has_failed(member)
            || self.views.current().devices().any(|device| device.id == member);
        // One that was taken back before it began has told nothing.
        if !is_known || error.kind == IoErrorKind::Cancelled {
            return;
        }
        if self.rules.keep(Rule::LateFlushesTell) {
            self.flushes.with(member, |known| self.flushes.fail(known, error));
            self.has_told(member);
        }
        self.points.reach(Point::FlushFailed);
    }

    /// A flush of a member may have told of a loss: the array does without it then, where it bears the loss of any.
    fn has_told(&self, member: MemberId) {
        if let Some(error) = self.flushes.told_by(member)
            && self.views.current().geometry.max_failures() > 0
            && self.rules.keep(Rule::FailedFlushesFailMembers)
        {
            self.member_failed(member, error);
        }
    }

    /// A member fails. The controller hears of it, and may be waiting for something.
    pub(super) fn member_failed(&self, member: MemberId, error: IoError) {
        self.member_leaves(member, error);
        self.mailbox.member_failed(member, error);
    }

    /// An I/O of a member has failed, and the member goes for that. Others are waited for before all of it is told. But of
    /// what another host has reserved nothing else is to be said before.
    pub(super) fn goes_for(&self, member: MemberId, error: IoError) {
        match error.kind.scope() {
            Scope::Array => self.mailbox.member_failed(member, error),
            Scope::Time | Scope::Member => self.member_leaves(member, error),
            Scope::Sectors | Scope::Space => {}
        }
    }

    /// A member fails, and is there until the others have answered. From one in no slot nothing was made, but it may be given
    /// one before it is out.
    pub(super) fn member_leaves(&self, member: MemberId, error: IoError) {
        let view = self.views.current();
        let is_it = |one: &MemberView| one.id == member;
        let is_news = view.bears_a_loss()
            && view.devices().any(is_it)
            && self.rules.keep(Rule::FailuresEndReads)
            && self.flushes.leaves(member, error);
        if is_news && view.present().any(|(_, one)| is_it(one)) {
            self.take_back();
        }
    }

    /// Members of a view that have failed while others were waited for, but for those that are `known` to. The controller
    /// hears of them.
    pub(super) fn failed_meanwhile(
        &self,
        view: &ArrayView,
        known: &[(MemberId, IoError)],
    ) -> Vec<(MemberId, IoError)> {
        let is_news = |(id, _): &(MemberId, IoError)| known.iter().all(|(other, _)| other != id);
        let failed: Vec<_> = self.failing(view).filter(is_news).collect();
        failed.iter().for_each(|(member, error)| self.member_failed(*member, *error));
        failed
    }

    /// Members of a view that are distrusted, and why.
    pub(super) fn failing(&self, view: &ArrayView) -> impl Iterator<Item = (MemberId, IoError)> {
        let may_any = self.flushes.any_distrusted() && view.bears_a_loss();
        let members = view.devices().map(|member| member.id).filter(move |_| may_any);
        members.filter_map(|id| Some((id, self.flushes.distrusted_for(id)?)))
    }

    /// Whether an answer may rest on what this member alone has: it will be believed after a crash, and nothing is known
    /// of it by which it goes out.
    pub(super) fn keeps_alone(&self, member: &MemberView) -> bool {
        let is_for_good =
            member.is_in_sync_for_good() || !self.rules.keep(Rule::EarlyAnswersAreOnRecord);
        is_for_good && !self.flushes.distrusts(member.id)
    }

    /// Nothing counts any more that was read before, and less of what members were filled with.
    fn take_back(&self) {
        self.views.take_back(|view| self.take_back_filled(view), || self.cache.clear());
    }

    /// Takes from a view what members were filled with, but for what they hold for good, where one that is read there has
    /// told of a loss, or fails.
    pub(super) fn take_back_filled(&self, view: &mut ArrayView) {
        let may_have_been_read = |member: &MemberView| member.filled_sectors > 0;
        let takes = view.bears_a_loss()
            && view
                .present()
                .any(|(_, member)| may_have_been_read(member) && self.flushes.distrusts(member.id))
            && self.rules.keep(Rule::FilledFallsBackFirst);
        if takes {
            view.filled_fall_back();
        }
    }
}

impl MemberFlushes {
    /// One that was not answered in time has told nothing.
    fn told(&self) -> Option<IoError> {
        self.failed.filter(|error| error.kind.scope() != Scope::Time)
    }

    fn distrusted_for(&self) -> Option<IoError> {
        self.told().or(self.leaves)
    }

    /// Why what it was given is not sure to be there.
    fn lost_by(&self) -> Option<IoError> {
        self.failed.or(self.leaves)
    }

    fn turn(&mut self, wanted: u64, patience: Patience) -> Turn {
        match self.lost_by() {
            Some(error) => Turn::Over(Err(error)),
            None if self.ended >= wanted => Turn::Over(Ok(())),
            None if self.begun > self.ended => {
                let ahead = Ahead { number: self.begun, may_hang: self.may_hang };
                Turn::Wait { number: wanted, ahead }
            }
            None => {
                self.begun += 1;
                self.may_hang = patience == Patience::FOREVER;
                Turn::Send
            }
        }
    }
}

/// Makes durable all writes to one member that ended before it was made.
pub(super) struct Flush<'a> {
    array: &'a Array,
    lane: &'a Lane,
    member: MemberId,
    patience: Patience,
    state: State<'a>,
}

enum State<'a> {
    /// Another's flush is under way. The one with this number is waited for.
    Waiting(u64, Wait<'a>),
    Sent(Io<'a>),
    /// It went well. The durable writes with lower numbers are waited for.
    WentWell(u64),
    Ended(Result<(), IoError>),
}

/// A wait for the flush that is ahead. Where that has no deadline, the wait has one.
struct Wait<'a> {
    ahead: Ahead,
    late: Option<Pin<Box<dyn Future<Output = ()> + 'a>>>,
}

impl<'a> Flush<'a> {
    /// Begins it, or waits for the flush that is under way.
    pub(super) fn new(
        array: &'a Array,
        lane: &'a Lane,
        member: MemberId,
        patience: Patience,
    ) -> Self {
        let state = State::Ended(Ok(()));
        let mut flush = Self { array, lane, member, patience, state };
        flush.take_turn(array.flushes.ask(member, patience));
        flush
    }

    fn take_turn(&mut self, turn: Turn) {
        self.state = match turn {
            Turn::Send => {
                let io = MemberIo { member: self.member, op: IoOp::Flush, patience: self.patience };
                State::Sent(self.lane.io(io))
            }
            Turn::Wait { number, ahead } => {
                State::Waiting(number, Wait::behind(ahead, self.lane, self.patience))
            }
            Turn::Over(result) => State::Ended(result),
        };
    }

    /// The device has answered.
    fn answered(&mut self, result: Result<(), IoError>) {
        match result {
            Ok(()) if self.array.rules.keep(Rule::FlushesWaitForDurableWrites) => {
                let begun = self.array.flushes.durable_writes_begun(self.member);
                self.state = State::WentWell(begun);
            }
            result => self.end(result),
        }
    }

    /// The one that is waited for takes too long. The member has failed, as where its own flush does.
    fn gives_up(&mut self) {
        let error = IoError { kind: IoErrorKind::Deadline, errno: 0 };
        let flushes = &self.array.flushes;
        flushes.with(self.member, |known| flushes.fail(known, error));
        self.state = State::Ended(Err(error));
        // Others that wait hear of it.
        flushes.ended.notify();
    }

    fn end(&mut self, result: Result<(), IoError>) {
        // The member is marked before anyone else's flush of it can begin.
        let remember = self.array.rules.keep(Rule::FailedFlushesStayFailed);
        let result = self.array.flushes.end(self.member, result, remember);
        if result.is_err() {
            self.array.has_told(self.member);
            self.array.points.reach(Point::FlushFailed);
        }
        self.state = State::Ended(result);
    }
}

impl Future for Flush<'_> {
    type Output = Result<(), IoError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        loop {
            match &mut this.state {
                State::Ended(result) => return Poll::Ready(*result),
                State::Sent(io) => {
                    let done = ready!(Pin::new(io).poll(context));
                    this.answered(done.result);
                }
                State::WentWell(begun) => {
                    let (flushes, member, begun) = (&this.array.flushes, this.member, *begun);
                    let all = || flushes.have_ended_below(member, begun).then_some(());
                    ready!(flushes.ended.poll(context, all));
                    this.end(Ok(()));
                }
                State::Waiting(wanted, wait) => {
                    let (flushes, member, wanted) = (&this.array.flushes, this.member, *wanted);
                    let (lane, patience, mut ahead) = (this.lane, this.patience, wait.ahead);
                    let turn = || match flushes.ask_again(member, wanted, patience) {
                        Turn::Wait { ahead: now, .. } => {
                            ahead = now;
                            None
                        }
                        turn => Some(turn),
                    };
                    match flushes.ended.poll(context, turn) {
                        Poll::Ready(turn) => this.take_turn(turn),
                        Poll::Pending => {
                            if wait.ahead != ahead {
                                *wait = Wait::behind(ahead, lane, patience);
                            }
                            let late = wait.late.as_mut().map(|late| late.as_mut().poll(context));
                            if late.is_none_or(|late| late.is_pending()) {
                                return Poll::Pending;
                            }
                            this.gives_up();
                        }
                    }
                }
            }
        }
    }
}

impl<'a> Wait<'a> {
    fn behind(ahead: Ahead, lane: &'a Lane, patience: Patience) -> Self {
        let deadline = patience.deadline(lane.lived()).filter(|_| ahead.may_hang);
        let late = deadline.map(|deadline| -> Pin<Box<dyn Future<Output = ()> + 'a>> {
            Box::pin(lane.live_until(deadline))
        });
        Self { ahead, late }
    }
}

impl Drop for Flush<'_> {
    /// A flush that was sent and is not waited for has failed, as far as anyone can know.
    fn drop(&mut self) {
        if matches!(self.state, State::Sent(_) | State::WentWell(_)) {
            self.end(Err(IoError { kind: IoErrorKind::Cancelled, errno: 0 }));
        }
    }
}

/// Waits for all, and tells of each that failed at the moment when it ends.
pub(super) async fn all_of(
    mut flushes: SmallVec<[Flush<'_>; 4]>,
    mut failed: impl FnMut(MemberId, IoError),
) {
    poll_fn(|context| {
        flushes.retain(|flush| match Pin::new(&mut *flush).poll(context) {
            Poll::Ready(result) => {
                result.err().into_iter().for_each(|error| failed(flush.member, error));
                false
            }
            Poll::Pending => true,
        });
        if flushes.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

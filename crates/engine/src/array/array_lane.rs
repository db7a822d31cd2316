//! An array on one lane: where requests arrive, run and are answered.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use smallvec::SmallVec;

use crate::backend::{
    IoDone, IoError, IoErrorKind, IoOp, MemberId, MemberIo, Patience, ReadInto, Scope, WriteFrom,
};
use crate::geometry::Geometry;
use crate::lane::{Io, Lane, OpOwner, first_of};
use crate::memory::{Buffer, SharedBytes, Sink, Source};
use crate::request::{Queue, Request, RequestError};
use crate::signal::Signal;

use super::Array;
use super::blocks::Blocks;
use super::flushes::{self, DurableWrite, Flush};
use super::gather::Gather;
use super::handover::LaneHandover;
use super::intent::LaneIntent;
use super::met::Met;
use super::read::DirectReads;
use super::row_writes::RowWrites;
use super::rules::Rule;
use super::sync::{SyncRead, SyncReads};
use super::unread::Cause;
use super::users::LaneUsers;
use super::view::{ArrayView, MemberView, WriteMode};

/// Bytes of a sector.
pub(crate) const SECTOR_BYTES: usize = 512;

/// One array's state on one lane.
pub struct ArrayLane {
    pub(crate) lane: Rc<Lane>,
    pub(crate) array: Arc<Array>,
    view: RefCell<LaneView>,
    view_moved: Signal,
    met: Met,
    intent: LaneIntent,
    writes_in_flight: Cell<u32>,
    pub(super) row_writes: RowWrites,
    left_behind: Rc<LeftBehind>,
    pub(super) direct_reads: DirectReads,
    pub(super) gather: Gather,
    pub(super) handover: LaneHandover,
    pub(super) users: LaneUsers,
    /// How long the sync task on this lane waits for its reads.
    sync_reads: RefCell<Rc<SyncReads>>,
    left: Cell<bool>,
}

/// A lane's reference to a view: counting it touches no memory of another lane.
pub(crate) type LaneView = Rc<Arc<ArrayView>>;

/// What came of a read that waits for a late member.
pub(super) enum Waited {
    Done(IoDone),
    /// The array has taken the member out.
    Out,
    /// Others suffice by now.
    OthersSuffice,
}

impl ArrayLane {
    /// Attaches `array` to `lane`. Every lane of the array does this once.
    pub fn attach(array: &Arc<Array>, lane: &Rc<Lane>) -> Rc<Self> {
        Self::attach_on(array, lane, 0)
    }

    /// As [`ArrayLane::attach`], for a lane that runs on this NUMA node.
    pub fn attach_on(array: &Arc<Array>, lane: &Rc<Lane>, node: usize) -> Rc<Self> {
        array.handover.take_seat(lane.id(), node);
        let view = loop {
            let view = array.views.current();
            array.views.adopt(lane.id(), view.epoch, false);
            // Whoever published in between did not know of this lane and did not wait for it.
            if array.views.epoch() == view.epoch {
                break view;
            }
        };
        let this = Rc::new(Self {
            lane: lane.clone(),
            array: array.clone(),
            view: RefCell::new(Rc::new(view)),
            view_moved: Signal::default(),
            met: Met::default(),
            intent: LaneIntent::default(),
            writes_in_flight: Cell::new(0),
            row_writes: RowWrites::default(),
            left_behind: Rc::default(),
            direct_reads: DirectReads::default(),
            gather: Gather::default(),
            handover: LaneHandover::on_node(node),
            users: LaneUsers::default(),
            sync_reads: RefCell::default(),
            left: Cell::new(false),
        });
        this.met.add(&this.view());
        let told = array.clone();
        lane.on_late_flush(move |member, error| told.flush_failed_late(member, error));
        let follower = this.clone();
        lane.spawn(async move { follower.follow_views().await });
        this
    }

    /// Starts a request; its end will stand in `queue` with `tag`.
    #[inline]
    pub fn submit(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64, request: Request) {
        queue.begin();
        match self.counts_and_times() {
            false => self.begin(queue, tag, request),
            true => self.submit_timed(queue, tag, request),
        }
    }

    /// Starts a request that its queue has counted.
    #[inline]
    pub(super) fn begin(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64, request: Request) {
        let request = match request {
            Request::Read { sector, into } if self.read_direct(queue, tag, sector, &into) => return,
            Request::Write { sector, from, fua } if self.gathers() => {
                return self.write_parity(queue, tag, sector, from, fua);
            }
            request => request,
        };
        let (this, queue) = (self.clone(), queue.clone());
        self.lane.spawn(async move {
            let result = this.serve(request).await;
            queue.end(tag, result);
        });
    }

    /// Runs one request to its end.
    pub async fn serve(self: &Rc<Self>, request: Request) -> Result<(), RequestError> {
        if self.with_view(|view| view.mode == WriteMode::Stopped) {
            return Err(RequestError::Stopped);
        }
        match request {
            Request::Read { sector, into } => self.read(sector, &into).await,
            Request::Write { sector, from, fua } => self.write(sector, from, fua).await,
            Request::Flush => self.flush().await,
            Request::Discard { sector, sectors } => self.discard(sector, sectors).await,
            Request::Punch { sector, sectors } => self.punch(sector, sectors).await,
            Request::WriteZeroes { sector, sectors, fua } => {
                self.write_zeroes(sector, sectors, fua).await
            }
        }
    }

    /// The array's size in sectors.
    pub fn sectors(&self) -> u64 {
        self.view.borrow().geometry.array_sectors()
    }

    /// The smallest unit of a request, in bytes.
    pub fn block_bytes(&self) -> u32 {
        self.view.borrow().block_sectors * SECTOR_BYTES as u32
    }

    /// Whether a discard gives anything up: every member reads zeroes then.
    pub fn discards(&self) -> bool {
        self.with_view(|view| view.discard)
    }

    /// Sectors of a chunk row, which is discarded as a whole or not at all; 1 without parity.
    pub fn row_sectors(&self) -> u64 {
        self.with_view(|view| match &*view.geometry {
            Geometry::Parity(map) => map.row_sectors(),
            _ => 1,
        })
    }

    /// The view to use now. Not to be kept over a wait: what was true before it may not be after.
    pub(crate) fn view(&self) -> LaneView {
        self.view.borrow().clone()
    }

    pub(super) fn with_view<T>(&self, use_view: impl FnOnce(&ArrayView) -> T) -> T {
        use_view(&self.view.borrow())
    }

    async fn follow_views(&self) {
        poll_fn(|context| {
            if self.left.get() {
                return Poll::Ready(());
            }
            self.array.views.follow(self.lane.id(), context.waker());
            if self.array.views.epoch() != self.view.borrow().epoch {
                self.adopt();
            }
            if self.array.views.is_closed() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        self.leave();
    }

    /// Leaves the array, with nothing under way: its place may be taken by another lane. What members owe it is
    /// asked of it no more.
    pub(super) fn leave(&self) {
        if !self.left.replace(true) {
            self.array.views.wake(self.lane.id());
            self.array.views.detach(self.lane.id());
        }
    }

    fn adopt(&self) {
        let view = self.array.views.current();
        let epoch = view.epoch;
        let intent_moved = view.intent_epoch != self.view.borrow().intent_epoch;
        *self.view.borrow_mut() = Rc::new(view);
        if intent_moved && self.array.rules.keep(Rule::LanesForgetIdleChunks) {
            self.intent.close_epoch(&self.array.intent);
        }
        self.array.views.tell_who_holds(|member| self.is_held_by(member));
        let view = self.view();
        let any = view.rests.as_ref().is_some_and(|leaving| {
            // Who is out already may have a write for as long as it hangs.
            let stays = |id| view.devices().any(|it| it.id == id) && !leaving.contains(&id);
            self.row_writes.any_on(stays)
        });
        self.array.views.tell_of_row_writes(self.lane.id(), any);
        let busy = self.writes_in_flight.get() > 0 || self.left_behind.0.get() > 0;
        if !busy {
            self.met.forget_unless(|member| self.is_held_by(member));
        }
        self.met.add(&self.view());
        self.array.views.adopt(self.lane.id(), epoch, busy);
        self.view_moved.notify();
    }

    /// Whether a member has not answered something that this lane asked of it, also past its deadline.
    fn is_held_by(&self, member: MemberId) -> bool {
        let backend = self.lane.backend();
        backend.in_flight(member) + backend.unanswered(member) > 0
    }

    /// Whether a member that this lane has met has something of it that it has not answered.
    pub(super) fn is_owed_answers(&self) -> bool {
        self.met.any(|member| self.is_held_by(member))
    }

    /// Refuses a range that is not whole blocks inside the array.
    pub(super) fn check_range(&self, sector: u64, sectors: u64) -> Result<(), RequestError> {
        self.with_view(|view| view.check_range(sector, sectors))
    }

    /// Whether writes are gathered to rounds of parity rows.
    fn gathers(&self) -> bool {
        self.with_view(|view| matches!(*view.geometry, Geometry::Parity(_)))
    }

    pub(super) async fn write(
        self: &Rc<Self>,
        sector: u64,
        from: Rc<dyn Source>,
        fua: bool,
    ) -> Result<(), RequestError> {
        let sectors = whole_sectors(from.len())?;
        self.check_range(sector, sectors)?;
        if sectors == 0 {
            return Ok(());
        }
        let view = self.view();
        match &*view.geometry {
            Geometry::Linear(_) | Geometry::Raid0(_) => self.write_striped(sector, from, fua).await,
            Geometry::Raid1(_) | Geometry::Raid10(_) => {
                self.write_mirrored(sector, self.stabilise(from), fua).await
            }
            Geometry::Parity(_) => {
                let queue = Queue::new();
                queue.begin();
                self.write_parity(&queue, 0, sector, from, fua);
                queue.next().await.result
            }
        }
    }

    /// Memory that may change under us is copied once, else copies or parity could differ from data.
    pub(super) fn stabilise(&self, from: Rc<dyn Source>) -> Rc<dyn Source> {
        if from.stable().is_some() {
            return from;
        }
        let mut copy = self.lane.backend().allocate(from.len());
        from.take(0, &mut copy);
        self.lane.count_copy(copy.len());
        let copy: SharedBytes = Arc::new(copy);
        Rc::new(copy)
    }

    /// Waits until writes may go in `range` (sectors as resync counts them): the superblocks say
    /// dirty and the bitmap's bits are on the members. No wait lies between the grant and the count.
    pub(super) async fn permit(&self, range: Range<u64>) -> Result<Permit<'_>, RequestError> {
        loop {
            let view = self.view();
            match view.mode {
                WriteMode::ReadOnly => return Err(RequestError::ReadOnly),
                WriteMode::Stopped => return Err(RequestError::Stopped),
                WriteMode::Broken => return Err(RequestError::Lost),
                WriteMode::Clean | WriteMode::Closing => {
                    self.array.mailbox.want_open();
                    self.other_view(&view).await;
                    continue;
                }
                WriteMode::Open => {}
            }
            let chunks = intent_chunks(&view, &range);
            if self.intent.begin(&chunks) {
                self.array.views.count_write(self.lane.id());
                return Ok(Permit { under_way: UnderWay::begin(self), chunks });
            }
            self.learn_intent(&view, &chunks).await;
        }
    }

    /// Waits until writes of parity rows may begin, and gives the view of that moment.
    pub(super) async fn lets_rows_be_written(&self) -> LaneView {
        while self.rows_wait() {
            let view = self.view();
            self.other_view(&view).await;
        }
        self.view()
    }

    /// Whether writes of parity rows must not begin under this lane's view.
    pub(super) fn rows_wait(&self) -> bool {
        self.with_view(|view| view.rests.is_some() || !self.counts_under(view.epoch))
    }

    /// Waits until what is read under this lane's view counts.
    pub(super) async fn view_that_counts(&self) -> LaneView {
        loop {
            let view = self.view();
            if self.counts_under(view.epoch) {
                return view;
            }
            self.other_view(&view).await;
        }
    }

    /// Whether what is read under the view of this `epoch` counts: nothing was taken back since.
    #[inline]
    pub(super) fn counts_under(&self, epoch: u64) -> bool {
        epoch >= self.array.views.counts_from()
    }

    /// Waits for the newest view, if this lane's is not `view` any more or is not the newest one. False
    /// where it is.
    pub(super) async fn newer_view(&self, view: &ArrayView) -> bool {
        let is_newer = self.array.views.epoch() != view.epoch;
        if is_newer {
            self.other_view(view).await;
        }
        is_newer
    }

    /// Waits until this lane has this view or a newer one.
    pub(super) async fn adopts(&self, epoch: u64) {
        self.view_moved.until(|| (self.view.borrow().epoch >= epoch).then_some(())).await;
    }

    /// Waits until the array's view is another one than `view`.
    async fn other_view(&self, view: &ArrayView) {
        self.view_moved.until(|| (self.view.borrow().epoch != view.epoch).then_some(())).await;
    }

    /// Waits until the bits of `chunks` are durable, or the view changes.
    async fn learn_intent(&self, view: &ArrayView, chunks: &Range<u64>) {
        if self.array.intent.enter(chunks) {
            self.intent.learn(chunks);
            return;
        }
        self.array.mailbox.want_intent();
        if !self.array.rules.keep(Rule::IntentIsDurableFirst) {
            return self.intent.learn(chunks);
        }
        let intent = &self.array.intent;
        let durable = intent.grew.until(|| intent.is_durable(chunks).then_some(()));
        // It is this lane's view that must move: the caller looks at no other.
        first_of(durable, self.other_view(view)).await;
    }

    /// Starts a read of a member.
    pub(super) fn read_member(
        &self,
        member: &MemberView,
        sector: u64,
        into: ReadInto,
    ) -> MemberRead<'_> {
        let op = IoOp::Read { sector: member.data_offset + sector, into };
        let patience = self.array.settings.read_patience();
        MemberRead::start(self, MemberIo { member: member.id, op, patience })
    }

    /// The patience of a sync task that begins on this lane.
    pub(super) fn begin_sync_reads(&self) -> Rc<SyncReads> {
        self.sync_reads.take();
        self.sync_reads.borrow().clone()
    }

    /// Reads a member for a sync task, which waits under its claim.
    pub(super) async fn read_member_for_sync(
        &self,
        member: &MemberView,
        sector: u64,
        into: ReadInto,
    ) -> IoDone {
        let read = self.begin_sync_read();
        let op = IoOp::Read { sector: member.data_offset + sector, into };
        let io = MemberIo { member: member.id, op, patience: read.patience() };
        read.end_of(self, &mut MemberRead::start(self, io)).await
    }

    /// Begins a read of the sync task on this lane.
    pub(super) fn begin_sync_read(&self) -> SyncRead {
        let reads = self.sync_reads.borrow().clone();
        reads.begin(self)
    }

    /// Reads a late member without a deadline, until the array has taken it out, or, from `look_after` on, `others_suffice`
    /// in the view of that moment.
    pub(super) async fn read_patiently(
        &self,
        member: &MemberView,
        sector: u64,
        into: ReadInto,
        look_after: Duration,
        others_suffice: impl Fn(&ArrayView) -> bool,
    ) -> Waited {
        let op = IoOp::Read { sector: member.data_offset + sector, into };
        let io = MemberIo { member: member.id, op, patience: Patience::FOREVER };
        let io = MemberRead::start(self, io);
        let is_out = |view: &ArrayView| {
            view.mode == WriteMode::Stopped || view.present().all(|(_, it)| it.id != member.id)
        };
        let out = self.view_moved.until(|| self.with_view(is_out).then_some(Waited::Out));
        let look_at = self.lane.backend().now() + look_after;
        let without = async {
            self.lane.sleep_until(look_at).await;
            let suffice = || self.with_view(&others_suffice).then_some(Waited::OthersSuffice);
            self.view_moved.until(suffice).await
        };
        first_of(async { Waited::Done(io.await) }, first_of(out, without)).await
    }

    /// Takes note of a member read that failed: not of unreadable sectors, which are the caller's.
    pub(super) fn report_read(&self, member: MemberId, error: IoError) -> Cause {
        match error.kind.scope() {
            Scope::Sectors => Cause::Unreadable,
            Scope::Time => {
                self.array.mailbox.member_late(member);
                Cause::Late
            }
            Scope::Space | Scope::Member | Scope::Array => {
                self.array.member_failed(member, error);
                Cause::Lost
            }
        }
    }

    /// Writes to a member. Flushes wait for it where it is durable, unless it is `behind`.
    pub(super) async fn write_member(
        &self,
        member: &MemberView,
        sector: u64,
        from: WriteFrom,
        fua: bool,
        behind: bool,
    ) -> Result<(), IoError> {
        let durable = fua.then(|| DurableWrite::begin(&self.array, member.id, behind));
        let op = IoOp::Write { sector: member.data_offset + sector, from, fua };
        let result = self.member_io(member, op).await.result;
        durable.into_iter().for_each(|durable| durable.end(result));
        result
    }

    /// Starts anything but a read of a member: it is failed if that takes too long.
    pub(super) fn member_io(&self, member: &MemberView, op: IoOp) -> Io<'_> {
        let patience = self.array.settings.write_patience();
        self.lane.io(MemberIo { member: member.id, op, patience })
    }

    /// As [`read_member`](Self::read_member), and gives the end where it came at once.
    #[inline]
    pub(super) fn try_read_member(
        &self,
        member: &MemberView,
        sector: u64,
        into: ReadInto,
        patience: Patience,
    ) -> Result<IoDone, MemberRead<'_>> {
        let op = IoOp::Read { sector: member.data_offset + sector, into };
        let (member, mut io) = (member.id, MemberIo { member: member.id, op, patience });
        match self.lane.io_at_once(&mut io) {
            Some(result) => {
                Ok(self.as_it_counts(member, IoDone { result, buffer: io.op.into_buffer() }))
            }
            None => Err(MemberRead { port: self, member, io: self.lane.io_later(io) }),
        }
    }

    /// The end of a read of a member. It has failed where the member is distrusted: that one goes out, or the array breaks
    /// over it, and no later read gets what it has.
    #[inline]
    pub(super) fn as_it_counts(&self, member: MemberId, mut done: IoDone) -> IoDone {
        if done.result.is_ok() && self.distrusts(member) {
            done.result = Err(IoError { kind: IoErrorKind::Other, errno: 0 });
        }
        done
    }

    /// Whether no read of a member counts, until it is out or the array is broken.
    #[inline]
    pub(super) fn distrusts(&self, member: MemberId) -> bool {
        self.distrusts_any()
            && self.array.rules.keep(Rule::FailedFlushesEndReads)
            && self.array.flushes.distrusts(member)
    }

    #[inline]
    fn distrusts_any(&self) -> bool {
        self.array.flushes.any_distrusted() && self.with_view(ArrayView::bears_a_loss)
    }

    /// Waits until the distrusted members of this lane's view are out, or the array is broken: what they alone gave may be
    /// on one that takes a slot over, or is lost. False where there are none.
    pub(super) async fn distrusted_go(&self) -> bool {
        if !self.distrusts_any() {
            return false;
        }
        let (view, flushes) = (self.view(), &self.array.flushes);
        let in_slots = view.present().map(|(_, member)| member.id);
        let distrusted: Vec<MemberId> = in_slots.filter(|id| flushes.distrusts(*id)).collect();
        let are_out = |now: &ArrayView| {
            let mut there = now.present().map(|(_, member)| member.id);
            !now.bears_a_loss() || !there.any(|id| distrusted.contains(&id))
        };
        self.view_moved.until(|| self.with_view(are_out).then_some(())).await;
        !distrusted.is_empty()
    }

    /// Copies in memory, and counts it.
    pub(super) fn copy(&self, to: &mut [u8], from: &[u8]) {
        to.copy_from_slice(from);
        self.lane.count_copy(from.len());
    }

    /// Copies to a front end's memory, and counts it.
    pub(super) fn put(&self, into: &Rc<dyn Sink>, offset: usize, bytes: &[u8]) {
        into.put(offset, bytes);
        self.lane.count_copy(bytes.len());
    }

    pub(super) fn recycle(&self, buffer: Option<Buffer>) {
        if let Some(buffer) = buffer {
            self.lane.backend().recycle(buffer);
        }
    }

    pub(super) fn recycle_all(&self, blocks: Blocks) {
        blocks.into_iter().for_each(|(_, block)| self.recycle(Some(block)));
    }

    /// Waits until a crash leaves no member to be believed that a write under `view` passed over. False
    /// when the array broke before that.
    pub(super) async fn is_told_of(&self, view: &ArrayView) -> bool {
        !self.array.rules.keep(Rule::WritesPastFailedMembersWait)
            || self.array.views.settled_up_to(view).await
    }

    /// Reports members that failed a write made under `view` and waits until the array does without
    /// them, and without those that `view` passed over: another lane may still read the old block from
    /// either, and after a crash both would count as good. False when the array cannot do without.
    pub(super) async fn do_without(
        &self,
        view: &ArrayView,
        failed: &[(MemberId, IoError)],
    ) -> bool {
        if failed.is_empty() {
            return self.is_told_of(view).await;
        }
        for &(member, error) in failed {
            self.array.member_failed(member, error);
        }
        let members: Vec<_> = failed.iter().map(|&(member, _)| member).collect();
        self.array.views.settled_without(&members).await
    }

    /// Makes durable what all lanes were told is written.
    pub(super) async fn flush(&self) -> Result<(), RequestError> {
        let view = self.view();
        if view.mode == WriteMode::Broken {
            return Err(RequestError::Lost);
        }
        // Where a flush fails, what was written there counts as lost: until that is known the array is
        // not marked clean, nor stopped with that member in it.
        let _under_way = UnderWay::begin(self);
        let behind = &self.array.behind;
        let told = behind.told();
        behind.flush_begins();
        let redundant = view.geometry.max_failures() > 0;
        let mut failed: SmallVec<[(MemberId, IoError); 1]> = SmallVec::new();
        flushes::all_of(self.flushes_of(&view), |member, error| {
            failed.push((member, error));
            if redundant && self.array.rules.keep(Rule::FailedFlushesFailMembers) {
                self.array.member_failed(member, error);
            }
        })
        .await;
        if redundant && !self.array.rules.keep(Rule::FailedFlushesFailMembers) {
            failed.clear();
        }
        let no_space = failed.iter().all(|(_, error)| error.kind == IoErrorKind::NoSpace);
        match failed.is_empty() {
            false if !redundant && no_space => return Err(RequestError::NoSpace),
            false if !redundant => return Err(RequestError::Lost),
            _ => {}
        }
        // After a failed flush nothing on that member is sure: the others must hold it. What lost its cache may also have
        // told that to another I/O, when its flush here had ended, or while others are waited for.
        let mut news = self.array.failed_meanwhile(&view, &failed);
        loop {
            failed.extend(news);
            // One that is out by now may not be on record as that.
            if !self.do_without(&self.array.views.current(), &failed).await {
                return Err(RequestError::Lost);
            }
            if self.array.rules.keep(Rule::FlushesWaitForWhatIsBehind) {
                self.what_is_behind_is_elsewhere().await?;
            }
            let is_recorded = !self.array.rules.keep(Rule::WritesPastFailedMembersWait)
                || self.array.views.is_settled_up_to(&self.array.views.current());
            news = self.array.failed_meanwhile(&view, &failed);
            if is_recorded && news.is_empty() {
                return behind.tell(told);
            }
        }
    }

    /// Waits until what is behind an answer has landed, or another member has all, as nearly always. It is flushed
    /// where it lands.
    async fn what_is_behind_is_elsewhere(&self) -> Result<(), RequestError> {
        loop {
            let view = self.view();
            let has_all =
                |member: &MemberView| !member.write_mostly && self.array.keeps_alone(member);
            if self.array.behind.limit() == 0 || view.present().any(|(_, one)| has_all(one)) {
                return Ok(());
            }
            match view.mode {
                WriteMode::Broken => return Err(RequestError::Lost),
                WriteMode::Stopped => return Err(RequestError::Stopped),
                _ if !self.array.has_writes_behind() => return Ok(()),
                WriteMode::ReadOnly | WriteMode::Clean | WriteMode::Closing | WriteMode::Open => {}
            }
            first_of(self.array.behind.all_have_landed(), self.other_view(&view)).await;
        }
    }

    fn flushes_of<'a>(&'a self, view: &ArrayView) -> SmallVec<[Flush<'a>; 4]> {
        let patience = self.array.settings.write_patience();
        let flush = |member: &MemberView| Flush::new(&self.array, &self.lane, member.id, patience);
        let all = self.array.rules.keep(Rule::FlushesAskAllMembers);
        view.devices().skip(usize::from(!all)).map(flush).collect()
    }
}

/// A read of a member that is under way.
pub(super) struct MemberRead<'a> {
    port: &'a ArrayLane,
    member: MemberId,
    io: Io<'a>,
}

impl<'a> MemberRead<'a> {
    fn start(port: &'a ArrayLane, io: MemberIo) -> Self {
        Self { port, member: io.member, io: port.lane.io(io) }
    }
}

impl Future for MemberRead<'_> {
    type Output = IoDone;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<IoDone> {
        let this = &mut *self;
        let done = ready!(Pin::new(&mut this.io).poll(context));
        Poll::Ready(this.port.as_it_counts(this.member, done))
    }
}

/// Writes that their task left behind, as long as members may still carry them out. They count as under
/// way.
#[derive(Default)]
struct LeftBehind(Cell<u32>);

impl OpOwner for LeftBehind {
    fn done(self: Rc<Self>, _: u64, _: IoDone) {
        self.0.set(self.0.get() - 1);
    }
}

impl ArrayLane {
    /// Waits for a write that nobody else waits for any more.
    pub(super) fn leave_behind(&self, io: Io<'_>) {
        self.left_behind.0.set(self.left_behind.0.get() + 1);
        io.leave_to(self.left_behind.clone(), 0);
    }
}

/// The right to write in some bitmap chunks, counted until it drops.
pub(super) struct Permit<'a> {
    under_way: UnderWay<'a>,
    chunks: Range<u64>,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.under_way.0.intent.end(&self.chunks);
    }
}

/// Something that writes to members. While one is under way the array is not marked clean nor ended.
pub(super) struct UnderWay<'a>(&'a ArrayLane);

impl<'a> UnderWay<'a> {
    pub(super) fn begin(lane: &'a ArrayLane) -> Self {
        lane.writes_in_flight.set(lane.writes_in_flight.get() + 1);
        Self(lane)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.writes_in_flight.set(self.0.writes_in_flight.get() - 1);
    }
}

impl OpOwner for ArrayLane {
    fn done(self: Rc<Self>, tag: u64, done: IoDone) {
        self.end_direct_read(tag, done);
    }
}

/// The bitmap chunks of a range; none without a bitmap.
fn intent_chunks(view: &ArrayView, range: &Range<u64>) -> Range<u64> {
    match view.intent_chunk_sectors {
        Some(chunk) => range.start / chunk..range.end.div_ceil(chunk),
        None => 0..0,
    }
}

/// A length in sectors; parts of a sector are refused.
pub(super) fn whole_sectors(bytes: usize) -> Result<u64, RequestError> {
    if bytes.is_multiple_of(SECTOR_BYTES) {
        Ok((bytes / SECTOR_BYTES) as u64)
    } else {
        Err(RequestError::Unaligned)
    }
}

/// A part of lent memory, in sectors from its start.
pub(super) fn sink_part(into: &Rc<dyn Sink>, first: u64, sectors: u64) -> ReadInto {
    ReadInto::Sink(into.clone(), byte_range(first, sectors))
}

/// A part of lent memory, in sectors from its start.
pub(super) fn source_part(from: &Rc<dyn Source>, first: u64, sectors: u64) -> WriteFrom {
    WriteFrom::Source(from.clone(), byte_range(first, sectors))
}

/// Sectors as a range of bytes.
pub(super) fn byte_range(first: u64, sectors: u64) -> Range<usize> {
    let start = first as usize * SECTOR_BYTES;
    start..start + sectors as usize * SECTOR_BYTES
}

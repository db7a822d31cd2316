//! Superblock updates.

use std::future::Future;
use std::time::Duration;

use mdspace_format::superblock::RESYNC_NONE;
use mdspace_format::{Features, Role, Timestamp};

use crate::backend::{
    IoError, IoErrorKind, IoOp, MemberId, MemberInfo, MemberIo, Patience, ReadInto, Scope,
    WriteFrom,
};
use crate::lane::{first_of, join_all};
use crate::memory::Buffer;

use super::super::flushes::{DurableWrite, Flush};
use super::super::points::Point;
use super::super::rules::Rule;
use super::progress::FlushReceipt;
use super::{Controller, Member, MemberState, WriteMode, promised_sectors};

/// Bytes of the superblock's area.
const SUPERBLOCK_BYTES: usize = 4096;

/// How long a member may take for what the controller asks, where `write_deadline` is none.
const PATIENCE_WITHOUT_DEADLINE: Duration = Duration::from_secs(60);

/// How long after a write of metadata found no space it is tried again.
const ROOM_AGAIN: Duration = Duration::from_millis(100);

impl Controller {
    /// Writes one update to every live member: the bitmap's header, then the superblocks, so that
    /// the bitmap's events are never behind theirs. A member that fails its write is faulty, and the
    /// update is written again to say so. False when the array broke over it.
    ///
    /// A read-only array is left as it was found. So is a broken one: the members that it lost come
    /// back by a plain assemble only if the survivors' superblocks still count on them.
    pub(super) async fn update_superblocks(&mut self) -> bool {
        match self.mode {
            WriteMode::ReadOnly | WriteMode::Stopped => return true,
            WriteMode::Broken => return false,
            WriteMode::Clean | WriteMode::Closing | WriteMode::Open => {}
        }
        // Power may have failed between the bitmap's header and the superblocks: it is one event newer then.
        if std::mem::take(&mut self.outruns_bitmap) && !self.write_update().await {
            return false;
        }
        self.write_update().await
    }

    /// Writes the superblocks until all live members have them.
    async fn write_update(&mut self) -> bool {
        let mut all_along = true;
        loop {
            let mut failed = self.bring_up_laggards().await;
            if failed.is_empty() {
                self.array.points.reach(Point::LaggardsCaughtUp);
                let counted = u64::from(self.array.rules.keep(Rule::UpdatesCountEvents));
                self.stamp(self.events + counted);
                failed = self.write_bitmap_headers().await;
            }
            if failed.is_empty() {
                // Counted only now: members that are lost while the bitmap is written must not come
                // to be two updates behind those that are written next.
                self.events += u64::from(self.array.rules.keep(Rule::UpdatesCountEvents));
                self.array.points.reach(Point::BitmapSaysEvents);
                failed = self.write_all_superblocks().await;
                if failed.is_empty() {
                    self.array.points.reach(Point::SuperblocksAreWritten);
                    if !all_along {
                        // A write that passed over a member of these waits for just that.
                        self.array.views.settle();
                    }
                    return true;
                }
            }
            all_along = false;
            self.put_off_hand_over();
            let leaving = self.leaving_failed(failed).await;
            let enough = self.mark_faulty(&leaving);
            // Lanes stop reading the member before anyone hears that its superblock is old.
            let epoch = self.publish();
            self.array.points.reach(Point::MemberIsOut);
            self.array.views.adopted(epoch).await;
            self.have_left();
            if !enough {
                self.array.views.settle();
                return false;
            }
        }
    }

    /// Members may be one event behind after a crash in an update. If this update went past them and
    /// power failed again, they would be two behind and count as stale: so they catch up first. They
    /// get what the others have, as assembly found it: superblocks with the same events say the same.
    async fn bring_up_laggards(&mut self) -> Vec<(MemberId, IoError)> {
        if !self.array.rules.keep(Rule::LaggardsCatchUp) {
            return Vec::new();
        }
        let live = self.members.iter().filter(|member| member.is_live());
        let behind = live.filter_map(|member| Some((member, member.behind.as_ref()?)));
        let writes = behind.map(|(member, others_have)| {
            self.write_with_room(member, others_have.place.sector, others_have.encode_sectors())
        });
        let failed = failures(join_all(writes).await);
        // Who has failed is taken out.
        self.members.iter_mut().for_each(|member| member.behind = None);
        failed
    }

    /// Brings every live member's superblock to the state of the array, as its update `events`.
    pub(super) fn stamp(&mut self, events: u64) {
        let roles = self.roles();
        let microseconds = 1 + (self.lane.backend().random() % 999_999) as u32;
        let now = Timestamp::with_microseconds(self.lane.backend().unix_time_s(), microseconds);
        let resync = self.resync_offset();
        let end = self.member_sectors();
        let filled = self.members.iter().filter(|member| member.filled_to().is_some());
        let promised: Vec<_> = filled
            .map(|member| match self.array.rules.keep(Rule::RecoveryPromisesDurable) {
                true => (member.id, member.durable.but_no_more_than(member.promise(end))),
                false => (member.id, member.promise(end).sector()),
            })
            .collect();
        for member in self.members.iter_mut().filter(|member| member.is_live()) {
            member.take_late_list();
            let (replaces, lists) = (member.replaces(), !member.log.is_empty());
            let superblock = &mut member.superblock;
            superblock.features = superblock.features.with(Features::BAD_BLOCKS, lists);
            superblock.events = events;
            superblock.utime = now;
            superblock.resync_offset_sectors = resync;
            superblock.roles.clone_from(&roles);
            superblock.recovery_offset_sectors =
                promised.iter().find(|(id, _)| *id == member.id).map(|(_, sector)| *sector);
            superblock.features = superblock.features.with(Features::REPLACEMENT, replaces);
            // Whoever goes on with the recovery copies only what the bitmap marks.
            let by_bitmap = superblock.recovery_offset_sectors.is_some()
                && self.sync.by_bitmap.contains(&member.id);
            superblock.features = superblock.features.with(Features::RECOVERY_BITMAP, by_bitmap);
        }
        if let Some(bitmap) = &mut self.bitmap {
            bitmap.header.events = events;
        }
    }

    fn roles(&self) -> Vec<Role> {
        let longest = self.members.iter().map(|member| member.superblock.roles.len()).max();
        let mut roles = vec![Role::Spare; longest.unwrap_or(0)];
        for member in &self.members {
            let number = member.superblock.dev_number as usize;
            if number >= roles.len() {
                roles.resize(number + 1, Role::Spare);
            }
            roles[number] = match member.role() {
                Role::Faulty if !self.array.rules.keep(Rule::SurvivorsCallItFaulty) => {
                    member.superblock.own_role()
                }
                role => role,
            };
        }
        roles
    }

    /// Non-zero only while the array is marked clean: md resyncs a dirty array from that sector on
    /// and never looks below it.
    fn resync_offset(&self) -> u64 {
        match self.mode {
            _ if !self.is_redundant() => RESYNC_NONE,
            WriteMode::Open | WriteMode::Closing | WriteMode::Broken => 0,
            _ if !self.array.rules.keep(Rule::ResyncPromisesDurable) => {
                self.resync_readable().sector()
            }
            _ => self.resynced.but_no_more_than(self.resync_readable()),
        }
    }

    /// Writes superblocks as they are here, and keeps in mind what stands on the devices then.
    pub(super) async fn write_superblocks(
        &mut self,
        wanted: &dyn Fn(&Member) -> bool,
    ) -> Vec<(MemberId, IoError)> {
        let is_written = |member: &Member| member.is_live() && wanted(member);
        let live = self.members.iter().filter(|member| is_written(member));
        let writes = live.map(|member| {
            let sector = member.superblock.place.sector;
            self.write_with_room(member, sector, member.superblock.encode_sectors())
        });
        let failed = failures(join_all(writes).await);
        let has_failed = |member: &Member| failed.iter().any(|(id, _)| *id == member.id);
        for member in self.members.iter_mut().filter(|member| is_written(member)) {
            if !has_failed(member) {
                member.behind = None;
                member.recorded_sectors = promised_sectors(&member.superblock);
                member.list_is_on_record =
                    member.superblock.features.contains(Features::BAD_BLOCKS);
            }
        }
        failed
    }

    /// Writes metadata that no other place can take, durably. A member in sync that has no space for it is not failed
    /// at once: the file system below may get room, and it holds the same on all members that lie on it.
    pub(super) async fn write_with_room(
        &self,
        member: &Member,
        sector: u64,
        bytes: Vec<u8>,
    ) -> Result<(), (MemberId, IoError)> {
        let may_wait = matches!(member.state, MemberState::InSync(_));
        let until = self.lane.lived() + self.patience_span();
        loop {
            let written = self.write_metadata(member, sector, &bytes).await;
            let has_room =
                !matches!(written, Err((_, error)) if error.kind.scope() == Scope::Space);
            if has_room || !may_wait || self.lane.lived() >= until {
                return self.or_leaves(written);
            }
            let again = async {
                self.lane.live_until(self.lane.lived() + ROOM_AGAIN).await;
                Ok(())
            };
            self.answer_of(member, again).await?;
        }
    }

    /// The answer of a member that goes where it is an error. It is distrusted from then on: the others, which are
    /// waited for, may take long.
    fn or_leaves(
        &self,
        answer: Result<(), (MemberId, IoError)>,
    ) -> Result<(), (MemberId, IoError)> {
        answer.inspect_err(|(member, error)| self.array.member_leaves(*member, *error))
    }

    /// Writes metadata of one member, durably.
    pub(super) async fn write_metadata(
        &self,
        member: &Member,
        sector: u64,
        bytes: &[u8],
    ) -> Result<(), (MemberId, IoError)> {
        let op = metadata_write(&member.info, sector, bytes);
        let durable = DurableWrite::begin(&self.array, member.id, false);
        let written = self.ask(member, op).await;
        durable.end(written.map_err(|(_, error)| error));
        written
    }

    /// Asks a member for something that it is failed over if it takes too long.
    pub(super) async fn ask(&self, member: &Member, op: IoOp) -> Result<(), (MemberId, IoError)> {
        let io = MemberIo { member: member.id, op, patience: Patience::of(self.patience_span()) };
        self.answer_of(member, async { self.lane.io(io).await.result }).await
    }

    /// Waits for what a member answers. A lane that has waited for it as long already has the last word: its
    /// write is not to wait twice.
    pub(super) async fn answer_of(
        &self,
        member: &Member,
        answer: impl Future<Output = Result<(), IoError>>,
    ) -> Result<(), (MemberId, IoError)> {
        let told = async { Err(self.array.mailbox.failure_of(member.id).await) };
        let answer = first_of(answer, told).await;
        // Whatever it was for: no member is failed for it, and no more metadata are written.
        let reserved = |error: &IoError| error.kind.scope() == Scope::Array;
        self.is_reserved.set(self.is_reserved.get() || answer.is_err_and(|error| reserved(&error)));
        answer.map_err(|error| (member.id, error))
    }

    /// The same for what may go on when its time is over.
    pub(super) async fn answer_in_time(
        &self,
        member: &Member,
        answer: impl Future<Output = Result<(), IoError>>,
    ) -> Result<(), (MemberId, IoError)> {
        let late = self.late_after(self.patience_span());
        self.answer_of(member, first_of(answer, late)).await
    }

    /// What a member has answered that has not answered for so long.
    pub(super) async fn late_after(&self, span: Duration) -> Result<(), IoError> {
        self.lane.live_until(self.lane.lived() + span).await;
        Err(IoError { kind: IoErrorKind::Deadline, errno: 0 })
    }

    /// Makes durable what one member was given.
    pub(super) async fn flush_member(&self, index: usize) -> Result<(), (MemberId, IoError)> {
        self.flush(&self.members[index]).await
    }

    async fn flush(&self, member: &Member) -> Result<(), (MemberId, IoError)> {
        let flushed = async {
            let patience = Patience::of(self.patience_span());
            Flush::new(&self.array, &self.lane, member.id, patience).await?;
            self.array.flushes.what_is_behind(member.id).await
        };
        let told = async { Err(self.array.mailbox.failure_of(member.id).await) };
        // One of a lane, which may wait for ever, is waited for first.
        let late = self.late_after(PATIENCE_WITHOUT_DEADLINE);
        let waits_for_ever = self.array.settings.write_patience() == Patience::FOREVER;
        let flushed = first_of(flushed, told);
        let flushed = match waits_for_ever {
            true => first_of(flushed, late).await,
            false => flushed.await,
        };
        flushed.map_err(|error| (member.id, error))
    }

    /// How long a member may take for what the controller asks. While it waits nothing else is decided, so
    /// that has an end also where the user's writes have none.
    pub(super) fn patience_span(&self) -> Duration {
        self.array.settings.write_patience().span().unwrap_or(PATIENCE_WITHOUT_DEADLINE)
    }

    /// Makes durable what all members were given, and how far they are filled and resynced by that. A
    /// member that fails is taken out; false when the array broke over it.
    pub(super) async fn flush_members(&mut self) -> bool {
        let reached = self.reached();
        let live = self.members.iter().filter(|member| member.is_written());
        let flushes = live.map(|member| async { self.or_leaves(self.flush(member).await) });
        let mut failed = failures(join_all(flushes).await);
        // What lost its cache may have told that to another I/O, when its flush had ended.
        failed.extend(self.array.failed_meanwhile(&self.array.views.current(), &failed));
        let leaving = self.leaving_failed(failed).await;
        self.is_durable_but_on(&leaving, &reached);
        if !leaving.is_empty() && !self.take_out(&leaving).await {
            return false;
        }
        self.resync_is_durable(&reached, &FlushReceipt::of_all_members());
        true
    }
}

/// A durable write of metadata. What follows in the last logical block belongs to the same metadata, and
/// is zero.
pub(super) fn metadata_write(info: &MemberInfo, sector: u64, bytes: &[u8]) -> IoOp {
    let whole = bytes.len().next_multiple_of(info.logical_block_bytes as usize);
    let mut buffer = Buffer::zeroed(whole);
    buffer[..bytes.len()].copy_from_slice(bytes);
    IoOp::Write { sector, from: WriteFrom::Buffer(buffer, 0..whole), fua: true }
}

/// A read that tells whether a member answers.
pub(super) fn probe(sector: u64) -> IoOp {
    let into = ReadInto::Buffer(Buffer::zeroed(SUPERBLOCK_BYTES), 0..SUPERBLOCK_BYTES);
    IoOp::Read { sector, into }
}

pub(super) fn failures(results: Vec<Result<(), (MemberId, IoError)>>) -> Vec<(MemberId, IoError)> {
    results.into_iter().filter_map(Result::err).collect()
}

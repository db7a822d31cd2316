//! Members that fail, leave and come.

use mdspace_format::placement::{ArrayPlacement, BitmapPlacement};
use mdspace_format::superblock::{MAX_ROLES, MemberFlags};
use mdspace_format::{Features, Role, Superblock, Uuid};

use crate::assembly::{larger_block, misfit};
use crate::backend::{IoError, IoErrorKind, MemberId, MemberInfo, Scope};
use crate::geometry::{Geometry, Slot};
use crate::ranges::Ranges;

use super::super::mailbox::Failure;
use super::super::points::Point;
use super::super::rules::Rule;
use super::bitmap::Bitmap;
use super::leaving::Leaving;
use super::lost::Loss;
use super::{CommandError, Controller, Member, MemberState, Reply, WriteMode};

/// A superblock names no more members than it has room for.
const NO_NUMBER: &str = "the superblocks have no number left for another member";

/// A device that left and may still do what it was asked.
pub(super) struct Departed {
    pub(super) id: MemberId,
    pub(super) name: String,
    pub(super) device_uuid: Uuid,
    number: u32,
}

/// Which blocks a member counts as lacking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lacks {
    /// Those that lanes do not read now.
    Now,
    /// Those that are not read after a restart either: memory alone lists the others.
    ForGood,
}

impl Controller {
    /// Takes members out that failed an I/O. The writes that found out wait until this is settled:
    /// durable on the survivors and adopted by every lane.
    pub(super) async fn members_failed(&mut self, failures: &[Failure]) {
        let known = failures.iter().filter(|failure| {
            let index = self.index_of(failure.member);
            index.is_some_and(|index| self.members[index].is_live())
        });
        let (must, may): (Vec<&Failure>, Vec<&Failure>) =
            known.partition(|failure| !failure.if_borne);
        let error_of = |failure: &Failure| (failure.member, failure.error);
        let must = must.into_iter().map(error_of).collect();
        // Those that need not go do so only as far as the rest suffices: two members that meet an unreadable sector
        // each must not take the array down.
        let may = may.into_iter().map(error_of).collect();
        let leaving = self.leaving(must, may, Self::may_give_up).await;
        self.give_up_later(leaving.put_off());
        if leaving.is_empty() {
            return self.array.views.settle();
        }
        self.take_out(&leaving).await;
    }

    /// Whether what is left without these members is enough of them, as the level counts. A replacement counts that
    /// has all of its slot.
    pub(super) fn bears_loss_of(&self, lost: &[MemberId]) -> bool {
        let left = |slot: Slot| {
            let holds = |member: &Member| match member.state {
                MemberState::InSync(held) => held == slot && !lost.contains(&member.id),
                MemberState::Replacing(held, _) => held == slot && self.is_heir(member.id, lost),
                _ => false,
            };
            self.members.iter().any(holds)
        };
        self.is_redundant() && self.geometry.enough(&left)
    }

    /// Takes members out: no lane reads them, and the survivors' superblocks say so, or the array is
    /// broken and nothing says so. False when it is.
    pub(super) async fn take_out(&mut self, leaving: &Leaving) -> bool {
        let enough = self.mark_faulty(leaving);
        self.publish();
        self.array.points.reach(Point::MemberIsOut);
        if !self.array.rules.keep(Rule::SurvivorsRecordWhatIsSettled) {
            self.array.views.settle();
        }
        let recorded = enough && self.update_superblocks().await;
        if self.array.rules.keep(Rule::LanesAdoptWhatIsSettled) {
            self.array.views.adopted(self.array.views.epoch()).await;
        }
        self.have_left();
        self.array.views.settle();
        recorded
    }

    /// Who is out has left: every lane has a view without it.
    pub(super) fn have_left(&self) {
        let is_out = |id| self.members.iter().all(|member| member.id != id || !member.is_live());
        self.array.flushes.have_left(is_out);
    }

    /// Marks members faulty, if the array can do without them. If not, nothing of it goes to disk:
    /// the array stops writing, and comes back whole by a plain assemble when the members return.
    pub(super) fn mark_faulty(&mut self, leaving: &Leaving) -> bool {
        if self.is_reserved.get() || leaving.iter().any(|(_, error)| is_of_the_array(error)) {
            // Another host has the members, and nothing is wrong with them.
            self.mode = WriteMode::Broken;
            self.end_sync();
            return false;
        }
        let lost_before = self.lost_now();
        self.accepted_without(leaving);
        self.take_back_what_was_filled(leaving);
        let lost: Vec<MemberId> = leaving.iter().map(|(id, _)| *id).collect();
        let enough = self.bears_loss_of(&lost);
        if enough {
            self.promote_filled(&lost);
            self.is_unrecorded |= self.mode == WriteMode::ReadOnly;
        }
        for (id, error) in leaving.iter() {
            let Some(index) = self.index_of(*id) else { continue };
            let member = &mut self.members[index];
            match member.state {
                MemberState::InSync(slot) if !enough => {
                    // What it can still read, it may.
                    if !matches!(error.kind.scope(), Scope::Sectors | Scope::Space) {
                        member.state = MemberState::Lost(slot);
                    }
                }
                MemberState::Lost(_) => {}
                _ => member.state = MemberState::Faulty,
            }
        }
        if !enough {
            self.mode = WriteMode::Broken;
        }
        self.promote_replacements();
        self.trust_initial_parity();
        self.end_sync();
        // Flushes counted on who goes.
        if enough {
            let mut lost = self.lost_now();
            lost_before.iter().for_each(|range| lost.remove(&range));
            if !lost.is_empty() {
                self.array.behind.one_is_lost();
            }
        }
        enough
    }

    /// Before the first resync is through, every block that was ever written has right parity,
    /// because writes there compute it from all the data; unless one ended half-way. Where as many
    /// members lack their block as there are parities, nothing is left that could disagree. With one
    /// parity more than that, the two may still disagree where nothing was written: resync goes on.
    pub(super) fn trust_initial_parity(&mut self) {
        if let Geometry::Parity(map) = &*self.geometry {
            let comparable_to = map.comparable_to(|slot| self.filled_to(slot));
            self.unsynced.remove(&(comparable_to..u64::MAX));
            if self.array.rules.keep(Rule::DoubtOutlivesFailures) {
                self.doubted.iter().for_each(|range| self.unsynced.insert(range));
            } else {
                self.doubted = Ranges::default();
                self.unaccepted = Ranges::default();
                self.accepted_for_all = Ranges::default();
            }
        }
    }

    /// Where, in member sectors, as many members lack their blocks as a row has parities: for good, or as lanes count.
    /// Of copies it is nowhere.
    pub(super) fn nothing_disagrees(&self, lacks: Lacks) -> Ranges {
        let Geometry::Parity(map) = &*self.geometry else { return Ranges::default() };
        self.lacked_by(map.parity_disks().into(), lacks)
    }

    /// Where, in member sectors, so many slots or more have no block that may be read.
    pub(super) fn lacked_by(&self, count: usize, counts: Lacks) -> Ranges {
        let mut lacked = vec![Ranges::default(); count];
        for slot in (0..self.geometry.raid_disks()).map(Slot) {
            let holder = self.members.iter().find(|member| member.slot() == Some(slot));
            let mut lacks = holder.map_or(Ranges::of(0..u64::MAX), Member::not_filled);
            if let Some(member) = holder {
                let mut bad = Ranges::clone(&member.bad);
                if counts == Lacks::ForGood && self.array.rules.keep(Rule::UnreadMayBeReadAgain) {
                    member.bad_in_memory().iter().for_each(|range| bad.remove(&range));
                }
                bad.iter().for_each(|range| lacks.insert(range));
            }
            // What was lacked once is lacked twice where this member lacks it too.
            for times in (1..lacked.len()).rev() {
                let both = lacked[times - 1].both(&lacks);
                both.iter().for_each(|range| lacked[times].insert(range));
            }
            lacks.iter().for_each(|range| lacked[0].insert(range));
        }
        lacked.pop().unwrap_or_default()
    }

    /// Up to where, in member sectors, the member of a slot has its blocks. What a recovery has begun counts:
    /// windows under way were computed with a member that may be gone now.
    fn filled_to(&self, slot: Slot) -> u64 {
        let holder = self.members.iter().find(|member| member.slot() == Some(slot));
        match holder.map(|member| (member.id, member.state)) {
            Some((_, MemberState::InSync(_))) => u64::MAX,
            Some((id, MemberState::Recovering(_, done))) => done.sector().max(self.begun_to(id)),
            _ => 0,
        }
    }

    pub(super) async fn fail(&mut self, id: MemberId, force: bool) -> Result<Reply, CommandError> {
        let index = self.index_of(id).ok_or(CommandError::NotAMember)?;
        if !self.is_redundant() {
            return Err(CommandError::NoRedundancy);
        }
        if !self.members[index].is_live() {
            return Ok(Reply::Done);
        }
        let by_order = vec![(id, IoError { kind: IoErrorKind::Other, errno: 0 })];
        loop {
            // Nothing rests on a spare.
            let is_spare =
                self.members.iter().any(|one| one.id == id && one.state == MemberState::Spare);
            let leaving = if is_spare {
                Leaving::of(by_order.clone())
            } else if force {
                self.leaving_failed(by_order.clone()).await
            } else {
                self.refuse_loss_of(id)?;
                self.leaving(Vec::new(), by_order.clone(), |_| true).await
            };
            if !leaving.put_off().is_empty() {
                return Err(CommandError::IsWritten);
            }
            if leaving.is_empty() && leaving.late().is_empty() {
                // What is known of writes has changed while the others were asked.
                continue;
            }
            if leaving.is_empty() {
                return Err(CommandError::NeedsLate { late: self.names_of(leaving.late()) });
            }
            let stands = self.take_out(&leaving).await;
            let is_out = |member: &Member| member.id == id && !member.is_live();
            if leaving.has(id) && self.members.iter().any(is_out) {
                return Ok(Reply::Done);
            }
            if !stands {
                return Err(self.broken());
            }
            // Others turned out to be gone: the order is judged without them.
        }
    }

    fn names_of(&self, members: &[MemberId]) -> String {
        let named = self.members.iter().filter(|member| members.contains(&member.id));
        named.map(|member| &*member.info.name).collect::<Vec<_>>().join(", ")
    }

    /// Says what would be lost without a member that still works.
    fn refuse_loss_of(&self, id: MemberId) -> Result<(), CommandError> {
        match self.loss_of(&[id]) {
            Loss::Nothing => Ok(()),
            Loss::Sectors(sectors) => Err(CommandError::HoldsAlone { sectors }),
            Loss::Behind(writes) => Err(CommandError::IsAhead { writes }),
            Loss::Copy(sectors) => Err(CommandError::IsRead { sectors }),
            Loss::Array => Err(CommandError::Needed),
        }
    }

    pub(super) async fn remove(&mut self, id: MemberId) -> Result<Reply, CommandError> {
        let index = self.index_of(id).ok_or(CommandError::NotAMember)?;
        match self.members[index].state {
            MemberState::Faulty | MemberState::Spare | MemberState::Lost(_) => {}
            _ => return Err(CommandError::Active),
        }
        // All may be faulty, once the array is broken.
        if self.members.len() == 1 {
            return Err(CommandError::LastMember);
        }
        let gone = self.members.remove(index);
        self.remember(id, &gone.info, &gone.superblock).await;
        self.update_superblocks().await;
        Ok(Reply::Done)
    }

    /// Keeps in mind the devices that left and have not answered everything: until they have, they are not
    /// taken back, and their numbers stay theirs. What their flushes have told counts until lanes have taken the last answer.
    pub(super) async fn remember(&mut self, id: MemberId, info: &MemberInfo, borne: &Superblock) {
        let Superblock { device_uuid, dev_number: number, .. } = *borne;
        self.departed.push(Departed { id, name: info.name.clone(), device_uuid, number });
        let handles = self.departed.iter().map(|gone| gone.id).collect();
        let holding = self.still_hold(handles).await;
        let is_over = |gone: &mut Departed| !holding.contains(&gone.id);
        let over: Vec<Departed> = self.departed.extract_if(.., is_over).collect();
        if !over.is_empty() {
            let epoch = self.publish();
            self.array.views.adopted(epoch).await;
            self.array.views.settle();
        }
        over.iter().for_each(|gone| self.array.flushes.forget(gone.id));
    }

    /// Whether a device that was out can go back to its slot with only the bitmap's chunks copied.
    pub(super) fn way_back(
        &self,
        mut old: Superblock,
        info: &MemberInfo,
    ) -> Result<(Superblock, Slot), String> {
        let model = &self.model().superblock;
        let bitmap = self.bitmap.as_ref().ok_or("the array has no bitmap")?;
        let same = old.set_uuid == model.set_uuid
            && old.level == model.level
            && old.layout == model.layout
            && old.chunk_sectors == model.chunk_sectors
            && old.size_sectors == model.size_sectors
            && old.raid_disks == model.raid_disks;
        if !same {
            return Err("it belongs to another array".to_owned());
        }
        let known =
            old.features.contains(Features::BITMAP_OFFSET) && old.unsupported_features().is_empty();
        let is_half_filled = old.recovery_offset_sectors.is_some()
            && self.array.rules.keep(Rule::HalfFilledAreFilled);
        if !known || is_half_filled {
            return Err("it was not a whole member with a bitmap when it left".to_owned());
        }
        let Role::Slot(slot) = old.own_role() else {
            return Err("it had no slot when it left".to_owned());
        };
        if self.is_held(Slot(slot)) {
            return Err(format!("slot {slot} has another member by now"));
        }
        if let Some(reason) = misfit(&old, info, self.port.block_bytes()) {
            return Err(reason);
        }
        if !old.has_room_for(&bitmap.header, info.logical_block_bytes) {
            return Err("it has no room for the array's bitmap".to_owned());
        }
        let lists = old.features.contains(Features::BAD_BLOCKS);
        if lists && self.array.rules.keep(Rule::ListedMembersAreFilled) {
            return Err("it lists bad blocks".to_owned());
        }
        let same = self.array.rules.keep(Rule::ReturnsAmongTheSame);
        if same && !self.ran_with_the_others(&old) {
            return Err("it does not know the members that are in sync now".to_owned());
        }
        let cleared = self.array.rules.keep(Rule::BitmapKnowsTheReturn);
        if cleared && old.events < bitmap.header.events_cleared {
            return Err("it left before the bitmap was last cleared".to_owned());
        }
        let number = old.dev_number;
        let twin = |member: &Member| member.is_live() && member.superblock.dev_number == number;
        if self.members.iter().any(twin) {
            old.dev_number = self.free_number().ok_or(NO_NUMBER)?;
        }
        Ok((old, Slot(slot)))
    }

    /// Requests are in blocks of the array, and a member must take each of them.
    pub(super) fn check_blocks(&self, info: &MemberInfo) -> Result<(), CommandError> {
        match larger_block(info, self.port.block_bytes()) {
            Some(reason) => Err(CommandError::BlocksDoNotFit(reason)),
            None => Ok(()),
        }
    }

    /// Whether a member that was out was one of those that are in sync now, and nothing happened to
    /// it without them: only then do their bits tell all that it missed.
    fn ran_with_the_others(&self, old: &Superblock) -> bool {
        let knows = |member: &Member| match member.state {
            MemberState::InSync(slot) => {
                let number = member.superblock.dev_number as usize;
                old.roles.get(number) == Some(&Role::Slot(slot.0))
            }
            _ => true,
        };
        old.events <= self.events && self.members.iter().all(knows)
    }

    /// A failed member that comes back under a new handle replaces its old self.
    pub(super) fn forget_twin(&mut self, superblock: &Superblock) {
        let twin = |member: &Member| {
            !member.is_live() && member.superblock.device_uuid == superblock.device_uuid
        };
        self.members.retain(|member| !twin(member));
    }

    /// A superblock for a device that is new to the array, placed as the others are.
    pub(super) fn new_superblock(&self, info: &MemberInfo) -> Result<Superblock, CommandError> {
        let model = &self.model().superblock;
        let bitmap = self.bitmap.as_ref().map(|bitmap| BitmapPlacement {
            offset_sectors: model.bitmap_offset_sectors,
            chunk_bytes: bitmap.header.chunk_bytes,
            sync_size_sectors: bitmap.header.sync_size_sectors,
        });
        let placement = ArrayPlacement {
            version: model.place.version,
            data_offset_sectors: model.data_offset_sectors,
            size_sectors: model.size_sectors,
            bitmap,
        };
        let no_number = || CommandError::DoesNotFit(NO_NUMBER.to_owned());
        let dev_number = self.free_number().ok_or_else(no_number)?;
        let parts = placement
            .member(info.sectors)
            .map_err(|error| CommandError::DoesNotFit(error.to_string()))?;
        let random = || self.lane.backend().random().to_le_bytes();
        let mut device_uuid = [0; 16];
        device_uuid[..8].copy_from_slice(&random());
        device_uuid[8..].copy_from_slice(&random());
        let of_one = Features::BAD_BLOCKS | Features::RECOVERY_BITMAP | Features::REPLACEMENT;
        let mut superblock = Superblock {
            place: parts.place,
            features: model.features.with(of_one, false),
            data_offset_sectors: parts.data_offset_sectors,
            data_size_sectors: parts.data_size_sectors,
            bad_block_log: parts.bad_block_log,
            recovery_offset_sectors: None,
            dev_number,
            corrected_reads: 0,
            device_uuid: Uuid(device_uuid),
            flags: MemberFlags::default(),
            ..model.clone()
        };
        // md takes any place for a bitmap, so that of the list may be taken.
        if !self.keeps_apart(&superblock, info) {
            superblock.bad_block_log = None;
        }
        if !self.keeps_apart(&superblock, info) {
            return Err(CommandError::DoesNotFit("it has no room for the bitmap".to_owned()));
        }
        match misfit(&superblock, info, self.port.block_bytes()) {
            Some(reason) => Err(CommandError::BlocksDoNotFit(reason)),
            None => Ok(superblock),
        }
    }

    /// Whether what a superblock points to lies on its device, each part for itself.
    fn keeps_apart(&self, superblock: &Superblock, info: &MemberInfo) -> bool {
        let has_room =
            |bitmap: &Bitmap| superblock.has_room_for(&bitmap.header, info.logical_block_bytes);
        superblock.validate(info.sectors).is_ok() && self.bitmap.as_ref().is_none_or(has_room)
    }

    /// A member whose superblock stands for the array's.
    pub(super) fn model(&self) -> &Member {
        let live = self.members.iter().find(|member| member.slot().is_some());
        live.or(self.members.first()).expect("an array has members")
    }

    /// Whether a slot has a member, in sync or on its way to it.
    pub(super) fn is_held(&self, slot: Slot) -> bool {
        self.members.iter().any(|member| match member.state {
            MemberState::InSync(held)
            | MemberState::Recovering(held, _)
            | MemberState::Lost(held) => held == slot,
            MemberState::Replacing(..) | MemberState::Spare | MemberState::Faulty => false,
        })
    }

    /// A number for a new member. As with md, none of those that the array was made with: where two
    /// halves ran apart, each with a new member, their old ones must not look like those.
    fn free_number(&self) -> Option<u32> {
        let taken = |number: &u32| {
            let numbers = self.members.iter().map(|member| member.superblock.dev_number);
            let late = self.departed.iter().map(|gone| gone.number);
            numbers.chain(late).any(|taken| taken == *number)
        };
        let first = u32::from(self.geometry.raid_disks());
        (first..MAX_ROLES as u32).find(|number| !taken(number))
    }
}

/// Whether no member is to be failed for it: another host has reserved the device.
fn is_of_the_array(error: &IoError) -> bool {
    error.kind.scope() == Scope::Array
}

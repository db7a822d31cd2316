//! Devices that are taken in.
//!
//! What a device says and what is written to it before it is a member is done beside the controller: a
//! device that does not answer delays only the order that adds it. The controller decides between the
//! steps, each time by what the array is then.

use std::sync::Arc;
use std::time::Duration;

use mdspace_format::{BadBlockLog, Superblock};

use crate::assembly;
use crate::backend::{IoOp, MemberId, MemberInfo, MemberIo, Patience};
use crate::erase;
use crate::geometry::Slot;
use crate::lane::{Lane, first_of};

use super::super::points::Point;
use super::super::rules::Rule;
use super::bitmap::Part;
use super::metadata::metadata_write;
use super::progress::{Durable, Readable};
use super::{Command, CommandError, Controller, Member, MemberState, Reply};

/// How long a device may take for each step.
const STEP_PATIENCE: Duration = Duration::from_secs(10);

/// A device on its way into the array.
pub(in crate::array) struct Admission {
    order: Order,
    step: Step,
}

/// What was ordered, and who is to hear how it ended.
struct Order {
    id: MemberId,
    info: MemberInfo,
    /// It is refused where it cannot go back by the bitmap.
    only_back: bool,
    command: Command,
}

enum Step {
    /// It was read. It bears this superblock.
    Probed(Option<Box<Superblock>>),
    /// All that its superblock will point to is on it.
    Prepared(Box<Newcomer>),
    NotRead(CommandError),
    /// What was written to it may still land.
    NotPrepared(Box<Newcomer>, String),
}

/// What a device is to be.
struct Newcomer {
    superblock: Superblock,
    /// The slot to which it goes back by the bitmap.
    back_to: Option<Slot>,
    /// The superblock that it came with.
    found: Option<Box<Superblock>>,
}

impl Admission {
    /// Answers whoever ordered it: nobody takes the device in any more.
    pub(in crate::array) fn refuse(self) {
        let error = match self.step {
            Step::NotPrepared(_, why) => CommandError::MayLand(why),
            _ => CommandError::Stopped,
        };
        self.order.answer(Err(error));
    }
}

impl Order {
    fn answer(self, result: Result<Reply, CommandError>) {
        (self.command.reply)(result);
    }
}

impl Controller {
    /// Looks at the device first; [`Self::go_on_with`] decides.
    pub(super) async fn begin_to_add(
        &mut self,
        id: MemberId,
        info: MemberInfo,
        only_back: bool,
        command: Command,
    ) {
        let order = Order { id, info, only_back, command };
        if let Err(error) = self.may_take_in(&order, None).await {
            return order.answer(Err(error));
        }
        let (lane, wanted) = (self.lane.clone(), Some(self.model().superblock.set_uuid));
        self.beside(order, async move |order| {
            let reading = assembly::read_counting(&lane, order.id, &order.info, wanted);
            match within(&lane, reading).await {
                Ok(found) => {
                    let found = found.ok().flatten().map(|counting| counting.superblock);
                    Step::Probed(found.map(Box::new))
                }
                Err(why) => Step::NotRead(CommandError::Metadata(why)),
            }
        });
    }

    /// Decides on a device by what the last step showed.
    pub(super) async fn go_on_with(&mut self, admission: Admission) {
        let Admission { order, step } = admission;
        if matches!(step, Step::Prepared(_) | Step::NotPrepared(..)) {
            self.preparing -= 1;
        }
        let done = match step {
            Step::NotRead(error) => Err(error),
            Step::NotPrepared(newcomer, why) => {
                // By what it bears: a new superblock has not been written.
                let borne = newcomer.found.as_deref().unwrap_or(&newcomer.superblock);
                self.remember(order.id, &order.info, borne).await;
                let owes = self.departed.iter().any(|gone| gone.id == order.id);
                Err(if owes { CommandError::MayLand(why) } else { CommandError::Metadata(why) })
            }
            Step::Probed(found) => match self.newcomer(&order, found).await {
                Ok(newcomer) => return self.prepare(order, newcomer).await,
                Err(error) => Err(error),
            },
            // Writes went on meanwhile, and members may have come and gone.
            Step::Prepared(prepared) => match self.newcomer(&order, prepared.found.clone()).await {
                Ok(now) if now.back_to == prepared.back_to => self.take_in(&order, now).await,
                Ok(other) => return self.prepare(order, other).await,
                Err(error) => Err(error),
            },
        };
        order.answer(done);
    }

    /// Refuses what cannot be taken in now: for what the array is, or for what the device is.
    async fn may_take_in(
        &mut self,
        order: &Order,
        found: Option<&Superblock>,
    ) -> Result<(), CommandError> {
        if !self.is_redundant() {
            return Err(CommandError::NoRedundancy);
        }
        if self.stop.is_some() {
            return Err(CommandError::Stopped);
        }
        self.takes_writes()?;
        let at_work = |member: &Member| {
            let same = |old: &Superblock| member.superblock.device_uuid == old.device_uuid;
            member.is_live() && (member.id == order.id || found.is_some_and(same))
        };
        if self.members.iter().any(at_work) {
            return Err(CommandError::DoesNotFit("it is a member at work already".to_owned()));
        }
        self.check_blocks(&order.info)?;
        match self.array.rules.keep(Rule::QuietBeforeReuse)
            && self.owes_answers(order.id, &order.info, found).await
        {
            true => Err(CommandError::Unanswered),
            false => Ok(()),
        }
    }

    /// What a device would be to the array now.
    async fn newcomer(
        &mut self,
        order: &Order,
        found: Option<Box<Superblock>>,
    ) -> Result<Newcomer, CommandError> {
        self.may_take_in(order, found.as_deref()).await?;
        let back = match &found {
            Some(superblock) => self.way_back(Superblock::clone(superblock), &order.info),
            None => Err("it bears no superblock of this array".to_owned()),
        };
        let (superblock, back_to) = match back {
            Ok((superblock, slot)) => (superblock, Some(slot)),
            Err(reason) if order.only_back => return Err(CommandError::NotBack(reason)),
            Err(_) => (self.new_superblock(&order.info)?, None),
        };
        Ok(Newcomer { superblock, back_to, found })
    }

    /// Writes what a superblock points to before any superblock does.
    async fn prepare(&mut self, order: Order, newcomer: Newcomer) {
        let says_so = self.array.rules.keep(Rule::OutBeforeItsListGoes);
        if newcomer.back_to.is_none() && says_so {
            // Its bad-block log is cleared next. Before that the others say that it is out: after a crash
            // it would be believed without its list. Whatever could be read of it by now: it may be a member that
            // could not be read when the array started, and can be after the crash.
            if !self.update_superblocks().await {
                return order.answer(Err(self.broken()));
            }
        }
        let (place, is_new) = (newcomer.superblock.place, newcomer.back_to.is_none());
        let writes = self.before_the_superblock(&order.info, &newcomer);
        let lane = self.lane.clone();
        self.preparing += 1;
        self.beside(order, async move |order| {
            let (id, info) = (order.id, &order.info);
            let prepared = within(&lane, async {
                if is_new {
                    erase::other_superblocks(&lane, id, info, place).await?;
                }
                for op in writes {
                    let io = MemberIo { member: id, op, patience: Patience::of(STEP_PATIENCE) };
                    lane.io(io).await.result?;
                }
                Ok::<_, NotPrepared>(())
            });
            match prepared.await {
                Ok(Ok(())) => Step::Prepared(Box::new(newcomer)),
                Ok(Err(NotPrepared(why))) | Err(why) => Step::NotPrepared(Box::new(newcomer), why),
            }
        });
    }

    /// An empty bad-block log, and the bitmap as it is now.
    fn before_the_superblock(&self, info: &MemberInfo, newcomer: &Newcomer) -> Vec<IoOp> {
        let superblock = &newcomer.superblock;
        let mut writes = Vec::new();
        if let Some(log) = superblock.bad_block_log.filter(|_| newcomer.back_to.is_none())
            && let Some(sector) =
                superblock.place.sector.checked_add_signed(log.offset_sectors.into())
        {
            let bytes = BadBlockLog::new(log.shift).encode(log.size_sectors);
            writes.push(metadata_write(info, sector, &bytes));
        }
        if let Some(bitmap) = &self.bitmap {
            let pages = (0..bitmap.header.pages())
                .filter_map(|page| self.bitmap_part_of(superblock, info, Part::Page(page)));
            writes.extend(pages.map(|(sector, bytes)| metadata_write(info, sector, &bytes)));
        }
        writes
    }

    async fn take_in(&mut self, order: &Order, newcomer: Newcomer) -> Result<Reply, CommandError> {
        let Newcomer { superblock, back_to, .. } = newcomer;
        self.forget_twin(&superblock);
        self.array.flushes.forget(order.id);
        let by_bitmap = back_to.is_some();
        let state = match back_to {
            Some(slot) => MemberState::Recovering(slot, Readable::NOTHING),
            None => MemberState::Spare,
        };
        let log = BadBlockLog::new(superblock.bad_block_log.map_or(0, |log| log.shift));
        self.members.push(Member {
            id: order.id,
            info: order.info.clone(),
            superblock,
            state,
            durable: Durable::NOTHING,
            // Its first update is the array's next one: it has nothing to catch up on before.
            behind: None,
            recorded_sectors: 0,
            bad: Arc::default(),
            log,
            list_is_on_record: false,
            late_list: None,
            holes: Arc::default(),
            is_late: false,
            without_space: None,
            read_errors: super::ReadErrors::default(),
            wants_replacement: false,
        });
        if let Some(bitmap) = &mut self.bitmap {
            // Bits may have been set since its copy was written.
            bitmap.copies_differ = true;
        }
        // Under the same handle it may have been on its way back before.
        self.sync.by_bitmap.remove(&order.id);
        if by_bitmap {
            self.sync.by_bitmap.insert(order.id);
            let epoch = self.publish();
            self.array.views.adopted(epoch).await;
            self.array.views.settle();
        }
        self.array.points.reach(Point::MemberIsIn);
        let goes_on = self.update_superblocks().await;
        let is_in = |member: &Member| member.id == order.id && member.is_live();
        if goes_on && self.members.iter().any(is_in) {
            return Ok(Reply::Added { by_bitmap });
        }
        // Whoever ordered it closes the device, as any that was refused.
        if let Some(index) = self.index_of(order.id) {
            let gone = self.members.remove(index);
            self.remember(order.id, &gone.info, &gone.superblock).await;
        }
        match goes_on {
            true => Err(CommandError::Metadata("it failed in its first update".to_owned())),
            false => Err(self.broken()),
        }
    }

    /// Does a step beside the controller, and has it posted when it is done.
    fn beside(&self, order: Order, step: impl AsyncFnOnce(&Order) -> Step + 'static) {
        let array = self.array.clone();
        self.lane.spawn(async move {
            let step = step(&order).await;
            array.mailbox.admission(Admission { order, step });
        });
    }

    /// Whether this device, under whatever handle, has not answered everything that it was asked: an old
    /// write might land over what it is filled with.
    async fn owes_answers(
        &mut self,
        id: MemberId,
        info: &MemberInfo,
        found: Option<&Superblock>,
    ) -> bool {
        let was_it = |member: &&Member| {
            let same = |old: &Superblock| member.superblock.device_uuid == old.device_uuid;
            !member.is_live() && (member.info.name == info.name || found.is_some_and(same))
        };
        let mut handles: Vec<MemberId> =
            self.members.iter().filter(was_it).map(|member| member.id).collect();
        let gone = self.departed.iter().filter(|gone| {
            gone.name == info.name || found.is_some_and(|old| old.device_uuid == gone.device_uuid)
        });
        handles.extend(gone.map(|gone| gone.id));
        handles.push(id);
        !self.still_hold(handles).await.is_empty()
    }

    /// Which of these handles have not answered everything that any lane asked of them.
    pub(super) async fn still_hold(&mut self, handles: Vec<MemberId>) -> Vec<MemberId> {
        self.array.views.ask_who_holds(handles);
        let epoch = self.publish();
        self.array.views.adopted(epoch).await;
        self.array.views.settle();
        self.array.views.who_holds()
    }
}

/// Why a device could not be prepared.
struct NotPrepared(String);

impl From<crate::backend::IoError> for NotPrepared {
    fn from(error: crate::backend::IoError) -> Self {
        Self(error.to_string())
    }
}

/// Waits for a step of a device, and not for ever.
async fn within<T>(lane: &Lane, step: impl Future<Output = T>) -> Result<T, String> {
    let too_long = async {
        lane.live_until(lane.lived() + STEP_PATIENCE).await;
        Err(format!("no answer in {} s", STEP_PATIENCE.as_secs()))
    };
    first_of(async { Ok(step.await) }, too_long).await
}

//! Spares that arrays of one user give to each other: those whose `spare_group` is the same word.
//!
//! The process that needs a spare and has none asks the others over their control sockets. A spare goes
//! over only so: removed from the one array, its superblock erased and flushed through the locked file, its
//! lock released, added to the other by what it is, not by its name alone. Neither process stops or restarts
//! meanwhile. If one of the two dies on the way, the device is at worst a spare of no array.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mdspace_engine::array::Action;
use mdspace_engine::backend::MemberId;
use mdspace_engine::status::{ArrayState, ArrayStatus, MemberState, MemberStatus};
use mdspace_format::Uuid;
use mdspace_io::{Identity, path_of_name};

use super::under_way::{Begun, UnderWay};
use super::{ServingProcess, answers};
use crate::control::client::Client;
use crate::control::server::Replies;
use crate::control::{Reply, Request};
use crate::erasure::erase_superblocks;
use crate::events::Happened;
use crate::failure::{Code, Failure};
use crate::member_probe::{FoundSuperblock, Look, Probed, superblocks};
use crate::run_dir::{RunDir, Running};

/// Between two rounds through the group.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// How long another process may take for one answer: it flushes a device and waits for its lock.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a spare may take to show what it is, and to be erased.
const LOOKED_AT_WITHIN: Duration = Duration::from_secs(5);
const ERASED_WITHIN: Duration = Duration::from_secs(5);

/// How long a stop waits for a spare on its way, and one by force. The process does not end before it has arrived.
const ARRIVES_WITHIN: Duration = Duration::from_secs(30);
const ARRIVES_WITHIN_BY_FORCE: Duration = Duration::from_secs(5);

/// How long an array that is being restarted may take to have its spare back, and between two tries.
const IS_BACK_WITHIN: Duration = Duration::from_secs(60);
const TRY_AGAIN_AFTER: Duration = Duration::from_millis(200);

/// How long a taker may take to have its spare, or to give it back, and between two looks whether it has.
const IS_SOMEWHERE_WITHIN: Duration = Duration::from_secs(180);
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(50);

/// How long a spare is not asked for again that was not taken, and went back.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// The group of an array, and the search for a spare in it.
pub(super) struct SpareGroup {
    run_dir: RunDir,
    name: Mutex<Option<String>>,
    asked: Mutex<Option<Instant>>,
    asking: AtomicBool,
    on_their_way: UnderWay,
    /// Spares that were not taken, by name, and when.
    refused: Mutex<Vec<(String, Instant)>>,
}

/// What an array wants of a spare.
pub(super) struct Wanted {
    /// It has at least so many bytes.
    pub(super) bytes: u64,
    /// It is none of these, by name.
    pub(super) but_for: Vec<String>,
}

/// A spare may be on its way as long as the value lives: the array is not stopped or restarted meanwhile.
pub(super) struct Move<'a> {
    _way: Begun<'a>,
    _change: Begun<'a>,
}

impl SpareGroup {
    pub(super) fn new(run_dir: RunDir) -> Self {
        let (name, asked, asking, on_their_way, refused) = Default::default();
        Self { run_dir, name, asked, asking, on_their_way, refused }
    }

    /// Lets no spare come or go any more, and waits for those on their way, before the array is stopped.
    /// Gives a line for the user where one is still on its way.
    pub(super) fn end_moves(&self, force: bool) -> Option<String> {
        let patience = if force { ARRIVES_WITHIN_BY_FORCE } else { ARRIVES_WITHIN };
        let are_over = self.on_their_way.end(patience);
        let note =
            "a spare is on its way between two arrays: the process ends when that has arrived";
        (!are_over).then(|| note.to_owned()).inspect(|note| tracing::warn!("{note}"))
    }

    /// Waits until no spare is on its way. There is an end to each step of that.
    pub(super) fn wait_for_moves(&self) {
        while !self.on_their_way.end(ARRIVES_WITHIN) {}
    }

    /// Where this array runs.
    pub(super) fn run_dir(&self) -> &RunDir {
        &self.run_dir
    }

    /// The group; none for an array that stands alone.
    pub(super) fn name(&self) -> Option<String> {
        self.name.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Joins a group; the empty word leaves it.
    pub(super) fn set_name(&self, word: &str) {
        let name = Some(word.to_owned()).filter(|word| !word.is_empty());
        *self.name.lock().unwrap_or_else(PoisonError::into_inner) = name;
        // Whoever waits for a spare need not wait for the next round.
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// A spare was not taken.
    fn refuse(&self, member: &str) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.push((member.to_owned(), Instant::now()));
    }

    /// Spares that were not taken since this round began, or a short time before.
    fn refused(&self) -> Vec<String> {
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.iter().map(|(name, _)| name.clone()).collect()
    }

    /// Whether it is time to ask, and nobody does.
    fn begin(&self) -> bool {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let due = asked.is_none_or(|when| when.elapsed() >= ASK_EVERY);
        if !due || self.asking.swap(true, Ordering::AcqRel) {
            return false;
        }
        *asked = Some(Instant::now());
        // Not while it goes on: each spare is asked for once.
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|(_, when)| when.elapsed() < REFUSED_FOR);
        true
    }

    fn end(&self) {
        self.asking.store(false, Ordering::Release);
    }
}

/// Places of an array that a spare should take: slots without a member, and members that are to be
/// replaced.
fn places(status: &ArrayStatus) -> usize {
    let held = |slot: u32, member: &MemberStatus| member.slot == Some(slot) && !member.replacement;
    let vacant = (0..status.raid_disks)
        .filter(|slot| !status.members.iter().any(|member| held(*slot, member)));
    let is_replaced = |slot| status.members.iter().any(|m| m.slot == slot && m.replacement);
    let wanting = status.members.iter().filter(|member| {
        member.want_replacement && member.state == MemberState::InSync && !is_replaced(member.slot)
    });
    vacant.count() + wanting.count()
}

fn spares(status: &ArrayStatus) -> impl Iterator<Item = &MemberStatus> {
    status.members.iter().filter(|member| member.state == MemberState::Spare)
}

/// Whether the array lacks a spare that it could use now.
fn lacks(status: &ArrayStatus) -> bool {
    works(status) && places(status) > spares(status).count()
}

/// Whether the array writes to its members.
fn works(status: &ArrayStatus) -> bool {
    !matches!(status.state, ArrayState::Readonly | ArrayState::Broken)
}

/// The smallest spare that is wanted, if the array needs none of its own.
fn to_give<'a>(status: &'a ArrayStatus, wanted: &Wanted) -> Option<&'a MemberStatus> {
    if places(status) > 0 || !works(status) {
        return None;
    }
    // What is no path exists in its own process alone.
    let fits = |member: &&MemberStatus| {
        member.size_sectors * 512 >= wanted.bytes
            && !wanted.but_for.contains(&member.name)
            && path_of_name(&member.name).is_absolute()
    };
    spares(status).filter(fits).min_by_key(|member| member.size_sectors)
}

/// What a member must have at least to become one of the array.
fn needed_bytes(status: &ArrayStatus) -> u64 {
    let data_offset = status.members.iter().map(|member| member.data_offset_sectors).max();
    (data_offset.unwrap_or(0) + status.member_sectors) * 512
}

impl ServingProcess {
    /// Begins to give or take a spare.
    pub(super) fn begin_move(&self) -> Result<Move<'_>, Failure> {
        let change = self.begin_change()?;
        let way = self.spares.on_their_way.begin().ok_or_else(|| {
            let what = format!("{} gives and takes no spare", self.name);
            Failure::new(what, "it is being stopped", "assemble it again")
        })?;
        Ok(Move { _way: way, _change: change })
    }

    /// Gives a spare to the process that asks for one. If that does not wait for it any more, it stays here. It has ended
    /// when the spare has arrived there, or is back: the taker hangs up then.
    pub(super) fn give_and_tell(
        &self,
        group: &str,
        wanted: &Wanted,
        replies: &mut Replies<'_>,
    ) -> io::Result<()> {
        let given = self.give_spare(group, wanted);
        let spare = match &given {
            Ok(Reply::Spare { member, probed }) => Some((member.clone(), probed.clone())),
            _ => None,
        };
        let is_given = spare.is_some();
        let told = match replies.are_awaited() {
            true => replies.send(&answers::reply(given)),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        };
        if let (Err(_), Some((member, probed))) = (&told, spare) {
            tracing::warn!("who asked for {member} is gone: it stays here");
            if let Err(failure) = self.add(&[member], false, &probed) {
                tracing::error!("the spare belongs to no array now: {failure}");
            }
            return told;
        }
        let until = Instant::now() + IS_SOMEWHERE_WITHIN;
        while is_given && replies.are_awaited() && Instant::now() < until {
            thread::sleep(LOOK_AGAIN_AFTER);
        }
        told
    }

    /// Gives a spare away, if there is one that is wanted and not needed here.
    fn give_spare(&self, group: &str, wanted: &Wanted) -> Result<Reply, Failure> {
        let what = format!("{} gives no spare", self.name);
        let no = |why: &str| Failure::new(&what, why, "add a spare to an array of the group");
        if self.spares.name().as_deref() != Some(group) {
            return Err(no("it is of another spare group"));
        }
        let status = self.array.status()?;
        let spare = to_give(&status, wanted)
            .ok_or_else(|| no("it has none that it does not need and that is large enough"))?;
        let (name, uuid) = (spare.name.clone(), spare.device_uuid);
        let member = self.array.members().find(&name).ok_or_else(|| no("its spare is not open"))?;
        let (file, identity) = self.spare_file(member, &name, &status).map_err(|why| no(&why))?;
        // Between the look and this order it may have got a slot; then it is not removed.
        self.array.order(Action::Remove { member }).map_err(|error| error.failure(&what))?;
        // Still locked: nobody takes it for a member of this array, nor for one of another. It stays so until
        // it answers, for it may be erased yet.
        let closing = self.array.members().closing(member);
        let failed = |why: String| Failure::new(&what, format!("{name}: {why}"), "look at it");
        let erasing = Look::start(&name, move |_| (erase_superblocks(&file), closing));
        let erased = erasing.and_then(|erasing| erasing.end_within(ERASED_WITHIN));
        let (erased, closing) = erased.map_err(|error| failed(error.to_string()))?;
        closing.keep_open();
        self.array.members().close_and_wait(member, PATIENCE / 2);
        if erased.map_err(|error| failed(error.to_string()))? == 0 {
            return Err(failed("its superblock is gone".into()));
        }
        self.forget(&name, Some(uuid));
        tracing::info!("{name} is given away, to an array of the spare group {group}");
        let probed = Probed::one(name.clone(), identity);
        Ok(Reply::Spare { member: name, probed })
    }

    /// The file of a spare, if its name still leads there and it holds this array's superblock.
    fn spare_file(
        &self,
        member: MemberId,
        name: &str,
        status: &ArrayStatus,
    ) -> Result<(File, Identity), String> {
        let system = |error: io::Error| format!("its spare {name}: {error}");
        let file = self.array.members().table().file(member);
        let file = file.ok_or_else(|| format!("its spare {name} is no file"))?.map_err(system)?;
        let (theirs, array) = (name.to_owned(), status.uuid);
        let looking = Look::start(name, move |_| {
            checked(&file, &theirs, array).map(|identity| (file, identity))
        });
        looking.and_then(|looking| looking.end_within(LOOKED_AT_WITHIN)).map_err(system)?
    }

    /// How long until the group is to be asked; none where the array needs no spare of it.
    pub(super) fn next_look_for_spare(&self, status: &ArrayStatus) -> Option<Duration> {
        (self.spares.name().is_some() && lacks(status)).then_some(ASK_EVERY)
    }

    /// Asks the group for a spare, on a thread of its own, if the array needs one.
    pub(super) fn look_for_spare(self: &Arc<Self>, status: &ArrayStatus) {
        let Some(group) = self.spares.name().filter(|_| lacks(status)) else { return };
        if !self.spares.begin() {
            return;
        }
        let (process, bytes) = (self.clone(), needed_bytes(status));
        let asked = thread::Builder::new().name("spares".into()).spawn(move || {
            process.ask_group(&group, bytes);
            process.spares.end();
        });
        if let Err(error) = asked {
            tracing::warn!("cannot ask for a spare: {error}");
            self.spares.end();
        }
    }

    fn ask_group(&self, group: &str, bytes: u64) {
        let running = self.spares.run_dir.running().unwrap_or_default();
        for giver in running.iter().filter(|running| running.name != self.name) {
            // Where one is not taken the next is asked for.
            while let Some(is_taken) = self.ask_for_spare(giver, group, bytes) {
                if is_taken {
                    return;
                }
            }
        }
    }

    /// Asks one array for a spare. Says whether it was taken, if there was one.
    fn ask_for_spare(&self, giver: &Running, group: &str, bytes: u64) -> Option<bool> {
        // Before it is asked: with the answer the spare is on its way. The giver may stop after that, and so may this array.
        let _on_its_way = self.begin_move().ok()?;
        let mut client = Client::connect_within(&giver.run_dir, &giver.name, PATIENCE).ok()?;
        let but_for = self.spares.refused();
        let request =
            Request::GiveSpare { group: group.to_owned(), bytes, but_for: but_for.clone() };
        let Ok(Reply::Spare { member, probed }) = client.ask(&request) else { return None };
        // A process of before it was updated knows of no exceptions.
        let is_known = but_for.contains(&member);
        let is_taken = self.take_spare(giver, member, probed);
        (is_taken || !is_known).then_some(is_taken)
    }

    /// Takes a spare, or gives it back. Says whether it was taken.
    fn take_spare(&self, giver: &Running, member: String, probed: Probed) -> bool {
        match self.add(std::slice::from_ref(&member), false, &probed) {
            Ok(_) => {
                tracing::info!("{member} came from {}, as a spare", giver.name);
                self.recorder.record(vec![Happened::moved(&member, &giver.name)]);
                if let Err(failure) = self.save_member(&member) {
                    tracing::error!("{failure}");
                }
                true
            }
            Err(failure) => {
                tracing::warn!("{member} goes back to {}: {failure}", giver.name);
                self.spares.refuse(&member);
                if let Err(failure) = give_back(giver, member, probed) {
                    tracing::error!("the spare belongs to no array now: {failure}");
                }
                false
            }
        }
    }
}

/// Gives a spare back to the array that gave it, also where that is just being restarted.
fn give_back(giver: &Running, member: String, probed: Probed) -> Result<(), Failure> {
    let Running { run_dir, name } = giver;
    let back = Request::Add { members: vec![member], probed };
    let until = Instant::now() + IS_BACK_WITHIN;
    loop {
        // The restart may end just after a try that came too early.
        let was_gone = run_dir.is_being_restarted(name);
        let client = Client::connect_within(run_dir, name, PATIENCE);
        let Err(failure) = client.and_then(|mut client| client.ask(&back)) else { return Ok(()) };
        let is_gone = was_gone || run_dir.is_being_restarted(name);
        let comes_back = failure.code == Code::Restarting || is_gone;
        if !comes_back || Instant::now() >= until {
            return Err(failure);
        }
        thread::sleep(TRY_AGAIN_AFTER);
    }
}

/// What a spare is, if its name still leads to it and it holds the superblock of its array.
fn checked(file: &File, name: &str, array: Uuid) -> Result<Identity, String> {
    let system = |error: io::Error| format!("its spare {name}: {error}");
    let identity = Identity::of(file).map_err(system)?;
    if !Identity::of_name(&path_of_name(name)).is_ok_and(|named| named == identity) {
        return Err(format!("the name of its spare {name} leads elsewhere by now"));
    }
    let found = superblocks(file).map_err(system)?;
    let is_ours = |found: &FoundSuperblock| {
        found.superblock.as_ref().is_some_and(|superblock| superblock.set_uuid == array)
    };
    match found.iter().any(is_ours) {
        true => Ok(identity),
        false => Err(format!("its spare {name} does not hold its superblock")),
    }
}

#[cfg(test)]
mod tests;

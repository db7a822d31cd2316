//! The judge of one image: it is assembled by the engine and read, whole and without each member.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::assembly::Refusal;
use mdspace_engine::request::{Request, RequestError};

use crate::disk::DiskIndex;
use crate::lent::LentSink;
use crate::model::{Model, Violation};
use crate::oracle::{RawArray, RawSuperblock, Remains};
use crate::process::{Process, StartError};
use crate::random::Random;
use crate::stamp::SECTOR_BYTES;
use crate::trace::Trace;
use crate::world::World;

use super::crash::{Image, Leftovers, names_of};
use super::seen::Seen;
use super::shape::{Shape, disk};

/// Judges images of one array.
pub(super) struct Judge<'a> {
    pub(super) shape: Shape,
    pub(super) verbose: bool,
    /// What was judged before.
    pub(super) seen: &'a Seen,
}

/// What is wrong with what a crash left.
#[derive(Debug, thiserror::Error)]
pub enum Wrong {
    /// Members hold what they must not, or disagree where nothing says so.
    #[error("the disks are wrong: {0:?}")]
    Remains(crate::oracle::Wrong),
    /// It does not start.
    #[error("{0}: {1}")]
    NoStart(When, StartError),
    /// A read returns what it must not.
    #[error("{0}: {1}")]
    Read(When, Violation),
    /// Something cannot be read.
    #[error("{0}: sector {1} cannot be read: {2}")]
    Unread(When, u64, RequestError),
    /// Something goes on for ever.
    #[error("{0}: a read does not end")]
    Stuck(When),
    /// Resync has ended, and redundancy is not right.
    #[error("after resync {0} sectors of redundancy are wrong")]
    Redundancy(u64),
    /// Resync has ended, and the disks hold what they must not.
    #[error("after resync the disks hold wrong data: {0}")]
    Platter(Violation),
    /// The engine says that it is broken.
    #[error("{0}")]
    Panic(String),
}

/// Where the judge stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// All disks are there.
    Whole,
    /// All disks are there, parity is taken as it is.
    Forced,
    /// A disk was lost with the crash.
    LostInCrash(DiskIndex),
    /// The same, and parity is taken as it is.
    LostInCrashForced(DiskIndex),
    /// Resync has ended.
    Resynced,
    /// Resync has ended, and then a disk was lost.
    LostLater(DiskIndex),
}

/// In this time a tiny array is in sync and marked clean.
const RESYNC: Duration = Duration::from_secs(3);

/// No read takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// An array that was assembled from an image.
struct Up {
    world: Machine,
    process: Process,
    disks: Vec<DiskIndex>,
}

/// A world for one assembly. It and its lanes hold each other until the process is killed.
struct Machine(Rc<World>);

impl Deref for Machine {
    type Target = Rc<World>;

    fn deref(&self) -> &Rc<World> {
        &self.0
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.0.kill();
    }
}

impl Judge<'_> {
    /// Judges an image of what a crash left.
    pub(super) fn judge(&self, image: &Image, left: &Leftovers) -> Result<(), Wrong> {
        guarded(|| self.judge_whole(image, left)).map_err(Wrong::Panic)?
    }

    fn judge_whole(&self, image: &Image, left: &Leftovers) -> Result<(), Wrong> {
        let world = self.plug_in(image);
        let disks: Vec<_> = (0..image.len()).map(|index| DiskIndex(index as u16)).collect();
        if let Ok(remains) = Remains::find(&world, &disks) {
            remains.judge(&left.model).map_err(Wrong::Remains)?;
        }
        self.judge_losses(image, &world, &disks, left)?;
        let mut model = left.model.clone();
        let up = match self.start(image, &disks, false) {
            Err(StartError::Refused(Refusal::DirtyDegraded)) => {
                let up = self.start(image, &disks, true);
                let up = up.map_err(|error| Wrong::NoStart(When::Forced, error))?;
                return self.read_forced(When::Forced, &up, left);
            }
            other => other.map_err(|error| Wrong::NoStart(When::Whole, error))?,
        };
        self.read_all(When::Whole, &up, &mut model)?;
        let until = up.world.now() + RESYNC;
        up.world.set_alarm(until, 0);
        up.world.run_until(|| is_at_rest(&up) || up.world.now() >= until);
        self.read_all(When::Resynced, &up, &mut model)?;
        up.world.kill();
        // Else a member is missing, and nothing stands in for it.
        let Ok(array) = RawArray::open(&up.world, &up.disks) else { return Ok(()) };
        array.check_data(&mut model).map_err(Wrong::Platter)?;
        match array.mismatches(model.len()) {
            0 if is_at_rest(&up) => self.lose_later(&up, &model),
            // What a torn update left stays until the next one.
            0 => Ok(()),
            sectors => Err(Wrong::Redundancy(sectors)),
        }
    }

    /// Each disk in turn is lost with the crash. What the rest holds is right, but what only parity could
    /// tell that was being written.
    fn judge_losses(
        &self,
        image: &Image,
        world: &World,
        disks: &[DiskIndex],
        left: &Leftovers,
    ) -> Result<(), Wrong> {
        let (names, expectations) = (names_of(image), left.expectations());
        for &lost in disks.iter().filter(|&&lost| self.bears(world, disks, lost)) {
            let rest: Vec<_> = disks.iter().copied().filter(|disk| *disk != lost).collect();
            if !self.is_new(&names, lost, expectations) {
                continue;
            }
            let up = match self.start(image, &rest, false) {
                // That a spare was written last is no proof that the others were.
                Err(StartError::Refused(
                    Refusal::DirtyDegraded | Refusal::WentOnElsewhere { .. },
                )) => {
                    let when = When::LostInCrashForced(lost);
                    let up = self.start(image, &rest, true);
                    let up = up.map_err(|error| Wrong::NoStart(when, error))?;
                    self.read_forced(when, &up, left)?;
                    continue;
                }
                other => other.map_err(|error| Wrong::NoStart(When::LostInCrash(lost), error))?,
            };
            let mut model = left.model.clone();
            model.set_steady(false);
            self.read_all(When::LostInCrash(lost), &up, &mut model)?;
        }
        Ok(())
    }

    /// Each member in turn is lost after all is in sync.
    fn lose_later(&self, up: &Up, model: &Model) -> Result<(), Wrong> {
        let image: Image = up.disks.iter().map(|&disk| content(&up.world, disk)).collect();
        let names = names_of(&image);
        let settled = (0..model.len()).fold(0, |name: u64, sector| {
            let legal = model.legal(sector);
            legal.iter().fold(name, |name, version| name.rotate_left(7) ^ (version + 1))
        });
        for &lost in up.disks.iter().filter(|&&lost| self.bears(&up.world, &up.disks, lost)) {
            let when = When::LostLater(lost);
            if !self.is_new(&names, lost, !settled) {
                continue;
            }
            let rest: Vec<_> = up.disks.iter().copied().filter(|disk| *disk != lost).collect();
            let up = self.start(&image, &rest, false);
            let up = up.map_err(|error| Wrong::NoStart(when, error))?;
            self.read_all(when, &up, &mut model.clone())?;
        }
        Ok(())
    }

    /// Whether what is left without a disk was never judged before.
    fn is_new(&self, names: &[u64], lost: DiskIndex, expectations: u64) -> bool {
        let rest = names.iter().enumerate().filter(|(disk, _)| *disk != usize::from(lost.0));
        let rest = rest.fold(0, |name, (_, disk)| name ^ disk);
        self.seen.is_new(self.shape, rest.rotate_left(1) ^ expectations ^ u64::from(lost.0))
    }

    /// Whether the members in sync that are left without a disk hold everything.
    fn bears(&self, world: &World, disks: &[DiskIndex], lost: DiskIndex) -> bool {
        let found =
            disks.iter().filter_map(|&disk| Some((disk, world.disk(disk, RawSuperblock::find)?)));
        let found: Vec<_> = found.collect();
        let members = found.iter().filter(|(_, sb)| sb.role_of(sb.dev_number).is_some());
        let Some((_, freshest)) = members.max_by_key(|(_, sb)| sb.events) else { return false };
        // Of an update some may know only.
        let counts = |sb: &RawSuperblock| {
            let is_fresh = sb.events + 1 >= freshest.events;
            let has_slot = sb.role_of(sb.dev_number).is_some();
            is_fresh && has_slot && !sb.replaces && sb.recovered_to.is_none()
        };
        let holder = |slot: usize| {
            let holds = |(disk, sb): &&(DiskIndex, RawSuperblock)| {
                counts(sb) && *disk != lost && freshest.role_of(sb.dev_number) == Some(slot)
            };
            found.iter().any(|member| holds(&member))
        };
        let held: Vec<bool> = (0..freshest.raid_disks).map(holder).collect();
        let is_member = found
            .iter()
            .any(|(disk, sb)| *disk == lost && freshest.role_of(sb.dev_number).is_some());
        is_member
            && match self.shape.level {
                1 => held.contains(&true),
                10 => (0..held.len()).all(|slot| self.has_copy(&held, slot)),
                _ => held.iter().filter(|held| !**held).count() <= self.shape.parities(),
            }
    }

    /// Whether one of the members has each block of which the first copy is in `slot`. Two near copies are
    /// on neighbours; where members are odd, each is the neighbour of each.
    fn has_copy(&self, held: &[bool], slot: usize) -> bool {
        let pairs = held.len().is_multiple_of(2);
        let first = if pairs { slot / 2 * 2 } else { slot };
        held[first] || held[(first + 1) % held.len()]
    }

    fn plug_in(&self, image: &Image) -> Machine {
        let trace = if self.verbose { Trace::new(true) } else { Trace::silent() };
        let world = World::new(Random::new(2), trace);
        for bytes in image {
            let index = world.add_disk(disk(true));
            world.change_disk(index, |disk| disk.store.overwrite(0, bytes));
        }
        Machine(world)
    }

    fn start(&self, image: &Image, disks: &[DiskIndex], force: bool) -> Result<Up, StartError> {
        let world = self.plug_in(image);
        world.note(format_args!("-- assemble {disks:?}, force: {force}"));
        let mut options = self.shape.settings().options();
        options.force = force;
        let process = Process::start(&world, disks, 1, 0, (&options, &[]), 0)?;
        Ok(Up { world, process, disks: disks.to_vec() })
    }

    fn read_all(&self, when: When, up: &Up, model: &mut Model) -> Result<(), Wrong> {
        self.read(when, up, model, 0, model.len())
    }

    /// Parity is taken as it is: a block of a missing member may be anything where any block of its
    /// row was being written.
    fn read_forced(&self, when: When, up: &Up, left: &Leftovers) -> Result<(), Wrong> {
        let mut model = left.model.clone();
        model.set_steady(false);
        for sector in self.certain(up, left) {
            self.read(when, up, &mut model, sector, 1)?;
        }
        Ok(())
    }

    /// Sectors that are on a disk, or can be computed from parity that nothing made wrong.
    fn certain(&self, up: &Up, left: &Leftovers) -> BTreeSet<u64> {
        let all = 0..left.model.len();
        let Ok(remains) = Remains::find(&up.world, &up.disks) else { return BTreeSet::new() };
        // A write that landed, but may have passed over a member that no superblock gives up yet, makes parity as
        // wrong as one that is half-way.
        let under_way = all.clone().filter(|sector| left.model.legal(*sector).len() > 1);
        let under_way: BTreeSet<u64> = under_way.map(|sector| remains.place(sector).0).collect();
        let held = |sector: &u64| {
            let (of_member, is_held) = remains.place(*sector);
            is_held || !left.at_risk.contains(&of_member) && !under_way.contains(&of_member)
        };
        all.filter(held).collect()
    }

    fn read(
        &self,
        when: When,
        up: &Up,
        model: &mut Model,
        sector: u64,
        sectors: u64,
    ) -> Result<(), Wrong> {
        let into = Rc::new(LentSink::new(sectors, &mut Random::new(3)));
        let asked = model.begin_read();
        up.process.submit(0, 0, Request::Read { sector, into: into.clone() });
        let until = up.world.now() + PATIENCE;
        let mut ended = None;
        up.world.run_until(|| {
            ended = ended.take().or_else(|| up.process.pop());
            ended.is_some() || up.world.now() > until
        });
        let (_, completion) = ended.ok_or(Wrong::Stuck(when))?;
        completion.result.map_err(|error| Wrong::Unread(when, sector, error))?;
        let bytes = into.take();
        model.end_read(asked, sector, &bytes).map_err(|violation| Wrong::Read(when, violation))
    }
}

/// Whether the array is whole and clean, and no update of its superblocks is half-way.
fn is_at_rest(up: &Up) -> bool {
    let events = |&disk: &DiskIndex| up.world.disk(disk, RawSuperblock::find).map(|sb| sb.events);
    let events: Vec<u64> = up.disks.iter().filter_map(events).collect();
    let newest = events.iter().max().copied().unwrap_or(0);
    let is_half_way = events.iter().any(|events| events + 1 == newest);
    !is_half_way && RawArray::open(&up.world, &up.disks).is_ok()
}

fn content(world: &World, index: DiskIndex) -> Vec<u8> {
    world.disk(index, |disk| {
        let mut bytes = vec![0; disk.spec.sectors as usize * SECTOR_BYTES];
        disk.store.read(0, &mut bytes);
        bytes
    })
}

/// Runs it. An error is a panic, in its words.
pub(super) fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| format!("panic: {}", words_of(&*panic)))
}

fn words_of(panic: &(dyn std::any::Any + Send)) -> String {
    let owned = panic.downcast_ref::<String>().cloned();
    let borrowed = || panic.downcast_ref::<&str>().map(|words| (*words).to_owned());
    owned.or_else(borrowed).unwrap_or_else(|| "without words".to_owned())
}

impl std::fmt::Display for When {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Whole => write!(f, "with all disks"),
            Self::Forced => write!(f, "with all disks, by force"),
            Self::LostInCrash(disk) => write!(f, "{disk} lost in the crash"),
            Self::LostInCrashForced(disk) => write!(f, "{disk} lost in the crash, by force"),
            Self::Resynced => write!(f, "after resync"),
            Self::LostLater(disk) => write!(f, "{disk} lost after resync"),
        }
    }
}

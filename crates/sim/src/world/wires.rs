//! Servers between lanes and disks: the paths of multipath devices. One may be stopped and go on, and
//! lose its connections; what lies in the buffers of its sockets is done late.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_engine::lane::LaneId;
use mdspace_engine::paths::{Cache, Failback, FenceId, Host, PathLane, Paths, Policy, Table};
use mdspace_engine::time::Time;

use serde::{Deserialize, Serialize};

use crate::disk::{CacheId, DiskIndex};
use crate::oracle::RawSuperblock;

use super::World;
use super::events::Event;

/// What the fences of paths do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fences {
    /// See to it that nothing sent is done any more, and say so.
    #[default]
    Prove,
    /// Say so only: the control of the rule on late writes.
    Lie,
    /// Never answer: the control of how long writes are held back.
    Hang,
}

/// A server, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WireIndex(u16);

/// How a member leads to its disk.
#[derive(Clone, Debug)]
pub(super) enum Way {
    Direct,
    /// Over a connection to a server.
    Wire {
        wire: WireIndex,
        lost: bool,
    },
    Paths(Arc<Paths>),
}

#[derive(Default)]
pub(super) struct Wires {
    wires: Vec<Wire>,
    of: BTreeMap<DiskIndex, Vec<WireIndex>>,
    parts: BTreeMap<(LaneId, MemberId), Rc<PathLane>>,
    unanswered: BTreeMap<(LaneId, MemberId), usize>,
    asked: Wishes,
    waiting: BTreeMap<u64, Wish>,
    granted: u64,
    fences: Fences,
    servers: Servers,
    /// Disks whose next failed flush nobody hears of: its path is lost.
    secrets: BTreeSet<DiskIndex>,
    /// Older copies of disks.
    copies: BTreeMap<DiskIndex, DiskIndex>,
    /// Servers that lead to such a copy, until then.
    misled: BTreeMap<WireIndex, (DiskIndex, Time)>,
}

/// What servers are like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Servers {
    /// What they have answered lies in caches of their own.
    pub own_caches: bool,
    /// A fence takes seconds to say that it has done its work.
    pub slow_fences: bool,
}

struct Wire {
    disk: DiskIndex,
    /// Stopped: reads nothing, answers nothing.
    frozen: bool,
}

type Wishes = Arc<Mutex<Vec<Wish>>>;

/// What a multipath device asks of the world.
enum Wish {
    Reopen(Arc<Paths>, usize),
    Fence(Arc<Paths>, usize, FenceId),
    /// A fence has done its work, and says so now.
    Word(Arc<Paths>, usize, FenceId),
}

/// How long a slow fence takes for its word, in microseconds.
const SLOW_WORD_US: u64 = 5_000_000;

/// How long a server leads to an older copy.
const MISLED: Duration = Duration::from_secs(3);

struct SimHost(Wishes);

impl SimHost {
    fn ask(&self, wish: Wish) {
        self.0.lock().expect("one thread only").push(wish);
    }
}

impl Host for SimHost {
    fn reopen(&self, paths: &Arc<Paths>, path: usize) {
        self.ask(Wish::Reopen(paths.clone(), path));
    }

    fn fence(&self, paths: &Arc<Paths>, path: usize, fence: FenceId) -> bool {
        self.ask(Wish::Fence(paths.clone(), path, fence));
        true
    }
}

impl Wires {
    pub(super) fn is_frozen(&self, wire: WireIndex) -> bool {
        self.wires[usize::from(wire.0)].frozen
    }

    /// The cache of a server that has one.
    pub(super) fn cache_of(&self, wire: WireIndex) -> Option<CacheId> {
        self.servers.own_caches.then_some(CacheId(wire.0))
    }

    /// Whether nobody hears of a disk's failed flush; of the next one somebody does.
    pub(super) fn keep_secret(&mut self, disk: DiskIndex) -> bool {
        self.secrets.remove(&disk)
    }

    pub(super) fn count_unanswered(&mut self, lane: LaneId, member: MemberId) {
        *self.unanswered.entry((lane, member)).or_default() += 1;
    }
}

/// A member fails when it has had no path for so long.
pub(crate) const PATHS_GIVE_UP: Duration = Duration::from_secs(50);

/// Times that leave an array's own deadlines room.
fn policy() -> Policy {
    Policy {
        no_path_retry: Some(100),
        polling_interval: PATHS_GIVE_UP / 100,
        failback: Failback::Manual,
        read_deadline: Duration::from_millis(150),
        write_deadline: Duration::from_millis(250),
        // The disk has one; its servers have none.
        cache: Cache::Shared,
    }
}

impl World {
    /// Puts servers before a disk: who opens it from now on gets a multipath device.
    pub fn add_wires(&self, disk: DiskIndex, count: u16) {
        let mut wires = self.wires.borrow_mut();
        for _ in 0..count {
            let index = WireIndex(u16::try_from(wires.wires.len()).expect("few servers"));
            wires.wires.push(Wire { disk, frozen: false });
            wires.of.entry(disk).or_default().push(index);
        }
    }

    /// What fences do from now on.
    pub fn set_fences(&self, fences: Fences) {
        self.wires.borrow_mut().fences = fences;
    }

    /// What servers are like from now on.
    pub fn set_servers(&self, servers: Servers) {
        self.wires.borrow_mut().servers = servers;
    }

    /// The write that has waited longest, over any device, for the proof that an earlier one is over.
    pub fn held_longest(&self) -> Option<Duration> {
        let members = self.members.borrow();
        let held = members.iter().filter_map(|open| match &open.way {
            Way::Paths(paths) if !paths.is_closed() => paths.held(),
            _ => None,
        });
        held.map(|held| self.now().since(held.since)).max()
    }

    pub(super) fn wires_of(&self, disk: DiskIndex) -> Vec<WireIndex> {
        self.wires.borrow().of.get(&disk).cloned().unwrap_or_default()
    }

    pub(super) fn open_over(&self, disk: DiskIndex, wires: &[WireIndex]) -> (MemberId, MemberInfo) {
        let cache = match self.wires.borrow().servers.own_caches {
            true => Cache::OfEachPath,
            false => Cache::Shared,
        };
        self.open_with(disk, wires, Policy { cache, ..policy() })
    }

    fn open_with(
        &self,
        disk: DiskIndex,
        wires: &[WireIndex],
        policy: Policy,
    ) -> (MemberId, MemberInfo) {
        let open = |&wire: &WireIndex| Ok(self.open_by(disk, Way::Wire { wire, lost: false }));
        let opened: Vec<_> = wires.iter().map(open).collect();
        let info = self.disk(disk, |known| known.spec.info(disk));
        let names: Vec<String> = wires.iter().map(|wire| format!("wire{}", wire.0)).collect();
        let (sectors, count) = (info.sectors, names.len());
        let line = format!(
            "0 {sectors} multipath 1 queue_if_no_path 0 1 1 round-robin 0 {count} 0 {}",
            names.join(" ")
        );
        let table: Table = line.parse().expect("a table line");
        let host = Box::new(SimHost(self.wires.borrow().asked.clone()));
        let remote = vec![true; count];
        let paths = Paths::new(&info.name, table, policy, opened, &remote, host);
        let paths = paths.expect("paths to one disk");
        for (path, wire) in wires.iter().enumerate() {
            paths.recall(path, self.left_over(*wire));
        }
        let (member, _) = self.open_by(disk, Way::Paths(paths.clone()));
        (member, paths.info().clone())
    }

    pub(super) fn way_of(&self, member: MemberId) -> Way {
        self.members.borrow()[usize::from(member.index)].way.clone()
    }

    pub(super) fn path_lane(
        &self,
        lane: LaneId,
        member: MemberId,
        paths: &Arc<Paths>,
    ) -> Rc<PathLane> {
        let known = self.wires.borrow().parts.get(&(lane, member)).cloned();
        known.unwrap_or_else(|| {
            let part = PathLane::attach(paths, &self.lane(lane));
            paths.look_after_on(&self.lane(lane));
            self.wires.borrow_mut().parts.insert((lane, member), part.clone());
            part
        })
    }

    /// Requests of a lane that a multipath device holds.
    pub(crate) fn held_by_paths(&self, lane: LaneId, member: MemberId) -> usize {
        self.wires.borrow().parts.get(&(lane, member)).map_or(0, |part| part.in_flight())
    }

    pub(crate) fn unanswered(&self, lane: LaneId, member: MemberId) -> usize {
        self.wires.borrow().unanswered.get(&(lane, member)).copied().unwrap_or(0)
    }

    /// Stops the server of one path of a disk, or loses its connections, unless it would be the last
    /// one. Says whether there was one.
    pub fn trouble_a_wire(&self, disk: DiskIndex) -> bool {
        let wires = self.wires_of(disk);
        let well: Vec<_> =
            wires.into_iter().filter(|wire| !self.wires.borrow().is_frozen(*wire)).collect();
        if well.len() < 2 {
            return false;
        }
        let (wire, freezes, cuts, span) = {
            let mut chance = self.chance.borrow_mut();
            (*chance.pick(&well), chance.coin(), chance.coin(), chance.within(1..1_500_000))
        };
        if freezes {
            self.note(format_args!("-- {disk} server {} stops", wire.0));
            self.wires.borrow_mut().wires[usize::from(wire.0)].frozen = true;
            self.schedule(self.now() + Duration::from_micros(span), Event::Thaw(wire));
        }
        if cuts || !freezes {
            self.cut(wire);
        }
        true
    }

    /// Loses the connections of a path over which a disk is written to, unless it would be the last one. Says whether
    /// there was one.
    pub fn lose_a_busy_wire(&self, disk: DiskIndex) -> bool {
        let well = |wire: &WireIndex| !self.wires.borrow().is_frozen(*wire);
        let others = self.wires_of(disk).into_iter().filter(well).count();
        match self.busy_wire(disk).filter(|_| others > 1) {
            Some(wire) => {
                self.cut(wire);
                true
            }
            None => false,
        }
    }

    /// A disk fails its next flush, and the path that asked for it is lost before it hears of that.
    pub fn fail_a_flush_secretly(&self, disk: DiskIndex) {
        self.wires.borrow_mut().secrets.insert(disk);
        self.change_disk(disk, |disk| disk.faults.flush_errors += 1);
    }

    /// Has a path to a disk lead to an older copy of it for a while, when it is connected anew; at the first time
    /// the copy is made. Only one that can be told from the disk: of its updates since one was answered at least.
    pub fn mislead_a_wire(&self, disk: DiskIndex) {
        let events = |disk| self.disk(disk, RawSuperblock::find).map(|found| found.events);
        let copy = self.wires.borrow().copies.get(&disk).copied();
        let Some(copy) = copy.filter(|copy| events(*copy).map(|copied| copied + 1) < events(disk))
        else {
            let copy = self.add_copy(disk);
            self.wires.borrow_mut().copies.insert(disk, copy);
            return;
        };
        let wires = self.wires_of(disk);
        if wires.len() < 2 || wires.iter().any(|wire| self.wires.borrow().is_frozen(*wire)) {
            return;
        }
        let wire = *self.chance.borrow_mut().pick(&wires);
        self.note(format_args!("-- {disk} server {} leads to an older copy, {copy}", wire.0));
        self.wires.borrow_mut().misled.insert(wire, (copy, self.now() + MISLED));
        self.cut(wire);
    }

    /// Whether a server of a disk leads to an older copy.
    pub fn is_misled(&self, disk: DiskIndex) -> bool {
        let is_misled = |wire: &WireIndex| {
            let wires = self.wires.borrow();
            wires.misled.get(wire).is_some_and(|(_, until)| self.now() < *until)
        };
        self.wires_of(disk).iter().any(is_misled)
    }

    /// Whether a fence of one of a disk's servers is to come for which a device asked that is closed by now. It ends
    /// what another one does there.
    pub fn is_to_be_fenced(&self, disk: DiskIndex) -> bool {
        let servers = self.wires_of(disk);
        let wires = self.wires.borrow();
        let of_a_closed_one = |wish: &Wish| match wish {
            Wish::Fence(paths, path, _) => {
                paths.is_closed() && servers.contains(&self.wire_of(&paths.path(*path).1))
            }
            Wish::Reopen(..) | Wish::Word(..) => false,
        };
        let asked = wires.asked.lock().expect("one thread only");
        asked.iter().chain(wires.waiting.values()).any(of_a_closed_one)
    }

    /// Every server of a disk leads to it from now on.
    pub fn lead_right(&self, disk: DiskIndex) {
        for wire in self.wires_of(disk) {
            let was_misled = self.wires.borrow_mut().misled.remove(&wire).is_some();
            if was_misled {
                self.cut(wire);
            }
        }
    }

    /// Loses every connection to a server.
    pub(super) fn cut(&self, wire: WireIndex) {
        self.note(format_args!("-- server {} loses its connections", wire.0));
        let cache = self.wires.borrow().cache_of(wire);
        if let Some(cache) = cache {
            let disk = self.wires.borrow().wires[usize::from(wire.0)].disk;
            self.disks.borrow_mut()[usize::from(disk.0)].store.lose_cache(cache);
        }
        for open in self.members.borrow_mut().iter_mut() {
            if let Way::Wire { wire: over, lost } = &mut open.way
                && *over == wire
            {
                *lost = true;
            }
        }
        let mut chance = self.chance.borrow_mut().fork();
        self.lose_flights(wire, &mut chance);
    }

    pub(super) fn thaw(&self, wire: WireIndex) {
        let disk = {
            let mut wires = self.wires.borrow_mut();
            let wire = &mut wires.wires[usize::from(wire.0)];
            wire.frozen = false;
            wire.disk
        };
        self.note(format_args!("-- {disk} server {} goes on", wire.0));
        self.resume_flights(disk);
    }

    pub(super) fn take_wishes(&self) {
        if self.wires.borrow().wires.is_empty() {
            return;
        }
        let asked =
            std::mem::take(&mut *self.wires.borrow().asked.lock().expect("one thread only"));
        for wish in asked {
            let number = {
                let mut wires = self.wires.borrow_mut();
                wires.granted += 1;
                let number = wires.granted;
                wires.waiting.insert(number, wish);
                number
            };
            let delay = Duration::from_micros(self.chance.borrow_mut().within(1..300_000));
            self.schedule(self.now() + delay, Event::Wish(number));
        }
    }

    pub(super) fn grant(&self, number: u64) {
        let wish = self.wires.borrow_mut().waiting.remove(&number);
        match wish {
            Some(Wish::Reopen(paths, path)) => self.reopen(&paths, path),
            Some(Wish::Fence(paths, path, fence)) => self.fence(paths, path, fence),
            Some(Wish::Word(paths, path, fence)) => self.is_fenced(&paths, path, fence),
            None => {}
        }
    }

    fn wire_of(&self, name: &str) -> WireIndex {
        WireIndex(name.trim_start_matches("wire").parse().expect("the name of a wire"))
    }

    fn reopen(&self, paths: &Paths, path: usize) {
        if paths.is_closed() {
            return;
        }
        let (old, name) = paths.path(path);
        let wire = self.wire_of(&name);
        if self.wires.borrow().is_frozen(wire) {
            assert!(paths.opened(path, Err("it does not answer".into())), "it is open");
            return;
        }
        let disk = self.wires.borrow().wires[usize::from(wire.0)].disk;
        let misled = self.wires.borrow().misled.get(&wire).copied();
        let disk = misled.filter(|(_, until)| self.now() < *until).map_or(disk, |(copy, _)| copy);
        if let Some(old) = old {
            self.close(old);
        }
        let opened = self.open_by(disk, Way::Wire { wire, lost: false });
        assert!(paths.opened(path, Ok(opened)), "it is open");
    }

    fn fence(&self, paths: Arc<Paths>, path: usize, fence: FenceId) {
        let (_, name) = paths.path(path);
        let wire = self.wire_of(&name);
        let fences = self.wires.borrow().fences;
        if fences == Fences::Hang {
            return;
        }
        if fences == Fences::Prove {
            self.cut(wire);
            let mut chance = self.chance.borrow_mut().fork();
            self.land_late(wire, &mut chance);
        }
        if !self.wires.borrow().servers.slow_fences {
            return self.is_fenced(&paths, path, fence);
        }
        let number = {
            let mut wires = self.wires.borrow_mut();
            wires.granted += 1;
            let number = wires.granted;
            wires.waiting.insert(number, Wish::Word(paths, path, fence));
            number
        };
        let delay = Duration::from_micros(self.chance.borrow_mut().within(1..SLOW_WORD_US));
        self.schedule(self.now() + delay, Event::Wish(number));
    }

    fn is_fenced(&self, paths: &Paths, path: usize, fence: FenceId) {
        let (_, name) = paths.path(path);
        self.note(format_args!("-- server {} is fenced", self.wire_of(&name).0));
        paths.fenced(path, fence, Ok(()), self.now());
    }

    /// Nobody waits for anything any more: the process has ended.
    pub(super) fn forget_wishes(&self) {
        let mut wires = self.wires.borrow_mut();
        wires.parts.clear();
        wires.unanswered.clear();
        wires.waiting.clear();
        wires.asked.lock().expect("one thread only").clear();
        wires.wires.iter_mut().for_each(|wire| wire.frozen = false);
    }
}

#[cfg(test)]
mod tests;

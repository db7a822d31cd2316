//! The members that are open, by index, for all lanes.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use mdspace_engine::array::Array;
use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_engine::lane::LaneId;
use mdspace_engine::paths::Paths;
use mdspace_engine::sync::Mutex;

use crate::lanes::EventFd;

use super::connecting::{self, Needed};
use super::holder::Holder;
use super::lineage::Lineage;
use super::named::Identity;
use super::open::{self, NotConnected, OneConnection, OpenError, OpenMode, Opened};
use super::place::PlaceLock;
use super::{
    Device, FileFacts, MayWrite, Member, MultipathSpec, Nbd, Own, OwnDevice, UnprovedWrites,
};

/// How long a closed member of this table may keep an export from being opened again.
const LET_GO_WITHIN: Duration = Duration::from_secs(2);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The largest device, in sectors: its length in bytes is a file offset of Linux.
const MAX_SECTORS: u64 = (1 << 54) - 1;

/// All open members. Shared by the lanes; they ask it once per member and then remember.
pub struct MemberTable {
    /// Itself, for members that open others.
    this: Weak<Self>,
    entries: Mutex<Vec<Entry>>,
    /// Lanes to wake when a member closes.
    lanes: Mutex<Vec<Weak<EventFd>>>,
    /// Counts closed members and questions, so that a lane sees at a glance whether it has to look at its
    /// members.
    news: AtomicU64,
    /// Counts members as they are opened.
    opened: AtomicU64,
    /// Where writes that may still appear are kept over a restart.
    unproved: OnceLock<UnprovedWrites>,
    /// What lies below the members.
    lineage: Arc<Lineage>,
    /// Locks of exports.
    places: Mutex<Vec<Weak<PlaceLock>>>,
    /// Exports are locked with others that share them.
    shares_exports: AtomicBool,
    /// Lanes that may use a member, workers among them; each has a connection to each export.
    counted: Mutex<Vec<LaneId>>,
}

#[derive(Default)]
struct Entry {
    generation: u16,
    open: Option<Arc<Member>>,
    /// As long as it is open.
    may_write: Option<Arc<MayWrite>>,
    /// The latest member of this index; alive until the last lane has let go.
    latest: Weak<Member>,
}

impl MemberTable {
    /// An empty table.
    pub fn new() -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            entries: Mutex::default(),
            lanes: Mutex::default(),
            news: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            unproved: OnceLock::new(),
            lineage: Lineage::new(),
            places: Mutex::default(),
            shares_exports: AtomicBool::new(false),
            counted: Mutex::default(),
        })
    }

    /// Keeps there, over a restart, which writes over paths may still appear; once, before members are
    /// opened.
    pub fn keep_unproved(&self, place: UnprovedWrites) {
        self.unproved.get_or_init(|| place);
    }

    /// Where writes that may still appear are kept, if anywhere.
    pub fn unproved(&self) -> Option<&UnprovedWrites> {
        self.unproved.get()
    }

    /// What lies below the members, for those who ask the fronts of this process.
    pub fn lineage(&self) -> &Arc<Lineage> {
        &self.lineage
    }

    /// Opens the member that `name` means: a path, `ram:SIZE`, `null:SIZE?key=value` or
    /// `null:PRESET?key=value` ([`null_keys`](crate::null_keys)), or an NBD server's export:
    /// `nbd://HOST:PORT/EXPORT`, `nbd+unix:///PATH`. That one waits for the server, seconds at most.
    pub fn open(&self, name: &str, mode: OpenMode) -> Result<(MemberId, MemberInfo), OpenError> {
        let ordinal = self.opened.fetch_add(1, Ordering::Relaxed);
        let this = self.this.upgrade().expect("a table in use is there");
        let opened = open::open(name, mode, ordinal, &this)?;
        let info = opened.info.clone();
        Ok((self.insert(opened, mode.read_only)?, info))
    }

    /// Opens a multipath device that stands alone, under a name of its own.
    pub fn open_multipath(
        &self,
        name: &str,
        spec: &MultipathSpec,
        mode: OpenMode,
    ) -> Result<(MemberId, Arc<Paths>), OpenError> {
        let this = self.this.upgrade().expect("a table in use is there");
        let paths = spec.open(name, &this, mode)?;
        let device = Device::Multipath(paths.clone());
        Ok((self.add(device, paths.info().clone(), mode.read_only)?, paths))
    }

    /// Takes in a device of the embedding program under a name of its choice. That no other array has it is the
    /// program's care.
    pub fn open_own(
        &self,
        name: &str,
        device: Arc<dyn OwnDevice>,
        read_only: bool,
    ) -> Result<(MemberId, MemberInfo), OpenError> {
        let info = MemberInfo {
            name: name.into(),
            sectors: (device.size_bytes() / 512).min(MAX_SECTORS),
            logical_block_bytes: 512,
            rotational: false,
            discard_zeroes: device.discards() && !read_only,
            is_sparse: false,
        };
        Ok((self.add(Device::Own(Own(device)), info.clone(), read_only)?, info))
    }

    /// Whether what is written over one connection of a member is read over any other.
    pub(crate) fn shares_a_cache(&self, id: MemberId) -> bool {
        self.member(id).is_none_or(|member| member.device.bears_lanes())
    }

    /// The paths of an open member, if it has some.
    pub fn paths(&self, id: MemberId) -> Option<Arc<Paths>> {
        match &self.member(id)?.device {
            Device::Multipath(paths) => Some(paths.clone()),
            _ => None,
        }
    }

    /// Takes in a device that has no locks of its own.
    pub(crate) fn add(
        &self,
        device: Device,
        info: MemberInfo,
        read_only: bool,
    ) -> Result<MemberId, OpenError> {
        self.insert(Opened::new(device, info), read_only)
    }

    fn insert(&self, opened: Opened, read_only: bool) -> Result<MemberId, OpenError> {
        let member = self.enter(opened, read_only)?;
        // Nobody uses it yet: its number is given when each lane has its connection.
        loop {
            let needed = self.needed_by_lanes(&member);
            if needed.is_empty() {
                return Ok(member.id);
            }
            let is_needed = |one: &Needed| self.counts_on(one.lane) && one.is_missing();
            let made = connecting::make(&needed, self.tell(), || true, is_needed);
            self.end_those_of_ended_lanes(&needed);
            if let Err(refused) = made {
                self.close(member.id);
                return Err(OpenError::NoConnection(refused));
            }
        }
    }

    fn needed_by_lanes(&self, member: &Arc<Member>) -> Vec<Needed> {
        let counted = self.counted.lock();
        let lanes = counted.iter().copied().filter(|lane| member.lacks(*lane));
        lanes.map(|lane| Needed { member: member.clone(), lane }).collect()
    }

    fn counts_on(&self, lane: LaneId) -> bool {
        self.counted.lock().contains(&lane)
    }

    /// Ends what was made for lanes that have ended meanwhile.
    fn end_those_of_ended_lanes(&self, made: &[Needed]) {
        let ended = made.iter().filter(|one| !self.counts_on(one.lane));
        ended.for_each(Needed::end);
    }

    /// Has lanes look, from any thread.
    fn tell(&self) -> impl Fn() + Clone + Send + use<> {
        let this = self.this.clone();
        move || this.upgrade().into_iter().for_each(|this| this.have_lanes_look())
    }

    /// How long an export may take to give each lane its connection, when it is open.
    pub fn connects_within(&self) -> Duration {
        connecting::patience(self.counted.lock().len())
    }

    fn enter(&self, opened: Opened, read_only: bool) -> Result<Arc<Member>, OpenError> {
        let mut entries = self.entries.lock();
        // Under the lock: not while lanes are added.
        if self.counted.lock().len() > 1 && !opened.device.bears_lanes() {
            return Err(OpenError::OneConnection(OneConnection { name: opened.info.name }));
        }
        let free = entries.iter().position(|entry| entry.latest.strong_count() == 0);
        let index = free.unwrap_or(entries.len());
        let id_index = u16::try_from(index).map_err(|_| OpenError::TooMany)?;
        if free.is_none() {
            entries.push(Entry::default());
        }
        let entry = &mut entries[index];
        entry.generation = entry.generation.wrapping_add(1);
        let id = MemberId { index: id_index, generation: entry.generation };
        let (member, may_write) = Member::new(id, opened, read_only);
        entry.latest = Arc::downgrade(&member);
        entry.open = Some(member.clone());
        entry.may_write = Some(may_write);
        Ok(member)
    }

    /// The open file or device of a member: the very one that is locked and written, wherever its
    /// name leads by now. Reads and writes of whole, aligned blocks only: it may be open for direct
    /// I/O.
    pub fn file(&self, id: MemberId) -> Option<io::Result<File>> {
        match &self.member(id)?.device {
            Device::File { file, .. } => Some(file.try_clone()),
            _ => None,
        }
    }

    /// What is known of a member that is a regular file. Waits for no server.
    pub fn facts(&self, id: MemberId) -> Option<FileFacts> {
        match &self.member(id)?.device {
            Device::File { file, .. } => file.facts(),
            _ => None,
        }
    }

    /// Which file or device a member is; none for one of another kind. Waits for no server.
    pub fn identity(&self, id: MemberId) -> Option<Identity> {
        match &self.member(id)?.device {
            Device::File { file, .. } => Some(file.identity()),
            _ => None,
        }
    }

    /// Shares the exports that are opened from now on with other processes that do. For a multipath device
    /// that stands alone: two of them may be two ways to one export, and members of one array.
    pub fn share_exports(&self) {
        self.shares_exports.store(true, Ordering::Relaxed);
    }

    /// The lock of an export, which all members of this table share that are open; else who has it. A member
    /// that is closed may owe answers: what it owes is on record when it has let go of the export, and is
    /// waited for until then.
    pub(super) fn lock_place(&self, name: &str) -> io::Result<Result<Arc<PlaceLock>, Holder>> {
        let until = Instant::now() + LET_GO_WITHIN;
        loop {
            let mut places = self.places.lock();
            places.retain(|place| place.strong_count() > 0);
            let known = places.iter().filter_map(Weak::upgrade).find(|place| place.name == name);
            let Some(known) = known else {
                let taken = match self.shares_exports.load(Ordering::Relaxed) {
                    true => PlaceLock::share(name),
                    false => PlaceLock::take(name),
                };
                let taken = taken?.map(Arc::new);
                places.extend(taken.iter().map(Arc::downgrade));
                return Ok(taken.ok_or_else(Holder::of_export));
            };
            drop(places);
            if self.is_open_at(&known) {
                return Ok(Ok(known));
            }
            if Instant::now() >= until {
                return Ok(Err(Holder::this_process()));
            }
            drop(known);
            std::thread::sleep(LOOK_EVERY);
        }
    }

    /// Whether an open member has this lock.
    fn is_open_at(&self, place: &Arc<PlaceLock>) -> bool {
        let entries = self.entries.lock();
        let mut open = entries.iter().filter_map(|entry| entry.open.as_ref()?.locks.place.as_ref());
        open.any(|known| Arc::ptr_eq(known, place))
    }

    /// What an open member can do.
    pub fn info(&self, id: MemberId) -> Option<MemberInfo> {
        self.member(id).map(|member| member.info.clone())
    }

    /// Whether a member ends its I/Os at times of its own ([`null_keys`](crate::null_keys)), whoever
    /// has the CPU.
    pub fn is_modelled(&self, id: MemberId) -> bool {
        let timed = |member: Arc<Member>| matches!(&member.device, Device::Null(null) if !null.is_immediate());
        self.member(id).is_some_and(timed)
    }

    /// Counts on one more lane, for as long as the value is there. It has a connection to each open export then, and gets
    /// one to each that is opened later. Several lanes are refused where an open one bears one connection; such a one is
    /// opened for one lane only. Waits a few seconds at most for the exports. A lane for one `array` alone needs none to
    /// what that has failed, and is not waited for when it has ended.
    pub(crate) fn count_on(
        self: &Arc<Self>,
        lane: LaneId,
        array: Option<&Array>,
    ) -> Result<Counted, NotConnected> {
        let counted = self.count_when_connected(lane, array);
        if counted.is_err() {
            self.disconnect(lane);
        }
        counted.map(|()| Counted { members: self.clone(), lane })
    }

    fn count_when_connected(
        &self,
        lane: LaneId,
        array: Option<&Array>,
    ) -> Result<(), NotConnected> {
        loop {
            let needed = self.count(lane, &self.failed_by(array))?;
            if needed.is_empty() {
                return Ok(());
            }
            let are_awaited = || array.is_none_or(|array| !array.has_ended());
            let is_needed =
                |one: &Needed| one.is_missing() && !self.failed_by(array).contains(&one.member.id);
            if !connecting::make(&needed, self.tell(), are_awaited, is_needed)? {
                return Err(NotConnected::Ended);
            }
        }
    }

    /// Open members that an array has failed, and the paths of those that have some.
    fn failed_by(&self, array: Option<&Array>) -> Vec<MemberId> {
        let Some(array) = array else { return Vec::new() };
        let entries = self.entries.lock();
        let open: Vec<_> = entries.iter().filter_map(|entry| entry.open.clone()).collect();
        drop(entries);
        let failed = open.iter().filter(|member| array.has_failed(member.id));
        let with_paths = failed.flat_map(|member| match &member.device {
            Device::Multipath(paths) => [vec![member.id], paths.members()].concat(),
            _ => vec![member.id],
        });
        with_paths.collect()
    }

    /// Counts on a lane, unless it lacks connections, which are given then. It needs none to those that have `failed`.
    fn count(&self, lane: LaneId, failed: &[MemberId]) -> Result<Vec<Needed>, OneConnection> {
        let entries = self.entries.lock();
        let mut counted = self.counted.lock();
        let open = entries.iter().filter_map(|entry| entry.open.as_ref());
        let used = open.filter(|member| !failed.contains(&member.id));
        let bears_one = |member: &&Arc<Member>| !counted.is_empty() && !member.device.bears_lanes();
        if let Some(member) = used.clone().find(bears_one) {
            return Err(OneConnection { name: member.info.name.clone() });
        }
        let lacking = used.filter(|member| member.lacks(lane)).cloned();
        let needed: Vec<_> = lacking.map(|member| Needed { member, lane }).collect();
        if needed.is_empty() {
            counted.push(lane);
        }
        Ok(needed)
    }

    /// Ends what was made for a lane that is not counted on.
    fn disconnect(&self, lane: LaneId) {
        let entries = self.entries.lock();
        if self.counted.lock().contains(&lane) {
            return;
        }
        let open = entries.iter().filter_map(|entry| entry.open.as_ref()?.nbd());
        open.for_each(|nbd| nbd.have_disconnected(lane));
    }

    /// Open exports of which somebody asks, where a lane has not taken up its connection.
    pub(crate) fn asked_over_waiting(&self, lane: LaneId) -> Vec<MemberId> {
        let entries = self.entries.lock();
        let open = entries.iter().filter_map(|entry| entry.open.as_ref());
        let is_asked = |nbd: &Nbd| nbd.questions.are_asked() && nbd.waits_for(lane);
        open.filter(|member| member.nbd().is_some_and(is_asked)).map(|member| member.id).collect()
    }

    /// Closes a member: no new I/O finds it. Its file closes, its lock ends and its index may be
    /// used again when every lane has finished what it has in flight there; see
    /// [`is_closed`](Self::is_closed).
    pub fn close(&self, id: MemberId) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.get_mut(usize::from(id.index)) else { return };
        let Some(member) = entry.open.take_if(|member| member.id == id) else { return };
        let may_write = entry.may_write.take();
        drop(entries);
        member.closing.store(true, Ordering::Release);
        if let Device::Multipath(paths) = &member.device {
            paths.close();
            paths.members().into_iter().for_each(|path| self.close(path));
        }
        // A member that nobody has met closes with that.
        drop(member);
        drop(may_write);
        self.have_lanes_look();
    }

    /// Has the connections of a lost export end that other lanes have: its server may have no room for those that take
    /// their place. What is in flight there is answered first.
    pub(super) fn give_way(&self, id: MemberId) {
        if let Some(member) = self.member(id)
            && let Some(nbd) = member.nbd()
        {
            nbd.have_lost();
            nbd.give_way();
            self.have_lanes_look();
        }
    }

    /// Has every lane look at the members that it has met.
    pub(crate) fn have_lanes_look(&self) {
        self.news.fetch_add(1, Ordering::Release);
        self.lanes.lock().retain(|lane| lane.upgrade().map(|lane| lane.wake()).is_some());
    }

    /// Whether the last lane has let go of a member that was closed.
    pub fn is_closed(&self, id: MemberId) -> bool {
        let entries = self.entries.lock();
        let Some(entry) = entries.get(usize::from(id.index)) else { return true };
        entry.generation != id.generation || entry.latest.strong_count() == 0
    }

    /// Whether every member that was closed has been let go: the kernel has no call on any.
    pub fn are_let_go(&self) -> bool {
        let entries = self.entries.lock();
        entries.iter().all(|entry| entry.open.is_some() || entry.latest.strong_count() == 0)
    }

    pub(crate) fn member(&self, id: MemberId) -> Option<Arc<Member>> {
        let entries = self.entries.lock();
        let member = entries.get(usize::from(id.index))?.open.as_ref()?;
        (member.id == id).then(|| member.clone())
    }

    pub(crate) fn news_count(&self) -> u64 {
        self.news.load(Ordering::Acquire)
    }

    pub(crate) fn wake_on_news(&self, lane: &Arc<EventFd>) {
        let mut lanes = self.lanes.lock();
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(Arc::downgrade(lane));
    }
}

/// A lane that is counted on.
pub(crate) struct Counted {
    members: Arc<MemberTable>,
    lane: LaneId,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counted = self.members.counted.lock();
        let at = counted.iter().position(|lane| *lane == self.lane);
        counted.swap_remove(at.expect("it was counted"));
        drop(counted);
        self.members.disconnect(self.lane);
    }
}

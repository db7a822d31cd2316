//! Members and lanes from the first open on: what a start that fails gives back, and an array keeps until its end.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mdspace_engine::backend::{IoOp, MemberId, MemberInfo, MemberIo, Patience, ReadInto};
use mdspace_engine::lane::{Lane, LaneId};
use mdspace_engine::memory::Buffer;
use mdspace_io::{Identity, Lanes, LanesConfig, MemberTable, OpenError, OpenMode};

use crate::member::{Kind, Member};
use crate::{Error, answer, held};

/// The lane that creates and assembles.
pub(crate) const HOME: LaneId = LaneId(0);

/// How long lanes and members may take to end.
const END_PATIENCE: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// How much of each end of a new member must be zero: superblocks, partition tables and file systems begin there.
const LOOKED_AT_BYTES: u64 = 1 << 20;
const LOOK_PATIENCE: Duration = Duration::from_secs(30);

/// Open members and the lanes that reach them. Dropped, it closes them and ends the lanes.
pub(crate) struct Opened {
    table: Arc<MemberTable>,
    /// None once they have been ended.
    lanes: Option<Arc<Lanes>>,
    members: Mutex<Vec<(String, MemberId)>>,
    /// Counts members in memory, for their names.
    memories: AtomicUsize,
}

impl Opened {
    pub(crate) fn start(lanes: usize) -> Result<Self, Error> {
        answer::refuse_lanes()?;
        let most = usize::from(u16::MAX) / 2;
        if !(1..=most).contains(&lanes) {
            return Err(Error::Asked {
                why: format!("an array cannot have {lanes} lanes"),
                cure: "give one for each CPU that is to serve it".into(),
            });
        }
        let table = MemberTable::new();
        let config = LanesConfig { count: lanes, members: table.clone(), ..LanesConfig::default() };
        let lanes = Some(Arc::new(Lanes::start(config)?));
        Ok(Self { table, lanes, members: Mutex::default(), memories: AtomicUsize::new(0) })
    }

    pub(crate) fn lanes(&self) -> Result<&Arc<Lanes>, Error> {
        self.lanes.as_ref().ok_or(Error::Stopped)
    }

    /// Opens a member for this array alone.
    pub(crate) fn open(
        &self,
        member: &Member,
        read_only: bool,
    ) -> Result<(MemberId, MemberInfo), Error> {
        let (name, mode) = (member.name()?, OpenMode { read_only, ..OpenMode::RUN });
        let (id, mut info) = match &member.0 {
            Kind::Own { .. } if self.find(&name).is_some() => {
                return Err(Error::Asked {
                    why: format!("two members are called {name}"),
                    cure: "give each device a name of its own".into(),
                });
            }
            Kind::Own { device, .. } => self.table.open_own(&name, device.clone(), read_only)?,
            Kind::Path(path) => once_let_go(path, || self.table.open(&name, mode))?,
            Kind::Memory { .. } | Kind::Missing => self.table.open(&name, mode)?,
        };
        self.table.identity(id).into_iter().for_each(held::opened);
        if let Kind::Memory { .. } = member.0 {
            info.name = format!("memory-{}", self.memories.fetch_add(1, Ordering::Relaxed));
        }
        self.members().push((info.name.clone(), id));
        Ok((id, info))
    }

    /// Refuses a member that is not empty as far as it is looked at.
    pub(crate) fn refuse_full(&self, id: MemberId, info: &MemberInfo) -> Result<(), Error> {
        let theirs = info.clone();
        let found = self.lanes()?.call(HOME, async move |lane, _| {
            for range in ends(&theirs) {
                if let Some(offset) = first_byte(&lane, id, range).await? {
                    return Ok(Some(offset));
                }
            }
            Ok(None)
        });
        let member = || info.name.clone();
        match found.map_err(|why| Error::Unreadable { member: member(), why })? {
            Some(offset_bytes) => Err(Error::NotEmpty { member: member(), offset_bytes }),
            None => Ok(()),
        }
    }

    /// The open member of this name.
    pub(crate) fn find(&self, name: &str) -> Option<MemberId> {
        self.members().iter().find(|(open, _)| open == name).map(|(_, id)| *id)
    }

    /// The names of all that are open.
    pub(crate) fn names(&self) -> Vec<String> {
        self.members().iter().map(|(name, _)| name.clone()).collect()
    }

    /// All that are open.
    pub(crate) fn all(&self) -> Vec<MemberId> {
        self.members().iter().map(|(_, id)| *id).collect()
    }

    pub(crate) fn close(&self, id: MemberId) {
        self.members().retain(|(_, open)| *open != id);
        let identity = self.table.identity(id);
        self.table.close(id);
        identity.into_iter().for_each(held::closed);
    }

    /// Closes all members, and ends the lanes. What `owes` answers is not waited for.
    pub(crate) fn end(&mut self, owes: &[MemberId]) {
        let Some(lanes) = self.lanes.take() else { return };
        let all = self.all();
        all.iter().for_each(|id| self.close(*id));
        let until = Instant::now() + END_PATIENCE;
        let mut closing = all.iter().filter(|id| !owes.contains(id));
        while let Some(id) = closing.clone().next() {
            if self.table.is_closed(*id) {
                closing.next();
            } else if Instant::now() >= until {
                tracing::warn!(
                    "a member still has requests under way; the end does not wait for them"
                );
                break;
            } else {
                thread::sleep(LOOK_EVERY);
            }
        }
        match Arc::into_inner(lanes).map(|lanes| lanes.stop(END_PATIENCE)) {
            Some(Err(busy)) => tracing::warn!("{busy}"),
            Some(Ok(())) => {}
            None => tracing::warn!("lanes of an array that has ended are still in use"),
        }
    }

    fn members(&self) -> MutexGuard<'_, Vec<(String, MemberId)>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.end(&[]);
    }
}

/// Opens a file or device, also one that this process has just closed.
fn once_let_go<T>(path: &Path, open: impl Fn() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let until = Identity::of_name(path).ok().and_then(held::free_by);
    loop {
        match open() {
            Err(error)
                if error.may_be_of_this_process()
                    && until.is_some_and(|until| Instant::now() < until) =>
            {
                thread::sleep(LOOK_EVERY);
            }
            result => return result,
        }
    }
}

/// The two ends of a device, in whole blocks, as bytes.
fn ends(info: &MemberInfo) -> [std::ops::Range<u64>; 2] {
    let block = u64::from(info.logical_block_bytes);
    let size = info.sectors * 512 / block * block;
    [0..size.min(LOOKED_AT_BYTES), size.saturating_sub(LOOKED_AT_BYTES) / block * block..size]
}

/// Where the first byte of a range is that is not zero. A range that cannot be read says why.
async fn first_byte(
    lane: &Lane,
    member: MemberId,
    range: std::ops::Range<u64>,
) -> Result<Option<u64>, String> {
    let len = (range.end - range.start) as usize;
    if len == 0 {
        return Ok(None);
    }
    let into = ReadInto::Buffer(Buffer::zeroed(len), 0..len);
    let op = IoOp::Read { sector: range.start / 512, into };
    let done = lane.io(MemberIo { member, op, patience: Patience::of(LOOK_PATIENCE) }).await;
    done.result.map_err(|error| error.to_string())?;
    let bytes = done.buffer.expect("a finished read returns its buffer");
    let at = bytes.iter().position(|byte| *byte != 0);
    Ok(at.map(|at| range.start + at as u64))
}

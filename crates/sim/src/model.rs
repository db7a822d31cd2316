//! The shadow model: which values a reader of the array may see, sector by sector.
//!
//! It knows neither geometry nor parity, only what was asked and what was answered:
//!
//! - After an acknowledged write a read sees it, or a write that was not over before it began.
//! - A write that failed, or that a crash took, leaves each sector old or new; the first read after
//!   it decides, and every later one sees the same.
//! - After a power cut a sector holds something not older than its last durable write: one that had
//!   FUA, or that was acknowledged before an acknowledged flush was asked for.
//!
//! `begun < ended` for every write that ended; moments are counted, not timed, and no two are equal.

mod history;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::stamp::{Found, SECTOR_BYTES, Version, identify};

use history::{History, Moment};

/// Names one request from its beginning to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Asked(Moment);

/// What a write is allowed to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// Acknowledged, it has been done.
    Done,
    /// Acknowledged, it has been done and is durable.
    Durable,
    /// It was done or not: a failed request, or a discard.
    Unknown,
}

/// A read that no legal history explains.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("sector {sector} of the array reads as {found}, legal are {legal:?}")]
pub struct Violation {
    /// Sector of the array.
    pub sector: u64,
    /// What it read as.
    pub found: Found,
    /// Versions that it could have had.
    pub legal: Vec<u64>,
}

/// What the array may hold.
#[derive(Clone, Debug)]
pub struct Model {
    sectors: Vec<History>,
    moment: Moment,
    writes: BTreeMap<Asked, Write>,
    reads: BTreeSet<Asked>,
    /// Sectors whose history a flush could shorten.
    volatile: BTreeSet<u64>,
    /// Whether a read settles what is open: not while more has failed than redundancy can bear.
    steady: bool,
    /// When a member was lost last.
    lost: Moment,
    /// Whether a flush makes what came before it durable.
    flushes_hold: bool,
    /// What was answered before may rest on one member. It is lost with that one and a crash, and no flush that was asked
    /// for before changes it.
    rests_on_one_until: Moment,
}

#[derive(Clone, Debug)]
struct Write {
    range: Range<u64>,
}

impl Model {
    /// An array of `sectors` sectors that reads as zeroes.
    pub fn zeroes(sectors: u64) -> Self {
        Self::new(sectors, History::zeroes())
    }

    /// An array of `sectors` sectors of which nothing is known.
    pub fn anything(sectors: u64) -> Self {
        Self::new(sectors, History::anything())
    }

    fn new(sectors: u64, history: History) -> Self {
        Self {
            sectors: vec![history; sectors as usize],
            moment: 1,
            writes: BTreeMap::new(),
            reads: BTreeSet::new(),
            volatile: BTreeSet::new(),
            steady: true,
            lost: 0,
            flushes_hold: true,
            rests_on_one_until: 0,
        }
    }

    /// Says whether a read still settles what is open. It does not when redundancy that a crash left
    /// open is lost before it was made right: then which of the old and new values is seen may change. What was seen
    /// before another one does not come back all the same.
    pub fn set_steady(&mut self, steady: bool) {
        self.steady = steady;
    }

    /// A member is lost now. In an array that is not steady another value may come to be read: what was read first, too.
    pub fn lose_a_member_now(&mut self) {
        self.lost = self.tick();
        if !self.steady {
            self.sectors.iter_mut().for_each(History::unhide);
        }
    }

    /// A member may be lost, soon. In an array that is not steady what was seen before may come back.
    pub fn lose_a_member(&mut self) {
        if !self.steady {
            self.sectors.iter_mut().for_each(History::forget_turns);
        }
    }

    /// Sectors in which a write may be half done: one is under way or, where the power goes, not durable.
    pub fn half_done(&self, without_power: bool) -> BTreeSet<u64> {
        let under_way = self.writes.values().flat_map(|write| write.range.clone());
        let volatile = self.volatile.iter().copied().filter(|_| without_power);
        under_way.chain(volatile).collect()
    }

    /// What is read of a sector from now on may be anything. It stays that until the sector is written.
    pub fn may_be_anything(&mut self, sector: u64) {
        let now = self.tick();
        self.sectors[sector as usize].may_be_anything(now);
    }

    /// A disk fails a flush: it drops what it had not made durable, and only one flush hears of it. One
    /// at the same time, or after it, is acknowledged, and so nothing but FUA is sure from here on.
    pub fn lose_a_flush(&mut self) {
        self.flushes_hold = false;
    }

    /// From now on answers rest on one member that may be lost.
    pub fn answers_rest_on_one(&mut self) {
        self.rests_on_one_until = Moment::MAX;
    }

    /// From now on they do not: that member is lost.
    pub fn answers_hold(&mut self) {
        self.rests_on_one_until = self.rests_on_one_until.min(self.moment);
    }

    /// A write of `version` to `range` begins. Several versions when its source may change under it.
    pub fn begin_write(&mut self, range: Range<u64>, versions: &[Version]) -> Asked {
        let asked = self.ask();
        for sector in range.clone() {
            for &version in versions {
                self.sectors[sector as usize].begin(version, asked.0);
            }
            self.volatile.insert(sector);
        }
        self.writes.insert(asked, Write { range });
        asked
    }

    /// It ends.
    pub fn end_write(&mut self, asked: Asked, certainty: Certainty) {
        let ended = self.tick();
        let write = self.writes.remove(&asked).expect("a write that begins ends once");
        let rests_on_one = ended <= self.rests_on_one_until && certainty == Certainty::Durable;
        let certainty = if rests_on_one { Certainty::Done } else { certainty };
        for sector in write.range {
            self.sectors[sector as usize].end(asked.0, ended, certainty);
        }
    }

    /// A read begins.
    pub fn begin_read(&mut self) -> Asked {
        let asked = self.ask();
        self.reads.insert(asked);
        asked
    }

    /// It fails: nothing is learnt.
    pub fn fail_read(&mut self, asked: Asked) {
        assert!(self.reads.remove(&asked), "a read that begins ends once");
    }

    /// It returns `bytes`, the first of which are `sector`'s.
    pub fn end_read(&mut self, asked: Asked, sector: u64, bytes: &[u8]) -> Result<(), Violation> {
        self.fail_read(asked);
        let ended = self.tick();
        for (sector, bytes) in (sector..).zip(bytes.chunks_exact(SECTOR_BYTES)) {
            let found = identify(sector, bytes);
            let history = &mut self.sectors[sector as usize];
            if !history.allows(found, asked.0) {
                return Err(Violation { sector, found, legal: history.legal(asked.0) });
            }
            match self.steady {
                true => history.settle(found, asked.0, ended),
                false if asked.0 > self.lost => history.turn(found, asked.0, ended),
                false => {}
            }
        }
        Ok(())
    }

    /// A flush begins.
    pub fn begin_flush(&mut self) -> Asked {
        self.ask()
    }

    /// It is acknowledged: every write that was acknowledged before it began is durable.
    pub fn end_flush(&mut self, asked: Asked) {
        if !self.flushes_hold || asked.0 <= self.rests_on_one_until {
            return;
        }
        let oldest_read = self.reads.first().map_or(self.moment, |read| read.0);
        let sectors = &mut self.sectors;
        self.volatile.retain(|&sector| {
            sectors[sector as usize].flush(asked.0, oldest_read);
            !sectors[sector as usize].is_settled()
        });
    }

    /// The process dies. What was in flight was done or not; disks keep what they have.
    pub fn kill(&mut self) {
        if !self.steady {
            // Where a write was under way the one or the other may be read first now.
            let sectors = self.writes.values().flat_map(|write| write.range.clone());
            let sectors: Vec<u64> = sectors.collect();
            sectors.into_iter().for_each(|at| self.sectors[at as usize].forget_last_read());
        }
        let open: Vec<Asked> = self.writes.keys().copied().collect();
        open.into_iter().for_each(|asked| self.end_write(asked, Certainty::Unknown));
        self.reads.clear();
        let until = self.rests_on_one_until;
        if until > 0 {
            self.sectors.iter_mut().for_each(|history| history.lose_answers(until));
        }
    }

    /// The power goes. Whatever was not durable was done or not.
    pub fn cut_power(&mut self) {
        self.kill();
        let now = self.tick();
        for &sector in &self.volatile {
            self.sectors[sector as usize].cut_power(now);
        }
    }

    /// Nothing is known of `range` any more: a forced assembly, say, gave it up.
    pub fn forget(&mut self, range: Range<u64>) {
        self.sectors[range.start as usize..range.end as usize].fill(History::anything());
    }

    /// What `sector` may hold now; a test's way to look.
    pub fn legal(&self, sector: u64) -> Vec<u64> {
        self.sectors[sector as usize].legal(self.moment + 1)
    }

    /// Whether a read of `sector` that begins and ends now may return `bytes`. Nothing is settled by it.
    pub fn judge(&self, sector: u64, bytes: &[u8]) -> Result<(), Violation> {
        let (found, now) = (identify(sector, bytes), self.moment + 1);
        let history = &self.sectors[sector as usize];
        match history.allows(found, now) {
            true => Ok(()),
            false => Err(Violation { sector, found, legal: history.legal(now) }),
        }
    }

    /// Whether these bytes are the only ones that `sector` may hold now. Zeroes are on every new disk, so
    /// they prove nothing.
    pub fn is_exactly(&self, sector: u64, bytes: &[u8]) -> bool {
        match identify(sector, bytes) {
            Found::Version(Version(0)) | Found::Elsewhere(..) | Found::Garbage(_) => false,
            Found::Version(Version(version)) => {
                self.legal(sector).iter().all(|legal| *legal == version)
            }
        }
    }

    /// Sectors of the array.
    pub fn len(&self) -> u64 {
        self.sectors.len() as u64
    }

    /// Whether the array has no sectors.
    pub fn is_empty(&self) -> bool {
        self.sectors.is_empty()
    }

    fn ask(&mut self) -> Asked {
        Asked(self.tick())
    }

    fn tick(&mut self) -> Moment {
        self.moment += 1;
        self.moment
    }
}

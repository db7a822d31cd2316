//! What a run is about: a kind of array, and troubles that come one after the other at points of its orderings.
//!
//! Each story was written for an ordering that plain chance did not break within a thousand seeds. Eleven runs
//! of twelve have one.

mod apart;
mod orders;
mod outliers;
mod plots;
mod resets;

use std::time::Duration;

use mdspace_engine::array::Point;

use crate::random::Random;
use crate::world::Servers;

use super::{Aim, Happening, Tending, Trouble};
use plots::Plot;

/// The names of all stories.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    plots::PLOTS.iter().chain(apart::PLOTS).map(|Plot(name, ..)| *name)
}

/// Aims, and an array that they can hurt.
#[derive(Default)]
pub(super) struct Story {
    /// What it is called; nothing, where the run has none.
    pub name: &'static str,
    pub aims: Vec<Aim>,
    /// Nothing is wished for where the run is about other things as well.
    pub wishes: Option<Wishes>,
}

/// What the array of a story is like.
#[derive(Clone, Default)]
pub(super) struct Wishes {
    /// One of these levels. All will do if it is empty.
    pub levels: &'static [i32],
    /// With or without a bitmap.
    pub bitmap: Option<bool>,
    /// A bit of it stands for much: soon all are set, and no write waits for one.
    pub coarse_bitmap: bool,
    /// The array begins with a resync.
    pub first_resync: bool,
    /// All redundancy is right from the start: bits that are set are those of writes.
    pub synced: bool,
    /// It has a spare from the start.
    pub spare: bool,
    /// It has none.
    pub no_spare: bool,
    /// A sync task takes about so many seconds; 0: any.
    pub sync_seconds: u64,
    /// What is not flushed is lost with the power.
    pub volatile_cache: bool,
    /// Superblocks, bitmaps and logs take long.
    pub slow_records: bool,
    /// Disks are alike, and an update of superblocks takes from 2 to 6 ms: a story knows where its middle is.
    pub paced: bool,
    /// What disks were asked first they often end last.
    pub uneven: bool,
    /// No member of a mirror is written behind, read last, or failed at its first error.
    pub alike: bool,
    /// One of two copies is written behind.
    pub behind: bool,
    /// What is behind on it is there soon, unless the story holds it.
    pub soon_there: bool,
    /// And that is the first of the two. It takes no longer than the other one. A spare does, and is read all the same.
    pub behind_first: bool,
    /// No copy is written behind.
    pub prompt: bool,
    /// A member that does not answer a write is soon given up.
    pub impatient: bool,
    /// A mirror has three copies.
    pub three: bool,
    /// The disks begin empty: a thin one has space only for what was written.
    pub blank: bool,
    /// Weights of reads, writes and flushes; any, where all are zero.
    pub kinds: [u32; 3],
    /// Users come one after the other, and never rest: bits are cleared though the array is not clean.
    pub trickle: bool,
    /// They come back to the same few places.
    pub hot: bool,
    /// Those are the first of the array.
    pub in_front: bool,
    /// They come to all places alike.
    pub spread: bool,
    /// Many at once read or write a block each, and do nothing else.
    pub short: bool,
    /// Most of them ask for a chunk at a time, or for 4 KiB where there are none.
    pub in_chunks: bool,
    /// There are many of them: what the story is about comes again and again.
    pub busy: bool,
    /// Now and then they pause for so long that the array counts as clean.
    pub pauses: bool,
    /// One comes up to a millisecond after the other: some begin in the middle of everything.
    pub spaced: bool,
    /// Every other write is to be durable.
    pub durable: bool,
    /// One in so many is to be durable; none, where it is 0.
    pub durable_one_in: Option<u64>,
    /// Some of it is given up now and then: where it is written again, there may be no space.
    pub discards: bool,
    /// There are several lanes.
    pub many_lanes: bool,
    /// It has as few members as its level can have.
    pub few: bool,
    /// Chunks, and with them windows of sync tasks, are so small that not every window is put on record.
    pub small_chunks: bool,
    /// Sectors of the bad-block log, if not as many as usual.
    pub log_sectors: Option<u16>,
    /// Members are so long that much is done between two records of it.
    pub long: bool,
    /// Besides what it aims at nothing happens, and paths are left alone.
    pub calm: bool,
    /// Troubles that come again and again.
    pub troubles: &'static [Happening],
    /// What becomes of disks that failed.
    pub tending: Tending,
    /// The number of a member that left goes to the next one that comes.
    pub reused_numbers: bool,
    /// Paths to each disk; any, if it is not said.
    pub paths: Option<u16>,
    /// What their servers are like.
    pub servers: Servers,
    /// A durable write is one that is followed by a flush.
    pub fua_flushes: bool,
}

impl Wishes {
    /// A sync task is as fast as it can.
    pub(super) const AT_ONCE: u64 = u64::MAX;

    /// It takes a third of a second over [long](Self::long) members, whatever users do.
    pub(super) const SOON: u64 = u64::MAX - 1;

    /// It is as slow as it can be told.
    pub(super) const SLOWLY: u64 = u64::MAX - 2;
}

impl Story {
    /// The story of a run. Drawn apart, as workers are.
    pub(super) fn draw(seed: u64, trouble: Trouble) -> Self {
        let mut random = Random::new(seed ^ 0x6169_6d65_6421_2121);
        if random.one_in(3) {
            return apart::draw(seed, trouble);
        }
        let is_alone = !random.one_in(6);
        let (name, aims, wishes) = Plot::draw(plots::PLOTS, seed, trouble);
        Self { name, aims, wishes: Some(wishes).filter(|_| is_alone) }
    }
}

/// What all stories draw from.
struct Teller {
    random: Random,
    late_by: Duration,
    /// One in so many times.
    often: u64,
    /// Seconds of a sync task.
    slowly: u64,
    coin: bool,
    crash: Happening,
}

/// A crash shows what an ordering is good for.
const CRASHES: &[Happening] =
    &[Happening::PowerCut, Happening::PowerCut, Happening::PowerCut, Happening::Kill];

/// What may make the engine change its mind in the middle.
const CHANGES: &[Happening] = &[
    Happening::FailMember,
    Happening::FailMember,
    Happening::Vanish,
    Happening::FailFlush,
    Happening::Fill,
    Happening::RefuseWrites,
    Happening::Hang,
    Happening::Tend,
    Happening::AddSpare,
    Happening::Replace,
    Happening::Rest,
];

/// Points in the middle of what the controller writes down.
const RECORDS: &[Point] = &[
    Point::MemberIsOut,
    Point::LaggardsCaughtUp,
    Point::BitmapSaysEvents,
    Point::SuperblocksAreWritten,
    Point::SuperblocksAreWritten,
];

impl Teller {
    fn new(mut random: Random) -> Self {
        let late_by = Duration::from_micros(*random.pick(&[0, 0, 200, 2_000]));
        let (often, slowly) = (*random.pick(&[1, 2, 5]), *random.pick(&[1, 3, 8]));
        let (coin, crash) = (random.coin(), *random.pick(CRASHES));
        Self { random, late_by, often, slowly, coin, crash }
    }

    fn at(&self, point: Point, happening: Happening, one_in: u64) -> Aim {
        Aim { point, happening: Some(happening), disk: None, one_in, late_by: self.late_by }
    }

    /// Nothing happens there: the next aim waits for it.
    fn after(&self, point: Point, one_in: u64) -> Aim {
        Aim { point, happening: None, disk: None, one_in, late_by: self.late_by }
    }

    /// It happens right after the one before.
    fn then(&self, happening: Happening) -> Aim {
        self.at(Point::MembersAnswered, happening, 0).at_once()
    }

    /// As [`then`](Self::then), to this disk.
    fn then_to(&self, disk: u16, happening: Happening) -> Aim {
        Aim { disk: Some(disk), ..self.then(happening) }
    }

    /// As [`at`](Self::at), to this disk.
    fn to(&self, disk: u16, point: Point, happening: Happening, one_in: u64) -> Aim {
        Aim { disk: Some(disk), ..self.at(point, happening, one_in) }
    }

    /// As [`at`](Self::at), up to 2 ms later.
    fn soon_after(&self, point: Point, happening: Happening, one_in: u64) -> Aim {
        Aim { late_by: Duration::from_millis(2), ..self.at(point, happening, one_in) }
    }

    /// A member fails, soon.
    fn fail(&self) -> Aim {
        self.at(Point::MembersAnswered, Happening::FailMember, 20)
    }

    fn record(&mut self) -> Point {
        *self.random.pick(RECORDS)
    }

    fn change(&mut self) -> Happening {
        *self.random.pick(CHANGES)
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        *self.random.pick(choices)
    }
}

//! Points half-way through an ordering, at which a test lets something happen: a crash, say. Only with
//! the feature `controls` are they counted.

#[cfg(feature = "controls")]
use crate::sync::atomic::{AtomicU64, Ordering};

use super::controls::named;

named! {
    /// How far an ordering has come.
    pub enum Point {
        // Requests
        RowIsRead: "A write of a row of parity has read what it needs.",
        MembersAnswered: "The members of a write have answered; it is not judged yet.",
        AnsweredBehind: "A write is answered, and some copies are still being written.",
        // Flushes, modes and the bitmap
        FlushFailed: "A member's flush has failed; no view says so yet.",
        BitsAreSet: "The bits of a write are durable; no lane knows.",
        ArrayIsDirty: "The superblocks say dirty; no write has begun.",
        CleanIsFlushed: "All is flushed; the superblocks are yet to say clean.",
        ArrayIsClean: "The superblocks say clean.",
        ClearingIsFlushed: "What the bits to be cleared stand for is flushed.",
        ClearingIsRecorded: "The bitmap's header says that bits will be cleared.",
        BitsAreCleared: "The bits are cleared on every member.",
        // Members and superblocks
        LaggardsCaughtUp: "An update of the superblocks begins; no member is behind.",
        BitmapSaysEvents: "The bitmap's headers say the update's events, the superblocks are to come.",
        SuperblocksAreWritten: "The superblocks are written.",
        RowsAreInDoubt: "A write failed; every lane knows which rows are in doubt.",
        MemberIsOut: "Lanes are told of a failed member; no superblock says so.",
        MemberIsIn: "A member has come in, or back.",
        ListIsLonger: "A longer list of bad blocks is durable; lanes do not know.",
        ListIsShorter: "A shorter list of bad blocks is durable.",
        // Resync, recovery, replacement
        SlotIsGiven: "A member is to be filled; every lane writes to it.",
        WindowIsDone: "A sync task has come further; lanes do not know.",
        ProgressIsFlushed: "Progress is flushed; the superblocks are yet to say so.",
        ProgressIsRecorded: "The superblocks say how far a sync task came.",
        ResyncIsRecorded: "A resync has ended, and the superblocks say so.",
        MemberIsFilled: "A filled member is flushed; the superblocks are yet to call it in sync.",
    }
}

/// How often one array came to each point.
#[derive(Default)]
pub(crate) struct Points {
    #[cfg(feature = "controls")]
    reached: [AtomicU64; Point::ALL.len()],
}

impl Points {
    /// The array has come to a point.
    #[cfg(not(feature = "controls"))]
    #[inline]
    pub(crate) fn reach(&self, _: Point) {}

    /// The array has come to a point.
    #[cfg(feature = "controls")]
    pub(crate) fn reach(&self, point: Point) {
        self.reached[point as usize].fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(feature = "controls")]
impl super::Array {
    /// How often it came to a point since it runs.
    pub fn times_reached(&self, point: Point) -> u64 {
        self.points.reached[point as usize].load(Ordering::Relaxed)
    }
}

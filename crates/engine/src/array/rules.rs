//! Rules that a test breaks, one at a time, to see that it would notice. Only with the feature `controls`
//! can they be broken.

#[cfg(feature = "controls")]
use crate::sync::atomic::{AtomicU64, Ordering};

use super::controls::named;

named! {
    /// What every array keeps, but for a test that breaks it.
    pub enum Rule {
        // Requests
        IntentIsDurableFirst: "The bitmap's bits are durable before the first write of their chunks.",
        ArrayIsDirtyFirst: "The superblocks say dirty before the first write.",
        RoundsAreClaimed: "A write of a row of parity has it for itself.",
        RoundsPlanAnew: "A write is planned again where its view has changed before it writes.",
        WritesLeaveNoOldStripe: "What a row's stripe cache holds goes when the row is zeroed.",
        WritesReachReplacements: "A write goes to the member of a slot and to its replacement.",
        WritesPastFailedMembersWait:
            "A write that passed over a failed member is answered when a view without it is settled.",
        WritesAreJudgedByBlocks: "A write of which a block is held by no believed member is an error.",
        FailedWritesLeaveDoubt: "Where a write failed, nothing is computed before resync has been there.",
        RefusedBlocksAreListed: "A block that a member refused is on its list before the write is answered.",
        NewsIsSettledUnderClaim: "Who tells of a bad block keeps its claim until every lane knows.",
        OneCopyInDoubt: "Where copies of a mirror may differ, all reads take the same one.",
        ReadsWaitForWritesBehind: "A read of a write-mostly member waits for writes behind in its range.",
        IntentStaysForWritesBehind: "The intent of a write stays until the last write behind has landed.",
        // Flushes and the bitmap
        FailedFlushesStayFailed:
            "A member whose flush failed is not flushed again: the next one would go well over lost data.",
        CleanIsFlushed: "An array is marked clean after a flush.",
        ClearingIsFlushed: "Bits are cleared after a flush of what they stand for.",
        ClearingWaitsForWhole: "No bit is cleared while a member is missing or being filled.",
        ClearingIsRecordedFirst: "The bitmap's header says so before a bit is cleared.",
        UnsyncedBitsStay: "Bits of what is still to be resynced stay.",
        // Members and superblocks
        LanesAdoptWhatIsSettled: "A view without a failed member is settled when every lane has adopted it.",
        SurvivorsRecordWhatIsSettled: "It is settled when the survivors' superblocks say that the member failed.",
        LaggardsCatchUp: "Members that are one event behind catch up before the next update.",
        QuietBeforeReuse: "A device comes back when it has answered everything.",
        BitmapKnowsTheReturn: "A member comes back by the bitmap if no bit was cleared since it left.",
        ReturnsAmongTheSame: "A member comes back by the bitmap if it knows the members in sync.",
        ListsAreDurable: "A list of bad blocks is durable before anything rests on it.",
        ListsShrinkAfterFlush: "A block leaves its list after a flush of what was written there.",
        // Resync, recovery, replacement
        AdoptedBeforeCopy: "A member is filled when every lane writes to it.",
        DoubtOutlivesFailures: "Rows in which a write ended half-way stay in doubt when a member fails.",
        WindowsReachReplacements: "What resync and repair write goes to the replacement too.",
        SkippedIsAHole: "What recovery leaves out of a member is not read from it.",
        FilledIsFlushed: "A member is called in sync after a flush.",
        RecoveryPromisesDurable: "A recovery offset promises what was flushed.",
        ResyncPromisesDurable: "A resync offset promises what was flushed.",
    }
}

/// The rules of one array.
#[derive(Default)]
pub(crate) struct Rules {
    #[cfg(feature = "controls")]
    broken: AtomicU64,
}

impl Rules {
    /// Whether it is kept.
    #[cfg(not(feature = "controls"))]
    #[inline]
    pub(crate) fn keep(&self, _: Rule) -> bool {
        true
    }

    /// Whether it is kept.
    #[cfg(feature = "controls")]
    pub(crate) fn keep(&self, rule: Rule) -> bool {
        self.broken.load(Ordering::Relaxed) & 1 << rule as u32 == 0
    }
}

#[cfg(feature = "controls")]
impl super::Array {
    /// Breaks a rule for as long as the array runs.
    pub fn break_rule(&self, rule: Rule) {
        self.rules.broken.fetch_or(1 << rule as u32, Ordering::Relaxed);
    }
}

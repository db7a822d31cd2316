//! Rules that a test breaks, one at a time, to see that it would notice. Only with the feature `controls`
//! can they be broken.

#[cfg(feature = "controls")]
use std::cell::Cell;
#[cfg(feature = "controls")]
use std::sync::OnceLock;

#[cfg(feature = "controls")]
use crate::sync::atomic::{AtomicBool, Ordering};

use super::controls::named;

named! {
    /// What every array keeps, but for a test that breaks it.
    pub enum Rule {
        // Requests
        IntentIsDurableFirst: "The bitmap's bits are durable before the first write of their chunks.",
        ArrayIsDirtyFirst: "The superblocks say dirty before the first write.",
        RoundsAreClaimed: "A write of a row of parity has it for itself.",
        SharedWaitsForExclusive: "A degraded read, or a check, waits for the writes of its row.",
        TakenAlongIsClaimed: "The claim of a write covers what it takes along.",
        MirroredWritesAreClaimed: "A write of a mirror has its range for itself.",
        WindowsAreClaimed: "A window of a sync task has its range for itself.",
        HedgedRoundsGoByWhatCame: "A round that was hedged is planned by the blocks that came.",
        GivenPiecesKeepTheirFua: "A piece that another lane writes is as durable as it was asked to be.",
        FuaIsOfAllPieces: "A round is durable if one of its pieces is to be.",
        OneFailedPieceFailsItsRequest: "A request fails if one of its pieces does.",
        RoundsTakeTheirStripes: "A write takes what the stripe cache has of its row.",
        FailedRoundsKeepNothing: "A write that failed leaves nothing in the stripe cache.",
        WritesLeaveNoOldStripe: "What a row's stripe cache holds goes when the row is zeroed.",
        WritesReachReplacements: "A write goes to the member of a slot and to its replacement.",
        WritesPastFailedMembersWait:
            "A write that passed over a failed member is answered when a view without it is settled.",
        WritesAreJudgedByBlocks: "A write of which a block is held by no believed member is an error.",
        FailedWritesLeaveDoubt: "Where a write failed, nothing is computed before resync has been there.",
        NoSpaceIsNoFailure: "A member without space for a write is not failed for it.",
        NoSpaceIsNoSuccess: "A write that found no space somewhere is an error.",
        PiecesAreAllTried: "What was refused as a whole is tried in all its pieces.",
        BrokenArraysSettleNothing: "What an array has not recorded when it breaks, it never will have.",
        RefusedBlocksAreListed: "A block that a member refused is on its list before the write is answered.",
        NewsIsSettledUnderClaim: "Who tells of a bad block keeps its claim until every lane knows.",
        ListedIsNotRead: "What a list names is not read.",
        UntrustedParityIsMadeAnew: "Where parity is not trusted a write computes it from all data.",
        DoubtedParityIsNotUsed: "Nothing is computed from parity in doubt.",
        TwoParitiesAreCompared: "Doubt ends where both parities give the same.",
        UnreadMayBeReadAgain: "Doubt ends no sooner than a block that cannot be read is written again.",
        OutliersStayAsTheyAre: "What a member lacks after a failed write is what is read there, and no parity makes it other.",
        AcceptedIsWrittenFirst: "Where memory alone lists a block accepted doubt ends when the block is written.",
        HiddenIsWrittenFirst: "A block that memory alone lists is written before parity fits what is computed for it.",
        HalfDoneIsNotKnown: "Where a resync came half-way nothing stays known from before of which blocks a row is right without.",
        AllForgetWhatIsHalfDone: "A resync that came half-way keeps its claim until no lane goes by what was known before.",
        OneCopyInDoubt: "Where copies of a mirror may differ, all reads take the same one.",
        PicksAreGivenUpFirst: "In doubt another block is read when lists name the one that was read before.",
        PicksAreDurable: "In doubt another block is read when a crash would not bring back the one that was read before.",
        ReadsWaitForWritesBehind: "A read of a write-mostly member waits for writes behind in its range.",
        EarlyAnswersAreSettled: "A write that is answered early passed over no member that still counts.",
        EarlyAnswersAreOnRecord: "A write is answered early when a member has it that is on record as in sync.",
        BehindUntilAllLanesKnow: "A write behind that went wrong is waited for by reads until all lanes know its verdict.",
        RecordsMayTakeWhoHasIt: "A write is answered early if the member that has it is still there when the record is made that it waited for.",
        ReplacementsAreNotBehind: "A write is behind where all that get it are write-mostly.",
        IntentStaysForWritesBehind: "The intent of a write stays until the last write behind has landed.",
        LateOnesAreLookedAtAgain: "What waits for a late member is looked at again when another one answers.",
        // Flushes and the bitmap
        FailedFlushesStayFailed:
            "A member whose flush failed is not flushed again: the next one would go well over lost data.",
        FailedFlushesFailMembers: "A member whose flush failed is taken out.",
        FailedFlushesEndReads: "What a member gives counts no more once its flush has failed.",
        FailuresEndReads: "What a member gives counts no more once it has failed otherwise.",
        LateFlushesTell: "A flush that fails after its deadline tells of a loss.",
        FilledFallsBackFirst: "What members were filled with is not read once one fails that they may have it from.",
        OldReadsAreReadAgain: "What was read before something was taken back is read again.",
        WhoStaysIsFlushed: "A member is given up when a flush of the others has told of no loss.",
        FlushesAskAllMembers: "A flush goes to every member.",
        FlushesCoverWhatEnded: "A flush that is under way covers nothing that ended after it began.",
        FlushesWaitForWhatIsBehind: "A flush waits for writes behind that no member has yet.",
        FlushesWaitForDurableWrites:
            "A flush is believed when the durable writes that were under way at its end have ended well.",
        CleanWaitsForWrites: "An array is marked clean when no write is under way.",
        CleanIsFlushed: "An array is marked clean after a flush.",
        BitsAreOnAllMembers: "The bitmap's bits are set on every member.",
        PassesWaitForLanes: "Bits are cleared when every lane has told what it writes.",
        LanesForgetIdleChunks: "A lane asks again for bits that a pass may clear.",
        BusyChunksStay: "Bits stay in whose chunks a lane writes.",
        ClearingIsFlushed: "Bits are cleared after a flush of what they stand for.",
        ClearingWaitsForWhole: "No bit is cleared while a member is missing or being filled.",
        ClearingIsRecordedFirst: "The bitmap's header says so before a bit is cleared.",
        UnsyncedBitsStay: "Bits of what is still to be resynced stay.",
        // Members and superblocks
        LanesAdoptWhatIsSettled: "A view without a failed member is settled when every lane has adopted it.",
        SurvivorsRecordWhatIsSettled: "It is settled when the survivors' superblocks say that the member failed.",
        UpdatesCountEvents: "Each update of the superblocks counts.",
        SurvivorsCallItFaulty: "The survivors' superblocks call a failed member faulty.",
        LaggardsCatchUp: "Members that are one event behind catch up before the next update.",
        QuietBeforeReuse: "A device comes back when it has answered everything.",
        BitmapKnowsTheReturn: "A member comes back by the bitmap if no bit was cleared since it left.",
        ReturnsAmongTheSame: "A member comes back by the bitmap if it knows the members in sync.",
        ListedMembersAreFilled: "A member that lists bad blocks is filled anew when it comes back.",
        HalfFilledAreFilled: "A member that was not whole when it left is filled anew when it comes back.",
        OutBeforeItsListGoes: "The others say that a member is out before its list is cleared.",
        ListsAreDurable: "A list of bad blocks is durable before anything rests on it.",
        ListsShrinkAfterFlush: "A block leaves its list after a flush of what was written there.",
        // Resync, recovery, replacement
        AdoptedBeforeCopy: "A member is filled when every lane writes to it.",
        DoubtOutlivesFailures: "Rows in which a write ended half-way stay in doubt when a member fails.",
        SourcesAreFlushed: "Members that were read are flushed before others get what was made of it.",
        LostSourcesAreTakenBack: "What a member was filled with since the last flush is copied anew when one goes that it came from.",
        HolesLowerThePromise: "A recovery offset ends before the first hole.",
        HolesKeepMembersOut: "A member with holes is not in sync.",
        DoubtMakesHoles: "A write that failed is copied anew to a member that is filled with copies.",
        FailedRowsAreFilledAgain: "A row in which a write failed is filled again on a member that is being filled.",
        DoubtLowersTheResync: "A resync offset promises nothing where a crash left doubt.",
        FillingBeginsWithTheLeast: "Of several members that are filled the one that has least says where to begin.",
        ReplacementsAreRecordedFirst: "A replacement's superblock says that it has the slot before another gives up the old member.",
        ChangesEndReasons: "A change of membership ends what kept a sync task from running.",
        WindowsReachReplacements: "What resync and repair write goes to the replacement too.",
        SkippedIsAHole: "What recovery leaves out of a member is not read from it.",
        FilledIsFlushed: "A member is called in sync after a flush.",
        RecoveryPromisesDurable: "A recovery offset promises what was flushed.",
        ResyncPromisesDurable: "A resync offset promises what was flushed.",
        // Assembly
        StaleMembersStayOut: "A member that missed updates is not taken.",
        TwoEventsAreTooMany: "A member that is two events behind is not taken.",
        CrashesLeaveWork: "What the bitmap marks after a crash is resynced.",
        EveryBitmapCounts: "A bit counts that one member's bitmap has.",
        OldBitmapsCountAsFull: "A bitmap of an earlier update counts as full.",
        NewcomersHoldNothing: "A spare that others give a slot, and that does not know it, holds nothing.",
        NumbersHaveOneHolder: "Of two members with one number the older is not taken.",
        CrashedReplacementsWait: "After a crash a replacement does not take over, though it has all.",
        ReplacementsAreDistrusted: "After a crash a replacement is copied anew where writes were under way.",
        // Paths
        WritesWaitForProof: "A write waits for the proof that an earlier one over a lost path is over.",
        AnswersWaitForProof: "A write is not answered while an earlier one over a lost path may land on it.",
        FencesProveTheirTime: "A fence proves what was sent before it began, and its path takes nothing until it ends.",
        DurableWritesFailOnce: "A flush that was sent over a path and failed is not asked again over another.",
        LostFuaIsAFailedFlush: "A durable write that a path lost has failed, though another path takes its bytes.",
        FlushesInWritesAreFlushes: "A durable write of which the flush failed is no refused sector.",
        FlushesGoOverAllPaths: "A flush goes over every path whose cache may hold something.",
        LostCachesAreTold: "A path that was lost with something in its cache fails the next flush.",
        PathsAreProved: "A path is used when it is seen to lead to the device.",
        OlderCopiesAreOthers: "A path to an older copy of the device does not lead to it.",
    }
}

/// Whether a rule is kept that has no array to be broken in: of claims, assembly, paths.
#[cfg(not(feature = "controls"))]
#[inline]
pub(crate) const fn keep(_: Rule) -> bool {
    true
}

/// Whether a rule is kept that has no array to be broken in: of claims, assembly, paths.
#[cfg(feature = "controls")]
pub(crate) fn keep(rule: Rule) -> bool {
    ASKED_HERE.set(ASKED_HERE.get().and(rule));
    BROKEN_HERE.get() != Some(rule)
}

#[cfg(feature = "controls")]
thread_local! {
    static BROKEN_HERE: Cell<Option<Rule>> = Cell::new(broken_everywhere());
    static ASKED_HERE: Cell<Asked> = const { Cell::new(Asked(0)) };
}

/// Rules of which the engine has asked whether they are kept, one bit each. To break another one had changed nothing.
#[cfg(feature = "controls")]
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked(u128);

#[cfg(feature = "controls")]
const _: () = assert!(Rule::ALL.len() <= u128::BITS as usize, "each rule has a bit of its own");

#[cfg(feature = "controls")]
impl Asked {
    /// Those of this thread, since this was called last.
    pub fn take_here() -> Self {
        ASKED_HERE.take()
    }

    /// Whether this is one of them.
    pub fn has(self, rule: Rule) -> bool {
        self.0 >> rule as u32 & 1 == 1
    }

    fn and(self, rule: Rule) -> Self {
        Self(self.0 | 1 << rule as u32)
    }
}

/// The rule that `MDSPACE_BROKEN_RULE` names: `tools/broken-rules` sees which tests notice.
#[cfg(feature = "controls")]
fn broken_everywhere() -> Option<Rule> {
    static BROKEN: OnceLock<Option<Rule>> = OnceLock::new();
    *BROKEN.get_or_init(|| {
        let name = std::env::var("MDSPACE_BROKEN_RULE").ok()?;
        let known = Rule::ALL.iter().copied().find(|rule| rule.name() == name);
        Some(known.unwrap_or_else(|| panic!("MDSPACE_BROKEN_RULE={name} names no rule")))
    })
}

/// Breaks a rule for all that runs on this thread, until it drops.
#[cfg(feature = "controls")]
#[derive(Debug)]
#[must_use = "the rule is kept again when this drops"]
pub struct BrokenHere(());

#[cfg(feature = "controls")]
impl BrokenHere {
    /// From now on.
    pub fn new(rule: Rule) -> Self {
        BROKEN_HERE.set(Some(rule));
        Self(())
    }
}

#[cfg(feature = "controls")]
impl Drop for BrokenHere {
    fn drop(&mut self) {
        BROKEN_HERE.set(broken_everywhere());
    }
}

/// The rules of one array.
#[cfg_attr(not(feature = "controls"), derive(Default))]
pub(crate) struct Rules {
    #[cfg(feature = "controls")]
    broken: [AtomicBool; Rule::ALL.len()],
}

#[cfg(feature = "controls")]
impl Default for Rules {
    fn default() -> Self {
        Self { broken: std::array::from_fn(|_| AtomicBool::new(false)) }
    }
}

impl Rules {
    /// Whether it is kept.
    #[cfg(not(feature = "controls"))]
    #[inline]
    pub(crate) const fn keep(&self, _: Rule) -> bool {
        true
    }

    /// Whether it is kept.
    #[cfg(feature = "controls")]
    pub(crate) fn keep(&self, rule: Rule) -> bool {
        keep(rule) && !self.broken[rule as usize].load(Ordering::Relaxed)
    }
}

#[cfg(feature = "controls")]
impl super::Array {
    /// Breaks a rule for as long as the array runs, on all its threads.
    pub fn break_rule(&self, rule: Rule) {
        self.rules.broken[rule as usize].store(true, Ordering::Relaxed);
    }
}

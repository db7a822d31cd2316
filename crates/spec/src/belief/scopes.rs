//! What is looked at, and where each rule is seen to be needed.

use super::Rule;
use crate::verdict::Level;

/// Kinds of trouble.
pub(super) const REFUSE: u8 = 1;
pub(super) const GO: u8 = 2;
pub(super) const HANG: u8 = 4;
pub(super) const UNREADABLE: u8 = 8;

/// How often each thing may happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Left {
    pub(super) writes: u8,
    pub(super) reads: u8,
    pub(super) faults: u8,
    pub(super) cuts: u8,
    pub(super) fills: u8,
    pub(super) choices: u8,
}

/// An array, and what may happen to it.
#[derive(Clone, Copy)]
pub(crate) struct Scope {
    pub(crate) name: &'static str,
    pub(super) level: Level,
    /// Of a mirror. A row has two.
    pub(super) blocks: usize,
    pub(super) left: Left,
    pub(super) kinds: u8,
    /// A request may cover both blocks.
    pub(super) wide: bool,
    /// A member in sync may be replaced.
    pub(super) replace: bool,
    /// Slot 0 is being filled at the start.
    pub(super) degraded: bool,
}

const fn mirror(name: &'static str, left: [u8; 6]) -> Scope {
    let [writes, reads, faults, cuts, fills, choices] = left;
    Scope {
        name,
        level: Level::Mirror,
        blocks: 1,
        left: Left { writes, reads, faults, cuts, fills, choices },
        kinds: REFUSE | GO | UNREADABLE,
        wide: false,
        replace: false,
        degraded: false,
    }
}

const fn row(name: &'static str, left: [u8; 6]) -> Scope {
    Scope { level: Level::Row, wide: true, ..mirror(name, left) }
}

impl Scope {
    const fn by(self, kinds: u8) -> Self {
        Self { kinds, ..self }
    }

    const fn narrow(self) -> Self {
        Self { wide: false, ..self }
    }

    const fn two_blocks(self) -> Self {
        Self { blocks: 2, wide: true, ..self }
    }

    const fn replacing(self) -> Self {
        Self { replace: true, ..self }
    }

    const fn being_filled(self) -> Self {
        Self { degraded: true, ..self }
    }
}

/// Counts are writes, reads, faults, power cuts, fillings, and members given up by order.
pub(crate) const SCOPES: &[Scope] = &[
    mirror("mirror, two faults", [2, 2, 2, 0, 0, 0]),
    mirror("mirror, a fault and a cut", [2, 2, 1, 1, 0, 0]),
    mirror("mirror, two faults and a cut", [2, 1, 2, 1, 0, 0]),
    mirror("mirror, two cuts", [1, 2, 1, 2, 0, 0]),
    mirror("mirror, being filled", [2, 2, 1, 0, 0, 0]).being_filled(),
    mirror("mirror, being filled, a cut", [1, 2, 1, 1, 0, 0]).being_filled(),
    mirror("mirror, being filled, two faults and a cut", [1, 2, 2, 1, 0, 0])
        .by(REFUSE | GO)
        .being_filled(),
    mirror("mirror, replaced", [1, 1, 2, 0, 1, 0]).by(REFUSE).replacing(),
    mirror("mirror, cut while replaced", [1, 2, 0, 1, 1, 0]).replacing(),
    mirror("mirror, late", [2, 1, 1, 0, 1, 0]).by(HANG),
    mirror("mirror, given up", [1, 1, 1, 0, 0, 1]),
    mirror("mirror, given up in doubt", [1, 2, 0, 1, 1, 1]).replacing(),
    mirror("mirror, filled in doubt", [1, 2, 1, 1, 0, 0]).by(GO).being_filled(),
    mirror("mirror of two blocks, a cut", [2, 2, 0, 1, 0, 0]).two_blocks(),
    mirror("mirror of two blocks, a fault and a cut", [1, 2, 1, 1, 0, 0])
        .by(UNREADABLE)
        .two_blocks(),
    row("row, a fault", [2, 1, 1, 0, 0, 0]),
    row("row, two faults", [1, 1, 2, 0, 0, 0]),
    row("row, a fault and a cut", [1, 1, 1, 1, 0, 0]),
    row("row, a cut, writes, a fault", [2, 1, 1, 1, 0, 0]),
    row("row, two members go, a cut", [1, 1, 2, 1, 0, 0]).by(GO).narrow(),
    row("row, being filled", [1, 1, 1, 0, 0, 0]).being_filled(),
    row("row, being filled, two writes", [2, 1, 1, 0, 0, 0]).by(GO).narrow().being_filled(),
    row("row, being filled, a cut", [1, 1, 0, 1, 0, 0]).being_filled(),
    row("row, replaced, a cut", [1, 1, 0, 1, 1, 0]).narrow().replacing(),
    row("row, replaced", [1, 1, 1, 0, 1, 0]).by(REFUSE).narrow().replacing(),
    row("row, replaced, a block listed", [0, 2, 2, 0, 1, 0])
        .by(UNREADABLE | GO)
        .narrow()
        .replacing(),
    row("row, replaced, two refusals", [1, 1, 2, 0, 1, 0]).by(REFUSE).narrow().replacing(),
    row("row, late", [2, 1, 1, 0, 1, 0]).by(HANG).narrow(),
    row("row, given up", [1, 1, 1, 0, 0, 1]),
];

/// What takes minutes.
pub(crate) const LARGE: &[Scope] = &[
    mirror("mirror, two faults, a cut, reads", [2, 2, 2, 1, 0, 0]),
    mirror("mirror, two cuts, two writes", [2, 2, 1, 2, 0, 0]),
    mirror("mirror, being filled, faults and a cut", [2, 2, 2, 1, 0, 0]).being_filled(),
    mirror("mirror, replaced, a fault and a cut", [1, 2, 1, 1, 1, 0]).replacing(),
    mirror("mirror, given up, filled, a fault", [1, 2, 1, 0, 1, 1]).replacing(),
    row("row, two faults and a cut", [1, 1, 2, 1, 0, 0]),
    row("row, being filled, a fault and a cut", [1, 1, 1, 1, 0, 0]).being_filled(),
    row("row, replaced, a fault and a cut", [1, 1, 1, 1, 1, 0]).narrow().replacing(),
    row("row, replaced, refusals and losses", [1, 1, 2, 0, 1, 0])
        .by(REFUSE | GO)
        .narrow()
        .replacing(),
    row("row, given up, a cut", [1, 1, 1, 1, 0, 1]),
];

/// Without these nothing goes wrong beside the other rules. They cost nothing: without the first a wrong
/// guess is found when the verdict is asked again; without the second writes fail needlessly.
pub(crate) const NOT_NEEDED: &[Rule] = &[Rule::NewsJudgedNow, Rule::ErrorByNewestView];

/// The scope that shows what the rule is for.
pub(crate) fn shown_in(rule: Rule) -> &'static str {
    use Rule::*;
    match rule {
        ViewAfterClaim | AdoptedBeforeAnswer => "row, late",
        SleeperAdoptsFirst | JudgedByBlocks | AskedAgain | ErrorLeavesDoubt | LostUnderClaim
        | AdoptsWhileWaiting | BrokenEndsWaits => "mirror, two faults",
        ClaimUntilSettled => "row, given up",
        ReadNewsUnderClaim | BrokenReadsNoDoubt => "mirror, being filled, a cut",
        RecordedBeforeAnswer | ListedBeforeAnswer | FixedCopyInDoubt | SameCopyForAll => {
            "mirror, a fault and a cut"
        }
        ListedCounts | OnlyForward => "row, two faults",
        UnfilledCounts | WritesReachFilling | FailureMakesHole => "mirror, being filled",
        DoubtCounts | ReconstructInDoubt | NoComputingInDoubt => "row, a cut, writes, a fault",
        DoubtEndsByWhole => "mirror of two blocks, a cut",
        RewritesReachFilling => "mirror, filled in doubt",
        ResyncAsksToo | ReadsInDoubtRecorded => "mirror, two cuts",
        AdoptedBeforeCopy | NewsJudgedNow => "mirror, replaced",
        QuietBeforeReuse | AdoptNotDrain => "mirror, late",
        InSyncAfterDoubt | NotGivenUpInDoubt => "mirror, given up in doubt",
        BeliefByBlock => "mirror of two blocks, a fault and a cut",
        GivenUpByBlocks | GivenUpInQuiet => "mirror, given up",
        ListUntilOut => "mirror, two faults and a cut",
        BrokenNotRecorded => "row, two members go, a cut",
        ErrorByNewestView => "row, being filled, two writes",
        ReplacementIsRead => "row, replaced, a block listed",
    }
}

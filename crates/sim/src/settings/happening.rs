//! What happens to the array besides requests.

use serde::{Deserialize, Serialize};

/// What happens to the array besides requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Happening {
    /// Sectors of a member become unreadable.
    SpoilSectors,
    /// A member refuses writes to some sectors.
    RefuseWrites,
    /// A member fails its next flush.
    FailFlush,
    /// A member vanishes.
    Vanish,
    /// A member stops answering for a while.
    Hang,
    /// A member gets slow.
    Slow,
    /// Nothing can be written to a member for want of space, for a while.
    Fill,
    /// The operator fails a member.
    FailMember,
    /// The operator removes what failed and puts it, or a new disk, back.
    Tend,
    /// The operator adds a spare.
    AddSpare,
    /// The operator asks for a check.
    Check,
    /// The operator asks for a repair.
    Repair,
    /// Everything is read once.
    ReadAll,
    /// The array is stopped and assembled again.
    Restart,
    /// The process is killed and the array assembled again.
    Kill,
    /// The power goes, and the array is assembled again.
    PowerCut,
    /// The wall clock is set.
    SetClock,
    /// Members lie: bytes change behind everybody's back, and a scrub has to find out.
    Lie,
    /// The operator has a member replaced that works.
    Replace,
    /// Users are quiet for a while.
    Rest,
    /// A lane's thread is not on a CPU for a while.
    Doze,
    /// The array is stopped and assembled without a member, which comes back before anything is written.
    StartWithout,
    /// Users leave for good: what is wrong is not written over.
    Leave,
    /// When the array starts next, a spare, or else a member, has left the machine, and a new disk comes for it.
    Unplug,
    /// When the array starts next, a disk that left is back as it was, in the place of the one that came for it.
    PlugBack,
    /// As [`Self::PlugBack`], beside that one.
    PlugBeside,
    /// When the array is stopped next, some copies of a mirror run elsewhere for a while. They come back
    /// when the operator adds them.
    PartAway,
    /// A program that leaves the bitmap alone was at work from the last start to the next crash.
    ForgetBitmaps,
    /// A path is lost over which something is being written.
    LosePath,
    /// A member fails its next flush, and the path is lost that asked for it.
    LoseFlush,
    /// A path leads to an older copy of its disk for a while.
    Mislead,
    /// Users wait for seconds before they ask again: a lost path is back.
    Pause,
    /// Users wait for all answers and read everything, and once more seconds later.
    ReadTwice,
    /// A member cannot read its data for a while.
    Flicker,
    /// A member starts anew: it gives old blocks where it was not told to flush, and drops off soon. Users are quiet until
    /// then.
    Reset,
    /// Users read, the process is killed, and members that had vanished are back when the array is assembled again.
    KillBeforeReturn,
    /// The operator bounds, stops or frees sync tasks for a while.
    Steer,
    /// What is asked of a member's superblock, bitmap and log takes long for a while; its data do not.
    HoldRecords,
    /// The other way round.
    HoldData,
    /// The operator accepts parity that is in doubt.
    AcceptDoubt,
    /// Two members stop answering while users read, and one of them answers again long before the other one.
    HangTwo,
    /// Users flush, and the power goes when that is answered.
    CutWhenFlushed,
    /// Users write nothing until they are told to write again.
    OnlyRead,
    /// Users write again.
    WriteAgain,
    /// Users wait for all answers and read everything.
    ReadNow,
    /// A member refuses writes for a while, wherever they go.
    RefuseAll,
    /// The operator lets sync tasks come no further than the first chunk. They run, and wait there.
    Bound,
    /// The operator lets sync tasks go on.
    LetGo,
    /// A member starts anew, as in [`Self::Reset`], and stays. Users come back as soon as a flush has told.
    ResetAndFlush,
    /// The same, and the operator fails another member first.
    ResetAndFail,
}

impl Happening {
    /// All of them, in the order of their weights.
    pub const ALL: [Self; 50] = [
        Self::SpoilSectors,
        Self::RefuseWrites,
        Self::FailFlush,
        Self::Vanish,
        Self::Hang,
        Self::Slow,
        Self::Fill,
        Self::FailMember,
        Self::Tend,
        Self::AddSpare,
        Self::Check,
        Self::Repair,
        Self::ReadAll,
        Self::Restart,
        Self::Kill,
        Self::PowerCut,
        Self::SetClock,
        Self::Lie,
        Self::Replace,
        Self::Rest,
        Self::Doze,
        Self::StartWithout,
        Self::Leave,
        Self::Unplug,
        Self::PlugBack,
        Self::PlugBeside,
        Self::PartAway,
        Self::ForgetBitmaps,
        Self::LosePath,
        Self::LoseFlush,
        Self::Mislead,
        Self::Pause,
        Self::ReadTwice,
        Self::Flicker,
        Self::Reset,
        Self::KillBeforeReturn,
        Self::Steer,
        Self::HoldRecords,
        Self::HoldData,
        Self::AcceptDoubt,
        Self::HangTwo,
        Self::CutWhenFlushed,
        Self::OnlyRead,
        Self::WriteAgain,
        Self::ReadNow,
        Self::RefuseAll,
        Self::Bound,
        Self::LetGo,
        Self::ResetAndFlush,
        Self::ResetAndFail,
    ];

    /// Whether it is bad for a member.
    pub(super) fn hurts(self) -> bool {
        matches!(
            self,
            Self::SpoilSectors
                | Self::RefuseWrites
                | Self::FailFlush
                | Self::Vanish
                | Self::Hang
                | Self::FailMember
                | Self::StartWithout
                | Self::Flicker
                | Self::Reset
                | Self::ResetAndFlush
                | Self::ResetAndFail
                | Self::RefuseAll
        )
    }

    /// Whether a member may be out some time after it, or in.
    pub fn may_take_a_member(self) -> bool {
        !matches!(
            self,
            Self::Vanish
                | Self::Kill
                | Self::PowerCut
                | Self::KillBeforeReturn
                | Self::Restart
                | Self::Fill
                | Self::Flicker
                | Self::Slow
                | Self::ReadAll
                | Self::ReadTwice
                | Self::Check
                | Self::SetClock
                | Self::Rest
                | Self::Pause
                | Self::Doze
                | Self::Leave
                | Self::Steer
                | Self::HoldRecords
                | Self::HoldData
                | Self::AcceptDoubt
                | Self::CutWhenFlushed
                | Self::OnlyRead
                | Self::WriteAgain
                | Self::ReadNow
                | Self::Bound
                | Self::LetGo
        )
    }

    /// Whether only stories have it: a seed that has none draws what it drew before.
    pub(super) fn is_of_stories(self) -> bool {
        self as usize >= Self::Unplug as usize
    }

    pub(super) fn crashes(self) -> bool {
        matches!(self, Self::Kill | Self::PowerCut | Self::CutWhenFlushed)
    }
}

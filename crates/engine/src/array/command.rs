//! What users ask of the array itself, and what they are told.

use crate::backend::{MemberId, MemberInfo};
use crate::status::{ArrayStatus, MembersLeft};

/// An order to the controller, with the way back for its answer.
pub struct Command {
    /// What to do.
    pub action: Action,
    /// Called once, on the controller's lane.
    pub reply: Box<dyn FnOnce(Result<Reply, CommandError>) + Send>,
}

/// What the controller can be asked to do.
#[derive(Clone, Debug)]
pub enum Action {
    /// Say what the array is and does.
    Status,
    /// Say so when something may have happened since this was last answered. One waits at a time: a second
    /// takes the place of the first, which is answered.
    News,
    /// Take a member for failed. With `force` also the last one that is needed.
    Fail {
        /// The device.
        member: MemberId,
        /// Also beyond what the level bears.
        force: bool,
    },
    /// Forget a failed member or a spare.
    Remove {
        /// The device.
        member: MemberId,
    },
    /// Take in a device: back into its slot by the bitmap where that is safe, else as a spare.
    Add {
        /// The device, open.
        member: MemberId,
        /// What it can do.
        info: MemberInfo,
        /// Refuse what cannot go back by the bitmap (`re-add`).
        only_back: bool,
    },
    /// Have a member replaced that still works, without a moment in which the slot is empty.
    Replace {
        /// The device.
        member: MemberId,
        /// The spare that takes its place; the next one that is not needed more, where none is given.
        with: Option<MemberId>,
    },
    /// Refuse writes from now on.
    ReadOnly,
    /// Take writes again.
    ReadWrite,
    /// Read all redundancy and compare.
    Check,
    /// Read all redundancy, compare, and make it right: by the evidence, and where that cannot decide
    /// as the user says.
    Repair(Undecided),
    /// Let what is needed run: resync or recovery, also what was frozen or ended with an error (`resync`,
    /// `recover`).
    Sync,
    /// Compute from parity what a crash left in doubt, as md does: what was being written in the moment of
    /// the crash may come out as bytes that were never written.
    AcceptDoubt,
    /// End a check or repair, and let what is needed run (`idle`).
    Idle,
    /// End whatever runs, and start nothing (`frozen`).
    Freeze,
    /// Mark the array clean and end.
    Stop,
    /// The same, but within seconds: where members have not answered by then the array ends as in a crash.
    /// Hurries an order to stop that waits.
    StopByForce,
    /// End at once, as in a crash: what is under way is waited for a second, nothing is marked clean, and the next
    /// assembly finds what a crash leaves.
    Abandon,
}

/// What a repair does where the evidence does not tell who lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undecided {
    /// Nothing: it is told.
    Leave,
    /// It believes the data, and makes parity agree; of mirrors, the copy that is believed first.
    ByData,
    /// It believes this member's copy.
    ByMember(MemberId),
}

/// What the controller answers.
#[derive(Clone, Debug)]
pub enum Reply {
    /// Done.
    Done,
    /// The array was stopped by force, and not marked clean. These members have not answered everything
    /// that they were asked.
    Stopped {
        /// Their names.
        unanswered: Vec<String>,
    },
    /// The array at this moment.
    Status(Box<ArrayStatus>),
    /// A device was taken in; with `true` back into its slot by the bitmap.
    Added {
        /// Whether only what changed meanwhile is copied.
        by_bitmap: bool,
    },
}

/// Why the controller refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// No such member.
    #[error("that device is not a member of the array")]
    NotAMember,
    /// The member does its work.
    #[error("the member is active: fail it before removing it")]
    Active,
    /// It is the only one left, and says what the array is.
    #[error("it is the last member that the array has, and its superblock says what the array is")]
    LastMember,
    /// Failing it would take the array down.
    #[error("the array needs this member: without it data would be lost (--force fails it anyway)")]
    Needed,
    /// It could be spared, if others answered.
    #[error(
        "members did not answer in time: {late}; without them and this one data would be lost (--force \
         fails it anyway)"
    )]
    NeedsLate {
        /// The names of those others.
        late: String,
    },
    /// Some blocks of it can be had from no other member.
    #[error(
        "at least {sectors} sectors of the array can be had from this member alone: others list them as \
         bad or refuse a write there, or their parity is in doubt since a crash or a failed write (--force \
         fails it anyway)"
    )]
    HoldsAlone {
        /// Of the array.
        sectors: u64,
    },
    /// Writes that were answered have not come to the write-mostly members yet.
    #[error(
        "{writes} writes that were acknowledged are behind on the write-mostly members, and without this \
         member no other has them (--force fails it anyway)"
    )]
    IsAhead {
        /// How many.
        writes: u32,
    },
    /// Other members have not answered a write yet.
    #[error(
        "a write is under way that other members have not answered: if one of them refuses it, what this \
         member has beside it can be had from no other (--force fails it anyway)"
    )]
    IsWritten,
    /// Copies may differ, and this member's is read.
    #[error(
        "the copies of {sectors} sectors may differ since a crash or a failed write, and this member's copy \
         is read: without it a write that was not acknowledged may be read new and then old (--force \
         fails it anyway)"
    )]
    IsRead {
        /// Of the array.
        sectors: u64,
    },
    /// Too small or wrongly placed.
    #[error("the device does not fit: {0}")]
    DoesNotFit(String),
    /// Its logical blocks are larger than the array's, or its data begin inside one.
    #[error("the device's blocks do not fit: {0}")]
    BlocksDoNotFit(String),
    /// The member cannot be replaced, or not so.
    #[error("the member cannot be replaced: {0}")]
    NotReplaceable(&'static str),
    /// No way back by the bitmap.
    #[error("the device cannot go back by the bitmap: {0}")]
    NotBack(String),
    /// Levels without redundancy.
    #[error("the level has no redundancy to do this with")]
    NoRedundancy,
    /// Parity levels have no copy to believe.
    #[error("a single member decides nothing on a level with parity")]
    NoCopies,
    /// There is nothing to accept.
    #[error("no redundancy is in doubt")]
    NothingInDoubt,
    /// Another sync task runs.
    #[error("{0} is under way")]
    Busy(&'static str),
    /// The user has said so.
    #[error("the array takes no writes")]
    ReadOnly,
    /// More members are lost than the level bears.
    #[error("too many members are lost: {left}")]
    Broken {
        /// What is left of them.
        left: MembersLeft,
    },
    /// Something that was sent to the device is still under way.
    #[error(
        "the device has not answered everything that it was asked when it was a member: an old write \
         could land over what it is given now"
    )]
    Unanswered,
    /// What was sent to a device that was to be taken in is still under way.
    #[error("the device has not taken what was written to it ({0}), and may do so later")]
    MayLand(String),
    /// Sync tasks write.
    #[error(
        "the array is read-only, and sync tasks write: a check too writes again what it cannot read \
         (readwrite lets them run)"
    )]
    NoSyncReadOnly,
    /// A superblock could not be written.
    #[error("the members' superblocks could not be written: {0}")]
    Metadata(String),
    /// The array is stopped.
    #[error("the array is stopped")]
    Stopped,
}

//! Why a device takes no part, and why an array does not start.

use mdspace_format::Uuid;

use crate::geometry::GeometryError;

/// A device that takes no part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name.
    pub member: String,
    /// Why.
    pub reason: Reason,
}

/// Why a device takes no part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// It is no member.
    #[error("has no md superblock")]
    NoSuperblock,
    /// What it says of itself cannot be read, or is damaged: as good as missing.
    #[error("{0}")]
    Unreadable(String),
    /// Another array's.
    #[error("belongs to another array")]
    OtherArray,
    /// Its data are older than the array's.
    #[error("is out of date: {events} events, the array has {freshest}")]
    Stale {
        /// Its events.
        events: u64,
        /// The array's.
        freshest: u64,
    },
    /// Another member holds all that it held, and takes its slot.
    #[error("is replaced by {0}, which has all its data")]
    Replaced(String),
    /// The array says that it failed.
    #[error("is marked as failed")]
    Faulty,
    /// It ran apart from those that the operator went on with.
    #[error("ran apart from the array, and was decided against: --prefer=MEMBER decides anew")]
    Rejected,
}

/// Why an array does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// No device with a superblock.
    #[error("no member of an array was given")]
    NoMembers,
    /// All that was given belongs to others.
    #[error("nothing that was given belongs to array {wanted}: {member} belongs to {found}")]
    NoneOfIt {
        /// The array that was asked for.
        wanted: Uuid,
        /// One of those that were given.
        member: String,
        /// Its array.
        found: Uuid,
    },
    /// Several arrays.
    #[error(
        "the members belong to different arrays: {first} to {first_uuid}, {other} to {other_uuid}"
    )]
    DifferentArrays {
        /// A member.
        first: String,
        /// Its array.
        first_uuid: Uuid,
        /// Another member.
        other: String,
        /// Its array.
        other_uuid: Uuid,
    },
    /// A member's user has written a superblock into the data, or an old one lies there; which one tells the array alone.
    #[error(
        "{member} has two superblocks, and each lies in what the other calls data: one of array {taken} at sector \
         {taken_sector}, one of array {rival} at sector {rival_sector}; say which array is meant: --uuid=UUID"
    )]
    TwoSuperblocks {
        /// The member.
        member: String,
        /// The array to which it was taken to belong.
        taken: Uuid,
        /// Where that superblock lies.
        taken_sector: u64,
        /// The other one's array.
        rival: Uuid,
        /// Where the other one lies.
        rival_sector: u64,
    },
    /// The same member twice.
    #[error("{first} and {other} claim to be the same member: one is a copy of the other")]
    Duplicate {
        /// A member.
        first: String,
        /// Its double.
        other: String,
    },
    /// Two members for one slot.
    #[error("{first} and {other} both hold slot {slot}")]
    OneSlot {
        /// The slot.
        slot: u16,
        /// A member.
        first: String,
        /// Another member.
        other: String,
    },
    /// A feature that must not be ignored.
    #[error("{member}: {feature}")]
    Unsupported {
        /// The member.
        member: String,
        /// The feature by name, and that it is not handled.
        feature: String,
    },
    /// A count of updates that no array reaches. There must be room for those to come: a superblock that
    /// counts more than [`EVENTS_MAX`](mdspace_format::superblock::EVENTS_MAX) cannot be parsed.
    #[error("{member} counts {events} updates of its superblock, which no array can have had")]
    TooManyUpdates {
        /// The member.
        member: String,
        /// Its events.
        events: u64,
    },
    /// Superblocks that contradict each other.
    #[error("{member} disagrees with {freshest} about the array's {field}")]
    Disagree {
        /// The member.
        member: String,
        /// The member with the most events.
        freshest: String,
        /// What they disagree about.
        field: &'static str,
    },
    /// Each half ran without the other.
    #[error("{first} and {other} each ran without the other: what was written differs")]
    SplitBrain {
        /// A member of one half.
        first: String,
        /// A member of the other.
        other: String,
    },
    /// Each half ran without the other, and the one that the array went on with is not here.
    #[error(
        "{member} ran apart from the array, and was decided against: those that went on are not here"
    )]
    Rejected {
        /// A member that is here.
        member: String,
    },
    /// A bad-block list that cannot be read.
    #[error("{member} has a bad-block list that cannot be read: {reason}")]
    BadBlocks {
        /// The member.
        member: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A shape that no array has.
    #[error("the array's shape is impossible: {0}")]
    Geometry(#[from] GeometryError),
    /// A bitmap that does not reach to the end of the array.
    #[error(
        "the bitmap covers {covered} of {needed} sectors, so writes behind it would leave no trace: \
         remove it (mdadm --grow --bitmap=none) and assemble again"
    )]
    ShortBitmap {
        /// Sectors that its bits stand for.
        covered: u64,
        /// Sectors that they should.
        needed: u64,
    },
    /// A member whose superblock leaves less room for the bitmap than the array's takes: it would lie over what
    /// comes next on the device.
    #[error(
        "{member} has no room for the array's bitmap: assemble without that member and add it again, or remove \
         the bitmap (mdadm --grow --bitmap=none)"
    )]
    NoRoomForBitmap {
        /// The member.
        member: String,
    },
    /// Not enough members.
    #[error("only {present} of {needed} members are there, not enough to start")]
    TooFew {
        /// Members in sync.
        present: usize,
        /// Slots of the array.
        needed: usize,
    },
    /// Members are missing that were there when the array was last seen.
    #[error("{} there when the array last ran", missing_words(*missing))]
    Missing {
        /// How many.
        missing: usize,
    },
    /// The array may have gone on with members that are not there, and without some that are.
    #[error(
        "{spare}, a spare, has seen a later update than the members: the array may have gone on with \
         members that are missing"
    )]
    WentOnElsewhere {
        /// The spare.
        spare: String,
    },
    /// Dirty and degraded.
    #[error(
        "the array is dirty and degraded: data of missing members may be wrong where writes were under way"
    )]
    DirtyDegraded,
}

fn missing_words(missing: usize) -> String {
    match missing {
        1 => "1 member is missing that was".to_owned(),
        more => format!("{more} members are missing that were"),
    }
}

impl Refusal {
    /// Whether [`Options::force`](super::Options::force) starts the array all the same.
    pub fn yields_to_force(&self) -> bool {
        matches!(self, Self::WentOnElsewhere { .. } | Self::DirtyDegraded)
    }
}

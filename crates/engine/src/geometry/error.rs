//! Why a shape cannot be an array.

use super::Level;

/// A shape that md could not run, or not run safely.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GeometryError {
    /// Fewer members than the level needs.
    #[error("{level} needs at least {minimum} members, but the array has {raid_disks}")]
    TooFewDisks {
        /// The level.
        level: Level,
        /// Members asked for.
        raid_disks: u16,
        /// The least that works.
        minimum: u16,
    },
    /// More members than the level or the metadata can have.
    #[error(
        "{level} can have at most {maximum} members in this layout, but the array has {raid_disks}"
    )]
    TooManyDisks {
        /// The level.
        level: Level,
        /// Members asked for.
        raid_disks: u16,
        /// The most that works.
        maximum: u16,
    },
    /// A chunk size that the level cannot have.
    #[error("a chunk of {chunk_sectors} sectors is not possible for {level}: it must be {rule}")]
    Chunk {
        /// The level.
        level: Level,
        /// Chunk asked for.
        chunk_sectors: u32,
        /// What it must be, in sectors.
        rule: &'static str,
    },
    /// A layout number without a meaning.
    #[error("{level} has no layout {layout:#x}; the superblock is damaged or from a newer md")]
    UnknownLayout {
        /// The level.
        level: Level,
        /// md's layout number.
        layout: u32,
    },
    /// RAID0 members of several sizes, and nothing says which of the two historical maps was used.
    #[error(
        "raid0 on members of different sizes, and the superblock does not say which layout (found {layout:#x}): \
         choose original (1) or alternate (2, written by Linux 3.14 to 5.3); the wrong one shows wrong data"
    )]
    AmbiguousRaid0Layout {
        /// md's layout number.
        layout: u32,
    },
    /// Not one size per member.
    #[error("{level} over {raid_disks} members needs the size of each, but {found} were given")]
    MemberSizes {
        /// The level.
        level: Level,
        /// Members asked for.
        raid_disks: u16,
        /// Sizes given.
        found: usize,
    },
    /// A member that cannot hold a single chunk.
    #[error("{} too small for {level}: at least {needed} sectors are needed", match slot {
        Some(slot) => format!("the member of slot {slot} is"),
        None => "the members are".to_owned(),
    })]
    MemberTooSmall {
        /// The level.
        level: Level,
        /// The member, where they differ in size.
        slot: Option<u16>,
        /// Sectors that it must have.
        needed: u64,
    },
    /// A member or array beyond 2^63 bytes.
    #[error("the array would be larger than 2^63 bytes; use smaller or fewer members")]
    TooLarge,
    /// A RAID10 layout without redundancy or with more copies than members.
    #[error("raid10 with {copies} copies on {raid_disks} members: it needs 2 to {maximum}")]
    Copies {
        /// Near × far copies.
        copies: u16,
        /// Members.
        raid_disks: u16,
        /// The most that works.
        maximum: u16,
    },
    /// A RAID10 layout in which md itself would put two blocks in one place.
    #[error(
        "raid10 layout {layout:#x} on {raid_disks} members puts different blocks in the same place, \
         so data on such an array is already lost; use another layout or number of members"
    )]
    CopiesOverlap {
        /// md's layout number.
        layout: u32,
        /// Members.
        raid_disks: u16,
    },
}

//! What an array is and does at one moment, as plain data in md's words.
//!
//! `mdspace detail` and `/proc/mdstat`'s text are drawn from these values alone. Nothing here decides
//! anything: the owner of the array fills it in, whoever asks reads it. Sectors are 512 bytes.

use std::fmt;
use std::ops::Range;

use mdspace_format::{Level, MetadataVersion, Uuid};

use crate::balance::Load;
use crate::ranges::Ranges;

/// One array at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayStatus {
    /// `set_uuid`.
    pub uuid: Uuid,
    /// The name on disk: `HOST:NAME`, or `NAME` where no host is known.
    pub name: String,
    /// Version of the superblocks.
    pub metadata: MetadataVersion,
    /// Creation, seconds since 1970.
    pub created_s: u64,
    /// Last superblock update, seconds since 1970.
    pub updated_s: u64,
    /// Event count of the superblocks.
    pub events: u64,
    /// The level.
    pub level: Level,
    /// md's layout number, as in the superblock.
    pub layout: u32,
    /// Chunk size; 0 where the level has none.
    pub chunk_sectors: u32,
    /// Slots of the array, without spares.
    pub raid_disks: u32,
    /// Size that users see.
    pub size_sectors: u64,
    /// Part of each member that is used; 0 for RAID0 and linear.
    pub member_sectors: u64,
    /// Logical block that the array announces, in bytes.
    pub logical_block_bytes: u32,
    /// State of the whole array.
    pub state: ArrayState,
    /// How redundancy is kept right over a crash.
    pub consistency_policy: ConsistencyPolicy,
    /// The write-intent bitmap, where there is one.
    pub bitmap: Option<BitmapStatus>,
    /// Write-behind, where it is allowed.
    pub write_behind: Option<WriteBehindStatus>,
    /// What the sync task does now.
    pub sync: SyncStatus,
    /// Sectors that the last check or repair found different.
    pub mismatch_sectors: u64,
    /// Where they are, and who lies.
    pub mismatches: Mismatches,
    /// Sectors of the array that nobody can give any more, for bad blocks of members.
    pub lost: Skipped,
    /// Where parity may be half-written, after a crash or a failed write: a block that is missing or listed
    /// as bad there is an error until a resync, a write of the whole row or the user ends the doubt. In
    /// sectors of a member; nothing on levels without parity.
    pub doubted: Skipped,
    /// Every member, spares and faulty ones too. A slot that no member names is missing.
    pub members: Vec<MemberStatus>,
}

impl ArrayStatus {
    /// Slots without a member that is in sync.
    #[must_use]
    pub fn degraded(&self) -> u32 {
        let in_sync = self.members.iter().filter(|m| m.state == MemberState::InSync).count();
        self.raid_disks.saturating_sub(u32::try_from(in_sync).unwrap_or(u32::MAX))
    }

    /// What is left of its members.
    #[must_use]
    pub fn left(&self) -> MembersLeft {
        MembersLeft { left: self.raid_disks - self.degraded(), slots: self.raid_disks }
    }

    /// The member that holds `slot`, if any.
    #[must_use]
    pub fn member_at(&self, slot: u32) -> Option<&MemberStatus> {
        self.members.iter().find(|m| m.slot == Some(slot))
    }
}

/// How many members are in sync where too many are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembersLeft {
    /// Members in sync.
    pub left: u32,
    /// Slots of the array.
    pub slots: u32,
}

impl fmt::Display for MembersLeft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { left, slots } = self;
        let are = if *left == 1 { "is" } else { "are" };
        write!(f, "only {left} of {slots} members {are} left")
    }
}

/// md's `array_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayState {
    /// Assembled, not started.
    Inactive,
    /// No writes until told otherwise.
    Readonly,
    /// No writes until the first one arrives.
    ReadAuto,
    /// No write under way, superblocks say so.
    Clean,
    /// Writes may be under way.
    Active,
    /// More members lost than the level bears: writes fail.
    Broken,
}

impl ArrayState {
    /// md's word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Inactive => "inactive",
            Self::Readonly => "readonly",
            Self::ReadAuto => "read-auto",
            Self::Clean => "clean",
            Self::Active => "active",
            Self::Broken => "broken",
        }
    }
}

/// md's `consistency_policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConsistencyPolicy {
    /// No redundancy to keep.
    None,
    /// A full resync after a crash.
    Resync,
    /// A resync of what the bitmap marks.
    Bitmap,
}

impl ConsistencyPolicy {
    /// md's word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Resync => "resync",
            Self::Bitmap => "bitmap",
        }
    }
}

/// The write-intent bitmap at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BitmapStatus {
    /// Bytes that one bit stands for.
    pub chunk_bytes: u64,
    /// Bits that are set.
    pub dirty_bits: u64,
    /// Bits in the bitmap.
    pub total_bits: u64,
    /// Groups of [`BITS_A_PAGE`] bits with a bit set: what md calls pages.
    pub dirty_pages: u64,
}

/// Writes that were answered before write-mostly members have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBehindStatus {
    /// At most so many: md's `bitmap/backlog`.
    pub limit: u32,
    /// Under way now.
    pub under_way: u32,
}

/// Bits that one page of md's counters stands for, the unit of `bitmap:` in `/proc/mdstat`.
pub const BITS_A_PAGE: u64 = 2048;

/// What the sync task does, md's `sync_action`, and how far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncStatus {
    /// The task.
    pub action: SyncAction,
    /// The task before this one.
    pub last_action: SyncAction,
    /// Sectors done. Member sectors; array sectors for RAID10.
    pub completed_sectors: u64,
    /// Sectors to do, 0 when idle. Same unit.
    pub total_sectors: u64,
    /// It has not begun: another array syncs on a device of this one (`sync_force_parallel`).
    pub delayed: bool,
    /// The check or repair that is still to run, or to go on: also while something runs that it waits for.
    pub waiting: Option<SyncAction>,
    /// Speed over the last seconds, KiB/s of one member; 0 when idle.
    pub speed_kib_s: u64,
    /// How the task before this one ended; none before the first has.
    pub last_end: Option<SyncEnd>,
    /// What the task, or the one before where none runs, had to leave undone. Same unit.
    pub skipped: Skipped,
}

/// How a sync task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncEnd {
    /// All was done.
    Complete,
    /// It was told to end: by a user, or because a member failed or came.
    Interrupted,
    /// Some of it could not be done.
    Incomplete,
    /// There was no space behind a member; it is tried again.
    NoSpace,
}

impl SyncEnd {
    /// Our word for it; md has none.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Interrupted => "interrupted",
            Self::Incomplete => "incomplete",
            Self::NoSpace => "no-space",
        }
    }
}

/// Ranges that could be neither read nor computed: what a sync task had to leave undone, or what is
/// lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Ranges in all.
    pub ranges: u64,
    /// Sectors in all.
    pub sectors: u64,
    /// The first ranges, at most [`Skipped::LISTED_MAX`].
    pub first: Vec<Range<u64>>,
}

impl Skipped {
    /// Ranges that are listed one by one.
    pub const LISTED_MAX: usize = 16;
}

impl From<&Ranges> for Skipped {
    fn from(all: &Ranges) -> Self {
        Self {
            ranges: all.iter().count() as u64,
            sectors: all.sectors(),
            first: all.iter().take(Self::LISTED_MAX).collect(),
        }
    }
}

/// A place where redundancy and data contradict each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Where it is in the array: what the liar holds, else the first data block of the row.
    pub array_sector: u64,
    /// Where it is on its members, from their data offset; on the liar, or the first, where that differs.
    pub member_sectors: Range<u64>,
    /// The chunk row, on parity levels.
    pub row: Option<u64>,
    /// Who is concerned.
    pub slots: Vec<u32>,
    /// Whose bytes all the others contradict; none where that cannot be told.
    pub liar: Option<u32>,
}

/// The mismatches that a check or repair has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mismatches {
    /// The first of them, at most [`Mismatches::LISTED_MAX`]; neighbours are one.
    pub first: Vec<Mismatch>,
    /// All of them.
    pub places: u64,
    /// Those where it is not known which member is wrong.
    pub undecidable: u64,
}

impl Mismatches {
    /// Places that are listed one by one.
    pub const LISTED_MAX: usize = 64;

    pub(crate) fn add(&mut self, new: Mismatch) {
        self.places += 1;
        self.undecidable += u64::from(new.liar.is_none());
        if self.first.len() < Self::LISTED_MAX {
            self.first.push(new);
        }
    }
}

/// md's `sync_action` words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncAction {
    /// Nothing runs.
    Idle,
    /// Nothing runs and nothing may start.
    Frozen,
    /// Redundancy is made right after a crash or a create.
    Resync,
    /// A member is rebuilt.
    Recover,
    /// Redundancy is read and compared.
    Check,
    /// Redundancy is read, compared and made right.
    Repair,
}

impl SyncAction {
    /// md's word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Frozen => "frozen",
            Self::Resync => "resync",
            Self::Recover => "recover",
            Self::Check => "check",
            Self::Repair => "repair",
        }
    }

    /// Whether a task runs.
    #[must_use]
    pub fn runs(self) -> bool {
        !matches!(self, Self::Idle | Self::Frozen)
    }
}

/// One member at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberStatus {
    /// What the user called it: a path, `ram:256M`.
    pub name: String,
    /// `dev_number`: its permanent place in `dev_roles`.
    pub number: u32,
    /// `device_uuid`.
    pub device_uuid: Uuid,
    /// The slot that it holds or is being rebuilt into; none for spares and faulty members.
    pub slot: Option<u32>,
    /// What it is to the array.
    pub state: MemberState,
    /// It is faulty, for it was lost together with more members than the level bears: no superblock says so, and the
    /// next assembly takes it.
    pub is_lost: bool,
    /// Read only when nothing else can answer.
    pub write_mostly: bool,
    /// It let a read pass its deadline and has not answered since: others answer for it.
    pub late: bool,
    /// A write found no space behind it in the last minute.
    pub lacks_space: bool,
    /// Failed at the first error.
    pub failfast: bool,
    /// Read errors that were corrected.
    pub corrected_errors: u32,
    /// Member sectors known good; valid while `state` is `Recovering`.
    pub recovery_offset_sectors: u64,
    /// It is to take its slot over from another member, which still does its work.
    pub replacement: bool,
    /// A spare is to take its place while it still works.
    pub want_replacement: bool,
    /// Ranges in its bad-block list.
    pub bad_ranges: u32,
    /// Where its data starts.
    pub data_offset_sectors: u64,
    /// Its whole size.
    pub size_sectors: u64,
    /// What it does for mirrors: none on other levels and without a slot.
    pub load: Option<Load>,
}

/// What a member is to its array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// Its slot's data are all there.
    InSync,
    /// Being rebuilt up to `recovery_offset_sectors`.
    Recovering,
    /// Waits for a slot.
    Spare,
    /// Failed: neither read nor written.
    Faulty,
}

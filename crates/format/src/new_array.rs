//! The first superblocks and bitmap of an array, as mdadm writes them at `--create`.

use crate::bitmap::{BitmapState, BitmapSuperblock, BitmapVersion};
use crate::placement::{ArrayPlacement, PlacementError};
use crate::superblock::{
    FIXED_BYTES, MAX_ROLES, MemberFlags, Padding, RESYNC_NONE, Reshape, SetName,
};
use crate::{Features, Level, Role, SECTOR_BYTES, Superblock, SuperblockError, Timestamp, Uuid};

/// Seconds between passes that clear bits of the bitmap, mdadm's default.
const DAEMON_SLEEP_SECONDS: u32 = 5;

/// Events of an array that has not run yet.
pub const FIRST_EVENTS: u64 = 1;

/// What an array is, apart from where its parts lie.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewArray {
    /// UUID of the array; the caller's random number.
    pub set_uuid: Uuid,
    /// Name of the array.
    pub set_name: SetName,
    /// Now.
    pub ctime: Timestamp,
    /// Level of the array.
    pub level: Level,
    /// Layout of the array. RAID0 has one too: 1, original.
    pub layout: u32,
    /// Sectors of a chunk; 0 where the level has none.
    pub chunk_sectors: u32,
    /// Slots of the array.
    pub raid_disks: u32,
    /// Whether to take the members for in sync as they are.
    pub in_sync: bool,
    /// Writes that may be left behind on write-mostly members; 0 is none.
    pub write_behind: u32,
}

/// What a member is to the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewMember {
    /// Size of the device.
    pub device_sectors: u64,
    /// UUID of the member; the caller's random number.
    pub device_uuid: Uuid,
    /// Its index among the roles, as a rule its place on the command line.
    pub dev_number: u32,
    /// What it is.
    pub role: Role,
    /// Write-mostly and failfast.
    pub flags: MemberFlags,
}

/// Why no superblock can be made for a member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NewArrayError {
    /// There is no room on the device.
    #[error(transparent)]
    Placement(#[from] PlacementError),
    /// The values do not go together.
    #[error(transparent)]
    Superblock(#[from] SuperblockError),
    /// There are more members than a superblock has roles.
    #[error("member number {dev_number} is beyond the 1920 roles of a superblock")]
    TooManyMembers {
        /// The member's number.
        dev_number: u32,
    },
}

impl NewArray {
    /// One superblock for each of `members`, in their order. Those named missing are simply not
    /// there: their roles stay spare.
    ///
    /// Events are 1: Linux 6.19 and later writes its `logical_block_size` into an array that it starts with
    /// events 0, and kernels before refuse the array from then on. `resync_offset` is 0, or [`RESYNC_NONE`] for an array in sync or without
    /// redundancy: the first update of the running array counts on from there.
    pub fn superblocks(
        &self,
        placement: &ArrayPlacement,
        members: &[NewMember],
    ) -> Result<Vec<Superblock>, NewArrayError> {
        let roles = self.roles(members)?;
        members
            .iter()
            .map(|member| {
                let superblock = self.superblock(placement, member, roles.clone())?;
                superblock.validate(member.device_sectors)?;
                Ok(superblock)
            })
            .collect()
    }

    /// The bitmap's header, if the placement has a bitmap. Every bit is to be written set, unless
    /// the array is taken for in sync.
    pub fn bitmap(&self, placement: &ArrayPlacement) -> Option<BitmapSuperblock> {
        let place = placement.bitmap?;
        Some(BitmapSuperblock {
            version: BitmapVersion::LittleEndian,
            uuid: self.set_uuid,
            events: FIRST_EVENTS,
            events_cleared: 0,
            sync_size_sectors: place.sync_size_sectors,
            state: BitmapState::default(),
            chunk_bytes: place.chunk_bytes,
            daemon_sleep_seconds: DAEMON_SLEEP_SECONDS,
            write_behind: self.write_behind,
            sectors_reserved: 0,
            padding: [0; 188],
        })
    }

    fn superblock(
        &self,
        placement: &ArrayPlacement,
        member: &NewMember,
        roles: Vec<Role>,
    ) -> Result<Superblock, PlacementError> {
        let parts = placement.member(member.device_sectors)?;
        Ok(Superblock {
            place: parts.place,
            features: self.features(placement),
            set_uuid: self.set_uuid,
            set_name: self.set_name,
            ctime: self.ctime,
            level: self.level,
            layout: self.layout,
            size_sectors: placement.size_sectors,
            chunk_sectors: self.chunk_sectors,
            raid_disks: self.raid_disks,
            bitmap_offset_sectors: placement.bitmap.map_or(0, |bitmap| bitmap.offset_sectors),
            reshape: Reshape::default(),
            data_offset_sectors: parts.data_offset_sectors,
            data_size_sectors: parts.data_size_sectors,
            recovery_offset_sectors: None,
            journal_tail_sector: 0,
            dev_number: member.dev_number,
            corrected_reads: 0,
            device_uuid: member.device_uuid,
            flags: member.flags,
            bad_block_log: parts.bad_block_log,
            utime: Timestamp::with_microseconds(self.ctime.seconds(), 1),
            events: FIRST_EVENTS,
            resync_offset_sectors: if self.is_clean() { RESYNC_NONE } else { 0 },
            logical_block_size_bytes: 0,
            roles,
            padding: Padding::default(),
        })
    }

    /// Without redundancy there is nothing to bring in sync.
    fn is_clean(&self) -> bool {
        self.in_sync || !self.level.is_redundant()
    }

    fn features(&self, placement: &ArrayPlacement) -> Features {
        let raid0_layout = self.level == Level::Raid0 && self.layout != 0;
        Features::NONE
            .with(Features::BITMAP_OFFSET, placement.bitmap.is_some())
            .with(Features::RAID0_LAYOUT, raid0_layout)
    }

    /// The roles fill whole sectors of superblock, spare where there is no member.
    fn roles(&self, members: &[NewMember]) -> Result<Vec<Role>, NewArrayError> {
        let slots = members.iter().filter(|member| member.role.slot().is_some()).count();
        let others = members.len() - slots;
        let numbers = members.iter().map(|member| member.dev_number as usize + 1).max();
        let needed = (self.raid_disks as usize).saturating_add(others);
        let bytes =
            (FIXED_BYTES + 2 * needed.min(MAX_ROLES)).next_multiple_of(SECTOR_BYTES as usize);
        let count = ((bytes - FIXED_BYTES) / 2).max(numbers.unwrap_or(0));
        if count > MAX_ROLES || needed > MAX_ROLES {
            let dev_number = count.max(needed) as u32 - 1;
            return Err(NewArrayError::TooManyMembers { dev_number });
        }
        let mut roles = vec![Role::Spare; count];
        for member in members {
            roles[member.dev_number as usize] = member.role;
        }
        Ok(roles)
    }
}

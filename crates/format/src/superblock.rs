//! The version 1 superblock: what a member knows about its array and itself.

mod areas;
mod error;
mod name;
mod raw;
mod validate;

use zerocopy::{FromBytes, IntoBytes};

pub use error::{SuperblockError, SuperblockErrorKind};
pub use name::{NameTooLong, SetName};
pub use raw::{AREA_BYTES, FIELDS, FIXED_BYTES, MAGIC, MAJOR_VERSION, MAX_ROLES, RESYNC_NONE};
pub use validate::EVENTS_MAX;

use crate::{Features, Level, Role, SECTOR_BYTES, SuperblockPlace, Timestamp, Unsupported, Uuid};
use raw::RawSuperblock;

/// Whether bytes begin as a superblock of any version does. 0.90 is in the byte order of its host.
pub fn has_magic(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC.to_le_bytes()) || bytes.starts_with(&MAGIC.to_be_bytes())
}

/// A member's superblock (`mdp_superblock_1`), every field with its type.
///
/// [`Superblock::parse`] and [`Superblock::encode`] are each other's inverse. Two things are
/// stored twice on disk and once here, and `encode` sets the second from the first: the bit
/// `RECOVERY_OFFSET` says whether [`recovery_offset_sectors`](Superblock::recovery_offset_sectors)
/// is there, and `super_offset` is the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Where the superblock lies; `super_offset` on disk.
    pub place: SuperblockPlace,
    /// `feature_map`, unknown bits included.
    pub features: Features,
    /// UUID of the array.
    pub set_uuid: Uuid,
    /// Name of the array, `host:name` as a rule.
    pub set_name: SetName,
    /// When the array was made.
    pub ctime: Timestamp,
    /// Level of the array.
    pub level: Level,
    /// Layout of the array; the level says what the number means.
    pub layout: u32,
    /// Sectors used of every member; 0 for linear and RAID0.
    pub size_sectors: u64,
    /// Sectors of a chunk; 0 where the level has none.
    pub chunk_sectors: u32,
    /// Slots of the array.
    pub raid_disks: u32,
    /// Signed sectors from the superblock to the bitmap. See [`Superblock::bitmap_sector`].
    pub bitmap_offset_sectors: i32,
    /// The reshape, kept as found.
    pub reshape: Reshape,
    /// First sector of data.
    pub data_offset_sectors: u64,
    /// Sectors that data may use.
    pub data_size_sectors: u64,
    /// Member sectors, from the front of data, that are rebuilt; none for a member in sync.
    pub recovery_offset_sectors: Option<u64>,
    /// On a journal: sector of its last checkpoint, from the front of data. Else 0.
    pub journal_tail_sector: u64,
    /// Index of this member in `roles`, for good.
    pub dev_number: u32,
    /// Read errors of this member that a rewrite corrected.
    pub corrected_reads: u32,
    /// UUID of this member.
    pub device_uuid: Uuid,
    /// Write-mostly and failfast.
    pub flags: MemberFlags,
    /// Where the bad-block log is, if there is one.
    pub bad_block_log: Option<BadBlockLogPlace>,
    /// When this superblock was written.
    pub utime: Timestamp,
    /// Number of this update; the members with the highest know best.
    pub events: u64,
    /// Sectors known in sync, from the front of data: [`RESYNC_NONE`] for a clean array, 0 for one
    /// in use. Member sectors, for RAID10 array sectors.
    pub resync_offset_sectors: u64,
    /// Logical block of the array, kept as found: 0 except on Linux 6.19 and later.
    pub logical_block_size_bytes: u32,
    /// What each device is to the array, by `dev_number`.
    pub roles: Vec<Role>,
    /// Bytes that are zero in every known version, kept as found.
    pub padding: Padding,
}

/// The fields of a reshape. They mean something while [`Features::RESHAPE_ACTIVE`] is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reshape {
    /// Array sector that the reshape has reached.
    pub position_sectors: u64,
    /// Level after the reshape.
    pub new_level: i32,
    /// Layout after the reshape.
    pub new_layout: u32,
    /// Sectors of a chunk after the reshape.
    pub new_chunk_sectors: u32,
    /// Slots that the reshape adds; negative when it takes away.
    pub delta_disks: i32,
    /// Sectors by which this member's data moves; valid with [`Features::NEW_OFFSET`].
    pub new_offset_sectors: i32,
}

/// What an array should know about how to use a member (`devflags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemberFlags(pub u8);

impl MemberFlags {
    /// Read from this member only when no other can answer.
    pub const WRITE_MOSTLY: u8 = 1;
    /// Fail this member at its first error while another can answer.
    pub const FAIL_FAST: u8 = 2;

    /// Read from this member only when no other can answer.
    pub fn write_mostly(self) -> bool {
        self.0 & MemberFlags::WRITE_MOSTLY != 0
    }

    /// Fail this member at its first error while another can answer.
    pub fn fail_fast(self) -> bool {
        self.0 & MemberFlags::FAIL_FAST != 0
    }
}

/// Where a member's bad-block log lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadBlockLogPlace {
    /// Signed sectors from the superblock; never 0.
    pub offset_sectors: i32,
    /// Sectors kept for the log, 1 to 8.
    pub size_sectors: u16,
    /// log2 of the sectors in a unit of the log.
    pub shift: u8,
}

/// Bytes that must be zero, as found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Padding {
    /// Byte 12.
    pub pad0: u32,
    /// Bytes 228 to 255.
    pub pad3: [u8; 28],
}

impl Superblock {
    /// Reads the superblock that begins at `bytes[0]` and was found at `at` on a device of
    /// `device_sectors`. Give 4096 bytes; fewer are enough where it has few roles.
    ///
    /// What passes is consistent in itself and fits the device: no arithmetic on its positions
    /// overflows and no two areas overlap. Whether the array can be *served* is another question,
    /// see [`Superblock::unsupported_features`].
    pub fn parse(
        bytes: &[u8],
        at: SuperblockPlace,
        device_sectors: u64,
    ) -> Result<Superblock, SuperblockError> {
        let (raw, roles) = checked_bytes(bytes, at)?;
        let superblock = Superblock::from_raw(&raw, roles, at)?;
        superblock.validate(device_sectors)?;
        Ok(superblock)
    }

    /// The 4096 bytes of the superblock's area, checksum included, zero behind the last role.
    ///
    /// # Panics
    ///
    /// If there are more than [`MAX_ROLES`] roles, which no parsed superblock has.
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.roles.len() <= MAX_ROLES, "a superblock has room for {MAX_ROLES} roles");
        let mut bytes = vec![0; AREA_BYTES];
        let (fixed, roles) = bytes.split_at_mut(FIXED_BYTES);
        let mut raw = self.to_raw();
        for (slot, role) in roles.chunks_exact_mut(2).zip(&self.roles) {
            slot.copy_from_slice(&role.number().to_le_bytes());
        }
        fixed.copy_from_slice(raw.as_bytes());
        raw.sb_csum = raw::checksum(&bytes[..self.length_bytes()]).into();
        bytes[..FIXED_BYTES].copy_from_slice(raw.as_bytes());
        bytes
    }

    /// The checksum that it has on a device.
    ///
    /// # Panics
    ///
    /// As [`encode`](Superblock::encode).
    pub fn checksum(&self) -> u32 {
        raw::checksum(&self.encode()[..self.length_bytes()])
    }

    /// What an update writes: the sectors of [`superblock_range`](Superblock::superblock_range). A bitmap that
    /// was added to version 1.0 later may lie in the rest of the area.
    ///
    /// # Panics
    ///
    /// As [`encode`](Superblock::encode).
    pub fn encode_sectors(&self) -> Vec<u8> {
        let mut bytes = self.encode();
        bytes.truncate(self.length_bytes().next_multiple_of(SECTOR_BYTES as usize));
        bytes
    }

    /// Every reason why the array of this superblock cannot be served, by name. Empty is good.
    ///
    /// Not among them is what only the whole array can tell, such as RAID0 without a layout over
    /// members of several sizes, or a logical block that the members cannot do.
    pub fn unsupported_features(&self) -> Vec<Unsupported> {
        let mut reasons = self.features.unsupported();
        if self.padding.pad0 != 0 {
            reasons.push(Unsupported::Padding { field: "pad0" });
        }
        if self.padding.pad3 != [0; 28] {
            reasons.push(Unsupported::Padding { field: "pad3" });
        }
        reasons
    }

    /// Whether the array was in sync and not in use when this superblock was written.
    pub fn is_clean(&self) -> bool {
        self.resync_offset_sectors == RESYNC_NONE
    }

    /// Whether mdspace wrote this superblock, and not md: the time of its update has microseconds.
    pub fn is_by_mdspace(&self) -> bool {
        self.utime.microseconds() != 0
    }

    /// This member's role in its own eyes. As for md, a number beyond the roles, or a slot beyond
    /// the array (the old one, while it shrinks), makes a spare.
    pub fn own_role(&self) -> Role {
        match self.roles.get(self.dev_number as usize) {
            Some(Role::Slot(slot)) if u32::from(*slot) >= self.slots() => Role::Spare,
            Some(role) => *role,
            None => Role::Spare,
        }
    }

    /// Slots that may be in use: while a reshape takes some away, those before it.
    pub fn slots(&self) -> u32 {
        let taken = if self.features.contains(Features::RESHAPE_ACTIVE) {
            self.reshape.delta_disks.min(0).unsigned_abs()
        } else {
            0
        };
        self.raid_disks.saturating_add(taken)
    }

    /// Whether `other`, on the same device, lies in the data of this one's array.
    fn holds_as_data(&self, other: &Superblock) -> bool {
        let place = other.superblock_range();
        self.data_range().is_some_and(|data| data.start <= place.start && place.end <= data.end)
    }

    /// Bytes that carry meaning: the fixed part and the roles.
    pub fn length_bytes(&self) -> usize {
        FIXED_BYTES + 2 * self.roles.len()
    }

    fn from_raw(
        raw: &RawSuperblock,
        roles: &[u8],
        place: SuperblockPlace,
    ) -> Result<Superblock, SuperblockError> {
        let features = Features::from_bits(raw.feature_map.get());
        let level = Level::from_number(raw.level.get()).ok_or_else(|| {
            SuperblockError::impossible("level", raw.level.get(), "this level is not handled")
        })?;
        let mut superblock = Superblock {
            place,
            features,
            set_uuid: Uuid(raw.set_uuid),
            set_name: SetName(raw.set_name),
            ctime: Timestamp::from_raw(raw.ctime.get()),
            level,
            layout: raw.layout.get(),
            size_sectors: raw.size.get(),
            chunk_sectors: raw.chunksize.get(),
            raid_disks: raw.raid_disks.get(),
            bitmap_offset_sectors: raw.bitmap_offset.get(),
            reshape: Reshape::from_raw(raw),
            data_offset_sectors: raw.data_offset.get(),
            data_size_sectors: raw.data_size.get(),
            recovery_offset_sectors: None,
            journal_tail_sector: 0,
            dev_number: raw.dev_number.get(),
            corrected_reads: raw.cnt_corrected_read.get(),
            device_uuid: Uuid(raw.device_uuid),
            flags: MemberFlags(raw.devflags),
            bad_block_log: BadBlockLogPlace::from_raw(raw),
            utime: Timestamp::from_raw(raw.utime.get()),
            events: raw.events.get(),
            resync_offset_sectors: raw.resync_offset.get(),
            logical_block_size_bytes: raw.logical_block_size.get(),
            roles: parse_roles(roles)?,
            padding: Padding { pad0: raw.pad0.get(), pad3: raw.pad3 },
        };
        if features.contains(Features::RECOVERY_OFFSET) {
            superblock.recovery_offset_sectors = Some(raw.recovery_offset.get());
        } else if superblock.own_role() == Role::Journal {
            superblock.journal_tail_sector = raw.recovery_offset.get();
        }
        Ok(superblock)
    }

    /// All fields but the checksum, which is 0.
    fn to_raw(&self) -> RawSuperblock {
        let recovering = self.recovery_offset_sectors.is_some();
        let log = self.bad_block_log;
        RawSuperblock {
            magic: MAGIC.into(),
            major_version: MAJOR_VERSION.into(),
            feature_map: self.features.with(Features::RECOVERY_OFFSET, recovering).bits().into(),
            pad0: self.padding.pad0.into(),
            set_uuid: self.set_uuid.0,
            set_name: self.set_name.0,
            ctime: self.ctime.raw().into(),
            level: self.level.number().into(),
            layout: self.layout.into(),
            size: self.size_sectors.into(),
            chunksize: self.chunk_sectors.into(),
            raid_disks: self.raid_disks.into(),
            bitmap_offset: self.bitmap_offset_sectors.into(),
            new_level: (self.reshape.new_level as u32).into(),
            reshape_position: self.reshape.position_sectors.into(),
            delta_disks: self.reshape.delta_disks.into(),
            new_layout: self.reshape.new_layout.into(),
            new_chunk: self.reshape.new_chunk_sectors.into(),
            new_offset: self.reshape.new_offset_sectors.into(),
            data_offset: self.data_offset_sectors.into(),
            data_size: self.data_size_sectors.into(),
            super_offset: self.place.sector.into(),
            recovery_offset: self
                .recovery_offset_sectors
                .unwrap_or(self.journal_tail_sector)
                .into(),
            dev_number: self.dev_number.into(),
            cnt_corrected_read: self.corrected_reads.into(),
            device_uuid: self.device_uuid.0,
            devflags: self.flags.0,
            bblog_shift: log.map_or(0, |log| log.shift),
            bblog_size: log.map_or(0, |log| log.size_sectors).into(),
            bblog_offset: log.map_or(0, |log| log.offset_sectors).into(),
            utime: self.utime.raw().into(),
            events: self.events.into(),
            resync_offset: self.resync_offset_sectors.into(),
            sb_csum: 0.into(),
            max_dev: (self.roles.len() as u32).into(),
            logical_block_size: self.logical_block_size_bytes.into(),
            pad3: self.padding.pad3,
        }
    }
}

impl Reshape {
    fn from_raw(raw: &RawSuperblock) -> Reshape {
        Reshape {
            position_sectors: raw.reshape_position.get(),
            new_level: raw.new_level.get() as i32,
            new_layout: raw.new_layout.get(),
            new_chunk_sectors: raw.new_chunk.get(),
            delta_disks: raw.delta_disks.get(),
            new_offset_sectors: raw.new_offset.get(),
        }
    }
}

impl BadBlockLogPlace {
    fn from_raw(raw: &RawSuperblock) -> Option<BadBlockLogPlace> {
        let log = BadBlockLogPlace {
            offset_sectors: raw.bblog_offset.get(),
            size_sectors: raw.bblog_size.get(),
            shift: raw.bblog_shift,
        };
        (log.offset_sectors != 0 && log.size_sectors != 0).then_some(log)
    }
}

/// The superblock that counts on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counting {
    /// It.
    pub superblock: Superblock,
    /// Another one: each lies in what the other calls data. Only who knows the array can tell which one is data.
    pub rival: Option<Superblock>,
}

impl Counting {
    fn alone(superblock: Superblock) -> Self {
        Self { superblock, rival: None }
    }

    fn beside(superblock: Superblock, rival: Superblock) -> Self {
        Self { superblock, rival: Some(rival) }
    }
}

/// Of the superblocks found in the three places of one device, the one that counts. What lies in the data
/// area of another is data: users of the array can write there what they like. Where two lie in each
/// other's data, the one of the array that is `wanted` counts, else the one at the front: `create` and mdadm erase
/// superblocks of other versions, and an array with its superblock at the end overwrites one at the front with its
/// first data. But its users may write one there. Of those that lie
/// apart, the one whose array was made last counts.
pub fn counting(
    found: impl IntoIterator<Item = Superblock>,
    wanted: Option<Uuid>,
) -> Option<Counting> {
    let mut found: Vec<Superblock> = found.into_iter().collect();
    found.sort_by_key(|superblock| superblock.place.sector);
    let is_wanted = |superblock: &Superblock| Some(superblock.set_uuid) == wanted;
    found.into_iter().map(Counting::alone).reduce(|front, back| {
        let (first, last) = (&front.superblock, &back.superblock);
        match (first.holds_as_data(last), last.holds_as_data(first)) {
            (true, true) if is_wanted(last) && !is_wanted(first) => {
                Counting::beside(back.superblock, front.superblock)
            }
            (true, true) => Counting::beside(front.superblock, back.superblock),
            (true, false) => front,
            (false, true) => back,
            (false, false) if last.ctime.raw() >= first.ctime.raw() => back,
            (false, false) => front,
        }
    })
}

/// As [`counting`], for who wants no array more than another.
pub fn of_device(found: impl IntoIterator<Item = Superblock>) -> Option<Superblock> {
    counting(found, None).map(|counting| counting.superblock)
}

/// As [`counting`], of what each place gave. A place that cannot be read may lie in the data of a member of another
/// version, so its error counts only where no superblock is found in another place.
pub fn counting_of_places<E>(
    places: impl IntoIterator<Item = Result<Option<Superblock>, E>>,
    wanted: Option<Uuid>,
) -> Result<Option<Counting>, E> {
    let (mut found, mut trouble) = (Vec::new(), None);
    for place in places {
        match place {
            Ok(superblock) => found.extend(superblock),
            Err(error) => trouble = Some(error),
        }
    }
    match (counting(found, wanted), trouble) {
        (None, Some(trouble)) => Err(trouble),
        (counting, _) => Ok(counting),
    }
}

/// As [`counting_of_places`], for who wants no array more than another.
pub fn of_places<E>(
    places: impl IntoIterator<Item = Result<Option<Superblock>, E>>,
) -> Result<Option<Superblock>, E> {
    Ok(counting_of_places(places, None)?.map(|counting| counting.superblock))
}

/// The fixed part and the bytes of the roles, once magic, place and checksum are right.
fn checked_bytes(
    bytes: &[u8],
    at: SuperblockPlace,
) -> Result<(RawSuperblock, &[u8]), SuperblockError> {
    let short = |need| SuperblockError::Short { have: bytes.len(), need };
    let (raw, rest) = RawSuperblock::read_from_prefix(bytes).map_err(|_| short(FIXED_BYTES))?;
    if raw.magic.get() != MAGIC {
        return Err(SuperblockError::NoMagic { found: raw.magic.get() });
    }
    if raw.major_version.get() != MAJOR_VERSION {
        return Err(SuperblockError::MajorVersion { found: raw.major_version.get() });
    }
    let max_dev = raw.max_dev.get();
    if max_dev as usize > MAX_ROLES {
        return Err(SuperblockError::impossible("max_dev", max_dev, "at most 1920 roles fit"));
    }
    let length = FIXED_BYTES + 2 * max_dev as usize;
    let (roles, _) = rest.split_at_checked(length - FIXED_BYTES).ok_or_else(|| short(length))?;
    let (stored, computed) = (raw.sb_csum.get(), raw::checksum(&bytes[..length]));
    if stored != computed {
        return Err(SuperblockError::Checksum { stored, computed });
    }
    if raw.super_offset.get() != at.sector {
        let recorded = raw.super_offset.get();
        return Err(SuperblockError::Misplaced { recorded, found_at: at.sector });
    }
    Ok((raw, roles))
}

fn parse_roles(bytes: &[u8]) -> Result<Vec<Role>, SuperblockError> {
    bytes
        .chunks_exact(2)
        .map(|pair| u16::from_le_bytes([pair[0], pair[1]]))
        .map(|number| {
            Role::from_number(number).ok_or_else(|| {
                let reason = "numbers from 0xff00 to 0xfffc are reserved";
                SuperblockError::impossible("dev_roles", number, reason)
            })
        })
        .collect()
}

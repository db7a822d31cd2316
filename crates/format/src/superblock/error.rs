/// Why bytes are not a superblock that can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SuperblockError {
    /// Fewer bytes than a superblock has.
    #[error("{have} bytes are too few for a superblock, {need} are needed")]
    Short {
        /// Bytes given.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// The magic number is another.
    #[error("no md superblock: magic is {found:#010x}, not 0xa92b4efc")]
    NoMagic {
        /// The number found in its place.
        found: u32,
    },
    /// md's magic, but another major version.
    #[error("superblock has major version {found}; only 1 (metadata 1.0, 1.1, 1.2) is read")]
    MajorVersion {
        /// The major version found.
        found: u32,
    },
    /// A superblock of another place: that of a whole disk seen through its last partition, say.
    #[error(
        "superblock at sector {found_at} belongs at sector {recorded}: it is not this device's"
    )]
    Misplaced {
        /// `super_offset` as recorded.
        recorded: u64,
        /// Where the bytes were read.
        found_at: u64,
    },
    /// The checksum does not fit the bytes.
    #[error(
        "superblock is damaged: checksum {stored:#010x} is stored, its bytes give {computed:#010x}"
    )]
    Checksum {
        /// `sb_csum` as stored.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
    /// The checksum is right, and a value cannot be.
    #[error("superblock field {field} is {value}: {reason}")]
    Impossible {
        /// md's name of the field.
        field: &'static str,
        /// Its value.
        value: i128,
        /// Why it cannot be.
        reason: &'static str,
    },
}

/// What a [`SuperblockError`] means for the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SuperblockErrorKind {
    /// The device has no version 1 superblock here.
    Absent,
    /// There was a superblock, and its bytes have changed.
    Damaged,
    /// The superblock is as it was written, and what it says cannot be.
    Impossible,
}

impl SuperblockError {
    /// What the error means for the device.
    pub fn kind(&self) -> SuperblockErrorKind {
        match self {
            SuperblockError::Short { .. }
            | SuperblockError::NoMagic { .. }
            | SuperblockError::MajorVersion { .. }
            | SuperblockError::Misplaced { .. } => SuperblockErrorKind::Absent,
            SuperblockError::Checksum { .. } => SuperblockErrorKind::Damaged,
            SuperblockError::Impossible { .. } => SuperblockErrorKind::Impossible,
        }
    }

    pub(super) fn impossible(
        field: &'static str,
        value: impl Into<i128>,
        reason: &'static str,
    ) -> SuperblockError {
        SuperblockError::Impossible { field, value: value.into(), reason }
    }
}

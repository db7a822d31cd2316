use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// The superblock's `feature_map`: what a reader must understand before it may use the array.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Features(u32);

impl Features {
    /// No feature.
    pub const NONE: Features = Features(0);
    /// `bitmap_offset` is valid: there is a bitmap beside the superblock.
    pub const BITMAP_OFFSET: Features = Features(1);
    /// `recovery_offset` is valid: the member is being rebuilt.
    pub const RECOVERY_OFFSET: Features = Features(2);
    /// A reshape is under way.
    pub const RESHAPE_ACTIVE: Features = Features(4);
    /// The bad-block log is not empty.
    pub const BAD_BLOCKS: Features = Features(8);
    /// The member replaces another in the same slot.
    pub const REPLACEMENT: Features = Features(16);
    /// The reshape runs from the end to the front.
    pub const RESHAPE_BACKWARDS: Features = Features(32);
    /// `new_offset` is valid.
    pub const NEW_OFFSET: Features = Features(64);
    /// The member's recovery is guided by the bitmap.
    pub const RECOVERY_BITMAP: Features = Features(128);
    /// A cluster shares the array.
    pub const CLUSTERED: Features = Features(256);
    /// A journal member exists.
    pub const JOURNAL: Features = Features(512);
    /// A partial parity log lies where the bitmap would.
    pub const PPL: Features = Features(1024);
    /// The partial parity log is a ring of several.
    pub const MULTIPLE_PPLS: Features = Features(2048);
    /// `layout` is valid for RAID0.
    pub const RAID0_LAYOUT: Features = Features(4096);

    /// Name, bit and whether arrays that have it are served.
    const TABLE: [(Features, &'static str, bool); 13] = [
        (Features::BITMAP_OFFSET, "BITMAP_OFFSET", true),
        (Features::RECOVERY_OFFSET, "RECOVERY_OFFSET", true),
        (Features::RESHAPE_ACTIVE, "RESHAPE_ACTIVE", false),
        (Features::BAD_BLOCKS, "BAD_BLOCKS", true),
        (Features::REPLACEMENT, "REPLACEMENT", true),
        (Features::RESHAPE_BACKWARDS, "RESHAPE_BACKWARDS", false),
        (Features::NEW_OFFSET, "NEW_OFFSET", false),
        (Features::RECOVERY_BITMAP, "RECOVERY_BITMAP", true),
        (Features::CLUSTERED, "CLUSTERED", false),
        (Features::JOURNAL, "JOURNAL", false),
        (Features::PPL, "PPL", false),
        (Features::MULTIPLE_PPLS, "MULTIPLE_PPLS", false),
        (Features::RAID0_LAYOUT, "RAID0_LAYOUT", true),
    ];

    /// The bits as stored.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Any bits, also unknown ones.
    pub fn from_bits(bits: u32) -> Features {
        Features(bits)
    }

    /// Whether every bit of `other` is set.
    pub fn contains(self, other: Features) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any bit of `other` is set.
    pub fn intersects(self, other: Features) -> bool {
        self.0 & other.0 != 0
    }

    /// These features, with those of `other` set or cleared.
    #[must_use]
    pub fn with(self, other: Features, set: bool) -> Features {
        if set { Features(self.0 | other.0) } else { Features(self.0 & !other.0) }
    }

    /// The names of the set bits, lowest first; unknown bits are not among them.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Features::TABLE.into_iter().filter(move |row| self.contains(row.0)).map(|row| row.1)
    }

    /// Whether an array with these features can be served.
    pub fn is_served(self) -> bool {
        self.unsupported().is_empty()
    }

    /// Each set bit that makes an array impossible to serve, lowest first.
    pub(crate) fn unsupported(self) -> Vec<Unsupported> {
        (0..u32::BITS)
            .map(|bit| Features(1 << bit))
            .filter(|bit| self.contains(*bit))
            .filter_map(|bit| match Features::TABLE.iter().find(|row| row.0 == bit) {
                None => Some(Unsupported::UnknownFeature { bit: bit.0 }),
                Some((_, name, false)) => Some(Unsupported::Feature { name }),
                Some(_) => None,
            })
            .collect()
    }
}

impl BitOr for Features {
    type Output = Features;
    fn bitor(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }
}

impl BitOrAssign for Features {
    fn bitor_assign(&mut self, other: Features) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Features({:#x}", self.0)?;
        self.names().try_for_each(|name| write!(f, " {name}"))?;
        f.write_str(")")
    }
}

/// One reason why a readable superblock's array cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsupported {
    /// A feature of md that is known here and not handled.
    #[error("feature {name} is not handled")]
    Feature {
        /// md's name of the bit, without `MD_FEATURE_`.
        name: &'static str,
    },
    /// A feature bit that nobody had defined when this was written.
    #[error("feature bit {bit:#x} is unknown: the array was made by newer software")]
    UnknownFeature {
        /// The bit's value.
        bit: u32,
    },
    /// Bytes that must be zero are not.
    #[error("{field} is not zero: the array was made by newer software")]
    Padding {
        /// md's name of the padding.
        field: &'static str,
    },
}

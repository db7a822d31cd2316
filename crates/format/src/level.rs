use std::fmt;
use std::str::FromStr;

/// How the members of an array share its data (md_p.h and md_u.h, the `level` field).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Members one after another; stored as -1.
    Linear,
    /// Striped, no redundancy; stored as 0.
    Raid0,
    /// Every member holds everything; stored as 1.
    Raid1,
    /// One parity member, always the same; stored as 4.
    Raid4,
    /// One parity, spread over the members; stored as 5.
    Raid5,
    /// Two parities, P and Q; stored as 6.
    Raid6,
    /// Striped copies; stored as 10.
    Raid10,
}

/// Text or a number that is no level handled here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a RAID level: use linear, raid0, raid1, raid4, raid5, raid6 or raid10")]
pub struct UnknownLevel {
    text: String,
}

impl Level {
    /// Every level, in the order of their numbers.
    pub const ALL: [Level; 7] = [
        Level::Linear,
        Level::Raid0,
        Level::Raid1,
        Level::Raid4,
        Level::Raid5,
        Level::Raid6,
        Level::Raid10,
    ];

    /// The number that the superblock stores.
    pub fn number(self) -> i32 {
        match self {
            Level::Linear => -1,
            Level::Raid0 => 0,
            Level::Raid1 => 1,
            Level::Raid4 => 4,
            Level::Raid5 => 5,
            Level::Raid6 => 6,
            Level::Raid10 => 10,
        }
    }

    /// The level that the superblock stores as `number`, if it is one of these.
    pub fn from_number(number: i32) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.number() == number)
    }

    /// Whether the array survives the loss of a member, and so knows resync and a bitmap.
    pub fn is_redundant(self) -> bool {
        !matches!(self, Level::Linear | Level::Raid0)
    }

    /// Whether members hold P, or P and Q.
    pub fn has_parity(self) -> bool {
        matches!(self, Level::Raid4 | Level::Raid5 | Level::Raid6)
    }

    /// Whether data is cut in chunks, so that a chunk size must be given.
    pub fn has_chunks(self) -> bool {
        !matches!(self, Level::Linear | Level::Raid1)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Level::Linear => "linear",
            Level::Raid0 => "raid0",
            Level::Raid1 => "raid1",
            Level::Raid4 => "raid4",
            Level::Raid5 => "raid5",
            Level::Raid6 => "raid6",
            Level::Raid10 => "raid10",
        })
    }
}

impl FromStr for Level {
    type Err = UnknownLevel;

    /// Reads the names that mdadm reads: `raid5`, `5`, `stripe`, `mirror`, `linear`, ...
    fn from_str(text: &str) -> Result<Level, UnknownLevel> {
        Ok(match text {
            "linear" => Level::Linear,
            "raid0" | "0" | "stripe" => Level::Raid0,
            "raid1" | "1" | "mirror" => Level::Raid1,
            "raid4" | "4" => Level::Raid4,
            "raid5" | "5" => Level::Raid5,
            "raid6" | "6" => Level::Raid6,
            "raid10" | "10" => Level::Raid10,
            _ => return Err(UnknownLevel { text: text.to_owned() }),
        })
    }
}

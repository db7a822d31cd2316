use std::fmt;
use std::str::FromStr;

/// The three places of the version 1 superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetadataVersion {
    /// 8 to 12 KiB before the end of the device, on a 4 KiB boundary; data starts at its front.
    V1_0,
    /// At the front of the device.
    V1_1,
    /// 4 KiB from the front of the device; what mdadm makes when not told otherwise.
    V1_2,
}

impl MetadataVersion {
    /// Where mdadm looks, in its order. Which of several valid finds counts:
    /// see [`of_device`](crate::superblock::of_device).
    pub const PROBE_ORDER: [MetadataVersion; 3] =
        [MetadataVersion::V1_0, MetadataVersion::V1_1, MetadataVersion::V1_2];

    /// Sector of the superblock on a device of `device_sectors`; none if the device is too small
    /// for a superblock there (md wants 12 KiB).
    pub fn superblock_sector(self, device_sectors: u64) -> Option<u64> {
        if device_sectors < 24 {
            return None;
        }
        Some(match self {
            MetadataVersion::V1_0 => (device_sectors - 16) & !7,
            MetadataVersion::V1_1 => 0,
            MetadataVersion::V1_2 => 8,
        })
    }

    /// The superblock's place on a device of `device_sectors`.
    pub fn place(self, device_sectors: u64) -> Option<SuperblockPlace> {
        let sector = self.superblock_sector(device_sectors)?;
        Some(SuperblockPlace { version: self, sector })
    }

    /// Sector of a superblock of version 0.90, on a 64 KiB boundary near the end. It is not handled
    /// here, but it must be found: md would assemble an array by one that was left behind.
    pub fn sector_of_0_90(device_sectors: u64) -> Option<u64> {
        (device_sectors & !127).checked_sub(128)
    }

    /// The second number of the version: 0, 1 or 2.
    pub fn minor(self) -> u32 {
        match self {
            MetadataVersion::V1_0 => 0,
            MetadataVersion::V1_1 => 1,
            MetadataVersion::V1_2 => 2,
        }
    }
}

impl fmt::Display for MetadataVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            MetadataVersion::V1_0 => "1.0",
            MetadataVersion::V1_1 => "1.1",
            MetadataVersion::V1_2 => "1.2",
        })
    }
}

/// Text that is no metadata version handled here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a metadata version: use 1.0, 1.1 or 1.2")]
pub struct UnknownMetadataVersion {
    text: String,
}

impl FromStr for MetadataVersion {
    type Err = UnknownMetadataVersion;

    /// `1` and `default` mean 1.2, as for mdadm.
    fn from_str(text: &str) -> Result<MetadataVersion, UnknownMetadataVersion> {
        Ok(match text {
            "1.0" => MetadataVersion::V1_0,
            "1.1" => MetadataVersion::V1_1,
            "1.2" | "1" | "default" => MetadataVersion::V1_2,
            _ => return Err(UnknownMetadataVersion { text: text.to_owned() }),
        })
    }
}

/// Where a superblock was found, or goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SuperblockPlace {
    /// Which of the three places it is.
    pub version: MetadataVersion,
    /// Its first sector, counted from the start of the device.
    pub sector: u64,
}

//! The arrays that the tests build: small, and of every level and many layouts.

use std::fmt;

use mdspace_engine::create::Creation;
use mdspace_engine::geometry::Level;
use mdspace_format::placement::BitmapRequest;
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{MetadataVersion, Uuid};

/// Sectors of each member's data, unless a shape says otherwise.
pub(crate) const MEMBER_SECTORS: u64 = 256;

/// First sector of data.
pub(crate) const DATA_OFFSET: u64 = 64;

/// Bytes that one bit of the bitmap stands for: 8 sectors.
pub(crate) const BITMAP_CHUNK_BYTES: u32 = 4096;

#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) level: Level,
    pub(crate) layout: u32,
    pub(crate) disks: u16,
    pub(crate) chunk_sectors: u32,
    pub(crate) version: MetadataVersion,
    pub(crate) bitmap: bool,
    pub(crate) block_bytes: u32,
    /// Sectors of the first disk's data.
    pub(crate) member_sectors: u64,
    /// What the array uses of each member; none for all.
    pub(crate) size_sectors: Option<u64>,
    /// Each disk is larger by so many sectors than the one before.
    pub(crate) growth: u64,
    /// Writes that may be left behind.
    pub(crate) write_behind: u32,
    /// Disks that are write-mostly, and those that fail at their first error, as bits.
    pub(crate) write_mostly: u32,
    pub(crate) failfast: u32,
}

impl Shape {
    pub(crate) const fn new(level: Level, layout: u32, disks: u16, chunk_sectors: u32) -> Self {
        Self {
            level,
            layout,
            disks,
            chunk_sectors,
            version: MetadataVersion::V1_2,
            bitmap: true,
            block_bytes: 512,
            member_sectors: MEMBER_SECTORS,
            size_sectors: None,
            growth: 0,
            write_behind: 0,
            write_mostly: 0,
            failfast: 0,
        }
    }

    pub(crate) fn flags(&self, disk: usize) -> MemberFlags {
        let flag = |disks: u32, bit: u8| if disks >> disk & 1 == 1 { bit } else { 0 };
        MemberFlags(
            flag(self.write_mostly, MemberFlags::WRITE_MOSTLY)
                | flag(self.failfast, MemberFlags::FAIL_FAST),
        )
    }

    pub(crate) const fn without_bitmap(self) -> Self {
        Self { bitmap: false, ..self }
    }

    pub(crate) fn disk_sectors(&self, index: usize) -> u64 {
        DATA_OFFSET + self.member_sectors + self.growth * index as u64
    }

    pub(crate) fn has_parity(&self) -> bool {
        matches!(self.level, Level::Raid4 | Level::Raid5 | Level::Raid6)
    }

    /// How many disks may be lost, whichever they are.
    pub(crate) fn can_lose(&self) -> usize {
        match self.level {
            Level::Linear | Level::Raid0 => 0,
            Level::Raid1 => usize::from(self.disks) - 1,
            Level::Raid4 | Level::Raid5 => 1,
            Level::Raid6 => 2,
            Level::Raid10 => ((self.layout & 0xff) * (self.layout >> 8 & 0xff)) as usize - 1,
        }
    }

    pub(crate) fn creation(&self) -> Creation {
        let chunk_bytes = Some(BITMAP_CHUNK_BYTES);
        let one_zero = self.version == MetadataVersion::V1_0;
        Creation {
            name: SetName::new("test:array").unwrap(),
            uuid: Uuid([0x42; 16]),
            version: self.version,
            level: self.level,
            layout: self.layout,
            chunk_sectors: self.chunk_sectors,
            raid_disks: self.disks,
            size_sectors: self.size_sectors,
            data_offset_sectors: (!one_zero).then_some(DATA_OFFSET),
            bitmap: match self.bitmap {
                true => BitmapRequest::Internal { chunk_bytes },
                false => BitmapRequest::None,
            },
            assume_clean: false,
            force: false,
            write_behind: self.write_behind,
        }
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, layout, disks, chunk_sectors, version, bitmap, .. } = self;
        let bitmap = if *bitmap { "bitmap" } else { "no bitmap" };
        write!(f, "{level} layout {layout:#x}, {disks} disks, chunk {chunk_sectors}, ")?;
        write!(f, "metadata {version}, {bitmap}, blocks of {}", self.block_bytes)
    }
}

pub(crate) const RAID4: Shape = Shape::new(Level::Raid4, 0, 4, 16);
pub(crate) const RAID5: Shape = Shape::new(Level::Raid5, 2, 4, 16);
pub(crate) const RAID6: Shape = Shape::new(Level::Raid6, 2, 5, 16);
pub(crate) const RAID1: Shape = Shape::new(Level::Raid1, 0, 3, 0);
pub(crate) const RAID10: Shape = Shape::new(Level::Raid10, 0x102, 4, 16);

/// Those that bear the loss of one member.
pub(crate) fn of_one_loss() -> [Shape; 3] {
    [Shape { disks: 2, ..RAID1 }, RAID5, RAID10]
}

/// Every level, with layouts and numbers of members that matter.
pub(crate) fn all() -> Vec<Shape> {
    let mut shapes = plain();
    shapes.extend(redundant());
    shapes
}

/// Levels that lose data with any member.
pub(crate) fn plain() -> Vec<Shape> {
    let mixed = |shape: Shape| Shape { growth: 48, ..shape };
    vec![
        Shape::new(Level::Linear, 0, 3, 0),
        mixed(Shape::new(Level::Linear, 0, 3, 0)),
        Shape::new(Level::Raid0, 1, 2, 8),
        Shape::new(Level::Raid0, 2, 3, 24),
        mixed(Shape::new(Level::Raid0, 1, 3, 16)),
        mixed(Shape::new(Level::Raid0, 2, 4, 16)),
    ]
}

pub(crate) fn redundant() -> Vec<Shape> {
    let mut shapes = vec![
        Shape::new(Level::Raid1, 0, 2, 0),
        Shape::new(Level::Raid1, 0, 3, 0),
        Shape::new(Level::Raid4, 0, 3, 16),
        Shape::new(Level::Raid5, 2, 2, 16),
        Shape::new(Level::Raid5, 2, 3, 64),
        RAID5.without_bitmap(),
        Shape { version: MetadataVersion::V1_0, ..RAID5 },
        Shape { version: MetadataVersion::V1_1, ..RAID6 },
        Shape { block_bytes: 4096, ..RAID5 },
        Shape { block_bytes: 4096, ..RAID1 },
    ];
    shapes.extend((0..6).map(|layout| Shape::new(Level::Raid5, layout, 4, 16)));
    shapes.extend(raid6_layouts().map(|layout| Shape::new(Level::Raid6, layout, 5, 16)));
    shapes.push(Shape::new(Level::Raid6, 2, 4, 32));
    shapes.extend(raid10());
    shapes
}

/// Levels with parity, with layouts and numbers of members that matter.
pub(crate) fn parity() -> Vec<Shape> {
    redundant().into_iter().filter(Shape::has_parity).collect()
}

pub(crate) fn raid6_layouts() -> impl Iterator<Item = u32> {
    (0..6).chain(8..11).chain(16..21)
}

pub(crate) fn raid10() -> impl Iterator<Item = Shape> {
    let shapes = [(0x102, 4), (0x102, 3), (0x103, 4), (0x201, 4), (0x201, 3), (0x202, 4)];
    let offset = [(0x1_0201, 4), (0x1_0201, 3), (0x1_0301, 5)];
    shapes
        .into_iter()
        .chain(offset)
        .map(|(layout, disks)| Shape::new(Level::Raid10, layout, disks, 16))
}

//! What the guest is told of its disk.

use crate::nbd::{Export, Exports};

/// Bytes of a sector, the unit of addresses in requests.
pub(super) const SECTOR_BYTES: u64 = 512;

/// Bytes of a serial number (5.2.6.1, `VIRTIO_BLK_T_GET_ID`).
pub(super) const SERIAL_BYTES: usize = 20;

/// Bytes of `struct virtio_blk_config` (5.2.4), with the fields of zoned devices.
const CONFIG_BYTES: usize = 96;

/// Pieces of guest memory in one request: what a ring of 128 descriptors holds beside a header and a status.
const SEGMENTS_MAX: u32 = 126;

/// Sectors of one discard or write-zeroes: less than 4 GiB.
pub(super) const RANGE_SECTORS_MAX: u32 = (1 << 23) - 1;

/// Below this a disk with smaller blocks reads and writes whole ones of this size.
const PHYSICAL_BYTES_MIN: u32 = 4096;

/// Feature bits of the ring and of the device (2.7, 6, 5.2.3).
pub(super) mod feature {
    pub(in super::super) const SEG_MAX: u64 = 1 << 2;
    pub(in super::super) const RO: u64 = 1 << 5;
    pub(in super::super) const BLK_SIZE: u64 = 1 << 6;
    pub(in super::super) const FLUSH: u64 = 1 << 9;
    pub(in super::super) const TOPOLOGY: u64 = 1 << 10;
    pub(in super::super) const MQ: u64 = 1 << 12;
    pub(in super::super) const DISCARD: u64 = 1 << 13;
    pub(in super::super) const WRITE_ZEROES: u64 = 1 << 14;
    pub(in super::super) const INDIRECT_DESC: u64 = 1 << 28;
    pub(in super::super) const EVENT_IDX: u64 = 1 << 29;
    /// `VHOST_USER_F_PROTOCOL_FEATURES`: of the control socket, not of the guest.
    pub(in super::super) const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub(in super::super) const VERSION_1: u64 = 1 << 32;
}

/// A disk as a guest sees it.
#[derive(Clone, Debug)]
pub(super) struct Disk {
    exports: Exports,
    pub(super) is_read_only: bool,
    /// What is best written as a whole.
    row_sectors: u64,
    /// Rings that a guest should use where its front end does not say how many.
    rings: u16,
}

impl Disk {
    /// The default export. It is read-only where its own word, or that of the array by now, says so.
    pub(super) fn new(exports: &Exports, row_sectors: u64, lanes: usize) -> Disk {
        let is_read_only = exports.as_slice()[0].read_only || exports.switch().is_on();
        let rings = u16::try_from(lanes).unwrap_or(u16::MAX);
        Disk { exports: exports.clone(), is_read_only, row_sectors, rings }
    }

    fn export(&self) -> &Export {
        &self.exports.as_slice()[0]
    }

    pub(super) fn sectors(&self) -> u64 {
        self.export().size_bytes / SECTOR_BYTES
    }

    /// Bytes of the smallest request, of which all are made.
    fn block_bytes(&self) -> u32 {
        self.export().block_sizes.minimum().max(SECTOR_BYTES as u32)
    }

    /// Whether the disk has all of these sectors, and they are whole blocks.
    pub(super) fn has(&self, sector: u64, sectors: u64) -> bool {
        let block = u64::from(self.block_bytes()) / SECTOR_BYTES;
        let is_on = sector.checked_add(sectors).is_some_and(|end| end <= self.sectors());
        is_on && sector.is_multiple_of(block) && sectors.is_multiple_of(block)
    }

    /// Notes what a guest reads, in bytes.
    pub(super) fn note_read(&self, sector: u64, bytes: usize) {
        let start = sector * SECTOR_BYTES;
        self.exports.note_read(start..start + bytes as u64);
    }

    /// The features that are offered.
    pub(super) fn features(&self) -> u64 {
        use feature::*;
        let always = SEG_MAX | BLK_SIZE | FLUSH | TOPOLOGY | MQ;
        let ring = INDIRECT_DESC | EVENT_IDX | PROTOCOL_FEATURES | VERSION_1;
        always | ring | if self.is_read_only { RO } else { DISCARD | WRITE_ZEROES }
    }

    /// What a guest may have agreed to, which stays so when its front end connects again: the array may have become
    /// read-only since, or writable.
    pub(super) fn known_features(&self) -> u64 {
        self.features() | feature::RO | feature::DISCARD | feature::WRITE_ZEROES
    }

    /// The export's name, cut off or filled with zeroes.
    pub(super) fn serial(&self) -> [u8; SERIAL_BYTES] {
        let mut serial = [0; SERIAL_BYTES];
        let name = self.export().name.as_bytes();
        let bytes = name.len().min(SERIAL_BYTES);
        serial[..bytes].copy_from_slice(&name[..bytes]);
        serial
    }

    /// A part of `struct virtio_blk_config`. None: it ends before.
    pub(super) fn config(&self, offset: u32, bytes: u32) -> Option<Vec<u8>> {
        let start = usize::try_from(offset).ok()?;
        let end = start.checked_add(usize::try_from(bytes).ok()?)?;
        self.whole_config().get(start..end).map(<[u8]>::to_vec)
    }

    /// All numbers are little-endian; sizes are in sectors of 512 bytes, those of the topology in logical blocks.
    fn whole_config(&self) -> [u8; CONFIG_BYTES] {
        let sizes = self.export().block_sizes;
        let block = self.block_bytes();
        let physical = block.max(PHYSICAL_BYTES_MIN);
        let row_bytes = u32::try_from(self.row_sectors.saturating_mul(SECTOR_BYTES)).unwrap_or(0);
        let chunk_blocks = sizes.preferred().max(physical) / block;
        let optimal_blocks = row_bytes.max(physical) / block;
        let block_sectors = physical / SECTOR_BYTES as u32;
        let mut config = [0; CONFIG_BYTES];
        let mut put = |offset: usize, field: &[u8]| {
            config[offset..offset + field.len()].copy_from_slice(field);
        };
        put(0, &self.sectors().to_le_bytes());
        put(12, &SEGMENTS_MAX.to_le_bytes());
        put(20, &block.to_le_bytes());
        // Exponent of the physical block in logical ones, and the first one that is aligned.
        put(24, &[(physical / block).ilog2() as u8, 0]);
        // The least that is written well is a chunk, the best a whole row.
        put(26, &u16::try_from(chunk_blocks).unwrap_or(u16::MAX).to_le_bytes());
        put(28, &optimal_blocks.to_le_bytes());
        // The cache is written back: what must last is flushed.
        put(32, &[1]);
        put(34, &self.rings.to_le_bytes());
        if !self.is_read_only {
            put(36, &RANGE_SECTORS_MAX.to_le_bytes());
            put(40, &1_u32.to_le_bytes());
            put(44, &block_sectors.to_le_bytes());
            put(48, &RANGE_SECTORS_MAX.to_le_bytes());
            put(52, &1_u32.to_le_bytes());
            // Write-zeroes may give up what the range takes.
            put(56, &[1]);
        }
        config
    }
}

#[cfg(test)]
mod tests;

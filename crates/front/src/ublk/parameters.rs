//! What the kernel is told of a device.

use zerocopy::{FromBytes, IntoBytes};

use crate::nbd::Export;
use crate::pieces::PIECE_SECTORS;

use super::request::Limits;
use super::wire::{
    BasicParameters, DiscardParameters, PARAMETERS_BYTES, ParametersHead, attribute, parameter_kind,
};

const SECTOR_BYTES: u64 = 512;

/// Below this a device with smaller blocks reads and writes whole ones of this size.
const PHYSICAL_BYTES_MIN: u32 = 4096;

/// Bounds of the longest request: a full row between them.
const REQUEST_BYTES_LEAST: u64 = 1 << 20;
const REQUEST_BYTES_MOST: u64 = 4 << 20;

/// What is served, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) size_bytes: u64,
    pub(super) block_bytes: u32,
    /// What a request had best be at least, a power of two.
    pub(super) chunk_bytes: u32,
    /// What is best written as a whole.
    pub(super) row_sectors: u64,
    pub(super) discards: bool,
    pub(super) is_read_only: bool,
    pub(super) is_rotational: bool,
}

/// The parameters of a device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Parameters {
    pub(super) basic: BasicParameters,
    pub(super) discard: DiscardParameters,
}

impl Shape {
    /// Of an export of a volume whose best unit has so many sectors.
    pub(super) fn new(export: &Export, row_sectors: u64, discards: bool) -> Self {
        Self {
            size_bytes: export.size_bytes,
            block_bytes: export.block_sizes.minimum().max(SECTOR_BYTES as u32),
            chunk_bytes: export.block_sizes.preferred(),
            row_sectors,
            discards: discards && export.trim,
            is_read_only: export.read_only,
            is_rotational: export.rotational,
        }
    }

    /// The most data of one request.
    pub(super) fn request_bytes_max(&self) -> u32 {
        let row_bytes = self.row_sectors.saturating_mul(SECTOR_BYTES);
        let page = rustix::param::page_size() as u64;
        let bytes = row_bytes.clamp(REQUEST_BYTES_LEAST, REQUEST_BYTES_MOST) / page * page;
        u32::try_from(bytes).expect("a few MiB")
    }

    /// What may be asked for.
    pub(super) fn limits(&self) -> Limits {
        Limits {
            sectors: self.size_bytes / SECTOR_BYTES,
            block_sectors: u64::from(self.block_bytes) / SECTOR_BYTES,
            request_bytes_max: self.request_bytes_max(),
            is_read_only: self.is_read_only,
        }
    }

    /// A full row, which the kernel takes as a power of two alone: else the largest that a row has a whole number of,
    /// but no less than a chunk.
    fn optimal_bytes(&self) -> u64 {
        let row_bytes = self.row_sectors.saturating_mul(SECTOR_BYTES);
        let whole = if row_bytes == 0 { 1 } else { 1 << row_bytes.trailing_zeros() };
        whole.clamp(self.chunk_bytes.into(), 1 << 30)
    }

    pub(super) fn parameters(&self) -> Parameters {
        Parameters { basic: self.basic(), discard: self.discard() }
    }

    fn basic(&self) -> BasicParameters {
        let physical_bytes = self.block_bytes.max(PHYSICAL_BYTES_MIN);
        let minimal_bytes = self.chunk_bytes.max(physical_bytes);
        let flag = |is_set: bool, flag: u32| if is_set { flag } else { 0 };
        BasicParameters {
            attributes: attribute::VOLATILE_CACHE
                | attribute::FUA
                | flag(self.is_read_only, attribute::READ_ONLY)
                | flag(self.is_rotational, attribute::ROTATIONAL),
            logical_block_shift: self.block_bytes.ilog2() as u8,
            physical_block_shift: physical_bytes.ilog2() as u8,
            optimal_shift: self.optimal_bytes().max(minimal_bytes.into()).ilog2() as u8,
            minimal_shift: minimal_bytes.ilog2() as u8,
            request_sectors_max: (u64::from(self.request_bytes_max()) / SECTOR_BYTES) as u32,
            chunk_sectors: 0,
            sectors: self.size_bytes / SECTOR_BYTES,
            virtual_boundary: 0,
        }
    }

    /// Ranges of one piece at most, or of one row where that is longer: a stop waits for no more.
    fn discard(&self) -> DiscardParameters {
        const SECTORS_MOST: u64 = (u32::MAX as u64 + 1) / SECTOR_BYTES - 1;
        let row_sectors = self.row_sectors.clamp(1, SECTORS_MOST);
        let block_sectors = u64::from(self.block_bytes) / SECTOR_BYTES;
        let granularity = row_sectors.next_multiple_of(block_sectors);
        let longest = (PIECE_SECTORS / granularity).max(1) * granularity;
        let offered = |is_offered: bool| if is_offered { longest as u32 } else { 0 };
        DiscardParameters {
            alignment_bytes: 0,
            granularity_bytes: (granularity * SECTOR_BYTES).min(u64::from(u32::MAX)) as u32,
            discard_sectors_max: offered(self.discards && !self.is_read_only),
            zeroes_sectors_max: offered(!self.is_read_only),
            segments: 1,
            reserved: 0,
        }
    }
}

impl Parameters {
    /// As the driver reads them.
    pub(super) fn to_bytes(self) -> [u8; PARAMETERS_BYTES] {
        let kinds = parameter_kind::BASIC | parameter_kind::DISCARD;
        let head = ParametersHead { length: PARAMETERS_BYTES as u32, kinds };
        let parts = [head.as_bytes(), self.basic.as_bytes(), self.discard.as_bytes()].concat();
        parts.try_into().expect("the parts are the whole")
    }

    /// What the driver writes when it is asked: no parts of kinds that it does not have.
    pub(super) fn of(bytes: &[u8; PARAMETERS_BYTES]) -> Option<Self> {
        let (head, rest) = ParametersHead::read_from_prefix(bytes).ok()?;
        let (basic, rest) = BasicParameters::read_from_prefix(rest).ok()?;
        let (discard, _) = DiscardParameters::read_from_prefix(rest).ok()?;
        let has = |kind: u32| head.kinds & kind != 0;
        let discard = if has(parameter_kind::DISCARD) { discard } else { Default::default() };
        has(parameter_kind::BASIC).then_some(Self { basic, discard })
    }

    /// Whether a device of these is, for who uses it, one of others: of the same size and blocks, and right to write.
    pub(super) fn fit(&self, other: &Self) -> bool {
        let known = |it: &Self| {
            let read_only = it.basic.attributes & attribute::READ_ONLY;
            (it.basic.sectors, it.basic.logical_block_shift, read_only)
        };
        known(self) == known(other)
    }

    /// What a request for so large a range or data may be.
    pub(super) fn request_bytes_max(&self) -> u32 {
        self.basic.request_sectors_max.saturating_mul(SECTOR_BYTES as u32)
    }
}

#[cfg(test)]
mod tests;

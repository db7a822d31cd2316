//! What the kernel asks for.

use rustix::io::Errno;

use super::wire::{Descriptor, io_flag, operation};

const SECTOR_BYTES: u64 = 512;

/// A request, checked: it lies on the device, in whole blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Wanted {
    /// Bytes of the array.
    Read { sector: u64, bytes: usize },
    /// That the array takes bytes; `fua`: durable before the answer.
    Write { sector: u64, bytes: usize, fua: bool },
    /// That all which was answered is durable.
    Flush,
    /// That a range is given up.
    Discard { sector: u64, sectors: u64 },
    /// That a range reads as zeroes; what it took may be given up unless it `keeps` that.
    Zero { sector: u64, sectors: u64, fua: bool, keeps: bool },
}

/// What a device can be asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) sectors: u64,
    /// A power of two.
    pub(super) block_sectors: u64,
    pub(super) request_bytes_max: u32,
    pub(super) is_read_only: bool,
}

impl Wanted {
    /// What a descriptor asks for, or why that cannot be.
    pub(super) fn of(descriptor: &Descriptor, limits: &Limits) -> Result<Self, Errno> {
        let fua = descriptor.operation & io_flag::FUA != 0;
        let keeps = descriptor.operation & io_flag::NO_UNMAP != 0;
        let (sector, sectors) = (descriptor.sector, u64::from(descriptor.sectors));
        let wanted = match descriptor.operation as u8 {
            operation::READ => Self::Read { sector, bytes: limits.bytes(sectors)? },
            operation::WRITE => Self::Write { sector, bytes: limits.bytes(sectors)?, fua },
            operation::FLUSH => return Ok(Self::Flush),
            operation::DISCARD => Self::Discard { sector, sectors },
            operation::WRITE_ZEROES => Self::Zero { sector, sectors, fua, keeps },
            _ => return Err(Errno::OPNOTSUPP),
        };
        if !limits.have(sector, sectors) {
            return Err(Errno::IO);
        }
        match limits.is_read_only && !matches!(wanted, Self::Read { .. }) {
            true => Err(Errno::PERM),
            false => Ok(wanted),
        }
    }
}

impl Limits {
    fn bytes(&self, sectors: u64) -> Result<usize, Errno> {
        let bytes = sectors * SECTOR_BYTES;
        match bytes <= u64::from(self.request_bytes_max) {
            true => Ok(bytes as usize),
            false => Err(Errno::IO),
        }
    }

    /// Whether the device has all of these sectors, and they are whole blocks, and some.
    fn have(&self, sector: u64, sectors: u64) -> bool {
        let is_on = sector.checked_add(sectors).is_some_and(|end| end <= self.sectors);
        let is_whole = (sector | sectors).is_multiple_of(self.block_sectors);
        sectors > 0 && is_on && is_whole
    }
}

#[cfg(test)]
mod tests;

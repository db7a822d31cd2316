//! Chains of descriptors: what one request may read and write of guest memory.
//!
//! The guest may change its tables at any time: each descriptor is read once, and nothing is believed that was not
//! checked in the copy.

use smallvec::SmallVec;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemory, GuestMemoryError, GuestMemoryMmap, Permissions};

/// Descriptors of one chain, those of an indirect table too.
const DESCRIPTORS_MAX: usize = 1024;

/// A piece of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) address: GuestAddress,
    pub(super) bytes: usize,
}

/// Pieces of guest memory, one behind the other. All of them lie in the memory that they were checked against.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Spans(SmallVec<[Span; 4]>);

/// One chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Chain {
    /// What the device may read.
    pub(super) readable: Spans,
    /// What it may write.
    pub(super) writable: Spans,
}

/// Where a ring's descriptors are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Table {
    pub(super) address: GuestAddress,
    /// Descriptors in it.
    pub(super) size: u16,
    /// Descriptors may name tables of others (`VIRTIO_F_INDIRECT_DESC`).
    pub(super) is_indirect: bool,
}

/// Why a chain is no request. The ring cannot go on after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadChain {
    #[error("a descriptor has the index {0}, and the table ends before")]
    Index(u16),
    #[error("a chain has more descriptors than its table")]
    Loop,
    #[error("a chain has over {DESCRIPTORS_MAX} descriptors")]
    TooMany,
    #[error("a descriptor is beyond the shared memory")]
    Outside,
    #[error("a descriptor has no length")]
    Empty,
    #[error("a chain has 4 GiB or more")]
    TooLong,
    #[error("what may be read stands behind what may be written")]
    Order,
    #[error("an indirect table is wrong here")]
    Indirect,
    #[error("a request has no byte for its status")]
    NoStatus,
}

impl Chain {
    /// Follows a chain from its head to its end.
    pub(super) fn walk(
        memory: &GuestMemoryMmap,
        table: Table,
        head: u16,
    ) -> Result<Chain, BadChain> {
        let mut chain = Chain::default();
        let (mut table, mut index, mut left) = (table, head, usize::from(table.size));
        let mut bytes = 0_u32;
        loop {
            left = left.checked_sub(1).ok_or(BadChain::Loop)?;
            let descriptor = table.descriptor(memory, index)?;
            if descriptor.refers_to_indirect_table() {
                table = table.indirect(&descriptor)?;
                (index, left) = (0, usize::from(table.size));
                continue;
            }
            bytes = bytes.checked_add(descriptor.len()).ok_or(BadChain::TooLong)?;
            chain.add(memory, &descriptor)?;
            if !descriptor.has_next() {
                return Ok(chain);
            }
            index = descriptor.next();
        }
    }

    fn add(&mut self, memory: &GuestMemoryMmap, descriptor: &Descriptor) -> Result<(), BadChain> {
        let span = Span { address: descriptor.addr(), bytes: descriptor.len() as usize };
        if span.bytes == 0 {
            return Err(BadChain::Empty);
        }
        if !memory.check_range(span.address, span.bytes, Permissions::ReadWrite) {
            return Err(BadChain::Outside);
        }
        if self.readable.0.len() + self.writable.0.len() == DESCRIPTORS_MAX {
            return Err(BadChain::TooMany);
        }
        match descriptor.is_write_only() {
            true => self.writable.0.push(span),
            false if self.writable.0.is_empty() => self.readable.0.push(span),
            false => return Err(BadChain::Order),
        }
        Ok(())
    }
}

impl Table {
    /// Bytes of a descriptor (2.7.5): address 8, length 4, flags 2, next 2; little-endian.
    const DESCRIPTOR_BYTES: u64 = 16;

    fn descriptor(self, memory: &GuestMemoryMmap, index: u16) -> Result<Descriptor, BadChain> {
        if index >= self.size {
            return Err(BadChain::Index(index));
        }
        let offset = u64::from(index) * Self::DESCRIPTOR_BYTES;
        let address = self.address.0.checked_add(offset).ok_or(BadChain::Outside)?;
        memory.read_obj(GuestAddress(address)).map_err(|_| BadChain::Outside)
    }

    /// The table that a descriptor names. None stands in one, and nothing follows it.
    fn indirect(self, descriptor: &Descriptor) -> Result<Table, BadChain> {
        let bytes = u64::from(descriptor.len());
        let size = u16::try_from(bytes / Self::DESCRIPTOR_BYTES);
        let is_right = self.is_indirect
            && !descriptor.has_next()
            && bytes > 0
            && bytes.is_multiple_of(Self::DESCRIPTOR_BYTES);
        match size {
            Ok(size) if is_right => {
                Ok(Table { address: descriptor.addr(), size, is_indirect: false })
            }
            _ => Err(BadChain::Indirect),
        }
    }
}

impl Spans {
    /// Bytes in all.
    pub(super) fn bytes(&self) -> usize {
        self.0.iter().map(|span| span.bytes).sum()
    }

    /// Memory that the spans take themselves, in bytes, where they are many.
    pub(super) fn own_bytes(&self) -> usize {
        if self.0.spilled() { self.0.capacity() * size_of::<Span>() } else { 0 }
    }

    /// Splits off what stands before byte `bytes`. None: there is less.
    pub(super) fn split_off_front(&mut self, bytes: usize) -> Option<Spans> {
        let (mut front, mut left) = (Spans::default(), bytes);
        while left > 0 {
            let first = self.0.first_mut()?;
            let taken = first.bytes.min(left);
            front.0.push(Span { bytes: taken, ..*first });
            left -= taken;
            if taken == first.bytes {
                self.0.remove(0);
            } else {
                first.address.0 += taken as u64;
                first.bytes -= taken;
            }
        }
        Some(front)
    }

    /// Takes the last byte. None: there is none.
    pub(super) fn pop_byte(&mut self) -> Option<GuestAddress> {
        let last = self.0.last_mut()?;
        last.bytes -= 1;
        let address = GuestAddress(last.address.0 + last.bytes as u64);
        if last.bytes == 0 {
            self.0.pop();
        }
        Some(address)
    }

    /// Copies guest memory to `out`, which is as long.
    pub(super) fn read(
        &self,
        memory: &GuestMemoryMmap,
        mut out: &mut [u8],
    ) -> Result<(), GuestMemoryError> {
        for span in &self.0 {
            let (now, later) = out.split_at_mut(span.bytes);
            memory.read_slice(now, span.address)?;
            out = later;
        }
        Ok(())
    }

    /// Copies `bytes` to guest memory, up to the end of the shorter one.
    pub(super) fn write(
        &self,
        memory: &GuestMemoryMmap,
        mut bytes: &[u8],
    ) -> Result<(), GuestMemoryError> {
        for span in &self.0 {
            let (now, later) = bytes.split_at(span.bytes.min(bytes.len()));
            memory.write_slice(now, span.address)?;
            bytes = later;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;

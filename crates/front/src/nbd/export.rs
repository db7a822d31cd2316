//! What a server offers: exports with names, sizes and abilities.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mdspace_engine::status::{ArrayState, ArrayStatus};
use mdspace_io::Lineage;
use serde::{Deserialize, Serialize};

use crate::address::Address;

use super::request::Framing;
use super::wire::{PAYLOAD_BYTES_MAX, STRING_BYTES_MAX, export_flag};

/// Below this an array reads and writes whole units for a part of one.
const STRIPE_UNIT_BYTES: u32 = 4096;

/// The exports of one server: at least one, names unique. The first is the default export, which
/// also answers to the empty name.
#[derive(Clone, Debug)]
pub struct Exports {
    list: Vec<Export>,
    has_default: bool,
    switch: ReadOnlySwitch,
    lineage: Option<Arc<Lineage>>,
}

/// Whether clients that connect from now on may only read. Clones are one switch.
#[derive(Clone, Debug, Default)]
pub struct ReadOnlySwitch(Arc<AtomicBool>);

impl ReadOnlySwitch {
    /// Turns it. Clients that are connected keep what they were told; the array answers their writes.
    pub fn turn(&self, read_only: bool) {
        self.0.store(read_only, Ordering::Relaxed);
    }

    /// How it stands.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One export: usually a whole array.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Export {
    /// The name that clients ask for; at most 4096 bytes.
    pub name: String,
    /// A line for people, shown by `nbdinfo --list`; may be empty; at most 4096 bytes.
    pub description: String,
    /// Size in bytes, a multiple of the minimum block size.
    pub size_bytes: u64,
    /// Smallest and best sizes of requests.
    pub block_sizes: BlockSizes,
    /// Writes are refused with `EPERM`.
    pub read_only: bool,
    /// Clients should schedule as for a spinning disk.
    pub rotational: bool,
    /// `TRIM` is offered.
    pub trim: bool,
    /// `WRITE_ZEROES` may be asked to fail when it is not faster than a write.
    pub fast_zero: bool,
}

/// Block sizes of an export in bytes, valid by construction. The maximum is always 32 MiB.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "(u32, u32)", into = "(u32, u32)")]
pub struct BlockSizes {
    minimum: u32,
    preferred: u32,
}

/// Why exports cannot be offered.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ExportError {
    /// A server without exports could only refuse.
    #[error("no export to serve: an NBD server needs at least one")]
    NoExports,
    /// Clients choose by name, so a name must mean one export.
    #[error("two exports are named {0:?}: give each its own name")]
    DuplicateName(String),
    /// The protocol's limit for strings.
    #[error("name or description of export {0:?} is over 4096 bytes: shorten it")]
    TooLong(String),
    /// The end of the export could not be reached.
    #[error("export {name:?} has {size_bytes} bytes, no multiple of its block size {minimum}")]
    UnalignedSize {
        /// The export.
        name: String,
        /// Its size in bytes.
        size_bytes: u64,
        /// Its minimum block size in bytes.
        minimum: u32,
    },
    /// Rules of proto.md: powers of two, minimum up to 64 KiB, preferred from 512 bytes to 32 MiB.
    #[error(
        "block sizes {minimum} and {preferred} cannot be announced: both must be powers of two, \
         the first at most 65536, the second at least 512 and the first, at most 33554432"
    )]
    BlockSizes {
        /// Minimum in bytes.
        minimum: u32,
        /// Preferred in bytes.
        preferred: u32,
    },
}

impl Exports {
    /// Checks and keeps `exports`, the default one first.
    pub fn new(exports: Vec<Export>) -> Result<Exports, ExportError> {
        if exports.is_empty() {
            return Err(ExportError::NoExports);
        }
        for (index, export) in exports.iter().enumerate() {
            export.check()?;
            if exports[..index].iter().any(|other| other.name == export.name) {
                return Err(ExportError::DuplicateName(export.name.clone()));
            }
        }
        let switch = ReadOnlySwitch::default();
        Ok(Exports { list: exports, has_default: true, switch, lineage: None })
    }

    /// The same exports for clients that may only read.
    pub fn read_only(mut self) -> Exports {
        self.list.iter_mut().for_each(|export| export.read_only = true);
        self
    }

    /// The same exports, for clients that may only read where the address of their front says so.
    pub fn at(self, address: &Address) -> Exports {
        if address.read_only { self.read_only() } else { self }
    }

    /// The same exports, read-only for clients that connect while this switch is on.
    pub fn switched_by(self, switch: &ReadOnlySwitch) -> Exports {
        Exports { switch: switch.clone(), ..self }
    }

    /// The same exports; who asks is told what lies below them.
    pub fn with_lineage(self, lineage: &Arc<Lineage>) -> Exports {
        Exports { lineage: Some(lineage.clone()), ..self }
    }

    /// What is said instead of an export of this name, if it is a question.
    pub(super) fn answer(&self, name: &str) -> Option<String> {
        let answer = self.lineage.as_ref()?.answer(name)?;
        Some(answer.to_string())
    }

    /// Notes what a client reads, in bytes.
    pub(crate) fn note_read(&self, bytes: Range<u64>) {
        if let Some(lineage) = &self.lineage {
            lineage.note_read(bytes);
        }
    }

    /// What turns them read-only.
    pub(crate) fn switch(&self) -> &ReadOnlySwitch {
        &self.switch
    }

    /// All exports, the default one first.
    pub fn as_slice(&self) -> &[Export] {
        &self.list
    }

    /// The same exports, none of which answers to the empty name.
    pub(super) fn without_default(self) -> Exports {
        Exports { has_default: false, ..self }
    }

    /// The index of the export that a client means by `name`.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        let named = self.list.iter().position(|export| export.name == name);
        named.or((self.has_default && name.is_empty()).then_some(0))
    }
}

impl Export {
    /// A whole array under `name`. Its discards are offered at every level: where a level cannot
    /// discard, the engine ignores them, as a trim allows.
    pub fn of_array(name: &str, array: &ArrayStatus) -> Export {
        let minimum = array.logical_block_bytes;
        let block_sizes = BlockSizes::new(minimum, minimum.max(STRIPE_UNIT_BYTES));
        let read_only = array.state == ArrayState::Readonly;
        Export {
            name: name.to_string(),
            description: format!("md {} array {}", array.level, array.name),
            size_bytes: array.size_sectors * 512,
            block_sizes: block_sizes.expect("a logical block is a power of two up to 64 KiB"),
            read_only,
            rotational: false,
            trim: true,
            fast_zero: false,
        }
    }

    fn check(&self) -> Result<(), ExportError> {
        if self.name.len() > STRING_BYTES_MAX || self.description.len() > STRING_BYTES_MAX {
            return Err(ExportError::TooLong(self.name.chars().take(40).collect()));
        }
        let minimum = self.block_sizes.minimum;
        if !self.size_bytes.is_multiple_of(u64::from(minimum)) {
            return Err(ExportError::UnalignedSize {
                name: self.name.clone(),
                size_bytes: self.size_bytes,
                minimum,
            });
        }
        Ok(())
    }

    /// The transmission flags. "Do not fragment" only makes sense with replies in chunks, and only extended headers
    /// have requests whose flags tell of a payload.
    ///
    /// Several connections are always offered: a flush covers what any of them was told is written.
    pub(super) fn flags(&self, framing: Framing) -> u16 {
        use export_flag::*;
        let always = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | SEND_CACHE;
        let when = |condition: bool, flags: u16| if condition { flags } else { 0 };
        always
            | when(self.read_only, READ_ONLY)
            | when(!self.read_only, SEND_WRITE_ZEROES)
            | when(!self.read_only && self.trim, SEND_TRIM)
            | when(!self.read_only && self.fast_zero, SEND_FAST_ZERO)
            | when(self.rotational, ROTATIONAL)
            | when(framing != Framing::Simple, SEND_DF)
            | when(framing == Framing::Extended, BLOCK_STATUS_PAYLOAD)
    }
}

impl BlockSizes {
    /// `minimum` is the array's logical block, `preferred` where requests are cheapest; in bytes.
    pub fn new(minimum: u32, preferred: u32) -> Result<BlockSizes, ExportError> {
        let valid = minimum.is_power_of_two()
            && preferred.is_power_of_two()
            && minimum <= 1 << 16
            && preferred >= minimum.max(512)
            && preferred <= PAYLOAD_BYTES_MAX;
        if valid {
            Ok(BlockSizes { minimum, preferred })
        } else {
            Err(ExportError::BlockSizes { minimum, preferred })
        }
    }

    /// Smallest request and alignment in bytes.
    pub fn minimum(self) -> u32 {
        self.minimum
    }

    /// Size from which requests are efficient, in bytes.
    pub fn preferred(self) -> u32 {
        self.preferred
    }

    /// Largest payload of a request in bytes.
    pub fn maximum(self) -> u32 {
        PAYLOAD_BYTES_MAX
    }
}

impl TryFrom<(u32, u32)> for BlockSizes {
    type Error = ExportError;

    fn try_from((minimum, preferred): (u32, u32)) -> Result<BlockSizes, ExportError> {
        BlockSizes::new(minimum, preferred)
    }
}

impl From<BlockSizes> for (u32, u32) {
    fn from(sizes: BlockSizes) -> (u32, u32) {
        (sizes.minimum, sizes.preferred)
    }
}

#[cfg(test)]
mod tests;

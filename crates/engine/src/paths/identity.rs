//! Proving that a path leads to the device that the others lead to.

use mdspace_format::{MetadataVersion, Superblock, Uuid};

use crate::backend::{IoError, IoOp, MemberId, MemberInfo, MemberIo, Patience, ReadInto};
use crate::lane::Lane;

const BLOCK_BYTES: usize = 4096;

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    sectors: u64,
    /// Set and device of md's superblock, if it has one.
    uuids: Option<(Uuid, Uuid)>,
    /// Its first block.
    head: Vec<u8>,
}

impl Identity {
    /// Reads it over a path, with `patience` for each block.
    pub(super) async fn read(
        lane: &Lane,
        member: MemberId,
        info: &MemberInfo,
        patience: Patience,
    ) -> Result<Self, IoError> {
        let head = read_block(lane, member, info, 0, patience).await?;
        let mut uuids = None;
        for version in MetadataVersion::PROBE_ORDER {
            let Some(place) = version.place(info.sectors) else { continue };
            let bytes = read_block(lane, member, info, place.sector, patience).await?;
            if let Ok(superblock) = Superblock::parse(&bytes, place, info.sectors) {
                uuids = Some((superblock.set_uuid, superblock.device_uuid));
                break;
            }
        }
        Ok(Self { sectors: info.sectors, uuids, head })
    }

    /// Why this cannot be the device that `known` was read from. Without superblocks the first blocks
    /// decide, if they are as old as each other (`at_once`).
    pub(super) fn contradicts(&self, known: &Self, at_once: bool) -> Option<String> {
        if self.sectors != known.sectors {
            let (own, other) = (self.sectors, known.sectors);
            return Some(format!("it has {own} sectors, the other paths' device {other}"));
        }
        match (self.uuids, known.uuids) {
            (Some(own), Some(other)) if own != other => {
                Some(format!("its superblock is that of device {}, not {}", own.1, other.1))
            }
            (Some(own), None) if at_once => {
                Some(format!("it is device {}, the other paths' device has no superblock", own.1))
            }
            (None, Some(other)) => Some(format!("it is not device {}", other.1)),
            (None, None) if at_once && self.head != known.head => {
                Some("its first block is not that of the other paths' device".into())
            }
            _ => None,
        }
    }

    /// Whether nothing tells this device from another one of its size.
    pub(super) fn is_blank(&self) -> bool {
        self.uuids.is_none() && self.head.iter().all(|&byte| byte == 0)
    }
}

async fn read_block(
    lane: &Lane,
    member: MemberId,
    info: &MemberInfo,
    sector: u64,
    patience: Patience,
) -> Result<Vec<u8>, IoError> {
    // In whole blocks of the device, and not beyond its end.
    let block = u64::from(info.logical_block_bytes / 512).max(1);
    let first = sector / block * block;
    let skip = (sector - first) as usize * 512;
    let left = (info.sectors - first) as usize * 512;
    let bytes = (skip + BLOCK_BYTES).next_multiple_of(info.logical_block_bytes as usize).min(left);
    let into = ReadInto::Buffer(lane.backend().allocate(bytes), 0..bytes);
    let op = IoOp::Read { sector: first, into };
    let done = lane.io(MemberIo { member, op, patience }).await;
    done.result?;
    let buffer = done.buffer.expect("a finished read gives its buffer back");
    let read = buffer[skip..bytes.min(skip + BLOCK_BYTES)].to_vec();
    lane.backend().recycle(buffer);
    Ok(read)
}

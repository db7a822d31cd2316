//! Superblocks that a device bears from arrays it was in before.
//!
//! md looks for a superblock at four places. One that an earlier array left at another place than
//! ours may be assembled one day, over data that are ours by then: so none is left.

use std::time::Duration;

use mdspace_format::superblock::{AREA_BYTES, has_magic};
use mdspace_format::{MetadataVersion, SuperblockPlace};

use crate::backend::{
    IoError, IoOp, MemberId, MemberInfo, MemberIo, Patience, ReadInto, WriteFrom,
};
use crate::lane::Lane;
use crate::memory::Buffer;

/// How long a device may take for each read and write.
const PATIENCE: Duration = Duration::from_secs(30);

/// Erases the superblocks of every version except the one at `own`, durably.
pub(crate) async fn other_superblocks(
    lane: &Lane,
    member: MemberId,
    info: &MemberInfo,
    own: SuperblockPlace,
) -> Result<(), IoError> {
    let versions = MetadataVersion::PROBE_ORDER.iter();
    let places = versions.filter_map(|version| version.superblock_sector(info.sectors));
    let places = places.chain(MetadataVersion::sector_of_0_90(info.sectors));
    for sector in places.filter(|sector| *sector != own.sector) {
        let into = ReadInto::Buffer(Buffer::zeroed(AREA_BYTES), 0..AREA_BYTES);
        let patience = Patience::of(PATIENCE);
        let done = lane.io(MemberIo { member, op: IoOp::Read { sector, into }, patience }).await;
        done.result?;
        if done.buffer.is_some_and(|found| has_magic(&found)) {
            let from = WriteFrom::Buffer(Buffer::zeroed(AREA_BYTES), 0..AREA_BYTES);
            let op = IoOp::Write { sector, from, fua: true };
            lane.io(MemberIo { member, op, patience }).await.result?;
        }
    }
    Ok(())
}

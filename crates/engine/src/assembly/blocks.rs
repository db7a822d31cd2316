//! Whether an array can be served in the logical blocks of its members.

use mdspace_format::{Level, Superblock};

use crate::backend::MemberInfo;

/// Largest logical block that is served, in bytes.
const BLOCK_BYTES_MAX: u32 = 64 << 10;

/// The logical block of an array, in bytes: the largest of its members', and of the one that Linux
/// 6.19 and later keep in the superblock.
pub(crate) fn array_block_bytes<'a>(
    members: impl Iterator<Item = (&'a Superblock, &'a MemberInfo)>,
) -> u32 {
    let block = |(superblock, info): (&Superblock, &MemberInfo)| {
        superblock.logical_block_size_bytes.max(info.logical_block_bytes)
    };
    members.map(block).max().unwrap_or(0).max(512)
}

/// Why a member cannot take part in an array of this block, if it cannot: some I/O of the array
/// would begin or end inside a block of the member, and fail it.
pub(crate) fn misfit(superblock: &Superblock, info: &MemberInfo, block: u32) -> Option<String> {
    if !block.is_power_of_two() || block > BLOCK_BYTES_MAX {
        return Some(format!("a logical block of {block} bytes is not served"));
    }
    let inside = |sectors: u64, block: u32| !sectors.is_multiple_of(u64::from(block / 512).max(1));
    let chunk = u64::from(superblock.chunk_sectors);
    let end = superblock.data_size_sectors - superblock.data_size_sectors % chunk.max(1);
    let last = superblock.raid_disks.checked_sub(1).map(|last| last as u16);
    let is_last = superblock.own_role().slot() == last;
    match () {
        () if inside(superblock.data_offset_sectors, info.logical_block_bytes) => {
            Some("its data begin inside a logical block".to_owned())
        }
        () if superblock.level.has_chunks() && inside(chunk, block) => {
            Some(format!("a chunk of {chunk} sectors is no multiple of a block of {block} bytes"))
        }
        // The next member's data begin where its own end.
        () if superblock.level == Level::Linear && !is_last && inside(end, block) => {
            Some(format!("its data end inside a logical block of {block} bytes"))
        }
        () => larger_block(info, block),
    }
}

/// Requests of an array are in its blocks, and a member must take each of them.
pub(crate) fn larger_block(info: &MemberInfo, block: u32) -> Option<String> {
    let has = info.logical_block_bytes;
    (has > block).then(|| format!("its logical block is {has} bytes, the array's is {block}"))
}

//! What several tests need.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use mdspace::low::{Action, Reply};
use mdspace::status::MemberState;
use mdspace::{Array, Level};
use mdspace_format::superblock::{AREA_BYTES, RESYNC_NONE};
use mdspace_format::{MetadataVersion, Superblock, SuperblockPlace};

pub(crate) const MIB: u64 = 1 << 20;
/// Room for superblock, bitmap and some data.
pub(crate) const MEMBER_BYTES: u64 = 16 * MIB;

/// Files of a folder that goes with the value.
pub(crate) struct Files {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) paths: Vec<PathBuf>,
}

/// So many empty files.
pub(crate) fn files(count: usize) -> Files {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..count).map(|number| folder.path().join(format!("{number}"))).collect();
    paths.iter().for_each(|path| File::create(path).unwrap().set_len(MEMBER_BYTES).unwrap());
    Files { folder, paths }
}

/// A new array in them, all in sync.
pub(crate) fn create(level: Level, files: &Files) -> Array {
    Array::create("bed", level).members(&files.paths).assume_clean(true).start().unwrap()
}

/// Bytes that differ from block to block.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let word = |number: u64| (seed << 32 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..len as u64 / 8).flat_map(|number| word(number).to_le_bytes()).collect()
}

pub(crate) fn read(array: &Array, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xaa; len];
    array.read_at(&mut bytes, offset).unwrap();
    bytes
}

/// Waits, woken by the array alone, until each slot has a member in sync and nothing is resynced.
pub(crate) fn until_in_sync(array: &Array) {
    loop {
        let status = array.status().unwrap();
        let rebuilds = status.members.iter().any(|member| member.state != MemberState::InSync);
        if !rebuilds && status.degraded() == 0 && !status.sync.action.runs() {
            return;
        }
        let news = array.with_running(|running| running.command(Action::News)).unwrap();
        assert!(matches!(news, Ok(Reply::Done)), "{news:?}");
    }
}

/// The superblock of a member with metadata 1.2, as it lies in its file.
pub(crate) fn superblock(path: &Path) -> Superblock {
    let file = File::open(path).unwrap();
    let sectors = file.metadata().unwrap().len() / 512;
    let sector = MetadataVersion::V1_2.superblock_sector(sectors).unwrap();
    let mut bytes = vec![0; AREA_BYTES];
    file.read_exact_at(&mut bytes, sector * 512).unwrap();
    let place = SuperblockPlace { version: MetadataVersion::V1_2, sector };
    Superblock::parse(&bytes, place, sectors).unwrap()
}

/// Whether a member says that the array was stopped, or quiet.
pub(crate) fn is_clean(path: &Path) -> bool {
    superblock(path).resync_offset_sectors == RESYNC_NONE
}

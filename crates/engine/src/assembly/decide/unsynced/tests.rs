//! Bitmaps as a crash, a stop or the real md leaves them.

use mdspace_format::bitmap::{BitmapState, BitmapVersion};
use mdspace_format::superblock::RESYNC_NONE;
use mdspace_format::{BitmapSuperblock, DirtyMap, Features, Level, Role, Timestamp};

use super::super::super::read::{Candidate, FoundBitmap};
use super::super::tests::{Change, all, array, assemble, raid5};
use super::super::{Assembly, Options, Refusal, decide};
use crate::ranges::Ranges;

fn with_bitmap(candidates: &mut [Candidate], sync_size_sectors: u64, set: &[u64]) {
    for candidate in candidates {
        let header = BitmapSuperblock {
            version: BitmapVersion::LittleEndian,
            uuid: candidate.superblock.set_uuid,
            events: candidate.superblock.events,
            events_cleared: 0,
            sync_size_sectors,
            state: BitmapState::default(),
            chunk_bytes: 4096,
            daemon_sleep_seconds: 5,
            write_behind: 0,
            sectors_reserved: 0,
            padding: [0; 188],
        };
        let mut map = DirtyMap::new(header.chunks());
        set.iter().for_each(|chunk| assert!(map.set(*chunk)));
        candidate.bitmap = FoundBitmap::Good(Box::new(header), map);
    }
}

#[test]
fn a_crash_costs_what_the_bitmap_marks_and_without_one_everything() {
    let unsynced = |change: Change| {
        let mut candidates = raid5(0, 10);
        all(&mut candidates, |superblock| superblock.resync_offset_sectors = 0);
        let size = candidates[0].superblock.size_sectors;
        with_bitmap(&mut candidates, size, &[2, 3]);
        change(&mut candidates);
        let start = assemble(candidates).unwrap().start;
        assert!(start.crashed);
        start.unsynced
    };
    let all_of_it = unsynced(|c| c.iter_mut().for_each(|c| c.bitmap = FoundBitmap::None));
    assert_eq!(all_of_it.iter().count(), 1);
    assert!(all_of_it.sectors() > 900, "{all_of_it:?}");
    assert_eq!(unsynced(|_| ()), Ranges::of(16..32));
    // One good copy is enough; a damaged one says nothing.
    assert_eq!(unsynced(|c| c[0].bitmap = FoundBitmap::Bad), Ranges::of(16..32));
    // What any good copy has set counts.
    let another = unsynced(|c| {
        let size = c[0].superblock.size_sectors;
        with_bitmap(&mut c[1..2], size, &[9]);
    });
    assert_eq!(another, [16..32, 72..80].into_iter().collect());
    // A copy behind the array's events proves nothing, alone; beside a fresh one it is not needed.
    let behind: Change = |c| {
        let size = c[0].superblock.size_sectors;
        let events = std::mem::replace(&mut c[0].superblock.events, 3);
        with_bitmap(&mut c[..1], size, &[9]);
        c[0].superblock.events = events;
    };
    assert_eq!(unsynced(behind), Ranges::of(16..32));
    let all_behind = unsynced(|c| {
        let size = c[0].superblock.size_sectors;
        c.iter_mut().for_each(|c| c.superblock.events = 3);
        with_bitmap(c, size, &[9]);
        c.iter_mut().for_each(|c| c.superblock.events = 10);
    });
    assert_eq!(all_behind, all_of_it);
}

#[test]
fn a_bitmap_that_ends_before_the_array_is_refused() {
    let mut candidates = raid5(0, 10);
    with_bitmap(&mut candidates, 64, &[]);
    let refusal = assemble(candidates).unwrap_err();
    assert!(matches!(refusal, Refusal::ShortBitmap { covered: 64, .. }), "{refusal}");
}

#[test]
fn parity_of_a_crash_is_never_taken_for_that_of_a_first_resync() {
    let crashed = |by_mdspace, events, resync_offset_sectors| {
        let mut candidates = raid5(0, events);
        all(&mut candidates, |superblock| {
            superblock.resync_offset_sectors = resync_offset_sectors;
            superblock.utime = Timestamp::with_microseconds(7, u32::from(by_mdspace));
        });
        assemble(candidates).unwrap().start.crashed
    };
    assert!(!crashed(false, 0, 0) && !crashed(true, 1, 0), "just created");
    assert!(crashed(false, 1, 0) && crashed(true, 2, 0), "in use once");
    assert!(!crashed(true, 4, 640), "mdspace stopped it in its first resync");
    assert!(crashed(false, 4, 640), "md stopped it in some resync, perhaps after a crash");
    assert!(!crashed(true, 4, RESYNC_NONE) && !crashed(false, 4, RESYNC_NONE));
}

/// The rows below the offset of a rebuild have all their blocks: only their parity may be wrong, and a
/// resync makes that right. Behind it there may be nothing to compare with.
#[test]
fn force_forgets_no_unsynced_row_of_which_every_block_is_there() {
    let unsynced = |level: Level, disks: u16, offsets: &[u64]| {
        let mut candidates = array((level, 2, 16), disks, 0, 10);
        all(&mut candidates, |superblock| superblock.resync_offset_sectors = 0);
        let size = candidates[0].superblock.size_sectors;
        with_bitmap(&mut candidates, size, &[2, 3, 9, 20]);
        for (candidate, offset) in candidates[1..].iter_mut().zip(offsets) {
            candidate.superblock.recovery_offset_sectors = Some(*offset);
        }
        let force = Options { force: true, ..Options::default() };
        decide(candidates, &force).unwrap().start.unsynced
    };
    let all: Ranges = [16..32, 72..80, 160..168].into_iter().collect();
    assert_eq!(unsynced(Level::Raid5, 3, &[]), all);
    assert_eq!(unsynced(Level::Raid5, 3, &[64]), Ranges::of(16..32));
    assert_eq!(unsynced(Level::Raid5, 3, &[0]), Ranges::default());
    assert_eq!(unsynced(Level::Raid6, 4, &[64]), all, "with one of two missing there is Q");
    assert_eq!(unsynced(Level::Raid6, 4, &[64, 100]), [16..32, 72..80].into_iter().collect());
}

/// md clears a bit when one of the places of its chunk is copied. In far layouts others wait.
#[test]
fn a_recovery_by_bitmap_of_a_far_layout_that_md_left_is_no_longer_one_by_bitmap() {
    const FAR: u32 = 0x201;
    const NEAR: u32 = 0x102;
    for (layout, by_mdspace, expected) in
        [(FAR, true, 1), (FAR, false, 0), (NEAR, true, 1), (NEAR, false, 1)]
    {
        let mut candidates = array((Level::Raid10, layout, 16), 4, 0, 10);
        all(&mut candidates, |superblock| {
            superblock.utime = Timestamp::with_microseconds(7, u32::from(by_mdspace));
        });
        let superblock = &mut candidates[1].superblock;
        superblock.recovery_offset_sectors = Some(64);
        superblock.features = superblock.features.with(Features::RECOVERY_BITMAP, true);
        let start = assemble(candidates).unwrap().start;
        assert_eq!(start.by_bitmap.len(), expected, "layout {layout:#x}, {by_mdspace}");
    }
}

/// md flags a replacement so that was re-added as a spare: bits of a whole array were cleared since.
#[test]
fn a_replacement_is_not_filled_by_the_bitmap_also_where_its_member_is_missing() {
    for is_there in [true, false] {
        let mut candidates = raid5(1, 10);
        all(&mut candidates, |superblock| superblock.roles[3] = Role::Slot(1));
        let size = candidates[0].superblock.size_sectors;
        with_bitmap(&mut candidates, size, &[]);
        let superblock = &mut candidates[3].superblock;
        superblock.recovery_offset_sectors = Some(64);
        for feature in [Features::REPLACEMENT, Features::RECOVERY_BITMAP] {
            superblock.features = superblock.features.with(feature, true);
        }
        if !is_there {
            candidates.remove(1);
        }
        let run = Options { run: true, ..Options::default() };
        let start = decide(candidates, &run).unwrap().start;
        assert_eq!(start.members.len(), if is_there { 4 } else { 3 });
        assert!(start.by_bitmap.is_empty(), "with its member: {is_there}");
    }
}

/// Header and bits of a candidate's copy of the bitmap.
fn copy(candidate: &mut Candidate) -> (&mut BitmapSuperblock, &mut DirtyMap) {
    let FoundBitmap::Good(header, map) = &mut candidate.bitmap else { panic!("a bitmap") };
    (header, map)
}

fn bits(assembly: &Assembly) -> (u64, bool) {
    let (header, map) = assembly.start.bitmap.as_ref().expect("a bitmap");
    assert!(!header.state.is_stale(), "its bits are those in memory now");
    (map.count(), assembly.start.copies_differ)
}

#[test]
fn a_bit_that_one_member_has_counts_and_is_to_be_given_to_all() {
    let mut candidates = raid5(0, 10);
    assert_eq!(bits(&assemble(raid5(0, 10)).unwrap()), (0, false));
    copy(&mut candidates[1]).1.set(3);
    assert_eq!(bits(&assemble(candidates).unwrap()), (1, true));
}

/// A crash may have left the others without the header that one of them has.
#[test]
fn the_latest_clearing_that_any_copy_tells_of_counts() {
    for latest in 0..3 {
        let mut candidates = raid5(0, 10);
        copy(&mut candidates[latest]).0.events_cleared = 9;
        let assembly = assemble(candidates).unwrap();
        let (header, _) = assembly.start.bitmap.as_ref().expect("a bitmap");
        assert_eq!(header.events_cleared, 9);
        assert!(assembly.start.copies_differ);
    }
}

#[test]
fn a_stale_copy_says_nothing_and_without_a_fresh_one_every_bit_counts() {
    let mut candidates = raid5(0, 10);
    copy(&mut candidates[0]).1.set(3);
    copy(&mut candidates[0]).0.events = 9;
    assert_eq!(bits(&assemble(candidates).unwrap()), (0, true));
    let mut candidates = raid5(0, 10);
    for candidate in &mut candidates {
        copy(candidate).0.state.0 |= BitmapState::STALE;
    }
    let chunks = copy(&mut candidates[0]).1.chunks();
    assert_eq!(bits(&assemble(candidates).unwrap()), (chunks, true));
}

#[test]
fn copies_that_are_cut_differently_make_every_bit_count() {
    let mut candidates = raid5(0, 10);
    let (header, map) = copy(&mut candidates[1]);
    header.chunk_bytes *= 2;
    *map = DirtyMap::new(header.chunks());
    let chunks = copy(&mut candidates[0]).1.chunks();
    assert_eq!(bits(&assemble(candidates).unwrap()), (chunks, true));
}

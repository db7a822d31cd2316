use std::sync::Arc;

use super::*;
use crate::array::view::WriteMode;
use crate::backend::MemberId;
use crate::geometry::{Level, Shape};
use crate::ranges::Ranges;

/// Three mirrors, the first of them write-mostly.
fn view(unsynced: Ranges) -> ArrayView {
    let shape = Shape {
        level: Level::Raid1,
        layout: 0,
        raid_disks: 3,
        chunk_sectors: 0,
        member_sectors: 8192,
        member_sizes: Vec::new(),
    };
    let member = |index: u16| MemberView {
        id: MemberId { index, generation: 0 },
        data_offset: 0,
        readable_sectors: u64::MAX,
        bad: Arc::default(),
        holes: Arc::default(),
        write_mostly: index == 0,
    };
    ArrayView {
        epoch: 1,
        taken_out: 0,
        whole: false,
        geometry: Arc::new(Geometry::new(&shape).unwrap()),
        slots: (0..3).map(|index| Some(member(index))).collect(),
        mode: WriteMode::Open,
        unsynced: Arc::new(unsynced),
        doubted: Arc::default(),
        block_sectors: 1,
        unit_sectors: 8,
        intent_chunk_sectors: None,
        intent_epoch: 0,
        discard: false,
    }
}

#[test]
fn where_mirrors_may_differ_direct_reads_take_the_copy_that_resync_believes() {
    let unsynced = view(Ranges::of(0..8192));
    let synced = view(Ranges::default());
    let mut spread = std::collections::BTreeSet::new();
    for sector in (0..8192).step_by(512) {
        let believed = believed(&unsynced, sector, 512)[0].slot;
        assert_eq!(choose(&unsynced, sector, 512).unwrap().0.slot, believed);
        assert_eq!(believed, Slot(1), "a write-mostly member is believed last");
        spread.insert(choose(&synced, sector, 512).unwrap().0.slot);
    }
    assert_eq!(spread.len(), 2, "equal mirrors share the reads, but for the write-mostly one");
}

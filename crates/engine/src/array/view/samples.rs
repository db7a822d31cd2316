//! Views for tests.

use std::sync::Arc;

use super::*;
use crate::geometry::{Level, Shape};

/// Members in sync of 8192 sectors, in chunks of 1024, with what `change` makes of each slot.
pub(in crate::array) fn view_of(
    level: Level,
    layout: u32,
    disks: u16,
    change: impl Fn(Slot, MemberView) -> Option<MemberView>,
) -> ArrayView {
    let shape = Shape {
        level,
        layout,
        raid_disks: disks,
        chunk_sectors: if level == Level::Raid1 { 0 } else { 1024 },
        member_sectors: 8192,
        member_sizes: Vec::new(),
    };
    let in_sync = |index: u16| MemberView {
        id: MemberId { index, generation: 0 },
        data_offset: 0,
        readable_sectors: u64::MAX,
        filled_sectors: u64::MAX,
        durable_sectors: u64::MAX,
        recorded_sectors: u64::MAX,
        bad: Arc::default(),
        bad_in_memory: Arc::default(),
        holes: Arc::default(),
        write_mostly: false,
        failfast: false,
        rotational: false,
        is_sparse: false,
    };
    let mut view = ArrayView {
        epoch: 1,
        taken_out: 0,
        geometry: Arc::new(Geometry::new(&shape).unwrap()),
        slots: (0..disks).map(|slot| change(Slot(slot), in_sync(slot))).collect(),
        replacements: Vec::new(),
        mode: WriteMode::Open,
        rests: None,
        unsynced: Arc::default(),
        doubted: Arc::default(),
        unaccepted: Arc::default(),
        accepted_for_all: Arc::default(),
        outliers: Arc::default(),
        unresolved: Arc::default(),
        heard: Default::default(),
        block_sectors: 1,
        unit_sectors: 8,
        intent_chunk_sectors: None,
        intent_epoch: 0,
        discard: false,
        whole: false,
        plain: false,
    };
    view.describe();
    view
}

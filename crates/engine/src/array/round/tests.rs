//! How a write is cut into rounds: every range of a few rows.

use std::collections::BTreeMap;

use super::*;
use crate::geometry::{Geometry, Level, Shape};

fn map(level: Level, raid_disks: u16, chunk_sectors: u32) -> ParityGeometry {
    let shape = Shape {
        level,
        layout: 2,
        raid_disks,
        chunk_sectors,
        member_sectors: 4 * u64::from(chunk_sectors),
        member_sizes: Vec::new(),
    };
    match Geometry::new(&shape) {
        Ok(Geometry::Parity(map)) => map,
        other => panic!("{other:?}"),
    }
}

/// Where each sector of the request goes: row, place and column, by its number in the request.
fn targets(extents: &[Extent]) -> BTreeMap<u64, (u64, usize, u32)> {
    let mut targets = BTreeMap::new();
    for extent in extents {
        for (new, first) in extent.new.iter().zip(&extent.source_sectors) {
            for (step, column) in (0..).zip(new.columns.clone()) {
                let twice = targets.insert(first + step, (extent.row, new.place, column));
                assert_eq!(twice, None, "a sector is written once");
            }
        }
    }
    targets
}

fn judge(map: &ParityGeometry, unit: u32, sector: u64, sectors: u64) {
    let extents = extents(map, unit, sector, sectors);
    let wanted = (0..sectors).map(|step| {
        let at = map.split(sector + step);
        (step, (at.row, usize::from(at.data_index), at.offset_sectors))
    });
    assert_eq!(targets(&extents), wanted.collect(), "every sector goes to its place");
    for extent in &extents {
        let whole = |columns: &Columns| {
            columns.start.is_multiple_of(unit)
                && columns.end.is_multiple_of(unit)
                && columns.end <= map.chunk_sectors()
        };
        assert!(whole(&extent.columns), "claims are whole units: {extent:?}");
        for new in &extent.new {
            assert!(whole(&new.units) && new.units.end - new.columns.end < unit);
            assert!(new.columns.start - new.units.start < unit);
            assert!(new.units.start >= extent.columns.start);
            assert!(new.units.end <= extent.columns.end);
        }
        let used = |column: u32| extent.new.iter().any(|new| new.units.contains(&column));
        assert!(extent.columns.clone().all(used), "no more is claimed than is written");
    }
    for (index, one) in extents.iter().enumerate() {
        let clash = |other: &&Extent| other.row == one.row && other.touches(&one.columns);
        assert!(!extents[index + 1..].iter().any(|other| clash(&other)), "rounds stay apart");
    }
}

#[test]
fn every_range_is_cut_into_rounds_that_cover_it_and_nothing_else() {
    for (map, unit) in [
        (map(Level::Raid5, 3, 8), 8),
        (map(Level::Raid5, 4, 16), 8),
        (map(Level::Raid5, 4, 8), 1),
        (map(Level::Raid4, 2, 16), 4),
        (map(Level::Raid6, 5, 16), 8),
    ] {
        for sector in 0..map.row_sectors() + 9 {
            for sectors in 1..=map.array_sectors() - sector {
                judge(&map, unit, sector, sectors);
            }
        }
    }
}

#[test]
fn the_two_ends_of_a_row_are_two_rounds_where_they_share_no_column() {
    let map = map(Level::Raid5, 4, 32);
    let cut = |sector, sectors| {
        let extents = extents(&map, 8, sector, sectors);
        extents.into_iter().map(|extent| (extent.row, extent.columns)).collect::<Vec<_>>()
    };
    assert_eq!(cut(24, 16), [(0, 24..32), (0, 0..8)]);
    assert_eq!(cut(20, 32), [(0, 0..32)], "both touch the unit at 16");
    assert_eq!(cut(24, 48), [(0, 0..32)], "a whole chunk lies between");
    assert_eq!(cut(94, 4), [(0, 24..32), (1, 0..8)], "rows are never mixed");
}

#[test]
fn a_write_of_whole_rows_claims_each_row_once() {
    let map = map(Level::Raid6, 6, 16);
    let extents = extents(&map, 8, 0, map.array_sectors());
    assert_eq!(extents.len() as u64, map.rows());
    assert!(extents.iter().all(|extent| extent.new.len() == 4 && extent.columns == (0..16)));
}

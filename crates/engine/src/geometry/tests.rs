//! Properties that hold for every small array, and for the largest.

use std::collections::BTreeSet;

use super::*;

mod kernel_maps;
mod refusals;
mod shapes;

use shapes::{every_small_shape, parity_shape, raid10_shape};

fn geometry(shape: &Shape) -> Geometry {
    Geometry::new(shape).unwrap_or_else(|error| panic!("{shape:?}: {error}"))
}

/// Every place that holds `array_sector`, the located one first.
fn places(map: &Geometry, array_sector: u64) -> Vec<(Slot, u64)> {
    let piece = map.locate(array_sector);
    match map {
        Geometry::Raid1(mirror) => {
            (0..mirror.raid_disks()).map(|slot| (Slot(slot), array_sector)).collect()
        }
        Geometry::Raid10(copies) => {
            let chunk_sectors = u64::from(copies.chunk_sectors());
            let (chunk, offset) = (array_sector / chunk_sectors, array_sector % chunk_sectors);
            copies.copies_of(chunk).map(|(slot, start)| (slot, start + offset)).collect()
        }
        _ => vec![(piece.slot, piece.member_sector)],
    }
}

fn member_size(shape: &Shape, slot: u16) -> u64 {
    match shape.level {
        Level::Linear | Level::Raid0 => shape.member_sizes[usize::from(slot)],
        _ => shape.member_sectors,
    }
}

#[test]
fn every_sector_has_places_of_its_own_and_the_inverse_leads_back() {
    let mut shapes = 0;
    for shape in every_small_shape() {
        let map = geometry(&shape);
        let mut taken = BTreeSet::new();
        for array_sector in 0..map.array_sectors() {
            let places = places(&map, array_sector);
            let piece = map.locate(array_sector);
            assert_eq!((piece.slot, piece.member_sector), places[0], "{shape:?} {array_sector}");
            for (slot, member_sector) in places {
                assert!(member_sector < member_size(&shape, slot.0), "{shape:?} {array_sector}");
                assert!(taken.insert((slot, member_sector)), "{shape:?} {array_sector}: taken");
                let back = map.inverse(slot, member_sector);
                assert_eq!(back, Some(array_sector), "{shape:?} {slot} {member_sector}");
            }
        }
        let members = (0..shape.raid_disks).map(|slot| (slot, member_size(&shape, slot)));
        for (slot, size) in members {
            for sector in 0..size + 16 {
                let used = taken.contains(&(Slot(slot), sector));
                let back = map.inverse(Slot(slot), sector);
                assert_eq!(back.is_some(), used, "{shape:?} slot {slot} sector {sector}");
            }
        }
        assert_eq!(map.inverse(Slot(shape.raid_disks), 0), None);
        shapes += 1;
    }
    assert!(shapes > 500, "only {shapes} shapes were tried");
}

#[test]
fn a_piece_runs_on_for_as_long_as_it_says() {
    for shape in every_small_shape() {
        let map = geometry(&shape);
        let mut array_sector = 0;
        while array_sector < map.array_sectors() {
            let piece = map.locate(array_sector);
            assert!(piece.sectors > 0 && piece.sectors <= map.array_sectors() - array_sector);
            for step in 1..piece.sectors {
                let later = map.locate(array_sector + step);
                let expected = Piece {
                    slot: piece.slot,
                    member_sector: piece.member_sector + step,
                    sectors: piece.sectors - step,
                };
                assert_eq!(later, expected, "{shape:?} {array_sector} + {step}");
            }
            array_sector += piece.sectors;
        }
    }
}

#[test]
fn a_range_lies_in_as_many_chunks_as_its_sectors() {
    for shape in every_small_shape() {
        let Geometry::Parity(map) = geometry(&shape) else { continue };
        let most = u64::from(2 * map.chunk_sectors() + 1).min(map.array_sectors());
        for start in 0..most {
            let mut chunks = BTreeSet::new();
            for sectors in 1..=most.min(map.array_sectors() - start) {
                let last = map.split(start + sectors - 1);
                chunks.insert((last.row, last.data_index));
                assert_eq!(map.chunks(start, sectors), chunks.len(), "{shape:?} {start} {sectors}");
            }
        }
    }
}

#[test]
fn every_member_of_a_row_has_exactly_one_position() {
    for shape in every_small_shape() {
        let Geometry::Parity(map) = geometry(&shape) else { continue };
        for index in 0..map.rows() {
            let row = map.row(index);
            assert_eq!(row.index(), index);
            let mut slots = BTreeSet::from([row.p()]);
            assert_eq!(row.position(row.p()), Position::P);
            if let Some(q) = row.q() {
                assert!(slots.insert(q), "{shape:?} row {index}");
                assert_eq!(row.position(q), Position::Q);
            }
            assert_eq!(row.q().is_some(), map.parity_disks() == 2);
            for data_index in 0..map.data_disks() {
                let slot = row.data(data_index);
                assert!(slots.insert(slot), "{shape:?} row {index} data {data_index}");
                assert_eq!(row.position(slot), Position::Data(data_index));
            }
            assert_eq!(slots.len(), usize::from(map.raid_disks()));
        }
    }
}

#[test]
fn no_two_chunks_of_a_row_share_an_exponent() {
    for shape in every_small_shape().filter(|shape| shape.level == Level::Raid6) {
        let Geometry::Parity(map) = geometry(&shape) else { continue };
        for row in (0..map.rows()).map(|index| map.row(index)) {
            let exponents =
                (0..map.data_disks()).map(|data| row.exponent(data)).collect::<BTreeSet<_>>();
            assert_eq!(exponents.len(), usize::from(map.data_disks()), "{shape:?} {row:?}");
            assert!(exponents.iter().all(|&power| u16::from(power) < row.exponents()));
        }
    }
}

#[test]
fn ddf_counts_exponents_by_slot_and_md_from_the_member_after_q() {
    for disks in 4..=8 {
        for layout in 8..=10 {
            let shape = parity_shape(Level::Raid6, layout, disks, 8, 20);
            let Geometry::Parity(map) = geometry(&shape) else { panic!("not parity") };
            for row in (0..map.rows()).map(|index| map.row(index)) {
                assert_eq!(row.exponents(), disks);
                for data in 0..map.data_disks() {
                    assert_eq!(u16::from(row.exponent(data)), row.data(data).0);
                }
            }
        }
        for layout in (0..=5).chain(16..=20) {
            let shape = parity_shape(Level::Raid6, layout, disks, 8, 20);
            let Geometry::Parity(map) = geometry(&shape) else { panic!("not parity") };
            for row in (0..map.rows()).map(|index| map.row(index)) {
                assert_eq!(row.exponents(), map.data_disks());
                let mut power = 0;
                let after_q = row.q().expect("raid6 has Q").0 + 1;
                for slot in (0..disks).map(|step| (after_q + step) % disks) {
                    if let Position::Data(data) = row.position(Slot(slot)) {
                        assert_eq!(row.exponent(data), power, "{shape:?} {row:?}");
                        power += 1;
                    }
                }
            }
        }
    }
}

#[test]
fn enough_is_what_reading_every_chunk_finds() {
    for shape in every_small_shape() {
        let map = geometry(&shape);
        let (mut fewest_fatal, disks) = (u32::MAX, shape.raid_disks);
        for lost in 0u32..1 << disks {
            let present = |slot: Slot| lost >> slot.0 & 1 == 0;
            let readable = readable(&map, &present);
            assert_eq!(map.enough(&present), readable, "{shape:?} lost {lost:#b}");
            if !readable {
                fewest_fatal = fewest_fatal.min(lost.count_ones());
            }
        }
        assert_eq!(u32::from(map.max_failures()) + 1, fewest_fatal, "{shape:?}");
    }
}

#[test]
fn parity_is_comparable_where_fewer_blocks_are_missing_than_it_has() {
    for shape in every_small_shape() {
        let Geometry::Parity(map) = geometry(&shape) else { continue };
        for code in 0..3u32.pow(shape.raid_disks.into()) {
            let filled_to = |slot: Slot| u64::from(code / 3u32.pow(slot.0.into()) % 3) * 100;
            let slots = || (0..shape.raid_disks).map(Slot);
            let lacking = |sector| slots().filter(|&slot| filled_to(slot) <= sector).count();
            let is_comparable = |sector| lacking(sector) < map.parity_disks().into();
            let end = map.comparable_to(filled_to);
            assert!(end == 0 || is_comparable(end - 1), "{shape:?} code {code}");
            assert!(!is_comparable(end), "{shape:?} code {code}");
        }
    }
}

fn readable(map: &Geometry, present: &dyn Fn(Slot) -> bool) -> bool {
    if let Geometry::Parity(parity) = map {
        let lost = (0..parity.raid_disks()).filter(|&slot| !present(Slot(slot))).count();
        return lost <= usize::from(parity.parity_disks());
    }
    let step = |sector: u64| sector + map.locate(sector).sectors;
    let in_array = |sector: &u64| *sector < map.array_sectors();
    std::iter::successors(Some(0), |&sector| Some(step(sector)).filter(in_array))
        .all(|sector| places(map, sector).iter().any(|&(slot, _)| present(slot)))
}

#[test]
fn raid10_uses_whole_parts_of_its_members() {
    // 11 chunks a member: two far copies use 10 of them, three near copies on 4 members use all 11
    let cases = [(0x201, 4, 10 * 8, 20), (0x103, 4, 11 * 8, 14), (0x10201, 5, 10 * 8, 25)];
    for (layout, disks, used_sectors, chunks) in cases {
        let Geometry::Raid10(map) = geometry(&raid10_shape(layout, disks, 8, 11 * 8 + 7)) else {
            panic!("not raid10")
        };
        assert_eq!((map.used_sectors(), map.chunks()), (used_sectors, chunks), "{layout:#x}");
    }
}

#[test]
fn the_old_far_sets_may_put_two_copies_on_one_member() {
    // six members in three sets of two: the third copy is back on the first member
    let shape = raid10_shape(0x301 | 1 << 17, 6, 8, 24);
    let map = geometry(&shape);
    assert_eq!(map.max_failures(), 1);
    assert_eq!(geometry(&raid10_shape(0x301 | 2 << 17, 6, 8, 24)).max_failures(), 2);
}

#[test]
fn the_largest_arrays_do_not_overflow() {
    let chunk = 1 << 20;
    let mut shapes = vec![Shape {
        level: Level::Raid1,
        layout: 0,
        raid_disks: 2,
        chunk_sectors: 0,
        member_sectors: MAX_SECTORS,
        member_sizes: Vec::new(),
    }];
    for level in [Level::Linear, Level::Raid0] {
        shapes.push(Shape {
            level,
            layout: 1,
            raid_disks: 3,
            chunk_sectors: 24,
            member_sectors: 0,
            member_sizes: vec![MAX_SECTORS / 2, MAX_SECTORS / 4, MAX_SECTORS / 4],
        });
    }
    for disks in [4, 5, 257] {
        shapes.push(parity_shape(
            Level::Raid6,
            2,
            disks,
            chunk,
            MAX_SECTORS / u64::from(disks - 2),
        ));
    }
    shapes.push(parity_shape(Level::Raid5, 2, 2, chunk, MAX_SECTORS));
    shapes.push(parity_shape(Level::Raid5, 2, 1920, 8, MAX_SECTORS / 1919));
    for layout in [0x102, 0x201, 0x10201] {
        shapes.push(raid10_shape(layout, 2, chunk, MAX_SECTORS));
    }
    for shape in shapes {
        let map = geometry(&shape);
        let end = map.array_sectors();
        assert!(end > MAX_SECTORS - (MAX_SECTORS >> 10), "{shape:?}: only {end}");
        for array_sector in [0, end / 3, end / 2, end - 1] {
            for (slot, member_sector) in places(&map, array_sector) {
                assert_eq!(map.inverse(slot, member_sector), Some(array_sector), "{shape:?}");
            }
        }
        for slot in 0..3 {
            assert_eq!(map.inverse(Slot(slot), u64::MAX), None, "{shape:?}");
        }
    }
}

#[test]
fn an_address_beyond_the_end_panics() {
    for shape in every_small_shape().step_by(37) {
        let map = geometry(&shape);
        let beyond = std::panic::catch_unwind(|| map.locate(map.array_sectors()));
        assert!(beyond.is_err(), "{shape:?}");
    }
}

//! The maps against what the real md wrote: `tests/fixtures/layouts`, made by `tools/make-layout-fixtures.sh`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;

/// One array of the fixtures.
struct Recorded {
    shape: Shape,
    array_sectors: u64,
    /// By slot and member sector.
    members: Vec<Vec<Place>>,
    /// RAID6: by row and slot, `None` for P and Q.
    exponents: Vec<Vec<Option<u8>>>,
}

/// What md left in a member's sector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Array(u64),
    P,
    Q,
    Unused,
}

const LEVELS: [Level; 7] = [
    Level::Linear,
    Level::Raid0,
    Level::Raid1,
    Level::Raid4,
    Level::Raid5,
    Level::Raid6,
    Level::Raid10,
];

fn recorded(level: Level) -> Vec<Recorded> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/layouts")
        .join(format!("{level}.txt"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let arrays = text.split("\n\n").skip(1).map(|text| parse(level, text)).collect::<Vec<_>>();
    assert!(!arrays.is_empty(), "{} holds no arrays", path.display());
    arrays
}

fn parse(level: Level, text: &str) -> Recorded {
    let (head, body): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.contains('='));
    let head = head.join(" ");
    let mut fields = BTreeMap::new();
    for (key, value) in head.split(' ').filter_map(|word| word.split_once('=')) {
        fields.insert(key, value);
    }
    let number = |key| fields[key].parse::<u64>().expect("a number");
    let layout = fields["layout"].strip_prefix("0x").expect("hexadecimal");
    let sizes = head.split_once("member_sectors=").expect("sizes").1.split(' ');
    let sizes = sizes.map(|size| size.parse().expect("a size")).collect::<Vec<u64>>();
    let raid_disks = number("raid_disks") as u16;
    let each = |slot: u16| sizes.get(usize::from(slot)).copied().unwrap_or(sizes[0]);
    let lines = |prefix: &'static str| {
        let named = body.iter().filter(move |line| line.starts_with(prefix));
        named.map(|line| line.split_once(": ").expect("a colon").1)
    };
    Recorded {
        shape: Shape {
            level,
            layout: u32::from_str_radix(layout, 16).expect("a layout"),
            raid_disks,
            chunk_sectors: number("chunk_sectors") as u32,
            member_sectors: sizes[0],
            member_sizes: (0..raid_disks).map(each).collect(),
        },
        array_sectors: number("array_sectors"),
        members: lines("slot").map(parse_runs).collect(),
        exponents: lines("exponents")
            .map(|powers| powers.split(' ').map(|power| power.parse().ok()).collect())
            .collect(),
    }
}

fn parse_runs(runs: &str) -> Vec<Place> {
    let run = |run: &str| {
        let (first, length) = run.split_once('+').expect("first+length");
        let first = first.to_owned();
        (0..length.parse().expect("a length")).map(move |step: u64| match first.as_str() {
            "P" => Place::P,
            "Q" => Place::Q,
            "-" => Place::Unused,
            number => Place::Array(number.parse::<u64>().expect("an array sector") + step),
        })
    };
    runs.split(' ').flat_map(run).collect()
}

/// The first difference between a map and what md wrote.
fn difference(map: &Geometry, recorded: &Recorded) -> Option<String> {
    if map.array_sectors() != recorded.array_sectors {
        return Some(format!(
            "{} sectors in all, not {}",
            map.array_sectors(),
            recorded.array_sectors
        ));
    }
    for (slot, places) in (0..).map(Slot).zip(&recorded.members) {
        for (member_sector, &expected) in (0..).zip(places) {
            let found = place(map, slot, member_sector);
            if found != expected {
                return Some(format!("{slot} sector {member_sector}: {found:?}, not {expected:?}"));
            }
        }
    }
    let Geometry::Parity(map) = map else { return None };
    for (row, expected) in (0..).zip(&recorded.exponents) {
        let found = exponents(&map.row(row), map.raid_disks());
        if found != *expected {
            return Some(format!("row {row}: exponents {found:?}, not {expected:?}"));
        }
    }
    None
}

fn place(map: &Geometry, slot: Slot, member_sector: u64) -> Place {
    if let Some(array_sector) = map.inverse(slot, member_sector) {
        return Place::Array(array_sector);
    }
    let Geometry::Parity(map) = map else { return Place::Unused };
    let row = member_sector / u64::from(map.chunk_sectors());
    if row >= map.rows() {
        return Place::Unused;
    }
    match map.row(row).position(slot) {
        Position::P => Place::P,
        Position::Q => Place::Q,
        Position::Data(_) => panic!("data without an array sector"),
    }
}

fn exponents(row: &Row, raid_disks: u16) -> Vec<Option<u8>> {
    let of_slot = |slot| match row.position(Slot(slot)) {
        Position::Data(data_index) => Some(row.exponent(data_index)),
        _ => None,
    };
    (0..raid_disks).map(of_slot).collect()
}

fn overlaps(shape: &Shape) -> bool {
    matches!(Geometry::new(shape), Err(GeometryError::CopiesOverlap { .. }))
}

#[test]
fn every_map_is_what_the_kernel_wrote() {
    let mut arrays = 0;
    for recorded in LEVELS.into_iter().flat_map(recorded).filter(|array| !overlaps(&array.shape)) {
        let map = geometry(&recorded.shape);
        assert_eq!(difference(&map, &recorded), None, "{:?}", recorded.shape);
        for array_sector in 0..map.array_sectors() {
            for (slot, member_sector) in places(&map, array_sector) {
                let found = recorded.members[usize::from(slot.0)][member_sector as usize];
                assert_eq!(found, Place::Array(array_sector), "{:?}", recorded.shape);
            }
        }
        if recorded.shape.level == Level::Raid6 {
            let Geometry::Parity(map) = &map else { panic!("not parity") };
            assert_eq!(recorded.exponents.len() as u64, map.rows());
        }
        arrays += 1;
    }
    assert!(arrays > 60, "only {arrays} arrays were compared");
}

/// Negative control of `difference`.
#[test]
fn a_swapped_layout_differs_from_what_the_kernel_wrote() {
    let mut same = Vec::new();
    let mut swaps = 0;
    for level in LEVELS {
        let arrays = recorded(level);
        let sound = || arrays.iter().filter(|array| !overlaps(&array.shape));
        for written in sound() {
            for other in sound().map(|array| array.shape.layout) {
                let shape = Shape { layout: other, ..written.shape.clone() };
                if other == written.shape.layout || Geometry::new(&shape).is_err() {
                    continue;
                }
                swaps += 1;
                if difference(&geometry(&shape), written).is_none() && written.shape.layout < other
                {
                    same.push((level, shape.raid_disks, written.shape.layout, other));
                }
            }
        }
    }
    same.dedup();
    let twins = [
        // one zone
        (Level::Raid0, 3, 1, 2),
        // one far set of all members
        (Level::Raid10, 2, 0x201, 0x40201),
        (Level::Raid10, 2, 0x10201, 0x50201),
        (Level::Raid10, 4, 0x202, 0x40202),
        (Level::Raid10, 5, 0x202, 0x40202),
        // sets of two, as first made and as repaired
        (Level::Raid10, 4, 0x20201, 0x40201),
        (Level::Raid10, 5, 0x20201, 0x40201),
    ];
    assert_eq!(same, twins);
    assert!(swaps > 200, "only {swaps} swaps were tried");
}

#[test]
fn md_itself_loses_data_on_the_raid10_shapes_that_are_refused_as_overlapping() {
    let refused = recorded(Level::Raid10).into_iter().filter(|array| overlaps(&array.shape));
    let mut arrays = 0;
    for array in refused {
        let copies = (array.shape.layout & 0xff) * (array.shape.layout >> 8 & 0xff);
        let mut found = BTreeMap::new();
        for place in array.members.iter().flatten() {
            *found.entry(format!("{place:?}")).or_insert(0) += 1;
        }
        let whole =
            |sector: &u64| found.get(&format!("{:?}", Place::Array(*sector))) == Some(&copies);
        let kept = (0..array.array_sectors).filter(whole).count() as u64;
        assert!(kept < array.array_sectors, "{:?}: every copy is there", array.shape);
        arrays += 1;
    }
    assert_eq!(arrays, 2);
}

//! The oracle believes a right array and nobody else.

use super::*;
use crate::disk::DiskSpec;
use crate::random::Random;
use crate::stamp::{Version, stamp};
use crate::trace::Trace;
use std::rc::Rc;

pub(super) const ARRAY_SECTORS: u64 = 96;

/// Writes the array sector by sector, as the layout says, with all redundancy.
pub(super) fn build(level: i32, layout: u32, slots: usize) -> (Rc<World>, Shape) {
    let world = World::new(Random::new(1), Trace::default());
    for _ in 0..slots {
        world.add_disk(DiskSpec::plain(128));
    }
    let shape = Shape { level, layout, chunk_sectors: 8, member_sectors: vec![96; slots] };
    for sector in 0..ARRAY_SECTORS {
        let mut bytes = [0; SECTOR_BYTES];
        stamp(sector, Version(1 + sector % 3), &mut bytes);
        shape.places(sector).into_iter().for_each(|place| put(&world, place, &bytes));
    }
    if shape.has_parity() {
        (0..shape.rows()).for_each(|row| put_parity(&world, &shape, row));
    }
    (world, shape)
}

fn put(world: &World, place: Place, bytes: &Sector) {
    let disk = DiskIndex(place.slot as u16);
    world.change_disk(disk, |disk| disk.store.overwrite(OFFSET + place.sector, bytes));
}

pub(super) const OFFSET: u64 = 16;

fn put_parity(world: &World, shape: &Shape, row: u64) {
    let who = shape.row(row);
    for sector in row * 8..row * 8 + 8 {
        let (mut p, mut q) = ([0; SECTOR_BYTES], [0; SECTOR_BYTES]);
        for &slot in &who.data {
            let mut data = [0; SECTOR_BYTES];
            world.disk(DiskIndex(slot as u16), |d| d.store.read(OFFSET + sector, &mut data));
            let power = who.exponents.get(slot).copied().flatten().unwrap_or(0);
            for at in 0..SECTOR_BYTES {
                p[at] ^= data[at];
                q[at] ^= multiply(data[at], power_of_two(power));
            }
        }
        put(world, Place { slot: who.p, sector }, &p);
        if let Some(slot) = who.q {
            put(world, Place { slot, sector }, &q);
        }
    }
}

/// Multiplication by the schoolbook, other than the oracle's.
fn multiply(a: u8, b: u8) -> u8 {
    let mut product = 0_u16;
    for bit in 0..8 {
        if b >> bit & 1 == 1 {
            product ^= u16::from(a) << bit;
        }
    }
    for bit in (8..16).rev() {
        if product >> bit & 1 == 1 {
            product ^= 0x11d << (bit - 8);
        }
    }
    product as u8
}

fn power_of_two(power: u32) -> u8 {
    (0..power).fold(1, |value, _| multiply(value, 2))
}

fn open<'a>(world: &'a World, shape: &Shape) -> RawArray<'a> {
    let slots = (0..shape.slots()).map(|slot| (DiskIndex(slot as u16), OFFSET)).collect();
    RawArray { world, shape: shape.clone(), slots }
}

pub(super) const KINDS: [(i32, u32, usize); 8] = [
    (1, 0, 3),
    (4, 0, 4),
    (5, 2, 4),
    (6, 2, 5),
    (6, 10, 6),
    (10, 0x102, 4),
    (10, 0x201, 5),
    (10, 0x1_0201, 4),
];

#[test]
fn a_right_array_has_no_mismatch_and_holds_its_data() {
    for (level, layout, slots) in KINDS {
        let (world, shape) = build(level, layout, slots);
        let array = open(&world, &shape);
        assert_eq!(array.mismatches(ARRAY_SECTORS), 0, "{shape:?}");
        let mut model = Model::zeroes(ARRAY_SECTORS);
        for sector in 0..ARRAY_SECTORS {
            let write = model.begin_write(sector..sector + 1, &[Version(1 + sector % 3)]);
            model.end_write(write, crate::model::Certainty::Durable);
        }
        array.check_data(&mut model).unwrap();
    }
}

#[test]
fn one_flipped_byte_anywhere_is_counted() {
    for (level, layout, slots) in KINDS {
        for slot in 0..slots {
            let (world, shape) = build(level, layout, slots);
            let mut random = Random::new(slot as u64);
            let place = Place { slot, sector: random.below(16) };
            let (disk, sector) = open(&world, &shape).raw(place);
            world.change_disk(disk, |disk| {
                let mut bytes = [0; SECTOR_BYTES];
                disk.store.read(sector, &mut bytes);
                bytes[random.index(SECTOR_BYTES)] ^= 1;
                disk.store.overwrite(sector, &bytes);
            });
            assert!(open(&world, &shape).mismatches(ARRAY_SECTORS) > 0, "{shape:?} slot {slot}");
        }
    }
}

#[test]
fn data_that_the_model_does_not_know_is_a_violation() {
    let (world, shape) = build(5, 2, 4);
    let mut model = Model::zeroes(ARRAY_SECTORS);
    assert!(open(&world, &shape).check_data(&mut model).is_err());
}

#[test]
fn disks_without_superblocks_are_no_array() {
    let (world, _) = build(5, 2, 4);
    let disks: Vec<DiskIndex> = (0..4).map(DiskIndex).collect();
    assert_eq!(RawArray::open(&world, &disks).unwrap_err(), NotWhole::NoSuperblock);
}

//! What is left is judged by all that holds it: right arrays are believed, with members missing too, and no other.

use super::super::tests::{ARRAY_SECTORS, KINDS, OFFSET, build};
use super::*;
use crate::model::Certainty;
use crate::random::Random;
use crate::stamp::Version;

/// What is left of an array without some of its slots, marked as in need of a resync or not.
fn left<'a>(world: &'a World, shape: &Shape, lost: &[usize], agrees: bool) -> Remains<'a> {
    let holder = |slot: usize| Holder {
        disk: DiskIndex(slot as u16),
        start: OFFSET,
        filled_to: u64::MAX,
        bad: Vec::new(),
        replaces: false,
    };
    let holders = (0..shape.slots())
        .map(|slot| if lost.contains(&slot) { Vec::new() } else { vec![holder(slot)] })
        .collect();
    let agrees_to = if agrees { u64::MAX } else { 0 };
    let marks = Marks { agrees_to, bitmaps: Vec::new() };
    Remains { world, shape: shape.clone(), holders, marks }
}

/// A model of what `build` writes.
fn model() -> Model {
    let mut model = Model::zeroes(ARRAY_SECTORS);
    for sector in 0..ARRAY_SECTORS {
        let write = model.begin_write(sector..sector + 1, &[Version(1 + sector % 3)]);
        model.end_write(write, Certainty::Durable);
    }
    model
}

/// The slots that a level bears the loss of: none, each, and each two on RAID6.
fn losses(level: i32, slots: usize) -> Vec<Vec<usize>> {
    let mut losses = vec![Vec::new()];
    losses.extend((0..slots).map(|slot| vec![slot]));
    if level == 6 {
        losses.extend((0..slots).flat_map(|one| (0..one).map(move |other| vec![other, one])));
    }
    losses
}

fn flip(world: &World, slot: usize, sector: u64, random: &mut Random) {
    world.change_disk(DiskIndex(slot as u16), |disk| {
        let mut bytes = [0; SECTOR_BYTES];
        disk.store.read(OFFSET + sector, &mut bytes);
        bytes[random.index(SECTOR_BYTES)] ^= 1;
        disk.store.overwrite(OFFSET + sector, &bytes);
    });
}

#[test]
fn a_right_array_is_right_without_any_member_that_it_bears_to_lose() {
    for (level, layout, slots) in KINDS {
        let (world, shape) = build(level, layout, slots);
        for lost in losses(level, slots) {
            let judged = left(&world, &shape, &lost, true).judge(&model());
            assert_eq!(judged, Ok(()), "{shape:?} without {lost:?}");
        }
    }
}

#[test]
fn one_flipped_byte_of_those_that_are_left_is_noticed() {
    for (level, layout, slots) in KINDS {
        for lost in losses(level, slots) {
            for slot in (0..slots).filter(|slot| !lost.contains(slot)) {
                let (world, shape) = build(level, layout, slots);
                let mut random = Random::new(slot as u64);
                let sector = random.below(16);
                flip(&world, slot, sector, &mut random);
                // Without as many as there are parities, a parity stands for no block of its own.
                let is_needed = !shape.has_parity() || {
                    let row = shape.row(sector / 8);
                    let parities = [Some(row.p), row.q];
                    let left = parities.iter().flatten().filter(|slot| !lost.contains(slot));
                    let missing = row.data.iter().filter(|slot| lost.contains(slot)).count();
                    row.data.contains(&slot) || missing > 0 || left.count() > 0
                };
                let judged = left(&world, &shape, &lost, true).judge(&model());
                assert_eq!(judged.is_err(), is_needed, "{shape:?} without {lost:?}, {slot}");
            }
        }
    }
}

#[test]
fn where_members_may_differ_data_are_judged_and_redundancy_is_not() {
    let (world, shape) = build(5, 2, 4);
    flip(&world, shape.row(0).p, 3, &mut Random::new(1));
    assert_eq!(left(&world, &shape, &[], false).judge(&model()), Ok(()));
    let told = left(&world, &shape, &[], true).judge(&model());
    assert_eq!(told, Err(Wrong::Unmarked { first: 3, sectors: 1 }));
    flip(&world, shape.row(0).data[0], 4, &mut Random::new(1));
    let told = left(&world, &shape, &[], false).judge(&model());
    assert!(matches!(told, Err(Wrong::Content { at: Some(_), .. })), "{told:?}");
}

#[test]
fn of_copies_that_may_differ_one_must_be_right() {
    let (world, shape) = build(1, 0, 2);
    flip(&world, 0, 3, &mut Random::new(1));
    assert_eq!(left(&world, &shape, &[], false).judge(&model()), Ok(()));
    assert!(left(&world, &shape, &[], true).judge(&model()).is_err());
    flip(&world, 1, 3, &mut Random::new(2));
    assert!(left(&world, &shape, &[], false).judge(&model()).is_err());
}

#[test]
fn a_block_that_a_member_lists_or_was_not_filled_with_is_not_believed() {
    for (level, layout, slots) in KINDS {
        let (world, shape) = build(level, layout, slots);
        flip(&world, 0, 3, &mut Random::new(1));
        assert!(left(&world, &shape, &[], true).judge(&model()).is_err(), "{shape:?}");
        let mut listed = left(&world, &shape, &[], true);
        listed.holders[0][0].bad.push(OFFSET + 3..OFFSET + 4);
        assert_eq!(listed.judge(&model()), Ok(()), "{shape:?}");
        let mut filled = left(&world, &shape, &[], true);
        filled.holders[0][0].filled_to = 3;
        assert_eq!(filled.judge(&model()), Ok(()), "{shape:?}");
        filled.holders[0][0].filled_to = 4;
        assert!(filled.judge(&model()).is_err(), "{shape:?}");
    }
}

/// A replacement in the slot of another member is held against it.
#[test]
fn a_replacement_is_judged_like_the_member_that_it_replaces() {
    for level in [1, 5] {
        let (world, shape) = build(level, if level == 5 { 2 } else { 0 }, 4);
        let new = world.add_disk(crate::disk::DiskSpec::plain(128));
        let mut bytes = vec![0; 96 * SECTOR_BYTES];
        world.disk(DiskIndex(3), |disk| disk.store.read(OFFSET, &mut bytes));
        world.change_disk(new, |disk| disk.store.overwrite(OFFSET, &bytes));
        for is_right in [true, false] {
            let mut remains = left(&world, &shape, &[], true);
            let holder = Holder { disk: new, replaces: true, ..remains.holders[3][0].clone() };
            remains.holders[3].push(holder);
            assert_eq!(remains.judge(&model()).is_ok(), is_right, "{shape:?}");
            flip(&world, usize::from(new.0), 5, &mut Random::new(1));
        }
    }
}

//! What the next round reads and writes is told while a round runs, where members answer at once.

use std::ops::Range;
use std::rc::Rc;

use mdspace_engine::geometry::Level;
use mdspace_engine::request::{Queue, Request};

use crate::shapes::{RAID4, RAID5, RAID6, Shape};
use crate::world::{Answers, SECTOR, Setup, World};

/// Sectors of a unit.
const UNIT: u64 = 8;

/// Rows that are written, a round each.
const ROWS: u64 = 12;

const NARROW: Shape = Shape::new(Level::Raid5, 2, 3, 16);
const WIDE: Shape = Shape::new(Level::Raid6, 2, 7, 16);

/// A disk, and sectors of it.
type Place = (usize, Range<u64>);

/// An array that is marked dirty, and has nothing in its cache of the second unit of any chunk.
fn world(shape: Shape, answers: Answers, lost: Option<usize>, seed: u64) -> World {
    let shape = shape.without_bitmap();
    let mut world = World::synced(Setup { answers, ..Setup::new(shape, seed) });
    lost.into_iter().for_each(|disk| world.fail(disk));
    write_rows(&mut world, 0);
    world.disks.reset_counts();
    world
}

/// Writes this unit of some chunk of every row, all at once.
fn write_rows(world: &mut World, unit: u64) {
    let shape = *world.shape();
    let chunks = u64::from(shape.disks) - shape.can_lose() as u64;
    let chunk_sectors = u64::from(shape.chunk_sectors);
    let port = world.port(0);
    let writes: Vec<_> = (0..ROWS)
        .map(|row| {
            let chunk = row * chunks + world.random.below(chunks);
            let bytes = world.random.bytes(UNIT as usize * SECTOR);
            (chunk * chunk_sectors + unit * UNIT, bytes)
        })
        .collect();
    world.run(async move {
        let queue = Queue::new();
        for (sector, bytes) in writes {
            port.submit(&queue, 0, Request::Write { sector, from: Rc::new(bytes), fua: false });
        }
        for _ in 0..ROWS {
            queue.next().await.result.unwrap();
        }
    });
}

/// What all disks were told of, and what was read or written, each place once.
fn told_and_used(world: &World) -> (Vec<Place>, Vec<Place>) {
    let (mut told, mut used) = (Vec::new(), Vec::new());
    for at in 0..world.disks.count() {
        let disk = world.disks.disk(at);
        told.extend(disk.prefetched.iter().map(|range| (at, range.clone())));
        used.extend(disk.reads.iter().chain(&disk.writes).map(|range| (at, range.clone())));
    }
    used.sort_by_key(|(at, range)| (*at, range.start));
    used.dedup();
    (told, used)
}

#[test]
fn all_blocks_are_told_of_once_a_round_has_shown_that_members_answer_at_once() {
    for (shape, seed) in [NARROW, RAID4, RAID5, RAID6, WIDE].into_iter().zip(1..) {
        let mut world = world(shape, Answers::AtOnce, None, seed);
        write_rows(&mut world, 1);
        let (told, used) = told_and_used(&world);
        let case = format!("{shape}, seed {seed}: {told:?} of {used:?}");
        assert!(told.iter().all(|place| used.contains(place)), "{case}");
        let of_a_round = used.len() as u64 / ROWS;
        assert_eq!(told.len() as u64, of_a_round * (ROWS - 2), "{case}");
    }
}

#[test]
fn nothing_is_told_that_a_degraded_row_does_not_use() {
    for (shape, seed) in [RAID4, RAID5, RAID6, WIDE].into_iter().zip(1..) {
        for lost in 0..usize::from(shape.disks) {
            let mut world = world(shape, Answers::AtOnce, Some(lost), seed);
            write_rows(&mut world, 1);
            let (told, used) = told_and_used(&world);
            let case = format!("{shape} without {lost}, seed {seed}: {told:?} of {used:?}");
            assert!(!told.is_empty() && told.iter().all(|place| used.contains(place)), "{case}");
        }
    }
}

#[test]
fn members_that_take_their_time_are_told_nothing() {
    let mut world = world(RAID6, Answers::Shuffled, None, 1);
    write_rows(&mut world, 1);
    let (told, used) = told_and_used(&world);
    assert!(told.is_empty() && !used.is_empty(), "{told:?} of {used:?}");
}

//! What parity can be believed before the first resync, and after a write that ended half-way.

use mdspace_engine::array::Action;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::RequestError;

use crate::shapes::{self, DATA_OFFSET, Shape};
use crate::world::{SECTOR, Setup, World};

/// RAID5 is made by recovery onto its last member, so that its parity is right from the start.
fn resynced_at_first() -> [Shape; 2] {
    [shapes::RAID6, Shape::new(Level::Raid6, 8, 5, 16)]
}

/// An array that was just made over old bytes, every sector written and no row resynced.
fn written_and_unsynced(shape: Shape, seed: u64) -> World {
    let mut world = World::created(Setup::shuffled(shape, seed));
    world.command(Action::Freeze).unwrap();
    world.learn();
    world.write_random(0, world.sectors());
    world
}

fn row_sectors(shape: &Shape) -> u64 {
    u64::from(shape.chunk_sectors) * u64::from(shape.disks - 2)
}

#[test]
fn one_failed_write_puts_no_other_row_in_doubt() {
    for (seed, shape) in (1..).zip(resynced_at_first()) {
        let mut world = written_and_unsynced(shape, seed);
        let row = row_sectors(&shape);
        world.disks.disk(2).write_error = Some(IoErrorKind::NoSpace);
        let failed = world.write(0, vec![9; row as usize * SECTOR]);
        assert_eq!(failed, Err(RequestError::NoSpace), "{world}");
        world.disks.disk(2).write_error = None;
        (2..4).for_each(|disk| world.fail(disk));
        assert!(world.read(0, row).is_err(), "old parity answers for new data ({world})");
        let rest = world.read(row, world.sectors() - row).unwrap();
        world.compare(row, &rest);
    }
}

#[test]
fn unreadable_sectors_are_answered_but_not_mended_before_the_first_resync() {
    for (seed, shape) in (10..).zip(resynced_at_first()) {
        let mut world = written_and_unsynced(shape, seed);
        world.disks.reset_counts();
        world.disks.disk(3).unreadable.extend(DATA_OFFSET..DATA_OFFSET + 4);
        world.verify();
        assert!(world.disks.disk(3).writes.is_empty(), "{world}");
        world.command(Action::Idle).unwrap();
        world.wait_idle();
        world.disks.reset_counts();
        world.disks.disk(3).unreadable.extend(DATA_OFFSET..DATA_OFFSET + 4);
        world.verify();
        assert!(!world.disks.disk(3).writes.is_empty(), "{world}");
    }
}

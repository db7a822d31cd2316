//! Writes that fail half-way, members that fail while others do, orders that come meanwhile.

use std::cell::RefCell;
use std::rc::Rc;

use mdspace_engine::array::Action;
use mdspace_engine::assembly::Options;
use mdspace_engine::backend::IoErrorKind;
use mdspace_engine::geometry::Level;
use mdspace_engine::request::{Queue, Request, RequestError};
use mdspace_engine::status::ArrayState;

use crate::shapes::{self, DATA_OFFSET, Shape};
use crate::world::{SECTOR, Setup, World};

/// One member fails a write, another the superblock that was to say so.
#[test]
fn a_failure_that_the_survivors_cannot_record_is_not_acknowledged() {
    for (seed, shape) in (1..).zip([shapes::RAID5, shapes::RAID5.without_bitmap()]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(5);
        world.disks.disk(0).write_error = Some(IoErrorKind::Gone);
        world.disks.disk(1).write_error = Some(IoErrorKind::Gone);
        world.disks.disk(1).errors_in = Some(0..DATA_OFFSET);
        let all = world.sectors();
        let from = Rc::new(vec![7; all as usize * SECTOR]);
        let ended = world.serve(0, Request::Write { sector: 0, from, fua: false });
        assert_eq!(ended, Err(RequestError::Lost), "{world}");
        assert_eq!(world.status().state, ArrayState::Broken, "{world}");
        assert_eq!(world.write(0, vec![1; 512]), Err(RequestError::Lost), "{world}");
        world.crash();
        (0..2).for_each(|disk| world.disks.disk(disk).plug());
        let left_out = world.assemble_with_force().unwrap();
        assert!(left_out.len() <= 1, "{left_out:?} ({world})");
        world.wait_idle();
        world.read(0, all).unwrap();
    }
}

/// What a user orders of a broken array must not make its survivors say that all is well.
#[test]
fn orders_to_a_broken_array_write_nothing() {
    let mut world = World::synced(Setup::shuffled(shapes::RAID5, 3));
    world.write_many(5);
    (0..2).for_each(|disk| world.disks.disk(disk).unplug());
    assert_eq!(world.write(0, vec![1; 64 * SECTOR]), Err(RequestError::Lost));
    world.disks.reset_counts();
    for disk in [3, 0] {
        let member = world.disks.id(disk);
        let _ = world.command(Action::Fail { member, force: true });
        let _ = world.command(Action::Remove { member });
    }
    world.rounds(100);
    assert!(world.disks.disk(2).writes.is_empty());
    assert!(world.disks.disk(3).writes.is_empty());
}

/// The write waits for the controller, and the controller must not wait for the write.
#[test]
fn an_order_to_refuse_writes_does_not_stand_in_the_way_of_a_failure() {
    for seed in 0..40 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID5, seed));
        world.write_many(1);
        let data = world.disks.data();
        world.disks.disk(1).write_error = Some(IoErrorKind::Gone);
        world.disks.disk(1).errors_in = Some(data);
        let all = world.sectors();
        let from = Rc::new(vec![7; all as usize * SECTOR]);
        let write = world.start(0, Request::Write { sector: 0, from, fua: false });
        world.rounds(seed as usize / 2);
        world.command(Action::ReadOnly).unwrap();
        let ended = world.end(&write);
        assert!(matches!(ended, Ok(()) | Err(RequestError::ReadOnly)), "{ended:?} ({world})");
        if ended.is_ok() {
            world.model.fill(7);
            world.crash();
            world.disks.disk(1).plug();
            world.assemble_with_force().unwrap();
            world.verify();
        }
    }
}

#[test]
fn nothing_is_computed_from_the_parity_of_a_write_that_failed() {
    let mut lost = 0;
    for seed in 0..60 {
        let mut world = World::synced(Setup::shuffled(shapes::RAID5, seed));
        world.fail(0);
        world.write_many(2);
        let data = world.disks.data();
        world.disks.disk(1).write_error = Some(IoErrorKind::NoSpace);
        world.disks.disk(1).errors_in = Some(data);
        // Rows of three chunks of 16 sectors: one chunk is written, the others are read.
        let row = world.random.below(world.sectors() / 48) * 48;
        let chunk = world.random.below(3) * 16;
        let from = Rc::new(world.random.bytes(16 * SECTOR));
        let write = world.start(0, Request::Write { sector: row + chunk, from, fua: false });
        world.rounds(seed as usize % 20);
        for lane in [1, 2, 1, 2] {
            for sector in [row, row + 16, row + 32] {
                if sector == row + chunk {
                    continue;
                }
                let into = Rc::new(RefCell::new(vec![0; 16 * SECTOR]));
                let read = world.start(lane, Request::Read { sector, into: into.clone() });
                match world.end(&read) {
                    Ok(()) => world.compare(sector, &into.borrow()),
                    Err(error) => {
                        assert_eq!(error, RequestError::Lost, "{world}");
                        lost += 1;
                    }
                }
            }
        }
        let _ = world.end(&write);
    }
    assert!(lost > 0, "some write failed half-way");
}

#[test]
fn a_read_only_array_does_not_even_mend() {
    for (seed, shape) in (20..).zip(shapes::redundant()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_many(4);
        world.stop();
        world.disks.reset_counts();
        let bad: Vec<u64> = world.disks.data().step_by(7).collect();
        world.disks.disk(0).unreadable.extend(bad);
        let all: Vec<usize> = (0..usize::from(shape.disks)).collect();
        world.assemble(&all, &Options { read_only: true, ..Options::default() }).unwrap();
        world.verify();
        world.stop();
        for disk in all {
            assert!(world.disks.disk(disk).writes.is_empty(), "{world}, disk {disk}");
        }
    }
}

#[test]
fn requests_to_an_array_that_was_stopped_are_told_so() {
    for (seed, shape) in (900..).zip([shapes::RAID1, shapes::RAID5, shapes::RAID10]) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let port = world.port(1);
        world.stop();
        let requests = [
            Request::Read { sector: 0, into: Rc::new(RefCell::new(vec![0; 4096])) },
            Request::Write { sector: 0, from: Rc::new(vec![1; 4096]), fua: false },
            Request::Flush,
        ];
        for request in requests {
            let queue = Queue::new();
            port.submit(&queue, 1, request);
            world.rounds(10);
            let ended = queue.pop().map(|ended| ended.result);
            assert_eq!(ended, Some(Err(RequestError::Stopped)), "{world}");
        }
    }
}

/// The first copy lists a block, and no record says yet that the one that is being filled has it. A write of it fails;
/// what that copy has is still all that there is.
#[test]
fn a_failed_write_takes_no_block_from_the_only_copy_that_gives_it() {
    let (sector, mut failed) = (40, 0);
    for seed in 40..52 {
        let shape = Shape { member_sectors: 4096, ..Shape::new(Level::Raid1, 0, 2, 0) };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.write_random(0, 256);
        let spare = usize::from(shape.disks);
        world.fail(1);
        world.set("sync_max", "96");
        world.add(spare).unwrap();
        world.wait_status("its beginning", |status| {
            status.members.iter().any(|member| member.recovery_offset_sectors > sector)
        });
        let bad = world.disks.data().start + sector;
        {
            let mut first = world.disks.disk(0);
            first.unreadable.insert(bad);
            (first.write_error, first.errors_in) = (Some(IoErrorKind::Medium), Some(bad..bad + 1));
        }
        let old = world.read(sector, 1).unwrap_or_else(|error| panic!("{error} ({world})"));
        world.compare(sector, &old);
        let new = world.random.bytes(SECTOR);
        match world.write(sector, new.clone()) {
            // Its superblock says that it has the block.
            Ok(()) => continue,
            Err(error) => assert_eq!(error, RequestError::Lost, "{world}"),
        }
        failed += 1;
        let found = world.read(sector, 1).unwrap_or_else(|error| panic!("{error} ({world})"));
        assert!(found == old || found == new, "{world}");
        world.remember(sector, &found);
        world.set("sync_max", "max");
        world.wait_idle();
        world.verify();
        assert_eq!(world.status().degraded(), 0, "{world}");
        world.restart();
        world.verify();
    }
    assert!(failed > 0);
}

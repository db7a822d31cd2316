//! Every level: what is written is read back, now and after a restart.

use std::rc::Rc;

use mdspace_engine::request::{Request, RequestError};

use crate::shapes;
use crate::world::{SECTOR, Setup, World};

fn written_is_read_back(setup: Setup) {
    let mut world = World::synced(setup);
    world.write_many(40);
    world.verify();
    world.restart();
    world.verify();
    world.write_many(10);
    world.verify();
    if setup.shape.can_lose() > 0 {
        world.wait_idle();
        assert_eq!(world.check(), 0, "redundancy agrees ({world})");
    }
}

#[test]
fn every_level_holds_what_is_written_over_a_restart() {
    for (seed, shape) in (1..).zip(shapes::all()) {
        written_is_read_back(Setup::new(shape, seed));
    }
}

#[test]
fn every_level_holds_what_is_written_when_ios_end_in_any_order_on_three_lanes() {
    for (seed, shape) in (100..).zip(shapes::all()) {
        written_is_read_back(Setup::shuffled(shape, seed));
    }
}

#[test]
#[should_panic(expected = "sector 5 is wrong")]
fn a_single_wrong_byte_is_found() {
    let mut world = World::synced(Setup::new(shapes::RAID5, 1));
    world.model[5 * SECTOR + 17] ^= 1;
    world.verify();
}

#[test]
fn zeroes_and_discards_read_as_zeroes_where_they_act() {
    for (seed, shape) in (200..).zip(shapes::all()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        for _ in 0..6 {
            let (sector, sectors) = world.random_range();
            world.serve(0, Request::WriteZeroes { sector, sectors, fua: true }).unwrap();
            world.remember(sector, &vec![0; sectors as usize * SECTOR]);
        }
        world.verify();
        let all = world.sectors();
        world.serve(1, Request::Discard { sector: 0, sectors: all }).unwrap();
        world.model.fill(0);
        world.verify();
        if shape.can_lose() > 0 {
            assert_eq!(world.check(), 0, "redundancy agrees ({world})");
        }
    }
}

#[test]
fn a_punched_range_reads_as_zeroes_and_its_neighbours_stay() {
    for (seed, shape) in (240..).zip(shapes::all()) {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        let end = world.sectors();
        for keeps_discarded in [false, true] {
            world.disks.disk(0).keeps_discarded = keeps_discarded;
            world.stop();
            world.assemble_all().unwrap();
            world.write_random(0, end);
            for _ in 0..6 {
                let (sector, sectors) = world.random_range();
                world.serve(0, Request::Punch { sector, sectors }).unwrap();
                world.remember(sector, &vec![0; sectors as usize * SECTOR]);
            }
            world.verify();
        }
        let beyond = world.serve(0, Request::Punch { sector: end, sectors: 1 });
        assert_eq!(beyond, Err(RequestError::OutOfRange));
        world.verify();
        if shape.can_lose() > 0 {
            assert_eq!(world.check(), 0, "redundancy agrees ({world})");
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut world = World::synced(Setup::new(shapes::RAID5, 3));
    let end = world.sectors();
    let mut write = |sector, length: usize| {
        world.serve(0, Request::Write { sector, from: Rc::new(vec![1; length]), fua: true })
    };
    assert_eq!(write(end, SECTOR), Err(RequestError::OutOfRange));
    assert_eq!(write(end - 1, 2 * SECTOR), Err(RequestError::OutOfRange));
    assert_eq!(write(u64::MAX, 2 * SECTOR), Err(RequestError::OutOfRange));
    assert_eq!(write(0, 100), Err(RequestError::Unaligned));
    assert_eq!(write(0, 0), Ok(()));
    world.verify();
}

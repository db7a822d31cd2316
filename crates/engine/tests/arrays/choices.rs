//! Which members mirrors read, as far as it shows from outside.

use mdspace_engine::geometry::Level;
use mdspace_engine::status::MemberState;

use crate::shapes::{self, DATA_OFFSET, Shape};
use crate::world::{Setup, World};

/// Sectors read from each disk's data by single-block reads all over the array.
fn sectors_read(world: &mut World) -> Vec<u64> {
    world.disks.reset_counts();
    for sector in (0..world.sectors() - 8).step_by(8) {
        let bytes = world.read(sector, 8).unwrap();
        world.compare(sector, &bytes);
    }
    let disks = 0..usize::from(world.shape().disks);
    disks.map(|disk| world.disks.disk(disk).sectors_read_in(DATA_OFFSET..u64::MAX)).collect()
}

#[test]
fn the_policy_takes_hold_while_the_array_runs() {
    for (seed, setup) in (1..).zip([Setup::new, Setup::shuffled]) {
        let mut world = World::synced(setup(Shape { disks: 2, ..shapes::RAID1 }, seed));
        assert!(sectors_read(&mut world).iter().all(|read| *read > 0), "{world}");
        world.set("read_policy", "first");
        assert_eq!(sectors_read(&mut world)[1], 0, "{world}");
        for policy in ["nearest", "md", "expected"] {
            world.set("read_policy", policy);
            world.verify();
        }
        assert!(sectors_read(&mut world)[1] > 0, "{world}");
        let refused = world.array().set("read_policy", "random").unwrap_err().to_string();
        assert!(refused.contains("first, nearest, md, expected"), "{refused}");
        let values = world.array().setting_values();
        assert!(values.contains(&("read_policy", "expected".to_owned())), "{values:?}");
    }
}

#[test]
fn write_mostly_members_are_not_read_on_raid1_and_raid10_while_others_can_be() {
    let raid10 = Shape::new(Level::Raid10, 0x102, 4, 16);
    for (seed, shape) in [(1, Shape { disks: 3, ..shapes::RAID1 }), (2, raid10)] {
        for policy in ["first", "nearest", "md", "expected"] {
            let shape = Shape { write_mostly: 0b1, ..shape };
            let mut world = World::synced(Setup::shuffled(shape, seed));
            world.set("read_policy", policy);
            assert_eq!(sectors_read(&mut world)[0], 0, "{policy} {world}");
            (1..3).for_each(|disk| world.disks.disk(disk).unplug());
            if shape.level == Level::Raid1 {
                assert!(sectors_read(&mut world)[0] > 0, "{policy} {world}");
            }
        }
    }
}

/// Whatever is unreadable where, as long as every sector is readable on one member.
#[test]
fn a_range_of_which_every_copy_lacks_another_part_is_read() {
    let raid10 = Shape::new(Level::Raid10, 0x102, 2, 64);
    for (seed, shape) in [(1, Shape { disks: 2, ..shapes::RAID1 }), (2, raid10)] {
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.disks.disk(0).unreadable.extend([DATA_OFFSET + 3, DATA_OFFSET + 40]);
        world.disks.disk(1).unreadable.extend([DATA_OFFSET + 17, DATA_OFFSET + 55]);
        let bytes = world.read(0, 64).unwrap();
        world.compare(0, &bytes);
        world.verify();
        world.disks.disk(0).unreadable.extend([DATA_OFFSET + 30]);
        world.disks.disk(1).unreadable.extend([DATA_OFFSET + 30]);
        assert!(world.read(0, 64).is_err(), "nobody has it ({world})");
        let bytes = world.read(0, 30).unwrap();
        world.compare(0, &bytes);
    }
}

#[test]
fn a_failfast_member_is_failed_at_its_first_error_and_not_rewritten() {
    for seed in 1..10 {
        let shape = Shape { disks: 2, failfast: 0b1, ..shapes::RAID1 };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        world.set("read_policy", "first");
        world.disks.disk(0).unreadable.insert(DATA_OFFSET + 8);
        world.disks.reset_counts();
        let bytes = world.read(0, 16).unwrap();
        world.compare(0, &bytes);
        world.wait_status("the failure", |status| status.degraded() == 1);
        assert_eq!(world.member_state(0), Some(MemberState::Faulty), "{world}");
        assert!(world.disks.disk(0).unreadable.contains(&(DATA_OFFSET + 8)), "{world}");
        world.verify();
    }
}

/// Two that fail fast and meet an error at the same time do not take the array down.
#[test]
fn of_members_that_all_fail_fast_one_stays() {
    for seed in 1..40 {
        let shape = Shape { disks: 2, failfast: 0b11, ..shapes::RAID1 };
        let mut world = World::synced(Setup::shuffled(shape, seed));
        for disk in 0..2 {
            world.disks.disk(disk).unreadable.insert(DATA_OFFSET + 64 + 8 * disk as u64);
        }
        let read = |sector| {
            let into = std::rc::Rc::new(std::cell::RefCell::new(vec![0; 4096]));
            mdspace_engine::request::Request::Read { sector, into }
        };
        let reads: Vec<_> =
            (0..12).map(|at| world.submit(at % 3, read(64 + 8 * (at as u64 % 2)))).collect();
        for pending in &reads {
            // What only the failed one could read is lost.
            let _ = world.end(pending);
        }
        world.rounds(500);
        assert!(world.status().degraded() <= 1, "{world}");
        assert_eq!(world.status().state.word(), "clean", "{world}");
        let bytes = world.read(0, 32).unwrap();
        world.compare(0, &bytes);
        world.write_many(4);
    }
}

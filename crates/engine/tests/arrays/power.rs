//! Power cuts in which disks lose what they were not told to flush.

use mdspace_engine::geometry::Level;

use crate::shapes::Shape;
use crate::world::{Setup, World};

#[test]
fn a_recovery_offset_promises_only_what_is_flushed() {
    let shape = Shape { member_sectors: 16_384, ..Shape::new(Level::Raid5, 2, 3, 8) };
    for rounds in (600..1600).step_by(100) {
        let mut world = World::synced(Setup::shuffled(shape, rounds as u64));
        world.fail(0);
        world.remove(0);
        world.add(3).unwrap();
        world.rounds(rounds);
        // Any update of the superblocks tells how far the recovery is.
        world.add(4).unwrap();
        world.power_cut([3]);
        world.assemble_all().unwrap();
        world.wait_idle();
        assert_eq!(world.check(), 0, "{world}, {rounds} rounds");
        world.verify();
    }
}

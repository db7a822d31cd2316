//! What must be on the members before data are: the dirty mark and the bitmap's bits, while the
//! controller marks the array clean and clears bits at any moment between the writes.

use std::rc::Rc;

use mdspace_engine::array::ArrayLane;
use mdspace_format::Level;
use shuttle::thread;

use crate::machine::Machine;
use crate::whole_array::{LANES, new_array, read, run_lanes, write};

/// Writes of two lanes to the same chunks, with time between them for the controller's clocks: any
/// idle moment lets its next alarm come.
fn write_now_and_then(level: Level, layout: u32, chunks: u64) {
    let machine = Machine::new(2, 4096, LANES);
    let start = new_array(&machine, level, layout);
    machine.watch();
    run_lanes(&machine, start, async move |port: Rc<ArrayLane>, lane| {
        for value in 1..=3 {
            let sector = (lane + u64::from(value)) % chunks * 8 + lane;
            write(&port, sector, value).await;
            assert_eq!(read(&port, sector).await, value);
            for _ in 0..value * 4 {
                thread::yield_now();
            }
        }
    });
}

#[test]
fn no_data_of_a_mirror_are_written_before_they_are_announced() {
    shuttle::check_random(|| write_now_and_then(Level::Raid1, 0, 2), 1500);
}

#[test]
fn no_data_of_a_parity_array_are_written_before_they_are_announced() {
    shuttle::check_random(|| write_now_and_then(Level::Raid5, 2, 1), 1500);
}

#[test]
#[should_panic(expected = "data before the dirty mark")]
fn the_test_notices_data_that_nobody_announced() {
    shuttle::check_random(
        || {
            let machine = Machine::new(2, 4096, LANES);
            let start = new_array(&machine, Level::Raid1, 0);
            machine.watch();
            machine.scribble(start.members[0].superblock.data_offset_sectors);
        },
        1,
    );
}

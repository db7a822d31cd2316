//! What clients say is read, and a floor is what it says.

use super::clients::{iops, rate};
use super::*;

#[test]
fn the_rate_of_the_right_direction_is_read_from_what_fio_says() {
    let said = "note: both iodepth >= 1 and synchronous I/O engine\n\
                {\"jobs\": [{\"read\": {\"iops\": 1234.5}, \"write\": {\"iops\": 0.0}}]}";
    assert_eq!(iops(said, "read"), Some(1234.5));
    assert_eq!(iops(said, "write"), None);
    assert_eq!(iops("fio: no such engine", "read"), None);
}

#[test]
fn the_rate_of_requests_and_nanoseconds_is_a_second_s() {
    assert_eq!(rate("3000 1500000000\n"), Some(2000.0));
    assert_eq!(rate("it failed"), None);
}

#[test]
fn a_floor_is_held_by_the_median_and_by_nothing_where_nothing_was_compared() {
    let work = Work { write: false, depth: 32, span: Duration::ZERO };
    let mut row = Row::new(&PAIRS[0], work, Some(Goal { floor: 1.5, aim: 2.0 }), Vec::new());
    assert_eq!(row.holds(), None);
    row.times = Some(Ratio { median: 1.5, spread: [1.0, 2.0] });
    assert_eq!(row.holds(), Some(true));
    row.times = Some(Ratio { median: 1.49, spread: [1.0, 9.0] });
    assert_eq!(row.holds(), Some(false));
}

//! The rows for people.

use std::fmt::Write;

use super::{Goal, Report, Row};
use crate::bench::figures::Ratio;
use crate::bench::table::count;

pub(super) fn text(report: &Report) -> String {
    let mut text = format!("{}, load average {:.2}\n\n", report.machine, report.load_average);
    let _ = writeln!(
        text,
        "{:68} {:>8} {:>8}   {:24} {:>7} {:>5}   bound by",
        "", "ours", "theirs", "ours over theirs", "floor", "aim",
    );
    for row in &report.rows {
        row_text(&mut text, row);
    }
    let absent: Vec<&String> = report.rows.iter().flat_map(|row| &row.absent).collect();
    for (at, why) in absent.iter().enumerate() {
        if !absent[..at].contains(why) {
            let _ = writeln!(text, "not measured: {why}");
        }
    }
    text + NOTE
}

const NOTE: &str = "
Ours and theirs take turns; figures are medians, a ratio that of neighbours, with its spread. Members are in memory, RAID0
of two, and qemu-storage-daemon has a file in /dev/shm; where both have a disk of zeroes (null:, null-co) the fronts
alone differ. Clients: fio (nbd, libaio with direct I/O), and blkio, which looks for ends all the time.
Copies of payload for each byte of a healthy read, on every level: NBD 1, a file 1, and 2 through io_uring, by the kernel or
ours; vhost-user-blk 1. A test counts ours (crates/front/tests/server/copies.rs).
";

fn row_text(text: &mut String, row: &Row) {
    let rate = |rate: Option<Ratio>| rate.map_or("-".to_owned(), |rate| count(rate.median));
    let times = row.times.map_or("not compared".to_owned(), |Ratio { median, spread }| {
        let verdict = if row.holds() == Some(false) { ", MISSED" } else { "" };
        format!("{median:.2} x {:.2}-{:.2}{verdict}", spread[0], spread[1])
    });
    let name = format!("{} over {}: {}", row.front, row.rival, row.load);
    let name = name.replace("4 KiB random ", "");
    let (ours, theirs) = (rate(row.ours), rate(row.theirs));
    let goal = |of: fn(&Goal) -> f64| {
        row.goal.as_ref().map_or("-".to_owned(), |goal| format!("{:.1} x", of(goal)))
    };
    let (floor, aim) = (goal(|goal| goal.floor), goal(|goal| goal.aim));
    let _ = writeln!(
        text,
        "{name:68} {ours:>8} {theirs:>8}   {times:24} {floor:>7} {aim:>5}   {}",
        row.bound
    );
}

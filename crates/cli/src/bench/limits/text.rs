//! The limits for people.

use std::fmt::Write;

use crate::bench::figures::{Figures, Ratio};
use crate::bench::table::{CPU_NOTE, count, percent, range};

use super::Row;

/// Bare loops on one thread, and what two at once gain.
pub(super) fn report(machine: &str, rows: &[Row]) -> String {
    let mut text = format!("{machine}\n\n");
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let _ = writeln!(
        text,
        "{:width$} {:>9} {:>8} {:>11} {:>5} {:>8} {:>18}",
        "", "a second", "MiB/s", "spread", "CPU", "p99 us", "two threads, gain",
    );
    for Row { name, figures, gain, .. } in rows {
        let Figures { iops, mib_s, p99_us, .. } = figures;
        let cpu = percent(figures.cpu_share);
        let (iops, spread) = (count(*iops), range(figures.spread));
        let p99 = p99_us.map_or("-".to_owned(), |us| format!("{us:.1}"));
        let gain = gain.as_ref().map_or("one CPU".to_owned(), times);
        let _ = writeln!(
            text,
            "{name:width$} {iops:>9} {mib_s:>8.0} {spread:>11} {cpu:>5} {p99:>8} {gain:>18}"
        );
    }
    text + CPU_NOTE
}

fn times(ratio: &Ratio) -> String {
    format!("{:.2} x {}", ratio.median, range(ratio.spread))
}

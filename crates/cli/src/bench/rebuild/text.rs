//! The tables for people.

use std::fmt::Write;

use super::{Alone, Beside, Report, Row};
use crate::bench::table::count;

pub(super) fn text(report: &Report) -> String {
    let mut text = format!("{}\n\n", report.machine);
    let _ = writeln!(
        text,
        "{:42} {:>12} {:>17} {:>8} {:>16}",
        "alone, one lane", "MiB/s member", "spread", "GiB/s *", "part of bound"
    );
    for row in &report.alone {
        alone(&mut text, row);
    }
    text += "\n* A check: of all members' bytes; a rebuild: of the new member's. Bound: bare copies and \
             parity in memory,\n  or what the modelled drives move.\n";
    for beside in &report.beside {
        self::beside(&mut text, &report.users, beside);
    }
    text
}

fn alone(text: &mut String, row: &Alone) {
    let [least, most] = row.mib_s.spread;
    let part = row.part.map_or("-".to_owned(), |part| format!("{:.0} %", part * 100.0));
    let _ = writeln!(
        text,
        "{:42} {:>12.0} {:>17} {:>8.2} {:>16}",
        row.name,
        row.mib_s.median,
        format!("{least:.0}-{most:.0}"),
        row.gib_s,
        part,
    );
}

fn beside(text: &mut String, users: &str, beside: &Beside) {
    let _ = writeln!(
        text,
        "\nRAID6 4+2 of {}, one member lost; users: {users}\nrebuild alone: {:.0} MiB/s\n",
        beside.member, beside.rebuild_alone_mib_s
    );
    let head =
        ["", "IOPS", "of alone", "p50 us", "p99 us", "of alone", "rebuild MiB/s", "of alone"];
    line(text, head.map(str::to_owned));
    for row in &beside.rows {
        line(text, cells(row));
    }
}

fn cells(row: &Row) -> [String; 8] {
    let percent = |part: f64| format!("{:.0} %", part * 100.0);
    [
        row.name.to_owned(),
        count(row.iops),
        percent(row.iops_part),
        format!("{:.0}", row.p50_us),
        format!("{:.0}", row.p99_us),
        format!("{:.2} x", row.p99_times),
        row.rebuild_mib_s.map_or("-".to_owned(), |mib_s| format!("{mib_s:.0}")),
        row.rebuild_part.map_or("-".to_owned(), percent),
    ]
}

fn line(text: &mut String, cells: [String; 8]) {
    let [name, iops, part, p50, p99, times, rebuild, rebuild_part] = cells;
    let _ = writeln!(
        text,
        "{name:26} {iops:>9} {part:>9} {p50:>8} {p99:>8} {times:>9} {rebuild:>14} {rebuild_part:>9}"
    );
}

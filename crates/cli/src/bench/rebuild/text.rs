//! The tables for people.

use std::fmt::Write;

use super::{Alone, Beside, Report, Row};
use crate::bench::guest::CAVEAT;
use crate::bench::table::{count, percent};

/// What the last column says.
const CPU_NOTE: &str = "\nCPU: the part of the time in which the lane had the CPU that it wanted. In memory the rest \
is not counted; drives go on\nmeanwhile, and where it is much the table says what others have left.\n";

pub(super) fn text(report: &Report) -> String {
    let mut text = format!("{}\n", report.machine);
    if !report.alone.is_empty() {
        tasks_alone(&mut text, report);
    }
    for beside in &report.beside {
        self::beside(&mut text, beside);
    }
    text + CPU_NOTE
}

fn tasks_alone(text: &mut String, report: &Report) {
    let head = [
        "alone, one lane",
        "MiB/s member",
        "spread",
        "GiB/s *",
        "bound",
        "of it",
        "CPU",
        "md (UML) MiB/s",
    ];
    task(text, head.map(str::to_owned));
    report.alone.iter().for_each(|row| task(text, alone(row)));
    *text += "\n* A check: of all members' bytes; a rebuild: of the new member's. Bound: bare copies and \
              parity in memory,\n  or what the modelled drives move.\n";
    *text += &match &report.no_md {
        None => format!("  {CAVEAT}.\n"),
        Some(why) => format!("  Nothing of Linux md: {why}\n"),
    };
}

fn alone(row: &Alone) -> [String; 8] {
    let [least, most] = row.mib_s.spread;
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    [
        row.name.clone(),
        format!("{:.0}", row.mib_s.median),
        format!("{least:.0}-{most:.0}"),
        format!("{:.2}", row.gib_s),
        or_none(row.bound_gib_s.map(|bound| format!("{bound:.2}"))),
        or_none(row.part.map(percent)),
        percent(row.cpu_share),
        or_none(row.md_mib_s.map(|md| format!("{:.0}", md.median))),
    ]
}

fn task(text: &mut String, cells: [String; 8]) {
    let [name, mib_s, spread, gib_s, bound, part, cpu, md] = cells;
    let _ = writeln!(
        text,
        "{name:42} {mib_s:>12} {spread:>11} {gib_s:>8} {bound:>6} {part:>6} {cpu:>6} {md:>15}"
    );
}

fn beside(text: &mut String, beside: &Beside) {
    let _ = writeln!(
        text,
        "\nRAID6 4+2 of {}, one member lost; users: {}\nrebuild alone: {:.0} MiB/s\n",
        beside.member, beside.users, beside.rebuild_alone_mib_s
    );
    let head = [
        "",
        "IOPS",
        "of alone",
        "p50 us",
        "p99 us",
        "of alone",
        "rebuild MiB/s",
        "of alone",
        "CPU",
    ];
    line(text, head.map(str::to_owned));
    for row in &beside.rows {
        line(text, cells(row));
    }
}

fn cells(row: &Row) -> [String; 9] {
    [
        row.name.to_owned(),
        count(row.iops),
        percent(row.iops_part),
        format!("{:.0}", row.p50_us),
        format!("{:.0}", row.p99_us),
        format!("{:.2} x", row.p99_times),
        row.rebuild_mib_s.map_or("-".to_owned(), |mib_s| format!("{mib_s:.0}")),
        row.rebuild_part.map_or("-".to_owned(), percent),
        percent(row.cpu_share),
    ]
}

fn line(text: &mut String, cells: [String; 9]) {
    let [name, iops, part, p50, p99, times, rebuild, rebuild_part, cpu] = cells;
    let _ = writeln!(
        text,
        "{name:26} {iops:>9} {part:>9} {p50:>8} {p99:>8} {times:>9} {rebuild:>14} {rebuild_part:>9} {cpu:>6}"
    );
}

//! The tables for people.

use std::fmt::Write;

use super::{MeasuredRow, MeasuredTable, Report, Verdict};
use crate::bench::table::count;

pub(super) fn text(report: &Report) -> String {
    let mut text = format!("{}\n", report.machine);
    for table in &report.tables {
        table_text(&mut text, table);
    }
    if let Some(balance) = &report.balance {
        text += &balance.text();
    }
    if let Some(multipath) = &report.multipath {
        text += &multipath.text();
    }
    let _ = writeln!(
        text,
        "\nA change is the median of five pairs of neighbouring repetitions, with its spread, and of ten where that is \
         wide; where\nthey disagree on its sign it reads \"no difference\". CPU: the part of the time in which the \
         threads had the CPU that they\nwanted; the rest is not counted, and below 90 % a row is not judged. Of \
         limit: treatment over the copies and parity in\nmemory that the work cannot do without, on as many threads. \
         --json has every row's commands."
    );
    text
}

fn table_text(text: &mut String, table: &MeasuredTable) {
    let MeasuredTable { head, rows, stress, dbench } = table;
    let limit = if rows.iter().any(|row| row.of_limit.is_some()) { "of limit" } else { "" };
    let _ = write!(text, "{head}");
    let _ = writeln!(
        text,
        "\n{:38} {:>24} {:>9} {:>9} {limit:>8} {:>6}   {:28} bound by",
        "", "published", "baseline", "treatment", "CPU", "here",
    );
    for row in rows {
        let (baseline, treatment) = (count(row.baseline.iops), count(row.treatment.iops));
        let cpu = format!("{:.0} %", row.treatment.cpu_share * 100.0);
        let MeasuredRow { name, published, bound, .. } = row;
        let limit = row.of_limit.map(|ratio| format!("{:.0} %", ratio.median * 100.0));
        let (limit, here) = (limit.unwrap_or_default(), here(row));
        let _ = writeln!(
            text,
            "{name:38} {published:>24} {baseline:>9} {treatment:>9} {limit:>8} {cpu:>6}   {here:28} {bound}"
        );
    }
    if let Some(stress) = stress {
        let outcome = if stress.is_good() { "all right" } else { "WRONG" };
        let _ = writeln!(
            text,
            "stress, 1 to 64 KiB over 4 MiB: {outcome}; {} writes, {} errors, check counts {}",
            stress.requests, stress.errors, stress.mismatch_sectors,
        );
    }
    if let Some(dbench) = dbench {
        text.push_str(&dbench.text());
    }
}

fn here(row: &MeasuredRow) -> String {
    if row.errors > 0 || row.mismatch_sectors > 0 {
        return format!("WRONG: {} errors, check counts {}", row.errors, row.mismatch_sectors);
    }
    let percent = |ratio: f64| format!("{:+.1} %", (ratio - 1.0) * 100.0);
    let [least, most] = row.change.spread.map(percent);
    match row.verdict {
        Verdict::Faster | Verdict::Slower => {
            format!("{} ({least} to {most})", percent(row.change.median))
        }
        Verdict::NoDifference => "no difference".to_owned(),
        Verdict::Oversubscribed => "oversubscribed, all right".to_owned(),
        Verdict::Busy => "machine busy, not judged".to_owned(),
    }
}

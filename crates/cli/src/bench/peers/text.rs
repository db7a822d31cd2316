//! The table for people.

use std::fmt::Write;

use crate::bench::figures::Ratio;
use crate::bench::guest::CAVEAT;
use crate::bench::table::{count, range};

use super::Report;
use super::samples::{Row, Side, SyncRow};

pub(super) fn report(report: &Report) -> String {
    let mut text = format!("{}\nLinux md beside it: {CAVEAT}.\n\n", report.machine);
    let _ = writeln!(
        text,
        "{:40} {:>9} {:>17} {:>9}   {:>9} {:>17} {:>9}   {:>14}",
        "", "ours", "of raw", "above raw", "md (UML)", "of raw", "above raw", "ours/md *",
    );
    for Row { name, ours, md, ours_over_md, .. } in &report.loads {
        let (ours, md, times) = (columns(ours), columns(md), times(ours_over_md));
        let _ = writeln!(text, "{name:40} {ours}   {md}   {times:>14}");
    }
    for (name, why) in &report.absent {
        let _ = writeln!(text, "{name:40} not measured: {why}");
    }
    let _ = writeln!(
        text,
        "\n{:40} {:>20}   {:>20}   {:>14}",
        "MiB/s of one member", "ours", "md (UML)", "ours/md *"
    );
    for SyncRow { name, ours_mib_s, md_mib_s, ours_over_md } in &report.syncs {
        let cell = |rate: &Ratio| {
            format!("{:.0} {:.0}-{:.0}", rate.median, rate.spread[0], rate.spread[1])
        };
        let name = format!("RAID6 4+2, {name}");
        let _ = writeln!(
            text,
            "{name:40} {:>20}   {:>20}   {:>14}",
            cell(ours_mib_s),
            cell(md_mib_s),
            times(ours_over_md),
        );
    }
    let _ = writeln!(text, "\n* {CAVEAT}.");
    let _ =
        writeln!(text, "Medians; beside a ratio its spread. Above raw: of one request, in time.");
    text
}

fn times(ratio: &Ratio) -> String {
    let [least, most] = ratio.spread;
    format!("{:.1} {least:.1}-{most:.1}", ratio.median)
}

fn columns(side: &Side) -> String {
    let of_raw = format!("{:.2} {}", side.of_raw.median, range(side.of_raw.spread));
    let above = format!("{:.0} ns", side.above_raw_ns);
    format!("{:>9} {of_raw:>17} {above:>9}", count(side.iops))
}

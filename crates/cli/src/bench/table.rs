//! Figures for people.

use std::fmt::Write;

use super::figures::Figures;

/// A comparison of raw members and an array.
pub(super) fn run(settings: &str, raw: &Figures, array: &Figures, facts: &[(&str, f64)]) -> String {
    let mut text = format!("{settings}\n\n");
    let head = ["", "IOPS", "MiB/s", "p50 us", "p99 us", "spread", "CPU"];
    line(&mut text, &head.map(str::to_owned));
    for (name, figures) in [("raw", raw), ("array", array)] {
        line(&mut text, &cells(name, figures));
    }
    text.push('\n');
    for (name, value) in facts {
        let _ = writeln!(text, "{name}: {value:.2}");
    }
    let _ = writeln!(text, "parity: {}", mdspace_parity::kernels().isa());
    text + CPU_NOTE
}

pub(super) const CPU_NOTE: &str = "CPU: the part of the time in which the threads had the CPU that they wanted; \
the rest is not counted.\n";

pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A count of four digits or more in thousands or millions.
pub(super) fn count(value: f64) -> String {
    match value {
        1e6.. => format!("{:.2} M", value / 1e6),
        1e4.. => format!("{:.0} K", value / 1e3),
        _ => format!("{value:.0}"),
    }
}

pub(super) fn range([least, most]: [f64; 2]) -> String {
    format!("{least:.2}-{most:.2}")
}

fn cells(name: &str, figures: &Figures) -> [String; 7] {
    let us = |us: Option<f64>| us.map_or("-".to_owned(), |us| format!("{us:.1}"));
    [
        name.to_owned(),
        format!("{:.0}", figures.iops),
        format!("{:.0}", figures.mib_s),
        us(figures.p50_us),
        us(figures.p99_us),
        range(figures.spread),
        percent(figures.cpu_share),
    ]
}

fn line(text: &mut String, cells: &[String; 7]) {
    let [name, iops, mib_s, p50, p99, spread, cpu] = cells;
    let _ =
        writeln!(text, "{name:<12} {iops:>10} {mib_s:>9} {p50:>9} {p99:>9} {spread:>11} {cpu:>6}");
}

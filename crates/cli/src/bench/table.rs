//! Figures for people.

use std::fmt::Write;

use super::figures::Figures;

/// A comparison of raw members and an array.
pub(super) fn run(settings: &str, raw: &Figures, array: &Figures, facts: &[(&str, f64)]) -> String {
    let mut text = format!("{settings}\n\n");
    let head = ["", "IOPS", "MiB/s", "p50 us", "p99 us", "spread"];
    line(&mut text, &head.map(str::to_owned));
    for (name, figures) in [("raw", raw), ("array", array)] {
        line(&mut text, &row(name, figures));
    }
    text.push('\n');
    for (name, value) in facts {
        let _ = writeln!(text, "{name}: {value:.2}");
    }
    let _ = writeln!(text, "parity: {}", mdspace_parity::kernels().isa());
    text
}

fn row(name: &str, figures: &Figures) -> [String; 6] {
    let spread = format!("{:.2}-{:.2}", figures.spread[0], figures.spread[1]);
    [
        name.to_owned(),
        format!("{:.0}", figures.iops),
        format!("{:.0}", figures.mib_s),
        format!("{:.1}", figures.p50_us),
        format!("{:.1}", figures.p99_us),
        spread,
    ]
}

fn line(text: &mut String, cells: &[String; 6]) {
    let [name, iops, mib_s, p50, p99, spread] = cells;
    let _ = writeln!(text, "{name:<28} {iops:>10} {mib_s:>9} {p50:>9} {p99:>9} {spread:>11}");
}

/// A list of loops with their figures.
pub(super) fn limits(rows: &[(&str, Figures)]) -> String {
    let mut text = String::new();
    let head = ["", "a second", "MiB/s", "p50 us", "p99 us", "spread"];
    line(&mut text, &head.map(str::to_owned));
    for (name, figures) in rows {
        line(&mut text, &row(name, figures));
    }
    let _ = writeln!(text, "parity: {}", mdspace_parity::kernels().isa());
    text
}

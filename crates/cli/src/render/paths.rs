//! A multipath device as text: dm's lines, and what they mean.

use std::fmt::{self, Write as _};

use crate::args::size::short;
use crate::report::{DeviceReport, HeldReport, PathsReport};

/// The whole text of `mdspace detail NAME` for a device that stands alone.
pub(crate) fn text(report: &DeviceReport) -> String {
    let mut out = format!("{}: multipath, {}\n", report.name, short(report.size_bytes));
    write_paths(&mut out, &report.multipath, true).expect("a String takes all that is written");
    for front in &report.fronts {
        out.push_str(&format!("\n    Front : {} ({})\n", front.address, front.clients_words()));
    }
    out
}

/// The paths of a device that stands alone, or of a member.
pub(crate) fn write_paths(out: &mut String, paths: &PathsReport, is_alone: bool) -> fmt::Result {
    writeln!(out, "    table : {}", paths.table)?;
    writeln!(out, "   status : {}", paths.status)?;
    writeln!(out, " queueing : {}", paths.queueing)?;
    if let Some(loss) = &paths.loss {
        writeln!(out, "     loss : {loss}")?;
        // An array flushes its members, and fails this one.
        if is_alone {
            let how = "`sync FILE` of the device or file where it is served, or `qemu-io -f raw -c flush URI`";
            writeln!(out, "            {how} sends one")?;
        }
    }
    for (at, group) in paths.groups.iter().enumerate() {
        writeln!(out, "\n    group {}, {}, {}", at + 1, group.state, group.selector)?;
        for path in &group.paths {
            write!(out, "      {:<8} {}", path.state, path.member)?;
            write!(out, "  {} requests, {} under way", path.ios, path.in_flight)?;
            match path.failures {
                1 => write!(out, ", failed once")?,
                times => write!(out, ", failed {times} times")?,
            }
            if !path.reason.is_empty() {
                write!(out, " ({})", path.reason)?;
            }
            writeln!(out)?;
        }
    }
    if !paths.unproved.is_empty() {
        writeln!(out, "\n    writes that were sent and not answered may still appear at sectors")?;
    }
    for late in &paths.unproved {
        writeln!(
            out,
            "      {} to {}, over {}",
            late.first_sector,
            late.end_sector - 1,
            late.path
        )?;
    }
    if !paths.unproved.is_empty() {
        let held = paths.held.map_or(String::new(), |HeldReport { writes, waited_ms }| {
            format!(" ({writes} now, the first for {:.1} s)", waited_ms as f64 / 1000.0)
        });
        writeln!(
            out,
            "    other writes there wait{held}; when the path's server is known to be dead:"
        )?;
        writeln!(out, "      mdspace message NAME fail_path PATH --fenced")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! `mdspace detail`: what `mdadm --detail` prints, and one block for the fronts.

use std::fmt::{self, Write as _};

use super::units::{both_sizes, local_time};
use crate::args::member::MemberSpec;
use crate::args::size::short;
use crate::report::{ArrayReport, MemberReport, Report, WorkersReport};

/// The whole text of `mdspace detail NAME`.
pub(crate) fn text(report: &Report) -> String {
    text_at(report, local_time)
}

/// The text, with times drawn by `time`.
fn text_at(report: &Report, time: impl Fn(u64) -> String) -> String {
    let mut out = String::new();
    write_all(&mut out, report, time).expect("a String takes all that is written");
    out
}

fn write_all(out: &mut String, report: &Report, time: impl Fn(u64) -> String) -> fmt::Result {
    let array = &report.array;
    writeln!(out, "{}:", report.name)?;
    write_shape(out, array, time(array.created))?;
    write_state(out, array, time(array.updated))?;
    write_identity(out, report)?;
    write_members(out, array)?;
    write_loads(out, array)?;
    for paths in &report.multipath {
        writeln!(out, "\n{}:", paths.member)?;
        super::paths::write_paths(out, paths, false)?;
    }
    write_fronts(out, report)
}

fn write_shape(out: &mut String, array: &ArrayReport, created: String) -> fmt::Result {
    field(out, "Version", &array.metadata)?;
    field(out, "Creation Time", created)?;
    field(out, "Raid Level", &array.level)?;
    field(out, "Array Size", size(array.size_bytes))?;
    if array.member_bytes > 0 {
        field(out, "Used Dev Size", size(array.member_bytes))?;
    }
    field(out, "Raid Devices", array.raid_disks)?;
    field(out, "Total Devices", array.members.len())?;
    field(out, "Persistence", "Superblock is persistent")?;
    if array.bitmap.is_some() {
        writeln!(out)?;
        field(out, "Intent Bitmap", "Internal")?;
    }
    writeln!(out)
}

fn write_state(out: &mut String, array: &ArrayReport, updated: String) -> fmt::Result {
    let count = |word| array.members.iter().filter(|m| m.is(word)).count();
    let (active, failed, spare) = (count("in_sync"), count("faulty"), count("spare"));
    field(out, "Update Time", updated)?;
    field(out, "State", state_line(array))?;
    field(out, "Active Devices", active)?;
    field(out, "Working Devices", active + spare)?;
    field(out, "Failed Devices", failed)?;
    field(out, "Spare Devices", spare)?;
    writeln!(out)
}

/// The state, then what ails the array, then what runs.
fn state_line(array: &ArrayReport) -> String {
    let ails = match (array.failed, array.degraded) {
        (true, _) => Some("FAILED"),
        (false, 0) => None,
        (false, _) => Some("degraded"),
    };
    let runs = match array.sync.action.as_str() {
        "recover" => Some("recovering"),
        "resync" | "repair" => Some("resyncing"),
        "check" => Some("checking"),
        _ => None,
    };
    let words: Vec<_> =
        [Some(array.array_state.as_str()), ails, runs].into_iter().flatten().collect();
    let delayed = if array.sync.delayed { " (DELAYED)" } else { "" };
    words.join(", ") + delayed
}

fn write_identity(out: &mut String, report: &Report) -> fmt::Result {
    let array = &report.array;
    if let Some(layout) = &array.layout {
        field(out, "Layout", layout)?;
    }
    if array.chunk_bytes > 0 {
        field(out, "Chunk Size", short(array.chunk_bytes))?;
    }
    writeln!(out)?;
    field(out, "Consistency Policy", &array.consistency_policy)?;
    writeln!(out)?;
    if array.sync.runs() && !array.sync.delayed {
        let what = match array.sync.action.as_str() {
            "recover" => "Rebuild Status",
            "check" => "Check Status",
            _ => "Resync Status",
        };
        field(out, what, format!("{}% complete", (array.sync.fraction() * 100.0) as u32))?;
        writeln!(out)?;
    }
    if let Some(space) = array.space_words() {
        field(out, "No Space", space)?;
        writeln!(out)?;
    }
    if let Some(skipped) = array.sync.skipped.words() {
        let action = if array.sync.runs() { &array.sync.action } else { &array.sync.last_action };
        field(out, "Not Done", format!("by {action}: {skipped}"))?;
        writeln!(out)?;
    }
    if let Some(doubt) = report.doubt_words() {
        field(out, "In Doubt", doubt)?;
        writeln!(out)?;
    }
    if let Some(lost) = array.lost.words() {
        field(out, "Lost", format!("to bad blocks: {lost}"))?;
        writeln!(out)?;
    }
    field(out, "Name", &array.name)?;
    field(out, "UUID", &array.uuid)?;
    field(out, "Events", array.events)
}

fn write_members(out: &mut String, array: &ArrayReport) -> fmt::Result {
    writeln!(out, "\n    Number   Major   Minor   RaidDevice State")?;
    for slot in 0..array.raid_disks {
        let mut holders: Vec<_> =
            array.members.iter().filter(|member| member.slot == Some(slot)).collect();
        holders.sort_by_key(|member| member.is("replacement"));
        if holders.is_empty() {
            writeln!(out, "       -       0        0     {slot:>4}      removed")?;
        }
        holders.into_iter().try_for_each(|member| write_member(out, member))?;
    }
    let others: Vec<_> = array.members.iter().filter(|member| member.slot.is_none()).collect();
    if !others.is_empty() {
        writeln!(out)?;
    }
    others.into_iter().try_for_each(|member| write_member(out, member))
}

fn write_member(out: &mut String, member: &MemberReport) -> fmt::Result {
    let number = |number: Option<u32>| number.map_or_else(|| "-".into(), |n| n.to_string());
    let forgets = member.member.parse::<MemberSpec>().is_ok_and(|spec| spec.forgets());
    let note = if forgets { " (keeps nothing)" } else { "" };
    writeln!(
        out,
        "   {:>5}   {:>5}    {:>5}    {:>5}      {}   {}{note}",
        member.number,
        number(member.major),
        number(member.minor),
        number(member.slot),
        member_words(member),
        member.member,
    )
}

/// How the members of a mirror share in its reads.
fn write_loads(out: &mut String, array: &ArrayReport) -> fmt::Result {
    let loads: Vec<_> =
        array.members.iter().filter_map(|member| Some((member, member.load.as_ref()?))).collect();
    if loads.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    if let Some(behind) = array.write_behind {
        let both = format!("at most {} writes, {} under way", behind.limit, behind.under_way);
        field(out, "Write Behind", both)?;
    }
    for (member, load) in loads {
        field(out, &format!("Load of {}", member.number), load.words())?;
    }
    Ok(())
}

fn member_words(member: &MemberReport) -> String {
    let main = if member.is("in_sync") {
        "active sync"
    } else if member.is("faulty") {
        "faulty"
    } else if member.slot.is_some() {
        "spare rebuilding"
    } else {
        "spare"
    };
    let flags = [
        ("write_mostly", "writemostly"),
        ("failfast", "failfast"),
        ("late", "does not answer"),
        ("lacks_space", "without space"),
    ];
    let flags = flags.into_iter().filter(|(word, _)| member.is(word)).map(|(_, shown)| shown);
    std::iter::once(main).chain(flags).collect::<Vec<_>>().join(" ")
}

fn write_fronts(out: &mut String, report: &Report) -> fmt::Result {
    writeln!(out)?;
    let program = match report.version.as_str() {
        "" => String::new(),
        version => format!(", mdspace {version}"),
    };
    field(out, "Served by", format!("process {}{program}", report.pid))?;
    if report.stripe_cache_bytes > 0 {
        field(out, "Stripe Cache", format!("{} KiB", report.stripe_cache_bytes / 1024))?;
    }
    if report.workers.asked > 0 {
        let WorkersReport { asked, running } = report.workers;
        let both = format!("{asked} asked for on each NUMA node, {running} running in all");
        field(out, "Worker Threads", both)?;
    }
    for front in &report.fronts {
        field(out, "Front at", format!("{} ({})", front.address, front.clients_words()))?;
        if let Some(device) = &front.device {
            field(out, "Device", device)?;
        }
        if let Some(uri) = &front.uri {
            field(out, "URI", uri)?;
        }
    }
    Ok(())
}

fn field(out: &mut String, name: &str, value: impl fmt::Display) -> fmt::Result {
    writeln!(out, "{name:>18} : {value}")
}

fn size(bytes: u64) -> String {
    format!("{} ({})", bytes / 1024, both_sizes(bytes))
}

#[cfg(test)]
mod tests;

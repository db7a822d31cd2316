//! `mdspace mdstat`: the text of `/proc/mdstat` for the arrays and multipath devices that mdspace serves.

use std::fmt::{self, Write as _};

use mdspace_format::layout;

use crate::report::{
    ArrayReport, DeviceReport, MemberReport, PathReport, Report, ServedReport, SyncReport,
};

/// Cells of the progress bar.
const BAR_CELLS: usize = 20;

/// The whole text.
pub(crate) fn text(reports: &[ServedReport]) -> String {
    let mut out = String::from(
        "Personalities : [raid0] [raid1] [raid4] [raid5] [raid6] [raid10] [multipath]\n",
    );
    for report in reports {
        match report {
            ServedReport::Array(report) => write_array(&mut out, report),
            ServedReport::Device(report) => write_device(&mut out, report),
        }
        .expect("a String takes all that is written");
    }
    out.push_str("unused devices: <none>\n");
    out
}

fn write_array(out: &mut String, report: &Report) -> fmt::Result {
    let array = &report.array;
    write!(out, "{} : {} {}", report.name, state(array), array.level)?;
    for member in &array.members {
        write!(out, " {}", member_word(member))?;
    }
    let blocks = array.size_bytes / 1024;
    write!(out, "\n      {blocks} blocks super {}{}", array.metadata, shape(array))?;
    if let Some(line) = sync_line(&array.sync) {
        write!(out, "\n      {line}")?;
    }
    if let Some(space) = array.space_words() {
        write!(out, "\n      {space}")?;
    }
    if let Some(doubt) = report.doubt_words() {
        write!(out, "\n      in doubt: {doubt}")?;
    }
    if let Some(bitmap) = &array.bitmap {
        write!(
            out,
            "\n      bitmap: {}/{} pages [{}KB], {}KB chunk",
            bitmap.dirty_pages,
            bitmap.total_pages,
            bitmap.dirty_pages * 4,
            bitmap.chunk_bytes / 1024
        )?;
    }
    out.push_str("\n\n");
    Ok(())
}

/// As md shows the arrays of its level multipath.
fn write_device(out: &mut String, report: &DeviceReport) -> fmt::Result {
    let groups = &report.multipath.groups;
    let paths: Vec<&PathReport> = groups.iter().flat_map(|group| &group.paths).collect();
    let state = if report.health().0 { "active" } else { "broken" };
    write!(out, "{} : {state} multipath", report.name)?;
    for (number, path) in paths.iter().enumerate() {
        let failed = if path.is_active() { "" } else { "(F)" };
        write!(out, " {}[{number}]{failed}", last_part(&path.member))?;
    }
    let letters: String =
        paths.iter().map(|path| if path.is_active() { 'U' } else { '_' }).collect();
    let (all, active) = (paths.len(), letters.matches('U').count());
    writeln!(out, "\n      {} blocks [{all}/{active}] [{letters}]\n", report.size_bytes / 1024)
}

fn state(array: &ArrayReport) -> &'static str {
    match array.array_state.as_str() {
        "inactive" => "inactive",
        "broken" => "broken",
        "readonly" => "active (read-only)",
        "read-auto" => "active (auto-read-only)",
        _ => "active",
    }
}

/// `name[number]` and its flags; a faulty member shows no other.
fn member_word(member: &MemberReport) -> String {
    let mut word = format!("{}[{}]", last_part(&member.member), member.number);
    if member.is("write_mostly") {
        word.push_str("(W)");
    }
    if member.is("faulty") {
        word.push_str("(F)");
    } else if member.is_spare() && member.slot.is_none() {
        word.push_str("(S)");
    } else if member.is("replacement") {
        word.push_str("(R)");
    }
    word
}

fn last_part(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or_default()
}

/// What the level says of itself: md prints it after the metadata version.
fn shape(array: &ArrayReport) -> String {
    let chunk = array.chunk_bytes / 1024;
    let slots = slots(array);
    match array.level.as_str() {
        "raid0" | "linear" => format!(" {chunk}k chunks"),
        "raid10" => format!(" {chunk}K chunks{} {slots}", raid10_copies(array.layout_number)),
        "raid1" => format!(" {slots}"),
        level => format!(
            " level {}, {chunk}k chunk, algorithm {} {slots}",
            level.trim_start_matches("raid"),
            array.layout_number
        ),
    }
}

fn slots(array: &ArrayReport) -> String {
    let in_sync = |slot| array.members.iter().any(|m| m.slot == Some(slot) && m.is("in_sync"));
    let letters: String =
        (0..array.raid_disks).map(|slot| if in_sync(slot) { 'U' } else { '_' }).collect();
    let present = letters.matches('U').count();
    format!("[{}/{present}] [{letters}]", array.raid_disks)
}

fn raid10_copies(layout: u32) -> String {
    let Some((near, far, offset)) = layout::raid10_copies(layout) else {
        return String::new();
    };
    let near = if near > 1 { format!(" {near} near-copies") } else { String::new() };
    let kind = if offset { "offset" } else { "far" };
    let far = if far > 1 { format!(" {far} {kind}-copies") } else { String::new() };
    near + &far
}

/// The progress line; none while nothing runs.
fn sync_line(sync: &SyncReport) -> Option<String> {
    // md has no word of its own for a running repair here.
    let word = match sync.action.as_str() {
        "recover" => "recovery",
        "resync" | "repair" => "resync",
        "check" => "check",
        _ => return None,
    };
    // md's word for whatever waits.
    if sync.delayed {
        return Some("\tresync=DELAYED".to_owned());
    }
    let (done, total) = (sync.completed_sectors / 2, sync.total_sectors / 2);
    let per_mille = (sync.fraction() * 1000.0) as u64;
    let cells = (sync.fraction() * BAR_CELLS as f64) as usize;
    let bar = format!("{}>{}", "=".repeat(cells), ".".repeat(BAR_CELLS.saturating_sub(cells)));
    let tenths = minutes_left_tenths(total.saturating_sub(done), sync.speed_kib_s);
    Some(format!(
        "[{bar}]  {word} ={:>3}.{}% ({done}/{total}) finish={}.{}min speed={}K/sec",
        per_mille / 10,
        per_mille % 10,
        tenths / 10,
        tenths % 10,
        sync.speed_kib_s
    ))
}

fn minutes_left_tenths(left_kib: u64, speed_kib_s: u64) -> u64 {
    left_kib / speed_kib_s.max(1) / 6
}

#[cfg(test)]
mod tests;

use std::fmt::{self, Write as _};

use mdspace_engine::assembly::{Assembly, Refusal};
use mdspace_format::Superblock;
use mdspace_format::superblock::RESYNC_NONE;

use mdspace_io::path_of_name;

use super::{ArrayFound, Explanation, MemberFound, Verdict};
use crate::args::ArrayName;
use crate::output::printable;
use crate::process::words_of_doubt;
use crate::render::units::local_time;

/// The whole text of `mdspace explain`.
pub(crate) fn text(explanation: &Explanation) -> String {
    let mut out = String::new();
    write_all(&mut out, explanation).expect("a String takes all that is written");
    out
}

fn write_all(out: &mut String, explanation: &Explanation) -> fmt::Result {
    for array in &explanation.arrays {
        write_array(out, array)?;
        writeln!(out)?;
    }
    let of = |read| explanation.others.iter().filter(move |other| other.read == read);
    let kinds =
        [(false, "Could not be looked at:"), (true, "Members of no array that mdspace knows:")];
    for (read, heading) in kinds {
        if of(read).next().is_some() {
            writeln!(out, "{heading}")?;
        }
        of(read).try_for_each(|other| writeln!(out, "    {}", printable(&other.why)))?;
    }
    Ok(())
}

fn write_array(out: &mut String, array: &ArrayFound) -> fmt::Result {
    let ArrayFound { level, raid_disks, uuid, .. } = array;
    let name = printable(&array.name);
    writeln!(out, "{name}: {level} with {raid_disks} slots, UUID {uuid}")?;
    array.members.iter().try_for_each(|member| write_member(out, member))?;
    for slot in &array.empty_slots {
        writeln!(out, "    slot {slot}: no member given")?;
    }
    write_verdict(out, &array.verdict)
}

fn write_member(out: &mut String, member: &MemberFound) -> fmt::Result {
    let MemberFound { role, events, .. } = member;
    let name = printable(&member.member);
    let age = match member.events_behind {
        0 => "knows best".to_owned(),
        1 => "1 update behind, which is no harm".to_owned(),
        behind => format!("{behind} updates behind"),
    };
    let clean = if member.clean { "clean" } else { "in use when last written" };
    let updated = local_time(member.updated);
    writeln!(out, "    {name}: {role}, {events} events ({age}), {clean}, {updated}")?;
    member.notes.iter().try_for_each(|note| writeln!(out, "        {}", printable(note)))
}

fn write_verdict(out: &mut String, verdict: &Verdict) -> fmt::Result {
    let starts = match (verdict.starts, verdict.options.is_empty()) {
        (true, true) => "It starts".to_owned(),
        (true, false) => format!("It starts only with {}", verdict.options.join(" ")),
        (false, _) => "It does not start".to_owned(),
    };
    writeln!(out, "  {starts}: {}", printable(&verdict.why))?;
    if let Some(cure) = verdict.cure {
        writeln!(out, "  First: {cure}")?;
    }
    if let Some(look) = &verdict.look {
        writeln!(out, "  To look at it, writing nothing:\n    {look}")?;
    }
    if let Some(assemble) = &verdict.assemble {
        writeln!(out, "  To bring it back:\n    {assemble}")?;
    }
    if let Some(re_add) = &verdict.re_add {
        writeln!(out, "  Then, for what is left out:\n    {re_add}")?;
    }
    Ok(())
}

/// How an array would start.
pub(super) fn how_it_starts(
    assembly: &Assembly,
    model: &Superblock,
    refusal: Option<&Refusal>,
) -> String {
    let mut parts: Vec<String> = refusal.iter().map(ToString::to_string).collect();
    parts.push(match assembly.degraded {
        0 => "with all members".to_owned(),
        1 => "degraded, with one slot empty".to_owned(),
        slots => format!("degraded, with {slots} slots empty"),
    });
    if assembly.accepted_sectors > 0 {
        parts.push(words_of_doubt(assembly.accepted_sectors));
    }
    let unsynced = assembly.start.unsynced.sectors();
    if model.resync_offset_sectors != RESYNC_NONE && unsynced > 0 {
        parts.push(format!("redundancy of {} MiB is made right first", unsynced.div_ceil(2048)));
    }
    parts.join("; ")
}

/// A name that `assemble` takes: that on disk where it can be one.
pub(super) fn array_name(on_disk: &str) -> String {
    on_disk.parse::<ArrayName>().map_or_else(|_| "rescued".to_owned(), |name| name.to_string())
}

/// A member's name as a shell reads it.
pub(crate) fn shell_word(name: &str) -> String {
    let path = path_of_name(name).into_os_string().into_encoded_bytes();
    let word = String::from_utf8_lossy(&path);
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-:+,=@%".contains(c);
    // With `$` before the quotes the shell reads the bytes of what must not reach the terminal.
    let byte = |byte: u8| match byte.is_ascii_alphanumeric() || b"/._-".contains(&byte) {
        true => char::from(byte).to_string(),
        false => format!("\\x{byte:02x}"),
    };
    match !word.is_empty() && word.chars().all(plain) {
        true => word.into_owned(),
        false if printable(&word) != word || word.as_bytes() != path => {
            format!("$'{}'", path.into_iter().map(byte).collect::<String>())
        }
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_disk_neither_steer_the_terminal_nor_the_shell() {
        assert_eq!(array_name("data"), "data");
        assert_eq!(array_name("x; rm -rf ~"), "rescued");
        assert_eq!(shell_word("/dev/disk/by-id/ata-A_1"), "/dev/disk/by-id/ata-A_1");
        assert_eq!(shell_word("my disk's"), "'my disk'\\''s'");
        assert_eq!(shell_word("a\nb"), "$'a\\x0ab'");
        assert_eq!(shell_word("disk-\\xff"), "$'disk-\\xff'");
        assert_eq!(shell_word("my\\x20disk"), "'my\\x20disk'");
        let name = "a\u{1b}[2J".to_owned();
        let verdict = Verdict {
            starts: false,
            options: Vec::new(),
            why: "why".into(),
            cure: None,
            look: None,
            assemble: None,
            re_add: None,
        };
        let array = ArrayFound {
            uuid: String::new(),
            name,
            level: "raid1".into(),
            raid_disks: 2,
            members: Vec::new(),
            empty_slots: vec![0],
            verdict,
        };
        let explanation = Explanation { schema: 1, arrays: vec![array], others: Vec::new() };
        assert!(!text(&explanation).contains('\u{1b}'));
    }
}

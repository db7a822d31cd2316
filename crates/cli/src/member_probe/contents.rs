//! What lies on a would-be member.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use mdspace_format::superblock::{AREA_BYTES, has_magic};
use mdspace_format::{MetadataVersion, Superblock};

use crate::doctor::find_program;

/// Bytes from the start that must be zero where no program can name what lies there.
const LOOKED_AT_BYTES: usize = 128 << 10;

/// `blkid -p` found several signatures that exclude each other.
const BLKID_AMBIVALENT: i32 = 8;

/// An md superblock, whole or damaged.
pub(crate) struct FoundSuperblock {
    pub(crate) sector: u64,
    /// None for 0.90, which is not handled.
    version: Option<MetadataVersion>,
    pub(crate) superblock: Option<Superblock>,
}

/// One line for each thing found; none for an empty member.
pub(super) fn of(path: &Path) -> io::Result<Vec<String>> {
    let found = superblocks(&File::open(path)?)?;
    let mut lines: Vec<String> = found.iter().map(describe).collect();
    let signatures = signatures(path)?;
    // What md's own parser has said better.
    let known = |line: &String| !found.is_empty() && line.starts_with("linux_raid_member");
    lines.extend(signatures.into_iter().filter(|line| !known(line)));
    Ok(lines)
}

/// The md superblocks of a member, in the order in which mdadm looks.
pub(crate) fn superblocks(file: &File) -> io::Result<Vec<FoundSuperblock>> {
    let device_sectors = (&*file).seek(SeekFrom::End(0))? / 512;
    let places = MetadataVersion::PROBE_ORDER.iter().filter_map(|v| v.place(device_sectors));
    let places = places.map(|place| (place.sector, Some(place)));
    let old = MetadataVersion::sector_of_0_90(device_sectors).map(|sector| (sector, None));
    let mut found = Vec::new();
    for (sector, place) in places.chain(old) {
        let mut bytes = vec![0; AREA_BYTES];
        file.read_exact_at(&mut bytes, sector * 512)?;
        if has_magic(&bytes) {
            let parse = |place| Superblock::parse(&bytes, place, device_sectors).ok();
            let (version, superblock) = (place.map(|place| place.version), place.and_then(parse));
            found.push(FoundSuperblock { sector, version, superblock });
        }
    }
    Ok(found)
}

fn describe(found: &FoundSuperblock) -> String {
    let Some(version) = found.version else {
        return "an md superblock 0.90".to_owned();
    };
    let Some(superblock) = &found.superblock else {
        return format!("a damaged md superblock {version}");
    };
    format!(
        "md superblock {version} of array {} ({}, {} devices), UUID {}",
        superblock.set_name, superblock.level, superblock.raid_disks, superblock.set_uuid
    )
}

/// What blkid finds; without blkid, whether the start is all zeroes.
fn signatures(path: &Path) -> io::Result<Vec<String>> {
    let Some(blkid) = find_program("blkid") else {
        let line = "data that nothing here can name (blkid is not installed)".to_owned();
        return Ok(if starts_with_zeroes(path)? { Vec::new() } else { vec![line] });
    };
    let output = Command::new(blkid).args(["-p", "-o", "export"]).arg(path).output()?;
    if output.status.code() == Some(BLKID_AMBIVALENT) {
        return Ok(vec!["several signatures that exclude each other".into()]);
    }
    Ok(signature_line(&String::from_utf8_lossy(&output.stdout)).into_iter().collect())
}

/// blkid's `KEY=value` lines as one line for people; none where it names nothing.
fn signature_line(export: &str) -> Option<String> {
    let value = |key: &str| {
        let mut values = export.lines().filter_map(|line| line.split_once('='));
        values.find(|(name, _)| *name == key).map(|(_, value)| value)
    };
    let kind = match (value("TYPE"), value("PTTYPE")) {
        (Some(kind), _) => format!("{kind} {}", value("USAGE").unwrap_or("signature")),
        (None, Some(table)) => format!("{table} partition table"),
        (None, None) => return None,
    };
    let label = value("LABEL").map(|label| format!(", label {label:?}")).unwrap_or_default();
    let uuid = value("UUID").map(|uuid| format!(", UUID {uuid}")).unwrap_or_default();
    Some(kind + &label + &uuid)
}

fn starts_with_zeroes(path: &Path) -> io::Result<bool> {
    let mut start = Vec::new();
    File::open(path)?.take(LOOKED_AT_BYTES as u64).read_to_end(&mut start)?;
    Ok(start.iter().all(|byte| *byte == 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blkids_words_become_one_line() {
        let export = "DEVNAME=/tmp/x\nLABEL=my disk\nUUID=ab-cd\nTYPE=ext4\nUSAGE=filesystem\n";
        let line = signature_line(export);
        assert_eq!(line.as_deref(), Some("ext4 filesystem, label \"my disk\", UUID ab-cd"));
        assert_eq!(signature_line("PTTYPE=gpt\n").as_deref(), Some("gpt partition table"));
        assert_eq!(signature_line(""), None);
    }
}

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

use jiff::tz::TimeZone;
use mdspace_format::new_array::{NewArray, NewMember};
use mdspace_format::placement::{ArrayPlacement, BitmapRequest, Request};
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{Features, Role, Superblock};

use super::super::{ExaminedMember, brief, export, read_member, render_text, text, to_json};
use super::without_resync_line;

const RECORD: &str = include_str!("../fixtures/members-by-md.txt");

/// One member of the record: its name, its image and what mdadm said of it.
struct Recorded {
    name: &'static str,
    examined: ExaminedMember,
    words: Vec<(&'static str, String)>,
}

/// Every member of the record, its image written to `directory` and read back.
fn recorded(directory: &Path) -> Vec<Recorded> {
    let parts = RECORD.split("\nend\n").filter_map(|part| part.trim().strip_prefix("member "));
    parts.map(|part| member(part, directory)).collect()
}

fn member(part: &'static str, directory: &Path) -> Recorded {
    let (head, rest) = part.split_once('\n').unwrap();
    let (name, bytes) = head.split_once(" bytes=").unwrap();
    let mut words = rest.split("\nwords");
    let path = directory.join(name);
    write_image(&path, bytes.parse().unwrap(), words.next().unwrap());
    let words = words.map(|section| {
        let (options, said) = section.split_once('\n').unwrap();
        (options.trim(), format!("{}\n", said.trim_end()))
    });
    let mut examined = read_member(&path).unwrap_or_else(|failure| panic!("{name}: {failure}"));
    examined.path = name.into();
    Recorded { name, examined, words: words.collect() }
}

/// Writes what `od -A x -t x1 -w32` printed, `*` for lines that repeat, to a sparse file.
fn write_image(path: &Path, length: u64, dump: &str) {
    let file = File::create(path).unwrap();
    file.set_len(length).unwrap();
    let (mut row, mut at, mut repeats) = (Vec::new(), 0, false);
    for line in dump.lines() {
        if line == "*" {
            repeats = true;
            continue;
        }
        let mut cells = line.split(' ');
        let offset = u64::from_str_radix(cells.next().unwrap(), 16).unwrap();
        while repeats && at < offset {
            file.write_all_at(&row, at).unwrap();
            at += row.len() as u64;
        }
        repeats = false;
        row = cells.map(|cell| u8::from_str_radix(cell, 16).unwrap()).collect();
        file.write_all_at(&row, offset).unwrap();
        at = offset + row.len() as u64;
    }
    (&file).flush().unwrap();
}

fn scene() -> text::Scene {
    text::Scene { host: "uml".to_owned(), zone: TimeZone::UTC }
}

#[test]
fn members_made_by_the_kernel_are_described_in_mdadms_words() {
    let directory = tempfile::tempdir().unwrap();
    let members = recorded(directory.path());
    assert!(members.len() > 15, "the record has only {} members", members.len());
    for Recorded { name, examined, words } in members {
        let one = std::slice::from_ref(&examined);
        assert_eq!(words.len(), 4, "{name}");
        for (options, said) in words {
            let ours = match options {
                "" => without_resync_line(&scene().describe(&examined)),
                "--export" => export::describe(&examined),
                "--brief" => brief::describe(one, false),
                "--brief --verbose" => brief::describe(one, true),
                _ => panic!("{name}: {options}"),
            };
            assert_eq!(ours, said, "{name} {options}");
        }
    }
}

#[test]
fn members_given_together_make_one_array_line() {
    let directory = tempfile::tempdir().unwrap();
    let members = recorded(directory.path());
    let together = RECORD.split("\nend\n").filter_map(|p| p.trim().strip_prefix("together "));
    let mut compared = 0;
    for part in together {
        let (name, said) = part.split_once('\n').unwrap();
        let of = |member: &&Recorded| member.name.rsplit_once('-').unwrap().0 == name;
        let members: Vec<_> = members.iter().filter(of).map(|m| m.examined.clone()).collect();
        assert_eq!(brief::describe(&members, true), format!("{}\n", said.trim_end()), "{name}");
        compared += 1;
    }
    assert!(compared > 8, "the record has only {compared} arrays");
}

#[test]
fn what_mdadm_tells_elsewhere_stands_below_its_words() {
    let directory = tempfile::tempdir().unwrap();
    let members = recorded(directory.path());
    let more = |name: &str| {
        let member = members.iter().find(|member| member.name == name).expect(name);
        scene().describe_more(&member.examined)
    };
    assert_eq!(
        more("raid6-bad-blocks-0"),
        "\n     Bad Blocks :\n                 100 for 8 sectors\n                4096 for 700 sectors\n"
    );
    let bitmap = more("raid1-in-use-0");
    for words in ["Chunksize : 64 KB", "max 64\n", "319 bits (chunks), ", "State : OK"] {
        assert!(bitmap.contains(words), "{words} is not in\n{bitmap}");
    }
    assert!(!bitmap.contains(" 0 dirty"), "an array in use has dirty chunks\n{bitmap}");
    assert_eq!(more("raid6-bad-blocks-2"), "");
    assert!(more("raid5-ppl-0").contains("Not Served : feature PPL is not handled"));
    assert!(more("raid5-reshape-0").contains("Not Served : feature RESHAPE_ACTIVE"));
    assert!(more("raid5-journal-3").contains("Not Served : feature JOURNAL"));
    assert!(!more("raid1-replacing-2").contains("Not Served"));
}

#[test]
fn json_says_the_same_in_fields() {
    let directory = tempfile::tempdir().unwrap();
    let members: Vec<_> = recorded(directory.path()).into_iter().map(|m| m.examined).collect();
    let json = serde_json::to_value(to_json(&members)).unwrap();
    assert_eq!(json["schema"], 1);
    assert_eq!(json["members"].as_array().unwrap().len(), members.len());
    let by_name = |name: &str| {
        let found = json["members"].as_array().unwrap().iter().find(|m| m["member"] == name);
        found.expect(name).clone()
    };
    let bad = by_name("raid6-bad-blocks-0");
    assert_eq!(bad["bad_block_log"]["ranges"], serde_json::json!([[100, 8], [4096, 700]]));
    assert_eq!(bad["array"]["slots"], serde_json::json!([1, 0, 1, 1]));
    assert_eq!(bad["array"]["layout"], "left-symmetric");
    assert_eq!(by_name("raid1-in-use-1")["device"]["write_mostly"], true);
    assert_eq!(by_name("raid1-in-use-1")["bitmap"]["chunk_bytes"], 65536);
    assert_eq!(by_name("raid5-reshape-0")["reshape"]["delta_disks"], 1);
    assert_eq!(by_name("raid5-journal-3")["device"]["role"], "journal");
}

/// The kernel had no reason to write these again, so they are as `mdadm --create` left them. Two fields differ:
/// events begin at 1, and the microseconds of the update tell that mdspace wrote it.
#[test]
fn the_superblocks_of_a_new_array_are_mdadms_to_the_byte() {
    let directory = tempfile::tempdir().unwrap();
    let members = recorded(directory.path());
    for (name, disks, others) in
        [("raid0-0", 3, 0), ("raid0-1", 3, 0), ("linear-1", 2, 0), ("raid1-rebuilt-1", 2, 1)]
    {
        let member = members.iter().find(|member| member.name == name).unwrap();
        let found = &member.examined.superblock;
        let array = NewArray {
            set_uuid: found.set_uuid,
            set_name: SetName::with_host(Some("uml"), "home").unwrap(),
            ctime: found.ctime,
            level: found.level,
            layout: found.layout,
            chunk_sectors: found.chunk_sectors,
            raid_disks: disks,
            in_sync: true,
            write_behind: 0,
        };
        let placement = ArrayPlacement::new(&request(found), &[member.examined.device_sectors]);
        let role = |number| if number < disks { Role::Slot(number as u16) } else { Role::Spare };
        let member = |number| NewMember {
            device_sectors: member.examined.device_sectors,
            device_uuid: found.device_uuid,
            dev_number: number,
            role: role(number),
            flags: MemberFlags::default(),
        };
        let members: Vec<_> = (0..disks + others).map(member).collect();
        let made = array.superblocks(&placement.unwrap(), &members).unwrap();
        let made = &made[found.dev_number as usize];
        assert_eq!((made.events, made.is_by_mdspace()), (1, true), "{name}");
        assert_eq!((found.events, found.is_by_mdspace()), (0, false), "{name}");
        let made = &Superblock { events: found.events, utime: found.utime, ..made.clone() };
        assert_eq!(made, found, "{name}");
        assert_eq!(made.encode(), found.encode(), "{name}");
    }
}

fn request(superblock: &Superblock) -> Request {
    let bitmap = superblock.features.contains(Features::BITMAP_OFFSET);
    Request {
        version: superblock.place.version,
        level: superblock.level,
        layout: superblock.layout,
        chunk_sectors: superblock.chunk_sectors,
        raid_disks: superblock.raid_disks,
        size_sectors: None,
        data_offset_sectors: None,
        bitmap: if bitmap {
            BitmapRequest::Internal { chunk_bytes: None }
        } else {
            BitmapRequest::None
        },
    }
}

#[test]
fn a_device_without_a_good_superblock_is_a_failure_that_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk");
    let why = || read_member(&path).unwrap_err().why;
    assert!(why().contains("No such file"), "{}", why());
    let file = File::create(&path).unwrap();
    assert!(why().contains("too few"), "{}", why());
    file.set_len(1 << 20).unwrap();
    assert!(why().contains("magic is 0x00000000"), "{}", why());

    let good = recorded(directory.path()).remove(0);
    std::fs::copy(directory.path().join(good.name), &path).unwrap();
    assert!(render_text(&[read_member(&path).unwrap()]).contains("Magic : a92b4efc"));
    File::options().write(true).open(&path).unwrap().write_all_at(b"x", 4096 + 40).unwrap();
    assert!(why().contains("superblock is damaged: checksum"), "{}", why());
}

//! What a later md than the one whose members and words were kept writes and prints.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use jiff::tz::TimeZone;
use mdspace_format::{Level, MetadataVersion, Superblock};

use super::super::{ExaminedMember, read_member, text, to_json};
use super::against_mdadm::member;

fn scene() -> text::Scene {
    text::Scene { host: "host".to_owned(), zone: TimeZone::UTC }
}

fn image(path: &Path, change: fn(&mut Superblock)) -> (File, Superblock) {
    let made = member(Level::Raid5, 2, MetadataVersion::V1_2, 80 << 11);
    let mut superblock = made.superblock;
    change(&mut superblock);
    let file = File::create(path).unwrap();
    file.set_len(made.device_sectors * 512).unwrap();
    file.write_all_at(&superblock.encode(), superblock.place.sector * 512).unwrap();
    (file, superblock)
}

/// A member whose bitmap is an llbitmap with these states of its chunks, of 128 sectors each.
fn lockless(path: &Path, state: u8, states: &[u8]) -> ExaminedMember {
    let (file, superblock) = image(path, |_| ());
    let mut bytes = vec![0; 1024];
    bytes[..8].copy_from_slice(&[b'b', b'i', b't', b'm', 6, 0, 0, 0]);
    bytes[24] = 17;
    bytes[40..48].copy_from_slice(&(128 * states.len() as u64).to_le_bytes());
    bytes[48] = state;
    bytes[52..56].copy_from_slice(&128u32.to_le_bytes());
    bytes.extend(states);
    file.write_all_at(&bytes, superblock.bitmap_sector().unwrap() * 512).unwrap();
    read_member(path).unwrap()
}

#[test]
fn a_member_in_resync_says_how_far_it_came() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("member");
    for (change, line) in [
        ((|sb| sb.resync_offset_sectors = 4096) as fn(&mut Superblock), Some("4096 sectors")),
        (|sb| sb.resync_offset_sectors = 0, Some("0 sectors")),
        (|sb| sb.resync_offset_sectors = u64::MAX, None),
    ] {
        image(&path, change);
        let words = scene().describe(&read_member(&path).unwrap());
        let mut after_super_offset = words.lines().skip_while(|l| !l.contains("Super Offset"));
        let found = after_super_offset.nth(1).unwrap().strip_prefix(super::RESYNC_LINE);
        assert_eq!(found, line, "{words}");
    }
}

#[test]
fn the_states_of_an_llbitmap_are_counted_past_the_bad_block_log_that_it_lies_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("member");
    // More than fit before the log, 16 sectors behind the superblock.
    let mut states = vec![1; 9000];
    states[8000..8010].fill(3);
    states[8999] = 9;
    let member = lockless(&path, 0, &states);
    let log = member.superblock.bad_block_log_range().unwrap();
    assert!(log.start * 512 < member.superblock.bitmap_sector().unwrap() * 512 + 8000);
    let words = scene().describe_more(&member);
    for line in ["llbitmap, Linux 6.18 and later", " 8989 clean\n", " 10 need sync\n", " 0 dirty\n"]
    {
        assert!(words.contains(line), "{line} is not in\n{words}");
    }
    let json = serde_json::to_value(to_json(&[member])).unwrap();
    let bitmap = &json["members"][0]["bitmap"];
    assert_eq!((&bitmap["version"], &bitmap["chunk_sectors"]), (&6.into(), &128.into()));
    assert_eq!(
        (&bitmap["states"]["need sync"], &bitmap["states"]["dirty"]),
        (&10.into(), &0.into())
    );
}

#[test]
fn an_llbitmap_that_cannot_be_or_was_never_used_is_told_as_that() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("member");
    let words = |member| scene().describe_more(&member);
    let none = words(lockless(&path, 0, &[]));
    assert!(none.contains("Bitmap : cannot be read: bitmap field sync_size is 0"), "{none}");
    let new = words(lockless(&path, 8, &[1; 4]));
    assert!(new.contains("Chunks : none, no kernel has started"), "{new}");
}

#[test]
fn explain_refuses_an_llbitmap_with_the_count_of_each_state_and_what_its_removal_would_do() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("member");
    let words = |states: &[u8], state| {
        lockless(&path, state, states);
        let explanation = crate::explain::explain(&[path.to_str().unwrap().to_owned()]).unwrap();
        crate::explain::text(&explanation)
    };
    let used = words(&[1, 1, 2, 3, 3, 3], 0);
    for said in [
        "It does not start",
        "bitmap version 6 (llbitmap, Linux 6.18 and later) is not handled; of its 6 chunks 2 clean, \
         1 dirty, 3 need sync",
        "chunks that need sync count as in sync",
    ] {
        assert!(used.contains(said), "{said} is not in\n{used}");
    }
    let new = words(&[], 8);
    assert!(new.contains("may zero all members"), "{new}");
}

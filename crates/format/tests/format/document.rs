//! docs/format.md and the constants say the same.

use mdspace_format::superblock::{self, MemberFlags};
use mdspace_format::{Features, Field, Role, bitmap};

const DOCUMENT: &str = include_str!("../../../../docs/format.md");

/// The rows of the first table under a heading, cells trimmed, without head and rule.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let section = DOCUMENT.split_once(&format!("\n{heading}\n")).expect(heading).1;
    let rows = section.lines().skip_while(|line| !line.starts_with('|'));
    let rows = rows.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

fn rows_of(fields: &[Field]) -> Vec<Vec<String>> {
    let row = |f: &Field| vec![f.offset.to_string(), f.bytes.to_string(), format!("`{}`", f.name)];
    fields.iter().map(row).collect()
}

#[test]
fn the_superblocks_table_lists_every_field_at_its_offset() {
    let mut rows = table("## Superblock");
    let roles = rows.pop().unwrap();
    assert_eq!(roles[..3], ["256", "2 each", "`dev_roles`"]);
    let numbers =
        [Role::Spare, Role::Faulty, Role::Journal].map(|role| format!("{:#x}", role.number()));
    assert!(numbers.iter().all(|number| roles[3].contains(number)), "{roles:?}");
    assert!(roles[3].contains(&format!("below {:#x}", Role::SLOT_LIMIT)), "{roles:?}");
    let rows: Vec<_> = rows.iter().map(|row| row[..3].to_vec()).collect();
    assert_eq!(rows, rows_of(superblock::FIELDS));
}

#[test]
fn the_superblocks_constants_are_those_of_the_table() {
    let meaning = |name: &str| {
        let name = format!("`{name}`");
        table("## Superblock").into_iter().find(|row| row[2] == name).unwrap()[3].to_owned()
    };
    assert_eq!(meaning("magic"), format!("{:#x}", superblock::MAGIC));
    assert_eq!(meaning("major_version"), superblock::MAJOR_VERSION.to_string());
    assert!(meaning("max_dev").contains(&superblock::MAX_ROLES.to_string()));
    assert_eq!((MemberFlags::WRITE_MOSTLY, MemberFlags::FAIL_FAST), (1 << 0, 1 << 1));
}

#[test]
fn the_bitmaps_table_lists_every_field_at_its_offset() {
    let rows = table("## Bitmap");
    let places: Vec<_> = rows.iter().map(|row| row[..3].to_vec()).collect();
    assert_eq!(places, rows_of(bitmap::FIELDS));
    assert!(rows[0][3].contains(&format!("{:#x}", bitmap::MAGIC)), "{:?}", rows[0]);
}

#[test]
fn every_feature_stands_in_the_document_with_whether_it_is_served() {
    let rows = table("### Features");
    for row in &rows {
        let features = Features::from_bits(row[0].parse().unwrap());
        assert_eq!(features.names().collect::<Vec<_>>(), [row[1]]);
        assert_eq!(features.is_served(), row[2] == "yes", "{row:?}");
    }
    let known = (0..32).filter(|bit| Features::from_bits(1 << bit).names().next().is_some());
    assert_eq!(rows.len(), known.count());
}

#[test]
fn the_private_range_is_where_the_document_puts_it() {
    use crate::specimen::Specimen;
    use mdspace_format::MetadataVersion;
    let with_log = Specimen::raid6(MetadataVersion::V1_2).superblock;
    let log = with_log.bad_block_log_range().unwrap();
    let data = with_log.data_offset_sectors;
    assert_eq!(with_log.private_range(), Some(log.end..data - 8));
    let mut without_log = with_log.clone();
    without_log.bad_block_log = None;
    without_log.data_offset_sectors = 2048;
    assert_eq!(without_log.private_range(), None, "there is no room");
    without_log.data_offset_sectors = 4096;
    assert_eq!(without_log.private_range(), Some(8 + 2064..4096 - 8));
    without_log.features |= Features::RESHAPE_ACTIVE;
    assert_eq!(without_log.private_range(), None);
    assert_eq!(Specimen::raid6(MetadataVersion::V1_0).superblock.private_range(), None);
}

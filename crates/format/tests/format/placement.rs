//! Our placement against that of the real mdadm, one line of the fixture an array.

use std::collections::BTreeMap;

use mdspace_format::new_array::{NewArray, NewMember};
use mdspace_format::placement::{ArrayPlacement, BitmapRequest, PlacementError, Request};
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{Level, Role, Superblock, Timestamp, Uuid};

const LINES: &str = include_str!("fixtures/placement-by-mdadm.txt");

/// Linux cannot address a byte beyond: 2^63 - 1 is its last file offset.
#[test]
fn a_device_whose_bytes_no_file_offset_counts_is_refused() {
    let largest = mdspace_format::MAX_SECTORS;
    assert!(largest.checked_mul(512).is_some_and(|bytes| i64::try_from(bytes).is_ok()));
    let case = cases().next().unwrap();
    let place = |sectors| ArrayPlacement::new(&case.request, &vec![sectors; case.devices.len()]);
    assert!(!matches!(place(largest), Err(PlacementError::TooLarge { .. })));
    assert!(matches!(place(largest + 1), Err(PlacementError::TooLarge { .. })));
}

/// One line: what mdadm was asked for, and what it did.
struct Case {
    request: Request,
    devices: Vec<u64>,
    /// None where it refused.
    made: Option<String>,
}

impl Case {
    fn parse(line: &str) -> Case {
        let mut parts = line.split(" : ");
        let asked: Vec<_> = parts.next().unwrap().split(' ').collect();
        let devices: Vec<u64> =
            parts.next().unwrap().split(' ').map(|size| size.parse().unwrap()).collect();
        let found = parts.next().unwrap();
        let made = parts.next().map(|members| format!("{found} : {members}"));
        let fields: BTreeMap<_, _> = found.split(' ').filter_map(|f| f.split_once('=')).collect();
        let layout = fields.get("layout").map_or(2, |layout| layout.parse().unwrap());
        let mut case = Case { request: request(&asked, layout, &devices), devices, made };
        if case.request.level == Level::Raid0 {
            // mdadm 4.2 leaves this bit out where all members are of one size, later ones do not.
            case.made =
                case.made.map(|made| made.replace("features=0 layout=1", "features=4096 layout=1"));
        }
        case.made = case.made.map(|made| as_md_writes_it(&case.request, &made));
        case
    }

    /// What we make of it, in the words of the fixture.
    fn ours(&self) -> Result<String, String> {
        let placement =
            ArrayPlacement::new(&self.request, &self.devices).map_err(|error| error.to_string())?;
        let superblocks = superblocks(&self.request, &placement, &self.devices)
            .map_err(|error| error.to_string())?;
        let first = &superblocks[0];
        let log = first.bad_block_log;
        let bitmap = match placement.bitmap {
            Some(b) => format!("{}/{}", b.chunk_bytes, b.sync_size_sectors),
            None => "-/-".into(),
        };
        let mut text = format!(
            "features={} layout={} chunk={} size={} data_offset={} log={}+{} roles={} bitmap={}/{bitmap} :",
            first.features.bits(),
            first.layout,
            first.chunk_sectors,
            first.size_sectors,
            first.data_offset_sectors,
            log.map_or(0, |log| log.offset_sectors),
            log.map_or(0, |log| log.size_sectors),
            first.roles.len(),
            first.bitmap_offset_sectors,
        );
        for superblock in superblocks {
            text += &format!(" {}@{}", superblock.data_size_sectors, superblock.place.sector);
        }
        Ok(text)
    }
}

/// The kernel rounds the member size that mdadm writes down to whole chunks in each far part.
fn as_md_writes_it(request: &Request, made: &str) -> String {
    let word = made.split(' ').find(|word| word.starts_with("size=")).unwrap();
    let size: u64 = word["size=".len()..].parse().unwrap();
    let far = request.layout >> 8 & 0xff;
    if request.level != Level::Raid10 || far < 2 {
        return made.to_owned();
    }
    let step = u64::from(request.chunk_sectors * far);
    made.replacen(word, &format!("size={}", size / step * step), 1)
}

fn request(asked: &[&str], layout: u32, devices: &[u64]) -> Request {
    let &[version, level, chunk_kib, bitmap, extra] = asked else { panic!("{asked:?}") };
    let level: Level = level.parse().unwrap();
    let sectors =
        |option: &str| extra.strip_prefix(option).map(|kib| 2 * kib.parse::<u64>().unwrap());
    let chunk_sectors = match chunk_kib.parse::<u32>().unwrap() {
        0 if level.has_chunks() => 1024,
        kib => 2 * kib,
    };
    Request {
        version: version.parse().unwrap(),
        level,
        layout,
        chunk_sectors,
        raid_disks: devices.len() as u32,
        size_sectors: sectors("--size="),
        data_offset_sectors: sectors("--data-offset="),
        bitmap: match bitmap {
            "none" => BitmapRequest::None,
            "auto" => BitmapRequest::Internal { chunk_bytes: None },
            "1M" => BitmapRequest::Internal { chunk_bytes: Some(1 << 20) },
            kib => {
                let kib: u32 = kib.strip_suffix('K').unwrap().parse().unwrap();
                BitmapRequest::Internal { chunk_bytes: Some(kib << 10) }
            }
        },
    }
}

fn superblocks(
    request: &Request,
    placement: &ArrayPlacement,
    devices: &[u64],
) -> Result<Vec<Superblock>, mdspace_format::new_array::NewArrayError> {
    let array = NewArray {
        set_uuid: Uuid([1; 16]),
        set_name: SetName::default(),
        ctime: Timestamp::from_seconds(1),
        level: request.level,
        layout: request.layout,
        chunk_sectors: request.chunk_sectors,
        raid_disks: request.raid_disks,
        in_sync: true,
        write_behind: 0,
    };
    let member = |(number, device_sectors): (usize, &u64)| NewMember {
        device_sectors: *device_sectors,
        device_uuid: Uuid([number as u8; 16]),
        dev_number: number as u32,
        role: Role::Slot(number as u16),
        flags: MemberFlags::default(),
    };
    array.superblocks(placement, &devices.iter().enumerate().map(member).collect::<Vec<_>>())
}

fn cases() -> impl Iterator<Item = Case> {
    LINES.lines().filter(|line| !line.starts_with('#')).map(Case::parse)
}

#[test]
fn every_part_lies_where_mdadm_puts_it_and_we_refuse_what_it_refuses() {
    let (mut differences, mut made, mut refused) = (Vec::new(), 0, 0);
    for case in cases() {
        let ours = case.ours();
        match (&case.made, &ours) {
            (Some(mdadms), Ok(ours)) if mdadms == ours => made += 1,
            (None, Err(_)) => refused += 1,
            _ => differences.push(format!(
                "{:?} over {:?}\nmdadm {:?}\nours  {ours:?}",
                case.request, case.devices, case.made
            )),
        }
    }
    let text = differences.join("\n");
    assert!(differences.is_empty(), "{} differ, {made} do not:\n{text}", differences.len());
    assert!(made > 500 && refused > 10, "the fixture has only {made} and {refused} lines");
}

#[test]
fn a_difference_of_one_sector_would_be_seen() {
    let mut case = cases().find(|case| case.request.level == Level::Raid1).unwrap();
    assert_eq!(case.ours().ok(), case.made);
    case.devices[1] += 8;
    assert_ne!(case.ours().ok(), case.made);
}

/// Two far parts of whole chunks: what was asked for and cannot be used is not asked of the device.
#[test]
fn a_member_size_is_rounded_before_it_is_held_against_the_device() {
    let request = Request {
        size_sectors: Some(7 * 128),
        data_offset_sectors: Some(64),
        ..request(&["1.2", "raid10", "64", "none", "-"], 0x202, &[0; 4])
    };
    let placed = ArrayPlacement::new(&request, &[64 + 7 * 128; 4]).unwrap();
    assert_eq!(placed.size_sectors, 6 * 128);
}

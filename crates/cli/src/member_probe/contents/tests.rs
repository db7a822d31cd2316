use mdspace_format::new_array::{NewArray, NewMember};
use mdspace_format::placement::{ArrayPlacement, BitmapRequest, Request};
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{Level, Role, Timestamp};

use super::*;

#[test]
fn blkids_words_become_one_line() {
    let export = "DEVNAME=/tmp/x\nLABEL=my disk\nUUID=ab-cd\nTYPE=ext4\nUSAGE=filesystem\n";
    let line = signature_line(export);
    assert_eq!(line.as_deref(), Some("ext4 filesystem, label \"my disk\", UUID ab-cd"));
    assert_eq!(signature_line("PTTYPE=gpt\n").as_deref(), Some("gpt partition table"));
    assert_eq!(signature_line(""), None);
}

const DEVICE_SECTORS: u64 = 1 << 15;

/// The superblock of a mirror's member.
fn superblock(version: MetadataVersion) -> Superblock {
    let request = Request {
        version,
        level: Level::Raid1,
        layout: 0,
        chunk_sectors: 0,
        raid_disks: 1,
        size_sectors: None,
        data_offset_sectors: None,
        bitmap: BitmapRequest::None,
    };
    let placement = ArrayPlacement::new(&request, &[DEVICE_SECTORS]).expect("room");
    let array = NewArray {
        set_uuid: Uuid([1; 16]),
        set_name: SetName::with_host(None, "home").expect("a good name"),
        ctime: Timestamp::from_seconds(1_700_000_000),
        level: request.level,
        layout: request.layout,
        chunk_sectors: request.chunk_sectors,
        raid_disks: request.raid_disks,
        in_sync: true,
        write_behind: 0,
    };
    let member = NewMember {
        device_sectors: DEVICE_SECTORS,
        device_uuid: Uuid([2; 16]),
        dev_number: 0,
        role: Role::Slot(0),
        flags: MemberFlags::default(),
    };
    array.superblocks(&placement, &[member]).expect("a superblock").remove(0)
}

/// What is found on a member with this superblock, of which what lies from `unreadable` on cannot be read.
fn found_on(
    superblock: &Superblock,
    unreadable: Range<u64>,
) -> Vec<io::Result<Option<FoundSuperblock>>> {
    places_read(DEVICE_SECTORS, |area, at| {
        if unreadable.contains(&(at / 512)) {
            return Err(Errno::IO.into());
        }
        if at == superblock.place.sector * 512 {
            area.copy_from_slice(&superblock.encode());
        }
        Ok(())
    })
}

#[test]
fn a_bad_sector_where_a_superblock_of_another_version_would_lie_hides_no_member() {
    use MetadataVersion::{V1_0, V1_2};
    let end = DEVICE_SECTORS - 512..DEVICE_SECTORS;
    for (version, unreadable) in [(V1_2, end.clone()), (V1_0, 0..16)] {
        let superblock = superblock(version);
        let found = found_on(&superblock, unreadable.clone());
        assert!(found.iter().any(io::Result::is_err), "{version}");
        assert_eq!(counts(found, None).expect("it is there"), Some(superblock), "{version}");
    }
    // What may lie there is not known.
    let hidden = counts(found_on(&superblock(V1_0), end), None);
    assert_eq!(hidden.map_err(|error| error.raw_os_error()), Err(Some(Errno::IO.raw_os_error())));
}

/// The one at the front is what a user wrote into the data of an array of metadata 1.0.
#[test]
fn of_two_superblocks_that_call_each_other_data_the_one_of_the_wanted_array_counts() {
    let (own, mut other) = (superblock(MetadataVersion::V1_0), superblock(MetadataVersion::V1_2));
    other.set_uuid = Uuid([9; 16]);
    other.data_size_sectors = DEVICE_SECTORS - other.data_offset_sectors;
    let found = || {
        places_read(DEVICE_SECTORS, |area, at| {
            let all = [&own, &other];
            let there = all.iter().find(|superblock| at == superblock.place.sector * 512);
            there.into_iter().for_each(|superblock| area.copy_from_slice(&superblock.encode()));
            Ok(())
        })
    };
    let counting = |wanted| counts(found(), wanted).expect("all can be read");
    assert_eq!(counting(None).as_ref(), Some(&other));
    assert_eq!(counting(Some(own.set_uuid)).as_ref(), Some(&own));
    assert_eq!(counting(Some(other.set_uuid)).as_ref(), Some(&other));
}

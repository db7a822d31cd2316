use mdspace_format::superblock::RESYNC_NONE;

use super::*;

/// 64 MiB in sectors.
const DEVICE_SECTORS: u64 = 64 << 11;

fn creation(level: Level, raid_disks: u16) -> Creation {
    Creation {
        name: SetName::new("host:data").expect("a short name"),
        uuid: Uuid([7; 16]),
        version: MetadataVersion::V1_2,
        level,
        layout: match level {
            Level::Raid10 => 0x102,
            Level::Raid0 => 1,
            _ => 2,
        },
        chunk_sectors: if level.has_chunks() { 128 } else { 0 },
        raid_disks,
        size_sectors: None,
        data_offset_sectors: None,
        bitmap: BitmapRequest::Internal { chunk_bytes: None },
        assume_clean: false,
        force: false,
        write_behind: 0,
    }
}

fn device(index: u16) -> NewDevice {
    let info = MemberInfo {
        name: format!("m{index}"),
        sectors: DEVICE_SECTORS,
        logical_block_bytes: 512,
        rotational: false,
        discard_zeroes: true,
        is_sparse: false,
    };
    NewDevice { id: MemberId { index, generation: 0 }, info, flags: MemberFlags::default() }
}

/// Plans for places in letters: `m` a member, `_` the word missing.
fn plan_of(creation: &Creation, places: &str) -> Result<CreatePlan, CreateError> {
    let places = (0u16..).zip(places.chars()).map(|(index, c)| (c == 'm').then(|| device(index)));
    let mut next = 0;
    plan(creation, places.collect(), 1000, || {
        next += 1;
        Uuid([next; 16])
    })
}

/// Role of each member and whether the array starts clean.
fn outcome(creation: &Creation, places: &str) -> Result<(Vec<Role>, bool), CreateError> {
    let plan = plan_of(creation, places)?;
    let clean = plan.members.iter().all(|(_, sb)| sb.resync_offset_sectors == RESYNC_NONE);
    assert_eq!(clean, plan.in_sync);
    Ok((plan.members.iter().map(|(_, superblock)| superblock.own_role()).collect(), clean))
}

#[test]
fn raid5_starts_with_its_last_member_as_a_spare_unless_forced() {
    use Role::{Slot, Spare};
    let mut raid5 = creation(Level::Raid5, 3);
    assert_eq!(outcome(&raid5, "mmm"), Ok((vec![Slot(0), Slot(1), Spare], true)));
    raid5.force = true;
    assert_eq!(outcome(&raid5, "mmm"), Ok((vec![Slot(0), Slot(1), Slot(2)], false)));
    raid5.force = false;
    raid5.assume_clean = true;
    assert_eq!(outcome(&raid5, "mmm"), Ok((vec![Slot(0), Slot(1), Slot(2)], true)));
}

#[test]
fn raid6_with_one_slot_empty_gives_up_another_to_be_rebuilt() {
    use Role::{Slot, Spare};
    let raid6 = creation(Level::Raid6, 4);
    assert_eq!(outcome(&raid6, "mmmm").map(|(_, clean)| clean), Ok(false));
    assert_eq!(outcome(&raid6, "m_mm"), Ok((vec![Slot(0), Slot(2), Spare], true)));
    assert_eq!(outcome(&raid6, "mmm_"), Ok((vec![Slot(0), Slot(1), Spare], true)));
    assert_eq!(outcome(&raid6, "_mm_"), Ok((vec![Slot(1), Slot(2)], true)));
    let forced = Creation { force: true, ..raid6 };
    assert_eq!(outcome(&forced, "m_mm"), Err(CreateError::DirtyDegraded));
}

#[test]
fn spares_come_behind_the_slots() {
    use Role::{Slot, Spare};
    let raid1 = creation(Level::Raid1, 2);
    assert_eq!(outcome(&raid1, "m_m"), Ok((vec![Slot(0), Spare], false)));
    let raid5 = creation(Level::Raid5, 2);
    let plan = plan_of(&raid5, "mmm").expect("a good array");
    let numbers: Vec<_> = plan.members.iter().map(|(_, sb)| sb.dev_number).collect();
    assert_eq!(numbers, [0, 3, 2]);
    assert_eq!(outcome(&raid5, "mm_"), Err(CreateError::MissingSpare));
    assert_eq!(outcome(&creation(Level::Raid0, 2), "mmm"), Err(CreateError::NoUseForSpares));
}

#[test]
fn an_array_that_could_not_start_is_refused() {
    let missing = |level, raid_disks, places| outcome(&creation(level, raid_disks), places);
    assert_eq!(missing(Level::Raid5, 3, "m__"), Err(CreateError::TooManyMissing { missing: 2 }));
    assert_eq!(missing(Level::Raid0, 2, "m_"), Err(CreateError::TooManyMissing { missing: 1 }));
    assert_eq!(missing(Level::Raid10, 4, "mm__"), Err(CreateError::TooManyMissing { missing: 2 }));
    assert!(missing(Level::Raid10, 4, "m_m_").is_ok());
    let too_few = CreateError::TooFewPlaces { given: 2, raid_disks: 3 };
    assert_eq!(missing(Level::Raid5, 3, "mm"), Err(too_few));
    let odd = Creation { chunk_sectors: 12, ..creation(Level::Raid5, 3) };
    assert!(matches!(outcome(&odd, "mmm"), Err(CreateError::NewArray(_))));
    let lonely = Creation { force: true, ..creation(Level::Raid6, 3) };
    assert!(matches!(outcome(&lonely, "mmm"), Err(CreateError::Geometry(_))));
}

#[test]
fn the_bitmap_is_all_set_where_redundancy_is_still_to_be_made() {
    let set = |places: &str, creation: &Creation| {
        let plan = plan_of(creation, places).expect("a good array");
        let header = plan.bitmap.expect("it has a bitmap");
        let bytes = bitmap_bytes(&header, plan.in_sync);
        DirtyMap::parse(header.chunks(), &bytes).count() == header.chunks()
    };
    assert!(set("mmmm", &creation(Level::Raid6, 4)));
    assert!(!set("mmm", &creation(Level::Raid5, 3)));
}

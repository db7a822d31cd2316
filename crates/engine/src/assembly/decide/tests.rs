//! Superblocks as `create` makes them, changed by hand.

use mdspace_format::placement::BitmapRequest;
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{BadBlocks, MetadataVersion};

use super::*;
use crate::backend::{MemberId, MemberInfo};
use crate::create::{self, Creation, NewDevice};

/// A RAID5 of three in sync, at `events`, and spares.
fn raid5(spares: usize, events: u64) -> Vec<Candidate> {
    let creation = Creation {
        name: SetName::new("test:array").unwrap(),
        uuid: Uuid([1; 16]),
        version: MetadataVersion::V1_2,
        level: Level::Raid5,
        layout: 2,
        chunk_sectors: 16,
        raid_disks: 3,
        size_sectors: None,
        data_offset_sectors: Some(64),
        bitmap: BitmapRequest::None,
        assume_clean: true,
        force: false,
    };
    let device = |index: usize| NewDevice {
        id: MemberId { index: index as u16, generation: 0 },
        info: MemberInfo {
            name: format!("disk{index}"),
            sectors: 1024,
            logical_block_bytes: 512,
            rotational: false,
            discard_zeroes: false,
        },
        flags: MemberFlags::default(),
    };
    let places = (0..3 + spares).map(|index| Some(device(index))).collect();
    let mut uuids = (1..).map(|byte| Uuid([byte; 16]));
    let plan = create::plan(&creation, places, 0, || uuids.next().unwrap()).unwrap();
    let candidates = plan.members.into_iter().map(|(device, superblock)| Candidate {
        id: device.id,
        info: device.info,
        superblock: Superblock { events, ..superblock },
        bitmap: FoundBitmap::None,
        bad_blocks: Ok(BadBlocks::new()),
    });
    candidates.collect()
}

fn assemble(candidates: Vec<Candidate>) -> Result<Assembly, Refusal> {
    decide(candidates, &Options { run: true, ..Options::default() })
}

fn recovery_offset(assembly: &Assembly, name: &str) -> Option<u64> {
    let member = assembly.start.members.iter().find(|member| member.info.name == name);
    member.expect("it takes part").superblock.recovery_offset_sectors
}

#[test]
fn a_spare_that_never_heard_of_its_slot_is_rebuilt_from_the_start() {
    let mut candidates = raid5(1, 10);
    // Slot 1 went to the spare in update 11; the crash came before the spare's own superblock.
    for survivor in [0, 2] {
        let superblock = &mut candidates[survivor].superblock;
        superblock.events = 11;
        superblock.roles[1] = Role::Faulty;
        superblock.roles[3] = Role::Slot(1);
    }
    let assembly = assemble(candidates).unwrap();
    assert_eq!(assembly.degraded, 1);
    assert_eq!(recovery_offset(&assembly, "disk3"), Some(0));
    assert_eq!(recovery_offset(&assembly, "disk0"), None);
}

#[test]
fn a_recovery_offset_of_all_ones_is_no_progress() {
    let mut candidates = raid5(0, 10);
    candidates[1].superblock.recovery_offset_sectors = Some(u64::MAX);
    let assembly = assemble(candidates).unwrap();
    assert_eq!(assembly.degraded, 1);
    assert_eq!(recovery_offset(&assembly, "disk1"), Some(0));
}

#[test]
fn a_removed_member_whose_number_went_to_another_is_out_of_date() {
    let mut candidates = raid5(1, 10);
    let mut new = candidates.pop().unwrap();
    new.superblock.dev_number = 1;
    for survivor in [0, 2] {
        candidates[survivor].superblock.events = 20;
    }
    (new.superblock.events, new.superblock.roles) = (20, candidates[0].superblock.roles.clone());
    candidates.push(new);
    let assembly = assemble(candidates).unwrap();
    assert_eq!(assembly.degraded, 0);
    let [left_out] = &*assembly.left_out else { panic!("{:?}", assembly.left_out) };
    assert_eq!(left_out.member, "disk1");
    assert_eq!(left_out.reason, Reason::Stale { events: 10, freshest: 20 });
}

#[test]
fn a_copy_of_a_member_is_refused() {
    let mut candidates = raid5(0, 10);
    let mut copy = raid5(0, 10).remove(1);
    copy.info.name = "copy".to_owned();
    candidates.push(copy);
    let refusal = assemble(candidates).unwrap_err();
    assert!(matches!(refusal, Refusal::Duplicate { .. }), "{refusal}");
}

#[test]
fn two_members_of_one_slot_are_refused() {
    let mut candidates = raid5(1, 10);
    for candidate in &mut candidates {
        candidate.superblock.roles[3] = Role::Slot(1);
    }
    let refusal = assemble(candidates).unwrap_err();
    assert!(matches!(refusal, Refusal::OneSlot { slot: 1, .. }), "{refusal}");
}

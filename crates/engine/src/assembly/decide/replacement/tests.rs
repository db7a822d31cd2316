//! Superblocks of a replacement half done.

use mdspace_format::bitmap::BitmapError;
use mdspace_format::{Features, Level, Role, Superblock, Timestamp, Uuid};

use super::super::super::read::{Candidate, FoundBitmap};
use super::super::tests::{array, assemble, raid5, recovery_offset};
use super::super::{Assembly, LeftOut, Options, Reason, Refusal, decide};

/// A RAID5 of three whose slot 1 is being replaced by number 3, which has so much of it.
fn replacing(done: Option<u64>) -> Vec<Candidate> {
    let mut candidates = raid5(1, 10);
    for candidate in &mut candidates {
        candidate.superblock.roles[3] = Role::Slot(1);
    }
    let superblock = &mut candidates[3].superblock;
    superblock.features = superblock.features.with(Features::REPLACEMENT, true);
    superblock.recovery_offset_sectors = done;
    candidates
}

fn member<'a>(assembly: &'a Assembly, name: &str) -> &'a Superblock {
    let member = assembly.start.members.iter().find(|member| member.info.name == name);
    &member.expect("it takes part").superblock
}

fn still_replaces(assembly: &Assembly) -> bool {
    member(assembly, "disk3").features.contains(Features::REPLACEMENT)
}

#[test]
fn a_member_and_its_replacement_hold_one_slot_together() {
    let assembly = assemble(replacing(Some(80))).unwrap();
    assert_eq!((assembly.degraded, assembly.left_out.len()), (0, 0));
    assert!(still_replaces(&assembly));
    assert_eq!(recovery_offset(&assembly, "disk3"), Some(80));
}

#[test]
fn a_replacement_that_has_all_takes_the_slot() {
    let size = raid5(0, 1)[0].superblock.size_sectors;
    for done in [None, Some(size), Some(size + 8)] {
        let assembly = assemble(replacing(done)).unwrap();
        assert_eq!(assembly.degraded, 0);
        let replaced =
            LeftOut { member: "disk1".to_owned(), reason: Reason::Replaced("disk3".to_owned()) };
        assert_eq!(assembly.left_out, [replaced]);
        assert!(!still_replaces(&assembly));
        assert_eq!(recovery_offset(&assembly, "disk3"), None);
    }
}

#[test]
fn a_replacement_is_all_that_is_left_of_a_failed_member() {
    for (done, degraded) in [(Some(80), 1), (None, 0)] {
        let mut candidates = replacing(done);
        candidates.remove(1);
        candidates.iter_mut().for_each(|other| other.superblock.roles[1] = Role::Faulty);
        let assembly = decide(candidates, &Options::default()).unwrap();
        assert_eq!(assembly.degraded, degraded);
        assert!(!still_replaces(&assembly));
        assert_eq!(recovery_offset(&assembly, "disk3"), done);
    }
}

#[test]
fn a_replacement_does_not_stand_for_a_member_that_is_missing() {
    let mut candidates = replacing(Some(80));
    candidates.remove(1);
    let refused = decide(candidates.clone(), &Options::default()).unwrap_err();
    assert_eq!(refused, Refusal::Missing { missing: 1 });
    let assembly = assemble(candidates).unwrap();
    assert_eq!(assembly.degraded, 1);
    assert!(!still_replaces(&assembly));
    let mut candidates = replacing(Some(80));
    candidates.remove(3);
    assert_eq!(decide(candidates, &Options::default()).unwrap().degraded, 0);
}

/// A write may have come to the member and not to its replacement.
#[test]
fn after_a_crash_a_replacement_is_believed_up_to_the_first_write_under_way() {
    for (done, first) in [(Some(80), 0), (None, 0), (Some(80), 3), (None, 3)] {
        let mut candidates = replacing(done);
        for candidate in &mut candidates {
            candidate.superblock.resync_offset_sectors = 0;
            if let FoundBitmap::Good(_, map) = &mut candidate.bitmap {
                map.set(first);
            }
        }
        let assembly = assemble(candidates).unwrap();
        assert_eq!(assembly.left_out, []);
        assert!(still_replaces(&assembly));
        // Chunks of 4 KiB.
        assert_eq!(recovery_offset(&assembly, "disk3"), Some(first * 8));
    }
}

/// The member that it replaces has all: the array has no need of it, in whatever order they are found.
#[test]
fn a_replacement_that_cannot_be_served_is_left_out() {
    let unserved: [fn(&mut Candidate); 6] = [
        |candidate| candidate.superblock.features |= Features::from_bits(1 << 20),
        |candidate| candidate.superblock.features |= Features::PPL,
        |candidate| candidate.bad_blocks = Err("no".into()),
        |candidate| {
            let error = BitmapError::Version { version: 5, name: "clustered" };
            candidate.bitmap = FoundBitmap::Refused(error);
        },
        |candidate| candidate.superblock.chunk_sectors *= 2,
        // Its bitmap begins in the middle of a block.
        |candidate| candidate.info.logical_block_bytes = 1 << 16,
    ];
    for (change, done) in
        unserved.into_iter().flat_map(|change| [(change, Some(80)), (change, None)])
    {
        for first in [false, true] {
            let mut candidates = replacing(done);
            change(&mut candidates[3]);
            if first {
                candidates.rotate_right(1);
            }
            let assembly = decide(candidates.clone(), &Options::default()).unwrap();
            assert_eq!((assembly.degraded, assembly.start.members.len()), (0, 3));
            let [LeftOut { member, reason: Reason::Unreadable(_) }] = &assembly.left_out[..] else {
                panic!("{:?}", assembly.left_out);
            };
            assert_eq!(member, "disk3");
            // Without the member it is all that there is of the slot.
            candidates.retain(|candidate| candidate.info.name != "disk1");
            assert!(assemble(candidates).is_err());
        }
    }
}

/// It has all of its slot, whose member is gone, and no other member is to be missed. What was being written may be
/// on one of the two only: the user accepts that.
#[test]
fn by_force_a_full_replacement_is_the_member_where_the_array_would_not_start_without_it() {
    let size = raid5(0, 1)[0].superblock.size_sectors;
    let begin = |done, gone: &[&str]| {
        let mut candidates = replacing(done);
        for candidate in &mut candidates {
            candidate.superblock.resync_offset_sectors = 0;
            let FoundBitmap::Good(_, map) = &mut candidate.bitmap else { panic!("a bitmap") };
            map.set(2);
        }
        candidates.retain(|candidate| !gone.contains(&candidate.info.name.as_str()));
        candidates
    };
    let force = Options { force: true, ..Options::default() };
    for done in [Some(size), Some(size + 8), None] {
        let missing = ["disk1", "disk2"];
        let assembly = decide(begin(done, &missing), &force).unwrap();
        assert_eq!((assembly.degraded, recovery_offset(&assembly, "disk3")), (1, None));
        assert!(!still_replaces(&assembly));
        assert!(assembly.start.accepts_doubt && assembly.accepted_sectors == 8);
        let too_few = Refusal::TooFew { present: 1, needed: 3 };
        assert_eq!(assemble(begin(done, &missing)).unwrap_err(), too_few);
        // With enough others it is copied again from the first such place on.
        let assembly = decide(begin(done, &missing[..1]), &force).unwrap();
        assert_eq!((assembly.degraded, recovery_offset(&assembly, "disk3")), (1, Some(16)));
        // It lacks what an update of its own has taken back.
        let mut candidates = begin(done, &missing);
        candidates[0].superblock.events = 11;
        assert_eq!(decide(candidates, &force).unwrap_err(), too_few);
    }
    let too_few = Refusal::TooFew { present: 1, needed: 3 };
    assert_eq!(decide(begin(Some(80), &["disk1", "disk2"]), &force).unwrap_err(), too_few);
}

/// Its superblock is written before the others', and power failed then.
#[test]
fn a_replacement_that_cannot_be_served_keeps_nothing_from_starting_with_an_update_of_its_own() {
    for first in [false, true] {
        let mut candidates = replacing(Some(80));
        candidates[3].superblock.events = 11;
        candidates[3].bad_blocks = Err("no".into());
        if first {
            candidates.rotate_right(1);
        }
        let assembly = decide(candidates.clone(), &Options::default()).unwrap();
        assert_eq!((assembly.degraded, assembly.start.members.len()), (0, 3));
        assert_eq!(assembly.start.events, 10);
        // Whoever is missing may have gone on with it.
        candidates.retain(|candidate| candidate.info.name != "disk0");
        assert!(assemble(candidates).is_err());
    }
}

/// Its own superblock is written before the others': where it has missed an update, that may have taken back what the
/// one that it has promises.
#[test]
fn a_replacement_that_missed_an_update_is_copied_anew() {
    let size = raid5(0, 1)[0].superblock.size_sectors;
    for done in [Some(80), Some(size), None] {
        let mut candidates = replacing(done);
        candidates.iter_mut().take(3).for_each(|other| other.superblock.events = 11);
        let assembly = assemble(candidates).unwrap();
        assert_eq!((assembly.degraded, assembly.left_out.len()), (0, 0), "{done:?}");
        assert!(still_replaces(&assembly), "{done:?}");
        assert_eq!(recovery_offset(&assembly, "disk3"), Some(0), "{done:?}");
        // Nor does it promise more once it has caught up.
        let member = assembly.start.members.iter().find(|member| member.info.name == "disk3");
        let others_have = member.and_then(|member| member.behind.as_ref()).expect("it is behind");
        assert_eq!((others_have.events, others_have.recovery_offset_sectors), (11, Some(0)));
    }
}

/// A member of a mirror is filled with copies, as a replacement is. One of a row of parity keeps what it has: a block
/// may be there alone.
#[test]
fn a_copy_half_filled_that_missed_an_update_is_copied_anew() {
    let raid5 = ((Level::Raid5, 2, 16), Some(80));
    for (level, kept) in
        [((Level::Raid1, 0, 0), Some(0)), ((Level::Raid10, 0x102, 16), Some(0)), raid5]
    {
        let mut candidates = array(level, 3, 0, 10);
        candidates[2].superblock.recovery_offset_sectors = Some(80);
        let assembly = assemble(candidates.clone()).unwrap();
        assert_eq!(recovery_offset(&assembly, "disk2"), Some(80), "{level:?}");
        candidates.iter_mut().take(2).for_each(|other| other.superblock.events = 11);
        let assembly = assemble(candidates).unwrap();
        assert_eq!(recovery_offset(&assembly, "disk2"), kept, "{level:?}");
    }
}

#[test]
fn a_spare_that_never_heard_whom_it_replaces_starts_from_nothing() {
    let mut candidates = raid5(1, 10);
    for survivor in candidates.iter_mut().take(3) {
        survivor.superblock.roles[3] = Role::Slot(1);
        survivor.superblock.events = 11;
    }
    let assembly = assemble(candidates).unwrap();
    assert_eq!((assembly.degraded, assembly.left_out.len()), (0, 0));
    assert!(still_replaces(&assembly));
    assert_eq!(recovery_offset(&assembly, "disk3"), Some(0));
}

#[test]
fn two_replacements_of_one_slot_are_refused() {
    let mut candidates = replacing(Some(80));
    let mut other = candidates[3].clone();
    other.superblock.dev_number = 4;
    other.superblock.device_uuid = Uuid([77; 16]);
    other.info.name = "disk4".to_owned();
    candidates.push(other);
    candidates.iter_mut().for_each(|other| other.superblock.roles[4] = Role::Slot(1));
    let refused = assemble(candidates).unwrap_err();
    assert!(matches!(refused, Refusal::OneSlot { slot: 1, .. }), "{refused}");
}

/// md goes on with a replacement on a dirty array, leaves zeroes in place of parity where writes were under
/// way, and calls it in sync.
#[test]
fn a_replacement_that_md_called_in_sync_on_a_dirty_array_is_believed_up_to_the_first_row_in_doubt()
{
    let mut candidates = replacing(None);
    for candidate in &mut candidates {
        candidate.superblock.resync_offset_sectors = 0;
        candidate.superblock.utime = Timestamp::from_seconds(7);
        let FoundBitmap::Good(_, map) = &mut candidate.bitmap else { panic!("a bitmap") };
        map.set(2);
    }
    let assembly = assemble(candidates).unwrap();
    assert!(still_replaces(&assembly));
    assert_eq!(recovery_offset(&assembly, "disk3"), Some(16));
    assert_eq!(recovery_offset(&assembly, "disk1"), None);
}

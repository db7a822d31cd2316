//! Superblocks as `create` makes them, changed by hand.

use mdspace_format::bitmap::{BitmapError, BitmapState, BitmapVersion};
use mdspace_format::placement::BitmapRequest;
use mdspace_format::superblock::{MemberFlags, SetName};
use mdspace_format::{BadBlocks, MetadataVersion};

use super::*;
use crate::backend::{MemberId, MemberInfo};
use crate::create::{self, Creation, NewDevice};

/// A RAID5 of three in sync, at `events`, and spares.
fn raid5(spares: usize, events: u64) -> Vec<Candidate> {
    array((Level::Raid5, 2, 16), 3, spares, events)
}

/// An array in sync, at `events`, and spares; what it is in level, layout and chunk sectors.
pub(super) fn array(
    (level, layout, chunk_sectors): (Level, u32, u32),
    raid_disks: u16,
    spares: usize,
    events: u64,
) -> Vec<Candidate> {
    let creation = Creation {
        name: SetName::new("test:array").unwrap(),
        uuid: Uuid([1; 16]),
        version: MetadataVersion::V1_2,
        level,
        layout,
        chunk_sectors,
        raid_disks,
        size_sectors: None,
        data_offset_sectors: Some(64),
        bitmap: BitmapRequest::Internal { chunk_bytes: Some(4096) },
        assume_clean: true,
        force: false,
        write_behind: 0,
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
    let places = (0..usize::from(raid_disks) + spares).map(|index| Some(device(index))).collect();
    let mut uuids = (1..).map(|byte| Uuid([byte; 16]));
    let plan = create::plan(&creation, places, 0, || uuids.next().unwrap()).unwrap();
    let header = BitmapSuperblock { events, ..plan.bitmap.unwrap() };
    let map = DirtyMap::new(header.chunks());
    let candidates = plan.members.into_iter().map(|(device, superblock)| Candidate {
        id: device.id,
        info: device.info,
        superblock: Superblock { events, ..superblock },
        bitmap: FoundBitmap::Good(Box::new(header.clone()), map.clone()),
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

/// Everything about `candidates` that a crash, a user or time can change.
type Change = fn(&mut Vec<Candidate>);

fn all(candidates: &mut [Candidate], change: impl Fn(&mut Superblock)) {
    candidates.iter_mut().for_each(|candidate| change(&mut candidate.superblock));
}

/// What came out, in short: slots in sync, then who was left out.
type Outcome = Result<(usize, Vec<LeftOut>), Refusal>;

fn outcome(candidates: Vec<Candidate>, options: &Options) -> Outcome {
    let assembly = decide(candidates, options)?;
    Ok((3 - assembly.degraded, assembly.left_out))
}

fn left_out(disk: usize, reason: Reason) -> LeftOut {
    LeftOut { member: format!("disk{disk}"), reason }
}

/// What each state of three members (and a spare, `disk3`, where there is one) leads to without any
/// option: the table that a reader of the code may hold it against.
#[test]
fn the_table_of_states_holds() {
    let stale = Reason::Stale { events: 9, freshest: 10 };
    let table: [(&str, Change, Outcome); 14] = [
        ("all is well", |_| (), Ok((3, vec![]))),
        ("power failed in an update", |c| c[1].superblock.events = 9, Ok((3, vec![]))),
        (
            "one missed an update, and nobody said so",
            |c| c[1].superblock.events = 8,
            Err(Refusal::Missing { missing: 1 }),
        ),
        ("two are not there", |c| c.truncate(1), Err(Refusal::TooFew { present: 1, needed: 3 })),
        (
            "one was failed, the others say so",
            |c| {
                all(c, |superblock| superblock.roles[1] = Role::Faulty);
                c[1].superblock.roles[1] = Role::Slot(1);
                c[1].superblock.events = 9;
            },
            Ok((2, vec![left_out(1, Reason::Faulty)])),
        ),
        (
            "one was removed, the others forgot it",
            |c| {
                all(c, |superblock| superblock.roles[1] = Role::Spare);
                c[1].superblock.roles[1] = Role::Slot(1);
                c[1].superblock.events = 9;
            },
            Ok((2, vec![left_out(1, stale)])),
        ),
        (
            "one that should be there is not",
            |c| drop(c.remove(1)),
            Err(Refusal::Missing { missing: 1 }),
        ),
        (
            "one that is known to be gone is not there",
            |c| {
                all(c, |superblock| superblock.roles[1] = Role::Faulty);
                c.remove(1);
            },
            Ok((2, vec![])),
        ),
        ("in use when last seen", |c| all(c, |sb| sb.resync_offset_sectors = 0), Ok((3, vec![]))),
        (
            "in use and one is known to be gone",
            |c| {
                all(c, |superblock| superblock.resync_offset_sectors = 0);
                all(c, |superblock| superblock.roles[1] = Role::Faulty);
                c.remove(1);
            },
            Err(Refusal::DirtyDegraded),
        ),
        (
            "in use while one was rebuilt",
            |c| {
                all(c, |superblock| superblock.resync_offset_sectors = 0);
                c[1].superblock.recovery_offset_sectors = Some(64);
            },
            Err(Refusal::DirtyDegraded),
        ),
        (
            "one was being rebuilt",
            |c| c[1].superblock.recovery_offset_sectors = Some(64),
            Ok((2, vec![])),
        ),
        (
            "two are being rebuilt",
            |c| c[1..].iter_mut().for_each(|c| c.superblock.recovery_offset_sectors = Some(64)),
            Err(Refusal::TooFew { present: 1, needed: 3 }),
        ),
        ("no device at all", Vec::clear, Err(Refusal::NoMembers)),
    ];
    for (what, change, expected) in table {
        let mut candidates = raid5(0, 10);
        change(&mut candidates);
        assert_eq!(outcome(candidates, &Options::default()), expected, "{what}");
    }
}

#[test]
fn options_allow_what_they_say_and_no_more() {
    let run = Options { run: true, ..Options::default() };
    let force = Options { force: true, ..Options::default() };
    let missing = || raid5(0, 10).split_off(1);
    assert_eq!(outcome(missing(), &run), Ok((2, vec![])));
    assert_eq!(outcome(missing(), &force), Ok((2, vec![])));
    let dirty = || {
        let mut candidates = missing();
        all(&mut candidates, |superblock| superblock.resync_offset_sectors = 0);
        candidates
    };
    assert_eq!(outcome(dirty(), &run), Err(Refusal::DirtyDegraded));
    assert_eq!(outcome(dirty(), &force), Ok((2, vec![])));
    let one = || raid5(0, 10).split_off(2);
    let too_few = Refusal::TooFew { present: 1, needed: 3 };
    assert_eq!(outcome(one(), &force), Err(too_few.clone()));
    let mut stale = raid5(0, 10);
    stale[0].superblock.events = 3;
    stale[1].superblock.events = 3;
    assert_eq!(outcome(stale, &force), Err(too_few));
}

#[test]
fn each_refusal_names_what_it_met() {
    let refusal = |change: Change| {
        let mut candidates = raid5(0, 10);
        change(&mut candidates);
        assemble(candidates).expect_err("it is refused").to_string()
    };
    let cases: [(Change, &str); 10] = [
        (|c| c[2].superblock.set_uuid = Uuid([9; 16]), "disk0 to 01010101"),
        (
            |c| c[0].superblock.chunk_sectors = 32,
            "disagrees with disk2 about the array's chunk size",
        ),
        (|c| c[0].superblock.layout = 0, "layout"),
        (|c| c[0].superblock.size_sectors -= 16, "member size"),
        (|c| c[0].superblock.raid_disks = 4, "number of members"),
        (|c| c[0].superblock.level = Level::Raid4, "level"),
        (
            |c| c[1].superblock.features = Features::from_bits(4),
            "disk1: feature RESHAPE_ACTIVE is not handled",
        ),
        (|c| c[1].superblock.features = Features::from_bits(1 << 20), "disk1: "),
        (|c| c[1].bad_blocks = Err("entry 3".to_owned()), "disk1 has a bad-block list"),
        (
            |c| {
                let version = BitmapError::Version { version: 5, name: "clustered" };
                c[1].bitmap = FoundBitmap::Refused(version);
            },
            "clustered",
        ),
    ];
    for (index, (change, expected)) in cases.into_iter().enumerate() {
        let found = refusal(change);
        assert!(found.contains(expected), "case {index}: {found}, not {expected}");
    }
    let crowd: Change = |c| {
        all(c, |superblock| {
            superblock.raid_disks = 257;
            superblock.roles = (0..257).map(Role::Slot).collect();
        });
    };
    assert!(refusal(crowd).contains("more than 256 members"));
}

#[test]
fn only_the_array_that_is_asked_for_is_taken() {
    let mut candidates = raid5(0, 10);
    let mut other = raid5(0, 90).remove(1);
    other.info.name = "other".to_owned();
    other.superblock.set_uuid = Uuid([9; 16]);
    candidates.insert(0, other);
    let options = Options { uuid: Some(Uuid([1; 16])), ..Options::default() };
    let other = LeftOut { member: "other".to_owned(), reason: Reason::OtherArray };
    assert_eq!(outcome(candidates, &options), Ok((3, vec![other])));
    let nobody = Options { uuid: Some(Uuid([5; 16])), ..Options::default() };
    assert_eq!(outcome(raid5(0, 10), &nobody), Err(Refusal::NoMembers));
}

fn with_bitmap(candidates: &mut [Candidate], sync_size_sectors: u64, set: &[u64]) {
    for candidate in candidates {
        let header = BitmapSuperblock {
            version: BitmapVersion::LittleEndian,
            uuid: candidate.superblock.set_uuid,
            events: candidate.superblock.events,
            events_cleared: 0,
            sync_size_sectors,
            state: BitmapState::default(),
            chunk_bytes: 4096,
            daemon_sleep_seconds: 5,
            write_behind: 0,
            sectors_reserved: 0,
            padding: [0; 188],
        };
        let mut map = DirtyMap::new(header.chunks());
        set.iter().for_each(|chunk| assert!(map.set(*chunk)));
        candidate.bitmap = FoundBitmap::Good(Box::new(header), map);
    }
}

#[test]
fn a_crash_costs_what_the_bitmap_marks_and_without_one_everything() {
    let unsynced = |change: Change| {
        let mut candidates = raid5(0, 10);
        all(&mut candidates, |superblock| superblock.resync_offset_sectors = 0);
        let size = candidates[0].superblock.size_sectors;
        with_bitmap(&mut candidates, size, &[2, 3]);
        change(&mut candidates);
        let start = assemble(candidates).unwrap().start;
        assert!(start.crashed);
        start.unsynced
    };
    let all_of_it = unsynced(|c| c.iter_mut().for_each(|c| c.bitmap = FoundBitmap::None));
    assert_eq!(all_of_it.iter().count(), 1);
    assert!(all_of_it.sectors() > 900, "{all_of_it:?}");
    assert_eq!(unsynced(|_| ()), Ranges::of(16..32));
    // One good copy is enough; a damaged one says nothing.
    assert_eq!(unsynced(|c| c[0].bitmap = FoundBitmap::Bad), Ranges::of(16..32));
    // What any good copy has set counts.
    let another = unsynced(|c| {
        let size = c[0].superblock.size_sectors;
        with_bitmap(&mut c[1..2], size, &[9]);
    });
    assert_eq!(another, [16..32, 72..80].into_iter().collect());
    // A copy behind the array's events proves nothing, alone; beside a fresh one it is not needed.
    let behind: Change = |c| {
        let size = c[0].superblock.size_sectors;
        let events = std::mem::replace(&mut c[0].superblock.events, 3);
        with_bitmap(&mut c[..1], size, &[9]);
        c[0].superblock.events = events;
    };
    assert_eq!(unsynced(behind), Ranges::of(16..32));
    let all_behind = unsynced(|c| {
        let size = c[0].superblock.size_sectors;
        c.iter_mut().for_each(|c| c.superblock.events = 3);
        with_bitmap(c, size, &[9]);
        c.iter_mut().for_each(|c| c.superblock.events = 10);
    });
    assert_eq!(all_behind, all_of_it);
}

#[test]
fn a_bitmap_that_ends_before_the_array_is_refused() {
    let mut candidates = raid5(0, 10);
    with_bitmap(&mut candidates, 64, &[]);
    let refusal = assemble(candidates).unwrap_err();
    assert!(matches!(refusal, Refusal::ShortBitmap { covered: 64, .. }), "{refusal}");
}

#[test]
fn parity_of_a_crash_is_never_taken_for_that_of_a_first_resync() {
    let crashed = |events, resync_offset_sectors| {
        let mut candidates = raid5(0, events);
        all(&mut candidates, |superblock| superblock.resync_offset_sectors = resync_offset_sectors);
        assemble(candidates).unwrap().start.crashed
    };
    assert!(!crashed(0, 0), "just created");
    assert!(crashed(1, 0), "in use once");
    assert!(!crashed(4, 640), "the first resync was interrupted by a stop");
    assert!(!crashed(4, RESYNC_NONE));
}

/// Whatever superblocks say: nobody counts as in sync who missed an update, who is not in the slot
/// that the freshest knows, or who is being rebuilt; and no slot has two members.
#[test]
fn no_mixture_of_superblocks_makes_a_stale_member_count() {
    let mut random = 0x9e37_79b9_97f4_a7c1_u64;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % bound
    };
    let mut started = 0;
    for round in 0..20_000 {
        let mut candidates = raid5(1, 10);
        for candidate in &mut candidates {
            let superblock = &mut candidate.superblock;
            superblock.events = 7 + below(5);
            for number in 0..4 {
                let roles = [Role::Spare, Role::Faulty, Role::Slot(below(3) as u16)];
                if below(6) == 0 {
                    superblock.roles[number] = roles[below(3) as usize];
                }
            }
            if below(5) == 0 {
                superblock.recovery_offset_sectors = Some(below(3) * 8);
            }
            if below(8) == 0 {
                superblock.resync_offset_sectors = 0;
            }
        }
        candidates.retain(|_| below(6) > 0);
        let given: Vec<_> = candidates.iter().map(|c| c.superblock.clone()).collect();
        let force = below(2) == 0;
        let options = Options { run: true, force, ..Options::default() };
        let Ok(assembly) = decide(candidates, &options) else { continue };
        started += 1;
        judge(&assembly, &given, round);
    }
    assert!(started > 1000, "{started} of 20000 started");
}

fn judge(assembly: &Assembly, given: &[Superblock], round: usize) {
    let mut slots = Vec::new();
    for member in &assembly.start.members {
        let now = &member.superblock;
        let own = given.iter().find(|own| own.device_uuid == now.device_uuid).unwrap();
        let Role::Slot(slot) = now.own_role() else { continue };
        slots.push(slot);
        // Every superblock here is one of a member, so a replacement can only be a spare that never knew.
        if now.recovery_offset_sectors.is_some() {
            continue;
        }
        assert_eq!(own.own_role(), Role::Slot(slot), "round {round}: in its own eyes too");
        assert!(own.recovery_offset_sectors.is_none(), "round {round}: it is being rebuilt");
        assert!(own.events + 1 >= assembly.start.events, "round {round}: it missed an update");
    }
    let in_sync = 3 - assembly.degraded;
    assert!(in_sync >= 2, "round {round}");
    slots.sort_unstable();
    slots.dedup();
    let members = assembly.start.members.iter();
    let holders = members.filter(|member| {
        let replaces = member.superblock.features.contains(Features::REPLACEMENT);
        let empty = member.superblock.recovery_offset_sectors == Some(0);
        assert!(!replaces || empty, "round {round}: it replaces another with data of its own");
        member.superblock.own_role().slot().is_some() && !replaces
    });
    assert_eq!(slots.len(), holders.count(), "round {round}: a slot has two members");
}

/// Header and bits of a candidate's copy of the bitmap.
fn copy(candidate: &mut Candidate) -> (&mut BitmapSuperblock, &mut DirtyMap) {
    let FoundBitmap::Good(header, map) = &mut candidate.bitmap else { panic!("a bitmap") };
    (header, map)
}

fn bits(assembly: &Assembly) -> (u64, bool) {
    let (header, map) = assembly.start.bitmap.as_ref().expect("a bitmap");
    assert!(!header.state.is_stale(), "its bits are those in memory now");
    (map.count(), assembly.start.copies_differ)
}

#[test]
fn a_bit_that_one_member_has_counts_and_is_to_be_given_to_all() {
    let mut candidates = raid5(0, 10);
    assert_eq!(bits(&assemble(raid5(0, 10)).unwrap()), (0, false));
    copy(&mut candidates[1]).1.set(3);
    assert_eq!(bits(&assemble(candidates).unwrap()), (1, true));
}

#[test]
fn a_stale_copy_says_nothing_and_without_a_fresh_one_every_bit_counts() {
    let mut candidates = raid5(0, 10);
    copy(&mut candidates[0]).1.set(3);
    copy(&mut candidates[0]).0.events = 9;
    assert_eq!(bits(&assemble(candidates).unwrap()), (0, true));
    let mut candidates = raid5(0, 10);
    for candidate in &mut candidates {
        copy(candidate).0.state.0 |= BitmapState::STALE;
    }
    let chunks = copy(&mut candidates[0]).1.chunks();
    assert_eq!(bits(&assemble(candidates).unwrap()), (chunks, true));
}

#[test]
fn copies_that_are_cut_differently_make_every_bit_count() {
    let mut candidates = raid5(0, 10);
    let (header, map) = copy(&mut candidates[1]);
    header.chunk_bytes *= 2;
    *map = DirtyMap::new(header.chunks());
    let chunks = copy(&mut candidates[0]).1.chunks();
    assert_eq!(bits(&assemble(candidates).unwrap()), (chunks, true));
}

#[test]
fn the_bad_block_log_counts_sectors_of_the_device() {
    let mut members = raid5(0, 1);
    let data = members[0].superblock.data_offset_sectors;
    let mut listed = BadBlocks::new();
    listed.add(data - 4..data + 4);
    listed.add(data + 100..data + 108);
    members[0].bad_blocks = Ok(listed);
    let assembly = assemble(members).expect("it starts");
    let bad: Vec<_> = assembly.start.members[0].bad.iter().collect();
    assert_eq!(bad, [0..4, 100..108]);
}

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

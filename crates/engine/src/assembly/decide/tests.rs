//! Superblocks as `create` makes them, changed by hand.

use mdspace_format::bitmap::BitmapError;
use mdspace_format::placement::BitmapRequest;
use mdspace_format::superblock::{EVENTS_MAX, MemberFlags, SetName};
use mdspace_format::{
    BadBlockLog, BadBlocks, BitmapSuperblock, DirtyMap, Features, MetadataVersion, Role,
};

use super::super::read::FoundBitmap;
use super::*;
use crate::backend::{MemberId, MemberInfo};
use crate::create::{self, Creation, NewDevice};

/// A RAID5 of three in sync, at `events`, and spares.
pub(super) fn raid5(spares: usize, events: u64) -> Vec<Candidate> {
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
            is_sparse: false,
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
        rival: None,
        bitmap: FoundBitmap::Good(Box::new(header.clone()), map.clone()),
        bad_blocks: Ok(BadBlockLog::new(0)),
    });
    candidates.collect()
}

pub(super) fn assemble(candidates: Vec<Candidate>) -> Result<Assembly, Refusal> {
    decide(candidates, &Options { run: true, ..Options::default() })
}

pub(super) fn recovery_offset(assembly: &Assembly, name: &str) -> Option<u64> {
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

/// Spares say nothing of a slot: only the number tells. Two members of one number would be one to the array.
#[test]
fn a_removed_spare_whose_number_went_to_another_is_out_of_date() {
    for events in [10, 19] {
        let mut candidates = raid5(2, 20);
        candidates[3].superblock.events = events;
        candidates[4].superblock.dev_number = 3;
        let assembly = assemble(candidates).unwrap();
        let stale = Reason::Stale { events, freshest: 20 };
        assert_eq!(assembly.left_out, [left_out(3, stale)]);
        assert_eq!(assembly.start.members.len(), 4);
    }
}

/// The newest superblocks cannot grow beyond what the parser takes, however often they are updated.
#[test]
fn an_array_that_starts_has_room_for_more_updates_than_it_can_make() {
    let most = EVENTS_MAX / 2;
    assert_eq!(outcome(raid5(0, most), &Options::default()), Ok((3, vec![])));
    let refused = outcome(raid5(0, most + 1), &Options::default());
    assert!(matches!(refused, Err(Refusal::TooManyUpdates { .. })), "{refused:?}");
    // A hundred thousand updates a second, for a hundred thousand years.
    let updates = 100_000 * 100_000 * 366 * 86_400;
    let mut last = raid5(0, most).remove(0).superblock;
    last.events += updates;
    assert_eq!(last.validate(1024), Ok(()));
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
pub(super) type Change = fn(&mut Vec<Candidate>);

pub(super) fn all(candidates: &mut [Candidate], change: impl Fn(&mut Superblock)) {
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
    let table: [(&str, Change, Outcome); 15] = [
        ("all is well", |_| (), Ok((3, vec![]))),
        (
            "one counts more updates than an array can have",
            |c| c[2].superblock.events = EVENTS_MAX,
            Err(Refusal::TooManyUpdates { member: "disk2".to_owned(), events: EVENTS_MAX }),
        ),
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
            "disagrees with disk0 about the array's chunk size",
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

/// The array went on without it, and may have been changed by md meanwhile.
#[test]
fn a_member_that_is_out_of_date_may_disagree_about_anything() {
    let changes: [fn(&mut Superblock); 4] = [
        |superblock| superblock.size_sectors -= 16,
        |superblock| superblock.layout = 0,
        |superblock| superblock.chunk_sectors = 32,
        |superblock| superblock.raid_disks = 4,
    ];
    for change in changes {
        let mut candidates = raid5(0, 10);
        all(&mut candidates[1..], |superblock| superblock.roles[0] = Role::Faulty);
        candidates[0].superblock.events = 4;
        change(&mut candidates[0].superblock);
        assert_eq!(
            outcome(candidates, &Options::default()),
            Ok((2, vec![left_out(0, Reason::Faulty)]))
        );
    }
}

/// It is not used, so nothing of it has to be handled: the array may have given up since what it still has.
#[test]
fn a_member_that_is_out_of_date_may_have_what_is_not_handled() {
    let unhandled: [fn(&mut Candidate); 4] = [
        |candidate| candidate.superblock.features |= Features::JOURNAL,
        |candidate| candidate.superblock.features = Features::from_bits(1 << 20),
        |candidate| candidate.bad_blocks = Err("no".into()),
        |candidate| {
            let error = BitmapError::Version { version: 5, name: "clustered" };
            candidate.bitmap = FoundBitmap::Refused(error);
        },
    ];
    for change in unhandled {
        let mut candidates = raid5(0, 20);
        change(&mut candidates[1]);
        assert!(assemble(candidates.clone()).is_err());
        candidates[1].superblock.events = 15;
        let stale = Reason::Stale { events: 15, freshest: 20 };
        assert_eq!(assemble(candidates.clone()).unwrap().left_out, [left_out(1, stale)]);
        candidates[1].superblock.events = 20;
        for survivor in [0, 2] {
            candidates[survivor].superblock.roles[1] = Role::Faulty;
            candidates[survivor].superblock.events = 21;
        }
        let faulty = left_out(1, Reason::Faulty);
        assert_eq!(assemble(candidates).unwrap().left_out, [faulty]);
    }
    let mut candidates = raid5(1, 20);
    let journal = &mut candidates[3].superblock;
    (journal.events, journal.roles[3]) = (15, Role::Journal);
    journal.features |= Features::JOURNAL;
    let stale = Reason::Stale { events: 15, freshest: 20 };
    assert_eq!(assemble(candidates).unwrap().left_out, [left_out(3, stale)]);
}

/// The array has no need of it, however old or new it is, and may have been changed while it was away.
#[test]
fn a_spare_that_cannot_be_used_is_left_out() {
    let changes: [fn(&mut Candidate); 7] = [
        |candidate| candidate.superblock.features = Features::from_bits(1 << 20),
        |candidate| candidate.bad_blocks = Err("no".into()),
        |candidate| {
            let error = BitmapError::Version { version: 5, name: "clustered" };
            candidate.bitmap = FoundBitmap::Refused(error);
        },
        |candidate| candidate.superblock.size_sectors -= 16,
        |candidate| candidate.superblock.chunk_sectors = 32,
        |candidate| candidate.superblock.raid_disks = 2,
        |candidate| candidate.superblock.layout = 0,
    ];
    for (change, events) in changes.into_iter().flat_map(|change| [(change, 5), (change, 20)]) {
        let mut candidates = raid5(1, 20);
        candidates[3].superblock.events = events;
        change(&mut candidates[3]);
        let found = assemble(candidates).unwrap();
        assert_eq!(found.start.members.len(), 3);
        let [LeftOut { member, reason: Reason::Unreadable(_) }] = &found.left_out[..] else {
            panic!("{:?}", found.left_out);
        };
        assert_eq!(member, "disk3");
    }
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
    let refused = outcome(raid5(0, 10), &nobody);
    assert!(matches!(refused, Err(Refusal::NoneOfIt { .. })), "{refused:?}");
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

#[test]
fn the_bad_block_log_counts_sectors_of_the_device() {
    let mut members = raid5(0, 1);
    let data = members[0].superblock.data_offset_sectors;
    let mut listed = BadBlocks::new();
    listed.add(data - 4..data + 4);
    listed.add(data + 100..data + 108);
    let bytes = listed.encode(8, 0).expect("there is room");
    members[0].bad_blocks = Ok(BadBlockLog::parse(&bytes, 0).expect("a log"));
    let assembly = assemble(members).expect("it starts");
    let listed: Vec<_> = assembly.start.members[0].listed().iter().collect();
    assert_eq!(listed, [0..4, 100..108]);
}

/// The spare has seen that disk1 failed. Either that update never reached a member, or disk2, which is
/// missing, has it and went on.
#[test]
fn what_only_a_spare_has_seen_counts_where_a_member_that_may_have_it_is_missing() {
    let after_a_failure = || {
        let mut candidates = raid5(1, 10);
        candidates[3].superblock.events = 11;
        candidates[3].superblock.roles[1] = Role::Faulty;
        candidates
    };
    let without_disk2 = || {
        let mut candidates = after_a_failure();
        candidates.remove(2);
        candidates
    };
    let run = Options { run: true, ..Options::default() };
    let force = Options { force: true, ..Options::default() };
    assert!(outcome(after_a_failure(), &run).is_ok());
    let refused = Refusal::WentOnElsewhere { spare: "disk3".into() };
    assert_eq!(outcome(without_disk2(), &run), Err(refused));
    assert!(outcome(without_disk2(), &force).is_ok());
}

/// The array was about to fill disk3, and only disk4, a spare as well, has seen it.
#[test]
fn an_update_that_only_a_spare_has_seen_counts_on_no_one_who_is_here() {
    let mut candidates = raid5(2, 10);
    candidates.remove(1);
    for candidate in &mut candidates {
        candidate.superblock.roles[1] = Role::Faulty;
    }
    let spare = &mut candidates[3].superblock;
    (spare.events, spare.roles[3]) = (11, Role::Slot(1));
    let run = Options { run: true, ..Options::default() };
    assert!(outcome(candidates.clone(), &run).is_ok());
    // Another disk had that number once.
    candidates[2].superblock.events = 9;
    let refused = Refusal::WentOnElsewhere { spare: "disk4".into() };
    assert_eq!(outcome(candidates, &run), Err(refused));
}

#[test]
fn blocks_that_some_io_would_cut_are_refused() {
    let cases: [(Change, &str); 4] = [
        (
            |c| {
                c[1].info.logical_block_bytes = 4096;
                c[1].superblock.data_offset_sectors += 1;
            },
            "disk1: its data begin inside",
        ),
        (|c| all(c, |sb| sb.logical_block_size_bytes = 1 << 14), "a chunk of 16 sectors"),
        (|c| all(c, |sb| sb.logical_block_size_bytes = 1 << 17), "131072 bytes is not served"),
        (|c| all(c, |sb| sb.logical_block_size_bytes = u32::MAX), "4294967295 bytes is not"),
    ];
    for (change, expected) in cases {
        let mut candidates = raid5(0, 10);
        change(&mut candidates);
        let refusal = assemble(candidates).unwrap_err().to_string();
        assert!(refusal.contains(expected), "{refusal}, not {expected}");
    }
    let mut candidates = raid5(0, 10);
    candidates[1].info.logical_block_bytes = 4096;
    assemble(candidates).unwrap();
}

/// The logical block in which an array is served, and by how many members.
fn served(candidates: Vec<Candidate>) -> (u32, usize) {
    let run = Options { run: true, ..Options::default() };
    let started = decide(candidates, &run).unwrap().start;
    (started.block_bytes, started.members.len())
}

/// It was made with one such disk. That one is out of date now, and is to come back.
#[test]
fn the_blocks_of_a_member_that_is_out_of_date_are_those_of_the_array() {
    let mut candidates = raid5(0, 10);
    candidates[2].info.logical_block_bytes = 4096;
    candidates[2].superblock.events -= 5;
    assert_eq!(served(candidates), (4096, 2));
}

/// It failed long ago, and is behind a bridge now that shows larger blocks. Users find the blocks that they know.
#[test]
fn the_blocks_of_a_member_that_is_out_for_good_are_not_counted() {
    let mut candidates = raid5(0, 10);
    candidates[2].info.logical_block_bytes = 4096;
    candidates[2].superblock.events -= 5;
    for member in &mut candidates[..2] {
        member.superblock.roles[2] = Role::Faulty;
    }
    assert_eq!(served(candidates), (512, 2));
}

/// Another disk, out of date, with the role of a member and larger blocks.
fn old_disk_like(member: &Candidate) -> Candidate {
    let mut old = member.clone();
    old.id.index = 9;
    old.info.logical_block_bytes = 4096;
    old.superblock.device_uuid = Uuid([9; 16]);
    old.superblock.events -= 5;
    old
}

/// Its own superblock says spare. The others know that it failed.
#[test]
fn the_blocks_of_a_spare_that_failed_are_not_counted() {
    let mut candidates = raid5(0, 10);
    let mut spare = old_disk_like(&candidates[0]);
    spare.superblock.dev_number = spare.superblock.roles.len() as u32;
    for member in &mut candidates {
        member.superblock.roles.push(Role::Faulty);
    }
    spare.superblock.roles.push(Role::Spare);
    candidates.push(spare);
    assert_eq!(served(candidates), (512, 3));
}

/// Another one got its number after it went.
#[test]
fn the_blocks_of_a_member_whose_number_went_to_another_are_not_counted() {
    let mut candidates = raid5(0, 10);
    candidates.push(old_disk_like(&candidates[2]));
    assert_eq!(served(candidates), (512, 3));
}

/// Its blocks are larger than a chunk.
#[test]
fn a_member_out_of_date_whose_blocks_do_not_fit_keeps_nothing_from_starting() {
    let mut candidates = raid5(0, 10);
    candidates[2].info.logical_block_bytes = 1 << 14;
    candidates[2].superblock.events -= 5;
    assert_eq!(served(candidates.clone()), (512, 2));
    candidates[2].superblock.events += 5;
    let run = Options { run: true, ..Options::default() };
    assert!(decide(candidates, &run).unwrap_err().to_string().contains("a chunk of 16 sectors"));
}

//! Histories of mirrors, told by the superblocks that they leave.

use mdspace_format::{Level, Role};

use super::super::tests::array;
use super::super::{Assembly, Candidate, Decided, Options, Refusal, decide};

/// What one member says: its number, its events, and who is in which slot, as number and slot.
type Says<'a> = (u32, u64, &'a [(usize, u16)]);

/// Members of a mirror with `slots` slots; each is a device of its own, whatever its number.
fn mirror(slots: u16, members: &[Says<'_>]) -> Vec<Candidate> {
    members_of(array((Level::Raid1, 0, 0), slots, members.len(), 10), members)
}

fn members_of(mut candidates: Vec<Candidate>, members: &[Says<'_>]) -> Vec<Candidate> {
    candidates.truncate(members.len());
    for (candidate, (number, events, slots)) in candidates.iter_mut().zip(members) {
        let superblock = &mut candidate.superblock;
        (superblock.dev_number, superblock.events) = (*number, *events);
        superblock.recovery_offset_sectors = None;
        superblock.roles = vec![Role::Faulty; 8];
        slots.iter().for_each(|&(number, slot)| superblock.roles[number] = Role::Slot(slot));
    }
    candidates
}

/// The disks that serve, by the order in which they were told of.
fn serving(assembly: &Assembly) -> Vec<usize> {
    let slots = assembly.start.members.iter().filter(|m| m.superblock.own_role().slot().is_some());
    let names = slots.map(|member| member.info.name.trim_start_matches("disk").parse().unwrap());
    let mut serving: Vec<usize> = names.collect();
    serving.sort_unstable();
    serving
}

fn start(candidates: Vec<Candidate>) -> Result<Vec<usize>, Refusal> {
    decide(candidates, &Options { run: true, ..Options::default() }).map(|start| serving(&start))
}

fn is_split(candidates: Vec<Candidate>) -> bool {
    matches!(start(candidates), Err(Refusal::SplitBrain { .. }))
}

#[test]
fn members_replaced_one_after_another_are_no_halves() {
    // 0 and 1; 1 was replaced by 2, then 0 by 3: nobody is left who knew the first two together.
    let history: [Says<'_>; 4] = [
        (0, 30, &[(0, 0), (2, 1)]),
        (1, 20, &[(0, 0), (1, 1)]),
        (2, 40, &[(2, 1), (3, 0)]),
        (3, 40, &[(2, 1), (3, 0)]),
    ];
    assert_eq!(start(mirror(2, &history)), Ok(vec![2, 3]));
    assert_eq!(start(mirror(2, &history[..2])), Ok(vec![0]));
    // Without the one in between nothing tells that it was there, and nothing that it was not.
    assert_eq!(start(mirror(2, &[history[0], (3, 60, &[(3, 0)])])), Ok(vec![1]));
}

#[test]
fn a_failed_member_that_came_back_before_the_other_failed_is_no_half() {
    let history: [Says<'_>; 3] =
        [(0, 20, &[(0, 0), (2, 2)]), (1, 40, &[(1, 1)]), (2, 30, &[(1, 1), (2, 2)])];
    assert_eq!(start(mirror(3, &history)), Ok(vec![1]));
}

#[test]
fn halves_that_ran_alone_are_refused_whatever_their_events() {
    for events in [11, 12, 13, 20, 21, 90] {
        let halves: [Says<'_>; 2] = [(0, 20, &[(0, 0)]), (1, events, &[(1, 1)])];
        assert!(is_split(mirror(2, &halves)), "{events}");
    }
    // Two against one.
    let members: [Says<'_>; 3] =
        [(0, 20, &[(0, 0), (1, 1)]), (1, 20, &[(0, 0), (1, 1)]), (2, 30, &[(2, 2)])];
    assert!(is_split(mirror(3, &members)));
}

#[test]
fn halves_of_a_raid10_are_refused() {
    let (left, right): (&[_], &[_]) = (&[(0, 0), (2, 2)], &[(1, 1), (3, 3)]);
    let says = [(0, 20, left), (1, 25, right), (2, 20, left), (3, 25, right)];
    let raid10 = || array((Level::Raid10, 0x102, 16), 4, 0, 10);
    assert!(is_split(members_of(raid10(), &says)));
    // One of them is enough to tell: without the other it could not have gone on.
    assert!(is_split(members_of(raid10(), &[says[0], says[1], (3, 25, right)])));
}

#[test]
fn halves_that_each_took_a_new_member_of_the_same_number_are_refused() {
    for events in [19, 20, 21, 40] {
        let (left, right): (&[_], &[_]) = (&[(0, 0), (2, 1)], &[(2, 0), (1, 1)]);
        let halves = [(0, 20, left), (2, 20, left), (1, events, right), (2, events, right)];
        assert!(is_split(mirror(2, &halves)), "{events}");
        // Each got the number of the other's old member.
        let both: &[_] = &[(0, 0), (1, 1)];
        let halves = [(0, 20, both), (1, 20, both), (1, events, both), (0, events, both)];
        assert!(is_split(mirror(2, &halves)), "{events}");
    }
}

#[test]
fn an_update_that_one_member_got_alone_is_not_that_of_those_who_went_on_without_it() {
    // Power failed when 0 had update 21 and the others had not; those went on without 0.
    let all: &[_] = &[(0, 0), (1, 1), (2, 2)];
    let two: &[_] = &[(1, 1), (2, 2)];
    for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0]] {
        let says = [(0, 21, all), (1, 21, two), (2, 21, two)];
        let served = start(mirror(3, &order.map(|index| says[index]))).unwrap();
        assert!(
            !served.contains(&order.iter().position(|&index| index == 0).unwrap()),
            "{order:?}"
        );
    }
    // Or they did not go on yet: then all are as good.
    let says = [(0, 21, all), (1, 20, all), (2, 20, all)];
    assert_eq!(start(mirror(3, &says)), Ok(vec![0, 1, 2]));
}

/// Power failed when 3, which is new in slot 2, had update 21 alone; the others went on without it, and a crash tore a
/// write of theirs. It came in by an update that says clean.
#[test]
fn a_newcomer_does_not_say_what_became_of_those_who_went_on_without_it() {
    let (with, without): (&[_], &[_]) = (&[(0, 0), (1, 1), (3, 2)], &[(0, 0), (1, 1)]);
    let (raid5, mirror) = ((Level::Raid5, 2, 16), (Level::Raid1, 0, 0));
    let new = (3, 21, with);
    let begin = |level, others: &[Says<'_>]| {
        let says: Vec<Says<'_>> = std::iter::once(new).chain(others.iter().copied()).collect();
        let mut candidates = members_of(array(level, 3, 1, 10), &says);
        candidates[0].superblock.recovery_offset_sectors = Some(0);
        for other in &mut candidates[1..] {
            other.superblock.resync_offset_sectors = 0;
        }
        candidates
    };
    let went_on = [(0, 21, without), (1, 21, without)];
    let force = Options { force: true, ..Options::default() };
    assert_eq!(start(begin(raid5, &went_on)), Err(Refusal::DirtyDegraded));
    assert_eq!(decide(begin(raid5, &went_on), &force).map(|start| serving(&start)), Ok(vec![1, 2]));
    // Those of the others that call each other faulty are halves, whoever else knows both.
    let halves = [(0, 21, &with[..1]), (1, 21, &without[1..])];
    assert!(is_split(begin(mirror, &halves)));
    // Or they did not go on yet: it alone has heard of its slot.
    let mut candidates = begin(raid5, &[(0, 20, without), (1, 20, without)]);
    for other in &mut candidates {
        other.superblock.resync_offset_sectors = mdspace_format::superblock::RESYNC_NONE;
    }
    assert_eq!(start(candidates), Ok(vec![0, 1, 2]));
}

/// 3 was to take slot 0 over from 0, and its superblock said so when it had been given up for it. Slot 2 is missing.
#[test]
fn a_hand_over_that_came_to_nothing_makes_no_halves() {
    let raid5 = || array((Level::Raid5, 2, 16), 3, 4, 10);
    let both: &[_] = &[(0, 0), (3, 0), (1, 1)];
    let (old, new): (&[_], &[_]) = (&[(0, 0), (1, 1)], &[(3, 0), (1, 1)]);
    let serve = |says: &[Says<'_>], options: Options| {
        decide(members_of(raid5(), says), &options).map(|start| serving(&start))
    };
    let run = || Options { run: true, ..Options::default() };
    // Power failed before 1 heard that 3 is out, or after.
    for (events, knows) in [(21, both), (22, old)] {
        let says = [(0, 22, old), (1, events, knows), (3, 21, new)];
        assert_eq!(serve(&says, run()), Ok(vec![0, 1]), "{events}");
    }
    // Those who ran with 3 know it.
    let says = [(0, 22, old), (1, 21, new), (3, 21, new)];
    assert!(matches!(serve(&says, run()), Err(Refusal::SplitBrain { .. })));
    // Nor does one who never heard of 3 tell what became of it.
    let says = [(0, 22, old), (1, 21, old), (3, 21, new)];
    assert!(matches!(serve(&says, run()), Err(Refusal::SplitBrain { .. })));
    let options = Options { prefer: Some("disk0".to_owned()), ..run() };
    assert_eq!(serve(&says, options), Ok(vec![0, 1]));
}

#[test]
fn the_preferred_half_takes_nothing_of_the_other() {
    let (left, right): (&[_], &[_]) = (&[(0, 0), (2, 1)], &[(2, 0), (1, 1)]);
    let halves = [(0, 20, left), (2, 20, left), (1, 40, right), (2, 40, right)];
    for (disk, half) in [(0, [0, 1]), (1, [0, 1]), (2, [2, 3]), (3, [2, 3])] {
        let options = Options { prefer: Some(format!("disk{disk}")), ..Options::default() };
        let start = decide(mirror(2, &halves), &options).unwrap();
        assert_eq!(serving(&start), half, "{disk}");
    }
}

/// What it told then is all that is known of the decision.
#[test]
fn a_half_that_was_decided_against_stays_out_as_long_as_it_is_as_it_was() {
    let (left, right): (&[_], &[_]) = (&[(0, 0), (2, 1)], &[(2, 0), (1, 1)]);
    let halves = |right_events| {
        let of_right = |number| (number, right_events, right);
        mirror(2, &[(0, 40, left), (2, 40, left), of_right(1), of_right(2)])
    };
    let prefer = |disk: &str| Options { prefer: Some(disk.to_owned()), ..Options::default() };
    let decided = decide(halves(20), &prefer("disk0")).unwrap().decided;
    let went_on: Vec<bool> = decided.iter().map(|one| one.went_on).collect();
    assert_eq!(went_on, [true, true, false, false]);
    let remembering = Options { decided: decided.clone(), ..Options::default() };
    let start = decide(halves(20), &remembering).unwrap();
    assert_eq!((serving(&start), start.decided), (vec![0, 1], decided.clone()));
    let went_on = decide(halves(22), &remembering).unwrap_err();
    assert!(matches!(went_on, Refusal::SplitBrain { .. }), "{went_on}");
    let alone = halves(20).split_off(2);
    let refused = decide(alone.clone(), &remembering).unwrap_err();
    assert_eq!(refused, Refusal::Rejected { member: "disk2".to_owned() });
    // The operator decides anew.
    let anew = Options { decided, ..prefer("disk2") };
    assert_eq!(serving(&decide(alone, &anew).unwrap()), [2, 3]);
    assert_eq!(decide(halves(20), &anew).unwrap().decided.len(), 4);
}

/// Each member of the half that went on has been exchanged since.
#[test]
fn an_array_goes_on_beside_what_was_decided_against_with_members_that_came_later() {
    let (left, right): (&[_], &[_]) = (&[(0, 0), (2, 1)], &[(2, 0), (1, 1)]);
    // The last one has come since, as the process adds it to what it remembers, and the first two are gone.
    let later: &[_] = &[(4, 0)];
    let of_left = [(0, 40, left), (2, 40, left)];
    let says = [of_left[0], of_left[1], (1, 20, right), (2, 20, right), (4, 60, later)];
    let mut all = mirror(2, &says);
    let newcomer = all[4].superblock.device_uuid;
    let now = all.split_off(2);
    all.extend(now[..2].iter().cloned());
    let prefer = Options { prefer: Some("disk0".to_owned()), ..Options::default() };
    let mut decided = decide(all, &prefer).unwrap().decided;
    let run = |decided: &[Decided]| {
        let options = Options { run: true, decided: decided.to_vec(), ..Options::default() };
        decide(now.clone(), &options)
    };
    assert!(matches!(run(&decided).unwrap_err(), Refusal::Rejected { .. }));
    decided.push(Decided { device: newcomer, went_on: true, ..decided[0] });
    let start = run(&decided).unwrap();
    assert_eq!(serving(&start), [4]);
    // It stays so at the starts after that.
    assert_eq!(start.decided.len(), decided.len());
    assert_eq!(serving(&run(&start.decided).unwrap()), [4]);
}

/// Decides about some of these members, degraded or not.
fn run_on(
    all: &[Candidate],
    disks: &[usize],
    prefer: Option<&str>,
    decided: &[Decided],
) -> Result<Assembly, Refusal> {
    let candidates = disks.iter().map(|disk| all[*disk].clone()).collect();
    let (prefer, decided) = (prefer.map(str::to_owned), decided.to_vec());
    decide(candidates, &Options { run: true, prefer, decided, ..Options::default() })
}

/// A third part is there again that an earlier word was against.
#[test]
fn a_new_word_forgets_no_earlier_one_about_others() {
    let parts: [&[_]; 3] = [&[(0, 0)], &[(1, 0)], &[(2, 0)]];
    let says: [Says<'_>; 3] = [(0, 40, parts[0]), (1, 20, parts[1]), (2, 30, parts[2])];
    let all = mirror(2, &says);
    let decide_on = |disks: &[usize], prefer: Option<&str>, decided: &[Decided]| {
        run_on(&all, disks, prefer, decided)
    };
    let first = decide_on(&[0, 1], Some("disk0"), &[]).unwrap().decided;
    let second = decide_on(&[0, 2], Some("disk0"), &first).unwrap().decided;
    assert_eq!(decide_on(&[0, 1, 2], None, &second).map(|start| serving(&start)), Ok(vec![0]));
    // One that stands alone goes on by the operator's word, and by itself from then on.
    let alone = decide_on(&[1], Some("disk1"), &second).unwrap().decided;
    assert_eq!(decide_on(&[1], None, &alone).map(|start| serving(&start)), Ok(vec![1]));
}

/// The operator says it at each start. All that were decided about are as they were.
#[test]
fn a_word_that_decides_nothing_forgets_no_earlier_one() {
    let (left, right): (&[_], &[_]) = (&[(0, 0), (2, 2)], &[(1, 1)]);
    let all = mirror(3, &[(0, 40, left), (1, 20, right), (2, 40, left)]);
    let decide_on = |disks: &[usize], prefer: Option<&str>, decided: &[Decided]| {
        run_on(&all, disks, prefer, decided)
    };
    let decided = decide_on(&[0, 1, 2], Some("disk0"), &[]).unwrap().decided;
    let decided = decide_on(&[0], Some("disk0"), &decided).unwrap().decided;
    assert_eq!(decide_on(&[1, 2], None, &decided).map(|start| serving(&start)), Ok(vec![2]));
}

/// It was not there when the operator decided: it is older than both halves, or a third one.
#[test]
fn a_member_about_which_nothing_was_decided_does_not_go_on_in_place_of_what_was() {
    let (all, left, right, third): (&[_], &[_], &[_], &[_]) =
        (&[(0, 0), (1, 1), (2, 2)], &[(0, 0)], &[(1, 1)], &[(2, 2)]);
    for (events, says) in [(10, all), (90, third)] {
        let members = || mirror(3, &[(0, 40, left), (1, 20, right), (2, events, says)]);
        let first = Options { prefer: Some("disk0".to_owned()), run: true, ..Options::default() };
        let two = members().into_iter().take(2).collect();
        let decided = decide(two, &first).unwrap().decided;
        let remembering = Options { decided, run: true, ..Options::default() };
        let rest = members().split_off(1);
        let refused = decide(rest, &remembering).map(|start| serving(&start)).unwrap_err();
        assert_eq!(refused, Refusal::Rejected { member: "disk1".to_owned() }, "{events}");
    }
}

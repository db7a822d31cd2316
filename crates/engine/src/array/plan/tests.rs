//! Every plan of every small row, carried out byte by byte with arithmetic that knows no tricks.
//!
//! A block is one unit of two bytes; a write changes both, or the first.

use super::*;

const COLUMNS: usize = 2;

/// What can be done with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Health {
    Good,
    /// Takes writes, but cannot be read: being rebuilt, or with unreadable sectors.
    Blind,
    Gone,
}

/// How far parity goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// It agrees with data.
    Full,
    /// Before the first resync: P and Q may disagree, each stands for data of its own.
    Initial,
    /// After a crash: it says nothing.
    None,
}

/// The bytes of a row as its members have them, and what its data are worth.
#[derive(Clone, Debug)]
struct Bytes {
    /// By place: data, P, Q.
    blocks: Vec<[u8; COLUMNS]>,
}

fn times(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b > 0 {
        if b & 1 == 1 {
            product ^= a;
        }
        a = if a & 0x80 > 0 { a << 1 ^ 0x1d } else { a << 1 };
        b >>= 1;
    }
    product
}

/// What a parity (0 is P, 1 is Q) multiplies a data block by.
fn factor(parity: usize, place: Place) -> u8 {
    match parity {
        0 => 1,
        _ => (0..place).fold(1, |power, _| times(power, 2)),
    }
}

fn parity_of(parity: usize, data: &[u8]) -> u8 {
    data.iter().enumerate().fold(0, |sum, (place, byte)| sum ^ times(factor(parity, place), *byte))
}

/// Every assignment of `choices` to `count` things.
fn every<T: Copy>(count: usize, choices: &[T]) -> Vec<Vec<T>> {
    (0..count).fold(vec![Vec::new()], |known, _| {
        let longer = |known: &Vec<T>| {
            let known = known.clone();
            choices.iter().map(move |choice| [known.clone(), vec![*choice]].concat())
        };
        known.iter().flat_map(longer).collect()
    })
}

/// What a write does to a data block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Nothing,
    Whole,
    Part,
}

fn touched(writes: &[Write]) -> Touched {
    let with = |wanted| (0..writes.len()).filter(|&place| writes[place] == wanted).collect();
    Touched { whole: with(Write::Whole), partly: with(Write::Part) }
}

/// One row in one state under one write.
struct Case {
    row: RowState,
    writes: Vec<Write>,
    trust: Trust,
    cached: Places,
}

impl Case {
    fn new(health: &[Health], trust: Trust, writes: &[Write]) -> Self {
        let with = |wanted: &dyn Fn(Health) -> bool| {
            (0..health.len()).filter(|&place| wanted(health[place])).collect()
        };
        let row = RowState {
            data_count: writes.len(),
            parity_count: health.len() - writes.len(),
            readable: with(&|health| health == Health::Good),
            writable: with(&|health| health != Health::Gone),
            any_late: false,
            parity_trusted: trust == Trust::Full,
            parity_usable: trust != Trust::None,
        };
        Self { row, writes: writes.to_vec(), trust, cached: Places::default() }
    }

    fn plan(&self, rmw: RmwLevel) -> Option<WritePlan> {
        write(&self.row, &touched(&self.writes), &self.cached, rmw)
    }

    fn is_new(&self, place: Place, column: usize) -> bool {
        match self.writes[place] {
            Write::Nothing => false,
            Write::Whole => true,
            Write::Part => column == 0,
        }
    }

    fn unreadable(&self) -> usize {
        self.row.data_count + self.row.parity_count - self.row.readable.count()
    }

    /// Members' bytes before the write: data at random, parity as far as it is trusted.
    fn before(&self, random: &mut impl FnMut() -> u8) -> Bytes {
        let places = self.row.data_count + self.row.parity_count;
        let blocks = (0..places).map(|_| std::array::from_fn(|_| random()));
        let mut bytes = Bytes { blocks: blocks.collect() };
        if self.trust == Trust::Full {
            for parity in 0..self.row.parity_count {
                for column in 0..COLUMNS {
                    let data = bytes.data(&self.row, column);
                    bytes.blocks[self.row.data_count + parity][column] = parity_of(parity, &data);
                }
            }
        }
        bytes
    }
}

impl Bytes {
    fn data(&self, row: &RowState, column: usize) -> Vec<u8> {
        self.blocks[..row.data_count].iter().map(|block| block[column]).collect()
    }
}

/// Carries out `plan` on members' bytes; gives what the row's data are worth then. Panics where the
/// plan needs a byte that it did not read.
fn carry_out(case: &Case, plan: &WritePlan, members: &mut Bytes, fresh: &[u8]) -> Bytes {
    let row = &case.row;
    let mut worth = members.clone();
    let mut after = members.clone();
    for column in 0..COLUMNS {
        let read = |place: Place| {
            (plan.reads.has(place) || case.cached.has(place)).then(|| members.blocks[place][column])
        };
        let new =
            |place: Place| case.is_new(place, column).then(|| fresh[place * COLUMNS + column]);
        let (data, parity): (Vec<u8>, Vec<u8>) = match plan.method {
            Method::ReadModify => modify(case, &read, &new, worth.data(row, column)),
            Method::Reconstruct | Method::Recover => rewrite(case, plan, &read, &new),
            Method::DataOnly => {
                (write_data(case, &read, &new, worth.data(row, column)), Vec::new())
            }
        };
        for (place, byte) in data.into_iter().enumerate() {
            worth.blocks[place][column] = byte;
            if case.writes[place] != Write::Nothing && row.writable.has(place) {
                after.blocks[place][column] = byte;
            }
        }
        for place in row.parities().filter(|&place| row.writable.has(place)) {
            after.blocks[place][column] = parity[place - row.data_count];
        }
    }
    *members = after;
    worth
}

type Lookup<'a> = &'a dyn Fn(Place) -> Option<u8>;

/// Old parity and the change; the data that nobody touched are worth what they were.
fn modify(
    case: &Case,
    read: Lookup<'_>,
    fresh: Lookup<'_>,
    mut data: Vec<u8>,
) -> (Vec<u8>, Vec<u8>) {
    let row = &case.row;
    let kept = row.parities().map(|place| match row.writable.has(place) {
        true => read(place).expect("the old parity was read"),
        false => 0,
    });
    let mut parity: Vec<u8> = kept.collect();
    for place in (0..row.data_count).filter(|&place| case.writes[place] != Write::Nothing) {
        let old = read(place).expect("the old block was read");
        let byte = fresh(place).unwrap_or(old);
        for (index, parity) in parity.iter_mut().enumerate() {
            *parity ^= times(factor(index, place), old ^ byte);
        }
        data[place] = byte;
    }
    (data, parity)
}

/// What is new, and the rest of its units.
fn write_data(case: &Case, read: Lookup<'_>, fresh: Lookup<'_>, mut data: Vec<u8>) -> Vec<u8> {
    for place in (0..case.row.data_count).filter(|&place| case.writes[place] != Write::Nothing) {
        data[place] = fresh(place).or(read(place)).expect("the old block was read");
    }
    data
}

/// Parity from all data, lost ones computed first.
fn rewrite(
    case: &Case,
    plan: &WritePlan,
    read: Lookup<'_>,
    fresh: Lookup<'_>,
) -> (Vec<u8>, Vec<u8>) {
    let row = &case.row;
    let mut old: Vec<Option<u8>> = (0..row.data_count).map(read).collect();
    if plan.method == Method::Recover {
        let parity =
            row.parities().filter_map(|place| Some((place - row.data_count, read(place)?)));
        solve(&mut old, &parity.collect::<Vec<_>>());
    }
    let known = |(place, old): (Place, Option<u8>)| {
        fresh(place).or(old).expect("every byte of the row was read or is new")
    };
    let data: Vec<u8> = old.into_iter().enumerate().map(known).collect();
    let parity = (0..row.parity_count).map(|parity| parity_of(parity, &data)).collect();
    (data, parity)
}

/// Finds the unknown bytes by trying all values.
fn solve(data: &mut [Option<u8>], parity: &[(usize, u8)]) {
    let lost: Vec<usize> = (0..data.len()).filter(|&place| data[place].is_none()).collect();
    assert!(lost.len() <= parity.len(), "a plan reads as much parity as blocks are lost");
    let fits = |values: &[u8]| {
        let mut guess: Vec<u8> = data.iter().map(|byte| byte.unwrap_or(0)).collect();
        lost.iter().zip(values).for_each(|(&place, value)| guess[place] = *value);
        parity.iter().all(|&(index, byte)| parity_of(index, &guess) == byte)
    };
    let found = match lost.len() {
        0 => vec![],
        1 => (0..=255).map(|a| vec![a]).find(|guess| fits(guess)).expect("a solution"),
        _ => {
            let (first, second) = (parity[0].1, &lost);
            // P gives the second from the first: 256 guesses, not 65536.
            let rest = data.iter().flatten().fold(first, |sum, byte| sum ^ byte);
            assert_eq!((parity[0].0, second.len()), (0, 2));
            (0..=255).map(|a| vec![a, a ^ rest]).find(|guess| fits(guess)).expect("a solution")
        }
    };
    lost.into_iter().zip(found).for_each(|(place, value)| data[place] = Some(value));
}

/// After a write: members hold the data that they should, and every parity that is there agrees.
fn check(case: &Case, before: &Bytes, members: &Bytes, worth: &Bytes, fresh: &[u8]) {
    let row = &case.row;
    for column in 0..COLUMNS {
        for place in 0..row.data_count {
            let is_new = case.is_new(place, column);
            let (old, now) = (before.blocks[place][column], members.blocks[place][column]);
            match () {
                () if is_new && row.writable.has(place) => {
                    assert_eq!(now, fresh[place * COLUMNS + column]);
                }
                // The rest of a unit is written back as it was worth.
                () if case.writes[place] == Write::Part && row.writable.has(place) => {
                    let blind = !row.readable.has(place);
                    assert_eq!(now, if blind { worth.blocks[place][column] } else { old });
                    assert!(case.trust != Trust::Full || now == old);
                }
                () => assert_eq!(now, old, "untouched"),
            }
            if case.trust == Trust::Full && !is_new {
                assert_eq!(worth.blocks[place][column], old, "no data changed their worth");
            }
        }
        for place in row.parities() {
            let now = members.blocks[place][column];
            if row.writable.has(place) {
                let index = place - row.data_count;
                assert_eq!(
                    now,
                    parity_of(index, &worth.data(row, column)),
                    "parity {index} agrees"
                );
            } else {
                assert_eq!(now, before.blocks[place][column], "untouched");
            }
        }
    }
}

/// Blocks that each method would read, by the book.
fn price(case: &Case, method: Method) -> Option<usize> {
    let row = &case.row;
    let readable = |place: Place| row.readable.has(place);
    let has_parity = row.parities().any(|place| row.writable.has(place));
    if has_parity == (method == Method::DataOnly) {
        return None;
    }
    let count = |wanted: &dyn Fn(Write) -> bool| -> Option<usize> {
        let places = || (0..row.data_count).filter(|&place| wanted(case.writes[place]));
        places().all(readable).then(|| places().count())
    };
    match method {
        Method::ReadModify => {
            let kept: Vec<_> = row.parities().filter(|&place| row.writable.has(place)).collect();
            let old = count(&|write| write != Write::Nothing)?;
            let usable = row.parity_trusted && kept.iter().all(|&place| readable(place));
            usable.then_some(old + kept.len())
        }
        Method::Reconstruct => count(&|write| write != Write::Whole),
        Method::DataOnly => count(&|write| write == Write::Part),
        Method::Recover => {
            let lost = (0..row.data_count).filter(|&place| !readable(place)).count();
            let parity = row.parities().filter(|&place| readable(place)).count();
            let possible = lost == 0 || row.parity_usable && lost <= parity;
            possible.then_some(row.data_count)
        }
    }
}

fn random_bytes() -> impl FnMut() -> u8 {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    }
}

const METHODS: [Method; 4] =
    [Method::ReadModify, Method::Reconstruct, Method::Recover, Method::DataOnly];
const LEVELS: [RmwLevel; 3] = [RmwLevel::Never, RmwLevel::FewerReads, RmwLevel::Preferred];

/// Judges the plan of one case; says whether there was one.
fn judge(case: &Case, rmw: RmwLevel, random: &mut impl FnMut() -> u8) -> bool {
    let before = case.before(random);
    let Some(plan) = case.plan(rmw) else {
        assert!(METHODS.iter().all(|method| price(case, *method).is_none()));
        assert!(
            case.trust == Trust::None || case.unreadable() > case.row.parity_count,
            "refused though the level bears it"
        );
        return false;
    };
    assert!(plan.reads.without(&case.row.readable).is_empty(), "only what is readable is read");
    let parity = plan.reads.iter().any(|place| place >= case.row.data_count);
    assert!(!parity || case.trust != Trust::None, "parity that says nothing is not read");
    judge_price(case, rmw, &plan);
    let fresh: Vec<u8> = (0..case.row.data_count * COLUMNS).map(|_| random()).collect();
    let mut members = before.clone();
    let worth = carry_out(case, &plan, &mut members, &fresh);
    check(case, &before, &members, &worth, &fresh);
    true
}

fn judge_price(case: &Case, rmw: RmwLevel, plan: &WritePlan) {
    let paid = plan.reads.count();
    assert_eq!(price(case, plan.method), Some(paid), "a method reads what it must");
    let modify = price(case, Method::ReadModify);
    let others = METHODS.iter().filter(|method| **method != Method::ReadModify);
    let other = others.filter_map(|&by| price(case, by)).min();
    let modifies = match (modify, other, rmw) {
        (None, ..) => false,
        (Some(_), None, _) => true,
        (Some(_), Some(_), RmwLevel::Never) => false,
        (Some(modify), Some(other), RmwLevel::FewerReads) => modify < other,
        (Some(modify), Some(other), RmwLevel::Preferred) => modify <= other,
    };
    assert_eq!(plan.method == Method::ReadModify, modifies, "as the level says");
    assert!(modifies || other == Some(paid), "no cheaper way is left out");
}

/// All states of all rows of so many blocks under all writes to them.
fn judge_all(data_count: usize, parity_count: usize, rmw: RmwLevel) -> usize {
    let mut random = random_bytes();
    let mut planned = 0;
    let states = every(data_count + parity_count, &[Health::Good, Health::Blind, Health::Gone]);
    for writes in every(data_count, &[Write::Nothing, Write::Whole, Write::Part]) {
        if writes.iter().all(|write| *write == Write::Nothing) {
            continue;
        }
        for health in &states {
            for trust in [Trust::Full, Trust::Initial, Trust::None] {
                let case = Case::new(health, trust, &writes);
                let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    judge(&case, rmw, &mut random)
                }));
                match judged {
                    Ok(found) => planned += usize::from(found),
                    Err(cause) => {
                        eprintln!("{health:?}, {trust:?}, {writes:?}, {rmw:?}");
                        std::panic::resume_unwind(cause);
                    }
                }
            }
        }
    }
    planned
}

#[test]
fn every_plan_of_a_small_row_leaves_data_and_parity_right() {
    for rmw in LEVELS {
        for (data_count, parity_count) in [(1, 1), (2, 1), (3, 1), (4, 1), (2, 2), (3, 2), (4, 2)] {
            let planned = judge_all(data_count, parity_count, rmw);
            assert!(planned > 20, "{planned}");
        }
    }
}

#[test]
fn what_is_cached_is_not_read_and_changes_what_is_cheapest() {
    let plan = |cached: &[Place], writes: &[Write], blind: &[Place]| {
        let mut case = Case::new(&[Health::Good; 6], Trust::Full, writes);
        blind.iter().for_each(|&place| case.row.readable.remove(place));
        case.cached = cached.iter().copied().collect();
        case.row.readable = case.row.readable.with(&case.cached);
        let plan = case.plan(RmwLevel::FewerReads).expect("nothing is lost");
        let (mut members, mut random) = (case.before(&mut random_bytes()), random_bytes());
        let (before, fresh) = (members.clone(), [0; 8].map(|_| random()));
        let worth = carry_out(&case, &plan, &mut members, &fresh);
        let blind: Places = blind.iter().copied().collect();
        if blind.is_empty() {
            check(&case, &before, &members, &worth, &fresh);
        }
        (plan.method, plan.reads.iter().collect::<Vec<_>>())
    };
    let one = one_of(4);
    assert_eq!(plan(&[], &one, &[]), (Method::Reconstruct, vec![1, 2, 3]));
    assert_eq!(plan(&[4, 5], &one, &[]), (Method::ReadModify, vec![0]));
    assert_eq!(plan(&[0, 4, 5], &one, &[]), (Method::ReadModify, vec![]));
    assert_eq!(plan(&[2, 3, 5], &one, &[]), (Method::Reconstruct, vec![1]));
    assert_eq!(plan(&[2], &one, &[2]), (Method::Reconstruct, vec![1, 3]), "lost, but known");
}

#[test]
#[should_panic(expected = "agrees")]
fn a_plan_that_trusts_wrong_parity_is_found_out() {
    let mut case = Case::new(&[Health::Good; 5], Trust::Initial, &one_of(4));
    case.row.parity_trusted = true;
    judge(&case, RmwLevel::default(), &mut random_bytes());
}

fn one_of(data_count: usize) -> Vec<Write> {
    let mut writes = vec![Write::Nothing; data_count];
    writes[0] = Write::Whole;
    writes
}

#[test]
fn the_level_says_which_writes_read_old_data_and_parity() {
    let method = |data_count: usize, level| {
        let case = Case::new(&vec![Health::Good; data_count + 2], Trust::Full, &one_of(data_count));
        case.plan(level).expect("nothing is lost").method
    };
    let [rewrite, modify] = [Method::Reconstruct, Method::ReadModify];
    assert_eq!(LEVELS.map(|level| method(3, level)), [rewrite; 3], "two to read or three");
    assert_eq!(LEVELS.map(|level| method(4, level)), [rewrite, rewrite, modify], "three or three");
    assert_eq!(LEVELS.map(|level| method(5, level)), [rewrite, modify, modify], "four or three");
}

#[test]
fn what_is_rebuilt_is_not_read() {
    let reads_of = |row: &RowState, wanted: &[Place]| {
        let wanted = wanted.iter().copied().collect();
        rebuild_reads(row, &wanted).map(|places| places.iter().collect::<Vec<_>>())
    };
    let reads = |row: &RowState, wanted| reads_of(row, &[wanted]);
    let mut row = Case::new(&[Health::Good; 5], Trust::Full, &one_of(3)).row;
    assert_eq!(reads(&row, 1), Some(vec![0, 2, 3]));
    assert_eq!(reads_of(&row, &[0, 1]), Some(vec![2, 3, 4]));
    assert_eq!(reads_of(&row, &[1, 3]), Some(vec![0, 2, 4]), "two at once, from Q");
    assert_eq!(reads_of(&row, &[3, 4]), Some(vec![0, 1, 2]), "both parities from all data");
    assert_eq!(reads_of(&row, &[0, 1, 3]), None);
    assert_eq!(reads(&row, 3), Some(vec![0, 1, 2]));
    row.readable.remove(0);
    assert_eq!(reads(&row, 1), Some(vec![2, 3, 4]));
    assert_eq!(reads(&row, 4), Some(vec![1, 2, 3]), "Q from P and what is left");
    row.readable.remove(3);
    assert_eq!(reads(&row, 1), None);
    assert_eq!(reads(&row, 3), Some(vec![1, 2, 4]), "P from Q and what is left");
    row.parity_usable = false;
    assert_eq!(reads(&row, 3), None);
}

#[test]
fn places_beyond_the_first_word_are_places_too() {
    let mut places = Places::first(130);
    assert_eq!(places.count(), 130);
    assert!(places.has(129) && !places.has(130));
    places.insert(255);
    places.remove(64);
    assert!(places.has(255) && !places.has(64) && places.has(65));
    assert_eq!(places.count(), 130);
    let far = places.without(&Places::first(128));
    assert_eq!(far.iter().collect::<Vec<_>>(), [128, 129, 255]);
    assert_eq!(far.with(&Places::first(1)).iter().collect::<Vec<_>>(), [0, 128, 129, 255]);
}

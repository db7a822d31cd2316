//! Every plan of every small row, carried out byte by byte with arithmetic that knows no tricks.
//!
//! A block is [`COLUMNS`] bytes, one a column, in units of two columns.

use super::*;

const COLUMNS: u32 = 4;
const UNIT: u32 = 2;

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
    blocks: Vec<[u8; COLUMNS as usize]>,
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

/// The new data of a write; `shapes` has the columns of each data block, if it is written.
fn new_data(shapes: &[Option<(u32, u32)>]) -> Vec<NewData> {
    let written = shapes.iter().enumerate().filter_map(|(place, shape)| Some((place, (*shape)?)));
    let new = written.map(|(place, (start, end))| NewData {
        place,
        columns: start..end,
        units: start / UNIT * UNIT..end.next_multiple_of(UNIT),
    });
    new.collect()
}

fn claimed(new: &[NewData]) -> Columns {
    let start = new.iter().map(|new| new.units.start).min().unwrap();
    start..new.iter().map(|new| new.units.end).max().unwrap()
}

/// One row in one state under one write.
struct Case {
    row: RowState,
    columns: Columns,
    new: Vec<NewData>,
    trust: Trust,
}

impl Case {
    fn new(health: &[Health], data_count: usize, trust: Trust, new: Vec<NewData>) -> Self {
        let with = |wanted: &dyn Fn(Health) -> bool| {
            (0..health.len()).filter(|&place| wanted(health[place])).collect()
        };
        let row = RowState {
            data_count,
            parity_count: health.len() - data_count,
            readable: with(&|health| health == Health::Good),
            writable: with(&|health| health != Health::Gone),
            parity_trusted: trust == Trust::Full,
            parity_usable: trust != Trust::None,
        };
        Self { row, columns: claimed(&new), new, trust }
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
                for column in 0..COLUMNS as usize {
                    let data = bytes.data(&self.row, column);
                    bytes.blocks[self.row.p() + parity][column] = parity_of(parity, &data);
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
    let read = |place: Place, column: u32| {
        let covers = |span: &&Span| span.place == place && span.columns.contains(&column);
        let span = plan.reads.iter().find(covers);
        span.map(|_| members.blocks[place][column as usize])
    };
    let fresh_at = |place: Place, column: u32| {
        let new = case.new.iter().find(|new| new.place == place && new.columns.contains(&column));
        new.map(|_| fresh[place * COLUMNS as usize + column as usize])
    };
    let mut worth = members.clone();
    let mut after = members.clone();
    for column in case.columns.clone() {
        let at = column as usize;
        let (data, parity): (Vec<u8>, Vec<u8>) = match plan.method {
            Method::ReadModify => modify(case, column, &read, &fresh_at, &worth),
            Method::Reconstruct | Method::Recover => rewrite(case, plan, column, &read, &fresh_at),
        };
        for (place, byte) in data.into_iter().enumerate() {
            worth.blocks[place][at] = byte;
            let new = case.new.iter().find(|new| new.place == place);
            if new.is_some_and(|new| new.units.contains(&column)) && row.writable.has(place) {
                after.blocks[place][at] = byte;
            }
        }
        for place in row.parities().filter(|&place| row.writable.has(place)) {
            after.blocks[place][at] = parity[place - row.p()];
        }
    }
    *members = after;
    worth
}

type Lookup<'a> = &'a dyn Fn(Place, u32) -> Option<u8>;

/// Old parity and the change; the data that nobody touched are worth what they were.
fn modify(
    case: &Case,
    column: u32,
    read: Lookup<'_>,
    fresh: Lookup<'_>,
    worth: &Bytes,
) -> (Vec<u8>, Vec<u8>) {
    let row = &case.row;
    let mut data = worth.data(row, column as usize);
    let kept = row.parities().map(|place| match row.writable.has(place) {
        true => read(place, column).expect("the old parity was read"),
        false => 0,
    });
    let mut parity: Vec<u8> = kept.collect();
    for new in case.new.iter().filter(|new| new.units.contains(&column)) {
        let old = read(new.place, column).expect("the old block was read");
        let byte = fresh(new.place, column).unwrap_or(old);
        for (index, parity) in parity.iter_mut().enumerate() {
            *parity ^= times(factor(index, new.place), old ^ byte);
        }
        data[new.place] = byte;
    }
    (data, parity)
}

/// Parity from all data, lost ones computed first.
fn rewrite(
    case: &Case,
    plan: &WritePlan,
    column: u32,
    read: Lookup<'_>,
    fresh: Lookup<'_>,
) -> (Vec<u8>, Vec<u8>) {
    let row = &case.row;
    let mut old: Vec<Option<u8>> = (0..row.data_count).map(|place| read(place, column)).collect();
    if plan.method == Method::Recover {
        let parity =
            row.parities().filter_map(|place| Some((place - row.p(), read(place, column)?)));
        solve(&mut old, &parity.collect::<Vec<_>>());
    }
    let known = |(place, old): (Place, Option<u8>)| {
        fresh(place, column).or(old).expect("every byte of the row was read or is new")
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
        let at = column as usize;
        let claimed = case.columns.contains(&column);
        for place in 0..row.data_count {
            let new = case.new.iter().find(|new| new.place == place);
            let is_new = new.is_some_and(|new| new.columns.contains(&column));
            let in_unit = new.is_some_and(|new| new.units.contains(&column));
            let (old, now) = (before.blocks[place][at], members.blocks[place][at]);
            match () {
                () if is_new && row.writable.has(place) => {
                    assert_eq!(now, fresh[place * COLUMNS as usize + at]);
                }
                // The rest of a unit is written back as it was worth.
                () if in_unit && row.writable.has(place) => {
                    let blind = !row.readable.has(place);
                    assert_eq!(now, if blind { worth.blocks[place][at] } else { old });
                    assert!(case.trust != Trust::Full || now == old);
                }
                () => assert_eq!(now, old, "untouched"),
            }
            if case.trust == Trust::Full && !is_new {
                assert_eq!(worth.blocks[place][at], old, "no data changed their worth");
            }
        }
        for place in row.parities() {
            let now = members.blocks[place][at];
            if claimed && row.writable.has(place) {
                let index = place - row.p();
                assert_eq!(now, parity_of(index, &worth.data(row, at)), "parity {index} agrees");
            } else {
                assert_eq!(now, before.blocks[place][at], "untouched");
            }
        }
    }
}

/// Sectors that each method would read, by the book.
fn price(case: &Case, method: Method) -> Option<u64> {
    let row = &case.row;
    let length = |columns: &Columns| u64::from(columns.end - columns.start);
    let whole = length(&case.columns);
    match method {
        Method::ReadModify => {
            let kept: Vec<_> = row.parities().filter(|&place| row.writable.has(place)).collect();
            let old = case.new.iter().map(|new| new.place);
            let readable = old.chain(kept.iter().copied()).all(|place| row.readable.has(place));
            let blocks: u64 = case.new.iter().map(|new| length(&new.units)).sum();
            (row.parity_trusted && readable).then_some(blocks + kept.len() as u64 * whole)
        }
        Method::Reconstruct => (0..row.data_count).try_fold(0, |sum, place| {
            let new = case.new.iter().find(|new| new.place == place);
            let covered = new.map_or(0..0, |new| new.columns.clone());
            if covered == case.columns {
                return Some(sum);
            }
            row.readable.has(place).then_some(sum + whole - spared(case, new))
        }),
        Method::Recover => {
            let lost = row.lost_data().count();
            let parity = row.parities().filter(|&place| row.readable.has(place)).count();
            let possible = lost == 0 || row.parity_usable && lost <= parity;
            possible.then_some(row.data_count as u64 * whole)
        }
    }
}

/// Columns that need not be read because new bytes cover whole units at one end of the claim.
fn spared(case: &Case, new: Option<&NewData>) -> u64 {
    let Some(new) = new.filter(|new| new.columns == new.units) else { return 0 };
    let at_an_end = new.units.start == case.columns.start || new.units.end == case.columns.end;
    if at_an_end { u64::from(new.units.end - new.units.start) } else { 0 }
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

/// Judges the plan of one case; says whether there was one.
fn judge(case: &Case, random: &mut impl FnMut() -> u8) -> bool {
    let before = case.before(random);
    let Some(plan) = write(&case.row, &case.columns, &case.new, RmwLevel::default()) else {
        let methods = [Method::ReadModify, Method::Reconstruct, Method::Recover];
        assert!(methods.iter().all(|method| price(case, *method).is_none()));
        assert!(
            case.trust == Trust::None || case.unreadable() > case.row.parity_count,
            "refused though the level bears it"
        );
        return false;
    };
    for span in &plan.reads {
        assert!(case.row.readable.has(span.place), "only what is readable is read");
        assert!(!span.columns.is_empty() && span.columns.start.is_multiple_of(UNIT));
        assert!(span.columns.end.is_multiple_of(UNIT), "whole units are read");
        let parity = span.place >= case.row.p();
        assert!(!parity || case.trust != Trust::None, "parity that says nothing is not read");
    }
    let paid = plan.sectors_read();
    let methods = [Method::ReadModify, Method::Reconstruct, Method::Recover];
    for method in methods {
        assert!(price(case, method).is_none_or(|price| paid <= price), "{method:?} is cheaper");
    }
    if price(case, Method::Reconstruct) == Some(paid) {
        assert_eq!(plan.method, Method::Reconstruct, "the tie is reconstruct's");
    }
    let fresh: Vec<u8> = (0..16).map(|_| random()).collect();
    let mut members = before.clone();
    let worth = carry_out(case, &plan, &mut members, &fresh);
    check(case, &before, &members, &worth, &fresh);
    true
}

/// All states of all rows of so many blocks under all writes made of `shapes`.
fn judge_all(data_count: usize, parity_count: usize, shapes: &[Option<(u32, u32)>]) -> usize {
    let mut random = random_bytes();
    let mut planned = 0;
    let states = every(data_count + parity_count, &[Health::Good, Health::Blind, Health::Gone]);
    for write in every(data_count, shapes) {
        let new = new_data(&write);
        if new.is_empty() {
            continue;
        }
        for health in &states {
            for trust in [Trust::Full, Trust::Initial, Trust::None] {
                let case = Case::new(health, data_count, trust, new.clone());
                let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    judge(&case, &mut random)
                }));
                match judged {
                    Ok(found) => planned += usize::from(found),
                    Err(cause) => {
                        eprintln!("{health:?}, {data_count} data, {trust:?}, {new:?}");
                        std::panic::resume_unwind(cause);
                    }
                }
            }
        }
    }
    planned
}

/// None, all, a half, and cuts through units.
const SHAPES: [Option<(u32, u32)>; 8] = [
    None,
    Some((0, 4)),
    Some((0, 2)),
    Some((2, 4)),
    Some((1, 2)),
    Some((0, 1)),
    Some((1, 3)),
    Some((3, 4)),
];

#[test]
fn every_plan_of_a_small_row_leaves_data_and_parity_right() {
    for parity_count in [1, 2] {
        for (data_count, shapes) in [(1, 8), (2, 8), (3, 6), (4, 3)] {
            let planned = judge_all(data_count, parity_count, &SHAPES[..shapes]);
            assert!(planned > 20, "{planned}");
        }
    }
}

#[test]
#[should_panic(expected = "agrees")]
fn a_plan_that_trusts_wrong_parity_is_found_out() {
    let new = new_data(&[Some((0, 4)), None, None, None]);
    let mut case = Case::new(&[Health::Good; 5], 4, Trust::Initial, new);
    case.row.parity_trusted = true;
    judge(&case, &mut random_bytes());
}

#[test]
fn the_level_says_which_writes_read_old_data_and_parity() {
    let method = |data_count: usize, level| {
        let mut shapes = vec![None; data_count];
        shapes[0] = Some((0, 4));
        let new = new_data(&shapes);
        let case = Case::new(&vec![Health::Good; data_count + 2], data_count, Trust::Full, new);
        write(&case.row, &case.columns, &case.new, level).expect("nothing is lost").method
    };
    let levels = [RmwLevel::Never, RmwLevel::FewerReads, RmwLevel::Preferred];
    let [rewrite, modify] = [Method::Reconstruct, Method::ReadModify];
    assert_eq!(levels.map(|level| method(3, level)), [rewrite; 3], "two to read or three");
    assert_eq!(levels.map(|level| method(4, level)), [rewrite, rewrite, modify], "three or three");
    assert_eq!(levels.map(|level| method(5, level)), [rewrite, modify, modify], "four or three");
    let new = new_data(&[Some((0, 4)), None, None]);
    let health = [Health::Good, Health::Blind, Health::Blind, Health::Good, Health::Good];
    let case = Case::new(&health, 3, Trust::Full, new);
    let plan = write(&case.row, &case.columns, &case.new, RmwLevel::Never);
    assert_eq!(plan.map(|plan| plan.method), Some(Method::Recover), "where there is another way");
}

#[test]
fn what_is_rebuilt_is_not_read() {
    let mut row = Case::new(&[Health::Good; 5], 3, Trust::Full, new_data(&[Some((0, 4))])).row;
    assert_eq!(rebuild_reads(&row, 1), Some(vec![0, 2, 3]));
    assert_eq!(rebuild_reads(&row, 3), Some(vec![0, 1, 2]));
    row.readable.remove(0);
    assert_eq!(rebuild_reads(&row, 1), Some(vec![2, 3, 4]));
    assert_eq!(rebuild_reads(&row, 4), Some(vec![1, 2, 3]), "Q from P and what is left");
    row.readable.remove(3);
    assert_eq!(rebuild_reads(&row, 1), None);
    assert_eq!(rebuild_reads(&row, 3), Some(vec![1, 2, 4]), "P from Q and what is left");
    row.parity_usable = false;
    assert_eq!(rebuild_reads(&row, 3), None);
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
}

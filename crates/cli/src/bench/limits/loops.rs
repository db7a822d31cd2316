//! What each kind of work cannot do without, in memory.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use mdspace_parity::{Change, kernels};

use super::memory::{MEMBERS, Members, Share, Stores, Targets};
use crate::bench::load::Pattern;
use crate::bench::machine;
use crate::bench::measure::Outcome;

const SMALL: usize = 4096;
const LARGE: usize = 1 << 20;
/// What long streams are cut into, so that a row's columns stay in the inner caches.
const COLUMN: usize = 16 << 10;
/// Turns between two looks at the clock.
const TURNS: u64 = 64;

/// A loop.
pub(super) struct Loop {
    pub(super) name: &'static str,
    /// Bytes of one request.
    pub(super) block_bytes: usize,
    /// Requests in flight: so much memory of users goes round.
    depth: usize,
    /// Bytes of each member that one turn moves.
    column_bytes: usize,
    /// Columns of requests that one turn stands for.
    columns: usize,
    turn: fn(&mut Share<'_>),
}

fn read_random(share: &mut Share<'_>) {
    let (member, at) = (share.turn_of(MEMBERS), share.random());
    share.read_for_user(member, at);
}

fn read_following(share: &mut Share<'_>) {
    let at = share.following();
    share.read_for_user(0, at);
}

fn write_random(share: &mut Share<'_>) {
    let (member, at) = (share.turn_of(MEMBERS), share.random());
    write_user(share, [member], at, Stores::Plain);
}

fn write_following(share: &mut Share<'_>) {
    let at = share.following();
    write_user(share, [0], at, Stores::Plain);
}

const fn small(name: &'static str, turn: fn(&mut Share<'_>)) -> Loop {
    Loop { name, block_bytes: SMALL, depth: 128, column_bytes: SMALL, columns: 1, turn }
}

pub(super) const LOOPS: [Loop; 16] = [
    small("raw 4 KiB random read", read_random),
    small("raw 4 KiB random write", write_random),
    small("RAID6 4+2 4 KiB random write", |share| {
        let slot = share.turn_of(MEMBERS);
        modify(share, column_slots(slot).map(Some), &[]);
    }),
    small("RAID6 4+2 4 KiB random write, the next one fetched ahead", |share| {
        let slot = share.turn_of(MEMBERS);
        modify(share, column_slots(slot).map(Some), &column_slots(slot + 1));
    }),
    Loop {
        depth: 256,
        column_bytes: COLUMN,
        columns: 2,
        ..small("RAID6 4+2 4 KiB sequential write, half rows", half_row)
    },
    Loop {
        columns: 4,
        ..large("RAID6 4+2 1 MiB write, plain stores", |share| full_row(share, Stores::Plain))
    },
    Loop {
        columns: 4,
        ..large("RAID6 4+2 1 MiB write, non-temporal stores", |share| {
            full_row(share, Stores::NonTemporal)
        })
    },
    small("RAID6 4+2 degraded 4 KiB random read", degraded_read),
    small("RAID6 4+2 one lost block read", lost_block),
    small("RAID6 4+2 degraded 4 KiB random write", degraded_write),
    small("RAID5 3+1 4 KiB random write", modify_one_of_three),
    small("RAID5 3+1 4 KiB random write, the next one fetched ahead", modify_one_of_three_ahead),
    small("RAID1, RAID10 4 KiB random write", |share| {
        let (slot, at) = (share.turn_of(MEMBERS), share.random());
        write_user(share, [slot, (slot + 1) % MEMBERS], at, Stores::Plain);
    }),
    Loop { columns: MEMBERS, ..large("RAID6 4+2 check, bytes of all members", check) },
    large("RAID6 4+2 rebuild, bytes of one member, plain stores", |share| {
        rebuild(share, Stores::Plain)
    }),
    large("RAID6 4+2 rebuild, bytes of one member, non-temporal stores", |share| {
        rebuild(share, Stores::NonTemporal)
    }),
];

const fn large(name: &'static str, turn: fn(&mut Share<'_>)) -> Loop {
    Loop { name, block_bytes: LARGE, depth: 8, column_bytes: COLUMN, columns: 1, turn }
}

impl Loop {
    /// The copies of raw members in memory; none for a mixed load.
    pub(super) fn raw(pattern: Pattern, block_bytes: usize, depth: usize) -> Option<Self> {
        let turn = match (pattern.random, pattern.reads_percent) {
            (true, 100) => read_random,
            (true, 0) => write_random,
            (false, 100) => read_following,
            (false, 0) => write_following,
            _ => return None,
        };
        Some(Self { name: "raw", block_bytes, depth, column_bytes: block_bytes, columns: 1, turn })
    }

    /// What writes to RAID5 of three or four members cannot do without: at random one block and parity,
    /// in order whole rows.
    pub(super) fn raid5_write(
        members: usize,
        random: bool,
        block_bytes: usize,
        depth: usize,
    ) -> Option<Self> {
        let (columns, turn): (_, fn(&mut Share<'_>)) = match (members, random) {
            (3, true) => (1, modify_one_of_two),
            (4, true) => (1, modify_one_of_three_ahead),
            (3, false) => (2, raid5_row::<2>),
            (4, false) => (3, raid5_row::<3>),
            _ => return None,
        };
        let column_bytes = if random { block_bytes } else { COLUMN };
        Some(Self { name: "RAID5 write", block_bytes, depth, column_bytes, columns, turn })
    }

    /// Runs on that many pinned threads at once, each on members of its own.
    pub(super) fn run(&self, members: &mut Members, threads: usize, span: Duration) -> Outcome {
        let start = Barrier::new(threads);
        let cpus = machine::cpus();
        thread::scope(|scope| {
            let shares = members
                .shares(threads, self.depth * self.block_bytes, self.column_bytes)
                .into_iter();
            let runs = shares.zip(cpus.into_iter().cycle()).map(|(share, cpu)| {
                let start = &start;
                scope.spawn(move || {
                    machine::pin(cpu);
                    start.wait();
                    self.turn_for(span, share)
                })
            });
            let runs: Vec<_> = runs.collect();
            let mut sum = Outcome::default();
            for run in runs {
                sum.add(run.join().expect("a loop does not panic"));
            }
            sum
        })
    }

    fn turn_for(&self, span: Duration, mut share: Share<'_>) -> Outcome {
        let (started, delayed) = (Instant::now(), machine::run_delay());
        let (mut turns, mut elapsed) = (0, Duration::ZERO);
        while elapsed < span {
            for _ in 0..TURNS {
                (self.turn)(&mut share);
            }
            turns += TURNS;
            elapsed = started.elapsed();
        }
        let requests = turns * (self.columns * self.column_bytes) as u64 / self.block_bytes as u64;
        let delayed = machine::run_delay().saturating_sub(delayed);
        let counted = elapsed - delayed.min(elapsed);
        Outcome { requests, elapsed: counted, delayed, whole: elapsed, ..Outcome::default() }
    }
}

/// The members of a column: data, P and Q.
fn column_slots(slot: usize) -> [usize; 3] {
    [0, 1, 2].map(|place| (slot + place) % MEMBERS)
}

fn write_user<const N: usize>(
    share: &mut Share<'_>,
    members: [usize; N],
    at: usize,
    stores: Stores,
) {
    let mut parts = share.write_parts::<1>();
    for member in members {
        parts.members.write(member, at, parts.users[0], stores);
    }
}

/// A read-modify-write: the old block and the parity in, the change into the parity, all out. The
/// members are those of data, P and Q, and those whose blocks are fetched for the `next` one meanwhile.
fn modify(share: &mut Share<'_>, members: [Option<usize>; 3], next: &[usize]) {
    let at = share.random();
    share.expect_next(next);
    for (block, member) in members.iter().enumerate() {
        member.inspect(|&member| share.read(member, at, block));
    }
    let mut parts = share.write_parts::<1>();
    let [old, p, q, ..] = parts.blocks else { unreachable!("there are more blocks") };
    let change = Change { exponent: 2, old, new: parts.users[0] };
    let [_, has_p, has_q] = members.map(|member| member.is_some());
    kernels().update(&[change], has_p.then_some(&mut p[..]), has_q.then_some(&mut q[..]));
    let new = members.into_iter().zip([parts.users[0], p, q]);
    let new = new.filter_map(|(member, block)| Some((member?, block)));
    scatter(new, &mut parts.members, at, Stores::Plain);
}

/// One block of three and their parity.
fn modify_one_of_three(share: &mut Share<'_>) {
    let slot = share.turn_of(4);
    modify(share, [Some(slot), Some((slot + 1) % 4), None], &[]);
}

/// As [`modify_one_of_three`], with the next one's blocks fetched meanwhile.
fn modify_one_of_three_ahead(share: &mut Share<'_>) {
    let slot = share.turn_of(4);
    let parity = (slot + 1) % 4;
    modify(share, [Some(slot), Some(parity), None], &[parity, (parity + 1) % 4]);
}

/// One block of two: the other one in, parity computed, both out. The next one's blocks, those that
/// are only written too, are fetched meanwhile.
fn modify_one_of_two(share: &mut Share<'_>) {
    let (slot, at) = (share.turn_of(3), share.random());
    share.expect_next(&[(slot + 2) % 3, (slot + 1) % 3, slot]);
    share.read((slot + 1) % 3, at, 0);
    let mut parts = share.write_parts::<1>();
    let [other, p, ..] = parts.blocks else { unreachable!("there are more blocks") };
    kernels().xor(&[parts.users[0], other], p);
    let new = [(slot, parts.users[0]), ((slot + 2) % 3, &p[..])];
    scatter(new, &mut parts.members, at, Stores::Plain);
}

/// Parity of a row's chunks, and all of them out.
fn raid5_row<const DATA: usize>(share: &mut Share<'_>) {
    let at = share.following();
    let mut parts = share.write_parts::<DATA>();
    let [p, ..] = parts.blocks else { unreachable!("there are more blocks") };
    kernels().xor(&parts.users, p);
    let data: [_; DATA] = std::array::from_fn(|member| (member, parts.users[member]));
    scatter(data, &mut parts.members, at, Stores::NonTemporal);
    scatter([(DATA, &p[..])], &mut parts.members, at, Stores::NonTemporal);
}

/// Two chunks of four are written: the other two in, P and Q computed, four out.
fn half_row(share: &mut Share<'_>) {
    let at = share.following();
    share.read(2, at, 2);
    share.read(3, at, 3);
    let mut parts = share.write_parts::<2>();
    let [_, _, c, d, p, q, ..] = parts.blocks else { unreachable!("there are more blocks") };
    let [a, b] = parts.users;
    kernels().pq(&[a, b, c, d], p, q);
    scatter([(0, a), (1, b), (4, p), (5, q)], &mut parts.members, at, Stores::NonTemporal);
}

/// P and Q of four chunks, six out, column by column.
fn full_row(share: &mut Share<'_>, stores: Stores) {
    let at = share.following();
    let mut parts = share.write_parts::<4>();
    let [.., p, q] = parts.blocks else { unreachable!("there are more blocks") };
    let [a, b, c, d] = parts.users;
    kernels().pq(&parts.users, p, q);
    scatter([(0, a), (1, b), (2, c), (3, d), (4, p), (5, q)], &mut parts.members, at, stores);
}

fn scatter<'a>(
    blocks: impl IntoIterator<Item = (usize, &'a [u8])>,
    members: &mut Targets<'_>,
    at: usize,
    stores: Stores,
) {
    for (member, block) in blocks {
        members.write(member, at, block, stores);
    }
}

/// One block in six lies on the lost member.
fn degraded_read(share: &mut Share<'_>) {
    match share.turn_of(MEMBERS) {
        0 => lost_block(share),
        member => {
            let at = share.random();
            share.read_for_user(member, at);
        }
    }
}

/// Four blocks in, the lost one computed where the user wants it.
fn lost_block(share: &mut Share<'_>) {
    let at = share.random();
    (0..4).for_each(|member| share.read(member, at, member));
    let (user, blocks) = share.read_parts();
    let [a, b, c, d, ..] = blocks else { unreachable!("there are more blocks") };
    kernels().xor(&[a, b, c, d], user);
}

/// One write in six is for the lost member, one each has lost its P or its Q.
fn degraded_write(share: &mut Share<'_>) {
    match share.turn_of(MEMBERS) {
        0 => lost_block_write(share),
        1 => modify(share, [Some(0), Some(1), None], &[]),
        2 => modify(share, [Some(0), None, Some(2)], &[]),
        slot => modify(share, column_slots(slot).map(Some), &[]),
    }
}

/// The other three blocks in, P and Q computed, and out.
fn lost_block_write(share: &mut Share<'_>) {
    let at = share.random();
    (1..4).for_each(|member| share.read(member, at, member));
    let mut parts = share.write_parts::<1>();
    let [_, b, c, d, p, q, ..] = parts.blocks else { unreachable!("there are more blocks") };
    kernels().pq(&[parts.users[0], b, c, d], p, q);
    scatter([(4, &p[..]), (5, &q[..])], &mut parts.members, at, Stores::Plain);
}

/// Six blocks in, parity computed and compared.
fn check(share: &mut Share<'_>) {
    let at = share.following();
    (0..MEMBERS).for_each(|member| share.read(member, at, member));
    let [a, b, c, d, p, q, new_p, new_q] = &mut share.blocks;
    kernels().pq(&[a, b, c, d], new_p, new_q);
    black_box(new_p[..] == p[..] && new_q[..] == q[..]);
}

/// Four blocks in, the lost one computed, and out.
fn rebuild(share: &mut Share<'_>, stores: Stores) {
    let at = share.following();
    (0..4).for_each(|member| share.read(member, at, member));
    let [a, b, c, d, lost, ..] = &mut share.blocks;
    kernels().xor(&[a, b, c, d], lost);
    stores.copy(lost, &mut share.members[5][at..][..share.column_bytes]);
}

#[cfg(test)]
mod tests;

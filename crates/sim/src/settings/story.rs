//! What a run is about: a kind of array, and troubles that come one after the other at points of its orderings.
//!
//! Each story was written for an ordering that plain chance did not break within a thousand seeds.

use std::time::Duration;

use mdspace_engine::array::Point;

use crate::random::Random;

use super::{Aim, Happening, Tending};

/// Aims, and an array that they can hurt.
#[derive(Default)]
pub(super) struct Story {
    pub aims: Vec<Aim>,
    pub wishes: Wishes,
}

/// What the array of a story is like, if the run is about nothing else.
#[derive(Clone, Default)]
pub(super) struct Wishes {
    /// One of these levels. All will do if it is empty.
    pub levels: &'static [i32],
    /// With or without a bitmap.
    pub bitmap: Option<bool>,
    /// The array begins with a resync.
    pub first_resync: bool,
    /// It has a spare from the start.
    pub spare: bool,
    /// A sync task takes about so many seconds; 0: any.
    pub sync_seconds: u64,
    /// What is not flushed is lost with the power.
    pub volatile_cache: bool,
    /// Superblocks, bitmaps and logs take long.
    pub slow_records: bool,
    /// One of two copies is written behind.
    pub behind: bool,
    /// Weights of reads, writes and flushes that are at least this.
    pub kinds: [u32; 3],
    /// Users come one after the other, and never rest: bits are cleared though the array is not clean.
    pub trickle: bool,
    /// They come back to the same few places.
    pub hot: bool,
    /// Chunks, and with them windows of sync tasks, are so small that not every window is put on record.
    pub small_chunks: bool,
    /// Troubles that come again and again.
    pub troubles: &'static [Happening],
    /// What becomes of disks that failed.
    pub tending: Tending,
}

/// A crash shows what an ordering is good for.
const CRASHES: &[Happening] =
    &[Happening::PowerCut, Happening::PowerCut, Happening::PowerCut, Happening::Kill];

/// What may make the engine change its mind in the middle.
const CHANGES: &[Happening] = &[
    Happening::FailMember,
    Happening::FailMember,
    Happening::Vanish,
    Happening::FailFlush,
    Happening::Fill,
    Happening::RefuseWrites,
    Happening::Hang,
    Happening::Tend,
    Happening::AddSpare,
    Happening::Replace,
    Happening::Rest,
];

/// Points in the middle of what the controller writes down.
const RECORDS: &[Point] = &[
    Point::MemberIsOut,
    Point::LaggardsCaughtUp,
    Point::BitmapSaysEvents,
    Point::SuperblocksAreWritten,
    Point::SuperblocksAreWritten,
];

/// Points of a pass that clears bits.
const CLEARING: &[Point] = &[
    Point::ClearingIsFlushed,
    Point::ClearingIsRecorded,
    Point::BitsAreCleared,
    Point::BitsAreCleared,
];

const REDUNDANT: &[i32] = &[1, 4, 5, 6, 10];
const PARITY: &[i32] = &[4, 5, 5, 6];
const MIRRORS: &[i32] = &[1, 1, 10];
const IN_CHUNKS: &[i32] = &[4, 5, 6, 10];

impl Story {
    /// The story of a run. Drawn apart, as workers are.
    pub(super) fn draw(seed: u64) -> Self {
        let random = &mut Random::new(seed ^ 0x6169_6d65_6421_2121);
        let late_by = Duration::from_micros(*random.pick(&[0, 0, 200, 2_000]));
        let at =
            |point, happening, one_in| Aim { point, happening: Some(happening), one_in, late_by };
        let after = |point, one_in| Aim { point, happening: None, one_in, late_by };
        let record = *random.pick(RECORDS);
        let crash = *random.pick(CRASHES);
        let change = *random.pick(CHANGES);
        let often = *random.pick(&[1, 2, 5]);
        let any = *random.pick(Point::ALL);
        let coin = random.coin();
        let fail = at(Point::MembersAnswered, Happening::FailMember, 20);
        let slowly = *random.pick(&[1, 3, 8]);
        let redundant = Wishes { levels: REDUNDANT, ..Wishes::default() };
        let filled =
            Wishes { spare: true, sync_seconds: slowly, volatile_cache: true, ..redundant.clone() };
        let (aims, wishes) = match random.below(24) {
            0..=2 => (Vec::new(), Wishes::default()),
            // The array is resynced while users are quiet; then the superblocks change, and the power goes.
            3 => (
                vec![
                    at(Point::WindowIsDone, Happening::Rest, often),
                    at(Point::WindowIsDone, if coin { Happening::AddSpare } else { change }, 3),
                    at(Point::SuperblocksAreWritten, crash, 1),
                ],
                Wishes {
                    spare: false,
                    levels: IN_CHUNKS,
                    first_resync: true,
                    bitmap: Some(false),
                    small_chunks: true,
                    ..filled
                },
            ),
            // A member is being filled while users are quiet; then the superblocks change, and the power goes.
            4 => (
                vec![
                    at(
                        Point::MembersAnswered,
                        *random.pick(&[
                            Happening::FailMember,
                            Happening::Replace,
                            Happening::Replace,
                        ]),
                        20,
                    ),
                    at(Point::WindowIsDone, Happening::Rest, often),
                    after(Point::ArrayIsClean, 1),
                    at(Point::WindowIsDone, if coin { Happening::AddSpare } else { change }, 3),
                    at(if coin { Point::SuperblocksAreWritten } else { record }, crash, 1),
                ],
                Wishes { levels: IN_CHUNKS, small_chunks: true, ..filled },
            ),
            5 => (
                vec![
                    fail,
                    after(Point::MemberIsFilled, 1),
                    at(Point::SuperblocksAreWritten, Happening::PowerCut, 1),
                ],
                filled,
            ),
            // A member comes back, and bits are cleared before it is filled.
            6 => (
                vec![
                    fail,
                    at(Point::MembersAnswered, Happening::Tend, 50),
                    at(Point::MemberIsIn, Happening::Rest, 1),
                    at(
                        Point::BitsAreCleared,
                        if coin { crash } else { Happening::FailMember },
                        often,
                    ),
                ],
                Wishes {
                    bitmap: Some(true),
                    sync_seconds: 15,
                    trickle: true,
                    tending: Tending::Returns,
                    ..redundant
                },
            ),
            // A flush fails, and others flush the same member before its failure is on record.
            7 => (
                vec![
                    at(Point::MembersAnswered, Happening::FailFlush, 10),
                    after(Point::FlushFailed, 1),
                    at(if coin { Point::MemberIsOut } else { record }, Happening::PowerCut, 1),
                ],
                Wishes {
                    levels: PARITY,
                    volatile_cache: true,
                    slow_records: true,
                    kinds: [0, 50, 50],
                    ..Wishes::default()
                },
            ),
            // Blocks get on and off lists.
            8 => (
                vec![
                    at(Point::MembersAnswered, Happening::RefuseWrites, 10),
                    at(if coin { Point::ListIsShorter } else { Point::ListIsLonger }, crash, 1),
                ],
                Wishes {
                    volatile_cache: true,
                    kinds: [0, 50, 20],
                    hot: true,
                    troubles: &[Happening::RefuseWrites],
                    ..redundant
                },
            ),
            // Writes behind are under way when another copy is lost or cannot be read.
            9 | 22 => (
                vec![
                    at(
                        Point::AnsweredBehind,
                        *random.pick(&[
                            Happening::FailMember,
                            Happening::Hang,
                            Happening::SpoilSectors,
                        ]),
                        often,
                    ),
                    after(Point::MembersAnswered, 10 * often),
                ],
                Wishes {
                    levels: &[1],
                    behind: true,
                    kinds: [50, 50, 0],
                    hot: true,
                    ..Wishes::default()
                },
            ),
            // Writes behind are under way when the array gets quiet.
            10 => (
                vec![
                    after(Point::AnsweredBehind, 10 * often),
                    at(if coin { Point::BitsAreCleared } else { Point::ArrayIsClean }, crash, 1),
                ],
                Wishes { levels: &[1], behind: true, trickle: true, ..Wishes::default() },
            ),
            11 => {
                let point = if coin { Point::MembersAnswered } else { Point::RowIsRead };
                (vec![at(point, change, 10 * often)], redundant)
            }
            12 => (
                vec![at(any, change, often), at(*random.pick(Point::ALL), crash, often)],
                redundant,
            ),
            // A member is filled and bits are cleared; then it fails, and the one before it may come back.
            13 => (
                vec![
                    fail,
                    at(Point::MemberIsFilled, Happening::Rest, 1),
                    at(Point::BitsAreCleared, Happening::FailMember, 1),
                    at(Point::SuperblocksAreWritten, Happening::Tend, often),
                ],
                Wishes {
                    bitmap: Some(true),
                    spare: true,
                    trickle: true,
                    tending: Tending::Swaps,
                    ..redundant
                },
            ),
            // A member comes back while something that it was sent is still under way.
            14 => (
                vec![
                    at(Point::MembersAnswered, Happening::Hang, 10 * often),
                    at(Point::SuperblocksAreWritten, Happening::Tend, 1),
                ],
                redundant,
            ),
            // A member fails with writes and flushes under way, and all ends before that is on record.
            15 => (
                vec![
                    fail,
                    Aim {
                        late_by: Duration::from_millis(2),
                        ..at(Point::MemberIsOut, if coin { Happening::Kill } else { crash }, 1)
                    },
                ],
                Wishes {
                    slow_records: true,
                    kinds: [0, 50, 20],
                    tending: Tending::Never,
                    ..redundant
                },
            ),
            // Bits are cleared while users write elsewhere, and the power goes.
            16 => (
                vec![at(*random.pick(CLEARING), crash, often)],
                Wishes { bitmap: Some(true), volatile_cache: true, trickle: true, ..redundant },
            ),
            // A replacement is being filled at a crash: what resync writes then, it needs as well.
            17 => (
                vec![
                    at(Point::MembersAnswered, Happening::Replace, 10),
                    after(Point::ProgressIsRecorded, often),
                    at(Point::MembersAnswered, if coin { crash } else { Happening::Fill }, 10),
                ],
                Wishes { spare: true, sync_seconds: slowly, ..redundant },
            ),
            // What a member is filled from cannot be read in places.
            18 => (
                vec![
                    fail,
                    at(Point::SlotIsGiven, Happening::SpoilSectors, 1),
                    at(Point::WindowIsDone, Happening::SpoilSectors, 1),
                ],
                Wishes { spare: true, sync_seconds: slowly, ..redundant },
            ),
            // The only copy cannot be read, and is written meanwhile, by others.
            19 => (
                vec![fail, fail, at(Point::MembersAnswered, Happening::SpoilSectors, often)],
                Wishes {
                    slow_records: true,
                    kinds: [50, 50, 0],
                    hot: true,
                    troubles: &[Happening::SpoilSectors],
                    tending: Tending::Never,
                    ..redundant
                },
            ),
            // The power goes while superblocks are written, again and again.
            20 => (
                vec![Aim {
                    late_by: Duration::from_millis(2),
                    ..at(Point::BitmapSaysEvents, Happening::PowerCut, often)
                }],
                Wishes { slow_records: coin, ..redundant },
            ),
            // Copies differ after a crash, and are read again and again before a resync has been there.
            21 => (
                vec![at(Point::MembersAnswered, crash, 10 * often)],
                Wishes {
                    levels: MIRRORS,
                    sync_seconds: slowly,
                    kinds: [80, 50, 0],
                    hot: true,
                    ..Wishes::default()
                },
            ),
            _ => (vec![at(any, crash, often)], redundant),
        };
        Self { aims, wishes }
    }
}

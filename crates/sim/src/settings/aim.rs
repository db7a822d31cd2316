//! Troubles that come at chosen moments: half-way through the engine's orderings.

use std::fmt;

use mdspace_engine::array::Point;

use crate::random::Random;

use super::Happening;

/// Something that happens when the engine comes to a point. The aims of a run take turns: the next one is
/// looked for when this one has come.
#[derive(Clone, Copy, Debug)]
pub struct Aim {
    /// The point.
    pub point: Point,
    /// What happens there.
    pub happening: Happening,
    /// One in so many times.
    pub one_in: u64,
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

/// The aims of a run. Drawn apart, as workers are.
pub(super) fn draw(seed: u64) -> Vec<Aim> {
    let random = &mut Random::new(seed ^ 0x6169_6d65_6421_2121);
    let at = |point, happening, one_in| Aim { point, happening, one_in };
    let record = *random.pick(RECORDS);
    let crash = *random.pick(CRASHES);
    let change = *random.pick(CHANGES);
    let often = *random.pick(&[1, 2, 5]);
    match random.below(18) {
        0..4 => Vec::new(),
        // A member is being filled, or the array resynced, while users are quiet; then the members' records
        // change, and the power goes.
        4 => vec![
            at(Point::SlotIsGiven, Happening::Rest, 1),
            at(Point::WindowIsDone, *random.pick(&[Happening::AddSpare, change]), often),
            at(record, crash, 1),
        ],
        5 => vec![
            at(Point::WindowIsDone, Happening::Rest, often),
            at(Point::WindowIsDone, *random.pick(&[Happening::AddSpare, change]), 1),
            at(record, crash, 1),
        ],
        // A member comes back, and bits are cleared before it is filled.
        6 => vec![
            at(Point::MemberIsIn, Happening::Rest, 1),
            at(Point::BitsAreCleared, *random.pick(&[crash, Happening::FailMember]), often),
        ],
        // A flush fails, and others flush the same member before its failure is on record.
        7 => vec![at(Point::MembersAnswered, Happening::FailFlush, 10), at(record, crash, 1)],
        // Blocks get on and off lists.
        8 => vec![
            at(Point::MembersAnswered, Happening::RefuseWrites, 10),
            at(*random.pick(&[Point::ListIsShorter, Point::ListIsLonger]), crash, 1),
        ],
        // Writes behind are under way when a member fails, or when the array gets quiet.
        9 => vec![
            at(Point::AnsweredBehind, *random.pick(&[Happening::FailMember, change]), 10 * often),
            at(*random.pick(&[Point::MemberIsOut, Point::ArrayIsClean]), crash, often),
        ],
        10 => {
            vec![at(*random.pick(&[Point::MembersAnswered, Point::RowIsRead]), change, 10 * often)]
        }
        11 => vec![
            at(*random.pick(Point::ALL), change, often),
            at(*random.pick(Point::ALL), crash, often),
        ],
        // A member is filled and bits are cleared; then it fails, and the one before it may come back.
        12 => vec![
            at(Point::MemberIsFilled, Happening::Rest, 1),
            at(Point::BitsAreCleared, Happening::FailMember, 1),
            at(Point::SuperblocksAreWritten, Happening::Tend, often),
        ],
        // A member comes back while something that it was sent is still under way.
        13 => vec![
            at(Point::MembersAnswered, Happening::Hang, 10 * often),
            at(Point::SuperblocksAreWritten, Happening::Tend, 1),
        ],
        _ => vec![at(*random.pick(Point::ALL), crash, often)],
    }
}

impl fmt::Display for Aim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { point, happening, one_in } = self;
        write!(f, "{happening:?} at 1 {} of {one_in}", point.name())
    }
}

//! Stories of what an operator orders in the middle of trouble, of members whose lists have no room, and of controllers
//! that are late.

use std::time::Duration;

use mdspace_engine::array::Point;

use super::{Teller, Wishes};
use crate::settings::{Aim, Happening, Tending};

/// Arrays of few disks, reached directly, that have what the story does to them and nothing else.
fn alone() -> Wishes {
    Wishes {
        few: true,
        no_spare: true,
        paths: Some(0),
        calm: true,
        busy: true,
        tending: Tending::Never,
        ..Wishes::default()
    }
}

impl Teller {
    /// The process is killed with users busy. A member without a list cannot read its data for a while after that, and
    /// nobody can tell what is there. The operator accepts what parity gives.
    fn accepts_for_a_while_unread(&mut self) -> Vec<Aim> {
        vec![
            self.at(Point::MembersAnswered, Happening::ReadAll, 20).at_once(),
            self.at(Point::RowIsRead, Happening::Kill, 20).at_once(),
            self.to(0, Point::MembersAnswered, Happening::Flicker, 1).at_once(),
            self.at(Point::MembersAnswered, Happening::ReadAll, 1).at_once(),
            Aim {
                late_by: Duration::from_millis(50),
                ..self.at(Point::MembersAnswered, Happening::AcceptDoubt, 1)
            },
        ]
    }
}

/// An array of which one member has no list for what it lacks.
fn without_lists() -> Wishes {
    Wishes {
        levels: &[4, 5, 5, 6],
        log_sectors: Some(0),
        synced: true,
        hot: true,
        kinds: [60, 40, 0],
        ..alone()
    }
}

/// What was accepted is read, and the array starts anew before anything is resynced.
pub(super) fn accepted_off_the_list(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let mut aims = tell.accepts_for_a_while_unread();
    let holds_back = tell.to(0, Point::MembersAnswered, Happening::Steer, 1).at_once();
    aims.insert(2, holds_back);
    aims.extend([
        tell.at(Point::MembersAnswered, Happening::ReadTwice, 1).at_once(),
        tell.at(Point::MembersAnswered, Happening::Restart, 1).at_once(),
        tell.at(Point::MembersAnswered, Happening::ReadAll, 1).at_once(),
    ]);
    (aims, Wishes { sync_seconds: Wishes::SLOWLY, ..without_lists() })
}

/// The rows of what was accepted are written beside it. Then the array is resynced, and starts anew.
pub(super) fn accepted_and_written_beside(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let mut aims = tell.accepts_for_a_while_unread();
    aims.extend([
        tell.after(Point::ResyncIsRecorded, 1),
        tell.at(Point::BitsAreCleared, Happening::Restart, 1).at_once(),
    ]);
    let wishes = Wishes { bitmap: Some(true), trickle: true, sync_seconds: 1, ..without_lists() };
    (aims, wishes)
}

/// A member comes back by the bitmap and is not filled yet. Two others have no room for a write: in some rows those are
/// both parities, which agree on what was there before.
pub(super) fn back_beside_doubt(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let (one, other) = tell.pick(&[(0, 3), (2, 3)]);
    let aims = vec![
        tell.to(1, Point::BitsAreCleared, Happening::FailMember, 1),
        tell.at(Point::SuperblocksAreWritten, Happening::Tend, tell.often),
        tell.to(0, Point::MemberIsIn, Happening::Steer, 1).at_once(),
        tell.to(one, Point::MembersAnswered, Happening::Fill, 1).at_once(),
        tell.to(other, Point::MembersAnswered, Happening::Fill, 1).at_once(),
        tell.at(Point::RowsAreInDoubt, Happening::ReadAll, 1).at_once(),
        tell.after(Point::MemberIsFilled, 1),
        tell.at(Point::BitsAreCleared, Happening::Restart, 1).at_once(),
    ];
    let wishes = Wishes {
        levels: &[6],
        bitmap: Some(true),
        synced: true,
        long: true,
        small_chunks: true,
        in_chunks: true,
        trickle: true,
        kinds: [40, 60, 0],
        tending: Tending::Returns,
        ..alone()
    };
    (aims, wishes)
}

/// Of two mirrors the one that is not written behind is lost while others are behind it. Then users flush, and the power
/// goes.
pub(super) fn flushed_past_behind(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.to(1, Point::AnsweredBehind, Happening::HoldData, 10 * tell.often).at_once(),
        tell.to(0, Point::AnsweredBehind, Happening::Vanish, tell.often).at_once(),
        tell.at(Point::SuperblocksAreWritten, Happening::CutWhenFlushed, 1).at_once(),
    ];
    let wishes = Wishes {
        levels: &[1],
        behind: true,
        volatile_cache: true,
        durable_one_in: Some(0),
        kinds: [0, 60, 40],
        short: true,
        ..alone()
    };
    (aims, wishes)
}

/// A mirror that is read lists blocks, and the one that is written behind refuses others. The controller waits for the
/// record of one, and more is refused and read.
pub(super) fn refused_behind(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let refuse = tell.to(0, Point::MembersAnswered, Happening::RefuseWrites, 3);
    let refuse_behind = tell.to(1, Point::AnsweredBehind, Happening::RefuseWrites, 1).at_once();
    let read = tell.at(Point::MembersAnswered, Happening::ReadAll, 1).at_once();
    let aims = vec![
        refuse,
        refuse,
        refuse,
        tell.after(Point::ListIsLonger, 1),
        refuse_behind,
        refuse_behind,
        tell.to(0, Point::AnsweredBehind, Happening::HoldRecords, 1).at_once(),
        refuse_behind,
        refuse_behind,
        read,
        read,
        read,
        read,
    ];
    let wishes = Wishes { levels: &[1], behind: true, hot: true, kinds: [60, 40, 0], ..alone() };
    (aims, wishes)
}

/// A mirror fails, and in the update that says so the last one that is not written behind is lost. The process ends soon.
pub(super) fn record_takes_the_other(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.after(Point::AnsweredBehind, 100),
        tell.to(2, Point::AnsweredBehind, Happening::HoldData, 1).at_once(),
        tell.to(1, Point::AnsweredBehind, Happening::FailMember, 1).at_once(),
        Aim {
            late_by: Duration::from_millis(40),
            ..tell.to(0, Point::MemberIsOut, Happening::Vanish, 1)
        },
        Aim {
            late_by: Duration::from_millis(10),
            ..tell.at(Point::SuperblocksAreWritten, Happening::Kill, 1)
        },
    ];
    let wishes = Wishes {
        levels: &[1],
        behind: true,
        three: true,
        slow_records: true,
        few: false,
        durable_one_in: Some(0),
        kinds: [0, 100, 0],
        short: true,
        spaced: true,
        ..alone()
    };
    (aims, wishes)
}

/// Members do not answer, and users read what others have.
pub(super) fn hung_two(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![tell.at(Point::ArrayIsClean, Happening::HangTwo, 1)];
    let wishes = Wishes {
        levels: &[1, 5, 6, 10],
        synced: true,
        pauses: true,
        busy: false,
        prompt: true,
        kinds: [70, 30, 0],
        ..alone()
    };
    (aims, wishes)
}

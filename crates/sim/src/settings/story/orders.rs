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
    /// The process is killed with users busy, who only read from then on. These members, which have no list, cannot read
    /// their data for a while after that, and nobody can tell what is there. The operator accepts what parity gives, before
    /// anything is resynced.
    fn accepts_what_was_unread(&self, members: &[u16]) -> Vec<Aim> {
        let mut aims = vec![
            self.at(Point::MembersAnswered, Happening::ReadAll, 40).at_once(),
            self.at(Point::RowIsRead, Happening::OnlyRead, 20).at_once(),
            Aim { late_by: Duration::from_micros(300), ..self.then(Happening::Kill) },
            self.then_to(0, Happening::Steer),
            self.then(Happening::ReadNow),
        ];
        aims.extend(members.iter().map(|disk| self.then_to(*disk, Happening::Flicker)));
        aims.extend([
            self.then(Happening::ReadNow),
            self.then(Happening::Pause),
            self.then(Happening::AcceptDoubt),
        ]);
        aims
    }
}

/// An array of which no member has a list for what it lacks, and in which a resync goes slowly.
fn without_lists() -> Wishes {
    Wishes {
        log_sectors: Some(0),
        bitmap: Some(false),
        synced: true,
        hot: true,
        long: true,
        kinds: [60, 40, 0],
        sync_seconds: Wishes::SLOWLY,
        ..alone()
    }
}

/// What was accepted is read, and the array starts anew before anything is resynced.
pub(super) fn accepted_off_the_list(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let mut aims = tell.accepts_what_was_unread(&[0]);
    aims.extend([
        tell.then(Happening::ReadNow),
        tell.then(Happening::Restart),
        tell.then(Happening::ReadNow),
        tell.then(Happening::WriteAgain),
    ]);
    (aims, Wishes { levels: &[4, 5, 5, 6], ..without_lists() })
}

/// The rows of what was accepted are written beside it. Then the array starts anew.
pub(super) fn accepted_and_written_beside(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let members = tell.pick(&[[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]);
    let mut aims = tell.accepts_what_was_unread(&members);
    aims.extend([
        tell.then(Happening::WriteAgain),
        tell.at(Point::MembersAnswered, Happening::OnlyRead, 40).at_once(),
        tell.then(Happening::ReadNow),
        tell.then(Happening::Restart),
        tell.then(Happening::ReadNow),
        tell.then(Happening::WriteAgain),
    ]);
    (
        aims,
        Wishes { levels: &[6], short: true, in_front: true, kinds: [20, 80, 0], ..without_lists() },
    )
}

/// A member comes back by the bitmap, and what fills it waits after the first chunk. Two others have no room for writes of
/// rows that are not marked: in some of them those are both parities, which agree on what was there before.
pub(super) fn back_beside_doubt(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let (one, other) = tell.pick(&[(0, 3), (2, 3)]);
    let aims = vec![
        // Few rows are marked while the member is out.
        tell.at(Point::MembersAnswered, Happening::OnlyRead, 5).at_once(),
        tell.after(Point::BitsAreCleared, 1),
        tell.then_to(1, Happening::FailMember),
        tell.at(Point::SuperblocksAreWritten, Happening::WriteAgain, 1).at_once(),
        tell.at(Point::MembersAnswered, Happening::OnlyRead, 3).at_once(),
        tell.then(Happening::Bound),
        tell.then(Happening::Tend),
        tell.after(Point::MemberIsIn, 1).at_once(),
        tell.then_to(one, Happening::Fill),
        tell.then_to(other, Happening::Fill),
        tell.then(Happening::WriteAgain),
        tell.after(Point::RowsAreInDoubt, 1),
        tell.at(Point::MembersAnswered, Happening::OnlyRead, 60).at_once(),
        tell.then(Happening::ReadTwice),
        // Where it was another block, or one of another kind, the doubt would last.
        tell.then(Happening::AcceptDoubt),
        tell.then(Happening::LetGo),
        tell.at(Point::MemberIsFilled, Happening::ReadNow, 1).at_once(),
        tell.then(Happening::Restart),
        tell.then(Happening::WriteAgain),
    ];
    let wishes = Wishes {
        levels: &[6],
        bitmap: Some(true),
        synced: true,
        long: true,
        small_chunks: true,
        in_chunks: true,
        spread: true,
        kinds: [40, 60, 0],
        tending: Tending::Returns,
        sync_seconds: Wishes::AT_ONCE,
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
        coarse_bitmap: true,
        short: true,
        ..alone()
    };
    (aims, wishes)
}

/// A mirror that is read lists blocks, and takes them off its list slowly. Beside them the one that is written behind refuses
/// others, and both are read at once.
pub(super) fn refused_behind(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let read = tell.at(Point::MembersAnswered, Happening::ReadAll, 1).at_once();
    let aims = vec![
        tell.to(0, Point::MembersAnswered, Happening::RefuseAll, 3),
        tell.after(Point::ListIsLonger, 1),
        tell.to(0, Point::MembersAnswered, Happening::HoldRecords, 20).at_once(),
        tell.to(1, Point::AnsweredBehind, Happening::RefuseAll, 3).at_once(),
        read,
        read,
        read,
        read,
    ];
    let wishes = Wishes {
        levels: &[1],
        behind: true,
        hot: true,
        short: true,
        kinds: [40, 60, 0],
        ..alone()
    };
    (aims, wishes)
}

/// A mirror fails, and in the update that says so the last one that is not written behind is lost. The process ends soon.
pub(super) fn record_takes_the_other(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.after(Point::AnsweredBehind, 100),
        tell.to(1, Point::AnsweredBehind, Happening::FailMember, 1).at_once(),
        tell.to(2, Point::MemberIsOut, Happening::HoldData, 1).at_once(),
        Aim { late_by: Duration::from_millis(40), ..tell.then_to(0, Happening::Vanish) },
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
        long: true,
        spread: true,
        coarse_bitmap: true,
        soon_there: true,
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

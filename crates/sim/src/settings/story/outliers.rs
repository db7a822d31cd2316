//! Stories of rows in doubt of which it is known whose blocks put them there: a write found no room on one member, and
//! then something else comes between.

use std::time::Duration;

use mdspace_engine::array::Point;

use super::plots::MIRRORS;
use super::{Teller, Wishes};
use crate::settings::{Aim, Happening, Tending};

/// The disk that has no room first.
const FULL: u16 = 0;

/// A small array of which much is read, and whose disks are reached directly.
fn short_of_room() -> Wishes {
    Wishes {
        levels: &[6],
        few: true,
        no_spare: true,
        paths: Some(0),
        hot: true,
        kinds: [70, 30, 0],
        sync_seconds: Wishes::SOON,
        tending: Tending::Never,
        ..Wishes::default()
    }
}

impl Teller {
    /// A member has no room, and a write fails for that.
    fn no_room(&self) -> Aim {
        self.to(FULL, Point::MembersAnswered, Happening::Fill, 5)
    }

    /// Everything is read.
    fn read(&self) -> Aim {
        self.at(Point::MembersAnswered, Happening::ReadAll, 1).at_once()
    }
}

/// A resync makes one parity right and finds no room for the other. Then a third member is lost, or was before, and a lane
/// hears late of what the resync found.
pub(super) fn half_done(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let [other, third] = tell.pick(&[[1, 2], [1, 3], [2, 1], [2, 3], [3, 1], [3, 2]]);
    let lane = tell.pick(&[1, 2, 3, 4]);
    let mut aims = vec![
        tell.no_room(),
        tell.after(Point::RowsAreInDoubt, 1),
        tell.then_to(FULL, Happening::Steer),
        // In some rows more.
        tell.at(Point::MembersAnswered, Happening::OnlyRead, 10).at_once(),
    ];
    let vanish = tell.then_to(third, Happening::Vanish);
    let fill = tell.then_to(other, Happening::Fill);
    let (let_go, read) = (tell.then(Happening::LetGo), tell.then(Happening::ReadNow));
    aims.extend(match tell.pick(&[true, false, false]) {
        true => {
            let done = tell.to(third, Point::ResyncIsRecorded, Happening::Vanish, 1).at_once();
            vec![fill, let_go, done, read, read]
        }
        false => {
            let doze = tell.then_to(lane, Happening::Doze);
            let done = tell.at(Point::WindowIsDone, Happening::ReadAll, 1).at_once();
            vec![vanish, read, fill, doze, let_go, done, done, read]
        }
    });
    aims.push(tell.then(Happening::WriteAgain));
    let wishes = Wishes {
        many_lanes: true,
        spread: true,
        synced: true,
        calm: true,
        sync_seconds: Wishes::AT_ONCE,
        ..short_of_room()
    };
    (aims, wishes)
}

/// What the member without room has cannot be read for a while, and there is no room for it still when it can. Then
/// others are lost. A resync is slow to come.
pub(super) fn unreadable_for_a_while(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let [third, fourth] = tell.pick(&[[1, 2], [2, 3], [3, 1]]);
    let loss = tell.pick(&[Happening::FailMember, Happening::Vanish]);
    let aims = vec![
        tell.no_room(),
        tell.to(FULL, Point::RowsAreInDoubt, Happening::Flicker, 1).at_once(),
        tell.to(FULL, Point::MembersAnswered, Happening::Fill, 1).at_once(),
        tell.read(),
        tell.after(Point::MembersAnswered, 5 * tell.often),
        tell.to(third, Point::MembersAnswered, loss, 3),
        tell.read(),
        tell.to(fourth, Point::MembersAnswered, loss, 3),
        tell.read(),
    ];
    let wishes = Wishes {
        kinds: [50, 50, 0],
        synced: true,
        busy: true,
        sync_seconds: Wishes::SLOWLY,
        ..short_of_room()
    };
    (aims, wishes)
}

/// What the member without room has cannot be read for a while, and users read what others have. When it can be read
/// again they read on.
pub(super) fn read_elsewhere(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.no_room(),
        tell.to(FULL, Point::RowsAreInDoubt, Happening::Flicker, 1).at_once(),
        tell.at(Point::MembersAnswered, Happening::ReadTwice, 1).at_once(),
    ];
    let wishes = Wishes {
        levels: &[1, 1, 10, 6],
        kinds: [50, 50, 0],
        synced: true,
        alike: true,
        calm: true,
        sync_seconds: Wishes::SLOWLY,
        ..short_of_room()
    };
    (aims, wishes)
}

/// The member without room vanishes. It is back after a kill that comes before its loss is on record.
pub(super) fn back_off_record(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.no_room(),
        tell.after(Point::RowsAreInDoubt, 1).at_once(),
        tell.read(),
        Aim {
            late_by: Duration::from_millis(20),
            ..tell.to(FULL, Point::MembersAnswered, Happening::Vanish, 2)
        },
        tell.at(Point::MemberIsOut, Happening::KillBeforeReturn, 1).at_once(),
        tell.read(),
    ];
    let wishes = Wishes {
        levels: MIRRORS,
        bitmap: Some(true),
        kinds: [80, 20, 0],
        synced: true,
        alike: true,
        paced: true,
        calm: true,
        sync_seconds: Wishes::SLOWLY,
        ..short_of_room()
    };
    (aims, wishes)
}

/// The member without room is lost, or another one, and a spare is filled or a member replaced. In the middle of that
/// another is lost, or the array stops, or the power goes.
pub(super) fn lost_without_room(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let (one, other) = tell.pick(&[(0, 1), (0, 2), (1, 2), (1, 3), (2, 1), (3, 1)]);
    let first = tell.pick(&[Happening::FailMember, Happening::Vanish, Happening::Replace]);
    let middle = tell.pick(&[Point::WindowIsDone, Point::WindowIsDone, Point::ResyncIsRecorded]);
    let second = tell.pick(&[
        Happening::FailMember,
        Happening::Vanish,
        Happening::Fill,
        Happening::Restart,
        tell.crash,
    ]);
    let aims = vec![
        tell.no_room(),
        tell.to(one, Point::RowsAreInDoubt, first, 1).at_once(),
        tell.read(),
        tell.to(other, middle, second, tell.often),
        tell.read(),
        tell.read(),
    ];
    let wishes = Wishes {
        levels: &[5, 6, 6, 6],
        no_spare: false,
        spare: true,
        volatile_cache: true,
        sync_seconds: tell.pick(&[Wishes::AT_ONCE, 1, 3]),
        ..short_of_room()
    };
    (aims, wishes)
}

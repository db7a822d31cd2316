//! Stories of a drive that resets: it gives old blocks where it was not told to flush, to whatever makes something of
//! them, and then it is out.

use mdspace_engine::array::Point;

use super::{Teller, Wishes};
use crate::settings::{Aim, Happening, Tending};

/// Users write everywhere, flush nothing, and read little. A sync task goes slowly over a long array.
fn never_flushed() -> Wishes {
    Wishes {
        paths: Some(0),
        volatile_cache: true,
        durable_one_in: Some(0),
        kinds: [10, 90, 0],
        prompt: true,
        small_chunks: true,
        long: true,
        spread: true,
        calm: true,
        sync_seconds: Wishes::SOON,
        tending: Tending::Never,
        ..Wishes::default()
    }
}

/// The same, and a flush is soon late.
fn soon_late() -> Wishes {
    Wishes { impatient: true, ..never_flushed() }
}

impl Teller {
    /// One of the first two members. The first is read rather.
    fn one_that_is_read(&mut self) -> u16 {
        self.pick(&[0, 0, 0, 1])
    }

    /// A sync task has done something, and goes on.
    fn in_the_middle(&self, disk: u16) -> Aim {
        self.to(disk, Point::WindowIsDone, Happening::Reset, 2 * self.often).at_once()
    }
}

/// In the first resync.
pub(super) fn in_a_resync(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let disk = tell.one_that_is_read();
    let aims =
        vec![tell.in_the_middle(disk), tell.at(Point::MembersAnswered, Happening::ReadAll, 1)];
    let wishes =
        Wishes { levels: &[1, 1, 6, 6, 10], first_resync: true, no_spare: true, ..never_flushed() };
    (aims, wishes)
}

/// In a rebuild that other members can go on with.
pub(super) fn in_a_rebuild(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let disk = tell.one_that_is_read();
    filled(tell, tell.to(2, Point::MembersAnswered, Happening::FailMember, 50), disk, &[1, 1, 6])
}

/// While users read and write on, as soon as its flush has told.
pub(super) fn told_by_a_flush(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![tell.to(0, Point::MembersAnswered, Happening::ResetAndFlush, 40).at_once()];
    (aims, Wishes { levels: &[1, 4, 5, 6, 10], synced: true, no_spare: true, ..soon_late() })
}

/// The same in a rebuild: the new member has something of what was lost.
pub(super) fn told_in_a_rebuild(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let disk = tell.one_that_is_read();
    let aims = vec![
        tell.to(2, Point::MembersAnswered, Happening::FailMember, 50),
        tell.to(disk, Point::WindowIsDone, Happening::ResetAndFlush, 2 * tell.often).at_once(),
        tell.at(Point::MembersAnswered, Happening::ReadAll, 1),
    ];
    let levels = &[1, 6, 6, 6];
    (aims, Wishes { levels, three: true, synced: true, spare: true, ..soon_late() })
}

/// Before another member is failed by order.
pub(super) fn failed_beside(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![tell.at(Point::MembersAnswered, Happening::ResetAndFail, 40).at_once()];
    (aims, Wishes { levels: &[1, 4, 5, 10], synced: true, no_spare: true, ..never_flushed() })
}

/// In the copy for the replacement of what resets.
pub(super) fn in_a_copy(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let disk = tell.one_that_is_read();
    let begin = tell.to(disk, Point::MembersAnswered, Happening::Replace, 50);
    filled(tell, begin, disk, &[1, 4, 5, 6, 10])
}

fn filled(tell: &Teller, begin: Aim, disk: u16, levels: &'static [i32]) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        begin,
        tell.in_the_middle(disk),
        tell.after(Point::MemberIsFilled, 1),
        tell.at(Point::MembersAnswered, Happening::ReadAll, 1),
    ];
    let wishes = Wishes { levels, three: true, synced: true, spare: true, ..never_flushed() };
    (aims, wishes)
}

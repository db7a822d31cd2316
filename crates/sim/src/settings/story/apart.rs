//! Stories of assembly and of paths. Runs have them that would have no story: what other seeds draw stays as it is.

use std::time::Duration;

use mdspace_engine::array::Point;

use super::plots::{MIRRORS, Plot, RECORDS_TAKE, redundant};
use super::{Story, Teller, Wishes};
use crate::random::Random;
use crate::settings::{Aim, Happening, Tending, Trouble};
use crate::world::Servers;

/// All of them.
pub(super) const PLOTS: &[Plot] = &[
    Plot("stale-number", [1, 1], stale_number),
    Plot("seesaw", [1, 1], seesaw),
    Plot("two-behind", [2, 0], two_behind),
    Plot("twins", [12, 1], twins),
    Plot("newcomer", [4, 1], newcomer),
    Plot("halves", [6, 0], halves),
    Plot("forgotten-bitmaps", [2, 1], forgotten_bitmaps),
    Plot("replaced-while-busy", [4, 4], replaced_while_busy),
    Plot("handed-over", [3, 0], handed_over),
    Plot("overlapping-late", [6, 0], overlapping_late),
    Plot("slow-fences", [0, 8], slow_fences),
    Plot("secret-flush", [0, 5], secret_flush),
    Plot("secret-fua", [0, 8], secret_fua),
    Plot("fua-flush-fails", [0, 1], fua_flush_fails),
    Plot("flush-beside-fua", [0, 12], flush_beside_fua),
    Plot("own-caches", [0, 2], own_caches),
    Plot("lost-caches", [0, 10], lost_caches),
    Plot("misled", [2, 2], misled),
    Plot("behind-the-filled", [6, 0], behind_the_filled),
    Plot("behind-the-replaced", [8, 0], behind_the_replaced),
];

/// The story of a run that would have none; or none, one time in four.
pub(super) fn draw(seed: u64, trouble: Trouble) -> Story {
    let mut random = Random::new(seed ^ 0x6170_6172_7421_2121);
    if random.one_in(4) {
        return Story::default();
    }
    let (name, aims, wishes) = Plot::draw(PLOTS, seed, trouble);
    Story { name, aims, wishes: Some(wishes) }
}

/// An array with redundancy, whose disks are reached directly.
fn direct() -> Wishes {
    Wishes { paths: Some(0), ..redundant() }
}

impl Wishes {
    /// What is not flushed is lost, and users flush. No row may be made right by another trouble.
    fn lossy(self) -> Self {
        Self {
            levels: &[5, 6, 6, 10, 10],
            volatile_cache: true,
            no_spare: true,
            calm: true,
            ..self
        }
    }
}

/// A member leaves, its number goes to the next one, and it is back in the place of that.
fn stale_number(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::Unplug, 5),
        tell.at(Point::MembersAnswered, Happening::Restart, 1),
        tell.after(Point::MemberIsFilled, 1),
        tell.at(Point::MembersAnswered, Happening::PlugBack, 10),
        tell.at(Point::MembersAnswered, Happening::Restart, 1),
    ];
    let wishes = Wishes {
        reused_numbers: true,
        no_spare: true,
        sync_seconds: Wishes::AT_ONCE,
        kinds: [50, 50, 0],
        tending: Tending::Returns,
        ..direct()
    };
    (aims, wishes)
}

/// Two disks of one number take turns, with few updates between.
fn seesaw(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let crash = if tell.coin { Happening::Kill } else { tell.crash };
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::Unplug, 5),
        tell.at(Point::MembersAnswered, Happening::Restart, 1),
        tell.after(Point::MemberIsFilled, 1),
        tell.at(Point::SuperblocksAreWritten, Happening::PlugBack, 1),
        tell.at(Point::MembersAnswered, crash, 5),
        tell.after(Point::MemberIsIn, 1),
        tell.at(Point::SuperblocksAreWritten, Happening::PlugBack, 1),
        tell.at(Point::MembersAnswered, crash, 1),
    ];
    let wishes = Wishes {
        levels: MIRRORS,
        bitmap: Some(true),
        reused_numbers: true,
        no_spare: true,
        hot: true,
        sync_seconds: 1,
        kinds: [20, 80, 0],
        tending: Tending::Returns,
        ..direct()
    };
    (aims, wishes)
}

/// A member leaves that alone got the update with which writes began. Its number and its slot go to the next one, in
/// three updates of the one that stayed; then it is back in the place of that.
fn two_behind(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::Rest, 10),
        tell.to(0, Point::ArrayIsClean, Happening::Unplug, 1),
        Aim { late_by: RECORDS_TAKE, ..tell.at(Point::LaggardsCaughtUp, Happening::Kill, 1) },
        tell.at(Point::SlotIsGiven, Happening::PlugBack, 1).at_once(),
        tell.at(Point::SuperblocksAreWritten, Happening::Kill, 1).at_once(),
    ];
    let wishes = Wishes {
        levels: MIRRORS,
        few: true,
        bitmap: Some(false),
        reused_numbers: true,
        no_spare: true,
        paced: true,
        calm: true,
        sync_seconds: Wishes::AT_ONCE,
        kinds: [20, 80, 0],
        tending: Tending::Returns,
        ..direct()
    };
    (aims, wishes)
}

/// A spare leaves, its number goes to the next one, and it is back beside that. Then both are needed.
fn twins(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::Unplug, 5),
        tell.at(Point::MembersAnswered, Happening::Restart, 1),
        tell.after(Point::MemberIsIn, 1),
        tell.at(Point::MembersAnswered, Happening::PlugBeside, 10),
        tell.at(Point::MembersAnswered, Happening::Restart, 1),
        tell.fail(),
        tell.at(Point::MemberIsFilled, Happening::Rest, 1),
        tell.at(Point::MembersAnswered, Happening::FailMember, 1),
        tell.at(Point::SuperblocksAreWritten, Happening::Restart, 1),
    ];
    let wishes = Wishes {
        levels: &[1, 4, 5, 10],
        few: true,
        reused_numbers: true,
        spare: true,
        sync_seconds: Wishes::AT_ONCE,
        tending: Tending::Never,
        ..direct()
    };
    (aims, wishes)
}

/// The power goes with the superblocks that give a spare its slot: the others know it, the spare may not.
fn newcomer(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.fail(),
        tell.at(Point::SuperblocksAreWritten, Happening::Rest, 1),
        tell.at(Point::ArrayIsClean, Happening::AddSpare, 1),
        // Its own superblock comes first, and is not durable. The others give it the slot all the same.
        tell.to(2, Point::SlotIsGiven, Happening::FailFlush, 1).at_once(),
        tell.at(Point::MemberIsOut, Happening::PowerCut, 1).at_once(),
        // It is filled: another one may leave.
        tell.at(Point::MembersAnswered, Happening::Pause, 1),
        tell.at(Point::MembersAnswered, Happening::Pause, 1),
    ];
    let wishes = Wishes {
        levels: MIRRORS,
        few: true,
        bitmap: Some(false),
        no_spare: true,
        volatile_cache: true,
        fua_flushes: true,
        paced: true,
        sync_seconds: Wishes::AT_ONCE,
        kinds: [50, 50, 0],
        calm: true,
        tending: Tending::Never,
        ..direct()
    };
    (aims, wishes)
}

/// Some copies run elsewhere, and come back.
fn halves(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::PartAway, 20),
        tell.at(Point::MembersAnswered, Happening::Restart, 1),
        tell.at(Point::MembersAnswered, Happening::Restart, 5),
        tell.at(Point::MembersAnswered, Happening::Restart, 5),
        tell.at(Point::MembersAnswered, Happening::Tend, 5),
        tell.after(Point::MemberIsFilled, 1),
        tell.at(Point::MembersAnswered, Happening::ReadAll, 1),
    ];
    let wishes = Wishes {
        levels: MIRRORS,
        bitmap: Some(true),
        no_spare: true,
        sync_seconds: Wishes::AT_ONCE,
        kinds: [50, 50, 0],
        tending: Tending::Returns,
        ..direct()
    };
    (aims, wishes)
}

/// A program that leaves the bitmap alone had the array until a crash.
fn forgotten_bitmaps(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let crash = if tell.coin { Happening::Kill } else { tell.crash };
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::Rest, 1),
        tell.at(Point::MembersAnswered, Happening::Restart, 1),
        tell.at(Point::MembersAnswered, Happening::ForgetBitmaps, 20),
        tell.at(Point::MembersAnswered, crash, 1),
    ];
    let wishes = Wishes { bitmap: Some(true), kinds: [10, 90, 0], ..direct() };
    (aims, wishes)
}

/// The power goes while a replacement has some of its slot, and users write where it has been.
fn replaced_while_busy(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.after(Point::ProgressIsRecorded, tell.often),
        tell.at(Point::MembersAnswered, Happening::PowerCut, 5),
    ];
    let wishes = Wishes {
        levels: &[4, 5, 5, 6, 10],
        spare: true,
        volatile_cache: true,
        small_chunks: true,
        sync_seconds: 3,
        kinds: [10, 90, 0],
        troubles: &[Happening::Replace],
        ..direct()
    };
    (aims, wishes)
}

/// The power goes with the superblocks that give up a member for its replacement.
fn handed_over(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::Pause, 1),
        tell.at(Point::MembersAnswered, Happening::Replace, 1),
        Aim { late_by: RECORDS_TAKE, ..tell.at(Point::MemberIsFilled, Happening::PowerCut, 1) },
        // The old member leaves, and is a spare.
        tell.at(Point::MembersAnswered, Happening::Pause, 1),
        tell.at(Point::MembersAnswered, Happening::Tend, 1),
        tell.at(Point::MembersAnswered, Happening::Pause, 1),
        tell.at(Point::MembersAnswered, Happening::Tend, 1),
    ];
    let wishes = Wishes {
        levels: &[4, 5, 5, 6],
        bitmap: Some(false),
        spare: true,
        volatile_cache: true,
        paced: true,
        sync_seconds: Wishes::AT_ONCE,
        kinds: [10, 90, 0],
        calm: true,
        trickle: true,
        ..direct()
    };
    (aims, wishes)
}

/// Members that several paths lead to.
fn over(paths: u16) -> Wishes {
    Wishes { paths: Some(paths), ..redundant() }
}

/// Writes of one place go over several paths, and one is lost. What users see then must stay.
fn overlapping_late(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::LosePath, 10),
        tell.at(Point::MembersAnswered, Happening::ReadTwice, 1),
    ];
    let wishes = Wishes {
        levels: &[0, -1],
        kinds: [60, 60, 0],
        hot: true,
        uneven: true,
        calm: true,
        ..over(2)
    };
    (aims, wishes)
}

/// A path is lost again while its fence is on its way.
fn slow_fences(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::LosePath, 5),
        tell.at(Point::MembersAnswered, Happening::Pause, 1),
        tell.at(Point::MembersAnswered, Happening::LosePath, 5),
        tell.at(Point::MembersAnswered, Happening::ReadTwice, 20),
    ];
    let servers = Servers { slow_fences: true, ..Servers::default() };
    let wishes = Wishes {
        levels: &[0, -1],
        kinds: [30, 60, 0],
        busy: true,
        hot: true,
        uneven: true,
        calm: true,
        servers,
        ..over(2)
    };
    (aims, wishes)
}

/// A flush fails, and its path is lost before it says so. Then the power goes.
fn secret_flush(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::LoseFlush, 20),
        tell.at(Point::MembersAnswered, Happening::PowerCut, 10 * tell.often),
    ];
    (aims, Wishes { kinds: [10, 80, 15], ..over(2) }.lossy())
}

/// The same of a durable write.
fn secret_fua(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let (mut aims, wishes) = secret_flush(tell);
    (aims[0].one_in, aims[1].one_in) = (40, 60);
    (aims, Wishes { fua_flushes: true, durable_one_in: Some(5), kinds: [10, 90, 6], ..wishes })
}

/// A durable write is written, and the flush that follows fails. Then the power goes.
fn fua_flush_fails(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::FailFlush, 20),
        tell.at(Point::MembersAnswered, Happening::PowerCut, 40),
    ];
    let wishes =
        Wishes { fua_flushes: true, durable_one_in: Some(5), kinds: [10, 90, 6], ..direct() };
    (aims, wishes.lossy())
}

/// The same, and a flush beside that write goes well over what it lost. The power goes before its end is on record.
fn flush_beside_fua(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::FailFlush, 10),
        tell.at(Point::MemberIsOut, Happening::PowerCut, 1).at_once(),
    ];
    let wishes = Wishes {
        fua_flushes: true,
        durable_one_in: Some(10),
        uneven: true,
        spaced: true,
        kinds: [0, 80, 10],
        ..direct()
    };
    (aims, Wishes { levels: &[5], few: true, ..wishes.lossy() })
}

/// Servers have caches of their own. Users flush, and the power goes.
fn own_caches(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![tell.at(Point::MembersAnswered, Happening::PowerCut, 10 * tell.often)];
    let servers = Servers { own_caches: true, ..Servers::default() };
    (aims, Wishes { kinds: [10, 80, 15], servers, ..over(2) }.lossy())
}

/// The same, and a server is lost before: the next flush has to tell.
fn lost_caches(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::LosePath, 20),
        tell.at(Point::MembersAnswered, Happening::PowerCut, 40),
    ];
    let (_, wishes) = own_caches(tell);
    (aims, Wishes { durable_one_in: Some(0), kinds: [10, 90, 4], ..wishes })
}

/// A path leads to an older copy of its disk when it is connected anew.
fn misled(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::ArrayIsDirty, Happening::Mislead, 1),
        tell.at(Point::MembersAnswered, Happening::Mislead, 20),
    ];
    let wishes = Wishes { kinds: [50, 50, 0], pauses: true, ..over(2) };
    (aims, wishes)
}

/// Mirrors of two of which one is written behind, and a spare. All that users write is to be durable when it is answered.
fn behind_with_a_spare() -> Wishes {
    Wishes {
        levels: &[1],
        behind: true,
        spare: true,
        volatile_cache: true,
        durable_one_in: Some(1),
        hot: true,
        tending: Tending::Never,
        ..direct()
    }
}

/// The only member that is not written behind is filled while users write. The power goes soon after a write was answered
/// that the other one may lack: by then the filled one is on record as in sync.
fn behind_the_filled(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.to(0, Point::MembersAnswered, Happening::Vanish, 20),
        tell.after(Point::SlotIsGiven, 1),
        tell.after(Point::WindowIsDone, 1),
        Aim {
            late_by: Duration::from_millis(8),
            ..tell.at(Point::AnsweredBehind, Happening::PowerCut, 1)
        },
    ];
    let wishes = Wishes {
        in_front: true,
        long: true,
        slow_records: true,
        spaced: true,
        sync_seconds: 3,
        kinds: [50, 50, 0],
        ..behind_with_a_spare()
    };
    (aims, wishes)
}

/// A member that is written behind is replaced by one that is not. What is behind is under way when that takes over, and
/// is read there. Users come to all places, a block at a time: few writes wait for others.
fn behind_the_replaced(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.to(0, Point::MembersAnswered, Happening::Replace, 10),
        tell.after(Point::MemberIsFilled, 1),
    ];
    let wishes = Wishes {
        behind_first: true,
        synced: true,
        spread: true,
        short: true,
        spaced: true,
        calm: true,
        sync_seconds: Wishes::AT_ONCE,
        durable_one_in: Some(0),
        kinds: [80, 20, 0],
        ..behind_with_a_spare()
    };
    (aims, wishes)
}

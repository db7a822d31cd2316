//! The stories.

use std::time::Duration;

use mdspace_engine::array::Point;

use super::{Teller, Wishes, orders, outliers, resets};
use crate::random::{Random, splitmix64};
use crate::settings::{Aim, Happening, Tending, Trouble};

/// What tells a story.
type Tell = fn(&mut Teller) -> (Vec<Aim>, Wishes);

/// A story, and how often it is told within bearable trouble and beyond.
pub(super) struct Plot(pub(super) &'static str, pub(super) [u32; 2], pub(super) Tell);

impl Plot {
    /// Draws one of `plots`, and tells it. Each draws as many tickets as its weight, from a stream of its own, and the least
    /// of all wins: a story that is new, or comes more often, takes seeds from others and changes nothing else.
    pub(super) fn draw(
        plots: &[Self],
        seed: u64,
        trouble: Trouble,
    ) -> (&'static str, Vec<Aim>, Wishes) {
        let tickets = plots.iter().filter_map(|plot| {
            let Self(name, [bearable, beyond], _) = plot;
            let weight = if trouble == Trouble::Bearable { *bearable } else { *beyond };
            let mut own = stream(seed, name);
            let least = (0..weight).map(|_| own.next()).min()?;
            Some((least, plot))
        });
        let (_, Self(name, _, tell)) =
            tickets.min_by_key(|(least, _)| *least).expect("some have a weight");
        let (aims, wishes) = tell(&mut Teller::new(stream(seed, name).fork()));
        (name, aims, wishes)
    }
}

/// All of them. Those that seldom break what they were written for come more often.
pub(super) const PLOTS: &[Plot] = &[
    Plot("any-crash", [2, 2], any_crash),
    Plot("any-change", [2, 2], any_change),
    Plot("change-in-a-write", [2, 2], change_in_a_write),
    Plot("first-resync", [4, 2], first_resync),
    Plot("filled-in-quiet", [5, 4], filled_in_quiet),
    Plot("filled-in-fits", [4, 2], filled_in_fits),
    Plot("filled-around-doubt", [0, 8], filled_around_doubt),
    Plot("filled", [2, 2], filled),
    Plot("cleared-while-filled", [7, 4], cleared_while_filled),
    Plot("flush-fails", [0, 5], flush_fails),
    Plot("lists", [2, 2], lists),
    Plot("off-the-list", [0, 14], off_the_list),
    Plot("behind", [5, 0], behind),
    Plot("behind-and-read", [12, 0], behind_and_read),
    Plot("behind-in-quiet", [9, 0], behind_in_quiet),
    Plot("behind-off-record", [5, 0], behind_off_record),
    Plot("cleared-without", [3, 3], cleared_without),
    Plot("back-too-soon", [7, 2], back_too_soon),
    Plot("failure-off-record", [2, 5], failure_off_record),
    Plot("cleared", [7, 2], cleared),
    Plot("replaced", [2, 2], replaced),
    Plot("replaced-before-resync", [2, 0], replaced_before_resync),
    Plot("filled-from-spoilt", [3, 3], filled_from_spoilt),
    Plot("only-copy", [0, 14], only_copy),
    Plot("superblocks", [4, 3], superblocks),
    Plot("late-lane", [4, 3], late_lane),
    Plot("durable", [3, 2], durable),
    Plot("flushed", [3, 2], flushed),
    Plot("no-room", [3, 2], no_room),
    Plot("failed-round", [9, 0], failed_round),
    Plot("filled-from-full", [18, 0], filled_from_full),
    Plot("filled-past-holes", [7, 0], filled_past_holes),
    Plot("waits-for-space", [7, 0], waits_for_space),
    Plot("breaks", [0, 11], breaks),
    Plot("lost-before-resync", [3, 2], lost_before_resync),
    Plot("doubt-across-a-stop", [0, 9], doubt_across_a_stop),
    Plot("back-with-a-list", [18, 0], back_with_a_list),
    Plot("listed-and-left-out", [10, 0], listed_and_left_out),
    Plot("back-half-filled", [6, 2], back_half_filled),
    Plot("replaced-in-crash", [3, 2], replaced_in_crash),
    Plot("differing-copies", [2, 1], differing_copies),
    Plot("half-done", [0, 40], outliers::half_done),
    Plot("unreadable-for-a-while", [0, 20], outliers::unreadable_for_a_while),
    Plot("lost-without-room", [0, 4], outliers::lost_without_room),
    Plot("read-elsewhere", [0, 7], outliers::read_elsewhere),
    Plot("back-off-record", [0, 8], outliers::back_off_record),
    Plot("reset-in-a-resync", [4, 2], resets::in_a_resync),
    Plot("reset-in-a-rebuild", [6, 3], resets::in_a_rebuild),
    Plot("reset-in-a-copy", [6, 3], resets::in_a_copy),
    Plot("reset-and-told", [6, 3], resets::told_by_a_flush),
    Plot("reset-and-failed", [6, 3], resets::failed_beside),
    Plot("reset-and-told-in-a-rebuild", [6, 3], resets::told_in_a_rebuild),
    Plot("accepted-off-the-list", [0, 7], orders::accepted_off_the_list),
    Plot("accepted-and-written-beside", [0, 14], orders::accepted_and_written_beside),
    Plot("back-beside-doubt", [0, 18], orders::back_beside_doubt),
    Plot("flushed-past-behind", [0, 8], orders::flushed_past_behind),
    Plot("refused-behind", [0, 10], orders::refused_behind),
    Plot("record-takes-the-other", [0, 14], orders::record_takes_the_other),
    Plot("hung-two", [3, 2], orders::hung_two),
];

/// What the story of this name draws from.
fn stream(seed: u64, name: &str) -> Random {
    let of_name = name.bytes().fold(0, |mut sum, byte| splitmix64(&mut sum) ^ u64::from(byte));
    Random::new(seed ^ of_name)
}

/// Points of a pass that clears bits.
const CLEARING: &[Point] = &[
    Point::ClearingIsFlushed,
    Point::ClearingIsRecorded,
    Point::BitsAreCleared,
    Point::BitsAreCleared,
];

/// How long an update of superblocks takes where disks are paced, at most.
pub(super) const RECORDS_TAKE: Duration = Duration::from_millis(6);

const REDUNDANT: &[i32] = &[1, 4, 5, 6, 10];
const PARITY: &[i32] = &[4, 5, 5, 6];
pub(super) const MIRRORS: &[i32] = &[1, 1, 10];
const IN_CHUNKS: &[i32] = &[4, 5, 6, 10];

pub(super) fn redundant() -> Wishes {
    Wishes { levels: REDUNDANT, ..Wishes::default() }
}

/// Of an array in which a member will be filled.
fn with_spare(tell: &Teller) -> Wishes {
    let sync_seconds = tell.slowly;
    Wishes { spare: true, sync_seconds, volatile_cache: true, ..redundant() }
}

fn any_crash(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let point = tell.pick(Point::ALL);
    (vec![tell.at(point, tell.crash, tell.often)], redundant())
}

fn any_change(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let (one, change, other) = (tell.pick(Point::ALL), tell.change(), tell.pick(Point::ALL));
    let aims = vec![tell.at(one, change, tell.often), tell.at(other, tell.crash, tell.often)];
    (aims, redundant())
}

fn change_in_a_write(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let (point, change) = (tell.pick(&[Point::MembersAnswered, Point::RowIsRead]), tell.change());
    (vec![tell.at(point, change, 10 * tell.often)], redundant())
}

/// The array stops before it is resynced. Nothing is written when it goes on. A spare is added, and the power goes with the
/// superblocks that say so.
fn first_resync(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::WindowIsDone, Happening::OnlyRead, tell.often).at_once(),
        tell.then(Happening::Restart),
        tell.then(Happening::Rest),
        // Not long after one record of how far it came, and long before the next.
        tell.after(Point::ProgressIsRecorded, 1),
        tell.at(Point::WindowIsDone, Happening::AddSpare, 3).at_once(),
        tell.at(Point::SuperblocksAreWritten, Happening::PowerCut, 1).at_once(),
        tell.then(Happening::WriteAgain),
    ];
    let wishes = Wishes {
        levels: IN_CHUNKS,
        spare: false,
        first_resync: true,
        bitmap: Some(false),
        small_chunks: true,
        long: true,
        calm: true,
        paths: Some(0),
        ..with_spare(tell)
    };
    (aims, wishes)
}

impl Teller {
    /// Disks full of noise are resynced while users wait. No block of a member is by chance what another one has there.
    fn resyncs_noise(&self) -> Vec<Aim> {
        let pause = self.then(Happening::Pause);
        vec![self.at(Point::MembersAnswered, Happening::Pause, 10).at_once(), pause, pause]
    }
}

/// A member is being filled while users are quiet. A spare is added, and the power goes with the superblocks that say so.
fn filled_in_quiet(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    // Parity bears a crash only where no member is missing.
    let (begin, levels): (_, &[i32]) = tell.pick(&[
        (Happening::FailMember, &[10]),
        (Happening::Replace, IN_CHUNKS),
        (Happening::Replace, IN_CHUNKS),
    ]);
    let mut aims = tell.resyncs_noise();
    aims.extend([
        tell.then(begin),
        tell.then(Happening::Rest),
        tell.after(Point::ArrayIsClean, 1),
        // Not long after one record of how far it came, and long before the next.
        tell.after(Point::ProgressIsRecorded, 1),
        tell.at(Point::WindowIsDone, Happening::AddSpare, 3).at_once(),
        tell.at(Point::SuperblocksAreWritten, Happening::PowerCut, 1).at_once(),
    ]);
    let wishes = Wishes {
        levels,
        first_resync: true,
        small_chunks: true,
        long: true,
        calm: true,
        kinds: [10, 90, 0],
        paths: Some(0),
        ..with_spare(tell)
    };
    (aims, wishes)
}

/// A member is being filled while users pause and come back. The power goes with the superblocks that say so.
fn filled_in_fits(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let begin = if tell.coin { Happening::Replace } else { Happening::FailMember };
    let mut aims = tell.resyncs_noise();
    aims.extend([
        tell.then(begin),
        tell.after(Point::WindowIsDone, 2),
        tell.at(Point::ArrayIsDirty, Happening::PowerCut, 1).at_once(),
    ]);
    // Other levels bear a crash only where no member is missing.
    let levels = if tell.coin { IN_CHUNKS } else { &[10] };
    let wishes = Wishes {
        levels,
        bitmap: Some(true),
        first_resync: true,
        calm: true,
        paths: Some(0),
        kinds: [10, 90, 0],
        small_chunks: true,
        long: true,
        pauses: true,
        sync_seconds: 2,
        ..with_spare(tell)
    };
    (aims, wishes)
}

/// A member is lost where writes found no space: what belongs to it there nobody knows. A spare is filled with the rest, and
/// everything is read.
fn filled_around_doubt(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let (full, lost) = tell.pick(&[(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]);
    let aims = vec![
        tell.to(full, Point::MembersAnswered, Happening::Fill, 20),
        tell.after(Point::RowsAreInDoubt, 1).at_once(),
        tell.then_to(full, Happening::Steer),
        // In several rows: in some of them the other one has data.
        tell.at(Point::MembersAnswered, Happening::OnlyRead, 10).at_once(),
        tell.then(Happening::ReadNow),
        tell.then_to(lost, Happening::Vanish),
        tell.then(Happening::ReadNow),
        tell.then(Happening::LetGo),
        tell.then(Happening::Pause),
        tell.then(Happening::ReadNow),
        tell.then(Happening::WriteAgain),
    ];
    let wishes = Wishes {
        levels: &[5],
        few: true,
        spare: true,
        synced: true,
        hot: true,
        short: true,
        spread: true,
        calm: true,
        paths: Some(0),
        sync_seconds: Wishes::AT_ONCE,
        kinds: [50, 50, 0],
        tending: Tending::Never,
        ..Wishes::default()
    };
    (aims, wishes)
}

fn filled(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.fail(),
        tell.after(Point::MemberIsFilled, 1),
        tell.at(Point::SuperblocksAreWritten, Happening::PowerCut, 1),
    ];
    (aims, with_spare(tell))
}

/// A member comes back that missed much. Bits are cleared before it is filled, and the filling begins again.
fn cleared_while_filled(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let end =
        tell.pick(&[Happening::Restart, Happening::Restart, tell.crash, Happening::FailMember]);
    let aims = vec![
        tell.fail(),
        tell.after(Point::MembersAnswered, 30),
        tell.at(Point::MembersAnswered, Happening::Tend, 1),
        tell.at(Point::MemberIsIn, Happening::Rest, 1),
        tell.at(Point::BitsAreCleared, end, 1),
    ];
    let wishes = Wishes {
        levels: if tell.coin { MIRRORS } else { REDUNDANT },
        bitmap: Some(true),
        synced: true,
        few: true,
        no_spare: true,
        small_chunks: true,
        long: true,
        spread: true,
        calm: true,
        kinds: [20, 80, 0],
        sync_seconds: Wishes::SLOWLY,
        trickle: true,
        tending: Tending::Returns,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// A flush fails, and others flush the same member before its failure is on record.
fn flush_fails(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let record = tell.record();
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::FailFlush, 10),
        tell.after(Point::FlushFailed, 1),
        tell.at(if tell.coin { Point::MemberIsOut } else { record }, Happening::PowerCut, 1),
    ];
    let wishes = Wishes {
        levels: PARITY,
        volatile_cache: true,
        slow_records: true,
        kinds: [10, 50, 50],
        ..Wishes::default()
    };
    (aims, wishes)
}

/// Blocks get on and off lists.
fn lists(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let point = if tell.coin { Point::ListIsShorter } else { Point::ListIsLonger };
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::RefuseWrites, 10),
        tell.at(point, tell.crash, 1),
    ];
    let wishes = Wishes {
        volatile_cache: true,
        kinds: [10, 50, 20],
        hot: true,
        troubles: &[Happening::RefuseWrites],
        ..redundant()
    };
    (aims, wishes)
}

/// A member refuses a durable write, takes the next write of that block, and the power goes before that one is durable
/// there.
fn off_the_list(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.to(1, Point::MembersAnswered, Happening::RefuseAll, 3),
        tell.after(Point::ListIsLonger, 1),
        tell.at(Point::ListIsShorter, Happening::PowerCut, tell.often).at_once(),
    ];
    let wishes = Wishes {
        volatile_cache: true,
        durable: true,
        kinds: [10, 90, 2],
        hot: true,
        no_spare: true,
        calm: true,
        busy: true,
        paths: Some(0),
        tending: Tending::Returns,
        levels: PARITY,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// Writes behind are under way when another copy is lost or cannot be read.
fn behind(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let trouble = tell.pick(&[
        Happening::FailMember,
        Happening::FailMember,
        Happening::Vanish,
        Happening::Hang,
    ]);
    let aims = vec![
        // The only one that is not written behind.
        tell.to(0, Point::AnsweredBehind, trouble, tell.often),
        tell.at(Point::SuperblocksAreWritten, Happening::Tend, 1),
    ];
    let wishes = Wishes {
        levels: &[1],
        behind: true,
        kinds: [80, 20, 0],
        hot: true,
        sync_seconds: Wishes::AT_ONCE,
        tending: Tending::Returns,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// The last of the copies that are not written behind vanishes, and what is behind on the other one is read there. Some
/// of that takes seconds. Users come so slowly that the reads are not kept waiting by other writes.
fn behind_and_read(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.to(0, Point::AnsweredBehind, Happening::FailMember, 1),
        tell.after(Point::SuperblocksAreWritten, 1),
        Aim {
            late_by: Duration::from_secs(2),
            ..tell.to(1, Point::AnsweredBehind, Happening::Vanish, 1)
        },
        tell.at(Point::MembersAnswered, Happening::Tend, 8),
    ];
    let wishes = Wishes {
        levels: &[1],
        behind: true,
        three: true,
        paths: Some(0),
        kinds: [50, 50, 0],
        trickle: true,
        calm: true,
        hot: true,
        sync_seconds: Wishes::AT_ONCE,
        tending: Tending::Returns,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// Writes are behind on a member that holds them when users get quiet. The power goes when the array counts as clean, or
/// when bits are cleared.
fn behind_in_quiet(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let wishes = Wishes { levels: &[1], behind: true, ..Wishes::default() };
    if tell.pick(&[true, false, false, false]) {
        let aims = vec![
            tell.after(Point::AnsweredBehind, 10 * tell.often),
            tell.at(Point::BitsAreCleared, tell.crash, 1),
        ];
        return (aims, Wishes { trickle: true, ..wishes });
    }
    let aims = vec![
        tell.to(1, Point::AnsweredBehind, Happening::HoldData, 5).at_once(),
        tell.at(Point::AnsweredBehind, Happening::OnlyRead, 2).at_once(),
        tell.at(Point::ArrayIsClean, Happening::PowerCut, 1).at_once(),
        tell.then(Happening::WriteAgain),
    ];
    let wishes = Wishes {
        soon_there: true,
        short: true,
        calm: true,
        paths: Some(0),
        durable_one_in: Some(0),
        kinds: [20, 80, 0],
        ..wishes
    };
    (aims, wishes)
}

/// One of two copies that are not written behind is lost, and the process ends before that is on record. What was
/// written meanwhile is on the other one alone.
fn behind_off_record(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let crash = if tell.coin { Happening::Kill } else { tell.crash };
    let aims = vec![
        tell.after(Point::AnsweredBehind, 50),
        tell.to(0, Point::AnsweredBehind, Happening::FailMember, 1),
        tell.after(Point::MemberIsOut, 1).at_once(),
        tell.at(Point::AnsweredBehind, crash, 3).at_once(),
        tell.then(Happening::ReadNow),
    ];
    let wishes = Wishes {
        levels: &[1],
        behind: true,
        three: true,
        coarse_bitmap: true,
        soon_there: true,
        calm: true,
        busy: true,
        short: true,
        spread: true,
        long: true,
        paths: Some(0),
        slow_records: true,
        spaced: true,
        durable: true,
        kinds: [40, 60, 0],
        tending: Tending::Returns,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// A member is filled and bits are cleared; then it fails, and the one before it may come back.
fn cleared_without(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.fail(),
        tell.at(Point::MemberIsFilled, Happening::Rest, 1),
        tell.at(Point::BitsAreCleared, Happening::FailMember, 1),
        tell.at(Point::SuperblocksAreWritten, Happening::Tend, tell.often),
    ];
    let wishes = Wishes {
        bitmap: Some(true),
        spare: true,
        trickle: true,
        tending: Tending::Swaps,
        ..redundant()
    };
    (aims, wishes)
}

/// A member that hangs with writes under way is failed, and comes back. Users write there again before those land.
fn back_too_soon(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.to(0, Point::MembersAnswered, Happening::Hang, 20).at_once(),
        tell.after(Point::MemberIsOut, 1),
        tell.at(Point::SuperblocksAreWritten, Happening::Pause, 1).at_once(),
        tell.then(Happening::Tend),
        // Every other time the disk is not put back at once.
        tell.then(Happening::Pause),
        tell.then(Happening::Tend),
        tell.then(Happening::Pause),
        tell.then(Happening::Tend),
        tell.after(Point::MembersAnswered, 200),
    ];
    let wishes = Wishes {
        few: true,
        no_spare: true,
        synced: true,
        bitmap: Some(true),
        hot: true,
        short: true,
        prompt: true,
        impatient: true,
        calm: true,
        busy: true,
        paths: Some(0),
        kinds: [10, 90, 0],
        sync_seconds: Wishes::AT_ONCE,
        tending: Tending::Returns,
        ..redundant()
    };
    (aims, wishes)
}

/// A member fails with writes and flushes under way, and all ends before that is on record.
fn failure_off_record(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let crash = if tell.coin { Happening::Kill } else { tell.crash };
    let aims = vec![tell.fail(), tell.soon_after(Point::MemberIsOut, crash, 1)];
    let wishes =
        Wishes { slow_records: true, kinds: [10, 50, 20], tending: Tending::Never, ..redundant() };
    (aims, wishes)
}

/// Bits are cleared while users write elsewhere, and the power goes.
fn cleared(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let point = tell.pick(CLEARING);
    let aims = vec![tell.at(point, tell.crash, tell.often)];
    (aims, Wishes { bitmap: Some(true), volatile_cache: true, trickle: true, ..redundant() })
}

/// A replacement is being filled at a crash: what resync writes then, it needs as well.
fn replaced(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let end = if tell.coin { tell.crash } else { Happening::Fill };
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::Replace, 10),
        tell.after(Point::ProgressIsRecorded, tell.often),
        tell.at(Point::MembersAnswered, end, 10),
    ];
    (aims, Wishes { spare: true, sync_seconds: tell.slowly, ..redundant() })
}

/// A replacement has copied parity that no resync has made yet, and finds no space. The resync goes on meanwhile.
fn replaced_before_resync(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.to(2, Point::MembersAnswered, Happening::Replace, 5),
        tell.after(Point::SlotIsGiven, 1),
        tell.at(Point::SuperblocksAreWritten, Happening::Restart, 1),
        tell.after(Point::WindowIsDone, 10 * tell.often),
        tell.at(Point::WindowIsDone, Happening::Rest, 1),
        tell.to(3, Point::WindowIsDone, Happening::Fill, 1),
        tell.at(Point::MembersAnswered, Happening::Leave, 10),
    ];
    let wishes = Wishes {
        levels: &[4, 5, 5],
        few: true,
        spare: true,
        first_resync: true,
        small_chunks: true,
        long: true,
        kinds: [50, 50, 0],
        sync_seconds: Wishes::SOON,
        tending: Tending::Never,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// What a member is filled from cannot be read in places.
fn filled_from_spoilt(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.fail(),
        tell.at(Point::SlotIsGiven, Happening::SpoilSectors, 1),
        tell.at(Point::WindowIsDone, Happening::SpoilSectors, 1),
    ];
    (aims, Wishes { spare: true, sync_seconds: tell.slowly, ..redundant() })
}

/// The only copy cannot be read. It is written while the lane that lists it gets no turn.
fn only_copy(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let flicker = tell.to(1, Point::MembersAnswered, Happening::Flicker, 1).at_once();
    let doze = tell.to(0, Point::MembersAnswered, Happening::Doze, 2).at_once();
    let aims = vec![
        tell.to(0, Point::MembersAnswered, Happening::FailMember, 3),
        tell.after(Point::SuperblocksAreWritten, 1),
        doze,
        flicker,
        doze,
        flicker,
        tell.at(Point::ListIsLonger, Happening::Leave, 1).at_once(),
    ];
    let wishes = Wishes {
        paths: Some(0),
        slow_records: true,
        spaced: true,
        calm: true,
        kinds: [50, 50, 0],
        hot: true,
        short: true,
        levels: &[1, 1, 1, 5],
        few: true,
        no_spare: true,
        many_lanes: true,
        tending: Tending::Never,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// The power goes while superblocks are written, again and again.
fn superblocks(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![tell.soon_after(Point::BitmapSaysEvents, Happening::PowerCut, tell.often)];
    (aims, Wishes { slow_records: tell.coin, ..redundant() })
}

/// Copies differ after a crash, and are read again and again before a resync has been there.
fn differing_copies(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![tell.at(Point::MembersAnswered, tell.crash, 10 * tell.often)];
    let wishes = Wishes {
        levels: MIRRORS,
        sync_seconds: tell.slowly,
        kinds: [80, 50, 0],
        hot: true,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// A lane hears late that a member is out, and is read on.
fn late_lane(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let refuse = Happening::RefuseAll;
    let failure = tell.pick(&[refuse, refuse, Happening::FailMember]);
    let lane = tell.pick(&[1, 2, 3, 4]);
    let aims = vec![
        tell.to(0, Point::MembersAnswered, failure, 10),
        tell.to(lane, Point::MemberIsOut, Happening::Doze, 1).at_once(),
        tell.soon_after(Point::SuperblocksAreWritten, Happening::ReadAll, 1),
        tell.then(Happening::ReadAll),
        tell.then(Happening::Pause),
        tell.then(Happening::Tend),
        tell.at(Point::MemberIsIn, Happening::Doze, 1).at_once(),
    ];
    let wishes = Wishes {
        many_lanes: true,
        log_sectors: Some(0),
        kinds: [50, 50, 0],
        hot: true,
        alike: true,
        few: true,
        no_spare: true,
        calm: true,
        busy: true,
        sync_seconds: Wishes::AT_ONCE,
        tending: Tending::Returns,
        ..redundant()
    };
    (aims, wishes)
}

/// Several lanes write durably to the same few places, and the power goes.
fn durable(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![tell.at(Point::MembersAnswered, Happening::PowerCut, 10 * tell.often)];
    let wishes = Wishes {
        levels: PARITY,
        volatile_cache: true,
        many_lanes: true,
        durable: true,
        hot: true,
        kinds: [20, 80, 0],
        ..Wishes::default()
    };
    (aims, wishes)
}

/// Several lanes flush what they wrote, and the power goes.
fn flushed(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![tell.at(Point::MembersAnswered, Happening::PowerCut, 10 * tell.often)];
    let wishes = Wishes {
        volatile_cache: true,
        many_lanes: true,
        hot: true,
        kinds: [10, 50, 40],
        ..redundant()
    };
    (aims, wishes)
}

/// There is no space now and then, and soon a member is lost.
fn no_room(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::Fill, tell.often),
        tell.after(Point::RowsAreInDoubt, 1),
        tell.at(Point::MembersAnswered, Happening::FailMember, 10 * tell.often),
        tell.at(Point::SuperblocksAreWritten, Happening::Tend, 1),
    ];
    let wishes = Wishes {
        discards: true,
        hot: true,
        kinds: [40, 60, 0],
        sync_seconds: Wishes::AT_ONCE,
        ..redundant()
    };
    (aims, wishes)
}

/// A write finds no space. What it was to bring is read, and other writes follow in the same units.
fn failed_round(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::Fill, 10 * tell.often),
        tell.after(Point::RowsAreInDoubt, tell.often),
        tell.at(Point::MembersAnswered, Happening::ReadAll, 1),
        tell.after(Point::MembersAnswered, 40),
        tell.at(Point::MembersAnswered, Happening::ReadAll, 1),
    ];
    let wishes = Wishes {
        levels: PARITY,
        blank: true,
        discards: true,
        spaced: true,
        hot: true,
        kinds: [70, 30, 0],
        sync_seconds: Wishes::AT_ONCE,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// A member is filled with a copy of another one that has no space. What is written comes to the copy alone.
fn filled_from_full(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let (begin, full) = match tell.coin {
        true => (Happening::Replace, 0),
        false => (Happening::FailMember, 1),
    };
    let mut aims = vec![
        tell.to(0, Point::MembersAnswered, begin, 5),
        tell.after(Point::WindowIsDone, 1),
        // It has no space until all is filled.
        tell.at(Point::WindowIsDone, Happening::OnlyRead, 1).at_once(),
        tell.then_to(full, Happening::Fill),
        tell.then(Happening::WriteAgain),
        tell.after(Point::RowsAreInDoubt, 1),
        tell.at(Point::MembersAnswered, Happening::ReadAll, 3),
    ];
    let rest = tell.at(Point::MembersAnswered, Happening::Rest, 3);
    aims.extend(
        match tell.pick(&[
            None,
            None,
            None,
            None,
            Some(Happening::Restart),
            Some(Happening::Restart),
            Some(tell.crash),
        ]) {
            Some(Happening::Restart) => {
                vec![rest, tell.at(Point::ResyncIsRecorded, Happening::Restart, 1)]
            }
            Some(crash) => vec![tell.at(Point::ProgressIsRecorded, crash, 1)],
            None => vec![tell.after(Point::MembersAnswered, 10)],
        },
    );
    aims.push(tell.at(Point::MembersAnswered, Happening::Leave, 5));
    let wishes = Wishes {
        levels: if tell.coin { REDUNDANT } else { MIRRORS },
        few: true,
        spare: true,
        prompt: true,
        synced: true,
        discards: true,
        spaced: true,
        hot: true,
        in_front: true,
        long: true,
        kinds: [50, 50, 0],
        sync_seconds: Wishes::SOON,
        tending: Tending::Never,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// The only member of a mirror has no space, and writes come to the one alone that is filled with a copy of it. The array
/// stops as soon as that one is filled.
fn filled_past_holes(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.to(0, Point::MembersAnswered, Happening::FailMember, 5).at_once(),
        tell.after(Point::WindowIsDone, 1).at_once(),
        tell.then(Happening::OnlyRead),
        tell.then_to(1, Happening::Fill),
        tell.then(Happening::WriteAgain),
        tell.at(Point::MemberIsFilled, Happening::Restart, 1).at_once(),
        tell.at(Point::MembersAnswered, Happening::Leave, 100),
    ];
    let wishes = Wishes {
        levels: &[1, 10],
        few: true,
        spare: true,
        prompt: true,
        synced: true,
        spaced: true,
        hot: true,
        in_front: true,
        short: true,
        long: true,
        calm: true,
        busy: true,
        paths: Some(0),
        kinds: [85, 15, 0],
        sync_seconds: Wishes::SOON,
        tending: Tending::Never,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// Two members are lost. A spare is filled, finds no space and waits, and another spare is added.
fn waits_for_space(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.to(0, Point::MembersAnswered, Happening::FailMember, 5),
        tell.to(1, Point::MembersAnswered, Happening::FailMember, 5),
        tell.at(Point::WindowIsDone, Happening::Rest, 1),
        tell.to(3, Point::WindowIsDone, Happening::Fill, 2),
        tell.at(Point::MembersAnswered, Happening::AddSpare, 1),
        tell.after(Point::MemberIsFilled, 5),
    ];
    let wishes = Wishes {
        levels: &[1],
        three: true,
        bitmap: Some(false),
        spare: true,
        blank: true,
        long: true,
        trickle: true,
        kinds: [50, 50, 0],
        sync_seconds: 8,
        tending: Tending::Never,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// A mirror of two loses one member, and the other one while that loss is being put on record. What was written in
/// between was answered by the other one alone.
fn breaks(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let fail = Happening::FailMember;
    let first = tell.pick(&[fail, fail, fail, Happening::Vanish]);
    let aims = vec![
        tell.after(Point::ArrayIsDirty, 1),
        tell.to(0, Point::MembersAnswered, first, 150),
        Aim { late_by: RECORDS_TAKE / 3, ..tell.to(1, Point::MemberIsOut, Happening::Vanish, 1) },
    ];
    let wishes = Wishes {
        levels: &[1, 1, 10],
        bitmap: Some(false),
        few: true,
        alike: true,
        synced: true,
        no_spare: true,
        small_chunks: true,
        paths: Some(0),
        paced: true,
        spaced: true,
        kinds: [10, 90, 0],
        tending: Tending::Never,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// A member is lost before the first resync has been everywhere.
fn lost_before_resync(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::FailMember, 10 * tell.often),
        tell.after(Point::ArrayIsClean, 20),
    ];
    let wishes = Wishes {
        levels: PARITY,
        first_resync: true,
        sync_seconds: 15,
        hot: true,
        kinds: [60, 40, 0],
        ..Wishes::default()
    };
    (aims, wishes)
}

/// The power goes, and the array is stopped before resync has been everywhere. A member is lost after that: parity that
/// the crash left half-written does not give its blocks.
fn doubt_across_a_stop(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::PowerCut, 50),
        tell.at(Point::WindowIsDone, Happening::Restart, tell.often),
        tell.at(Point::MembersAnswered, Happening::Vanish, 2),
        tell.at(Point::MembersAnswered, Happening::Leave, 2),
    ];
    let wishes = Wishes {
        levels: &[4, 5, 5],
        few: true,
        no_spare: true,
        bitmap: Some(false),
        volatile_cache: true,
        small_chunks: true,
        long: true,
        paths: Some(0),
        kinds: [30, 70, 0],
        sync_seconds: Wishes::SOON,
        tending: Tending::Never,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// A member lists bad blocks, and users are quiet. Bits are cleared, and it leaves and comes back.
fn back_with_a_list(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    // Users seldom come to all places that are refused.
    let refuse = tell.to(0, Point::MembersAnswered, Happening::RefuseWrites, 3);
    let aims = vec![
        refuse,
        refuse,
        refuse,
        refuse,
        tell.at(Point::ListIsLonger, Happening::Rest, 1),
        tell.to(0, Point::BitsAreCleared, Happening::FailMember, 1),
        tell.at(Point::SuperblocksAreWritten, Happening::Tend, 1),
        tell.at(Point::MemberIsFilled, Happening::Leave, 1),
    ];
    let wishes = Wishes {
        hot: true,
        bitmap: Some(true),
        synced: true,
        no_spare: true,
        kinds: [20, 80, 0],
        sync_seconds: tell.slowly,
        tending: Tending::Returns,
        ..redundant()
    };
    (aims, wishes)
}

/// A member that lists bad blocks is not there at a start. It is put back before anything is written, and a crash comes
/// when it loses its list.
fn listed_and_left_out(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let aims = vec![
        tell.to(0, Point::MembersAnswered, Happening::RefuseAll, 20).at_once(),
        tell.then_to(0, Happening::RefuseAll),
        tell.to(0, Point::ListIsLonger, Happening::StartWithout, 1).at_once(),
        tell.at(Point::MemberIsIn, tell.crash, 1).at_once(),
    ];
    let wishes = Wishes {
        // With parity no crash is borne while a member is out.
        levels: MIRRORS,
        no_spare: true,
        synced: true,
        alike: true,
        calm: true,
        paths: Some(0),
        kinds: [20, 80, 0],
        hot: true,
        tending: Tending::Returns,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// A new member fails while it is being filled, and comes back.
fn back_half_filled(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let (levels, new): (&[i32], u16) = tell.pick(&[(&[1, 10], 2), (&[4, 5], 3), (&[6], 4)]);
    let mut aims = tell.resyncs_noise();
    aims.extend([
        // Few bits are set when it comes back.
        tell.then(Happening::Pause),
        tell.then(Happening::OnlyRead),
        tell.then_to(0, Happening::FailMember),
        tell.then(Happening::Pause),
        tell.then(Happening::Tend),
        tell.after(Point::SlotIsGiven, 1),
        tell.to(new, Point::WindowIsDone, Happening::FailMember, 1),
        tell.then(Happening::Pause),
        tell.then(Happening::Tend),
        tell.after(Point::MemberIsFilled, 1),
        tell.then(Happening::ReadNow),
        tell.then(Happening::WriteAgain),
    ]);
    let wishes = Wishes {
        bitmap: Some(true),
        first_resync: true,
        no_spare: true,
        calm: true,
        paths: Some(0),
        kinds: [10, 90, 0],
        small_chunks: true,
        sync_seconds: tell.slowly,
        tending: Tending::Renews,
        levels,
        few: true,
        ..Wishes::default()
    };
    (aims, wishes)
}

/// A replacement takes over, or is about to, and the power goes.
fn replaced_in_crash(tell: &mut Teller) -> (Vec<Aim>, Wishes) {
    let point = tell.pick(&[
        Point::BitmapSaysEvents,
        Point::ProgressIsRecorded,
        Point::ArrayIsDirty,
        Point::MembersAnswered,
    ]);
    let crash = tell.soon_after(point, tell.crash, tell.often);
    let aims = vec![
        tell.at(Point::MembersAnswered, Happening::Replace, 5),
        tell.after(Point::WindowIsDone, 5 * tell.often),
        crash,
    ];
    let wishes = Wishes {
        few: true,
        slow_records: tell.coin,
        kinds: [20, 80, 0],
        small_chunks: true,
        ..with_spare(tell)
    };
    (aims, wishes)
}

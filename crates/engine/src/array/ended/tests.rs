//! What lanes answer by a view's word alone is what the verdict says of each of its blocks.

use super::super::view::samples::view_of;
use super::*;
use crate::geometry::Level;

/// What becomes of a slot.
#[derive(Clone, Copy, Debug)]
enum Has {
    InSync,
    Out,
    Listed,
    ListedInMemory,
    Hole,
    OnRecordInPart,
}

const ALL: [Has; 6] =
    [Has::InSync, Has::Out, Has::Listed, Has::ListedInMemory, Has::Hole, Has::OnRecordInPart];

/// Sectors about which something is special.
fn special() -> Arc<Ranges> {
    Arc::new(Ranges::of(0..4))
}

fn with(mut member: MemberView, has: Has) -> Option<MemberView> {
    match has {
        Has::InSync => {}
        Has::Out => return None,
        Has::Listed => member.bad = special(),
        Has::ListedInMemory => (member.bad, member.bad_in_memory) = (special(), special()),
        Has::Hole => member.holes = special(),
        Has::OnRecordInPart => member.recorded_sectors = 2,
    }
    Some(member)
}

/// Every write of whole members' columns that the tests make in a view: all sets of written blocks.
fn targets(view: &ArrayView) -> Vec<Target> {
    let Geometry::Parity(map) = &*view.geometry else {
        return vec![Target::Copies(0..8), Target::Copies(4..8)];
    };
    let columns = Columns { start: 0, end: 8 };
    let sets = 1..1_usize << map.data_disks();
    let written = sets.map(|set| {
        let places = (0..usize::from(map.data_disks())).filter(move |place| set >> place & 1 == 1);
        places.map(|place| (place, columns.clone())).collect()
    });
    written.map(|written| Target::Row { row: 0, columns: columns.clone(), written }).collect()
}

/// All views of four slots, with and without doubt and what a resync left undone.
fn all_views(mut look: impl FnMut(ArrayView)) {
    let levels = [
        (Level::Raid1, 0),
        (Level::Raid4, 0),
        (Level::Raid5, 2),
        (Level::Raid6, 2),
        (Level::Raid10, 0x102),
        (Level::Raid10, 0x201),
    ];
    for (level, layout) in levels {
        for number in 0..ALL.len().pow(4) {
            let has = |slot: Slot| ALL[number / ALL.len().pow(slot.0.into()) % ALL.len()];
            for (doubted, unresolved) in [(false, false), (true, false), (false, true)] {
                let mut view = view_of(level, layout, 4, |slot, member| with(member, has(slot)));
                if doubted {
                    (view.doubted, view.unaccepted) = (special(), special());
                }
                if unresolved {
                    view.unresolved = special();
                }
                view.describe();
                look(view);
            }
        }
    }
}

#[test]
fn a_write_that_all_took_under_a_plain_view_is_answered_with_nothing_to_record() {
    let (mut plain, mut others, mut others_to_ask) = (0, 0, 0);
    all_views(|view| {
        let is_plain = view.plain;
        let view = Arc::new(view);
        for target in targets(&view) {
            let judged =
                Ended::well(target.clone(), Arc::clone(&view)).judge(&view, Lists::ANYTHING);
            let is_answered = judged.outcome == Outcome::Answer
                && !judged.asks_to_record()
                && judged.doubt.is_empty()
                && judged.made_whole.is_empty()
                && judged.may_resync.is_empty();
            assert!(is_answered || !is_plain, "{target:?} in {view:?} comes to {judged:?}");
            plain += u32::from(is_plain);
            others += u32::from(!is_plain);
            others_to_ask += u32::from(!is_plain && !is_answered);
        }
    });
    // A view that is not plain is one that has to be asked, far more often than not.
    assert!(plain > 100, "{plain} writes under plain views");
    assert!(2 * others_to_ask > others, "{others_to_ask} of {others} have something to record");
}

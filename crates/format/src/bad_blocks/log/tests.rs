use super::*;

const PIECE: usize = 512;

fn blocks(ranges: &[Range<u64>]) -> BadBlocks {
    let mut blocks = BadBlocks::new();
    ranges.iter().for_each(|range| blocks.add(range.clone()));
    blocks
}

fn lists(blocks: &BadBlocks, unit: u64) -> bool {
    blocks.first_in(unit..unit + 1).is_some()
}

/// The table with those pieces new that `mask` names.
fn mixture(old: &[u8], new: &[u8], mask: u32) -> Vec<u8> {
    let pieces = old.chunks(PIECE).zip(new.chunks(PIECE)).enumerate();
    let chosen = pieces.map(|(at, (old, new))| if mask >> at & 1 == 1 { new } else { old });
    chosen.flatten().copied().collect()
}

/// Goes to `wanted`, and lets any pieces of each write land: what was listed and stays so is never missing,
/// and nothing is listed that neither says.
fn go(log: &mut BadBlockLog, wanted: &BadBlocks, size_sectors: u16) -> usize {
    let before = log.blocks();
    let steps = log.steps_to(wanted, size_sectors).unwrap();
    let count = steps.len();
    for step in steps {
        let (old, new) = (log.encode(size_sectors), step.encode(size_sectors));
        for mask in 0..1 << size_sectors {
            let bytes = mixture(&old, &new, mask);
            let found = BadBlockLog::parse(&bytes, 0).unwrap().blocks();
            let kept = before.ranges().iter().flat_map(Clone::clone);
            for unit in kept.filter(|unit| lists(wanted, *unit)) {
                assert!(lists(&found, unit), "{unit} is missing with pieces {mask:b}");
            }
            for unit in found.ranges().iter().flat_map(Clone::clone) {
                assert!(lists(&before, unit) || lists(wanted, unit), "{unit} with {mask:b}");
            }
        }
        *log = step;
    }
    assert_eq!(log.blocks(), *wanted);
    count
}

/// Apart from each other: so many entries.
fn scattered(count: u64) -> Vec<Range<u64>> {
    (0..count).map(|at| 10 * at..10 * at + 2).collect()
}

#[test]
fn an_entry_that_sorts_first_moves_no_other() {
    let mut log = BadBlockLog::new(0);
    let mut ranges = scattered(64);
    go(&mut log, &blocks(&ranges), 2);
    ranges.push(5..6);
    assert_eq!(go(&mut log, &blocks(&ranges), 2), 1, "writes");
    assert_eq!(log.entries[..64], scattered(64)[..]);
    ranges.remove(0);
    assert_eq!(go(&mut log, &blocks(&ranges), 2), 1, "writes");
    assert_eq!(log.entries[1..64], scattered(64)[1..]);
}

#[test]
fn both_halves_of_a_split_entry_are_listed_at_any_time() {
    let mut log = BadBlockLog::new(0);
    let mut ranges = scattered(70);
    go(&mut log, &blocks(&ranges), 2);
    ranges[3] = 30..35;
    go(&mut log, &blocks(&ranges), 2);
    ranges[3] = 30..31;
    ranges.push(33..35);
    assert_eq!(go(&mut log, &blocks(&ranges), 2), 2, "writes");
}

#[test]
fn long_ranges_grow_at_either_end() {
    let mut log = BadBlockLog::new(0);
    for range in [600..1200, 590..1200, 590..3000, 100..3000, 100..600, 300..301] {
        go(&mut log, &blocks(&[range]), 2);
    }
    go(&mut log, &BadBlocks::new(), 2);
    assert!(log.entries.is_empty());
}

#[test]
fn any_history_of_changes_loses_nothing_in_the_middle_of_a_write() {
    let mut state: u64 = 7;
    let mut random = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for _ in 0..40 {
        let (mut log, mut wanted) = (BadBlockLog::new(0), BadBlocks::new());
        for _ in 0..60 {
            let mut next = wanted.clone();
            for _ in 0..1 + random(12) {
                let start = random(1500);
                let range = start..start + 1 + random(12);
                if random(5) < 3 { next.add(range) } else { next.remove(range) }
            }
            if log.steps_to(&next, 3).is_ok() {
                go(&mut log, &next, 3);
                wanted = next;
            }
        }
        assert!(!wanted.is_empty());
    }
}

#[test]
fn what_md_wrote_is_gone_on_with() {
    let listed = blocks(&[1000..2500, 4000..4001]);
    let mut log = BadBlockLog::parse(&listed.encode(2, 0).unwrap(), 0).unwrap();
    assert_eq!(log.blocks(), listed);
    go(&mut log, &blocks(&[1000..2500, 3000..3001, 4000..4001]), 2);
    go(&mut log, &blocks(&[1000..1100, 1101..2500, 3000..3001]), 2);
}

#[test]
fn a_full_log_takes_no_more_and_lets_entries_grow_and_go() {
    let mut log = BadBlockLog::new(0);
    let mut ranges = scattered(64);
    go(&mut log, &blocks(&ranges), 1);
    ranges.push(5..6);
    let full = log.steps_to(&blocks(&ranges), 1);
    assert_eq!(full, Err(BadBlockLogFull { needed: 65, room: 64 }));
    ranges.pop();
    ranges[7] = 70..75;
    go(&mut log, &blocks(&ranges), 1);
    ranges.remove(7);
    go(&mut log, &blocks(&ranges), 1);
    ranges.push(5..6);
    go(&mut log, &blocks(&ranges), 1);
}

//! Covers of every few pieces, against a row painted sector by sector.

use std::collections::BTreeMap;

use super::*;

const UNIT: u32 = 4;
const CHUNK: u32 = 12;
const PLACES: usize = 3;

/// What stands in each column of a place: the piece that wrote it last.
type Painted = BTreeMap<(Place, u32), usize>;

fn painted(pieces: &[(Place, Columns)]) -> Painted {
    let mut painted = Painted::new();
    for (number, (place, columns)) in pieces.iter().enumerate() {
        painted.extend(columns.clone().map(|column| ((*place, column), number)));
    }
    painted
}

fn unit_of(column: u32) -> Columns {
    column / UNIT * UNIT..(column / UNIT + 1) * UNIT
}

fn judge(pieces: &[(Place, Columns)]) {
    let painted = painted(pieces);
    let cover = Cover::new(pieces.iter().cloned(), UNIT);
    let mut seen = BTreeMap::new();
    for part in &cover.parts {
        assert!(!part.columns.is_empty());
        for column in part.columns.clone() {
            assert!(seen.insert((part.place, column), part.new).is_none(), "written once");
        }
    }
    for place in 0..PLACES {
        for column in 0..CHUNK {
            let unit = || unit_of(column);
            let whole = unit().all(|column| painted.contains_key(&(place, column)));
            let touched = unit().any(|column| painted.contains_key(&(place, column)));
            let wanted = match (touched, whole) {
                (false, _) => None,
                (true, true) => Some(New::Piece(painted[&(place, column)])),
                (true, false) => Some(New::Mixed),
            };
            assert_eq!(seen.get(&(place, column)), wanted.as_ref(), "{place} {column} {pieces:?}");
        }
    }
    let mixed = cover.parts.iter().filter(|part| part.new == New::Mixed);
    assert!(mixed.into_iter().all(|part| part.columns == unit_of(part.columns.start)));
    judge_sweep(&cover, &seen);
    judge_runs(&cover);
}

/// Cuts follow each other, and in each of them every place has its bytes from one part.
fn judge_sweep(cover: &Cover, seen: &BTreeMap<(Place, u32), New>) {
    let mut at = cover.columns.start;
    for Cut { columns: cut, parts } in cover.cuts.clone() {
        assert!(cut.start == at && cut.end > at);
        at = cut.end;
        for column in cut {
            let covering = parts.iter().map(|&part| &cover.parts[part]);
            let here = covering.map(|part| {
                assert!(part.columns.contains(&column));
                ((part.place, column), part.new)
            });
            let wanted = seen.iter().filter(|((_, known), _)| *known == column);
            assert!(here.eq(wanted.map(|(at, new)| (*at, *new))));
        }
    }
    assert_eq!(at, cover.columns.end);
    let mut at = cover.columns.start;
    for segment in cover.segments() {
        assert!(segment.columns.start == at);
        at = segment.columns.end;
        for column in segment.columns {
            for place in 0..PLACES {
                let new = seen.get(&(place, column));
                assert_eq!(segment.touched.partly.has(place), new == Some(&New::Mixed));
                let piece = matches!(new, Some(New::Piece(_)));
                assert_eq!(segment.touched.whole.has(place), piece);
            }
        }
    }
    assert_eq!(at, cover.columns.end);
}

/// Runs are all parts in order, and no two of them could be one.
fn judge_runs(cover: &Cover) {
    let runs: Vec<_> = cover.runs().collect();
    assert!(runs.iter().cloned().flatten().eq(0..cover.parts.len()));
    let joins = |before: &Part, behind: &Part| {
        before.place == behind.place && before.columns.end == behind.columns.start
    };
    for run in &runs {
        assert!(cover.parts[run.clone()].windows(2).all(|pair| joins(&pair[0], &pair[1])));
    }
    for pair in runs.windows(2) {
        assert!(!joins(&cover.parts[pair[0].end - 1], &cover.parts[pair[1].start]));
    }
}

#[test]
fn every_two_pieces_are_covered_and_nothing_else() {
    let columns = || (0..CHUNK).flat_map(|start| (start + 1..=CHUNK).map(move |end| start..end));
    for one in columns() {
        judge(&[(1, one.clone())]);
        for other in columns() {
            // Columns of a round leave no gap between units.
            if other.start <= unit_of(one.end - 1).end && one.start <= unit_of(other.end - 1).end {
                judge(&[(1, one.clone()), (1, other.clone())]);
                judge(&[(1, one.clone()), (0, other.clone())]);
            }
        }
    }
}

#[test]
fn crowds_of_overlapping_pieces_are_covered_too() {
    let mut state = 7_u64;
    let mut below = |bound: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % bound
    };
    for _ in 0..3000 {
        // One piece over the middle holds all together.
        let mut pieces = vec![(below(3) as usize, UNIT - 1..CHUNK - UNIT + 1)];
        for _ in 0..below(12) {
            let start = below(u64::from(CHUNK)) as u32;
            let end = start + 1 + below(u64::from(CHUNK - start)) as u32;
            pieces.insert(below(pieces.len() as u64 + 1) as usize, (below(3) as usize, start..end));
        }
        judge(&pieces);
    }
}

#[test]
fn a_stream_of_small_pieces_is_one_run_a_place() {
    let stream = (0..PLACES).flat_map(|place| (0..CHUNK).map(move |at| (place, at..at + 1)));
    let cover = Cover::new(stream, UNIT);
    assert_eq!(cover.runs().count(), PLACES);
    let segments: Vec<_> = cover.segments().collect();
    assert_eq!(segments.len(), 1);
    assert_eq!(segments[0].touched.whole, super::super::plan::Places::first(PLACES));
}

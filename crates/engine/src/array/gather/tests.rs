//! Which pieces go together, and which wait.

use super::*;

const SHAPE: RowShape = RowShape { unit: 8, chunk_sectors: 64, data_disks: 4 };

fn piece(tag: u64, place: Place, columns: Columns) -> Piece {
    let source = Rc::new(vec![0; (columns.end - columns.start) as usize * SECTOR_BYTES]);
    let ending = Some(Ending { queue: Queue::new(), tag, request: None });
    Piece { row: 3, place, columns, source, first_byte: 0, fua: false, ending }
}

fn tags(pieces: &[Piece]) -> Vec<u64> {
    pieces.iter().map(|piece| piece.ending.as_ref().unwrap().tag).collect()
}

/// The tags of the rounds, with their columns, and of what waits.
fn selected(
    pieces: Vec<Piece>,
    under_way: Option<Columns>,
) -> (Vec<(Vec<u64>, Columns)>, Vec<u64>) {
    let (rounds, blocked) = select(&SHAPE, 3, pieces, |piece| {
        under_way.iter().any(|columns| overlap(columns, &SHAPE.units(&piece.columns)))
    });
    let rounds = rounds.iter().map(|round| (tags(&round.pieces), round.columns.clone()));
    (rounds.collect(), tags(&blocked))
}

#[test]
fn pieces_that_touch_or_overlap_are_one_round() {
    let pieces = vec![
        piece(1, 0, 8..16),
        piece(2, 1, 40..48),
        piece(3, 2, 0..8),
        piece(4, 3, 17..18),
        piece(5, 1, 12..14),
    ];
    let (rounds, blocked) = selected(pieces, None);
    assert_eq!(rounds, [(vec![1, 3, 4, 5], 0..24), (vec![2], 40..48)]);
    assert_eq!(blocked, []);
}

#[test]
fn a_piece_waits_for_the_round_that_it_overlaps_and_so_do_those_behind_it() {
    let pieces =
        vec![piece(1, 0, 9..10), piece(2, 1, 8..24), piece(3, 2, 16..24), piece(4, 3, 24..32)];
    let (rounds, blocked) = selected(pieces, Some(0..16));
    assert_eq!(rounds, [(vec![4], 24..32)]);
    assert_eq!(blocked, [1, 2, 3], "the third would overtake the second");
}

#[test]
fn a_round_has_its_fill() {
    let whole = |tag| piece(tag, (tag % 4) as usize, 0..64);
    let (rounds, blocked) = selected((0..40).map(whole).collect(), None);
    assert_eq!(rounds.len(), 1);
    let bytes = rounds[0].0.len() * 64 * SECTOR_BYTES;
    assert!((ROUND_BYTES_MAX..ROUND_BYTES_MAX + 64 * SECTOR_BYTES).contains(&bytes), "{bytes}");
    assert_eq!(rounds[0].0.len() + blocked.len(), 40);
}

#[test]
fn a_request_ends_with_its_last_piece_and_its_error() {
    let queue = Queue::new();
    queue.begin();
    let request = Rc::new(Request { left: Cell::new(3), result: Cell::new(Ok(())) });
    let ending = || Ending { queue: queue.clone(), tag: 9, request: Some(request.clone()) };
    ending().end(Ok(()));
    ending().end(Err(RequestError::Lost));
    assert_eq!(queue.pop(), None);
    ending().end(Ok(()));
    let ended = queue.pop().expect("all pieces have ended");
    assert_eq!((ended.tag, ended.result), (9, Err(RequestError::Lost)));
}

#[test]
fn the_task_of_a_round_is_cheap_to_move() {
    fn size_of_future<A, B, F: Future>(_: fn(A, B) -> F) -> usize {
        size_of::<F>()
    }
    // It is copied to the heap when it starts: at 4 KiB that cost as much as a block.
    let bytes = size_of_future(ArrayLane::run_round);
    assert!(bytes <= 2560, "{bytes}");
}

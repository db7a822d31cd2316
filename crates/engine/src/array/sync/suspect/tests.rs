//! Every column, every kind of lie, and two at once.

use super::*;

const UNIT: usize = 512;

fn bytes(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let step = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..4 * UNIT).map(step).collect()
}

/// Four data blocks with P and Q, after `lie` had its way with what members hold.
fn judged(lie: impl Fn(&mut [Vec<u8>; 6])) -> Vec<Suspicion> {
    let mut held: [Vec<u8>; 6] = std::array::from_fn(|place| bytes(place as u64 + 7));
    let parity = |held: &[Vec<u8>; 6]| {
        let data: Vec<&[u8]> = held[..4].iter().map(Vec::as_slice).collect();
        let (mut p, mut q) = (vec![0; 4 * UNIT], vec![0; 4 * UNIT]);
        mdspace_parity::kernels().pq(&data, &mut p, &mut q);
        [p, q]
    };
    let [p, q] = parity(&held);
    (held[4], held[5]) = (p, q);
    lie(&mut held);
    let [p, q] = parity(&held);
    let row = TwoParities { p: [&held[4], &p], q: [&held[5], &q], exponents: vec![0, 1, 2, 3] };
    row.suspicions(UNIT)
}

#[test]
fn any_single_liar_of_a_raid6_row_is_named() {
    assert!(judged(|_| {}).is_empty());
    for place in 0..6 {
        for at in [0, 511, 512, 1500, 2047] {
            let found = judged(|held| held[place][at] ^= 0x81);
            let unit = at / UNIT * UNIT;
            assert_eq!(found, [Suspicion { bytes: unit..unit + UNIT, liar: Some(place) }]);
        }
        // A whole unit of something else, and the next.
        let found =
            judged(|held| held[place][UNIT..3 * UNIT].copy_from_slice(&bytes(99)[..2 * UNIT]));
        assert_eq!(found, [Suspicion { bytes: UNIT..3 * UNIT, liar: Some(place) }]);
    }
}

#[test]
fn two_liars_of_one_unit_are_not_told() {
    for one in 0..6 {
        for other in 0..one {
            let found = judged(|held| {
                held[one][600] ^= 5;
                held[other][700] ^= 5;
            });
            assert_eq!(found, [Suspicion { bytes: UNIT..2 * UNIT, liar: None }], "{one}, {other}");
            // Each in a unit of its own is told.
            let found = judged(|held| {
                held[one][0] ^= 5;
                held[other][1024] ^= 5;
            });
            let liars: Vec<_> = found.iter().map(|suspicion| suspicion.liar).collect();
            assert_eq!(liars, [Some(one), Some(other)]);
        }
    }
}

#[test]
fn three_copies_outvote_one_and_two_do_not() {
    let (right, mut wrong) = (bytes(1), bytes(1));
    wrong[700] ^= 1;
    for liar in 0..3 {
        let mut copies = vec![&right[..]; 3];
        copies[liar] = &wrong;
        let found = Votes(copies).suspicions(UNIT);
        assert_eq!(found, [Suspicion { bytes: UNIT..2 * UNIT, liar: Some(liar) }]);
    }
    for undecided in [vec![&right[..], &wrong], vec![&right[..], &right, &wrong, &wrong]] {
        let found = Votes(undecided).suspicions(UNIT);
        assert_eq!(found, [Suspicion { bytes: UNIT..2 * UNIT, liar: None }]);
    }
    assert!(Votes(vec![&right[..]; 3]).suspicions(UNIT).is_empty());
}

//! A loop that computes nothing right would be no limit.

use super::*;

const BYTES: usize = 256 << 10;

/// The members after one turn of a loop.
fn after(turn: fn(&mut Share<'_>)) -> Members {
    let mut members = Members::new(BYTES).expect("memory");
    let mut shares = members.shares(1, 8 * COLUMN, COLUMN);
    turn(&mut shares[0]);
    drop(shares);
    members
}

/// Whether the first column of the first four members gives P and Q on the last two.
fn is_consistent(members: &mut Members) -> bool {
    let share = &members.shares(1, COLUMN, COLUMN)[0];
    let column: Vec<&[u8]> = share.members.iter().map(|member| &member[..COLUMN]).collect();
    let (mut p, mut q) = (vec![0; COLUMN], vec![0; COLUMN]);
    kernels().pq(&column[..4], &mut p, &mut q);
    p == column[4] && q == column[5]
}

#[test]
fn rows_that_loops_write_have_the_right_parity_and_others_have_not() {
    let turns: [fn(&mut Share<'_>); 3] = [
        half_row,
        |share| full_row(share, Stores::Plain),
        |share| full_row(share, Stores::NonTemporal),
    ];
    for turn in turns {
        let mut members = after(turn);
        assert!(is_consistent(&mut members));
    }
    let mut untouched = after(|_| ());
    assert!(!is_consistent(&mut untouched));
}

#[test]
fn a_rebuilt_column_is_the_xor_of_the_others() {
    for stores in [Stores::Plain, Stores::NonTemporal] {
        let mut members = Members::new(BYTES).expect("memory");
        let share = &mut members.shares(1, COLUMN, COLUMN)[0];
        rebuild(share, stores);
        // Members are filled with 1, 2, 3, 4, 5, 6; the first four give 4.
        assert_eq!(share.members[5][..COLUMN], [4; COLUMN]);
        assert_eq!(share.members[5][COLUMN], 6);
    }
}

#[test]
fn threads_share_the_members_without_overlap() {
    let mut members = Members::new(BYTES).expect("memory");
    let mut shares = members.shares(2, COLUMN, COLUMN);
    for (share, mark) in shares.iter_mut().zip([7, 8]) {
        share.members.iter_mut().for_each(|member| member.fill(mark));
    }
    assert!(shares.iter().all(|share| share.members[0].len() == BYTES / 2));
    assert!(shares[0].members.iter().all(|member| member.iter().all(|&byte| byte == 7)));
}

/// Columns of the first members whose XOR is zero, and whether any byte is not as it was.
fn xor_is_zero(members: &mut Members, count: usize, bytes: usize) -> (bool, bool) {
    let share = &members.shares(1, COLUMN, COLUMN)[0];
    let first = &share.members[..count];
    let zero = (0..bytes).all(|at| first.iter().fold(0, |sum, member| sum ^ member[at]) == 0);
    let touched = (1_u8..).zip(first).any(|(fill, member)| member.iter().any(|&byte| byte != fill));
    (zero, touched)
}

#[test]
fn raid5_loops_leave_the_right_parity() {
    assert_eq!(xor_is_zero(&mut after(modify_one_of_two), 3, BYTES), (true, true));
    assert_eq!(xor_is_zero(&mut after(raid5_row::<2>), 3, COLUMN), (true, true));
    assert_eq!(xor_is_zero(&mut after(raid5_row::<3>), 4, COLUMN), (true, true));
    assert_eq!(xor_is_zero(&mut after(|_| ()), 4, COLUMN), (false, false));
}

use super::*;

fn borrows(turn: &mut Turn, bytes: usize) -> bool {
    turn.poll_borrow(bytes, Waker::noop()).is_ready()
}

#[test]
fn what_is_free_is_lent_and_no_more() {
    let budget = Budget::new(100);
    let (mut one, mut two) = (budget.turn(), budget.turn());
    assert!(borrows(&mut one, 60));
    assert!(!borrows(&mut two, 50) && budget.is_wanted());
    budget.give_back(60);
    assert!(borrows(&mut two, 50) && !budget.is_wanted());
    assert_eq!(budget.free_bytes(), 50);
}

#[test]
fn nobody_passes_one_who_waits_for_more() {
    let budget = Budget::new(100);
    let (mut first, mut large, mut small) = (budget.turn(), budget.turn(), budget.turn());
    assert!(borrows(&mut first, 60));
    assert!(!borrows(&mut large, 80) && !borrows(&mut small, 1));
    budget.give_back(60);
    assert!(!borrows(&mut small, 1), "the large one is first");
    assert!(borrows(&mut large, 80) && borrows(&mut small, 1));
}

#[test]
fn who_leaves_the_queue_keeps_no_other_waiting() {
    let budget = Budget::new(100);
    let (mut first, mut large, mut small) = (budget.turn(), budget.turn(), budget.turn());
    assert!(borrows(&mut first, 60));
    assert!(!borrows(&mut large, 80) && !borrows(&mut small, 40));
    drop(large);
    assert!(borrows(&mut small, 40) && !budget.is_wanted());
}

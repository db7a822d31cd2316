use super::*;

fn borrows(turn: &mut Turn<'_>, bytes: usize) -> bool {
    turn.poll_borrow(bytes, Waker::noop()).is_ready()
}

#[test]
fn what_is_free_is_lent_and_no_more() {
    let budget = Budget::new(100);
    let (holder, other) = (budget.borrower(), budget.borrower());
    let (mut one, mut two) = (holder.turn(), other.turn());
    assert!(borrows(&mut one, 60));
    assert!(!borrows(&mut two, 50) && holder.is_wanted());
    holder.give_back(60);
    assert!(borrows(&mut two, 50) && !holder.is_wanted());
    assert_eq!(budget.free_bytes(), 50);
}

#[test]
fn nobody_passes_one_who_waits_for_more() {
    let budget = Budget::new(100);
    let [one, two, three] = std::array::from_fn(|_| budget.borrower());
    let (mut first, mut large, mut small) = (one.turn(), two.turn(), three.turn());
    assert!(borrows(&mut first, 60));
    assert!(!borrows(&mut large, 80) && !borrows(&mut small, 1));
    one.give_back(60);
    assert!(!borrows(&mut small, 1), "the large one is first");
    assert!(borrows(&mut large, 80) && borrows(&mut small, 1));
}

#[test]
fn who_leaves_the_queue_keeps_no_other_waiting() {
    let budget = Budget::new(100);
    let [one, two, three] = std::array::from_fn(|_| budget.borrower());
    let (mut first, mut large, mut small) = (one.turn(), two.turn(), three.turn());
    assert!(borrows(&mut first, 60));
    assert!(!borrows(&mut large, 80) && !borrows(&mut small, 40));
    drop(large);
    assert!(borrows(&mut small, 40) && !one.is_wanted());
}

#[test]
fn those_who_have_borrowed_are_called_once_when_others_begin_to_wait() {
    let budget = Budget::new(100);
    let [holder, other, third, idle] = std::array::from_fn(|_| budget.borrower());
    assert!(borrows(&mut holder.turn(), 60));
    assert!(borrows(&mut idle.turn(), 10));
    idle.give_back(10);
    let (mut turn, mut next) = (other.turn(), third.turn());
    assert!(!borrows(&mut turn, 80) && holder.call.has_come());
    assert!(!idle.call.has_come(), "it has nothing to give back");
    assert!(!borrows(&mut turn, 80) && !borrows(&mut next, 80));
    assert!(!holder.call.has_come(), "it knows");
    drop((turn, next));
    assert!(!borrows(&mut third.turn(), 80) && holder.call.has_come());
}

#[test]
fn what_a_client_has_borrowed_is_free_when_it_is_gone() {
    let budget = Budget::new(100);
    let borrower = budget.borrower();
    assert!(borrows(&mut borrower.turn(), 60));
    drop(borrower);
    assert_eq!(budget.free_bytes(), 100);
    let other = budget.borrower();
    assert!(!borrows(&mut other.turn(), 101));
    assert!(budget.lock().holders.is_empty());
}

use super::*;

const A: MemberId = MemberId { index: 0, generation: 0 };
const B: MemberId = MemberId { index: 1, generation: 0 };

#[test]
fn what_only_leaving_members_have_is_not_counted() {
    let writes = RowWrites::default();
    assert!(!writes.any_on(|_| true));
    writes.begin(A);
    writes.begin(B);
    assert!(writes.any_on(|id| id != A));
    writes.end(B);
    assert!(!writes.any_on(|id| id != A));
    assert!(writes.any_on(|_| true));
}

#[test]
fn what_was_refused_in_part_is_counted_whoever_has_the_rest() {
    let writes = RowWrites::default();
    writes.begin(A);
    writes.tears();
    assert!(writes.any_on(|id| id != A));
    writes.end(A);
    writes.torn_one_ends();
    assert!(!writes.any_on(|_| true));
}

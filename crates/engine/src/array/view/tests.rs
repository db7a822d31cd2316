use super::samples::view_of;
use super::*;
use crate::geometry::Level;

/// A mirror of three without so many of its first members.
fn without(gone: u16) -> ArrayView {
    view_of(Level::Raid1, 0, 3, |slot, member| (slot.0 >= gone).then_some(member))
}

/// It is on record, and a restart believes it. What is not will be believed again.
#[test]
fn what_was_settled_when_an_array_broke_stays_settled_and_nothing_else_becomes_so() {
    for is_settled in [true, false] {
        let views = Views::new(without(0), 1);
        views.publish(without(1));
        if is_settled {
            views.settle();
        }
        let last = views.current();
        views.publish(ArrayView { mode: WriteMode::Broken, ..without(1) });
        views.settle();
        assert_eq!(views.is_settled_up_to(&last), is_settled);
    }
}

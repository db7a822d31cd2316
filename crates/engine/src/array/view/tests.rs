use super::samples::view_of;
use super::*;
use crate::geometry::Level;

/// A mirror of three without so many of its first members.
fn without(gone: u16) -> ArrayView {
    view_of(Level::Raid1, 0, 3, |slot, member| (slot.0 >= gone).then_some(member))
}

/// The first member of a mirror of three is out, and that may be settled.
fn one_is_out(is_settled: bool) -> Views {
    let views = Views::new(without(0), 1, true);
    views.publish(without(1), |_| {}, || {});
    if is_settled {
        views.settle();
    }
    views
}

/// It is on record, and a restart believes it. What is not will be believed again.
#[test]
fn what_was_settled_when_an_array_broke_stays_settled_and_nothing_else_becomes_so() {
    for is_settled in [true, false] {
        let views = one_is_out(is_settled);
        let last = views.current();
        views.publish(ArrayView { mode: WriteMode::Broken, ..without(1) }, |_| {}, || {});
        views.settle();
        assert_eq!(views.is_settled_up_to(&last), is_settled);
    }
}

/// The controller does not settle the view that the flush makes.
#[test]
fn what_was_settled_when_a_flush_tells_of_a_loss_stays_settled_and_nothing_else_becomes_so() {
    for is_settled in [true, false] {
        let views = one_is_out(is_settled);
        let last = views.current();
        views.take_back(ArrayView::filled_fall_back, || {});
        assert_eq!(views.is_settled_up_to(&last), is_settled);
        assert_eq!(views.is_settled_up_to(&views.current()), is_settled);
        assert_eq!(views.counts_from(), views.epoch());
    }
}

/// Lanes follow no view any more: a read that waits for one would never end.
#[test]
fn what_a_flush_tells_after_the_end_of_an_array_makes_no_view() {
    let views = Views::new(ArrayView { mode: WriteMode::Stopped, ..without(0) }, 1, true);
    let last = views.epoch();
    views.take_back(ArrayView::filled_fall_back, || {});
    assert_eq!((views.epoch(), views.counts_from()), (last, 0));
}

/// A lane that has the new view may use what stands there.
#[test]
fn what_was_read_before_is_forgotten_when_it_counts_no_more_and_no_lane_has_the_new_view() {
    let views = Views::new(without(0), 1, true);
    let looks = || (views.counts_from(), views.epoch());
    views.take_back(ArrayView::filled_fall_back, || assert_eq!(looks(), (2, 1)));
    assert_eq!(looks(), (2, 2));
    views.publish(without(1), |_| {}, || assert_eq!(looks(), (3, 2)));
    assert_eq!(looks(), (3, 3));
}

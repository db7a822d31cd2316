use super::*;

#[test]
fn a_superblock_promises_what_is_durable_and_nothing_that_was_taken_back() {
    let receipt = FlushReceipt::of_all_members();
    let durable = Durable::after(Readable::up_to(100), &receipt);
    assert_eq!(durable.but_no_more_than(Readable::up_to(500)), 100, "read, and not flushed");
    assert_eq!(durable.but_no_more_than(Readable::up_to(40)), 40, "in doubt since");
    assert!(durable.covers(100) && !durable.covers(101));
}

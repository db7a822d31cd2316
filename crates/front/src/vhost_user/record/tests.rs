use super::*;

const SIZE: u16 = 8;

fn records() -> Arc<Records> {
    let file = new_file(bytes_of(2, SIZE)).expect("a memfd");
    Arc::new(Records::map(file, 0, 2, SIZE).expect("it is mapped"))
}

fn open(records: &Arc<Records>, used: u16) -> (Record, Option<Left>) {
    Record::open(records, 1, SIZE, used).expect("a record")
}

#[test]
fn what_was_under_way_is_left_in_the_order_in_which_it_came() {
    let records = records();
    let (mut record, left) = open(&records, 65533);
    assert_eq!(left, None, "nothing was kept");
    for head in [5, 2, 7, 0] {
        record.begin(head).expect("it is written");
    }
    record.end(2).expect("it is written");
    record.ended(2, 65534).expect("it is written");
    let (mut record, left) = open(&records, 65534);
    assert_eq!(left, Some(Left { heads: vec![5, 7, 0], next_available: 1 }));
    // What comes now is younger.
    record.begin(2).expect("it is written");
    let (_, left) = open(&records, 65534);
    assert_eq!(left, Some(Left { heads: vec![5, 7, 0, 2], next_available: 2 }));
    assert_eq!(Record::open(&records, 0, SIZE, 0).expect("a record").1, None, "another ring's");
}

/// Killed at each step between an answer and its note.
#[test]
fn a_request_whose_answer_the_guest_has_is_not_done_again() {
    let records = records();
    let (mut record, _) = open(&records, 0);
    record.begin(3).expect("it is written");
    record.begin(4).expect("it is written");
    record.end(3).expect("it is written");
    let (_, left) = open(&records, 0);
    let both = Left { heads: vec![3, 4], next_available: 2 };
    assert_eq!(left, Some(both), "the guest has none of them");
    let (_, left) = open(&records, 1);
    assert_eq!(left, Some(Left { heads: vec![4], next_available: 2 }), "the guest has one");
}

#[test]
fn a_record_of_another_shape_is_refused() {
    let records = records();
    assert!(matches!(Record::open(&records, 2, SIZE, 0), Err(BadRecord::Short)));
    assert!(matches!(Record::open(&records, 0, SIZE * 2, 0), Err(BadRecord::Short)));
    let (record, _) = open(&records, 0);
    assert!(Record::open(&records, 1, SIZE / 2, 0).is_ok(), "a ring may be smaller");
    record.store(LAST_HEAD_AT, SIZE).expect("it is written");
    assert!(matches!(Record::open(&records, 1, SIZE, 1), Err(BadRecord::Other)), "no such head");
    record.store(VERSION_AT, 2_u16).expect("it is written");
    assert!(matches!(Record::open(&records, 1, SIZE, 0), Err(BadRecord::Other)), "its version");
    let short = new_file(bytes_of(1, SIZE)).expect("a memfd");
    assert!(Records::map(short, 0, 2, SIZE).is_err());
}

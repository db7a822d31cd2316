use super::*;

const DEVICE: u64 = 64 << 20;

/// Looks at a device through which `comes` says what reaches the array for each read.
fn comes_back(device_bytes: u64, mut comes: impl FnMut(Range<u64>) -> Vec<Range<u64>>) -> bool {
    let echo = Echo::default();
    echo.comes_back(device_bytes, |asked| {
        comes(asked).into_iter().for_each(|bytes| echo.note(bytes));
        true
    })
}

/// What is read, but from another start.
fn from(start: u64, asked: &Range<u64>) -> Vec<Range<u64>> {
    std::iter::once(start..start + asked.end - asked.start).collect()
}

#[test]
fn what_comes_back_moved_by_one_distance_leads_to_the_array() {
    assert!(comes_back(DEVICE, |asked| vec![asked]));
    assert!(comes_back(DEVICE, |asked| from(asked.start + (1 << 20), &asked)), "a partition");
    assert!(comes_back(5 * PAGE_BYTES, |asked| vec![asked]), "a small one");
}

#[test]
fn chunks_that_lie_anywhere_hide_nothing() {
    let chunk = 512 << 10;
    assert!(comes_back(DEVICE, |asked| {
        let number = asked.start / chunk;
        let other = (number * 7 + 3) % (DEVICE / chunk);
        from(other * chunk + asked.start % chunk, &asked)
    }));
}

#[test]
fn other_clients_hide_nothing() {
    let other = |number: u64| number * PAGE_BYTES..(number + 2) * PAGE_BYTES;
    assert!(comes_back(DEVICE, |asked| (0..100).map(other).chain([asked]).collect()));
}

#[test]
fn a_device_that_answers_from_elsewhere_does_not_lead_to_the_array() {
    let mut reads = 0;
    let silent = |_| {
        reads += 1;
        Vec::new()
    };
    assert!(!comes_back(DEVICE, silent));
    assert_eq!(reads, PLACES, "one read a place where nothing comes");
    assert!(!comes_back(4096, |asked| vec![asked]), "no room for a look");
}

#[test]
fn clients_that_read_all_the_time_are_not_taken_for_the_device() {
    let pages = |len: u64| {
        move |_: Range<u64>| {
            (0..64).map(|page| page * PAGE_BYTES..(page + len) * PAGE_BYTES).collect()
        }
    };
    // Each page of the device's first 256 KiB, one by one, while each read is under way.
    for len in 1..=2 {
        assert!(!comes_back(256 << 10, pages(len)));
    }
    let mut at = 0;
    let scan = |_: Range<u64>| {
        at += 1 << 20;
        from(at, &(0..1 << 20))
    };
    assert!(!comes_back(DEVICE, scan));
}

#[test]
fn what_is_moved_by_another_distance_each_time_is_another_clients() {
    let mut by = 0;
    assert!(!comes_back(DEVICE, |asked| {
        by += PAGE_BYTES;
        from(asked.start + by, &asked)
    }));
}

#[test]
fn a_device_that_does_not_answer_is_not_asked_again_and_nothing_is_noted_after() {
    let (echo, mut reads) = (Echo::default(), 0);
    let hangs = |_| {
        reads += 1;
        false
    };
    assert!(!echo.comes_back(DEVICE, hangs));
    assert_eq!(reads, 1);
    echo.note(0..4096);
    assert!(echo.noted.lock().is_empty());
}

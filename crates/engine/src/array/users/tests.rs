use super::*;

#[test]
fn times_are_told_to_an_eighth() {
    for nanos in [130u64, 1000, 1001, 4095, 4096, 92_000, 1 << 20, 3_000_000_000] {
        let sketch = Sketch::default();
        sketch.note(Duration::from_nanos(nanos));
        let told = Histogram::of(&sketch).quantile(SLOW).as_nanos() as u64;
        assert!(told >= nanos && told - nanos <= nanos / 8, "{told} for {nanos}");
    }
    let sketch = Sketch::default();
    sketch.note(Duration::ZERO);
    sketch.note(Duration::from_secs(100_000));
    assert_eq!(Histogram::of(&sketch).count(), 2);
    assert_eq!(Histogram::default().quantile(SLOW), Duration::ZERO);
}

#[test]
fn one_in_a_hundred_is_what_it_says() {
    let (sketch, before) = (Sketch::default(), Sketch::default());
    (0..1000).for_each(|_| before.note(Duration::from_secs(1)));
    (0..1000).for_each(|_| sketch.note(Duration::from_secs(1)));
    for micros in 1..=1000 {
        sketch.note(Duration::from_micros(micros));
    }
    let since = Histogram::of(&sketch).less(&Histogram::of(&before));
    assert_eq!(since.count(), 1000);
    let slow = since.quantile(SLOW).as_micros();
    assert!((990..=1114).contains(&slow), "{slow}");
}

/// The median of the seconds of a minute, whatever came before and whatever a sync task did.
#[test]
fn what_is_undisturbed_is_the_median_of_the_last_minute() {
    let users = Users::new(2);
    assert_eq!(users.undisturbed(), None);
    let mut second = UndisturbedSecond::default();
    let mut now = Time::from_nanos(1);
    let mut pass = |seconds: u64, micros: u64, watched: bool| {
        for _ in 0..seconds * 100 {
            now = now + Duration::from_millis(10);
            users.seats[1].sketch.note(Duration::from_micros(micros));
            second.look(now, &users.seats[1], watched);
        }
        users.undisturbed().map(|took| took.as_micros() as u64)
    };
    let is_about = |found: Option<u64>, wanted: u64| {
        let found = found.expect("somebody asked");
        assert!(found >= wanted && found <= wanted + wanted / 8, "{found}, not {wanted}");
    };
    is_about(pass(10, 100, false), 100);
    is_about(pass(5, 900, false), 100);
    is_about(pass(20, 5000, true), 100);
    is_about(pass(60, 300, false), 300);
}

#[test]
fn too_few_requests_say_nothing() {
    let users = Users::new(1);
    let mut second = UndisturbedSecond::default();
    for at in 1..ENOUGH {
        users.seats[0].sketch.note(Duration::from_micros(5));
        second.look(Time::from_nanos(at * 1_000_000_000), &users.seats[0], false);
    }
    assert_eq!(users.undisturbed(), None);
}

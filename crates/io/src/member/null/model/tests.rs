//! The model on a clock of the tests' own.

use super::*;
use crate::member::null::parse;

const SECTORS: u64 = 1 << 21;

fn model(options: &str) -> Model {
    let (bytes, drive) = parse(&format!("1G?{options}")).expect("good words");
    Model::new(drive, bytes / 512, 0)
}

fn preset(name: &str) -> Model {
    let (bytes, drive) = parse(name).expect("a preset");
    Model::new(drive, bytes / 512, 0)
}

fn read(at: Time, sector: u64) -> Arrival {
    Arrival { at, kind: Kind::Read, sector, bytes: 4096 }
}

fn micros(count: u64) -> Time {
    Time::from_nanos(count * 1000)
}

/// A client that keeps `depth` I/Os in flight, made by `next`; gives the ends of `count` in order.
fn keep_busy(
    model: &mut Model,
    depth: usize,
    count: usize,
    next: &mut dyn FnMut() -> Arrival,
) -> Vec<(Time, u64)> {
    let mut flying: BinaryHeap<Reverse<(Time, u64)>> = BinaryHeap::new();
    let mut ended = Vec::new();
    let mut now = Time::ZERO;
    while ended.len() < count {
        while flying.len() < depth {
            let arrival = Arrival { at: now, ..next() };
            flying.push(Reverse((model.answer(arrival).at, arrival.bytes)));
        }
        let Reverse(first) = flying.pop().expect("something flies");
        now = first.0;
        ended.push(first);
    }
    ended
}

fn random_reads(seed: u64) -> impl FnMut() -> Arrival {
    let mut random = Random::new(seed);
    move || read(Time::ZERO, random.next() % (SECTORS / 8) * 8)
}

fn per_second(ended: &[(Time, u64)]) -> f64 {
    let (last, _) = ended.last().expect("something has ended");
    ended.len() as f64 / last.since(Time::ZERO).as_secs_f64()
}

#[test]
fn a_latency_alone_is_what_everything_takes_at_any_depth() {
    let mut model = model("latency=50us");
    for at in [0, 0, 0, 7, 7, 1000] {
        for kind in [Kind::Read, Kind::Write, Kind::Other] {
            let arrival = Arrival { kind, ..read(micros(at), 8) };
            assert_eq!(model.answer(arrival), Answer { at: micros(at + 50), fails: false });
        }
    }
}

#[test]
fn reads_writes_and_flushes_have_times_of_their_own() {
    let mut model = model("latency=1us&read_latency=90us&write_latency=20us");
    let mut end = |kind| model.answer(Arrival { kind, ..read(Time::ZERO, 0) }).at;
    assert_eq!(end(Kind::Read), micros(90));
    assert_eq!(end(Kind::Write), micros(20));
    assert_eq!(end(Kind::Other), micros(1));
}

#[test]
fn a_large_transfer_takes_the_latency_and_what_the_bandwidth_makes_of_it() {
    let mut model = model("latency=100us&bandwidth=1000MB");
    let large = Arrival { bytes: 1_000_000, ..read(Time::ZERO, 0) };
    assert_eq!(model.answer(large).at, micros(1100));
    // Two at once share it; writes have their own way.
    assert_eq!(model.answer(large).at, micros(2100));
    assert_eq!(model.answer(Arrival { kind: Kind::Write, ..large }).at, micros(1100));
}

/// Whether no more bytes have ended at any time than `rate` lets pass since the start.
fn within(ended: &[(Time, u64)], rate: u64) -> bool {
    let mut sum = 0;
    ended.iter().all(|&(at, bytes)| {
        sum += bytes;
        span(sum, rate) <= at.since(Time::ZERO) + Duration::from_nanos(ended.len() as u64)
    })
}

#[test]
fn no_drive_moves_more_bytes_than_its_bandwidth() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let megabytes = 1 + random.next() % 4000;
        let options = format!(
            "bandwidth={megabytes}MB&latency={}us&p99={}&queues={}&queue_depth={}&seed={seed}",
            random.next() % 200,
            1 + random.next() % 13,
            1 + random.next() % 64,
            1 + random.next() % 64,
        );
        let mut arrivals = random_reads(seed);
        let mut sizes = Random::new(!seed);
        let mut next = || Arrival { bytes: 512 << (sizes.next() % 12), ..arrivals() };
        let depth = 1 + (random.next() % 100) as usize;
        let ended = keep_busy(&mut model(&options), depth, 500, &mut next);
        assert!(within(&ended, megabytes * 1_000_000), "seed {seed}: {options}");
        // The control: the check sees what is faster.
        let mut faster = model(&format!("bandwidth={}MB", 2 * megabytes));
        let ended = keep_busy(&mut faster, 64, 500, &mut next);
        assert!(!within(&ended, megabytes * 1_000_000), "seed {seed}: the control");
    }
}

#[test]
fn no_drive_ends_more_ios_than_its_queues_and_its_rate_let_it() {
    let mut reads = random_reads(1);
    for queues in [1, 3, 64] {
        let mut model = model(&format!("latency=100us&queues={queues}"));
        let ended = keep_busy(&mut model, 200, 10_000, &mut reads);
        let most = queues as f64 * 10_000.0;
        let ratio = per_second(&ended) / most;
        assert!((0.98..=1.0).contains(&ratio), "{queues} queues give {ratio} of what they can");
        assert!(
            ended
                .iter()
                .zip(0u64..)
                .all(|(&(at, _), before)| { at >= micros(100 * (1 + before / queues)) })
        );
    }
    let ended = keep_busy(&mut model("latency=100us&read_iops=50000"), 200, 10_000, &mut reads);
    let ratio = per_second(&ended) / 50_000.0;
    assert!((0.98..=1.0).contains(&ratio), "{ratio}");
}

#[test]
fn what_the_queue_does_not_take_waits() {
    let mut model = model("latency=100us&queue_depth=4");
    let ends: Vec<_> = (0..9).map(|_| model.answer(read(Time::ZERO, 0)).at).collect();
    let expected: Vec<_> = (0..9).map(|index| micros(100 * (1 + index / 4))).collect();
    assert_eq!(ends, expected);
    // Long after, it is empty again.
    assert_eq!(model.answer(read(micros(5000), 0)).at, micros(5100));
}

#[test]
fn first_come_first_served_where_all_take_the_same() {
    for seed in 0..50 {
        let mut random = Random::new(seed);
        let options = "latency=30us&bandwidth=100MB&read_iops=9000&queues=3&queue_depth=5";
        let mut model = model(options);
        let (mut now, mut latest) = (Time::ZERO, Time::ZERO);
        for _ in 0..500 {
            now = now + Duration::from_nanos(random.next() % 200_000);
            let at = model.answer(read(now, 0)).at;
            assert!(at >= latest && at > now, "seed {seed}");
            latest = at;
        }
    }
}

#[test]
fn a_clock_that_lanes_have_swapped_is_set_right() {
    let mut model = model("latency=10us&queues=1");
    assert_eq!(model.answer(read(micros(100), 0)).at, micros(110));
    assert_eq!(model.answer(read(micros(90), 0)).at, micros(120));
}

#[test]
fn a_seed_gives_the_same_times_again_and_another_seed_others() {
    let times = |seed: u64, ordinal: u64| {
        let (bytes, drive) = parse(&format!("nvme?seed={seed}&error=0.1&limp=0.01")).unwrap();
        let mut model = Model::new(drive, bytes / 512, ordinal);
        let mut reads = random_reads(9);
        (0..1000).map(|_| model.answer(reads())).collect::<Vec<_>>()
    };
    assert!(times(1, 0) == times(1, 0));
    assert!(times(1, 0) != times(2, 0));
    assert!(times(1, 0) != times(1, 1), "two drives of one name differ");
}

/// The mean and the 99 % of a hundred thousand times of service of 100 µs.
fn mean_and_p99(options: &str) -> (f64, f64) {
    let mut model = model(&format!("latency=100us&{options}"));
    let mut times: Vec<_> = (0..100_000)
        .map(|_| model.answer(read(Time::ZERO, 0)).at.as_nanos() as f64 / 100_000.0)
        .collect();
    times.sort_by(f64::total_cmp);
    (times.iter().sum::<f64>() / 100_000.0, times[99_000])
}

#[test]
fn times_of_service_have_the_mean_and_the_p99_that_were_asked_for() {
    let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.04;
    assert_eq!(mean_and_p99("distribution=constant").1, 1.0);
    let (mean, p99) = mean_and_p99("distribution=exponential");
    assert!(near(mean, 1.0) && near(p99, 100f64.ln()), "{mean} {p99}");
    for wanted in [1.0, 1.5, 2.0, 5.0] {
        let (mean, p99) = mean_and_p99(&format!("p99={wanted}"));
        assert!(near(mean, 1.0) && near(p99, wanted), "{wanted}: {mean} {p99}");
    }
    let (_, p99) = mean_and_p99("p99=5");
    assert!(!near(p99, 4.5), "the control: the check can tell");
}

#[test]
fn presets_do_what_their_drives_specifications_say() {
    let rate = |name: &str, depth, next: &mut dyn FnMut() -> Arrival| {
        per_second(&keep_busy(&mut preset(name), depth, 20_000, next))
    };
    let about = |found: f64, wanted: f64| {
        assert!((0.95..1.05).contains(&(found / wanted)), "{found} instead of {wanted}");
    };
    let mut reads = random_reads(3);
    let mut writes_from = random_reads(4);
    let mut writes = || Arrival { kind: Kind::Write, ..writes_from() };
    about(rate("nvme", 1, &mut reads), 1e6 / 93.2);
    about(rate("nvme", 256, &mut reads), 840_000.0);
    about(rate("nvme", 256, &mut writes), 285_000.0);
    about(rate("sata-ssd", 1, &mut reads), 1e6 / 118.2);
    about(rate("sata-ssd", 32, &mut reads), 72_000.0);
    about(rate("sata-ssd", 32, &mut writes), 65_000.0);
    let mut large = || Arrival { bytes: 1 << 20, ..reads() };
    about(rate("sata-ssd", 8, &mut large), 500e6 / f64::from(1 << 20));
    about(rate("nvme", 32, &mut large), 3500e6 / f64::from(1 << 20));
}

#[test]
fn a_limping_drive_takes_longer_for_a_while() {
    let mut model = model("latency=100us&limp=0.001&limp_time=50ms&limp_factor=30&seed=5");
    let mut now = Time::ZERO;
    let slow: Vec<_> = (0..20_000)
        .map(|_| {
            now = now + Duration::from_micros(100);
            model.answer(read(now, 0)).at.since(now) == Duration::from_micros(3000)
        })
        .collect();
    // It begins with one I/O in a thousand and lasts for 500.
    let share = slow.iter().filter(|slow| **slow).count() as f64 / 20_000.0;
    assert!((0.2..0.6).contains(&share), "{share}");
    let spells = slow.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    assert!((2..=25).contains(&spells), "{spells}");
    let longest = slow.split(|slow| !slow).map(<[bool]>::len).max();
    assert!(longest >= Some(490), "{longest:?}");
}

#[test]
fn a_hanging_io_holds_its_place_and_no_other() {
    let mut model = model("latency=100us&hang=0.01&hang_time=60s&queues=4&seed=2");
    let mut waits = Vec::new();
    for index in 0..200 {
        let now = micros(index * 1000);
        waits.push(model.answer(read(now, 0)).at.since(now));
    }
    let hung = waits.iter().filter(|wait| **wait >= Duration::from_secs(60)).count();
    assert!((1..=4).contains(&hung), "{hung}");
    let prompt = waits.iter().filter(|wait| **wait == Duration::from_micros(100)).count();
    assert_eq!(hung + prompt, 200, "others go on");
}

#[test]
fn errors_come_as_often_as_they_were_asked_for_and_only_to_data() {
    let mut model = model("latency=1us&error=0.02");
    let mut fails = |kind| {
        let arrival = Arrival { kind, ..read(Time::ZERO, 0) };
        (0..50_000).filter(|_| model.answer(arrival).fails).count()
    };
    assert!((900..1100).contains(&fails(Kind::Read)));
    assert!((900..1100).contains(&fails(Kind::Write)));
    assert_eq!(fails(Kind::Other), 0);
}

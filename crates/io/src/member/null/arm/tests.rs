//! A disk's arm, alone and in a drive.

use super::*;

const MEGABYTES: u64 = 255;
const SECTORS: u64 = 1 << 31;

fn arm() -> Arm {
    let rotation = Rotation {
        turns_per_minute: 7200,
        seek: Duration::from_micros(7800),
        track_seek: Duration::from_micros(275),
    };
    Arm::new(&rotation, MEGABYTES * 1_000_000, SECTORS)
}

/// The mean way to random places at random times, in milliseconds.
fn mean_ms(queued: usize, span: u64) -> f64 {
    let (mut arm, mut random) = (arm(), super::super::random::Random::new(1));
    let total: Duration = (0..20_000u64)
        .map(|_| {
            let at = Time::from_nanos(random.next() >> 20);
            arm.reach(at, random.next() % span, 8, queued)
        })
        .sum();
    total.as_secs_f64() * 1000.0 / 20_000.0
}

#[test]
fn what_follows_costs_nothing() {
    let mut arm = arm();
    arm.reach(Time::ZERO, 1000, 8, 1);
    for (now, sector) in (1..100).map(|index| (index * 777, 1000 + 8 * index)) {
        assert_eq!(arm.reach(Time::from_nanos(now), sector, 8, 1), Duration::ZERO);
    }
    assert!(arm.reach(Time::from_nanos(1), 0, 8, 1) > Duration::ZERO, "going back does");
}

#[test]
fn a_random_place_takes_the_mean_seek_and_half_a_turn() {
    let found = mean_ms(1, SECTORS);
    assert!((11.5..12.4).contains(&found), "{found} instead of 7.8 + 4.17 ms");
}

#[test]
fn near_places_are_reached_sooner() {
    let (far, near, nearer) =
        (mean_ms(1, SECTORS), mean_ms(1, SECTORS / 10), mean_ms(1, SECTORS / 1000));
    assert!(nearer < near && near < far, "{nearer} {near} {far}");
    assert!(nearer > 4.0, "the turn remains");
}

#[test]
fn a_choice_of_places_shortens_the_way() {
    let ratio = mean_ms(16, SECTORS) / mean_ms(1, SECTORS);
    assert!((0.49..0.51).contains(&ratio), "{ratio}");
}

#[test]
fn on_one_track_only_the_turn_counts() {
    let mut arm = arm();
    arm.reach(Time::ZERO, 0, 8, 1);
    // A quarter of a track ahead, as the head passes sector 8.
    let (track, turn) = (arm.track_sectors, arm.turn.as_nanos() as u64);
    let now = Time::from_nanos(turn * 8 / track);
    let waits = arm.reach(now, 8 + track / 4, 8, 1).as_nanos() as u64;
    assert!(waits.abs_diff(turn / 4) < turn / 1000, "{waits} of {turn}");
    // Written back at once, it has just gone by: a whole turn, less the eight sectors.
    let now = Time::from_nanos(turn * (16 + track / 4) / track);
    let waits = arm.reach(now, 8 + track / 4, 8, 1).as_nanos() as u64;
    assert!(waits.abs_diff(turn - 8 * turn / track) < turn / 1000, "{waits} of {turn}");
}

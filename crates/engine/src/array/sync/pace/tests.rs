use super::*;
use crate::array::settings::{Levels, StartSettings};

fn settings(keys: &[(&str, &str)]) -> Settings {
    let settings = Settings::new(StartSettings::default(), Levels::Parity);
    keys.iter().for_each(|(key, value)| settings.set(key, value).unwrap());
    settings
}

#[test]
fn what_is_in_flight_stays_the_same_in_wider_windows() {
    let sectors = |flight: Flight| flight.windows as u64 * flight.window_sectors;
    for pieces in 1..=64 {
        let flight = flight(pieces);
        assert!(flight.windows >= 1 && flight.window_sectors <= 4 * PIECE_SECTORS, "{flight:?}");
        assert!(sectors(flight) <= pieces * PIECE_SECTORS, "{pieces}: {flight:?}");
        assert!(sectors(flight) > (pieces - pieces.min(4)) * PIECE_SECTORS, "{pieces}: {flight:?}");
    }
}

#[test]
fn the_user_may_say_how_many_windows() {
    let pace = Pace::new(Time::ZERO);
    for windows in [1, 7, 256] {
        let settings = settings(&[("sync_io_depth", &windows.to_string())]);
        assert_eq!(pace.flight(&settings), Flight { windows, window_sectors: PIECE_SECTORS });
    }
}

/// 256 stripes of 4 KiB: a quarter of them is 256 KiB of each member.
#[test]
fn the_share_is_of_the_cache_and_of_the_queue() {
    let share = |keys: &[(&str, &str)]| share_sectors(&settings(keys));
    assert_eq!(share(&[]), 512);
    assert_eq!(share(&[("sync_cache_share", "100")]), 2048);
    assert_eq!(share(&[("stripe_cache_size", "262144")]), 32 * PIECE_SECTORS / 4);
    let mirrors = Settings::new(StartSettings::default(), Levels::Mirrors);
    assert_eq!(share_sectors(&mirrors), 32 * PIECE_SECTORS / 4);
    let alone = flight(64);
    assert_eq!(alone.at_most(512), Flight { windows: 4, window_sectors: 128 });
    assert_eq!(alone.at_most(1), Flight { windows: 1, window_sectors: 128 });
    let one = Flight { windows: 1, window_sectors: PIECE_SECTORS };
    assert_eq!(one.at_most(2048).windows, 1, "a share makes nothing more");
}

#[test]
fn the_largest_speed_holds_and_nothing_is_saved_up() {
    // 1 MiB/s: a piece takes an eighth of a second.
    let settings = settings(&[("sync_speed_min", "1024"), ("sync_speed_max", "1024")]);
    let (mut now, users) = (Time::from_nanos(1), Users::new(1));
    let mut pace = Pace::new(now);
    for round in 0..3 {
        let (began, mut sectors) = (now, 0);
        while now.since(began) < Duration::from_secs(10) {
            match pace.wait(now, &settings, &users) {
                Some(wait) => now = now + wait,
                None => {
                    pace.begins(PIECE_SECTORS);
                    pace.ended(now, PIECE_SECTORS, Duration::ZERO, &settings);
                    sectors += PIECE_SECTORS;
                }
            }
        }
        let kib = sectors / 2;
        assert!((10_240..10_240 + 256).contains(&kib), "{kib} KiB in ten seconds, round {round}");
        assert_eq!(pace.speed_kib_s(now).abs_diff(1024) / 64, 0, "{}", pace.speed_kib_s(now));
        // A long pause earns nothing.
        now = now + Duration::from_secs(100);
        pace.wait(now, &settings, &users);
        pace = Pace { depth: Depth::default(), marks: [(now, pace.done_sectors)].into(), ..pace };
    }
}

#[test]
fn without_a_largest_speed_nothing_waits() {
    let mut pace = Pace::new(Time::ZERO);
    pace.begins(1 << 30);
    assert_eq!(pace.wait(Time::ZERO, &settings(&[]), &Users::new(1)), None);
}

use super::*;
use crate::array::settings::{Levels, StartSettings};

/// A task and users of the same members, on a clock of their own.
struct Scene {
    courtesy: Courtesy,
    users: Users,
    settings: Settings,
    now: Time,
    done: f64,
}

/// What the members allow, in KiB/s.
const MEMBERS: f64 = 2_000_000.0;

const TICK: Duration = Duration::from_millis(10);

impl Scene {
    fn new(keys: &[(&str, &str)]) -> Self {
        let settings = Settings::new(StartSettings::default(), Levels::Parity);
        keys.iter().for_each(|(key, value)| settings.set(key, value).unwrap());
        let now = Time::from_nanos(1);
        Self { courtesy: Courtesy::new(now), users: Users::new(1), settings, now, done: 0.0 }
    }

    /// Goes on for so long; users' slow requests take what `slow_us` makes of the task's speed. Gives the
    /// task's mean speed in KiB/s.
    fn run(&mut self, span: Duration, slow_us: Option<&dyn Fn(f64) -> f64>) -> f64 {
        let (end, before, began) = (self.now + span, self.done, self.now);
        while self.now < end {
            let speed = self.courtesy.allowed_kib_s().unwrap_or(MEMBERS).min(MEMBERS);
            self.done += speed * 2.0 * TICK.as_secs_f64();
            self.now = self.now + TICK;
            if let Some(slow_us) = slow_us {
                self.users.pretend(20, Duration::from_nanos((slow_us(speed) * 1000.0) as u64));
            }
            let done = self.done as u64;
            self.courtesy.look(self.now, &self.users, &self.settings, done);
        }
        (self.done - before) / 2.0 / self.now.since(began).as_secs_f64()
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// 100 µs alone, twice that beside a task of 200 MiB/s.
fn shared(speed: f64) -> f64 {
    100.0 * (1.0 + speed / 204_800.0)
}

#[test]
fn the_speed_is_what_the_target_allows() {
    for (target, wanted) in [("2", 204_800.0), ("1.5", 102_400.0), ("4", 614_400.0)] {
        let mut scene = Scene::new(&[("sync_latency_target", target)]);
        assert!(scene.run(SECOND, None) > 0.99 * MEMBERS, "alone");
        scene.run(10 * SECOND, Some(&shared));
        let speed = scene.run(20 * SECOND, Some(&shared));
        assert!(speed > 0.5 * wanted && speed < 1.25 * wanted, "{speed} of {wanted}");
    }
}

#[test]
fn without_users_it_goes_at_full_speed_at_once() {
    let mut scene = Scene::new(&[]);
    scene.run(20 * SECOND, Some(&shared));
    assert!(scene.courtesy.competes());
    scene.run(Duration::from_millis(70), None);
    assert_eq!((scene.courtesy.competes(), scene.courtesy.allowed_kib_s()), (false, None));
    assert!(scene.run(SECOND, None) > 0.99 * MEMBERS);
}

#[test]
fn it_is_never_slower_than_the_least_speed_but_where_it_looks_how_users_fare() {
    let slow = |speed: f64| if speed > 0.0 { 5000.0 } else { 100.0 };
    let mut scene = Scene::new(&[("sync_speed_min", "30000")]);
    scene.run(SECOND, None);
    scene.run(10 * SECOND, Some(&slow));
    assert_eq!(scene.courtesy.allowed_kib_s(), Some(30_000.0));
    // Once a minute it pauses for a second: what users ask now may take so long by itself.
    let speed = scene.run(120 * SECOND, Some(&slow));
    assert!((29_000.0..=30_000.0).contains(&speed), "{speed}");
    let by_itself = |_: f64| 5000.0;
    scene.run(70 * SECOND, Some(&by_itself));
    assert!(scene.run(10 * SECOND, Some(&by_itself)) > 0.5 * MEMBERS);
}

#[test]
fn what_something_else_slows_down_is_not_laid_to_the_task() {
    let by_itself = |_: f64| 5000.0;
    let by_the_task = |speed: f64| if speed > 0.0 { 5000.0 } else { 100.0 };
    let mut speeds = Vec::new();
    for slow in [&by_itself as &dyn Fn(f64) -> f64, &by_the_task] {
        let mut scene = Scene::new(&[]);
        scene.users.pretend_undisturbed(Duration::from_micros(100));
        scene.run(SECOND, None);
        // It goes as slowly as it may, sees that this helps nobody, and pauses.
        scene.run(4 * SECOND, Some(slow));
        speeds.push(scene.run(SECOND, Some(slow)));
    }
    assert!(speeds[0] > 0.9 * MEMBERS && speeds[1] < 60_000.0, "{speeds:?}");
}

#[test]
fn what_was_in_flight_when_users_came_is_no_reason_to_pause() {
    for (slow_moment, pauses) in [(110, false), (300, true)] {
        let mut scene = Scene::new(&[]);
        scene.users.pretend_undisturbed(Duration::from_micros(100));
        scene.run(SECOND, None);
        scene.run(Duration::from_millis(slow_moment), Some(&|_| 5000.0));
        assert_eq!(scene.courtesy.allowed_kib_s() == Some(0.0), pauses, "after {slow_moment} ms");
    }
}

#[test]
fn what_it_learned_by_pausing_it_believes_for_a_minute() {
    let mut scene = Scene::new(&[]);
    scene.run(SECOND, None);
    scene.run(5 * SECOND, Some(&|_| 5000.0));
    assert!(
        scene.run(50 * SECOND, Some(&shared)) > 0.9 * MEMBERS,
        "it believes that they are slow"
    );
    scene.run(20 * SECOND, Some(&shared));
    let speed = scene.run(10 * SECOND, Some(&shared));
    assert!(speed > 100_000.0 && speed < 256_000.0, "{speed}");
}

#[test]
fn nobody_knows_how_users_fare_before_it_has_paused_for_a_second() {
    let mut scene = Scene::new(&[]);
    scene.run(SECOND, None);
    scene.run(2 * TICK, Some(&shared));
    assert_eq!(scene.courtesy.allowed_kib_s(), Some(0.0), "it pauses");
    scene.run(Duration::from_millis(900), Some(&shared));
    assert_eq!(scene.courtesy.allowed_kib_s(), Some(0.0));
    scene.run(Duration::from_millis(200), Some(&shared));
    assert!(scene.courtesy.allowed_kib_s().is_some_and(|allowed| allowed > 0.0));
}

#[test]
fn without_a_target_only_the_share_is_left() {
    let mut scene = Scene::new(&[("sync_latency_target", "0")]);
    scene.run(SECOND, None);
    assert!(!scene.courtesy.yields(&scene.settings));
    assert!(scene.run(SECOND, Some(&shared)) > 0.99 * MEMBERS);
    assert!(scene.courtesy.yields(&scene.settings), "users are there");
}

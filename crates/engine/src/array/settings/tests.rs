//! Keys and what they take.

use super::*;

fn parity(start: StartSettings) -> Settings {
    Settings::new(start, Levels::Parity)
}

fn word(settings: &Settings, key: &str) -> String {
    settings.values().into_iter().find(|(name, _)| *name == key).unwrap().1
}

fn value(settings: &Settings, key: &str) -> u32 {
    word(settings, key).parse().unwrap()
}

#[test]
fn what_is_fixed_takes_powers_of_two_in_its_range_and_nothing_else() {
    for (key, first, last) in [("stripe_size", 4096u32, 65536), ("stripe_hash_locks", 8, 256)] {
        let mut start = StartSettings::default();
        let mut number = first;
        while number <= last {
            start.set(key, &number.to_string()).unwrap();
            assert_eq!(value(&parity(start), key), number);
            number *= 2;
        }
        let before = start;
        for bad in [first / 2, first + 1, last + 1, last * 2] {
            let refused = start.set(key, &bad.to_string()).unwrap_err().to_string();
            assert!(refused.contains(&format!("from {first} to {last}")), "{refused}");
        }
        for bad in ["", "-8", "eight", "4294967296"] {
            assert!(start.set(key, bad).is_err(), "{key}={bad}");
        }
        assert_eq!(start, before, "a refusal changes nothing");
    }
}

#[test]
fn what_is_fixed_is_refused_while_the_array_runs() {
    let settings = parity(StartSettings::default());
    let refused = settings.set("stripe_size", "8192").unwrap_err();
    assert_eq!(refused.to_string(), "stripe_size is fixed when the array starts");
    assert!(settings.set("stripe_sizes", "8192").unwrap_err().to_string().contains("no key"));
    assert_eq!(value(&settings, "stripe_size"), 4096);
}

#[test]
fn every_key_that_may_change_takes_its_range_and_nothing_beyond() {
    let settings = parity(StartSettings::default());
    for key in settings.keys() {
        let range = match &key.takes {
            Takes::Number(range) | Takes::Seconds(range) => range,
            Takes::Factor(_) | Takes::Speed(..) | Takes::Word(_) => continue,
        };
        let (first, last) = (*range.start(), *range.end());
        assert!(range.contains(&value(&settings, key.name)), "the default of {}", key.name);
        for good in [first, last] {
            settings.set(key.name, &good.to_string()).unwrap();
            assert_eq!(value(&settings, key.name), good);
        }
        for bad in [i64::from(first) - 1, i64::from(last) + 1] {
            let refused = settings.set(key.name, &bad.to_string()).unwrap_err().to_string();
            assert!(refused.contains(&format!("from {first} to {last}")), "{refused}");
        }
        assert_eq!(value(&settings, key.name), last, "a refusal changes nothing");
    }
}

#[test]
fn a_factor_is_none_or_at_least_one() {
    let settings = parity(StartSettings::default());
    assert_eq!(settings.sync_latency_target(), Some(2.0));
    for (good, factor) in
        [("1", Some(1.0)), ("1.25", Some(1.25)), ("1000", Some(1000.0)), ("0", None)]
    {
        settings.set("sync_latency_target", good).unwrap();
        assert_eq!(settings.sync_latency_target(), factor);
        assert_eq!(word(&settings, "sync_latency_target"), good);
    }
    for bad in ["0.5", "1000.001", "-2", "twice", ""] {
        let refused = settings.set("sync_latency_target", bad).unwrap_err().to_string();
        assert!(refused.contains("from 1 to 1000"), "{refused}");
    }
}

#[test]
fn the_two_speeds_keep_their_order() {
    let settings = parity(StartSettings::default());
    let both = || ["sync_speed_min", "sync_speed_max"].map(|key| word(&settings, key));
    assert_eq!(both(), ["51200", "none"]);
    settings.set("sync_speed_max", "100000").unwrap();
    for (key, bad, range) in [
        ("sync_speed_min", "100001", "from 1 to 100000"),
        ("sync_speed_min", "0", "from 1 to 4294967295"),
        ("sync_speed_max", "51199", "from 51200 to 4294967295"),
        ("sync_speed_max", "fast", "from 1 to 4294967295"),
    ] {
        let refused = settings.set(key, bad).unwrap_err().to_string();
        assert!(refused.contains(range), "{refused}");
    }
    assert_eq!(both(), ["51200", "100000"], "a refusal changes nothing");
    settings.set("sync_speed_min", "1").unwrap();
    settings.set("sync_speed_max", "1").unwrap();
    settings.set("sync_speed_max", "none").unwrap();
    settings.set("sync_speed_min", "system").unwrap();
    assert_eq!(both(), ["51200", "none"]);
}

#[test]
fn a_key_of_words_takes_them_and_names_them_when_it_refuses() {
    let settings = Settings::new(StartSettings::default(), Levels::Mirrors);
    assert_eq!(settings.read_policy(), ReadPolicy::Expected);
    for (policy, name) in ReadPolicy::ALL.into_iter().zip(ReadPolicy::WORDS) {
        settings.set("read_policy", name).unwrap();
        assert_eq!((settings.read_policy(), &*word(&settings, "read_policy")), (policy, *name));
    }
    for bad in ["", "Expected", "2", "fastest"] {
        let refused = settings.set("read_policy", bad).unwrap_err().to_string();
        let words = "read_policy takes one of first, nearest, md, expected, not";
        assert_eq!(refused, format!("{words} {bad:?}"));
    }
    assert_eq!(settings.read_policy(), ReadPolicy::Expected, "a refusal changes nothing");
}

#[test]
fn a_level_has_its_own_keys_only() {
    for (levels, key, value) in
        [(Levels::Mirrors, "rmw_level", "1"), (Levels::Parity, "read_policy", "md")]
    {
        let settings = Settings::new(StartSettings::default(), levels);
        assert!(settings.set(key, value).unwrap_err().to_string().contains("no key"));
        assert!(settings.values().iter().all(|(name, _)| *name != key));
    }
    assert!(Settings::new(StartSettings::default(), Levels::Others).values().is_empty());
}

#[test]
fn seconds_are_taken_and_shown_to_the_millisecond() {
    let settings = Settings::new(StartSettings::default(), Levels::Mirrors);
    assert_eq!(word(&settings, "read_deadline"), "1");
    let shown = [("0.5", "0.5"), ("2.050", "2.05"), ("7.", "7"), ("0", "0"), ("0.001", "0.001")];
    for (given, shown) in shown {
        settings.set("read_deadline", given).unwrap();
        assert_eq!(word(&settings, "read_deadline"), shown);
    }
    for bad in ["0.0001", "3600.001", "-1", "1s", ".", "", "1.+1", "99999999999"] {
        let refused = settings.set("read_deadline", bad).unwrap_err().to_string();
        assert!(refused.contains("from 0 to 3600"), "{bad}: {refused}");
    }
    assert_eq!(word(&settings, "read_deadline"), "0.001", "a refusal changes nothing");
}

#[test]
fn a_level_that_cannot_do_without_a_member_has_no_deadlines() {
    let settings = Settings::new(StartSettings::default(), Levels::Others);
    assert_eq!(settings.read_patience(), Patience::FOREVER);
    assert_eq!(settings.write_patience(), Patience::FOREVER);
    assert!(settings.set("write_deadline", "3").is_err());
}

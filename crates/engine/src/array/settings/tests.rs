//! Keys and what they take.

use super::*;

fn value(settings: &Settings, key: &str) -> u32 {
    settings.values().into_iter().find(|(name, _)| *name == key).unwrap().1
}

#[test]
fn what_is_fixed_takes_powers_of_two_in_its_range_and_nothing_else() {
    for (key, first, last) in [("stripe_size", 4096u32, 65536), ("stripe_hash_locks", 8, 256)] {
        let mut start = StartSettings::default();
        let mut number = first;
        while number <= last {
            start.set(key, &number.to_string()).unwrap();
            assert_eq!(value(&Settings::new(start), key), number);
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
    let settings = Settings::new(StartSettings::default());
    let refused = settings.set("stripe_size", "8192").unwrap_err();
    assert_eq!(refused.to_string(), "stripe_size is fixed when the array starts");
    assert!(settings.set("stripe_sizes", "8192").unwrap_err().to_string().contains("no key"));
    assert_eq!(value(&settings, "stripe_size"), 4096);
}

#[test]
fn every_key_that_may_change_takes_its_range_and_nothing_beyond() {
    let settings = Settings::new(StartSettings::default());
    for key in KEYS {
        let (first, last) = (*key.range.start(), *key.range.end());
        assert!(key.range.contains(&value(&settings, key.name)), "the default of {}", key.name);
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

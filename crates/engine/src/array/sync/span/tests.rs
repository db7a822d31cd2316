use super::*;

fn set(span: &SyncSpan, key: &str, value: &str) -> Result<(), SettingError> {
    span.set(key, value, 128, 1280).expect("a key of its own")
}

#[test]
fn both_ends_are_whole_chunks_inside_the_array_and_in_order() {
    let span = SyncSpan::default();
    assert_eq!((span.min(), span.max()), (0, u64::MAX));
    set(&span, "sync_max", "640").unwrap();
    set(&span, "sync_min", "256").unwrap();
    assert_eq!((span.min(), span.max()), (256, 640));
    for (key, bad) in [
        ("sync_min", "768"),
        ("sync_min", "100"),
        ("sync_min", "max"),
        ("sync_min", "-1"),
        ("sync_max", "128"),
        ("sync_max", "1408"),
        ("sync_max", "700"),
        ("sync_max", ""),
    ] {
        let refused = set(&span, key, bad).unwrap_err().to_string();
        let range = if key == "sync_min" { "from 0 to 640" } else { "from 256 to 1280" };
        assert!(refused.contains(range) && refused.contains("chunks of 128"), "{refused}");
    }
    assert_eq!((span.min(), span.max()), (256, 640), "a refusal changes nothing");
    set(&span, "sync_max", "max").unwrap();
    assert_eq!(span.values().map(|(_, value)| value), ["256", "max"]);
    assert!(span.set("sync_maximum", "1", 1, 1).is_none());
}

//! Lent memory notices who misuses it.

use super::*;
use crate::stamp::{Found, identify};

#[test]
fn a_sink_gives_what_was_put() {
    let sink = LentSink::new(2, &mut Random::new(1));
    sink.put(0, &[1; SECTOR_BYTES]);
    sink.put(SECTOR_BYTES, &[2; SECTOR_BYTES]);
    let bytes = sink.take();
    assert!(bytes[..SECTOR_BYTES].iter().all(|&byte| byte == 1));
    assert!(bytes[SECTOR_BYTES..].iter().all(|&byte| byte == 2));
}

#[test]
#[should_panic(expected = "still writes")]
fn a_sink_notices_a_late_hand() {
    let sink = LentSink::new(1, &mut Random::new(1));
    sink.take();
    sink.put(0, &[]);
}

#[test]
fn a_shifting_source_shows_every_version() {
    let versions = vec![Version(1), Version(2)];
    let source = ShiftingSource::new(5, 1, versions, Random::new(1));
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..32 {
        let mut out = [0; SECTOR_BYTES];
        source.take(0, &mut out);
        let Found::Version(version) = identify(5, &out) else { panic!("a whole version") };
        seen.insert(version);
    }
    assert_eq!(seen.len(), 2);
}

//! What failed once must not fail again, and what noticed a broken rule must notice it again.

use std::path::PathBuf;

use mdspace_sim::regression::Regression;
use mdspace_sim::settings::{Settings, Trouble};

fn files() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/regressions");
    let entries = std::fs::read_dir(folder).expect("the folder of regressions");
    let mut files: Vec<PathBuf> =
        entries.map(|entry| entry.expect("an entry of the folder").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    files.sort();
    files
}

#[test]
fn what_failed_once_does_not_fail_and_broken_rules_are_noticed() {
    let files = files();
    assert!(files.len() >= 8, "regressions are found");
    for path in files {
        let name = path.display();
        let regression = Regression::read(&path)
            .unwrap_or_else(|error| panic!("{name} cannot be read: {error}"));
        let Regression { what, mended, rule, .. } = &regression;
        assert!(mended.is_some() != rule.is_some(), "{name}: a commit mended it, or it has a rule");
        regression.check().unwrap_or_else(|wrong| panic!("{name}: {wrong}\n  once: {what}"));
    }
}

/// A file says all of a run.
#[test]
fn a_run_is_the_same_when_it_was_written_and_read() {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("regression.toml");
    for seed in 0..200 {
        let settings = Settings::draw(seed, None, Trouble::by_turns(seed));
        let written = Regression::new("nothing".to_owned(), settings.clone());
        written.write(&path).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        let read = Regression::read(&path).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(read.settings, settings, "seed {seed}");
    }
}

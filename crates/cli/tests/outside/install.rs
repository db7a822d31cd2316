//! What `make install` leaves behind, and that `make uninstall` takes it away.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::harness::project;

/// What belongs to an installation, below its prefix.
const FILES: [&str; 9] = [
    "bin/mdspace",
    "share/man/man1/mdspace.1",
    "share/bash-completion/completions/mdspace",
    "share/zsh/site-functions/_mdspace",
    "share/fish/vendor_completions.d/mdspace.fish",
    "lib/systemd/system/mdspace@.service",
    "lib/systemd/system/mdspace-scrub@.service",
    "lib/systemd/system/mdspace-scrub@.timer",
    "lib/udev/rules.d/63-mdspace.rules",
];

/// Runs `make` for an installation below /opt in a folder.
fn make(target: &str, folder: &Path) {
    let program = env!("CARGO_BIN_EXE_mdspace");
    let output = Command::new("make")
        .args([target, "PREFIX=/opt", &format!("PROGRAM={program}")])
        .arg(format!("DESTDIR={}", folder.display()))
        .current_dir(project())
        .output()
        .expect("make runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn files_below(folder: &Path) -> BTreeSet<PathBuf> {
    let entries =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let below = |path: PathBuf| match path.is_dir() {
        true => files_below(&path),
        false => BTreeSet::from([path]),
    };
    entries.flat_map(below).collect()
}

#[test]
fn an_installation_is_whole_runs_and_goes_without_a_trace() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("opt");
    make("install", folder.path());
    let expected: BTreeSet<_> = FILES.iter().map(|file| prefix.join(file)).collect();
    assert_eq!(files_below(folder.path()), expected);
    for file in &expected {
        assert_ne!(fs::metadata(file).unwrap().len(), 0, "{}", file.display());
    }
    let version = Command::new(prefix.join("bin/mdspace")).arg("--version").output().unwrap();
    assert!(version.status.success());
    let units = prefix.join("lib/systemd/system");
    for unit in ["mdspace@.service", "mdspace-scrub@.service"] {
        let unit = fs::read_to_string(units.join(unit)).unwrap();
        let runs: Vec<&str> = unit.lines().filter(|line| line.starts_with("Exec")).collect();
        assert!(!runs.is_empty());
        assert!(runs.iter().all(|line| line.contains("=/opt/bin/mdspace ")), "{runs:?}");
    }
    make("uninstall", folder.path());
    assert_eq!(files_below(folder.path()), BTreeSet::new());
}

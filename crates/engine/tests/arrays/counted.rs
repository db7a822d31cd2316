//! What requests must not count: memory that all lanes share.

use std::path::{Path, PathBuf};

/// Rooms that no request enters: the controller, the sync task, and what they share with each other.
const NOT_OF_REQUESTS: [&str; 6] = ["controller", "sync", "start", "view", "settings", "tests"];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        match path.is_dir() {
            _ if NOT_OF_REQUESTS.contains(&stem) => {}
            true => sources(&path, found),
            false => found.push(path),
        }
    }
}

/// A write that did not end well takes the view along to the controller.
const OF_TROUBLE: &str = "view: Arc::clone(&self.view),";

/// Lines that count a reference to what the view of all lanes holds.
fn counting_lines(source: &str) -> Vec<&str> {
    let counts = ["geometry.clone()", "Arc::clone(&", ".unsynced.clone()", ".doubted.clone()"];
    let counting = |line: &&str| counts.iter().any(|word| line.contains(word));
    source.lines().filter(counting).filter(|line| line.trim() != OF_TROUBLE).collect()
}

/// Two updates of one word that all lanes share, for every write, are what stops lanes from scaling.
#[test]
fn no_request_counts_references_to_what_all_lanes_share() {
    let mut found = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/array"), &mut found);
    assert!(found.len() > 20, "{found:?}");
    for path in found {
        let source = std::fs::read_to_string(&path).unwrap();
        let counting = counting_lines(&source);
        assert!(counting.is_empty(), "{}: {counting:?}", path.display());
    }
    assert_eq!(counting_lines("let geometry = view.geometry.clone();").len(), 1);
}

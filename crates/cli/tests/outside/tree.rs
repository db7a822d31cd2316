//! What must be true of the source tree: which crate may use which, and that no promise names a
//! test that does not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::harness::project;

/// Which of our crates each crate may use. `io` and `sim` are two backends of one contract and
/// never meet.
const ALLOWED: &[(&str, &[&str])] = &[
    ("parity", &[]),
    ("format", &[]),
    ("engine", &["format", "parity"]),
    ("io", &["engine"]),
    ("sim", &["engine", "format"]),
    ("front", &["engine", "io"]),
    ("mdspace", &["engine", "format", "io"]),
    ("cli", &["engine", "format", "front", "io", "parity"]),
    ("spec", &[]),
    ("uml-xstate", &[]),
];

/// The crates that may use `unsafe`. `uml-xstate` serves the tests alone.
const UNSAFE: &[&str] = &["parity", "io", "front", "uml-xstate"];

#[test]
fn crates_depend_downwards_only() {
    for (name, uses) in our_dependencies() {
        let allowed = ALLOWED.iter().find(|(allowed, _)| *allowed == name);
        let (_, allowed) = allowed.unwrap_or_else(|| panic!("crate {name} has no row in ALLOWED"));
        for used in uses {
            assert!(allowed.contains(&used.as_str()), "{name} must not use {used}");
        }
    }
}

/// Every crate of ours with those of ours that it is built from. Its tests may use what they like.
fn our_dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version=1"])
        .current_dir(project())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let list = |value: &serde_json::Value| value.as_array().expect("an array in JSON").clone();
    let ours = |value: &serde_json::Value| {
        let name = value["name"].as_str()?;
        // The one for programs has no second word.
        let is_ours = name == "mdspace" || name.starts_with("mdspace-");
        is_ours.then(|| name.strip_prefix("mdspace-").unwrap_or(name).to_owned())
    };
    let packages: BTreeMap<_, _> = list(&metadata["packages"])
        .iter()
        .map(|package| {
            let name = ours(package).expect("every package is named mdspace, or mdspace-...");
            let built_from = list(&package["dependencies"]).into_iter();
            let built_from = built_from.filter(|used| used["kind"] != "dev");
            (name, built_from.filter_map(|used| ours(&used)).collect())
        })
        .collect();
    assert!(packages.len() >= ALLOWED.len(), "{} packages are too few", packages.len());
    packages
}

#[test]
fn every_crate_that_may_not_use_unsafe_code_has_the_compiler_forbid_it() {
    for (name, _) in ALLOWED {
        let source = project().join("crates").join(name).join("src");
        let roots = ["lib.rs", "main.rs"].map(|file| source.join(file));
        for root in roots.iter().filter(|root| root.exists()) {
            let text = fs::read_to_string(root).expect("a readable source file");
            let forbids = text.lines().any(|line| line == "#![forbid(unsafe_code)]");
            assert_ne!(forbids, UNSAFE.contains(name), "{}", root.display());
        }
    }
}

#[test]
fn every_fault_has_one_row_of_promises_and_every_named_test_exists() {
    let text = fs::read_to_string(project().join("docs/promises.md")).expect("docs/promises.md");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| F"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let faults: Vec<&str> = rows.iter().map(|row| row[0]).collect();
    assert!(rows.len() >= 36, "{} rows are too few", rows.len());
    let expected: Vec<String> = (1..=rows.len()).map(|number| format!("F{number}")).collect();
    assert_eq!(faults, expected, "one row a fault, in order");

    let tests = functions_in(&project().join("crates"));
    let rules = rules_that_can_be_broken();
    assert!(rules.len() > 60, "{} rules are too few", rules.len());
    for row in &rows {
        let [fault, what, promise, scope, proof, broken] = row[..] else {
            panic!("{} needs six columns: {row:?}", row[0]);
        };
        assert!([what, promise, scope].iter().all(|cell| !cell.is_empty()), "{fault} is not whole");
        let named = quoted(proof);
        let reason = proof.split_once("not yet: ").map(|(_, reason)| reason.len());
        assert!(
            !named.is_empty() || reason.is_some_and(|length| length > 10),
            "{fault} needs a test or a reason: {proof}"
        );
        for test in named {
            assert!(tests.contains(test), "{fault} names the test {test}, which does not exist");
        }
        let broken_rules = quoted(broken);
        assert!(
            !broken_rules.is_empty() || broken.starts_with("none: "),
            "{fault} needs a rule whose break its tests notice, or a reason"
        );
        for rule in broken_rules {
            assert!(rules.contains(rule), "{fault} names the rule {rule}, which does not exist");
        }
    }
}

/// The names of the rules of the engine that a test can break.
fn rules_that_can_be_broken() -> BTreeSet<String> {
    let source = fs::read_to_string(project().join("crates/engine/src/array/rules.rs"))
        .expect("the rules that a test can break");
    let names = source.lines().filter_map(|line| line.strip_prefix("        ")?.split_once(':'));
    let names = names.map(|(name, _)| name.to_owned());
    names.filter(|name| name.chars().all(char::is_alphabetic)).collect()
}

/// What stands between backquotes.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The names of all test functions below a folder.
fn functions_in(folder: &Path) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(folder).expect("a readable folder") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            names.append(&mut functions_in(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).expect("a readable source file");
            names.extend(tests_in(&source));
        }
    }
    names
}

/// Functions with `#[test]` directly above, other attributes allowed between.
fn tests_in(source: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        if line == "#[test]" {
            is_test = true;
        } else if let Some(rest) = line.strip_prefix("fn ").filter(|_| is_test) {
            names.extend(rest.split('(').next().map(str::to_owned));
            is_test = false;
        }
    }
    names
}

#[test]
fn only_functions_marked_as_tests_count_as_tests() {
    let source = "#[test]\n#[cfg(unix)]\nfn real() {}\nfn helper() {}\n";
    assert_eq!(tests_in(source), ["real"]);
}

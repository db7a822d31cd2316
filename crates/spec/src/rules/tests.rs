use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::all;
use crate::verdict::table::table;

fn project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

#[test]
fn every_rule_has_one_row_in_the_architecture_which_names_what_keeps_it() {
    let text = fs::read_to_string(project("ARCHITECTURE.md")).expect("ARCHITECTURE.md");
    let section = text.split("\n## ").find(|part| part.starts_with("The rules\n"));
    let section = section.expect("ARCHITECTURE.md has a section \"The rules\"");
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: Vec<(String, Vec<&str>)> = rows
        .filter_map(|row| {
            let (name, rest) = row.split_once("` | ")?;
            Some((name.to_owned(), rest.trim_end_matches(" |").split(" | ").collect()))
        })
        .collect();
    let named: Vec<&String> = rows.iter().map(|(name, _)| name).collect();
    let rules: Vec<String> =
        all().into_iter().map(|(model, name, _)| format!("{model}::{name}")).collect();
    assert_eq!(named, rules.iter().collect::<Vec<_>>(), "one row a rule, in the models' order");

    for (name, cells) in &rows {
        let [place, state] = cells[..] else {
            panic!("{name} needs a place and a state: {cells:?}")
        };
        assert!(
            ["kept", "in part", "not yet"].iter().any(|word| state.starts_with(word)),
            "{name}: {state}"
        );
        let files = place.split('(').skip(1).filter_map(|part| part.split(')').next());
        let files: Vec<&str> = files.filter(|file| file.ends_with(".rs")).collect();
        assert!(!files.is_empty() || state.starts_with("not yet"), "{name} names no file");
        for file in files {
            assert!(project(file).is_file(), "{name} names {file}, which does not exist");
        }
    }
}

#[test]
fn no_two_rules_of_a_model_have_one_name() {
    let names: BTreeSet<_> = all().into_iter().map(|(model, name, _)| (model, name)).collect();
    assert_eq!(names.len(), all().len());
}

#[test]
fn the_engine_is_held_to_the_table_that_the_model_prints() {
    let file = project("crates/engine/src/array/verdict/table.tsv");
    let engines = fs::read_to_string(&file).expect("the engine's table");
    let differs = engines.lines().zip(table()).find(|(engine, model)| engine != model);
    assert_eq!(differs, None, "{} is made by `spec table`", file.display());
    assert_eq!(engines.lines().count(), table().len());
}

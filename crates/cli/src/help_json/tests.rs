use std::collections::BTreeSet;
use std::fs;

use clap::CommandFactory;

use super::*;
use crate::args::CommandLine;

/// Verbs and options as docs/mdadm.md has them: a heading "### `verb`", and in the section's table
/// rows that begin with "| `--option`".
fn documented(text: &str) -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    let mut verb = String::new();
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("### `") {
            verb = heading.trim_end_matches('`').to_owned();
            found.insert((verb.clone(), String::new()));
        } else if let Some(row) = line.strip_prefix("| `--") {
            let option = row.split(['`', '=', ',', ' ']).next().unwrap_or_default();
            found.insert((verb.clone(), format!("--{option}")));
        }
    }
    found
}

fn offered() -> BTreeSet<(String, String)> {
    let mut command = CommandLine::command();
    command.build();
    let mut offered = BTreeSet::new();
    for (verb, options) in Help::of(&command).options() {
        offered.insert((verb.clone(), String::new()));
        offered.extend(options.into_iter().map(|option| (verb.clone(), option)));
    }
    offered
}

#[test]
fn docs_mdadm_md_has_every_verb_and_option_and_no_other() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mdadm.md");
    let documented = documented(&fs::read_to_string(path).expect("docs/mdadm.md"));
    let offered = offered();
    let absent: Vec<_> = offered.difference(&documented).collect();
    let invented: Vec<_> = documented.difference(&offered).collect();
    assert!(absent.is_empty() && invented.is_empty(), "absent {absent:?}, invented {invented:?}");
}

#[test]
fn the_comparison_sees_a_missing_option_and_an_invented_verb() {
    let text = "### `stop`\n| `--force`, `-f` | x |\n### `fly`\n";
    let found = documented(text);
    let pair = |verb: &str, option: &str| (verb.to_owned(), option.to_owned());
    assert!(found.contains(&pair("stop", "--force")));
    assert!(found.contains(&pair("fly", "")) && !offered().contains(&pair("fly", "")));
    assert!(offered().contains(&pair("bench run", "--rw")));
    assert!(!found.contains(&pair("detail", "--test")));
}

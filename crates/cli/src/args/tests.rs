use clap::{CommandFactory, Parser};

use super::*;

fn parse(line: &str) -> Result<Verb, clap::Error> {
    CommandLine::try_parse_from(line.split(' ')).map(|parsed| parsed.verb)
}

#[test]
fn the_definitions_hold_together() {
    CommandLine::command().debug_assert();
}

#[test]
fn what_no_verb_can_mean_is_refused() {
    for line in [
        "mdspace fail data missing",
        "mdspace stop ../x",
        "mdspace set data nothing",
        "mdspace action data reshape",
        "mdspace detail data --json --export",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

use clap::{CommandFactory, Parser};
use mdspace_format::Level;

use super::*;
use crate::args::create::SizeOrMax;

fn parse(line: &str) -> Result<Verb, clap::Error> {
    CommandLine::try_parse_from(line.split(' ')).map(|parsed| parsed.verb)
}

#[test]
fn the_definitions_hold_together() {
    CommandLine::command().debug_assert();
}

#[test]
fn create_takes_mdadms_long_and_short_options() {
    for line in [
        "mdspace create data --level=6 --raid-devices=6 --chunk=64 --size=max a b c d e missing",
        "mdspace create data -l6 -n6 -c64 -zmax a b c d e missing",
    ] {
        let Ok(Verb::Create(args)) = parse(line) else { panic!("{line}") };
        assert_eq!((args.level, args.raid_devices, args.members.len()), (Level::Raid6, 6, 6));
        assert_eq!(args.chunk.map(|chunk| chunk.bytes), Some(64 << 10));
        assert_eq!(args.size, Some(SizeOrMax::Max));
    }
}

#[test]
fn what_no_verb_can_mean_is_refused() {
    for line in [
        "mdspace create data --level=7 --raid-devices=6 a",
        "mdspace create ../x --level=1 --raid-devices=2 a b",
        "mdspace create data --level=1 --raid-devices=0 a b",
        "mdspace assemble data missing",
        "mdspace fail data missing",
        "mdspace stop ../x",
        "mdspace assemble data --stripe-size=12K a",
        "mdspace set data nothing",
        "mdspace action data reshape",
        "mdspace detail data --json --export",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

/// The parser's own guess was --save, which is something else.
#[test]
fn spares_may_be_called_so() {
    let words = "mdspace create data -l1 -n2 --spares=1 a b c";
    let Verb::Create(args) = CommandLine::parse_from(words.split(' ')).verb else {
        panic!("another verb");
    };
    assert_eq!(args.spare_devices, 1);
}

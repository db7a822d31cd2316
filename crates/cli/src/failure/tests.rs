use std::collections::BTreeMap;
use std::fs;

use super::*;

fn documented(page: &str, heading: &str) -> BTreeMap<String, u8> {
    let path = format!("{}/../../docs/{page}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).expect("a page");
    let lines = text.lines().skip_while(|line| *line != heading).skip(1);
    let rows = lines.take_while(|line| !line.starts_with("## "));
    let cells = |row: &str| row.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>();
    let row = |row: &str| match &cells(row)[..] {
        [_, word, exit, ..] => Some((word.trim_matches('`').to_owned(), exit.parse().ok()?)),
        _ => None,
    };
    rows.filter_map(row).collect()
}

#[test]
fn docs_admin_md_has_every_code_with_its_exit_code_and_no_other() {
    let codes = Code::ALL.iter().map(|code| (code.word().to_owned(), code.exit_code()));
    assert_eq!(documented("admin.md", "## Codes of failures"), codes.collect());
}

#[test]
fn docs_mdadm_md_has_every_exit_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mdadm.md");
    let text = fs::read_to_string(path).expect("docs/mdadm.md");
    for code in Code::ALL {
        let row = format!("\n| {} | ", code.exit_code());
        assert_eq!(text.matches(&row).count(), 1, "{code:?}");
    }
}

#[test]
fn a_failure_keeps_its_code_on_its_way_and_an_unknown_one_is_the_usual() {
    let absent = Failure::new("cannot reach data", "it does not run", "start it");
    let absent = absent.with_code(Code::NoArray);
    let json = serde_json::to_string(&absent).expect("JSON");
    assert!(json.contains(r#""code":"no-array""#), "{json}");
    assert_eq!(serde_json::from_str::<Failure>(&json).expect("the same"), absent);
    let newer: Failure = serde_json::from_str(&json.replace("no-array", "no-moon")).expect("JSON");
    assert_eq!((newer.code, newer.exit_code), (Code::Failed, 4));
}

/// An array of which that is believed may go on: its configuration is kept.
#[test]
fn a_failure_of_an_older_process_is_of_silence_where_its_exit_code_says_so() {
    let older = |exit_code: u8| {
        let json = format!(r#"{{"what":"a","why":"b","cure":"c","exit_code":{exit_code}}}"#);
        serde_json::from_str::<Failure>(&json).expect("JSON")
    };
    assert!(older(4).is_of_silence());
    assert_eq!((older(4).exit_code, older(1).code, older(2).code), (4, Code::Failed, Code::Failed));
}

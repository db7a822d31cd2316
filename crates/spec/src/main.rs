//! The rules of mdspace, executable: what an answer, a flush, doubt and coming back may rest on.
//!
//! Each model is a small world: a few members, lanes and blocks, and everything that may happen to
//! them. A search looks at every state that it can reach. With all rules kept nothing goes wrong in any
//! scope; without any one of them something does, and the shortest way there is told.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use report::Report;

mod belief;
mod connections;
mod flush;
mod report;
mod row;
mod rules;
mod search;
mod verdict;

const USAGE: &str =
    "usage: spec [--large] [--ways] [NAME...]   search, all or by name of rule or scope
       spec rules                        print each rule: model, name, words
       spec table                        print every case of the verdict
  --large   the scopes that take minutes
  --ways    print the steps of each violation, also where no name is given";

fn main() -> ExitCode {
    let (flags, names): (Vec<String>, Vec<String>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with('-'));
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    let known = flags.iter().all(|flag| ["--large", "--ways"].contains(&flag.as_str()));
    match names.first().map(String::as_str) {
        _ if !known => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
        Some("table") => verdict::table::table().iter().for_each(|line| println!("{line}")),
        Some("rules") => {
            for (model, name, words) in rules::all() {
                println!("{model}\t{name}\t{words}");
            }
        }
        _ => {
            let mut report = Report::new(names.clone(), has("--ways") || !names.is_empty());
            report.search_all(has("--large"));
            return if report.end() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
    }
    ExitCode::SUCCESS
}

//! The `mdspace` command: Linux software RAID (md) in user space.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

mod args;
mod bench;
mod config;
mod control;
mod demo;
mod doctor;
mod erasure;
mod events;
mod examine;
mod explain;
mod failure;
mod help_json;
mod layout_words;
mod member_probe;
mod member_search;
mod output;
mod own_dir;
mod process;
mod render;
mod report;
mod run_dir;
mod settings;
mod verbs;

fn main() -> ExitCode {
    let command_line = args::CommandLine::parse();
    verbs::run(command_line.verb).unwrap_or_else(|failure| {
        eprintln!("{failure}");
        ExitCode::from(failure.exit_code)
    })
}

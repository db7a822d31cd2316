//! The `mdspace` command: Linux software RAID (md) in user space.

#![allow(dead_code, reason = "the serving process lands with the engine")]

use std::process::ExitCode;

use clap::Parser;

mod args;
mod bench;
mod control;
mod doctor;
mod events;
mod failure;
mod help_json;
mod layout_words;
mod member_probe;
mod output;
mod render;
mod report;
mod run_dir;
mod verbs;

fn main() -> ExitCode {
    let command_line = args::CommandLine::parse();
    verbs::run(command_line.verb).unwrap_or_else(|failure| {
        eprintln!("{failure}");
        ExitCode::from(failure.exit_code)
    })
}

//! The `mdspace` command: Linux software RAID (md) in user space.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use mdspace_io::{IoChoice, inherited};

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
mod member_probe;
mod member_search;
mod output;
mod own_dir;
mod process;
mod programs;
mod render;
mod report;
mod run_dir;
mod settings;
mod udev;
mod verbs;

/// A wrong word would be served otherwise than its user thinks.
fn checked_environment() -> Result<(), failure::Failure> {
    IoChoice::from_env().map(drop).map_err(|word| {
        let why = format!("MDSPACE_IO is {word:?}");
        failure::Failure::new("nothing was done", why, "it takes auto, uring or preadv")
    })
}

fn main() -> ExitCode {
    // One that another one has started has the name of a link to it, and who has a member is named.
    let _ = rustix::thread::set_name(c"mdspace");
    inherited::keep_from_children();
    let command_line = args::CommandLine::parse();
    checked_environment().and_then(|()| verbs::run(command_line.verb)).unwrap_or_else(|failure| {
        output::print_error(&failure);
        ExitCode::from(failure.exit_code)
    })
}

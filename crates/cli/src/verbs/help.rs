//! `mdspace help`, `completions` and `man`.

use std::io;
use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::Shell;

use super::Outcome;
use crate::args::{CommandLine, HelpArgs, member};
use crate::failure::{Code, Failure};
use crate::help_json::Help;
use crate::output;

/// Prints help on everything or on one verb.
pub(crate) fn run(args: &HelpArgs) -> Outcome {
    let mut command = CommandLine::command();
    command.build();
    if args.json {
        output::print_json(&Help::of(&command))?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.verb.as_deref() == Some("member") {
        output::print(&format!("{}\n", member::help()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let help = match &args.verb {
        None => command.render_long_help(),
        Some(verb) => match command.find_subcommand_mut(verb) {
            Some(verb) => verb.render_long_help(),
            None => return Err(unknown(verb)),
        },
    };
    output::print(&help.to_string())?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the completions of a shell.
pub(crate) fn completions(shell: Shell) -> Outcome {
    let (all, mut script) = (CommandLine::command(), Vec::new());
    // What only mdspace itself starts is nothing to type.
    let verbs = all.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned();
    let mut seen = Command::new("mdspace")
        .version(env!("CARGO_PKG_VERSION"))
        .disable_help_subcommand(true)
        .args(all.get_arguments().cloned())
        .subcommands(verbs);
    clap_complete::generate(shell, &mut seen, "mdspace", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the manual page: the command, then each verb.
pub(crate) fn man() -> Outcome {
    let mut command = CommandLine::command();
    command.build();
    let mut page = Vec::new();
    draw(command, &mut page)
        .map_err(|error| Failure::new("cannot draw the manual page", error, "report it"))?;
    output::print(&String::from_utf8_lossy(&page))?;
    Ok(ExitCode::SUCCESS)
}

/// A command, then what it holds.
fn draw(command: Command, page: &mut Vec<u8>) -> io::Result<()> {
    let verbs: Vec<_> =
        command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned().collect();
    clap_mangen::Man::new(command).render(page)?;
    verbs.into_iter().try_for_each(|verb| draw(verb, page))
}

fn unknown(verb: &str) -> Failure {
    Failure::new(
        format!("no help on {verb:?}"),
        "mdspace has no such verb",
        "list them with `mdspace help`",
    )
    .with_code(Code::Usage)
}

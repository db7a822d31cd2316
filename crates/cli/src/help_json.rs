//! `mdspace help --json`: every verb and option, for tests and for other programs.

use clap::{Arg, Command};
use serde::Serialize;

use crate::report::SCHEMA;

/// The whole command line.
#[derive(Debug, Serialize)]
pub(crate) struct Help {
    schema: u32,
    version: &'static str,
    verbs: Vec<VerbHelp>,
}

#[derive(Debug, Serialize)]
struct VerbHelp {
    name: String,
    about: String,
    positionals: Vec<ArgumentHelp>,
    options: Vec<ArgumentHelp>,
}

#[derive(Debug, Serialize)]
struct ArgumentHelp {
    name: String,
    short: Option<char>,
    value: Option<String>,
    values: Vec<String>,
    default: Option<String>,
    about: String,
    required: bool,
    repeated: bool,
}

impl Help {
    /// What `command` offers; hidden verbs and options are nobody's business.
    pub(crate) fn of(command: &Command) -> Self {
        let mut verbs = Vec::new();
        collect(command, "", &mut verbs);
        Self { schema: SCHEMA, version: env!("CARGO_PKG_VERSION"), verbs }
    }

    /// Every verb with the long names of its options.
    #[cfg(test)]
    fn options(&self) -> Vec<(String, Vec<String>)> {
        let names =
            |verb: &VerbHelp| verb.options.iter().map(|o| format!("--{}", o.name)).collect();
        self.verbs.iter().map(|verb| (verb.name.clone(), names(verb))).collect()
    }
}

/// Adds the verbs below `command`; one that only holds others, as `bench`, is not one itself.
fn collect(command: &Command, above: &str, verbs: &mut Vec<VerbHelp>) {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let name = format!("{above}{}", verb.get_name());
        match verb.has_subcommands() {
            true => collect(verb, &format!("{name} "), verbs),
            false => verbs.push(VerbHelp::of(verb, name)),
        }
    }
}

impl VerbHelp {
    fn of(verb: &Command, name: String) -> Self {
        let shown = |arg: &&Arg| !arg.is_hide_set() && arg.get_id() != "help";
        let (positionals, options): (Vec<_>, Vec<_>) =
            verb.get_arguments().filter(shown).partition(|arg| arg.is_positional());
        Self {
            name,
            about: verb.get_about().map(ToString::to_string).unwrap_or_default(),
            positionals: positionals.into_iter().map(ArgumentHelp::of).collect(),
            options: options.into_iter().map(ArgumentHelp::of).collect(),
        }
    }
}

impl ArgumentHelp {
    fn of(arg: &Arg) -> Self {
        let takes_value = arg.get_action().takes_values();
        let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
        let default = arg.get_default_values().first().map(|v| v.to_string_lossy().into_owned());
        Self {
            name: arg.get_long().map_or_else(|| arg.get_id().to_string(), str::to_owned),
            short: arg.get_short(),
            value: value.filter(|_| takes_value),
            values: arg
                .get_possible_values()
                .iter()
                .filter(|_| takes_value)
                .map(|value| value.get_name().to_owned())
                .collect(),
            default: default.filter(|_| takes_value),
            about: arg.get_help().map(ToString::to_string).unwrap_or_default(),
            required: arg.is_required_set(),
            repeated: matches!(arg.get_action(), clap::ArgAction::Append)
                || arg.get_num_args().is_some_and(|range| range.max_values() > 1),
        }
    }
}

#[cfg(test)]
mod tests;

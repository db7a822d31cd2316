//! Standard output.

use std::io::{self, Write};

use serde::Serialize;

use crate::failure::Failure;

/// Writes `text` to standard output. A reader that has seen enough (`head`) ends the command quietly.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::new("cannot write the output", error, "free the disk or pipe")),
        Ok(()) => Ok(()),
    }
}

/// Prints a line.
pub(crate) fn print_line(line: &str) -> Result<(), Failure> {
    print(&format!("{line}\n"))
}

/// Prints one JSON object, indented.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print_line(&serde_json::to_string_pretty(value).expect("our types have string keys"))
}

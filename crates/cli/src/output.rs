//! Standard output.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::failure::{Code, Failure};

/// A text from outside, as a path or a name, with what would steer a terminal, turn the direction of
/// writing or break a line written as escapes: `\n`, `\u{1b}`, `\u{202e}`.
pub(crate) fn printable(text: &(impl fmt::Display + ?Sized)) -> String {
    escaped(&text.to_string(), |_| false)
}

/// As [`printable`], for a text of ours with texts of others in it: line ends and tabs stay.
pub(crate) fn printable_lines(text: &str) -> String {
    escaped(text, |c| matches!(c, '\n' | '\t'))
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match steers(c) && !stays(c) {
            true => plain.extend(c.escape_default()),
            false => plain.push(c),
        }
    }
    plain
}

/// Whether a character does more to a terminal or a line than to stand there.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Writes `text` to standard output. A reader that has seen enough (`head`) is no failure: the verb goes on,
/// and ends with the exit code of what it did.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_ours(&printable_lines(text))
}

/// As [`print`], for a text that has nothing of others in it: colours stay.
pub(crate) fn print_ours(text: &str) -> Result<(), Failure> {
    is_read(text).map(drop)
}

/// Writes `text` to standard output. Says whether anyone is there to read more.
fn is_read(text: &str) -> Result<bool, Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new("cannot write the output", error, "free the disk or pipe")),
        Ok(()) => Ok(true),
    }
}

/// Writes a failure to standard error. Where that cannot be written, the exit code says what there is to say.
pub(crate) fn print_error(failure: &Failure) {
    drop(writeln!(io::stderr(), "{failure}"));
}

/// Writes a line to standard error about what is no failure.
pub(crate) fn print_aside(line: &str) {
    drop(writeln!(io::stderr(), "mdspace: {}", printable(line)));
}

/// Ends a verb that changes something: prints what it did, and how it ended. All of it is done before the
/// first line is printed, so that no output decides how much of it is done.
pub(crate) fn end(notes: &[String], end: Result<(), Failure>) -> Result<ExitCode, Failure> {
    let said = print_done(notes);
    end.and(said).map(|()| ExitCode::SUCCESS)
}

/// Prints lines about what was done. If they cannot be written, the exit code says that it was done.
pub(crate) fn print_done(notes: &[String]) -> Result<(), Failure> {
    let unsaid = |failure: Failure| Failure {
        what: "it was done, but the output could not be written".into(),
        ..failure.with_code(Code::Unsaid)
    };
    notes.iter().try_for_each(|note| print_line(note)).map_err(unsaid)
}

/// Prints a line, which stays one whatever names and paths are in it.
pub(crate) fn print_line(line: &str) -> Result<(), Failure> {
    print(&(printable(&line) + "\n"))
}

/// As [`print_line`], of many that come one by one. Says whether anyone is there to read more.
pub(crate) fn line_is_read(line: &str) -> Result<bool, Failure> {
    is_read(&(printable(line) + "\n"))
}

/// The same value with all its texts as [`printable`] makes them, for what renders it in lines.
pub(crate) fn plain<T: Serialize + DeserializeOwned>(value: &T) -> T {
    let mut tree = serde_json::to_value(value).expect("our types have string keys");
    make_plain(&mut tree);
    serde_json::from_value(tree).expect("it came from the same type")
}

fn make_plain(tree: &mut Value) {
    match tree {
        Value::String(text) => *text = printable(text),
        Value::Array(items) => items.iter_mut().for_each(make_plain),
        Value::Object(fields) => fields.values_mut().for_each(make_plain),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Prints one JSON object, indented.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    print(&as_json(&serde_json::to_string_pretty(value).expect("our types have string keys")))
}

/// Prints one JSON object of many in one line. Says whether anyone is there to read more.
pub(crate) fn json_line_is_read(value: &impl Serialize) -> Result<bool, Failure> {
    is_read(&as_json(&serde_json::to_string(value).expect("our types have string keys")))
}

/// What would steer a terminal stands in strings alone, where JSON has an escape of its own for it.
fn as_json(json: &str) -> String {
    let mut plain = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        match c != '\n' && steers(c) {
            true => plain += &format!("\\u{:04x}", u32::from(c)),
            false => plain.push(c),
        }
    }
    plain + "\n"
}

#[cfg(test)]
mod tests;

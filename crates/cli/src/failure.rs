//! Why a verb ends without having done its work.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::output::{printable, printable_lines};

mod code;

pub(crate) use code::Code;

/// What failed, why, and what to do about it. Travels over the control socket as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Failure {
    /// What did not happen, without a capital and a full stop.
    pub(crate) what: String,
    /// The reason.
    pub(crate) why: String,
    /// What the user can do.
    pub(crate) cure: String,
    /// What kind it is.
    pub(crate) code: Code,
    /// The exit code of the command: that of the code, but for verbs whose exit codes mean something else.
    pub(crate) exit_code: u8,
}

impl Failure {
    /// A failure of the usual kind, which ends the command with 1.
    pub(crate) fn new(
        what: impl Into<String>,
        why: impl ToString,
        cure: impl Into<String>,
    ) -> Self {
        let (what, why, cure) = (what.into(), why.to_string(), cure.into());
        let code = Code::default();
        Self { what, why, cure, code, exit_code: code.exit_code() }
    }

    /// The same failure, of this kind.
    pub(crate) fn with_code(self, code: Code) -> Self {
        Self { code, exit_code: code.exit_code(), ..self }
    }

    /// The process of an array does not answer.
    pub(crate) fn of_silence(
        what: impl Into<String>,
        why: impl ToString,
        cure: impl Into<String>,
    ) -> Self {
        Self::new(what, why, cure).with_code(Code::NoAnswer)
    }

    /// Whether the process of an array does not answer.
    pub(crate) fn is_of_silence(&self) -> bool {
        self.code == Code::NoAnswer
    }

    /// This failure and another one of its kind.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { what: format!("{}; {}", self.what, other.what), ..self }
    }

    /// The same failure, of a verb that has done this before.
    pub(crate) fn after(self, done: &[String]) -> Self {
        match done.is_empty() {
            true => self,
            false => {
                Self { why: format!("{}\ndone before: {}", self.why, done.join("; ")), ..self }
            }
        }
    }

    /// The same failure, for a verb whose exit code says something else.
    pub(crate) fn with_exit_code(self, exit_code: u8) -> Self {
        Self { exit_code, ..self }
    }
}

/// A failure as a process says it.
#[derive(Deserialize)]
struct Said {
    what: String,
    why: String,
    cure: String,
    /// Older processes do not say it.
    code: Option<Code>,
    exit_code: u8,
}

impl<'de> Deserialize<'de> for Failure {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        let Said { what, why, cure, code, exit_code } = Said::deserialize(reader)?;
        // Where no array runs that is the exit code too, but then none says it.
        let of_older = match exit_code == Code::NoAnswer.exit_code() {
            true => Code::NoAnswer,
            false => Code::default(),
        };
        Ok(Self { what, why, cure, code: code.unwrap_or(of_older), exit_code })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "mdspace: {}", printable(&self.what))?;
        writeln!(f, "    why: {}", indented(&printable_lines(&self.why)))?;
        write!(f, "     do: {}", indented(&printable_lines(&self.cure)))
    }
}

fn indented(text: &str) -> String {
    text.trim_end().replace('\n', "\n         ")
}

#[cfg(test)]
mod tests;

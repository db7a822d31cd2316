//! Why a verb ends without having done its work.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::output::{printable, printable_lines};

/// What failed, why, and what to do about it. Travels over the control socket as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    /// What did not happen, without a capital and a full stop.
    pub(crate) what: String,
    /// The reason.
    pub(crate) why: String,
    /// What the user can do.
    pub(crate) cure: String,
    /// The exit code of the command.
    pub(crate) exit_code: u8,
    /// No array of this name runs.
    #[serde(skip)]
    pub(crate) is_of_absence: bool,
}

/// Exit code of a verb whose array does not answer.
const EXIT_NO_ANSWER: u8 = 4;

impl Failure {
    /// A failure that ends the command with 1.
    pub(crate) fn new(
        what: impl Into<String>,
        why: impl ToString,
        cure: impl Into<String>,
    ) -> Self {
        let (what, why, cure) = (what.into(), why.to_string(), cure.into());
        Self { what, why, cure, exit_code: 1, is_of_absence: false }
    }

    /// The same failure, for there is no array of this name.
    pub(crate) fn for_none_of_that_name(self) -> Self {
        Self { is_of_absence: true, ..self }
    }

    /// The process of an array does not answer.
    pub(crate) fn of_silence(
        what: impl Into<String>,
        why: impl ToString,
        cure: impl Into<String>,
    ) -> Self {
        Self::new(what, why, cure).with_exit_code(EXIT_NO_ANSWER)
    }

    /// Whether the process of an array does not answer.
    pub(crate) fn is_of_silence(&self) -> bool {
        self.exit_code == EXIT_NO_ANSWER
    }

    /// This failure and another one of its kind.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { what: format!("{}; {}", self.what, other.what), ..self }
    }

    /// The same failure with another exit code.
    pub(crate) fn with_exit_code(self, exit_code: u8) -> Self {
        Self { exit_code, ..self }
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

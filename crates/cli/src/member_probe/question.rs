//! Whether what lies on would-be members may be lost.

use std::io::{self, IsTerminal, Write};

use crate::explain::shell_word;
use crate::failure::{Code, Failure};
use crate::output::printable;

/// What lies on would-be members, for people.
#[derive(Default)]
pub(super) struct Question {
    shown: String,
    /// Members of arrays, by name.
    of_arrays: Vec<String>,
}

impl Question {
    /// Adds what a member holds, a line for each thing; `is_of_array` says whether a superblock of md is among it.
    pub(super) fn add(&mut self, member: &str, lines: &[String], is_of_array: bool) {
        if lines.is_empty() {
            return;
        }
        self.shown.push_str(&format!("{} holds:\n", printable(member)));
        lines.iter().for_each(|line| self.shown.push_str(&format!("    {line}\n")));
        self.of_arrays.extend(is_of_array.then(|| member.to_owned()));
    }

    /// Adds what another one holds.
    pub(super) fn join(&mut self, other: Self) {
        self.shown.push_str(&other.shown);
        self.of_arrays.extend(other.of_arrays);
    }

    /// Nothing is lost unless the user says yes. Says first how it can be kept.
    pub(super) fn ask(&self, what: &str) -> Result<(), Failure> {
        if self.shown.is_empty() {
            return Ok(());
        }
        if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
            let cure = format!("{}; --run overwrites it", self.harmless_way());
            return Err(Failure::new(what, &self.shown, cure).with_code(Code::NeedsYes));
        }
        let refused = || Failure::new(what, "the answer was not yes", "nothing was written");
        let way = self.harmless_way();
        eprint!("{}To keep it: {way}.\nAll of it would be lost. Continue? [y/N] ", self.shown);
        io::stderr().flush().map_err(|_| refused())?;
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map_err(|_| refused())?;
        match answer.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => Err(refused()),
        }
    }

    fn harmless_way(&self) -> String {
        if self.of_arrays.is_empty() {
            return "look at it again, or choose another member".into();
        }
        let members = self.of_arrays.iter().map(|name| shell_word(name));
        let members = members.collect::<Vec<_>>().join(" ");
        format!("`mdspace explain {members}` says how to start the array that it is of")
    }
}

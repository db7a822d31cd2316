//! Whose a device of a host's driver is.

use std::fmt;

/// What the text of ours begins with.
const OURS: &str = "mdspace ";

/// The text by which a device is known for that of one array or multipath device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Identity(String);

impl Identity {
    /// Of an array, by its UUID in md's form.
    pub fn of_array(uuid: &str) -> Self {
        Self(format!("{OURS}array {uuid}"))
    }

    /// Of a multipath device that stands alone, by its name.
    pub fn of_multipath(name: &str) -> Self {
        Self(format!("{OURS}multipath {name}"))
    }

    /// Whether it is of mdspace.
    pub(crate) fn is_ours(&self) -> bool {
        self.0.starts_with(OURS)
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<String> for Identity {
    fn from(text: String) -> Self {
        Self(text)
    }
}

#[cfg(test)]
mod tests;

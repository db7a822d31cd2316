//! What members were when they were looked at.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use mdspace_io::Identity;
use serde::{Deserialize, Serialize};

/// The files and devices that were looked at, by the names under which they are opened later.
///
/// A name may lead elsewhere by then. What is opened must be what was looked at, else other people's
/// data are overwritten without a question. It goes with every order that opens members.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Probed(BTreeMap<String, Identity>);

impl Probed {
    pub(crate) fn one(name: String, identity: Identity) -> Self {
        Self([(name, identity)].into())
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// What the member of this name was; none for one that was not looked at.
    pub(crate) fn of(&self, name: &str) -> Option<Identity> {
        self.0.get(name).copied()
    }
}

impl fmt::Display for Probed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self).map_err(|_| fmt::Error)?)
    }
}

impl FromStr for Probed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| error.to_string())
    }
}

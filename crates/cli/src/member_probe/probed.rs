//! What members were when they were looked at.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use mdspace_engine::backend::MemberId;
use mdspace_io::{Identity, MemberTable};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

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

    /// Refuses a member that was opened under this name, and is another one than was looked at.
    pub(crate) fn refuse_other(
        &self,
        table: &MemberTable,
        name: &str,
        id: MemberId,
        what: &str,
    ) -> Result<(), Failure> {
        let Some(was) = self.0.get(name) else { return Ok(()) };
        if table.identity(id) == Some(*was) {
            return Ok(());
        }
        let why = format!("{name} leads elsewhere than when it was looked at");
        Err(Failure::new(what, why, "see where it leads, and name the device itself"))
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

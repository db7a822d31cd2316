//! What a member is wanted for.

use std::fmt;

use crate::args::{ArrayName, MemberSpec};

/// What a member is wanted for: what did not happen where it cannot be had, and which advice fits then.
#[derive(Clone, Debug)]
pub(crate) struct Purpose {
    what: String,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It becomes a member: an empty file will do.
    NewMember,
    /// Its array is started.
    Start,
    /// What it is already counts.
    Known,
}

impl Purpose {
    /// To become a member. `what` is the sentence of the failure: "cannot create data".
    pub(crate) fn new_member(what: impl Into<String>) -> Self {
        Self { what: what.into(), kind: Kind::NewMember }
    }

    /// To start its array.
    pub(crate) fn start(what: impl Into<String>) -> Self {
        Self { what: what.into(), kind: Kind::Start }
    }

    /// To be used as what it is.
    pub(crate) fn known(what: impl Into<String>) -> Self {
        Self { what: what.into(), kind: Kind::Known }
    }

    /// What did not happen.
    pub(crate) fn what(&self) -> &str {
        &self.what
    }

    /// What to do about a member that is not there. Below /dev a file would be kept in memory, and only who makes an
    /// array or makes it larger wants an empty one.
    pub(super) fn cure_of_missing(&self, member: &MemberSpec) -> &'static str {
        match (member, self.kind) {
            (MemberSpec::Nbd(_), _) => "check the address, and that its server runs",
            (MemberSpec::Path(path), _) if path.starts_with("/dev") => {
                "see `lsblk` for the devices that this host has"
            }
            (MemberSpec::Path(_), Kind::NewMember) => {
                "check the name; an empty member file is made by: truncate -s 1G FILE"
            }
            _ => "check the name: files and devices that exist are members",
        }
    }

    /// What to do about a member of a running array.
    pub(super) fn cure_of_running(&self, array: &ArrayName) -> String {
        match self.kind {
            Kind::Start => format!("it runs already: see `mdspace detail {array}`"),
            Kind::NewMember | Kind::Known => format!(
                "choose another member; `mdspace detail {array}` says what this one is to it"
            ),
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

//! Orders that change what the configuration says of the array, and the restart that writes that down: what is done
//! before it comes with it, and nothing is done after.

use std::time::Duration;

use super::ServingProcess;
use super::under_way::{Begun, Quiet};
use crate::failure::{Code, Failure};

/// How long those that are under way have before a restart is refused.
const PATIENCE: Duration = Duration::from_secs(10);

impl ServingProcess {
    /// Begins to change what the configuration says.
    pub(super) fn begin_change(&self) -> Result<Begun<'_>, Failure> {
        self.changes.begin().ok_or_else(|| {
            let what = format!("nothing was changed on {}", self.name);
            let failure = Failure::new(what, "it is being restarted", "order it when that is done");
            failure.with_code(Code::Restarting)
        })
    }

    /// Keeps changes out for a restart.
    pub(super) fn keep_changes_out(&self) -> Result<Quiet<'_>, Failure> {
        self.changes.keep_out(PATIENCE).ok_or_else(|| {
            let what = format!("cannot restart {}", self.name);
            let why = "another order is under way that changes how it is, or a spare is on its way";
            Failure::new(what, why, "wait until that has ended")
        })
    }
}

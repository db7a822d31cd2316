//! The arrays that run on this host, and their members.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mdspace_io::{name_of_path, path_of_name};

use crate::args::ArrayName;
use crate::control::client::ask_all;
use crate::failure::{Code, Failure};
use crate::report::ServedReport;
use crate::run_dir::{RunDir, Running};

use super::{Purpose, which_leads_to};

/// What they have said, asked once for all that a verb looks at: one that is silent takes its time each time.
#[derive(Clone)]
pub(super) struct Siblings(Arc<Members>);

/// Their members, and the array of each.
struct Members {
    places: Vec<PathBuf>,
    arrays: Vec<ArrayName>,
}

impl Siblings {
    /// Asks all of them. What does not answer has its locks.
    pub(super) fn ask(run_dir: &RunDir) -> Self {
        let running = run_dir.running().unwrap_or_default();
        let members_of = |(it, answer): (&Running, Result<ServedReport, Failure>)| {
            let members = match answer {
                Ok(ServedReport::Array(report)) => report.array.members,
                Ok(ServedReport::Device(_)) | Err(_) => Vec::new(),
            };
            let name = it.name.clone();
            members.into_iter().map(move |known| (path_of_name(&known.member), name.clone()))
        };
        let (places, arrays) = running.iter().zip(ask_all(&running)).flat_map(members_of).unzip();
        Self(Arc::new(Members { places, arrays }))
    }

    /// Refuses a member of one of them.
    pub(super) fn refuse(&self, member: &Path, purpose: &Purpose) -> Result<(), Failure> {
        let Some(number) = which_leads_to(member, &self.0.places) else { return Ok(()) };
        let array = &self.0.arrays[number];
        let why = format!("{} is in use by mdspace array {array}", name_of_path(member));
        let failure = Failure::new(purpose.what(), why, purpose.cure_of_running(array));
        Err(failure.with_code(Code::InUse))
    }
}

//! The arrays that run on this host, and their members.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mdspace_io::{name_of_path, path_of_name};

use crate::args::ArrayName;
use crate::control::client::ask_all;
use crate::failure::{Code, Failure};
use crate::report::ServedReport;
use crate::run_dir::{RunDir, Running};

use super::{Purpose, places_of};

/// What they have said, asked once for all that a verb looks at: one that is silent takes its time each time. So does the
/// file system of a member.
#[derive(Clone)]
pub(super) struct Siblings(Arc<Members>);

/// Their members by name, where each name leads, and the array of each.
struct Members {
    names: Vec<PathBuf>,
    places: Vec<Option<PathBuf>>,
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
        let members = running.iter().zip(ask_all(&running)).flat_map(members_of);
        let (names, arrays): (Vec<PathBuf>, Vec<ArrayName>) = members.unzip();
        Self(Arc::new(Members { places: places_of(&names), names, arrays }))
    }

    /// Refuses a member of one of them.
    pub(super) fn refuse(&self, member: &Path, purpose: &Purpose) -> Result<(), Failure> {
        let Members { names, places, arrays } = &*self.0;
        let has_name = names.iter().position(|name| name == member);
        let number = has_name.or_else(|| {
            let place = places_of(&[member.to_owned()]).pop()?;
            places.iter().position(|known| known.is_some() && *known == place)
        });
        let Some(number) = number else { return Ok(()) };
        let array = &arrays[number];
        let why = format!("{} is in use by mdspace array {array}", name_of_path(member));
        let failure = Failure::new(purpose.what(), why, purpose.cure_of_running(array));
        Err(failure.with_code(Code::InUse))
    }
}

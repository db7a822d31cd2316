//! A look at a member that may not answer.

use std::fmt::Display;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use mdspace_io::name_of_path;

use crate::failure::Failure;

/// How long a look may come no further. A disk that stands still takes half of it to begin to turn.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// One look, on a thread of its own. The system may never give that thread back: then it stays behind.
pub(crate) struct Look<T> {
    member: String,
    begun: Instant,
    headway: Headway,
    answer: Receiver<T>,
    stays: Arc<AtomicBool>,
}

/// Looks that are not waited for any more, and whose threads the system has not given back.
static LEFT_BEHIND: AtomicUsize = AtomicUsize::new(0);

/// Whether this process may not end, when it wants to, for a look that it has given up.
pub(crate) fn any_left_behind() -> bool {
    LEFT_BEHIND.load(Ordering::Acquire) > 0
}

/// How far a look has come.
#[derive(Clone, Default)]
pub(crate) struct Headway(Arc<AtomicU64>);

impl Headway {
    /// The member has answered once more.
    pub(crate) fn note(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl<T: Send + 'static> Look<T> {
    /// Begins to look. What comes after the end of patience is dropped.
    pub(crate) fn start(
        member: impl Display,
        look: impl FnOnce(&Headway) -> T + Send + 'static,
    ) -> io::Result<Self> {
        let (answering, answer) = channel();
        let headway = Headway::default();
        let (theirs, stays) = (headway.clone(), Arc::<AtomicBool>::default());
        let stayed = stays.clone();
        thread::Builder::new().name("look".into()).spawn(move || {
            drop(answering.send(look(&theirs)));
            if stayed.swap(true, Ordering::AcqRel) {
                LEFT_BEHIND.fetch_sub(1, Ordering::AcqRel);
            }
        })?;
        Ok(Self { member: member.to_string(), begun: Instant::now(), headway, answer, stays })
    }

    /// Waits for the end of the look; an error where it comes no further.
    pub(crate) fn end(self) -> io::Result<T> {
        self.end_within(SILENCE_MAX)
    }

    /// As [`Look::end`], with another patience.
    pub(crate) fn end_within(self, silence_max: Duration) -> io::Result<T> {
        loop {
            let before = self.headway.count();
            // Who has come nowhere yet was silent before it was waited for, too: of several looks none takes longer
            // than the others.
            let patience = match before {
                0 => silence_max.saturating_sub(self.begun.elapsed()),
                _ => silence_max,
            };
            match self.answer.recv_timeout(patience) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) if self.headway.count() != before => {}
                Err(RecvTimeoutError::Timeout) => {
                    LEFT_BEHIND.fetch_add(1, Ordering::AcqRel);
                    if self.stays.swap(true, Ordering::AcqRel) {
                        // It has just ended.
                        LEFT_BEHIND.fetch_sub(1, Ordering::AcqRel);
                    }
                    let why = format!("it has not answered for {} s", silence_max.as_secs());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, why));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the look at it ended without a word"));
                }
            }
        }
    }

    /// As [`Look::end`]; the failure names the member.
    pub(crate) fn end_for(self, what: &str) -> Result<T, Failure> {
        let member = self.member.clone();
        self.end().map_err(|error| silent(&member, &error, what))
    }
}

/// Looks, and waits for the end; the failure names the member.
pub(crate) fn look<T: Send + 'static>(
    member: impl Display,
    what: &str,
    look: impl FnOnce(&Headway) -> T + Send + 'static,
) -> Result<T, Failure> {
    let name = member.to_string();
    let looking = Look::start(member, look).map_err(|error| silent(&name, &error, what))?;
    looking.end_for(what)
}

/// How long a file system may take to say where a name leads.
const FOUND_WITHIN: Duration = Duration::from_secs(5);

/// What a question about a path has for an answer; none where its file system does not give one.
pub(crate) fn asked_of<T: Send + 'static>(
    path: &Path,
    question: impl FnOnce(&Path) -> T + Send + 'static,
) -> Option<T> {
    let (name, path) = (name_of_path(path), path.to_owned());
    let looking = Look::start(name, move |_| question(&path));
    looking.and_then(|looking| looking.end_within(FOUND_WITHIN)).ok()
}

/// Whether two paths lead to one place.
pub(crate) fn is_same_place(one: &Path, other: &Path) -> bool {
    which_leads_to(one, &[other.to_owned()]).is_some()
}

/// Which of these paths leads where `one` does. One whose file system does not say it leads nowhere. Several of
/// those take no longer than one.
pub(crate) fn which_leads_to(one: &Path, others: &[PathBuf]) -> Option<usize> {
    if let Some(same) = others.iter().position(|other| other == one) {
        return Some(same);
    }
    let (place, others) = (Leads::ask(one), others.iter().map(|other| Leads::ask(other)));
    let others: Vec<Leads> = others.collect();
    let place = place.to()?;
    others.into_iter().position(|other| other.to().as_ref() == Some(&place))
}

/// Where paths lead. None for one whose file system does not say it. Several of those take no longer than one.
pub(crate) fn places_of(paths: &[PathBuf]) -> Vec<Option<PathBuf>> {
    let asked: Vec<Leads> = paths.iter().map(|path| Leads::ask(path)).collect();
    asked.into_iter().map(Leads::to).collect()
}

/// The question where a path leads.
struct Leads(io::Result<Look<Option<PathBuf>>>);

impl Leads {
    fn ask(path: &Path) -> Self {
        let (name, path) = (name_of_path(path), path.to_owned());
        Self(Look::start(name, move |_| fs::canonicalize(path).ok()))
    }

    fn to(self) -> Option<PathBuf> {
        self.0.and_then(|looking| looking.end_within(FOUND_WITHIN)).ok().flatten()
    }
}

fn silent(member: &str, error: &io::Error, what: &str) -> Failure {
    let cure = "look at the device and the kernel's log; leave the member out until it answers";
    Failure::new(what, format!("{member}: {error}"), cure)
}

#[cfg(test)]
mod tests;

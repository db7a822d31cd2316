//! A question to a device or a file system that may never answer.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::Behind;

/// How long an answer may take.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// Questions without an answer yet, by whom they ask. Each has a thread that the system may never give back.
static UNANSWERED: Mutex<BTreeMap<PathBuf, Receiver<io::Result<Behind>>>> =
    Mutex::new(BTreeMap::new());

/// What lies behind a device or a name. It was asked, and may be answered.
#[derive(Debug)]
pub(in crate::member) struct Question(State);

#[derive(Debug)]
enum State {
    Answered(io::Result<Behind>),
    Asked { whom: PathBuf, answer: Receiver<io::Result<Behind>> },
}

impl Question {
    pub(in crate::member) fn answered(answer: io::Result<Behind>) -> Self {
        Self(State::Answered(answer))
    }

    /// Asks on a thread of its own. Who has not answered an earlier question is not asked again before it has.
    pub(in crate::member) fn ask(
        whom: &Path,
        question: impl Fn() -> io::Result<Behind> + Clone + Send + 'static,
    ) -> Self {
        if is_unanswered(whom) {
            return Self::answered(Err(silence(whom)));
        }
        let (answering, answer) = channel();
        let theirs = question.clone();
        let asking = thread::Builder::new().name("ask".into()).spawn(move || {
            let answer = theirs();
            // What it has open is closed before the answer is known.
            drop(theirs);
            // Who asked may have given up.
            drop(answering.send(answer));
        });
        match asking {
            Ok(_) => Self(State::Asked { whom: whom.to_owned(), answer }),
            // Where the system has no thread, an answer matters more than the wait.
            Err(_) => Self::answered(question()),
        }
    }

    /// Waits for all of them together.
    pub(in crate::member) fn answers(questions: Vec<Self>) -> Vec<io::Result<Behind>> {
        let until = Instant::now() + ANSWERS_WITHIN;
        questions.into_iter().map(|question| question.answer_until(until)).collect()
    }

    pub(in crate::member) fn answer(self) -> io::Result<Behind> {
        self.answer_until(Instant::now() + ANSWERS_WITHIN)
    }

    fn answer_until(self, until: Instant) -> io::Result<Behind> {
        let (whom, answer) = match self.0 {
            State::Answered(answer) => return answer,
            State::Asked { whom, answer } => (whom, answer),
        };
        match answer.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                let silence = silence(&whom);
                unanswered().insert(whom, answer);
                Err(silence)
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(io::Error::other("the question ended without an answer"))
            }
        }
    }
}

/// Whether an error says that no answer came.
pub(in crate::member) fn is_silence(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut
}

fn silence(whom: &Path) -> io::Error {
    let seconds = ANSWERS_WITHIN.as_secs();
    let why = format!("{} has not answered for {seconds} s", whom.display());
    io::Error::new(io::ErrorKind::TimedOut, why)
}

/// Whether an earlier question waits still. One that was answered too late is forgotten.
fn is_unanswered(whom: &Path) -> bool {
    let mut unanswered = unanswered();
    let waits =
        |answer: &Receiver<_>| matches!(answer.try_recv().map(drop), Err(TryRecvError::Empty));
    let waits = unanswered.get(whom).is_some_and(waits);
    if !waits {
        unanswered.remove(whom);
    }
    waits
}

fn unanswered() -> MutexGuard<'static, BTreeMap<PathBuf, Receiver<io::Result<Behind>>>> {
    UNANSWERED.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

//! What lies below a member, over any number of hops: an array must not keep its data in itself.
//!
//! Each process has a number that nobody guesses. Whoever opens an export asks its server, over the
//! connection that is to be used, whether that number is below it. A server that is mdspace asks the
//! servers of its own members the same, and so on. What another process says of itself comes from the
//! export's own server, so it can refuse the use of its own exports and nothing else.
//!
//! The question is an export's name in NBD's option `INFO`. Every other server says that it has no
//! such export: nothing of mdspace is known to lie below it.
//!
//! Of two arrays that each add the other's export at the same time at least one is refused: a member
//! is listed here before its server is asked.
//!
//! What is no export, or another server's, is looked at by [`Echo`] before a running array takes it.

mod echo;

use std::fmt;
use std::io;
use std::ops::Range;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use mdspace_engine::sync::Mutex;

use super::nbd::{self, Uri};
use echo::Echo;

/// What a question's name starts with.
const QUESTION: &str = "x-mdspace:below/";
/// What an answer's text starts with.
const ANSWER: &str = "x-mdspace:";
/// Processes on one way.
const HOPS_MAX: usize = 16;
/// How long the whole answer may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// Each process on the way waits for so much less than the one that asks it, and can so say who is
/// silent.
const LESS_EACH_HOP: Duration = Duration::from_millis(100);
/// Between two looks whether an answer is there.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// Questions that a process passes on at once.
const QUESTIONS_MAX: usize = 32;
/// Characters of a reason that are passed on.
const REASON_MAX: usize = 200;

/// Whether a process lies below a server's exports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It does.
    Yes,
    /// It does not.
    No,
    /// It is being found out.
    Wait,
    /// It cannot be found out, and why.
    Unclear(String),
}

impl Answer {
    /// Reads what a server says instead of an export. None: it does not know the question.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match text.strip_prefix(ANSWER)?.split_once(' ') {
            Some(("unclear", why)) => {
                let plain = |c: &char| !c.is_control();
                Some(Self::Unclear(why.chars().filter(plain).take(REASON_MAX).collect()))
            }
            Some(_) => None,
            None => match text.strip_prefix(ANSWER)? {
                "yes" => Some(Self::Yes),
                "no" => Some(Self::No),
                "wait" => Some(Self::Wait),
                _ => None,
            },
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(ANSWER)?;
        match self {
            Self::Yes => f.write_str("yes"),
            Self::No => f.write_str("no"),
            Self::Wait => f.write_str("wait"),
            Self::Unclear(why) => write!(f, "unclear {why}"),
        }
    }
}

/// Whether one of these processes lies below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Question {
    /// Tells it from the others of its last asker: no answer is given twice.
    number: u64,
    /// Who asks, and who passed it on, in order.
    way: Vec<u128>,
}

impl Question {
    /// How long its last asker waits for an answer.
    pub(super) fn patience(&self) -> Duration {
        PATIENCE.saturating_sub(LESS_EACH_HOP * (self.way.len() as u32).saturating_sub(1))
    }

    /// Has `ask` put the question until there is an answer. None: the server does not know it.
    pub(super) fn put(
        &self,
        mut ask: impl FnMut(&str) -> io::Result<Option<Answer>>,
    ) -> io::Result<Option<Answer>> {
        let (until, words) = (Instant::now() + self.patience(), self.to_string());
        loop {
            match ask(&words)? {
                Some(Answer::Wait) if Instant::now() >= until => {
                    return Ok(Some(Answer::Unclear("it finds no answer in time".into())));
                }
                Some(Answer::Wait) => thread::sleep(ASK_AGAIN_AFTER),
                answer => return Ok(answer),
            }
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{QUESTION}{}", self.number)?;
        self.way.iter().try_for_each(|process| write!(f, "/{process:032x}"))
    }
}

impl FromStr for Question {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.strip_prefix(QUESTION).ok_or(())?.split('/');
        let number = words.next().and_then(|word| word.parse().ok()).ok_or(())?;
        let way = words.map(|word| u128::from_str_radix(word, 16).map_err(drop));
        let way = way.take(HOPS_MAX + 1).collect::<Result<Vec<_>, ()>>()?;
        if way.is_empty() { Err(()) } else { Ok(Self { number, way }) }
    }
}

/// A member behind a network, for as long as it is open or being opened.
#[derive(Debug)]
pub(crate) struct Below {
    uri: Uri,
    /// Its server is not mdspace: nothing of ours is known below it.
    is_leaf: AtomicBool,
    /// A lane is connected, or will be. Else nothing goes there any more.
    in_use: AtomicBool,
}

impl Below {
    /// Its server does not know the question.
    pub(super) fn end_here(&self) {
        self.is_leaf.store(true, Ordering::Relaxed);
    }

    /// Whether lanes are connected, from now on.
    pub(super) fn set_in_use(&self, in_use: bool) {
        self.in_use.store(in_use, Ordering::Relaxed);
    }

    fn leads_on(&self) -> bool {
        self.in_use.load(Ordering::Relaxed) && !self.is_leaf.load(Ordering::Relaxed)
    }

    fn answer(&self, question: &Question) -> Answer {
        let silent = |why: String| Answer::Unclear(format!("{}: {why}", self.uri.server));
        match nbd::ask(&self.uri, question) {
            Ok(None) => {
                self.end_here();
                Answer::No
            }
            Ok(Some(answer)) => answer,
            // Who closed its socket serves nobody: what was connected there is disconnected.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Answer::No,
            Err(error) => silent(error.to_string()),
        }
    }
}

/// A question that is passed on.
#[derive(Debug)]
struct Passed {
    question: Question,
    since: Instant,
    answer: Answer,
}

/// What lies below a process.
#[derive(Debug)]
pub struct Lineage {
    process: u128,
    questions: AtomicU64,
    below: Mutex<Vec<Weak<Below>>>,
    passed: Mutex<Vec<Passed>>,
    echo: Echo,
}

impl Lineage {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            process: unguessed(),
            questions: AtomicU64::new(0),
            below: Mutex::default(),
            passed: Mutex::default(),
            echo: Echo::default(),
        })
    }

    /// Lists a member before it is opened; it is listed until the value ends.
    pub(super) fn begin(&self, uri: &Uri) -> Arc<Below> {
        let (is_leaf, in_use) = (AtomicBool::new(false), AtomicBool::new(true));
        let below = Arc::new(Below { uri: uri.clone(), is_leaf, in_use });
        let mut list = self.below.lock();
        list.retain(|below| below.strong_count() > 0);
        list.push(Arc::downgrade(&below));
        below
    }

    /// Whether this process lies below the server that is asked.
    pub(super) fn question(&self) -> Question {
        self.next(&[])
    }

    fn next(&self, way: &[u128]) -> Question {
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        Question { number, way: way.iter().copied().chain([self.process]).collect() }
    }

    /// Whether a client asks a question where it gives this name of an export. It means the export that it has asked for
    /// before, where a server has several that other processes serve.
    pub fn is_question(name: &str) -> bool {
        name.parse::<Question>().is_ok()
    }

    /// Notes what a client of a front reads, in bytes. One load where no device is looked at.
    #[inline]
    pub fn note_read(&self, bytes: Range<u64>) {
        self.echo.note(bytes);
    }

    /// Whether what is read of a device of so many bytes is read of a front of this process. `read` ends
    /// with its read; false: no other one is to be made.
    pub(crate) fn comes_back(&self, bytes: u64, read: impl FnMut(Range<u64>) -> bool) -> bool {
        self.echo.comes_back(bytes, read)
    }

    /// What a client is told who asks for the export of this name; none if that is no question. It is
    /// never waited for: the client asks again.
    pub fn answer(self: &Arc<Self>, name: &str) -> Option<Answer> {
        let question: Question = name.parse().ok()?;
        if question.way.contains(&self.process) {
            return Some(Answer::Yes);
        }
        let mut below = self.below.lock().iter().filter_map(Weak::upgrade).collect::<Vec<_>>();
        below.retain(|below| below.leads_on());
        if below.is_empty() {
            return Some(Answer::No);
        }
        if question.way.len() >= HOPS_MAX {
            return Some(Answer::Unclear(format!("there are more than {HOPS_MAX} hops")));
        }
        Some(self.pass_on(question, below))
    }

    fn pass_on(self: &Arc<Self>, question: Question, below: Vec<Arc<Below>>) -> Answer {
        let mut passed = self.passed.lock();
        if let Some(at) = passed.iter().position(|passed| passed.question == question) {
            return match passed[at].answer {
                Answer::Wait => Answer::Wait,
                _ => passed.swap_remove(at).answer,
            };
        }
        // Those whose asker has gone.
        passed.retain(|old| old.answer == Answer::Wait || old.since.elapsed() < PATIENCE);
        if passed.len() >= QUESTIONS_MAX {
            return Answer::Wait;
        }
        let (lineage, asked) = (self.clone(), question.clone());
        let started = thread::Builder::new().name("lineage".into()).spawn(move || {
            let further = lineage.next(&asked.way);
            let answer = all(below.iter().map(|below| below.answer(&further)));
            let mut passed = lineage.passed.lock();
            let asked = passed.iter_mut().find(|passed| passed.question == asked);
            asked.into_iter().for_each(|passed| passed.answer = answer.clone());
        });
        match started {
            Ok(_) => {
                passed.push(Passed { question, since: Instant::now(), answer: Answer::Wait });
                Answer::Wait
            }
            Err(error) => Answer::Unclear(format!("no thread to ask: {error}")),
        }
    }
}

/// What follows from the answers of all members: a yes, else a doubt, else a no.
fn all(mut answers: impl Iterator<Item = Answer>) -> Answer {
    let mut doubt = Answer::No;
    let known = answers.find_map(|answer| match answer {
        Answer::Yes => Some(Answer::Yes),
        Answer::No => None,
        other => {
            doubt = other;
            None
        }
    });
    known.unwrap_or(doubt)
}

/// A number that nobody guesses.
fn unguessed() -> u128 {
    let mut bytes = [0; 16];
    // SAFETY: the buffer has the length that is given.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    assert!(got == 16, "the system gives 16 random bytes at once");
    u128::from_ne_bytes(bytes)
}

#[cfg(test)]
mod tests;

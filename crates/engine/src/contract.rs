//! The conformance suite of the backends' contract: what [`crate::backend`] promises, as cases that
//! run against any backend.
//!
//! A backend's tests make a [`Subject`] (a lane over that backend, and a way to make members and
//! trouble) and call [`check_all`]. It needs the feature `contract`.

mod cases;

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use crate::backend::MemberId;
use crate::lane::Lane;

/// A backend under test: one lane, and power over its members.
pub trait Subject {
    /// The lane that the cases run on.
    fn lane(&self) -> &Rc<Lane>;

    /// A new member that reads as zeroes.
    fn open(&self, wanted: Wanted) -> MemberId;

    /// Closes a member.
    fn close(&self, member: MemberId);

    /// Makes trouble. False: this backend has no way to.
    fn inject(&self, member: MemberId, trouble: Trouble) -> bool;

    /// Whether an I/O past a member's end is answered. A simulator may rather panic, to find engines
    /// that make such.
    fn answers_past_the_end(&self) -> bool {
        true
    }

    /// Whether the device may touch the memory of an I/O past its deadline. If not, it comes back with
    /// the answer.
    fn keeps_late_memory(&self) -> bool {
        true
    }

    /// Turns the lane, and lets time pass, until `done`. Panics if it never will.
    fn drive(&self, done: &dyn Fn() -> bool);
}

/// What a case needs of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its size in 512-byte sectors.
    pub sectors: u64,
    /// How long every I/O takes at least. A slow member need not keep what is written.
    pub latency: Duration,
}

/// Trouble with a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Reading these sectors is a medium error. They reach to the member's end.
    Unreadable(Range<u64>),
    /// The device is gone.
    Gone,
    /// Writes find no space.
    NoSpace,
    /// The next flush fails.
    FlushFails,
    /// The power goes and comes back: the member keeps what was made durable, and loses as much of
    /// the rest as it can.
    PowerCut,
}

/// How a case ended, short of a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The backend keeps the promise.
    Kept,
    /// Not tried: the subject cannot make the trouble it takes.
    NotTried,
}

type CaseFuture = Pin<Box<dyn Future<Output = Verdict>>>;

/// One promise and how to try it.
pub struct Case {
    /// The promise as a sentence.
    pub name: &'static str,
    run: fn(Rc<dyn Subject>) -> CaseFuture,
}

/// All cases.
pub fn cases() -> &'static [Case] {
    cases::ALL
}

impl Case {
    /// Tries the promise on a fresh subject; panics if it is broken.
    pub fn check(&self, subject: &Rc<dyn Subject>) -> Verdict {
        println!("contract: {}", self.name);
        let verdict = Rc::new(Cell::new(None));
        let (case, ended) = ((self.run)(subject.clone()), verdict.clone());
        subject.lane().spawn(async move { ended.set(Some(case.await)) });
        subject.drive(&|| verdict.get().is_some());
        let verdict = verdict.get().expect("driven to the end");
        assert!(subject.lane().task_count() == 0, "{}: nothing is left behind", self.name);
        verdict
    }
}

/// Tries every promise, each on a fresh subject. Gives the names of those that could not be tried:
/// assert on them, so that none is left out unseen.
pub fn check_all(subject: impl Fn() -> Rc<dyn Subject>) -> Vec<&'static str> {
    let not_tried = cases().iter().filter(|case| case.check(&subject()) == Verdict::NotTried);
    not_tried.map(|case| case.name).collect()
}

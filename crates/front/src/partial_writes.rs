//! Writes of parts of blocks beside all other writes of a volume, through whatever front.
//!
//! A part of a block is written with what was read around it. Meanwhile no other write of these blocks may be under
//! way: its bytes would turn old again, after its answer. So one part at a time is written. It says which blocks, asks
//! the lanes of every front that have writes under way, and waits until each has answered that none of them is of these
//! blocks. A write of these blocks that comes meanwhile takes its turn after it. No other write waits, and none touches
//! memory that another lane writes.

use std::cell::RefCell;
use std::future::pending;
use std::ops::Range;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::tags::Tags;
use crate::wait::{SharedWait, Turn, Turns};

/// The writes of all fronts of one volume. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PartialWrites(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    turns: Turns,
    /// Parts of blocks are written.
    is_partial: AtomicBool,
    /// Of these blocks, as bytes of the volume.
    blocks: Mutex<Range<u64>>,
    /// Such a write, while it waits for the lanes.
    waiting: SharedWait,
    lanes: Mutex<Vec<Arc<Mailbox>>>,
}

/// What a lane of a front is asked. It shares no line of a cache.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Mailbox {
    /// How many writes are under way there. Only that lane changes it.
    under_way: AtomicUsize,
    mail: Mutex<Mail>,
    comes: SharedWait,
}

#[derive(Debug, Default)]
struct Mail {
    question: Option<Question>,
    /// Nothing is under way there any more, nor will be.
    is_closed: bool,
}

/// Whether a write of the blocks is under way. It is answered when it is dropped.
#[derive(Debug)]
struct Question {
    asked: Option<Arc<()>>,
    shared: Arc<Shared>,
}

/// The writes of whole blocks of one lane of a front.
#[derive(Debug)]
pub(crate) struct LaneWrites {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    own: RefCell<Own>,
}

#[derive(Debug, Default)]
struct Own {
    under_way: Tags<Range<u64>>,
    /// Answered as soon as none of its blocks is under way.
    question: Option<Question>,
}

/// A write of whole blocks that is under way, until it is dropped.
#[derive(Debug)]
pub(crate) struct WholeWrite {
    lane: Rc<LaneWrites>,
    tag: u64,
}

/// The turn of a write of parts of blocks, until it is dropped.
pub(crate) struct PartialWrite<'a> {
    shared: &'a Shared,
    _turn: Turn<'a>,
}

impl PartialWrites {
    /// For one more lane of a front, which [watches](LaneWrites::watch) as long as it has this.
    pub(crate) fn beside(&self) -> Rc<LaneWrites> {
        let mailbox = Arc::<Mailbox>::default();
        let mut lanes = self.0.lanes();
        lanes.retain(|lane| !lane.mail().is_closed);
        lanes.push(mailbox.clone());
        Rc::new(LaneWrites { shared: self.0.clone(), mailbox, own: RefCell::default() })
    }

    /// Waits until no other write of these blocks is under way, of whatever front.
    pub(crate) async fn begin(&self, blocks: Range<u64>) -> PartialWrite<'_> {
        let shared = &self.0;
        let partial = PartialWrite { shared, _turn: shared.turns.turn().await };
        *shared.blocks() = blocks;
        // Before the look: a write that it does not see sees this, and so does a lane that has answered.
        shared.is_partial.store(true, Ordering::SeqCst);
        let asked = Arc::new(());
        let lanes = shared.lanes().clone();
        let busy = lanes.iter().filter(|lane| lane.under_way.load(Ordering::SeqCst) > 0);
        busy.for_each(|lane| lane.ask(&asked, shared));
        let are_answered = || Arc::strong_count(&asked) == 1;
        shared.waiting.unless(are_answered, pending::<()>()).await;
        // The count alone orders nothing: what those lanes have written is seen from here on.
        fence(Ordering::Acquire);
        partial
    }
}

impl Drop for PartialWrite<'_> {
    fn drop(&mut self) {
        // Before its turn ends.
        self.shared.is_partial.store(false, Ordering::Release);
    }
}

impl Shared {
    /// A panic elsewhere leaves these as usable as they were.
    fn blocks(&self) -> MutexGuard<'_, Range<u64>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<Arc<Mailbox>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn overlaps(&self, other: &Range<u64>) -> bool {
        let blocks = self.blocks();
        blocks.start < other.end && other.start < blocks.end
    }
}

impl Mailbox {
    fn ask(&self, asked: &Arc<()>, shared: &Arc<Shared>) {
        let mut mail = self.mail();
        if mail.is_closed {
            return;
        }
        let question = Question { asked: Some(asked.clone()), shared: shared.clone() };
        // One that is there still is of a write that was given up.
        let old = mail.question.replace(question);
        drop(mail);
        drop(old);
        self.comes.wake();
    }

    /// Waits for a question. None: no more come.
    async fn next_question(&self) -> Option<Question> {
        let is_there = || {
            let mail = self.mail();
            mail.is_closed || mail.question.is_some()
        };
        self.comes.unless(is_there, pending::<()>()).await;
        self.mail().question.take()
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        // Before the other one looks.
        drop(self.asked.take());
        self.shared.waiting.wake();
    }
}

impl LaneWrites {
    /// Begins a write. None: it is to take its [turn](Self::begin_in_turn), for a part of one of its blocks is written.
    pub(crate) fn begin(self: &Rc<Self>, bytes: &Range<u64>) -> Option<WholeWrite> {
        let write = self.add(bytes.clone());
        let is_partial = self.shared.is_partial.load(Ordering::SeqCst);
        (!is_partial || !self.shared.overlaps(bytes)).then_some(write)
    }

    /// Begins a write, in its turn where a part of one of its blocks is written.
    pub(crate) async fn begin_when_free(self: &Rc<Self>, bytes: Range<u64>) -> WholeWrite {
        match self.begin(&bytes) {
            Some(whole) => whole,
            None => self.begin_in_turn(bytes).await,
        }
    }

    /// Waits until no part of a block is written, and begins a write.
    pub(crate) async fn begin_in_turn(self: &Rc<Self>, bytes: Range<u64>) -> WholeWrite {
        // The next part of a block finds it under way.
        let _turn = self.shared.turns.turn().await;
        self.add(bytes)
    }

    fn add(self: &Rc<Self>, bytes: Range<u64>) -> WholeWrite {
        let under_way = &self.mailbox.under_way;
        under_way.store(under_way.load(Ordering::Relaxed) + 1, Ordering::SeqCst);
        WholeWrite { lane: self.clone(), tag: self.own.borrow_mut().under_way.add(bytes) }
    }

    /// Answers what is asked, until the last one has dropped this. A task of the lane's own.
    pub(crate) fn watch(self: &Rc<Self>) -> impl Future<Output = ()> + use<> {
        let (mailbox, this) = (self.mailbox.clone(), Rc::downgrade(self));
        async move {
            loop {
                let question = mailbox.next_question().await;
                let Some(this) = this.upgrade() else { return };
                let old = std::mem::replace(&mut this.own.borrow_mut().question, question);
                drop(old);
                this.look();
            }
        }
    }

    /// Answers, if no write of the blocks is under way.
    fn look(&self) {
        let mut own = self.own.borrow_mut();
        let is_under_way = own.under_way.iter().any(|bytes| self.shared.overlaps(bytes));
        let question = if is_under_way { None } else { own.question.take() };
        drop(own);
        drop(question);
    }
}

impl Drop for LaneWrites {
    fn drop(&mut self) {
        let mut mail = self.mailbox.mail();
        mail.is_closed = true;
        let question = mail.question.take();
        drop(mail);
        drop(question);
        self.mailbox.comes.wake();
    }
}

impl Drop for WholeWrite {
    fn drop(&mut self) {
        let mut own = self.lane.own.borrow_mut();
        own.under_way.remove(self.tag);
        let under_way = &self.lane.mailbox.under_way;
        under_way.store(under_way.load(Ordering::Relaxed) - 1, Ordering::Release);
        let is_asked = own.question.is_some();
        drop(own);
        if is_asked {
            self.lane.look();
        }
    }
}

#[cfg(test)]
mod tests;

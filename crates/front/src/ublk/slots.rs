//! The entries of a queue: who has each, the kernel or the array.

/// What has become of each entry, by its tag.
#[derive(Debug)]
pub(super) struct Slots {
    states: Vec<Slot>,
    /// Those that have not ended.
    left: usize,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Slot {
    /// The kernel has it, and sends a request with it.
    Fetching,
    /// A request came, and is not answered.
    Taken,
    /// The kernel has given it back for good.
    Ended,
}

/// The kernel has answered for an entry that it did not have.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the ublk driver answers for entry {0}, which it does not have")]
pub(super) struct NotFetching(pub(super) u64);

impl Slots {
    /// So many entries, which the kernel gets.
    pub(super) fn fetching(depth: u16) -> Self {
        Self { states: vec![Slot::Fetching; depth.into()], left: depth.into() }
    }

    /// A request came with an entry.
    pub(super) fn take(&mut self, tag: u64) -> Result<u16, NotFetching> {
        self.leave(tag, Slot::Taken)
    }

    /// An entry comes back for good.
    pub(super) fn end(&mut self, tag: u64) -> Result<(), NotFetching> {
        self.leave(tag, Slot::Ended)?;
        self.left -= 1;
        Ok(())
    }

    /// The request is answered, and the kernel has the entry again.
    pub(super) fn give_back(&mut self, tag: u16) {
        let slot = &mut self.states[usize::from(tag)];
        assert_eq!(*slot, Slot::Taken, "a request is answered once");
        *slot = Slot::Fetching;
    }

    /// Whether no request comes any more, and none is unanswered.
    pub(super) fn are_over(&self) -> bool {
        self.left == 0
    }

    fn leave(&mut self, tag: u64, next: Slot) -> Result<u16, NotFetching> {
        let slot = usize::try_from(tag).ok().and_then(|tag| self.states.get_mut(tag));
        match slot {
            Some(slot) if *slot == Slot::Fetching => {
                *slot = next;
                Ok(tag as u16)
            }
            _ => Err(NotFetching(tag)),
        }
    }
}

#[cfg(test)]
mod tests;

//! Requests under way, by the tag under which an array or a member knows them.

/// What is kept of each request until it ends. Tags are used again.
#[derive(Debug)]
pub(crate) struct Tags<T> {
    slots: Vec<Option<T>>,
    free: Vec<usize>,
}

impl<T> Default for Tags<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Tags<T> {
    /// Keeps what belongs to a request, and gives the request its tag.
    pub(crate) fn add(&mut self, kept: T) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(kept);
        slot as u64
    }

    /// All that is kept.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }

    /// Gives back what was kept: the request has ended.
    pub(crate) fn remove(&mut self, tag: u64) -> T {
        let slot = tag as usize;
        self.free.push(slot);
        self.slots[slot].take().expect("each request ends once")
    }
}

//! What the CPU may fetch from memory before it is read or written.

#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};

/// Bytes of a part. Of each place two are fetched: what is read in order behind them, the CPU fetches by
/// itself. A round that reads blocks and writes them has twice as many I/Os as blocks: with each of them the
/// CPU fetches a part for the next round.
const PART_BYTES: usize = 2048;

/// Memory that will probably be used soon, fetched part by part between other work: a CPU stands still for
/// more hints than it can take at once.
#[derive(Debug, Default)]
pub struct Ahead {
    /// Addresses of the parts to fetch, the last one first.
    parts: RefCell<Vec<usize>>,
    /// I/Os since the last word: as many are expected until the next one.
    ios: Cell<usize>,
    /// Parts fetched with each I/O.
    each: Cell<usize>,
}

impl Ahead {
    /// So many bytes of these places will be used next. What was said before is over.
    pub fn expect(&self, places: impl IntoIterator<Item = *const u8>, bytes: usize) {
        let mut parts = self.parts.borrow_mut();
        parts.clear();
        for at in places {
            parts.push(at.addr());
            if bytes > PART_BYTES {
                parts.push(at.addr().wrapping_add(PART_BYTES));
            }
        }
        parts.reverse();
        self.each.set(if parts.len() > self.ios.replace(0) { 2 } else { 1 });
    }

    /// An I/O is done: has the CPU fetch some of it.
    #[inline]
    pub fn fetch_some(&self) {
        self.ios.set(self.ios.get() + 1);
        (0..self.each.get()).map_while(|_| self.next_part()).for_each(fetch);
    }

    #[inline]
    fn next_part(&self) -> Option<usize> {
        self.parts.borrow_mut().pop()
    }
}

/// Has the CPU fetch a part, into the second cache: the first one has room for the block at work.
#[inline]
fn fetch(part: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..PART_BYTES).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        use std::ptr::without_provenance;
        // SAFETY: a hint, which no address makes wrong; nothing is read by it.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(without_provenance(part.wrapping_add(line))) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = part;
}

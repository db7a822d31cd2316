//! A set of bitmap chunks, one bit each: an array may have millions, and all of them set at once.

use std::ops::Range;

/// Chunks by number. Takes as many bits as its highest chunk ever needed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chunks(Vec<u64>);

const WORD: u64 = u64::BITS as u64;

impl Chunks {
    /// Adds `chunk`.
    pub(crate) fn insert(&mut self, chunk: u64) {
        let at = (chunk / WORD) as usize;
        if at >= self.0.len() {
            self.0.resize(at + 1, 0);
        }
        self.0[at] |= 1 << (chunk % WORD);
    }

    /// Adds all of `other`.
    pub(crate) fn insert_all(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    /// Whether `chunk` is in the set.
    pub(crate) fn contains(&self, chunk: u64) -> bool {
        let word = self.0.get((chunk / WORD) as usize);
        word.is_some_and(|word| word >> (chunk % WORD) & 1 == 1)
    }

    /// Whether all of `chunks` are in the set.
    pub(crate) fn contains_all(&self, chunks: &Range<u64>) -> bool {
        chunks.clone().all(|chunk| self.contains(chunk))
    }

    /// Whether no chunk is in the set.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    /// Takes out what `other` has not, and gives it.
    pub(crate) fn split_off_others(&mut self, other: &Self) -> Self {
        let others = other.0.iter().copied().chain(std::iter::repeat(0));
        let split = self.0.iter_mut().zip(others).map(|(word, other)| {
            let without = *word & !other;
            *word &= other;
            without
        });
        Self(split.collect())
    }

    /// The chunks, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        (0..).zip(&self.0).flat_map(|(at, &word)| {
            let mut left = word;
            std::iter::from_fn(move || {
                let bit = u64::from(left.trailing_zeros());
                left &= left.checked_sub(1)?;
                Some(at * WORD + bit)
            })
        })
    }
}

impl FromIterator<u64> for Chunks {
    fn from_iter<I: IntoIterator<Item = u64>>(chunks: I) -> Self {
        let mut set = Self::default();
        chunks.into_iter().for_each(|chunk| set.insert(chunk));
        set
    }
}

#[cfg(test)]
mod tests;

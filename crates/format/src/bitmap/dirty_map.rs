use std::ops::Range;

use super::{HEADER_BYTES, PAGE_BYTES};

/// One bit for each chunk: set where the chunk may be out of sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirtyMap {
    chunks: u64,
    words: Vec<u64>,
}

const WORD_BITS: u64 = u64::BITS as u64;
const PAGE_BITS: u64 = PAGE_BYTES as u64 * 8;
const HEADER_BITS: u64 = HEADER_BYTES as u64 * 8;

impl DirtyMap {
    /// A map of so many chunks, none of them set. The caller bounds the number, as
    /// [`BitmapSuperblock::validate`](super::BitmapSuperblock::validate) does by the room on disk.
    pub fn new(chunks: u64) -> DirtyMap {
        DirtyMap { chunks, words: vec![0; chunks.div_ceil(WORD_BITS) as usize] }
    }

    /// Reads a whole bitmap, header included, as it lies on disk. Bits that `bytes` does not
    /// reach come out set: what is not known to be in sync may be out of it.
    pub fn parse(chunks: u64, bytes: &[u8]) -> DirtyMap {
        let mut map = DirtyMap::new(chunks);
        map.set_all();
        for (page, bytes) in bytes.chunks(PAGE_BYTES).enumerate() {
            map.load_page(page as u64, bytes);
        }
        map
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Number of chunks that are set.
    pub fn count(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    /// Whether a chunk is set. Chunks beyond the map are not.
    pub fn test(&self, chunk: u64) -> bool {
        chunk < self.chunks
            && self.words[(chunk / WORD_BITS) as usize] >> (chunk % WORD_BITS) & 1 == 1
    }

    /// Sets a chunk and tells whether it was clear.
    ///
    /// # Panics
    ///
    /// If the map has no such chunk: a write whose intent is nowhere must not go on.
    pub fn set(&mut self, chunk: u64) -> bool {
        let (word, bit) = self.position(chunk);
        let was_clear = *word & bit == 0;
        *word |= bit;
        was_clear
    }

    /// Clears a chunk and tells whether it was set.
    ///
    /// # Panics
    ///
    /// If the map has no such chunk.
    pub fn clear(&mut self, chunk: u64) -> bool {
        let (word, bit) = self.position(chunk);
        let was_set = *word & bit != 0;
        *word &= !bit;
        was_set
    }

    /// Sets every chunk.
    pub fn set_all(&mut self) {
        self.words.fill(u64::MAX);
        self.trim();
    }

    /// Clears every chunk.
    pub fn clear_all(&mut self) {
        self.words.fill(0);
    }

    /// Sets every chunk that `other`, a map of as many chunks, has set.
    ///
    /// # Panics
    ///
    /// If the two have different numbers of chunks.
    pub fn merge(&mut self, other: &DirtyMap) {
        assert_eq!(self.chunks, other.chunks, "maps of one array have as many chunks");
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }

    /// The runs of set chunks, from the first to the last.
    pub fn ranges(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let start = self.next(from, true)?;
            let end = self.next(start, false).unwrap_or(self.chunks);
            from = end;
            Some(start..end)
        })
    }

    /// First chunk from `from` on that is set (or clear).
    pub fn next(&self, from: u64, set: bool) -> Option<u64> {
        let flip = if set { 0 } else { u64::MAX };
        let first = from / WORD_BITS;
        let words = self.words.iter().enumerate().skip(first as usize);
        for (index, word) in words {
            let seen =
                if index as u64 == first { u64::MAX << (from % WORD_BITS) } else { u64::MAX };
            let found = (word ^ flip) & seen;
            if found != 0 {
                let chunk = index as u64 * WORD_BITS + u64::from(found.trailing_zeros());
                return (chunk < self.chunks).then_some(chunk);
            }
        }
        None
    }

    /// The page of [`PAGE_BYTES`] that holds a chunk's bit; the header counts as part of page 0.
    pub fn page_of(chunk: u64) -> u64 {
        match chunk.checked_add(HEADER_BITS) {
            Some(bit) => bit / PAGE_BITS,
            None => u64::MAX / PAGE_BITS,
        }
    }

    /// The chunks whose bits a page holds; empty beyond the end.
    pub fn chunks_of_page(&self, page: u64) -> Range<u64> {
        let start = page.saturating_mul(PAGE_BITS).saturating_sub(HEADER_BITS).min(self.chunks);
        let end = page.saturating_add(1).saturating_mul(PAGE_BITS).saturating_sub(HEADER_BITS);
        start..end.min(self.chunks)
    }

    /// A page's bits as they lie on disk. On page 0 the header's bytes are left zero.
    pub fn encode_page(&self, page: u64) -> [u8; PAGE_BYTES] {
        let mut bytes = [0; PAGE_BYTES];
        let chunks = self.chunks_of_page(page);
        // A page begins at a whole word: the header has 32 of them, a page 512.
        let words = self.words.iter().skip((chunks.start / WORD_BITS) as usize);
        let header = if page == 0 { HEADER_BYTES } else { 0 };
        if !chunks.is_empty() {
            for (slot, word) in bytes[header..].chunks_exact_mut(8).zip(words) {
                slot.copy_from_slice(&word.to_le_bytes());
            }
        }
        bytes
    }

    /// Takes a page's bits, as they lie on disk, into the map; on page 0 it passes over the
    /// header. Chunks that `bytes` does not reach stay as they are.
    pub fn load_page(&mut self, page: u64, bytes: &[u8]) {
        let chunks = self.chunks_of_page(page);
        let header = if page == 0 { HEADER_BYTES } else { 0 };
        let bits = bytes.get(header..bytes.len().min(PAGE_BYTES)).unwrap_or_default();
        if chunks.is_empty() {
            return;
        }
        let words = self.words.iter_mut().skip((chunks.start / WORD_BITS) as usize);
        for (word, bits) in words.zip(bits.chunks(8)) {
            let mut bytes = word.to_le_bytes();
            bytes[..bits.len()].copy_from_slice(bits);
            *word = u64::from_le_bytes(bytes);
        }
        self.trim();
    }

    /// Clears the bits of the last word that stand for no chunk.
    fn trim(&mut self) {
        let used = self.chunks % WORD_BITS;
        if let Some(last) = self.words.last_mut()
            && used != 0
        {
            *last &= (1 << used) - 1;
        }
    }

    fn position(&mut self, chunk: u64) -> (&mut u64, u64) {
        assert!(chunk < self.chunks, "chunk {chunk} of a bitmap of {}", self.chunks);
        (&mut self.words[(chunk / WORD_BITS) as usize], 1 << (chunk % WORD_BITS))
    }
}

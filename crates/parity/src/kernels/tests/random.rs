use std::{
    env, fmt,
    ops::{Deref, DerefMut},
};

use crate::Isa;

/// Random blocks, and where the test stands: `Display` says how to come here again.
pub(super) struct Random {
    seed: u64,
    state: u64,
    place: String,
}

impl Random {
    /// From `MDSPACE_SEED`, or always the same.
    pub(super) fn new() -> Self {
        let given = env::var("MDSPACE_SEED").ok();
        let seed = given.map_or(1, |seed| seed.parse().expect("MDSPACE_SEED is a number"));
        Self { seed, state: seed, place: String::new() }
    }

    /// Goes on at a case, whose bytes do not depend on the cases before it.
    pub(super) fn at(&mut self, isa: Isa, count: usize, len: usize) -> Self {
        let place = format!("with {isa}, {count} data blocks of {len} bytes");
        let state = place.bytes().fold(self.seed, |state, byte| Self::mix(state ^ u64::from(byte)));
        Self { seed: self.seed, state, place }
    }

    /// A number below `limit`.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 33) as usize % limit
    }

    /// A random block at a random alignment.
    pub(super) fn block(&mut self, len: usize) -> Buffer {
        let start = self.below(64);
        let mut block = Buffer { bytes: vec![0; start + len], start };
        for word in block.chunks_mut(8) {
            word.copy_from_slice(&self.next().to_le_bytes()[..word.len()]);
        }
        block
    }

    pub(super) fn blocks(&mut self, count: usize, len: usize) -> Vec<Buffer> {
        (0..count).map(|_| self.block(len)).collect()
    }

    /// Some blocks are empty.
    pub(super) fn blocks_with_gaps(&mut self, count: usize, len: usize) -> Vec<Buffer> {
        let mut block = || if self.below(5) == 0 { self.block(0) } else { self.block(len) };
        (0..count).map(|_| block()).collect()
    }

    pub(super) fn copy_of(&mut self, bytes: &[u8]) -> Buffer {
        let mut block = self.block(bytes.len());
        block.copy_from_slice(bytes);
        block
    }

    fn next(&mut self) -> u64 {
        self.state = Self::mix(self.state);
        self.state
    }

    /// Knuth's MMIX generator; its upper bits are good.
    fn mix(state: u64) -> u64 {
        let state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state ^ (state >> 29)
    }
}

impl fmt::Display for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, place, .. } = self;
        write!(f, "{place}; again: MDSPACE_SEED={seed} cargo test -p mdspace-parity")
    }
}

/// A block at some alignment.
#[derive(Clone, Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// Zeroes, aligned as streaming wants it.
    pub(super) fn aligned(len: usize) -> Self {
        let mut bytes = vec![0; len + 63];
        let start = bytes.as_ptr().align_offset(64);
        bytes.truncate(start + len);
        Self { bytes, start }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..]
    }
}

impl PartialEq<Buffer> for Vec<u8> {
    fn eq(&self, other: &Buffer) -> bool {
        **self == **other
    }
}

pub(super) const PAGE: usize = 4096;

/// A page between two that cannot be touched.
#[cfg(unix)]
pub(super) struct FencedPage {
    page: *mut u8,
}

#[cfg(unix)]
impl FencedPage {
    pub(super) fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which touches nothing that exists.
        let three =
            unsafe { libc::mmap(std::ptr::null_mut(), 3 * PAGE, libc::PROT_NONE, flags, -1, 0) };
        assert_ne!(three, libc::MAP_FAILED, "no memory for three pages");
        let page = three.cast::<u8>().wrapping_add(PAGE);
        // SAFETY: the middle one of our own three pages.
        let error =
            unsafe { libc::mprotect(page.cast(), PAGE, libc::PROT_READ | libc::PROT_WRITE) };
        assert_eq!(error, 0, "the middle page stays closed");
        Self { page }
    }

    pub(super) fn slice(&mut self, start: usize, len: usize) -> &mut [u8] {
        // SAFETY: bytes of our page, which is initialised (zeroes) and borrowed for as long.
        unsafe { std::slice::from_raw_parts_mut(self.page.add(start), len) }
    }
}

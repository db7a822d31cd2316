/// Data blocks of a row.
pub(crate) const MEMBERS: usize = 6;
const PARITIES: usize = 2;
const RECOVERED: usize = 2;
const BLOCKS: usize = MEMBERS + PARITIES + RECOVERED;
const PAGE: usize = 4096;

/// The blocks of one row of an array, side by side from the start of a page on, as in the engine's
/// buffer pool.
///
/// How far apart they lie matters more than one would think: at equal distances a CPU may take
/// the step from block to block for a stream and prefetch the wrong things.
pub(crate) struct Row {
    bytes: Vec<u8>,
    start: usize,
    block_len: usize,
}

/// A row, taken apart.
pub(crate) struct Blocks<'a> {
    pub(crate) data: [&'a [u8]; MEMBERS],
    pub(crate) p: &'a mut [u8],
    pub(crate) q: &'a mut [u8],
    pub(crate) recovered: [&'a mut [u8]; RECOVERED],
}

impl Row {
    pub(crate) fn random(block_len: usize) -> Self {
        let mut bytes = vec![0; BLOCKS * block_len + PAGE];
        let mut state = 1_u64;
        for word in bytes.chunks_exact_mut(8) {
            // The constants of Knuth's MMIX generator.
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            word.copy_from_slice(&state.to_be_bytes());
        }
        let start = bytes.as_ptr().align_offset(PAGE);
        Self { bytes, start, block_len }
    }

    pub(crate) fn blocks(&mut self) -> Blocks<'_> {
        let row = &mut self.bytes[self.start..][..BLOCKS * self.block_len];
        let (data, rest) = row.split_at_mut(MEMBERS * self.block_len);
        let data: &[u8] = data;
        let mut rest = rest.chunks_exact_mut(self.block_len);
        let mut next = || rest.next().expect("a row has this many blocks");
        Blocks {
            data: std::array::from_fn(|i| &data[i * self.block_len..][..self.block_len]),
            p: next(),
            q: next(),
            recovered: [next(), next()],
        }
    }
}

//! The oracle: eight bytes in a 64-bit word, and single bytes for what is left of a block.

use crate::{gf, operation::Operation, vector::Vector};

/// # Safety
///
/// As [`Operation::run`]; every CPU will do.
pub(crate) unsafe fn run(operation: &Operation<'_>, len: usize) {
    // SAFETY: passed on from our caller; words need no instruction set.
    unsafe { operation.run::<u64>(len) }
}

impl Vector for u64 {
    const BYTES: usize = 8;

    #[inline(always)]
    unsafe fn zero() -> Self {
        0
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: our caller promises 8 readable bytes, aligned or not.
        unsafe { from.cast::<Self>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: our caller promises 8 writable bytes, aligned or not.
        unsafe { to.cast::<Self>().write_unaligned(self) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self ^ other
    }

    /// Horner's scheme over the bits of the constant.
    #[inline(always)]
    fn mul(self, constant: u8) -> Self {
        let mut product = 0;
        for bit in (0..8).rev() {
            let chosen = 0_u64.wrapping_sub(u64::from((constant >> bit) & 1));
            product = Vector::double(product) ^ (self & chosen);
        }
        product
    }

    /// All eight bytes at once: shift within the byte, reduce where a bit fell out.
    #[inline(always)]
    fn double(self) -> Self {
        let fallen = (self >> 7) & EACH_BYTE;
        let shifted = (self & (0x7f * EACH_BYTE)) << 1;
        shifted ^ (fallen * u64::from(gf::REDUCTION))
    }
}

/// 1 in each byte of the word.
const EACH_BYTE: u64 = 0x0101_0101_0101_0101;

impl Vector for u8 {
    const BYTES: usize = 1;

    #[inline(always)]
    unsafe fn zero() -> Self {
        0
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: our caller promises a readable byte.
        unsafe { *from }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: our caller promises a writable byte.
        unsafe { *to = self }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        self ^ other
    }

    #[inline(always)]
    fn mul(self, constant: u8) -> Self {
        gf::mul(self, constant)
    }
}

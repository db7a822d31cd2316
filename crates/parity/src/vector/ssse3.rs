//! SSSE3: 16 bytes, products by `pshufb`.

use std::arch::x86_64::*;

use crate::{
    gf::{NIBBLE_PRODUCTS, REDUCTION},
    operation::Operation,
    vector::{Vector, simd},
};

/// # Safety
///
/// As [`Operation::run`], on a CPU that has SSSE3.
#[target_feature(enable = "ssse3")]
pub(crate) unsafe fn run(operation: &Operation<'_>, len: usize) {
    // SAFETY: passed on from our caller.
    unsafe { operation.run::<Ssse3>(len) }
}

#[derive(Clone, Copy)]
pub(crate) struct Ssse3(__m128i);

impl Vector for Ssse3 {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: passed on from our caller.
        unsafe { Self(_mm_setzero_si128()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: passed on from our caller; this load needs no alignment.
        unsafe { Self(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: passed on from our caller; this store needs no alignment.
        unsafe { _mm_storeu_si128(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: passed on from our caller, the alignment too.
        unsafe { _mm_stream_si128(to.cast(), self.0) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        simd!(Self(_mm_xor_si128(self.0, other.0)))
    }

    #[inline(always)]
    fn mul(self, constant: u8) -> Self {
        let [low, high] = &NIBBLE_PRODUCTS[usize::from(constant)];
        simd!({
            let nibble = _mm_set1_epi8(0x0f);
            let low_nibbles = _mm_and_si128(self.0, nibble);
            let high_nibbles = _mm_and_si128(_mm_srli_epi16(self.0, 4), nibble);
            Self(_mm_xor_si128(
                _mm_shuffle_epi8(table(low), low_nibbles),
                _mm_shuffle_epi8(table(high), high_nibbles),
            ))
        })
    }

    #[inline(always)]
    fn double(self) -> Self {
        simd!({
            let fallen = _mm_cmpgt_epi8(_mm_setzero_si128(), self.0);
            let reduction = _mm_and_si128(fallen, _mm_set1_epi8(REDUCTION as i8));
            Self(_mm_xor_si128(_mm_add_epi8(self.0, self.0), reduction))
        })
    }
}

/// Sixteen table entries as a register.
///
/// # Safety
///
/// The CPU has SSSE3.
#[inline(always)]
unsafe fn table(entries: &[u8; 16]) -> __m128i {
    // SAFETY: the CPU is our caller's promise; sixteen bytes can be read.
    unsafe { _mm_loadu_si128(entries.as_ptr().cast()) }
}

//! AVX2: 32 bytes, products by `vpshufb` in each half.

use std::arch::x86_64::*;

use crate::{
    gf::{NIBBLE_PRODUCTS, REDUCTION},
    operation::Operation,
    vector::{Vector, simd},
};

/// # Safety
///
/// As [`Operation::run`], on a CPU that has AVX2.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn run(operation: &Operation<'_>, len: usize) {
    // SAFETY: passed on from our caller.
    unsafe { operation.run::<Avx2>(len) }
}

#[derive(Clone, Copy)]
pub(crate) struct Avx2(__m256i);

impl Vector for Avx2 {
    const BYTES: usize = 32;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: passed on from our caller.
        unsafe { Self(_mm256_setzero_si256()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: passed on from our caller; this load needs no alignment.
        unsafe { Self(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: passed on from our caller; this store needs no alignment.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: passed on from our caller, the alignment too.
        unsafe { _mm256_stream_si256(to.cast(), self.0) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        simd!(Self(_mm256_xor_si256(self.0, other.0)))
    }

    #[inline(always)]
    fn mul(self, constant: u8) -> Self {
        let [low, high] = &NIBBLE_PRODUCTS[usize::from(constant)];
        simd!({
            let nibble = _mm256_set1_epi8(0x0f);
            let low_nibbles = _mm256_and_si256(self.0, nibble);
            let high_nibbles = _mm256_and_si256(_mm256_srli_epi16(self.0, 4), nibble);
            Self(_mm256_xor_si256(
                _mm256_shuffle_epi8(table(low), low_nibbles),
                _mm256_shuffle_epi8(table(high), high_nibbles),
            ))
        })
    }

    #[inline(always)]
    fn double(self) -> Self {
        simd!({
            let fallen = _mm256_cmpgt_epi8(_mm256_setzero_si256(), self.0);
            let reduction = _mm256_and_si256(fallen, _mm256_set1_epi8(REDUCTION as i8));
            Self(_mm256_xor_si256(_mm256_add_epi8(self.0, self.0), reduction))
        })
    }
}

/// Sixteen table entries in each half of a register.
///
/// # Safety
///
/// The CPU has AVX2.
#[inline(always)]
unsafe fn table(entries: &[u8; 16]) -> __m256i {
    // SAFETY: the CPU is our caller's promise; sixteen bytes can be read.
    unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(entries.as_ptr().cast())) }
}

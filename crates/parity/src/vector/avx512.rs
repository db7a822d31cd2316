//! AVX-512 without GFNI: 64 bytes, products by `vpshufb` in each quarter.

use std::arch::x86_64::*;

use crate::{
    gf::{NIBBLE_PRODUCTS, REDUCTION},
    operation::Operation,
    vector::{Vector, simd},
};

/// # Safety
///
/// As [`Operation::run`], on a CPU that has AVX-512 F and BW.
#[target_feature(enable = "avx512f,avx512bw")]
pub(crate) unsafe fn run(operation: &Operation<'_>, len: usize) {
    // SAFETY: passed on from our caller.
    unsafe { operation.run::<Avx512>(len) }
}

#[derive(Clone, Copy)]
pub(crate) struct Avx512(pub(super) __m512i);

impl Vector for Avx512 {
    const BYTES: usize = 64;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: passed on from our caller.
        unsafe { Self(_mm512_setzero_si512()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: passed on from our caller; this load needs no alignment.
        unsafe { Self(_mm512_loadu_si512(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: passed on from our caller; this store needs no alignment.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: passed on from our caller, the alignment too.
        unsafe { _mm512_stream_si512(to.cast(), self.0) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        simd!(Self(_mm512_xor_si512(self.0, other.0)))
    }

    #[inline(always)]
    fn mul(self, constant: u8) -> Self {
        let [low, high] = &NIBBLE_PRODUCTS[usize::from(constant)];
        simd!({
            let nibble = _mm512_set1_epi8(0x0f);
            let low_nibbles = _mm512_and_si512(self.0, nibble);
            let high_nibbles = _mm512_and_si512(_mm512_srli_epi16(self.0, 4), nibble);
            Self(_mm512_xor_si512(
                _mm512_shuffle_epi8(table(low), low_nibbles),
                _mm512_shuffle_epi8(table(high), high_nibbles),
            ))
        })
    }

    #[inline(always)]
    fn double(self) -> Self {
        simd!({
            let fallen = _mm512_movepi8_mask(self.0);
            let reduction = _mm512_maskz_set1_epi8(fallen, REDUCTION as i8);
            Self(_mm512_xor_si512(_mm512_add_epi8(self.0, self.0), reduction))
        })
    }
}

/// Sixteen table entries in each quarter of a register.
///
/// # Safety
///
/// The CPU has AVX-512 F.
#[inline(always)]
unsafe fn table(entries: &[u8; 16]) -> __m512i {
    // SAFETY: the CPU is our caller's promise; sixteen bytes can be read.
    unsafe { _mm512_broadcast_i32x4(_mm_loadu_si128(entries.as_ptr().cast())) }
}

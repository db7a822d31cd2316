//! AVX-512 with GFNI: 64 bytes, a product in one instruction.
//!
//! GFNI's own multiplication is fixed to the field of AES. Multiplication by a constant is linear
//! over the bits of a byte, so `gf2p8affineqb` does it in md's field, with an 8x8 bit matrix.

use std::arch::x86_64::*;

use crate::{
    gf::MATRICES,
    operation::Operation,
    vector::{Vector, avx512::Avx512, simd},
};

/// # Safety
///
/// As [`Operation::run`], on a CPU that has AVX-512 F and BW and GFNI.
#[target_feature(enable = "avx512f,avx512bw,gfni")]
pub(crate) unsafe fn run(operation: &Operation<'_>, len: usize) {
    // SAFETY: passed on from our caller.
    unsafe { operation.run::<Gfni>(len) }
}

#[derive(Clone, Copy)]
pub(crate) struct Gfni(Avx512);

impl Vector for Gfni {
    const BYTES: usize = Avx512::BYTES;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: passed on from our caller.
        unsafe { Self(Avx512::zero()) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: passed on from our caller.
        unsafe { Self(Avx512::load(from)) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: passed on from our caller.
        unsafe { self.0.store(to) }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: passed on from our caller.
        unsafe { self.0.stream(to) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Self(self.0.xor(other.0))
    }

    #[inline(always)]
    fn mul(self, constant: u8) -> Self {
        let matrix = MATRICES[usize::from(constant)].cast_signed();
        simd!(Self(Avx512(_mm512_gf2p8affine_epi64_epi8::<0>(self.0.0, _mm512_set1_epi64(matrix)))))
    }
}

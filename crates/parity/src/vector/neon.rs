//! NEON: 16 bytes, products by `tbl`.

use std::arch::aarch64::*;

use crate::{
    gf::{NIBBLE_PRODUCTS, REDUCTION},
    operation::Operation,
    vector::{Vector, simd},
};

/// # Safety
///
/// As [`Operation::run`], on a CPU that has NEON.
#[target_feature(enable = "neon")]
pub(crate) unsafe fn run(operation: &Operation<'_>, len: usize) {
    // SAFETY: passed on from our caller.
    unsafe { operation.run::<Neon>(len) }
}

#[derive(Clone, Copy)]
pub(crate) struct Neon(uint8x16_t);

impl Vector for Neon {
    const BYTES: usize = 16;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: passed on from our caller.
        unsafe { Self(vdupq_n_u8(0)) }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: passed on from our caller; this load needs no alignment.
        unsafe { Self(vld1q_u8(from)) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: passed on from our caller; this store needs no alignment.
        unsafe { vst1q_u8(to, self.0) }
    }

    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        simd!(Self(veorq_u8(self.0, other.0)))
    }

    #[inline(always)]
    fn mul(self, constant: u8) -> Self {
        let [low, high] = &NIBBLE_PRODUCTS[usize::from(constant)];
        // SAFETY: a value exists only on a CPU that has NEON; each table has sixteen bytes.
        let (low, high) = unsafe { (vld1q_u8(low.as_ptr()), vld1q_u8(high.as_ptr())) };
        simd!({
            let low_nibbles = vandq_u8(self.0, vdupq_n_u8(0x0f));
            let high_nibbles = vshrq_n_u8::<4>(self.0);
            Self(veorq_u8(vqtbl1q_u8(low, low_nibbles), vqtbl1q_u8(high, high_nibbles)))
        })
    }

    #[inline(always)]
    fn double(self) -> Self {
        simd!({
            let fallen = vcltzq_s8(vreinterpretq_s8_u8(self.0));
            let reduction = vandq_u8(fallen, vdupq_n_u8(REDUCTION));
            Self(veorq_u8(vshlq_n_u8::<1>(self.0), reduction))
        })
    }
}

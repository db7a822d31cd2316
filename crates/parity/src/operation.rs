//! The algorithms, each written once for any [`Vector`].
//!
//! An operation computes its outputs *column by column*: the bytes at one offset of every block,
//! as wide as the vector. A column depends on no other, so an operation is one pass over the bytes,
//! with everything in between held in registers.
//!
//! Lengths have been checked at the door (`kernels.rs`); here are only pointers. Loops are plain
//! `for` loops: a closure would be compiled on its own, without the vector's instruction set, and
//! be fifty times slower.

use crate::{Change, gf, vector::Vector};

/// What to compute. Invariant: every non-empty slice, and every output, has the length of the call.
pub(crate) enum Operation<'a> {
    Xor(Xor<'a>),
    Pq(Pq<'a>),
    Q(Q<'a>),
    Update(Update<'a>),
    RecoverFromQ(RecoverFromQ<'a>),
    RecoverTwo(RecoverTwo<'a>),
}

impl Operation<'_> {
    /// # Safety
    ///
    /// The CPU has the instruction set of `V`; all non-empty slices and outputs have length `len`.
    #[inline(always)]
    pub(crate) unsafe fn run<V: Vector>(&self, len: usize) {
        // SAFETY: passed on from our caller.
        unsafe {
            match self {
                Self::Xor(operation) => sweep::<V>(operation, len),
                Self::Pq(operation) => sweep::<V>(operation, len),
                Self::Q(operation) => sweep::<V>(operation, len),
                Self::Update(operation) => sweep::<V>(operation, len),
                Self::RecoverFromQ(operation) => sweep::<V>(operation, len),
                Self::RecoverTwo(operation) => sweep::<V>(operation, len),
            }
        }
    }
}

/// Computes all columns: wide ones while they last, then ever narrower ones down to single bytes.
///
/// # Safety
///
/// As [`Operation::run`].
#[inline(always)]
unsafe fn sweep<V: Vector>(operation: &impl Columns, len: usize) {
    // SAFETY: the CPU is our caller's promise; each call begins where the last one ended.
    unsafe {
        let at = sweep_while_wide::<[V; 4]>(operation, 0, len);
        let at = sweep_while_wide::<V>(operation, at, len);
        let at = sweep_while_wide::<u64>(operation, at, len);
        sweep_while_wide::<u8>(operation, at, len);
    }
}

/// Computes columns of the width of `V` from offset `at` while they fit; returns where it ended.
///
/// # Safety
///
/// As [`Operation::run`].
#[inline(always)]
unsafe fn sweep_while_wide<V: Vector>(
    operation: &impl Columns,
    mut at: usize,
    len: usize,
) -> usize {
    while len - at >= V::BYTES {
        // SAFETY: the column ends at or before `len`; the CPU is our caller's promise.
        unsafe { operation.column::<V>(at) };
        at += V::BYTES;
    }
    at
}

/// An operation, as the computation of one column.
trait Columns {
    /// Computes the outputs at `at..at + V::BYTES`.
    ///
    /// # Safety
    ///
    /// The CPU has the instruction set of `V`; all non-empty slices and outputs have at least
    /// `at + V::BYTES` bytes.
    unsafe fn column<V: Vector>(&self, at: usize);
}

/// out = XOR of sources, or out ^= XOR of sources.
pub(crate) struct Xor<'a> {
    pub(crate) sources: &'a [&'a [u8]],
    pub(crate) out: Output,
    /// Whether what stands in `out` is one of the sources.
    pub(crate) into: bool,
}

impl Columns for Xor<'_> {
    #[inline(always)]
    unsafe fn column<V: Vector>(&self, at: usize) {
        // SAFETY: passed on from our caller.
        unsafe {
            let mut sum = if self.into { self.out.load(at) } else { V::zero() };
            // Backwards, as Horner's scheme goes too. Forwards, sources at equal distances in L2
            // took nearly twice the time on a Zen 5.
            for source in self.sources.iter().rev() {
                sum = sum.xor(load_or_zero(source, at));
            }
            self.out.store(at, sum);
        }
    }
}

/// P = sum of D_i, Q = sum of g^i D_i.
pub(crate) struct Pq<'a> {
    pub(crate) data: &'a [&'a [u8]],
    pub(crate) p: Output,
    pub(crate) q: Output,
}

impl Columns for Pq<'_> {
    #[inline(always)]
    unsafe fn column<V: Vector>(&self, at: usize) {
        // SAFETY: passed on from our caller.
        unsafe {
            let (p, q) = syndromes::<V>(self.data, at);
            self.p.store(at, p);
            self.q.store(at, q);
        }
    }
}

/// Q alone.
pub(crate) struct Q<'a> {
    pub(crate) data: &'a [&'a [u8]],
    pub(crate) q: Output,
}

impl Columns for Q<'_> {
    #[inline(always)]
    unsafe fn column<V: Vector>(&self, at: usize) {
        // SAFETY: passed on from our caller.
        unsafe { self.q.store(at, q_syndrome::<V>(self.data, at)) }
    }
}

/// P += sum of delta_i, Q += sum of g^i delta_i, where delta = old + new.
pub(crate) struct Update<'a> {
    pub(crate) changes: &'a [Change<'a>],
    pub(crate) p: Option<Output>,
    pub(crate) q: Option<Output>,
}

impl Columns for Update<'_> {
    #[inline(always)]
    unsafe fn column<V: Vector>(&self, at: usize) {
        // SAFETY: passed on from our caller.
        unsafe {
            let (mut p, mut q) = (V::zero(), V::zero());
            for change in self.changes {
                let delta = load_or_zero::<V>(change.old, at).xor(load_or_zero(change.new, at));
                p = p.xor(delta);
                if self.q.is_some() {
                    q = q.xor(delta.mul(gf::power_of_g(change.exponent)));
                }
            }
            if let Some(out) = &self.p {
                out.store(at, p.xor(out.load(at)));
            }
            if let Some(out) = &self.q {
                out.store(at, q.xor(out.load(at)));
            }
        }
    }
}

/// D_x = g^-x (Q + Q'), where Q' is what the survivors give.
pub(crate) struct RecoverFromQ<'a> {
    pub(crate) data: &'a [&'a [u8]],
    pub(crate) q: &'a [u8],
    /// g^-x.
    pub(crate) factor: u8,
    pub(crate) out: Output,
}

impl Columns for RecoverFromQ<'_> {
    #[inline(always)]
    unsafe fn column<V: Vector>(&self, at: usize) {
        // SAFETY: passed on from our caller.
        unsafe {
            let q = q_syndrome::<V>(self.data, at).xor(load_or_zero(self.q, at));
            self.out.store(at, q.mul(self.factor));
        }
    }
}

/// With P'' = P + P' and Q'' = Q + Q', where P' and Q' are what the survivors give:
/// D_x + D_y = P'' and g^x D_x + g^y D_y = Q'', so
/// D_x = (g^y P'' + Q'') / (g^x + g^y) and D_y = P'' + D_x.
pub(crate) struct RecoverTwo<'a> {
    pub(crate) data: &'a [&'a [u8]],
    pub(crate) p: &'a [u8],
    pub(crate) q: &'a [u8],
    /// g^y / (g^x + g^y).
    pub(crate) p_factor: u8,
    /// 1 / (g^x + g^y).
    pub(crate) q_factor: u8,
    pub(crate) x: Output,
    pub(crate) y: Output,
}

impl Columns for RecoverTwo<'_> {
    #[inline(always)]
    unsafe fn column<V: Vector>(&self, at: usize) {
        // SAFETY: passed on from our caller.
        unsafe {
            let (p, q) = syndromes::<V>(self.data, at);
            let p = p.xor(load_or_zero(self.p, at));
            let q = q.xor(load_or_zero(self.q, at));
            let x = p.mul(self.p_factor).xor(q.mul(self.q_factor));
            self.x.store(at, x);
            self.y.store(at, x.xor(p));
        }
    }
}

/// P and Q of one column, Q by Horner's scheme: (...(D_n g + D_n-1) g + ...) g + D_0.
///
/// # Safety
///
/// As [`Columns::column`].
#[inline(always)]
unsafe fn syndromes<V: Vector>(data: &[&[u8]], at: usize) -> (V, V) {
    // SAFETY: passed on from our caller.
    unsafe {
        let (mut p, mut q) = (V::zero(), V::zero());
        for block in data.iter().rev() {
            q = q.double();
            if !block.is_empty() {
                let d = V::load(block.as_ptr().add(at));
                p = p.xor(d);
                q = q.xor(d);
            }
        }
        (p, q)
    }
}

/// Q of one column.
///
/// # Safety
///
/// As [`Columns::column`].
#[inline(always)]
unsafe fn q_syndrome<V: Vector>(data: &[&[u8]], at: usize) -> V {
    // SAFETY: passed on from our caller.
    unsafe {
        let mut q = V::zero();
        for block in data.iter().rev() {
            q = q.double().xor(load_or_zero(block, at));
        }
        q
    }
}

/// The column of a block, of which an empty slice means zeroes.
///
/// # Safety
///
/// As [`Columns::column`].
#[inline(always)]
unsafe fn load_or_zero<V: Vector>(block: &[u8], at: usize) -> V {
    // SAFETY: a block that is not empty reaches to the end of the column.
    unsafe { if block.is_empty() { V::zero() } else { V::load(block.as_ptr().add(at)) } }
}

/// Where a result goes. Invariant: nothing else refers to these bytes while the operation runs.
pub(crate) struct Output {
    start: *mut u8,
    streaming: bool,
}

impl Output {
    /// Vectors up to this size may be stored past the cache, and only when aligned to it.
    pub(crate) const STREAM_ALIGNMENT: usize = 64;

    pub(crate) fn cached(out: &mut [u8]) -> Self {
        Self { start: out.as_mut_ptr(), streaming: false }
    }

    /// Bypasses the cache where the alignment allows it. The caller fences when all is stored.
    pub(crate) fn streaming(out: &mut [u8]) -> Self {
        let start = out.as_mut_ptr();
        Self { start, streaming: start.addr().is_multiple_of(Self::STREAM_ALIGNMENT) }
    }

    /// # Safety
    ///
    /// As [`Columns::column`].
    #[inline(always)]
    unsafe fn load<V: Vector>(&self, at: usize) -> V {
        // SAFETY: passed on from our caller.
        unsafe { V::load(self.start.add(at)) }
    }

    /// # Safety
    ///
    /// As [`Columns::column`].
    #[inline(always)]
    unsafe fn store<V: Vector>(&self, at: usize, column: V) {
        // SAFETY: passed on from our caller; a stream starts aligned, and columns keep to
        // multiples of their width, which divides or is a multiple of the alignment.
        unsafe {
            let to = self.start.add(at);
            if self.streaming { column.stream(to) } else { column.store(to) }
        }
    }
}

use std::{env, fmt, sync::OnceLock};

use crate::{
    gf,
    isa::{Isa, write_names},
    operation::{Operation, Output, Pq, Q, RecoverFromQ, RecoverTwo, Update, Xor},
    vector,
};

/// The kernels for this CPU, chosen once: those named by `MDSPACE_SIMD`, else the best it has.
///
/// # Panics
///
/// When `MDSPACE_SIMD` names kernels that cannot run here. [`Kernels::choose`] tells without.
pub fn kernels() -> &'static Kernels {
    static CHOSEN: OnceLock<&Kernels> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let wanted = env::var_os("MDSPACE_SIMD").map(|name| name.to_string_lossy().into_owned());
        Kernels::choose(wanted.as_deref()).unwrap_or_else(|error| panic!("{error}"))
    })
}

/// All operations for one instruction set, which this CPU has.
///
/// In every call: non-empty slices have one length; an empty input slice stands for a block of
/// zeroes; the index of a block in `data` is its exponent of g, so there are at most 255. A call
/// that breaks this panics.
#[derive(Debug)]
pub struct Kernels {
    isa: Isa,
    run: unsafe fn(&Operation<'_>, usize),
}

/// One data block's part in [`Kernels::update`].
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The block's exponent of g in Q, 0 to 254.
    pub exponent: u8,
    /// What the parity was computed from.
    pub old: &'a [u8],
    /// What takes its place.
    pub new: &'a [u8],
}

/// What this target is compiled with, the best first.
static COMPILED: &[Kernels] = &[
    #[cfg(target_arch = "x86_64")]
    Kernels { isa: Isa::Gfni, run: vector::gfni::run },
    #[cfg(target_arch = "x86_64")]
    Kernels { isa: Isa::Avx512, run: vector::avx512::run },
    #[cfg(target_arch = "x86_64")]
    Kernels { isa: Isa::Avx2, run: vector::avx2::run },
    #[cfg(target_arch = "x86_64")]
    Kernels { isa: Isa::Ssse3, run: vector::ssse3::run },
    #[cfg(target_arch = "aarch64")]
    Kernels { isa: Isa::Neon, run: vector::neon::run },
    Kernels { isa: Isa::Scalar, run: vector::scalar::run },
];

impl Kernels {
    /// The kernels for `isa`, or `None` when this CPU lacks it.
    pub fn for_isa(isa: Isa) -> Option<&'static Self> {
        Self::available().find(|kernels| kernels.isa == isa)
    }

    /// All kernels that this CPU can run, the best first.
    pub fn available() -> impl Iterator<Item = &'static Self> {
        COMPILED.iter().filter(|kernels| kernels.isa.is_detected())
    }

    /// The kernels called `wanted`, or the best where nothing is wanted.
    pub fn choose(wanted: Option<&str>) -> Result<&'static Self, UnusableIsa> {
        let fits = |kernels: &&Self| wanted.is_none_or(|name| kernels.isa.name() == name);
        Self::available().find(fits).ok_or_else(|| UnusableIsa(wanted.unwrap_or("").to_owned()))
    }

    /// The instruction set.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// `out` = XOR of `sources`.
    pub fn xor(&self, sources: &[&[u8]], out: &mut [u8]) {
        let len = out.len();
        check_lengths(len, sources);
        self.run(len, &Operation::Xor(Xor { sources, out: Output::cached(out), into: false }));
    }

    /// `out` ^= XOR of `sources`.
    pub fn xor_into(&self, sources: &[&[u8]], out: &mut [u8]) {
        let len = out.len();
        check_lengths(len, sources);
        self.run(len, &Operation::Xor(Xor { sources, out: Output::cached(out), into: true }));
    }

    /// [`xor`](Self::xor) for rows larger than the cache: `out` bypasses it where it is aligned to
    /// 64 bytes. A sixth faster there, half as fast within L2.
    pub fn xor_streaming(&self, sources: &[&[u8]], out: &mut [u8]) {
        let len = out.len();
        check_lengths(len, sources);
        self.run(len, &Operation::Xor(Xor { sources, out: Output::streaming(out), into: false }));
        vector::fence_streams();
    }

    /// P and Q of `data`.
    pub fn pq(&self, data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
        let len = check_pq(data, p, q);
        let (p, q) = (Output::cached(p), Output::cached(q));
        self.run(len, &Operation::Pq(Pq { data, p, q }));
    }

    /// [`pq`](Self::pq) for rows larger than the cache: `p` and `q` bypass it where they are aligned
    /// to 64 bytes. A quarter faster there, half as fast within L2.
    pub fn pq_streaming(&self, data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
        let len = check_pq(data, p, q);
        let (p, q) = (Output::streaming(p), Output::streaming(q));
        self.run(len, &Operation::Pq(Pq { data, p, q }));
        vector::fence_streams();
    }

    /// Q of `data`, for when P's member is gone.
    pub fn q(&self, data: &[&[u8]], q: &mut [u8]) {
        let len = q.len();
        check_data(len, data);
        self.run(len, &Operation::Q(Q { data, q: Output::cached(q) }));
    }

    /// Brings P and Q up to date with `changes` in one pass: a read-modify-write.
    ///
    /// `p` or `q` is absent when its member is gone.
    pub fn update(&self, changes: &[Change<'_>], p: Option<&mut [u8]>, q: Option<&mut [u8]>) {
        let Some(len) = p.as_deref().or(q.as_deref()).map(<[u8]>::len) else { return };
        check_output(len, q.as_deref().or(p.as_deref()).unwrap_or(&[]));
        for change in changes {
            check_exponent(usize::from(change.exponent));
            check_lengths(len, &[change.old, change.new]);
        }
        let (p, q) = (p.map(Output::cached), q.map(Output::cached));
        self.run(len, &Operation::Update(Update { changes, p, q }));
    }

    /// The lost data block from Q, for when P is lost too. `data[lost]` is empty.
    ///
    /// (From P it is an [`xor`](Self::xor).)
    pub fn recover_from_q(&self, data: &[&[u8]], lost: usize, q: &[u8], out: &mut [u8]) {
        let len = out.len();
        check_data(len, data);
        check_output(len, q);
        let factor = gf::inverse(power_of_lost(data, lost));
        let out = Output::cached(out);
        self.run(len, &Operation::RecoverFromQ(RecoverFromQ { data, q, factor, out }));
    }

    /// Two lost data blocks from P and Q, in one pass. `out[i]` becomes `data[lost[i]]`, which is
    /// empty; either may come first.
    pub fn recover_two(
        &self,
        data: &[&[u8]],
        lost: [usize; 2],
        p: &[u8],
        q: &[u8],
        out: [&mut [u8]; 2],
    ) {
        let [x, y] = out;
        let len = check_pq(data, x, y);
        check_output(len, p);
        check_output(len, q);
        assert!(lost[0] != lost[1], "block {} cannot be lost twice", lost[0]);
        let [g_x, g_y] = lost.map(|index| power_of_lost(data, index));
        let q_factor = gf::inverse(g_x ^ g_y);
        let p_factor = gf::mul(g_y, q_factor);
        let (x, y) = (Output::cached(x), Output::cached(y));
        let operation = RecoverTwo { data, p, q, p_factor, q_factor, x, y };
        self.run(len, &Operation::RecoverTwo(operation));
    }

    fn run(&self, len: usize, operation: &Operation<'_>) {
        // SAFETY: `Kernels` are handed out only where the CPU has their instruction set, and every
        // public method has checked that its slices have length `len`.
        unsafe { (self.run)(operation, len) }
    }
}

fn check_pq(data: &[&[u8]], p: &[u8], q: &[u8]) -> usize {
    check_data(p.len(), data);
    check_output(p.len(), q);
    p.len()
}

fn check_data(len: usize, data: &[&[u8]]) {
    check_exponent(data.len().saturating_sub(1));
    check_lengths(len, data);
}

/// g^255 is g^0 again: two blocks with one power of g could not be told apart.
fn check_exponent(exponent: usize) {
    assert!(exponent < 255, "exponent {exponent} of g: RAID6 has at most 255 data blocks");
}

fn check_lengths(len: usize, blocks: &[&[u8]]) {
    for block in blocks.iter().filter(|block| !block.is_empty()) {
        check_output(len, block);
    }
}

fn check_output(len: usize, block: &[u8]) {
    assert_eq!(block.len(), len, "all blocks of a call have one length");
}

/// g^`index`, where `data[index]` must be absent.
fn power_of_lost(data: &[&[u8]], index: usize) -> u8 {
    assert!(data[index].is_empty(), "block {index} is to be recovered, so it must be empty");
    gf::power_of_g(index as u8)
}

/// Kernels were asked for by name that cannot run here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableIsa(String);

impl fmt::Display for UnusableIsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MDSPACE_SIMD={}: this CPU has no such kernels; unset it or use ", self.0)?;
        write_names(f, Kernels::available().map(Kernels::isa))
    }
}

impl std::error::Error for UnusableIsa {}

#[cfg(test)]
mod tests;

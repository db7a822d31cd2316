use std::{fmt, str::FromStr};

/// An instruction set that the kernels are instantiated for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Isa {
    /// 64-bit words, on every CPU: the oracle.
    Scalar,
    /// x86-64, 16-byte vectors, products by byte shuffles.
    Ssse3,
    /// x86-64, 32-byte vectors.
    Avx2,
    /// x86-64, 64-byte vectors (AVX-512 F and BW).
    Avx512,
    /// AVX-512 with GFNI: products by bit matrices.
    Gfni,
    /// AArch64, 16-byte vectors.
    Neon,
}

impl Isa {
    /// All of them, the best first.
    pub const ALL: [Self; 6] =
        [Self::Gfni, Self::Avx512, Self::Avx2, Self::Ssse3, Self::Neon, Self::Scalar];

    /// The word for it in `MDSPACE_SIMD`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scalar => "scalar",
            Self::Ssse3 => "ssse3",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Gfni => "gfni",
            Self::Neon => "neon",
        }
    }

    /// Whether this CPU has it, and the system lets us use it.
    pub(crate) fn is_detected(self) -> bool {
        match self {
            Self::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Self::Ssse3 => is_x86_feature_detected!("ssse3"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw")
            }
            #[cfg(target_arch = "x86_64")]
            Self::Gfni => Self::Avx512.is_detected() && is_x86_feature_detected!("gfni"),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => std::arch::is_aarch64_feature_detected!("neon"),
            #[allow(unreachable_patterns, reason = "depends on the target")]
            _ => false,
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Isa {
    type Err = UnknownIsa;

    fn from_str(name: &str) -> Result<Self, UnknownIsa> {
        Self::ALL.into_iter().find(|isa| isa.name() == name).ok_or(UnknownIsa)
    }
}

/// The name of no [`Isa`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownIsa;

impl fmt::Display for UnknownIsa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an instruction set that mdspace knows: use ")?;
        write_names(f, Isa::ALL)
    }
}

impl std::error::Error for UnknownIsa {}

/// Writes "a, b, c".
pub(crate) fn write_names(
    f: &mut fmt::Formatter<'_>,
    isas: impl IntoIterator<Item = Isa>,
) -> fmt::Result {
    for (i, isa) in isas.into_iter().enumerate() {
        write!(f, "{}{isa}", if i == 0 { "" } else { ", " })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;

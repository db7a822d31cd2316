//! Division by a number that is known before it is needed.

/// A prepared divisor: quotient and remainder of any `u64` by multiplication and shifts.
///
/// Exact for every numerator: Granlund and Montgomery, "Division by Invariant Integers using
/// Multiplication" (1994), figure 4.1. Powers of two, 1 included, take the same path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Divisor {
    divisor: u64,
    /// ⌊2^(64+l) / divisor⌋ + 1 without its 65th bit, which is always set; l = ⌈log2 divisor⌉.
    multiplier: u64,
    /// min(l, 1)
    shift_first: u32,
    /// l - shift_first
    shift_last: u32,
}

impl Divisor {
    /// # Panics
    /// When `divisor` is 0.
    pub fn new(divisor: u64) -> Divisor {
        assert!(divisor != 0, "a divisor is never 0");
        let log2_ceil = u64::BITS - (divisor - 1).leading_zeros();
        let excess = (1u128 << log2_ceil) - u128::from(divisor);
        let multiplier = (excess << 64) / u128::from(divisor) + 1;
        let shift_first = log2_ceil.min(1);
        Divisor {
            divisor,
            multiplier: multiplier as u64,
            shift_first,
            shift_last: log2_ceil - shift_first,
        }
    }

    /// The number itself.
    #[inline]
    pub fn divisor(&self) -> u64 {
        self.divisor
    }

    /// ⌊numerator / divisor⌋
    #[inline]
    pub fn div(&self, numerator: u64) -> u64 {
        let high = ((u128::from(self.multiplier) * u128::from(numerator)) >> 64) as u64;
        // numerator * (2^64 + multiplier) needs 129 bits: halve first, so that the sum fits
        (high + ((numerator - high) >> self.shift_first)) >> self.shift_last
    }

    /// numerator mod divisor
    #[inline]
    pub fn rem(&self, numerator: u64) -> u64 {
        self.div_rem(numerator).1
    }

    /// Quotient and remainder.
    #[inline]
    pub fn div_rem(&self, numerator: u64) -> (u64, u64) {
        let quotient = self.div(numerator);
        (quotient, numerator - quotient * self.divisor)
    }
}

#[cfg(test)]
mod tests {
    use super::Divisor;

    fn check(divisor: u64, numerator: u64) {
        let prepared = Divisor::new(divisor);
        let expected = (numerator / divisor, numerator % divisor);
        assert_eq!(prepared.div_rem(numerator), expected, "{numerator} by {divisor}");
        assert_eq!(prepared.rem(numerator), expected.1);
    }

    #[test]
    fn every_small_quotient_is_exact() {
        for divisor in 1..=300 {
            for numerator in 0..=3000 {
                check(divisor, numerator);
            }
        }
    }

    #[test]
    fn quotients_around_every_multiple_near_the_top_are_exact() {
        let edges = |power: u32| {
            let base = 1u64 << power;
            [base - 1, base, base + 1, base + base / 3]
        };
        for divisor in (0..64).flat_map(edges).filter(|&divisor| divisor > 0) {
            let largest = u64::MAX / divisor * divisor;
            for multiple in [0, divisor, largest, largest / 2 / divisor * divisor] {
                for around in [multiple.wrapping_sub(1), multiple, multiple.saturating_add(1)] {
                    check(divisor, around);
                }
            }
            check(divisor, u64::MAX);
        }
    }

    #[test]
    fn random_quotients_are_exact() {
        // xorshift64*, seed 1; widths vary so that small and large numbers both come
        let mut state = 1u64;
        let mut next = || {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            let value = state.wrapping_mul(0x2545_f491_4f6c_dd1d);
            value >> (state % 64)
        };
        for _ in 0..300_000 {
            let (divisor, numerator) = (next().max(1), next());
            check(divisor, numerator);
        }
    }

    #[test]
    #[should_panic(expected = "never 0")]
    fn zero_is_refused() {
        Divisor::new(0);
    }
}

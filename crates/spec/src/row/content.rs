//! Contents of blocks as formal sums: parity of another time computes bytes that were never written, and
//! the model sees that.

use std::ops::Add;

/// A sum of symbols, each with a factor of the field of four elements: two bits a symbol. A version of a
/// block is a symbol of its own; version 0 is all zeroes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Content(u16);

/// The low bit of every factor.
const LOW: u16 = 0x5555;
const SYMBOLS_A_BLOCK: u8 = 3;

impl Content {
    pub(super) const ZERO: Self = Self(0);
    /// What a new spare has.
    pub(super) const FOREIGN: Self = Self(1 << 14);

    pub(super) fn of(block: usize, version: u8) -> Self {
        assert!(version <= SYMBOLS_A_BLOCK, "a scope of more versions than there are symbols");
        match version {
            0 => Self::ZERO,
            _ => Self(1 << (2 * (block as u8 * SYMBOLS_A_BLOCK + version - 1))),
        }
    }

    /// Which version of the block this is, if it is one.
    pub(super) fn version_of(self, block: usize) -> Option<u8> {
        (0..=SYMBOLS_A_BLOCK).find(|&version| Self::of(block, version) == self)
    }

    /// Times g: x of the polynomials modulo x^2 + x + 1.
    fn times_g(self) -> Self {
        let (high, low) = (self.0 >> 1 & LOW, self.0 & LOW);
        Self((high ^ low) << 1 | high)
    }

    /// Times the power of g with which Q takes a block: g^block. Negative powers divide.
    pub(super) fn times_power(self, power: i8) -> Self {
        (0..power.rem_euclid(3)).fold(self, |product, _| product.times_g())
    }
}

impl Add for Content {
    type Output = Self;

    /// Also subtraction.
    #[expect(clippy::suspicious_arithmetic_impl, reason = "it is the field's addition")]
    fn add(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

/// Parity of both blocks: P (0) or Q (1).
pub(super) fn parity(number: usize, blocks: [Content; 2]) -> Content {
    match number {
        0 => blocks[0] + blocks[1],
        _ => blocks[0] + blocks[1].times_power(1),
    }
}

/// A block by one parity and the other block.
pub(super) fn by_parity(number: usize, parity: Content, block: usize, other: Content) -> Content {
    let power = |block: usize| if number == 0 { 0 } else { block as i8 };
    (parity + other.times_power(power(1 - block))).times_power(-power(block))
}

/// Both blocks by both parities.
pub(super) fn by_both_parities(p: Content, q: Content) -> [Content; 2] {
    let second = (p + q).times_power(-2); // P + Q is (1 + g) times the second block, and 1 + g is g^2
    [p + second, second]
}

#[cfg(test)]
mod tests;

//! Arithmetic of the second parity: GF(2^8) modulo 0x11d, by tables that are made from doubling alone.

use super::Sector;

/// Powers of the generator, twice over, and the logarithm of each but zero.
const TABLES: ([u8; 510], [u8; 256]) = {
    let (mut powers, mut logarithms) = ([0; 510], [0; 256]);
    let (mut value, mut power) = (1_u8, 0);
    while power < 255 {
        powers[power] = value;
        powers[power + 255] = value;
        logarithms[value as usize] = power as u8;
        value = times_two(value);
        power += 1;
    }
    (powers, logarithms)
};

const fn times_two(byte: u8) -> u8 {
    byte << 1 ^ if byte & 0x80 == 0 { 0 } else { 0x1d }
}

/// Adds `data` to `sum`.
pub(super) fn add(sum: &mut Sector, data: &Sector) {
    sum.iter_mut().zip(data).for_each(|(sum, &byte)| *sum ^= byte);
}

/// Adds `data` times the generator to the `exponent` to `sum`.
pub(super) fn add_times(sum: &mut Sector, data: &Sector, exponent: u32) {
    let exponent = exponent as usize % 255;
    for (sum, &byte) in sum.iter_mut().zip(data) {
        *sum ^= times_power(byte, exponent);
    }
}

/// The sector that gives `product` when it is multiplied by the generator to the `exponent`.
pub(super) fn divide(product: &Sector, exponent: u32) -> Sector {
    let inverse = (255 - exponent as usize % 255) % 255;
    product.map(|byte| times_power(byte, inverse))
}

/// The sectors `(x, y)` of which the sum is `p`, and of which that of `x` times the generator to the first exponent
/// and of `y` times that to the second is `q`.
pub(super) fn solve(p: &Sector, q: &Sector, first: u32, second: u32) -> (Sector, Sector) {
    // q + g^second p = (g^first + g^second) x
    let mut sum = *q;
    add_times(&mut sum, p, second);
    let (powers, logarithms) = &TABLES;
    let factor = powers[first as usize % 255] ^ powers[second as usize % 255];
    let x = divide(&sum, logarithms[factor as usize].into());
    let mut y = *p;
    add(&mut y, &x);
    (x, y)
}

fn times_power(byte: u8, exponent: usize) -> u8 {
    let (powers, logarithms) = &TABLES;
    if byte == 0 { 0 } else { powers[logarithms[byte as usize] as usize + exponent] }
}

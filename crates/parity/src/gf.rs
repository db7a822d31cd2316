//! GF(2^8) as md's RAID6 uses it: polynomial 0x11d, generator g = 2. (AES uses 0x11b.)
//!
//! Addition is XOR. Everything here is a `const fn`; the tables are computed at compile time.

/// x^8 modulo the polynomial x^8 + x^4 + x^3 + x^2 + 1.
pub(crate) const REDUCTION: u8 = 0x1d;

/// g^`exponent`. The order of g is 255, so `power_of_g(255) == 1`.
pub const fn power_of_g(exponent: u8) -> u8 {
    POWERS[exponent as usize]
}

/// The product of two elements.
pub const fn mul(a: u8, b: u8) -> u8 {
    let mut product = 0;
    let mut bit = 8;
    while bit > 0 {
        bit -= 1;
        product = double(product) ^ if (b >> bit) & 1 == 1 { a } else { 0 };
    }
    product
}

/// The element whose product with `a` is 1.
///
/// # Panics
///
/// When `a` is 0, which has no inverse.
pub const fn inverse(a: u8) -> u8 {
    assert!(a != 0, "zero has no inverse");
    POWERS[255 - LOGARITHMS[a as usize] as usize]
}

/// g * `a`.
const fn double(a: u8) -> u8 {
    (a << 1) ^ if a >> 7 == 1 { REDUCTION } else { 0 }
}

/// g^0 to g^255.
const POWERS: &[u8; 256] = &{
    let mut powers = [1; 256];
    let mut i = 1;
    while i < 256 {
        powers[i] = double(powers[i - 1]);
        i += 1;
    }
    powers
};

/// The exponent, 0 to 254, of each non-zero element.
const LOGARITHMS: &[u8; 256] = &{
    let mut logarithms = [0; 256];
    let mut exponent = 0;
    while exponent < 255 {
        logarithms[POWERS[exponent as usize] as usize] = exponent;
        exponent += 1;
    }
    logarithms
};

/// For each constant c: c times each low nibble, then c times each high nibble.
///
/// A byte's product is the sum of its two nibbles' products: two 16-byte shuffles.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) static NIBBLE_PRODUCTS: [[[u8; 16]; 2]; 256] = {
    let mut tables = [[[0; 16]; 2]; 256];
    let mut i = 0;
    while i < 256 * 16 {
        let (constant, nibble) = (i / 16, i % 16);
        tables[constant][0][nibble] = mul(constant as u8, nibble as u8);
        tables[constant][1][nibble] = mul(constant as u8, (nibble << 4) as u8);
        i += 1;
    }
    tables
};

/// For each constant c: multiplication by c as an 8x8 bit matrix, in the order of `gf2p8affineqb`:
/// byte 7 - i of the word selects the input bits whose sum is output bit i.
#[cfg(target_arch = "x86_64")]
pub(crate) static MATRICES: [u64; 256] = {
    let mut matrices = [0; 256];
    let mut i = 0;
    while i < 256 * 64 {
        let (constant, output, input) = (i / 64, (i / 8) % 8, i % 8);
        let bit = (mul(constant as u8, 1 << input) >> output) & 1;
        matrices[constant] |= (bit as u64) << (8 * (7 - output) + input);
        i += 1;
    }
    matrices
};

#[cfg(test)]
pub(crate) mod tests;

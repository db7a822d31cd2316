use std::sync::LazyLock;

use crate::gf::tests::long_multiplication;

/// P and Q by their definition: P = sum of D_i, Q = sum of g^i D_i. Empty blocks are zeroes.
pub(super) struct Definition {
    pub(super) p: Vec<u8>,
    pub(super) q: Vec<u8>,
}

impl Definition {
    pub(super) fn of(data: &[&[u8]], len: usize) -> Self {
        let (mut p, mut q) = (vec![0; len], vec![0; len]);
        let mut power_of_g = 1;
        for block in data {
            let products = &PRODUCTS[usize::from(power_of_g)];
            for (at, &byte) in block.iter().enumerate() {
                p[at] ^= byte;
                q[at] ^= products[usize::from(byte)];
            }
            power_of_g = long_multiplication(power_of_g, 2, 0x11d);
        }
        Self { p, q }
    }

    pub(super) fn pq(&self) -> (&[u8], &[u8]) {
        (&self.p, &self.q)
    }
}

static PRODUCTS: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    (0..=255).map(|a| (0..=255).map(|b| long_multiplication(a, b, 0x11d)).collect()).collect()
});

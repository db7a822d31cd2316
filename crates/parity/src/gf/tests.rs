use super::*;

/// Schoolbook: multiply as polynomials over GF(2), then divide by `polynomial`.
pub(crate) fn long_multiplication(a: u8, b: u8, polynomial: u16) -> u8 {
    let mut product = 0;
    for bit in (0..8).filter(|bit| (b >> bit) & 1 == 1) {
        product ^= u16::from(a) << bit;
    }
    for bit in (8..16).rev() {
        if (product >> bit) & 1 == 1 {
            product ^= polynomial << (bit - 8);
        }
    }
    u8::try_from(product).expect("the remainder has degree 7 at most")
}

fn products_that_differ(polynomial: u16) -> usize {
    let pairs = (0..=255).flat_map(|a| (0..=255).map(move |b| (a, b)));
    pairs.filter(|&(a, b)| mul(a, b) != long_multiplication(a, b, polynomial)).count()
}

#[test]
fn every_product_is_that_of_long_multiplication() {
    assert_eq!(products_that_differ(0x11d), 0);
}

#[test]
fn the_field_of_aes_is_another_one() {
    assert!(products_that_differ(0x11b) > 10_000);
}

#[test]
fn every_element_but_zero_has_an_inverse() {
    assert!((1..=255).all(|a| mul(a, inverse(a)) == 1));
}

#[test]
#[should_panic(expected = "zero has no inverse")]
fn zero_has_no_inverse() {
    inverse(0);
}

#[test]
fn powers_of_g_visit_every_element_but_zero_once() {
    let mut seen = [false; 256];
    for exponent in 0..255 {
        assert!(!std::mem::replace(&mut seen[usize::from(power_of_g(exponent))], true));
    }
    assert!(!seen[0]);
    assert_eq!([power_of_g(0), power_of_g(1), power_of_g(8), power_of_g(255)], [1, 2, 0x1d, 1]);
}

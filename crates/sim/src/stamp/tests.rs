//! A sector knows its home and its writer, and nothing else passes for it.

use super::*;

#[test]
fn a_stamp_says_where_it_belongs_and_who_wrote_it() {
    let mut bytes = [0; SECTOR_BYTES];
    stamp(9, Version(4), &mut bytes);
    assert_eq!(identify(9, &bytes), Found::Version(Version(4)));
    assert_eq!(identify(10, &bytes), Found::Elsewhere(9, Version(4)));
}

#[test]
fn zeroes_are_version_zero_everywhere() {
    assert_eq!(identify(77, &[0; SECTOR_BYTES]), Found::Version(Version(0)));
}

#[test]
fn any_changed_byte_makes_it_garbage() {
    for at in 16..SECTOR_BYTES {
        let mut bytes = [0; SECTOR_BYTES];
        stamp(9, Version(4), &mut bytes);
        bytes[at] ^= 0x40;
        assert!(matches!(identify(9, &bytes), Found::Garbage(_)), "byte {at}");
    }
}

#[test]
fn two_halves_of_two_writes_are_garbage() {
    let (mut old, mut new) = ([0; SECTOR_BYTES], [0; SECTOR_BYTES]);
    stamp(9, Version(4), &mut old);
    stamp(9, Version(5), &mut new);
    new[256..].copy_from_slice(&old[256..]);
    assert!(matches!(identify(9, &new), Found::Garbage(_)));
}

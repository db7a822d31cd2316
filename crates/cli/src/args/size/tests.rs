use super::*;

fn size(text: &str) -> Result<u64, String> {
    text.parse::<Size>().map(|s| s.bytes)
}

#[test]
fn a_bare_number_is_kib_and_units_are_binary() {
    assert_eq!(size("512"), Ok(512 << 10));
    assert_eq!(size("512K"), Ok(512 << 10));
    assert_eq!(size("1M"), Ok(1 << 20));
    assert_eq!(size("2g"), Ok(2 << 30));
    assert_eq!(size("3T"), Ok(3 << 40));
    assert_eq!(size("64KiB"), Ok(64 << 10));
    assert_eq!(size("2TiB"), Ok(2 << 40));
}

#[test]
fn what_is_no_size_is_refused() {
    for bad in ["", "K", "-1", "1.5G", "1KB", "9999999999T", "18446744073709551616", "0x10"] {
        assert!(size(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn short_and_parse_are_inverse_on_whole_kib() {
    for bytes in [1 << 10, 512 << 10, 64 << 20, 3 << 30, 5 << 40, 1536 << 10] {
        assert_eq!(size(&short(bytes)), Ok(bytes));
    }
}

use super::*;

const LIMITS: Limits =
    Limits { sectors: 80, block_sectors: 8, request_bytes_max: 16384, is_read_only: false };

fn asked(operation: u32, sector: u64, sectors: u32) -> Result<Wanted, Errno> {
    Wanted::of(&Descriptor { operation, sectors, sector, address: 0 }, &LIMITS)
}

#[test]
fn each_operation_is_told_with_its_flags() {
    assert_eq!(asked(0, 8, 16), Ok(Wanted::Read { sector: 8, bytes: 8192 }));
    assert_eq!(asked(1, 0, 8), Ok(Wanted::Write { sector: 0, bytes: 4096, fua: false }));
    assert_eq!(asked(1 | 1 << 13, 0, 8), Ok(Wanted::Write { sector: 0, bytes: 4096, fua: true }));
    assert_eq!(asked(2, 0, 0), Ok(Wanted::Flush));
    assert_eq!(asked(3, 0, 80), Ok(Wanted::Discard { sector: 0, sectors: 80 }));
    let zero = |fua, keeps| Ok(Wanted::Zero { sector: 8, sectors: 8, fua, keeps });
    assert_eq!(asked(5, 8, 8), zero(false, false));
    assert_eq!(asked(5 | 1 << 15, 8, 8), zero(false, true));
    assert_eq!(asked(5 | 1 << 13, 8, 8), zero(true, false));
    // Flags that are no matter here: META, SWAP.
    assert_eq!(asked(1 << 11 | 1 << 16, 8, 8), Ok(Wanted::Read { sector: 8, bytes: 4096 }));
}

#[test]
fn an_unknown_operation_is_not_supported() {
    for operation in [4, 6, 10, 13, 18, 32, 255] {
        assert_eq!(asked(operation, 0, 8), Err(Errno::OPNOTSUPP), "{operation}");
    }
}

#[test]
fn what_is_not_on_the_device_is_refused() {
    for (sector, sectors) in [(80, 8), (72, 16), (u64::MAX - 7, 8), (u64::MAX, 1), (0, u32::MAX)] {
        for operation in [0, 1, 3, 5] {
            assert_eq!(asked(operation, sector, sectors), Err(Errno::IO), "{sector} {sectors}");
        }
    }
    assert!(asked(0, 72, 8).is_ok());
}

#[test]
fn what_is_not_whole_blocks_or_nothing_is_refused() {
    for (sector, sectors) in [(4, 8), (8, 4), (0, 0), (1, 1)] {
        for operation in [0, 1, 3, 5] {
            assert_eq!(asked(operation, sector, sectors), Err(Errno::IO), "{sector} {sectors}");
        }
    }
}

#[test]
fn data_beyond_the_longest_request_are_refused_and_ranges_are_not() {
    assert_eq!(asked(1, 0, 32), Ok(Wanted::Write { sector: 0, bytes: 16384, fua: false }));
    assert_eq!(asked(1, 0, 40), Err(Errno::IO));
    assert_eq!(asked(0, 0, 40), Err(Errno::IO));
    assert!(asked(5, 0, 40).is_ok());
}

#[test]
fn a_device_that_is_read_only_takes_reads_and_flushes_alone() {
    let limits = Limits { is_read_only: true, ..LIMITS };
    let ask = |operation| {
        Wanted::of(&Descriptor { operation, sectors: 8, sector: 0, address: 0 }, &limits)
    };
    assert!(ask(0).is_ok() && ask(2).is_ok());
    for operation in [1, 3, 5] {
        assert_eq!(ask(operation), Err(Errno::PERM));
    }
}

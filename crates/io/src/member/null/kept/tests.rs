//! What is given back.

use super::*;

fn read(kept: &Kept, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    // SAFETY: the vector has room for `len` bytes.
    unsafe { kept.read(offset, bytes.as_mut_ptr(), len) };
    bytes
}

fn write(kept: &Kept, offset: u64, bytes: &[u8]) {
    // SAFETY: the slice holds its length.
    unsafe { kept.write(offset, bytes.as_ptr(), bytes.len()) };
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 | 1).collect()
}

const MIB: u64 = 1 << 20;

#[test]
fn the_ends_are_kept_and_the_middle_reads_as_zeroes() {
    let kept = Kept::new(10 * MIB, false).unwrap();
    let bytes = pattern(10 << 20);
    write(&kept, 0, &bytes);
    let found = read(&kept, 0, 10 << 20);
    let (head, rest) = found.split_at(1 << 20);
    let (middle, tail) = rest.split_at(8 << 20);
    assert!(head == &bytes[..1 << 20] && tail == &bytes[9 << 20..]);
    assert!(middle.iter().all(|byte| *byte == 0));
    // Across each edge, and within.
    for (offset, len) in [(MIB - 512, 1024), (9 * MIB - 512, 1024), (5 * MIB, 4096)] {
        let at = offset as usize;
        assert!(read(&kept, offset, len) == found[at..at + len], "{len} bytes at {offset}");
    }
}

#[test]
fn a_small_device_and_one_with_memory_keep_everything() {
    for (bytes, everything) in [(512, false), (MIB, false), (2 * MIB, false), (10 * MIB, true)] {
        let kept = Kept::new(bytes, everything).unwrap();
        let written = pattern(bytes as usize);
        write(&kept, 0, &written);
        assert!(read(&kept, 0, bytes as usize) == written, "{bytes} bytes");
    }
}

#[test]
fn zeroed_ranges_read_as_zeroes() {
    let kept = Kept::new(10 * MIB, false).unwrap();
    let bytes = pattern(2 << 20);
    write(&kept, 0, &bytes);
    write(&kept, 8 * MIB, &bytes);
    kept.zero(MIB / 2, 9 << 20);
    let found = read(&kept, 0, 10 << 20);
    let half = 1 << 19;
    assert!(found[..half] == bytes[..half]);
    assert!(found[half..(9 << 20) + half].iter().all(|byte| *byte == 0));
    assert!(found[(9 << 20) + half..] == bytes[(1 << 20) + half..]);
}

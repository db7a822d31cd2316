//! Memory as a device.

use super::*;

fn read(ram: &Ram, offset: usize, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    // SAFETY: the vector has room for `len` bytes.
    unsafe { ram.read(offset, bytes.as_mut_ptr(), len) };
    bytes
}

fn write(ram: &Ram, offset: usize, bytes: &[u8]) {
    // SAFETY: the slice holds its length.
    unsafe { ram.write(offset, bytes.as_ptr(), bytes.len()) };
}

#[test]
fn copies_of_every_length_and_place_arrive_whole() {
    let ram = Ram::new(1 << 20).unwrap();
    let bytes: Vec<u8> = (0..200_000u32).map(|at| (at % 253) as u8).collect();
    let edge = stream::STREAM_BYTES;
    for (offset, len) in [(0, 1), (512, edge - 1), (32, edge), (64, edge + 33), (33, 150_001)] {
        write(&ram, offset, &bytes[1..=len]);
        assert!(read(&ram, offset, len) == bytes[1..=len], "{len} bytes at {offset}");
    }
}

#[test]
fn zeroing_reaches_exactly_the_range() {
    let ram = Ram::new(64 << 10).unwrap();
    let ranges = [(0, 100), (4096, 4096), (100, 3 * 4096), (4096 - 512, 2 * 512), (60 << 10, 4096)];
    for (offset, len) in ranges {
        write(&ram, 0, &[7; 64 << 10]);
        ram.zero(offset, len);
        let bytes = read(&ram, 0, 64 << 10);
        assert!(bytes[offset..offset + len].iter().all(|&byte| byte == 0));
        let rest = bytes[..offset].iter().chain(&bytes[offset + len..]);
        assert!(rest.into_iter().all(|&byte| byte == 7), "{len} bytes at {offset}");
    }
}

#[test]
#[should_panic(expected = "within the member")]
fn nothing_is_moved_beyond_the_end() {
    read(&Ram::new(4096).unwrap(), 4000, 97);
}

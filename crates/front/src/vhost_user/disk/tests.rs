use super::*;
use crate::nbd::export::{BlockSizes, ReadOnlySwitch};

fn exports(minimum: u32, preferred: u32) -> Exports {
    let export = Export {
        name: "a name that is longer than a serial number".into(),
        description: String::new(),
        size_bytes: 5 << 20,
        block_sizes: BlockSizes::new(minimum, preferred).expect("powers of two"),
        read_only: false,
        rotational: false,
        trim: true,
        fast_zero: false,
    };
    Exports::new(vec![export]).expect("one export")
}

fn number(disk: &Disk, offset: u32, bytes: u32) -> u64 {
    let mut all = disk.config(offset, bytes).expect("it is there");
    all.resize(8, 0);
    u64::from_le_bytes(all.try_into().expect("eight bytes"))
}

#[test]
fn the_configuration_tells_size_blocks_and_rings() {
    let disk = Disk::new(&exports(512, 64 << 10), 3 * 128, 3);
    assert_eq!(number(&disk, 0, 8), 5 << 11, "capacity in sectors");
    assert_eq!(number(&disk, 20, 4), 512, "logical block");
    assert_eq!(number(&disk, 24, 1), 3, "physical block is 8 logical ones");
    assert_eq!((number(&disk, 26, 2), number(&disk, 28, 4)), (128, 384), "a chunk, and a row");
    assert_eq!(number(&disk, 34, 2), 3, "rings");
    let disk = Disk::new(&exports(4096, 1 << 20), u64::MAX, 1);
    assert_eq!((number(&disk, 20, 4), number(&disk, 24, 1)), (4096, 0));
    assert_eq!((number(&disk, 26, 2), number(&disk, 28, 4)), (256, 1), "a row has no end");
    assert_eq!(&disk.serial(), b"a name that is longe");
}

#[test]
fn a_disk_has_whole_blocks_before_its_end() {
    let (small, large) =
        (Disk::new(&exports(512, 4096), 1, 1), Disk::new(&exports(4096, 4096), 1, 1));
    let end = small.sectors();
    assert!(small.has(end - 1, 1) && small.has(0, end) && small.has(end, 0));
    assert!(large.has(8, 8) && large.has(end - 8, 8));
    for (sector, sectors) in [(end, 1), (end - 1, 2), (u64::MAX, 1), (1, u64::MAX)] {
        assert!(!small.has(sector, sectors), "{sector} {sectors}");
    }
    for (sector, sectors) in [(8, 1), (1, 8), (7, 1), (0, 12)] {
        assert!(small.has(sector, sectors) && !large.has(sector, sectors), "{sector} {sectors}");
    }
}

#[test]
fn the_configuration_ends() {
    let disk = Disk::new(&exports(512, 4096), 1, 1);
    assert_eq!(disk.config(0, 96).map(|all| all.len()), Some(96));
    for (offset, bytes) in [(0, 97), (96, 1), (u32::MAX, 1), (1, u32::MAX), (u32::MAX, u32::MAX)] {
        assert_eq!(disk.config(offset, bytes), None, "{offset} {bytes}");
    }
}

#[test]
fn a_disk_is_read_only_while_the_array_is() {
    let switch = ReadOnlySwitch::default();
    let exports = exports(512, 4096).switched_by(&switch);
    let changes = feature::DISCARD | feature::WRITE_ZEROES;
    assert_eq!(Disk::new(&exports, 1, 1).features() & (feature::RO | changes), changes);
    switch.turn(true);
    assert_eq!(Disk::new(&exports, 1, 1).features() & (feature::RO | changes), feature::RO);
}

use super::*;
use crate::nbd::export::{BlockSizes, Export, Exports};
use crate::vhost_user::chain::Table;
use crate::vhost_user::client::{NEXT, WRITE, descriptor};

const SECTORS: u64 = 1000;
const HEADER: u64 = 0x2000;
const DATA: u64 = 0x4000;
const STATUS: u64 = 0x3000;

fn disk(read_only: bool) -> Disk {
    let export = Export {
        name: "disk".into(),
        description: String::new(),
        size_bytes: SECTORS * SECTOR_BYTES,
        block_sizes: BlockSizes::new(512, 4096).expect("powers of two"),
        read_only,
        rotational: false,
        trim: true,
        fast_zero: false,
    };
    Disk::new(&Exports::new(vec![export]).expect("one export"), 1, 1)
}

/// A request of this type, with `bytes` of data, of which the first ones are `data`.
fn parsed(disk: &Disk, kind: u32, sector: u64, bytes: u32, is_read: bool, data: &[u8]) -> Wanted {
    let memory = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 64 << 20)]).expect("memory");
    let put = |bytes: &[u8], at| memory.write_slice(bytes, GuestAddress(at)).expect("inside");
    put(&[&kind.to_le_bytes()[..], &[0; 4], &sector.to_le_bytes()].concat(), HEADER);
    put(data, DATA);
    let flags = if is_read { WRITE | NEXT } else { NEXT };
    let next = if bytes == 0 { 2 } else { 1 };
    let table = [
        descriptor(HEADER, 16, NEXT, next),
        descriptor(DATA, bytes, flags, 2),
        descriptor(STATUS, 1, WRITE, 0),
    ];
    put(&table.concat(), 0x1000);
    let table = Table { address: GuestAddress(0x1000), size: 4, is_indirect: false };
    let chain = Chain::walk(&memory, table, 0).expect("a chain");
    let request = Request::parse(&memory, chain, disk).expect("a request");
    assert_eq!(request.status, GuestAddress(STATUS));
    request.wanted
}

const FAILS: Wanted = Wanted::Answer(Status::IoError);

#[test]
fn reads_and_writes_lie_on_the_disk_or_fail() {
    let (disk, read_only) = (disk(false), disk(true));
    let wanted = Wanted::Read { sector: 999, bytes: 512 };
    assert_eq!(parsed(&disk, kind::IN, 999, 512, true, &[]), wanted);
    let wanted = Wanted::Write { sector: 998, bytes: 1024 };
    assert_eq!(parsed(&disk, kind::OUT, 998, 1024, false, &[]), wanted);
    assert_eq!(parsed(&read_only, kind::OUT, 998, 1024, false, &[]), FAILS);
    for sector in [1000, 999, u64::MAX, u64::MAX - 1, 1 << 55] {
        assert_eq!(parsed(&disk, kind::IN, sector, 1024, true, &[]), FAILS);
        assert_eq!(parsed(&disk, kind::OUT, sector, 1024, false, &[]), FAILS);
    }
    assert_eq!(parsed(&disk, kind::IN, 0, 513, true, &[]), FAILS);
    assert_eq!(parsed(&disk, kind::IN, 0, 33 << 20, true, &[]), FAILS, "more than is held");
    assert_eq!(parsed(&disk, kind::IN, 0, 0, true, &[]), Wanted::Answer(Status::Ok));
}

#[test]
fn ranges_are_zeroed_and_discarded_by_the_letter() {
    let (disk, read_only) = (disk(false), disk(true));
    let range = |sector: u64, sectors: u32, flags: u32| {
        [&sector.to_le_bytes()[..], &sectors.to_le_bytes(), &flags.to_le_bytes()].concat()
    };
    let zero = |range: &[u8]| parsed(&disk, kind::WRITE_ZEROES, 0, 16, false, range);
    let discard = |range: &[u8]| parsed(&disk, kind::DISCARD, 0, 16, false, range);
    for unmap in [false, true] {
        let wanted = Wanted::Zero { sector: 8, sectors: 16, unmap };
        assert_eq!(zero(&range(8, 16, unmap.into())), wanted);
    }
    assert_eq!(discard(&range(8, 16, 0)), Wanted::Discard { sector: 8, sectors: 16 });
    assert_eq!(discard(&range(8, 16, 1)), Wanted::Answer(Status::Unsupported));
    assert_eq!(zero(&range(8, 16, 2)), Wanted::Answer(Status::Unsupported));
    assert_eq!(zero(&range(8, 0, 0)), Wanted::Answer(Status::Ok));
    for (sector, sectors) in [(1000, 1), (0, 1001), (u64::MAX, 1), (1, u32::MAX)] {
        assert_eq!(zero(&range(sector, sectors, 0)), FAILS);
        assert_eq!(discard(&range(sector, sectors, 0)), FAILS);
    }
    let more = parsed(&disk, kind::DISCARD, 0, 32, false, &range(0, 1, 0));
    assert_eq!(more, FAILS, "two ranges, where one was announced");
    let refused = parsed(&read_only, kind::DISCARD, 0, 16, false, &range(0, 1, 0));
    assert_eq!(refused, FAILS);
}

#[test]
fn names_need_room_and_other_types_are_not_supported() {
    let disk = disk(false);
    assert_eq!(parsed(&disk, kind::GET_ID, 0, 20, true, &[]), Wanted::Identify);
    assert_eq!(parsed(&disk, kind::GET_ID, 0, 19, true, &[]), FAILS);
    assert_eq!(parsed(&disk, kind::FLUSH, 0, 0, true, &[]), Wanted::Flush);
    assert_eq!(parsed(&disk, 2, 0, 0, true, &[]), Wanted::Answer(Status::Unsupported));
}

use super::*;
use crate::vhost_user::client::{INDIRECT, NEXT, WRITE, descriptor};

const TABLE: Table = Table { address: GuestAddress(0x1000), size: 8, is_indirect: true };
const DATA: u64 = 0x4000;
const OTHER_TABLE: u64 = 0x2000;
const MEMORY_BYTES: u64 = 0x10000;

/// Guest memory with these descriptors in its table.
fn memory(descriptors: &[[u8; 16]]) -> GuestMemoryMmap {
    let range = (GuestAddress(0), MEMORY_BYTES as usize);
    let memory = GuestMemoryMmap::from_ranges(&[range]).expect("memory");
    put(&memory, TABLE.address.0, descriptors);
    memory
}

fn put(memory: &GuestMemoryMmap, at: u64, descriptors: &[[u8; 16]]) {
    memory.write_slice(&descriptors.concat(), GuestAddress(at)).expect("in the memory");
}

fn walk(descriptors: &[[u8; 16]]) -> Result<Chain, BadChain> {
    Chain::walk(&memory(descriptors), TABLE, 0)
}

fn span(address: u64, bytes: usize) -> Span {
    Span { address: GuestAddress(address), bytes }
}

#[test]
fn a_chain_is_followed_to_its_end_also_through_a_table_of_its_own() {
    let first = descriptor(DATA, 16, NEXT, 3);
    let last = descriptor(DATA + 512, 513, WRITE, 0);
    let direct = walk(&[first, [0; 16], [0; 16], last]).expect("a chain");
    assert_eq!(direct.readable.0[..], [span(DATA, 16)]);
    assert_eq!(direct.writable.0[..], [span(DATA + 512, 513)]);
    let memory = memory(&[descriptor(OTHER_TABLE, 64, INDIRECT, 0)]);
    put(&memory, OTHER_TABLE, &[first, [0; 16], [0; 16], last]);
    assert_eq!(Chain::walk(&memory, TABLE, 0), Ok(direct.clone()));
    let without = Table { is_indirect: false, ..TABLE };
    assert_eq!(Chain::walk(&memory, without, 0), Err(BadChain::Indirect), "it was not agreed");
    // Some that stand in the ring's own table may come first.
    put(
        &memory,
        TABLE.address.0,
        &[first, [0; 16], [0; 16], descriptor(OTHER_TABLE, 16, INDIRECT, 0)],
    );
    put(&memory, OTHER_TABLE, &[last]);
    assert_eq!(Chain::walk(&memory, TABLE, 0), Ok(direct));
}

#[test]
fn hostile_chains_are_told_apart() {
    let ok = descriptor(DATA, 16, 0, 0);
    let cases = [
        (walk(&[descriptor(DATA, 16, NEXT, 0)]), BadChain::Loop),
        (walk(&[descriptor(DATA, 16, NEXT, 1), descriptor(DATA, 16, NEXT, 0)]), BadChain::Loop),
        (walk(&[descriptor(DATA, 16, NEXT, 8)]), BadChain::Index(8)),
        (walk(&[descriptor(MEMORY_BYTES - 15, 16, 0, 0)]), BadChain::Outside),
        (walk(&[descriptor(u64::MAX, 16, 0, 0)]), BadChain::Outside),
        (walk(&[descriptor(DATA, u32::MAX, 0, 0)]), BadChain::Outside),
        (walk(&[descriptor(DATA, 0, 0, 0)]), BadChain::Empty),
        (walk(&[descriptor(DATA, 16, NEXT | WRITE, 1), ok]), BadChain::Order),
        (walk(&[descriptor(OTHER_TABLE, 16, INDIRECT | NEXT, 1), ok]), BadChain::Indirect),
        (walk(&[descriptor(OTHER_TABLE, 17, INDIRECT, 0)]), BadChain::Indirect),
        (walk(&[descriptor(OTHER_TABLE, 0, INDIRECT, 0)]), BadChain::Indirect),
        (walk(&[descriptor(OTHER_TABLE, 1 << 20, INDIRECT, 0)]), BadChain::Indirect),
        (walk(&[descriptor(u64::MAX - 7, 16, INDIRECT, 0)]), BadChain::Outside),
        (walk(&[descriptor(TABLE.address.0, 16, INDIRECT, 0)]), BadChain::Indirect),
        (Chain::walk(&memory(&[ok]), TABLE, 9), BadChain::Index(9)),
    ];
    for (at, (result, why)) in cases.into_iter().enumerate() {
        assert_eq!(result, Err(why), "case {at}");
    }
    let huge = GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 3 << 30)]).expect("memory");
    let long = descriptor(0, 3 << 30, NEXT, 1);
    put(&huge, TABLE.address.0, &[long, long]);
    assert_eq!(Chain::walk(&huge, TABLE, 0), Err(BadChain::TooLong));
    let memory = memory(&[descriptor(OTHER_TABLE, 2048 * 16, INDIRECT, 0)]);
    let next = |at: u16| descriptor(DATA, 1, NEXT, at + 1);
    put(&memory, OTHER_TABLE, &(0..2048).map(next).collect::<Vec<_>>());
    assert_eq!(Chain::walk(&memory, TABLE, 0), Err(BadChain::TooMany));
}

#[test]
fn spans_are_split_copied_and_give_their_last_byte() {
    let memory = memory(&[]);
    let mut spans = Spans([span(DATA, 3), span(DATA + 100, 5)].into_iter().collect());
    assert_eq!(spans.bytes(), 8);
    spans.write(&memory, b"abcdefgh").expect("in the memory");
    let mut copy = [0; 8];
    spans.read(&memory, &mut copy).expect("in the memory");
    assert_eq!(&copy, b"abcdefgh");
    let front = spans.clone().split_off_front(4).expect("there is more");
    assert_eq!(front.0[..], [span(DATA, 3), span(DATA + 100, 1)]);
    assert!(spans.clone().split_off_front(9).is_none());
    assert_eq!(spans.pop_byte(), Some(GuestAddress(DATA + 104)));
    let front = spans.split_off_front(3).expect("there is more");
    assert_eq!((front.bytes(), spans.0[..].to_vec()), (3, vec![span(DATA + 100, 4)]));
    let mut one = Spans([span(DATA, 1)].into_iter().collect());
    assert_eq!((one.pop_byte(), one.pop_byte()), (Some(GuestAddress(DATA)), None));
}

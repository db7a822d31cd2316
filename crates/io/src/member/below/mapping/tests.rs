use super::*;

const DISK: u64 = libc::makedev(7, 0);

impl Part {
    /// So many sectors of a mapping, as they are on another device.
    pub(in crate::member::below) fn linear(from: u64, count: u64, device: u64, at: u64) -> Self {
        let bytes = |start| sectors(start, count).expect("some sectors");
        Self { from: bytes(from), device, at: bytes(at), in_order: true }
    }
}

fn target(start: u64, sectors: u64, kind: &str, words: &str) -> Target {
    Target { start, sectors, kind: kind.into(), words: words.into() }
}

/// An answer as the kernel writes it.
fn answer(targets: &[Target]) -> Vec<u8> {
    let mut data = Vec::new();
    for target in targets {
        let start = data.len();
        data.extend(target.start.to_ne_bytes());
        data.extend(target.sectors.to_ne_bytes());
        data.extend([0; 8]);
        let mut kind = target.kind.clone().into_bytes();
        kind.resize(16, 0);
        data.extend(kind);
        data.extend(target.words.bytes());
        data.push(0);
        data.resize(data.len().next_multiple_of(8), 0);
        let next = data.len() as u32;
        data[start + NEXT_AT..start + NEXT_AT + 4].copy_from_slice(&next.to_ne_bytes());
    }
    let mut answer = vec![0; HEADER_BYTES];
    answer[DATA_START_AT..DATA_START_AT + 4].copy_from_slice(&(HEADER_BYTES as u32).to_ne_bytes());
    answer[TARGETS_AT..TARGETS_AT + 4].copy_from_slice(&(targets.len() as u32).to_ne_bytes());
    answer.extend(data);
    answer
}

#[test]
fn a_table_is_read_as_the_kernel_writes_it_and_never_behind_its_end() {
    let targets = || {
        vec![
            target(0, 6400, "linear", "7:3 0"),
            target(6400, 8, "error", ""),
            target(6408, 92, "linear", "7:3 6408"),
        ]
    };
    let answer = answer(&targets());
    assert_eq!(parse(&answer), Some(targets()));
    for end in 0..answer.len() {
        // What is cut may hide a word, never read what is not there.
        drop(parse(&answer[..end]));
    }
    assert_eq!(parse(&answer[..HEADER_BYTES + TARGET_BYTES - 1]), None);
    let mut far = answer.clone();
    far[HEADER_BYTES + NEXT_AT..HEADER_BYTES + NEXT_AT + 4]
        .copy_from_slice(&u32::MAX.to_ne_bytes());
    assert_eq!(parse(&far), None);
}

#[test]
fn linear_and_striped_targets_say_which_bytes_they_are() {
    let table = [target(0, 100, "linear", "7:0 8"), target(100, 8, "error", "")];
    assert_eq!(parts_of(&table), Some(vec![Part::linear(0, 100, DISK, 8)]));
    let striped = [target(0, 64, "striped", "2 16 7:0 8 7:1 24")];
    let parts = parts_of(&striped).expect("two devices");
    let at: Vec<_> = parts.iter().map(|part| (part.device, part.at)).collect();
    let bytes = |start| sectors(start, 32).expect("some sectors");
    assert_eq!(at, [(DISK, bytes(8)), (libc::makedev(7, 1), bytes(24))]);
    assert_eq!(parts[0].below(Bytes::new(0, 512)), Some(bytes(8)), "anywhere among them");
    for unknown in ["7:0", "", "disk 8", "7:0 -1", "7:0 99999999999999999"] {
        assert_eq!(parts_of(&[target(0, 8, "linear", unknown)]), None, "{unknown:?}");
    }
    assert_eq!(parts_of(&[target(0, 8, "striped", "0 16")]), None);
    assert_eq!(parts_of(&[target(0, 8, "thin", "253:2 1")]), None);
}

#[test]
fn bytes_of_a_mapping_are_found_below_it() {
    let part = Part::linear(8, 16, DISK, 100);
    let sectors = |start, count| sectors(start, count).expect("some sectors");
    assert_eq!(part.below(Bytes::ALL), Some(sectors(100, 16)));
    assert_eq!(part.below(sectors(0, 9)), Some(sectors(100, 1)));
    assert_eq!(part.below(sectors(10, 4)), Some(sectors(102, 4)));
    assert_eq!(part.below(sectors(20, 40)), Some(sectors(112, 4)));
    assert_eq!(part.below(sectors(0, 8)), None);
    assert_eq!(part.below(sectors(24, 8)), None);
}

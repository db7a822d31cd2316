//! The fuzz targets on stable Rust: every file of the corpus, then short runs of mutations of it.

use std::fs;
use std::path::PathBuf;

use mdspace_format::{BadBlocks, DirtyMap, MetadataVersion};

use crate::fuzzed;
use crate::seeded::{Random, for_seeds};
use crate::specimen::{Specimen, bitmap};

fn folder(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/format/corpus").join(target)
}

fn corpus(target: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<_> =
        fs::read_dir(folder(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "no corpus of {target}");
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

fn replay_and_mutate(test: &'static str, target: &str, run: fn(&[u8])) {
    let corpus = corpus(target);
    corpus.iter().for_each(|input| run(input));
    for_seeds(test, 5000, |random| {
        let mut input = random.pick(&corpus);
        for _ in 0..random.below(1..8) {
            mutate(&mut input, &corpus, random);
        }
        run(&input);
    });
}

fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let at = random.below(0..input.len() as u64 + 1) as usize;
    let interesting = [0u64, 1, 0x7f, 0xff, 0x7fff_ffff, 0xffff_ffff, 1 << 54, 1 << 63, u64::MAX];
    match random.below(0..6) {
        0 if at < input.len() => input[at] ^= 1 << random.below(0..8),
        1 if at + 8 <= input.len() => {
            let bytes = random.pick(&interesting).to_le_bytes();
            let length = random.pick(&[1, 2, 4, 8]);
            input[at..at + length].copy_from_slice(&bytes[..length]);
        }
        2 => input.truncate(at),
        3 => {
            let other = random.pick(corpus);
            let from = at.min(other.len());
            input.splice(at..input.len(), other[from..].iter().copied());
        }
        4 => input.extend_from_slice(&random.bytes::<16>()),
        _ if at < input.len() => input[at] = random.next() as u8,
        _ => {}
    }
}

#[test]
fn no_superblock_panics() {
    replay_and_mutate("no_superblock_panics", "superblock", fuzzed::superblock);
}

#[test]
fn no_bitmap_panics() {
    replay_and_mutate("no_bitmap_panics", "bitmap", fuzzed::bitmap);
}

#[test]
fn no_bad_block_log_panics() {
    replay_and_mutate("no_bad_block_log_panics", "bad_blocks", fuzzed::bad_blocks);
}

#[test]
fn a_bug_planted_behind_two_bytes_is_found() {
    let planted = |input: &[u8]| assert!(input.get(1) != Some(&0xff) || input.len() < 300);
    let run = || replay_and_mutate("planted", "bitmap", planted);
    assert!(std::panic::catch_unwind(run).is_err(), "the mutations reach too little");
}

#[test]
#[ignore = "writes the first files of the corpus; finds of the long runs are added by hand"]
fn write_the_corpus() {
    let write = |target: &str, name: &str, input: Vec<u8>| {
        fs::create_dir_all(folder(target)).unwrap();
        fs::write(folder(target).join(name), input).unwrap();
    };
    for (index, version) in MetadataVersion::PROBE_ORDER.into_iter().enumerate() {
        let Specimen { superblock, device_sectors } = Specimen::raid6(version);
        let bytes = &superblock.encode()[..superblock.length_bytes()];
        let whole = [&[index as u8, 1], &device_sectors.to_le_bytes()[..], bytes].concat();
        write("superblock", &format!("raid6-{version}"), whole);
    }
    for_seeds("write_the_corpus", 8, |random| {
        let Specimen { superblock, device_sectors } = Specimen::random(random);
        let index = superblock.place.version.minor() as u8;
        let bytes = &superblock.encode()[..superblock.length_bytes()];
        let whole = [&[index, 1], &device_sectors.to_le_bytes()[..], bytes].concat();
        write("superblock", &format!("{}-{}", superblock.level, superblock.events % 1000), whole);
    });
    let header = bitmap(20_000);
    let mut map = DirtyMap::new(header.chunks());
    assert!([3, 4, 5, 1000, 2499].into_iter().all(|chunk| map.set(chunk)));
    let page = header.encode_page(&map, 0);
    write("bitmap", "five-dirty", [&[8, 0], &page[..768]].concat());
    write("bitmap", "header-only", [&[8, 0], &header.encode()[..]].concat());
    let mut blocks = BadBlocks::new();
    [8..16, 100..2000, 4096..4097].into_iter().for_each(|range| blocks.add(range));
    write("bad_blocks", "three", [&[0], &blocks.encode(1, 0).unwrap()[..]].concat());
    write("bad_blocks", "shifted", [&[3], &blocks.encode(1, 3).unwrap()[..]].concat());
}

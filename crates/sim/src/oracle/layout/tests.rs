//! The naive layouts against what the real md wrote.

use std::fmt::Write;
use std::path::PathBuf;

use super::*;

/// What the fixtures say of one array.
struct Fixture {
    shape: Shape,
    array_sectors: u64,
    /// Lines of slots and exponents, as they stand in the file.
    lines: Vec<String>,
}

fn fixtures(name: &str) -> Vec<Fixture> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../engine/tests/fixtures/layouts")
        .join(name)
        .with_extension("txt");
    let text = std::fs::read_to_string(&path).unwrap();
    let arrays: Vec<_> = text.split("\n\n").filter_map(|part| fixture(part.trim())).collect();
    assert!(!arrays.is_empty(), "{} holds arrays", path.display());
    arrays
}

fn fixture(text: &str) -> Option<Fixture> {
    let head = text.strip_prefix("array ")?;
    let mut lines = head.lines();
    let words = format!("{} {}", lines.next()?, lines.next()?);
    let value = |key: &str| {
        let start = words.find(key).unwrap_or_else(|| panic!("{key} in {words}")) + key.len() + 1;
        &words[start..]
    };
    let number = |key| value(key).split(' ').next().unwrap().parse::<u64>().unwrap();
    let hex = value("layout").split(' ').next().unwrap().strip_prefix("0x").unwrap();
    let level = match value("level").split(' ').next().unwrap() {
        "linear" => -1,
        raid => raid.strip_prefix("raid").unwrap().parse().unwrap(),
    };
    let mut member_sectors: Vec<u64> =
        value("member_sectors").split(' ').map(|word| word.parse().unwrap()).collect();
    member_sectors.resize(number("raid_disks") as usize, member_sectors[0]);
    let layout = u32::from_str_radix(hex, 16).unwrap();
    let shape = Shape { level, layout, chunk_sectors: number("chunk_sectors"), member_sectors };
    let lines = lines.map(str::to_owned).collect();
    Some(Fixture { shape, array_sectors: number("array_sectors"), lines })
}

/// What a sector of a member holds.
#[derive(Clone, Copy, PartialEq)]
enum Content {
    Unused,
    Data(u64),
    P,
    Q,
}

/// The whole array in the fixtures' words.
fn describe(shape: &Shape, array_sectors: u64) -> Vec<String> {
    let mut slots: Vec<Vec<Content>> =
        shape.member_sectors.iter().map(|&len| vec![Content::Unused; len as usize]).collect();
    for sector in 0..array_sectors {
        for place in shape.places(sector) {
            slots[place.slot][place.sector as usize] = Content::Data(sector);
        }
    }
    let rows = if shape.has_parity() { shape.rows() } else { 0 };
    for row in 0..rows {
        let Row { p, q, .. } = shape.row(row);
        let sectors = (row * shape.chunk_sectors) as usize..;
        let chunk = shape.chunk_sectors as usize;
        slots[p][sectors.clone()][..chunk].fill(Content::P);
        if let Some(q) = q {
            slots[q][sectors][..chunk].fill(Content::Q);
        }
    }
    let slots = (0..).zip(&slots).map(|(slot, content): (usize, _)| describe_slot(slot, content));
    slots.chain((0..rows).filter_map(|row| describe_exponents(shape, row))).collect()
}

fn describe_slot(slot: usize, content: &[Content]) -> String {
    let mut line = format!("slot {slot}:");
    let mut at = 0;
    while at < content.len() {
        let goes_on = |step: &usize| match content[at] {
            Content::Data(first) => content[at + step] == Content::Data(first + *step as u64),
            same => content[at + step] == same,
        };
        let run = (0..content.len() - at).take_while(goes_on).count();
        match content[at] {
            Content::Data(first) => write!(line, " {first}+{run}"),
            Content::P => write!(line, " P+{run}"),
            Content::Q => write!(line, " Q+{run}"),
            Content::Unused => write!(line, " -+{run}"),
        }
        .unwrap();
        at += run;
    }
    line
}

fn describe_exponents(shape: &Shape, row: u64) -> Option<String> {
    let exponents = shape.row(row).exponents;
    let words = exponents.iter().map(|e| e.map_or("-".to_owned(), |e| e.to_string()));
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| format!("exponents {row}: {}", words.join(" ")))
}

fn check(name: &str) {
    for Fixture { shape, array_sectors, lines } in fixtures(name) {
        assert_eq!(describe(&shape, array_sectors), lines, "{shape:?}");
    }
}

#[test]
fn linear_lies_as_md_laid_it() {
    check("linear");
}

#[test]
fn raid0_lies_as_md_laid_it() {
    check("raid0");
}

#[test]
fn raid1_lies_as_md_laid_it() {
    check("raid1");
}

#[test]
fn raid4_lies_as_md_laid_it() {
    check("raid4");
}

#[test]
fn raid5_lies_as_md_laid_it() {
    check("raid5");
}

#[test]
fn raid6_lies_as_md_laid_it() {
    check("raid6");
}

#[test]
fn raid10_lies_as_md_laid_it() {
    check("raid10");
}

#[test]
fn a_wrong_layout_does_not_pass_for_the_right_one() {
    for Fixture { mut shape, array_sectors, lines } in fixtures("raid5") {
        shape.layout = (shape.layout + 1) % 6;
        assert_ne!(describe(&shape, array_sectors), lines, "{shape:?}");
    }
}

//! mdadm's words for md's layouts, both ways. Layouts are numbers whose meaning hangs on the level.

use crate::Level;

/// Layouts of RAID5 that RAID6 has too, by number.
const PARITY_LAYOUTS: [&str; 6] = [
    "left-asymmetric",
    "right-asymmetric",
    "left-symmetric",
    "right-symmetric",
    "parity-first",
    "parity-last",
];

/// Layouts that only RAID6 has.
const RAID6_LAYOUTS: [(u32, &str); 8] = [
    (8, "ddf-zero-restart"),
    (9, "ddf-N-restart"),
    (10, "ddf-N-continue"),
    (16, "left-asymmetric-6"),
    (17, "right-asymmetric-6"),
    (18, "left-symmetric-6"),
    (19, "right-symmetric-6"),
    (20, "parity-first-6"),
];

/// Words of mdadm that stand for another layout's.
const LAYOUT_ALIASES: [(&str, &str); 6] = [
    ("la", "left-asymmetric"),
    ("ra", "right-asymmetric"),
    ("ls", "left-symmetric"),
    ("rs", "right-symmetric"),
    ("default", "left-symmetric"),
    ("parity-last-6", "parity-last"),
];

/// The layout number that `word` names for `level`; none where the level has no such layout.
pub fn number(level: Level, word: &str) -> Option<u32> {
    if let Ok(number) = word.parse::<u32>() {
        return self::word(level, number).map(|_| number);
    }
    match level {
        Level::Raid0 => {
            ["original", "alternate"].iter().position(|w| *w == word).map(|at| at as u32 + 1)
        }
        Level::Raid5 | Level::Raid6 => parity_layout_number(level, word),
        Level::Raid10 => raid10_layout_number(word),
        _ => None,
    }
}

/// The layout of an array for which none was named, as mdadm: left-symmetric, original, or two near copies.
pub fn default_number(level: Level) -> u32 {
    match level {
        Level::Raid0 => 1,
        Level::Raid5 | Level::Raid6 => 2,
        Level::Raid10 => 0x102,
        Level::Linear | Level::Raid1 | Level::Raid4 => 0,
    }
}

/// What there is to choose from, for people.
pub fn choices(level: Level) -> &'static str {
    match level {
        Level::Raid0 => "it has original and alternate",
        Level::Raid5 => {
            "it has left-symmetric (the default), right-symmetric, left-asymmetric, right-asymmetric, parity-first \
             and parity-last"
        }
        Level::Raid6 => {
            "it has left-symmetric (the default), right-symmetric, left-asymmetric, right-asymmetric, parity-first, \
             parity-last, ddf-zero-restart, ddf-N-restart, ddf-N-continue, and the first five with -6 behind them"
        }
        Level::Raid10 => "it has nN, fN and oN, N copies near, far or at an offset: n2, f2, o2",
        Level::Linear | Level::Raid1 | Level::Raid4 => "leave the layout out: it has but one",
    }
}

/// mdadm's word for a layout; none where the level has no layouts or not this one.
pub fn word(level: Level, layout: u32) -> Option<String> {
    match level {
        Level::Raid0 => ["original", "alternate"]
            .get(usize::try_from(layout).ok()?.checked_sub(1)?)
            .map(|word| (*word).to_owned()),
        Level::Raid5 | Level::Raid6 => parity_layout_word(level, layout).map(str::to_owned),
        Level::Raid10 => raid10_layout_word(layout),
        _ => None,
    }
}

fn parity_layout_number(level: Level, word: &str) -> Option<u32> {
    let word = LAYOUT_ALIASES.iter().find(|(alias, _)| *alias == word).map_or(word, |(_, w)| w);
    let common = PARITY_LAYOUTS.iter().position(|w| *w == word).map(|at| at as u32);
    let raid6 = || RAID6_LAYOUTS.iter().find(|(_, w)| *w == word).map(|(number, _)| *number);
    common.or_else(|| if level == Level::Raid6 { raid6() } else { None })
}

fn parity_layout_word(level: Level, layout: u32) -> Option<&'static str> {
    let common = usize::try_from(layout).ok().and_then(|at| PARITY_LAYOUTS.get(at)).copied();
    let raid6 = || RAID6_LAYOUTS.iter().find(|(number, _)| *number == layout).map(|(_, w)| *w);
    common.or_else(|| if level == Level::Raid6 { raid6() } else { None })
}

/// `n2`, `f2`, `o2`: near copies in bits 0 to 7, far copies in 8 to 15, bit 16 for offset.
fn raid10_layout_number(word: &str) -> Option<u32> {
    let word = if word == "default" { "n2" } else { word };
    let copies: u32 = word.get(1..)?.parse().ok().filter(|copies| (1..=255).contains(copies))?;
    match word.as_bytes()[0] {
        b'n' => Some(copies | 1 << 8),
        b'f' => Some(1 | copies << 8),
        b'o' => Some(1 | copies << 8 | 1 << 16),
        _ => None,
    }
}

fn raid10_layout_word(layout: u32) -> Option<String> {
    let (near, far, offset) = raid10_copies(layout)?;
    let words: Vec<String> = [
        (near > 1 || far == 1).then(|| format!("near={near}")),
        (far > 1).then(|| format!("{}={far}", if offset { "offset" } else { "far" })),
    ]
    .into_iter()
    .flatten()
    .collect();
    Some(words.join(", "))
}

/// Near copies, far copies, and whether the far ones are at an offset.
pub fn raid10_copies(layout: u32) -> Option<(u32, u32, bool)> {
    let (near, far) = (layout & 0xff, layout >> 8 & 0xff);
    (near > 0 && far > 0 && layout >> 19 == 0).then_some((near, far, layout & 1 << 16 != 0))
}

#[cfg(test)]
mod tests;

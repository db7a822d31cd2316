//! The arrays that both sides make, read, degrade and rebuild.

use std::borrow::Cow;

/// One array: its shape, and what happens to it.
pub(crate) struct Case {
    /// Names its images and the array.
    pub(crate) name: Cow<'static, str>,
    /// As both commands write it.
    pub(crate) level: &'static str,
    /// Members, spares not counted.
    pub(crate) members: usize,
    /// As both commands write it; empty for levels without.
    pub(crate) layout: &'static str,
    /// 0 for levels without.
    pub(crate) chunk_kib: u32,
    /// Metadata version.
    pub(crate) metadata: &'static str,
    /// Whether it has an internal bitmap.
    pub(crate) bitmap: bool,
    /// Slots that its maker fails after the first fill; the other side rebuilds them.
    pub(crate) failed: &'static [usize],
}

impl Case {
    /// Whether the level has anything to compare.
    pub(crate) fn redundant(&self) -> bool {
        !matches!(self.level, "0" | "linear")
    }

    /// Options of create, the same for both commands.
    pub(crate) fn options(&self) -> Vec<String> {
        let mut options = vec![
            format!("--level={}", self.level),
            format!("--raid-devices={}", self.members),
            format!("--metadata={}", self.metadata),
        ];
        if self.metadata != "1.0" {
            options.push("--data-offset=1M".into());
        }
        if self.chunk_kib != 0 {
            options.push(format!("--chunk={}", self.chunk_kib));
        }
        if !self.layout.is_empty() {
            options.push(format!("--layout={}", self.layout));
        }
        if self.redundant() {
            options.push("--size=4M".into());
            options.push(format!("--bitmap={}", if self.bitmap { "internal" } else { "none" }));
        }
        options
    }
}

macro_rules! case {
    ($name:literal, $level:literal, $members:literal, $layout:literal, $chunk:literal,
     $metadata:literal, $bitmap:literal, $failed:expr) => {
        Case {
            name: Cow::Borrowed($name),
            level: $level,
            members: $members,
            layout: $layout,
            chunk_kib: $chunk,
            metadata: $metadata,
            bitmap: $bitmap,
            failed: $failed,
        }
    };
}

/// A spread of levels, layouts, chunks, metadata versions, bitmaps and losses; the matrix has them all.
#[rustfmt::skip]
pub(crate) const CASES: &[Case] = &[
    // name   level members layout               chunk metadata bitmap failed
    case!("r0a", "0",  3, "",                     64, "1.2", false, &[]),
    case!("lin", "linear", 3, "",                  0, "1.2", false, &[]),
    case!("r1b", "1",  3, "",                      0, "1.1", false, &[1]),
    case!("r4b", "4",  4, "",                    128, "1.1", false, &[3]),
    case!("r5b", "5",  4, "left-asymmetric",      64, "1.0", false, &[0]),
    case!("r5c", "5",  5, "right-asymmetric",      4, "1.1", true,  &[2]),
    case!("r6b", "6",  6, "left-symmetric",       64, "1.2", true,  &[1, 4]),
    case!("r6c", "6",  5, "left-asymmetric",      16, "1.1", false, &[0, 1]),
    case!("r6h", "6",  5, "ddf-N-restart",        64, "1.2", true,  &[0, 4]),
    case!("r10b","10", 3, "n2",                   64, "1.1", false, &[1]),
    case!("r10c","10", 4, "f2",                   64, "1.2", true,  &[0]),
    case!("r10d","10", 5, "o2",                   16, "1.0", false, &[3]),
];

//! Rules that a test breaks, one at a time, to see that it would notice. Only the feature `controls` lets
//! anybody break them.

#[cfg(feature = "controls")]
use crate::sync::atomic::{AtomicU32, Ordering};

/// What no array does without, but for such a test.
#[cfg_attr(not(feature = "controls"), expect(unreachable_pub, reason = "only tests name them"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The intent of a write stays until the last write behind has landed.
    IntentStaysForWritesBehind,
    /// A read of a write-mostly member waits for writes behind in its range.
    ReadsWaitForWritesBehind,
    /// A view without a failed member is settled when every lane has adopted it.
    LanesAdoptWhatIsSettled,
    /// It is settled when the survivors' superblocks say that the member failed.
    SurvivorsRecordWhatIsSettled,
    /// A write that passed over a failed member is answered when such a view is settled.
    WritesPastFailedMembersWait,
    /// The bitmap's bits are durable before the first write of their chunks.
    IntentIsDurableFirst,
    /// A member whose flush failed is not flushed again: the next one would go well over lost data.
    FailedFlushesStayFailed,
}

/// The rules of one array.
#[derive(Default)]
pub(crate) struct Rules {
    #[cfg(feature = "controls")]
    broken: AtomicU32,
}

impl Rules {
    /// Whether it is kept.
    #[cfg(not(feature = "controls"))]
    #[inline]
    pub(crate) fn keep(&self, _: Rule) -> bool {
        true
    }

    /// Whether it is kept.
    #[cfg(feature = "controls")]
    pub(crate) fn keep(&self, rule: Rule) -> bool {
        self.broken.load(Ordering::Relaxed) & 1 << rule as u32 == 0
    }
}

#[cfg(feature = "controls")]
impl super::Array {
    /// Breaks a rule for as long as the array runs.
    pub fn break_rule(&self, rule: Rule) {
        self.rules.broken.fetch_or(1 << rule as u32, Ordering::Relaxed);
    }
}

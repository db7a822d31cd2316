//! What was judged before, by any thread.

use std::collections::HashSet;
use std::sync::Mutex;

use super::shape::Shape;

/// Names of what was judged.
#[derive(Debug, Default)]
pub(super) struct Seen {
    shards: [Mutex<HashSet<u64>>; 16],
}

impl Seen {
    /// Whether it was not there before; it is from now on.
    pub(super) fn is_new(&self, shape: Shape, name: u64) -> bool {
        let salt = shape.level as u64 * 64 + u64::from(shape.slots) * 2 + u64::from(shape.bitmap);
        let name = name ^ (salt + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut shard = self.shards[(name >> 60) as usize].lock().expect("nothing panics under it");
        shard.insert(name)
    }
}

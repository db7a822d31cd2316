//! The end of a running array.

use std::collections::BTreeSet;

use super::{Controller, Reply, WriteMode};

impl Controller {
    /// Ends the array if nothing stands against it now: the sync task has let go and no write is
    /// under way. Everything is durable and marked clean before the answer.
    pub(super) async fn try_stop(&mut self) -> bool {
        if self.sync.is_running() {
            self.end_sync();
            return false;
        }
        if self.mode == WriteMode::Open && !self.close().await {
            // Writes are under way still: look again in a moment.
            let again = self.lane.backend().now() + std::time::Duration::from_millis(1);
            self.lane.sleep_until(again).await;
            self.array.mailbox.sync_moved();
            return false;
        }
        if matches!(self.mode, WriteMode::Clean) && self.degraded() == 0 {
            let all: BTreeSet<u64> = match &self.bitmap {
                Some(bitmap) => bitmap.map.ranges().flatten().collect(),
                None => BTreeSet::new(),
            };
            // Intent is flushed before the superblocks say clean for the last time.
            self.clear_bits(all).await;
        }
        if self.mode != WriteMode::Broken && !self.read_only {
            self.mode = WriteMode::Clean;
            if self.flush_members().await {
                self.update_superblocks().await;
            }
        }
        self.mode = WriteMode::ReadOnly;
        let epoch = self.publish();
        self.array.views.adopted(epoch).await;
        self.array.views.settle();
        self.array.views.close();
        if let Some(command) = self.stop.take() {
            (command.reply)(Ok(Reply::Done));
        }
        true
    }
}

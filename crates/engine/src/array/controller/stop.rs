//! The end of a running array.

use super::{CommandError, Controller, Reply, WriteMode};

impl Controller {
    /// Ends the array if nothing stands against it now: the sync task has let go and no write is
    /// under way. Everything is durable and marked clean before the answer.
    pub(super) async fn try_stop(&mut self) -> bool {
        if !self.come_to_rest().await {
            return false;
        }
        if self.mode == WriteMode::Clean {
            // Intent is flushed before the superblocks say clean for the last time.
            self.clear_all_bits().await;
            if self.flush_members().await {
                self.update_superblocks().await;
            }
        }
        self.mode = WriteMode::Stopped;
        let epoch = self.publish();
        let busy = self.array.views.adopted(epoch).await;
        self.array.views.settle();
        if busy {
            // A broken array's writes, or unreadable sectors that are written again.
            self.look_again_soon().await;
            return false;
        }
        self.array.views.close();
        for order in self.until_read_only.drain(..) {
            (order.reply)(Ok(Reply::Done));
        }
        if let Some(watcher) = self.watcher.take() {
            (watcher.reply)(Err(CommandError::Stopped));
        }
        if let Some(command) = self.stop.take() {
            (command.reply)(Ok(Reply::Done));
        }
        self.array.mailbox.close();
        true
    }

    async fn clear_all_bits(&mut self) {
        let Some(bitmap) = self.bitmap.as_ref().filter(|_| self.degraded() == 0) else { return };
        let all = bitmap.map.ranges().flatten().collect();
        self.clear_bits(all).await;
    }
}

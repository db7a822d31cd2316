//! The end of a running array.

use std::time::Duration;

use crate::request::RequestError;
use crate::time::Time;

use super::{Command, CommandError, Controller, Reply, WriteMode};

/// How long an order to stop by force waits for what is under way.
pub(super) const FORCE_AFTER: Duration = Duration::from_secs(10);

/// How long those that still wait have to hear that the array has ended.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Orders to end the array, not carried out yet.
pub(super) struct Stopping {
    orders: Vec<Command>,
    /// By force: when nothing is waited for any more.
    force_at: Option<Time>,
}

/// How much a stop waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// For everything that is under way: the array is marked clean.
    Orderly,
    /// Only until those that wait have heard. Superblocks and bitmap stay as they are in use.
    Forced,
    /// For nothing.
    Over,
}

impl Stopping {
    fn manner(&self, now: Time) -> Manner {
        match self.force_at {
            Some(when) if now >= when + LAST_WORDS => Manner::Over,
            Some(when) if now >= when => Manner::Forced,
            _ => Manner::Orderly,
        }
    }

    /// When the next manner begins.
    pub(super) fn next_alarm(&self, now: Time) -> Option<Time> {
        let changes = self.force_at.into_iter().flat_map(|when| [when, when + LAST_WORDS]);
        changes.filter(|when| *when > now).min()
    }
}

impl Controller {
    /// Takes an order to stop, and those that come while one waits. One that ends by force `after` some time hurries
    /// the others.
    pub(super) fn begin_to_stop(&mut self, command: Command, after: Option<Duration>) {
        let force_at = after.map(|after| self.lane.backend().now() + after);
        match &mut self.stop {
            None => self.stop = Some(Stopping { orders: vec![command], force_at }),
            Some(stopping) => {
                stopping.orders.push(command);
                stopping.force_at = stopping.force_at.into_iter().chain(force_at).min();
            }
        }
    }

    /// Ends the array if nothing stands against it now: the sync task has let go and no write is
    /// under way. Everything is durable and marked clean before the answer. By force it ends whatever
    /// stands against it, as after a crash: what was not answered is in doubt then.
    pub(super) async fn try_stop(&mut self) -> bool {
        let Some(stopping) = &self.stop else { return false };
        let manner = stopping.manner(self.lane.backend().now());
        if self.preparing > 0 && manner != Manner::Over {
            // Each has an end. Who has ordered it would take the device elsewhere, and an old write land there.
            return false;
        }
        match manner {
            Manner::Orderly if !self.come_to_rest().await => return false,
            Manner::Orderly => {}
            Manner::Forced | Manner::Over => self.end_sync(),
        }
        if self.mode == WriteMode::Clean && manner == Manner::Orderly {
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
        if (busy || self.sync.is_running()) && manner != Manner::Over {
            // A broken array's writes, or unreadable sectors that are written again.
            self.look_again_soon().await;
            return false;
        }
        let reply = self.last_reply(manner).await;
        self.array.views.close();
        self.landing.drain(..).for_each(|write| write.fail(RequestError::Stopped));
        self.refuse_orders_for_rest();
        for order in self.until_read_only.drain(..) {
            (order.reply)(Ok(Reply::Done));
        }
        if let Some(watcher) = self.watcher.take() {
            (watcher.reply)(Err(CommandError::Stopped));
        }
        for order in self.stop.take().into_iter().flat_map(|stopping| stopping.orders) {
            (order.reply)(Ok(reply.clone()));
        }
        self.array.mailbox.close();
        true
    }

    /// What is said of the end: who has not answered, where that was not waited for.
    async fn last_reply(&mut self, manner: Manner) -> Reply {
        if manner == Manner::Orderly {
            return Reply::Done;
        }
        let all = self.members.iter().map(|member| member.id).collect();
        let holding = self.still_hold(all).await;
        let members = self.members.iter().filter(|member| holding.contains(&member.id));
        Reply::Stopped { unanswered: members.map(|member| member.info.name.clone()).collect() }
    }

    async fn clear_all_bits(&mut self) {
        let Some(bitmap) = self.bitmap.as_ref().filter(|_| self.degraded() == 0) else { return };
        let all = bitmap.map.ranges().flatten().collect();
        self.clear_bits(all).await;
    }
}

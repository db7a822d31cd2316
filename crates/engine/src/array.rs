//! An array: start reading here.
//!
//! An [`Array`] is shared by all its lanes and holds what they must agree on: views, claims, intent
//! and the controller's mailbox. Each lane has an [`ArrayLane`], where requests run from start to
//! finish. The controller, a task of lane 0, is the one owner of membership: lanes report, it decides.

mod adoption;
mod array_lane;
mod blocks;
mod borders;
pub mod cache;
mod chunks;
pub mod claims;
mod command;
mod controller;
mod controls;
mod cover;
mod doubt;
mod ended;
mod flushes;
mod gather;
pub mod handover;
mod held;
mod intent;
mod mailbox;
mod member_writes;
mod mend;
mod met;
mod mirror;
mod news;
pub mod outliers;
mod picks;
pub mod plan;
mod points;
mod read;
mod reconstruct;
mod redundancy;
mod refused;
mod round;
mod row_writes;
pub(crate) mod rules;
pub mod settings;
mod sources;
mod start;
mod striped;
mod stripes;
mod sync;
mod unread;
mod users;
mod verdict;
pub mod view;

use crate::backend::MemberId;
use crate::balance::Gauges;
use crate::sync::Mutex;

use cache::StripeCache;
use claims::Claims;
use flushes::Flushes;
use handover::Handover;
use intent::Intent;
use mailbox::Mailbox;
use mirror::Behind;
use points::Points;
use rules::Rules;
use settings::{SettingError, Settings};
use sync::SyncSpan;
use users::Users;
use view::{Views, WriteMode};

pub use array_lane::ArrayLane;
pub use command::{Action, Command, CommandError, Reply, Undecided};
#[cfg(feature = "controls")]
pub use points::Point;
pub use redundancy::{Redundancy, Stretch};
#[cfg(feature = "controls")]
pub use rules::{Asked, BrokenHere, Rule};
pub use start::{Start, StartMember};

/// One array, shared by its lanes and by whoever steers it.
pub struct Array {
    pub(crate) views: Views,
    pub(crate) claims: Claims,
    pub(crate) intent: Intent,
    pub(crate) flushes: Flushes,
    pub(crate) mailbox: Mailbox,
    pub(crate) settings: Settings,
    pub(crate) cache: StripeCache,
    pub(crate) handover: Handover,
    /// Only of mirrors, by slot.
    pub(crate) gauges: Gauges,
    pub(crate) behind: Behind,
    pub(crate) rules: Rules,
    pub(crate) points: Points,
    pub(crate) sync_span: SyncSpan,
    pub(crate) users: Users,
    /// Members that are still open and are asked for nothing any more.
    failed: Mutex<Vec<MemberId>>,
}

impl Array {
    /// Whether an open member has failed: nothing is asked of it any more under this number.
    pub fn has_failed(&self, member: MemberId) -> bool {
        self.failed.lock().contains(&member)
    }

    /// Whether it has ended: nothing is asked of its members any more.
    pub fn has_ended(&self) -> bool {
        self.views.current().mode == WriteMode::Stopped
    }

    /// Memory that the stripe cache's blocks take, in bytes.
    pub fn stripe_cache_bytes(&self) -> usize {
        self.cache.bytes()
    }

    /// Every key of [`settings`] that this array has, with its value.
    pub fn setting_values(&self) -> Vec<(&'static str, String)> {
        let mut values = self.settings.values();
        if self.has_parity() {
            values.push((cache::ACTIVE, self.cache.active().to_string()));
        }
        if self.views.current().geometry.max_failures() > 0 {
            values.extend(self.sync_span.values());
        }
        values
    }

    /// Whether rows have parity, and workers may share in their writes.
    pub fn has_parity(&self) -> bool {
        self.settings.has_parity()
    }

    /// Whether the last view is settled, and no member that is not write-mostly is in sync in it.
    #[cfg(feature = "controls")]
    pub fn rests_on_write_mostly_members(&self) -> bool {
        let view = self.views.current();
        let is_ahead =
            |member: &view::MemberView| !member.write_mostly && member.is_in_sync_for_good();
        self.views.is_settled(&view) && !view.present().any(|(_, member)| is_ahead(member))
    }

    /// Whether a write-mostly member may lack what was answered, and no list says so.
    #[inline]
    pub(crate) fn has_writes_behind(&self) -> bool {
        self.behind.any_may_lack()
    }

    /// Workers that the user asks for on each NUMA node (`group_thread_cnt`).
    pub fn workers_asked(&self) -> usize {
        self.settings.group_thread_cnt()
    }

    /// Sets a key of [`settings`]. The array runs on, whatever the value.
    pub fn set(&self, key: &str, value: &str) -> Result<(), SettingError> {
        if key == cache::ACTIVE && self.has_parity() {
            return Err(SettingError::ReadOnly { key: cache::ACTIVE });
        }
        let view = self.views.current();
        let geometry = &view.geometry;
        if geometry.max_failures() > 0
            && let chunk = geometry.chunk_sectors().unwrap_or(view.block_sectors.into())
            && let Some(set) = self.sync_span.set(key, value, chunk, geometry.sync_sectors())
        {
            set?;
        } else {
            self.settings.set(key, value)?;
            self.cache.resize(self.settings.stripe_cache_size());
        }
        // The controller looks anew at what it does by itself.
        self.mailbox.sync_moved();
        Ok(())
    }
}

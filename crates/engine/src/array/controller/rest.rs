//! A rest between writes of parity rows, in which members that work are given up.
//!
//! A write that another member has not answered yet may be refused there. Then its row is torn, and the block of a
//! member that was given up meanwhile can be had from nobody. So no such write begins while it is asked whether any is
//! under way, until the members are out. Where one is, the rest is kept for who asks again; but not for long, and not
//! often. Nothing waits for writes here: they may wait for this very task.

use std::sync::Arc;
use std::time::Duration;

use crate::backend::{IoError, MemberId};
use crate::geometry::Geometry;
use crate::time::Time;

use super::super::mailbox::Failure;
use super::super::view::WriteMode;
use super::{Command, CommandError, Controller, HELD_FOR};

/// Between two questions whether writes have ended.
const ASKED_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// So long a rest is kept for those that have not asked again yet.
const KEPT_FOR: Duration = Duration::from_millis(50);

/// After a rest in which writes did not end none is kept for so long.
const PAUSE: Duration = Duration::from_secs(20);

/// No write of a parity row begins.
pub(super) struct Rest {
    since: Time,
    /// Who may be given up: writes that only these have are not waited for.
    leaving: Arc<[MemberId]>,
    /// Writes are under way, and it is kept until then. None: it is needed no more.
    until: Option<Time>,
    /// When those below are to ask again.
    next: Time,
    /// Members that are to be given up, and orders to do so.
    failures: Vec<Failure>,
    orders: Vec<Command>,
}

impl Controller {
    /// Whether members `may` go, and no write of a parity row is under way but such as these have alone. None begins
    /// before the next turn of the controller ends. What ended meanwhile may have been refused: `may` is asked once more.
    pub(super) async fn may_go_at_rest(
        &mut self,
        leaving: &[MemberId],
        may: impl Fn(&Self) -> bool,
    ) -> bool {
        may(self) && self.is_at_rest_but_for(leaving).await && may(self)
    }

    async fn is_at_rest_but_for(&mut self, leaving: &[MemberId]) -> bool {
        if !matches!(*self.geometry, Geometry::Parity(_)) || !self.may_write() {
            return true;
        }
        let now = self.lane.backend().now();
        let rest = self.rest.get_or_insert_with(|| Rest {
            since: now,
            leaving: Arc::default(),
            until: None,
            next: now,
            failures: Vec::new(),
            orders: Vec::new(),
        });
        rest.leaving = leaving.into();
        rest.next = now + ASKED_AGAIN_AFTER;
        let ends = rest.since + HELD_FOR;
        let epoch = self.publish();
        self.array.views.adopted(epoch).await;
        let is_at_rest = !self.array.views.any_row_writes();
        let may_wait = self.no_rest_before.is_none_or(|when| now >= when);
        let is_kept = !is_at_rest && may_wait && now < ends;
        if !is_at_rest && may_wait && !is_kept {
            self.no_rest_before = Some(now + PAUSE);
        }
        if let Some(rest) = &mut self.rest {
            rest.until = is_kept.then(|| ends.min(now + KEPT_FOR));
        }
        is_at_rest
    }

    /// Whether who found writes under way may ask again.
    pub(super) fn keeps_rest(&self) -> bool {
        self.kept_rest().is_some()
    }

    /// Whether it is kept because this member may be given up.
    pub(super) fn keeps_rest_for(&self, member: MemberId) -> bool {
        self.kept_rest().is_some_and(|rest| rest.leaving.contains(&member))
    }

    fn kept_rest(&self) -> Option<&Rest> {
        let now = self.lane.backend().now();
        self.rest.as_ref().filter(|rest| rest.until.is_some_and(|until| now < until))
    }

    /// Whom lanes are asked about.
    pub(super) fn rests(&self) -> Option<Arc<[MemberId]>> {
        use WriteMode::{Clean, Closing, Open};
        let rest = self.rest.as_ref().filter(|_| matches!(self.mode, Clean | Closing | Open));
        rest.map(|rest| rest.leaving.clone())
    }

    /// Gives these members up when writes have ended, if that is soon.
    pub(super) fn give_up_later(&mut self, members: &[(MemberId, IoError)]) {
        let Some(rest) = self.rest.as_mut().filter(|rest| rest.until.is_some()) else { return };
        let failed = members.iter();
        rest.failures.extend(failed.map(|&(member, error)| Failure {
            member,
            error,
            if_borne: true,
        }));
    }

    /// Carries an order out when writes have ended, or says at last that they have not.
    pub(super) fn order_later(&mut self, order: Command) {
        match &mut self.rest {
            Some(rest) => rest.orders.push(order),
            None => (order.reply)(Err(CommandError::IsWritten)),
        }
    }

    /// Has those ask again that found writes under way.
    pub(super) async fn ask_for_rest_again(&mut self) {
        let now = self.lane.backend().now();
        let Some(rest) = self.rest.as_mut().filter(|rest| now >= rest.next) else { return };
        rest.next = rest.until.unwrap_or(now);
        let failures = std::mem::take(&mut rest.failures);
        let orders = std::mem::take(&mut rest.orders);
        // Writes that wait for it.
        self.has_landed |= !self.landing.is_empty();
        if !failures.is_empty() {
            self.members_failed(&failures).await;
        }
        for order in orders {
            self.command(order).await;
        }
    }

    /// Has writes begin again, where nobody is to ask any more.
    pub(super) fn end_rest(&mut self) {
        let Some(rest) = &self.rest else { return };
        let is_needed = !self.landing.is_empty()
            || !rest.failures.is_empty()
            || !rest.orders.is_empty()
            || self.keeps_rest();
        if !is_needed {
            self.rest = None;
            self.publish();
            self.array.views.settle();
        }
    }

    /// When someone is to ask again.
    pub(super) fn next_rest(&self) -> Option<Time> {
        self.rest.as_ref().map(|rest| rest.next)
    }

    /// The array ends.
    pub(super) fn refuse_orders_for_rest(&mut self) {
        let orders = self.rest.take().into_iter().flat_map(|rest| rest.orders);
        orders.for_each(|order| (order.reply)(Err(CommandError::Stopped)));
    }
}

//! Which group of paths is used, and when a better one is used again.

use crate::time::Time;

use super::owner::Owner;
use super::{Failback, Paths};

impl Paths {
    pub(super) fn choose_group(&self, owner: &mut Owner, now: Time) {
        let has_path = |group: usize| {
            let mut paths = owner.paths.iter().zip(&self.group_of);
            paths.any(|(path, of)| *of == group && path.takes_requests())
        };
        let alive = |group: &usize| has_path(*group);
        let enabled = |group: &usize| !owner.disabled[*group];
        let all = 0..self.table.groups.len();
        let first = all.clone().filter(enabled).find(alive).or_else(|| all.clone().find(alive));
        let keeps = owner.current.filter(alive).filter(|group| enabled(group) || first.is_none());
        let wanted = owner.wanted.filter(alive);
        let chosen = wanted.or(keeps).or(first);
        if wanted.is_some() {
            owner.wanted = None;
        }
        let lost_all = chosen.is_none();
        match (lost_all, owner.no_path_since) {
            (true, None) => owner.no_path_since = Some(now),
            (false, _) => (owner.no_path_since, owner.gave_up) = (None, false),
            _ => {}
        }
        if chosen != owner.current {
            if let (Some(group), Some(_)) = (chosen, owner.current) {
                let note = format!("group {} is used now", group + 1);
                self.tell(owner, "GroupSwitched", None, note);
            }
            if lost_all && owner.current.is_some() {
                let note = self.queueing(owner);
                self.tell(owner, "AllPathsLost", None, note);
            }
            // A group that was left for want of paths stays the last one used, as dm's.
            owner.current = chosen;
        }
        self.plan_failback(owner, first, now);
    }

    fn plan_failback(&self, owner: &mut Owner, best: Option<usize>, now: Time) {
        let better = matches!((best, owner.current), (Some(best), Some(used)) if best < used);
        match (better, self.policy.failback) {
            (false, _) | (_, Failback::Manual) => owner.failback_at = None,
            (true, Failback::Immediate) => {
                let group = best.expect("a better group");
                owner.current = Some(group);
                self.tell(owner, "GroupSwitched", None, format!("back to group {}", group + 1));
            }
            (true, Failback::After(span)) => {
                owner.failback_at = owner.failback_at.or(Some(now + span));
            }
        }
    }
}

//! dm's messages, and ours.

use std::sync::Arc;

use crate::sync::atomic::Ordering;
use crate::time::Time;

use super::owner::Health;
use super::{Paths, flag};

impl Paths {
    /// Does what a message says: `queue_if_no_path`, `fail_if_no_path`, `disable_group N`,
    /// `enable_group N`, `switch_group N`, `fail_path PATH [--fenced]`, `reinstate_path PATH`. Else says
    /// why not.
    pub fn message(self: &Arc<Self>, words: &[&str], now: Time) -> Result<(), String> {
        match *words {
            ["queue_if_no_path"] => self.set_queueing(true, now),
            ["fail_if_no_path"] => self.set_queueing(false, now),
            ["disable_group", group] => self.disable(self.group(group)?, true, now),
            ["enable_group", group] => self.disable(self.group(group)?, false, now),
            ["switch_group", group] => self.switch(self.group(group)?, now),
            ["fail_path", path] => self.fail_by_word(self.path_of(path)?, now),
            ["fail_path", path, "--fenced"] | ["fail_path", "--fenced", path] => {
                let path = self.path_of(path)?;
                self.fail_by_word(path, now);
                self.fenced_by_word(path, now);
            }
            ["reinstate_path", path] => self.reinstate_by_word(self.path_of(path)?, now),
            _ => {
                return Err(format!(
                    "'{}' is no message; these are: queue_if_no_path, fail_if_no_path, \
                     disable_group N, enable_group N, switch_group N, fail_path PATH [--fenced], \
                     reinstate_path PATH",
                    words.join(" ")
                ));
            }
        }
        Ok(())
    }

    fn group(&self, word: &str) -> Result<usize, String> {
        let count = self.table.groups.len();
        match word.parse::<usize>() {
            Ok(number) if (1..=count).contains(&number) => Ok(number - 1),
            _ => Err(format!("'{word}' is no group; they count from 1 to {count}")),
        }
    }

    fn path_of(&self, word: &str) -> Result<usize, String> {
        let names: Vec<&str> = self.table.paths().map(|(_, path)| &*path.member).collect();
        self.find(word)
            .ok_or_else(|| format!("'{word}' is no path; these are: {}", names.join(" ")))
    }

    fn set_queueing(&self, on: bool, now: Time) {
        match on {
            true => self.flags.fetch_or(flag::QUEUE_IF_NO_PATH, Ordering::AcqRel),
            false => self.flags.fetch_and(!flag::QUEUE_IF_NO_PATH, Ordering::AcqRel),
        };
        let mut owner = self.owner.lock();
        owner.gave_up = false;
        owner.no_path_since = owner.no_path_since.map(|_| now);
        let note = self.queueing(&owner);
        self.tell(&mut owner, "Queueing", None, note);
        self.publish(&mut owner, now);
    }

    fn disable(&self, group: usize, disabled: bool, now: Time) {
        let mut owner = self.owner.lock();
        owner.disabled[group] = disabled;
        let event = if disabled { "GroupDisabled" } else { "GroupEnabled" };
        self.tell(&mut owner, event, None, format!("group {}", group + 1));
        self.publish(&mut owner, now);
    }

    /// As dm's, it enables every group up to this one.
    fn switch(&self, group: usize, now: Time) {
        let mut owner = self.owner.lock();
        owner.disabled[..=group].fill(false);
        owner.wanted = Some(group);
        self.publish(&mut owner, now);
        owner.wanted = None;
    }

    /// A path that the operator failed stays so until the operator says otherwise.
    fn fail_by_word(&self, path: usize, now: Time) {
        let mut owner = self.owner.lock();
        let own = &mut owner.paths[path];
        if own.health == Health::FailedByWord {
            return;
        }
        if own.health == Health::Active {
            own.failures += 1;
        }
        own.withdraw();
        own.health = Health::FailedByWord;
        own.reason = "failed by the operator".into();
        self.tell(&mut owner, "PathFailed", Some(path), "by the operator".into());
        self.publish(&mut owner, now);
    }

    /// The path is checked at once, and used when it is what it should be.
    fn reinstate_by_word(&self, path: usize, now: Time) {
        let mut owner = self.owner.lock();
        if owner.blank_over.is_some_and(|used| owner.paths[used].health != Health::Active) {
            // Nothing tells where it leads, but the operator.
            owner.blank_over = None;
        }
        let own = &mut owner.paths[path];
        if own.health != Health::Active {
            own.health = Health::Failed;
            own.reason = "to be checked".into();
            own.urgent = true;
        }
        self.publish(&mut owner, now);
    }
}

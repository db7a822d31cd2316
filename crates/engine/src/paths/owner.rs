//! The state of the paths, as their owner keeps it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::array::rules::{Rule, keep};
use crate::backend::{MemberId, MemberInfo};
use crate::time::Time;

use super::PathEvent;
use super::given::Given;
use super::identity::Identity;
use super::late::{Fence, FenceId, LateWrites};
use super::owed::Owed;
use super::view::View;

/// What changes, and who may change it: whoever holds the lock.
pub(super) struct Owner {
    pub(super) view: Arc<View>,
    pub(super) paths: Vec<OwnedPath>,
    pub(super) disabled: Vec<bool>,
    pub(super) current: Option<usize>,
    /// The group to use next, if it can be.
    pub(super) wanted: Option<usize>,
    pub(super) late: LateWrites,
    pub(super) owed: Owed,
    pub(super) last_fence: FenceId,
    /// What the device's last proved path said.
    pub(super) known: Option<Identity>,
    /// Superblocks that its user has written since.
    pub(super) given: Given,
    /// Durable superblocks of its user that were answered.
    pub(super) superblocks: u64,
    /// How often a path was unplugged.
    pub(super) unplugs: u64,
    /// The view since which a device is back that was away, and loses then what it has not made durable.
    pub(super) back_since: u64,
    /// The one path that is used as long as the device is blank.
    pub(super) blank_over: Option<usize>,
    /// Writes may have gone over one of the paths.
    pub(super) may_be_written: bool,
    pub(super) no_path_since: Option<Time>,
    /// Waiting has taken too long: requests fail until a path is back.
    pub(super) gave_up: bool,
    pub(super) failback_at: Option<Time>,
    pub(super) events: VecDeque<PathEvent>,
    pub(super) last_event: u64,
}

pub(super) struct OwnedPath {
    pub(super) member: Option<(MemberId, MemberInfo)>,
    pub(super) remote: bool,
    pub(super) health: Health,
    pub(super) reason: String,
    pub(super) failures: u32,
    /// Its connection is lost: it needs a new one.
    pub(super) lost: bool,
    /// Its connection was made since it served last.
    pub(super) is_anew: bool,
    /// It had a device of this host that the kernel has no more, and no path has been in use since.
    pub(super) was_unplugged: bool,
    /// Whether its connection leads to the device.
    pub(super) standing: Standing,
    /// It answers, and only nothing tells where it leads.
    pub(super) awaits_proof: bool,
    /// It was asked for, and has not come.
    pub(super) reopening: bool,
    /// The answer to the latest wish for one.
    pub(super) reopened: Option<Result<(), String>>,
    pub(super) checking: bool,
    /// To be checked at once.
    pub(super) urgent: bool,
    /// A fence that is under way.
    pub(super) fencing: Option<Fence>,
}

/// What is known of where a connection leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Unproved,
    /// To the device: a check has found that, and takes it into use.
    Proved,
    /// To the device, and requests may have gone over it, also if it has failed since.
    Joined,
}

/// How a path is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// Not known yet to lead to the device.
    Joining,
    Active,
    Failed,
    /// Failed by the operator, who alone can bring it back.
    FailedByWord,
    /// It leads to another device.
    Refused,
}

impl Health {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Active => "active",
            Self::Failed | Self::FailedByWord => "failed",
            Self::Refused => "refused",
        }
    }
}

impl Owner {
    /// A path is in use: whether one was unplugged before that.
    pub(super) fn forget_unplugs(&mut self) -> bool {
        let forget = |any, path: &mut OwnedPath| std::mem::take(&mut path.was_unplugged) || any;
        self.paths.iter_mut().fold(false, forget)
    }
}

impl OwnedPath {
    /// Whether requests may go over it: not while a fence ends what is under way there.
    pub(super) fn takes_requests(&self) -> bool {
        let is_fenced = self.fencing.is_some() && keep(Rule::FencesProveTheirTime);
        self.health == Health::Active && !is_fenced
    }

    /// Whether it is in use, or is about to be.
    pub(super) fn serves_or_joins(&self) -> bool {
        matches!(self.health, Health::Active | Health::Joining)
    }

    /// Whether it is not known yet where it leads. Of several copies of the device the newest is found before the first
    /// request: what was written to another one would be lost, and what was read from it would be old.
    pub(super) fn keeps_requests_waiting(&self) -> bool {
        self.health == Health::Joining && self.standing == Standing::Unproved
    }

    /// Whether others are compared with it: it serves, or is about to.
    pub(super) fn is_peer(&self) -> bool {
        (self.health == Health::Active || self.standing == Standing::Proved) && !self.lost
    }

    pub(super) fn is_over(&self, member: MemberId) -> bool {
        self.member.as_ref().is_some_and(|(known, _)| *known == member)
    }

    /// Whether it could serve soon: it is proved, or about to be.
    pub(super) fn could_take_over(&self) -> bool {
        let awaits_proof = self.awaits_proof && self.health == Health::Failed && !self.lost;
        self.is_peer() || self.health == Health::Joining || awaits_proof
    }

    /// Whether it may be taken into use over a connection that was looked at.
    pub(super) fn may_join_over(&self, member: MemberId) -> bool {
        self.is_over(member) && !self.lost && self.health != Health::FailedByWord
    }

    /// It does not come into use over a connection that was proved.
    pub(super) fn withdraw(&mut self) {
        if self.standing == Standing::Proved {
            self.standing = Standing::Unproved;
        }
    }

    pub(super) fn new(opened: Result<(MemberId, MemberInfo), String>, remote: bool) -> Self {
        let (member, health, reason) = match opened {
            Ok(member) => (Some(member), Health::Joining, String::new()),
            Err(why) => (None, Health::Failed, why),
        };
        Self {
            lost: member.is_none(),
            is_anew: false,
            was_unplugged: false,
            member,
            remote,
            health,
            reason,
            standing: Standing::Unproved,
            awaits_proof: false,
            failures: 0,
            reopening: false,
            reopened: None,
            checking: false,
            urgent: false,
            fencing: None,
        }
    }
}

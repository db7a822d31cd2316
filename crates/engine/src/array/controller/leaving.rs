//! Members that are about to go out, and what is asked before that.

use std::ops::Deref;

use crate::backend::{IoError, MemberId, Scope};
use crate::lane::join_all;

use super::metadata::{failures, probe};
use super::{Controller, Member};

/// Members that go out together, and their errors. All others have been asked whether they answer: a cable or a server
/// takes several at once, and that one is out must not be on record when the rest turns out to be lost with it.
pub(super) struct Leaving(Vec<(MemberId, IoError)>);

impl Leaving {
    /// None goes: nothing is asked.
    pub(super) fn none() -> Self {
        Self(Vec::new())
    }

    fn has(&self, member: MemberId) -> bool {
        self.iter().any(|(id, _)| *id == member)
    }
}

impl Deref for Leaving {
    type Target = [(MemberId, IoError)];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Controller {
    /// Those that failed, and all others that do not answer any more either. They are asked to read their superblock's
    /// place.
    pub(super) async fn leaving(&self, failed: Vec<(MemberId, IoError)>) -> Leaving {
        let mut leaving = Leaving(failed);
        let others = |member: &&Member| member.is_live() && !leaving.has(member.id);
        let others = self.members.iter().filter(others);
        let probes = others.map(|member| self.ask(member, probe(member.superblock.place.sector)));
        let mut silent = failures(join_all(probes).await);
        silent.retain(|(_, error)| error.kind.scope() != Scope::Sectors);
        leaving.0.extend(silent);
        leaving
    }

    /// Gives up a member that still works, unless a block is needed of it when the others have left. Whether it goes.
    pub(super) fn goes_by_choice(
        &self,
        leaving: &mut Leaving,
        (member, error): (MemberId, IoError),
    ) -> bool {
        if leaving.has(member) {
            return true;
        }
        let with_it: Vec<_> = leaving.iter().map(|(id, _)| *id).chain([member]).collect();
        let goes = self.loses_nothing_without(&with_it);
        if goes {
            leaving.0.push((member, error));
        }
        goes
    }

    /// Takes out those that failed, and who is silent. False when the array broke over it.
    pub(super) async fn take_out_failed(&mut self, failed: Vec<(MemberId, IoError)>) -> bool {
        let leaving = self.leaving(failed).await;
        self.take_out(&leaving).await
    }
}

//! Members that are about to go out, and what is asked before that.

use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;

use crate::backend::{IoError, MemberId, Patience, Scope};
use crate::lane::{first_of, join_all};

use super::super::flushes::Flush;
use super::super::rules::Rule;
use super::io_end::IoEnd;
use super::metadata::probe;
use super::{Controller, Member};

/// Members that go out together, and their errors. All others have been asked whether they answer: a cable or a server
/// takes several at once, and that one is out must not be on record when the rest turns out to be lost with it.
#[derive(Default)]
pub(super) struct Leaving {
    members: Vec<(MemberId, IoError)>,
    /// Who did not answer in time, and stays all the same. None was chosen to go that is needed without these.
    late: Vec<MemberId>,
    /// Who was chosen and is not needed, but stays while another member has a write of a parity row.
    put_off: Vec<(MemberId, IoError)>,
}

impl Leaving {
    /// These members, without a question to the others.
    pub(super) fn of(members: Vec<(MemberId, IoError)>) -> Self {
        Self { members, ..Self::default() }
    }

    pub(super) fn late(&self) -> &[MemberId] {
        &self.late
    }

    pub(super) fn put_off(&self) -> &[(MemberId, IoError)] {
        &self.put_off
    }

    pub(super) fn has(&self, member: MemberId) -> bool {
        self.iter().any(|(id, _)| *id == member)
    }
}

/// A member that was asked whether it can stay, and what came instead of a good answer.
struct Silence {
    member: MemberId,
    error: IoError,
    /// The flush that this question has sent takes too long. No lane has found the member failed.
    is_late_flush: bool,
}

impl Deref for Leaving {
    type Target = [(MemberId, IoError)];

    fn deref(&self) -> &Self::Target {
        &self.members
    }
}

impl Controller {
    /// Members that failed, and all others that do not answer any more.
    pub(super) async fn leaving_failed(&mut self, failed: Vec<(MemberId, IoError)>) -> Leaving {
        self.leaving(failed, Vec::new(), |_| false).await
    }

    /// The same, and those of the `chosen` members, which still work, that are not needed for any block without the others.
    /// None of them goes unless `may` says so, before the question and after it. The others are asked to read their
    /// superblock's place, and what they were given is flushed: a drive that has reset answers reads, and has lost what
    /// the one that goes may be the last to have. They are not asked where no member failed and no chosen one can be spared.
    /// A chosen one is put off while others have not answered a write of a parity row.
    pub(super) async fn leaving(
        &mut self,
        failed: Vec<(MemberId, IoError)>,
        chosen: Vec<(MemberId, IoError)>,
        may: impl Fn(&Self) -> bool,
    ) -> Leaving {
        let mut spared = self.spare(&failed, chosen, &[], &may);
        let mut put_off = Vec::new();
        let going: Vec<MemberId> = failed.iter().chain(&spared).map(|(id, _)| *id).collect();
        // Whether they can be spared is asked once more below, when the others have answered.
        if !spared.is_empty() && !self.may_go_at_rest(&going, |_| true).await {
            put_off = std::mem::take(&mut spared);
        }
        if failed.is_empty() && spared.is_empty() {
            return Leaving { put_off, ..Leaving::default() };
        }
        // What others were filled with is not read while the rest is asked.
        failed.iter().for_each(|(member, error)| self.array.member_leaves(*member, *error));
        let may_go = |id: MemberId| failed.iter().chain(&spared).any(|(member, _)| *member == id);
        let others = |member: &&Member| member.is_live() && !may_go(member.id);
        let any_failed = !failed.is_empty();
        let others = self.members.iter().filter(others);
        let others = others.map(|member| self.answers(member, any_failed));
        let silent = join_all(others).await.into_iter().filter_map(Result::err);
        // A member that is only late stays where no member failed, and where its flush is. The choice is judged as if it
        // were gone.
        let fails = |silence: &Silence| {
            let is_late = silence.error.kind.scope() == Scope::Time;
            !is_late || !failed.is_empty() && !silence.is_late_flush
        };
        let (gone, late): (Vec<Silence>, Vec<Silence>) = silent.partition(fails);
        let gone: Vec<_> = gone.into_iter().map(|one| (one.member, one.error)).collect();
        if failed.is_empty() && !gone.is_empty() {
            // The question was for a choice. Beside a member that fails, one that is only late may be lost too.
            return Box::pin(self.leaving(gone, spared, may)).await;
        }
        let late: Vec<MemberId> = late.into_iter().map(|silence| silence.member).collect();
        let mut leaving = failed;
        leaving.extend(gone);
        // Who has answered well may have failed since, while another was waited for.
        leaving.extend(self.array.failed_meanwhile(&self.array.views.current(), &leaving));
        let spared = self.spare(&leaving, spared, &late, &may);
        leaving.extend(spared);
        Leaving { members: leaving, late, put_off }
    }

    /// Whether a member reads what it has, and has what it was given. One that goes for its answer is distrusted from then
    /// on: the others may take long. `any_failed`: it also goes if it is late.
    async fn answers(&self, member: &Member, any_failed: bool) -> Result<(), Silence> {
        let read = self.ask(member, probe(member.superblock.place.sector)).await;
        let silence = |(member, error), is_late_flush| Silence { member, error, is_late_flush };
        match read {
            Ok(()) => {}
            Err((_, error)) if error.kind.scope() == Scope::Sectors => {}
            Err(failure) => {
                if any_failed || failure.1.kind.scope() != Scope::Time {
                    self.array.member_leaves(member.id, failure.1);
                }
                return Err(silence(failure, false));
            }
        }
        if !self.array.rules.keep(Rule::WhoStaysIsFlushed) {
            return Ok(());
        }
        // It goes on when nobody waits for it any more: one that is dropped counts as failed.
        let (end, id) = (Rc::<IoEnd>::default(), member.id);
        let (array, lane, told) = (self.array.clone(), self.lane.clone(), end.clone());
        self.lane.spawn(async move {
            // One that is late has failed at nobody's flush.
            told.set(Flush::new(&array, &lane, id, Patience::FOREVER).await);
        });
        let is_late = Cell::new(false);
        let late = async {
            let late = self.late_after(self.patience_span()).await;
            is_late.set(true);
            late
        };
        let flushed = self.answer_of(member, first_of(end.come(), late)).await;
        flushed.map_err(|failure| silence(failure, is_late.get()))
    }

    /// Of members that are chosen, those that can be spared together when the `leaving` and the late ones are gone. One
    /// that leaves already is not among them.
    fn spare(
        &self,
        leaving: &[(MemberId, IoError)],
        chosen: Vec<(MemberId, IoError)>,
        late: &[MemberId],
        may: impl Fn(&Self) -> bool,
    ) -> Vec<(MemberId, IoError)> {
        let mut spared = Vec::new();
        if chosen.is_empty() || !may(self) {
            return spared;
        }
        let mut without: Vec<MemberId> = leaving.iter().map(|(id, _)| *id).collect();
        without.extend(late);
        for one in chosen {
            if without.contains(&one.0) {
                continue;
            }
            without.push(one.0);
            match self.loses_nothing_without(&without) {
                true => spared.push(one),
                false => drop(without.pop()),
            }
        }
        spared
    }

    /// Takes out those that failed, and those that do not answer. False when the array broke over it.
    pub(super) async fn take_out_failed(&mut self, failed: Vec<(MemberId, IoError)>) -> bool {
        let leaving = self.leaving_failed(failed).await;
        self.take_out(&leaving).await
    }
}

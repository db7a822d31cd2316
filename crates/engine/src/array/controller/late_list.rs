//! The write of a bad-block list on a member that stays, however long that takes: it may be the last one that gives
//! some blocks.
//!
//! The controller waits for it as long as for any other. The write goes on behind it, and flushes wait for its
//! end: the device may tell it, and nothing else, that writes before it are lost. Until it ends no other list is
//! written there: an older list that lands over a newer one would lack what the newer one lists.

use std::rc::Rc;

use mdspace_format::BadBlockLog;

use crate::backend::{IoError, IoErrorKind, MemberId, MemberIo, Patience};
use crate::lane::first_of;

use super::super::flushes::DurableWrite;

use super::io_end::IoEnd;
use super::metadata::metadata_write;
use super::{Controller, Member};

/// One such write that was not over in time.
pub(super) struct LateList {
    /// What stands on the device when it has gone well.
    list: BadBlockLog,
    end: Rc<IoEnd>,
}

impl Controller {
    /// Writes a list of a member that stays.
    pub(super) async fn write_list_of_needed(
        &mut self,
        index: usize,
        sector: u64,
        (list, bytes): (BadBlockLog, Vec<u8>),
    ) -> Result<(), (MemberId, IoError)> {
        let end = Rc::<IoEnd>::default();
        self.start_list(&self.members[index], sector, &bytes, end.clone());
        let written = self.answer_in_time(&self.members[index], end.come()).await;
        if end.result().is_none() {
            self.members[index].late_list = Some(LateList { list, end });
        }
        written
    }

    /// Waits for the end of a list that was not written in time. An error: it may land still.
    pub(super) async fn late_list_ends(&mut self, index: usize) -> Result<(), (MemberId, IoError)> {
        let member = &self.members[index];
        let Some(end) = member.late_list.as_ref().map(|late| late.end.clone()) else {
            return Ok(());
        };
        let ended = self.answer_in_time(member, end.come()).await;
        if end.result().is_none_or(|result| result == Err(NEVER)) {
            return ended;
        }
        self.members[index].take_late_list();
        Ok(())
    }

    /// What waits for it in vain for twice the time of a write has failed with it.
    fn start_list(&self, member: &Member, sector: u64, bytes: &[u8], end: Rc<IoEnd>) {
        let op = metadata_write(&member.info, sector, bytes);
        let io = MemberIo { member: member.id, op, patience: Patience::FOREVER };
        let too_late = self.lane.lived() + 2 * self.patience_span();
        let (array, lane) = (self.array.clone(), self.lane.clone());
        self.lane.spawn(async move {
            let durable = DurableWrite::begin(&array, io.member, false);
            let write = async { lane.io(io).await.result };
            let never = async {
                lane.live_until(too_late).await;
                Err(NEVER)
            };
            let result = first_of(write, never).await;
            durable.end(result);
            end.set(result);
        });
    }
}

impl Member {
    /// Takes note of the end of a list that was not written in time, if it has come.
    pub(super) fn take_late_list(&mut self) {
        let result = self.late_list.as_ref().and_then(|late| late.end.result());
        let Some(result) = result.filter(|result| *result != Err(NEVER)) else { return };
        let late = self.late_list.take().expect("it has ended");
        if result.is_ok() {
            self.log = late.list;
        }
    }
}

/// Nobody waits for it any more, and it may land at any time.
const NEVER: IoError = IoError { kind: IoErrorKind::Deadline, errno: 0 };

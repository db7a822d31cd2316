//! The members' bad-block logs: what cannot be mended is listed, what takes a write again is not.

use std::sync::Arc;

use mdspace_format::bad_blocks::BadBlocks;

use crate::backend::{IoError, IoErrorKind, MemberId, Scope};
use crate::geometry::Geometry;
use crate::ranges::Ranges;

use super::super::mailbox::{BlockNews, Mail};
use super::super::news::News;
use super::super::points::Point;
use super::super::rules::Rule;
use super::super::start::listed_in_data;
use super::{Controller, Member, WriteMode};

impl Controller {
    /// Acts on what lanes tell of blocks. Each of them holds its claim until a settled view says so.
    pub(super) async fn hear_of_blocks(&mut self, mail: &Mail) {
        self.blocks_failed(&mail.unreadable, News::Unreadable).await;
        self.blocks_failed(&mail.unfilled, News::Unfilled).await;
        self.blocks_failed(&mail.refused, News::Refused).await;
        self.heard = mail.heard;
        self.publish();
        self.array.views.settle();
    }

    /// Takes ranges off the logs that were written again. Their data are flushed before a log says
    /// so, or a power cut would leave what nobody wrote and everybody reads. Where the log has no room for
    /// what would be left of an entry, the range stays listed: it is read from elsewhere, as before. But
    /// a replacement is given up then: what its member holds alone would be lost when it takes over.
    pub(super) async fn blocks_written(&mut self, news: &[BlockNews]) {
        for BlockNews { member, ranges } in news {
            let Some(index) = self.index_of(*member) else { continue };
            let mut bad = Ranges::clone(&self.members[index].bad);
            ranges.iter().for_each(|range| bad.remove(&range));
            if bad == *self.members[index].bad || !self.members[index].is_live() {
                continue;
            }
            match self.shorten_log(index, &bad).await {
                Ok(()) => self.members[index].bad = Arc::new(bad),
                Err(NotRecorded::NoRoom) if !self.members[index].replaces() => {}
                Err(NotRecorded::NoRoom) => {
                    let error = IoError { kind: IoErrorKind::Medium, errno: 0 };
                    self.take_out_failed(vec![(*member, error)]).await;
                }
                Err(NotRecorded::Failed(error)) => {
                    self.take_out_failed(vec![(*member, error)]).await;
                }
            }
        }
    }

    /// Makes durable what was written to a member, and then the log that lists it no more. Without a log
    /// nothing on the member lists it.
    async fn shorten_log(&mut self, index: usize, bad: &Ranges) -> Result<(), NotRecorded> {
        if !self.may_write() || self.members[index].superblock.bad_block_log.is_none() {
            return Ok(());
        }
        if self.array.rules.keep(Rule::ListsShrinkAfterFlush) {
            self.flush_member(index).await.map_err(|(_, error)| NotRecorded::Failed(error))?;
        }
        self.write_bad_blocks(index, bad, false).await?;
        self.array.points.reach(Point::ListIsShorter);
        self.record_list(index).await;
        Ok(())
    }

    /// Lists what members do not hold. No lane reads it from there once this is settled. A member
    /// without a log, or with one that is full, is failed; but not where what it cannot read is lost
    /// anyway, for the rest of it is needed. Nor where it alone gives a block: those that stay and whose
    /// list does not name what they lack are the result.
    pub(super) async fn blocks_failed(&mut self, news: &[BlockNews], why: News) -> Vec<MemberId> {
        let (mut failed, mut full) = (Vec::new(), Vec::new());
        for BlockNews { member, ranges } in news {
            let Some(index) = self.index_of(*member) else { continue };
            if !self.members[index].is_live() {
                continue;
            }
            let mut bad = Ranges::clone(&self.members[index].bad);
            ranges.iter().for_each(|range| bad.insert(range));
            // What is listed and yet was to be written may not have found room in the log the first time.
            let in_memory = || self.members[index].bad_in_memory();
            let is_on_record = match why {
                News::Refused => false,
                News::Unfilled => ranges.iter().all(|range| !in_memory().overlaps(&range)),
                News::Unreadable => true,
            };
            if bad == *self.members[index].bad && is_on_record {
                continue;
            }
            let before = std::mem::replace(&mut self.members[index].bad, Arc::new(bad));
            // Before anyone can hear of it: what is not listed may be read.
            let epoch = self.publish();
            self.array.views.adopted(epoch).await;
            let bad = self.members[index].bad.clone();
            match self.record_bad_blocks(index, &bad, why == News::Unreadable).await {
                Err(NotRecorded::Failed(error)) if why != News::Unreadable => {
                    // The lists of others, and their answers, are waited for before it is out.
                    self.array.member_leaves(*member, error);
                    self.members[index].bad = before;
                    failed.push((*member, IoError { kind: IoErrorKind::Medium, errno: 0 }));
                    continue;
                }
                Err(NotRecorded::NoRoom) if why != News::Unreadable => full.push((*member, before)),
                Ok(()) | Err(_) => {}
            }
            // It does its work, and another is to take it over as soon as there is one.
            self.members[index].wants_replacement |= why == News::Refused;
        }
        // Once the other lists say what they can: what they name, a member without room may alone give. What it
        // lacks itself is no reason to keep it.
        let mut needed = Vec::new();
        let error = IoError { kind: IoErrorKind::Medium, errno: 0 };
        let without_room = full.iter().map(|(member, _)| (*member, error)).collect();
        let leaving = self.leaving(failed, without_room, |_| true).await;
        for (member, before) in full.into_iter().filter(|(member, _)| !leaving.has(*member)) {
            needed.push(member);
            if let Some(index) = self.index_of(member) {
                self.members[index].bad = before;
            }
        }
        if !leaving.is_empty() {
            self.take_out(&leaving).await;
        }
        needed
    }

    /// Writes what memory alone lists.
    pub(super) async fn record_what_is_listed(&mut self) {
        for index in 0..self.members.len() {
            let member = &self.members[index];
            if member.is_live() && !member.bad_in_memory().is_empty() {
                let bad = member.bad.clone();
                // What finds no room is settled at the next read that gives another block.
                let _ = self.record_bad_blocks(index, &bad, true).await;
            }
        }
    }

    /// Writes a log that got longer. `stays`: its member does, whatever comes of it.
    async fn record_bad_blocks(
        &mut self,
        index: usize,
        bad: &Ranges,
        stays: bool,
    ) -> Result<(), NotRecorded> {
        if !self.may_write() {
            // It is found again.
            return Ok(());
        }
        self.write_bad_blocks(index, bad, stays).await?;
        self.array.points.reach(Point::ListIsLonger);
        self.record_list(index).await;
        Ok(())
    }

    /// Has the superblock of a member say that its log lists something, before anything rests on that.
    async fn record_list(&mut self, index: usize) {
        let member = &self.members[index];
        if !member.log.is_empty() && !member.list_is_on_record {
            self.update_superblocks().await;
        }
    }

    /// Whether anything is written to members now.
    pub(super) fn may_write(&self) -> bool {
        !matches!(self.mode, WriteMode::ReadOnly | WriteMode::Broken | WriteMode::Stopped)
    }

    /// Brings the log to what is bad now, step by step, so that power may fail in the middle of each.
    async fn write_bad_blocks(
        &mut self,
        index: usize,
        bad: &Ranges,
        stays: bool,
    ) -> Result<(), NotRecorded> {
        self.late_list_ends(index).await.map_err(|(_, error)| NotRecorded::Failed(error))?;
        let member = &self.members[index];
        let log = member.superblock.bad_block_log.ok_or(NotRecorded::NoRoom)?;
        let place = member.superblock.bad_block_log_range().ok_or(NotRecorded::NoRoom)?;
        // The log counts from the first sector of the device.
        let data = member.superblock.data_offset_sectors;
        let mut blocks = BadBlocks::new();
        bad.iter().for_each(|range| blocks.add(data + range.start..data + range.end));
        // What is wrong with sectors of the log is no reason to give up all others.
        let not_written = |(_, error): (MemberId, IoError)| match error.kind.scope() {
            Scope::Sectors | Scope::Space => NotRecorded::NoRoom,
            Scope::Time | Scope::Member | Scope::Array => NotRecorded::Failed(error),
        };
        let steps = member.log.steps_to(&blocks, log.size_sectors);
        for step in steps.map_err(|_| NotRecorded::NoRoom)? {
            let bytes = step.encode(log.size_sectors);
            let is_written = self.array.rules.keep(Rule::ListsAreDurable);
            if is_written && stays {
                let list = (step.clone(), bytes);
                self.write_list_of_needed(index, place.start, list).await.map_err(not_written)?;
            } else if is_written {
                let member = &self.members[index];
                self.write_metadata(member, place.start, &bytes).await.map_err(not_written)?;
            }
            self.members[index].log = step;
        }
        Ok(())
    }

    /// Whether a member that works otherwise may be given up for its errors. Where copies may differ, or
    /// parity is in doubt or about to be, what was read before may be on it alone.
    pub(super) fn may_give_up(&self) -> bool {
        let has_copies = !matches!(*self.geometry, Geometry::Parity(_));
        let view = self.view_now(&self.array.views.current());
        self.doubted.is_empty()
            && (!has_copies || self.unsynced.is_empty())
            && self.doubt_of_asking(&view).is_empty()
    }

    /// Counts read errors that were mended, as md does: they halve every hour, and a member with more
    /// than `max_read_errors` of them is failed.
    pub(super) async fn reads_corrected(&mut self, news: &[(MemberId, u32)]) {
        let now = self.lane.backend().now();
        let most = self.array.settings.max_read_errors();
        let mut chosen = Vec::new();
        for &(id, errors) in news {
            let Some(index) = self.index_of(id) else { continue };
            let member = &mut self.members[index];
            member.read_errors.add(errors, now);
            member.superblock.corrected_reads =
                member.superblock.corrected_reads.saturating_add(errors);
            if !member.is_live() || member.read_errors.count <= most {
                continue;
            }
            member.wants_replacement = true;
            if !self.can_replace(index) {
                chosen.push((id, IoError { kind: IoErrorKind::Medium, errno: 0 }));
            }
        }
        // Errors that could be mended are no reason to lose the array, or a block of it.
        let leaving = self.leaving(Vec::new(), chosen, Self::may_give_up).await;
        self.give_up_later(leaving.put_off());
        if !leaving.is_empty() {
            self.take_out(&leaving).await;
        }
    }
}

impl Member {
    /// The bad sectors that the list on the device does not name, or that of which the superblock says nothing.
    pub(super) fn bad_in_memory(&self) -> Ranges {
        let mut bad = Ranges::clone(&self.bad);
        let on_device = listed_in_data(&self.log, self.superblock.data_offset_sectors);
        on_device.iter().filter(|_| self.list_is_on_record).for_each(|range| bad.remove(&range));
        bad
    }
}

/// Why a log does not say what it should.
enum NotRecorded {
    /// It has no room, its sectors take no write, or the member has no log.
    NoRoom,
    /// The member failed in that.
    Failed(IoError),
}

/// Read errors of a member lately.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadErrors {
    count: u32,
    /// When they were last halved, in whole hours of the clock.
    hour: u64,
}

impl ReadErrors {
    fn add(&mut self, errors: u32, now: crate::time::Time) {
        const HOUR_NANOS: u64 = 3600 * 1_000_000_000;
        let hour = now.as_nanos() / HOUR_NANOS;
        let halvings = (hour - self.hour).min(31) as u32;
        self.count = (self.count >> halvings).saturating_add(errors);
        self.hour = hour;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::time::Time;

    #[test]
    fn read_errors_halve_every_hour() {
        let mut errors = ReadErrors::default();
        let hours = |count: u64| Time::ZERO + Duration::from_secs(3600 * count);
        errors.add(12, hours(5));
        assert_eq!(errors.count, 12);
        errors.add(1, hours(6));
        assert_eq!(errors.count, 7);
        errors.add(0, hours(8));
        assert_eq!(errors.count, 1);
        errors.add(3, hours(1000));
        assert_eq!(errors.count, 3);
    }
}

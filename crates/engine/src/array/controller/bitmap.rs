//! The write-intent bitmap on the members: bits set before writes, cleared long after them.

use std::collections::BTreeSet;
use std::time::Duration;

use mdspace_format::bitmap::PAGE_BYTES;
use mdspace_format::{BitmapSuperblock, DirtyMap, Superblock};

use crate::backend::{IoError, MemberId, MemberInfo};
use crate::lane::join_all;
use crate::ranges::Ranges;

use super::super::chunks::Chunks;
use super::super::points::Point;
use super::super::rules::Rule;
use super::{Controller, Member};

const SECTOR: usize = 512;

/// The bitmap as the members have it, and as memory knows it.
pub(super) struct Bitmap {
    pub(super) header: BitmapSuperblock,
    pub(super) map: DirtyMap,
    /// Some member's copy is another one: all of it is written with the next update. A bit that only
    /// one member has is no bit once that member is gone.
    pub(super) copies_differ: bool,
}

/// A part of the bitmap that is written as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A whole page: bits are set or cleared, and the header says what it said.
    Page(u64),
    /// The header and the bits in its block: a power cut leaves the old ones or the new.
    Head,
    /// The rest of the header's page.
    Tail,
}

impl Bitmap {
    pub(super) fn new((header, map): (BitmapSuperblock, DirtyMap), copies_differ: bool) -> Self {
        Self { header, map, copies_differ }
    }

    /// Sectors under set bits.
    pub(super) fn dirty(&self) -> Ranges {
        self.map.ranges().map(|chunks| self.header.sectors_of(chunks)).collect()
    }
}

impl Controller {
    /// Tells lanes which bits the members have from before.
    pub(super) fn announce_bitmap(&mut self) {
        if let Some(bitmap) = &self.bitmap {
            self.array.intent.set_durable(&bitmap.map.ranges().flatten().collect());
            self.set_clearing_alarm();
        }
    }

    /// Sets the bits that writes wait for, on every member and flushed, then lets the writes go.
    /// After a crash from here on, resync knows where to look.
    pub(super) async fn set_wanted_bits(&mut self) {
        let wanted = self.array.intent.take_wanted();
        if !self.may_write() {
            // The lanes that wait for them hear that no write goes.
            return;
        }
        let Some(bitmap) = &mut self.bitmap else { return };
        let chunks = bitmap.header.chunks();
        let wanted: Chunks = wanted.iter().filter(|chunk| *chunk < chunks).collect();
        let changed = wanted.iter().filter(|chunk| bitmap.map.set(*chunk));
        let pages: BTreeSet<u64> = changed.map(DirtyMap::page_of).collect();
        if self.write_bitmap_pages(&pages).await {
            self.array.points.reach(Point::BitsAreSet);
            self.array.intent.set_durable(&wanted);
        }
        self.set_clearing_alarm();
    }

    /// Writes pages of the bitmap to every member. A member that fails is done without; false when
    /// the array broke over it.
    pub(super) async fn write_bitmap_pages(&mut self, pages: &BTreeSet<u64>) -> bool {
        loop {
            let live = self.members.iter().filter(|member| member.is_live());
            let all = self.array.rules.keep(Rule::BitsAreOnAllMembers);
            let live = live.take(if all { usize::MAX } else { 1 });
            let writes = live.flat_map(|member| pages.iter().map(move |page| (member, *page)));
            let writes =
                writes.map(|(member, page)| self.write_bitmap_part(member, Part::Page(page)));
            let failed: Vec<_> =
                join_all(writes).await.into_iter().filter_map(Result::err).collect();
            if failed.is_empty() {
                return true;
            }
            if !self.take_out_failed(failed).await {
                return false;
            }
        }
    }

    /// The bitmap's header, with this update's events, on every member. Before it all the bits, where
    /// members had others: events that are right make them count.
    pub(super) async fn write_bitmap_headers(&mut self) -> Vec<(MemberId, IoError)> {
        let failed = match self.bits_to_write() {
            Some(parts) => self.write_bitmap_parts(parts).await,
            None => return Vec::new(),
        };
        if failed.is_empty()
            && let Some(bitmap) = &mut self.bitmap
        {
            bitmap.copies_differ = false;
        }
        failed
    }

    /// What must be written for the header to count, the header last. Nothing without a bitmap.
    fn bits_to_write(&self) -> Option<Vec<Part>> {
        let bitmap = self.bitmap.as_ref()?;
        let pages = if bitmap.copies_differ { bitmap.header.pages() } else { 0 };
        let bits =
            (0..pages).rev().map(|page| if page == 0 { Part::Tail } else { Part::Page(page) });
        Some(bits.chain([Part::Head]).collect())
    }

    /// Writes parts of the bitmap to every member, each durable before the next. Gives the members that failed
    /// the first part that any failed.
    async fn write_bitmap_parts(&self, parts: Vec<Part>) -> Vec<(MemberId, IoError)> {
        for part in parts {
            let live = self.members.iter().filter(|member| member.is_live());
            let writes = live.map(|member| self.write_bitmap_part(member, part));
            let failed: Vec<_> =
                join_all(writes).await.into_iter().filter_map(Result::err).collect();
            if !failed.is_empty() {
                return failed;
            }
        }
        Vec::new()
    }

    async fn write_bitmap_part(
        &self,
        member: &Member,
        part: Part,
    ) -> Result<(), (MemberId, IoError)> {
        match self.bitmap_part_of(&member.superblock, &member.info, part) {
            Some((sector, bytes)) => self.write_with_room(member, sector, bytes).await,
            None => Ok(()),
        }
    }

    /// A part of the bitmap as it is now, and the sector of a device to which it goes.
    pub(super) fn bitmap_part_of(
        &self,
        superblock: &Superblock,
        info: &MemberInfo,
        part: Part,
    ) -> Option<(u64, Vec<u8>)> {
        let bitmap = self.bitmap.as_ref()?;
        let start = superblock.bitmap_sector()?;
        let page = if let Part::Page(page) = part { page } else { 0 };
        let mut bytes = bitmap.header.encode_page(&bitmap.map, page).to_vec();
        let block = info.logical_block_bytes as usize;
        bytes.truncate(bitmap.header.page_bytes(page).next_multiple_of(block));
        // What a device writes as a whole.
        let head = block.max(SECTOR).min(bytes.len());
        let here = match part {
            Part::Page(_) => 0..bytes.len(),
            Part::Head => 0..head,
            Part::Tail => head..bytes.len(),
        };
        let sector = start + page * (PAGE_BYTES / SECTOR) as u64 + (here.start / SECTOR) as u64;
        (!here.is_empty()).then(|| (sector, bytes[here].to_vec()))
    }

    /// One pass of md's bitmap daemon: bits that nobody used since the last pass are cleared. Never
    /// while degraded: they tell what a member that is out has missed. Nor while the array is stopped: a pass waits for
    /// members, who stops does not, and an orderly stop clears all bits itself.
    pub(super) async fn clear_idle_bits(&mut self) {
        let now = self.lane.backend().now();
        if self.next_clearing.is_none_or(|when| now < when) {
            return;
        }
        self.next_clearing = None;
        if self.stop.is_some() {
            return;
        }
        if self.may_clear_bits() {
            let idle = self.array.intent.begin_clearing();
            if !idle.is_empty() {
                self.intent_epoch += 1;
                let epoch = self.publish();
                if self.array.rules.keep(Rule::PassesWaitForLanes) {
                    self.array.views.adopted(epoch).await;
                }
                self.array.views.settle();
            }
            let idle = self.array.intent.end_clearing(idle);
            self.clear_bits(idle).await;
        }
        self.set_clearing_alarm();
    }

    fn may_clear_bits(&self) -> bool {
        let is_whole = self.degraded() == 0 || !self.array.rules.keep(Rule::ClearingWaitsForWhole);
        is_whole && !self.read_only && self.may_write()
    }

    /// The same, where no member has failed that is still there until the others have answered.
    fn may_clear_now(&self) -> bool {
        let view = self.array.views.current();
        self.may_clear_bits() && self.array.failing(&view).next().is_none()
    }

    /// Clears bits of chunks in which no write is under way, except where resync is still to come.
    /// First all that was written there is flushed on every member: after a power cut nothing else
    /// than the bits would tell that one of them lost it. Nor that a replacement lacks something. Then the header,
    /// and then the bits.
    pub(super) async fn clear_bits(&mut self, chunks: Chunks) {
        if chunks.is_empty() {
            return;
        }
        let flushed = !self.array.rules.keep(Rule::ClearingIsFlushed) || self.flush_members().await;
        if flushed {
            self.array.points.reach(Point::ClearingIsFlushed);
        }
        let prepared = flushed
            && self.may_clear_now()
            && self.take_back_promises().await
            && self.may_clear_now()
            && self.record_clearing().await
            && self.may_clear_now();
        if !prepared {
            return self.array.intent.set_durable(&chunks);
        }
        self.array.points.reach(Point::ClearingIsRecorded);
        let Some(bitmap) = &mut self.bitmap else { return };
        let header = &bitmap.header;
        let stays = self.array.rules.keep(Rule::UnsyncedBitsStay);
        let unsynced =
            |chunk: u64| stays && self.unsynced.overlaps(&header.sectors_of(chunk..chunk + 1));
        let (mut kept, mut pages) = (Chunks::default(), BTreeSet::new());
        for chunk in chunks.iter() {
            if unsynced(chunk) {
                kept.insert(chunk);
            } else {
                bitmap.map.clear(chunk);
                pages.insert(DirtyMap::page_of(chunk));
            }
        }
        self.array.intent.set_durable(&kept);
        if !pages.is_empty() && self.write_bitmap_pages(&pages).await {
            self.array.points.reach(Point::BitsAreCleared);
        }
    }

    /// Says on every member which update the next cleared bits belong to. The array is whole: whoever
    /// leaves from now on can come back by the bits that are set later, and nobody who left before.
    /// Durable before a bit is cleared: after a power cut that kept the cleared bits and not this, a
    /// member that left earlier would come back by bits that no longer tell what it missed.
    async fn record_clearing(&mut self) -> bool {
        let Some(bitmap) = &mut self.bitmap else { return false };
        if bitmap.header.events_cleared == bitmap.header.events && !bitmap.copies_differ {
            return true;
        }
        if !self.array.rules.keep(Rule::ClearingIsRecordedFirst) {
            return true;
        }
        bitmap.header.events_cleared = bitmap.header.events;
        loop {
            let Some(parts) = self.bits_to_write() else { return false };
            let failed = self.write_bitmap_parts(parts).await;
            if failed.is_empty() {
                return true;
            }
            if !self.take_out_failed(failed).await {
                return false;
            }
        }
    }

    /// Rings after the bitmap's sleep while any bit is set and may be cleared.
    pub(super) fn set_clearing_alarm(&mut self) {
        let Some(bitmap) = &self.bitmap else { return };
        if self.next_clearing.is_none() && self.array.intent.any() && self.may_clear_bits() {
            let sleep = Duration::from_secs(bitmap.header.daemon_sleep_seconds.into());
            self.next_clearing = Some(self.lane.backend().now() + sleep);
        }
    }
}

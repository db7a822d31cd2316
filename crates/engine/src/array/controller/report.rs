//! The array's status, as its owner knows it.

use crate::status::{
    ArrayState, ArrayStatus, BITS_A_PAGE, BitmapStatus, ConsistencyPolicy, MemberState as Word,
    MemberStatus, Skipped, SyncStatus, WriteBehindStatus,
};

use crate::balance::Load;
use crate::geometry::Geometry;

use super::super::mirror::device;
use super::bitmap::Bitmap;
use super::progress::Readable;
use super::{Controller, Member, MemberState, WriteMode};

impl Controller {
    pub(super) fn status(&self) -> ArrayStatus {
        let superblock = &self.model().superblock;
        let view = self.array.views.current();
        ArrayStatus {
            uuid: superblock.set_uuid,
            name: superblock.set_name.to_string(),
            metadata: superblock.place.version,
            created_s: superblock.ctime.seconds(),
            updated_s: superblock.utime.seconds(),
            events: self.events,
            level: superblock.level,
            layout: superblock.layout,
            chunk_sectors: superblock.chunk_sectors,
            raid_disks: superblock.raid_disks,
            size_sectors: self.geometry.array_sectors(),
            member_sectors: superblock.size_sectors,
            logical_block_bytes: view.block_sectors * 512,
            state: self.state_word(),
            consistency_policy: match (&self.bitmap, self.is_redundant()) {
                (_, false) => ConsistencyPolicy::None,
                (Some(_), true) => ConsistencyPolicy::Bitmap,
                (None, true) => ConsistencyPolicy::Resync,
            },
            bitmap: self.bitmap.as_ref().map(bitmap_status),
            write_behind: self.write_behind_status(),
            sync: self.sync_status(),
            mismatch_sectors: self.sync.mismatch_sectors,
            mismatches: self.sync.mismatches(),
            lost: Skipped::from(&self.lost_to_bad_blocks()),
            doubted: Skipped::from(&self.in_doubt()),
            members: self.members.iter().map(|member| self.member_status(member)).collect(),
        }
    }

    fn write_behind_status(&self) -> Option<WriteBehindStatus> {
        let behind = &self.array.behind;
        let status = WriteBehindStatus { limit: behind.limit(), under_way: behind.under_way() };
        (behind.limit() > 0).then_some(status)
    }

    fn state_word(&self) -> ArrayState {
        match self.mode {
            WriteMode::ReadOnly | WriteMode::Stopped => ArrayState::Readonly,
            WriteMode::Clean => ArrayState::Clean,
            WriteMode::Closing | WriteMode::Open if self.is_redundant() => ArrayState::Active,
            WriteMode::Closing | WriteMode::Open => ArrayState::Clean,
            WriteMode::Broken => ArrayState::Broken,
        }
    }

    fn sync_status(&self) -> SyncStatus {
        let (action, completed_sectors, total_sectors) = self.sync.progress();
        SyncStatus {
            action,
            last_action: self.sync.last_action,
            completed_sectors,
            total_sectors,
            delayed: self.sync.delay.is_some(),
            waiting: self.sync.waiting(),
            speed_kib_s: self.sync.speed_kib_s(self.lane.backend().now()),
            last_end: self.sync.last_end,
            skipped: self.sync.skipped(),
        }
    }

    fn member_status(&self, member: &Member) -> MemberStatus {
        let superblock = &member.superblock;
        MemberStatus {
            name: member.info.name.clone(),
            number: superblock.dev_number,
            device_uuid: superblock.device_uuid,
            slot: member.role().slot().filter(|_| member.is_written()).map(u32::from),
            state: match member.state {
                MemberState::InSync(_) => Word::InSync,
                MemberState::Recovering(..) | MemberState::Replacing(..) => Word::Recovering,
                MemberState::Spare => Word::Spare,
                MemberState::Faulty | MemberState::Lost(_) => Word::Faulty,
            },
            is_lost: matches!(member.state, MemberState::Lost(_)),
            write_mostly: superblock.flags.write_mostly(),
            late: member.is_late,
            lacks_space: self.lacks_space(member),
            failfast: superblock.flags.fail_fast(),
            corrected_errors: superblock.corrected_reads,
            recovery_offset_sectors: member.filled_to().map_or(0, Readable::sector),
            replacement: member.replaces(),
            want_replacement: member.wants_replacement,
            bad_ranges: member.bad.iter().count() as u32,
            data_offset_sectors: superblock.data_offset_sectors,
            size_sectors: member.info.sectors,
            load: self.load(member),
        }
    }

    /// What reads and writes it gets and how it does, on levels that choose whom to read.
    fn load(&self, member: &Member) -> Option<Load> {
        let mirrors = matches!(*self.geometry, Geometry::Raid1(_) | Geometry::Raid10(_));
        let slot = member.slot().filter(|_| mirrors)?;
        Some(self.array.gauges.load(usize::from(slot.0), device(member.id)))
    }
}

fn bitmap_status(bitmap: &Bitmap) -> BitmapStatus {
    let total_bits = bitmap.header.chunks();
    let mut dirty_pages = 0;
    let mut next = bitmap.map.next(0, true);
    while let Some(bit) = next {
        dirty_pages += 1;
        next = bitmap.map.next((bit / BITS_A_PAGE + 1) * BITS_A_PAGE, true);
    }
    BitmapStatus {
        chunk_bytes: bitmap.header.chunk_bytes.into(),
        dirty_bits: bitmap.map.count(),
        total_bits,
        dirty_pages,
    }
}

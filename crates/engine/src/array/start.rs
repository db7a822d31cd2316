//! From an assembled array to a running one.

use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use mdspace_format::{BadBlockLog, BitmapSuperblock, DirtyMap, Features, Superblock};

use crate::backend::{MemberId, MemberInfo};
use crate::balance::Gauges;
use crate::geometry::{Geometry, Slot};
use crate::lane::Lane;
use crate::neighbours::Neighbours;
use crate::ranges::Ranges;

use super::Array;
use super::array_lane::ArrayLane;
use super::claims::Claims;
use super::controller::Controller;
use super::news::NewsCount;
use super::settings::{Levels, Settings, StartSettings};
use super::view::{ArrayView, MemberView, Views, WriteMode};

/// Everything that it takes to run an array. Made by [`assembly`](crate::assembly).
#[derive(Debug)]
pub struct Start {
    /// The members that take part, spares among them. What each is stands in its superblock.
    pub members: Vec<StartMember>,
    /// Where things lie.
    pub geometry: Geometry,
    /// Its logical block, in bytes.
    pub block_bytes: u32,
    /// Event count of the freshest superblock.
    pub events: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// Whether the array was in use when it was last seen: what is unsynced may be wrong anywhere.
    pub crashed: bool,
    /// Whether a member is not here that the superblocks still count on.
    pub lacks_listed: bool,
    /// Whether the user wants what is missing there to be computed from parity as it is.
    pub accepts_doubt: bool,
    /// Where redundancy is not to be trusted.
    pub unsynced: Ranges,
    /// The bitmap as found.
    pub bitmap: Option<(BitmapSuperblock, DirtyMap)>,
    /// Whether not every member has the bitmap like that.
    pub copies_differ: bool,
    /// Members whose recovery needs only what the bitmap marks.
    pub by_bitmap: Vec<MemberId>,
    /// What the user fixed for as long as the array runs.
    pub settings: StartSettings,
    /// Who knows which other arrays sync on the same devices.
    pub neighbours: Option<Arc<dyn Neighbours>>,
}

impl Start {
    /// What the crash left in doubt.
    pub(super) fn doubted(&self) -> Ranges {
        if self.crashed { self.unsynced.clone() } else { Ranges::default() }
    }

    /// Whether some superblock counts on a member that is not here, where blocks may differ: it may be back after the next
    /// crash, and what others gave meanwhile would turn back. A superblock that is an update behind may not have heard that
    /// a member is out.
    pub(super) fn is_unrecorded(&self) -> bool {
        let any_behind = self.members.iter().any(|member| member.behind.is_some());
        let may_differ = self.crashed || !self.unsynced.is_empty();
        may_differ && (self.lacks_listed || any_behind)
    }
}

/// A member that takes part.
#[derive(Debug)]
pub struct StartMember {
    /// The device.
    pub id: MemberId,
    /// What it can do.
    pub info: MemberInfo,
    /// Its superblock, with the role that the freshest superblock gives it.
    pub superblock: Superblock,
    /// Whether its superblock, as it stands on the device, says that it is in sync if it is. Not that of a
    /// replacement which assembly has taken for the member.
    pub is_on_record: bool,
    /// Where the freshest superblock is of a later update: what its own is to say of that one.
    pub behind: Option<Superblock>,
    /// Its bad-block log, as it stands on the device.
    pub log: BadBlockLog,
}

impl StartMember {
    /// Its listed bad sectors, counted from its data offset.
    pub fn listed(&self) -> Ranges {
        listed_in_data(&self.log, self.superblock.data_offset_sectors)
    }
}

impl Array {
    /// An array over `lanes` lanes, ready for its lanes to attach. Then [`Array::control`] is to be
    /// called on lane 0.
    pub fn new(start: &Start, lanes: usize) -> Arc<Self> {
        Self::with_nodes(start, lanes, 1)
    }

    /// As [`Array::new`], on a machine of so many NUMA nodes. `lanes` counts all that are ever
    /// attached at one time, workers among them.
    pub fn with_nodes(start: &Start, lanes: usize, nodes: usize) -> Arc<Self> {
        let levels = Levels::from(&start.geometry);
        let mirrors = match levels {
            Levels::Mirrors => usize::from(start.geometry.raid_disks()),
            Levels::Parity | Levels::Others => 0,
        };
        Arc::new(Self {
            views: Views::new(first_view(start), lanes, !start.is_unrecorded() || start.read_only),
            claims: Claims::new(start.settings.stripe_hash_locks()),
            intent: super::Intent::default(),
            flushes: super::Flushes::default(),
            mailbox: super::Mailbox::default(),
            settings: Settings::new(start.settings, levels),
            cache: super::StripeCache::default(),
            handover: super::Handover::new(lanes, nodes),
            gauges: Gauges::new(lanes, mirrors),
            behind: super::Behind::new(write_behind(start)),
            rules: super::Rules::default(),
            points: super::Points::default(),
            sync_span: super::SyncSpan::default(),
            users: super::Users::new(lanes),
            failed: super::Mutex::default(),
        })
    }

    /// Starts the controller on `lane`, the home of lane 0's part of the array.
    pub fn control(self: &Arc<Self>, start: Start, lane: &Rc<Lane>, port: &Rc<ArrayLane>) {
        let controller = Controller::new(start, self.clone(), port.clone());
        lane.spawn(controller.run());
    }

    /// Sends a command to the controller.
    pub fn command(&self, command: super::Command) {
        self.mailbox.command(command);
    }
}

/// Writes that may be left behind: of RAID1 with a bitmap, as the bitmap says.
fn write_behind(start: &Start) -> u32 {
    match (&start.geometry, &start.bitmap) {
        (Geometry::Raid1(_), Some((header, _))) => header.write_behind,
        _ => 0,
    }
}

fn first_view(start: &Start) -> ArrayView {
    let mut slots = vec![None; usize::from(start.geometry.raid_disks())];
    let mut replacements = Vec::new();
    for member in &start.members {
        let Some(slot) = member.superblock.own_role().slot() else { continue };
        match member.superblock.features.contains(Features::REPLACEMENT) {
            true => replacements.push((Slot(slot), first_member_view(member))),
            false => slots[usize::from(slot)] = Some(first_member_view(member)),
        }
    }
    let infos = || start.members.iter().map(|member| &member.info);
    let block_sectors = start.block_bytes / 512;
    let mode = match (start.read_only, start.geometry.max_failures() > 0) {
        (true, _) => WriteMode::ReadOnly,
        (false, true) => WriteMode::Clean,
        (false, false) => WriteMode::Open,
    };
    let doubted = start.doubted();
    let unaccepted = if start.accepts_doubt { Ranges::default() } else { doubted.clone() };
    ArrayView {
        epoch: 1,
        taken_out: 1,
        whole: false,
        plain: false,
        slots,
        replacements,
        mode,
        rests: None,
        unsynced: Arc::new(start.unsynced.clone()),
        doubted: Arc::new(doubted),
        unaccepted: Arc::new(unaccepted),
        accepted_for_all: Arc::default(),
        outliers: Arc::default(),
        unresolved: Arc::default(),
        heard: NewsCount::default(),
        block_sectors,
        unit_sectors: start.settings.unit_sectors().max(block_sectors),
        intent_chunk_sectors: start.bitmap.as_ref().map(|(header, _)| header.chunk_sectors()),
        intent_epoch: 0,
        discard: infos().all(|info| info.discard_zeroes),
        geometry: Arc::new(start.geometry.clone()),
    }
}

/// What a log lists, counted from the data offset: the log counts sectors of the device.
pub(super) fn listed_in_data(log: &BadBlockLog, data_offset_sectors: u64) -> Ranges {
    let in_data = |range: &Range<u64>| {
        let [start, end] =
            [range.start, range.end].map(|sector| sector.saturating_sub(data_offset_sectors));
        start..end
    };
    log.blocks().ranges().iter().map(in_data).filter(|range| !range.is_empty()).collect()
}

fn first_member_view(member: &StartMember) -> MemberView {
    let filled_sectors = member.superblock.recovery_offset_sectors.unwrap_or(u64::MAX);
    MemberView {
        id: member.id,
        data_offset: member.superblock.data_offset_sectors,
        readable_sectors: filled_sectors,
        filled_sectors,
        durable_sectors: filled_sectors,
        recorded_sectors: if member.is_on_record { filled_sectors } else { 0 },
        bad: Arc::new(member.listed()),
        bad_in_memory: Arc::default(),
        holes: Arc::default(),
        write_mostly: member.superblock.flags.write_mostly(),
        failfast: member.superblock.flags.fail_fast(),
        rotational: member.info.rotational,
        is_sparse: member.info.is_sparse,
    }
}

//! Disks in memory that count what is asked of them and fail as they are told.

use std::cell::{RefCell, RefMut};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use mdspace_engine::backend::{IoError, IoErrorKind, MemberId, MemberInfo};
use mdspace_engine::time::Time;
use mdspace_format::bitmap::PAGE_BYTES;
use mdspace_format::superblock::MAGIC;
use mdspace_format::{BitmapSuperblock, DirtyMap, MetadataVersion, Superblock, SuperblockPlace};

use crate::shapes::Shape;

use super::{Random, SECTOR};

pub(crate) struct Disks(RefCell<Vec<Disk>>);

#[derive(Default)]
pub(crate) struct Disk {
    pub(crate) bytes: Vec<u8>,
    generation: u16,
    logical_block_bytes: u32,
    /// Sectors that cannot be read until they are written.
    pub(crate) unreadable: BTreeSet<u64>,
    /// A write does not help them.
    pub(crate) unreadable_for_good: bool,
    /// How every read ends.
    pub(crate) read_error: Option<IoErrorKind>,
    /// How every write ends.
    pub(crate) write_error: Option<IoErrorKind>,
    /// How every flush ends.
    pub(crate) flush_error: Option<IoErrorKind>,
    /// How its next flush ends, and that one alone: what it was to make durable is there until the next
    /// power cut, whatever later flushes say.
    pub(crate) next_flush_fails: Option<IoErrorKind>,
    /// A durable write is a write and a flush.
    pub(crate) fua_flushes: bool,
    /// Flushes that this lane sends are not answered as long as this stands.
    pub(crate) flush_hangs_on: Option<u16>,
    /// The same of its writes.
    pub(crate) writes_hang_on: Option<u16>,
    /// Flushes that ended well or badly.
    pub(crate) flushes: u64,
    pub(crate) reads: Vec<Range<u64>>,
    /// What it was told of before it was read or written.
    pub(crate) prefetched: Vec<Range<u64>>,
    /// Every write since it was last taken, in the order of their ends.
    pub(crate) writes: Vec<Range<u64>>,
    /// Sectors that were discarded.
    pub(crate) discarded: u64,
    /// Sectors that were written and not flushed, as they were before.
    unflushed: BTreeMap<u64, Vec<u8>>,
    /// Those that a failed flush did not make durable, as they were before.
    given_up: BTreeMap<u64, Vec<u8>>,
    /// Writes and flushes that end well before `write_error` takes hold.
    pub(crate) grace: u64,
    /// Where `write_error` holds; everywhere without it.
    pub(crate) errors_in: Option<Range<u64>>,
    /// Writes that touch this sector, or one that is so many further on, or twice as many, are medium
    /// errors.
    pub(crate) refuses_every: Option<(u64, u64)>,
    /// `write_error` is over after its first time.
    pub(crate) error_once: bool,
    /// Power fails in the middle of the next write that begins with this sector: only these sectors of it
    /// land, given as bits, and nothing does after it until power is back.
    pub(crate) cut_at: Option<(u64, u8)>,
    /// Power has failed so.
    pub(crate) is_off: bool,
    /// Power fails in the middle of this update of the superblock, given by its events: only these
    /// sectors of it land, given as bits, and nothing does after it until power is back.
    pub(crate) cut_in_update: Option<(u64, u8)>,
    /// What these sectors held before and after each write to them, once it is asked for.
    pub(crate) images_of: Option<Images>,
    /// A discard changes nothing.
    pub(crate) keeps_discarded: bool,
    /// It says that it takes room only for what is written.
    pub(crate) is_sparse: bool,
    /// So long takes each of its I/Os, whatever becomes of it.
    pub(crate) takes: Duration,
    /// So long takes each of its reads, beside each other and whatever else it does.
    pub(crate) reads_take: Duration,
    pub(crate) rotational: bool,
    /// Where disks take their time: it is through with all that it has.
    pub(super) busy_until: Time,
    /// It ends here now: it was cut off.
    pub(crate) ends_at: Option<u64>,
    /// I/Os that begin here are not answered as long as this stands.
    pub(crate) hangs_in: Option<Range<u64>>,
    /// The same of writes alone.
    pub(crate) writes_hang_in: Option<Range<u64>>,
    /// What is under way, where a write that overlaps something else is to be found out.
    under_way: Option<Vec<UnderWay>>,
}

/// What some sectors held before and after each write to them.
#[derive(Default)]
pub(crate) struct Images {
    pub(crate) sectors: Range<u64>,
    pub(crate) writes: Vec<[Vec<u8>; 2]>,
}

/// An I/O between its beginning and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UnderWay {
    pub(super) sectors: Range<u64>,
    pub(super) writes: bool,
}

impl UnderWay {
    /// Whether two that go on at once leave to chance what is read or stays.
    fn races(&self, other: &Self) -> bool {
        (self.writes || other.writes)
            && self.sectors.start < other.sectors.end
            && other.sectors.start < self.sectors.end
    }
}

impl Disks {
    pub(crate) fn new(shape: &Shape, more: usize, random: &mut Random) -> Rc<Self> {
        let disk = |index| Disk {
            bytes: random.bytes(shape.disk_sectors(index) as usize * SECTOR),
            logical_block_bytes: shape.block_bytes,
            ..Disk::default()
        };
        Rc::new(Self(RefCell::new((0..usize::from(shape.disks) + more).map(disk).collect())))
    }

    pub(crate) fn count(&self) -> usize {
        self.0.borrow().len()
    }

    pub(crate) fn id(&self, index: usize) -> MemberId {
        MemberId { index: index as u16, generation: self.disk(index).generation }
    }

    pub(crate) fn info(&self, index: usize) -> MemberInfo {
        let disk = self.disk(index);
        MemberInfo {
            name: format!("disk{index}"),
            sectors: disk.ends_at.unwrap_or(disk.sectors()),
            logical_block_bytes: disk.logical_block_bytes,
            rotational: disk.rotational,
            discard_zeroes: !disk.keeps_discarded,
            is_sparse: disk.is_sparse,
        }
    }

    /// From now on an I/O that overlaps a write under way on its disk is a panic. None is under way now.
    pub(crate) fn notice_races(&self) {
        self.0.borrow_mut().iter_mut().for_each(|disk| disk.under_way = Some(Vec::new()));
    }

    /// Another open of the same disk.
    pub(crate) fn reopen(&self, index: usize) {
        self.disk(index).generation += 1;
    }

    pub(crate) fn disk(&self, index: usize) -> RefMut<'_, Disk> {
        RefMut::map(self.0.borrow_mut(), |disks| &mut disks[index])
    }

    /// Where members' data lie, as disk 0's superblock says.
    pub(crate) fn data(&self) -> Range<u64> {
        let superblock = self.superblock(0).expect("disk 0 is a member");
        superblock.used_data_range().expect("data has a place")
    }

    /// The superblock of a disk, whatever its version.
    pub(crate) fn superblock(&self, index: usize) -> Option<Superblock> {
        let sectors = self.disk(index).sectors();
        let places = MetadataVersion::PROBE_ORDER.into_iter().filter_map(|v| v.place(sectors));
        let disk = self.disk(index);
        let parse = |place: SuperblockPlace| {
            Superblock::parse(&disk.bytes[byte(place.sector)..][..4096], place, sectors).ok()
        };
        places.filter_map(parse).next()
    }

    /// A member's superblock as it lies on the disk.
    pub(crate) fn superblock_bytes(&self, index: usize) -> Vec<u8> {
        self.superblock(index).expect("a member").encode()
    }

    /// Changes a member's superblock as it lies on the disk.
    pub(crate) fn change_superblock(&self, index: usize, change: impl FnOnce(&mut Superblock)) {
        let mut superblock = self.superblock(index).expect("a member");
        change(&mut superblock);
        let (at, bytes) = (byte(superblock.place.sector), superblock.encode());
        let own = superblock.superblock_range();
        let length = byte(own.end - own.start);
        self.disk(index).bytes[at..at + length].copy_from_slice(&bytes[..length]);
    }

    /// A member's bitmap as it lies on the disk, if it is one.
    pub(crate) fn bitmap(&self, index: usize) -> Option<(BitmapSuperblock, DirtyMap)> {
        let room = self.superblock(index).expect("a member").bitmap_room()?;
        let bytes = self.disk(index).bytes[byte(room.start)..byte(room.end)].to_vec();
        let header = BitmapSuperblock::parse(&bytes, room.end - room.start).ok()?;
        let map = DirtyMap::parse(header.chunks(), &bytes);
        Some((header, map))
    }

    /// Writes a bitmap to where a member's superblock says that it has one.
    pub(crate) fn put_bitmap(&self, index: usize, (header, map): &(BitmapSuperblock, DirtyMap)) {
        let start = self.superblock(index).expect("a member").bitmap_sector().expect("a place");
        for page in 0..header.pages() {
            let at = byte(start) + page as usize * PAGE_BYTES;
            let length = header.page_bytes(page);
            let bytes = header.encode_page(map, page);
            self.disk(index).bytes[at..at + length].copy_from_slice(&bytes[..length]);
        }
    }

    /// Forgets what was asked of every disk so far.
    pub(crate) fn reset_counts(&self) {
        for disk in self.0.borrow_mut().iter_mut() {
            disk.reads.clear();
            disk.prefetched.clear();
            disk.writes.clear();
        }
    }
}

impl Disk {
    pub(crate) fn sectors(&self) -> u64 {
        (self.bytes.len() / SECTOR) as u64
    }

    /// The cable is out: nothing is answered well.
    pub(crate) fn unplug(&mut self) {
        let gone = Some(IoErrorKind::Gone);
        (self.read_error, self.write_error, self.flush_error) = (gone, gone, gone);
    }

    /// Its next write ends so, and that one alone.
    pub(crate) fn fail_once(&mut self, kind: IoErrorKind) {
        (self.write_error, self.error_once) = (Some(kind), true);
    }

    pub(crate) fn plug(&mut self) {
        (self.read_error, self.write_error, self.flush_error) = (None, None, None);
    }

    /// Sectors written in `range`.
    pub(crate) fn sectors_written(&self, range: Range<u64>) -> u64 {
        sectors_inside(&self.writes, &range)
    }

    /// Sectors read in `range`.
    pub(crate) fn sectors_read_in(&self, range: Range<u64>) -> u64 {
        sectors_inside(&self.reads, &range)
    }

    pub(crate) fn sectors_read(&self) -> u64 {
        self.sectors_read_in(0..u64::MAX)
    }

    pub(super) fn begins(&mut self, io: UnderWay) {
        let Some(under_way) = &mut self.under_way else { return };
        let other = under_way.iter().find(|other| other.races(&io));
        assert!(other.is_none(), "{io:?} meets {other:?}");
        under_way.push(io);
    }

    pub(super) fn ends(&mut self, io: &UnderWay) {
        let Some(under_way) = &mut self.under_way else { return };
        if let Some(at) = under_way.iter().position(|other| other == io) {
            under_way.swap_remove(at);
        }
    }

    pub(super) fn read(&mut self, sector: u64, out: &mut [u8]) -> Result<(), IoError> {
        let sectors = (out.len() / SECTOR) as u64;
        self.check_place(sector, out.len());
        self.reads.push(sector..sector + sectors);
        fails(self.cut_off(sector + sectors).or(self.read_error))?;
        if self.unreadable.range(sector..sector + sectors).next().is_some() {
            return fails(Some(IoErrorKind::Medium));
        }
        out.copy_from_slice(&self.bytes[byte(sector)..byte(sector + sectors)]);
        Ok(())
    }

    /// The power fails: what was not flushed is not there.
    pub(crate) fn lose_cache(&mut self) {
        (self.cut_at, self.cut_in_update, self.is_off) = (None, None, false);
        let unflushed = std::mem::take(&mut self.unflushed);
        for (sector, old) in unflushed.into_iter().chain(std::mem::take(&mut self.given_up)) {
            self.bytes[byte(sector)..byte(sector + 1)].copy_from_slice(&old);
        }
    }

    /// The power fails: of what was not flushed the sectors are lost of which `is_lost` says so.
    pub(crate) fn lose_cache_of(&mut self, mut is_lost: impl FnMut() -> bool) {
        let unflushed = std::mem::take(&mut self.unflushed).into_iter().filter(|_| is_lost());
        self.unflushed = unflushed.collect();
        let given_up = std::mem::take(&mut self.given_up).into_iter().filter(|_| is_lost());
        self.given_up = given_up.collect();
        self.lose_cache();
    }

    pub(super) fn write(&mut self, sector: u64, bytes: &[u8], fua: bool) -> Result<(), IoError> {
        let sectors = (bytes.len() / SECTOR) as u64;
        self.check_place(sector, bytes.len());
        if self.is_off {
            return Ok(());
        }
        let here = |range: &Range<u64>| sector < range.end && range.start < sector + sectors;
        fails(self.cut_off(sector + sectors))?;
        let refuses = |&(first, step): &(u64, u64)| {
            sector + sectors > first
                && (sector.max(first) - first).next_multiple_of(step) < sector + sectors - first
        };
        if self.refuses_every.as_ref().is_some_and(refuses) {
            return fails(Some(IoErrorKind::Medium));
        }
        self.spend(self.write_error.filter(|_| self.errors_in.as_ref().is_none_or(here)))?;
        let flushes = fua && self.fua_flushes;
        for sector in sector..sector + sectors {
            let old = || self.bytes[byte(sector)..byte(sector + 1)].to_vec();
            match fua && !flushes {
                true => {
                    self.unflushed.remove(&sector);
                    self.given_up.remove(&sector);
                }
                false => drop(self.unflushed.entry(sector).or_insert_with(old)),
            }
        }
        let watched = self.images_of.as_ref().map(|images| images.sectors.clone()).filter(here);
        let before = watched.as_ref().map(|range| self.image(range));
        let lands = self.cut_in(sector, bytes);
        let lands_there = |piece: &usize| lands.is_none_or(|lands| lands >> piece & 1 == 1);
        for piece in (0..sectors as usize).filter(lands_there) {
            let (from, at) = (piece * SECTOR, byte(sector) + piece * SECTOR);
            self.bytes[at..at + SECTOR].copy_from_slice(&bytes[from..from + SECTOR]);
        }
        self.is_off = lands.is_some();
        if let (Some(range), Some(before)) = (watched, before) {
            let after = self.image(&range);
            self.images_of.as_mut().expect("it is watched").writes.push([before, after]);
        }
        if !self.unreadable_for_good {
            self.unreadable.retain(|bad| !(sector..sector + sectors).contains(bad));
        }
        self.writes.push(sector..sector + sectors);
        if flushes {
            self.flush().map_err(|error| IoError { kind: IoErrorKind::Flush, ..error })?;
        }
        Ok(())
    }

    /// Which sectors of a write land in the middle of which power fails.
    fn cut_in(&self, sector: u64, bytes: &[u8]) -> Option<u8> {
        let here = self.cut_at.filter(|(at, _)| *at == sector).map(|(_, lands)| lands);
        let (events, lands) = self.cut_in_update.unzip();
        let update = update_of(bytes).filter(|update| events.is_some_and(|cut| *update >= cut));
        // A disk may not get the update itself: what follows it is not written either.
        let in_update =
            update.and_then(|update| lands.filter(|_| Some(update) == events).or(Some(0)));
        here.or(in_update)
    }

    fn image(&self, sectors: &Range<u64>) -> Vec<u8> {
        self.bytes[byte(sectors.start)..byte(sectors.end)].to_vec()
    }

    pub(super) fn flush(&mut self) -> Result<(), IoError> {
        self.flushes += 1;
        let unflushed = std::mem::take(&mut self.unflushed);
        if let Some(kind) = self.next_flush_fails.take() {
            for (sector, old) in unflushed {
                self.given_up.entry(sector).or_insert(old);
            }
            return fails(Some(kind));
        }
        if let Err(error) = self.spend(self.flush_error) {
            self.unflushed = unflushed;
            return Err(error);
        }
        self.given_up.retain(|sector, _| !unflushed.contains_key(sector));
        Ok(())
    }

    /// A flush fails, and its error is told to nobody: it was part of what is not answered in time.
    pub(crate) fn flush_in_vain(&mut self) {
        self.next_flush_fails = Some(IoErrorKind::Other);
        self.flush().expect_err("it was told to fail");
    }

    /// The drive resets: what it was not told to flush is as it was before, and its next flush says so.
    pub(crate) fn reset(&mut self) {
        self.lose_cache();
        self.next_flush_fails = Some(IoErrorKind::Other);
    }

    fn cut_off(&self, end: u64) -> Option<IoErrorKind> {
        self.ends_at.is_some_and(|last| end > last).then_some(IoErrorKind::Gone)
    }

    fn spend(&mut self, error: Option<IoErrorKind>) -> Result<(), IoError> {
        if error.is_some() && self.grace > 0 {
            self.grace -= 1;
            return Ok(());
        }
        if error.is_some() && self.error_once {
            (self.write_error, self.error_once) = (None, false);
        }
        fails(error)
    }

    /// A backend is asked for whole logical blocks inside the device only.
    fn check_place(&self, sector: u64, length: usize) {
        let block = self.logical_block_bytes as usize;
        assert!(length > 0 && length.is_multiple_of(block), "{length} bytes are not whole blocks");
        assert!(byte(sector).is_multiple_of(block), "sector {sector} begins no block");
        assert!(byte(sector) + length <= self.bytes.len(), "sector {sector} is off the device");
    }
}

fn sectors_inside(ios: &[Range<u64>], range: &Range<u64>) -> u64 {
    let inside = |io: &Range<u64>| io.end.min(range.end).saturating_sub(io.start.max(range.start));
    ios.iter().map(inside).sum()
}

/// The events of a superblock that is written.
fn update_of(bytes: &[u8]) -> Option<u64> {
    let is_one = bytes.starts_with(&MAGIC.to_le_bytes());
    is_one.then(|| u64::from_le_bytes(bytes[200..208].try_into().expect("eight bytes")))
}

fn byte(sector: u64) -> usize {
    sector as usize * SECTOR
}

fn fails(error: Option<IoErrorKind>) -> Result<(), IoError> {
    error.map_or(Ok(()), |kind| Err(IoError { kind, errno: 5 }))
}

//! Proving that a path leads to the device that the others lead to.

use std::hash::{DefaultHasher, Hash, Hasher};

use mdspace_format::superblock::{self, Superblock};
use mdspace_format::{SuperblockPlace, Uuid};

use crate::array::rules::{Rule, keep};
use crate::backend::{
    IoError, IoErrorKind, IoOp, MemberId, MemberInfo, MemberIo, Patience, ReadInto,
};
use crate::lane::{Lane, join_all};

use super::given;

pub(super) const BLOCK_BYTES: usize = 4096;

pub(super) const SECTOR_BYTES: usize = 512;

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    sectors: u64,
    /// What md's superblock says, if it has one.
    pub(super) superblock: Option<Said>,
    /// What was read of it: as a rule its first block, and that of its superblock.
    blocks: Vec<u8>,
}

/// What a superblock says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said {
    set: Uuid,
    device: Uuid,
    pub(super) events: u64,
    /// Of all that it says: another update of the same device has another one, also one of the same event count.
    digest: u64,
}

impl Said {
    pub(super) fn of(superblock: &Superblock) -> Self {
        let (set, device) = (superblock.set_uuid, superblock.device_uuid);
        let digest = digest(&superblock.encode());
        Self { set, device, events: superblock.events, digest }
    }

    /// Whether both are of one device.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        (self.set, self.device) == (other.set, other.device)
    }
}

/// One number for bytes, of which others have another one.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// How a path compares with another one, both read now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compared {
    /// What stood still is the same.
    Same,
    /// It leads to another device, and why.
    Other(String),
    /// Its superblock was written to meanwhile, or everything.
    Unclear,
}

impl Identity {
    /// Of a device of so many `sectors`, of which `pieces` were read, each from this byte on. None: no superblock is
    /// found, and a place where one may lie is not among them.
    pub fn of_pieces(sectors: u64, pieces: &[(u64, &[u8])]) -> Option<Self> {
        let read_at = |place: SuperblockPlace| {
            let at = place.sector * SECTOR_BYTES as u64;
            let (start, bytes) = pieces.iter().rfind(|(start, _)| *start <= at)?;
            bytes.get((at - start) as usize..).filter(|bytes| !bytes.is_empty())
        };
        let places = given::places(sectors);
        let parse = |place| Superblock::parse(read_at(place)?, place, sectors).ok();
        let superblock = superblock::of_device(places.iter().copied().filter_map(parse));
        if superblock.is_none() && places.into_iter().any(|place| read_at(place).is_none()) {
            return None;
        }
        Some(Self {
            sectors,
            superblock: superblock.as_ref().map(Said::of),
            blocks: pieces.iter().flat_map(|(_, bytes)| *bytes).copied().collect(),
        })
    }

    /// Reads it over a path, with `patience` for each block. A place that the device cannot read may lie in
    /// the data of a member of another version, so it counts only where no superblock is found.
    pub(super) async fn read(
        lane: &Lane,
        member: MemberId,
        info: &MemberInfo,
        patience: Patience,
    ) -> Result<Self, IoError> {
        let places = given::places(info.sectors);
        let sectors = [0].into_iter().chain(places.iter().map(|place| place.sector));
        let reads = sectors.map(|sector| read_block(lane, member, info, sector, patience));
        let (mut contents, mut unreadable) = (Vec::new(), None);
        for read in join_all(reads).await {
            contents.push(match read {
                Err(error) if error.kind == IoErrorKind::Medium => {
                    unreadable = Some(error);
                    Vec::new()
                }
                result => result?,
            });
        }
        let mut blocks = contents.remove(0);
        let parse = |(bytes, place): (Vec<u8>, _)| {
            Some((Superblock::parse(&bytes, place, info.sectors).ok()?, bytes))
        };
        let mut found: Vec<_> = contents.into_iter().zip(places).filter_map(parse).collect();
        let known = found.iter().map(|(superblock, _)| superblock.clone());
        let superblock = superblock::of_device(known);
        if let (None, Some(error)) = (&superblock, unreadable) {
            return Err(error);
        }
        let said = superblock.map(|superblock| {
            let at = found.iter().position(|(found, _)| found.place == superblock.place);
            blocks.extend(found.swap_remove(at.expect("it is one of them")).1);
            Said::of(&superblock)
        });
        Ok(Self { sectors: info.sectors, superblock: said, blocks })
    }

    /// Compares it with what another path said `before` it was read, and `after`. Only what was the same
    /// both times tells something, for the device may be written to.
    pub fn compare(&self, before: &Self, after: &Self) -> Compared {
        let other_than = |known: &Self| {
            let has_none = (self.superblock, known.superblock);
            self.contradicts(known).or_else(|| match has_none {
                (Some(own), None) => Some(format!(
                    "it is device {}, the other paths' device has no superblock",
                    own.device
                )),
                _ => None,
            })
        };
        // Half of an update is no superblock.
        let may_be_half = self.superblock.is_none()
            && before.superblock != after.superblock
            && self.sectors == after.sectors;
        if let (Some(_), Some(why)) = (other_than(before), other_than(after)) {
            return if may_be_half { Compared::Unclear } else { Compared::Other(why) };
        }
        let Some([before_it, own, after_it]) = readable_by_all([before, self, after]) else {
            return Compared::Unclear;
        };
        // What stands still beside a superblock that is updated may be zeroes, of which a copy has as many.
        let events = |of: &Self| of.superblock.map(|said| said.events);
        let is_updated = events(before) != events(after);
        let is_not_between = self.is_older_than(before) || after.is_older_than(self);
        let agrees = match is_updated {
            true if is_not_between => Some(false),
            true => None,
            false => steady_sectors_agree(before_it, own, after_it),
        };
        match agrees {
            Some(true) => Compared::Same,
            _ if !keep(Rule::OlderCopiesAreOthers) => Compared::Same,
            None => Compared::Unclear,
            Some(false) => Compared::Other(match (self.superblock, after.superblock) {
                (Some(own), Some(other)) => format!(
                    "its superblock, of event count {}, is not the one of the other paths, of event \
                     count {}",
                    own.events, other.events
                ),
                _ => "its first block is not that of the other paths' device".into(),
            }),
        }
    }

    /// Why it cannot be the device that was `known` some time ago. Once that `may_be_written`, its superblock says that
    /// another one has written to it since, also where event counts do not tell.
    pub(super) fn contradicts_last(&self, known: &Self, may_be_written: bool) -> Option<String> {
        let other = || match () {
            () if self.is_older_than(known) => {
                Some("its superblock is older than the device's was")
            }
            () if may_be_written && self.superblock != known.superblock => {
                Some("its superblock was written by another program since")
            }
            () => None,
        };
        self.contradicts(known).or_else(|| other().map(str::to_owned))
    }

    /// What no update of a superblock changes.
    fn contradicts(&self, known: &Self) -> Option<String> {
        if self.sectors != known.sectors {
            let (own, other) = (self.sectors, known.sectors);
            return Some(format!("it has {own} sectors, the other paths' device {other}"));
        }
        match (self.superblock, known.superblock) {
            (Some(own), Some(other)) if !own.is_of(&other) => Some(format!(
                "its superblock is that of device {}, not {}",
                own.device, other.device
            )),
            (None, Some(other)) => Some(format!("it is not device {}", other.device)),
            _ => None,
        }
    }

    /// Whether it is a copy of the same member that another one was written to after.
    pub(super) fn is_older_than(&self, other: &Self) -> bool {
        match (&self.superblock, &other.superblock) {
            (Some(own), Some(other)) => own.is_of(other) && own.events < other.events,
            _ => false,
        }
    }

    /// What was read of the first block of a device without a superblock; of others nothing.
    pub(super) fn first_block(&self) -> &[u8] {
        match self.superblock {
            None => &self.blocks,
            Some(_) => &[],
        }
    }

    /// Whether nothing tells this device from another one of its size.
    pub(super) fn is_blank(&self) -> bool {
        self.superblock.is_none() && self.blocks.iter().all(|&byte| byte == 0)
    }
}

/// What each of them has read: all, or where one could not read the first block, the superblock alone, which stands
/// last. None: one of them has none.
fn readable_by_all(all: [&Identity; 3]) -> Option<[&[u8]; 3]> {
    let lens = all.map(|one| one.blocks.len());
    let least = lens.into_iter().min()?;
    if lens != [least; 3] && all.iter().any(|one| one.superblock.is_none()) {
        return None;
    }
    Some(all.map(|one| &one.blocks[one.blocks.len() - least..]))
}

/// Whether those sectors that were the same `before` and `after` are the same in `own`, which was read in
/// between. None: each of them was written to meanwhile.
fn steady_sectors_agree(before: &[u8], own: &[u8], after: &[u8]) -> Option<bool> {
    let all = before.chunks(SECTOR_BYTES).zip(own.chunks(SECTOR_BYTES));
    let all = all.zip(after.chunks(SECTOR_BYTES));
    let mut steady = all.filter(|((before, _), after)| before == after).peekable();
    steady.peek()?;
    Some(steady.all(|((before, own), _)| before == own))
}

async fn read_block(
    lane: &Lane,
    member: MemberId,
    info: &MemberInfo,
    sector: u64,
    patience: Patience,
) -> Result<Vec<u8>, IoError> {
    // In whole blocks of the device, and not beyond its end.
    let block = u64::from(info.logical_block_bytes / 512).max(1);
    let first = sector / block * block;
    let skip = (sector - first) as usize * 512;
    let left = (info.sectors - first) as usize * 512;
    let bytes = (skip + BLOCK_BYTES).next_multiple_of(info.logical_block_bytes as usize).min(left);
    let into = ReadInto::Buffer(lane.backend().allocate(bytes), 0..bytes);
    let op = IoOp::Read { sector: first, into };
    let done = lane.io(MemberIo { member, op, patience }).await;
    done.result?;
    let buffer = done.buffer.expect("a finished read gives its buffer back");
    let read = buffer[skip..bytes.min(skip + BLOCK_BYTES)].to_vec();
    lane.backend().recycle(buffer);
    Ok(read)
}

#[cfg(test)]
pub(super) mod tests;

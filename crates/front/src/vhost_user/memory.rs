//! Guest memory: the files that a front end shares, mapped here.

use std::fs::File;
use std::sync::{Arc, Weak};

use vm_memory::mmap::MmapRegionError;
use vm_memory::{
    FileOffset, GuestAddress, GuestMemoryMmap, GuestMemoryRegion, GuestRegionCollectionError,
    GuestRegionMmap, MmapRegion,
};

use super::event;
use super::guard::Guard;

/// Regions of one client, as its front end may ask for.
pub(super) const REGIONS_MAX: usize = 32;

/// What a region begins at a multiple of in the guest, in bytes. So no number of a ring lies in two regions, one of which
/// begins where the other one ends. Where they end is not asked: libblkio's end within a page.
const ALIGN_BYTES: u64 = 4096;

/// File systems whose pages are memory (`linux/magic.h`). Whoever touches a page of another one may wait for a disk, a
/// network or a program.
const TMPFS_MAGIC: i64 = 0x0102_1994;
const HUGETLBFS_MAGIC: i64 = 0x9584_58f6;

/// The memory that a client shares at one time. It stays mapped as long as a request uses it.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// It goes first: the mappings end with the regions, after what guards them.
    guest: GuestMemoryMmap,
    regions: Vec<Arc<Region>>,
}

/// Where a region lies: in the guest, in the front end's process, and in its file; in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionPlace {
    pub(super) guest_address: u64,
    pub(super) bytes: u64,
    pub(super) user_address: u64,
    pub(super) file_offset: u64,
}

/// A file that is mapped. What guards it goes first.
#[derive(Debug)]
pub(super) struct Shared {
    guard: Guard,
    map: Arc<MmapRegion>,
}

/// A region of a guest's memory.
#[derive(Debug)]
pub(super) struct Region {
    place: RegionPlace,
    shared: Shared,
}

/// Why memory cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum MemoryError {
    #[error("its file system is none of memory: share a memfd, or a file in /dev/shm or hugetlbfs")]
    FileSystem,
    #[error("it ends within a huge page")]
    HugePage,
    #[error("it begins in the guest at no multiple of {ALIGN_BYTES} bytes")]
    Unaligned,
    #[error("its file ends before, or it is empty")]
    Short,
    #[error("{REGIONS_MAX} regions are the most")]
    TooMany,
    #[error("the region does not fit into this process")]
    TooLong,
    #[error("no such region is shared")]
    Unknown,
    #[error("it cannot be mapped: {0}")]
    Map(#[from] MmapRegionError),
    #[error("its place in the guest is wrong: {0}")]
    Place(#[from] GuestRegionCollectionError),
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl Shared {
    /// Maps a part of a file to read and write it. The file must be as long as that now.
    pub(super) fn map(file: File, offset: u64, bytes: u64) -> Result<Shared, MemoryError> {
        event::keep_from_children(&file)?;
        let system = rustix::fs::fstatfs(&file).map_err(std::io::Error::from)?;
        match system.f_type {
            TMPFS_MAGIC => {}
            // Of a huge page no part can be replaced.
            HUGETLBFS_MAGIC if bytes.is_multiple_of(system.f_bsize.unsigned_abs()) => {}
            HUGETLBFS_MAGIC => return Err(MemoryError::HugePage),
            _ => return Err(MemoryError::FileSystem),
        }
        let end = offset.checked_add(bytes).ok_or(MemoryError::TooLong)?;
        if bytes == 0 || end > file.metadata()?.len() {
            return Err(MemoryError::Short);
        }
        let bytes = usize::try_from(bytes).map_err(|_| MemoryError::TooLong)?;
        let map = Arc::new(MmapRegion::from_file(FileOffset::new(file, offset), bytes)?);
        // SAFETY: the mapping is new and this one's alone; it begins at a page, and the kernel maps whole pages. It is
        // unmapped when the last `Arc` is gone, of which this one goes after the guard. Others are in `Memory`, which has
        // this too.
        let guard = unsafe { Guard::new(map.as_ptr(), map.size()) };
        Ok(Shared { guard: guard.ok_or(MemoryError::TooMany)?, map })
    }

    /// A process that has all its memory locked does not lock a guest's with it: whether that may be swapped out is for
    /// whoever made it to say.
    fn unlock(&self) -> std::io::Result<()> {
        // SAFETY: the range is the mapping of this one, which stays as it is but for where its pages may go.
        Ok(unsafe { rustix::mm::munlock(self.map.as_ptr().cast(), self.map.size()) }?)
    }

    pub(super) fn map_of(&self) -> &MmapRegion {
        &self.map
    }

    /// Whether some of it was taken away meanwhile.
    pub(super) fn is_lost(&self) -> bool {
        self.guard.is_lost()
    }
}

impl Memory {
    /// All regions of a client.
    pub(super) fn new(shared: Vec<(RegionPlace, File)>) -> Result<Memory, MemoryError> {
        let region = |(place, file)| Region::new(place, file).map(Arc::new);
        Memory::of(shared.into_iter().map(region).collect::<Result<_, _>>()?)
    }

    /// One region more.
    pub(super) fn with(&self, place: RegionPlace, file: File) -> Result<Memory, MemoryError> {
        let mut regions = self.regions.clone();
        regions.push(Arc::new(Region::new(place, file)?));
        Memory::of(regions)
    }

    /// One region less.
    pub(super) fn without(&self, place: RegionPlace) -> Result<Memory, MemoryError> {
        // Where it lies in its file is not always said again.
        let is_it = |region: &Region| {
            RegionPlace { file_offset: place.file_offset, ..region.place } == place
        };
        let mut regions = self.regions.clone();
        let at = regions.iter().position(|region| is_it(region)).ok_or(MemoryError::Unknown)?;
        regions.remove(at);
        Memory::of(regions)
    }

    fn of(mut regions: Vec<Arc<Region>>) -> Result<Memory, MemoryError> {
        if regions.len() > REGIONS_MAX {
            return Err(MemoryError::TooMany);
        }
        if regions.is_empty() {
            return Ok(Memory::default());
        }
        regions.sort_by_key(|region| region.place.guest_address);
        let mapped = regions.iter().map(|region| region.mapped());
        let mapped = mapped.collect::<Option<Vec<_>>>().ok_or(MemoryError::TooLong)?;
        Ok(Memory { guest: GuestMemoryMmap::from_arc_regions(mapped)?, regions })
    }

    /// The regions that `other` lacks.
    pub(super) fn regions_beside(&self, other: &Memory) -> impl Iterator<Item = Weak<Region>> {
        let is_new =
            |region: &&Arc<Region>| !other.regions.iter().any(|it| Arc::ptr_eq(it, region));
        self.regions.iter().filter(is_new).map(Arc::downgrade)
    }

    pub(super) fn guest(&self) -> &GuestMemoryMmap {
        &self.guest
    }

    /// What an address of the front end's process is in the guest.
    pub(super) fn guest_address(&self, user_address: u64) -> Option<GuestAddress> {
        self.regions.iter().find_map(|region| {
            let place = region.place;
            let offset = user_address.checked_sub(place.user_address)?;
            (offset < place.bytes).then(|| GuestAddress(place.guest_address + offset))
        })
    }

    /// Whether some of it was taken away: what was read since then may be zeroes.
    pub(super) fn is_lost(&self) -> bool {
        self.regions.iter().any(|region| region.shared.is_lost())
    }
}

impl Region {
    fn new(place: RegionPlace, file: File) -> Result<Region, MemoryError> {
        if !place.guest_address.is_multiple_of(ALIGN_BYTES) {
            return Err(MemoryError::Unaligned);
        }
        let shared = Shared::map(file, place.file_offset, place.bytes)?;
        shared.unlock()?;
        Ok(Region { place, shared })
    }

    fn mapped(&self) -> Option<Arc<GuestRegionMmap>> {
        let base = GuestAddress(self.place.guest_address);
        let region = GuestRegionMmap::with_arc(self.shared.map.clone(), base)?;
        debug_assert_eq!(region.len(), self.place.bytes);
        Some(Arc::new(region))
    }
}

#[cfg(test)]
mod tests;

//! Whether a device leads to the array that would take it, whatever lies between: a server that others
//! wrote, a device of the kernel, a loop device.
//!
//! A few places of the device are read while the array's fronts note what their clients read. In each place
//! reads follow one another, where and how long is drawn at random. If a client asks for each of them while
//! it is under way, all moved by the same distance, the device keeps its bytes in the array.
//!
//! Only reads are made, so nothing is changed. What answers from a copy of its own (a cache, a mirror) may hide
//! the array, so there are several places. What stores bytes in another order hides it too.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use mdspace_engine::sync::Mutex;

use super::unguessed;

/// Places that are looked at. Where the array is below a third of a device only, 650 looks miss it once.
const PLACES: usize = 16;
/// Reads of each place. A client that reads every single page of it all the time is taken for ours once in
/// a million looks.
const READS: usize = 12;
/// What a place is cut out of: most stripes are no smaller, so that one distance holds for all of it.
const PLACE_PAGES: u64 = 16;
/// Page caches read whole pages.
const PAGE_BYTES: u64 = 4096;
/// The longest read.
const READ_PAGES_MAX: u64 = 4;
/// Reads of clients that are kept while one of ours is under way.
const NOTED_MAX: usize = 4096;

/// What clients read while a device is looked at.
#[derive(Debug, Default)]
pub(super) struct Echo {
    is_awaited: AtomicBool,
    noted: Mutex<Vec<Range<u64>>>,
    /// One device at a time.
    looking: Mutex<()>,
}

impl Echo {
    /// Notes what a client reads, in bytes of its export. One load where no device is looked at.
    #[inline]
    pub(super) fn note(&self, bytes: Range<u64>) {
        if self.is_awaited.load(Ordering::Relaxed) {
            self.keep(bytes);
        }
    }

    #[cold]
    fn keep(&self, bytes: Range<u64>) {
        let mut noted = self.noted.lock();
        if noted.len() < NOTED_MAX {
            noted.push(bytes);
        }
    }

    /// Whether what is read of a device of so many bytes is read of the array. `read` ends with its read;
    /// false: no other one is to be made.
    pub(super) fn comes_back(
        &self,
        device_bytes: u64,
        mut read: impl FnMut(Range<u64>) -> bool,
    ) -> bool {
        let starts = (device_bytes / PAGE_BYTES).saturating_sub(READ_PAGES_MAX - 1);
        if starts == 0 {
            return false;
        }
        let _looking = self.looking.lock();
        let mut random = Random(unguessed() as u64);
        self.is_awaited.store(true, Ordering::Relaxed);
        let mut places = (0..PLACES).map_while(|_| self.place(starts, &mut random, &mut read));
        let comes_back = places.any(|comes_back| comes_back);
        self.is_awaited.store(false, Ordering::Relaxed);
        comes_back
    }

    /// Whether every read of one place comes back; none where no other place is to be looked at.
    fn place(
        &self,
        starts: u64,
        random: &mut Random,
        read: &mut impl FnMut(Range<u64>) -> bool,
    ) -> Option<bool> {
        let first = random.below(starts) / PLACE_PAGES * PLACE_PAGES;
        let mut distances = Distances::default();
        for _ in 0..READS {
            let start = first + random.below(PLACE_PAGES.min(starts - first));
            let end = start + 1 + random.below(READ_PAGES_MAX);
            let asked = start * PAGE_BYTES..end * PAGE_BYTES;
            self.noted.lock().clear();
            if !read(asked.clone()) {
                return None;
            }
            if !distances.hold_for(&asked, &self.noted.lock()) {
                return Some(false);
            }
        }
        Some(true)
    }
}

/// By how much what came was moved, each time; none before the first time.
#[derive(Default)]
struct Distances(Option<Vec<i128>>);

impl Distances {
    /// Keeps those by which something that was `noted` is `asked` moved. False: none is left.
    fn hold_for(&mut self, asked: &Range<u64>, noted: &[Range<u64>]) -> bool {
        let is_as_long = |came: &&Range<u64>| came.end - came.start == asked.end - asked.start;
        let distance = |came: &Range<u64>| i128::from(came.start) - i128::from(asked.start);
        let mut here: Vec<i128> = noted.iter().filter(is_as_long).map(distance).collect();
        if let Some(known) = &self.0 {
            here.retain(|distance| known.contains(distance));
        }
        let some = !here.is_empty();
        self.0 = Some(here);
        some
    }
}

/// Numbers that no client foresees: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}

#[cfg(test)]
mod tests;

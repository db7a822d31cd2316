//! Mapped memory that another process can take away.
//!
//! A client that shares a file can shorten it. A thread that touches the mapping behind its end gets SIGBUS, which ends the
//! process. Here a handler puts memory of zeroes in the place of the mapping, and says so: its owner looks at that
//! before it believes what it has read, and cuts the client off. No copy costs more for it.

use std::mem::MaybeUninit;
use std::ops::{Range, RangeInclusive};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Mappings of one process at a time.
const PLACES_MAX: usize = 4096;

/// Codes of a SIGBUS by which the kernel says that an access failed: `BUS_ADRALN` to `BUS_MCEERR_AR`
/// (`asm-generic/siginfo.h`). With others a process sent it, or the kernel speaks of memory that was not touched.
const FAULTS: RangeInclusive<libc::c_int> = 1..=4;

static PLACES: [Place; PLACES_MAX] = [const { Place::new() }; PLACES_MAX];

/// What the signal did before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A mapping that survives the end of its file, until this is dropped. That comes before it is unmapped.
#[derive(Debug)]
pub(super) struct Guard(&'static Place);

/// Where the handler looks.
#[derive(Debug)]
struct Place {
    is_taken: AtomicBool,
    /// It rises before and after each change of the range: it is odd meanwhile.
    changes: AtomicUsize,
    /// 0: none.
    start: AtomicUsize,
    bytes: AtomicUsize,
    is_lost: AtomicBool,
}

impl Guard {
    /// Guards `bytes` from `start` on, which are mapped and belong to the caller. None: there are too many.
    ///
    /// # Safety
    ///
    /// The range consists of whole pages of one mapping that nobody else uses, and stays mapped until the drop.
    pub(super) unsafe fn new(start: *mut u8, bytes: usize) -> Option<Guard> {
        install();
        let place = PLACES.iter().find(|place| !place.is_taken.swap(true, Ordering::AcqRel))?;
        place.is_lost.store(false, Ordering::Relaxed);
        place.change(start.addr(), bytes);
        Some(Guard(place))
    }

    /// Whether some of it was taken away: what was read since then may be zeroes.
    pub(super) fn is_lost(&self) -> bool {
        self.0.is_lost.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.change(0, 0);
        self.0.is_taken.store(false, Ordering::Release);
    }
}

impl Place {
    const fn new() -> Place {
        Place {
            is_taken: AtomicBool::new(false),
            changes: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            is_lost: AtomicBool::new(false),
        }
    }

    /// It has this range from now on. Only whoever took the place may say so.
    fn change(&self, start: usize, bytes: usize) {
        self.changes.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        self.start.store(start, Ordering::Relaxed);
        self.bytes.store(bytes, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Its range. None: it has none, or is being changed, and so is not of a thread that touches memory.
    fn range(&self) -> Option<Range<usize>> {
        let both = || (self.start.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        let (start, bytes) = self.at_one_time(both)?;
        (start != 0).then(|| start..start + bytes)
    }

    /// Reads, and believes it if nothing has changed meanwhile.
    fn at_one_time<T>(&self, read: impl FnOnce() -> T) -> Option<T> {
        let changes = self.changes.load(Ordering::Acquire);
        let read = read();
        fence(Ordering::Acquire);
        let is_same = self.changes.load(Ordering::Relaxed) == changes;
        (changes.is_multiple_of(2) && is_same).then_some(read)
    }

    /// Maps zeroes over its range. False: the system refused.
    fn replace(&self, range: &Range<usize>) -> bool {
        let start = ptr::with_exposed_provenance_mut(range.start);
        let bytes = range.len();
        let (protection, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::FIXED | MapFlags::PRIVATE | MapFlags::NORESERVE,
        );
        // Before the memory: who finds zeroes finds this too.
        self.is_lost.store(true, Ordering::Release);
        // SAFETY: the range is a mapping of the owner of the guard, who is told of this. A thread that is in it reads
        // or writes zeroes from now on, which are as mapped as what was there.
        unsafe { mmap_anonymous(start, bytes, protection, flags) }.is_ok()
    }
}

/// Puts the handler in its place, once for the process.
fn install() {
    BEFORE.get_or_init(|| {
        let mut before = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: all zeroes is an action without flags; the handler has the signature that SA_SIGINFO asks for, and
        // touches atomics and system calls alone. Both structures outlive the calls.
        unsafe {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed().assume_init();
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
            libc::sigemptyset(&raw mut action.sa_mask);
            let done = libc::sigaction(libc::SIGBUS, &raw const action, before.as_mut_ptr());
            assert_eq!(done, 0, "SIGBUS can be handled");
            before.assume_init()
        }
    });
}

/// A guarded mapping is replaced, and the access is made again. Any other one meets what was there before. A signal
/// without an access says nothing, and changes nothing.
extern "C" fn on_bus_error(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel gives the information of this signal. The address means something where an access failed.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    if !FAULTS.contains(&code) {
        return;
    }
    let ranges = PLACES.iter().filter_map(|place| Some((place, place.range()?)));
    let mut there = ranges.filter(|(_, range)| range.contains(&address));
    if there.next().is_some_and(|(place, range)| place.replace(&range)) {
        return;
    }
    // Without one the default action ends the process, as it would have.
    let before = BEFORE.get().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the structure is a static's, or there is none, and nothing is changed then.
    unsafe {
        if before.is_null() {
            libc::signal(signal, libc::SIG_DFL);
        } else {
            libc::sigaction(signal, before, ptr::null_mut());
        }
    }
}

#[cfg(test)]
mod tests;

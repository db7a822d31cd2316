//! Mapped memory that another process can take away.
//!
//! Who shares a file can shorten it. Whoever touches the mapping behind its end then gets the signal SIGBUS, which ends the
//! process. Here a handler puts memory of zeroes in the place of the mapping, and says so: its owner looks at that
//! before it believes what it has read, and cuts the client off. No copy costs more for it.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

/// Mappings of one process at a time.
const PLACES_MAX: usize = 4096;

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
        place.bytes.store(bytes, Ordering::Relaxed);
        place.start.store(start.addr(), Ordering::Release);
        Some(Guard(place))
    }

    /// Whether some of it was taken away: what was read since then may be zeroes.
    pub(super) fn is_lost(&self) -> bool {
        self.0.is_lost.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.start.store(0, Ordering::Relaxed);
        self.0.is_taken.store(false, Ordering::Release);
    }
}

impl Place {
    const fn new() -> Place {
        Place {
            is_taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            is_lost: AtomicBool::new(false),
        }
    }

    fn has(&self, address: usize) -> bool {
        let start = self.start.load(Ordering::Acquire);
        start != 0 && (start..start + self.bytes.load(Ordering::Relaxed)).contains(&address)
    }

    /// Maps zeroes over it. False: the system refused.
    fn replace(&self) -> bool {
        let start = ptr::with_exposed_provenance_mut(self.start.load(Ordering::Acquire));
        let bytes = self.bytes.load(Ordering::Relaxed);
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

/// A guarded mapping is replaced, and the access is made again. Any other one meets what was there before.
extern "C" fn on_bus_error(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    // SAFETY: the kernel gives the information of this signal. The address means something where the kernel found the
    // fault itself, which positive codes say.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    let place = PLACES.iter().find(|place| code > 0 && place.has(address));
    if place.is_some_and(Place::replace) {
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

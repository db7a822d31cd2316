//! Lets User-Mode Linux run where the processor has AMX.
//!
//! User-Mode Linux 6.1 keeps a guest process's extended registers in a buffer of a fixed size. AMX
//! made the kernel's set of these registers larger than that. The kernel refuses a shorter set with
//! `EFAULT`, and the guest dies at its start: "ptrace set fp regs failed, errno = 14".
//!
//! `tools/run-in-uml.sh` preloads this library there. It stands before the C library's `ptrace`,
//! and completes such a short set with what the traced thread has already.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::arch::asm;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_long, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// `NT_X86_XSTATE` of the kernel's `elf.h`: the set of all registers that XSAVE knows.
const XSTATE: usize = 0x202;

/// Where a set says which of its parts are in use (`XSTATE_BV`): offset in bytes, 8 bytes, little
/// endian. Intel's manual, volume 1, 13.4.2.
const IN_USE: usize = 512;
/// AMX's two parts of a set: the configuration of its tiles, and their data.
const AMX: u64 = 1 << 17 | 1 << 18;

/// Stands before the C library's function of this name.
///
/// That one is declared with three dots. On x86-64 a caller passes integers and pointers in the same
/// registers to either kind of function, so four plain arguments are what every caller passes. What
/// a caller leaves out is whatever its register holds: the kernel does not look at it.
///
/// # Safety
///
/// As for the C library's function: `data` points to what the request reads or writes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptrace(
    request: c_int,
    pid: c_int,
    address: *mut c_void,
    data: *mut c_void,
) -> c_long {
    let call = Call { request: request as u32, pid, address };
    // SAFETY: the caller's promise.
    let result = unsafe {
        match call.request {
            libc::PTRACE_PEEKTEXT | libc::PTRACE_PEEKDATA | libc::PTRACE_PEEKUSER => call.peek(),
            libc::PTRACE_SETREGSET if address.addr() == XSTATE => call.set_registers(data.cast()),
            _ => call.make(data),
        }
    };
    result.unwrap_or_else(|errno| {
        // SAFETY: it points to this thread's errno, always.
        unsafe { *libc::__errno_location() = errno };
        -1
    })
}

/// A request of ptrace without the place of its data.
#[derive(Clone, Copy)]
struct Call {
    request: u32,
    pid: c_int,
    address: *mut c_void,
}

impl Call {
    /// The system call by hand. Its result never passes through `errno`, which the handlers of User-Mode
    /// Linux's timer and I/O signals change between a call and a look at it.
    ///
    /// # Safety
    ///
    /// `data` points to what the request reads or writes.
    unsafe fn make(self, data: *mut c_void) -> Result<c_long, c_int> {
        let result: c_long;
        // SAFETY: Linux's way to call on x86-64; the kernel leaves the other registers and the
        // stack alone, and the caller answers for what `data` points to.
        unsafe {
            asm!(
                "syscall",
                inlateout("rax") libc::SYS_ptrace => result,
                in("rdi") c_long::from(self.request),
                in("rsi") c_long::from(self.pid),
                in("rdx") self.address,
                in("r10") data,
                lateout("rcx") _,
                lateout("r11") _,
                options(nostack),
            );
        }
        if result < 0 { Err(-result as c_int) } else { Ok(result) }
    }

    /// The kernel stores the word that was looked at; the C library returns it, with `errno` 0.
    unsafe fn peek(self) -> Result<c_long, c_int> {
        let mut word: c_long = 0;
        // SAFETY: the kernel stores one word.
        unsafe {
            self.make((&raw mut word).cast())?;
            *libc::__errno_location() = 0;
        }
        Ok(word)
    }

    /// Sets the registers. A set that the kernel refuses as too short is laid over the thread's own.
    ///
    /// # Safety
    ///
    /// `handed` points to an `iovec` that describes memory that can be read.
    unsafe fn set_registers(self, handed: *mut libc::iovec) -> Result<c_long, c_int> {
        // SAFETY: the caller's promise.
        let (result, handed) = unsafe { (self.make(handed.cast()), &*handed) };
        if result != Err(libc::EFAULT) || handed.iov_len < IN_USE + size_of::<u64>() {
            return result;
        }
        let whole = Whole::take().ok_or(libc::EBUSY)?;
        let mut all = libc::iovec { iov_base: whole.bytes().cast(), iov_len: WHOLE_SIZE };
        // SAFETY: `all` describes memory that is ours alone while `whole` lives. What is copied
        // lies inside of both, and so does the word at IN_USE, which both are longer than.
        unsafe {
            Self { request: libc::PTRACE_GETREGSET, ..self }.make((&raw mut all).cast())?;
            let shorter = handed.iov_len.min(all.iov_len);
            ptr::copy_nonoverlapping(handed.iov_base.cast(), whole.bytes(), shorter);
            let in_use = whole.bytes().add(IN_USE).cast::<u64>();
            in_use.write(in_use.read() & !AMX);
            self.make((&raw mut all).cast())
        }
    }
}

/// Bytes kept for a whole set: AMX's has 11 008.
const WHOLE_SIZE: usize = 65536;

/// The one place where a whole set is put together. The stack will not do: User-Mode Linux calls from
/// its guest's small kernel stacks.
struct Whole;

#[repr(align(64))]
struct Place(UnsafeCell<[u8; WHOLE_SIZE]>);

// SAFETY: the bytes are touched by the one that holds `TAKEN` alone.
unsafe impl Sync for Place {}

static PLACE: Place = Place(UnsafeCell::new([0; WHOLE_SIZE]));
static TAKEN: AtomicBool = AtomicBool::new(false);

impl Whole {
    /// None while another thread, or what a signal interrupted in this one, has it.
    fn take() -> Option<Self> {
        (!TAKEN.swap(true, Ordering::Acquire)).then_some(Self)
    }

    fn bytes(&self) -> *mut u8 {
        PLACE.0.get().cast()
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}

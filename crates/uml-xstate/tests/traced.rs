//! The library as it is preloaded, against a process of this test's own. The kernel refuses every set of
//! registers that is shorter than its own with `EFAULT`, whether the processor has AMX or not.

#![cfg(all(target_os = "linux", target_arch = "x86_64"))]

use std::ffi::{CString, c_int, c_long, c_void};
use std::io::Error;
use std::sync::{Mutex, PoisonError};
use std::{env, ptr};

/// `NT_X86_XSTATE`.
const XSTATE: usize = 0x202;
/// Where a set says which of its parts are in use, and the bit of the XMM registers there.
const IN_USE: usize = 512;
const XMM: u64 = 1 << 1;
/// XMM0 in a set.
const XMM0: std::ops::Range<usize> = 160..176;
/// `user_regs_struct`: nothing of it is looked at.
const PEEKED: usize = 0;

/// The library puts a set together in one place: of two threads at once it sends one away with `EBUSY`. User-Mode Linux
/// has one that asks.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

type Ptrace = unsafe extern "C" fn(c_int, c_int, *mut c_void, *mut c_void) -> c_long;

#[test]
fn a_short_register_set_is_refused_by_the_kernel_and_completed_by_the_library() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (kernel, library): (Ptrace, Ptrace) = (by_system_call, preloaded());
    let child = Stopped::new();
    let whole = child.registers();
    let mut short = whole[..whole.len() - 64].to_vec();
    short[XMM0].fill(0xa5);
    short[IN_USE] |= XMM as u8;

    let refused = child.set(kernel, &short).expect_err("the kernel takes no short set");
    assert_eq!(refused.raw_os_error(), Some(libc::EFAULT));
    assert_eq!(child.registers(), whole, "a refused set changes nothing");

    child.set(library, &short).expect("the library completes a short set");
    let now = child.registers();
    assert_eq!(now[..short.len()], short, "what was handed over is what the thread has");
    assert_eq!(now[short.len()..], whole[short.len()..], "and the rest is what it had");

    child.set(library, &whole).expect("a whole set passes");
    assert_eq!(child.registers(), whole);
}

#[test]
fn the_library_clears_the_bits_of_amx_in_a_set_that_it_completes() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let child = Stopped::new();
    let whole = child.registers();
    let mut short = whole[..whole.len() - 64].to_vec();
    short[IN_USE + 2] |= 0b110;
    child.set(preloaded(), &short).expect("a set without AMX is right for every processor");
    assert_eq!(child.registers()[IN_USE + 2] & 0b110, 0);
}

#[test]
fn other_requests_and_their_errors_are_the_kernels() {
    let child = Stopped::new();
    let library = preloaded();
    // SAFETY: ptrace's own contract: a peek takes no data, and the other request does not exist.
    unsafe {
        *libc::__errno_location() = libc::EINTR;
        let seen = library(libc::PTRACE_PEEKUSER as c_int, child.0, PEEKED as _, ptr::null_mut());
        assert_eq!(*libc::__errno_location(), 0, "a word of -1 and an error are told apart so");
        let mut word: c_long = 0;
        by_system_call(
            libc::PTRACE_PEEKUSER as c_int,
            child.0,
            PEEKED as _,
            (&raw mut word).cast(),
        );
        assert_eq!(seen, word);
        assert_eq!(library(0x7777, child.0, ptr::null_mut(), ptr::null_mut()), -1);
        assert_eq!(Error::last_os_error().raw_os_error(), Some(libc::EIO));
    }
}

/// `ptrace` of the library, as the loader finds it.
fn preloaded() -> Ptrace {
    let folder = env::current_exe().expect("this program lies somewhere");
    let file = folder.with_file_name("libmdspace_uml_xstate.so");
    let path = CString::new(file.into_os_string().into_encoded_bytes()).expect("a path");
    // SAFETY: the library has no constructor of ours, and its `ptrace` has this type.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "{} cannot be loaded", path.to_string_lossy());
        let found = libc::dlsym(library, c"ptrace".as_ptr());
        assert!(!found.is_null(), "{} has no ptrace", path.to_string_lossy());
        std::mem::transmute::<*mut c_void, Ptrace>(found)
    }
}

/// The kernel's own answer, told in errno.
unsafe extern "C" fn by_system_call(
    request: c_int,
    pid: c_int,
    address: *mut c_void,
    data: *mut c_void,
) -> c_long {
    // SAFETY: ptrace's own contract.
    unsafe { libc::syscall(libc::SYS_ptrace, request, pid, address, data) }
}

/// A child that is traced and stands still; killed at the end.
struct Stopped(c_int);

impl Stopped {
    fn new() -> Self {
        // SAFETY: after the fork the child makes system calls alone, which need no lock of the parent.
        let pid = unsafe {
            let pid = libc::fork();
            if pid == 0 {
                libc::syscall(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, 0, 0);
                libc::raise(libc::SIGSTOP);
                libc::_exit(0);
            }
            pid
        };
        assert!(pid > 0, "fork: {}", Error::last_os_error());
        let mut status = 0;
        // SAFETY: the kernel stores one number.
        let waited = unsafe { libc::waitpid(pid, &raw mut status, 0) };
        assert!(waited == pid && libc::WIFSTOPPED(status), "status {status}");
        Self(pid)
    }

    /// All of its registers that XSAVE knows.
    fn registers(&self) -> Vec<u8> {
        let mut bytes = vec![0; 65536];
        let mut all = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let request = libc::PTRACE_GETREGSET as c_int;
        // SAFETY: the kernel stores no more than the vector has, and says how much it stored.
        let result = unsafe { by_system_call(request, self.0, XSTATE as _, (&raw mut all).cast()) };
        assert_eq!(result, 0, "{}", Error::last_os_error());
        bytes.truncate(all.iov_len);
        bytes
    }

    fn set(&self, ptrace: Ptrace, registers: &[u8]) -> Result<(), Error> {
        let base = registers.as_ptr().cast_mut().cast();
        let mut handed = libc::iovec { iov_base: base, iov_len: registers.len() };
        let request = libc::PTRACE_SETREGSET as c_int;
        // SAFETY: the kernel and the library read the vector only.
        let result = unsafe { ptrace(request, self.0, XSTATE as _, (&raw mut handed).cast()) };
        if result == 0 { Ok(()) } else { Err(Error::last_os_error()) }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // SAFETY: the child is ours and not yet waited for, so the number is its own.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, ptr::null_mut(), 0);
        }
    }
}

//! A process that serves block devices of its own host, when the host is short of memory.
//!
//! To get memory, the kernel writes what programs wrote to such a device. That needs this process. So this process must
//! not wait for memory that the kernel gets so: then neither would go on.

use rustix::io::Errno;
use rustix::mm::{MlockAllFlags, mlockall};
use rustix::process::{Resource, configure_io_flusher_behavior, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Has the kernel take this process for one that serves devices, and keeps its memory from being swapped out.
/// Answers what of it cannot be.
///
/// Any front may turn out to be a device of this host, also an NBD socket. Threads, and the kernel's own for this
/// process, have the mark of the thread that starts them: so this is called before the first one starts.
pub(super) fn stand_apart() -> Vec<String> {
    // PR_SET_IO_FLUSHER: no allocation of this process waits for a device, nor do its writes for other dirty pages.
    let marked = configure_io_flusher_behavior(true).map_err(|error| match error {
        Errno::PERM => "the process has no right to be marked as one that serves devices: give it \
                        CAP_SYS_RESOURCE"
            .to_owned(),
        error => format!("PR_SET_IO_FLUSHER: {error}"),
    });
    [marked, lock_memory()].into_iter().filter_map(Result::err).collect()
}

fn lock_memory() -> Result<(), String> {
    // Below a limit later allocations would fail, and end the process.
    if !may_lock_any_memory()? {
        return Err(
            "its memory may be swapped out: give it CAP_IPC_LOCK, or `ulimit -l unlimited`".into(),
        );
    }
    // On fault: what a thread's stack has reserved and never touched takes no memory.
    let all = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    mlockall(all).map_err(|error| format!("mlockall: {error}"))
}

/// Whether no limit on locked memory holds for this process.
fn may_lock_any_memory() -> Result<bool, String> {
    let effective = capabilities(None).map_err(|error| format!("capabilities: {error}"))?.effective;
    let is_unlimited = getrlimit(Resource::Memlock).current.is_none();
    Ok(is_unlimited || effective.contains(CapabilitySet::IPC_LOCK))
}

/// Logs what cannot be. Users other than root have no block devices: for them it is the rule.
pub(super) fn tell(apart: &[String]) {
    for lacking in apart {
        if rustix::process::geteuid().is_root() {
            tracing::warn!(
                "a host that is short of memory may wait for ever for its own block device: {lacking}"
            );
        } else {
            tracing::debug!("{lacking}");
        }
    }
}

//! Open members: files, block devices, memory, devices that only pretend, and those of the embedding program.

mod below;
mod connecting;
mod holder;
mod lineage;
mod lock;
mod loop_device;
mod loop_info;
mod member_file;
mod mounts;
mod multipath;
mod named;
mod nbd;
mod null;
mod open;
mod own;
mod path_name;
mod place;
mod probe;
mod ram;
mod seen;
mod spec;
mod table;
mod unnamed;
mod unproved;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Weak};

use mdspace_engine::backend::{MemberId, MemberInfo};
use mdspace_engine::lane::LaneId;
use mdspace_engine::paths::Paths;

pub use below::{are_twins, devices_on, lies_on, stands_on};
pub use holder::claimed_by;
pub use lineage::{Answer as LineageAnswer, Lineage};
pub use loop_info::LoopInfo;
pub use member_file::FileFacts;
pub use mounts::MountLine;
pub use multipath::MultipathSpec;
pub use named::{Identity, open_to_look, read_file, read_text};
pub use null::{KeyHelp, null_keys, null_presets};
pub use open::{NoConnection, NotConnected, OneConnection, OpenError, OpenMode};
pub use own::OwnDevice;
pub use path_name::{name_of_path, path_of_name};
pub use place::{ServerPlace, abstract_name};
pub use spec::{check_name, is_remote};
pub use table::MemberTable;
pub use unproved::UnprovedWrites;
pub(crate) use unproved::{Moment, Owed};

#[cfg(test)]
pub(crate) use lock::are_writes_over;
pub(crate) use member_file::MemberFile;
pub(crate) use nbd::{Export, Made, Nbd, proof};
pub(crate) use null::{Answer, Arrival, Kept, Kind, Null};
use open::Opened;
pub(crate) use own::Own;
pub(crate) use ram::Ram;
use seen::Seen;

/// One open member, shared by all lanes. It closes when the last lane has let go of it.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: MemberId,
    pub(crate) info: MemberInfo,
    pub(crate) read_only: bool,
    pub(crate) device: Device,
    /// What keeps others out, beside the lock of the device's own file.
    pub(crate) locks: Locks,
    /// Set once the table has closed it: lanes let go as soon as nothing is in flight.
    pub(crate) closing: AtomicBool,
    may_write: Weak<MayWrite>,
    /// The kernel keeps others out until it is closed, and by nothing that could be ended before.
    pub(crate) is_claimed: bool,
}

/// The right to write to a member. The table has it as long as the member is open, and each lane that has met it until none
/// of the lane's writes is under way there. When nobody has it, writes are over.
#[derive(Debug)]
pub(crate) struct MayWrite(Weak<Member>);

impl Drop for MayWrite {
    fn drop(&mut self) {
        // One that is gone has nothing under way.
        let member = self.0.upgrade();
        if let Some(Device::File { file, .. }) = member.as_deref().map(|member| &member.device) {
            file.mark_writes_over();
        }
    }
}

/// Locks that end with the member.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    /// Of the files and devices that keep a block device's bytes.
    pub(crate) below: Vec<File>,
    /// Of an export.
    pub(crate) place: Option<Arc<place::PlaceLock>>,
    /// Of the files of loop devices, where no names lead to them.
    pub(crate) _unnamed: Vec<place::PlaceLock>,
}

/// Where a file or block device ends now, in bytes; none where it is something else, or does not say. Asks the kernel,
/// and no server, and waits for nothing: lanes ask.
pub(crate) type EndOf = fn(&File) -> Option<u64>;

/// The end of a file.
pub(crate) fn end_of_file(file: &File) -> Option<u64> {
    Seen::of(file).filter(|seen| seen.is_file).map(|seen| seen.bytes)
}

/// The end of a block device. A seek to its end would take the kernel's lock of the device, which zeroing and discard
/// hold for as long as the device takes.
pub(crate) fn end_of_device(file: &File) -> Option<u64> {
    const GET_SIZE: libc::Ioctl = libc::_IOR::<libc::size_t>(0x12, 114);
    let mut bytes = 0u64;
    // SAFETY: the request writes 8 bytes to `bytes`; what is no block device refuses it.
    let asked = unsafe { libc::ioctl(file.as_raw_fd(), GET_SIZE, &raw mut bytes) };
    (asked == 0).then_some(bytes)
}

/// What answers a member's I/O.
#[derive(Debug)]
pub(crate) enum Device {
    File {
        file: MemberFile,
        /// Addresses of memory are multiples of this, in bytes; 1 where the page cache copies.
        memory_align: usize,
        /// Calls never wait here: they are made on the spot.
        inline: bool,
        /// Says where it ends now.
        end: EndOf,
    },
    Ram(Ram),
    Null(Null),
    Nbd(Box<Nbd>),
    Multipath(Arc<Paths>),
    Own(Own),
}

impl Device {
    /// Whether several lanes may use it at once. An NBD server may bear one connection only. Paths are
    /// members of their own.
    fn bears_lanes(&self) -> bool {
        match self {
            Self::Nbd(nbd) => nbd.export.shares(),
            _ => true,
        }
    }
}

impl Member {
    /// One that is to be opened, and the right to write to it.
    fn new(id: MemberId, opened: Opened, read_only: bool) -> (Arc<Self>, Arc<MayWrite>) {
        let Opened { device, info, locks, is_claimed } = opened;
        let mut right = None;
        let member = Arc::new_cyclic(|this: &Weak<Self>| {
            let may_write = right.insert(Arc::new(MayWrite(this.clone())));
            let (may_write, closing) = (Arc::downgrade(may_write), AtomicBool::new(false));
            Self { id, info, read_only, device, locks, closing, may_write, is_claimed }
        });
        (member, right.expect("made with it"))
    }

    /// The right to write to it. None once it is closed, and writes are over.
    pub(crate) fn may_write(&self) -> Option<Arc<MayWrite>> {
        self.may_write.upgrade()
    }

    fn nbd(&self) -> Option<&Nbd> {
        match &self.device {
            Device::Nbd(nbd) => Some(nbd),
            _ => None,
        }
    }

    /// Whether it is an export to which a lane needs a connection before it is counted on.
    fn lacks(&self, lane: LaneId) -> bool {
        self.nbd().is_some_and(|nbd| nbd.lacks(lane))
    }

    /// Whether it is a file or block device that ends earlier than when it was opened. Writes beyond that end find
    /// no space, and no file system is full; or they make a file longer again, over a hole that reads as zeroes.
    pub(crate) fn has_shrunk(&self) -> bool {
        let Device::File { file, end, .. } = &self.device else { return false };
        end(file).is_some_and(|bytes| bytes < self.info.sectors * 512)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.locks.below.iter().for_each(lock::release);
        // What it owes first: who opens the export next looks for that.
        if let Device::Nbd(nbd) = &mut self.device {
            nbd.end_record();
        }
        drop(self.locks.place.take());
    }
}

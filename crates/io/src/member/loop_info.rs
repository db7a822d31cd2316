//! What the kernel keeps of a loop device: `loop_info64` of `linux/loop.h`.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// What the kernel tells of a loop device, and is told: 232 bytes, integers in the machine's byte order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct LoopInfo {
    /// Where the attached file is, by the number of its file system.
    pub device: u64,
    /// Its inode number there.
    pub inode: u64,
    /// The number of the block device that it is. Of a plain file some kernels say its file system's.
    pub device_of_node: u64,
    /// Where the device begins in it.
    pub offset_bytes: u64,
    /// How long the device is; 0 for all there is.
    pub size_limit_bytes: u64,
    /// The device's own number.
    pub number: u32,
    encryption: u32,
    key_bytes: u32,
    /// `LO_FLAGS_...`.
    pub flags: u32,
    /// The path that it was attached by, for people, as far as there is room; zeroes behind it.
    pub file_name: [u8; 64],
    encryption_name: [u8; 64],
    key: [u8; 32],
    init: [u64; 2],
}

const _: () = assert!(size_of::<LoopInfo>() == 232);

impl LoopInfo {
    /// What to tell the kernel of a file, with these flags.
    pub fn new(file: &Path, flags: u32) -> Self {
        let mut file_name = [0; 64];
        let name = file.as_os_str().as_encoded_bytes();
        let length = name.len().min(file_name.len() - 1);
        file_name[..length].copy_from_slice(&name[..length]);
        Self { flags, file_name, ..Self::empty() }
    }

    /// What the kernel says of an open loop device, or of the one that has an open partition. It asks the file system
    /// of the attached file, and waits for that.
    pub fn of(device: &File) -> io::Result<Self> {
        /// `LOOP_GET_STATUS64`.
        const GET_STATUS: u32 = 0x4c05;
        let mut info = Self::empty();
        // SAFETY: the kernel fills 232 bytes of plain numbers, which are there.
        match unsafe { libc::ioctl(device.as_raw_fd(), GET_STATUS as _, &raw mut info) } {
            0 => Ok(info),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn empty() -> Self {
        Self {
            device: 0,
            inode: 0,
            device_of_node: 0,
            offset_bytes: 0,
            size_limit_bytes: 0,
            number: 0,
            encryption: 0,
            key_bytes: 0,
            flags: 0,
            file_name: [0; 64],
            encryption_name: [0; 64],
            key: [0; 32],
            init: [0; 2],
        }
    }
}

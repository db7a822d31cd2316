//! A loop device over the file of a mount: a real block device without a driver of our own.
//!
//! Source: `include/uapi/linux/loop.h`. Only root has loop devices.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::ioctl::{self, Setter};

use mdspace_io::LoopInfo;

use crate::fuse::mount;
use crate::host_device::{HostDevice, claim, is_claimed, openers, place_of};

/// Another program may take the device that was free a moment ago.
const TRIES: usize = 16;

/// `LO_FLAGS_READ_ONLY`.
const READ_ONLY: u32 = 1;
/// `LO_FLAGS_AUTOCLEAR`: the device detaches itself when its last user is gone.
const AUTOCLEAR: u32 = 4;
/// `LO_FLAGS_DIRECT_IO`.
const DIRECT_IO: u32 = 16;

/// An attached loop device. It stays attached until someone [lets go](let_go) of it: its number is no other
/// program's before, also where the process that serves it, and the one that keeps it, are killed.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    number: u64,
    /// The name of the file that is attached.
    file: OsString,
}

/// Why no device is attached.
#[derive(Debug, thiserror::Error)]
pub enum LoopError {
    /// The host has none, or the user may not.
    #[error("cannot have a loop device ({0}): this needs root, and the module `loop`")]
    None(io::Error),
    /// The system refused.
    #[error("cannot attach {path} to a loop device: {source}")]
    Attach {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// `loop_config`: 304 bytes.
#[repr(C)]
struct Config {
    file: u32,
    block_bytes: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const _: () = assert!(size_of::<Config>() == 304);

impl LoopDevice {
    /// Attaches a file, with direct I/O and blocks of `block_bytes`. Gives the device, and a descriptor of it.
    ///
    /// Another process than the one that serves the file must keep that open, and let go of the device. The last
    /// close of a device writes what the kernel holds back of it: a killed server would wait for itself, for ever.
    pub fn attach(
        file: &Path,
        block_bytes: u32,
        read_only: bool,
    ) -> Result<(LoopDevice, File), LoopError> {
        let failed = |source| LoopError::Attach { path: file.to_owned(), source };
        let backing = OpenOptions::new()
            .read(true)
            .write(!read_only)
            .custom_flags(OFlags::DIRECT.bits().cast_signed())
            .open(file)
            .map_err(failed)?;
        let control = OpenOptions::new()
            .read(true)
            .write(true)
            .open("/dev/loop-control")
            .map_err(LoopError::None)?;
        let read_only = if read_only { READ_ONLY } else { 0 };
        for _ in 0..TRIES {
            let path = free_device(&control).map_err(|error| LoopError::None(error.into()))?;
            let device =
                OpenOptions::new().read(true).write(true).open(&path).map_err(LoopError::None)?;
            let number = device.metadata().map_err(failed)?.rdev();
            // Who keeps it writes nothing.
            let kept = File::open(&path).map_err(failed)?;
            let info = LoopInfo::new(file, DIRECT_IO | read_only);
            let config = Config {
                file: backing.as_raw_fd().cast_unsigned(),
                block_bytes,
                info,
                reserved: [0; 8],
            };
            match configure(&device, config) {
                Ok(()) => {
                    let file = file.file_name().unwrap_or_default().to_owned();
                    return Ok((LoopDevice { path, number, file }, kept));
                }
                Err(Errno::BUSY) => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
        Err(failed(io::Error::other("other programs take every loop device that is free")))
    }
}

/// Its users' descriptors: while another process keeps it, none of these is the last that is closed.
impl LoopDevice {
    /// One more descriptor, unless it is detached.
    pub fn open(&self) -> Option<File> {
        if self.is_detached() { None } else { File::open(&self.path).ok() }
    }

    /// Has the device for itself, as long as what this gives is kept: no file system is mounted from it then, and
    /// nothing is mapped over it. None where it is detached, or cannot be opened. An error says what uses it besides
    /// the process that keeps it.
    pub fn claim(&self, keeper: Option<u32>) -> Result<Option<File>, Vec<String>> {
        let users = self.users(keeper);
        if !users.is_empty() {
            return Err(users);
        }
        match claim(&self.path) {
            _ if self.is_detached() => Ok(None),
            Ok(claimed) => Ok(Some(claimed)),
            Err(error) if is_claimed(&error) => Err(vec![self.in_use()]),
            Err(_) => Ok(None),
        }
    }
}

impl HostDevice for LoopDevice {
    fn path(&self) -> &Path {
        &self.path
    }

    fn number(&self) -> u64 {
        self.number
    }

    /// Nothing is attached, or a file of another name.
    fn is_detached(&self) -> bool {
        match name_behind(&self.path) {
            Some(name) => name != self.file,
            None => place_of(&self.path).exists(),
        }
    }
}

/// Has a device detached as soon as its last user is gone, and this descriptor is closed. A device to which
/// nothing is attached is left alone.
///
/// For a process that does not serve the file: this waits until what is under way on the device has ended.
pub fn let_go(device: impl AsFd) -> io::Result<()> {
    /// `LOOP_SET_STATUS64`. Of the flags it changes this one alone; offset and size stay nothing.
    const SET_STATUS: ioctl::Opcode = 0x4c04;
    /// `LOOP_CLR_FD`. A device that others have open is detached when they have closed it.
    const DETACH: ioctl::Opcode = 0x4c01;
    let info = LoopInfo::new(Path::new(""), AUTOCLEAR);
    // SAFETY: the kernel reads a `loop_info64` through the pointer, and that is what is there.
    let marked = unsafe { ioctl::ioctl(&device, Setter::<SET_STATUS, LoopInfo>::new(info)) };
    match marked {
        // Since Linux 6.19 nothing is marked that another descriptor has claimed.
        // SAFETY: the call takes no pointer.
        Err(Errno::BUSY) => unsafe { ioctl::ioctl(&device, ioctl::NoArg::<DETACH>::new()) },
        marked => marked,
    }
    .or_else(|error| if error == Errno::NXIO { Ok(()) } else { Err(error.into()) })
}

/// Devices over a file of this place whose server is gone. Whoever asks has the place for itself: they were left by a
/// crash, be it before they had a name.
pub fn left_at(file: &Path) -> Vec<PathBuf> {
    let is_left = |device: &PathBuf| {
        name_behind(device).as_deref() == file.file_name()
            // First: it is asked with patience. The other asks a file system that may not answer.
            && is_abandoned(device)
            && was_attached_as(file, device)
    };
    all().filter(is_left).collect()
}

/// The files that loop devices are attached to, as the kernel names them.
pub(crate) fn all_files() -> impl Iterator<Item = PathBuf> {
    all().filter_map(|device| file_behind(&device))
}

/// All block devices of this host, of which loop devices are some.
fn all() -> impl Iterator<Item = PathBuf> {
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    devices.map(|device| Path::new("/dev").join(device.file_name()))
}

/// Whether the device was attached under this path, as far as a device keeps one. The kernel's own path of a file
/// that was unmounted has lost its beginning.
fn was_attached_as(file: &Path, device: &Path) -> bool {
    let told = File::open(device).and_then(|device| LoopInfo::of(&device));
    told.is_ok_and(|told| told.file_name == LoopInfo::new(file, 0).file_name)
}

/// The name of the file that is attached to a device.
pub fn name_behind(device: &Path) -> Option<OsString> {
    file_behind(device)?.file_name().map(OsStr::to_owned)
}

/// Whether the process is gone that served the file behind a device.
pub fn is_abandoned(device: &Path) -> bool {
    let Some(file) = file_behind(device) else { return false };
    let directory = file.parent().unwrap_or(&file);
    // The path of a file whose mount is gone begins there. Its device is kept by a process, if that lives.
    let is_unmounted = directory == Path::new("/") && is_elsewhere(device, &file) == Some(true);
    match is_unmounted {
        true => fs::metadata(device).is_ok_and(|node| openers(&[node.rdev()]).next().is_none()),
        false => mount::is_abandoned(directory) == Some(true),
    }
}

/// Whether another file than the one that is attached to a device has its path, or none. None: a file system does not
/// answer.
fn is_elsewhere(device: &Path, file: &Path) -> Option<bool> {
    let (device, file) = (device.to_owned(), file.to_owned());
    mount::with_patience(move || {
        let Ok(found) = fs::metadata(&file) else { return true };
        let told = File::open(&device).and_then(|device| LoopInfo::of(&device));
        !told.is_ok_and(|told| (told.device, told.inode) == (found.dev(), found.ino()))
    })
}

/// The file that is attached to a device. The kernel knows by itself, and keeps it when the file is unmounted.
fn file_behind(device: &Path) -> Option<PathBuf> {
    let file = fs::read_to_string(place_of(device).join("loop/backing_file")).ok()?;
    let file = file.trim_end_matches('\n');
    Some(file.strip_suffix(" (deleted)").unwrap_or(file).into())
}

/// A device that nothing is attached to.
fn free_device(control: &File) -> Result<PathBuf, Errno> {
    /// `LOOP_CTL_GET_FREE`.
    const GET_FREE: ioctl::Opcode = 0x4c82;
    /// The answer is the call's own result.
    struct GetFree;
    // SAFETY: the call takes no pointer, and its result is a number.
    unsafe impl ioctl::Ioctl for GetFree {
        type Output = i32;
        const IS_MUTATING: bool = false;
        fn opcode(&self) -> ioctl::Opcode {
            GET_FREE
        }
        fn as_ptr(&mut self) -> *mut std::ffi::c_void {
            std::ptr::null_mut()
        }
        unsafe fn output_from_ptr(
            result: ioctl::IoctlOutput,
            _: *mut std::ffi::c_void,
        ) -> rustix::io::Result<i32> {
            Ok(result)
        }
    }
    // SAFETY: as above.
    let number = unsafe { ioctl::ioctl(control, GetFree) }?;
    Ok(PathBuf::from(format!("/dev/loop{number}")))
}

fn configure(device: &File, config: Config) -> Result<(), Errno> {
    /// `LOOP_CONFIGURE`.
    const CONFIGURE: ioctl::Opcode = 0x4c0a;
    // SAFETY: the kernel reads a `loop_config` through the pointer; the sizes were compared above.
    unsafe { ioctl::ioctl(device, Setter::<CONFIGURE, Config>::new(config)) }
}

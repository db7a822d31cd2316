//! Orders to the kernel's ublk driver about devices.
//!
//! Each goes over a small ring of its own: an order that is given up ends with its ring.

use std::fs::{File, OpenOptions};
use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use io_uring::squeue::Entry128;
use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use rustix::ioctl::Opcode;
use zerocopy::IntoBytes;

use super::index::Index;
use super::parameters::Parameters;
use super::wire::{
    ANY_DEVICE, Control as Order, DeviceInfo, PARAMETERS_BYTES, ParametersHead, order,
};

/// The driver's own device.
const CONTROL: &str = "/dev/ublk-control";

/// Between two looks whether a long order is still wanted.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How long requests that are under way may take to end when a disk is stopped that no other process has stopped.
const STOPS_WITHIN: Duration = Duration::from_secs(5);

/// How long a device that is deleted may be open elsewhere before nobody waits for that any more.
const DELETES_WITHIN: Duration = Duration::from_secs(5);

/// The driver, to be asked.
#[derive(Debug)]
pub(super) struct Control(File);

impl Control {
    /// The error is [`io::ErrorKind::NotFound`] where the kernel has no driver.
    pub(super) fn open() -> io::Result<Self> {
        OpenOptions::new().read(true).write(true).open(CONTROL).map(Self)
    }

    /// What the driver can do. One older than Linux 6.5 does not say.
    pub(super) fn features(&self) -> io::Result<u64> {
        let mut features = [0; 8];
        self.ask(order::FEATURES, ANY_DEVICE, &mut features)?;
        Ok(u64::from_ne_bytes(features))
    }

    /// What the driver knows of a device.
    pub(super) fn info(&self, index: Index) -> io::Result<DeviceInfo> {
        let mut info = DeviceInfo::default();
        self.ask(order::DEVICE_INFO, index.0, info.as_mut_bytes())?;
        Ok(info)
    }

    /// Makes a device without a disk. Gives what it has become.
    pub(super) fn add(&self, mut info: DeviceInfo) -> io::Result<DeviceInfo> {
        self.ask(order::ADD, info.device, info.as_mut_bytes())?;
        Ok(info)
    }

    pub(super) fn set_parameters(&self, index: Index, parameters: &Parameters) -> io::Result<()> {
        self.ask(order::SET_PARAMETERS, index.0, &mut parameters.to_bytes())
    }

    pub(super) fn parameters(&self, index: Index) -> io::Result<Parameters> {
        let mut bytes = [0; PARAMETERS_BYTES];
        let head = ParametersHead { length: PARAMETERS_BYTES as u32, kinds: 0 };
        bytes[..size_of::<ParametersHead>()].copy_from_slice(head.as_bytes());
        self.ask(order::PARAMETERS, index.0, &mut bytes)?;
        Parameters::of(&bytes).ok_or_else(|| io::Error::other("it has no size"))
    }

    /// Makes the disk, once all queues have given their entries to the driver. The kernel reads from it meanwhile: this
    /// waits for the array, unless it `is_over`.
    pub(super) fn start(&self, index: Index, is_over: impl Fn() -> bool) -> io::Result<()> {
        self.order_unless(order::START, with_process(index), is_over)
    }

    /// Takes the disk away, once the requests that are under way there have ended. Others fail.
    pub(super) fn stop(&self, index: Index) -> io::Result<()> {
        self.order_unless(order::STOP, to(index), || false)
    }

    /// The same, for a while: the error is [`io::ErrorKind::TimedOut`] where requests do not end.
    pub(super) fn stop_left(&self, index: Index) -> io::Result<()> {
        let begin = Instant::now();
        self.order_unless(order::STOP, to(index), || begin.elapsed() >= STOPS_WITHIN)
    }

    /// Takes the rest of a device away that is stopped. Its number is free when nobody has its nodes open any more.
    pub(super) fn delete(&self, index: Index) -> io::Result<()> {
        match self.order_unless(order::DELETE_LATER, to(index), || false) {
            Err(error) if is(&error, Errno::OPNOTSUPP) => {
                let begin = Instant::now();
                let is_over = || begin.elapsed() >= DELETES_WITHIN;
                match self.order_unless(order::DELETE, to(index), is_over) {
                    // Its nodes are gone, and the number goes later.
                    Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(()),
                    deleted => deleted,
                }
            }
            deleted => deleted,
        }
    }

    /// Begins to take over a device whose process is gone.
    pub(super) fn start_recovery(&self, index: Index) -> io::Result<()> {
        self.order_unless(order::START_RECOVERY, to(index), || false)
    }

    /// Lets requests come again, once all queues have given their entries to the driver, unless it `is_over`.
    pub(super) fn end_recovery(&self, index: Index, is_over: impl Fn() -> bool) -> io::Result<()> {
        self.order_unless(order::END_RECOVERY, with_process(index), is_over)
    }

    /// An order that reads or writes `buffer`, and ends at once.
    fn ask(&self, code: Opcode, device: u32, buffer: &mut [u8]) -> io::Result<()> {
        let length = u16::try_from(buffer.len()).expect("structures of the driver are short");
        let address = buffer.as_mut_ptr() as u64;
        let order = Order { device, queue: u16::MAX, length, address, ..Order::default() };
        self.order_unless(code, order, || false)
    }

    /// Gives an order and waits for its end, unless it `is_over`: then the error is [`io::ErrorKind::TimedOut`]. One
    /// with a buffer is never over: the kernel would use that later.
    fn order_unless(
        &self,
        code: Opcode,
        order: Order,
        is_over: impl Fn() -> bool,
    ) -> io::Result<()> {
        let mut ring: IoUring<Entry128> = IoUring::builder().dontfork().build(1)?;
        let mut command = [0; 80];
        command[..size_of::<Order>()].copy_from_slice(order.as_bytes());
        let entry = opcode::UringCmd80::new(Fd(self.0.as_raw_fd()), code).cmd(command).build();
        // SAFETY: what `order` points to outlives the order: who gives one waits for its end.
        unsafe { ring.submission().push(&entry) }.expect("a new ring has room");
        let span = Timespec::from(LOOK_EVERY);
        loop {
            match ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&span)) {
                Ok(_) => {}
                Err(error)
                    if [Errno::TIME, Errno::INTR, Errno::AGAIN]
                        .iter()
                        .any(|one| is(&error, *one)) => {}
                Err(error) => return Err(error),
            }
            if let Some(end) = ring.completion().next() {
                return match end.result() {
                    errno @ ..0 => Err(io::Error::from_raw_os_error(-errno)),
                    _ => Ok(()),
                };
            }
            if order.address == 0 && is_over() {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
    }
}

/// Whether an error is this one of the system's.
pub(super) fn is(error: &io::Error, errno: Errno) -> bool {
    error.raw_os_error() == Some(errno.raw_os_error())
}

fn to(index: Index) -> Order {
    Order { device: index.0, queue: u16::MAX, ..Order::default() }
}

/// With the number of this process, which the driver shows as the one that serves.
fn with_process(index: Index) -> Order {
    Order { value: std::process::id().into(), ..to(index) }
}

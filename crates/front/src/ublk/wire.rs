//! What goes between this process and the kernel's ublk driver: numbers and structures in the machine's own byte order.
//!
//! Source: `include/uapi/linux/ublk_cmd.h`, of which each item here names its counterpart.

use std::mem::size_of;

use rustix::ioctl::{Opcode, opcode};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The letter of the driver's orders.
const GROUP: u8 = b'u';

/// Orders about devices, to `/dev/ublk-control`: `UBLK_U_CMD_*`.
pub(super) mod order {
    use super::{Control, GROUP, Opcode, opcode};

    pub(in super::super) const DEVICE_INFO: Opcode = opcode::read::<Control>(GROUP, 0x02);
    pub(in super::super) const ADD: Opcode = opcode::read_write::<Control>(GROUP, 0x04);
    pub(in super::super) const DELETE: Opcode = opcode::read_write::<Control>(GROUP, 0x05);
    pub(in super::super) const START: Opcode = opcode::read_write::<Control>(GROUP, 0x06);
    pub(in super::super) const STOP: Opcode = opcode::read_write::<Control>(GROUP, 0x07);
    pub(in super::super) const SET_PARAMETERS: Opcode = opcode::read_write::<Control>(GROUP, 0x08);
    pub(in super::super) const PARAMETERS: Opcode = opcode::read::<Control>(GROUP, 0x09);
    pub(in super::super) const START_RECOVERY: Opcode = opcode::read_write::<Control>(GROUP, 0x10);
    pub(in super::super) const END_RECOVERY: Opcode = opcode::read_write::<Control>(GROUP, 0x11);
    pub(in super::super) const FEATURES: Opcode = opcode::read::<Control>(GROUP, 0x13);
    /// Linux 6.9 and later.
    pub(in super::super) const DELETE_LATER: Opcode = opcode::read::<Control>(GROUP, 0x14);
}

/// Orders of a queue, to `/dev/ublkcN`: `UBLK_U_IO_*`.
pub(super) mod io_order {
    use super::{GROUP, IoCommand, Opcode, opcode};

    pub(in super::super) const FETCH: Opcode = opcode::read_write::<IoCommand>(GROUP, 0x20);
    pub(in super::super) const COMMIT_AND_FETCH: Opcode =
        opcode::read_write::<IoCommand>(GROUP, 0x21);
}

/// What a device or a driver can do: `UBLK_F_*`.
pub(super) mod feature {
    /// The device stays when its process is gone, and waits for the next one.
    pub(in super::super) const USER_RECOVERY: u64 = 1 << 3;
    /// What that process had begun comes again.
    pub(in super::super) const USER_RECOVERY_REISSUE: u64 = 1 << 4;
    pub(in super::super) const IOCTL_ENCODE: u64 = 1 << 6;
    /// Data are read from and written to `/dev/ublkcN`: Linux 6.5.
    pub(in super::super) const USER_COPY: u64 = 1 << 7;
}

/// States of a device: `UBLK_S_DEV_*`.
pub(super) mod state {
    /// It has no disk: not yet, or no more.
    pub(in super::super) const DEAD: u16 = 0;
    pub(in super::super) const LIVE: u16 = 1;
    /// Its process is gone, and requests wait for the next one.
    pub(in super::super) const QUIESCED: u16 = 2;
}

/// How requests are named: `UBLK_IO_OP_*`, bits 0 to 7 of [`Descriptor::operation`].
pub(super) mod operation {
    pub(in super::super) const READ: u8 = 0;
    pub(in super::super) const WRITE: u8 = 1;
    pub(in super::super) const FLUSH: u8 = 2;
    pub(in super::super) const DISCARD: u8 = 3;
    pub(in super::super) const WRITE_ZEROES: u8 = 5;
}

/// Bits of [`Descriptor::operation`]: `UBLK_IO_F_*`.
pub(super) mod io_flag {
    pub(in super::super) const FUA: u32 = 1 << 13;
    /// Zeroes keep their room.
    pub(in super::super) const NO_UNMAP: u32 = 1 << 15;
}

/// Bits of [`BasicParameters::attributes`]: `UBLK_ATTR_*`.
pub(super) mod attribute {
    pub(in super::super) const READ_ONLY: u32 = 1 << 0;
    pub(in super::super) const ROTATIONAL: u32 = 1 << 1;
    pub(in super::super) const VOLATILE_CACHE: u32 = 1 << 2;
    pub(in super::super) const FUA: u32 = 1 << 3;
}

/// Kinds of parameters: `UBLK_PARAM_TYPE_*`.
pub(super) mod parameter_kind {
    pub(in super::super) const BASIC: u32 = 1 << 0;
    pub(in super::super) const DISCARD: u32 = 1 << 1;
}

/// A number of a device that the driver chooses: `U32_MAX`.
pub(super) const ANY_DEVICE: u32 = u32::MAX;

/// `struct ublksrv_ctrl_cmd`: 32 bytes.
#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct Control {
    pub(super) device: u32,
    /// 0xffff: the order is for no queue.
    pub(super) queue: u16,
    /// Bytes at `address`.
    pub(super) length: u16,
    pub(super) address: u64,
    /// What an order takes beside that.
    pub(super) value: u64,
    pub(super) unused: u64,
}

/// `struct ublksrv_ctrl_dev_info`: 64 bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct DeviceInfo {
    pub(super) queues: u16,
    pub(super) depth: u16,
    pub(super) state: u16,
    pub(super) pad0: u16,
    pub(super) request_bytes_max: u32,
    pub(super) device: u32,
    /// -1 where none serves it.
    pub(super) process: i32,
    pub(super) pad1: u32,
    pub(super) features: u64,
    /// The driver keeps it for its user: `ublksrv_flags`.
    pub(super) mark: u64,
    pub(super) owner_user: u32,
    pub(super) owner_group: u32,
    pub(super) reserved: [u64; 2],
}

/// The head of `struct ublk_params`: 8 bytes, before the others.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, IntoBytes, KnownLayout)]
#[repr(C)]
pub(super) struct ParametersHead {
    /// Bytes of the whole.
    pub(super) length: u32,
    pub(super) kinds: u32,
}

/// `struct ublk_param_basic`: 32 bytes.
#[derive(
    Clone, Copy, Debug, Default, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq,
)]
#[repr(C)]
pub(super) struct BasicParameters {
    pub(super) attributes: u32,
    /// Sizes are powers of two: of each its binary logarithm.
    pub(super) logical_block_shift: u8,
    pub(super) physical_block_shift: u8,
    pub(super) optimal_shift: u8,
    pub(super) minimal_shift: u8,
    pub(super) request_sectors_max: u32,
    pub(super) chunk_sectors: u32,
    pub(super) sectors: u64,
    pub(super) virtual_boundary: u64,
}

/// `struct ublk_param_discard`: 20 bytes.
#[derive(
    Clone, Copy, Debug, Default, Eq, FromBytes, Immutable, IntoBytes, KnownLayout, PartialEq,
)]
#[repr(C)]
pub(super) struct DiscardParameters {
    pub(super) alignment_bytes: u32,
    pub(super) granularity_bytes: u32,
    pub(super) discard_sectors_max: u32,
    pub(super) zeroes_sectors_max: u32,
    /// The driver takes 1 alone.
    pub(super) segments: u16,
    pub(super) reserved: u16,
}

/// Bytes of these parts of `struct ublk_params`.
pub(super) const PARAMETERS_BYTES: usize =
    size_of::<ParametersHead>() + size_of::<BasicParameters>() + size_of::<DiscardParameters>();

/// `struct ublksrv_io_cmd`: 16 bytes.
#[derive(Clone, Copy, Debug, Default, Immutable, IntoBytes)]
#[repr(C)]
pub(super) struct IoCommand {
    pub(super) queue: u16,
    pub(super) tag: u16,
    /// Bytes of a read or write, 0 of others; a negative errno.
    pub(super) result: i32,
    /// 0 where data are read and written.
    pub(super) address: u64,
}

/// `struct ublksrv_io_desc`: 24 bytes, what a request asks for.
#[derive(Clone, Copy, Debug, Default, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Descriptor {
    /// Bits 0 to 7: the operation; the others are flags.
    pub(super) operation: u32,
    pub(super) sectors: u32,
    pub(super) sector: u64,
    pub(super) address: u64,
}

/// Entries of a queue that the driver bears: `UBLK_MAX_QUEUE_DEPTH`.
const DEPTH_MAX: usize = 4096;

/// Where the descriptors of a queue begin in `/dev/ublkcN`, in bytes: `UBLKSRV_CMD_BUF_OFFSET` is 0, and each queue has
/// room for the most entries, in whole pages.
pub(super) fn descriptors_at(queue: u16, page_bytes: usize) -> u64 {
    u64::from(queue) * descriptors_bytes(DEPTH_MAX, page_bytes) as u64
}

/// Bytes of the descriptors of so many entries, in whole pages.
pub(super) fn descriptors_bytes(depth: usize, page_bytes: usize) -> usize {
    (depth * size_of::<Descriptor>()).next_multiple_of(page_bytes)
}

/// Where the data of a request are read and written in `/dev/ublkcN`, in bytes: `UBLKSRV_IO_BUF_OFFSET`, the queue from
/// `UBLK_QID_OFF` on, the tag from `UBLK_TAG_OFF` on.
pub(super) fn data_at(queue: u16, tag: u16) -> u64 {
    0x8000_0000 + (u64::from(queue) << 41 | u64::from(tag) << 25)
}

/// What the driver answers to a fetch whose device is stopped or given up: `UBLK_IO_RES_ABORT`.
pub(super) const ABORTED: i32 = -rustix::io::Errno::NODEV.raw_os_error();

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use super::{ExaminedMember, line};
use crate::output::printable;
use crate::render::units::brief_size;

/// The lines of one member.
pub(super) fn describe(member: &ExaminedMember) -> String {
    let superblock = &member.superblock;
    let mut out = String::new();
    line!(out, "MD_LEVEL={}", superblock.level);
    line!(out, "MD_DEVICES={}", superblock.raid_disks);
    let name = superblock.set_name.to_string();
    if !name.is_empty() {
        line!(out, "MD_NAME={}", printable(&name));
    }
    if let Some(bytes) = member.array_bytes() {
        line!(out, "MD_ARRAY_SIZE={}", brief_size(bytes));
    }
    line!(out, "MD_UUID={}", superblock.set_uuid);
    line!(out, "MD_UPDATE_TIME={}", superblock.utime.seconds());
    line!(out, "MD_DEV_UUID={}", superblock.device_uuid);
    line!(out, "MD_EVENTS={}", superblock.events);
    out
}

//! What paths that are open make together, if they lead to one device.

use crate::backend::{MemberId, MemberInfo};

use super::{Paths, Table};

/// Why a device cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathsError {
    /// The paths lead to devices of different sizes.
    #[error("{one} has {one_sectors} sectors and {other} {other_sectors}: they are not one device")]
    Sizes {
        /// A path.
        one: String,
        /// Its device's size.
        one_sectors: u64,
        /// Another path.
        other: String,
        /// Its device's size.
        other_sectors: u64,
    },
    /// The table asks for more than there is.
    #[error("the table says {table} sectors, the paths' device has {device}")]
    TooSmall {
        /// Sectors of the table.
        table: u64,
        /// Sectors of the device.
        device: u64,
    },
    /// No path could be opened.
    #[error("no path can be opened: {0}")]
    NoPath(String),
}

/// What all paths that are open can do. The device is as large as the table says.
pub(super) fn common_info(
    name: &str,
    table: &Table,
    opened: &[Result<(MemberId, MemberInfo), String>],
) -> Result<MemberInfo, PathsError> {
    let infos: Vec<&MemberInfo> = opened.iter().flatten().map(|(_, info)| info).collect();
    let Some(&first) = infos.first() else {
        let why: Vec<&str> =
            opened.iter().filter_map(|path| path.as_ref().err()).map(String::as_str).collect();
        return Err(PathsError::NoPath(why.join("; ")));
    };
    if let Some(other) = infos.iter().find(|info| info.sectors != first.sectors) {
        return Err(PathsError::Sizes {
            one: first.name.clone(),
            one_sectors: first.sectors,
            other: other.name.clone(),
            other_sectors: other.sectors,
        });
    }
    if table.sectors > first.sectors {
        return Err(PathsError::TooSmall { table: table.sectors, device: first.sectors });
    }
    let blocks = infos.iter().map(|info| info.logical_block_bytes);
    Ok(MemberInfo {
        name: name.to_owned(),
        sectors: table.sectors,
        logical_block_bytes: blocks.max().unwrap_or(first.logical_block_bytes),
        rotational: infos.iter().any(|info| info.rotational),
        discard_zeroes: infos.iter().all(|info| info.discard_zeroes),
        is_sparse: false,
    })
}

impl Paths {
    /// What the device was said to do and one like this cannot; none where it can do it all.
    pub fn does_more_than(&self, info: &MemberInfo) -> Option<String> {
        let (own, block) = (self.info(), info.logical_block_bytes);
        if block > own.logical_block_bytes {
            let known = own.logical_block_bytes;
            return Some(format!("its blocks have {block} bytes, those of the device {known}"));
        }
        let has_zeroes = info.discard_zeroes || !own.discard_zeroes;
        (!has_zeroes).then(|| "it cannot make zeroes by itself, as the device can".to_owned())
    }
}

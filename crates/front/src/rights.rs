//! Who may connect to a front's socket, or open its device: the rights of its file.

use std::fmt;
use std::fs::{self, File, Metadata, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::unistd::{Group, User};
use rustix::fs::OFlags;

/// Rights as users write them: `mode=0660`, `owner=NAME`, `group=NAME`. A name may be a number. What is not said stays as
/// sockets are made: mode 0600, and the user and group of the process.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rights {
    /// Permission bits.
    pub mode: Option<SocketMode>,
    /// Name or number of a user.
    pub owner: Option<String>,
    /// Name or number of a group.
    pub group: Option<String>,
}

/// Permission bits, 0 to 0o777. To connect takes the write bit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SocketMode(u32);

/// Why a socket cannot have its rights.
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    /// This host does not know the user.
    #[error("this host has no user {0:?}: `getent passwd` lists them")]
    NoUser(String),
    /// This host does not know the group.
    #[error("this host has no group {0:?}: `getent group` lists them")]
    NoGroup(String),
    /// The system refused.
    #[error(
        "{path} cannot have {rights} ({source}): only root gives files to other users, and to groups without \
         being in them"
    )]
    System {
        /// The socket.
        path: PathBuf,
        /// What it was to have.
        rights: Rights,
        /// What the system said.
        source: io::Error,
    },
}

/// The numbers of an owner and a group.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Owners {
    user: Option<u32>,
    group: Option<u32>,
}

impl SocketMode {
    fn parse(text: &str) -> Option<SocketMode> {
        let is_octal = text.bytes().all(|byte| byte.is_ascii_digit());
        u32::from_str_radix(text, 8).ok().filter(|mode| is_octal && *mode <= 0o777).map(SocketMode)
    }

    /// Whether every user of the host may connect.
    pub(crate) fn is_for_all(self) -> bool {
        self.0 & 0o002 != 0
    }
}

impl fmt::Display for SocketMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

impl Rights {
    /// Takes an option of an address, `KEY=VALUE`. False: it is none of these, or there was one.
    pub(crate) fn take(&mut self, option: &str) -> bool {
        match option.split_once('=') {
            Some(("mode", text)) => match SocketMode::parse(text) {
                Some(mode) => self.mode.replace(mode).is_none(),
                None => false,
            },
            Some(("owner", name)) if is_name(name) => self.owner.replace(name.to_owned()).is_none(),
            Some(("group", name)) if is_name(name) => self.group.replace(name.to_owned()).is_none(),
            _ => false,
        }
    }

    /// The options, as they are written.
    pub(crate) fn options(&self) -> Vec<String> {
        let mode = self.mode.map(|mode| format!("mode={mode}"));
        let owner = self.owner.as_ref().map(|name| format!("owner={name}"));
        let group = self.group.as_ref().map(|name| format!("group={name}"));
        [mode, owner, group].into_iter().flatten().collect()
    }

    /// Looks up who is named.
    pub(crate) fn owners(&self) -> Result<Owners, RightsError> {
        let user = self.owner.as_deref().map(user_number).transpose()?;
        let group = self.group.as_deref().map(group_number).transpose()?;
        Ok(Owners { user, group })
    }

    /// Gives the rights to the file of a socket that this process has made, and follows no link there.
    pub(crate) fn give(&self, path: &Path, owners: Owners) -> Result<(), RightsError> {
        self.give_if(path, owners, |file| {
            // Who may write to the folder may have put another file there, or another name of one.
            file.file_type().is_socket() && file.nlink() == 1
        })
    }

    /// Gives the rights to the node of a block device, where it has others.
    pub(crate) fn give_to_device(&self, path: &Path, owners: Owners) -> Result<(), RightsError> {
        let is_given = |file: &Metadata| {
            self.mode.is_none_or(|SocketMode(mode)| file.mode() & 0o777 == mode)
                && owners.user.is_none_or(|user| file.uid() == user)
                && owners.group.is_none_or(|group| file.gid() == group)
        };
        match fs::symlink_metadata(path) {
            Ok(file) if is_given(&file) => Ok(()),
            _ => self.give_if(path, owners, |file| file.file_type().is_block_device()),
        }
    }

    fn give_if(
        &self,
        path: &Path,
        owners: Owners,
        is_it: impl Fn(&Metadata) -> bool,
    ) -> Result<(), RightsError> {
        let give = || {
            let flags = (OFlags::PATH | OFlags::NOFOLLOW).bits().cast_signed();
            let file = File::options().read(true).custom_flags(flags).open(path)?;
            if !is_it(&file.metadata()?) {
                return Err(io::Error::other("another file has taken its place"));
            }
            // A descriptor that names a file and no more takes no rights. What the kernel calls it leads there.
            let place = format!("/proc/self/fd/{}", file.as_raw_fd());
            chown(&place, owners.user, owners.group)?;
            // Last: until then the file is for its maker alone.
            self.mode.map_or(Ok(()), |SocketMode(mode)| {
                fs::set_permissions(&place, Permissions::from_mode(mode))
            })
        };
        give().map_err(|source| RightsError::System {
            path: path.to_owned(),
            rights: self.clone(),
            source,
        })
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.options().join("&"))
    }
}

/// Whether it may be the name of a user or group: `useradd(8)` takes fewer.
fn is_name(text: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.$".contains(&byte);
    !text.is_empty() && !text.starts_with('-') && text.bytes().all(is_part)
}

fn user_number(name: &str) -> Result<u32, RightsError> {
    let known = User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    known.or_else(|| number(name)).ok_or_else(|| RightsError::NoUser(name.to_owned()))
}

fn group_number(name: &str) -> Result<u32, RightsError> {
    let known = Group::from_name(name).ok().flatten().map(|group| group.gid.as_raw());
    known.or_else(|| number(name)).ok_or_else(|| RightsError::NoGroup(name.to_owned()))
}

/// The highest one means none to the system.
fn number(name: &str) -> Option<u32> {
    name.parse().ok().filter(|number| *number != u32::MAX)
}

#[cfg(test)]
mod tests;

//! What an array is made of.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mdspace_io::{OwnDevice, name_of_path};

use crate::Error;

/// One member of an array: a file, a block device, memory, or a device of the program's own. A path is a member too,
/// wherever one is asked for.
#[derive(Clone)]
pub struct Member(pub(crate) Kind);

#[derive(Clone)]
pub(crate) enum Kind {
    Path(PathBuf),
    Memory {
        bytes: u64,
    },
    Own {
        name: String,
        device: Arc<dyn OwnDevice>,
    },
    /// Of a new array: a slot that stays empty.
    Missing,
}

impl Member {
    /// A file or block device. It is opened for this array alone: others are refused while it is open.
    pub fn path(path: impl AsRef<Path>) -> Self {
        Self(Kind::Path(path.as_ref().to_owned()))
    }

    /// Memory of this process, which is zeroed and gone with the array. A whole number of 512-byte sectors.
    pub fn memory(bytes: u64) -> Self {
        Self(Kind::Memory { bytes })
    }

    /// A device of the program's own, under a name for status and messages. Give it to one array only.
    pub fn own(name: impl Into<String>, device: Arc<dyn OwnDevice>) -> Self {
        Self(Kind::Own { name: name.into(), device })
    }

    /// A slot of a new array for which the member comes later. The array starts degraded.
    pub fn missing() -> Self {
        Self(Kind::Missing)
    }

    /// What status and messages call it.
    pub(crate) fn name(&self) -> Result<String, Error> {
        match &self.0 {
            Kind::Path(path) => match std::path::absolute(path) {
                Ok(absolute) => Ok(name_of_path(&absolute)),
                Err(error) => Err(Error::Asked {
                    why: format!("{} is no path: {error}", path.display()),
                    cure: "give the path of a file or a block device".into(),
                }),
            },
            Kind::Memory { bytes } => Ok(format!("ram:{bytes}")),
            Kind::Own { name, .. } => Ok(name.clone()),
            Kind::Missing => Ok("missing".into()),
        }
    }

    pub(crate) fn is_missing(&self) -> bool {
        matches!(self.0, Kind::Missing)
    }
}

impl<P: AsRef<Path> + ?Sized> From<&P> for Member {
    fn from(path: &P) -> Self {
        Self::path(path)
    }
}

impl From<PathBuf> for Member {
    fn from(path: PathBuf) -> Self {
        Self(Kind::Path(path))
    }
}

impl From<String> for Member {
    fn from(path: String) -> Self {
        Self::path(path)
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Path(path) => path.fmt(f),
            Kind::Memory { bytes } => write!(f, "{bytes} bytes of memory"),
            Kind::Own { name, .. } => write!(f, "own device {name}"),
            Kind::Missing => f.write_str("missing"),
        }
    }
}

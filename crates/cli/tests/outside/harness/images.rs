//! Member images: sparse files in a folder of their own.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A folder of member images, removed with this value; kept where `MDSPACE_KEEP` is set.
pub(crate) struct Images {
    folder: TempDir,
}

impl Images {
    /// An empty folder on the target directory's disk.
    pub(crate) fn new() -> Self {
        let mut folder = TempDir::with_prefix_in("images-", env!("CARGO_TARGET_TMPDIR"))
            .expect("the target folder is writable");
        if std::env::var_os("MDSPACE_KEEP").is_some() {
            folder.disable_cleanup(true);
            eprintln!("keeping {}", folder.path().display());
        }
        Self { folder }
    }

    /// The folder; a guest sees it as `$SHARE`.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Makes `count` sparse files `NAME0`, `NAME1`, ... of `bytes` each.
    pub(crate) fn sparse(&self, name: &str, count: usize, bytes: u64) -> Vec<PathBuf> {
        (0..count)
            .map(|index| {
                let path = self.folder().join(format!("{name}{index}"));
                let file = File::create_new(&path).expect("an image of a new name");
                file.set_len(bytes).expect("a sparse file of any size");
                path
            })
            .collect()
    }
}

/// A path as a command's argument.
pub(crate) fn path_text(path: &Path) -> &str {
    path.to_str().expect("our paths are text")
}

/// Flips one bit of the byte at `offset`.
pub(crate) fn flip(image: &Path, offset: u64) {
    let file = OpenOptions::new().read(true).write(true).open(image).expect("the image exists");
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).expect("the offset lies in the image");
    byte[0] ^= 0x10;
    file.write_all_at(&byte, offset).expect("the image is writable");
}

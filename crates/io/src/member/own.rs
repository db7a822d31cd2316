//! A member whose bytes the embedding program keeps.

use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use mdspace_engine::backend::{IoError, IoErrorKind};

use crate::errno::{flush_error, io_error};

/// A device of the embedding program's own.
///
/// Lanes call it, several at once, and wait for its answer. No deadline ends a call: while one waits, its lane serves
/// nothing else, and a call without an end is a lane, a stop and a drop without an end. What may wait for long is better
/// served as an export, which is a member with deadlines.
///
/// Ranges lie within the device, in whole blocks of 512 bytes. Bytes that are read and written at once may come out mixed.
///
/// An error that has a number of the system counts as that of a disk: `EIO` is of these sectors alone, `ENOSPC` is of
/// the space behind it. Any other error, a panic too, fails the member.
pub trait OwnDevice: Send + Sync + 'static {
    /// Its size, in bytes. It is asked once; what is no whole sector of 512 bytes is not used.
    fn size_bytes(&self) -> u64;

    /// Fills all of `bytes` from `offset_bytes` on.
    fn read_at(&self, bytes: &mut [u8], offset_bytes: u64) -> io::Result<()>;

    /// Takes all of `bytes` for `offset_bytes` and what follows.
    fn write_at(&self, bytes: &[u8], offset_bytes: u64) -> io::Result<()>;

    /// Makes a range read as zeroes. Without an implementation of its own, zeroes are written.
    fn zero_at(&self, offset_bytes: u64, len_bytes: u64) -> io::Result<()> {
        let end = offset_bytes + len_bytes;
        for at in (offset_bytes..end).step_by(ZEROES.len()) {
            self.write_at(&ZEROES[..ZEROES.len().min((end - at) as usize)], at)?;
        }
        Ok(())
    }

    /// Whether [`zero_at`](Self::zero_at) gives space back, so that discards are worth while. It is asked once.
    fn discards(&self) -> bool {
        false
    }

    /// Makes every write durable that has ended before. After an error those writes count as lost, and the member fails.
    fn flush(&self) -> io::Result<()>;
}

/// What is written of zeroes at one time.
static ZEROES: [u8; 64 << 10] = [0; 64 << 10];

/// Such a device, open.
pub(crate) struct Own(pub(crate) Arc<dyn OwnDevice>);

impl Own {
    pub(crate) fn read(&self, bytes: &mut [u8], offset_bytes: u64) -> Result<(), IoError> {
        called(|| self.0.read_at(bytes, offset_bytes)).map_err(|error| error_of(&error))
    }

    pub(crate) fn write(&self, bytes: &[u8], offset_bytes: u64) -> Result<(), IoError> {
        called(|| self.0.write_at(bytes, offset_bytes)).map_err(|error| error_of(&error))
    }

    pub(crate) fn zero(&self, offset_bytes: u64, len_bytes: u64) -> Result<(), IoError> {
        called(|| self.0.zero_at(offset_bytes, len_bytes)).map_err(|error| error_of(&error))
    }

    pub(crate) fn flush(&self) -> Result<(), IoError> {
        let flushed = called(|| self.0.flush());
        flushed.map_err(|error| flush_error(error.raw_os_error().unwrap_or_default()))
    }
}

/// A panic would end the lane, and with it the process, in the middle of other members' I/O.
fn called(call: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| {
        tracing::error!("a device of the embedding program has panicked: its member fails");
        Err(io::Error::other("the device has panicked"))
    })
}

fn error_of(error: &io::Error) -> IoError {
    match (error.raw_os_error(), error.kind()) {
        (Some(errno), _) => io_error(errno),
        (None, io::ErrorKind::StorageFull) => io_error(libc::ENOSPC),
        (None, _) => IoError { kind: IoErrorKind::Other, errno: 0 },
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Own")
    }
}

#[cfg(test)]
mod tests;

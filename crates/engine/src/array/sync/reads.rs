//! How long the sync task of a lane waits for a read under its claim.

use std::cell::Cell;
use std::time::Duration;

use crate::array::settings::Settings;
use crate::backend::{IoDone, IoError, IoErrorKind, Patience};
use crate::lane::{Io, first_of};
use crate::signal::Signal;

/// The longest wait. A drive may try for a minute until it gives up a sector, and the kernel asks it several times.
const LONGEST: Duration = Duration::from_secs(180);

/// Errno of a read that is not waited for any more.
const ETIMEDOUT: i32 = 110;

/// The patience of one task. It grows: a member that always answers, and always late, must not keep the task from its end.
#[derive(Default)]
pub(in super::super) struct SyncReads {
    doublings: Cell<u32>,
    is_told_to_end: Cell<bool>,
    told: Signal,
}

impl SyncReads {
    /// How long a read may take.
    pub(in super::super) fn patience(&self, settings: &Settings) -> Patience {
        let longest = settings.write_patience().at_least(LONGEST);
        settings.read_patience().doubled(self.doublings.get(), longest)
    }

    pub(super) fn doublings(&self) -> u32 {
        self.doublings.get()
    }

    /// Doubles it, if it was doubled so often until now.
    pub(super) fn double(&self, doublings: u32) {
        if self.doublings.get() == doublings {
            self.doublings.set(doublings + 1);
        }
    }

    pub(super) fn tell_to_end(&self) {
        self.is_told_to_end.set(true);
        self.told.notify();
    }

    pub(super) fn is_told_to_end(&self) -> bool {
        self.is_told_to_end.get()
    }

    /// Ends when the task is told to end.
    pub(super) async fn until_told(&self) {
        self.told.until(|| self.is_told_to_end().then_some(())).await;
    }

    /// The end of a read. Where members were late before, one that the task does not wait for any more is late too.
    pub(in super::super) async fn end_of(&self, io: &mut Io<'_>) -> IoDone {
        if self.doublings() == 0 {
            return io.await;
        }
        let told = async {
            self.until_told().await;
            let error = IoError { kind: IoErrorKind::Deadline, errno: ETIMEDOUT };
            IoDone { result: Err(error), buffer: None }
        };
        first_of(io, told).await
    }
}

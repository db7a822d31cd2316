//! The end of an I/O that goes on when the controller waits for it no more.

use std::cell::Cell;

use crate::backend::IoError;
use crate::signal::Signal;

/// Set once, by the task that has the I/O.
#[derive(Default)]
pub(super) struct IoEnd {
    result: Cell<Option<Result<(), IoError>>>,
    came: Signal,
}

impl IoEnd {
    pub(super) fn set(&self, result: Result<(), IoError>) {
        self.result.set(Some(result));
        self.came.notify();
    }

    /// What it was, if it has come.
    pub(super) fn result(&self) -> Option<Result<(), IoError>> {
        self.result.get()
    }

    /// Waits for it.
    pub(super) async fn come(&self) -> Result<(), IoError> {
        self.came.until(|| self.result.get()).await
    }
}

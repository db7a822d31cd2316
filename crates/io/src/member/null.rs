//! `null:`: a device that only pretends. It answers at the times of a model, and keeps no more than
//! md's metadata unless it is asked to keep everything.
//!
//! ```text
//! keys: the user's words ── Drive: figures ── model: when does an I/O end (no clock, no I/O)
//!                                          └─ kept: what reads give back
//! ```

mod arm;
mod drive;
mod faults;
mod kept;
mod keys;
mod model;
mod random;

#[cfg(test)]
mod tests;

use std::io;

use mdspace_engine::sync::Mutex;

pub use keys::{KeyHelp, null_keys, null_presets};

pub(crate) use drive::Drive;
pub(crate) use kept::Kept;
pub(crate) use keys::parse;
pub(crate) use model::{Answer, Arrival, Kind};

use model::Model;

/// `null:SIZE?key=value` or `null:PRESET?key=value`, open. All lanes share it.
#[derive(Debug)]
pub(crate) struct Null {
    /// Nothing where every I/O ends at once: such a member is free of shared writes.
    model: Option<Box<Mutex<Model>>>,
    kept: Kept,
}

impl Null {
    /// A device of `bytes` bytes. Devices of one description differ by `ordinal`, so that they do
    /// not fail and limp together.
    pub(crate) fn new(drive: Drive, bytes: u64, ordinal: u64) -> io::Result<Self> {
        let kept = Kept::new(bytes, drive.memory_backed)?;
        let model = (!drive.is_immediate())
            .then(|| Box::new(Mutex::new(Model::new(drive, bytes / 512, ordinal))));
        Ok(Self { model, kept })
    }

    /// Whether every I/O ends at once.
    pub(crate) fn is_immediate(&self) -> bool {
        self.model.is_none()
    }

    /// When and how an I/O ends.
    pub(crate) fn answer(&self, arrival: Arrival) -> Answer {
        match &self.model {
            Some(model) => model.lock().answer(arrival),
            None => Answer { at: arrival.at, fails: false },
        }
    }

    /// What reads give back.
    pub(crate) fn kept(&self) -> &Kept {
        &self.kept
    }
}

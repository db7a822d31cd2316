//! Synchronisation primitives, in one place so that a model checker can stand in for them: with the
//! feature `model` they are [shuttle]'s, which runs a test under many schedules.
//!
//! [shuttle]: https://docs.rs/shuttle

#[cfg(feature = "model")]
use shuttle::sync as imp;
#[cfg(not(feature = "model"))]
use std::sync as imp;

pub use imp::{MutexGuard, atomic};

/// A lock that ignores poison: a thread that panicked has already taken the process with it.
#[derive(Debug, Default)]
pub struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    /// A lock around `value`.
    pub fn new(value: T) -> Self {
        Self(imp::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

//! Synchronisation primitives, in one place so that a model checker can stand in for them: with the
//! feature `model` they are [shuttle]'s, which runs a test under many schedules; with `weak-memory`
//! they are [loom]'s, which runs it under all, and with every old value that a load may still see.
//!
//! [shuttle]: https://docs.rs/shuttle
//! [loom]: https://docs.rs/loom

#[cfg(feature = "weak-memory")]
use loom::sync as imp;
#[cfg(all(feature = "model", not(feature = "weak-memory")))]
use shuttle::sync as imp;
#[cfg(not(any(feature = "model", feature = "weak-memory")))]
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

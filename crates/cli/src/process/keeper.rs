//! Looks now and then whether the process can still be found: a cleaner of temporary files may delete
//! its lock and its sockets, and no verb and no client would see it any more.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use super::ending::Served;
use crate::control::server::Listener;
use crate::run_dir::NameLock;

const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Keeps them in their places until the process ends, or lets go of its control socket.
pub(super) fn spawn(
    process: Arc<impl Served>,
    lock: &Arc<NameLock>,
    listener: &Arc<Listener>,
) -> io::Result<()> {
    let (lock, listener) = (lock.clone(), Arc::downgrade(listener));
    thread::Builder::new().name("keeper".into()).spawn(move || {
        let mut told = Vec::new();
        while process.recorder().pause(LOOK_EVERY) {
            let (mut lost, mut troubles) = process.fronts().keep();
            match look(&lock, &listener) {
                Ok(more) => lost.extend(more.into_iter().map(str::to_owned)),
                Err(error) => troubles.push(format!("no verb may find it: {error}")),
            }
            if !lost.is_empty() {
                let lost = lost.join(" and ");
                tracing::warn!("{lost} of {} had been deleted: made anew", process.name());
            }
            for trouble in troubles.iter().filter(|trouble| !told.contains(*trouble)) {
                tracing::error!("{}: {trouble}", process.name());
            }
            told = troubles;
        }
    })?;
    Ok(())
}

/// What of lock and control socket was made anew.
fn look(lock: &NameLock, listener: &Weak<Listener>) -> io::Result<Vec<&'static str>> {
    let mut lost = Vec::new();
    lost.extend(lock.keep()?.then_some("the lock"));
    if let Some(listener) = listener.upgrade() {
        lost.extend(listener.keep()?.then_some("the control socket"));
    }
    Ok(lost)
}

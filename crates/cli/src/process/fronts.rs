//! Where the array is served: open and close fronts, and say who is connected.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mdspace_engine::status::{ArrayState, ArrayStatus};
use mdspace_front::PartialWrites;
use mdspace_front::address::Address;
use mdspace_front::driver_device::front_of;
use mdspace_front::identity::Identity;
use mdspace_front::nbd::{BlockSizes, Budget, Export, Exports, ReadOnlySwitch, ServerLimits};
use mdspace_front::volume::Volume;
use mdspace_io::path_of_name;

use super::array::ServedArray;
use crate::args::ArrayName;
use crate::failure::Failure;
use crate::member_probe::asked_of;
use crate::report::FrontReport;

mod block_device;
pub(crate) mod broker;
mod closing;
mod driven;
mod front;
pub(crate) mod mount_guard;
pub(crate) mod opener;
pub(crate) mod tuning;
mod way;

use closing::Closings;
pub(super) use front::Prepared;
use front::{Front, Unused};

/// What comes after all fronts are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing: the array is stopped.
    Stopped,
    /// The same fronts again, by the next process.
    Restart,
}

/// The fronts that are open, in the order of their opening.
#[derive(Default)]
pub(super) struct Fronts {
    open: Mutex<Vec<Front>>,
    /// What all clients of all fronts may hold together.
    budget: Budget,
    /// The array takes no writes: who connects is told so.
    read_only: ReadOnlySwitch,
    /// Held from the question whether it does to the turn of the switch.
    following: Mutex<()>,
    /// Parts of blocks are written one at a time, through whatever front.
    partial_writes: PartialWrites,
    /// Those that are closed now, and in no list any more.
    closings: Closings,
}

impl Fronts {
    /// Serves the array at a front; returns a line for the user.
    pub(super) fn open(
        &self,
        front: Prepared,
        name: &ArrayName,
        array: &ServedArray,
    ) -> Result<String, Failure> {
        let status = self.follow(array)?;
        let exports = exports(name, &status)?
            .switched_by(&self.read_only)
            .with_lineage(array.members().table().lineage());
        let identity = Identity::of_array(&status.uuid.to_string());
        let opened =
            array.with_running(|running| self.serve(front, name, identity, exports, running));
        opened.unwrap_or_else(|| {
            Err(Failure::new("no front opens", "the array is stopped", "assemble it again"))
        })
    }

    /// Ends devices that a crash left, and that no front goes on with. Gives lines for the user: some are in use.
    pub(super) fn release_left(&self, name: &ArrayName, array: &ServedArray) -> Vec<String> {
        let Ok(status) = array.status() else { return Vec::new() };
        let in_use = block_device::release_left(&Identity::of_array(&status.uuid.to_string()));
        let line = |device: PathBuf| {
            let (device, front) = (device.display(), front_of(&device));
            format!(
                "{device} was left by a crash, and is in use: it goes on with `mdspace serve {name} {front}`"
            )
        };
        in_use.into_iter().map(line).collect()
    }

    /// Tells those who connect from now on whether they may only read, by what the array says of itself now: of
    /// orders at once the last one that asks has seen them all.
    pub(super) fn follow(&self, array: &ServedArray) -> Result<ArrayStatus, Failure> {
        let _one_at_a_time = self.following.lock().unwrap_or_else(PoisonError::into_inner);
        let status = array.status()?;
        self.read_only.turn(status.state == ArrayState::Readonly);
        Ok(status)
    }

    /// Serves any volume at a front; returns a line for the user. A device that a crash left is known by its `identity`.
    pub(super) fn serve<V: Volume>(
        &self,
        front: Prepared,
        name: &ArrayName,
        identity: Identity,
        exports: Exports,
        volume: &V,
    ) -> Result<String, Failure> {
        if self.closings.are_of_a_stop() {
            return Err(stopping(name));
        }
        let (budget, partial_writes) = (self.budget.clone(), self.partial_writes.clone());
        let limits = ServerLimits { budget, partial_writes, ..ServerLimits::default() };
        let (front, note) = front.open(name, identity, exports, limits, volume)?;
        let mut list = self.list();
        if self.closings.are_of_a_stop() {
            // The stop that came meanwhile waits for this.
            let closing = self.closings.begin();
            drop(list);
            let closed = match front.went_on() {
                Some(driven) => driven.leave(&closing),
                None => front.close(Unused::default(), &closing),
            };
            closed.unwrap_or_else(|note| tracing::warn!("{note}"));
            return Err(stopping(name));
        }
        list.push(front);
        Ok(note)
    }

    /// Whether a block device of the host has its bytes in one of them.
    pub(super) fn bear(&self, device: u64) -> bool {
        self.list().iter().any(|front| front.bears(device))
    }

    /// Whether a member's name leads to such a device. This process may not open it: it would wait for itself.
    pub(super) fn are_below(&self, member: &str) -> bool {
        let device = asked_of(&path_of_name(member), |path| {
            let found = fs::metadata(path).ok()?;
            found.file_type().is_block_device().then(|| found.rdev())
        });
        device.flatten().is_some_and(|device| self.bear(device))
    }

    /// Closes a front, whatever its options; with `force` also while clients are connected to it.
    pub(super) fn close(
        &self,
        address: &Address,
        name: &ArrayName,
        force: bool,
    ) -> Result<(), Failure> {
        let what = format!("cannot close {address}");
        let mut list = self.list();
        let is_it = |front: &Front| front.address().is_where(address);
        let Some(at) = list.iter().position(is_it) else {
            let why = format!("{name} is not served there");
            let cure = format!("see `mdspace detail {name}` for its fronts");
            return Err(Failure::new(what, why, cure));
        };
        let unused = match force {
            true => Unused::default(),
            false => {
                list[at].claim(LEAVING).map_err(|clients| connected(what.clone(), &clients))?
            }
        };
        let closing = self.closings.begin();
        let front = list.remove(at);
        drop(list);
        front.close(unused, &closing).map_err(|error| {
            Failure::new(what, error, format!("look at the members with `mdspace detail {name}`"))
        })
    }

    /// Closes all fronts. Without `force` none while a client is connected to any; with it the requests of
    /// clients are waited for but a moment, for what they wait for may be the stop. Fronts that others close
    /// are closed too when this returns: by force that hurries. Before a restart, a device that waits for the next process
    /// may have users. Gives lines for the user.
    pub(super) fn close_all(
        &self,
        name: &ArrayName,
        force: bool,
        next: Next,
    ) -> Result<Vec<String>, Failure> {
        let mut list = self.list();
        let waits = |front: &Front| next == Next::Restart && front.can_wait().is_some();
        let claim = |front: &Front| match force || waits(front) {
            true => Ok(Unused::default()),
            false => front.claim(LEAVING),
        };
        let (unused, clients): (Vec<_>, Vec<_>) = list.iter().map(claim).partition(Result::is_ok);
        if !clients.is_empty() {
            let clients: Vec<String> =
                clients.into_iter().filter_map(Result::err).flatten().collect();
            let what = match next {
                Next::Stopped => format!("cannot stop {name}"),
                Next::Restart => format!("cannot restart {name}"),
            };
            return Err(connected(what, &clients));
        }
        let closing = self.closings.begin();
        self.closings.begin_stop();
        let unused = unused.into_iter().flatten();
        let mut fronts: Vec<(Front, Unused)> = list.drain(..).zip(unused).collect();
        // While the kernel writes what it holds back of a device none gets a client.
        fronts.sort_by_key(|(front, _)| !front.listens());
        // What hangs here must keep neither a report nor a stop by force.
        drop(list);
        if force {
            self.closings.hurry();
        }
        let closed = fronts.into_iter().map(|(front, unused)| match front.can_wait() {
            Some(driven) if next == Next::Restart => driven.leave(&closing),
            _ => front.close(unused, &closing),
        });
        let notes = closed.filter_map(Result::err).collect();
        drop(closing);
        self.closings.wait();
        Ok(notes)
    }

    /// Closes the fronts that go on with what a crash left, and lets that wait again.
    pub(super) fn leave_devices(&self) {
        let mut list = self.list();
        let closing = self.closings.begin();
        let left: Vec<Front> = list.extract_if(.., |front| front.went_on().is_some()).collect();
        drop(list);
        for driven in left.iter().filter_map(Front::went_on) {
            driven.leave(&closing).unwrap_or_else(|note| tracing::warn!("{note}"));
        }
    }

    /// Makes sockets anew whose files were deleted, and connections that the kernel has cut off; gives the addresses of
    /// sockets, and what went wrong with others.
    pub(super) fn keep(&self) -> (Vec<String>, Vec<String>) {
        let keeper = |front: &Front| Some((front.address().to_string(), front.keeper()?));
        let keepers: Vec<_> = self.list().iter().filter_map(keeper).collect();
        let (mut renewed, mut troubles) = (Vec::new(), Vec::new());
        for (address, keep) in keepers {
            match keep() {
                Ok(false) => {}
                Ok(true) => renewed.push(address),
                Err(error) => troubles.push(format!("{address}: {error}")),
            }
        }
        (renewed, troubles)
    }

    /// What is open, and who uses it; see [`Front::clients`].
    pub(super) fn report(&self, claims: bool) -> Vec<FrontReport> {
        self.list().iter().map(|front| front.report(claims)).collect()
    }

    pub(super) fn addresses(&self) -> Vec<String> {
        self.list().iter().map(|front| front.address().to_string()).collect()
    }

    fn list(&self) -> MutexGuard<'_, Vec<Front>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a crash left this device of an array: who opens it waits for that array.
pub(crate) fn is_left(device: &Path) -> bool {
    block_device::is_left(device)
}

fn connected(what: String, clients: &[String]) -> Failure {
    let why = format!("these clients are connected:\n{}", clients.join("\n"));
    Failure::new(what, why, "disconnect them first; --force disconnects them now")
}

fn stopping(name: &ArrayName) -> Failure {
    let why = format!("{name} is being stopped");
    Failure::new("no front opens", why, "start it again when that is done")
}

/// How long a client that closed its connection a moment ago may still seem to be there: a script
/// that copies and then stops the array must not fail by chance.
const LEAVING: Duration = Duration::from_secs(1);

/// The whole array under its own name, which is also the default export.
fn exports(name: &ArrayName, status: &ArrayStatus) -> Result<Exports, Failure> {
    let block = status.logical_block_bytes;
    let chunk = status.chunk_sectors.saturating_mul(512).min(1 << 20).max(block).max(4096);
    let failed = |error| Failure::new("cannot export the array", error, "report it");
    let preferred = chunk.next_power_of_two();
    let export = Export {
        name: name.to_string(),
        description: format!("{} {}", status.level, status.name),
        size_bytes: status.size_sectors * 512,
        block_sizes: BlockSizes::new(block, preferred).map_err(failed)?,
        read_only: false,
        rotational: false,
        trim: true,
        fast_zero: false,
    };
    Exports::new(vec![export]).map_err(failed)
}

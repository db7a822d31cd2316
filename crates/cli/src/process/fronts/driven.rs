//! A front that is a device of the host's ublk or nbd driver.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mdspace_front::address::{Address, Endpoint};
use mdspace_front::driver_device::DriverDevice;
use mdspace_front::identity::Identity;
use mdspace_front::nbd::{Exports, PairServer, ServerLimits};
use mdspace_front::nbd_device::NbdDevice;
use mdspace_front::ublk::{Offer, UblkDevice};
use mdspace_front::volume::Volume;

use super::block_device::{self, BlockDevice};
use super::closing::Closing;
use super::front::{Claim, LOOK_EVERY, Lateness, requests_end};
use super::mount_guard::End;
use super::opener::{Opener, Openers};
use super::tuning;
use super::way::Way;
use crate::args::ArrayName;
use crate::failure::Failure;

/// An open one.
pub(super) struct Driven {
    address: Address,
    device: Box<BlockDevice<dyn DriverDevice>>,
    openers: Openers,
    /// A crash left the device.
    was_left: bool,
    /// It is being closed: nothing of it is made anew any more.
    is_closing: AtomicBool,
}

impl Driven {
    /// Serves a volume as such a device: as that which a crash left of it, or as a new one. Gives what the user reads.
    pub(super) fn open<V: Volume>(
        (address, way): (Address, Way),
        name: &ArrayName,
        identity: Identity,
        exports: Exports,
        limits: ServerLimits,
        volume: &V,
    ) -> Result<(Arc<Self>, String), Failure> {
        let failed = |why: &dyn Display| {
            Failure::new(format!("cannot serve {name} at {address}"), why, "see `mdspace doctor`")
        };
        let folder = block_device::folder().map_err(|error| failed(&error))?;
        let (exports, partial_writes) = (exports.at(&address), limits.partial_writes);
        let attached: (Box<BlockDevice<dyn DriverDevice>>, bool) = match way {
            Way::Ublk => {
                let offer = Offer { exports, partial_writes, rights: address.rights.clone() };
                let (device, was_left) = UblkDevice::attach(identity, offer, volume, folder)
                    .map_err(|error| failed(&error))?;
                (Box::new(BlockDevice::named(device, name)), was_left)
            }
            Way::NbdDevice => {
                let server = PairServer::start(exports, partial_writes, volume);
                let (device, was_left) =
                    NbdDevice::attach(identity, server, folder).map_err(|error| failed(&error))?;
                (Box::new(BlockDevice::named(device, name)), was_left)
            }
            Way::Loop => unreachable!("a loop device is over a mounted file"),
        };
        let (device, was_left) = attached;
        if !was_left {
            // One that was left is tuned, and what is under way there may wait long for its end.
            tuning::tune(device.device().path());
        }
        let mut note = format!("{name}: served as {}", device.describe());
        if address.endpoint == Endpoint::Block {
            note = format!("{note}, {way}");
        }
        if was_left {
            note.push_str("; what a crash left of it goes on");
        }
        let is_closing = AtomicBool::new(false);
        let openers = Openers::default();
        Ok((Arc::new(Self { address, device, openers, was_left, is_closing }), note))
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn device(&self) -> &BlockDevice<dyn DriverDevice> {
        &self.device
    }

    /// Whether a crash left the device, and this goes on with it.
    pub(super) fn was_left(&self) -> bool {
        self.was_left
    }

    /// Makes anew what it has lost. A close that comes meanwhile does not wait for that: it takes no more requests then.
    pub(super) fn keep(&self) -> Result<(), String> {
        match self.is_closing.load(Ordering::Acquire) {
            true => Ok(()),
            false => self.device.device().keep(),
        }
    }

    /// A process that has it open; none where it is detached: its number may be another device's.
    fn opener(&self) -> Option<io::Result<Opener>> {
        let identity = self.device.device().identity();
        let start = || Opener::start(self.device.link_ends(), identity, &self.openers);
        (!self.device.is_detached()).then(start)
    }

    /// Keeps users from it, by a process that has it open. None where it is detached.
    pub(super) fn claim(&self) -> Result<Option<Claim>, Vec<String>> {
        let users = self.device.users(None);
        if !users.is_empty() {
            return Err(users);
        }
        if self.openers.are_under_way() {
            return Err(vec![format!("{} does not answer", self.device.describe())]);
        }
        let Some(opener) = self.opener() else { return Ok(None) };
        if self.device.is_detached() {
            return Ok(None);
        }
        let shown = self.device.describe();
        match opener {
            Ok(opener) if opener.is_alone() => Ok(Some(Claim::Process(opener))),
            Ok(opener) if opener.finds_nothing() => Err(vec![format!("{shown} cannot be opened")]),
            Ok(opener) if opener.is_beside_others() => Err(vec![self.device.in_use()]),
            Ok(_) => Err(vec![format!("{shown} does not answer")]),
            Err(error) => Err(vec![format!("no process can look who uses {shown}: {error}")]),
        }
    }

    /// Ends its connections, and lets the device wait for the next process under its name, as after a crash.
    pub(super) fn leave(&self, closing: &Closing<'_>) -> Result<(), String> {
        self.device.keep_name();
        self.is_closing.store(true, Ordering::Release);
        requests_end(closing, || self.device.device().close(LOOK_EVERY))
    }

    /// Takes the device away. What the kernel holds back of it is written first, by a process that has claimed it or by
    /// another one.
    pub(super) fn close(
        &self,
        claimed: Option<Opener>,
        closing: &Closing<'_>,
    ) -> Result<(), String> {
        self.is_closing.store(true, Ordering::Release);
        let lateness = Lateness::new(closing, || self.device.done());
        let take_away = |opener: Opener| opener.take_away(|| lateness.is_late());
        let start = || self.opener()?.ok();
        let end = match claimed.or_else(start).map(take_away) {
            // Another program has disconnected it.
            None if self.device.is_detached() => End::Written,
            None | Some(End::Killed) => start().map_or(End::Killed, take_away),
            Some(end) => end,
        };
        if !self.device.is_detached()
            && let Err(error) = self.device.device().stop()
        {
            tracing::warn!(%error, "{} is closed as it is", self.device.describe());
        }
        let closed = requests_end(closing, || self.device.device().close(LOOK_EVERY));
        // Nothing waits for this process any more.
        let stays = self.device.device().take_away().err();
        let shown = self.device.describe();
        if let Some(error) = stays {
            return Err(format!("{shown} stays ({error}): see `lsblk`"));
        }
        match end {
            End::Written | End::Attached => closed,
            End::Unwritten => Err(format!(
                "the kernel could not write all that programs wrote to {shown}: see `dmesg`"
            )),
            End::Late | End::Killed => Err(format!(
                "what the kernel held back of {shown} may be lost: nothing waited for it to be written"
            )),
        }
    }
}

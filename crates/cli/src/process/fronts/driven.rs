//! A front that is a device of the host's nbd driver.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mdspace_front::address::{Address, Endpoint};
use mdspace_front::host_device::HostDevice;
use mdspace_front::nbd::{Exports, PairServer, ServerLimits};
use mdspace_front::nbd_device::{self, Identity, NbdDevice};
use mdspace_front::volume::Volume;

use super::block_device::{self, BlockDevice};
use super::closing::Closing;
use super::discards;
use super::front::{Claim, LOOK_EVERY, Lateness, requests_end};
use super::mount_guard::End;
use super::opener::{Opener, Openers};
use super::way::Way;
use crate::args::ArrayName;
use crate::failure::Failure;

/// An open one.
pub(super) struct Driven {
    address: Address,
    device: BlockDevice<NbdDevice>,
    server: PairServer,
    openers: Openers,
    /// A crash left the device.
    was_left: bool,
    /// It is being closed: its connections are made anew no more.
    is_closing: AtomicBool,
}

impl Driven {
    /// Serves a volume as such a device: as that which a crash left of it, or as a new one. Gives what the user reads.
    pub(super) fn open<V: Volume>(
        address: Address,
        name: &ArrayName,
        identity: Identity,
        exports: Exports,
        limits: ServerLimits,
        volume: &V,
    ) -> Result<(Arc<Self>, String), Failure> {
        let what = || format!("cannot serve {name} at {address}");
        let server = PairServer::start(exports.at(&address), limits.partial_writes, volume);
        let attached = block_device::folder()
            .map_err(Into::into)
            .and_then(|folder| NbdDevice::attach(identity, &server, folder));
        let (device, was_left) =
            attached.map_err(|why| Failure::new(what(), why, "see `mdspace doctor`"))?;
        let device = BlockDevice::of_driver(device, name);
        let mut note = format!("{name}: served as {}", device.describe());
        if address.endpoint == Endpoint::Block {
            note = format!("{note}, {}", Way::NbdDevice);
        }
        match was_left {
            true => note.push_str("; what a crash left of it goes on"),
            // Of one that was left they are short, and what is under way there may wait long for its end.
            false => discards::shorten(device.device().path()),
        }
        let is_closing = AtomicBool::new(false);
        let openers = Openers::default();
        Ok((Arc::new(Self { address, device, server, openers, was_left, is_closing }), note))
    }

    pub(super) fn address(&self) -> &Address {
        &self.address
    }

    pub(super) fn device(&self) -> &BlockDevice<NbdDevice> {
        &self.device
    }

    /// Whether a crash left the device, and this goes on with it.
    pub(super) fn was_left(&self) -> bool {
        self.was_left
    }

    /// Makes connections anew that the driver has cut off. A close that comes meanwhile does not wait for that: the
    /// server takes no more then.
    pub(super) fn keep(&self) -> Result<(), String> {
        if self.is_closing.load(Ordering::Acquire) {
            return Ok(());
        }
        let cut_off = self.device.device().cut_off(&self.server);
        if cut_off.is_empty() {
            return Ok(());
        }
        let shown = self.device.describe();
        if self.device.is_detached() {
            // Its number may be another array's now.
            self.device.device().give_number_free();
            return Err(format!(
                "the kernel has given up {shown}: close that front with `mdspace unserve`, and open it again"
            ));
        }
        let made = self.device.device().reconnect(&self.server, &cut_off);
        made.map_err(|error| format!("connections of {shown} were cut off: {error}"))?;
        tracing::warn!("the kernel has cut off connections of {shown}: made anew");
        Ok(())
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
        requests_end(closing, || self.server.close(LOOK_EVERY))
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
        let closed = requests_end(closing, || self.server.close(LOOK_EVERY));
        let stays = match self.device.is_detached() {
            true => None,
            // Nothing waits for this process any more.
            false => nbd_device::disconnect(self.device.device().index()).err(),
        };
        let shown = self.device.describe();
        if let Some(error) = stays {
            return Err(format!("{shown} stays attached ({error}): see `nbd-client -check`"));
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

//! The members as one lane knows them.

use std::cell::{Cell, RefCell};
use std::os::fd::AsRawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mdspace_engine::backend::MemberId;

use crate::member::{self, Member, MemberTable};
use crate::queue::{FileRef, Queue};

/// A member on one lane.
pub(super) struct Device {
    pub(super) member: Arc<Member>,
    /// Its file, if it has one.
    pub(super) file: FileRef,
    /// I/Os of this lane that it still holds.
    pub(super) in_flight: Cell<usize>,
}

impl Device {
    /// Whether its calls are made on the spot.
    pub(super) fn is_inline(&self) -> bool {
        matches!(self.member.device, member::Device::File { inline: true, .. })
    }
}

/// The members that a lane has met, by index.
pub(super) struct Devices {
    table: Arc<MemberTable>,
    met: Vec<Option<Rc<Device>>>,
    closed_seen: u64,
    closing: bool,
}

impl Devices {
    pub(super) fn new(table: Arc<MemberTable>) -> Self {
        let closed_seen = table.closed_count();
        Self { table, met: Vec::new(), closed_seen, closing: false }
    }

    pub(super) fn find(&mut self, id: MemberId, queue: &RefCell<Queue>) -> Option<Rc<Device>> {
        match self.met.get(usize::from(id.index)) {
            Some(Some(device)) if device.member.id == id => Some(device.clone()),
            _ => self.meet(id, queue),
        }
    }

    #[cold]
    fn meet(&mut self, id: MemberId, queue: &RefCell<Queue>) -> Option<Rc<Device>> {
        let member = self.table.member(id)?;
        let index = usize::from(id.index);
        if self.met.len() <= index {
            self.met.resize(index + 1, None);
        }
        assert!(self.met[index].is_none(), "an index is used again after every lane has let go");
        let file = match &member.device {
            member::Device::File { file, .. } => {
                let fd = file.as_raw_fd();
                let fixed = queue.borrow_mut().register_file(id.index, fd).then_some(id.index);
                FileRef { fd, fixed }
            }
            member::Device::Ram(_) | member::Device::Null(_) => FileRef { fd: -1, fixed: None },
        };
        let device = Rc::new(Device { member, file, in_flight: Cell::new(0) });
        self.met[index] = Some(device.clone());
        Some(device)
    }

    pub(super) fn in_flight(&self, id: MemberId) -> usize {
        match self.met.get(usize::from(id.index)) {
            Some(Some(device)) if device.member.id == id => device.in_flight.get(),
            _ => 0,
        }
    }

    /// Lets go of closed members that hold nothing of this lane any more.
    pub(super) fn sweep(&mut self, queue: &RefCell<Queue>) {
        let closed = self.table.closed_count();
        if closed == self.closed_seen && !self.closing {
            return;
        }
        self.closed_seen = closed;
        self.closing = false;
        for device in &mut self.met {
            let Some(known) = device else { continue };
            if !known.member.closing.load(Ordering::Acquire) {
                continue;
            }
            if known.in_flight.get() > 0 {
                self.closing = true;
                continue;
            }
            if let Some(place) = known.file.fixed {
                queue.borrow_mut().register_file(place, -1);
            }
            *device = None;
        }
    }
}

//! The members as one lane knows them.

use std::cell::{Cell, OnceCell, RefCell};
use std::os::fd::AsRawFd;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mdspace_engine::backend::{MemberId, Ticket};
use mdspace_engine::lane::{Lane, LaneId};
use mdspace_engine::paths::PathLane;

use crate::lanes::Term;
use crate::member::proof::Asker;
use crate::member::{self, MayWrite, Member, MemberTable};
use crate::queue::{FileRef, Queue};

use super::link::Link;

/// A member on one lane.
pub(super) struct Device {
    pub(super) member: Arc<Member>,
    /// Its file, if it has one.
    pub(super) file: FileRef,
    /// I/Os of this lane that it still holds.
    pub(super) in_flight: Cell<usize>,
    /// Those of them that were answered at their deadline, where the kernel still has the call.
    pub(super) overdue: Cell<usize>,
    /// Those of all that write.
    pub(super) changing: Cell<usize>,
    /// The right to more of those: until the member is closed, and none is under way here.
    may_write: RefCell<Option<Arc<MayWrite>>>,
    /// Its connection, if it is behind a network.
    pub(super) link: Option<Link>,
    /// Its paths, if it has some.
    paths: Option<Rc<PathLane>>,
}

impl Device {
    #[inline]
    pub(super) fn paths(&self) -> Option<&Rc<PathLane>> {
        self.paths.as_ref()
    }

    /// I/Os of this lane that it still holds.
    fn held(&self) -> usize {
        self.in_flight.get() + self.paths.as_ref().map_or(0, |paths| paths.in_flight())
    }

    /// Whether its connection is to end as soon as nothing is in flight there: its server may have no room for the next.
    fn gives_way(&self) -> bool {
        matches!(&self.member.device, member::Device::Nbd(nbd) if nbd.gives_way())
    }

    /// Whether nothing is in flight there by now.
    pub(super) fn gives_way_now(&self) -> bool {
        self.gives_way() && self.held() == 0
    }

    /// Whether its user has closed it.
    pub(super) fn is_closing(&self) -> bool {
        self.member.closing.load(Ordering::Acquire)
    }

    /// Whether a write may be begun.
    pub(super) fn may_write(&self) -> bool {
        self.may_write.borrow().is_some()
    }

    /// What is asked of a lane that has a connection, which it may have to take up.
    fn questions(&self, lane: LaneId) -> Option<Vec<Asker>> {
        let member::Device::Nbd(nbd) = &self.member.device else { return None };
        let is_up = self.link.as_ref().is_some_and(Link::is_up) || nbd.waits_for(lane);
        is_up.then(|| nbd.questions.take()).filter(|asked| !asked.is_empty())
    }

    /// Whether its calls are made on the spot.
    pub(super) fn is_inline(&self) -> bool {
        matches!(self.member.device, member::Device::File { inline: true, .. })
    }
}

/// What a look at the members has found.
#[derive(Default)]
pub(super) struct Swept {
    pub(super) to_end: Vec<Rc<Device>>,
    /// Members, and who wants to know what identifies them over this lane's connection.
    pub(super) asked: Vec<(Arc<Member>, Vec<Asker>)>,
}

/// The members that a lane has met, by index.
pub(super) struct Devices {
    table: Arc<MemberTable>,
    term: Term,
    met: Vec<Option<Rc<Device>>>,
    news_seen: u64,
    /// Of a member that is closed or gives way something is in flight.
    looks_again: bool,
}

impl Devices {
    pub(super) fn new(table: Arc<MemberTable>, term: Term) -> Self {
        let news_seen = table.news_count();
        Self { table, term, met: Vec::new(), news_seen, looks_again: false }
    }

    #[inline]
    pub(super) fn find(
        &mut self,
        id: MemberId,
        queue: &RefCell<Queue>,
        lane: &OnceCell<Weak<Lane>>,
    ) -> Option<&Rc<Device>> {
        let index = usize::from(id.index);
        let known = |met: &Option<Rc<Device>>| met.as_ref().is_some_and(|met| met.member.id == id);
        if !self.met.get(index).is_some_and(known) {
            self.meet(id, queue, lane)?;
        }
        self.met[index].as_ref()
    }

    #[cold]
    fn meet(
        &mut self,
        id: MemberId,
        queue: &RefCell<Queue>,
        lane: &OnceCell<Weak<Lane>>,
    ) -> Option<()> {
        let member = self.table.member(id)?;
        let index = usize::from(id.index);
        if self.met.len() <= index {
            self.met.resize(index + 1, None);
        }
        assert!(self.met[index].is_none(), "an index is used again after every lane has let go");
        let file = match &member.device {
            member::Device::File { file, .. } => {
                let fd = file.as_raw_fd();
                let mut queue = queue.borrow_mut();
                // Else one whose call hangs would keep all others, after they are closed.
                let may_be_registered = !member.is_claimed || queue.gives_files_back();
                let is_registered = may_be_registered && queue.register_file(id.index, fd);
                let fixed = is_registered.then_some(id.index);
                FileRef { fd, fixed, waits: file.asks_server() }
            }
            member::Device::Ram(_)
            | member::Device::Null(_)
            | member::Device::Nbd(_)
            | member::Device::Own(_)
            | member::Device::Multipath(_) => FileRef { fd: -1, fixed: None, waits: false },
        };
        let link = matches!(member.device, member::Device::Nbd(_)).then(Link::default);
        let paths = match &member.device {
            member::Device::Multipath(paths) => {
                let lane = lane.get()?.upgrade()?;
                if self.term == Term::WithTheOthers {
                    paths.look_after_on(&lane);
                }
                Some(PathLane::attach(paths, &lane))
            }
            _ => None,
        };
        let may_write = RefCell::new(member.may_write());
        let (in_flight, overdue, changing) = Default::default();
        let device = Device { member, file, in_flight, overdue, changing, may_write, link, paths };
        self.met[index] = Some(Rc::new(device));
        Some(())
    }

    pub(super) fn table(&self) -> Arc<MemberTable> {
        self.table.clone()
    }

    pub(super) fn in_flight(&self, id: MemberId) -> usize {
        match self.met.get(usize::from(id.index)) {
            Some(Some(device)) if device.member.id == id => device.held(),
            _ => 0,
        }
    }

    /// I/Os that were answered at their deadline and have not ended.
    pub(super) fn overdue_total(&self) -> usize {
        self.met.iter().flatten().map(|device| device.overdue.get()).sum()
    }

    /// Writes that were sent to a member over a connection that is lost, and never answered.
    pub(super) fn unanswered(&self, id: MemberId) -> usize {
        match self.met.get(usize::from(id.index)) {
            Some(Some(device)) if device.member.id == id => {
                device.link.as_ref().map_or(0, Link::unanswered)
            }
            _ => 0,
        }
    }

    /// Asks for an early end of an I/O that a member's paths may have.
    pub(super) fn cancel(&self, ticket: Ticket) {
        let paths = self.met.iter().flatten().filter_map(|device| device.paths());
        paths.for_each(|paths| paths.cancel(ticket));
    }

    /// Ends what looks after paths, where nobody waits for anything: for a lane that ends with the others.
    pub(super) fn end_idle_paths(&self) {
        if self.term == Term::OfItsOwn {
            return;
        }
        for device in self.met.iter().flatten().filter(|device| device.held() == 0) {
            if let member::Device::Multipath(paths) = &device.member.device {
                paths.close();
            }
        }
    }

    /// All members behind a network.
    pub(super) fn links(&self) -> Vec<Rc<Device>> {
        self.met.iter().flatten().filter(|device| device.link.is_some()).cloned().collect()
    }

    /// Lets go of closed members that hold nothing of this lane any more. Gives those whose connections are to be ended:
    /// of closed members first, of those that give way once nothing is in flight there. Gives also those over whose
    /// connections something is to be read.
    pub(super) fn sweep(
        &mut self,
        queue: &RefCell<Queue>,
        lane: &OnceCell<Weak<Lane>>,
        id: LaneId,
    ) -> Swept {
        let mut swept = Swept::default();
        let news = self.table.news_count();
        if news == self.news_seen && !self.looks_again {
            return swept;
        }
        self.news_seen = news;
        self.looks_again = false;
        for member in self.table.asked_over_waiting(id) {
            self.find(member, queue, lane);
        }
        for device in &mut self.met {
            let Some(known) = device else { continue };
            if !known.is_closing() {
                swept.asked.extend(known.questions(id).map(|asked| (known.member.clone(), asked)));
                match known.held() {
                    _ if !known.gives_way() => {}
                    0 => swept.to_end.push(known.clone()),
                    _ => self.looks_again = true,
                }
                continue;
            }
            if known.held() > 0 {
                self.looks_again = true;
                if known.changing.get() == 0 {
                    known.may_write.take();
                }
                swept.to_end.extend(known.link.is_some().then(|| known.clone()));
                continue;
            }
            if let Some(place) = known.file.fixed {
                queue.borrow_mut().register_file(place, -1);
            }
            swept.to_end.extend(known.link.is_some().then(|| known.clone()));
            *device = None;
        }
        swept
    }
}

//! The engine's contract, fulfilled by the virtual world.

use std::rc::Rc;

use mdspace_engine::backend::{Backend, MemberId, MemberIo, Submitted, Ticket};
use mdspace_engine::lane::LaneId;
use mdspace_engine::memory::Buffer;
use mdspace_engine::time::Time;

use crate::world::World;

/// One lane's way to the virtual disks.
#[derive(Debug)]
pub struct SimBackend {
    world: Rc<World>,
    lane: LaneId,
}

impl SimBackend {
    /// The way of `lane` into `world`.
    pub fn new(world: Rc<World>, lane: LaneId) -> Self {
        Self { world, lane }
    }
}

impl Backend for SimBackend {
    fn submit(&self, ticket: Ticket, io: MemberIo) -> Submitted {
        self.world.submit(self.lane, ticket, io)
    }

    fn cancel(&self, ticket: Ticket) {
        self.world.cancel(self.lane, ticket);
    }

    fn in_flight(&self, member: MemberId) -> usize {
        self.world.in_flight(self.lane, member) + self.world.held_by_paths(self.lane, member)
    }

    fn unanswered(&self, member: MemberId) -> usize {
        self.world.unanswered(self.lane, member)
    }

    fn now(&self) -> Time {
        self.world.now()
    }

    fn unix_time_s(&self) -> u64 {
        self.world.unix_time_s()
    }

    fn random(&self) -> u64 {
        self.world.identifier()
    }

    /// Never full of zeroes: whoever reads what nobody wrote shall notice.
    fn allocate(&self, bytes: usize) -> Buffer {
        let mut buffer = Buffer::zeroed(bytes);
        buffer.fill(0xdb);
        buffer
    }

    fn recycle(&self, buffer: Buffer) {
        drop(buffer);
    }
}

//! The engine's contract, fulfilled by the virtual world.

use std::cell::RefCell;
use std::rc::Rc;

use mdspace_engine::backend::{Backend, MemberId, MemberIo, Submitted, Ticket};
use mdspace_engine::lane::LaneId;
use mdspace_engine::memory::{BUFFER_ALIGN_BYTES, Buffer};
use mdspace_engine::time::Time;

use crate::world::World;

/// One lane's way to the virtual disks.
#[derive(Debug)]
pub struct SimBackend {
    world: Rc<World>,
    lane: LaneId,
    /// Buffers that came back.
    spare: RefCell<Vec<Buffer>>,
}

/// Buffers that a lane keeps at most.
const SPARE_MOST: usize = 64;

impl SimBackend {
    /// The way of `lane` into `world`.
    pub fn new(world: Rc<World>, lane: LaneId) -> Self {
        Self { world, lane, spare: RefCell::default() }
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
        let mut spare = self.spare.borrow_mut();
        let fits =
            |buffer: &Buffer| buffer.capacity() == bytes.next_multiple_of(BUFFER_ALIGN_BYTES);
        let found = spare.iter().rposition(fits).map(|at| spare.swap_remove(at));
        let mut buffer = found.unwrap_or_else(|| Buffer::zeroed(bytes));
        buffer.set_len(bytes);
        buffer.fill(0xdb);
        buffer
    }

    fn recycle(&self, buffer: Buffer) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_MOST {
            spare.push(buffer);
        }
    }
}

//! Requests on their way to a lane and back.

use std::collections::VecDeque;
use std::rc::Rc;

use mdspace_engine::array::ArrayLane;
use mdspace_engine::lane::{Lane, LaneId};
use mdspace_engine::memory::Sink;
use mdspace_engine::request::{Queue, Request};
use mdspace_io::LaneIo;

use crate::Error;
use crate::answer::{Answer, Reply, answer};
use crate::pieces::Piece;
use crate::shared::Shared;

/// Pieces of one call under way at a time.
const PIECES_AT_ONCE: usize = 4;

/// What goes to a lane: no more than one piece.
pub(crate) enum Order {
    Read(Piece),
    Write { offset_bytes: u64, bytes: Vec<u8> },
    Flush,
    Discard(Piece),
    WriteZeroes(Piece),
}

impl Shared {
    /// Starts a request on a lane. Of a read the answer has the bytes.
    pub(crate) fn send(&self, lane: LaneId, order: Order) -> Answer<Vec<u8>> {
        let (reply, answer) = answer();
        // Where the array has ended, the reply is dropped, and says so.
        self.with_running(|running| {
            running.run_on(lane, move |part, lane, io| begin(part, lane, io, order, reply));
        });
        answer
    }

    /// Carries out the orders, a few at a time, and gives each end to `ended`, in order. After an error no more are begun,
    /// and those under way are waited for.
    pub(crate) async fn carry_out(
        &self,
        lane: LaneId,
        orders: impl Iterator<Item = Order>,
        mut ended: impl FnMut(Vec<u8>),
    ) -> Result<(), Error> {
        let (mut orders, mut result, mut under_way) = (orders.fuse(), Ok(()), VecDeque::new());
        loop {
            while result.is_ok()
                && under_way.len() < PIECES_AT_ONCE
                && let Some(order) = orders.next()
            {
                under_way.push_back(self.send(lane, order));
            }
            let Some(first) = under_way.pop_front() else { return result };
            match first.await {
                Ok(bytes) if result.is_ok() => ended(bytes),
                Ok(_) => {}
                Err(error) => result = result.and(Err(error)),
            }
        }
    }
}

/// Starts a request on its lane.
fn begin(part: &Rc<ArrayLane>, lane: &Rc<Lane>, io: &LaneIo, order: Order, reply: Reply<Vec<u8>>) {
    let mut read = None;
    let request = match order {
        Order::Read(Piece { offset_bytes, len_bytes }) => {
            let into = io.payload(len_bytes as usize);
            read = Some(into.clone());
            Request::Read { sector: offset_bytes / 512, into }
        }
        Order::Write { offset_bytes, bytes } => {
            // Aligned memory, from where the kernel writes without another copy.
            let from = io.payload(bytes.len());
            from.put(0, &bytes);
            Request::Write { sector: offset_bytes / 512, from, fua: false }
        }
        Order::Flush => Request::Flush,
        Order::Discard(Piece { offset_bytes, len_bytes }) => {
            Request::Discard { sector: offset_bytes / 512, sectors: len_bytes / 512 }
        }
        Order::WriteZeroes(Piece { offset_bytes, len_bytes }) => {
            let (sector, sectors) = (offset_bytes / 512, len_bytes / 512);
            Request::WriteZeroes { sector, sectors, fua: false }
        }
    };
    let queue = Queue::new();
    part.submit(&queue, 0, request);
    let tell = move |result: Result<(), _>| {
        let bytes = || read.map(|read| read.to_vec()).unwrap_or_default();
        reply.give(result.map(|()| bytes()).map_err(Error::from));
    };
    match queue.pop() {
        Some(ended) => tell(ended.result),
        None => lane.spawn(async move { tell(queue.next().await.result) }),
    }
}

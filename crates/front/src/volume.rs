//! What a front end serves: an array, or anything that takes the same requests.

use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use mdspace_engine::array::ArrayLane;
use mdspace_engine::lane::{Lane, LaneId};
use mdspace_engine::request::{Queue, Request};
use mdspace_io::{LaneIo, RunningArray};

use crate::nbd::{Context, Extent};

/// Something that runs on lanes and can be served there.
pub trait Volume {
    /// Its part on one lane.
    type Part: VolumePart + 'static;

    /// On how many lanes it runs, counted from lane 0.
    fn lane_count(&self) -> usize;

    /// All of these lanes.
    fn lane_ids(&self) -> impl Iterator<Item = LaneId> {
        let id = |index| LaneId(u16::try_from(index).expect("lanes are counted in 16 bits"));
        (0..self.lane_count()).map(id)
    }

    /// Runs `setup` on a lane with the volume's part there; it may spawn tasks.
    fn run_on(
        &self,
        lane: LaneId,
        setup: impl FnOnce(&Rc<Self::Part>, &Rc<Lane>, &LaneIo) + Send + 'static,
    );
}

/// A volume as one lane sees it: requests in, completions out.
pub trait VolumePart {
    /// Starts a request; its end will stand in `queue` with `tag`.
    fn submit(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64, request: Request);

    /// The extents of a range of whole blocks, in bytes and not empty, in a context: from its start, for at least one byte.
    /// By default everything is allocated, and kept once.
    fn extents(&self, context: Context, bytes: Range<u64>) -> Vec<Extent> {
        let length_bytes = bytes.end - bytes.start;
        match context {
            Context::Allocation => vec![Extent::allocated(length_bytes)],
            Context::Redundancy => vec![Extent::single(length_bytes)],
        }
    }

    /// Whether a discard does anything.
    fn discards(&self) -> bool {
        true
    }

    /// What is best discarded or zeroed as a whole, in sectors from a multiple of itself on.
    fn unit_sectors(&self) -> u64 {
        1
    }
}

/// How long a lane may take to answer.
const LANE_ANSWERS_WITHIN: Duration = Duration::from_secs(30);

/// Runs `ask` on a lane. Gives where it says what came of that.
pub(crate) fn tell_lane<V: Volume, T: Send + 'static>(
    volume: &V,
    lane: LaneId,
    ask: impl FnOnce(&Rc<V::Part>, &Rc<Lane>, &LaneIo) -> T + Send + 'static,
) -> Receiver<T> {
    let (say, said) = mpsc::channel();
    volume.run_on(lane, move |part, lane, io| drop(say.send(ask(part, lane, io))));
    said
}

/// What a lane says.
pub(crate) fn heard<T>(said: &Receiver<T>) -> io::Result<T> {
    let silent = |_| io::Error::other("a lane does not answer: the array may be stopping");
    said.recv_timeout(LANE_ANSWERS_WITHIN).map_err(silent)
}

impl Volume for RunningArray {
    type Part = ArrayLane;

    fn lane_count(&self) -> usize {
        self.lanes().count()
    }

    fn run_on(
        &self,
        lane: LaneId,
        setup: impl FnOnce(&Rc<ArrayLane>, &Rc<Lane>, &LaneIo) + Send + 'static,
    ) {
        RunningArray::run_on(self, lane, setup);
    }
}

impl VolumePart for ArrayLane {
    fn submit(self: &Rc<Self>, queue: &Rc<Queue>, tag: u64, request: Request) {
        ArrayLane::submit(self, queue, tag, request);
    }

    fn extents(&self, context: Context, bytes: Range<u64>) -> Vec<Extent> {
        match context {
            Context::Allocation => vec![Extent::allocated(bytes.end - bytes.start)],
            Context::Redundancy => {
                let stretches = self.redundancy(bytes.start / 512..bytes.end / 512);
                stretches.into_iter().map(Extent::from).collect()
            }
        }
    }

    fn discards(&self) -> bool {
        ArrayLane::discards(self)
    }

    fn unit_sectors(&self) -> u64 {
        self.row_sectors()
    }
}

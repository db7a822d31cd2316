use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use mdspace_engine::backend::{Backend, IoError, Submitted, Ticket};
use mdspace_engine::lane::Notify;
use mdspace_engine::memory::Buffer;
use mdspace_engine::time::Time;

use super::*;

/// A device whose flushes and durable writes the test answers. It zeroes at once.
#[derive(Default)]
struct Flushed {
    asked: RefCell<Vec<Ticket>>,
    /// Where, and how many sectors.
    zeroed: RefCell<Vec<(u64, u64)>>,
}

impl Backend for Flushed {
    fn submit(&self, ticket: Ticket, io: MemberIo) -> Submitted {
        match io.op {
            IoOp::Discard { sector, sectors }
            | IoOp::WriteZeroes { sector, sectors, fua: false } => {
                self.zeroed.borrow_mut().push((sector, sectors));
                return Submitted::Done(IoDone { result: Ok(()), buffer: None });
            }
            op => assert!(matches!(op, IoOp::Flush | IoOp::WriteZeroes { fua: true, .. })),
        }
        self.asked.borrow_mut().push(ticket);
        Submitted::Pending
    }
    fn cancel(&self, _: Ticket) {}
    fn in_flight(&self, _: MemberId) -> usize {
        self.asked.borrow().len()
    }
    fn unanswered(&self, _: MemberId) -> usize {
        0
    }
    fn now(&self) -> Time {
        Time::ZERO
    }
    fn unix_time_s(&self) -> u64 {
        0
    }
    fn random(&self) -> u64 {
        4
    }
    fn allocate(&self, bytes: usize) -> Buffer {
        Buffer::zeroed(bytes)
    }
    fn recycle(&self, _: Buffer) {}
}

struct NoDriver;

impl Notify for NoDriver {
    fn notify(&self) {}
}

/// Two lanes with a device, and what their requests came to.
struct Two {
    backends: [Rc<Flushed>; 2],
    lanes: [Rc<Lane>; 2],
    parts: [Rc<DevicePart>; 2],
    queues: [Rc<Queue>; 2],
}

impl Two {
    fn new() -> Self {
        let backends = [Rc::<Flushed>::default(), Rc::default()];
        let lane =
            |at: usize| Lane::new(LaneId(at as u16), backends[at].clone(), Arc::new(NoDriver));
        let lanes: [Rc<Lane>; 2] = [lane(0), lane(1)];
        let info = MemberInfo {
            name: "device".into(),
            sectors: 8 * PIECE_SECTORS,
            logical_block_bytes: 512,
            rotational: false,
            discard_zeroes: true,
            is_sparse: false,
        };
        let member = MemberId { index: 0, generation: 0 };
        let flushes = Flushes::default();
        let parts = lanes.each_ref().map(|lane| {
            let (lane, info, flushes) = (lane.clone(), info.clone(), flushes.clone());
            Rc::new(DevicePart { lane, member, info, flushes, under_way: RefCell::default() })
        });
        Self { backends, lanes, parts, queues: [Queue::new(), Queue::new()] }
    }

    fn flush(&self, lane: usize, tag: u64) {
        self.parts[lane].submit(&self.queues[lane], tag, Request::Flush);
        self.turn();
    }

    /// Until nothing happens by itself.
    fn turn(&self) {
        for lane in self.lanes.iter().cycle().take(8) {
            let _ = lane.turn();
        }
    }

    fn write(&self, lane: usize, tag: u64) {
        let zeroes = Request::WriteZeroes { sector: 0, sectors: 1, fua: true };
        self.parts[lane].submit(&self.queues[lane], tag, zeroes);
        self.turn();
    }

    /// The device answers what a lane has sent first.
    fn answer(&self, lane: usize, result: Result<(), IoErrorKind>) {
        self.answer_with(lane, result.map_err(|kind| IoError { kind, errno: 5 }));
    }

    fn answer_with(&self, lane: usize, result: Result<(), IoError>) {
        let ticket = self.backends[lane].asked.borrow_mut().remove(0);
        self.lanes[lane].complete(ticket, IoDone { result, buffer: None });
        self.turn();
    }

    fn sent(&self, lane: usize) -> usize {
        self.backends[lane].asked.borrow().len()
    }

    /// What ended on a lane.
    fn ended(&self, lane: usize) -> Option<(u64, Result<(), RequestError>)> {
        let next = pin!(self.queues[lane].next());
        match Future::poll(next, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(completion) => Some((completion.tag, completion.result)),
            Poll::Pending => None,
        }
    }
}

/// The device tells an error to one flush, though what it lost may be what another one was to make durable.
#[test]
fn a_flush_that_was_asked_for_while_another_one_failed_has_failed() {
    let two = Two::new();
    two.flush(0, 1);
    two.flush(1, 2);
    two.answer(0, Err(IoErrorKind::Medium));
    if two.sent(1) > 0 {
        two.answer(1, Ok(()));
    }
    assert_eq!(two.ended(0), Some((1, Err(RequestError::Lost))));
    assert_eq!(two.ended(1), Some((2, Err(RequestError::Lost))));
    // As a disk does, it tells it once.
    two.flush(1, 3);
    two.answer(1, Ok(()));
    assert_eq!(two.ended(1), Some((3, Ok(()))));
}

#[test]
fn those_who_wait_for_a_flush_share_the_next_one() {
    let two = Two::new();
    two.flush(0, 1);
    two.flush(1, 2);
    two.flush(0, 3);
    two.flush(1, 4);
    assert_eq!((two.sent(0), two.sent(1)), (1, 0), "one at a time");
    two.answer(0, Ok(()));
    assert_eq!(two.ended(0), Some((1, Ok(()))));
    assert_eq!((two.ended(0), two.ended(1)), (None, None), "it may not cover what ended since");
    assert_eq!(two.sent(0) + two.sent(1), 1);
    two.answer(usize::from(two.sent(1) == 1), Ok(()));
    assert_eq!(two.ended(0), Some((3, Ok(()))));
    assert_eq!((two.ended(1), two.ended(1)), (Some((2, Ok(()))), Some((4, Ok(())))));
    assert_eq!(two.sent(0) + two.sent(1), 0);
}

/// The device made one flush of it, and told its error to the durable write alone. A reservation may have been in the way
/// of the flush, and of what was written before.
#[test]
fn a_flush_after_or_beside_a_durable_write_that_failed_has_failed() {
    let kinds = [IoErrorKind::Flush, IoErrorKind::Reserved];
    for (kind, is_beside) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let two = Two::new();
        two.write(0, 1);
        if is_beside {
            two.flush(1, 2);
            two.answer(1, Ok(()));
            assert_eq!(two.ended(1), None, "the durable write is under way");
        }
        two.answer(0, Err(kind));
        assert_eq!(two.ended(0), Some((1, Err(RequestError::Lost))));
        if !is_beside {
            two.flush(1, 2);
            two.answer(1, Ok(()));
        }
        assert_eq!(two.ended(1), Some((2, Err(RequestError::Lost))), "{kind:?} {is_beside}");
        two.flush(0, 3);
        two.answer(0, Ok(()));
        assert_eq!(two.ended(0), Some((3, Ok(()))), "it is told once");
    }
}

#[test]
fn a_durable_write_that_ends_well_or_that_its_sectors_refuse_fails_no_flush() {
    for result in [Ok(()), Err(IoErrorKind::Medium), Err(IoErrorKind::NoSpace)] {
        let two = Two::new();
        two.write(0, 1);
        two.answer(0, result);
        two.flush(1, 2);
        two.answer(1, Ok(()));
        assert_eq!(two.ended(1), Some((2, Ok(()))), "{result:?}");
    }
}

/// A file system of a program, or a server, may say the number of an I/O that was never sent.
#[test]
fn a_durable_write_that_was_not_sent_fails_no_flush_and_one_that_failed_with_that_number_does() {
    for (kind, flushed) in [
        (IoErrorKind::Gone, Ok(())),
        (IoErrorKind::Deadline, Ok(())),
        (IoErrorKind::Other, Err(RequestError::Lost)),
        (IoErrorKind::Flush, Err(RequestError::Lost)),
    ] {
        let two = Two::new();
        two.write(0, 1);
        two.answer_with(0, Err(IoError { kind, errno: IoError::NOT_SENT }));
        two.flush(1, 2);
        two.answer(1, Ok(()));
        assert_eq!(two.ended(1), Some((2, flushed)), "{kind:?}");
    }
}

/// A path that makes them by writing has the time of one write for each.
#[test]
fn long_ranges_are_zeroed_in_pieces_and_flushed_once() {
    let two = Two::new();
    let (sector, sectors) = (8, 2 * PIECE_SECTORS + 8);
    let pieces = [(8, PIECE_SECTORS - 8), (PIECE_SECTORS, PIECE_SECTORS), (2 * PIECE_SECTORS, 16)];
    let requests = [
        Request::Punch { sector, sectors },
        Request::WriteZeroes { sector, sectors, fua: false },
        Request::WriteZeroes { sector, sectors, fua: true },
    ];
    for (tag, request) in (1..).zip(requests) {
        let is_durable = matches!(request, Request::WriteZeroes { fua: true, .. });
        two.parts[0].submit(&two.queues[0], tag, request);
        two.turn();
        assert_eq!(two.backends[0].zeroed.take(), pieces);
        assert_eq!(two.sent(0), usize::from(is_durable));
        if is_durable {
            assert_eq!(two.ended(0), None);
            two.answer(0, Ok(()));
        }
        assert_eq!(two.ended(0), Some((tag, Ok(()))));
    }
}

//! Requests of a device of two paths.

use std::time::Duration;

use super::super::Health;
use super::super::bed::*;
use super::super::policy::{Cache, Failback};
use super::super::tests::{device, device_of};
use super::*;
use crate::backend::{ReadInto, WriteFrom};

/// A write under way to a device.
struct Writing {
    lane: Rc<Lane>,
    wires: Rc<Wires>,
    result: Rc<Cell<Option<Result<(), IoError>>>>,
}

impl Writing {
    fn new(groups: &str, fua: bool, patience: Patience) -> Self {
        Self::on(Rc::new(Wires::default()), groups, fua, patience)
    }

    fn on(wires: Rc<Wires>, groups: &str, fua: bool, patience: Patience) -> Self {
        let lane = Lane::new(LaneId(0), wires.clone(), Arc::new(NoDriver));
        let paths = device(groups, Failback::Manual);
        assert!(wires.device.set(PathLane::attach(&paths, &lane)).is_ok());
        paths.look_after_on(&lane);
        lane.turn();
        // What watches over the paths reads too.
        wires.ios.borrow_mut().clear();
        let result = Rc::new(Cell::new(None));
        let (task_lane, ended) = (lane.clone(), result.clone());
        lane.spawn(async move {
            let from = WriteFrom::Shared(Rc::new(Buffer::zeroed(512)), 0..512);
            let op = IoOp::Write { sector: 0, from, fua };
            ended.set(Some(task_lane.io(MemberIo { member: DEVICE, op, patience }).await.result));
        });
        lane.turn();
        Self { lane, wires, result }
    }

    /// What a path is to write now, and how long it may take.
    fn under_way(&self) -> Option<(MemberId, Patience)> {
        let ios = self.wires.ios.borrow();
        let mut writes = ios.iter().filter(|(_, io)| matches!(io.op, IoOp::Write { .. }));
        writes.next().map(|(_, io)| (io.member, io.patience))
    }

    /// The path has not answered in its time.
    fn is_late(&self) {
        let (_, patience) = self.under_way().expect("a write is under way");
        let deadline = patience.deadline(self.wires.now.get()).expect("it has a deadline");
        self.wires.now.set(deadline);
        self.fails(IoErrorKind::Deadline, 110);
    }

    /// The path that has the write says so.
    fn fails(&self, kind: IoErrorKind, errno: i32) {
        let is_write = |(_, io): &(Ticket, MemberIo)| matches!(io.op, IoOp::Write { .. });
        let at = self.wires.ios.borrow().iter().position(is_write).expect("a write is under way");
        let (ticket, io) = self.wires.ios.borrow_mut().remove(at);
        let error = IoError { kind, errno };
        self.lane.complete(ticket, IoDone { result: Err(error), buffer: io.op.into_buffer() });
        self.lane.turn();
    }

    fn error(&self) -> Option<IoErrorKind> {
        self.result.take().map(|result| result.expect_err("nothing was written").kind)
    }
}

#[test]
fn a_write_leaves_half_of_its_time_for_another_path_and_takes_no_more_than_all_of_it() {
    let writing = Writing::new(TWO_PATHS, false, Patience::of(seconds(8)));
    let (first, patience) = writing.under_way().expect("a path has it");
    assert_eq!(patience, Patience::of(seconds(4)));
    writing.is_late();
    let (second, patience) = writing.under_way().expect("the other path has it");
    assert_eq!(patience, Patience::of(seconds(4)), "it is the last path");
    assert_ne!(first, second);
    writing.is_late();
    assert_eq!(writing.under_way(), None);
    assert_eq!(writing.error(), Some(IoErrorKind::Deadline));
    assert_eq!(writing.wires.now.get(), Time::ZERO + seconds(8));
}

#[test]
fn a_durable_write_without_an_answer_ends_with_its_time() {
    let writing = Writing::new(TWO_PATHS, true, Patience::of(seconds(8)));
    let (_, patience) = writing.under_way().expect("a path has it");
    assert_eq!(patience, Patience::of(seconds(8)));
    writing.is_late();
    assert_eq!(writing.under_way(), None, "its time is over");
    assert!(writing.error().is_some());
    assert_eq!(writing.wires.now.get(), Time::ZERO + seconds(8));
}

#[test]
fn the_only_path_has_all_the_time_of_a_write() {
    let writing = Writing::new("1 1 round-robin 0 1 0 a", false, Patience::of(seconds(8)));
    let (_, patience) = writing.under_way().expect("the path has it");
    assert_eq!(patience, Patience::of(seconds(8)));
}

#[test]
fn a_write_that_its_first_path_refuses_at_once_ends_with_its_time() {
    let wires = Rc::new(Wires { refuses: Cell::new(1), ..Wires::default() });
    let writing = Writing::on(wires, TWO_PATHS, false, Patience::of(seconds(8)));
    let (_, patience) = writing.under_way().expect("the other path has it");
    assert_eq!(patience, Patience::of(seconds(8)));
}

/// The process was stopped, and its servers have hung up meanwhile.
#[test]
fn time_in_which_its_lane_stood_still_is_no_time_of_a_request() {
    let writing = Writing::new(TWO_PATHS, false, Patience::of(seconds(8)));
    writing.wires.now.set(Time::ZERO + seconds(63));
    writing.wires.stood_still.set(seconds(60));
    writing.fails(IoErrorKind::Gone, IoError::UNANSWERED);
    let (_, patience) = writing.under_way().expect("the other path has it");
    assert_eq!(patience, Patience::of(seconds(5)));
}

/// Its first path may have lost what it was to make durable beside its own bytes, and no flush will tell.
#[test]
fn a_durable_write_that_a_path_lost_has_failed_as_a_flush_whatever_the_next_path_says() {
    let writing = Writing::new(TWO_PATHS, true, Patience::FOREVER);
    writing.fails(IoErrorKind::Deadline, 110);
    writing.fails(IoErrorKind::Medium, 5);
    assert_eq!(writing.under_way(), None);
    assert_eq!(writing.error(), Some(IoErrorKind::Flush));
}

/// A file system of a program, or a server, may say the number of an I/O that was never sent.
#[test]
fn a_durable_write_has_failed_as_a_flush_unless_the_path_was_never_sent_it() {
    for (kind, failed) in [
        (IoErrorKind::Other, IoErrorKind::Flush),
        (IoErrorKind::Gone, IoErrorKind::Medium),
        (IoErrorKind::Deadline, IoErrorKind::Medium),
    ] {
        let writing = Writing::new(TWO_PATHS, true, Patience::FOREVER);
        writing.fails(kind, IoError::NOT_SENT);
        writing.fails(IoErrorKind::Medium, 5);
        assert_eq!(writing.error(), Some(failed), "{kind:?}");
    }
}

/// A device whose first path has lost its connection, and what that path waits for.
fn with_a_lost_path() -> (Rc<Lane>, Rc<Wires>, Arc<Paths>, Reopens) {
    let (wires, reopens) = (Rc::new(Wires::default()), Reopens::default());
    let lane = Lane::new(LaneId(0), wires.clone(), Arc::new(NoDriver));
    let paths = device_of(TWO_PATHS, Failback::Manual, Box::new(reopens.clone()));
    assert!(wires.device.set(PathLane::attach(&paths, &lane)).is_ok());
    paths.look_after_on(&lane);
    wires.pass(&lane, Duration::ZERO);
    paths.fail(0, None, "it is cut", true, wires.now.get());
    wires.pass(&lane, Duration::ZERO);
    wires.pass(&lane, seconds(1));
    assert_eq!(reopens.count(), 1);
    (lane, wires, paths, reopens)
}

#[test]
fn a_path_joins_only_over_the_connection_on_which_it_was_proved() {
    let (lane, wires, paths, _) = with_a_lost_path();
    let (first, second) = (connection(&paths, 5), connection(&paths, 6));
    assert!(paths.opened(0, Ok(first)));
    lane.turn();
    // Its proof has begun. An earlier wish is answered as well.
    assert!(paths.opened(0, Ok(second.clone())));
    wires.pass(&lane, Duration::ZERO);
    assert!(!wires.read.borrow().contains(&second.0));
    assert_eq!(health(&paths), Health::Failed, "nobody has looked where it leads");
    wires.pass(&lane, seconds(1));
    assert!(wires.read.borrow().contains(&second.0));
    assert_eq!(health(&paths), Health::Active);
}

#[test]
fn a_connection_that_takes_long_to_come_is_asked_for_once() {
    let (lane, wires, paths, reopens) = with_a_lost_path();
    (0..60).for_each(|_| wires.pass(&lane, seconds(1)));
    assert_eq!(reopens.count(), 1);
    assert!(paths.opened(0, Ok(connection(&paths, 5))));
    (0..2).for_each(|_| wires.pass(&lane, seconds(1)));
    assert_eq!(health(&paths), Health::Active);
    // One that was refused is asked for again.
    paths.fail(0, None, "it is cut", true, wires.now.get());
    (0..2).for_each(|_| wires.pass(&lane, seconds(1)));
    assert_eq!(reopens.count(), 2);
    assert!(paths.opened(0, Err("it does not answer".into())));
    (0..3).for_each(|_| wires.pass(&lane, seconds(1)));
    assert_eq!(reopens.count(), 3);
}

/// No path could come back in that time.
#[test]
fn time_in_which_its_lane_stood_still_is_no_time_without_a_path() {
    let (lane, wires, paths, _) = with_a_lost_path();
    paths.message(&["queue_if_no_path"], wires.now.get()).expect("a message");
    paths.fail(1, None, "it is cut", true, wires.now.get());
    let gives_up = || paths.events_after(0).iter().any(|event| event.event == "QueueingDisabled");
    wires.stood_still.set(seconds(600));
    wires.pass(&lane, seconds(601));
    assert!(!gives_up(), "it has been without a path for a second");
    wires.pass(&lane, seconds(61));
    assert!(gives_up());
}

/// An earlier process may have left something in the cache that went with it.
#[test]
fn a_connection_that_is_lost_before_its_first_flush_makes_the_next_flush_fail_once() {
    for is_replaced in [false, true] {
        let device = Flushing::new(false);
        device.paths.fail(0, None, "it is cut", true, Time::ZERO);
        if is_replaced {
            assert!(device.paths.opened(0, Ok(connection(&device.paths, 5))));
        }
        let lost = Some(Err(IoErrorKind::Flush));
        assert_eq!(device.flush(), lost, "replaced {is_replaced}");
        assert_eq!(device.flush(), Some(Ok(())), "replaced {is_replaced}: it is told once");
    }
}

/// A flush tells what went with the connection that it was sent over: the next one has nothing to tell.
#[test]
fn a_flush_that_loses_its_connection_has_told_what_that_owed() {
    let device = Flushing::new(true);
    while device.answer(0, Ok(())) || device.answer(1, Ok(())) {}
    device.write_over(1);
    device.end_write_over(1);
    let ended = device.start(Patience::FOREVER);
    assert!(device.answer(1, Err(IoErrorKind::Gone)));
    assert_eq!(ended.take(), Some(Err(IoErrorKind::Flush)));
    assert_eq!(device.flush(), Some(Ok(())), "it is told once");
}

/// The host of both servers may have been without power: the other path gives what is older.
#[test]
fn requests_fail_over_whatever_path_is_back_first_where_one_was_lost_with_unflushed_writes() {
    for (paths, is_known) in [(1, true), (1, false), (2, true), (2, false)] {
        for both_lost in [false, true] {
            let device = Flushing::new(true);
            while device.answer(0, Ok(())) || device.answer(1, Ok(())) {}
            // The second one goes over the other path.
            let written = |_| {
                device.write();
                let path = (0..2).find(|path| device.find_write_over(*path).is_some());
                device.end_write_over(path.expect("a path has it"));
                path
            };
            let path = (0..paths).filter_map(written).next_back().map_or(0, usize::from);
            let back = both_lost.then_some(1 - path);
            let now = device.wires.now.get();
            device.paths.message(&["queue_if_no_path"], now).expect("a message");
            // Where it failed for something else, it is not known yet that its connection is lost too.
            device.paths.fail(path, None, "it does not do what it is asked", is_known, now);
            if let Some(back) = back {
                device.paths.fail(back, None, "its server is gone", true, now);
                assert!(device.paths.opened(back, Ok(connection(&device.paths, 6))));
                (0..2).for_each(|_| device.wires.pass(&device.lane, seconds(1)));
                assert_eq!(device.healths()[back], Health::Active);
            }
            // As long as one serves, the host of both is up, and has what its cache had.
            let read = if both_lost { Err(IoErrorKind::Flush) } else { Ok(()) };
            assert_eq!(read_over_any(&device), Some(read), "{paths} {back:?}");
            if !both_lost && !is_known {
                continue;
            }
            assert_eq!(flush_over_any(&device), Some(Err(IoErrorKind::Flush)), "it tells, once");
            assert_eq!(flush_over_any(&device), Some(Ok(())));
            assert_eq!(read_over_any(&device), Some(Ok(())));
        }
    }
}

/// And an error that a server tells of what an earlier process has left there.
#[test]
fn a_flush_that_a_server_fails_has_told_what_was_there_before() {
    let device = Flushing::new(false);
    let ended = device.start(Patience::FOREVER);
    assert!(device.answer(0, Err(IoErrorKind::Flush)) && device.answer(1, Ok(())));
    assert_eq!(ended.take(), Some(Err(IoErrorKind::Flush)));
    device.paths.fail(0, None, "it is cut", true, Time::ZERO);
    assert_eq!(device.flush(), Some(Ok(())), "it is told once");
}

/// A device whose first path is down at the start, and whose other one is known.
fn with_a_path_that_is_down() -> Flushing {
    let (wires, known) = (Rc::new(Wires::default()), device(TWO_PATHS, Failback::Manual));
    let lane = Lane::new(LaneId(0), wires.clone(), Arc::new(NoDriver));
    let opened = vec![Err("its server is down".into()), Ok(connection(&known, 1))];
    let (table, policy) = (known.table.clone(), known.policy.clone());
    let host = Box::new(Reopens::default());
    let paths = Paths::new("d", table, policy, opened, &[true; 2], host).expect("a device");
    assert!(wires.device.set(PathLane::attach(&paths, &lane)).is_ok());
    paths.look_after_on(&lane);
    wires.pass(&lane, Duration::ZERO);
    Flushing { lane, wires, paths }
}

/// Else its loss would fail a flush, though no write has gone over it yet.
#[test]
fn a_path_that_is_opened_later_is_flushed_before_it_takes_requests() {
    let device = with_a_path_that_is_down();
    assert!(device.paths.opened(0, Ok(connection(&device.paths, 5))));
    device.wires.answer_reads(&device.lane);
    assert!(device.is_flushed(5) && health(&device.paths) != Health::Active);
    device.wires.pass(&device.lane, Duration::ZERO);
    assert_eq!(health(&device.paths), Health::Active);
}

/// What it has in its cache, and an error that it tells once, may be another device's.
#[test]
fn no_flush_of_the_device_goes_over_a_path_that_is_not_proved() {
    let device = with_a_path_that_is_down();
    assert!(device.paths.opened(0, Ok(connection(&device.paths, 5))));
    let ended = device.start(Patience::FOREVER);
    assert!(device.is_flushed(1) && !device.is_flushed(5));
    assert!(device.paths.wants_first_flush(0));
    // The reads that prove it are answered too.
    assert!(device.answer(1, Ok(())));
    assert_eq!(ended.take(), Some(Ok(())));
    assert!(device.is_flushed(5), "it gets its first flush");
}

/// Of two flushes that a server does at once one is told of the error.
#[test]
fn a_flush_with_nothing_to_flush_has_failed_where_a_first_flush_beside_it_does() {
    let device = with_a_path_that_is_down();
    let ended = device.start(Patience::FOREVER);
    assert!(device.paths.opened(0, Ok(connection(&device.paths, 5))));
    device.wires.answer_reads(&device.lane);
    assert!(device.answer(5, Err(IoErrorKind::Flush)));
    assert_eq!(ended.take(), None, "it is under way");
    assert!(device.answer(1, Ok(())));
    assert_eq!(ended.take(), Some(Err(IoErrorKind::Flush)));
    assert_eq!(device.flush(), Some(Ok(())), "it is told once");
}

/// It is lost with the old connection's cache, and the new one may lead elsewhere.
#[test]
fn what_an_old_connection_answers_late_is_told_once_and_flushed_over_no_new_one() {
    let device = Flushing::new(false);
    assert_eq!(device.flush(), Some(Ok(())));
    device.write_over(0);
    device.paths.fail(0, None, "it is cut", true, Time::ZERO);
    assert!(device.paths.opened(0, Ok(connection(&device.paths, 5))));
    device.end_write_over(0);
    for expected in [Err(IoErrorKind::Flush), Ok(())] {
        let ended = device.start(Patience::FOREVER);
        assert!(!device.is_flushed(5));
        while device.answer(1, Ok(())) {}
        assert_eq!(ended.take(), Some(expected));
    }
}

/// It covers what an earlier process has left there: an array that writes nothing for days does not fail a member
/// then because one of its paths was cut meanwhile.
#[test]
fn a_path_that_is_opened_is_flushed_at_once_and_owes_nothing_then() {
    let device = Flushing::new(true);
    assert!(device.answer(0, Ok(())) && device.answer(1, Ok(())), "each path is flushed");
    device.paths.fail(0, None, "it is cut", true, Time::ZERO);
    assert_eq!(device.flush(), Some(Ok(())));
}

#[test]
fn what_a_path_cannot_make_durable_at_its_first_flush_the_next_flush_tells_once() {
    let device = Flushing::new(true);
    assert!(device.answer(0, Err(IoErrorKind::Flush)) && device.answer(1, Ok(())));
    assert_eq!(device.flush(), Some(Err(IoErrorKind::Flush)));
    assert_eq!(device.flush(), Some(Ok(())));
}

/// The server tells an error once, and that is for those who have written there.
#[test]
fn no_path_is_flushed_before_it_is_proved() {
    let device = Flushing::new(false);
    device.paths.look_after_on(&device.lane);
    device.lane.turn();
    let flushes = || {
        let ios = device.wires.ios.borrow();
        ios.iter().filter(|(_, io)| matches!(io.op, IoOp::Flush)).count()
    };
    assert_eq!(flushes(), 0);
    device.wires.answer_reads(&device.lane);
    assert_eq!(flushes(), 2);
}

/// Nothing says that it leads to the device, and there is something to lose.
#[test]
fn a_path_that_is_left_aside_as_the_device_is_blank_fails_no_flush() {
    let wires = Rc::new(Wires { gives: Cell::new(Gives::Zeroes), ..Wires::default() });
    let device = joining_on(wires);
    device.wires.answer(&device.lane, |io| io.member.index == 0);
    device.wires.answer_reads(&device.lane);
    assert!(!device.is_flushed(1));
    let healths = || [0, 1].map(|path: usize| device.paths.owner.lock().paths[path].health);
    assert_eq!(healths(), [Health::Active, Health::Failed]);
    assert_eq!(device.flush(), Some(Ok(())));
}

/// A copy of an earlier time may be the first that is known: what is written over it then would be lost.
#[test]
fn nothing_is_written_before_each_path_that_is_open_is_known() {
    for is_known in [true, false] {
        let device = joining();
        device.wires.answer(&device.lane, |io| io.member.index == 0);
        assert_eq!(health(&device.paths), Health::Active);
        device.write();
        let is_written = || {
            let ios = device.wires.ios.borrow();
            ios.iter().any(|(_, io)| matches!(io.op, IoOp::Write { .. }))
        };
        assert!(!is_written());
        match is_known {
            // It gets its first flush then.
            true => device.wires.answer_reads(&device.lane),
            false => device.paths.fail(1, None, "it is cut", true, Time::ZERO),
        }
        device.lane.turn();
        assert!(is_written(), "known: {is_known}");
    }
}

/// It would keep flushes and writes waiting.
#[test]
fn a_path_of_which_nothing_tells_where_it_leads_has_failed() {
    let gives = Cell::new(Gives::News(1));
    let device = joining_on(Rc::new(Wires { gives, ..Wires::default() }));
    device.wires.answer(&device.lane, |io| io.member.index == 0);
    device.wires.answer_reads(&device.lane);
    assert_eq!(device.paths.owner.lock().paths[1].health, Health::Failed);
    // It is looked at again.
    device.wires.gives.set(Gives::Same);
    for _ in 0..3 {
        device.wires.pass(&device.lane, seconds(1));
    }
    assert_eq!(device.paths.owner.lock().paths[1].health, Health::Active);
}

/// Whoever wants no wait without a path does not want an error before the first is there.
#[test]
fn a_request_waits_for_paths_that_are_not_known_yet() {
    let device = joining();
    device.paths.message(&["fail_if_no_path"], Time::ZERO).expect("a message");
    device.wires.answer_reads(&device.lane);
    let (lane, ended) = (device.lane.clone(), Rc::new(Cell::new(None)));
    let end = ended.clone();
    device.lane.spawn(async move {
        let into = ReadInto::Buffer(Buffer::zeroed(512), 0..512);
        let op = IoOp::Read { sector: 0, into };
        let io = MemberIo { member: DEVICE, op, patience: Patience::FOREVER };
        end.set(Some(lane.io(io).await.result));
    });
    device.wires.answer_reads(&device.lane);
    assert_eq!(ended.get(), None);
    assert!(device.answer(0, Ok(())));
    assert_eq!(ended.get(), Some(Ok(())));
}

/// It is no path to wait for.
#[test]
fn a_path_whose_first_flush_gets_no_answer_has_failed() {
    let device = Flushing::new(true);
    assert!(device.answer(0, Err(IoErrorKind::Deadline)));
    assert_eq!(health(&device.paths), Health::Failed);
    assert!(device.answer(1, Ok(())));
    assert_eq!(device.flush(), Some(Err(IoErrorKind::Flush)), "it may have been told an error");
}

/// What an earlier process has left in its cache may be there still.
#[test]
fn a_path_whose_first_flush_got_no_answer_gets_it_when_it_is_back() {
    let device = Flushing::new(true);
    assert!(device.answer(0, Err(IoErrorKind::Deadline)) && device.answer(1, Ok(())));
    assert_eq!(device.flush(), Some(Err(IoErrorKind::Flush)));
    for (second, result) in [(1, Err(IoErrorKind::Deadline)), (2, Ok(()))] {
        device.wires.now.set(Time::ZERO + seconds(second));
        device.wires.answer_reads(&device.lane);
        assert!(device.is_flushed(0), "before it takes requests");
        assert!(device.answer(0, result));
        assert_eq!(device.flush(), Some(Ok(())), "it is told once");
    }
    assert_eq!(health(&device.paths), Health::Active);
}

/// Of two flushes that a server does at once one is told of the error.
#[test]
fn a_flush_is_not_believed_before_the_first_flush_of_each_path_has_ended() {
    let device = Flushing::new(true);
    assert!(device.answer(1, Ok(())));
    let ended = device.start(Patience::FOREVER);
    assert_eq!(ended.take(), None, "the first flush is under way");
    assert!(device.answer(0, Err(IoErrorKind::Flush)));
    assert_eq!(ended.take(), Some(Err(IoErrorKind::Flush)));
}

/// A process before may have left something in the cache of its server.
#[test]
fn a_flush_has_failed_where_a_path_fails_before_its_first_flush() {
    let device = joining();
    let ended = device.start(Patience::FOREVER);
    assert_eq!(ended.take(), None, "no path is known yet");
    device.paths.fail(0, None, "it is cut", true, Time::ZERO);
    device.wires.answer_reads(&device.lane);
    while device.answer(0, Ok(())) || device.answer(1, Ok(())) {}
    assert_eq!(ended.take(), Some(Err(IoErrorKind::Flush)));
    assert_eq!(device.flush(), Some(Ok(())), "it is told once");
}

/// And no path is blamed for the time that another one took.
#[test]
fn a_flush_that_has_waited_for_a_first_flush_has_the_rest_of_its_time() {
    let device = Flushing::new(true);
    assert!(device.answer(1, Ok(())));
    device.write_over(1);
    device.end_write_over(1);
    let ended = device.start(Patience::of(seconds(8)));
    device.wires.now.set(Time::ZERO + seconds(5));
    assert!(device.answer(0, Ok(())));
    let left = device.wires.ios.borrow().iter().find_map(|(_, io)| {
        (io.member.index == 1 && matches!(io.op, IoOp::Flush)).then_some(io.patience)
    });
    assert_eq!(left, Some(Patience::of(seconds(3))));
    assert!(device.answer(1, Err(IoErrorKind::Deadline)));
    assert_eq!(ended.take(), Some(Err(IoErrorKind::Flush)));
    assert_eq!(device.paths.owner.lock().paths[1].health, Health::Active);
    assert_eq!(device.flush(), Some(Ok(())), "it owes the flush still");
}

/// The process was stopped for a minute, long before the flush.
#[test]
fn a_flush_waits_for_first_flushes_as_long_as_its_lane_lives() {
    let device = Flushing::new(true);
    assert!(device.answer(1, Ok(())));
    device.wires.now.set(Time::ZERO + seconds(63));
    device.wires.stood_still.set(seconds(60));
    let ended = device.start(Patience::of(seconds(8)));
    assert_eq!(ended.take(), None, "the first flush is under way");
    device.wires.now.set(Time::ZERO + seconds(133));
    device.wires.stood_still.set(seconds(125));
    device.lane.turn();
    assert_eq!(ended.take(), None, "it has lived for 5 s of its 8");
    while device.answer(0, Ok(())) || device.answer(1, Ok(())) {}
    assert_eq!(ended.take(), Some(Ok(())));
}

/// Its selectors count what is done on the spot as they count the rest.
#[test]
fn an_io_on_the_spot_goes_over_a_path_and_is_counted_there_once_it_is_done() {
    let by = |selector: &str| format!("1 1 {selector} 0 1 1 a 1");
    for selector in ["round-robin", "historical-service-time"] {
        let device = joining_by(&by(selector), Rc::new(Wires::default()));
        device.wires.answer_reads(&device.lane);
        assert!(device.answer(0, Ok(())), "its first flush");
        let path = device.wires.device.get().expect("it is attached");
        let done = || {
            let counters = &path.counters.paths[0];
            (counters.ios.get(), counters.bytes.get(), counters.in_flight.get())
        };
        let read = || {
            let into = ReadInto::Buffer(Buffer::zeroed(1024), 0..1024);
            let op = IoOp::Read { sector: 8, into };
            let mut io = MemberIo { member: DEVICE, op, patience: Patience::FOREVER };
            let ended = path.at_once(&mut io);
            assert_eq!(io.member, DEVICE, "it is the device's I/O as before");
            ended
        };
        let (ios, bytes, _) = done();

        device.wires.says_at_once.set(Some(Ok(())));
        assert_eq!(read(), Some(Ok(())));
        assert_eq!(done(), (ios + 1, bytes + 1024, 0), "{selector}");
        assert!(!path.waits.get());

        // Another path may do it.
        device.wires.says_at_once.set(Some(Err(IoError { kind: IoErrorKind::Medium, errno: 5 })));
        assert_eq!(read(), None);
        assert!(!path.waits.get());

        device.wires.says_at_once.set(None);
        assert_eq!(read(), None);
        assert!(path.waits.get(), "it is not asked again");
    }
}

/// One that is reached over two devices of this host, and how often the host was asked for another one.
fn of_this_host() -> (Flushing, Reopens) {
    with_a_cache(Cache::OfEachPath)
}

fn with_a_cache(cache: Cache) -> (Flushing, Reopens) {
    let reopens = Reopens::default();
    let device = joining_to(TWO_PATHS, Rc::default(), false, cache, reopens.clone());
    device.wires.pass(&device.lane, Duration::ZERO);
    assert_eq!(health(&device.paths), Health::Active);
    (device, reopens)
}

/// The kernel has given its name to what came in its place, and the old one never answers again.
#[test]
fn a_failed_path_to_a_device_of_this_host_joins_over_what_has_its_name_by_now() {
    let (device, reopens) = of_this_host();
    let old = connection(&device.paths, 0).0;
    device.paths.fail(0, None, "it is unplugged", true, device.wires.now.get());
    // What checks it is told so as well.
    for _ in 0..2 {
        device.wires.now.set(device.wires.now.get() + seconds(1));
        device.wires.answer(&device.lane, |io| io.member.index != 0);
        device.wires.fail_reads(&device.lane, 0, IoErrorKind::Gone);
    }
    assert_eq!(reopens.count(), 1, "the host looks where its name leads");
    assert!(device.paths.let_go(0, old));
    assert!(device.paths.opened(0, Ok(connection(&device.paths, 5))));
    (0..2).for_each(|_| device.wires.pass(&device.lane, seconds(1)));
    assert!(device.wires.read.borrow().iter().any(|id| id.index == 5));
    assert_eq!(health(&device.paths), Health::Active);
    assert_eq!(reopens.count(), 1, "it serves");
}

/// Both paths of a device of this host are lost, and requests wait. The kernel has those no more that it `lets_go`.
fn lose_all(device: &Flushing, lets_go: &[usize]) {
    let now = device.wires.now.get();
    device.paths.message(&["queue_if_no_path"], now).expect("a message");
    (0..2).for_each(|path| device.paths.fail(path, None, "it is unplugged", true, now));
    for path in lets_go {
        assert!(device.paths.let_go(*path, connection(&device.paths, *path as u16).0));
    }
}

/// A path is back, over a device that the kernel has made anew, or over the one that it had.
fn come_back(device: &Flushing, path: usize, is_anew: bool) {
    if is_anew {
        assert!(device.paths.opened(path, Ok(connection(&device.paths, 5 + path as u16))));
    }
    (0..2).for_each(|_| device.wires.pass(&device.lane, seconds(1)));
    assert_eq!(device.healths()[path], Health::Active);
}

/// A write of the device that is answered.
fn write_over_any(device: &Flushing) {
    device.write();
    let path = (0..7).find(|path| device.find_write_over(*path).is_some());
    device.end_write_over(path.expect("a path has it"));
}

/// A flush of the device, if all its paths can do their part.
fn flush_over_any(device: &Flushing) -> Option<Result<(), IoErrorKind>> {
    let ended = device.start(Patience::FOREVER);
    while (0..7).any(|path| device.answer(path, Ok(()))) {}
    ended.take()
}

fn read_over_any(device: &Flushing) -> Option<Result<(), IoErrorKind>> {
    let ended = device.start_read();
    device.wires.answer_reads(&device.lane);
    ended.take()
}

/// It was without power, and what it had in its cache is gone: what it gives is older than what was answered. It is all one
/// which of its paths comes back first.
#[test]
fn requests_of_a_device_that_was_away_with_unflushed_writes_fail_until_a_flush_has_told() {
    let ways: [(&[usize], usize, bool); 3] =
        [(&[0, 1], 0, true), (&[0], 1, false), (&[1], 0, false)];
    for (lets_go, back, is_anew) in ways {
        let (device, _) = of_this_host();
        write_over_any(&device);
        lose_all(&device, lets_go);
        let waits = device.start_read();
        come_back(&device, back, is_anew);
        let lost = Some(Err(IoErrorKind::Flush));
        assert_eq!(waits.take(), lost, "it has waited for a path");
        assert_eq!(read_over_any(&device), lost);
        let first = 1 - back;
        if lets_go.contains(&first) {
            come_back(&device, first, true);
        }
        assert_eq!(read_over_any(&device), lost);
        assert_eq!(flush_over_any(&device), lost, "it tells");
        assert_eq!(flush_over_any(&device), Some(Ok(())));
        assert_eq!(read_over_any(&device), Some(Ok(())));
    }
}

/// All members may hang on one cable.
#[test]
fn a_device_that_was_away_fails_nothing_where_it_can_have_lost_nothing() {
    // All is flushed, or its cache is not its own.
    for cache in [Cache::OfEachPath, Cache::Shared] {
        let (device, _) = with_a_cache(cache);
        write_over_any(&device);
        if cache == Cache::OfEachPath {
            assert_eq!(flush_over_any(&device), Some(Ok(())));
        }
        for _ in 0..2 {
            lose_all(&device, &[0, 1]);
            come_back(&device, 0, true);
            assert_eq!(read_over_any(&device), Some(Ok(())), "{cache:?}");
            assert_eq!(flush_over_any(&device), Some(Ok(())), "{cache:?}");
            let own = device.paths.path(0).0.expect("a device");
            device.paths.fail(0, None, "it is unplugged", true, device.wires.now.get());
            assert!(device.paths.let_go(0, own));
            assert!(device.paths.opened(0, Ok(connection(&device.paths, 0))));
            assert!(device.paths.opened(1, Ok(connection(&device.paths, 1))));
            (0..2).for_each(|_| device.wires.pass(&device.lane, seconds(1)));
        }
    }
    // Another path serves it all the time.
    let (device, _) = of_this_host();
    write_over_any(&device);
    device.paths.fail(0, None, "it is unplugged", true, device.wires.now.get());
    assert!(device.paths.let_go(0, connection(&device.paths, 0).0));
    come_back(&device, 0, true);
    assert_eq!(read_over_any(&device), Some(Ok(())));
    assert_eq!(flush_over_any(&device), Some(Ok(())));
}

/// One path was unplugged for good, and the other one served since.
#[test]
fn a_path_that_was_unplugged_long_ago_tells_of_no_absence() {
    let (device, _) = of_this_host();
    let now = device.wires.now.get();
    device.paths.message(&["queue_if_no_path"], now).expect("a message");
    device.paths.fail(1, None, "it is unplugged", true, now);
    assert!(device.paths.let_go(1, connection(&device.paths, 1).0));
    device.wires.pass(&device.lane, seconds(10));
    write_over_any(&device);
    device.paths.fail(0, None, "it does not answer", true, device.wires.now.get());
    come_back(&device, 0, false);
    assert_eq!(read_over_any(&device), Some(Ok(())));
}

/// An earlier process may have been killed, and its answered writes be in the cache. All members may hang on one cable.
#[test]
fn a_device_of_this_host_gets_its_first_flush_before_it_serves_and_loses_nothing_later_that_it_covers()
 {
    let device = joining_to_this_host();
    assert!(device.is_flushed(0) != device.is_flushed(1), "an error is told to one flush alone");
    let read = device.start_read();
    device.wires.answer_reads(&device.lane);
    assert_eq!(read.take(), None);
    assert!(device.answer(0, Ok(())) || device.answer(1, Ok(())));
    assert_eq!(device.healths(), [Health::Active; 2]);
    assert!(!device.is_flushed(0) && !device.is_flushed(1), "one does for both");
    assert_eq!(read.take(), Some(Ok(())));
    lose_all(&device, &[0, 1]);
    come_back(&device, 0, true);
    assert_eq!(read_over_any(&device), Some(Ok(())));
    assert_eq!(flush_over_any(&device), Some(Ok(())));
}

/// What was read since is as old as what is left.
#[test]
fn what_the_first_flush_of_a_device_of_this_host_did_not_make_durable_fails_the_next_flush_alone() {
    for error in [IoErrorKind::Flush, IoErrorKind::Medium, IoErrorKind::Gone, IoErrorKind::Deadline]
    {
        let device = joining_to_this_host();
        assert!(device.answer(0, Err(error)) || device.answer(1, Err(error)));
        device.wires.pass(&device.lane, seconds(1));
        assert_eq!(device.healths(), [Health::Active; 2], "{error:?}");
        assert_eq!(read_over_any(&device), Some(Ok(())));
        assert_eq!(flush_over_any(&device), Some(Err(IoErrorKind::Flush)), "{error:?}");
        assert_eq!(flush_over_any(&device), Some(Ok(())));
    }
}

/// How long a drive may take the array knows. Where another path waits, the first one has had its time.
#[test]
fn a_first_flush_that_takes_long_fails_a_device_of_this_host_only_where_another_path_waits() {
    for others in [0, 1] {
        let groups = ["1 1 round-robin 0 1 0 a", TWO_PATHS][others];
        let device =
            joining_to(groups, Rc::default(), false, Cache::OfEachPath, Reopens::default());
        device.wires.answer_reads(&device.lane);
        let first = u16::from(device.is_flushed(1));
        device.wires.now.set(device.wires.now.get() + seconds(11));
        device.lane.turn();
        let other = 1 - first;
        assert!(!device.is_flushed(other), "what the first flush is told is told already");
        let (late, told) = match others {
            0 => (Health::Joining, Ok(())),
            _ => (Health::Failed, Err(IoErrorKind::Flush)),
        };
        assert_eq!(device.healths()[usize::from(first)], late);
        assert!(device.end_flush(first, Ok(())));
        device.wires.pass(&device.lane, seconds(1));
        assert_eq!(flush_over_any(&device), Some(told));
        assert_eq!(flush_over_any(&device), Some(Ok(())));
        assert_eq!(device.healths()[usize::from(first)], Health::Active);
    }
}

/// Its cable is out, and its name stays.
#[test]
fn a_slow_first_flush_is_not_cut_for_a_path_that_answers_nothing() {
    let device = joining_to(TWO_PATHS, Rc::default(), false, Cache::OfEachPath, Reopens::default());
    device.paths.fail(1, None, "it does not answer", false, device.wires.now.get());
    device.wires.answer(&device.lane, |io| io.member.index == 0 && !matches!(io.op, IoOp::Flush));
    assert!(device.is_flushed(0));
    device.wires.now.set(device.wires.now.get() + seconds(15));
    device.lane.turn();
    assert!(device.end_flush(0, Ok(())));
    assert_eq!(device.healths()[0], Health::Active);
    assert_eq!(flush_over_any(&device), Some(Ok(())));
}

/// The machine is paused, and both paths are well.
#[test]
fn no_first_flush_is_cut_for_the_time_that_its_lane_stood_still() {
    let device = joining_to_this_host();
    let first = u16::from(device.is_flushed(1));
    device.wires.now.set(device.wires.now.get() + seconds(60));
    device.wires.stood_still.set(seconds(60));
    device.lane.turn();
    assert!(!device.is_flushed(1 - first));
    assert!(device.end_flush(first, Ok(())));
    device.wires.answer_reads(&device.lane);
    assert_eq!(flush_over_any(&device), Some(Ok(())));
}

/// No path led there when the loss was told. The next one is asked before it is read.
#[test]
fn a_device_of_this_host_gets_its_first_flush_where_a_request_has_told_that_one_was_lost() {
    let device = joining_to(
        "1 1 round-robin 0 1 0 a",
        Rc::default(),
        false,
        Cache::OfEachPath,
        Reopens::default(),
    );
    device.wires.answer_reads(&device.lane);
    assert!(device.end_flush(0, Err(IoErrorKind::Gone)));
    let now = device.wires.now.get();
    device.paths.message(&["fail_if_no_path"], now).expect("a message");
    device.paths.fail(0, None, "it is unplugged", true, now);
    assert_eq!(device.flush(), Some(Err(IoErrorKind::Flush)), "no path, and a loss to tell");
    device.wires.now.set(device.wires.now.get() + seconds(6));
    device.wires.answer_reads(&device.lane);
    assert!(device.is_flushed(0), "before it serves");
    assert!(device.end_flush(0, Ok(())));
    assert_eq!(flush_over_any(&device), Some(Ok(())));
}

/// It is sent when the path is back.
#[test]
fn a_first_flush_that_was_never_sent_tells_of_no_loss() {
    let device = joining_to_this_host();
    let first = u16::from(device.is_flushed(1));
    device
        .end_flush_with(first, Err(IoError { kind: IoErrorKind::Gone, errno: IoError::NOT_SENT }));
    assert!(device.is_flushed(1 - first), "over the other path");
    assert!(device.end_flush(1 - first, Ok(())));
    assert_eq!(read_over_any(&device), Some(Ok(())));
    assert_eq!(flush_over_any(&device), Some(Ok(())));
}

/// A device of this host, whose first flush is under way.
fn joining_to_this_host() -> Flushing {
    let device = joining_to(TWO_PATHS, Rc::default(), false, Cache::OfEachPath, Reopens::default());
    device.wires.answer_reads(&device.lane);
    assert_eq!(device.healths(), [Health::Joining; 2]);
    device
}

/// Who sends no flush finds there why all else fails.
#[test]
fn a_loss_that_no_flush_has_told_is_shown_until_one_has() {
    let all_fail = "requests fail until a flush has failed";
    for (writes, shown) in [(false, "the next flush fails"), (true, all_fail)] {
        let device = joining_to_this_host();
        let first = if writes { Ok(()) } else { Err(IoErrorKind::Flush) };
        let loss = || device.paths.status().loss.unwrap_or_default();
        assert_eq!(loss(), "");
        assert!(device.answer(0, first) || device.answer(1, first));
        if writes {
            write_over_any(&device);
            assert_eq!(loss(), "");
            lose_all(&device, &[0, 1]);
            come_back(&device, 0, true);
        }
        let read = if writes { Err(IoErrorKind::Flush) } else { Ok(()) };
        assert_eq!(read_over_any(&device), Some(read));
        assert!(loss().contains(shown), "{}", loss());
        assert_eq!(flush_over_any(&device), Some(Err(IoErrorKind::Flush)));
        assert_eq!(loss(), "");
    }
}

/// A lane did not turn while the device was away: it takes an answer that was given before.
#[test]
fn a_write_whose_answer_is_taken_after_the_device_was_away_counts_as_lost() {
    let (device, _) = of_this_host();
    assert_eq!(flush_over_any(&device), Some(Ok(())));
    device.write_over(1);
    while device.find_write_over(0).is_some() {
        device.end_write_over(0);
    }
    assert_eq!(flush_over(&device, 0), Some(Ok(())), "it covers no write that is under way");
    lose_all(&device, &[0]);
    assert!(device.paths.opened(0, Ok(connection(&device.paths, 5))));
    for _ in 0..2 {
        device.wires.now.set(device.wires.now.get() + seconds(1));
        device.wires.answer_reads(&device.lane);
    }
    assert_eq!(health(&device.paths), Health::Active);
    assert_eq!(read_over_any(&device), Some(Ok(())));
    device.end_write_over(1);
    let lost = Some(Err(IoErrorKind::Flush));
    assert_eq!(read_over_any(&device), lost);
    assert_eq!(flush_over_any(&device), lost, "it tells");
    assert_eq!(read_over_any(&device), Some(Ok(())));
}

/// A flush of the device that goes over this path.
fn flush_over(device: &Flushing, path: u16) -> Option<Result<(), IoErrorKind>> {
    loop {
        let ended = device.start(Patience::FOREVER);
        let is_over = device.is_flushed(path);
        while (0..7).any(|path| device.answer(path, Ok(()))) {}
        if is_over {
            return ended.take();
        }
    }
}

/// A flush that failed has made nothing durable, and what came after one is not covered by it.
#[test]
fn only_what_was_answered_before_a_good_flush_was_sent_is_safe_from_an_absence() {
    for is_good in [false, true] {
        let (device, _) = of_this_host();
        assert_eq!(flush_over_any(&device), Some(Ok(())));
        if !is_good {
            write_over_any(&device);
        }
        let flush = device.start(Patience::FOREVER);
        if is_good {
            write_over_any(&device);
        }
        let result = if is_good { Ok(()) } else { Err(IoErrorKind::Flush) };
        assert!(device.answer(0, result) || device.answer(1, result));
        assert_eq!(flush.take(), Some(result));
        lose_all(&device, &[0, 1]);
        come_back(&device, 0, true);
        assert_eq!(read_over_any(&device), Some(Err(IoErrorKind::Flush)), "good {is_good}");
    }
}

/// What leads elsewhere, and never served, takes nothing along.
#[test]
fn a_path_that_never_served_tells_of_no_absence() {
    let wires = Rc::new(Wires::default());
    let other = superblock(8, 3);
    wires.superblocks.replace([(0, superblock(7, 3)), (1, other)].into_iter().collect());
    let device = joining_to(TWO_PATHS, wires, false, Cache::OfEachPath, Reopens::default());
    device.wires.answer_reads_in_order(&device.lane);
    assert!(device.answer(0, Ok(())) != device.answer(1, Ok(())));
    let used = device.healths().iter().position(|health| *health == Health::Active);
    let used = used.expect("one of them is the device");
    write_over_any(&device);
    lose_all(&device, &[1 - used]);
    come_back(&device, used, false);
    assert_eq!(read_over_any(&device), Some(Ok(())));
}

/// The array stops by that. A flush error would only take a member out.
#[test]
fn a_reservation_is_told_before_a_loss() {
    let (device, _) = of_this_host();
    write_over_any(&device);
    lose_all(&device, &[0, 1]);
    come_back(&device, 0, true);
    let flush = device.start(Patience::FOREVER);
    assert!(device.answer(5, Err(IoErrorKind::Reserved)));
    assert_eq!(flush.take(), Some(Err(IoErrorKind::Reserved)));
    assert_eq!(flush_over_any(&device), Some(Err(IoErrorKind::Flush)));
}

#[test]
fn a_path_lets_nothing_go_that_serves_or_that_requests_went_over_which_are_not_over() {
    let (device, _) = of_this_host();
    let old = connection(&device.paths, 0).0;
    assert!(!device.paths.let_go(0, old), "it serves");
    device.write_over(0);
    device.paths.fail(0, None, "it is unplugged", true, device.wires.now.get());
    assert!(!device.paths.let_go(0, old), "a write is under way");
    device.end_write_over(0);
    assert!(!device.paths.let_go(0, connection(&device.paths, 1).0), "that is another path's");
    assert!(device.paths.let_go(0, old));
    assert!(!device.paths.let_go(0, old), "it is gone");
}

/// A write whose buffer goes back to who gave it. A device of this host keeps it for as long as it does not answer.
#[test]
fn a_write_with_a_buffer_of_its_own_goes_over_another_path_of_this_host() {
    let (device, _) = of_this_host();
    let ended = Rc::new(RefCell::new(None));
    let (lane, end) = (device.lane.clone(), ended.clone());
    device.lane.spawn(async move {
        let mut buffer = Buffer::zeroed(1024);
        buffer.fill(3);
        let from = WriteFrom::Buffer(buffer, 0..512);
        let op = IoOp::Write { sector: 0, from, fua: false };
        let io = MemberIo { member: DEVICE, op, patience: Patience::of(seconds(8)) };
        *end.borrow_mut() = Some(lane.io(io).await);
    });
    device.lane.turn();
    let take = || {
        let is_write = |(_, io): &(Ticket, MemberIo)| matches!(io.op, IoOp::Write { .. });
        let mut ios = device.wires.ios.borrow_mut();
        let at = ios.iter().position(is_write).expect("a write is under way");
        ios.remove(at)
    };
    let (ticket, held) = take();
    device.wires.now.set(device.wires.now.get() + seconds(4));
    let late = Err(IoError { kind: IoErrorKind::Deadline, errno: 110 });
    device.lane.complete(ticket, IoDone { result: late, buffer: None });
    device.lane.turn();

    let (ticket, io) = take();
    assert!(io.member != held.member && io.patience == Patience::of(seconds(4)));
    let IoOp::Write { from, .. } = &io.op else { unreachable!("seen") };
    assert_eq!(from.to_vec(), [3; 512]);
    device.lane.complete(ticket, IoDone { result: Ok(()), buffer: io.op.into_buffer() });
    // What the first path may still do writes the same.
    device.paths.message(&["fail_path", "a", "--fenced"], Time::ZERO).expect("a message");
    device.lane.turn();
    let done = ended.take().expect("it has ended");
    assert_eq!(done.result, Ok(()));
    assert_eq!(done.buffer.expect("it comes back")[..], [3; 1024]);
}

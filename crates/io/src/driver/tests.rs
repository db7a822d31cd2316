//! The driver against files that answer when they are told to: pipes.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::time::Duration;

use mdspace_engine::backend::{
    IoError, IoErrorKind, IoOp, MemberId, MemberInfo, MemberIo, Patience, ReadInto, WriteFrom,
};

use mdspace_engine::memory::{Sink, Source};

use super::lease::Lease;
use super::remote_op::{Next, RemoteOp};
use super::*;
use crate::errno::{flush_error, io_error};
use crate::lanes::{LanesConfig, LocalLane};
use crate::member::are_writes_over;
use crate::member::{
    Device, EndOf, Export, Identity, MemberFile, Moment, end_of_device, end_of_file,
};
use crate::nbd_wire::command;
use crate::payload::Lent;

/// A lane, and a member that is the reading end of a pipe. Only the ring reads a pipe as if it had
/// addresses.
fn pipe() -> (LocalLane, MemberId, io::PipeWriter) {
    pipe_with(&LanesConfig { io: IoChoice::Uring, ..LanesConfig::default() })
}

fn pipe_with(config: &LanesConfig) -> (LocalLane, MemberId, io::PipeWriter) {
    pipe_that_ends(config, end_of_file)
}

fn pipe_that_ends(config: &LanesConfig, end: EndOf) -> (LocalLane, MemberId, io::PipeWriter) {
    let lane = LocalLane::new(config).unwrap();
    let (member, writer) = pipe_member(config, 1, end);
    (lane, member, writer)
}

/// A pipe that takes itself for a block device of 2^20 sectors that ends there now.
fn pipe_member(
    config: &LanesConfig,
    memory_align: usize,
    end: EndOf,
) -> (MemberId, io::PipeWriter) {
    let (reader, writer) = io::pipe().unwrap();
    let file = std::fs::File::from(std::os::fd::OwnedFd::from(reader));
    let identity = Identity::of(&file).unwrap();
    let file = MemberFile::new(file, identity, true);
    let device = Device::File { file, memory_align, inline: false, end };
    let info = MemberInfo {
        name: "pipe".into(),
        sectors: 1 << 20,
        logical_block_bytes: 512,
        rotational: false,
        discard_zeroes: false,
        is_sparse: false,
    };
    (config.members.add(device, info, false).unwrap(), writer)
}

fn read(lane: &Lane, member: MemberId, bytes: usize) -> MemberIo {
    let into = ReadInto::Buffer(lane.backend().allocate(bytes), 0..bytes);
    MemberIo { member, op: IoOp::Read { sector: 0, into }, patience: Patience::FOREVER }
}

#[test]
fn a_short_read_goes_on_where_it_stopped() {
    let (local, member, mut writer) = pipe();
    let lane = local.lane().clone();
    let bytes: Vec<u8> = (0..2048u32).map(|at| (at / 7) as u8).collect();
    let expected = bytes.clone();
    local.block_on(async move {
        writer.write_all(&bytes[..512]).unwrap();
        let io = lane.io(read(&lane, member, 2048));
        lane.sleep_until(lane.backend().now() + Duration::from_millis(1)).await;
        assert_eq!(lane.backend().in_flight(member), 1, "it waits for the rest");
        writer.write_all(&bytes[512..1024]).unwrap();
        lane.sleep_until(lane.backend().now() + Duration::from_millis(1)).await;
        writer.write_all(&bytes[1024..]).unwrap();
        let done = io.await;
        assert_eq!(done.result, Ok(()));
        assert!(*done.buffer.unwrap() == *expected);
        assert_eq!(lane.backend().in_flight(member), 0);
    });
}

/// A rewrite would mend a medium error, and leave a hole of zeroes before it.
#[test]
fn a_member_that_ends_before_its_end_counts_as_gone() {
    let (local, member, mut writer) = pipe();
    let lane = local.lane().clone();
    local.block_on(async move {
        writer.write_all(&[1; 100]).unwrap();
        let done = lane.io(read(&lane, member, 512)).await;
        assert_eq!(done.result.unwrap_err().kind, IoErrorKind::Gone);
        assert!(done.buffer.is_some());
    });
}

#[test]
fn memory_past_its_deadline_comes_home_with_the_kernels_answer() {
    let (local, member, writer) = pipe();
    let lane = local.lane().clone();
    local.block_on(async move {
        let sink = Rc::new(RefCell::new(vec![0; 512]));
        let op = IoOp::Read { sector: 0, into: ReadInto::Sink(sink.clone(), 0..512) };
        let patience = Patience::of(Duration::from_millis(5));
        let io = lane.io(MemberIo { member, op, patience });
        assert_eq!(Rc::strong_count(&sink), 2);
        assert_eq!(io.await.result.unwrap_err().kind, IoErrorKind::Deadline);
        while lane.backend().in_flight(member) > 0 {
            lane.pause().await;
        }
        assert_eq!(Rc::strong_count(&sink), 1);
        drop(writer);
    });
}

/// Its owner is answered from others meanwhile, in memory that no kernel writes to.
#[test]
fn what_a_late_read_brings_is_in_no_payload() {
    let (local, member, mut writer) = pipe();
    let (lane, io) = (local.lane().clone(), local.io().clone());
    local.block_on(async move {
        writer.write_all(&[1; 512]).unwrap();
        let payload = io.payload(2048);
        payload.put(1024, &[7; 1024]);
        // The kernel has given a part, and is at the rest.
        let op = IoOp::Read { sector: 0, into: ReadInto::Sink(payload.clone(), 0..1024) };
        let patience = Patience::of(Duration::from_millis(5));
        let late = lane.io(MemberIo { member, op, patience }).await;
        assert_eq!(late.result.unwrap_err().kind, IoErrorKind::Deadline);
        let lent = payload.at_lent(Lent::default(), &(0..1024));
        payload.put(0, &[9; 1024]);
        assert_ne!(payload.at(&(0..1024)), lent, "other memory counts now");
        while lane.backend().in_flight(member) > 0 {
            lane.pause().await;
        }
        let bytes = payload.to_vec();
        assert!(bytes[..1024] == [9; 1024] && bytes[1024..] == [7; 1024]);
        assert!(payload.stable().is_some_and(|shown| *shown == *bytes));
        assert_eq!(Rc::strong_count(&payload), 1);
        drop(writer);
    });
}

/// The read is repeated where another member has failed meanwhile, and is late again each time.
#[test]
fn a_read_that_is_late_again_and_again_is_answered_in_memory_of_its_own() {
    let (local, member, mut writer) = pipe();
    let (lane, io) = (local.lane().clone(), local.io().clone());
    local.block_on(async move {
        writer.write_all(&[1; 512]).unwrap();
        let payload = io.payload(2048);
        let mut lent = Vec::new();
        for turn in 2..6_u8 {
            payload.put(1024, &[turn; 1024]);
            let op = IoOp::Read { sector: 0, into: ReadInto::Sink(payload.clone(), 0..1024) };
            let patience = Patience::of(Duration::from_millis(5));
            let late = lane.io(MemberIo { member, op, patience }).await;
            assert_eq!(late.result.unwrap_err().kind, IoErrorKind::Deadline);
            lent.push(payload.at(&(0..1024)));
            if turn != 3 {
                payload.put(0, &[turn; 1024]);
            }
        }
        assert!(!lent.contains(&payload.at(&(0..1024))), "other memory counts now");
        let mut once = lent.clone();
        once.dedup();
        assert_eq!(once, lent, "a late one keeps its memory for itself");
        drop(writer);
        while lane.backend().in_flight(member) > 0 {
            lane.pause().await;
        }
        let bytes = payload.to_vec();
        assert!(bytes[..1024] == [5; 1024] && bytes[1024..] == [5; 1024]);
        assert_eq!(Rc::strong_count(&payload), 1);
    });
}

/// Both read into one payload. Only who puts the answer together goes on in other memory.
#[test]
fn a_read_that_bounces_ends_beside_a_late_one_of_the_same_payload() {
    let config = LanesConfig { io: IoChoice::Uring, ..LanesConfig::default() };
    let (local, late, late_writer) = pipe_with(&config);
    let (member, mut writer) = pipe_member(&config, 4096, end_of_file);
    let (lane, io) = (local.lane().clone(), local.io().clone());
    local.block_on(async move {
        let payload = io.payload(4096);
        let read = |member, range, patience| {
            let op = IoOp::Read { sector: 0, into: ReadInto::Sink(payload.clone(), range) };
            lane.io(MemberIo { member, op, patience })
        };
        let first = read(late, 0..512, Patience::of(Duration::from_millis(5)));
        let direct = read(late, 1024..1536, Patience::FOREVER);
        let second = read(member, 512..1024, Patience::FOREVER);
        assert_eq!(first.await.result.unwrap_err().kind, IoErrorKind::Deadline);
        writer.write_all(&[7; 512]).unwrap();
        assert_eq!(second.await.result, Ok(()));
        drop(late_writer);
        assert!(direct.await.result.is_err());
        payload.put(0, &[9; 512]);
        let bytes = payload.to_vec();
        assert!(bytes[..512] == [9; 512] && bytes[512..1024] == [7; 512]);
        drop(writer);
    });
}

#[test]
fn a_cancelled_read_of_the_kernels_ends_early() {
    let (local, member, writer) = pipe();
    let lane = local.lane().clone();
    local.block_on(async move {
        let io = lane.io(read(&lane, member, 512));
        lane.sleep_until(lane.backend().now() + Duration::from_millis(1)).await;
        lane.backend().cancel(io.ticket().unwrap());
        let done = io.await;
        assert_eq!(
            done.result,
            Err(IoError { kind: IoErrorKind::Cancelled, errno: libc::ECANCELED })
        );
        assert!(done.buffer.is_some());
        drop(writer);
    });
}

#[test]
fn a_payload_is_filled_in_place_and_misaligned_memory_bounces() {
    let config = LanesConfig::default();
    let local = LocalLane::new(&config).unwrap();
    let (member, _) = config.members.open("ram:1M", crate::OpenMode::RUN).unwrap();
    let (lane, io) = (local.lane().clone(), local.io().clone());
    let driver_stock = io.payload(4096);
    let place = driver_stock.at(&(0..1)).addr();
    drop(driver_stock);
    local.block_on(async move {
        let payload = io.payload(4096);
        assert_eq!(payload.at(&(0..1)).addr(), place, "the stock gives free memory again");
        let bytes: Vec<u8> = (0..4096u32).map(|at| at as u8).collect();
        let from = WriteFrom::Source(Rc::new(bytes.clone()), 0..4096);
        let write = IoOp::Write { sector: 8, from, fua: true };
        lane.io(MemberIo { member, op: write, patience: Patience::FOREVER }).await.result.unwrap();
        let into = ReadInto::Sink(payload.clone(), 0..4096);
        let op = IoOp::Read { sector: 8, into };
        lane.io(MemberIo { member, op, patience: Patience::FOREVER }).await.result.unwrap();
        assert!(payload.to_vec() == bytes);
        assert_eq!(Rc::strong_count(&payload), 1);
    });
}

#[test]
fn a_lease_bounces_memory_that_is_not_aligned() {
    let config = LanesConfig { io: IoChoice::Preadv, ..LanesConfig::default() };
    let local = LocalLane::new(&config).unwrap();
    let stock = local.io().stock();
    let buffer = Buffer::zeroed(8192);
    let mut lease = Lease::reading(ReadInto::Buffer(buffer, 100..612), 512, stock);
    let place = lease.place(0);
    assert!(place.at.addr().is_multiple_of(512) && place.len == 512);
    // SAFETY: the place is 512 bytes that only this test knows.
    unsafe { std::ptr::write_bytes(place.at, 0x5a, 512) };
    let buffer = lease.end(true, stock).unwrap();
    assert!(buffer[100..612].iter().all(|&byte| byte == 0x5a));
    assert!(buffer[..100].iter().chain(&buffer[612..]).all(|&byte| byte == 0));
    let mut lease = Lease::writing(WriteFrom::Buffer(buffer, 99..611), 512, 512, stock);
    let place = lease.place(0);
    assert!(place.at.addr().is_multiple_of(512));
    // SAFETY: as above; a write's bounce holds the bytes from the start.
    assert_eq!(unsafe { (*place.at, *place.at.add(511)) }, (0, 0x5a));
    assert!(lease.end(true, stock).is_some());
}

/// More calls at once than a queue has entries or threads.
const CROWD: u64 = 3000;
const CROWD_BYTES: usize = 1024;

/// What is to stand in one of the crowd's places.
fn crowd_bytes(place: u64) -> Vec<u8> {
    let stamp = |at: u64| (place * 131 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..CROWD_BYTES as u64 / 8).flat_map(stamp).collect()
}

/// The first place that holds something else.
fn wrong_place(bytes: &[u8]) -> Option<u64> {
    (0..)
        .zip(bytes.chunks(CROWD_BYTES))
        .find_map(|(place, bytes)| (*bytes != *crowd_bytes(place)).then_some(place))
}

/// A lane, and a file of so many bytes on it that the page cache does not serve at once.
fn crowded(io: IoChoice, bytes: u64) -> (LocalLane, MemberId, tempfile::NamedTempFile) {
    let config = LanesConfig { io, ..LanesConfig::default() };
    let lane = LocalLane::new(&config).unwrap();
    let image = tempfile::NamedTempFile::new().unwrap();
    image.as_file().set_len(bytes).unwrap();
    let file = image.reopen().unwrap();
    let identity = Identity::of(&file).unwrap();
    let file = MemberFile::new(file, identity, true);
    let device = Device::File { file, memory_align: 1, inline: false, end: end_of_file };
    let info = MemberInfo {
        name: "image".into(),
        sectors: bytes / 512,
        logical_block_bytes: 512,
        rotational: false,
        discard_zeroes: false,
        is_sparse: false,
    };
    let member = config.members.add(device, info, false).unwrap();
    (lane, member, image)
}

/// Runs a task to its end; one that never comes is an error.
fn end_soon(local: &LocalLane, task: impl Future<Output = ()> + 'static) {
    let until = std::time::Instant::now() + Duration::from_secs(60);
    let ended = Rc::new(Cell::new(false));
    let says_so = ended.clone();
    local.lane().spawn(async move {
        task.await;
        says_so.set(true);
    });
    local.run_until(|| {
        assert!(std::time::Instant::now() < until, "this should have ended long ago");
        ended.get()
    });
}

#[test]
fn calls_beyond_the_entries_of_a_ring_or_without_a_thread_wait_and_none_is_lost() {
    for io in [IoChoice::TinyRing, IoChoice::Uring, IoChoice::Preadv, IoChoice::NoThreads] {
        let (local, member, image) = crowded(io, CROWD * CROWD_BYTES as u64);
        let lane = local.lane().clone();
        end_soon(&local, async move {
            let sector = |place: u64| place * CROWD_BYTES as u64 / 512;
            let write = |place| {
                let from = WriteFrom::Source(Rc::new(crowd_bytes(place)), 0..CROWD_BYTES);
                let op = IoOp::Write { sector: sector(place), from, fua: place % 500 == 0 };
                lane.io(MemberIo { member, op, patience: Patience::FOREVER })
            };
            // From the last to the first, so that no order is right by chance.
            let writes: Vec<_> = (0..CROWD).rev().map(write).collect();
            assert_eq!(lane.backend().in_flight(member), CROWD as usize, "{io:?}");
            for write in writes {
                assert_eq!(write.await.result, Ok(()), "{io:?}");
            }
            let read = |place| {
                let into = ReadInto::Buffer(lane.backend().allocate(CROWD_BYTES), 0..CROWD_BYTES);
                let op = IoOp::Read { sector: sector(place), into };
                lane.io(MemberIo { member, op, patience: Patience::FOREVER })
            };
            let reads: Vec<_> = (0..CROWD).map(read).collect();
            assert_eq!(lane.backend().in_flight(member), CROWD as usize, "{io:?}");
            for (place, read) in (0..).zip(reads) {
                let done = read.await;
                assert!(*done.buffer.unwrap() == crowd_bytes(place), "{io:?}, place {place}");
            }
            assert_eq!(lane.backend().in_flight(member), 0, "{io:?}");
        });
        let mut bytes = std::fs::read(image.path()).unwrap();
        assert_eq!(wrong_place(&bytes), None, "{io:?}");
        bytes[1234 * CROWD_BYTES + 7] ^= 1;
        assert_eq!(wrong_place(&bytes), Some(1234), "one wrong bit is seen");
    }
}

#[test]
fn calls_that_wait_for_an_entry_are_cancelled_and_woken_through_a_full_ring() {
    let config = LanesConfig { io: IoChoice::TinyRing, ..LanesConfig::default() };
    let (local, member, writer) = pipe_with(&config);
    let lane = local.lane().clone();
    end_soon(&local, async move {
        let reads: Vec<_> = (0..200).map(|_| lane.io(read(&lane, member, 512))).collect();
        // From another thread, while the lane has nothing to do but to wait for a pipe.
        for _ in 0..50 {
            let mut asked = false;
            poll_fn(|context| {
                if std::mem::replace(&mut asked, true) {
                    return Poll::Ready(());
                }
                let waker = context.waker().clone();
                std::thread::spawn(move || waker.wake());
                Poll::Pending
            })
            .await;
        }
        for io in &reads {
            lane.backend().cancel(io.ticket().unwrap());
        }
        for io in reads {
            let done = io.await;
            assert_eq!(done.result.map_err(|error| error.kind), Err(IoErrorKind::Cancelled));
            assert!(done.buffer.is_some(), "memory comes home");
        }
        assert_eq!(lane.backend().in_flight(member), 0);
        drop(writer);
    });
}

/// A read of a pipe with a deadline.
fn read_within(lane: &Lane, member: MemberId, millis: u64) -> MemberIo {
    MemberIo { patience: Patience::of(Duration::from_millis(millis)), ..read(lane, member, 512) }
}

#[test]
fn a_member_that_hangs_keeps_no_thread_from_another_one() {
    let config = LanesConfig { io: IoChoice::OneThread, ..LanesConfig::default() };
    let (local, hanging, mut waker) = pipe_with(&config);
    let (_other, healthy, mut writer) = pipe_with(&config);
    let lane = local.lane().clone();
    end_soon(&local, async move {
        let hangs = lane.io(read(&lane, hanging, 512));
        writer.write_all(&[7; 512]).unwrap();
        assert_eq!(lane.io(read(&lane, healthy, 512)).await.result, Ok(()));
        assert_eq!(lane.backend().in_flight(hanging), 1);
        waker.write_all(&[1; 512]).unwrap();
        assert_eq!(hangs.await.result, Ok(()));
    });
}

/// It would be written in time if those before it took no longer than they may.
#[test]
fn the_deadline_of_a_call_counts_from_its_start() {
    let config = LanesConfig { io: IoChoice::OneThread, ..LanesConfig::default() };
    let (local, member, mut writer) = pipe_with(&config);
    let lane = local.lane().clone();
    end_soon(&local, async move {
        let first = lane.io(read(&lane, member, 512));
        let second = lane.io(read_within(&lane, member, 1));
        lane.sleep_until(lane.backend().now() + Duration::from_millis(5)).await;
        writer.write_all(&[1; 1024]).unwrap();
        assert_eq!(first.await.result, Ok(()));
        assert_eq!(second.await.result, Ok(()));
    });
}

/// What waits for a call that is late itself is answered with it.
#[test]
fn a_call_that_waits_behind_one_that_hangs_is_late_with_it() {
    let config = LanesConfig { io: IoChoice::OneThread, ..LanesConfig::default() };
    let (local, member, mut writer) = pipe_with(&config);
    let lane = local.lane().clone();
    end_soon(&local, async move {
        // Time enough for the first one to begin.
        let late = [(); 3].map(|()| lane.io(read_within(&lane, member, 200)));
        for io in late {
            assert_eq!(io.await.result.unwrap_err().kind, IoErrorKind::Deadline);
        }
        writer.write_all(&[1; 512]).unwrap();
        while lane.backend().in_flight(member) > 0 {
            lane.pause().await;
        }
    });
}

/// A call that hangs cannot be taken back, and no stop waits for it.
#[test]
fn lanes_end_while_the_kernel_has_a_call_that_was_answered_at_its_deadline() {
    let config = LanesConfig { io: IoChoice::OneThread, ..LanesConfig::default() };
    let (local, member, mut writer) = pipe_with(&config);
    drop(local);
    let lanes = crate::Lanes::start(config.clone()).unwrap();
    let late = lanes.call(mdspace_engine::lane::LaneId(0), async move |lane, _| {
        lane.io(read_within(&lane, member, 200)).await.result
    });
    assert_eq!(late.unwrap_err().kind, IoErrorKind::Deadline);
    config.members.close(member);
    lanes.stop(Duration::from_secs(60)).unwrap();
    assert!(!config.members.are_let_go(), "what it may still do keeps its lock");
    writer.write_all(&[1; 512]).unwrap();
}

/// Whoever opens a member next may go by it: nothing that was written before can land after that.
#[test]
fn a_member_that_was_closed_says_whether_writes_are_over_there() {
    let config = LanesConfig { io: IoChoice::OneThread, ..LanesConfig::default() };
    let (local, member, mut writer) = pipe_with(&config);
    let fd = config.members.file(member).unwrap().unwrap();
    // Another open file of the same pipe.
    let other = std::fs::File::open(format!("/proc/self/fd/{}", fd.as_raw_fd())).unwrap();
    drop(fd);
    let lane = local.lane().clone();
    let theirs = other.try_clone().unwrap();
    let is_marked = move || are_writes_over(&theirs).unwrap();
    let members = config.members.clone();
    local.block_on(async move {
        let turn = async || lane.sleep_until(lane.backend().now() + Duration::from_millis(1)).await;
        // One thread alone makes calls: the write has to wait for the read.
        let read = lane.io(read_within(&lane, member, 10));
        turn().await;
        let from = WriteFrom::Buffer(lane.backend().allocate(512), 0..512);
        let op = IoOp::Write { sector: 0, from, fua: false };
        let write = lane.io(MemberIo { member, op, patience: Patience::FOREVER });
        assert_eq!(read.await.result.unwrap_err().kind, IoErrorKind::Deadline);
        members.close(member);
        turn().await;
        assert!(!is_marked(), "a write is under way");
        let hangs = lane.io(read_within(&lane, member, 10));
        writer.write_all(&[1; 512]).unwrap();
        assert!(write.await.result.is_err(), "a pipe has no addresses");
        assert_eq!(hangs.await.result.unwrap_err().kind, IoErrorKind::Deadline);
        turn().await;
        assert!(is_marked());
        let from = WriteFrom::Buffer(lane.backend().allocate(512), 0..512);
        let op = IoOp::Write { sector: 0, from, fua: false };
        let io = lane.io(MemberIo { member, op, patience: Patience::FOREVER });
        assert_eq!(io.await.result.unwrap_err().errno, libc::ENODEV);
        assert!(lane.backend().in_flight(member) > 0);
        writer.write_all(&[1; 512]).unwrap();
        while lane.backend().in_flight(member) > 0 {
            turn().await;
        }
    });
    assert!(!are_writes_over(&other).unwrap(), "it is let go");
}

/// A lane's driver without a loop, whose calls a test answers.
struct Bench {
    driver: Rc<Driver>,
    lane: Rc<Lane>,
    _local: LocalLane,
    _writer: io::PipeWriter,
    member: MemberId,
}

impl Bench {
    fn new() -> Self {
        Self::that_ends(IoChoice::Preadv, end_of_file)
    }

    fn that_ends(choice: IoChoice, end: EndOf) -> Self {
        let config = LanesConfig::default();
        let (_local, member, _writer) = pipe_that_ends(&config, end);
        let wake = Arc::new(EventFd::new().unwrap());
        let driver =
            Driver::new(choice, config.members, wake.clone(), Term::WithTheOthers).unwrap();
        let lane = Lane::new(mdspace_engine::lane::LaneId(0), driver.clone(), wake);
        driver.drive(&lane);
        Self { driver, lane, _local, _writer, member }
    }

    fn device(&self) -> Rc<device::Device> {
        let mut devices = self.driver.devices.borrow_mut();
        devices.find(self.member, &self.driver.queue, &self.driver.lane).unwrap().clone()
    }

    /// An I/O whose first call is to be answered.
    fn begin(&self, op: IoOp) -> MemberOp {
        let device = self.device();
        let ticket = Ticket { slot: 7, generation: 1 };
        let mut op = MemberOp::new(&self.driver, device, ticket, NEVER, op);
        op.next(&self.driver);
        op
    }

    fn read(&self) -> IoOp {
        let into = ReadInto::Buffer(self.driver.allocate(512), 0..512);
        IoOp::Read { sector: 0, into }
    }

    fn write(&self, fua: bool) -> IoOp {
        let from = WriteFrom::Buffer(self.driver.allocate(512), 0..512);
        IoOp::Write { sector: 0, from, fua }
    }

    /// What a call that ends so makes of its I/O.
    fn ends(&self, op: &mut MemberOp, result: i32) -> Option<Result<(), IoErrorKind>> {
        match op.absorb(result, &self.driver) {
            Step::Call(_) => None,
            Step::End(result) => Some(result.map_err(|error| error.kind)),
        }
    }

    fn end(&self, op: MemberOp) {
        op.end(Ok(()), &self.driver.stock);
    }
}

/// The process was stopped, or the machine paused: no member was late in that time.
#[test]
fn time_in_which_its_lane_stood_still_is_no_time_of_a_members() {
    let bench = Bench::that_ends(IoChoice::Uring, end_of_file);
    let seconds = |seconds| Time::ZERO + Duration::from_secs(seconds);
    let is_late_at = |now| {
        bench.driver.lately.set(now);
        bench.driver.expire(&bench.lane);
        bench.driver.awaited_total() == 0
    };
    bench.driver.lately.set(seconds(100));
    let io = MemberIo {
        member: bench.member,
        op: bench.read(),
        patience: Patience::of(Duration::from_secs(10)),
    };
    let _read = bench.lane.io(io);
    assert!(!is_late_at(seconds(101) - Duration::from_millis(1)));
    assert!(!is_late_at(seconds(160)), "it stood still for 59 s");
    let half_seconds = (1..).map(|half| seconds(160) + Duration::from_millis(500 * half));
    let late_at = half_seconds.take(100).find(|now| is_late_at(*now)).unwrap();
    assert!((seconds(168)..seconds(172)).contains(&late_at), "{late_at:?}");
}

/// Requests that wait for a path, or for time, have no I/O under way.
#[test]
fn a_lane_that_waits_for_a_time_alone_notices_that_it_stood_still() {
    let bench = Bench::new();
    let wakes = |until: u64, at: u64| {
        bench.driver.looked.set(Time::ZERO + Duration::from_secs(until));
        bench.driver.has_slept.set(true);
        bench.driver.lately.set(Time::ZERO + Duration::from_secs(at));
        bench.driver.expire(&bench.lane);
        bench.driver.stood_still()
    };
    assert_eq!(wakes(100, 90), Duration::ZERO, "something has woken it earlier");
    assert_eq!(wakes(100, 160), Duration::from_secs(60));
    assert_eq!(wakes(170, 171), Duration::from_secs(61));
}

/// No fault of the member's, and no reason to fail it; but what a flush says is not asked for again.
#[test]
fn a_call_that_finds_no_memory_is_made_again_unless_it_flushes() {
    let bench = Bench::new();
    for (op, again) in [
        (bench.read(), true),
        (bench.write(false), true),
        (bench.write(true), true),
        (IoOp::Flush, false),
    ] {
        let what = format!("{op:?}");
        let mut op = bench.begin(op);
        for _ in 0..3 {
            assert_eq!(bench.ends(&mut op, -libc::ENOMEM).is_none(), again, "{what}");
        }
        op.cancelled = true;
        assert!(matches!(bench.ends(&mut op, -libc::ENOMEM), Some(Err(_))), "{what}");
        bench.end(op);
    }
}

/// A file system tells once what its write-back met, whatever the number: the next flush would say that all is well.
#[test]
fn a_call_that_is_to_be_made_again_is_unless_its_flush_may_have_told_an_error() {
    let bench = Bench::new();
    let write = || bench.write(true);
    for (op, is_flushing) in [
        (bench.read(), false),
        (write(), false),
        (write(), true),
        (IoOp::WriteZeroes { sector: 0, sectors: 1, fua: true }, true),
        (IoOp::Flush, true),
    ] {
        let what = format!("{op:?}, flushing: {is_flushing}");
        let is_flush = matches!(op, IoOp::Flush);
        let mut op = bench.begin(op);
        if is_flushing && !is_flush {
            assert_eq!(bench.ends(&mut op, 512), None, "the flush is to come");
        }
        for errno in [libc::EINTR, libc::EAGAIN] {
            let ended = bench.ends(&mut op, -errno);
            assert_eq!(ended, is_flushing.then_some(Err(IoErrorKind::Flush)), "{what}: {errno}");
        }
        bench.end(op);
    }
}

/// One number says that zeroes are to be written, and that a flush has failed.
#[test]
fn zeroes_that_a_file_system_cannot_make_are_written_and_their_flush_that_fails_is_not_made_again()
{
    let bench = Bench::new();
    let zeroes = IoOp::WriteZeroes { sector: 0, sectors: 1, fua: true };
    let mut op = bench.begin(zeroes);
    assert_eq!(bench.ends(&mut op, -libc::EOPNOTSUPP), None, "they are written");
    assert_eq!(bench.ends(&mut op, 512), None, "the flush is to come");
    assert_eq!(bench.ends(&mut op, -libc::EOPNOTSUPP), Some(Err(IoErrorKind::Flush)));
    bench.end(op);
    let zeroes = IoOp::WriteZeroes { sector: 0, sectors: 1, fua: true };
    let mut op = bench.begin(zeroes);
    assert_eq!(bench.ends(&mut op, 0), None, "the flush is to come");
    assert_eq!(bench.ends(&mut op, -libc::EOPNOTSUPP), Some(Err(IoErrorKind::Flush)));
    bench.end(op);
}

/// A sector that refuses a write is listed, and a full file system is no reason to fail its member. What
/// fails to make durable is, for a second flush would say that all is well.
#[test]
fn a_durable_write_says_whether_the_write_or_the_flush_failed() {
    let bench = Bench::new();
    for (errno, of_write, of_flush) in [
        (libc::EIO, IoErrorKind::Medium, IoErrorKind::Flush),
        (libc::ENOSPC, IoErrorKind::NoSpace, IoErrorKind::Flush),
        (libc::EBADE, IoErrorKind::Reserved, IoErrorKind::Reserved),
        (libc::ENODEV, IoErrorKind::Gone, IoErrorKind::Gone),
    ] {
        let mut op = bench.begin(bench.write(true));
        assert_eq!(bench.ends(&mut op, -errno), Some(Err(of_write)), "errno {errno}");
        bench.end(op);
        let mut op = bench.begin(bench.write(true));
        assert_eq!(bench.ends(&mut op, 512), None, "the flush is to come");
        assert_eq!(bench.ends(&mut op, -errno), Some(Err(of_flush)), "errno {errno}");
        bench.end(op);
    }
}

/// A write behind the end of a block device finds no space, and no file system is full: the others have the
/// data.
#[test]
fn a_block_device_that_ends_earlier_than_before_is_gone_and_not_full() {
    let ends: [(EndOf, IoErrorKind); 3] = [
        (|_| Some(((1 << 20) - 1) * 512), IoErrorKind::Gone),
        (|_| Some((1 << 20) * 512), IoErrorKind::NoSpace),
        (|_| None, IoErrorKind::NoSpace),
    ];
    for (end, kind) in ends {
        let bench = Bench::that_ends(IoChoice::Preadv, end);
        let mut op = bench.begin(bench.write(false));
        assert_eq!(bench.ends(&mut op, -libc::ENOSPC), Some(Err(kind)));
        bench.end(op);
    }
}

/// The end of a device is asked for without the lock that a zeroing holds which hangs.
#[test]
fn what_is_no_device_has_no_end_of_one() {
    let image = tempfile::tempfile().unwrap();
    image.set_len(3 * 512).unwrap();
    assert_eq!((end_of_file(&image), end_of_device(&image)), (Some(3 * 512), None));
    let device = std::fs::File::open("/dev/null").unwrap();
    assert_eq!((end_of_file(&device), end_of_device(&device)), (None, None));
}

/// A write beyond the end of a file makes it longer. One up to where the member ended would make it as long as it was,
/// and what someone has cut off would read as zeroes.
#[test]
fn no_write_makes_a_file_whole_that_was_cut() {
    const LAST: u64 = (1 << 20) - 1;
    let gone = Some(Err(IoErrorKind::Gone));
    let short: EndOf = |_| Some(LAST * 512);
    let bench = Bench::that_ends(IoChoice::Preadv, short);
    let write = |sector, bytes| {
        let from = WriteFrom::Buffer(bench.driver.allocate(bytes), 0..bytes);
        IoOp::Write { sector, from, fua: false }
    };
    let submit = |op| {
        let io = MemberIo { member: bench.member, op, patience: Patience::FOREVER };
        match bench.driver.submit(Ticket { slot: 7, generation: 1 }, io) {
            Submitted::Done(done) => Some(done.result.map_err(|error| error.kind)),
            Submitted::Pending => None,
        }
    };
    assert_eq!(submit(write(LAST, 512)), gone);
    assert_eq!(submit(write(LAST - 1, 1024)), gone);
    assert_eq!(submit(write(LAST - 1, 512)), None, "the file stays shorter, and that shows");
    // It was cut after the first call.
    let mut op = bench.begin(write(LAST - 1, 1024));
    assert_eq!(bench.ends(&mut op, 512), gone, "the rest");
    bench.end(op);
    let zeroes = |fua| IoOp::WriteZeroes { sector: LAST, sectors: 1, fua };
    let mut op = bench.begin(zeroes(false));
    assert_eq!(bench.ends(&mut op, -libc::EOPNOTSUPP), gone, "zeroes that are written");
    bench.end(op);
    let mut op = bench.begin(zeroes(true));
    assert_eq!(bench.ends(&mut op, 0), None, "a flush makes nothing longer");
    bench.end(op);
    let bench = Bench::that_ends(IoChoice::Preadv, |_| Some((LAST + 1) * 512));
    let from = WriteFrom::Buffer(bench.driver.allocate(512), 0..512);
    let op = IoOp::Write { sector: LAST, from, fua: false };
    let io = MemberIo { member: bench.member, op, patience: Patience::FOREVER };
    let submitted = bench.driver.submit(Ticket { slot: 7, generation: 1 }, io);
    assert!(matches!(submitted, Submitted::Pending), "it is as long as ever");
}

/// It was answered at its deadline. What the device says later is said once, of all that was written before.
#[test]
fn a_flush_that_fails_after_its_deadline_tells_its_lane() {
    let bench = Bench::new();
    let told = Rc::new(RefCell::new(Vec::new()));
    let tells = told.clone();
    bench.lane.on_late_flush(move |member, error| tells.borrow_mut().push((member, error.kind)));
    let loss = Err(flush_error(libc::EIO));
    for (op, calls, result, tells) in [
        (IoOp::Flush, 0, loss, true),
        (IoOp::Flush, 0, Ok(()), false),
        (bench.write(true), 1, loss, true),
        (bench.write(true), 0, Err(io_error(libc::EIO)), false),
        (bench.write(false), 0, Err(io_error(libc::EIO)), false),
    ] {
        let what = format!("{op:?}, {calls} calls, {result:?}");
        let mut op = bench.begin(op);
        for _ in 0..calls {
            assert!(matches!(op.absorb(512, &bench.driver), Step::Call(_)), "{what}");
        }
        op.overtake();
        bench.driver.end_member(&bench.lane, op, result);
        let expected = tells.then_some((bench.member, IoErrorKind::Flush));
        assert_eq!(told.borrow_mut().pop(), expected, "{what}");
    }

    let export = Export::that_flushes(true);
    for (op, tells) in [(IoOp::Flush, true), (bench.write(true), true), (bench.write(false), false)]
    {
        let ticket = Ticket { slot: 7, generation: 1 };
        let mut op = RemoteOp::new(&bench.driver, bench.device(), export, ticket, NEVER, op);
        op.ticket = None;
        let token = bench.driver.ops.borrow_mut().add(Op::Remote(op));
        bench.driver.end_remote(&bench.lane, token, loss);
        assert_eq!(told.borrow_mut().pop().is_some(), tells);
    }
}

/// Whether the server takes the flag or is sent a flush of its own.
#[test]
fn a_request_to_a_server_that_makes_durable_and_fails_is_a_failed_flush() {
    let (bench, eio) = (Bench::new(), libc::EIO as u32);
    let device = bench.device();
    for (forces, fua, answers, kind) in [
        (true, false, &[eio][..], IoErrorKind::Medium),
        (true, true, &[eio], IoErrorKind::Flush),
        (true, true, &[libc::ENOSPC as u32], IoErrorKind::Flush),
        (false, true, &[eio], IoErrorKind::Medium),
        (false, true, &[0, eio], IoErrorKind::Flush),
    ] {
        let export = Export::that_flushes(forces);
        let (ticket, op) = (Ticket { slot: 7, generation: 1 }, bench.write(fua));
        let mut op = RemoteOp::new(&bench.driver, device.clone(), export, ticket, NEVER, op);
        let mut ended = None;
        for &answer in answers {
            op.header(Token(1), export, Moment::default());
            ended = match op.absorb(answer, &bench.driver) {
                Next::Again => None,
                Next::End(result) => Some(result.map_err(|error| error.kind)),
            };
        }
        assert_eq!(ended, Some(Err(kind)), "forces {forces}, fua {fua}, {answers:?}");
        op.end(Ok(()), &bench.driver.stock);
    }
}

/// Zeroes can always be written. What is refused of a durable request may be what makes it durable.
#[test]
fn zeroes_that_a_server_refuses_to_make_are_written() {
    let (bench, refused) = (Bench::new(), libc::EOPNOTSUPP as u32);
    let device = bench.device();
    let zeroes = |fua| IoOp::WriteZeroes { sector: 8, sectors: 4, fua };
    for (op, forces, answers) in [
        (zeroes(false), true, &[Ok(refused), Ok(0)][..]),
        (IoOp::Discard { sector: 8, sectors: 4 }, true, &[Ok(refused), Ok(0)]),
        (zeroes(true), false, &[Ok(refused), Ok(0), Ok(0)]),
        (zeroes(true), true, &[Err(refused)]),
    ] {
        let what = format!("{op:?}");
        let (ticket, export) =
            (Ticket { slot: 7, generation: 1 }, Export::that_makes_zeroes(forces));
        let mut op = RemoteOp::new(&bench.driver, device.clone(), export, ticket, NEVER, op);
        for (at, answer) in answers.iter().enumerate() {
            let header = op.header(Token(1), export, Moment::default());
            let kinds = [command::WRITE_ZEROES, command::WRITE, command::FLUSH];
            assert_eq!(header[6..8], kinds[at].to_be_bytes(), "{what}");
            if at == 1 {
                assert_eq!(header[16..24], (8 * 512u64).to_be_bytes());
                assert_eq!(header[24..28], (4 * 512u32).to_be_bytes());
            }
            let next = op.absorb(answer.unwrap_or_else(|errno| errno), &bench.driver);
            let is_last = at + 1 == answers.len();
            match next {
                Next::Again => assert!(!is_last, "{what}"),
                Next::End(result) => {
                    assert_eq!((is_last, result.is_ok()), (true, answer.is_ok()), "{what}")
                }
            }
        }
        op.end(Ok(()), &bench.driver.stock);
    }
}

/// A write and its flush are one I/O: a second answer to the write is not the flush's.
#[test]
fn each_request_of_an_io_has_an_answer_of_its_own() {
    let bench = Bench::new();
    let (export, token) = (Export::that_flushes(false), Token(1 << 32 | 3));
    let (ticket, op) = (Ticket { slot: 3, generation: 1 }, bench.write(true));
    let mut op = RemoteOp::new(&bench.driver, bench.device(), export, ticket, NEVER, op);
    let mut cookies = Vec::new();
    for _ in 0..2 {
        let header = op.header(token, export, Moment::default());
        let cookie = u64::from_be_bytes(header[8..16].try_into().expect("eight bytes"));
        assert_eq!(remote_op::token_of(cookie), token);
        assert!(op.awaits(token, cookie));
        assert!(cookies.iter().all(|earlier| !op.awaits(token, *earlier)), "{cookies:x?}");
        cookies.push(cookie);
        op.absorb(0, &bench.driver);
    }
    op.end(Ok(()), &bench.driver.stock);
}

/// Its owner was answered, and a newer write to the same place may be done; and nobody would hear what a flush says,
/// which is said once.
#[test]
fn an_io_that_was_answered_at_its_deadline_makes_no_other_call() {
    let bench = Bench::new();
    let zeroes = || IoOp::WriteZeroes { sector: 0, sectors: 1, fua: false };
    for (make, result) in [
        (bench.write(false), -libc::EINTR),
        (bench.write(false), -libc::EAGAIN),
        (bench.write(false), -libc::ENOMEM),
        (bench.write(false), 0),
        (bench.write(true), 512),
        (zeroes(), -libc::EOPNOTSUPP),
        (IoOp::WriteZeroes { sector: 0, sectors: 1, fua: true }, 0),
    ] {
        let what = format!("{make:?}, {result}");
        let mut op = bench.begin(make);
        assert!(op.overtake().is_some());
        assert!(matches!(bench.ends(&mut op, result), Some(Err(_))), "{what}");
        bench.end(op);
    }
    let from = WriteFrom::Buffer(bench.driver.allocate(1024), 0..1024);
    let mut op = bench.begin(IoOp::Write { sector: 0, from, fua: false });
    assert_eq!(bench.ends(&mut op, 512), None, "somebody waits for the rest");
    assert!(op.overtake().is_some());
    assert_eq!(bench.ends(&mut op, 512), Some(Ok(())));
    bench.end(op);
    let from = WriteFrom::Buffer(bench.driver.allocate(1024), 0..1024);
    let mut op = bench.begin(IoOp::Write { sector: 0, from, fua: false });
    assert!(op.overtake().is_some());
    assert!(matches!(bench.ends(&mut op, 512), Some(Err(_))), "nobody does");
    bench.end(op);
}

/// 64 MiB are kept, and as much is registered with the ring; more is in use at once, and serves as well.
#[test]
fn memory_beyond_what_a_lane_keeps_and_registers_serves_and_is_let_go() {
    const BUFFERS: u64 = 80;
    const BYTES: usize = 1 << 20;
    let (local, member, _image) = crowded(IoChoice::Auto, BUFFERS * BYTES as u64);
    let (lane, stock) = (local.lane().clone(), local.io().stock().clone());
    end_soon(&local, async move {
        let io = |op| lane.io(MemberIo { member, op, patience: Patience::FOREVER });
        let sector = |number: u64| number * BYTES as u64 / 512;
        let filled = |number: u64| (number * 3 + 1) as u8;
        let write = |number| {
            let mut buffer = lane.backend().allocate(BYTES);
            buffer.fill(filled(number));
            let from = WriteFrom::Buffer(buffer, 0..BYTES);
            io(IoOp::Write { sector: sector(number), from, fua: false })
        };
        let writes: Vec<_> = (0..BUFFERS).map(write).collect();
        let mut back = Vec::new();
        for write in writes {
            back.extend(write.await.buffer);
        }
        assert_eq!((back.len() as u64, stock.kept_bytes()), (BUFFERS, 0));
        back.into_iter().for_each(|buffer| lane.backend().recycle(buffer));
        assert_eq!(stock.kept_bytes(), 64 * BYTES);
        let read = |number| {
            let into = ReadInto::Buffer(lane.backend().allocate(BYTES), 0..BYTES);
            io(IoOp::Read { sector: sector(number), into })
        };
        let reads: Vec<_> = (0..BUFFERS).map(read).collect();
        for (number, read) in (0..).zip(reads) {
            let buffer = read.await.buffer.unwrap();
            assert!(buffer.iter().all(|byte| *byte == filled(number)), "buffer {number}");
            lane.backend().recycle(buffer);
        }
        assert_eq!(stock.kept_bytes(), 64 * BYTES);
    });
}
